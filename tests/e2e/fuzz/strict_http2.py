"""HTTP/2 by the letter of RFC 9113, for either side of a connection.

The question is only which messages the bytes contain. An error that changes no message (a wrong window, a PING of seven bytes) is
therefore passed over: a proxy may end the connection there and contain less.

Some malformed responses of backends have one meaning all the same, and h2 (the Rust library) passes them on without the
fault: pseudo-fields of requests, an interim 101, pseudo-fields in trailers, and any bad field in a header block with a CONTINUATION.
They are read here as without it, so that a run does not stop at them. A request gets no such leave. An error after which streams or header blocks are
unknown ends the reading. A malformed message is dropped with its stream; what follows the end of a stream is dropped too.
"""

import copy
import re
from dataclasses import dataclass, field

from harness.http2 import CONTINUATION, DATA, END_HEADERS, END_STREAM, HEADERS, PADDED, PREFACE, PRIORITIZED, RST_STREAM, SETTINGS

from .message import Fields, Malformed, Request, Response
from .strict_hpack import Decoder

_NAME = re.compile(rb"[!#$%&'*+.^_`|~0-9a-z-]+")
_VALUE = re.compile(rb"(?:[\x21-\x7e\x80-\xff](?:[\t\x20-\x7e\x80-\xff]*[\x21-\x7e\x80-\xff])?)?")
_METHOD = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_PATH = re.compile(rb"(/[\x21\x22\x24-\x7e]*)")
_HOST = re.compile(rb"(?:\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._~!$&'()*+;=-]+)(?::[0-9]*)?")
_OF_THE_CONNECTION = {b"connection", b"keep-alive", b"proxy-connection", b"transfer-encoding", b"upgrade"}
_OF_REQUESTS = {b":method", b":scheme", b":authority", b":path", b":protocol"}
_DEPENDS_ON_ITSELF = "depends on itself"
_MAX_FRAME = 16_384
_MAX_LENGTH = (1 << 63) - 1
_ACK = 0x1
_INITIAL_WINDOW_SIZE = 0x4


@dataclass
class Stream:
    """One stream as its receiver sees it."""

    message: Request | Response | None = None
    ended: bool = False
    reset: bool = False
    """By the sender."""
    malformed: str | None = None
    interim: list[tuple[int, Fields]] = field(default_factory=list)


def _common(fields: Fields, pseudo: set[bytes], forgiving: bool = False) -> tuple[dict[bytes, bytes], Fields]:
    """Pseudo-fields and fields, each valid by itself. `forgiving` leaves out the others."""
    found: dict[bytes, bytes] = {}
    rest: Fields = []
    for name, value in fields:
        if not _VALUE.fullmatch(value):
            if forgiving:
                continue
            raise Malformed(f"value {value[:60]!r}")
        if name.startswith(b":"):
            if rest or name not in pseudo or name in found:
                if forgiving:
                    continue
                raise Malformed(f"pseudo-field {name[:40]!r}")
            found[name] = value
            continue
        if name == b"te" and value.lower() != b"trailers":
            # Malformed, but h2 lets it pass in a block with a CONTINUATION. No proxy forwards it, so it changes no message.
            continue
        if not _NAME.fullmatch(name) or name in _OF_THE_CONNECTION:
            if forgiving:
                continue
            raise Malformed(f"field {name[:40]!r}")
        rest.append((name, value))
    return found, rest


def _length(fields: Fields) -> int | None:
    lengths = [value for name, value in fields if name == b"content-length"]
    if len(lengths) > 1 or not all(re.fullmatch(rb"[0-9]+", value) and int(value) <= _MAX_LENGTH for value in lengths):
        raise Malformed("length")
    return int(lengths[0]) if lengths else None


def read_request_head(fields: Fields) -> Request:
    """A request from its first header block."""
    pseudo, rest = _common(fields, {b":method", b":scheme", b":authority", b":path"})
    method, path = pseudo.get(b":method", b""), pseudo.get(b":path", b"")
    if not _METHOD.fullmatch(method):
        raise Malformed("method")
    hosts = [value for name, value in rest if name == b"host"]
    authority = pseudo.get(b":authority")
    names = ([authority] if authority is not None else []) + hosts
    # A list of addresses, as gRPC's C core writes it, names no host.
    lists = authority is not None and b"," in authority and not hosts and bool(_HOST.fullmatch(authority.partition(b",")[0]))
    is_one = len(hosts) <= 1 and len({name.lower() for name in names}) == 1 and bool(_HOST.fullmatch(names[0]))
    if not lists and not is_one:
        raise Malformed("authority")
    host = None if lists else names[0]
    if method == b"CONNECT":
        if set(pseudo) != {b":method", b":authority"}:
            raise Malformed("CONNECT")
        return Request(method, names[0], host, rest, length=_length(rest))
    # RFC 9113, 8.3.1 allows any scheme, and the proxy refuses all but two. It sees none where a request names no host, since
    # h2 drops it; nor does the backend, which gets the scheme of the proxy's own connection.
    is_web = pseudo.get(b":scheme", b"").lower() in (b"http", b"https")
    if not is_web and not (lists and b":scheme" in pseudo):
        raise Malformed("scheme")
    if not _PATH.fullmatch(path) and not (path == b"*" and method == b"OPTIONS"):
        raise Malformed("path")
    return Request(method, path, host, rest, length=_length(rest))


