"""The time until idle proxies know that their backend is a lame duck: with probes, and with checks.

Each proxy is a process with one thread, and all have the same backend at loopback. The times are those
of the proxies' logs, in µs by the clock of the machine, after the signal to the backend.
"""

import datetime
import os
import pathlib
import signal
import statistics
import sys
import time
from collections import Counter

from ..processes import Process, Site, free_port
from .fleet import HTTP_CHECKS, TCP_CHECKS, WITH_PROBES, Place, Proxy, Watch, ending, start_backend, wait_until, wait_until_inactive

WATCHES = (WITH_PROBES, TCP_CHECKS, HTTP_CHECKS)
GOAL_MS = 5.0
# A round with checks takes some twelve seconds, and its times spread over an interval in each.
MAX_ROUNDS_OF_CHECKS = 3
# Checks come every 10 s, and three of them may have to fail.
_DEADLINE_S = 40.0
_CHANGED = "backend changed state"


def seconds_of(line: dict) -> float:
    """The time of a line of the log, since 1970."""
    return datetime.datetime.fromisoformat(line["timestamp"].replace("Z", "+00:00")).timestamp()


def first_change(proxy: Proxy, since: float) -> dict | None:
    """The first line of a proxy's log about another state of its backend."""
    lines = (line for line in proxy.log() if line.get("message") == _CHANGED)
    return next((line for line in lines if seconds_of(line) >= since), None)


def round_of(site: Site, watch: Watch, count: int) -> dict:
    """One lame duck, with new processes."""
    place, processes, port = Place(site), [], free_port()
    with ending(processes):
        backend = start_backend(place, f"127.0.0.1:{port}")
        processes.append(backend)
        backend.wait_for_port(port)
        proxies = []
        for number in range(count):
            proxies.append(Proxy(place, f"proxy-{number}", [f"127.0.0.1:{port}"], watch))
            processes.append(proxies[-1].process)
        for proxy in proxies:
            proxy.wait()
        if watch.probes is not None:
            for proxy in proxies:
                wait_until_inactive(proxy, 1)
        # The start of fifty processes is over.
        time.sleep(2)
        at = time.time()
        os.kill(backend.pid, signal.SIGTERM)
        ended_s = wait_for_end(backend, at)
        wait_until(
            "all proxies know of the lame duck", lambda: all(first_change(proxy, at) for proxy in proxies), _DEADLINE_S
        )
        changes = [first_change(proxy, at) for proxy in proxies]
    times = sorted(seconds_of(line) - at for line in changes)
    ends = Counter(f"{line['to']}, {line['reason']}" for line in changes)
    return {
        "times_s": times,
        "changes": dict(ends.most_common()),
        "lame_ducks": sum(line["to"] == "lame-duck" for line in changes),
        "backend_ended_s": ended_s,
    }


def wait_for_end(backend: Process, at: float) -> float:
    """Seconds from the signal to the end of the backend."""
    stat = pathlib.Path(f"/proc/{backend.pid}/stat")
    while time.time() < at + _DEADLINE_S:
        # A process that has ended is a zombie until its parent waits for it.
        if stat.read_text().rpartition(")")[2].split()[0] == "Z":
            return time.time() - at
        time.sleep(0.005)
    return float("nan")


def measure(site: Site, count: int, rounds: int) -> dict:
    """By watch."""
    made = {"proxies": count, "watches": {}}
    for watch in WATCHES:
        done = []
        for number in range(rounds if watch.probes is not None else min(rounds, MAX_ROUNDS_OF_CHECKS)):
            print(f"lame duck, {watch.name}, round {number + 1}", file=sys.stderr)
            home = site.directory / f"lame-duck-{watch.name.replace(' ', '-')}-{number}"
            home.mkdir()
            done.append(round_of(Site(home, site.proxy_cores, site.load_cores), watch, count))
        made["watches"][watch.name] = {"rounds": done}
    return made


def missed(result: dict) -> list[str]:
    """Goals that were missed."""
    found = []
    for number, made in enumerate(result["watches"][WITH_PROBES.name]["rounds"], 1):
        if made["lame_ducks"] < result["proxies"]:
            found.append(f"lame duck, round {number}: {made['lame_ducks']} of {result['proxies']} know it: {made['changes']}")
        if 1e3 * made["times_s"][-1] > GOAL_MS:
            found.append(f"lame duck, round {number}: the last proxy knows after {1e3 * made['times_s'][-1]:.1f} ms, not {GOAL_MS:g}")
    return found


def _row(name: str, number: int, made: dict) -> str:
    times = [1e3 * each for each in made["times_s"]]
    changes = ", ".join(f"`{change.replace(', ', '` `')}` {count}" for change, count in made["changes"].items())
    cells = [f"{each:,.1f} ms" for each in (times[0], statistics.median(times), times[-1], 1e3 * made["backend_ended_s"])]
    return f"| {name}, round {number} | {' | '.join(cells)} | {changes} |"


def report(result: dict) -> list[str]:
    """As Markdown."""
    lines = [
        f"## Lame duck, {result['proxies']} idle proxies",
        "",
        "Time after SIGTERM to the backend. A check comes every 10 s.",
        "",
        "| | first | median | last | backend ended | changes of state |",
        "|---|--:|--:|--:|--:|---|",
    ]
    for name, watch in result["watches"].items():
        lines += [_row(name, number, made) for number, made in enumerate(watch["rounds"], 1)]
    return [*lines, ""]
