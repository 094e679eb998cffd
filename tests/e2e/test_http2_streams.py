"""What one request on an HTTP/2 connection may not do to the others on it, or to its backend: malformed ends, CONNECT, lists of
addresses, `Expect`. Written frame by frame, since no library sends most of it.
"""

import socket
import threading
from collections.abc import Iterator

import grpc
import pytest

from harness import http2
from harness.fleet import Fleet, Proxy
from harness.http1 import Connection, Message, Origin, answer
from harness.http2 import DATA, END_HEADERS, END_STREAM, HEADERS, PING, PREFACE, frame, headers, request, settings
from harness.process import free_port, wait_until
from harness.rpc import backend_of, work

PROTOCOL_ERROR = 1
ENHANCE_YOUR_CALM = 11
PATIENCE_SECONDS = 10.0
# More than is read of a body before a backend is asked for, and less than a window.
LONG = 40_000


class Backend:
    """Keeps the requests that it got whole, by path. `/hold` is answered when told."""

    def __init__(self, port: int):
        self.begun: list[str] = []
        self.whole: dict[str, Message] = {}
        self.go_on = threading.Event()
        self.origin = Origin(self.handle, port)
        self.address = f"127.0.0.1:{port}"

    def handle(self, connection: Connection, request: Message) -> None:
        path = request.start.split()[1]
        self.begun.append(path)
        connection.read_body(request, to_close=False)
        self.whole[path] = request
        if path == "/hold":
            self.go_on.wait(PATIENCE_SECONDS)
        answer(connection, request.body)


@pytest.fixture(scope="module")
def backend() -> Iterator[Backend]:
    backend = Backend(free_port())
    yield backend
    backend.origin.stop()


@pytest.fixture(scope="module")
def proxy(module_fleet: Fleet, backend: Backend) -> Proxy:
    more = f"""
[[routes]]
host = "first.example"
answer = {{ status = 403 }}

[[routes]]
path_prefix = "/http2-only"
cluster = "http2-only"

[clusters.http2-only]
backends = ["{module_fleet.backend("--cost", "fixed:0us").address}"]
protocol = "http2"
"""
    proxy = module_fleet.proxy([backend.address], further=more)
    wait_until("ready", lambda: proxy.admin.get("/readyz")[0] == 200)
    return proxy


@pytest.fixture
def client(proxy: Proxy) -> Iterator[http2.Connection]:
    with http2.Connection.to(proxy.port) as client:
        yield client


def post(path: bytes, *further: tuple[bytes, bytes]) -> http2.Fields:
    return request(b"POST", path, *further)


def length(size: int) -> tuple[bytes, bytes]:
    return (b"content-length", str(size).encode())


def ended(client: http2.Connection, stream: int) -> http2.Answer:
    """What came on a stream by its end."""
    client.reading(lambda: client.answer(stream).ended or client.answer(stream).reset is not None, PATIENCE_SECONDS)
    return client.answer(stream)


def settle(client: http2.Connection, stream: int) -> None:
    """Waits until all that was sent has been acted upon: another request has gone all the way."""
    assert client.fetch(stream, request(path=b"/settle")).status == 200


@pytest.mark.parametrize("protocol", [b"", b"websocket"], ids=["plain", "extended"])
def test_connect_with_length_costs_its_own_stream_only(client: http2.Connection, backend: Backend, protocol: bytes) -> None:
    backend.go_on.clear()
    client.send(headers(1, request(path=b"/hold")))
    settle(client, 3)
    connect = [(b":method", b"CONNECT"), (b":authority", b"site.example")]
    if protocol:
        connect += [(b":protocol", protocol), (b":scheme", b"http"), (b":path", b"/")]
    client.send(headers(5, [*connect, length(5)], end=False) + frame(DATA, END_STREAM, 5, b"hello"))
    assert ended(client, 5).reset == PROTOCOL_ERROR
    settle(client, 7)
    backend.go_on.set()
    assert ended(client, 1).status == 200
    assert client.goaway is None


def test_connect_with_length_of_zero_is_refused_as_any(client: http2.Connection) -> None:
    connect = [(b":method", b"CONNECT"), (b":authority", b"site.example"), length(0)]
    client.send(headers(1, connect, end=False) + frame(DATA, END_STREAM, 1))
    assert ended(client, 1).status == 405
    settle(client, 3)


