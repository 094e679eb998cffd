"""HTTP/2 frame by frame, without TLS: what a library would not send is what these tests send."""

import socket
import struct
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import hpack

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, PRIORITY, RST_STREAM, SETTINGS, PUSH_PROMISE, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = range(10)
END_STREAM, ACK, END_HEADERS, PADDED, PRIORITIZED = 0x1, 0x1, 0x4, 0x8, 0x20
ENABLE_CONNECT_PROTOCOL = 0x8
INITIAL_WINDOW_SIZE = 0x4

Fields = list[tuple[bytes, bytes]]


def frame(kind: int, flags: int, stream: int, payload: bytes = b"", length: int | None = None) -> bytes:
    """One frame; `length` is what its header says if that is to be a lie."""
    size = len(payload) if length is None else length
    return struct.pack(">BHBBI", size >> 16, size & 0xFFFF, kind, flags, stream) + payload


def settings(**values: int) -> bytes:
    """A SETTINGS frame of `s1=...`, by number."""
    return frame(SETTINGS, 0, 0, b"".join(struct.pack(">HI", int(key[1:]), value) for key, value in values.items()))


def block(fields: Fields) -> bytes:
    """Fields in HPACK without its tables and without Huffman: each literal, whatever is in it."""

    def text(value: bytes) -> bytes:
        size = len(value)
        if size < 127:
            return bytes([size]) + value
        size, out = size - 127, b"\x7f"
        while size >= 128:
            out += bytes([size & 0x7F | 0x80])
            size >>= 7
        return out + bytes([size]) + value

    return b"".join(b"\x00" + text(name) + text(value) for name, value in fields)


def headers(stream: int, fields: Fields, end: bool = True, flags: int = END_HEADERS) -> bytes:
    return frame(HEADERS, flags | (END_STREAM if end else 0), stream, block(fields))


def request(method: bytes = b"GET", path: bytes = b"/", *further: tuple[bytes, bytes]) -> Fields:
    return [(b":method", method), (b":scheme", b"http"), (b":authority", b"site.example"), (b":path", path), *further]


@dataclass
class Frame:
    kind: int
    flags: int
    stream: int
    payload: bytes


class Closed(Exception):
    """The peer closed the connection."""


@dataclass
class Answer:
    """What came on one stream."""

    fields: list[tuple[str, str]] = field(default_factory=list)
    body: bytes = b""
    trailers: list[tuple[str, str]] = field(default_factory=list)
    interim: list[int] = field(default_factory=list)
    ended: bool = False
    reset: int | None = None

    @property
    def status(self) -> int | None:
        return next((int(value) for name, value in self.fields if name == ":status"), None)

    def get(self, name: str) -> str | None:
        return next((value for key, value in self.fields if key == name), None)


