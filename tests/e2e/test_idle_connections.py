"""What an idle connection holds of the proxy's memory, and that each still serves its client."""

import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

import pytest

from harness import http2
from harness.fleet import Fleet, Proxy
from harness.http1 import Connection, Message, answer
from harness.process import wait_until

KIB = 1024
COUNT = 2_000
# Ports of one source address are few.
PER_ADDRESS = 500

Ask = Callable[[socket.socket], object]


def always(connection: Connection, request: Message) -> None:
    connection.read_body(request, to_close=False)
    answer(connection)


def ask_http1(sock: socket.socket) -> object:
    client = Connection(sock)
    for _ in range(2):
        assert client.request("/").status == 200
    return client


def ask_http2(sock: socket.socket) -> object:
    client = http2.Connection(sock)
    for stream in (1, 3):
        assert client.fetch(stream, http2.request()).status == 200
    return client


@contextmanager
def idle(proxy: Proxy, count: int, ask: Ask) -> Iterator[list[object]]:
    with ExitStack() as held:
        clients = []
        for number in range(count):
            source = (f"127.0.1.{1 + number // PER_ADDRESS}", 0)
            sock = socket.create_connection(("127.0.0.1", proxy.port), 10, source_address=source)
            clients.append(ask(held.enter_context(sock)))
        yield clients


@pytest.mark.parametrize(("ask", "most"), [(ask_http1, 3 * KIB), (ask_http2, 30 * KIB)], ids=["http1", "http2"])
def test_idle_connection_holds_little_memory(fleet: Fleet, ask: Ask, most: int) -> None:
    proxy = fleet.proxy([fleet.origin(always)], listener='max_connections = 5000\nidle_timeout = "10m"')
    # What the proxy takes once is no cost of a connection.
    with idle(proxy, 200, ask):
        before = proxy.resident_bytes()
    with idle(proxy, COUNT, ask) as clients:
        # Each gives its memory for requests back when none came for some time.
        wait_until(f"each holds less than {most} bytes", lambda: proxy.resident_bytes() - before < COUNT * most, 10)
        for client in (clients[0], clients[-1]):
            if isinstance(client, Connection):
                assert client.request("/").status == 200
            else:
                assert client.fetch(5, http2.request()).status == 200
