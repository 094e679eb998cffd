"""Load by wrk: a fixed number of connections, each sending its next request as soon as the last is answered."""

import re
import subprocess
from dataclasses import dataclass

from .processes import find_program

_UNITS_MS = {"us": 1e-3, "ms": 1.0, "s": 1e3, "m": 60e3}


@dataclass
class Run:
    """What the load generator counted. Latencies are of a closed loop: good for comparing, not for promising."""

    requests: int
    seconds: float
    p50_ms: float
    p99_ms: float


class LoadFailed(Exception):
    """Some request was not answered with 2xx or 3xx, so the run says nothing about cost."""


def _milliseconds(output: str, percentile: str) -> float:
    found = re.search(rf"^\s+{percentile}%\s+([\d.]+)(us|ms|s|m)$", output, re.MULTILINE)
    if found is None:
        raise LoadFailed(f"no {percentile}% line in what wrk printed:\n{output}")
    return float(found[1]) * _UNITS_MS[found[2]]


def wrk(url: str, connections: int, seconds: int, cores: set[int]) -> Run:
    """One run of wrk, one thread, on the given cores."""
    done = subprocess.run(
        ["taskset", "--cpu-list", ",".join(map(str, sorted(cores)))]
        + [find_program("wrk"), "-t1", f"-c{connections}", f"-d{seconds}s", "--latency", url],
        capture_output=True,
        text=True,
        check=False,
    )
    output = done.stdout
    counted = re.search(r"(\d+) requests in ([\d.]+)(s|m)", output)
    if done.returncode != 0 or counted is None:
        raise LoadFailed(f"wrk ended with {done.returncode}:\n{output}{done.stderr}")
    if "Non-2xx" in output or "Socket errors" in output:
        raise LoadFailed(f"failed requests against {url}:\n{output}")
    return Run(
        requests=int(counted[1]),
        seconds=float(counted[2]) * (60 if counted[3] == "m" else 1),
        p50_ms=_milliseconds(output, "50"),
        p99_ms=_milliseconds(output, "99"),
    )
