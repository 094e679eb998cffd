"""What comes before the whole: `Expect: 100-continue`, interim answers, and answers that do not wait for the request's body."""

import socket
import threading
import time
from collections.abc import Iterator

import h2.config
import h2.connection
import h2.events
import pytest

from harness import exchange, http2
from harness.fleet import Fleet, Proxy
from harness.http1 import Closed, Connection, Message, Origin, answer
from harness.process import free_port, wait_until

MIB = 1 << 20
# Of a body whose length is known so much is read before a backend is asked.
FIRST_PART = 16 * 1024
# How long a client may have to wait for its 100 when the backend says nothing: the wait of a second and some air.
SILENT_BACKEND_SECONDS = 4.0
# Below the second that a backend is waited for.
WITHOUT_WAITING_SECONDS = 0.8


class Backend:
    """Does what the path says, and keeps the bodies that it got."""

    def __init__(self, port: int):
        self.bodies: dict[str, bytes] = {}
        self.heads: dict[str, Message] = {}
        self.origin = Origin(self.handle, port)
        self.address = f"127.0.0.1:{port}"

    def handle(self, connection: Connection, request: Message) -> None:
        path = request.start.split()[1]
        self.heads[path] = request
        if path.startswith("/continue"):
            connection.send("HTTP/1.1 100 Continue\r\n\r\n")
        elif path.startswith("/refuse"):
            answer(connection, b"no", path[-3:] + " No", "connection: close\r\n")
            raise Closed
        elif path.startswith("/early-and-close"):
            answer(connection, b"enough", "413 Content Too Large", "connection: close\r\n")
            connection.sock.shutdown(1)
            raise Closed
        elif path.startswith("/early"):
            answer(connection, b"early")
        elif path.startswith("/hints"):
            connection.send("HTTP/1.1 103 Early Hints\r\nlink: </a.css>; rel=preload\r\n\r\n")
        connection.read_body(request, to_close=False)
        self.bodies[path] = request.body
        if not path.startswith("/early"):
            answer(connection, request.body)


@pytest.fixture(scope="module")
def backend() -> Iterator[Backend]:
    backend = Backend(free_port())
    yield backend
    backend.origin.stop()


@pytest.fixture(scope="module")
def proxy(module_fleet: Fleet, backend: Backend) -> Proxy:
    outliers = '[clusters.main.outlier]\nconsecutive_failures = "off"\nsuccess_rate_stdev = "off"'
    proxy = module_fleet.proxy([backend.address], further=outliers)
    proxy.admin.wait_for_healthy(1)
    return proxy


def expecting(path: str, length: int = 4) -> str:
    return f"POST {path} HTTP/1.1\r\nhost: a\r\ncontent-length: {length}\r\nexpect: 100-continue\r\n\r\n"


def expecting_http2(path: str, length: int = 4) -> bytes:
    fields = http2.request(b"POST", path.encode(), (b"content-length", b"%d" % length), (b"expect", b"100-continue"))
    return http2.headers(1, fields, end=False)


@pytest.mark.parametrize("path", ["/continue/1", "/silent/1"])
def test_client_that_waits_is_told_to_go_on(proxy: Proxy, backend: Backend, path: str) -> None:
    with Connection.to(proxy.port, SILENT_BACKEND_SECONDS) as client:
        client.send(expecting(path))
        assert client.read_head().status == 100
        client.send("data")
        assert client.read_response("POST").body == b"data"
        assert client.request("/plain").status == 200
    assert backend.bodies[path] == b"data"


@pytest.mark.parametrize("path", ["/continue/2", "/silent/2"])
def test_http2_client_that_waits_is_told_by_the_proxy(proxy: Proxy, backend: Backend, path: str) -> None:
    with http2.Connection.to(proxy.port) as client:
        client.send(expecting_http2(path))
        assert client.reading(lambda: client.answer(1).interim == [100])
        assert path not in backend.heads
        client.send(http2.data(1, b"data"))
        assert client.reading(lambda: client.answer(1).ended), client.answer(1)
        assert (client.answer(1).status, client.answer(1).body) == (200, b"data")
    assert backend.bodies[path] == b"data"


def test_client_that_does_not_wait_after_all_is_served(proxy: Proxy, backend: Backend) -> None:
    for path in ("/continue/3", "/silent/3"):
        with Connection.to(proxy.port) as client:
            client.send(expecting(path) + "data")
            assert client.read_response("POST").body == b"data"
            assert client.request("/plain").status == 200
        assert backend.bodies[path] == b"data"


def test_nobody_waits_for_a_body_that_is_already_there(proxy: Proxy) -> None:
    with Connection.to(proxy.port) as client:
        began = time.monotonic()
        client.send(expecting("/silent/4") + "data")
        assert client.read_response("POST").body == b"data"
        assert time.monotonic() - began < WITHOUT_WAITING_SECONDS


def test_expectation_of_1_0_is_ignored(proxy: Proxy, backend: Backend) -> None:
    with Connection.to(proxy.port) as client:
        began = time.monotonic()
        client.send(expecting("/silent/5").replace("HTTP/1.1", "HTTP/1.0"))
        # Nothing says 100 to a client that does not know it, which has to send on its own.
        client.send("data")
        assert client.read_head().status == 200
        assert time.monotonic() - began < WITHOUT_WAITING_SECONDS
    assert backend.heads["/silent/5"].get("expect") is None


