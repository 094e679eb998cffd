"""What the proxy does not put up with: slow heads, large heads, answers that never come. And what it must: long queues."""

import socket
import threading
import time

from harness.fleet import Fleet, Proxy, config
from harness.http1 import Closed, Connection, Message, answer
from harness.process import free_port, wait_until

LEAST_MEMORY = "32MiB"
LEAST_MEMORY_BYTES = 32 << 20


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


def test_long_target_is_refused(fleet: Fleet) -> None:
    proxy = fleet.proxy([fleet.origin(always)], listener='max_uri = "1KiB"')
    for length, status in ((1_000, 200), (1_100, 414)):
        with Connection.to(proxy.port) as client:
            assert client.request("/" + "a" * length).status == status
    assert proxy.admin.metric("plimsoll_refused_requests_total") == 1


def test_body_that_trickles_is_ended(fleet: Fleet) -> None:
    """Never silent for long, but slower than the least rate for as long as `idle_timeout`."""
    proxy = fleet.proxy([fleet.origin(always)], listener='min_body_rate = "100B"\nidle_timeout = "1s"')
    with Connection.to(proxy.port) as client:
        began = time.monotonic()
        client.send("POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 1000\r\n\r\n")
        try:
            while time.monotonic() - began < 10:
                client.send("x")
                time.sleep(0.1)  # the trickle itself
        except OSError:
            pass
        assert 0.9 < time.monotonic() - began < 5
        try:
            assert client.read_response("POST").status == 408
        except (Closed, ConnectionError):
            pass
    wait_until("it is counted", lambda: proxy.admin.metric("plimsoll_ended_connections_total", reason="slow-body") == 1)


def test_answer_that_is_taken_in_a_trickle_is_ended(fleet: Fleet) -> None:
    def big(connection: Connection, request: Message) -> None:
        answer(connection, bytes(32 << 20))

    proxy = fleet.proxy([fleet.origin(big)], listener='min_body_rate = "100kB"\nidle_timeout = "1s"')
    with Connection.to(proxy.port) as client:
        client.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.send("GET / HTTP/1.1\r\nhost: a\r\n\r\n")

        def ended() -> bool:
            client.sock.recv(100)
            return proxy.admin.metric("plimsoll_ended_connections_total", reason="slow-answer") == 1

        wait_until("it is ended and counted", ended, 15, every=0.1)


def test_one_client_cannot_take_all_connections(fleet: Fleet) -> None:
    proxy = fleet.proxy([fleet.origin(always)], listener="max_connections_per_client = 5")
    proxy.admin.wait_for_healthy(1)
    wait_until("nobody is connected", lambda: proxy.admin.metric("plimsoll_listener_connections") == 0)
    clients = [Connection.to(proxy.port) for _ in range(5)]
    for client in clients:
        assert client.request("/").status == 200
    for _ in range(3):
        with Connection.to(proxy.port) as client:
            assert client.at_end()
    assert proxy.admin.metric("plimsoll_refused_connections_total", reason="client") == 3
    clients.pop().close()

    def served() -> bool:
        with Connection.to(proxy.port) as client:
            try:
                return client.request("/").status == 200
            except (Closed, ConnectionError):
                return False

    wait_until("there is room again", served)
    for client in clients:
        assert client.request("/").status == 200
        client.close()


def test_proxy_short_of_memory_refuses_what_is_new_and_goes_on(fleet: Fleet) -> None:
    """Heads that do not end, more of them than fit into the least memory that can be set."""
    port, admin_port = free_port(), free_port()
    path = fleet.directory / "memory.toml"
    settings = 'header_read_timeout = "1m"\nmax_header_size = "128KiB"'
    path.write_text(f'max_memory = "{LEAST_MEMORY}"\n' + config(port, admin_port, [fleet.origin(always)], listener=settings))
    proxy = Proxy("memory", ["-c", str(path)], port, admin_port, fleet.directory)
    fleet.processes.append(proxy)
    proxy.wait_for_port(port)
    proxy.admin.wait_for_healthy(1)

    def status() -> int:
        try:
            with Connection.to(port, 2) as client:
                return client.request("/").status
        except (Closed, OSError):
            return 0

    kept = Connection.to(port)
    assert kept.request("/").status == 200
    crowd: list[Connection] = []

    def short_of_memory() -> bool:
        try:
            crowd.append(Connection.to(port))
            crowd[-1].send("GET / HTTP/1.1\r\nhost: a\r\n" + f"x-fill: {'a' * 4_000}\r\n" * 25)
        except OSError:
            pass  # turned away already
        # Memory is looked at four times a second; loopback could bring any amount in between.
        time.sleep(0.002)
        return len(crowd) % 50 == 0 and proxy.admin.metric("plimsoll_pressure_level") == 2

    wait_until("memory is short", short_of_memory, 30, every=0)
    assert status() in (0, 503)
    wait_until(
        "it is counted",
        lambda: status() in (0, 503) and proxy.admin.metric("plimsoll_refused_connections_total", reason="memory") > 0,
    )
    assert proxy.resident_bytes() < 2 * LEAST_MEMORY_BYTES
    for connection in (*crowd, kept):
        connection.close()
    wait_until("it serves again", lambda: status() == 200, 30)
    assert proxy.exit_code is None


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


def test_client_that_goes_away_keeps_its_slot_until_backend_is_done(fleet: Fleet) -> None:
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
    # The backend takes no notice, so a fifth request would be more work than it may have at a time.
    with Connection.to(proxy.port) as waiting:
        waiting.send("GET / HTTP/1.1\r\nhost: a\r\n\r\n")
        wait_until("one waits", lambda: proxy.admin.clusters()[0]["waiting"] == 1, 5)
        assert proxy.admin.backends()[address]["in_flight"] == 4
        release.set()
        assert waiting.read_response("GET").status == 200
    wait_until("none in flight", lambda: proxy.admin.backends()[address]["in_flight"] == 0, 5)


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
