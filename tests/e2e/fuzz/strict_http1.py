"""HTTP/1 by the letter of RFC 9112: bytes that have two readings are no message.

Three tolerances, all in RFC 9112 or documented in `plimsoll-http1`: empty lines before a request; chunk extensions; and for responses
of backends (`lenient`) lines that end without CR, equal lengths that are repeated, and blanks after a chunk's size.
"""

import re

from .message import Fields, Malformed, Reading, Request, Response

_START = re.compile(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]+) ([\x21\x22\x24-\x7e]+) HTTP/(\d)\.(\d)")
_STATUS = re.compile(rb"HTTP/1\.(\d) ([1-9]\d\d)(?: [\t\x20-\x7e\x80-\xff]*)?")
_FIELD = re.compile(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]+):([\t\x20-\x7e\x80-\xff]*)")
_HOST = re.compile(rb"(?:\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._~!$&'()*+;=-]+)(?::[0-9]*)?")
_ABSOLUTE = re.compile(rb"https?://([^/?#]*)(.*)", re.IGNORECASE)
_CHUNK = re.compile(rb"([0-9A-Fa-f]{1,16})([ \t]*;[\t\x20-\x7e\x80-\xff]*)?")
_PADDED_CHUNK = re.compile(rb"([0-9A-Fa-f]{1,16})[ \t]*(;[\t\x20-\x7e\x80-\xff]*)?")
_QUOTED = re.compile(rb'"(?:[^"\\]|\\.)*"')
# Larger lengths become negative numbers in some programs (RFC 9110, 8.6).
_MAX_LENGTH = (1 << 63) - 1


class _Incomplete(Exception):
    """More bytes are needed."""


class _Cursor:
    def __init__(self, data: bytes, lenient: bool, at: int = 0):
        self.data, self.lenient, self.at = data, lenient, at

    def line(self, lenient: bool | None = None) -> bytes:
        lenient = self.lenient if lenient is None else lenient
        end = self.data.find(b"\n", self.at)
        if end < 0:
            raise _Incomplete
        line = self.data[self.at : end]
        self.at = end + 1
        if line.endswith(b"\r"):
            return line[:-1]
        if not lenient:
            raise Malformed("line without CR")
        return line

    def fields(self) -> Fields:
        fields = []
        while line := self.line():
            match = _FIELD.fullmatch(line)
            if match is None:
                raise Malformed(f"field line {line[:60]!r}")
            fields.append((match[1].lower(), match[2].strip(b" \t")))
        return fields

    def chunk_size(self) -> int:
        line = self.line(lenient=False)
        match = (_PADDED_CHUNK if self.lenient else _CHUNK).fullmatch(line)
        if match is None or (match[2] and b'"' in _QUOTED.sub(b"", match[2])):
            raise Malformed(f"chunk size {line[:60]!r}")
        return int(match[1], 16)

    def body(self, message: Request | Response, length: int | None, chunked: bool) -> None:
        """Reads a body into the message, as far as it goes."""
        if not chunked:
            message.body = self.data[self.at : self.at + (length or 0)]
            self.at += len(message.body)
            if len(message.body) < (length or 0):
                raise _Incomplete
            return
        while size := self.chunk_size():
            data = self.data[self.at : self.at + size]
            message.body += data
            self.at += len(data)
            if len(data) < size:
                raise _Incomplete
            end = self.data[self.at : self.at + 2]
            if end != b"\r\n":
                if b"\r\n".startswith(end):
                    raise _Incomplete
                raise Malformed("chunk longer than its size")
            self.at += 2
        message.trailers = self.fields()


def _framing(fields: Fields, is_1_1: bool, lenient: bool) -> tuple[int | None, bool]:
    """Announced length, and whether the body is chunked."""
    lengths = [value for name, value in fields if name == b"content-length"]
    codings = [value for name, value in fields if name == b"transfer-encoding"]
    if lengths and codings:
        raise Malformed("length and coding")
    if codings:
        if lenient:
            codings = [member.strip(b" \t") for value in codings for member in value.split(b",") if member.strip(b" \t")]
        if [coding.lower() for coding in codings] != [b"chunked"] or not is_1_1:
            raise Malformed(f"transfer-encoding {codings}")
        return None, True
    if not lengths:
        return None, False
    if len(lengths) > 1 and not (lenient and len({int(value) if value.isdigit() else value for value in lengths}) == 1):
        raise Malformed("two lengths")
    if not all(re.fullmatch(rb"[0-9]+", value) and int(value) <= _MAX_LENGTH for value in lengths):
        raise Malformed(f"length {lengths[0][:40]!r}")
    return int(lengths[0]), False


