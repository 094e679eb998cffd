"""Show 1: 3, 30 and 3 backends by dnsmasq and by a file, and changes of weight, under load.

The admin API of plimsoll is read ten times a second. The last reading before a change is in force
and the first after it are compared: a backend that stays must go on with its state.
"""

import json
import statistics
import sys
import threading
import time
import urllib.request
from dataclasses import dataclass, replace
from itertools import count

from ..peers import Plimsoll
from ..processes import Site
from .contestants import DNS, FILE
from .fleet import BACKENDS, Fleet, address, counted, until_undisturbed
from .names import Dnsmasq, write_file

_EVERY = 0.1
# A backend whose average fell by more between two readings began anew. Latencies halve in 7 s.
_LEAST_KEPT = 0.8
# Seconds that a backend is in slow start, by default.
_SLOW_START = 10


@dataclass(frozen=True)
class Lengths:
    """Seconds from the start until each change, and of all."""

    grow: float
    # While the new backends are in slow start.
    weigh_many: float
    shrink: float
    # After `hold`, which keeps backends that are lost at once for 30 s.
    weigh_few: float
    end: float


FULL = Lengths(grow=15, weigh_many=22, shrink=50, weigh_few=105, end=120)
QUICK = Lengths(grow=4, weigh_many=11, shrink=18, weigh_few=58, end=65)


@dataclass(frozen=True)
class Step:
    name: str
    at: float
    weights: dict[str, int]

    @property
    def is_weight(self) -> bool:
        return self.name.startswith("weight")


def _weights(number_of: int, first: int = 1) -> dict[str, int]:
    return {address(number): first if number == 0 else 1 for number in range(number_of)}


@dataclass(frozen=True)
class Reading:
    at: float
    # Changes of backends by the source so far, in place. Read before `rows`.
    changed: int
    # By IP address.
    rows: dict[str, dict]


class Watch(threading.Thread):
    """Readings of one proxy's backends."""

    def __init__(self, admin: int):
        super().__init__(daemon=True)
        self.readings: list[Reading] = []
        self._cluster = f"http://127.0.0.1:{admin}/api/v1/clusters/web"
        self._ended = threading.Event()
        self.start()

    def run(self) -> None:
        while not self._ended.wait(_EVERY):
            at, cluster = time.monotonic(), _get(self._cluster)
            rows = _get(f"{self._cluster}/backends")["backends"]
            by_address = {row["address"].rpartition(":")[0]: row for row in rows}
            self.readings.append(Reading(at, cluster["discovery"]["changes"]["changed"], by_address))

    def stop(self) -> None:
        self._ended.set()
        self.join()


def _get(url: str) -> dict:
    with urllib.request.urlopen(url, timeout=20) as answer:
        return json.load(answer)


def connections_closed(before: dict[str, dict], after: dict[str, dict]) -> int:
    return sum(max(before[each]["connections"] - after[each]["connections"], 0) for each in before.keys() & after.keys())


def closed_elsewhere(watch: Watch, began: list[float], steps: list[dict]) -> dict:
    """Closed connections between readings more than a second away from any change in force."""
    times = [since + step["seconds"] for since, step in zip(began, steps) if step["seconds"] is not None]
    closed = [
        connections_closed(before.rows, after.rows)
        for before, after in zip(watch.readings, watch.readings[1:])
        if all(abs(after.at - time) > 1 for time in times)
    ]
    return {"pairs": len(closed), "with_closed": sum(map(bool, closed)), "most": max(closed, default=0)}


