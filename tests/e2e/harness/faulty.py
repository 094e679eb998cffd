"""Backends that break the protocol, one way each: raw bytes on a socket, and a count of the requests that they got.

Only what the fault needs is read of a request. All run on one event loop, in a thread of its own.
"""

import asyncio
import contextlib
import itertools
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from . import http2
from .http2 import DATA, END_HEADERS, END_STREAM, GOAWAY, HEADERS, PUSH_PROMISE, RST_STREAM, SETTINGS, frame, headers

Fields = http2.Fields
PROTOCOL_ERROR, INTERNAL_ERROR, REFUSED_STREAM = 0x1, 0x2, 0x7


@dataclass(frozen=True)
class Fault:
    """What a backend sends instead of a good response, and what the proxy has to say of it."""

    protocol: str
    """Of the cluster: `http1`, `http2` or `grpc`."""
    said: bytes | Callable[[int], bytes] | None
    """The response; of HTTP/2 by the number of the stream. `None` is silence."""
    reason: str
    """In the access log: the reason, the status of the backend's own answer, or `incomplete` for one that was cut off;
    `retried` where every request may be sent again."""
    endless: bool = False
    """It is sent again and again."""
    closes: bool = False
    """The connection is closed after it."""
    greeting: bytes = http2.settings()
    """What a backend begins an HTTP/2 connection with; `s3` is MAX_CONCURRENT_STREAMS."""


def h1(said: bytes | None, reason: str, **more: bool) -> Fault:
    return Fault("http1", said, reason, **more)


def h2(said: Callable[[int], bytes] | None, reason: str, **more: object) -> Fault:
    return Fault("http2", said, reason, **more)  # type: ignore[arg-type]


def grpc(said: Callable[[int], bytes], reason: str) -> Fault:
    return Fault("grpc", said, reason)


def answers(*fields: tuple[bytes, bytes], body: bytes | None = None, status: bytes = b"200") -> Callable[[int], bytes]:
    """A response of these fields, and a body that ends it."""
    head = [(b":status", status), *fields]

    def said(stream: int) -> bytes:
        return headers(stream, head, end=body is None) + (http2.data(stream, body) if body is not None else b"")

    return said


def raw(*fields: tuple[bytes, bytes]) -> Callable[[int], bytes]:
    """A head of exactly these fields."""
    return lambda stream: headers(stream, list(fields), end=True)


def call(*trailers: tuple[bytes, bytes], message: bytes = bytes(5), content_type: bytes = b"application/grpc") -> Callable:
    """A gRPC response with a message and these trailers; without any its body just ends."""
    head = [(b":status", b"200"), (b"content-type", content_type)]

    def said(stream: int) -> bytes:
        end = headers(stream, list(trailers), end=True) if trailers else b""
        return headers(stream, head, end=False) + http2.data(stream, message, end=not trailers) + end

    return said


OK = (b":status", b"200")
CHUNKED = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"

