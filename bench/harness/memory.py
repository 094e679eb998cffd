"""What a proxy holds in memory: for each idle connection, and while a large body streams through it.

Resident memory of its processes from `/proc`, so without what the kernel holds for each socket. Before the first reading
a load has passed through it, since what a proxy takes once for its pools is no cost of a connection.
"""

import contextlib
import pathlib
import socket
import ssl
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass

from . import certificate
from .backends import Backend, NginxBackend, SinkBackend, start
from .load import BODY, LoadFailed, Target, Wrk
from .peers import PEERS, Peer, Setup
from .processes import (
    Process,
    Site,
    forget_peak_of_tree,
    peak_resident_bytes_of_tree,
    resident_bytes_of_tree,
)
from .rounds import Effort

# Before a connection falls idle: the proxy has done all that it does for one in use.
_REQUESTS_EACH = 2
# Clients come from several addresses, as no proxy lets one client have all of its connections.
_CONNECTIONS_PER_ADDRESS = 1_000
# After the last request, for what a proxy does a moment later.
_SETTLE_SECONDS = 2
STREAM_BYTES = 1 << 30
# How long the client lets a download wait before it reads: time for a proxy to take in all that it is willing to hold.
_STALL_SECONDS = 1
_BLOCK_BYTES = 1 << 20
_TIMEOUT_SECONDS = 30


@dataclass(frozen=True)
class MemoryShape:
    """One way to look at memory. A goal is the most that plimsoll may take, in the unit of the figures."""

    name: str
    title: str
    unit: str
    goal: float | None
    backends: type[Backend]
    connections: int = 0
    tls: bool = False
    http2: bool = False
    note: str = ""


IDLE_NOTE = (
    f"Each has had {_REQUESTS_EACH} requests and is kept open. What the kernel holds for a socket is not in it, nor what "
    "a proxy sets aside at its start for as many connections as it may have, as nginx does."
)
MEMORY_SHAPES = [
    MemoryShape("idle", "10,000 idle client connections", "KiB each", 2, NginxBackend, 10_000, note=IDLE_NOTE),
    # Fewer, since the client takes milliseconds for each handshake on a core that it shares.
    MemoryShape("idle-tls", "1,000 idle HTTPS connections", "KiB each", None, NginxBackend, 1_000, True, note=IDLE_NOTE),
    MemoryShape(
        "idle-http2", "2,000 idle HTTP/2 connections", "KiB each", None, NginxBackend, 2_000, http2=True, note=IDLE_NOTE
    ),
    MemoryShape(
        "stream",
        "1 GiB streamed down, then up",
        "MiB more",
        32,
        SinkBackend,
        note=f"The most that was resident meanwhile, less what was before. The client waits {_STALL_SECONDS} s before it "
        "reads.",
    ),
]


def measure(shape: MemoryShape, names: list[str], effort: Effort) -> dict:
    """One figure, or two, of each proxy. One run: memory hardly depends on what else the machine does."""
    figures: dict[str, dict[str, float]] = {}
    absent: dict[str, str] = {}
    for name in names:
        with _running(shape, name, effort) as (peer, site):
            if peer is None:
                absent[name] = "set up for HTTP/1 without TLS only"
                continue
            target = Target(peer.port, shape.tls)
            if not shape.http2:
                Wrk(connections=200).run(target, 1, site)
            figures[name] = _stream(peer) if shape.name == "stream" else _idle(peer, target, shape)
        told = ", ".join(f"{key} {value:.1f}" for key, value in figures[name].items())
        print(f"{shape.name}, {shape.unit}: {name} {told}", file=sys.stderr)
    goals = {} if shape.goal is None else {"plimsoll": shape.goal}
    return {
        "title": shape.title,
        "note": shape.note,
        "unit": shape.unit,
        "absent": absent,
        "memory": figures,
        "goals": goals,
    }


@contextlib.contextmanager
def _running(shape: MemoryShape, name: str, effort: Effort) -> Iterator[tuple[Peer | None, Site]]:
    started: list[Process] = []
    with tempfile.TemporaryDirectory(prefix="plimsoll-bench-") as directory:
        site = Site(pathlib.Path(directory), {effort.proxy_core}, effort.load_cores)
        try:
            pair = certificate.Certificate(site.directory) if shape.tls else None
            backends = start(shape.backends, site)
            started += [backend.process for backend in backends]
            addresses = tuple(address for backend in backends for address in backend.addresses)
            setup = Setup(addresses, pair, http2_clients=shape.http2)
            if PEERS[name].cannot(setup):
                yield None, site
                return
            peer = PEERS[name](site, setup, name)
            started.append(peer.process)
            yield peer, site
        finally:
            for process in reversed(started):
                process.stop()


