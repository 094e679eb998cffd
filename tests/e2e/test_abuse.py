"""Attackers that hold on to what they get, each while `wrk` runs through the proxy: the honest load sees no error, memory is
bounded, the attackers' connections are ended and counted.
"""

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from harness import attack, http2
from harness.fleet import Fleet, Proxy, Wrk, wrk
from harness.http1 import Connection, Message, answer
from harness.process import wait_until
from harness.slowhttptest import MODES, SlowHttpTest

pytestmark = pytest.mark.alone

MIB = 1 << 20
SLOW_CONNECTIONS = 2_000
SLOW_SECONDS = 8
FLOOD_SECONDS = 4
# The honest load beside a flood, which is ended within a second.
HONEST_SECONDS = 2
FLOODERS = 4
# A connection in the midst of a body holds what was read and is not taken yet, as much as nginx holds by default.
SLOW_MEMORY = SLOW_CONNECTIONS * 64 * 1024
FLOOD_MEMORY = 32 * MIB
# What a slow client gets before it is ended.
LIMITS = 'header_read_timeout = "2s"\nidle_timeout = "2s"'
BIG = bytes(MIB)


def big(connection: Connection, request: Message) -> None:
    connection.read_body(request, to_close=False)
    answer(connection, BIG)


class Target:
    """A proxy with an ordinary site at `/`, and big answers at `/big`."""

    def __init__(self, fleet: Fleet):
        self.fleet = fleet
        more = f"""
[[routes]]
path_prefix = "/big"
cluster = "big"

[clusters.big]
backends = ["{fleet.origin(big)}"]
"""
        self.proxy: Proxy = fleet.proxy([fleet.nginx() for _ in range(2)], listener=LIMITS, further=more)
        wait_until("ready", lambda: self.proxy.admin.get("/readyz")[0] == 200)
        wrk(self.proxy.url, 1)

    def ended(self) -> float:
        """Connections that the proxy ended, for whatever a client did."""
        return self.proxy.admin.metric("plimsoll_ended_connections_total")

    def connections(self) -> float:
        return self.proxy.admin.metric("plimsoll_listener_connections")


@pytest.fixture(scope="module")
def target(module_fleet: Fleet) -> Iterator[Target]:
    yield Target(module_fleet)


class Memory:
    """The most that the proxy held while it was watched."""

    def __init__(self, proxy: Proxy):
        self.proxy = proxy
        self.before = self.most = proxy.resident_bytes()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def _watch(self) -> None:
        while not self._over.wait(0.05):
            self.most = max(self.most, self.proxy.resident_bytes())

    def __enter__(self) -> "Memory":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    @property
    def grown(self) -> int:
        return self.most - self.before


def honest(target: Target, seconds: int) -> Wrk:
    return wrk(target.proxy.url, seconds)


@pytest.mark.parametrize("mode", MODES)
def test_slow_clients_hurt_nobody_else(target: Target, mode: str) -> None:
    before = target.ended()
    url = target.proxy.url + {"slow-read": "/big", "slow-body": "/upload"}.get(mode, "/")
    with Memory(target.proxy) as memory:
        slow = SlowHttpTest(mode, url, SLOW_CONNECTIONS, SLOW_SECONDS, target.fleet.directory)
        target.fleet.processes.append(slow)
        counted = honest(target, SLOW_SECONDS - 2)
        slow.wait(SLOW_SECONDS + 20)
    assert counted.errors == "" and counted.requests > 1_000, counted
    assert memory.grown < SLOW_MEMORY, f"{memory.grown / MIB:.0f} MiB more for {SLOW_CONNECTIONS} connections"
    # Ranges are no attack on a proxy that passes them on.
    if mode != "range":
        assert target.ended() - before > SLOW_CONNECTIONS / 2, f"{target.ended() - before} of {SLOW_CONNECTIONS} were ended"
    wait_until("all of them are gone", lambda: target.connections() < 50, 10)
    assert target.proxy.exit_code is None


