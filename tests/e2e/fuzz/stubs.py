"""Proxies with deliberate mistakes, each of which the fuzzer has to find out.

They speak HTTP/1 to the backend, over few connections that they use again. `Stub` is right wherever the strict parser is; each
mistake is one method that a subclass replaces.
"""

import asyncio
import re

import h2.config
import h2.connection
import h2.events
import h2.exceptions

from harness.process import free_port

from . import strict_http1

_LENGTH = re.compile(rb"content-length:[ \t]*([0-9]+)", re.IGNORECASE)
_OF_CONNECTIONS = {b"connection", b"expect", b"upgrade"}
_REFUSAL = b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
_BAD_GATEWAY = b"HTTP/1.1 502 Bad Gateway\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"


class Refused(Exception):
    """The client's bytes are no request."""


class Stub:
    """A strict proxy: a request at a time for each client."""

    def __init__(self) -> None:
        self._idle: list[tuple[asyncio.StreamReader, asyncio.StreamWriter, bytes]] = []

    async def start(self, http1: str, _http2: str) -> tuple[int, int]:
        self.backend = int(http1.rpartition(":")[2])
        port = free_port()
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", port)
        return port, port

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        pending = b""
        try:
            while True:
                taken = self.take_request(pending)
                if taken is not None:
                    method, raw, pending = taken
                    answer = await self._exchange(method, raw)
                    writer.write(answer)
                    if answer == _BAD_GATEWAY:
                        return
                    continue
                received = await reader.read(65_536)
                if not received:
                    return
                pending += received
        except Refused:
            writer.write(_REFUSAL)
        except (ConnectionError, asyncio.CancelledError):
            pass
        finally:
            writer.close()

    def take_request(self, data: bytes) -> tuple[bytes, bytes, bytes] | None:
        """The first request: its method, its bytes and what follows; `None` if it is not whole."""
        reading = strict_http1.read_requests(data)
        if reading.messages:
            first = reading.messages[0]
            # Only the simplest is forwarded as it is: nothing that concerns a connection, no other form of a target.
            start = first.method + b" " + first.target + b" HTTP/1.1\r\n"
            if not data.lstrip(b"\r\n").startswith(start) or _OF_CONNECTIONS & {name for name, _ in first.fields}:
                raise Refused
            # The first ends where the others begin.
            for end in range(1, len(data) + 1):
                if strict_http1.read_requests(data[:end]).messages:
                    return first.method, data[:end].lstrip(b"\r\n"), data[end:]
        if reading.fault:
            raise Refused
        return None

    async def _exchange(self, method: bytes, raw: bytes) -> bytes:
        if self._idle:
            reader, writer, pending = self._idle.pop()
        else:
            reader, writer = await asyncio.open_connection("127.0.0.1", self.backend)
            pending = b""
        writer.write(raw)
        ended = False
        while True:
            taken = self.take_response(pending, method, ended)
            if taken is not None:
                answer, rest = taken
                if ended:
                    writer.close()
                elif self.may_be_used_again(rest):
                    self._idle.append((reader, writer, rest))
                else:
                    writer.close()
                return await self.hand_over(answer)
            if ended:
                writer.close()
                return _BAD_GATEWAY
            received = await reader.read(65_536)
            ended = not received
            pending += received

    def take_response(self, data: bytes, method: bytes, ended: bool) -> tuple[bytes, bytes] | None:
        """The first response's bytes and what follows; `None` if it is not whole."""
        reading = strict_http1.read_responses(data, [method], eof=ended)
        if reading.fault:
            return _BAD_GATEWAY, b"?"
        if not reading.messages:
            return None
        whole = data[: len(data) - len(reading.rest)]
        # A client could not tell where a body ends that ends with the connection: it gets a length.
        response = reading.messages[0]
        head, _, _ = whole.partition(b"\r\n\r\n")
        if ended and response.get(b"content-length") is None and response.get(b"transfer-encoding") is None:
            whole = head + b"\r\ncontent-length: %d\r\n\r\n" % len(response.body) + response.body
        return whole, reading.rest

    def may_be_used_again(self, rest: bytes) -> bool:
        return not rest

    async def hand_over(self, answer: bytes) -> bytes:
        return answer


class ForwardsUnread(Stub):
    """Looks for the end of a head and for a length, and forwards the bytes as they are."""

    def take_request(self, data: bytes) -> tuple[bytes, bytes, bytes] | None:
        head, end, rest = data.partition(b"\r\n\r\n")
        if not end:
            return None
        found = _LENGTH.search(head)
        length = int(found[1]) if found and int(found[1]) < 1 << 20 else 0
        if len(rest) < length:
            return None
        return head.split(b" ")[0], head + end + rest[:length], rest[length:]