FAULTS: dict[str, Fault] = {
    # HTTP/1.
    "words": h1(b"hello\r\n\r\n", "bad-response"),
    "version": h1(b"HTTP/3.1 200 OK\r\ncontent-length: 0\r\n\r\n", "bad-response"),
    "two-lengths": h1(b"HTTP/1.1 200 OK\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\nab", "bad-response"),
    "negative-length": h1(b"HTTP/1.1 200 OK\r\ncontent-length: -1\r\n\r\nab", "bad-response"),
    "nul-in-a-field": h1(b"HTTP/1.1 200 OK\r\nx-a: 1\x002\r\ncontent-length: 0\r\n\r\n", "bad-response"),
    "long-head": h1(b"HTTP/1.1 200 OK\r\n" + b"x-a: 1\r\n" * 20_000, "bad-response"),
    "switching-unasked": h1(b"HTTP/1.1 101 S\r\nconnection: upgrade\r\nupgrade: x\r\n\r\n", "bad-response"),
    "endless-interim": h1(b"HTTP/1.1 103 Early Hints\r\n\r\n" * 20, "bad-response", endless=True),
    "bad-chunk": h1(CHUNKED + b"zz\r\n", "incomplete"),
    "short-body": h1(b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\n123", "incomplete", closes=True),
    "closes": h1(b"", "closed", closes=True),
    "half-a-head": h1(b"HTTP/1.1 200 OK\r\ncontent-", "closed", closes=True),
    "500": h1(b"HTTP/1.1 500 E\r\ncontent-length: 0\r\n\r\n", "500"),
    "503": h1(b"HTTP/1.1 503 E\r\ncontent-length: 0\r\n\r\n", "503"),
    "429": h1(b"HTTP/1.1 429 E\r\ncontent-length: 0\r\n\r\n", "429"),
    "silent": h1(None, "timeout"),
    "stops-in-body": h1(b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\n123", "incomplete"),
    # HTTP/2: malformed heads.
    "connection-field": h2(answers((b"connection", b"close")), "bad-response"),
    "transfer-encoding": h2(answers((b"transfer-encoding", b"chunked")), "bad-response"),
    "status-101": h2(raw((b":status", b"101")), "bad-response"),
    "no-status": h2(raw((b"x-a", b"1")), "bad-response"),
    "two-statuses": h2(raw(OK, OK), "bad-response"),
    "status-of-junk": h2(raw((b":status", b"2x0")), "bad-response"),
    "late-status": h2(raw((b"x-a", b"1"), OK), "bad-response"),
    "unknown-pseudo": h2(raw(OK, (b":x", b"1")), "bad-response"),
    "uppercase": h2(answers((b"X-A", b"1")), "bad-response"),
    "length-without-body": h2(answers((b"content-length", b"5")), "bad-response"),
    "two-lengths-h2": h2(answers((b"content-length", b"1"), (b"content-length", b"2"), body=b"a"), "bad-response"),
    "bad-hpack": h2(lambda stream: frame(HEADERS, END_HEADERS | END_STREAM, stream, b"\xff\xff\xff\xff\xff\xff"), "bad-response"),
    # HTTP/2: malformed bodies.
    "too-short": h2(answers((b"content-length", b"10"), body=b"abc"), "incomplete"),
    "too-long": h2(answers((b"content-length", b"3"), body=b"abcdefghij"), "incomplete"),
    "trailers-without-end": h2(
        lambda stream: headers(stream, [OK], end=False) + headers(stream, [(b"x-a", b"1")], end=False), "incomplete"
    ),
    # HTTP/2: frames and streams.
    "endless-interim-h2": h2(
        lambda stream: headers(stream, [(b":status", b"103")], end=False) * 20, "bad-response", endless=True
    ),
    "no-streams": h2(answers(), "timeout", greeting=http2.settings(s3=0)),
    "data-first": h2(lambda stream: http2.data(stream, b"abc"), "bad-response"),
    "push": h2(
        lambda stream: frame(PUSH_PROMISE, END_HEADERS, stream, b"\0\0\0\2" + http2.block(http2.request())), "bad-response"
    ),
    "large-frame": h2(lambda stream: frame(DATA, 0, stream, bytes(1 << 15)), "bad-response"),
    "reset": h2(lambda stream: frame(RST_STREAM, 0, stream, INTERNAL_ERROR.to_bytes(4)), "closed"),
    "refused-stream": h2(lambda stream: frame(RST_STREAM, 0, stream, REFUSED_STREAM.to_bytes(4)), "retried"),
    "reset-in-body": h2(
        lambda stream: headers(stream, [OK], end=False) + frame(RST_STREAM, 0, stream, bytes(4)), "incomplete"
    ),
    "goaway": h2(
        lambda stream: frame(GOAWAY, 0, 0, bytes(4) + PROTOCOL_ERROR.to_bytes(4)), "closed", closes=True
    ),
    "silent-h2": h2(None, "timeout"),
    "429-h2": h2(answers(status=b"429"), "429"),
    # gRPC.
    "no-grpc-status": grpc(call(), "200"),
    "junk-grpc-status": grpc(call((b"grpc-status", b"x")), "200"),
    "unavailable": grpc(call((b"grpc-status", b"14")), "200"),
    "internal": grpc(call((b"grpc-status", b"13")), "200"),
    "exhausted": grpc(call((b"grpc-status", b"8")), "200"),
    "not-grpc": grpc(call(content_type=b"text/html"), "200"),
    "grpc-connection-field": grpc(answers((b"connection", b"close"), (b"grpc-status", b"0")), "bad-response"),
}


@dataclass
class FaultyBackend:
    """A backend with one fault."""

    fault: Fault
    port: int
    requests: int = 0
    connections: int = 0
    server: asyncio.Server | None = None
    writers: set[asyncio.StreamWriter] = field(default_factory=set)

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self.writers.add(writer)
        with contextlib.suppress(OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            await (self._http1(reader, writer) if self.fault.protocol == "http1" else self._http2(reader, writer))
        self.writers.discard(writer)
        writer.close()

    async def _http1(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            head = await reader.readuntil(b"\r\n\r\n")
            length = next((int(line[15:]) for line in head.split(b"\r\n") if line.lower().startswith(b"content-length:")), 0)
            await reader.readexactly(length)
            self.requests += 1
            if not await self._say(writer, self.fault.said):
                return

    async def _http2(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readexactly(len(http2.PREFACE))
        writer.write(self.fault.greeting)
        while True:
            start = await reader.readexactly(9)
            payload = await reader.readexactly(int.from_bytes(start[:3]))
            kind, flags, stream = start[3], start[4], int.from_bytes(start[5:])
            if kind == SETTINGS and not flags & END_STREAM:
                writer.write(frame(SETTINGS, END_STREAM, 0))
            elif kind == http2.PING and not flags & END_STREAM:
                writer.write(frame(http2.PING, END_STREAM, 0, payload))
            self.requests += kind == HEADERS
            if kind in (HEADERS, DATA) and flags & END_STREAM:
                said = self.fault.said
                if not await self._say(writer, said(stream) if callable(said) else said):
                    return

    async def _say(self, writer: asyncio.StreamWriter, said: object) -> bool:
        """Whether the connection goes on."""
        if isinstance(said, bytes):
            for _ in itertools.count() if self.fault.endless else range(1):
                writer.write(said)
                await writer.drain()
        return not self.fault.closes


class FaultyBackends:
    """Faulty backends on a thread of their own."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self.backends: list[FaultyBackend] = []

    def start(self, fault: Fault) -> FaultyBackend:
        async def listen() -> FaultyBackend:
            backend = FaultyBackend(fault, 0)
            backend.server = await asyncio.start_server(backend.serve, "127.0.0.1", 0)
            backend.port = backend.server.sockets[0].getsockname()[1]
            return backend

        backend = asyncio.run_coroutine_threadsafe(listen(), self._loop).result(10)
        self.backends.append(backend)
        return backend

    def stop(self) -> None:
        async def close() -> None:
            for backend in self.backends:
                assert backend.server is not None
                backend.server.close()
            others = asyncio.all_tasks() - {asyncio.current_task()}
            for task in others:
                task.cancel()
            await asyncio.gather(*others, return_exceptions=True)

        asyncio.run_coroutine_threadsafe(close(), self._loop).result(10)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()


@contextlib.contextmanager
def faulty_backends() -> Iterator[FaultyBackends]:
    backends = FaultyBackends()
    try:
        yield backends
    finally:
        backends.stop()
