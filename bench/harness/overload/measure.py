"""One measurement: a fresh backend, what protects it, and load from another core; and the rounds of them.

Each begins with new processes, for a queue or a controller that remembers the last load would answer for it. Open loop: slow
answers do not slow the arrivals. Clients give up after a second, four times as long as an answer is of use: users do not
leave at the moment that the operator drew up.

Each round also has the ceiling: the backend alone, kept busy by a few callers who wait for their answers. It does less than its
CPU allows, since it reads and writes HTTP besides; nobody who protects it can have it do more.

The CPU of the backend's worker threads is work; that of all its other threads and of the proxy is what it costs to take
requests in, turn them away and pass them on ("beside"). The difference between an answered and a rejected request shows there.
"""

import contextlib
import json
import pathlib
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace

from .. import machine
from ..load import LoadFailed
from ..peers import Plimsoll
from ..processes import Process, Site, StartFailed, cpu_of_threads, cpu_of_tree, free_port
from .contestants import UNPROTECTED, Contestant, LimitedSetup

# CPU of a request at the backend: lognormal, of this mean and sigma 1, as many services have it.
COST_SECONDS = 0.002
COST = "lognormal:2ms,1"
# Requests a second that one core can serve when it does nothing else.
CAPACITY = 1 / COST_SECONDS
# Parts of the requests, from the one that is given up last down.
CRITICALITIES = {"critical-plus": 10, "critical": 30, "sheddable-plus": 30, "sheddable": 30}
CUSTOMERS = ("a", "b", "c")
USEFUL_WITHIN_MS = 250
CLIENT_TIMEOUT_SECONDS = 1
# More than wait at ten times the capacity when nobody is answered.
MAX_IN_FLIGHT = 9_000
# Where the load itself leaves later than this (p99), a tenth of the deadline, it was measured and not the server: its core was taken
# from it.
MOST_LAG_MS = 25
# A search for a limit: seconds of warm-up, seconds measured.
_SEARCH = (2, 4)
# Makes the seed of the costs from that of the arrivals. Within a round both are the same for all; with one seed for the two, short
# gaps would have cheap requests.
_COSTS = 1_000
# Callers who keep the backend busy and never have much wait: the ceiling of what it does.
CALLERS = 8
# Threads of `plimsoll backend` that do the work.
_WORKERS = "core-"


@dataclass(frozen=True)
class Effort:
    """How long to measure, and where."""

    rounds: int
    warm_up: int
    seconds: int
    core: int
    proxy_core: int
    load_cores: set[int]


@dataclass(frozen=True)
class Running:
    """Where requests go, and whose CPU counts."""

    port: int
    backend: Process
    proxy: Process | None

    def cpu(self) -> tuple[float, float]:
        """Seconds until now: of work, and of all else."""
        work = cpu_of_threads(self.backend.pid, _WORKERS)
        every = sum(cpu_of_tree(process.pid).total for process in (self.backend, self.proxy) if process)
        return work, every - work


@contextlib.contextmanager
def _running(contestant: Contestant, limit: int | None, effort: Effort, seed: int) -> Iterator[Running]:
    started: list[Process] = []
    with tempfile.TemporaryDirectory(prefix="plimsoll-overload-") as directory:
        site = Site(pathlib.Path(directory), {effort.proxy_core}, {effort.core})
        port = free_port()
        command = [Plimsoll.program, "backend", "--listen", f"127.0.0.1:{port}", "--cost", COST, "--cores", "1"]
        command += ["--seed", str(seed + _COSTS), *contestant.backend_options]
        try:
            backend = Process("backend", command, site.directory, {effort.core})
            started.append(backend)
            backend.wait_for_port(port)
            if contestant.proxy is None:
                yield Running(port, backend, None)
            else:
                setup = LimitedSetup((f"127.0.0.1:{port}",), limit=limit, backend=backend.pid)
                proxy = contestant.proxy(site, setup, contestant.name)
                started.append(proxy.process)
                yield Running(proxy.port, backend, proxy.process)
        finally:
            for process in reversed(started):
                process.stop()


def overload_command(port: int, load: float, warm_up: float, seconds: float, seed: int) -> list[str]:
    """Offers `load` times the capacity of one core."""
    return [
        *(Plimsoll.program, "load", f"http://127.0.0.1:{port}/", "--json", "--rate", f"{load * CAPACITY:g}"),
        *("--criticality", ",".join(f"{name}={part}" for name, part in CRITICALITIES.items())),
        *("--customers", ",".join(f"{name}=1" for name in CUSTOMERS)),
        *("--useful-within", f"{USEFUL_WITHIN_MS}ms", "--tell-deadline", "--timeout", f"{CLIENT_TIMEOUT_SECONDS}s"),
        *("--max-in-flight", str(MAX_IN_FLIGHT), "--warmup", f"{warm_up}s", "--duration", f"{seconds}s", "--seed", str(seed)),
    ]


def _callers_command(port: int, warm_up: int, seconds: int) -> list[str]:
    return [
        *(Plimsoll.program, "load", f"http://127.0.0.1:{port}/", "--json", "--concurrency", str(CALLERS)),
        *("--useful-within", f"{USEFUL_WITHIN_MS}ms", "--warmup", f"{warm_up}s", "--duration", f"{seconds}s"),
    ]


