"""Measures one shape of traffic: every proxy, in alternating rounds.

CPU per request and not requests per second: on a machine shared with others throughput moves by tens of percent from
minute to minute, while the CPU a request costs moves little, and is what the proxy's owner pays for. What is left of
the noise is met by alternating: each round measures every proxy once, next to each other in time, in an order that
rotates. A ratio is taken within a round, and the median of the rounds counts.
"""

import dataclasses
import pathlib
import statistics
import sys
import tempfile
from dataclasses import dataclass

from . import certificate, syscalls
from .backends import Backend
from .load import LoadFailed, Target
from .peers import PEERS, Peer, Setup
from .processes import Process, Site, cpu_of_tree, resident_bytes_of_tree
from .shapes import Shape

# The proxy whose cost is divided by that of each other.
SUBJECT = "plimsoll"
# Opens the connections, warms caches and branch predictors; not counted.
_WARM_UP_SECONDS = 1


@dataclass
class Effort:
    """How long to measure, and where."""

    rounds: int
    seconds: int
    proxy_core: int
    load_cores: set[int]
    syscalls: bool = True


@dataclass
class Contestant:
    """A running proxy. Its label is its name, and says how it differs from its other self where there are two."""

    label: str
    peer: Peer
    target: Target


def measure(shape: Shape, names: list[str], effort: Effort) -> dict:
    """All that is known of the shape afterwards, ready to be written as JSON."""
    started: list[Process] = []
    with tempfile.TemporaryDirectory(prefix="plimsoll-bench-") as directory:
        site = Site(pathlib.Path(directory), {effort.proxy_core}, effort.load_cores)
        try:
            backends = shape.backends(site)
            started += [backend.process for backend in backends]
            field, absent = _contestants(shape, names, backends, site, started)
            agreed = _agreed(shape, field, site)
            for one in field:
                _attempt(one, lambda one=one: shape.load.run(one.target, _WARM_UP_SECONDS, site))
            runs = _alternate(shape, field, effort, site)
            counted = _count_syscalls(shape, field, site) if effort.syscalls else {}
            resident = {one.label: resident_bytes_of_tree(one.peer.process.pid) / 2**20 for one in field}
        finally:
            for process in reversed(started):
                process.stop()
    return {
        "title": shape.title,
        "note": shape.note,
        "load": str(shape.load),
        "tls": agreed,
        "absent": absent,
        "summary": _summarise(runs, resident),
        "ratios": _ratios(runs),
        "goals": shape.goals,
        "syscalls": counted,
        "runs": runs,
    }


def _contestants(
    shape: Shape, names: list[str], backends: list[Backend], site: Site, started: list[Process]
) -> tuple[list[Contestant], dict[str, str]]:
    everywhere = [address for group in zip(*(b.addresses for b in backends), strict=True) for address in group]
    fleets = [everywhere] if shape.also_with is None else [everywhere, everywhere[: shape.also_with]]
    field, absent = [], {}
    pair = certificate.Certificate(site.directory) if shape.tls else None
    for name in names:
        for number, addresses in enumerate(fleets):
            setup = Setup(
                backends=tuple(addresses),
                certificate=pair,
                http2_clients=shape.http2_clients,
                http2_backends=shape.http2_backends,
                grpc=shape.grpc,
                short_messages=shape.short_messages,
                forwarding_fields=shape.forwarding_fields,
                subset=shape.subset,
            )
            has_subset = setup.subset is None or PEERS[name].has_subsets
            reason = PEERS[name].cannot(setup) if has_subset else "connects to all backends"
            if reason:
                absent[name] = reason
                continue
            label = name if number == 0 else f"{name}, {len(addresses)} backends"
            peer = PEERS[name](site, setup, label)
            started.append(peer.process)
            field.append(Contestant(label, peer, Target(peer.port, shape.tls)))
    return field, absent


def _agreed(shape: Shape, field: list[Contestant], site: Site) -> str | None:
    """What TLS settings all proxies come to; it is no comparison if they differ."""
    if not shape.tls:
        return None
    environment = certificate.client_environment(site.directory)
    found = {one.label: certificate.agreed(one.target.port, environment) for one in field}
    if len(set(found.values())) != 1:
        raise LoadFailed(f"the proxies agree on different TLS settings: {found}")
    return next(iter(found.values()))


def _attempt(one: Contestant, run):
    try:
        return run()
    except LoadFailed as problem:
        log = one.peer.process.log.read_text()[-1000:]
        raise LoadFailed(f"{one.label}: {problem}\nlast of its log:\n{log}") from None


def _measure_once(shape: Shape, one: Contestant, seconds: int, site: Site) -> dict[str, float | None]:
    before = cpu_of_tree(one.peer.process.pid)
    run = shape.load.run(one.target, seconds, site)
    used = cpu_of_tree(one.peer.process.pid) - before
    return {
        "cpu_us_per_request": used.total / run.requests * 1e6,
        "user_us_per_request": used.user / run.requests * 1e6,
        "system_us_per_request": used.system / run.requests * 1e6,
        "requests": run.requests,
        "requests_per_second": run.requests / run.seconds,
        "core_share": used.total / run.seconds,
        "p50_ms": run.p50_ms,
        "p99_ms": run.p99_ms,
    }


def _alternate(shape: Shape, field: list[Contestant], effort: Effort, site: Site) -> dict[str, list[dict]]:
    runs: dict[str, list[dict]] = {one.label: [] for one in field}
    for number in range(effort.rounds):
        turn = number % len(field)
        for one in field[turn:] + field[:turn]:
            runs[one.label].append(_attempt(one, lambda one=one: _measure_once(shape, one, effort.seconds, site)))
        costs = "  ".join(f"{label} {made[-1]['cpu_us_per_request']:.2f}" for label, made in runs.items())
        print(f"{shape.name} {number + 1}/{effort.rounds}, µs of CPU per request: {costs}", file=sys.stderr)
    return runs


def _count_syscalls(shape: Shape, field: list[Contestant], site: Site) -> dict[str, dict]:
    counted = {}
    for one in field:
        found = _attempt(one, lambda one=one: syscalls.per_request(one.peer, shape.load, one.target, site))
        if found is not None:
            counted[one.label] = dataclasses.asdict(found)
    return counted


def _summarise(runs: dict[str, list[dict]], resident_mib: dict[str, float]) -> dict[str, dict]:
    summary = {}
    for label, made in runs.items():
        row: dict[str, float | None] = {}
        for key in made[0]:
            values = [run[key] for run in made]
            row[key] = None if None in values else statistics.median(values)
        costs = [run["cpu_us_per_request"] for run in made]
        row |= {"cpu_low": min(costs), "cpu_high": max(costs), "resident_mib": resident_mib[label]}
        summary[label] = row
    return summary


def _ratios(runs: dict[str, list[dict]]) -> dict[str, dict[str, float]]:
    """Cost of the subject, or of the last proxy when it has no part, over that of each other."""
    subject = SUBJECT if SUBJECT in runs else list(runs)[-1]
    ratios = {}
    for label, made in runs.items():
        if label != subject:
            each = [
                own["cpu_us_per_request"] / other["cpu_us_per_request"]
                for own, other in zip(runs[subject], made, strict=True)
            ]
            ratios[label] = {"subject": subject, "median": statistics.median(each), "low": min(each), "high": max(each)}
    return ratios