def compare(before: dict[str, dict], after: dict[str, dict]) -> dict:
    """Of the backends in both readings: counts, and ratios of averages."""
    both = [(before[each], after[each]) for each in before.keys() & after.keys()]

    def ratios(key: str) -> list[float]:
        found = [new[key] / old[key] for old, new in both if old[key]]
        return [min(found), statistics.median(found), max(found)] if found else []

    return {
        "untouched": len(both),
        "in_slow_start": sum(old["since_s"] < _SLOW_START for old, _ in both),
        # Of a backend that began anew, these would be smaller.
        "state_lost": sum(new["state"] != old["state"] or new["since_s"] < old["since_s"] for old, new in both),
        "counts_lost": sum(new["requests"] < old["requests"] or new["failures"] < old["failures"] for old, new in both),
        "connections": [sum(old["connections"] for old, _ in both), sum(new["connections"] for _, new in both)],
        "connections_closed": connections_closed(before, after),
        # Idle connections are closed at any time; a backend that began anew has hardly any left.
        "connections_lost": sum(new["connections"] < old["connections"] / 2 for old, new in both),
        "averages_lost": sum(
            new["latency_ms"] is None or new["latency_ms"] < old["latency_ms"] * _LEAST_KEPT for old, new in both if old["latency_ms"]
        ),
        "latency_ratio": ratios("latency_ms"),
        "qps_ratio": ratios("qps"),
        "utilization_ratio": ratios("utilization"),
    }


def observed(step: Step, watch: Watch, began: float, until: float) -> dict:
    """One change as plimsoll put it in force."""
    readings = watch.readings
    start = next((reading for reading in reversed(readings) if reading.at < began), readings[0])
    for older, before, after in zip(readings, readings[1:], readings[2:]):
        is_changed = after.changed > start.changed if step.is_weight else after.rows.keys() == step.weights.keys()
        if began < after.at < until and is_changed:
            # The change may fall between the counter and the rows of one reading.
            first = older if step.is_weight else before
            return {"change": step.name, "seconds": after.at - began, **compare(first.rows, after.rows)}
    return {"change": step.name, "seconds": None}


def run(site: Site, lengths: Lengths) -> dict:
    attempts = count(1)

    def attempt() -> dict:
        home = site.directory / str(next(attempts))
        home.mkdir()
        return _measure(replace(site, directory=home), lengths)

    made, discarded = until_undisturbed("changes", attempt, lambda made: list(made["counts"].values()))
    return made | {"discarded": discarded}


def _measure(site: Site, lengths: Lengths) -> dict:
    fleet = Fleet(site, BACKENDS)
    dnsmasq = Dnsmasq(site, fleet.port)
    file = site.directory / "web.json"
    contestants = [FILE, *DNS]

    def list_backends(weights: dict[str, int]) -> None:
        write_file(file, fleet.port, weights)
        dnsmasq.serve(weights)

    watches: dict[str, Watch] = {}
    try:
        list_backends(_weights(3))
        fleet.start_proxies(contestants, dnsmasq.port, file)
        # HAProxy and Envoy listen before they know a backend.
        time.sleep(5)
        watches = {name: Watch(peer.admin_port) for name, peer in fleet.peers.items() if isinstance(peer, Plimsoll)}
        loads = {each.name: fleet.load(each.name, lengths.end) for each in contestants}
        start = time.monotonic()
        steps = [
            Step("3 → 30", lengths.grow, _weights(30)),
            Step("weight 1 → 3, 30 backends", lengths.weigh_many, _weights(30, 3)),
            Step("30 → 3", lengths.shrink, _weights(3, 3)),
            Step("weight 3 → 1, 3 backends", lengths.weigh_few, _weights(3)),
        ]
        began = []
        for step in steps:
            time.sleep(max(start + step.at - time.monotonic(), 0))
            began.append(time.monotonic())
            list_backends(step.weights)
            print(f"{step.name} after {step.at} s", file=sys.stderr)
        counts = {name: counted(load) for name, load in loads.items()}
        ends = [*began[1:], time.monotonic()]
        kept, elsewhere = {}, {}
        for name, watch in watches.items():
            watch.stop()
            # An address has no weight.
            own = [
                (step, since, until)
                for step, since, until in zip(steps, began, ends, strict=True)
                if not (step.is_weight and name == "plimsoll, A")
            ]
            kept[name] = [observed(step, watch, since, until) for step, since, until in own]
            elsewhere[name] = closed_elsewhere(watch, [since for _, since, _ in own], kept[name])
        return {"lengths": vars(lengths), "counts": counts, "kept": kept, "closed_elsewhere": elsewhere}
    finally:
        for watch in watches.values():
            watch.stop()
        fleet.stop()
        dnsmasq.stop()
