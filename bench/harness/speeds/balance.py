"""The balance over two slow and two fast machines, at shares of the capacity of all.

The machines are emulated: each backend is a process that answers when a machine of one core and this
speed would, and uses no CPU. So all proxies run at the same time, each with machines of its own.
"""

import statistics
import subprocess

from ..discovery.fleet import counted, until_undisturbed
from ..peers import Plimsoll
from ..processes import Process, Site, free_port
from .contestants import CONTESTANTS, Speeds

SPEEDS = (1.0, 1.0, 2.0, 2.0)
# Mean of exponential costs, at speed 1.
COST_MS = 20.0
LOADS = (0.5, 0.8)
# Later, and the latencies are those of this machine.
MAX_SEND_LAG_MS = 20
TIMEOUT_S = 10
# `weighted` believes load reports after 10 s.
WARMUP_S = 20


def rate(load: float) -> float:
    """Requests a second at this share of the capacity."""
    return load * sum(SPEEDS) / (COST_MS / 1e3)


class Side:
    """A proxy with its machines."""

    def __init__(self, site: Site, contestant, label: str):
        self.processes: list[Process] = []
        ports = [free_port() for _ in SPEEDS]
        self.backends = tuple(f"127.0.0.1:{port}" for port in ports)
        for number, (port, speed) in enumerate(zip(ports, SPEEDS, strict=True)):
            command = [Plimsoll.program, "backend", "--listen", f"127.0.0.1:{port}", "--emulate", "sharing", "--seed", str(number)]
            command += ["--cost", f"exp:{COST_MS}ms", "--speed", str(speed)]
            self.processes.append(Process(f"{label}-backend-{number}", command, site.directory, site.load_cores))
            self.processes[-1].wait_for_port(port)
        self.proxy = contestant.proxy(site, Speeds(backends=self.backends, speeds=SPEEDS), label)

    def load(self, load: float, warmup: float, seconds: float, seed: int) -> subprocess.Popen:
        options = ["--rate", str(rate(load)), "--warmup", f"{warmup}s", "--duration", f"{seconds}s", "--timeout", f"{TIMEOUT_S}s"]
        command = [Plimsoll.program, "load", *options, "--seed", str(seed), "--json", f"http://127.0.0.1:{self.proxy.port}/"]
        return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)

    def stop(self) -> None:
        self.proxy.process.kill()
        for process in self.processes:
            process.kill()


def measured(side: Side, load: subprocess.Popen, seconds: float) -> dict:
    """Counts of a load, with the shares and the work of slow and fast machines, by answers."""
    counts = counted(load)
    by_backend = counts.pop("backends")
    answers = [by_backend.get(address, 0) for address in side.backends]
    total = max(sum(answers), 1)
    work = [count * COST_MS / 1e3 / speed / seconds for count, speed in zip(answers, SPEEDS, strict=True)]
    slow = [each == min(SPEEDS) for each in SPEEDS]
    return counts | {
        "fast_share": sum(count for count, is_slow in zip(answers, slow, strict=True) if not is_slow) / total,
        "slow_work": statistics.mean(each for each, is_slow in zip(work, slow, strict=True) if is_slow),
        "fast_work": statistics.mean(each for each, is_slow in zip(work, slow, strict=True) if not is_slow),
    }


def run(site: Site, rounds: int, warmup: float, seconds: float) -> dict:
    """By load and contestant, a list with the counts of each round."""
    made: dict = {str(load): {each.name: [] for each in CONTESTANTS} for load in LOADS}
    discarded: list[dict] = []
    attempts = 0
    for number in range(rounds):
        for load in LOADS:

            def attempt(load: float = load, number: int = number) -> dict:
                nonlocal attempts
                attempts += 1
                sides = {each.name: Side(site, each, f"{attempts}-{at}") for at, each in enumerate(CONTESTANTS)}
                try:
                    loads = {name: side.load(load, warmup, seconds, number + 1) for name, side in sides.items()}
                    return {name: measured(sides[name], loads[name], seconds) for name in sides}
                finally:
                    for side in sides.values():
                        side.stop()

            name = f"load {load}, round {number + 1}"
            counts, left_out = until_undisturbed(name, attempt, lambda of: list(of.values()), MAX_SEND_LAG_MS)
            counts.pop("send_lag_p99_ms")
            discarded += left_out
            for name, of in counts.items():
                made[str(load)][name].append(of)
    return {"loads": made, "discarded": discarded}
