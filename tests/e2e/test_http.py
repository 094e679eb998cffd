"""HTTP through the proxy, looked at byte by byte: fields of one hop, trailers, bodies, back-pressure, errors."""

import hashlib
import socket
import threading
import time

from harness.fleet import Fleet
from harness.http1 import Closed, Connection, Message, answer
from harness.process import free_port, wait_until

MIB = 1 << 20
# What a stream that nobody reads may hold up: kernel buffers of two connections (which Linux lets grow to 4 MiB for
# sending and 6 MiB for receiving each) and what the proxy itself holds.
STALLED_AT_MOST = 24 * MIB
PROXY_GROWS_AT_MOST = 16 * MIB
STREAM = 100 * MIB


def small_buffers(connection: Connection) -> None:
    connection.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 64 << 10)
    connection.sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 64 << 10)


def test_fields_of_one_hop_end_at_the_proxy(fleet: Fleet) -> None:
    seen: list[Message] = []

    def handler(connection: Connection, request: Message) -> None:
        if request.start.startswith("GET /asked"):
            seen.append(request)
        answer(connection, fields="connection: x-internal\r\nx-internal: 1\r\nkeep-alive: timeout=5\r\nx-kept: 1\r\n")

    proxy = fleet.proxy_to([fleet.origin(handler)])
    with Connection.to(proxy.port) as client:
        response = client.request(
            "/asked?q=1",
            fields="connection: x-hop, keep-alive\r\nx-hop: 1\r\nkeep-alive: 5\r\nproxy-connection: keep-alive\r\n"
            "te: gzip\r\nproxy-authorization: secret\r\nx-end-to-end: 1\r\n",
        )
    (request,) = seen
    assert request.start == "GET /asked?q=1 HTTP/1.1"
    assert request.get("host") == "site.example"
    assert request.get("x-end-to-end") == "1"
    for name in ("x-hop", "keep-alive", "proxy-connection"):
        assert request.get(name) is None, f"{name} went on to the backend: {request.fields}"
    assert "gzip" not in (request.get("te") or "")
    assert response.get("x-kept") == "1"
    for name in ("x-internal", "keep-alive"):
        assert response.get(name) is None, f"{name} came back to the client: {response.fields}"


def test_response_trailers_reach_a_client_that_wants_them(fleet: Fleet) -> None:
    def handler(connection: Connection, request: Message) -> None:
        del request
        connection.send(
            "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\ntrailer: x-sum\r\n\r\n5\r\nhello\r\n0\r\nx-sum: 42\r\n\r\n"
        )

    proxy = fleet.proxy_to([fleet.origin(handler)])
    with Connection.to(proxy.port) as client:
        response = client.request("/", fields="te: trailers\r\nconnection: te\r\n")
        assert response.body == b"hello"
        assert ("x-sum", "42") in [(name.lower(), value) for name, value in response.trailers]
        # A client that did not ask gets the same body, and the connection is as good as before.
        assert client.request("/").body == b"hello"


def test_head_has_no_body_and_the_connection_goes_on(fleet: Fleet) -> None:
    def handler(connection: Connection, request: Message) -> None:
        if request.start.startswith("HEAD"):
            connection.send("HTTP/1.1 200 OK\r\ncontent-length: 1234\r\n\r\n")
        else:
            answer(connection, b"after")

    proxy = fleet.proxy_to([fleet.origin(handler)])
    with Connection.to(proxy.port) as client:
        head = client.request("/", method="HEAD")
        assert (head.status, head.get("content-length")) == (200, "1234")
        assert client.request("/").body == b"after"


def test_answers_without_a_body_keep_the_connection(fleet: Fleet) -> None:
    def handler(connection: Connection, request: Message) -> None:
        if "/204" in request.start:
            connection.send("HTTP/1.1 204 No Content\r\n\r\n")
        elif "/304" in request.start:
            connection.send('HTTP/1.1 304 Not Modified\r\netag: "a"\r\n\r\n')
        else:
            answer(connection, b"after")

    proxy = fleet.proxy_to([fleet.origin(handler)])
    with Connection.to(proxy.port) as client:
        assert client.request("/204").status == 204
        assert client.request("/304").get("etag") == '"a"'
        assert client.request("/").body == b"after"


def test_backend_that_ends_its_body_by_closing_is_passed_on_whole(fleet: Fleet) -> None:
    def handler(connection: Connection, request: Message) -> None:
        del request
        connection.send("HTTP/1.0 200 OK\r\n\r\nuntil the end")
        connection.close()
        raise Closed

    proxy = fleet.proxy_to([fleet.origin(handler)])
    with Connection.to(proxy.port) as client:
        assert client.request("/").body == b"until the end"


