"""Mutated HTTP/2 requests and responses: fields, header blocks in all forms of HPACK, frames, then random bytes."""

import random
import struct

from harness.hpack import Encoder, frames, integer
from harness.http2 import (
    CONTINUATION,
    DATA,
    END_HEADERS,
    END_STREAM,
    HEADERS,
    PADDED,
    PING,
    PREFACE,
    PRIORITY,
    PUSH_PROMISE,
    RST_STREAM,
    WINDOW_UPDATE,
    Fields,
    block,
    frame,
    settings,
)

from .mutate import mutate_bytes

_EVIL_VALUES = (
    *(b"1\r\nx-hidden: 1", b"1\nx", b"1\r", b"\x00", b"a\x00b", b" a", b"a ", b"\ta", b"", b"\xff\xfe", b"\x7f", b"a\x0bb"),
    b"1\r\n\r\nGET /hidden HTTP/1.1\r\nhost: hidden.example\r\n\r\n",
)
_EVIL_NAMES = (b"X-Upper", b"x y", b"x:", b"x\r\ny", b"x\x00", b"", b":x", b"x\xe9", b'x"', b"x: 1\r\nx-hidden", b":", b"x\n", b"x" * 3000)
_FRAMING: Fields = [
    *((b"transfer-encoding", b"chunked"), (b"transfer-encoding", b"identity"), (b"connection", b"close"), (b"connection", b"x-id")),
    *((b"keep-alive", b"1"), (b"upgrade", b"websocket"), (b"te", b"gzip"), (b"te", b"trailers"), (b"proxy-connection", b"close")),
    *((b"content-length", b"5"), (b"content-length", b"0"), (b"content-length", b""), (b"content-length", b"+5")),
    *((b"content-length", b"9223372036854775808"), (b"expect", b"100-continue"), (b"host", b"hidden.example")),
    *((b"cookie", b"a=1"), (b"cookie", b"b=2"), (b"x-forwarded-for", b"1.2.3.4"), (b"trailer", b"x-sum")),
]


def _pseudo(rng: random.Random, fields: Fields) -> Fields:
    """One thing about pseudo-fields goes wrong."""
    kind = rng.randrange(6)
    at = rng.randrange(min(4, len(fields)))
    name, value = fields[at]
    hidden = b"/hidden HTTP/1.1\r\nhost: hidden.example\r\n\r\nGET /x"
    evil = {
        b":method": (b"", b"get", b"GE T", b"GET /hidden HTTP/1.1\r\n\r\nGET", b"CONNECT", b"TRACE", b"M" * 70, b"HEAD", b"G\x00", b"OPTIONS"),
        b":path": (b"", b"x", b"*", b"/a b", b"/a#b", b"/\r\nx: y", hidden, b"http://hidden.example/", value + b"\x00", value + b"\xe9", b"/" + value),
        b":authority": (b"", b"a b", b"u@a", b"a/b", b"a\r\nx: y", b"a,b", b"hidden.example:80", b"[::1]", b"[::1", b"a:b"),
        b":scheme": (b"", b"https", b"ftp", b"http://hidden.example/?", b"HTTP", b"http\r\nx: y"),
        b":status": (b"", b"101", b"100", b"103", b"204", b"304", b"099", b"20", b"2000", b"200 OK", b"+20", b"999", b"200\r\nx: y"),
    }.get(name, (b"",))
    if kind == 0:
        return [*fields[:at], *fields[at + 1 :]]
    if kind == 1:
        return [*fields[: at + 1], (name, rng.choice((value, *evil))), *fields[at + 1 :]]
    if kind == 2:
        rest = [*fields[:at], *fields[at + 1 :]]
        rest.insert(rng.randint(0, len(rest)), (name, value))
        return rest
    if kind == 3:
        return [(rng.choice((b":protocol", b":status", b":x", b":path", b":Method")), rng.choice((b"websocket", b"200", b"/"))), *fields]
    return [*fields[:at], (name, rng.choice(evil)), *fields[at + 1 :]]


def _fields(rng: random.Random, fields: Fields, tricks: int) -> Fields:
    for _ in range(tricks):
        kind = rng.randrange(5)
        if kind == 0:
            fields = _pseudo(rng, fields)
        elif kind == 1:
            fields = [*fields, (b"x-a", rng.choice(_EVIL_VALUES))]
        elif kind == 2:
            fields = [*fields, (rng.choice(_EVIL_NAMES), rng.choice((b"1", *_EVIL_VALUES)))]
        elif kind == 3:
            fields = [*fields, rng.choice(_FRAMING)]
        else:
            # Earlier tricks may have taken the last field away.
            fields = [*fields, rng.choice(fields or _FRAMING)]
    return fields


