"""Who the client is, as backends are told: the PROXY protocol in and out, `X-Forwarded-*`, `Forwarded`, `Via`, and the host."""

import re
import socket
import struct
import threading
import time

import pytest

from harness import http2
from harness.fleet import Fleet, Proxy
from harness.http1 import Closed, Connection, Message, answer
from harness.process import free_port, wait_until

LOOPBACK = 'trusted_proxies = ["127.0.0.0/8"]'
V2 = b"\r\n\r\n\x00\r\nQUIT\n"


class Seen:
    """A backend that keeps what it was asked."""

    def __init__(self, fleet: Fleet):
        self.requests: list[Message] = []
        self.address = fleet.origin(self.handle)

    def handle(self, connection: Connection, request: Message) -> None:
        connection.read_body(request, to_close=False)
        self.requests.append(request)
        answer(connection, fields="via: 1.0 inner\r\n" if "/via" in request.start else "")

    def last(self) -> Message:
        return self.requests[-1]


def started(fleet: Fleet, listener: str = "", further: str = "") -> tuple[Proxy, Seen]:
    seen = Seen(fleet)
    proxy = fleet.proxy([seen.address], listener=listener, further=further)
    proxy.admin.wait_for_healthy(1)
    return proxy, seen


def v2(command: int, family: int, addresses: bytes, extra: bytes = b"") -> bytes:
    return V2 + bytes([0x20 | command, family]) + struct.pack(">H", len(addresses + extra)) + addresses + extra


def ipv4(source: str, port: int) -> bytes:
    return socket.inet_aton(source) + socket.inet_aton("192.0.2.1") + struct.pack(">HH", port, 80)


def ipv6(source: str, port: int) -> bytes:
    return (
        socket.inet_pton(socket.AF_INET6, source)
        + socket.inet_pton(socket.AF_INET6, "2001:db8::1")
        + struct.pack(">HH", port, 80)
    )


# The header, and the client that it names; `None` for the connection's own.
HEADERS = {
    "v1-ipv4": (b"PROXY TCP4 192.0.2.7 192.0.2.1 5000 80\r\n", "192.0.2.7"),
    "v1-ipv6": (b"PROXY TCP6 2001:db8::7 2001:db8::1 5000 80\r\n", "2001:db8::7"),
    "v1-unknown": (b"PROXY UNKNOWN\r\n", "127.0.0.1"),
    "v1-unknown-with-words": (b"PROXY UNKNOWN ff:ff::1 ff:ff::2 1 2\r\n", "127.0.0.1"),
    "v2-ipv4": (v2(1, 0x11, ipv4("192.0.2.8", 5000)), "192.0.2.8"),
    "v2-ipv6": (v2(1, 0x21, ipv6("2001:db8::8", 5000)), "2001:db8::8"),
    "v2-local": (v2(0, 0x00, b""), "127.0.0.1"),
    "v2-local-with-addresses": (v2(0, 0x11, ipv4("192.0.2.9", 5000)), "127.0.0.1"),
    "v2-with-values": (
        v2(1, 0x11, ipv4("192.0.2.10", 5000), b"\x04\x00\x04abcd" + b"\x20\x00\x05\x01\x00\x00\x00\x00"),
        "192.0.2.10",
    ),
    "v2-with-many-values": (v2(1, 0x11, ipv4("192.0.2.11", 5000), (b"\x04\x01\x00" + bytes(256)) * 10), "192.0.2.11"),
}
BAD_HEADERS = {
    "none": b"GET / HTTP/1.1\r\nhost: a\r\n\r\n",
    "v1-without-addresses": b"PROXY TCP4\r\n",
    "v1-of-another-family": b"PROXY TCP4 2001:db8::7 2001:db8::1 5000 80\r\n",
    "v1-with-port-too-large": b"PROXY TCP4 192.0.2.7 192.0.2.1 70000 80\r\n",
    "v1-with-leading-zero": b"PROXY TCP4 192.0.2.07 192.0.2.1 5000 80\r\n",
    "v1-with-two-spaces": b"PROXY  TCP4 192.0.2.7 192.0.2.1 5000 80\r\n",
    "v1-in-lower-case": b"proxy TCP4 192.0.2.7 192.0.2.1 5000 80\r\n",
    "v1-with-bare-lf": b"PROXY TCP4 192.0.2.7 192.0.2.1 5000 80\n",
    "v1-with-a-name": b"PROXY TCP4 site.example 192.0.2.1 5000 80\r\n",
    "v1-too-long": b"PROXY UNKNOWN " + b"a" * 200 + b"\r\n",
    "v1-without-end": b"PROXY TCP4 192.0.2.7 192.0.2.1 5000 80" + b" " * 5_000,
    "v2-of-version-3": V2 + b"\x31\x11\x00\x0c" + ipv4("192.0.2.8", 5000),
    "v2-of-unknown-command": v2(2, 0x11, ipv4("192.0.2.8", 5000)),
    "v2-shorter-than-its-family": v2(1, 0x11, bytes(4)),
}
GET = b"GET / HTTP/1.1\r\nhost: site.example\r\n\r\n"