def test_body_that_breaks_off_is_not_passed_off_as_whole(fleet: Fleet) -> None:
    def handler(connection: Connection, request: Message) -> None:
        if "/broken" not in request.start:
            answer(connection)
            return
        connection.send("HTTP/1.1 200 OK\r\ncontent-length: 1000\r\n\r\nonly this")
        connection.close()
        raise Closed

    proxy = fleet.proxy_to([fleet.origin(handler)])
    with Connection.to(proxy.port) as client:
        try:
            response = client.request("/broken")
        except Closed:
            pass
        else:
            assert response.status >= 500, response


def test_conflicting_lengths_never_reach_a_backend(fleet: Fleet) -> None:
    seen: list[Message] = []

    def handler(connection: Connection, request: Message) -> None:
        connection.read_body(request, to_close=False)
        seen.append(request)
        answer(connection)

    proxy = fleet.proxy_to([fleet.origin(handler)])
    smuggling = (
        "POST /s HTTP/1.1\r\nhost: a\r\ncontent-length: 6\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\nG",
        "POST /s HTTP/1.1\r\nhost: a\r\ncontent-length: 3\r\ncontent-length: 4\r\n\r\nabcd",
        "POST /s HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked, identity\r\n\r\n0\r\n\r\n",
        "POST /s HTTP/1.1\r\nhost: a\r\ntransfer-encoding : chunked\r\n\r\n0\r\n\r\n",
        "GET /s HTTP/1.1\r\nhost: a\r\nx: 1\r\n y: folded\r\n\r\n",
    )
    for attempt in smuggling:
        with Connection.to(proxy.port) as client:
            client.send(attempt)
            try:
                client.read_response("POST")
            except (Closed, OSError):
                pass
    for request in seen:
        both = request.get("content-length") is not None and request.get("transfer-encoding") is not None
        assert not both, request
        assert len(request.all("content-length")) <= 1, request
        assert not request.start.startswith("G "), request


def test_request_body_streams_as_it_is_sent(fleet: Fleet) -> None:
    first_arrived = threading.Event()

    def handler(connection: Connection, request: Message) -> None:
        if not request.start.startswith("POST"):
            answer(connection)
            return
        pieces = [connection.read_chunk()]
        first_arrived.set()
        while chunk := connection.read_chunk():
            pieces.append(chunk)
        connection.read_line()
        answer(connection, b"".join(pieces))

    proxy = fleet.proxy_to([fleet.origin(handler)])
    with Connection.to(proxy.port) as client:
        client.send("POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n5\r\nfirst\r\n")
        assert first_arrived.wait(5), "the first chunk waits for the second"
        client.send("6\r\nsecond\r\n0\r\n\r\n")
        assert client.read_response("POST").body == b"firstsecond"


def test_response_body_streams_as_it_is_sent(fleet: Fleet) -> None:
    go_on = threading.Event()

    def handler(connection: Connection, request: Message) -> None:
        if "/stream" not in request.start:
            answer(connection)
            return
        connection.send("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nfirst\r\n")
        assert go_on.wait(5)
        connection.send("6\r\nsecond\r\n0\r\n\r\n")

    proxy = fleet.proxy_to([fleet.origin(handler)])
    with Connection.to(proxy.port) as client:
        client.send("GET /stream HTTP/1.1\r\nhost: a\r\n\r\n")
        head = client.read_head()
        assert head.get("transfer-encoding") == "chunked"
        assert client.read_chunk() == b"first"
        go_on.set()
        assert client.read_chunk() == b"second"


def test_expect_100_continue_is_answered(fleet: Fleet) -> None:
    def handler(connection: Connection, request: Message) -> None:
        if request.get("expect") is not None:
            connection.send("HTTP/1.1 100 Continue\r\n\r\n")
        connection.read_body(request, to_close=False)
        answer(connection, request.body)

    proxy = fleet.proxy_to([fleet.origin(handler)])
    with Connection.to(proxy.port) as client:
        client.send("POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 4\r\nexpect: 100-continue\r\n\r\n")
        assert client.read_head().status == 100
        client.send("data")
        assert client.read_response("POST").body == b"data"


