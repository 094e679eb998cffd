"""The backends and their antagonists.

A backend is a process that answers when a machine of one core would that is shared by its requests. It uses
no CPU for that, so 40 of them fit on the cores of the test, and what happens to one does not disturb the others.
An antagonist is a change of that machine's speed, by `/control`: the part of the core that neighbours leave. The
requests that follow are slower. Neither proxy nor load report is told: both see latency, requests in flight and
utilization, as on real machines. All contestants of a round get the same speeds at the same times.
"""

import http.client
import json
import random
import statistics
import threading
import time
from dataclasses import dataclass

from ..peers import Plimsoll
from ..processes import Process, Site, free_port
from .contestants import cpu_seconds

COST = "lognormal:70ms,0.5"
COST_S = 0.07
# Speeds that neighbours leave, as in the scenario `prequal-live`: they take up to a fifth of a calm machine, and of a
# crowded one a part that changes every few seconds.
CALM = (0.8, 1.0)
CROWDED = (0.1, 0.8)
CROWDED_PART = 0.2
HOLDS_S = 5.0


@dataclass(frozen=True)
class Change:
    at: float
    machine: int
    speed: float


def changes(machines: int, seconds: float, seed: int) -> list[Change]:
    """The speeds of all machines from the start on, and their changes, in order."""
    crowded = round(CROWDED_PART * machines)
    made = []
    for machine in range(machines):
        rng = random.Random(f"{seed} {machine}")
        if machine >= crowded:
            made.append(Change(0, machine, rng.uniform(*CALM)))
            continue
        at, next_at = 0.0, rng.uniform(0, HOLDS_S)
        while at < seconds:
            made.append(Change(at, machine, rng.uniform(*CROWDED)))
            at, next_at = next_at, next_at + HOLDS_S
    return sorted(made, key=lambda change: change.at)


def capacity(machines: int) -> float:
    """Mean requests per second that all machines can do beside their antagonists."""
    crowded = round(CROWDED_PART * machines)
    speeds = crowded * statistics.mean(CROWDED) + (machines - crowded) * statistics.mean(CALM)
    return speeds / COST_S


class Machines:
    """The backends of one contestant."""

    def __init__(self, site: Site, number: int, label: str, seed: int):
        self.processes: list[Process] = []
        self.ports = [free_port() for _ in range(number)]
        for machine, port in enumerate(self.ports):
            command = [Plimsoll.program, "backend", "--listen", f"127.0.0.1:{port}", "--emulate", "sharing"]
            command += ["--cost", COST, "--seed", str(1_000 * seed + machine)]
            self.processes.append(Process(f"{label}-backend-{machine}", command, site.directory, site.load_cores))
        for process, port in zip(self.processes, self.ports, strict=True):
            process.wait_for_port(port)
        self.addresses = tuple(f"127.0.0.1:{port}" for port in self.ports)

    def cpu(self) -> float:
        return sum(cpu_seconds(process.pid) for process in self.processes)

    def disturb(self, plan: list[Change]) -> threading.Thread:
        """Carries the changes out from now on, in a thread of its own."""
        thread = threading.Thread(target=self._disturb, args=(plan, time.monotonic()), daemon=True)
        thread.start()
        return thread

    def _disturb(self, plan: list[Change], begun: float) -> None:
        for change in plan:
            time.sleep(max(begun + change.at - time.monotonic(), 0))
            connection = http.client.HTTPConnection("127.0.0.1", self.ports[change.machine], timeout=5)
            connection.request("POST", "/control", json.dumps({"speed": round(change.speed, 3)}))
            status = connection.getresponse().status
            connection.close()
            assert status == 200, f"/control of backend {change.machine} answered {status}"

    def stop(self) -> None:
        for process in self.processes:
            process.kill()
