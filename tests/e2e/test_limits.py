"""What the proxy does not put up with: slow heads, large heads, answers that never come. And what it must: long queues."""

import threading
import time

from harness.fleet import Fleet
from harness.http1 import Closed, Connection, Message, answer
from harness.process import wait_until


def always(connection: Connection, request: Message) -> None:
    connection.read_body(request, to_close=False)
    answer(connection)


def test_client_that_never_ends_its_head_is_let_go(fleet: Fleet) -> None:
    proxy = fleet.proxy([fleet.origin(always)], listener='header_read_timeout = "500ms"')
    with Connection.to(proxy.port) as client:
        began = time.monotonic()
        client.send("GET / HTTP/1.1\r\nhost: a\r\nx-slow: ")
        try:
            assert client.read_response().status == 408
        except (Closed, ConnectionError):
            pass
        assert time.monotonic() - began < 3


def test_large_head_is_refused_and_the_proxy_goes_on(fleet: Fleet) -> None:
    proxy = fleet.proxy([fleet.origin(always)], listener='max_header_size = "16KiB"')
    with Connection.to(proxy.port) as client:
        try:
            client.send("GET / HTTP/1.1\r\nhost: a\r\n" + f"x-fill: {'a' * 4000}\r\n" * 10 + "\r\n")
            assert client.read_response().status == 431
        except (Closed, ConnectionError):
            pass
    with Connection.to(proxy.port) as client:
        assert client.request("/").status == 200


def test_large_body_is_refused(fleet: Fleet) -> None:
    proxy = fleet.proxy([fleet.origin(always)], listener='max_body = "1MiB"')
    with Connection.to(proxy.port) as client:
        client.send(f"POST / HTTP/1.1\r\nhost: a\r\ncontent-length: {2 << 20}\r\n\r\n")
        assert client.read_response("POST").status == 413
    with Connection.to(proxy.port) as client:
        assert client.request("/", method="POST", body=bytes(1 << 20)).status == 200


def test_backend_that_never_answers_is_a_504_in_time(fleet: Fleet) -> None:
    release = threading.Event()

    def handler(connection: Connection, request: Message) -> None:
        if "/never" in request.start:
            release.wait(20)
        answer(connection)

    proxy = fleet.proxy([fleet.origin(handler)], cluster='request_timeout = "500ms"')
    with Connection.to(proxy.port) as client:
        began = time.monotonic()
        response = client.request("/never")
        took = time.monotonic() - began
    release.set()
    assert response.status == 504, response
    assert "reason=deadline" in (response.get("x-plimsoll-shed") or ""), response.fields
    assert 0.4 < took < 2


def test_client_that_goes_away_frees_its_place(fleet: Fleet) -> None:
    release = threading.Event()

    def handler(connection: Connection, request: Message) -> None:
        if "/long" in request.start:
            release.wait(20)
        answer(connection)

    address = fleet.origin(handler)
    proxy = fleet.proxy([address], cluster='policy = "least-loaded"\nmax_active_requests = 4')
    clients = [Connection.to(proxy.port) for _ in range(4)]
    for client in clients:
        client.send("GET /long HTTP/1.1\r\nhost: a\r\n\r\n")
    wait_until("four in flight", lambda: proxy.admin.backends()[address]["in_flight"] == 4, 5)
    for client in clients:
        client.close()
    wait_until("none in flight", lambda: proxy.admin.backends()[address]["in_flight"] == 0, 5)
    with Connection.to(proxy.port) as client:
        assert client.request("/").status == 200
    release.set()


def test_full_backends_make_requests_wait_and_not_fail(fleet: Fleet) -> None:
    backend = fleet.backend("--cost", "fixed:10us", "--wait", "fixed:20ms")
    proxy = fleet.proxy([backend.address], cluster="max_active_requests = 5")
    proxy.admin.wait_for_healthy(1)
    # 50 callers for 5 places of 20 ms: each waits about 200 ms.
    counted = fleet.load_now(proxy.url, "--concurrency", "50", "--requests", "500")
    assert counted.failed == 0, counted.raw
    assert counted.raw["latency_ms"]["p50"] > 100


def test_queue_that_is_full_says_saturated(fleet: Fleet) -> None:
    release = threading.Event()

    def handler(connection: Connection, request: Message) -> None:
        if "/long" in request.start:
            release.wait(20)
        answer(connection)

    address = fleet.origin(handler)
    proxy = fleet.proxy([address], cluster='max_active_requests = 1\nmax_pending = 1\nqueue_timeout = "300ms"')
    with Connection.to(proxy.port) as holder, Connection.to(proxy.port) as client:
        holder.send("GET /long HTTP/1.1\r\nhost: a\r\n\r\n")
        wait_until("one in flight", lambda: proxy.admin.backends()[address]["in_flight"] == 1, 5)
        began = time.monotonic()
        response = client.request("/")
        assert 0.2 < time.monotonic() - began < 3
        assert response.status == 503
        assert "reason=saturated" in (response.get("x-plimsoll-shed") or ""), response.fields
        release.set()
        assert holder.read_response().status == 200
        assert client.request("/").status == 200
