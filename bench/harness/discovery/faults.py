"""Show 2: a DNS server that fails in every way, and backends that leave DNS and are then stopped."""

import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import groupby

from ..processes import Site
from .contestants import DNS
from .fleet import Fleet, address, counted, until_undisturbed
from .names import FaultyServer

_ALL = [address(number) for number in range(3)]


@dataclass(frozen=True)
class Lengths:
    """Seconds of each part."""

    quiet: float
    fault: float
    back: float
    # From the removal of a name until its backend is stopped.
    notice: float


FULL = Lengths(quiet=20, fault=60, back=20, notice=10)
QUICK = Lengths(quiet=3, fault=8, back=5, notice=6)


@dataclass(frozen=True)
class Part:
    """A stretch of load, which begins with a change."""

    phase: str
    name: str
    seconds: float
    change: Callable[[], None]


def _fault(server: FaultyServer, lengths: Lengths, phase: str, mode: str) -> list[Part]:
    return [
        Part(phase, "fault", lengths.fault, lambda: server.set(mode)),
        Part(phase, "back", lengths.back, lambda: server.set("good")),
    ]


def _members(server: FaultyServer, members: list[str]) -> Callable[[], None]:
    def change() -> None:
        server.members = members

    return change


def _removal(fleet: Fleet, server: FaultyServer, lengths: Lengths, phase: str, removed: list[str]) -> list[Part]:
    """The second half of the notice shows whether the removal was followed."""

    def stop() -> None:
        for each in removed:
            fleet.kill_backend(each)

    def restore() -> None:
        for each in removed:
            fleet.start_backend(each)
        server.members = _ALL

    return [
        Part(phase, "removed", lengths.notice / 2, _members(server, [each for each in _ALL if each not in removed])),
        Part(phase, "notice", lengths.notice / 2, lambda: None),
        Part(phase, "stopped", lengths.fault - lengths.notice, stop),
        Part(phase, "back", lengths.back, restore),
    ]


def plan(fleet: Fleet, server: FaultyServer, lengths: Lengths) -> list[Part]:
    parts = [Part("quiet", "quiet", lengths.quiet, lambda: None)]
    parts += _fault(server, lengths, "server stopped", "stopped")
    parts += _fault(server, lengths, "server silent", "silent")
    parts += _fault(server, lengths, "NXDOMAIN", "nxdomain")
    parts += _fault(server, lengths, "empty answer", "empty")
    parts += _fault(server, lengths, "SERVFAIL", "servfail")
    parts += [
        Part("1 of 3 listed", "fault", lengths.fault, _members(server, _ALL[:1])),
        Part("1 of 3 listed", "back", lengths.back, _members(server, _ALL)),
    ]
    parts += _fault(server, lengths, "another 1 of 3 in each answer", "parts")
    parts += _fault(server, lengths, "truncated, TCP refused", "truncated, no TCP")
    parts += _fault(server, lengths, "truncated, TCP works", "truncated")
    parts += _removal(fleet, server, lengths, "1 of 3 removed, then stopped", _ALL[2:])
    parts += _removal(fleet, server, lengths, "2 of 3 removed, then stopped", _ALL[1:])
    return parts


def _measure(fleet: Fleet, parts: list[Part]) -> dict:
    """By contestant and part: the counts of the load."""
    counts: dict[str, dict] = {}
    for part in parts:
        loads = {each.name: fleet.load(each.name, part.seconds) for each in DNS}
        part.change()
        for name, load in loads.items():
            counts.setdefault(name, {})[part.name] = counted(load)
        failed = {name: of[part.name]["failed"] for name, of in counts.items() if of[part.name]["failed"]}
        print(f"{part.phase}, {part.name}: failed {failed or 'none'}", file=sys.stderr)
    return {"counts": counts}


def run(site: Site, lengths: Lengths) -> dict:
    """By phase: what `_measure` gives; and the discarded attempts."""
    fleet = Fleet(site, len(_ALL))
    server = FaultyServer(fleet.port)
    server.members = _ALL
    phases, discarded = {}, []
    try:
        fleet.start_proxies(DNS, server.port)
        # HAProxy and Envoy listen before they know a backend.
        time.sleep(5)
        for phase, parts in groupby(plan(fleet, server, lengths), key=lambda part: part.phase):
            of_phase = list(parts)
            phases[phase], more = until_undisturbed(phase, lambda of_phase=of_phase: _measure(fleet, of_phase), _loads)
            discarded += more
        return {"phases": phases, "discarded": discarded}
    finally:
        fleet.stop()
        server.set("stopped")


def _loads(made: dict) -> list[dict]:
    return [load for parts in made["counts"].values() for load in parts.values()]


def still_sent(parts: dict, removed: int) -> int:
    """Responses of removed backends in the second half of the notice."""
    hosts = {address(number) for number in range(3 - removed, 3)}
    return sum(count for at, count in parts["notice"]["backends"].items() if at.rpartition(":")[0] in hosts)


def largest_share(part: dict) -> float:
    """Of the answered requests, the share of the backend with most."""
    return max(part["backends"].values(), default=0) / max(sum(part["backends"].values()), 1)