@pytest.mark.parametrize("size", [0, 5, LONG])
def test_body_longer_than_announced_reaches_no_backend_whole(client: http2.Connection, backend: Backend, size: int) -> None:
    path = f"/too-long-{size}"
    client.send(headers(1, post(path.encode(), length(size)), end=False) + (http2.data(1, bytes(size), end=False) if size else b""))
    settle(client, 3)
    client.send(frame(DATA, 0, 1, b"more"))
    assert ended(client, 1).reset == PROTOCOL_ERROR
    settle(client, 5)
    assert path not in backend.whole


@pytest.mark.parametrize("size", [0, 5, LONG])
def test_request_with_pseudo_field_in_trailers_reaches_no_backend_whole(
    client: http2.Connection, proxy: Proxy, backend: Backend, size: int
) -> None:
    path = f"/bad-trailers-{size}"
    client.send(headers(1, post(path.encode(), length(size)), end=False) + (http2.data(1, bytes(size), end=False) if size else b""))
    settle(client, 3)
    client.send(headers(1, [(b":path", b"/")]))
    assert client.reading(lambda: client.goaway is not None) and client.goaway == PROTOCOL_ERROR
    with http2.Connection.to(proxy.port) as other:
        settle(other, 1)
    assert path not in backend.whole


@pytest.mark.parametrize("size", [0, 5, LONG])
@pytest.mark.parametrize("trailers", [[], [(b"x-sum", b"1")]], ids=["data", "trailers"])
def test_body_whose_end_comes_late_is_passed_on(
    client: http2.Connection, backend: Backend, size: int, trailers: http2.Fields
) -> None:
    path = f"/late-end-{size}-{len(trailers)}"
    client.send(headers(1, post(path.encode(), length(size)), end=False) + (http2.data(1, bytes(size), end=False) if size else b""))
    settle(client, 3)
    assert path not in backend.whole
    client.send(headers(1, trailers) if trailers else frame(DATA, END_STREAM, 1))
    whole = ended(client, 1)
    assert (whole.status, len(whole.body)) == (200, size)
    assert len(backend.whole[path].body) == size


def test_extended_connect_to_http2_cluster_is_refused_before_it_is_sent(client: http2.Connection, proxy: Proxy) -> None:
    def asked() -> float:
        return proxy.admin.metric("plimsoll_requests_total", cluster="http2-only")

    before = asked()
    fields = [(b":method", b"CONNECT"), (b":protocol", b"websocket"), (b":scheme", b"http"), (b":path", b"/http2-only")]
    client.send(headers(1, [*fields, (b":authority", b"site.example")], end=False))
    assert client.reading(lambda: bool(client.answer(1).fields)) and client.answer(1).status == 501
    assert asked() == before
    assert client.fetch(3, request(path=b"/http2-only")).status == 200
    assert asked() == before + 1
    assert proxy.admin.metric("plimsoll_refused_requests_total", reason="no-upgrade") == 1


BROKEN: dict[str, tuple[bytes, int]] = {
    # Found by h2, and by the guard.
    "window-update-of-zero": (frame(http2.WINDOW_UPDATE, 0, 0, bytes(4)), PROTOCOL_ERROR),
    "push-promise": (frame(http2.PUSH_PROMISE, END_HEADERS, 1, bytes(4)), PROTOCOL_ERROR),
    "pings": (frame(PING, 0, 0, bytes(8)) * 600, ENHANCE_YOUR_CALM),
}


@pytest.mark.parametrize("what", BROKEN)
def test_goaway_is_not_overtaken_by_a_reset(proxy: Proxy, what: str) -> None:
    broken, code = BROKEN[what]
    with socket.create_connection(("127.0.0.1", proxy.port), PATIENCE_SECONDS) as client:
        # The client has more on its way, as one with a body to send.
        client.sendall(PREFACE + settings() + broken + frame(DATA, 0, 1, bytes(16_384)) * 20)
        received = b""
        while piece := client.recv(1 << 16):
            received += piece
        client.sendall(b"what comes after it")
        kinds = {}
        while received:
            size = int.from_bytes(received[:3])
            kinds[received[3]] = received[9 : 9 + size]
            received = received[9 + size :]
    assert int.from_bytes(kinds[http2.GOAWAY][4:8]) == code


EXPECT = (b"expect", b"100-continue")


@pytest.mark.parametrize("further", [[length(5)], []], ids=["length", "no-length"])
def test_client_that_expects_100_is_told_to_go_on(
    client: http2.Connection, backend: Backend, further: list[tuple[bytes, bytes]]
) -> None:
    path = f"/expect-{len(further)}"
    client.send(headers(1, post(path.encode(), *further, EXPECT), end=False))
    assert client.reading(lambda: client.answer(1).interim == [100]), "nothing said to go on"
    client.send(frame(DATA, END_STREAM, 1, b"hello"))
    whole = ended(client, 1)
    assert (whole.status, whole.body, whole.interim) == (200, b"hello", [100])
    assert backend.whole[path].get("expect") is None


