"""HTTP/2 (RFC 9113): requests that are no requests, frames that are out of place, and what would turn into something else when
it is written down as HTTP/1 for the backend.

A malformed request is a stream error: RST_STREAM, or a status of 400 and more before it; whoever ends the connection does
no wrong either. An error of the connection ends it.
"""

import struct
from dataclasses import dataclass
from enum import Enum, auto

from harness.http2 import (
    ACK,
    CONTINUATION,
    DATA,
    END_HEADERS,
    END_STREAM,
    GOAWAY,
    HEADERS,
    PADDED,
    PING,
    PREFACE,
    PRIORITIZED,
    PRIORITY,
    PUSH_PROMISE,
    RST_STREAM,
    SETTINGS,
    WINDOW_UPDATE,
    block,
    data,
    frame,
    headers,
    request,
    settings,
)

from .row import Seen


class Fate(Enum):
    """What has to come of a row."""

    STREAM_ENDS = auto()
    """The stream is refused, or the whole connection ends."""
    CONNECTION_ENDS = auto()
    SERVED = auto()


@dataclass(frozen=True)
class Row:
    """`sent` follows `preface`; `seen` is what the backend gets when the request on stream 1 is served.

    `by_length`: by its length the request is whole before the fault comes, so that it may go on as it said it is.
    """

    name: str
    sent: bytes
    section: str
    fate: Fate
    seen: Seen | None = None
    preface: bytes = PREFACE + settings()
    by_length: bool = False


def bad(name: str, sent: bytes, section: str) -> Row:
    return Row(name, sent, section, Fate.STREAM_ENDS)


def fatal(name: str, sent: bytes, section: str, preface: bytes = PREFACE + settings()) -> Row:
    return Row(name, sent, section, Fate.CONNECTION_ENDS, preface=preface)


def good(name: str, sent: bytes, section: str, seen: Seen) -> Row:
    return Row(name, sent, section, Fate.SERVED, seen)


def field(name: bytes, value: bytes) -> bytes:
    return headers(1, request(b"GET", b"/", (name, value)))


def pseudo(**values: bytes | None) -> bytes:
    """A request with these pseudo-fields set, or left out."""
    fields = dict(request()) | {b":" + name.encode(): value for name, value in values.items()}
    return headers(1, [(name, value) for name, value in fields.items() if value is not None])


def with_body(*further: tuple[bytes, bytes], body: bytes = b"abcde") -> bytes:
    return headers(1, request(b"POST", b"/", *further), end=False) + data(1, body)


def with_trailers(fields: list[tuple[bytes, bytes]], end: bool = True) -> bytes:
    return headers(1, request(b"POST"), end=False) + data(1, b"abcde", end=False) + headers(1, fields, end=end)


GET = headers(1, request())
PLAIN = Seen("GET", "/")
GROW = struct.pack(">I", 1)

