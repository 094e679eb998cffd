"""Attacks that hold what all clients of a cluster share, each with honest users *on the same cluster*, who must not notice.

One row is one attack: who holds what, and who would suffer. The attacker has one address, the honest users have another, and the
proxy is as it comes: `--from --to --to`, every setting at its default. The holders are those of `bench/abuse --same-cluster`,
which says how nginx and HAProxy fare.
"""

import time
from dataclasses import dataclass

import pytest

from harness import holders
from harness.fleet import Fleet, Proxy
from harness.holders import Holders
from harness.http1 import Connection
from harness.process import Process, free_port, wait_until

pytestmark = pytest.mark.alone

ATTACK_SECONDS = 30.0
HONEST_REQUESTS = 60
HONEST_PAUSE_SECONDS = 0.02
# An honest request takes a few milliseconds. Waiting for what is held takes seconds: 5 s in the queue for a slot.
P99_SECONDS = 1.0
# A backend that is not busy itself answers in a millisecond.
IDLE_SECONDS = 0.1
TIMEOUT_SECONDS = 3.0


@dataclass(frozen=True)
class Row:
    """One attack: its holder, the resource that it holds, and the clients that would be affected."""

    attack: str
    holder: str
    resource: str
    affected: str


ROWS = [
    Row("silent_streams", "200 HTTP/2 streams, each silent after a byte", "slots at backends", "everyone else"),
    Row("trickling_streams", "200 HTTP/2 streams just above min_body_rate", "slots at backends", "everyone else"),
    Row("endless_chunks", "200 connections, each silent after a chunk", "slots at backends", "everyone else"),
    Row("unfinished_body", "200 connections, each silent after 16 KiB", "slots at backends", "everyone else"),
    Row("slow_reader", "200 connections that read 600 bytes a second", "slots at backends", "everyone else"),
    Row("idle_websocket", "200 idle WebSockets", "slots at backends", "everyone else"),
    Row("slow_head", "200 connections whose request never ends", "connections of the listener", "new clients"),
    Row("idle_connection", "200 connections idle after a response", "connections of listener and pool", "new clients"),
]


@dataclass
class Served:
    """What honest users got."""

    seconds: list[float]
    failures: list[str]

    @property
    def p99(self) -> float:
        return sorted(self.seconds)[int(len(self.seconds) * 0.99)]


def honest(port: int) -> Served:
    """Requests one after the other, each of a new client. The first failure ends them."""
    served = Served([], [])
    for _ in range(HONEST_REQUESTS):
        began = time.monotonic()
        try:
            with Connection.to(port, timeout=TIMEOUT_SECONDS) as client:
                status = client.request("/").status
        except OSError as error:
            served.failures.append(f"{error!r} after {time.monotonic() - began:.1f} s")
            break
        if status != 200:
            served.failures.append(f"{status} after {time.monotonic() - began:.1f} s")
            break
        served.seconds.append(time.monotonic() - began)
        time.sleep(HONEST_PAUSE_SECONDS)
    return served


@dataclass
class Target:
    """A proxy without a file, and the ports of its two backends."""

    proxy: Proxy
    backends: list[int]

    def backends_are_idle(self) -> bool:
        """Whether each backend answers at once when asked past the proxy."""
        for port in self.backends:
            began = time.monotonic()
            with Connection.to(port, timeout=TIMEOUT_SECONDS) as client:
                if client.request("/").status != 200 or time.monotonic() - began > IDLE_SECONDS:
                    return False
        return True


@pytest.fixture
def target(fleet: Fleet) -> Target:
    ports = [free_port(), free_port()]
    site = Process("open-site", holders.command("open_site", *map(str, ports)), fleet.directory)
    fleet.processes.append(site)
    for port in ports:
        site.wait_for_port(port)
    proxy = fleet.proxy_to([f"127.0.0.1:{port}" for port in ports])
    proxy.admin.wait_for_healthy(2)
    return Target(proxy, ports)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.attack)
def test_honest_users_are_served_beside(fleet: Fleet, target: Target, row: Row) -> None:
    attack = Holders(row.attack, target.proxy.port, ATTACK_SECONDS, fleet.directory)
    fleet.processes.append(attack)
    wait_until(f"{row.holder}: everything is held", attack.holds)
    # The backends are small Python programs that write 200 long responses at first, for seconds on a busy machine.
    wait_until("the backends have filled all buffers", target.backends_are_idle)
    served = honest(target.proxy.port)
    assert attack.exit_code is None, "the attack lasts longer than the honest load"
    spared = f"{row.affected} must not notice who holds {row.resource}"
    assert not served.failures and len(served.seconds) == HONEST_REQUESTS, f"{spared}: {served.failures}"
    assert served.p99 < P99_SECONDS, f"{spared}: p99 {served.p99:.2f} s"
