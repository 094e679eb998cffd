"""Recording backends: they keep the exact bytes of each connection, read them strictly, and answer at once.

What to answer is decided by `Answers`: an echo of the request, or for `/f/...` in the directions of responses a mutated message.
"""

import asyncio
import struct
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from harness.http2 import ACK, DATA, END_STREAM, PING, RST_STREAM, SETTINGS, WINDOW_UPDATE, frame, headers, settings

from . import library, strict_http1, strict_http2
from .compare import disagreement, echo
from .message import Reading, Request, Response

MUTATED = b"/f/"
_WINDOW = (1 << 30) - 1


@dataclass
class Sent:
    """A mutated response as it was sent, and how it reads."""

    raw: bytes
    response: Response | None
    note: str


@dataclass
class Recording:
    """What one connection brought since the last look."""

    raw: bytes
    reading: Reading
    disagreement: str | None = None


@dataclass
class Answers:
    """The mutated responses of the batch, and where they went."""

    http1: Callable[[bytes], tuple[bytes, bool]] | None = None
    """By the tag of a request: the bytes, and whether the connection ends behind them."""
    http2: Callable[[bytes, int], bytes] | None = None
    """By tag and stream."""
    sent: dict[bytes, list[Sent]] = field(default_factory=dict)
    """By target."""


def tag_of(request: Request) -> bytes:
    return request.target[len(MUTATED) :]


def echo_body(request: Request) -> bytes:
    return b"answer to " + echo(request)


def echo_response(request: Request) -> bytes:
    body = echo_body(request)
    head = b"HTTP/1.1 200 OK\r\nx-echo: %s\r\ncontent-length: %d\r\n\r\n" % (echo(request), len(body))
    return head if request.method == b"HEAD" else head + body


class Http1(asyncio.Protocol):
    """One connection of the HTTP/1 backend."""

    def __init__(self, server: "Server"):
        self.server = server
        self.raw = bytearray()
        self.rest = b""
        self.requests: list[Request] = []
        self.partial: Request | None = None
        self.fault: str | None = None
        self.continued = False
        self.closed = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport
        self.server.connections.add(self)

    def connection_lost(self, _: Exception | None) -> None:
        self.closed = True
        self.server.ended(self)

    def data_received(self, data: bytes) -> None:
        self.raw += data
        reading = strict_http1.read_requests(self.rest + data)
        self.rest, self.partial = reading.rest, reading.partial
        for request in reading.messages:
            self.requests.append(request)
            self.continued = False
            self._answer(request)
        if reading.fault:
            self.fault = reading.fault
            self.transport.close()
        elif self.partial is not None and self.partial.all(b"expect") and not self.continued:
            self.continued = True
            self.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")

    def _answer(self, request: Request) -> None:
        answers = self.server.answers
        if answers.http1 is None or not request.target.startswith(MUTATED):
            self.transport.write(echo_response(request))
            return
        tag = tag_of(request)
        raw, closes = answers.http1(tag)
        reading = strict_http1.read_responses(raw, [request.method], eof=closes, lenient=True)
        if not reading.messages and not reading.fault and not closes:
            # The proxy would wait for the rest.
            closes = True
            reading = strict_http1.read_responses(raw, [request.method], eof=True, lenient=True)
        response = reading.messages[0] if reading.messages else reading.partial
        note = f"{reading.fault or 'whole' if response else reading.fault}{', then closed' if closes else ''}"
        answers.sent.setdefault(request.target, []).append(Sent(raw, response, note))
        self.transport.write(raw)
        if closes:
            self.transport.close()
        elif not reading.messages:
            self.server.hold(self.transport)

    def take(self) -> Recording | None:
        """What came since the last look. A request that is not whole ends the connection: its client is gone."""
        if not self.raw:
            return None
        raw = bytes(self.raw)
        ours = Reading(self.requests, self.partial, self.fault)
        recording = Recording(raw, ours, disagreement(ours, library.read_requests(raw), "request"))
        self.raw, self.requests, self.partial = bytearray(), [], None
        if self.rest:
            self.transport.abort()
        return recording


