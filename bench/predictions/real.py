"""The real run: `plimsoll load`, `plimsoll proxy`, and emulated backends, each a process."""

import contextlib
import json
import os
import pathlib
import random
import shutil
import socket
import subprocess
import time
import urllib.request
from collections.abc import Callable, Iterator

from .forecast import TIMEOUT
from .setups import CRITICALITIES, FAIL_FAST, PATIENCE_MS, Phase, Setup, steady

# Below the range that the kernel takes for outgoing connections.
PORTS = range(20_000, 32_000)
# More than any set-up has: the limit is not what is compared.
MAX_ACTIVE = 100
# After a failed attempt, and after one that sent nothing.
FURTHER_ATTEMPTS = ("plimsoll_retries_total{", "plimsoll_further_attempts_total{")


# A lock for each port given out, held to the end of this process. The tests take the same locks.
_locks: list[socket.socket] = []


def free_port() -> int:
    """A loopback port on which nothing listens. Neither another set-up nor a test gets it while this process lives."""
    for port in random.sample(PORTS, len(PORTS)):
        lock = socket.socket(socket.AF_UNIX)
        try:
            lock.bind(f"\0plimsoll-test-port-{port}")
            with socket.socket() as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                probe.bind(("127.0.0.1", port))
        except OSError:
            lock.close()
            continue
        _locks.append(lock)
        return port
    raise RuntimeError("no free port between 20000 and 32000")


class Processes:
    """The processes of one run; none outlives it."""

    def __init__(self, directory: pathlib.Path):
        self.directory = directory
        self._running: list[subprocess.Popen] = []

    def start(self, name: str, command: list[str], **pipes: object) -> subprocess.Popen:
        with (self.directory / f"{name}.log").open("ab") as log:
            pipes = {"stdin": subprocess.DEVNULL, "stdout": log, "stderr": log} | pipes
            setpriv = shutil.which("setpriv")
            # So that nothing stays behind when this process is killed.
            guard = [setpriv, "--pdeathsig", "KILL", "--"] if setpriv else []
            child = subprocess.Popen([*guard, *command], **pipes)
        self._running.append(child)
        return child

    def listen(self, name: str, command: list[str], port: int) -> subprocess.Popen:
        """Starts a process and waits until it accepts connections."""
        child = self.start(name, command)
        deadline = time.monotonic() + 20
        while True:
            if child.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"{name} does not listen:\n{(self.directory / f'{name}.log').read_text()}")
            with contextlib.suppress(OSError):
                socket.create_connection(("127.0.0.1", port), timeout=1).close()
                return child
            time.sleep(0.01)

    def stop(self) -> None:
        for child in reversed(self._running):
            if child.poll() is None:
                child.kill()
            child.wait()


def cpu_seconds(pids: list[int]) -> float:
    """User and system time so far."""
    ticks = 0
    for pid in pids:
        with contextlib.suppress(OSError):
            fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