class MergesLengths(Stub):
    """Takes two different lengths for one, the first, in place of refusing them."""

    def take_request(self, data: bytes) -> tuple[bytes, bytes, bytes] | None:
        head, end, rest = data.partition(b"\r\n\r\n")
        lengths = _LENGTH.findall(head)
        if not end or len(lengths) < 2 or b"transfer-encoding" in head.lower():
            return super().take_request(data)
        lines = [line for line in head.split(b"\r\n") if not _LENGTH.fullmatch(line)]
        merged = b"\r\n".join([*lines, b"content-length: " + lengths[0]]) + end + rest
        return super().take_request(merged)


class SwapsAnswers(Stub):
    """Gives every second answer to the client of the one before."""

    def __init__(self) -> None:
        super().__init__()
        self._waiting: tuple[bytes, asyncio.Future] | None = None

    async def hand_over(self, answer: bytes) -> bytes:
        if self._waiting is None:
            future = asyncio.get_running_loop().create_future()
            self._waiting = (answer, future)
            try:
                return await asyncio.wait_for(asyncio.shield(future), 0.2)
            except TimeoutError:
                self._waiting = None
                return answer
        other, future = self._waiting
        self._waiting = None
        future.set_result(answer)
        return other


class KeepsLeftovers(Stub):
    """Uses a backend connection again although bytes came that nobody asked for."""

    def may_be_used_again(self, rest: bytes) -> bool:
        del rest
        return True


class TrustsEnds(Stub):
    """Takes the end of a connection for the end of any body."""

    def take_response(self, data: bytes, method: bytes, ended: bool) -> tuple[bytes, bytes] | None:
        taken = super().take_response(data, method, ended)
        head, end, body = data.partition(b"\r\n\r\n")
        if taken is None and ended and end and b"content-length" in head.lower():
            return _LENGTH.sub(b"content-length: %d" % len(body), head) + end + body, b""
        return taken


class WritesFieldsUnread(Stub):
    """Speaks HTTP/2 with clients and writes their fields down as HTTP/1 without a look at them."""

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        first = await reader.readexactly(3)
        if first != b"PRI":
            reader.feed_data(b"")
            await _with_prefix(reader, first, writer, super()._serve)
            return
        config = h2.config.H2Configuration(client_side=False, header_encoding=None, validate_inbound_headers=False)
        peer = h2.connection.H2Connection(config)
        peer.initiate_connection()
        heads: dict[int, list] = {}
        bodies: dict[int, bytes] = {}
        received = first
        try:
            while received:
                for event in peer.receive_data(received):
                    if isinstance(event, h2.events.RequestReceived):
                        heads[event.stream_id], bodies[event.stream_id] = list(event.headers), b""
                    elif isinstance(event, h2.events.DataReceived):
                        bodies[event.stream_id] += event.data
                    elif isinstance(event, h2.events.StreamEnded):
                        await self._answer(peer, event.stream_id, heads[event.stream_id], bodies[event.stream_id])
                writer.write(peer.data_to_send())
                received = await reader.read(65_536)
        except (h2.exceptions.ProtocolError, ConnectionError, KeyError, asyncio.CancelledError):
            pass
        finally:
            writer.close()

    async def _answer(self, peer: h2.connection.H2Connection, stream: int, fields: list, body: bytes) -> None:
        head = dict(fields)
        lines = [b"%s %s HTTP/1.1" % (head.get(b":method", b"GET"), head.get(b":path", b"/")), b"host: site.example"]
        lines += [name + b": " + value for name, value in fields if not name.startswith(b":") and name != b"content-length"]
        raw = b"\r\n".join([*lines, b"content-length: %d" % len(body)]) + b"\r\n\r\n" + body
        answer = await self._exchange(head.get(b":method", b"GET"), raw)
        found = strict_http1.read_responses(answer, [head.get(b":method", b"GET")], eof=True).messages
        if found:
            kept = [(name, value) for name, value in found[0].fields if name != b"connection"]
            peer.send_headers(stream, [(b":status", b"%d" % found[0].status), *kept], end_stream=not found[0].body)
            if found[0].body:
                peer.send_data(stream, found[0].body, end_stream=True)


async def _with_prefix(reader: asyncio.StreamReader, first: bytes, writer: asyncio.StreamWriter, serve) -> None:
    """Serves as if `first` had not been read yet."""
    whole = asyncio.StreamReader()
    whole.feed_data(first)

    async def pump() -> None:
        while received := await reader.read(65_536):
            whole.feed_data(received)
        whole.feed_eof()

    pumping = asyncio.get_running_loop().create_task(pump())
    try:
        await serve(whole, writer)
    finally:
        pumping.cancel()
