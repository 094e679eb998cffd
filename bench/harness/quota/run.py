"""A fleet under load, sampled while it runs: the CPU by the kernel, and the use by the quota server."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from ..processes import Site
from .fleet import CUSTOMERS, GREEDY, MODEST, Fleet
from .load import Ended, Load

# Load below all limits, before the greedy customer becomes greedy.
WARMUP_S = 8.0
_SAMPLE_S = 0.5


@dataclass
class Samples:
    """CPU of the backends so far (time, all, threads that burn), and charged use (time, by customer)."""

    cpu: list[tuple[float, float, float]] = field(default_factory=list)
    charged: list[tuple[float, dict[str, float]]] = field(default_factory=list)

    def cpu_between(self, begin: float, end: float) -> tuple[float, float, float]:
        """Seconds, and CPU seconds of both kinds."""
        rows = [row for row in self.cpu if begin <= row[0] <= end]
        first, last = rows[0], rows[-1]
        return last[0] - first[0], last[1] - first[1], last[2] - first[2]

    def charged_between(self, begin: float, end: float) -> dict[str, float]:
        """The mean by customer."""
        rows = [used for at, used in self.charged if begin <= at <= end]
        return {of.name: sum(used.get(of.name, 0.0) for used in rows) / max(len(rows), 1) for of in CUSTOMERS}


@dataclass
class Course:
    """A fleet under load."""

    fleet: Fleet
    load: Load
    samples: Samples
    # The moment at which the greedy customer became greedy.
    onset: float = 0.0

    @property
    def ended(self) -> list[Ended]:
        return self.load.ended

    def used(self, customer: int, begin: float, end: float) -> float:
        """CPUs of a customer by the costs in responses."""
        costs = (each.cost for each in self.ended if each.customer == customer and begin <= each.at < end)
        return sum(costs) / (end - begin)

    def charge_factor(self, begin: float, end: float) -> float:
        """Charged use over the costs in responses: limits count an estimate of the HTTP beside a request."""
        charged = sum(self.samples.charged_between(begin, end).values())
        return charged / sum(self.used(at, begin, end) for at in range(len(CUSTOMERS)))


async def _sample(course: Course) -> None:
    while True:
        await asyncio.sleep(_SAMPLE_S)
        total, burnt = course.fleet.cpu()
        course.samples.cpu.append((time.monotonic(), total, burnt))
        charged = await asyncio.to_thread(course.fleet.charged)
        if charged is not None:
            course.samples.charged.append((time.monotonic(), charged))


def run(site: Site, seed: int, script: Callable[[Course], Awaitable[None]]) -> Course:
    """Runs `script` after the greedy customer has become greedy."""
    fleet = Fleet(site)

    async def main() -> Course:
        load = Load(fleet.ports, seed)
        load.rates = [of.rate(MODEST if of is GREEDY else None) for of in CUSTOMERS]
        course = Course(fleet, load, Samples())
        tasks = [asyncio.create_task(load.run()), asyncio.create_task(_sample(course))]
        try:
            await asyncio.sleep(WARMUP_S)
            load.rates = [of.rate() for of in CUSTOMERS]
            course.onset = time.monotonic()
            await script(course)
            for task in tasks:
                if task.done():
                    task.result()
        finally:
            for task in tasks:
                task.cancel()
        return course

    try:
        return asyncio.run(main())
    finally:
        fleet.stop()