# fmt: off
REQUESTS = (
    bad("name-in-capitals", field(b"X-A", b"1"), "8.2.1"),
    bad("empty-name", field(b"", b"1"), "8.2.1"),
    bad("space-in-name", field(b"x a", b"1"), "8.2.1"),
    bad("colon-in-name", field(b"x-a: 1\r\nx-b", b"1"), "8.2.1"),
    bad("colon-at-end-of-name", field(b"x-a:", b"1"), "8.2.1"),
    bad("nul-in-name", field(b"x\x00a", b"1"), "8.2.1"),
    bad("crlf-in-name", field(b"x-a\r\nx-b", b"1"), "8.2.1"),
    bad("delete-in-name", field(b"x\x7fa", b"1"), "8.2.1"),
    bad("non-ascii-in-name", field(b"x-\xe9", b"1"), "8.2.1"),
    bad("cr-in-value", field(b"x-a", b"1\r2"), "8.2.1"),
    bad("lf-in-value", field(b"x-a", b"1\n2"), "8.2.1"),
    bad("crlf-and-field-in-value", field(b"x-a", b"1\r\ntransfer-encoding: chunked"), "8.2.1"),
    bad("crlf-and-request-in-value", field(b"x-a", b"1\r\n\r\nGET /hidden HTTP/1.1\r\nhost: a"), "8.2.1"),
    bad("nul-in-value", field(b"x-a", b"1\x002"), "8.2.1"),
    bad("space-before-value", field(b"x-a", b" 1"), "8.2.1"),
    bad("space-after-value", field(b"x-a", b"1 "), "8.2.1"),
    bad("tab-after-value", field(b"x-a", b"1\t"), "8.2.1"),
    bad("connection", field(b"connection", b"close"), "8.2.2"),
    bad("keep-alive", field(b"keep-alive", b"timeout=5"), "8.2.2"),
    bad("proxy-connection", field(b"proxy-connection", b"keep-alive"), "8.2.2"),
    bad("upgrade", field(b"upgrade", b"websocket"), "8.2.2"),
    bad("te-of-gzip", field(b"te", b"gzip"), "8.2.2"),
    good("te-of-trailers", field(b"te", b"trailers"), "8.2.2", PLAIN),
    bad("transfer-encoding", field(b"transfer-encoding", b"chunked"), "8.2.2"),
    bad("transfer-encoding-with-body (h2.te)", with_body((b"transfer-encoding", b"chunked"), body=b"0\r\n\r\nGET /hidden HTTP/1.1\r\n\r\n"), "8.2.2"),
    bad("transfer-encoding-of-identity", field(b"transfer-encoding", b"identity"), "8.2.2"),
    # Pseudo-fields.
    bad("no-method", pseudo(method=None), "8.3.1"),
    bad("no-scheme", pseudo(scheme=None), "8.3.1"),
    bad("no-path", pseudo(path=None), "8.3.1"),
    bad("no-path-and-host-for-authority", headers(1, [(b":method", b"GET"), (b":scheme", b"http"), (b"host", b"a.example")]), "8.3.1"),
    bad("nothing-at-all", headers(1, []), "8.3.1"),
    bad("method-twice", headers(1, [(b":method", b"GET"), *request()]), "8.3"),
    bad("path-twice", headers(1, [(b":path", b"/hidden"), *request()]), "8.3"),
    bad("authority-twice", headers(1, [(b":authority", b"other.example"), *request()]), "8.3"),
    bad("unknown-pseudo-field", headers(1, [(b":other", b"1"), *request()]), "8.3"),
    bad("status-in-a-request", headers(1, [(b":status", b"200"), *request()]), "8.3"),
    bad("protocol-without-connect", headers(1, [(b":protocol", b"websocket"), *request()]), "8441 4"),
    bad("pseudo-after-field", headers(1, [(b":method", b"GET"), (b":scheme", b"http"), (b"x-a", b"1"), (b":path", b"/")]), "8.3"),
    bad("empty-path", pseudo(path=b""), "8.3.1"),
    bad("path-without-slash", pseudo(path=b"a"), "8.3.1"),
    bad("path-of-asterisk-for-get", pseudo(path=b"*"), "8.3.1"),
    bad("path-that-is-absolute", pseudo(path=b"http://other.example/"), "8.3.1"),
    bad("path-with-space", pseudo(path=b"/a b"), "8.3.1"),
    bad("path-that-ends-the-request-line", pseudo(path=b"/ HTTP/1.1\r\nx-a: 1\r\nx-b: "), "8.3.1"),
    bad("path-with-crlf", pseudo(path=b"/\r\nx-a: 1"), "8.3.1"),
    bad("path-with-nul", pseudo(path=b"/a\x00"), "8.3.1"),
    bad("path-with-fragment", pseudo(path=b"/a#b"), "8.3.1"),
    bad("query-with-fragment", pseudo(path=b"/a?b#c"), "8.3.1"),
    bad("path-of-nothing-but-a-fragment", pseudo(path=b"#a"), "8.3.1"),
    bad("empty-method", pseudo(method=b""), "8.3.1"),
    bad("method-with-space", pseudo(method=b"GET /hidden HTTP/1.1"), "8.3.1"),
    bad("method-with-crlf", pseudo(method=b"GET / HTTP/1.1\r\nx-a: 1\r\n\r\nGET"), "8.3.1"),
    bad("method-too-long", pseudo(method=b"M" * 65), "9110 15.6.2"),
    bad("method-in-lower-case", pseudo(method=b"post"), "9110 9.1"),
    bad("method-in-mixed-case", pseudo(method=b"propFind"), "9110 9.1"),
    good("unknown-method-in-lower-case", pseudo(method=b"brew"), "9110 9.1", Seen("brew", "/")),
    good("long-method", pseudo(method=b"M" * 64), "9110 9.1", Seen("M" * 64, "/")),
    bad("scheme-with-crlf", pseudo(scheme=b"http\r\nx-a: 1"), "8.3.1"),
    bad("scheme-with-path (h2 request line)", pseudo(scheme=b"http://other.example/?"), "8.3.1"),
    bad("authority-with-crlf", pseudo(authority=b"a\r\nx-a: 1"), "8.3.1"),
    bad("authority-with-space", pseudo(authority=b"site example"), "8.3.1"),
    bad("authority-with-user", pseudo(authority=b"me@site.example"), "8.3.1"),
    bad("authority-with-path", pseudo(authority=b"site.example/a"), "8.3.1"),
    bad("empty-authority", pseudo(authority=b""), "8.3.1"),
    bad("neither-authority-nor-host", pseudo(authority=None), "8.3.1"),
    bad("host-unlike-authority", field(b"host", b"other.example"), "8.3.1"),
    bad("two-hosts", headers(1, [*request(), (b"host", b"site.example"), (b"host", b"site.example")]), "8.3.1"),
    good("host-like-authority", field(b"host", b"site.example"), "8.3.1", Seen("GET", "/", fields={"host": "site.example"})),
    good("host-for-authority", headers(1, [(b":method", b"GET"), (b":scheme", b"http"), (b":path", b"/"), (b"host", b"a.example")]), "8.3.1", Seen("GET", "/", fields={"host": "a.example"})),
    bad("connect", headers(1, [(b":method", b"CONNECT"), (b":authority", b"site.example:443")], end=False), "8.5"),
    bad("connect-with-path", headers(1, [(b":method", b"CONNECT"), (b":authority", b"site.example:443"), (b":path", b"/"), (b":scheme", b"http")], end=False), "8.5"),
    bad("trace", pseudo(method=b"TRACE"), "9110 9.3.8"),
    # Lengths.
    good("length", with_body((b"content-length", b"5")), "8.1.1", Seen("POST", "/", b"abcde")),
    good("no-length", with_body(), "8.1.1", Seen("POST", "/", b"abcde")),
    bad("length-too-small (h2.cl)", with_body((b"content-length", b"3")), "8.1.1"),
    Row("length-0-with-body (h2.cl)", with_body((b"content-length", b"0"), body=b"GET /hidden HTTP/1.1\r\n\r\n"), "8.1.1", Fate.STREAM_ENDS, by_length=True),
    bad("length-too-large", with_body((b"content-length", b"6")), "8.1.1"),
    bad("length-without-body", field(b"content-length", b"5"), "8.1.1"),
    bad("length-twice-different", with_body((b"content-length", b"5"), (b"content-length", b"3")), "8.1.1"),
    bad("length-twice-the-same", with_body((b"content-length", b"5"), (b"content-length", b"5")), "8.1.1"),
    bad("empty-length", field(b"content-length", b""), "9110 8.6"),
    # Not ended: h2 would find the body too short.
    bad("length-of-2-to-63", headers(1, request(b"POST", b"/", (b"content-length", b"9223372036854775808")), end=False) + data(1, b"abcde", end=False), "9110 8.6"),
    bad("length-in-list", with_body((b"content-length", b"5, 5")), "8.1.1"),
    bad("length-with-sign", with_body((b"content-length", b"+5")), "8.1.1"),
    bad("length-of-junk", with_body((b"content-length", b"5\r\nx-a: 1")), "8.1.1"),
    # Trailers.
    good("trailers", with_trailers([(b"x-sum", b"1")]), "8.1", Seen("POST", "/", b"abcde", trailers={"x-sum": "1"})),
    bad("pseudo-field-in-trailers", with_trailers([(b":path", b"/")]), "8.1"),
    bad("trailers-that-do-not-end", with_trailers([(b"x-sum", b"1")], end=False), "8.1"),
    bad("capitals-in-trailers", with_trailers([(b"X-Sum", b"1")]), "8.2.1"),
    bad("crlf-in-trailers", with_trailers([(b"x-sum", b"1\r\n\r\nGET /hidden HTTP/1.1")]), "8.2.1"),
    bad("connection-in-trailers", with_trailers([(b"connection", b"close")]), "8.2.2"),
    # Sizes.
    bad("too-many-fields", headers(1, request(b"GET", b"/", *((b"x", b"1") for _ in range(300)))), "10.5.1"),
    bad("path-too-long", b"".join((frame(HEADERS, END_STREAM, 1, block(request(b"GET", b"/" + b"a" * 60_000))[:16_000]), *(frame(CONTINUATION, END_HEADERS if at == 48_000 else 0, 1, block(request(b"GET", b"/" + b"a" * 60_000))[at : at + (16_000 if at < 48_000 else 60_000)]) for at in (16_000, 32_000, 48_000)))), "9110 15.5.15"),
)