def _body(rng: random.Random, stream: int, data: bytes, end: bool) -> list[bytes]:
    """DATA frames, some padded, some empty."""
    out = []
    while data or (end and not out):
        size = min(len(data), rng.choice((1, 5, 40, 2000)))
        piece, data = data[:size], data[size:]
        flags = END_STREAM if end and not data else 0
        if rng.random() < 0.15:
            padding = rng.choice((0, 1, 30, 255))
            piece, flags = bytes([padding]) + piece + bytes(padding), flags | PADDED
        out.append(frame(DATA, flags, stream, piece))
        if rng.random() < 0.05:
            out.append(frame(DATA, 0, stream) if not flags & END_STREAM else b"")
    return out


def _stray(rng: random.Random, stream: int, may_stall: bool) -> bytes:
    """A frame that belongs to no message. One that forbids streams or data from a backend only makes requests wait, which is
    no subject here."""
    least = 0 if may_stall else 65_535
    other = rng.choice((stream, stream, 0, stream + 2, max(stream - 2, 0), 2, 2**31 - 1))
    return rng.choice(
        (
            frame(PING, rng.choice((0, 0, 1)), 0, bytes(rng.choice((8, 8, 7)))),
            settings(s1=rng.choice((0, 100, 4096, 65_536))),
            settings(s4=max(least, rng.choice((0, 1, 65_535, 1 << 20, 1 << 31))), s5=rng.choice((16_384, 16_383, 1 << 20))),
            settings(s8=1, s3=rng.choice((0 if may_stall else 1, 1, 100)), s6=rng.choice((0, 100, 65_536)), s9999=1),
            frame(PRIORITY, 0, other, struct.pack(">IB", rng.choice((0, stream, 1)), 7)),
            frame(WINDOW_UPDATE, 0, other, struct.pack(">I", rng.choice((0, 1, 1000, (1 << 31) - 1)))),
            frame(RST_STREAM, 0, other, struct.pack(">I", rng.choice((0, 1, 8)))),
            frame(rng.choice((0x0A, 0x10, 0xBE, 0xFF)), rng.randrange(256), other, rng.randbytes(rng.randrange(20))),
            frame(DATA, rng.choice((0, END_STREAM)), other, b"stray"),
            frame(HEADERS, END_HEADERS | rng.choice((0, END_STREAM)), other, block([(b"x-stray", b"1")])),
            frame(CONTINUATION, END_HEADERS, stream, block([(b"x-stray", b"1")])),
            frame(PUSH_PROMISE, END_HEADERS, stream, struct.pack(">I", 2) + block([(b":method", b"GET"), (b":path", b"/hidden")])),
        )
    )


def _head(rng: random.Random, encoder: Encoder | None, stream: int, fields: Fields, end: bool, tricks: bool) -> list[bytes]:
    """A header block in frames. With an encoder in all forms of HPACK, else as literals, which leave the table alone."""
    data = encoder.block(fields) if encoder else block(fields)
    if tricks and rng.random() < 0.25:
        data = rng.choice(
            (
                lambda: mutate_bytes(rng, data, 1),
                lambda: integer(rng.choice((0, 100, 4096, 4097, 1 << 20)), 5, 0x20) + data,
                lambda: data + integer(rng.choice((0, 4096)), 5, 0x20),
                lambda: data + integer(rng.choice((0, 62, 100, 1 << 33)), 7, 0x80),
                lambda: data[: -rng.randint(1, 5)],
                lambda: data + b"\x00",
            )
        )()
    if len(data) < 2:
        return [frame(HEADERS, END_HEADERS | (END_STREAM if end else 0), stream, data)]
    return frames(rng, stream, data, end)