def _once(contestant: Contestant, limit: int | None, load: float | None, effort: Effort, seed: int) -> dict:
    """`load`: None for callers who keep it busy."""
    with _running(contestant, limit, effort, seed) as running:
        if load is None:
            command = _callers_command(running.port, effort.warm_up, effort.seconds)
        else:
            command = overload_command(running.port, load, effort.warm_up, effort.seconds, seed)
        child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        try:
            time.sleep(effort.warm_up)
            began, ticks, (work, beside) = time.monotonic(), machine.ticks(), running.cpu()
            sending = cpu_of_tree(child.pid).total
            time.sleep(effort.seconds)
            stolen, (work_then, beside_then) = machine.ticks().stolen_since(ticks), running.cpu()
            sending = cpu_of_tree(child.pid).total - sending
            took = time.monotonic() - began
            output, errors = child.communicate(timeout=CLIENT_TIMEOUT_SECONDS + 20)
        except BaseException:
            child.kill()
            raise
    if child.returncode != 0:
        raise LoadFailed(f"plimsoll load ended with {child.returncode}: {errors}")
    counted = json.loads(output)
    return {
        "seconds": effort.seconds,
        "groups": counted["groups"],
        "failures": counted["failures"],
        "send_lag_p99_ms": counted["send_lag_ms"]["p99"] if load is not None else 0.0,
        "work_cores": (work_then - work) / took,
        "beside_cores": (beside_then - beside) / took,
        "sending_cores": sending / took,
        "stolen": stolen,
    }


def _undisturbed(contestant: Contestant, limit: int | None, load: float | None, effort: Effort, seed: int) -> dict:
    def in_time(run: dict) -> bool:
        return machine.little_stolen(run) and run["send_lag_p99_ms"] <= MOST_LAG_MS

    made = machine.until_undisturbed(lambda: _once(contestant, limit, load, effort, seed), in_time)
    return made[-1] if in_time(made[-1]) else min(made, key=lambda run: run["send_lag_p99_ms"])


def _ceiling(effort: Effort, seed: int) -> dict | None:
    """What the backend alone does when it is kept busy; None if that could not be found out."""
    try:
        run = _undisturbed(UNPROTECTED, None, None, effort, seed)
    except (LoadFailed, StartFailed) as problem:
        print(f"round {seed}/{effort.rounds} ceiling: {problem}", file=sys.stderr)
        return None
    print(f"round {seed}/{effort.rounds} ceiling: {_told(run)}", file=sys.stderr)
    return run


def _useful_per_second(run: dict) -> float:
    return run["groups"]["all"]["useful"] / run["seconds"]


def _told(run: dict) -> str:
    useful = _useful_per_second(run) / CAPACITY
    late = f", THE LOAD WAS LATE by {run['send_lag_p99_ms']:.0f} ms" * (run["send_lag_p99_ms"] > MOST_LAG_MS)
    return f"useful work {useful:.0%} of the capacity, {run['stolen']:.1%} of the time stolen{late}"


def _find_limit(contestant: Contestant, load: float, effort: Effort) -> tuple[int | None, dict[int, float]]:
    """The limit with the most useful answers, and how many a second each had."""
    warm_up, seconds = _SEARCH
    short = replace(effort, rounds=1, warm_up=warm_up, seconds=seconds)
    tried = {limit: _useful_per_second(_undisturbed(contestant, limit, load, short, seed=0)) for limit in contestant.limits}
    if not tried:
        return None, {}
    print(f"{contestant.name}, useful/s by limit: {tried}", file=sys.stderr)
    return max(tried, key=tried.__getitem__), tried


def measure(field: list[Contestant], loads: list[float], effort: Effort) -> dict:
    """`runs` by contestant and load, the `ceiling` of each round, `limits` that were found, and who was `refused` for what."""
    limits: dict[str, int | None] = {}
    tried: dict[str, dict[int, float]] = {}
    refused: dict[str, str] = {}
    runs: dict[str, dict[str, list[dict]]] = {one.name: {f"{load:g}": [] for load in loads} for one in field}
    for one in field:
        try:
            limits[one.name], tried[one.name] = _find_limit(one, max(loads), effort)
        except (LoadFailed, StartFailed) as problem:
            refused[one.name] = str(problem)
            print(f"{one.name} refused: {problem}", file=sys.stderr)
    ceiling: list[dict | None] = []
    for number in range(effort.rounds):
        ceiling.append(_ceiling(effort, number + 1))
        # No contestant always comes after the same other.
        turn = number % len(field)
        for load in loads:
            for one in field[turn:] + field[:turn]:
                if one.name in refused:
                    continue
                try:
                    run = _undisturbed(one, limits[one.name], load, effort, seed=number + 1)
                except (LoadFailed, StartFailed) as problem:
                    refused[one.name] = str(problem)
                    print(f"{one.name} refused: {problem}", file=sys.stderr)
                    continue
                runs[one.name][f"{load:g}"].append(run)
                print(f"round {number + 1}/{effort.rounds} {load:g}x {one.name}: {_told(run)}", file=sys.stderr)
    # Half a contestant is no comparison.
    kept = {name: of for name, of in runs.items() if name not in refused}
    return {"runs": kept, "ceiling": ceiling, "limits": limits, "tried": tried, "refused": refused}