@pytest.mark.parametrize("status", [401, 417])
def test_refusal_comes_instead_of_100(proxy: Proxy, backend: Backend, status: int) -> None:
    path = f"/refuse/{status}"
    with Connection.to(proxy.port) as client:
        client.send(expecting(path, MIB))
        head = client.read_head()
        assert head.status == status
    with http2.Connection.to(proxy.port) as client:
        # The proxy has asked for the first part before it asks a backend.
        client.send(expecting_http2(path, MIB) + http2.data(1, bytes(FIRST_PART), end=False))
        assert client.reading(lambda: client.answer(1).ended or client.answer(1).reset is not None)
        assert (client.answer(1).status, client.answer(1).interim[1:]) == (status, [])
    assert path not in backend.bodies


def test_answer_before_the_body_reaches_a_client_that_still_sends(proxy: Proxy) -> None:
    with Connection.to(proxy.port, 20) as client:

        def upload() -> None:
            try:
                client.send(f"POST /early-and-close/1 HTTP/1.1\r\nhost: a\r\ncontent-length: {32 * MIB}\r\n\r\n")
                for _ in range(32):
                    client.send(bytes(MIB))
            except OSError:
                pass  # nobody wants the rest

        sender = threading.Thread(target=upload, daemon=True)
        sender.start()
        response = client.read_response("POST")
        assert (response.status, response.body) == (413, b"enough")
        sender.join(20)
        assert not sender.is_alive()


def test_answer_before_the_body_reaches_an_http2_client(proxy: Proxy) -> None:
    with http2.Connection.to(proxy.port) as client:
        client.send(http2.headers(1, http2.request(b"POST", b"/early-and-close/2"), end=False))
        client.send(http2.data(1, bytes(30_000), end=False))
        assert client.reading(lambda: client.answer(1).ended), client.answer(1)
        assert (client.answer(1).status, client.answer(1).body) == (413, b"enough")
        # The connection serves on.
        assert client.fetch(3, http2.request(path=b"/plain")).status == 200


@pytest.mark.parametrize("reset", [True, False])
def test_http2_backend_answers_before_the_body(fleet: Fleet, reset: bool) -> None:
    """As servers do that want no more of a body (RFC 9113, 8.1): the whole answer, then RST_STREAM with NO_ERROR."""

    def serve(backend: exchange.Backend, sock: socket.socket) -> None:
        peer = h2.connection.H2Connection(h2.config.H2Configuration(client_side=False, header_encoding=None))
        peer.initiate_connection()
        sock.sendall(peer.data_to_send())
        while received := sock.recv(1 << 16):
            for event in peer.receive_data(received):
                if isinstance(event, h2.events.RequestReceived):
                    peer.send_headers(event.stream_id, [(b":status", b"413")])
                    peer.send_data(event.stream_id, b"enough", end_stream=True)
                    if reset:
                        peer.reset_stream(event.stream_id, 0)
            sock.sendall(peer.data_to_send())

    backend = exchange.Backend(free_port(), serve)
    proxy = fleet.proxy([backend.address], cluster='protocol = "http2"')
    proxy.admin.wait_for_healthy(1)
    for _ in range(10):
        with Connection.to(proxy.port) as client:
            client.send(f"POST /upload HTTP/1.1\r\nhost: a\r\ncontent-length: {MIB}\r\n\r\n" + "x" * FIRST_PART)
            response = client.read_response("POST")
            assert (response.status, response.body) == (413, b"enough")
        with http2.Connection.to(proxy.port) as client2:
            client2.send(http2.headers(1, http2.request(b"POST"), end=False) + http2.data(1, bytes(10_000), end=False))
            assert client2.reading(lambda: client2.answer(1).ended)
            assert (client2.answer(1).status, client2.answer(1).body) == (413, b"enough")
    backend.stop()


def test_upload_goes_on_after_an_early_answer(proxy: Proxy, backend: Backend) -> None:
    with Connection.to(proxy.port) as client:
        client.send(f"POST /early/1 HTTP/1.1\r\nhost: a\r\ncontent-length: {2 * FIRST_PART}\r\n\r\n" + "x" * FIRST_PART)
        assert client.read_response("POST").body == b"early"
        try:
            client.send("x" * FIRST_PART)
        except OSError:
            return  # whoever answered may also end the connection
    wait_until(
        "the body at the backend, or its end",
        lambda: "/early/1" in backend.bodies or proxy.admin.backends()[backend.address]["in_flight"] == 0,
    )


def test_early_hints_reach_clients_that_know_them(proxy: Proxy) -> None:
    with Connection.to(proxy.port) as client:
        client.send("GET /hints/1 HTTP/1.1\r\nhost: a\r\n\r\n")
        hints = client.read_head()
        assert (hints.status, hints.get("link")) == (103, "</a.css>; rel=preload")
        assert client.read_response().status == 200
    with http2.Connection.to(proxy.port) as client:
        # Over HTTP/2 they are dropped (docs/edge.md).
        answered = client.fetch(1, http2.request(path=b"/hints/2"))
        assert (answered.status, answered.interim) == (200, [])


def test_early_hints_do_not_reach_clients_of_1_0(proxy: Proxy) -> None:
    with Connection.to(proxy.port) as client:
        client.send("GET /hints/3 HTTP/1.0\r\nhost: a\r\n\r\n")
        assert client.read_head().status == 200
