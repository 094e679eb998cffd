"""Mutated HTTP/1 responses: tricks of framing, and of bytes behind the end."""

import random

from .mutate import mutate_bytes
from .requests_http1 import _CODINGS, _FRAMING_NAMES, _SEPARATORS, _value_of_length, chunked

_STATUSES = (b"200", b"200", b"200", b"200", b"201", b"204", b"206", b"301", b"304", b"400", b"404", b"429", b"500", b"502", b"503", b"299", b"999")  # fmt: skip
_ODD_STATUSES = (b"100", b"101", b"102", b"103", b"199", b"099", b"000", b"1000", b"20", b"2OO", b"+20", b"", b"-200", b"200 200")


def response(rng: random.Random, tag: bytes) -> tuple[bytes, bool]:
    """The bytes, and whether the connection ends behind them."""
    hidden = b"HTTP/1.1 200 OK\r\nx-hidden: " + tag + b"\r\ncontent-length: 6\r\n\r\nhidden"
    body = rng.choice((b"", tag, tag * 30, hidden, b"0\r\n\r\n" + hidden, b"\r\n\r\n" + hidden))
    tricky = [False] * 8
    tricks = rng.choice((0, 0, 1, 1, 2, 3))
    for _ in range(tricks):
        tricky[rng.randrange(8)] = True
    status = rng.choice(_ODD_STATUSES if tricky[0] and rng.random() < 0.6 else _STATUSES)
    framing = rng.choice(("length", "length", "chunked", "chunked", "close", "none"))
    version = rng.choice((b"HTTP/1.0", b"HTTP/1.2", b"HTTP/2.0", b"http/1.1", b"HTTP/1.1 ", b"ICY")) if tricky[1] else b"HTTP/1.1"
    fields: list[tuple[bytes, bytes, bytes]] = [(b"x-of", b": ", tag)]
    written, closes = body, framing == "close"
    if framing == "length":
        fields.append((rng.choice((b"content-length", b"Content-Length")), b": ", b"%d" % len(body)))
    elif framing == "chunked":
        fields.append((b"transfer-encoding", b": ", b"chunked"))
        written = chunked(rng, body, tricky[2])
    elif framing == "none":
        written = b""
        if status not in (b"204", b"304"):
            fields.append((b"content-length", b": ", b"0"))
    if tricky[3]:
        fields.append((b"content-length", rng.choice((b": ", b":", b" : ")), _value_of_length(rng, len(written))))
    if tricky[4]:
        fields.append((rng.choice(_FRAMING_NAMES), rng.choice(_SEPARATORS), rng.choice(_CODINGS)))
        written = rng.choice((written, chunked(rng, body, True)))
    if tricky[5]:
        fields.append(
            rng.choice(
                (
                    (b"connection", b": ", b"close"),
                    (b"connection", b": ", b"keep-alive, x-of"),
                    (b"connection", b": ", b"content-length, transfer-encoding"),
                    (b"connection", b": ", b"upgrade\r\nupgrade: websocket"),
                    (b"set-cookie", b": ", b"a=1\r\nset-cookie: b=2"),
                    (b"x-a", rng.choice(_SEPARATORS), rng.choice((b"a\r\n b", b"a\x00", b"a\rb", b"a\nx: y", b"\xff", b" "))),
                    (rng.choice((b"x y", b"", b"x\x00", b"x\xe9")), b": ", b"1"),
                    (b"trailer", b": ", b"x-sum"),
                )
            )
        )
    rng.shuffle(fields)
    reason = rng.choice((b" OK", b" OK", b" ", b"", b" \xff", b" a\tb", b" a\x00", b"\tOK", b" a\r", b"  OK")) if tricky[6] else b" OK"
    head = version + b" " + status + reason + b"\r\n"
    out = head + b"".join(name + separator + value + b"\r\n" for name, separator, value in fields) + b"\r\n" + written
    if rng.random() < 0.1:
        interim = rng.choice((b"100 Continue", b"102 Processing", b"103 Early Hints", b"103 Early Hints", b"101 Switching Protocols"))
        extra = rng.choice((b"", b"", b"link: </a>\r\n", b"content-length: 5\r\n", b"transfer-encoding: chunked\r\n"))
        out = (b"HTTP/1.1 " + interim + b"\r\n" + extra + b"\r\n") * rng.choice((1, 1, 2)) + out
    out = mutate_bytes(rng, out, rng.choice((0, 0, 0, 0, 1, 2)))
    if tricky[7]:
        # Bytes that no request asked for, or fewer than announced.
        out = rng.choice((out + hidden, out + b"\r\n", out + b"x", out[: -rng.randint(1, 20)], out + out, out + b"\r\n" + hidden))
    return out, closes or rng.random() < 0.05