def _message(rng: random.Random, encoder: Encoder | None, stream: int, fields: Fields, body: bytes, tricks: int) -> list[bytes]:
    """All frames of one message, with so many mistakes."""
    of_fields = rng.randint(0, tricks)
    fields = _fields(rng, fields, of_fields)
    trailers: Fields | None = None
    if body and rng.random() < 0.2:
        trailers = _fields(rng, [(b"x-sum", b"1")], rng.choice((0, 0, 1)))
        if rng.random() < 0.2:
            trailers = [rng.choice(((b":path", b"/hidden"), (b":status", b"200"), (b"content-length", b"9"), (b"host", b"a"))), *trailers]
    out = _head(rng, encoder, stream, fields, not body and trailers is None, tricks > 0)
    if body:
        out += _body(rng, stream, body, trailers is None)
    if trailers is not None:
        out += _head(rng, encoder, stream, trailers, rng.random() < 0.9, tricks > 0)
    for _ in range(tricks - of_fields):
        kind = rng.randrange(7)
        at = rng.randrange(len(out))
        if kind <= 2:
            out.insert(rng.randint(0, len(out)), _stray(rng, stream, encoder is not None))
        elif kind == 3:
            out.insert(at, out[at])
        elif kind == 4 and len(out) > 1:
            del out[at]
        elif kind == 5 and len(out) > 1:
            other = rng.randrange(len(out))
            out[at], out[other] = out[other], out[at]
        elif out[at]:
            header = bytearray(out[at])
            where = rng.choice((3, 4, 4, 4, 8, 8, 2, 1))
            header[where] ^= 1 << rng.randrange(8)
            out[at] = bytes(header)
    return out


def requests(rng: random.Random, tag: bytes) -> bytes:
    """The bytes of a client's connection: preface, settings, one to three requests. Streams are below 100."""
    encoder = Encoder(rng, rng.choice((4096, 4096, 150)))
    out: list[bytes] = []
    for number in range(rng.choice((1, 1, 1, 2, 3))):
        own = b"%s.%d" % (tag, number)
        hidden = b"GET /hidden/" + own + b" HTTP/1.1\r\nhost: hidden.example\r\n\r\n"
        method = rng.choice((b"GET", b"POST", b"POST", b"PUT", b"HEAD", b"DELETE"))
        body = rng.choice((own, hidden, b"0\r\n\r\n" + hidden, own * 20)) if method in (b"POST", b"PUT") else b""
        fields = [(b":method", method), (b":scheme", b"http"), (b":authority", b"site.example"), (b":path", b"/f/" + own), (b"x-id", own)]
        if body and rng.random() < 0.4:
            length = len(body) if rng.random() < 0.6 else max(0, len(body) + rng.choice((-len(body), -7, -1, 1, 5)))
            fields.append((b"content-length", b"%d" % length))
        message = _message(rng, encoder, 2 * number + 1, fields, body, rng.choice((0, 0, 0, 1, 1, 2, 3)))
        # Behind the earlier requests, or among them.
        at = len(out) if rng.random() < 0.8 else rng.randint(0, len(out))
        out[at:at] = message
    data = b"".join(out)
    if rng.random() < 0.15:
        data = mutate_bytes(rng, data, rng.choice((1, 1, 2)))
    preface = PREFACE + rng.choice((settings(), settings(), settings(s1=0, s4=1 << 20), settings(s2=0, s3=100)))
    return (preface if rng.random() < 0.99 else mutate_bytes(rng, preface, 1)) + data


def response(rng: random.Random, tag: bytes, stream: int) -> bytes:
    """The frames of a response on this stream."""
    hidden = b"HTTP/1.1 200 OK\r\nx-hidden: " + tag + b"\r\ncontent-length: 6\r\n\r\nhidden"
    body = rng.choice((b"", tag, tag * 30, hidden, b"0\r\n\r\n" + hidden))
    tricks = rng.choice((0, 0, 0, 1, 1, 2, 3))
    status = rng.choice((b"200", b"200", b"200", b"201", b"204", b"304", b"400", b"404", b"500", b"503", b"299"))
    fields = [(b":status", status), (b"x-of", tag)]
    if rng.random() < 0.4:
        length = len(body) if rng.random() < 0.6 else max(0, len(body) + rng.choice((-len(body), -7, -1, 1, 5)))
        fields.append((b"content-length", b"%d" % length))
    out: list[bytes] = []
    if rng.random() < 0.1:
        interim = [(b":status", rng.choice((b"100", b"103", b"103", b"101", b"199"))), (b"link", b"</a>")]
        out += _head(rng, None, stream, interim, rng.random() < 0.1, False) * rng.choice((1, 1, 2))
    out += _message(rng, None, stream, fields, body, tricks)
    data = b"".join(out)
    return mutate_bytes(rng, data, rng.choice((1, 1, 2))) if rng.random() < 0.15 else data


def probe(stream: int, path: bytes, own: bytes) -> bytes:
    """A clean request that depends on no table of HPACK."""
    fields = [(b":method", b"GET"), (b":scheme", b"http"), (b":authority", b"site.example"), (b":path", path), (b"x-id", own)]
    return frame(HEADERS, END_HEADERS | END_STREAM, stream, block(fields))