def test_proxy_header_names_the_client(fleet: Fleet) -> None:
    proxy, seen = started(fleet, f'{LOOPBACK}\nproxy_protocol = "any"')
    for name, (header, client) in HEADERS.items():
        for pieces in (1, len(header)):
            with Connection.to(proxy.port) as connection:
                connection.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                if pieces == 1:
                    connection.send(header + GET)
                elif pieces < 200:
                    for byte in header + GET:
                        connection.send(bytes([byte]))
                else:
                    continue
                assert connection.read_response().status == 200, name
                assert connection.request("/again").status == 200
            assert seen.last().get("x-forwarded-for") == client, name


def test_bad_proxy_header_ends_the_connection(fleet: Fleet) -> None:
    proxy, seen = started(fleet, f'{LOOPBACK}\nproxy_protocol = "any"\nheader_read_timeout = "1s"')
    before = proxy.admin.metric("plimsoll_failed_handshakes_total")
    for name, header in BAD_HEADERS.items():
        with Connection.to(proxy.port) as connection:
            try:
                connection.send(header + (GET if name != "none" else b""))
                assert connection.at_end(), name
            except ConnectionError:
                pass
    assert not seen.requests
    wait_until("all are counted", lambda: proxy.admin.metric("plimsoll_failed_handshakes_total") == before + len(BAD_HEADERS))
    with Connection.to(proxy.port) as connection:
        connection.send(HEADERS["v1-ipv4"][0] + GET)
        assert connection.read_response().status == 200


def test_proxy_header_of_the_other_version_is_refused(fleet: Fleet) -> None:
    proxy, seen = started(fleet, f'{LOOPBACK}\nproxy_protocol = "v2"')
    with Connection.to(proxy.port) as connection:
        connection.send(HEADERS["v1-ipv4"][0] + GET)
        assert connection.at_end()
    assert not seen.requests


def test_nobody_but_trusted_proxies_may_say_who_the_client_is(fleet: Fleet) -> None:
    proxy, seen = started(fleet, 'trusted_proxies = ["192.0.2.0/24"]\nproxy_protocol = "any"')

    def untrusted() -> float:
        return proxy.admin.metric("plimsoll_failed_handshakes_total", reason="untrusted")

    # The connection that waited for the port is the first.
    wait_until("the first is counted", lambda: untrusted() == 1)
    with Connection.to(proxy.port) as connection:
        try:
            connection.send(HEADERS["v1-ipv4"][0] + GET)
            assert connection.at_end()
        except ConnectionError:
            pass
    assert not seen.requests
    wait_until("it is counted", lambda: untrusted() == 2)


def test_proxy_header_that_never_ends_is_let_go(fleet: Fleet) -> None:
    proxy, _ = started(fleet, f'{LOOPBACK}\nproxy_protocol = "any"\nheader_read_timeout = "500ms"')
    for begun in (b"", b"PROXY TCP4 192.", V2[:7]):
        with Connection.to(proxy.port) as connection:
            began = time.monotonic()
            connection.send(begun)
            assert connection.at_end()
            assert time.monotonic() - began < 3