class Fleet:
    """The backends and the proxy of a set-up."""

    def __init__(self, setup: Setup, program: str, processes: Processes, seed: int):
        self.setup, self.program, self.processes, self.seed = setup, program, processes, seed
        self.ports = [free_port() for _ in setup.speeds]
        self.backends = {}
        for number in range(len(setup.speeds)):
            self.start_backend(number)
        self.port, self.admin = free_port(), free_port()
        config = processes.directory / "proxy.toml"
        config.write_text(self.config())
        self.proxy = processes.listen("proxy", [program, "proxy", "-c", str(config)], self.port)

    def start_backend(self, number: int) -> None:
        setup, port = self.setup, self.ports[number]
        command = [self.program, "backend", "--listen", f"127.0.0.1:{port}", "--emulate", setup.discipline]
        command += ["--cost", f"exp:{setup.cost_ms}ms", "--speed", str(setup.speeds[number])]
        # By time too: a backend that returns does not begin the same costs again.
        command += ["--seed", str(1_000 * self.seed + number + time.monotonic_ns() % 1_000 * 1_000_000)]
        if (share := setup.failing.get(number)) is not None:
            command += ["--fail-fast"] if share == FAIL_FAST else ["--error-rate", str(share)]
        command += ["--protect"] * setup.shedding
        self.backends[number] = self.processes.listen(f"backend-{number}", command, port)

    def config(self) -> str:
        setup = self.setup
        zones = [f', zone = "{setup.zones[number % len(setup.zones)]}"' if setup.zones else "" for number in range(len(self.ports))]
        backends = [f'{{ address = "127.0.0.1:{port}"{zone} }}' for port, zone in zip(self.ports, zones, strict=True)]
        tables = [
            f"[clusters.main.{name}]\n" + "\n".join(f"{key} = {json.dumps(value)}" for key, value in settings.items())
            for name, settings in setup.tables.items()
        ]
        return f"""
threads = 1

[admin]
listen = "127.0.0.1:{self.admin}"

[[listeners]]
address = "127.0.0.1:{self.port}"
trust_criticality = "critical-plus"

[[routes]]
cluster = "main"

[clusters.main]
backends = [{", ".join(backends)}]
policy = "{setup.policy}"
max_active_requests = {2_000 if setup.shedding else MAX_ACTIVE}

[clusters.main.health]
check = "none"

[clusters.main.throttle]
policy = "off"

[clusters.main.retry]
max_attempts = {setup.attempts}

{chr(10).join(tables)}
"""

    def further_attempts(self) -> float:
        """Attempts of the proxy so far, without the first ones of requests."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.admin}/metrics", timeout=5) as response:
                lines = response.read().decode().splitlines()
        except OSError as error:
            log = (self.processes.directory / "proxy.log").read_text()
            raise RuntimeError(f"{self.setup.name}: the proxy does not answer ({error}), exit code {self.proxy.poll()}:\n{log}") from error
        return sum(float(line.rpartition(" ")[2]) for line in lines if line.startswith(FURTHER_ATTEMPTS))

    def pids(self) -> list[int]:
        return [child.pid for child in (*self.backends.values(), self.proxy)]


def load_command(fleet: Fleet, phase: Phase, number: int) -> list[str]:
    setup = fleet.setup
    command = [fleet.program, "load", f"http://127.0.0.1:{fleet.port}/", "--json", "--rate", f"{setup.rate:g}"]
    command += ["--warmup", f"{round(phase.settle * 1e3)}ms", "--duration", f"{round((phase.seconds - phase.settle) * 1e3)}ms"]
    command += ["--timeout", TIMEOUT, "--seed", str(100 * fleet.seed + number)]
    # Latencies of served requests alone; in both cases those that came in time.
    command += ["--useful-within", f"{PATIENCE_MS}ms" if setup.shedding else TIMEOUT]
    if setup.shedding:
        command += ["--criticality", ",".join(f"{name}={part}" for name, part in CRITICALITIES.items())]
    return command


def _of_phase(fleet: Fleet, phase: Phase, counted: dict) -> dict[str, float]:
    """The metrics of a phase, by the names of the simulator."""
    groups, requests = counted["groups"], max(counted["requests"], 1)
    of_all = groups["all"]
    made = {f"p{quantile}": of_all[f"useful_p{quantile}_ms"] or 0.0 for quantile in (50, 90, 99)}
    if fleet.setup.shedding:
        made["shed_share"] = of_all["shed"] / requests
        for name, of in groups["by_criticality"].items():
            made[f"{name}.shed_share"] = of["shed"] / max(of["requests"], 1)
    else:
        answered = max(sum(counted["backends"].values()), 1)
        for number, port in enumerate(fleet.ports):
            made[f"share.{fleet.setup.backend(number)}"] = counted["backends"].get(f"127.0.0.1:{port}", 0) / answered
        made["error_share"] = 1 - of_all["ok"] / requests
    return {f"{phase.name}.{name}": value for name, value in made.items()}


def run(setup: Setup, program: str, directory: pathlib.Path, seed: int = 1, say: Callable[[str], None] = lambda _: None) -> dict:
    """`metrics` of a real run, and how it went: `lag_ms` of the load, `cores` used by all processes but the load."""
    directory.mkdir(parents=True, exist_ok=True)
    processes = Processes(directory)
    try:
        fleet = Fleet(setup, program, processes, seed)
        began, cpu = time.monotonic(), cpu_seconds(fleet.pids())
        metrics, lag, at, loads, down = {}, 0.0, began, [], set()
        for number, phase in enumerate(setup.phases):
            for backend in sorted(set(phase.down) - down):
                fleet.backends[backend].kill()
                fleet.backends[backend].wait()
            for backend in sorted(down - set(phase.down)):
                fleet.start_backend(backend)
            down = set(phase.down)
            child = processes.start(
                f"load-{phase.name}", load_command(fleet, phase, number), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
            )
            loads.append((phase, child))
            if number == 0:
                _sleep_until(at + phase.settle)
                further = fleet.further_attempts()
            at += phase.seconds
            _sleep_until(at)
        for phase, child in loads:
            output, errors = child.communicate(timeout=30)
            if child.returncode != 0:
                raise RuntimeError(f"plimsoll load ended with {child.returncode}:\n{errors}")
            counted = json.loads(output)
            lag = max(lag, counted["send_lag_ms"]["p99"])
            (directory / f"load-{phase.name}.json").write_text(output)
            metrics |= _of_phase(fleet, phase, counted)
        requests = setup.rate * (setup.seconds - setup.phases[0].settle)
        metrics["attempts_per_request"] = 1 + (fleet.further_attempts() - further) / requests
        cores = (cpu_seconds(fleet.pids()) - cpu) / (time.monotonic() - began)
    finally:
        processes.stop()
    say(f"{setup.name}: measured, load late by {lag:.1f} ms (p99), {cores:.3f} cores")
    return {"metrics": metrics, "lag_ms": lag, "cores": cores}


def _sleep_until(moment: float) -> None:
    time.sleep(max(moment - time.monotonic(), 0))


def overhead(program: str, directory: pathlib.Path, seconds: float = 3) -> float:
    """What a request takes beside its work, in seconds: the median of requests without any."""
    idle = Setup("overhead", "requests without work", "fcfs", 150, steady(1, seconds), (1.0,) * 5, cost_ms=0)
    return run(idle, program, directory)["metrics"]["steady.p50"] / 1e3
