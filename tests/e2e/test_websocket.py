"""WebSockets and other upgrades: the bytes after 101 belong to both ends, through reloads and a change of certificates."""

import asyncio
import os
import signal
import socket
import struct
import threading
from collections.abc import Callable, Iterator

import pytest
from websockets.asyncio import client as asyncio_client
from websockets.exceptions import ConnectionClosed, ConnectionClosedError, InvalidStatus
from websockets.http11 import Request, Response
from websockets.sync.client import ClientConnection, connect
from websockets.sync.server import Server, ServerConnection, serve
from websockets.typing import Subprotocol

from harness import http2
from harness.certificates import Authority
from harness.fleet import Fleet, Proxy, config
from harness.http1 import Closed, Connection, Message, answer
from harness.process import free_port, wait_until

MIB = 1 << 20
RELOADS = 20


def echo(connection: ServerConnection) -> None:
    """Echoes; `close CODE` closes with that code."""
    try:
        for message in connection:
            if isinstance(message, str) and message.startswith("close "):
                connection.close(int(message.split()[1]), "as told")
                return
            connection.send(message)
    except ConnectionClosedError:
        pass


def gate(connection: ServerConnection, request: Request) -> Response | None:
    if request.path == "/forbidden":
        return connection.respond(403, "not you\n")
    return None


def choose(connection: ServerConnection, offered: list[Subprotocol]) -> Subprotocol | None:
    """One of two, or none for a client that offers none."""
    del connection
    return next((name for name in offered if name in ("chat.v2", "chat.v1")), None)


class EchoServer:
    def __init__(self) -> None:
        self.port = free_port()
        self.address = f"127.0.0.1:{self.port}"
        self._server: Server = serve(
            echo, "127.0.0.1", self.port, process_request=gate, select_subprotocol=choose, max_size=64 * MIB
        )
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def stop(self) -> None:
        self._server.shutdown()


@pytest.fixture(scope="module")
def server() -> Iterator[EchoServer]:
    server = EchoServer()
    yield server
    server.stop()


@pytest.fixture(scope="module")
def proxy(module_fleet: Fleet, server: EchoServer) -> Proxy:
    proxy = module_fleet.proxy([server.address])
    proxy.admin.wait_for_healthy(1)
    return proxy


def url(proxy: Proxy, path: str = "/") -> str:
    return f"ws://127.0.0.1:{proxy.port}{path}"


def in_flight(proxy: Proxy) -> int:
    return sum(row["in_flight"] for row in proxy.admin.backends().values())


def echoes(client: ClientConnection, message: str | bytes) -> bool:
    client.send(message)
    return client.recv(timeout=10) == message


def test_messages_of_all_sizes_come_back(proxy: Proxy) -> None:
    with connect(url(proxy), max_size=64 * MIB, compression=None) as client:
        for size in (0, 1, 125, 126, 65_535, 65_536, MIB, 16 * MIB):
            assert echoes(client, os.urandom(size)), size
        for text in ("", "grüße", "x" * 100_000):
            assert echoes(client, text)


def test_many_at_once(proxy: Proxy) -> None:
    clients = [connect(url(proxy)) for _ in range(50)]
    for number, client in enumerate(clients):
        client.send(f"from {number}")
    for number, client in enumerate(clients):
        assert client.recv(timeout=10) == f"from {number}"
        client.close()


def test_subprotocol_and_extension_are_negotiated_by_the_ends(proxy: Proxy) -> None:
    with connect(url(proxy), subprotocols=[Subprotocol("chat.v1")]) as client:
        assert client.subprotocol == "chat.v1"
        assert "permessage-deflate" in client.response.headers.get("sec-websocket-extensions", "")  # type: ignore[union-attr]
        assert echoes(client, "a" * 10_000)


def test_pings_are_answered_by_the_other_end(proxy: Proxy) -> None:
    with connect(url(proxy)) as client:
        for _ in range(10):
            assert client.ping().wait(5)


@pytest.mark.parametrize("code", [1000, 1001, 4321])
def test_close_codes_pass_both_ways(proxy: Proxy, code: int) -> None:
    with connect(url(proxy)) as client:
        client.send(f"close {code}")
        with pytest.raises(ConnectionClosed) as closed:
            client.recv(timeout=5)
        assert closed.value.rcvd is not None and (closed.value.rcvd.code, closed.value.rcvd.reason) == (code, "as told")
    with connect(url(proxy)) as client:
        client.close(code, "bye")
        assert client.close_code == code


def test_refusal_by_the_backend_is_passed_on(proxy: Proxy) -> None:
    with pytest.raises(InvalidStatus) as refused:
        connect(url(proxy, "/forbidden"))
    assert refused.value.response.status_code == 403
    assert refused.value.response.body == b"not you\n"


def test_open_websocket_counts_as_a_request_in_flight(proxy: Proxy) -> None:
    wait_until("none before", lambda: in_flight(proxy) == 0)
    with connect(url(proxy)) as client:
        assert echoes(client, "hello")
        wait_until("one while it is open", lambda: in_flight(proxy) == 1)
    wait_until("none after", lambda: in_flight(proxy) == 0)