def test_proxy_header_comes_before_http2(fleet: Fleet) -> None:
    proxy, seen = started(fleet, f'{LOOPBACK}\nproxy_protocol = "any"')
    with http2.Connection.to(proxy.port, preface=HEADERS["v2-ipv4"][0] + http2.PREFACE + http2.settings()) as client:
        assert client.fetch(1, http2.request()).status == 200
    assert seen.last().get("x-forwarded-for") == "192.0.2.8"


class Raw:
    """A backend that keeps all bytes of each connection, and answers each head it sees."""

    def __init__(self) -> None:
        self.port = free_port()
        self.connections: list[bytearray] = []
        self._listener = socket.create_server(("127.0.0.1", self.port))
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                sock, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(sock,), daemon=True).start()

    def _serve(self, sock: socket.socket) -> None:
        received = bytearray()
        answered = 0
        try:
            while piece := sock.recv(1 << 16):
                if not received:
                    self.connections.append(received)
                received += piece
                while received.count(b"\r\n\r\n", len(V2)) > answered:
                    answered += 1
                    sock.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok")
        except OSError:
            pass
        sock.close()

    def stop(self) -> None:
        self._listener.close()


@pytest.mark.parametrize("version", ["v1", "v2"])
def test_backends_are_told_by_the_proxy_protocol(fleet: Fleet, version: str) -> None:
    backend = Raw()
    proxy = fleet.proxy([f"127.0.0.1:{backend.port}"], cluster=f'proxy_protocol = "{version}"')
    proxy.admin.wait_for_healthy(1)
    with Connection.to(proxy.port) as client:
        port = client.sock.getsockname()[1]
        for _ in range(3):
            assert client.request("/mine").status == 200
    wrong = []
    mine = [bytes(received) for received in backend.connections if b"/mine" in received]
    for received in mine:
        if version == "v1":
            head, _, rest = received.partition(b"\r\n")
            wrong += (
                [received] if not re.fullmatch(rb"PROXY TCP4 127\.0\.0\.1 127\.0\.0\.1 %d %d" % (port, proxy.port), head) else []
            )
        else:
            wrong += [received] if received[:16] != V2 + b"\x21\x11\x00\x0c" else []
            assert received[16:24] == bytes([127, 0, 0, 1] * 2) and struct.unpack(">HH", received[24:28]) == (port, proxy.port)
            rest = received[28:]
        assert rest.startswith(b"GET /mine HTTP/1.1\r\n"), received[:80]
    assert not wrong
    # A connection speaks for one client.
    assert len(mine) == 3
    backend.stop()


# Fields.


def test_untrusted_clients_cannot_say_who_they_are(fleet: Fleet) -> None:
    proxy, seen = started(fleet)
    lies = "".join(
        f"{name}: 192.0.2.66\r\n"
        for name in (
            "x-forwarded-for",
            "X-FORWARDED-FOR",
            "x-real-ip",
            "X_Forwarded_For",
            "x-forwarded-host",
            "x-forwarded-proto",
            "x-forwarded-port",
        )
    )
    with Connection.to(proxy.port) as client:
        client.request("/", fields=lies + "forwarded: for=192.0.2.66\r\n")
    request = seen.last()
    assert "192.0.2.66" not in str(request.fields), request.fields
    assert request.all("x-forwarded-for") == ["127.0.0.1"]
    assert request.all("x-forwarded-proto") == ["http"]
    assert request.all("x-forwarded-host") == ["site.example"]
    assert request.all("x-forwarded-port") == [str(proxy.port)]
    assert request.all("forwarded") == []


def test_trusted_proxies_are_gone_on_with(fleet: Fleet) -> None:
    proxy, seen = started(fleet, LOOPBACK)
    said = "x-forwarded-for: 192.0.2.66, 192.0.2.67\r\nx-forwarded-proto: https\r\nx-forwarded-host: outer.example\r\n"
    with Connection.to(proxy.port) as client:
        client.request("/", fields=said)
    request = seen.last()
    assert ", ".join(request.all("x-forwarded-for")).replace(" ", "") == "192.0.2.66,192.0.2.67,127.0.0.1"
    assert request.all("x-forwarded-proto") == ["https"]
    assert request.all("x-forwarded-host") == ["outer.example"]