def _target(method: bytes, target: bytes) -> tuple[bytes, bytes | None]:
    """The target in origin form, and the host that it names."""
    if method == b"CONNECT":
        if not _HOST.fullmatch(target):
            raise Malformed("authority")
        return target, target
    if target.startswith(b"/") or (target == b"*" and method == b"OPTIONS"):
        return target, None
    match = _ABSOLUTE.fullmatch(target)
    if match is None or not _HOST.fullmatch(match[1]):
        raise Malformed(f"target {target[:60]!r}")
    path = match[2]
    if not path:
        path = b"*" if method == b"OPTIONS" else b"/"
    return (b"/" + path if path.startswith(b"?") else path), match[1]


def _request(cursor: _Cursor) -> Request:
    start = _START.fullmatch(cursor.line())
    if start is None or start[3] != b"1":
        raise Malformed("request line")
    is_1_1 = start[4] != b"0"
    fields = cursor.fields()
    target, host = _target(start[1], start[2])
    hosts = [value for name, value in fields if name == b"host"]
    if len(hosts) > 1 or (is_1_1 and not hosts) or not all(_HOST.fullmatch(value) for value in hosts):
        raise Malformed("host")
    if is_1_1 and any(name == b"expect" and value.lower() != b"100-continue" for name, value in fields):
        # It is answered with 417 in place of being read (RFC 9110, 10.1.1).
        raise Malformed("expectation")
    length, chunked = _framing(fields, is_1_1, lenient=False)
    request = Request(start[1], target, host or (hosts[0] if hosts else None), fields, length=length)
    # A head that is complete stays, whatever comes of the body.
    cursor.begun = request
    cursor.body(request, length, chunked)
    request.complete = True
    return request


def read_requests(data: bytes) -> Reading:
    """All requests that a client's or a proxy's bytes contain."""
    reading, cursor = Reading(), _Cursor(data, lenient=False)
    try:
        while True:
            while cursor.data.startswith(b"\r\n", cursor.at):
                cursor.at += 2
            reading.rest = data[cursor.at :]
            cursor.begun = None
            if cursor.at >= len(data):
                break
            reading.messages.append(_request(cursor))
    except _Incomplete:
        reading.partial = cursor.begun
    except Malformed as problem:
        reading.partial, reading.fault = cursor.begun, str(problem)
    return reading


def _head(cursor: _Cursor) -> tuple[int, bool, Fields]:
    start = _STATUS.fullmatch(cursor.line())
    if start is None:
        raise Malformed("status line")
    return int(start[2]), start[1] != b"0", cursor.fields()


def _response(cursor: _Cursor, method: bytes, eof: bool) -> Response:
    interim = []
    while True:
        status, is_1_1, fields = _head(cursor)
        bodiless = method == b"HEAD" or status in (101, 204, 304) or (method == b"CONNECT" and status < 300)
        # A coding says nothing about a body that is not there.
        is_irrelevant = bodiless and cursor.lenient and not any(name == b"content-length" for name, _ in fields)
        length, chunked = (None, False) if is_irrelevant else _framing(fields, is_1_1, cursor.lenient)
        if not 100 <= status < 200 or status == 101:
            break
        if chunked or length:
            raise Malformed("interim response with a body")
        interim.append((status, fields))
    response = Response(status, fields, interim=interim)
    cursor.begun = response
    if bodiless:
        pass
    elif chunked or length is not None:
        cursor.body(response, length, chunked)
    else:
        response.body = cursor.data[cursor.at :]
        cursor.at = len(cursor.data)
        if not eof:
            raise _Incomplete
    response.complete = True
    return response


def read_responses(data: bytes, methods: list[bytes], eof: bool, lenient: bool = False) -> Reading:
    """The responses to requests with these methods. `eof`: the connection ended in order behind the bytes."""
    reading, cursor = Reading(rest=data), _Cursor(data, lenient)
    try:
        for method in methods:
            cursor.begun = None
            if cursor.at >= len(data):
                return reading
            reading.messages.append(_response(cursor, method, eof))
            reading.rest = data[cursor.at :]
    except _Incomplete:
        reading.partial = cursor.begun
    except Malformed as problem:
        reading.partial, reading.fault = cursor.begun, str(problem)
    return reading