def test_client_that_vanishes_ends_the_other_side(proxy: Proxy) -> None:
    client = connect(url(proxy))
    assert echoes(client, "hello")
    client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    client.socket.close()
    wait_until("none in flight", lambda: in_flight(proxy) == 0)


Raw = Callable[[Connection, Message], None]


def raw_proxy(fleet: Fleet, handler: Raw, **settings: str) -> Proxy:
    proxy = fleet.proxy([fleet.origin(handler)], **settings)
    proxy.admin.wait_for_healthy(1)
    return proxy


def test_bytes_sent_along_with_the_handshake_are_not_lost(fleet: Fleet) -> None:
    """Both ends talk at once: behind the request, and behind the 101."""

    def handler(connection: Connection, request: Message) -> None:
        assert request.get("upgrade") == "example/1" and "upgrade" in (request.get("connection") or "").lower()
        connection.send(
            "HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: example/1\r\n\r\nfirst from the backend|"
        )
        got = connection.read_exactly(len("first from the client"))
        connection.send(b"got " + got)
        raise Closed

    proxy = raw_proxy(fleet, handler)
    with Connection.to(proxy.port) as client:
        client.send("GET /u HTTP/1.1\r\nhost: a\r\nconnection: upgrade\r\nupgrade: example/1\r\n\r\nfirst from the client")
        head = client.read_head()
        assert (head.status, head.get("upgrade")) == (101, "example/1")
        assert "upgrade" in (head.get("connection") or "").lower()
        said = b"first from the backend|got first from the client"
        assert client.read_exactly(len(said)) == said
        assert client.at_end()


def test_half_closed_upgrade_still_carries_the_other_half(fleet: Fleet) -> None:
    def handler(connection: Connection, request: Message) -> None:
        connection.send("HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: example/1\r\n\r\n")
        received = 0
        while piece := connection.sock.recv(1 << 16):
            received += len(piece)
        connection.send(f"received {received}")
        connection.close()
        raise Closed

    proxy = raw_proxy(fleet, handler)
    with Connection.to(proxy.port) as client:
        client.send("GET /u HTTP/1.1\r\nhost: a\r\nconnection: upgrade\r\nupgrade: example/1\r\n\r\n")
        assert client.read_head().status == 101
        client.send(bytes(3 * MIB))
        client.sock.shutdown(socket.SHUT_WR)
        assert client.read_exactly(len("received 3145728")) == b"received 3145728"
        assert client.at_end()


def test_backend_that_ignores_an_upgrade_answers_as_ever(fleet: Fleet) -> None:
    seen: list[str | None] = []

    def handler(connection: Connection, request: Message) -> None:
        seen.append(request.get("upgrade"))
        answer(connection, b"plain")

    proxy = raw_proxy(fleet, handler)
    with Connection.to(proxy.port) as client:
        response = client.request("/u", fields="connection: upgrade\r\nupgrade: example/1\r\n")
        assert (response.status, response.body) == (200, b"plain")
        assert client.request("/v").status == 200
    assert seen[:2] == ["example/1", None]


def test_101_that_nobody_asked_for_is_no_answer(fleet: Fleet) -> None:
    def handler(connection: Connection, request: Message) -> None:
        connection.send("HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: example/1\r\n\r\n")

    proxy = raw_proxy(fleet, handler)
    with Connection.to(proxy.port) as client:
        assert client.request("/").status == 502


def test_upgrade_on_which_nothing_passes_is_closed(fleet: Fleet, server: EchoServer) -> None:
    proxy = fleet.proxy([server.address], listener='upgrade_idle_timeout = "1s"')
    proxy.admin.wait_for_healthy(1)
    with connect(url(proxy), ping_interval=None) as client:
        assert echoes(client, "hello")
        with pytest.raises(ConnectionClosed):
            client.recv(timeout=5)
    wait_until("none in flight", lambda: in_flight(proxy) == 0)


def test_open_websockets_end_with_the_drain(fleet: Fleet, server: EchoServer) -> None:
    proxy = fleet.proxy([server.address], further='[drain]\nannounce = "off"\ntimeout = "1s"')
    proxy.admin.wait_for_healthy(1)
    with connect(url(proxy)) as client:
        assert echoes(client, "hello")
        proxy.signal(signal.SIGTERM)
        assert echoes(client, "still there")
        proxy.wait(10)


def reload(proxy: Proxy, path: "os.PathLike[str]", text: str) -> None:
    def taken() -> int:
        lines = proxy.admin.get("/metrics")[1].splitlines()
        return sum(int(float(line.split()[-1])) for line in lines if line.startswith('plimsoll_reloads_total{result="taken"}'))

    before = taken()
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)
    proxy.signal(signal.SIGHUP)
    wait_until("the reload", lambda: taken() > before)