def test_bodies_in_single_bytes_hold_no_more_than_they_have(target: Target) -> None:
    senders = [Connection.to(target.proxy.port) for _ in range(100)]
    try:
        for sender in senders:
            sender.send(b"POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 100000\r\n\r\n")
        with Memory(target.proxy) as memory:
            for _ in range(300):
                for sender in senders:
                    sender.send(b"a")
        # With a buffer of 16 KiB for each byte it would be 470 MiB.
        assert memory.grown < 16 * MIB
    finally:
        for sender in senders:
            sender.close()


@pytest.mark.parametrize("name", attack.FLOODS)
def test_flood_of_frames_is_ended(target: Target, name: str) -> None:
    before = target.ended()
    with ThreadPoolExecutor(FLOODERS + 1) as pool, Memory(target.proxy) as memory:
        load = pool.submit(honest, target, HONEST_SECONDS)
        floods = [pool.submit(attack.flood, target.proxy.port, attack.FLOODS[name], FLOOD_SECONDS) for _ in range(FLOODERS)]
        ended = [flood.result() for flood in floods]
        counted = load.result()
    assert counted.errors == "" and counted.requests > 200, counted
    assert memory.grown < FLOOD_MEMORY, f"{memory.grown / MIB:.0f} MiB more"
    assert all(end.by_peer for end in ended), ended
    assert target.ended() >= before + FLOODERS
    assert target.proxy.exit_code is None


def test_client_that_gives_no_window_loses_its_streams(target: Target) -> None:
    with ThreadPoolExecutor(FLOODERS + 1) as pool, Memory(target.proxy) as memory:
        load = pool.submit(honest, target, 6)
        stalls = [pool.submit(attack.stall, target.proxy.port, b"/big", 10) for _ in range(FLOODERS)]
        ended = [stall.result() for stall in stalls]
        counted = load.result()
    assert counted.errors == "", counted
    # 400 answers of 1 MiB were asked for.
    assert memory.grown < 64 * MIB, f"{memory.grown / MIB:.0f} MiB more"
    assert all(end.by_peer for end in ended), ended
    assert target.proxy.admin.metric("plimsoll_stalled_streams_total") + target.ended() > 0
    assert target.proxy.exit_code is None


def test_honest_http2_client_is_not_taken_for_an_attacker(target: Target) -> None:
    """Much of everything that attackers do too, beside requests that are served: PINGs, SETTINGS, small window updates, resets."""
    with http2.Connection.to(target.proxy.port) as client:
        stream = 1
        for _ in range(100):
            client.send(http2.frame(http2.PING, 0, 0, b"are you?"))
            for _ in range(5):
                assert client.fetch(stream, http2.request()).status == 200
                stream += 2
            # One in six is given up.
            client.send(http2.headers(stream, http2.request()) + http2.frame(http2.RST_STREAM, 0, stream, bytes(3) + b"\x08"))
            stream += 2
        client.send(http2.settings(s4=1 << 20))
        assert client.fetch(stream, http2.request()).status == 200
        assert client.goaway is None


# The default of `max_resets_per_second`, and the burst of it: twice `max_streams`.
RESETS_PER_SECOND = 20
RESET_BURST = 256
# Those of the round in which the connection ends.
RESETS_ON_THE_WAY = 30

FREE = {
    # 405 and 404 by the proxy.
    "trace": http2.request(b"TRACE"),
    "route-answer": [(b":method", b"GET"), (b":scheme", b"http"), (b":authority", b"nowhere.example"), (b":path", b"/none")],
}


@pytest.mark.parametrize("free", FREE)
def test_responses_that_cost_nothing_earn_no_resets(fleet: Fleet, free: str) -> None:
    begun = []

    def slow(connection: Connection, request: Message) -> None:
        begun.append(request)
        threading.Event().wait(0.1)
        answer(connection)

    more = """
[[routes]]
host = "nowhere.example"
answer = { status = 404 }
"""
    proxy = fleet.proxy([fleet.origin(slow)], further=more)
    proxy.admin.wait_for_healthy(1)
    attacked = attack.late_resets(proxy.port, b"/slow", 4, FREE[free])
    allowed = RESET_BURST + RESETS_PER_SECOND * attacked.seconds + RESETS_ON_THE_WAY
    assert attacked.by_peer and attacked.resets <= allowed, attacked
    assert len(begun) <= attacked.resets
    assert proxy.admin.metric("plimsoll_ended_connections_total", reason="resets") == 1