def test_forwarded_of_rfc_7239(fleet: Fleet) -> None:
    proxy, seen = started(fleet, 'forwarded = "rfc7239"')
    with Connection.to(proxy.port) as client:
        client.request("/", fields="forwarded: for=192.0.2.66\r\nx-forwarded-for: 192.0.2.66\r\n")
    (value,) = seen.last().all("forwarded")
    pairs = dict(pair.strip().split("=", 1) for pair in value.split(";"))
    assert pairs["for"].strip('"') == "127.0.0.1", value
    assert pairs["proto"] == "http" and pairs["host"].strip('"') == "site.example", value
    assert seen.last().all("x-forwarded-for") == []


def test_forwarded_names_ipv6_in_quotes_and_brackets(fleet: Fleet) -> None:
    proxy, seen = started(fleet, f'{LOOPBACK}\nproxy_protocol = "any"\nforwarded = "both"')
    with Connection.to(proxy.port) as client:
        client.send(HEADERS["v1-ipv6"][0] + GET)
        assert client.read_response().status == 200
    assert 'for="[2001:db8::7]"' in (seen.last().get("forwarded") or "").lower()
    assert seen.last().get("x-forwarded-for") == "2001:db8::7"


def test_forwarded_that_is_off_says_nothing_and_lets_nothing_through(fleet: Fleet) -> None:
    proxy, seen = started(fleet, 'forwarded = "off"')
    with Connection.to(proxy.port) as client:
        client.request("/", fields="x-forwarded-for: 192.0.2.66\r\nforwarded: for=192.0.2.66\r\n")
    for name in ("x-forwarded-for", "forwarded", "x-forwarded-proto"):
        assert seen.last().all(name) == []


def test_via_is_added_both_ways(fleet: Fleet) -> None:
    proxy, seen = started(fleet)
    with Connection.to(proxy.port) as client:
        response = client.request("/via", fields="via: 1.0 outer\r\n")
    assert [part.strip() for part in ", ".join(seen.last().all("via")).split(",")] == ["1.0 outer", "1.1 plimsoll"]
    assert [part.strip() for part in ", ".join(response.all("via")).split(",")] == ["1.0 inner", "1.1 plimsoll"]
    with http2.Connection.to(proxy.port) as client2:
        client2.fetch(1, http2.request())
    assert seen.last().all("via") == ["2.0 plimsoll"] or seen.last().all("via") == ["2 plimsoll"]


def test_via_can_be_another_name_or_none(fleet: Fleet) -> None:
    proxy, seen = started(fleet, 'via = "edge-1"')
    with Connection.to(proxy.port) as client:
        client.request("/")
    assert seen.last().all("via") == ["1.1 edge-1"]
    proxy, seen = started(fleet, 'via = "off"')
    with Connection.to(proxy.port) as client:
        assert client.request("/").get("via") is None
    assert seen.last().all("via") == []


def test_host_is_rewritten_where_a_route_says_so(fleet: Fleet) -> None:
    seen = Seen(fleet)
    route = f'[[routes]]\npath_prefix = "/inner"\ncluster = "inner"\nhost_rewrite = "inner.example:8080"\n[clusters.inner]\nbackends = ["{seen.address}"]'
    proxy = fleet.proxy([seen.address], further=route)
    wait_until("ready", lambda: proxy.admin.get("/readyz")[0] == 200)
    with Connection.to(proxy.port) as client:
        client.request("/inner/a")
        assert seen.last().all("host") == ["inner.example:8080"]
        assert seen.last().all("x-forwarded-host") == ["site.example"]
        client.request("/outer")
        assert seen.last().all("host") == ["site.example"]


def test_hop_by_hop_fields_cannot_take_away_what_the_proxy_says(fleet: Fleet) -> None:
    proxy, seen = started(fleet)
    with Connection.to(proxy.port) as client:
        try:
            client.request("/", fields="connection: x-forwarded-for, via, host\r\n")
        except Closed:
            return
    if seen.requests:
        assert seen.last().all("x-forwarded-for") == ["127.0.0.1"]
