"""Many proxies, each of which sends rarely to each backend."""

import concurrent.futures
import multiprocessing
import statistics
import sys
import time
from dataclasses import dataclass

from .. import machine
from ..peers import Peer, Setup
from ..processes import Site
from . import load
from .contestants import CONTESTANTS, Balancing, Contestant, cpu_seconds
from .machines import Machines, capacity, changes

# `weighted` believes load reports after 10 s, and each client needs a report of each backend first.
WARMUP_S = 20.0
# Later, and the latencies are those of this machine.
MAX_SEND_LAG_MS = 10.0


@dataclass(frozen=True)
class World:
    proxies: int
    backends: int
    load: float
    seconds: float
    rounds: int
    at_once: int
    warmup: float = WARMUP_S

    @property
    def rate(self) -> float:
        """Requests per second in all."""
        return self.load * capacity(self.backends)

    @property
    def gap_s(self) -> float:
        """Mean time between two requests of a proxy to a backend."""
        return self.proxies * self.backends / self.rate


class Side:
    """A contestant with its proxies and backends."""

    def __init__(self, site: Site, contestant: Contestant, world: World, label: str, seed: int):
        self.world, self.seed = world, seed
        self.machines = Machines(site, world.backends, label, seed)
        self.proxies: list[Peer] = []
        setup = Setup(backends=self.machines.addresses)
        for number in range(world.proxies):
            self.proxies.append(contestant.proxy(site, setup, f"{label}-proxy-{number}"))

    def begin(self, pool: concurrent.futures.Executor, begin: float, end: float) -> None:
        ports = [proxy.port for proxy in self.proxies]
        self.ended = pool.submit(load.run, ports, self.world.rate, begin, end, self.seed)

    def probes(self) -> dict[str, int]:
        counts = [proxy.probes() for proxy in self.proxies if isinstance(proxy, Balancing)]
        return {name: sum(each[name] for each in counts) for name in counts[0]} if counts else {}

    def cpu(self) -> tuple[float, float]:
        """Of the proxies and of the backends."""
        return sum(cpu_seconds(proxy.process.pid) for proxy in self.proxies), self.machines.cpu()

    def stop(self) -> None:
        for proxy in self.proxies:
            proxy.process.kill()
        self.machines.stop()


def _wave(site: Site, contestants: list[Contestant], world: World, label: str, seed: int) -> dict[str, dict]:
    """Measures some contestants at the same time, each with proxies, backends and a load of its own."""
    sides: dict[str, Side] = {}
    try:
        for number, each in enumerate(contestants):
            sides[each.name] = Side(site, each, world, f"{label}-{number}", seed)
        with concurrent.futures.ProcessPoolExecutor(len(sides), multiprocessing.get_context("fork")) as pool:
            begin = time.monotonic() + world.warmup
            for side in sides.values():
                side.begin(pool, begin, begin + world.seconds)
            for side in sides.values():
                side.machines.disturb(changes(world.backends, world.warmup + world.seconds, seed))
            time.sleep(max(begin - time.monotonic(), 0))
            probes = {name: side.probes() for name, side in sides.items()}
            at, busy, cpu = time.monotonic(), machine.ticks(), {name: side.cpu() for name, side in sides.items()}
            time.sleep(max(begin + world.seconds - time.monotonic(), 0))
            took, cpu_after = time.monotonic() - at, {name: side.cpu() for name, side in sides.items()}
            stolen = machine.ticks().stolen_since(busy)
            probes_after = {name: side.probes() for name, side in sides.items()}
            counts = {name: side.ended.result() for name, side in sides.items()}
    finally:
        for side in sides.values():
            side.stop()
    for name, of in counts.items():
        proxies, backends = (later - earlier for later, earlier in zip(cpu_after[name], cpu[name], strict=True))
        shares = list(of.pop("backends").values())
        of |= {
            "proxy_us_per_request": 1e6 * proxies / of["requests"],
            "backend_us_per_request": 1e6 * backends / of["requests"],
            "cores": (proxies + backends) / took + of["load_cpu_s"] / (world.warmup + took),
            "most_loaded": max(shares, default=0) / statistics.mean(shares),
            "probes": {key: probes_after[name][key] - probes[name][key] for key in probes[name]},
            "stolen": stolen,
        }
    return counts


def measure(site: Site, world: World, names: list[str]) -> dict:
    """A list of rounds by contestant. A wave whose load was late is repeated, three times at most."""
    field = [each for each in CONTESTANTS if each.name in names]
    missing = {each.name: reason for each in field if (reason := each.proxy.missing())}
    field = [each for each in field if each.name not in missing]
    made: dict[str, list[dict]] = {each.name: [] for each in field}
    discarded = []
    waves = [field[at : at + world.at_once] for at in range(0, len(field), world.at_once)]
    for number in range(world.rounds):
        turn = number % len(waves)
        for at, wave in enumerate(waves[turn:] + waves[:turn]):
            attempts = []
            while len(attempts) < machine.MOST_ATTEMPTS:
                label = f"{number}-{at}-{len(attempts)}"
                attempts.append(_wave(site, wave, world, label, number + 1))
                if max(of["send_lag_p99_ms"] for of in attempts[-1].values()) <= MAX_SEND_LAG_MS:
                    break
            best = min(attempts, key=lambda each: max(of["send_lag_p99_ms"] for of in each.values()))
            discarded += [each for each in attempts if each is not best]
            for name, of in best.items():
                made[name].append(of)
                print(
                    f"round {number + 1}, {name}: p99 {of['p99_ms']:.0f} ms, failed {of['failed']} of {of['requests']}, "
                    f"{of['proxy_us_per_request']:.0f} µs, {of['cores']:.2f} cores, late by {of['send_lag_p99_ms']:.1f} ms",
                    file=sys.stderr,
                )
    return {
        "proxies": world.proxies,
        "backends": world.backends,
        "load": world.load,
        "rate": world.rate,
        "gap_s": world.gap_s,
        "seconds": world.seconds,
        "at_once": world.at_once,
        "missing": missing,
        "contestants": made,
        "discarded": discarded,
    }