class Counter:
    """Bytes that went through so far, and whether that number still moves."""

    def __init__(self) -> None:
        self.bytes = 0
        self.done = threading.Event()

    def wait_until_stalled(self) -> int:
        """The count, once it stood still for a second."""
        last, since = -1, time.monotonic()

        def still() -> bool:
            nonlocal last, since
            if self.bytes != last:
                last, since = self.bytes, time.monotonic()
            return self.bytes > 0 and (self.done.is_set() or time.monotonic() - since > 1)

        wait_until("the stream stands still or ends", still, seconds=20)
        return self.bytes


def test_reader_that_stops_stops_the_backend(fleet: Fleet) -> None:
    sent = Counter()
    block = bytes(range(256)) * 256

    def handler(connection: Connection, request: Message) -> None:
        if "/big" not in request.start:
            answer(connection)
            return
        small_buffers(connection)
        connection.sock.settimeout(60)
        connection.send(f"HTTP/1.1 200 OK\r\ncontent-length: {STREAM}\r\n\r\n")
        while sent.bytes < STREAM:
            connection.send(block)
            sent.bytes += len(block)
        sent.done.set()

    proxy = fleet.proxy_to([fleet.origin(handler)])
    with Connection.to(proxy.port, timeout=30) as client:
        client.request("/small")
        before = proxy.resident_bytes()
        small_buffers(client)
        client.send("GET /big HTTP/1.1\r\nhost: a\r\n\r\n")
        head = client.read_head()
        stalled = sent.wait_until_stalled()
        grown = proxy.resident_bytes() - before
        assert stalled < STALLED_AT_MOST, f"{stalled / MIB:.0f} MiB sent to a reader that reads nothing"
        assert grown < PROXY_GROWS_AT_MOST, f"the proxy grew by {grown / MIB:.0f} MiB"
        client.read_body(head, to_close=False)
        assert hashlib.sha256(head.body).digest() == hashlib.sha256(block * (STREAM // len(block))).digest()


def test_backend_that_stops_reading_stops_the_sender(fleet: Fleet) -> None:
    sent = Counter()
    read_on = threading.Event()
    block = bytes(range(256)) * 256
    digests: list[bytes] = []

    def handler(connection: Connection, request: Message) -> None:
        if not request.start.startswith("POST"):
            answer(connection)
            return
        small_buffers(connection)
        assert read_on.wait(30)
        connection.read_body(request, to_close=False)
        digests.append(hashlib.sha256(request.body).digest())
        answer(connection)

    proxy = fleet.proxy_to([fleet.origin(handler)])
    with Connection.to(proxy.port, timeout=60) as client:
        client.request("/small")
        before = proxy.resident_bytes()
        small_buffers(client)

        def upload() -> None:
            client.send(f"POST / HTTP/1.1\r\nhost: a\r\ncontent-length: {STREAM}\r\n\r\n")
            while sent.bytes < STREAM:
                client.send(block)
                sent.bytes += len(block)
            sent.done.set()

        sender = threading.Thread(target=upload, daemon=True)
        sender.start()
        stalled = sent.wait_until_stalled()
        grown = proxy.resident_bytes() - before
        read_on.set()
        assert stalled < STALLED_AT_MOST, f"{stalled / MIB:.0f} MiB sent to a backend that reads nothing"
        assert grown < PROXY_GROWS_AT_MOST, f"the proxy grew by {grown / MIB:.0f} MiB"
        sender.join(30)
        assert client.read_response("POST").status == 200
    assert digests == [hashlib.sha256(block * (STREAM // len(block))).digest()]


def test_without_any_backend_the_answer_explains_itself(fleet: Fleet) -> None:
    proxy = fleet.proxy_to([f"127.0.0.1:{free_port()}"])
    with Connection.to(proxy.port) as client:
        began = time.monotonic()
        response = client.request("/")
        assert response.status in (502, 503), response
        assert "reason=" in (response.get("x-plimsoll-shed") or ""), response.fields
        assert time.monotonic() - began < 10
    assert proxy.exit_code is None


def test_many_requests_share_one_connection(fleet: Fleet) -> None:
    connections: set[int] = set()

    def handler(connection: Connection, request: Message) -> None:
        if "/counted" in request.start:
            connections.add(id(connection))
        answer(connection)

    proxy = fleet.proxy_to([fleet.origin(handler)], "--threads", "1")
    with Connection.to(proxy.port) as client:
        for _ in range(500):
            assert client.request("/counted").status == 200
    assert len(connections) <= 2, f"{len(connections)} connections to the backend for requests in sequence"
