"""Clients: raw bytes over HTTP/1 or HTTP/2, well-formed requests by h2, and bystanders with connections of their own."""

import asyncio

from . import library, strict_http1, strict_http2
from .compare import is_own
from .message import Reading, Request, Response


class Http1(asyncio.Protocol):
    """Sends bytes and reads until as many responses came as the bytes have requests, and then to the end of the connection."""

    def __init__(self, pieces: list[bytes], methods: list[bytes]):
        self.pieces, self.methods = pieces, methods
        self.data = bytearray()
        self.clean_end = False
        self.over = asyncio.get_running_loop().create_future()
        self._half_closed = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport
        for piece in self.pieces:
            transport.write(piece)
        if not self.methods:
            self._half_close()

    def data_received(self, data: bytes) -> None:
        self.data += data
        if self._half_closed:
            return
        reading = self.reading(eof=False)
        if reading.fault or len(reading.messages) >= len(self.methods):
            self._half_close()

    def _half_close(self) -> None:
        self._half_closed = True
        if not self.transport.is_closing():
            self.transport.write_eof()

    def eof_received(self) -> None:
        self.clean_end = True

    def connection_lost(self, problem: Exception | None) -> None:
        self.clean_end = self.clean_end and problem is None
        if not self.over.done():
            self.over.set_result(None)

    def reading(self, eof: bool | None = None) -> Reading:
        """By the strict parser; one response more than requests is read, which must be the proxy's own."""
        eof = self.clean_end if eof is None else eof
        return strict_http1.read_responses(bytes(self.data), self._methods(), eof)

    def second_reading(self) -> Reading:
        return library.read_responses(bytes(self.data), self._methods(), self.clean_end)

    def _methods(self) -> list[bytes]:
        """Harmless: a refusal of HEAD with a body, where the connection ends with it. A proxy may not know the method of what it
        refuses."""
        methods = [*self.methods, b"GET"]
        reading = strict_http1.read_responses(bytes(self.data), methods, self.clean_end)
        last = len(reading.messages) - 1
        if reading.fault and last >= 0 and methods[last] == b"HEAD":
            refusal = reading.messages[last]
            if is_own(refusal) and refusal.get(b"connection") == b"close":
                methods[last] = b"GET"
        return methods


class RawHttp2(asyncio.Protocol):
    """Sends bytes and reads until each of these streams is over, or the connection is. With `heads_only` a head will do: the bytes
    leave no window for the body."""

    def __init__(self, pieces: list[bytes], methods: dict[int, bytes | None], expected: set[int], heads_only: bool):
        self.pieces, self.expected, self.heads_only = pieces, expected, heads_only
        self.reader = strict_http2.Reader(methods)
        self.data = bytearray()
        self.over = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport
        for piece in self.pieces:
            transport.write(piece)
        self._look()

    def data_received(self, data: bytes) -> None:
        self.data += data
        self.reader.feed(data)
        self._look()

    def _look(self) -> None:
        if self.reader.fault or all(self._is_over(stream) for stream in self.expected):
            self.transport.close()

    def _is_over(self, number: int) -> bool:
        stream = self.reader.streams.get(number)
        answered = stream is not None and (stream.ended or (self.heads_only and stream.message is not None))
        return answered or number in self.reader.resets

    def connection_lost(self, _: Exception | None) -> None:
        if not self.over.done():
            self.over.set_result(None)


class CleanHttp2(asyncio.Protocol):
    """Many well-formed requests on one connection, sent by h2 and read by both parsers."""

    def __init__(self, requests: list[Request]):
        self.theirs = library.Http2(server=False)
        self.data = bytearray()
        self.over = asyncio.get_running_loop().create_future()
        self.streams: dict[int, Request] = {}
        for number, request in enumerate(requests):
            stream = 2 * number + 1
            self.streams[stream] = request
            pseudo = [(b":method", request.method), (b":scheme", b"http"), (b":authority", request.host), (b":path", request.target)]
            self.theirs.connection.send_headers(stream, [*pseudo, *request.fields], end_stream=not request.body)
            if request.body:
                self.theirs.connection.send_data(stream, request.body, end_stream=True)
        self.reader = strict_http2.Reader({stream: request.method for stream, request in self.streams.items()})

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport
        transport.write(self.theirs.connection.data_to_send())

    def data_received(self, data: bytes) -> None:
        self.data += data
        self.reader.feed(data)
        self.theirs.feed(data)
        streams, resets = self.reader.streams, self.reader.resets
        if self.reader.fault or all(stream in resets or stream in streams and streams[stream].ended for stream in self.streams):
            self.transport.close()
        elif out := self.theirs.connection.data_to_send():
            self.transport.write(out)

    def connection_lost(self, _: Exception | None) -> None:
        if not self.over.done():
            self.over.set_result(None)


class Bystander(asyncio.Protocol):
    """A connection that stays, and asks one request at a time."""

    def __init__(self) -> None:
        self.data = b""
        self.waiter: asyncio.Future | None = None
        self.closed = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport

    def ask(self, raw: bytes) -> asyncio.Future:
        """The response, or `None` if the connection ends first. Bytes that nobody asked for count as the answer."""
        self.waiter = asyncio.get_running_loop().create_future()
        self.transport.write(raw)
        if self.data:
            self.data_received(b"")
        return self.waiter

    def data_received(self, data: bytes) -> None:
        self.data += data
        reading = strict_http1.read_responses(self.data, [b"GET"], eof=False)
        if reading.messages or reading.fault:
            self._resolve(reading.messages[0] if reading.messages else None)
            self.data = reading.rest

    def connection_lost(self, _: Exception | None) -> None:
        self.closed = True
        self._resolve(None)

    def _resolve(self, response: Response | None) -> None:
        if self.waiter is not None and not self.waiter.done():
            self.waiter.set_result(response)
