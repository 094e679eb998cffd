"""System calls of a proxy per request, counted in a short run of its own.

`perf stat` on the kernel's own trace points leaves the proxy at its speed. strace, taken where perf may not count, stops
the proxy at each call; it then finds more sockets ready each time it looks, so `epoll_wait` comes out too low.
"""

import re
import shutil
import signal
import subprocess
import time
from dataclasses import dataclass

from .load import Load, LoadFailed, Target
from .peers import Peer
from .processes import Site, descendants

# Counted by name; all others together are "other". Not all 350, since the kernel takes 40 ms to let go of each.
_NAMES = (
    "epoll_wait epoll_ctl read write readv writev recvfrom sendto accept4 connect close shutdown setsockopt getsockopt"
).split()
_ALL = "raw_syscalls:sys_enter"
_SECONDS = 1
# A call that happens less often than this per request is a timer or a health check.
_LEAST_TOLD = 0.005
# strace and perf need a moment to attach.
_ATTACH_SECONDS = 0.3


@dataclass
class Syscalls:
    """Calls per request: all, and by name, most frequent first."""

    per_request: float
    by_name: dict[str, float]
    tool: str


def per_request(peer: Peer, load: Load, target: Target, site: Site) -> Syscalls | None:
    """`None` where neither perf nor strace may look."""
    pids = descendants(peer.process.pid)
    if _perf_works():
        tool, counts, requests = "perf stat", *_by_perf(pids, load, target, site)
    elif shutil.which("strace"):
        tool, counts, requests = "strace -c", *_by_strace(pids, load, target, site)
    else:
        return None
    named = {name: count / requests for name, count in counts.items() if count / requests >= _LEAST_TOLD}
    named = dict(sorted(named.items(), key=lambda item: -item[1]))
    return Syscalls(per_request=sum(counts.values()) / requests, by_name=named, tool=tool)


def _perf_works() -> bool:
    if shutil.which("perf") is None:
        return False
    command = ["perf", "stat", "-e", _ALL, "true"]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


def _watched(command: list[str], load: Load, target: Target, site: Site) -> tuple[str, int]:
    """What the command printed of the load it watched, and the requests of that load."""
    watcher = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    time.sleep(_ATTACH_SECONDS)
    try:
        run = load.run(target, _SECONDS, site)
    finally:
        watcher.send_signal(signal.SIGINT)
        _, printed = watcher.communicate(timeout=20)
    return printed, run.requests


def _by_perf(pids: list[int], load: Load, target: Target, site: Site) -> tuple[dict[str, float], int]:
    events = [_ALL, *(f"syscalls:sys_enter_{name}" for name in _NAMES)]
    command = ["perf", "stat", "-x,", "-e", ",".join(events), "-p", ",".join(map(str, pids))]
    printed, requests = _watched(command, load, target, site)
    found = re.findall(r"^(\d+),[^,]*,(?:raw_syscalls:sys_enter|syscalls:sys_enter_(\w+)),", printed, re.MULTILINE)
    counts = {name: float(count) for count, name in found}
    if "" not in counts:
        raise LoadFailed(f"perf stat counted nothing:\n{printed}")
    everything = counts.pop("")
    return counts | {"other": max(everything - sum(counts.values()), 0)}, requests


def _by_strace(pids: list[int], load: Load, target: Target, site: Site) -> tuple[dict[str, float], int]:
    command = ["strace", "-c", "-f", *(part for pid in pids for part in ("-p", str(pid)))]
    printed, requests = _watched(command, load, target, site)
    counts = {}
    for line in printed.splitlines():
        found = re.match(r"\s*[\d.]+\s+[\d.]+\s+\d*\s+(\d+)\s+(?:\d+\s+)?(\w+)$", line)
        if found and found[2] != "total":
            counts[found[2]] = float(found[1])
    return counts, requests