def test_100_goes_to_the_streams_that_expect_it(client: http2.Connection) -> None:
    """Many at once in few segments, malformed ones among them; fields kept in the table of HPACK, and referred to."""
    expect_kept = b"\x63\x0c100-continue"
    # POST, http, site.example, a path that is kept by nobody.
    plain = b"\x83\x86\x01\x0csite.example\x04\x07/many-x"
    without_path = b"\x83\x86\x01\x0csite.example"
    expects: list[int] = []
    refused: list[int] = []
    others: list[int] = []
    sent = frame(HEADERS, END_HEADERS, 1, plain + expect_kept)
    expects.append(1)
    for stream in range(3, 60, 2):
        kind = stream % 7
        if kind in (0, 1, 2):
            # By index, the newest entry of the table.
            sent += frame(HEADERS, END_HEADERS, stream, plain + b"\xbe")
            expects.append(stream)
        elif kind == 3:
            sent += frame(HEADERS, END_HEADERS, stream, without_path + b"\xbe")
            refused.append(stream)
        else:
            sent += frame(HEADERS, END_HEADERS | END_STREAM, stream, plain)
            others.append(stream)
    client.send(sent)
    assert client.reading(lambda: all(client.answer(stream).interim == [100] for stream in expects))
    client.send(b"".join(frame(DATA, END_STREAM, stream, str(stream).encode()) for stream in expects))
    for stream in expects:
        assert (ended(client, stream).status, client.answer(stream).body) == (200, str(stream).encode())
    for stream in others:
        assert (ended(client, stream).status, client.answer(stream).interim) == (200, [])
    for stream in refused:
        assert (ended(client, stream).reset, client.answer(stream).interim) == (PROTOCOL_ERROR, [])
    assert client.goaway is None


def test_100_is_told_however_the_bytes_come(client: http2.Connection) -> None:
    client.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    head = headers(1, post(b"/bytes", EXPECT), end=False, flags=0) + frame(http2.CONTINUATION, END_HEADERS, 1)
    for byte in head:
        client.send(bytes([byte]))
    assert client.reading(lambda: client.answer(1).interim == [100])
    client.send(frame(DATA, END_STREAM, 1, b"x"))
    assert ended(client, 1).status == 200


def test_request_that_is_not_admitted_gets_no_100(client: http2.Connection) -> None:
    fields = [(b":method", b"POST"), (b":scheme", b"http"), (b":authority", b"first.example"), (b":path", b"/"), EXPECT]
    client.send(headers(1, fields, end=False))
    assert (ended(client, 1).status, client.answer(1).interim) == (403, [])
    # Nor one that waits for nothing.
    client.send(headers(3, post(b"/whole", EXPECT)) + headers(5, post(b"/at-once", EXPECT), end=False) + http2.data(5, b"x"))
    assert (ended(client, 3).status, client.answer(3).interim) == (200, [])
    assert (ended(client, 5).status, client.answer(5).body) == (200, b"x")
    settle(client, 7)


def test_list_of_addresses_is_no_host(client: http2.Connection, backend: Backend) -> None:
    def fields(path: bytes, authority: bytes) -> http2.Fields:
        return [(b":method", b"GET"), (b":scheme", b"http"), (b":authority", authority), (b":path", path)]

    assert client.fetch(1, fields(b"/", b"first.example")).status == 403
    lists = [b"first.example:1,b:2", b"10.0.0.1:80,10.0.0.2:80", b"[::1]:80,[::2]:80", b"first.example,first.example"]
    for number, authority in enumerate(lists):
        path = f"/listed-{number}"
        assert client.fetch(2 * number + 3, fields(path.encode(), authority)).status == 200, authority
        assert backend.whole[path].get("host") == backend.address
    assert client.fetch(99, fields(b"/", b",b:2")).status == 400


def test_grpcio_target_that_lists_addresses_is_served(fleet: Fleet) -> None:
    backend = fleet.backend("--cost", "fixed:0us")
    proxies = [fleet.proxy_to([backend.address]) for _ in range(2)]
    for proxy in proxies:
        proxy.admin.wait_for_healthy(1)
    for addresses in (f"ipv4:127.0.0.1:{proxies[0].port},127.0.0.1:{proxies[1].port}",):
        with grpc.insecure_channel(addresses) as channel:
            _, call = work(channel).with_call(b"x", timeout=PATIENCE_SECONDS, wait_for_ready=True)
            assert backend_of(call) == backend.address