def _idle(peer: Peer, target: Target, shape: MemoryShape) -> dict[str, float]:
    if shape.http2:
        # In place of a load.
        _Crowd(target, shape, 200).close()
    before = resident_bytes_of_tree(peer.process.pid)
    crowd = _Crowd(target, shape, shape.connections)
    try:
        time.sleep(_SETTLE_SECONDS)
        after = resident_bytes_of_tree(peer.process.pid)
        # All must still be there, or their memory is given back and it is no figure.
        crowd.ask_last()
    finally:
        crowd.close()
    return {"idle": (after - before) / shape.connections / 1024}


class _Crowd:
    """Clients that have had their requests."""

    def __init__(self, target: Target, shape: MemoryShape, count: int):
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        self._held = contextlib.ExitStack()
        self._is_http2 = shape.http2
        for number in range(count):
            source = (f"127.0.0.{2 + number // _CONNECTIONS_PER_ADDRESS}", 0)
            tcp = socket.create_connection(("127.0.0.1", target.port), _TIMEOUT_SECONDS, source_address=source)
            self._last = self._held.enter_context(tcp)
            if target.tls:
                self._last = self._held.enter_context(context.wrap_socket(self._last))
            if shape.http2:
                self._last.sendall(_PREFACE + _frame(_SETTINGS, 0, 0))
            self._asked = 0
            for _ in range(_REQUESTS_EACH):
                self.ask_last()

    def ask_last(self) -> None:
        if self._is_http2:
            _ask_http2(self._last, 2 * self._asked + 1)
        else:
            _ask(self._last)
        self._asked += 1

    def close(self) -> None:
        self._held.close()


_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_DATA, _HEADERS, _RESET, _SETTINGS, _GOAWAY = 0, 1, 3, 4, 7
_ACK, _END_STREAM, _END_HEADERS = 1, 1, 4
# GET http://localhost/, without the table that a connection keeps.
_REQUEST = b"\x82\x86\x84\x01\x09localhost"


def _frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    return len(payload).to_bytes(3, "big") + bytes([kind, flags]) + stream.to_bytes(4, "big") + payload


def _ask_http2(connection: socket.socket, stream: int) -> None:
    connection.sendall(_frame(_HEADERS, _END_STREAM | _END_HEADERS, stream, _REQUEST))
    pending, body = b"", b""
    while True:
        while len(pending) >= 9 and len(pending) >= (whole := 9 + int.from_bytes(pending[:3], "big")):
            kind, flags, of = pending[3], pending[4], int.from_bytes(pending[5:9], "big")
            payload, pending = pending[9:whole], pending[whole:]
            if kind == _SETTINGS and not flags & _ACK:
                connection.sendall(_frame(_SETTINGS, _ACK, 0))
            if kind in (_RESET, _GOAWAY):
                raise LoadFailed(f"the answer was a frame of type {kind}")
            if kind == _DATA:
                body += payload
            if kind in (_DATA, _HEADERS) and flags & _END_STREAM and of == stream:
                if body != BODY.encode():
                    raise LoadFailed(f"not the answer wanted: {body!r}")
                return
        piece = connection.recv(4096)
        if not piece:
            raise LoadFailed(f"a connection was closed after {pending!r}")
        pending += piece


def _ask(connection: socket.socket) -> None:
    connection.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
    answer = b""
    while not answer.endswith(BODY.encode()):
        piece = connection.recv(4096)
        if not piece:
            raise LoadFailed(f"a connection was closed after {answer!r}")
        answer += piece
    if not answer.startswith(b"HTTP/1.1 200 "):
        raise LoadFailed(f"not the answer wanted: {answer!r}")


def _stream(peer: Peer) -> dict[str, float]:
    growth = {}
    for direction, transfer in (("down", _download), ("up", _upload)):
        forget_peak_of_tree(peer.process.pid)
        before = resident_bytes_of_tree(peer.process.pid)
        transfer(peer.port)
        # The kernel counts both in batches, so that the peak may seem to lie below the start.
        growth[direction] = max(peak_resident_bytes_of_tree(peer.process.pid) - before, 0) / 2**20
    return growth


def _download(port: int) -> None:
    block = bytearray(_BLOCK_BYTES)
    with socket.create_connection(("127.0.0.1", port), _TIMEOUT_SECONDS) as connection:
        connection.sendall(b"GET /%d HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n" % STREAM_BYTES)
        time.sleep(_STALL_SECONDS)
        got = 0
        while read := connection.recv_into(block):
            got += read
    # The head comes on top of the body.
    if not STREAM_BYTES < got < STREAM_BYTES + 4096:
        raise LoadFailed(f"{got} bytes came down, of {STREAM_BYTES}")


def _upload(port: int) -> None:
    block = bytes(_BLOCK_BYTES)
    with socket.create_connection(("127.0.0.1", port), _TIMEOUT_SECONDS) as connection:
        connection.sendall(b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % STREAM_BYTES)
        for _ in range(STREAM_BYTES // _BLOCK_BYTES):
            connection.sendall(block)
        answer = connection.recv(4096)
    if not answer.startswith(b"HTTP/1.1 200 "):
        raise LoadFailed(f"the upload was answered with {answer!r}")
