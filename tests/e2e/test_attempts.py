"""Attempts that take too long, waits that backends name, and connections that say nothing more."""

import signal
import socket
import threading
import time

import grpc
import pytest

from harness import http1, http2
from harness.fleet import Fleet
from harness.haproxy import haproxy
from harness.http1 import Connection, Message
from harness.process import wait_until
from harness.rpc import Server, work

CHECK = 'check = "none"'
UNTHROTTLED = '[clusters.main.throttle]\npolicy = "off"\n'
ALL_BUDGET = "budget = 1.0\nbudget_floor = 1000\n"
# Far longer than the limit of an attempt, and shorter than any other limit.
HANG = 3.0


def hanging(release: threading.Event) -> http1.Handler:
    def handle(connection: Connection, _request: Message) -> None:
        release.wait(HANG)
        http1.answer(connection, b"late")

    return handle


def quick(connection: Connection, _request: Message) -> None:
    http1.answer(connection, b"ok")


def responses(port: int, method: str, count: int) -> tuple[list[tuple[int, bytes]], float]:
    """The responses to `count` requests in turn, and the longest time of one."""
    found, longest = [], 0.0
    for _ in range(count):
        with Connection.to(port, timeout=20) as connection:
            begun = time.monotonic()
            response = connection.request("/", method)
            longest = max(longest, time.monotonic() - begun)
            found.append((response.status, response.body))
    return found, longest


def test_hanging_backend_costs_the_time_of_one_attempt_as_with_haproxy(fleet: Fleet) -> None:
    release = threading.Event()
    addresses = [fleet.origin(hanging(release)), fleet.origin(quick)]
    cluster = 'policy = "round-robin"\nrequest_timeout = "20s"'
    further = f'[clusters.main.retry]\nattempt_timeout = "300ms"\n{ALL_BUDGET}{UNTHROTTLED}'
    proxy = fleet.proxy(addresses, cluster=cluster, health=CHECK, further=further)
    ours, our_longest = responses(proxy.port, "GET", 6)
    settings = "timeout server 300ms\n    retries 2\n    option redispatch 1\n    retry-on response-timeout"
    with haproxy(fleet.directory, addresses, settings) as port:
        theirs, their_longest = responses(port, "GET", 6)
    release.set()
    assert ours == theirs == [(200, b"ok")] * 6
    assert 0.3 <= our_longest < HANG and 0.3 <= their_longest < HANG, (our_longest, their_longest)
    retried = proxy.admin.metric("plimsoll_retries_total", reason="attempt-timeout", outcome="answered")
    assert retried >= 1
    timed_out = proxy.admin.metric("plimsoll_requests_total", backend=addresses[0], result="timed-out")
    assert timed_out == retried


def test_request_that_must_not_be_repeated_is_answered_late_and_not_with_504(fleet: Fleet) -> None:
    """HAProxy's `timeout server` ends it; here the attempt goes on."""
    release = threading.Event()

    def slow(connection: Connection, _request: Message) -> None:
        release.wait(0.9)
        http1.answer(connection, b"late")

    addresses = [fleet.origin(slow), fleet.origin(slow)]
    further = f'[clusters.main.retry]\nattempt_timeout = "300ms"\n{ALL_BUDGET}{UNTHROTTLED}'
    proxy = fleet.proxy(addresses, health=CHECK, further=further)
    ours, _ = responses(proxy.port, "POST", 2)
    with haproxy(fleet.directory, addresses, "timeout server 300ms\n    retry-on response-timeout") as port:
        theirs, _ = responses(port, "POST", 2)
    assert [status for status, _ in theirs] == [504, 504]
    assert ours == [(200, b"late")] * 2
    assert proxy.admin.metric("plimsoll_retries_total") == 0


