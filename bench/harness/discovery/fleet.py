"""Backends, proxies and loads of a show."""

import json
import pathlib
import subprocess
import sys
from collections.abc import Callable

from ..load import LoadFailed
from ..peers import Peer, Plimsoll
from ..processes import Process, Site, free_port
from .contestants import Contestant, Source

RATE = 500
BACKENDS = 30
# A load that sends later than this (p99) had lost its core: its failures are the machine's.
MAX_SEND_LAG_MS = 100
MAX_ATTEMPTS = 3
# Each request, so that a backend that is stopped has some in flight.
_WAIT = "fixed:5ms"


def address(number: int) -> str:
    return f"127.50.0.{number + 1}"


class Fleet:
    """All backends listen at one port, each at its address, as those of an A record must."""

    def __init__(self, site: Site, backends: int):
        self.site, self.port = site, free_port()
        self.backends: dict[str, Process] = {}
        self.peers: dict[str, Peer] = {}
        for number in range(backends):
            self.start_backend(address(number))

    def start_backend(self, at: str) -> None:
        command = [Plimsoll.program, "backend", "--listen", f"{at}:{self.port}", "--cost", "fixed:0ms", "--wait", _WAIT]
        self.backends[at] = Process(f"backend-{at}", command, self.site.directory, self.site.load_cores)
        self.backends[at].wait_for_port(self.port, host=at)

    def kill_backend(self, at: str) -> None:
        self.backends.pop(at).kill()

    def start_proxies(self, contestants: list[Contestant], resolver: int, file: pathlib.Path | None = None) -> None:
        for each in contestants:
            source = Source(backends=(), port=self.port, resolver=resolver, file=str(file or ""))
            self.peers[each.name] = each.proxy(self.site, source, each.name.replace(",", ""))

    def load(self, name: str, seconds: float, seed: int = 1) -> subprocess.Popen:
        """500 requests a second, open loop, through this proxy."""
        options = ["--rate", str(RATE), "--duration", f"{seconds}s", "--timeout", "5s", "--seed", str(seed), "--json"]
        url = f"http://127.0.0.1:{self.peers[name].port}/"
        return subprocess.Popen([Plimsoll.program, "load", *options, url], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)

    def stop(self) -> None:
        for peer in self.peers.values():
            peer.process.stop()
        for process in self.backends.values():
            process.kill()


def counted(load: subprocess.Popen) -> dict:
    """Requests, failures by kind and responses by backend; a dropped request failed too."""
    out, _ = load.communicate()
    if not out:
        raise LoadFailed(f"plimsoll load ended with {load.returncode} and counted nothing")
    made = json.loads(out)
    return {
        "requests": made["requests"] + made["dropped"],
        "failed": made["failed"] + made["dropped"],
        "kinds": made["failures"],
        "statuses": made["statuses"],
        "backends": made["backends"],
        "p50_ms": made["latency_ms"]["p50"],
        "p99_ms": made["latency_ms"]["p99"],
        "send_lag_p99_ms": made["send_lag_ms"]["p99"],
    }


def until_undisturbed(
    name: str, attempt: Callable[[], dict], loads: Callable[[dict], list[dict]], max_lag_ms: float = MAX_SEND_LAG_MS
) -> tuple[dict, list[dict]]:
    """The first attempt whose loads were all in time, else the least late; and the discarded attempts.

    Only the send lag decides, not the failures, and an attempt counts for all proxies or for none.
    """
    made: list[tuple[float, dict]] = []
    while len(made) < MAX_ATTEMPTS:
        counts = attempt()
        lag = max(load["send_lag_p99_ms"] for load in loads(counts))
        made.append((lag, counts))
        if lag <= max_lag_ms:
            break
        print(f"{name}: disturbed, requests were sent {lag:.0f} ms late (p99)", file=sys.stderr)
    best = min(made, key=lambda each: each[0])
    discarded = [{"name": name, "send_lag_p99_ms": lag, "counts": counts} for lag, counts in made if counts is not best[1]]
    return best[1] | {"send_lag_p99_ms": best[0]}, discarded