FRAMES = (
    fatal("data-on-stream-0", frame(DATA, 0, 0, b"a"), "6.1"),
    fatal("headers-on-stream-0", frame(HEADERS, END_HEADERS | END_STREAM, 0, block(request())), "6.2"),
    fatal("data-on-idle-stream", frame(DATA, END_STREAM, 1, b"a"), "5.1"),
    fatal("even-stream", headers(2, request()), "5.1.1"),
    fatal("smaller-stream-than-before", headers(3, request(b"POST"), end=False) + headers(1, request()), "5.1.1"),
    fatal("data-after-the-end", GET + frame(DATA, END_STREAM, 1, b"a"), "5.1"),
    fatal("headers-after-the-end", GET + GET, "5.1"),
    fatal("continuation-of-nothing", frame(CONTINUATION, END_HEADERS, 1, block(request())), "6.10"),
    fatal("continuation-after-the-end-of-headers", GET + frame(CONTINUATION, END_HEADERS, 1, b""), "6.10"),
    fatal("continuation-on-another-stream", frame(HEADERS, END_STREAM, 1, block(request())) + frame(CONTINUATION, END_HEADERS, 3, b""), "6.10"),
    fatal("ping-between-headers-and-continuation", frame(HEADERS, END_STREAM, 1, block(request())) + frame(PING, 0, 0, bytes(8)), "6.10"),
    fatal("priority-between-headers-and-continuation", frame(HEADERS, END_STREAM, 1, block(request())) + frame(PRIORITY, 0, 1, bytes(5)), "6.10"),
    fatal("settings-of-odd-length", frame(SETTINGS, 0, 0, bytes(5)), "6.5"),
    fatal("settings-on-a-stream", frame(SETTINGS, 0, 1), "6.5"),
    fatal("settings-ack-with-payload", frame(SETTINGS, ACK, 0, bytes(6)), "6.5"),
    fatal("settings-push-of-2", settings(s2=2), "6.5.2"),
    fatal("settings-window-too-large", settings(s4=1 << 31), "6.5.2"),
    fatal("settings-frame-size-too-small", settings(s5=16_383), "6.5.2"),
    fatal("settings-frame-size-too-large", settings(s5=1 << 24), "6.5.2"),
    fatal("ping-of-7-bytes", frame(PING, 0, 0, bytes(7)), "6.7"),
    fatal("ping-on-a-stream", frame(PING, 0, 1, bytes(8)), "6.7"),
    fatal("goaway-on-a-stream", frame(GOAWAY, 0, 1, bytes(8)), "6.8"),
    fatal("reset-of-idle-stream", frame(RST_STREAM, 0, 1, bytes(4)), "6.4"),
    fatal("reset-on-stream-0", frame(RST_STREAM, 0, 0, bytes(4)), "6.4"),
    fatal("reset-of-3-bytes", headers(1, request(b"POST"), end=False) + frame(RST_STREAM, 0, 1, bytes(3)), "6.4"),
    fatal("window-update-of-0", frame(WINDOW_UPDATE, 0, 0, bytes(4)), "6.9"),
    fatal("window-update-of-3-bytes", frame(WINDOW_UPDATE, 0, 0, bytes(3)), "6.9"),
    fatal("window-overflow", frame(WINDOW_UPDATE, 0, 0, struct.pack(">I", (1 << 31) - 1)), "6.9.1"),
    fatal("window-update-of-idle-stream", frame(WINDOW_UPDATE, 0, 1, GROW), "5.1"),
    fatal("push-promise", headers(1, request(b"POST"), end=False) + frame(PUSH_PROMISE, END_HEADERS, 1, bytes(4) + block(request())), "8.4"),
    fatal("push-promise-that-is-malformed", headers(1, request(b"POST"), end=False) + frame(PUSH_PROMISE, END_HEADERS, 1, bytes(4) + block([(b"x-a", b"1"), *request()])), "8.4"),
    fatal("frame-too-large", frame(DATA, 0, 1, bytes(1 << 20)), "4.2"),
    fatal("padding-longer-than-frame", headers(1, request(b"POST"), end=False) + frame(DATA, PADDED, 1, b"\x09abc"), "6.1"),
    fatal("padding-without-length", headers(1, request(b"POST"), end=False) + frame(DATA, PADDED, 1), "6.1"),
    fatal("headers-shorter-than-priority", frame(HEADERS, END_HEADERS | END_STREAM | PRIORITIZED, 1, b"\x00"), "6.2"),
    fatal("hpack-index-0", frame(HEADERS, END_HEADERS | END_STREAM, 1, b"\x80"), "7541 6.1"),
    fatal("hpack-index-of-nothing", frame(HEADERS, END_HEADERS | END_STREAM, 1, b"\xff\x20"), "7541 2.3.3"),
    fatal("hpack-integer-overflow", frame(HEADERS, END_HEADERS | END_STREAM, 1, b"\xff" + b"\xff" * 12 + b"\x01"), "7541 5.1"),
    fatal("hpack-table-larger-than-allowed", frame(HEADERS, END_HEADERS | END_STREAM, 1, b"\x3f\xff\xff\xff\x07" + block(request())), "7541 6.3"),
    fatal("hpack-cut-off", frame(HEADERS, END_HEADERS | END_STREAM, 1, block(request())[:-3]), "7541 4.1"),
    fatal("hpack-huffman-of-junk", frame(HEADERS, END_HEADERS | END_STREAM, 1, b"\x00\x84\xff\xff\xff\xff\x011"), "7541 5.2"),
    fatal("preface-that-breaks-off-into-junk", b"", "3.4", preface=b"PRI * HTTP/2.0\r\n\r\nXX\r\n\r\n" + settings()),
    fatal("no-settings-after-preface", GET, "3.4", preface=PREFACE),
    fatal("settings-that-confirm-after-preface", settings() + GET, "3.4", preface=PREFACE + frame(SETTINGS, ACK, 0)),
    bad("window-update-of-0-on-a-stream", headers(1, request(b"POST"), end=False) + frame(WINDOW_UPDATE, 0, 1, bytes(4)), "6.9"),
    bad("window-overflow-on-a-stream", headers(1, request(b"POST"), end=False) + frame(WINDOW_UPDATE, 0, 1, struct.pack(">I", (1 << 31) - 1)), "6.9.1"),
    good("unknown-frame-is-ignored", frame(0xBE, 0xFF, 0, b"hello") + GET, "4.1", PLAIN),
    good("unknown-setting-is-ignored", settings(s999=1) + GET, "6.5.2", PLAIN),
    good("padded-headers", frame(HEADERS, END_HEADERS | END_STREAM | PADDED, 1, b"\x05" + block(request()) + bytes(5)), "6.2", PLAIN),
    good("priority-in-headers-is-ignored", frame(HEADERS, END_HEADERS | END_STREAM | PRIORITIZED, 1, bytes(5) + block(request())), "5.3.2", PLAIN),
    good("continuation", frame(HEADERS, END_STREAM, 1, block(request())[:9]) + frame(CONTINUATION, END_HEADERS, 1, block(request())[9:]), "6.10", PLAIN),
    bad("path-twice-and-continuation-within-a-field", frame(HEADERS, END_STREAM, 1, block([(b":path", b"/hidden"), *request()]) + b"\x00") + frame(CONTINUATION, END_HEADERS, 1, b"\x01x\x01y"), "8.3"),
    bad("connection-and-continuation-within-a-field", frame(HEADERS, END_STREAM, 1, block(request(b"GET", b"/", (b"connection", b"close"))) + b"\x00") + frame(CONTINUATION, END_HEADERS, 1, b"\x01x\x01y"), "8.2.2"),
    bad("no-name-and-continuation", frame(HEADERS, END_STREAM, 1, block(request()) + b"\x00\x00\x00") + frame(CONTINUATION, END_HEADERS, 1, b"\x00\x01x\x01y"), "8.2.1"),
    bad("depends-on-itself", frame(HEADERS, END_HEADERS | END_STREAM | PRIORITIZED, 1, b"\x00\x00\x00\x01\x09" + block(request())), "7540 5.3.1"),
    good("reserved-bit-is-ignored", frame(HEADERS, END_HEADERS | END_STREAM, 1 | 1 << 31, block(request())), "4.1", PLAIN),
    good("flags-without-meaning-are-ignored", frame(HEADERS, END_HEADERS | END_STREAM | 0x42, 1, block(request())), "4.1", PLAIN),
    good("cookie-in-pieces-is-one", headers(1, request(b"GET", b"/", (b"cookie", b"a=1"), (b"cookie", b"b=2"))), "8.2.3", Seen("GET", "/", fields={"cookie": "a=1; b=2"})),
)

ROWS = (*REQUESTS, *FRAMES)