def read_response_head(fields: Fields, forgiving: bool) -> Response:
    pseudo, rest = _common(fields, {b":status", *_OF_REQUESTS}, forgiving)
    if not re.fullmatch(rb"[1-9][0-9][0-9]", pseudo.get(b":status", b"")):
        raise Malformed("status")
    _length(rest)
    return Response(int(pseudo[b":status"]), rest)


class Reader:
    """Reads what one side sends. `streams` has a message per stream; `fault` ends the reading.

    With `methods` it reads a server's bytes: the method of the request by stream. Without, a client's, with the preface.
    """

    def __init__(self, methods: dict[int, bytes | None] | None = None):
        self.methods = methods
        self.streams: dict[int, Stream] = {}
        self.fault: str | None = None
        self.completed: list[int] = []
        """Streams in the order in which their messages were complete."""
        self.pending = b"" if methods is not None else None
        self.resets: set[int] = set()
        self.goaway = False
        self.window = 65_535
        """The smallest initial window that the sender ever gave."""
        self.pings: list[bytes] = []
        self.settings: list[bytes] = []
        self._preface = b""
        self._decoder = Decoder()
        self._block: tuple[int, bool, bytes] | None = None
        self._first = True
        self._highest = 0

    def forget(self, stream: int) -> None:
        """Drops a stream that is over, so that a long connection stays cheap."""
        self.streams.pop(stream, None)
        self.resets.discard(stream)

    @property
    def within_block(self) -> bool:
        """A header block began and did not end."""
        return self._block is not None

    def feed(self, data: bytes) -> None:
        if self.fault:
            return
        try:
            if self.pending is None:
                self._preface += data
                if not PREFACE.startswith(self._preface[: len(PREFACE)]):
                    raise Malformed("preface")
                if len(self._preface) < len(PREFACE):
                    return
                data, self.pending = self._preface[len(PREFACE) :], b""
            data = self.pending + data
            at = 0
            while len(data) - at >= 9:
                size = int.from_bytes(data[at : at + 3])
                if size > _MAX_FRAME:
                    raise Malformed("frame too large")
                if len(data) - at < 9 + size:
                    break
                kind, flags = data[at + 3], data[at + 4]
                stream = int.from_bytes(data[at + 5 : at + 9]) & 0x7FFFFFFF
                self._frame(kind, flags, stream, data[at + 9 : at + 9 + size])
                at += 9 + size
            self.pending = data[at:]
        except Malformed as problem:
            self.fault = str(problem)

    def _frame(self, kind: int, flags: int, stream: int, payload: bytes) -> None:
        if self._first and (kind != SETTINGS or flags & _ACK):
            raise Malformed("no SETTINGS")
        self._first = False
        if self._block and (kind != CONTINUATION or stream != self._block[0]):
            if not self._is_abandoned():
                raise Malformed("header block interrupted")
            self._block = None
        if kind == HEADERS:
            if flags & PADDED:
                payload = _unpadded(payload)
            if flags & PRIORITIZED:
                if len(payload) < 5:
                    raise Malformed("priority")
                if int.from_bytes(payload[:4]) & 0x7FFFFFFF == stream:
                    # RFC 7540, 5.3.1: an error of the stream. Its fields still count for the table.
                    self.streams.setdefault(stream, Stream()).malformed = _DEPENDS_ON_ITSELF
                payload = payload[5:]
            self._take_block(stream, bool(flags & END_STREAM), payload, bool(flags & END_HEADERS))
        elif kind == CONTINUATION:
            if self._block is None:
                raise Malformed("CONTINUATION of nothing")
            _, end, data = self._block
            self._take_block(stream, end, data + payload, bool(flags & END_HEADERS))
        elif kind == DATA:
            if flags & PADDED:
                payload = _unpadded(payload)
            self._data(stream, payload, bool(flags & END_STREAM))
        elif kind == RST_STREAM and len(payload) == 4:
            self.resets.add(stream)
            if stream in self.streams:
                self.streams[stream].reset = True
        elif kind == 0x7:
            self.goaway = True
        elif kind == 0x6 and not flags & _ACK:
            self.pings.append(payload)
        elif kind == SETTINGS and not flags & _ACK:
            self.settings.append(payload)
            for at in range(0, len(payload) - 5, 6):
                if int.from_bytes(payload[at : at + 2]) == _INITIAL_WINDOW_SIZE:
                    self.window = min(self.window, int.from_bytes(payload[at + 2 : at + 6]))

    def _take_block(self, stream: int, end: bool, data: bytes, whole: bool) -> None:
        if stream == 0 or (self.methods is None and stream % 2 == 0):
            raise Malformed("HEADERS on a stream that cannot be")
        continued = self._block is not None
        self._block = None if whole else (stream, end, data)
        if whole:
            self._headers(stream, end, self._fields(stream, data), forgiving=continued and self.methods is not None)

    def _is_abandoned(self) -> bool:
        """Whether h2 has reset the stream of an unfinished block of a response, and does not wait for its rest."""
        number, _, data = self._block
        if self.methods is None:
            return False
        stream = self.streams.get(number)
        decoder = copy.deepcopy(self._decoder)
        try:
            decoder.decode(data)
        except Malformed:
            pass
        return (stream is not None and stream.malformed == _DEPENDS_ON_ITSELF) or _has_fault(decoder.fields)

    def _fields(self, number: int, data: bytes) -> Fields:
        """A header block. h2 does not read that of a response whose stream depends on itself, nor beyond a malformed field: faults
        of HPACK there end no connection."""
        if self.methods is None:
            return self._decoder.decode(data)
        stream = self.streams.get(number)
        if stream is not None and stream.malformed == _DEPENDS_ON_ITSELF:
            return []
        try:
            return self._decoder.decode(data)
        except Malformed:
            if _has_fault(self._decoder.fields):
                return self._decoder.fields
            raise

    def _headers(self, number: int, end: bool, fields: Fields, forgiving: bool) -> None:
        stream = self.streams.get(number)
        if stream is None or (stream.message is None and not stream.malformed and not stream.interim):
            if self.methods is None and number not in self.streams and number <= self._highest:
                # A stream that was closed unused: it begins no message, and its block was read for the table.
                return
            self._highest = max(self._highest, number)
            stream = self.streams.setdefault(number, stream or Stream())
        if stream.ended or stream.malformed or stream.reset:
            return
        try:
            if stream.message is None:
                self._head(stream, end, fields, forgiving)
            else:
                pseudo = set() if self.methods is None else {b":status", *_OF_REQUESTS}
                _, rest = _common(fields, pseudo, forgiving)
                if not end:
                    raise Malformed("trailers that do not end")
                stream.message.trailers = rest
        except Malformed as problem:
            stream.malformed = str(problem)
            return
        if end and stream.message is not None:
            self._end(number, stream)

    def _head(self, stream: Stream, end: bool, fields: Fields, forgiving: bool) -> None:
        if self.methods is None:
            stream.message = read_request_head(fields)
            return
        response = read_response_head(fields, forgiving)
        if 100 <= response.status < 200:
            if end:
                raise Malformed("interim response that ends, or 101")
            stream.interim.append((response.status, response.fields))
        else:
            response.interim = stream.interim
            stream.message = response

    def _data(self, number: int, payload: bytes, end: bool) -> None:
        stream = self.streams.get(number)
        if number == 0:
            raise Malformed("DATA on stream 0")
        if stream is None:
            # It belongs to no message. (Of a server's frames only the client knows whether the stream is open.)
            return
        if stream.ended or stream.malformed or stream.reset:
            return
        if stream.message is None:
            stream.malformed = "DATA before the head"
            return
        stream.message.body += payload
        if end:
            self._end(number, stream)

    def _end(self, number: int, stream: Stream) -> None:
        stream.ended = True
        message = stream.message
        method = None if self.methods is None else self.methods.get(number)
        length = _length(message.fields)
        bodiless = method == b"HEAD" or (method is not None and message.status in (204, 304))
        if self.methods is not None and method is None and not message.body:
            # Perhaps to HEAD: nobody can tell.
            length = None
        expected = 0 if bodiless else length
        if expected is not None and len(message.body) != expected:
            stream.malformed = "length unlike the body"
            return
        message.complete = True
        self.completed.append(number)


def _has_fault(fields: Fields) -> bool:
    try:
        _common(fields, {b":status", *_OF_REQUESTS})
    except Malformed:
        return True
    return False


def _unpadded(payload: bytes) -> bytes:
    if not payload or payload[0] >= len(payload):
        raise Malformed("padding")
    return payload[1 : len(payload) - payload[0]]
