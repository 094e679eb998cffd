"""The command behind `scripts/fuzz`: lanes in several processes, totals, and the replay of single messages."""

import argparse
import asyncio
import multiprocessing
import pathlib
import random
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator

from harness.fleet import Fleet
from harness.process import free_port

from .lane import BATCH, DIRECTIONS, Finding, Lane, Tally

# After so many findings a run has said enough.
MAX_FINDINGS = 20


# A message counts for itself: outlier detection, throttling and health checks would keep later ones from the backend.
_CONFIG = """
threads = 1

[admin]
listen = "127.0.0.1:{admin}"
"""
_CLUSTER = """
[[listeners]]
name = "{name}"
address = "127.0.0.1:{port}"

[[routes]]
listeners = ["{name}"]
cluster = "{name}"

[clusters.{name}]
backends = ["{address}"]
protocol = "{protocol}"
max_streams = 8

[clusters.{name}.health]
check = "none"

[clusters.{name}.outlier]
consecutive_failures = "off"
success_rate_stdev = "off"

[clusters.{name}.throttle]
policy = "off"
"""


def start_proxy(fleet: Fleet) -> Callable[[str, str], Awaitable[tuple[int, int]]]:
    """Starts proxies of one thread, which listen on a port for each backend."""

    async def start(http1: str, http2: str) -> tuple[int, int]:
        ports, admin = (free_port(), free_port()), free_port()
        text = _CONFIG.format(admin=admin)
        for name, port, address, protocol in (("first", ports[0], http1, "http1"), ("second", ports[1], http2, "http2")):
            text += _CLUSTER.format(name=name, port=port, address=address, protocol=protocol)
        fleet.proxy_with(text, ports[0], admin)
        return ports

    return start


def batches(directions: list[str], messages: int, job: int, jobs: int) -> Iterator[tuple[str, list[int]]]:
    """The batches of one process: every so many, in all directions in turn."""
    for number in range(job, -(-messages // BATCH), jobs):
        for direction in directions:
            yield direction, list(range(number * BATCH, min((number + 1) * BATCH, messages)))


async def run_batches(fleet: Fleet, seed: int, work: Iterator[tuple[str, list[int]]], until: float):
    """Runs batches until there are no more, time is up or enough was found; findings are narrowed down to one message."""
    lane = Lane(seed, start_proxy(fleet))
    await lane.open()
    tallies: dict[str, Tally] = {}
    findings: list[Finding] = []
    try:
        for direction, indices in work:
            if time.monotonic() > until or len(findings) >= MAX_FINDINGS:
                break
            found, tally = await lane.run(direction, indices)
            tallies.setdefault(direction, Tally()).add(tally)
            if found and len(indices) > 1:
                found = await narrow(fleet, seed, direction, indices, found)
            findings += found
    finally:
        lane.close()
    return findings, tallies


async def narrow(fleet: Fleet, seed: int, direction: str, indices: list[int], found: list[Finding]) -> list[Finding]:
    """The findings of single messages that repeat alone; those of the batch if none does."""
    named = [finding.index for finding in found if finding.index is not None]
    alone: list[Finding] = []
    for index in dict.fromkeys([*named, *indices]):
        if alone and index not in named:
            break
        lane = Lane(seed, start_proxy(fleet))
        await lane.open()
        try:
            alone += (await lane.run(direction, [index]))[0]
        finally:
            lane.close()
    for finding in found:
        finding.text += f" (only in the batch {indices[0]}-{indices[-1]})"
    return alone or found


def job_main(arguments: tuple) -> tuple[list[Finding], dict[str, Tally]]:
    """One process."""
    seed, directions, messages, job, jobs, until, only = arguments
    with tempfile.TemporaryDirectory(prefix="plimsoll-fuzz-") as directory:
        fleet = Fleet(pathlib.Path(directory))
        work = batches(directions, messages, job, jobs) if only is None else iter([(directions[0], only)])
        try:
            findings, tallies = asyncio.run(run_batches(fleet, seed, work, until))
            ended = [process for process in fleet.processes if process.exit_code is not None]
            findings += [Finding("ended", "any", None, f"{process.name}: {process.output()[-2000:]}") for process in ended]
            return findings, tallies
        finally:
            fleet.stop()


def fuzz(seed: int, directions: list[str], messages: int, jobs: int, seconds: float = float("inf"), only: list[int] | None = None):
    """Findings and totals of a run."""
    until = time.monotonic() + seconds
    work = [(seed, directions, messages, job, jobs, until, only) for job in range(jobs if only is None else 1)]
    if len(work) == 1:
        results = [job_main(work[0])]
    else:
        with multiprocessing.get_context("spawn").Pool(len(work)) as pool:
            results = pool.map(job_main, work, chunksize=1)
    tallies: dict[str, Tally] = {}
    for _, some in results:
        for direction, tally in some.items():
            tallies.setdefault(direction, Tally()).add(tally)
    return [finding for findings, _ in results for finding in findings], tallies


def main() -> int:
    parser = argparse.ArgumentParser(prog="scripts/fuzz", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--messages", type=int, metavar="N", help="messages per direction (default 10000; without end with --minutes)")
    parser.add_argument("--minutes", type=float, metavar="N", help="end after so many minutes")
    parser.add_argument("--direction", action="append", choices=DIRECTIONS, help="only this one; may be repeated")
    parser.add_argument("--seed", type=int, help="default: drawn, and printed")
    parser.add_argument("--only", metavar="INDEX[-INDEX]", help="replay one message, or a batch; needs one --direction and --seed")
    parser.add_argument("--jobs", type=int, default=2, help="processes, each with a proxy of its own (default 2)")
    options = parser.parse_args()
    seed = options.seed if options.seed is not None else random.SystemRandom().randrange(1 << 32)
    only = None
    if options.only is not None:
        if options.seed is None or len(options.direction or []) != 1:
            parser.error("--only needs --seed and one --direction")
        first, _, last = options.only.partition("-")
        only = list(range(int(first), int(last or first) + 1))
    seconds = options.minutes * 60 if options.minutes else float("inf")
    messages = options.messages or (10_000 if options.minutes is None else 1 << 40)
    print(f"scripts/fuzz: seed {seed}", flush=True)
    began = time.monotonic()
    findings, tallies = fuzz(seed, options.direction or list(DIRECTIONS), messages, options.jobs, seconds, only)
    took = time.monotonic() - began
    for direction, tally in tallies.items():
        counts = ", ".join(f"{count} {what}" for what, count in sorted(tally.counts.items()))
        print(f"{direction}: {tally.messages} messages, {tally.passed} passed on; {counts}")
    for finding in findings:
        print(f"\n{finding}")
        if finding.index is not None:
            print(f"    replay: scripts/fuzz --direction {finding.direction} --seed {seed} --only {finding.index}")
    total = sum(tally.messages for tally in tallies.values())
    kinds = ", ".join(f"{sum(finding.kind == kind for finding in findings)} {kind}" for kind in ("smuggled", "split", "crossed", "ambiguous", "unanswered", "ended"))  # fmt: skip
    print(f"\nscripts/fuzz: {total} messages in {took:.0f} s ({total / max(took, 1e-9):.0f}/s): {kinds}")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