class Connection:
    """The client's side of a connection. `reading` runs until a condition holds; SETTINGS and PING are acknowledged."""

    def __init__(self, sock: socket.socket, preface: bytes = PREFACE + settings()):
        self.sock = sock
        self._pending = b""
        self._decoder = hpack.Decoder()
        self._header_block: tuple[int, bool, bytes] | None = None
        self.answers: dict[int, Answer] = {}
        self.peer_settings: dict[int, int] = {}
        self.settings_acked = False
        self.goaway: int | None = None
        self.pongs: list[bytes] = []
        self.windows: dict[int, int] = {}
        self.closed = False
        self.give_window = True
        self.send(preface)

    @classmethod
    def to(cls, port: int, timeout: float = 10, preface: bytes = PREFACE + settings(), receive_buffer: int = 0) -> "Connection":
        sock = socket.socket()
        if receive_buffer:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        sock.settimeout(timeout)
        sock.connect(("127.0.0.1", port))
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return cls(sock, preface)

    def __enter__(self) -> "Connection":
        return self

    def __exit__(self, *_: object) -> None:
        self.sock.close()

    def send(self, data: bytes) -> None:
        self.sock.sendall(data)

    def answer(self, stream: int) -> Answer:
        return self.answers.setdefault(stream, Answer())

    def _next(self) -> Frame:
        while len(self._pending) < 9 or len(self._pending) < 9 + int.from_bytes(self._pending[:3]):
            try:
                piece = self.sock.recv(1 << 18)
            except ConnectionError:
                piece = b""
            if not piece:
                self.closed = True
                raise Closed
            self._pending += piece
        size = int.from_bytes(self._pending[:3])
        _, kind, flags, stream = struct.unpack(">3sBBI", self._pending[:9])
        payload, self._pending = self._pending[9 : 9 + size], self._pending[9 + size :]
        return Frame(kind, flags, stream & 0x7FFFFFFF, payload)

    def _take_block(self, stream: int, end: bool, data: bytes) -> None:
        fields = [(name, value) for name, value in self._decoder.decode(data, raw=False)]
        answer = self.answer(stream)
        status = next((int(value) for name, value in fields if name == ":status"), None)
        if status is not None and 100 <= status < 200:
            answer.interim.append(status)
        elif answer.fields:
            answer.trailers = fields
        else:
            answer.fields = fields
        answer.ended = answer.ended or end

    def step(self) -> Frame:
        """Reads one frame and takes note of it."""
        got = self._next()
        if got.kind in (HEADERS, CONTINUATION):
            stream, end, data = self._header_block or (got.stream, bool(got.flags & END_STREAM), b"")
            data += got.payload
            self._header_block = None if got.flags & END_HEADERS else (stream, end, data)
            if got.flags & END_HEADERS:
                self._take_block(stream, end, data)
        elif got.kind == DATA:
            answer = self.answer(got.stream)
            answer.body += got.payload
            answer.ended = answer.ended or bool(got.flags & END_STREAM)
            if got.payload and self.give_window:
                grant = struct.pack(">I", len(got.payload))
                self._try_send(frame(WINDOW_UPDATE, 0, 0, grant) + frame(WINDOW_UPDATE, 0, got.stream, grant))
        elif got.kind == RST_STREAM:
            self.answer(got.stream).reset = int.from_bytes(got.payload)
        elif got.kind == SETTINGS and not got.flags & ACK:
            for at in range(0, len(got.payload), 6):
                key, value = struct.unpack(">HI", got.payload[at : at + 6])
                self.peer_settings[key] = value
            self._try_send(frame(SETTINGS, ACK, 0))
        elif got.kind == SETTINGS:
            self.settings_acked = True
        elif got.kind == PING and not got.flags & ACK:
            self._try_send(frame(PING, ACK, 0, got.payload))
        elif got.kind == PING:
            self.pongs.append(got.payload)
        elif got.kind == GOAWAY:
            self.goaway = int.from_bytes(got.payload[4:8])
        elif got.kind == WINDOW_UPDATE:
            self.windows[got.stream] = self.windows.get(got.stream, 0) + int.from_bytes(got.payload)
        return got

    def _try_send(self, data: bytes) -> None:
        try:
            self.send(data)
        except OSError:
            pass  # its end is seen by the next read

    def reading(self, until: Callable[[], bool], seconds: float = 5) -> bool:
        """Reads until `until()` is true (returns True), the connection ends or time is up (False)."""
        deadline = time.monotonic() + seconds
        while not until():
            left = deadline - time.monotonic()
            if left <= 0:
                return False
            self.sock.settimeout(left)
            try:
                self.step()
            except (Closed, TimeoutError):
                return bool(until())
        return True

    def fetch(self, stream: int, fields: Fields, body: bytes = b"", seconds: float = 10) -> Answer:
        """One request and its answer. The body has to fit the windows at hand."""
        self.send(headers(stream, fields, end=not body) + (data(stream, body) if body else b""))
        self.reading(lambda: self.answer(stream).ended or self.answer(stream).reset is not None, seconds)
        return self.answer(stream)


def data(stream: int, body: bytes, end: bool = True) -> bytes:
    """A body in frames of at most 16 KiB."""
    pieces = [body[at : at + 16_384] for at in range(0, len(body), 16_384)] or [b""]
    return b"".join(
        frame(DATA, END_STREAM if end and number == len(pieces) - 1 else 0, stream, piece) for number, piece in enumerate(pieces)
    )