def test_short_wait_that_a_backend_names_is_waited_for_and_a_longer_one_is_passed_on(fleet: Fleet) -> None:
    lock, count = threading.Lock(), [0]

    def handle(connection: Connection, request: Message) -> None:
        with lock:
            count[0] += 1
            is_first = count[0] == 1
        if "/later" in request.start:
            http1.answer(connection, b"later", "503 Service Unavailable", "retry-after: 30\r\n")
        elif is_first:
            http1.answer(connection, b"soon", "503 Service Unavailable", "retry-after: 1\r\n")
        else:
            http1.answer(connection, b"ok")

    proxy = fleet.proxy([fleet.origin(handle)], health=CHECK, further=UNTHROTTLED)
    with Connection.to(proxy.port, timeout=20) as connection:
        begun = time.monotonic()
        assert connection.request("/").status == 200
        assert time.monotonic() - begun >= 1
        begun = time.monotonic()
        later = connection.request("/later")
        assert time.monotonic() - begun < 1
    assert (later.status, later.get("retry-after"), later.body) == (503, "30", b"later")
    assert proxy.admin.metric("plimsoll_retries_denied_total", reason="too-long") == 1


def test_client_without_pong_loses_its_connection_and_its_requests(fleet: Fleet) -> None:
    release, ended = threading.Event(), threading.Event()

    def handle(connection: Connection, _request: Message) -> None:
        # The request of a client that has gone is taken back: its connection ends.
        if connection.at_end():
            ended.set()
        release.wait(1)

    ping = '[listeners.http2]\nping_interval = "300ms"\nping_timeout = "300ms"'
    proxy = fleet.proxy([fleet.origin(handle)], listener=ping, health=CHECK)
    with http2.Connection.to(proxy.port) as client:
        client.send(http2.headers(1, http2.request()))
        # It reads, and answers nothing.
        pings = 0
        while True:
            try:
                data = client.sock.recv(65536)
            except (ConnectionError, socket.timeout):
                break
            if not data:
                break
            pings += data.count(http2.frame(6, 0, 0, b"", 8)[:9])
        assert pings == 1
    wait_until("the request was taken back", ended.is_set)
    release.set()
    assert proxy.admin.metric("plimsoll_ended_connections_total", reason="no-pong") == 1


def test_stopped_backend_loses_its_requests_by_ping_to_another_one(fleet: Fleet) -> None:
    """Its kernel still acknowledges everything, so nothing but a PING tells."""
    hangs, well = fleet.backend("--cost", "fixed:100us"), fleet.backend("--cost", "fixed:100us")
    cluster = 'policy = "round-robin"\nprotocol = "http2"\nrequest_timeout = "20s"\nping_interval = "300ms"\nping_timeout = "300ms"'
    further = f"[clusters.main.retry]\n{ALL_BUDGET}{UNTHROTTLED}"
    proxy = fleet.proxy([hangs.address, well.address], cluster=cluster, health=CHECK, further=further)
    proxy.admin.wait_for_healthy(2)
    assert all(status == 200 for status, _ in responses(proxy.port, "GET", 8)[0])
    hangs.signal(signal.SIGSTOP)
    try:
        found, longest = responses(proxy.port, "GET", 4)
    finally:
        hangs.signal(signal.SIGCONT)
    assert all(status == 200 for status, _ in found), found
    assert longest < 10, "twice ping_interval, and not request_timeout"
    assert proxy.admin.metric("plimsoll_retries_total", reason="closed", outcome="answered") >= 1


def test_grpc_server_that_refuses_pings_is_named_in_the_log(fleet: Fleet) -> None:
    """grpcio permits one PING in five minutes without data."""
    def slow(_request: bytes, _context: grpc.ServicerContext) -> bytes:
        time.sleep(3)
        return b""

    server = Server(slow)
    try:
        cluster = 'protocol = "http2"\nping_interval = "200ms"\nping_timeout = "5s"'
        proxy = fleet.proxy([server.address], cluster=cluster, health=CHECK)
        with grpc.insecure_channel(f"127.0.0.1:{proxy.port}") as channel, pytest.raises(grpc.RpcError):
            work(channel)(b"", timeout=10)
        wait_until("the refusal is in the log", lambda: "backend refuses PINGs" in proxy.output())
    finally:
        server.stop()