def test_websocket_survives_reloads_and_a_change_of_certificate(fleet: Fleet, server: EchoServer) -> None:
    authority = Authority(fleet.directory)
    certificate = authority.issue("site", "DNS:site.example", "DNS:localhost", "IP:127.0.0.1")
    tls = f"[listeners.tls]\ncertificates = [{certificate.toml()}]"
    port, admin_port = free_port(), free_port()
    path = fleet.directory / "reloaded.toml"

    def text(policy: str) -> str:
        return config(port, admin_port, [server.address], listener=tls, cluster=f'policy = "{policy}"')

    path.write_text(text("weighted"))
    proxy = fleet._ready(Proxy("reloaded", ["-c", str(path)], port, admin_port, fleet.directory))
    proxy.admin.wait_for_healthy(1)

    # On one thread: that of Python's own which reads beside another that writes now and then loses what either does in TLS.
    def secure() -> asyncio_client.connect:
        return asyncio_client.connect(
            f"wss://127.0.0.1:{port}/", ssl=authority.client_context(), server_hostname="site.example"
        )

    def serial(client: asyncio_client.ClientConnection) -> str:
        return client.transport.get_extra_info("ssl_object").getpeercert()["serialNumber"]

    async def answers(client: asyncio_client.ClientConnection, message: str) -> bool:
        await client.send(message)
        return await asyncio.wait_for(client.recv(), 10) == message

    async def outlives() -> None:
        async with secure() as client:
            first = serial(client)
            for number in range(RELOADS):
                await asyncio.to_thread(reload, proxy, path, text(("round-robin", "weighted")[number % 2]))
                assert await answers(client, f"after reload {number}")
            authority.issue("site", "DNS:site.example", "DNS:localhost", "IP:127.0.0.1")
            await asyncio.to_thread(reload, proxy, path, text("weighted"))
            assert await answers(client, "after the change")
            async with secure() as later:
                assert serial(later) != first
                assert await answers(later, "hello")

    asyncio.run(outlives())


# RFC 8441: a WebSocket on one stream of HTTP/2.


def masked(text: bytes, opcode: int = 1) -> bytes:
    """A frame as a client sends it, with a mask of zeros."""
    assert len(text) < 126
    return bytes([0x80 | opcode, 0x80 | len(text)]) + bytes(4) + text


def open_stream(client: http2.Connection, stream: int, *further: tuple[bytes, bytes], path: bytes = b"/") -> http2.Answer:
    fields = [(b":method", b"CONNECT"), (b":protocol", b"websocket"), (b":scheme", b"http"), (b":path", path)]
    fields += [(b":authority", b"site.example"), (b"sec-websocket-version", b"13"), *further]
    client.send(http2.headers(stream, fields, end=False))
    client.reading(lambda: bool(client.answer(stream).fields) or client.answer(stream).reset is not None)
    return client.answer(stream)


def test_http2_says_that_it_takes_extended_connect(proxy: Proxy) -> None:
    with http2.Connection.to(proxy.port) as client:
        client.reading(lambda: bool(client.peer_settings))
        assert client.peer_settings.get(http2.ENABLE_CONNECT_PROTOCOL) == 1


def test_websocket_over_http2(proxy: Proxy) -> None:
    with http2.Connection.to(proxy.port) as client:
        opened = open_stream(client, 1, (b"sec-websocket-protocol", b"chat.v1"))
        assert opened.status == 200, opened
        assert opened.get("sec-websocket-protocol") == "chat.v1"
        for name in ("upgrade", "connection", "sec-websocket-accept"):
            assert opened.get(name) is None, opened.fields
        expected = b""
        for number in range(20):
            text = f"message {number}".encode()
            client.send(http2.frame(http2.DATA, 0, 1, masked(text)))
            expected += bytes([0x81, len(text)]) + text
            assert client.reading(lambda: client.answer(1).body == expected), client.answer(1).body
        # Other requests share the connection.
        assert open_stream(client, 3).status == 200
        client.send(http2.frame(http2.DATA, 0, 3, masked(b"x")))
        assert client.reading(lambda: client.answer(3).body == b"\x81\x01x")
        client.send(http2.frame(http2.DATA, 0, 1, masked(struct.pack(">H", 1000), opcode=8)))
        assert client.reading(lambda: client.answer(1).body.endswith(b"\x88\x02\x03\xe8")), client.answer(1).body[-10:]
        client.send(http2.frame(http2.DATA, http2.END_STREAM, 1))
        assert client.reading(lambda: client.answer(1).ended or client.answer(1).reset is not None)
    wait_until("none in flight", lambda: in_flight(proxy) == 0)


def test_refusal_of_a_websocket_over_http2_is_passed_on(proxy: Proxy) -> None:
    with http2.Connection.to(proxy.port) as client:
        assert open_stream(client, 1, path=b"/forbidden").status == 403


def test_reset_of_a_websocket_over_http2_ends_it(proxy: Proxy) -> None:
    with http2.Connection.to(proxy.port) as client:
        assert open_stream(client, 1).status == 200
        wait_until("one in flight", lambda: in_flight(proxy) == 1)
        client.send(http2.frame(http2.RST_STREAM, 0, 1, struct.pack(">I", 8)))
        wait_until("none in flight", lambda: in_flight(proxy) == 0)