class Http2(asyncio.Protocol):
    """One connection of the HTTP/2 backend."""

    def __init__(self, server: "Server"):
        self.server = server
        self.raw = bytearray()
        self.ours = strict_http2.Reader()
        self.theirs = library.Http2(server=True)
        # What is written here, as its receiver has to read it.
        self.written = strict_http2.Reader(methods={})
        self.targets: dict[int, tuple[bytes, bytes]] = {}
        """By stream: the request's target, and the bytes that answered it."""
        self.closed = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport
        self.server.connections.add(self)
        self._write(settings(s4=_WINDOW) + frame(WINDOW_UPDATE, 0, 0, struct.pack(">I", _WINDOW - 65_535)))

    def connection_lost(self, _: Exception | None) -> None:
        self.closed = True
        self.server.ended(self)

    def _write(self, data: bytes) -> None:
        self.written.feed(data)
        self.transport.write(data)

    def data_received(self, data: bytes) -> None:
        self.raw += data
        self.ours.feed(data)
        self.theirs.feed(data)
        for _ in range(len(self.ours.settings)):
            self._write(frame(SETTINGS, ACK, 0))
        for payload in self.ours.pings:
            self._write(frame(PING, ACK, 0, payload))
        self.ours.settings.clear()
        self.ours.pings.clear()
        completed, self.ours.completed = self.ours.completed, []
        for stream in completed:
            if not self.transport.is_closing():
                self._answer(stream, self.ours.streams[stream].message)
        if self.ours.fault:
            self.transport.close()

    def _answer(self, stream: int, request: Request) -> None:
        self.written.methods[stream] = request.method
        answers = self.server.answers
        if answers.http2 is None or not request.target.startswith(MUTATED):
            fields = [(b":status", b"200"), (b"x-echo", echo(request))]
            body = b"" if request.method == b"HEAD" else echo_body(request)
            raw = headers(stream, fields, end=not body) + (frame(DATA, END_STREAM, stream, body) if body else b"")
            self.targets[stream] = (request.target, raw)
            self._write(raw)
            return
        raw = answers.http2(tag_of(request), stream)
        self.targets[stream] = (request.target, raw)
        self._write(raw)
        found = self.written.streams.get(stream)
        is_over = stream in self.written.resets or (found is not None and bool(found.ended or found.malformed))
        if self.written.fault:
            self.server.hold(self.transport)
        elif is_over and not self.written.pending:
            return
        elif self.written.pending or self.written.within_block:
            self.transport.close()
        else:
            self._write(frame(RST_STREAM, 0, stream, struct.pack(">I", 2)))

    def take(self) -> Recording | None:
        for stream, found in self.ours.streams.items():
            # Frames of another response may name a stream before its request was answered.
            if found.message is not None and stream in self.written.streams:
                self.targets.setdefault(stream, (found.message.target, b""))
        for stream, (target, raw) in self.targets.items():
            found = self.written.streams.get(stream)
            note = f"stream {stream}, {found and found.malformed}, connection {self.written.fault}"
            self.server.answers.sent.setdefault(target, []).append(Sent(raw, found and found.message, note))
        self.targets.clear()
        if not self.raw:
            return None
        ours = Reading(fault=self.ours.fault)
        differs = None
        unfinished = False
        for stream, found in list(self.ours.streams.items()):
            message = found.message
            if found.malformed:
                ours.fault = ours.fault or found.malformed
            if message is not None:
                ours.messages.append(message)
                one, other = Reading([message]), Reading([self.theirs.messages.get(stream)])
                if other.messages[0] is None:
                    differs = differs or f"stream {stream}: h2 has no request ({self.theirs.fault})"
                else:
                    differs = differs or disagreement(one, other, "request on a stream")
            unfinished = unfinished or not (found.ended or found.reset)
            self.ours.forget(stream)
            self.written.forget(stream)
            self.theirs.forget(stream)
        raw, self.raw = bytes(self.raw), bytearray()
        if unfinished:
            self.transport.abort()
        return Recording(raw, ours, differs)


class Server:
    """A listening backend of either kind."""

    def __init__(self, kind: type[Http1] | type[Http2], round_trip: Callable[[], Awaitable[None]] | None = None):
        self.kind = kind
        self._round_trip = round_trip
        self._held: list[asyncio.BaseTransport] = []
        self._releasing: asyncio.Task | None = None
        self.connections: set[Http1 | Http2] = set()
        self.answers = Answers()
        self._over: list[Recording] = []

    async def listen(self, port: int) -> None:
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(lambda: self.kind(self), "127.0.0.1", port, backlog=512)
        self.address = f"127.0.0.1:{port}"

    def hold(self, transport: asyncio.BaseTransport) -> None:
        """Leaves a connection open behind bytes that are no message, until the proxy has had time to take notice: two round trips
        of other requests through its only thread. A proxy that still waits for more then learns that there is none."""
        self._held.append(transport)
        if self._releasing is None or self._releasing.done():
            self._releasing = asyncio.get_running_loop().create_task(self._release())

    async def _release(self) -> None:
        while self._held:
            held, self._held = self._held, []
            await self._round_trip()
            await self._round_trip()
            for transport in held:
                transport.close()

    def ended(self, connection: Http1 | Http2) -> None:
        self.connections.discard(connection)
        recording = connection.take()
        if recording:
            self._over.append(recording)

    def take(self) -> list[Recording]:
        """What came on all connections since the last look, those that ended included."""
        for connection in list(self.connections):
            recording = connection.take()
            if recording:
                self._over.append(recording)
        recordings, self._over = self._over, []
        return recordings

    def stop(self) -> None:
        self._server.close()
        for connection in list(self.connections):
            connection.transport.abort()
