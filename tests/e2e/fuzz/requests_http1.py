"""Mutated HTTP/1 requests: a grammar with the tricks of request smuggling, then random bytes."""

import random

from .mutate import mutate_bytes

METHODS = (b"GET", b"GET", b"POST", b"POST", b"POST", b"PUT", b"HEAD", b"DELETE", b"OPTIONS", b"PATCH", b"BREW")
_SEPARATORS = (b": ", b": ", b": ", b":", b":\t", b":  ", b" : ", b"\t: ", b" :", b":\x0b", b":\x0c", b":\r\n ", b"")
_VERSIONS = (b"HTTP/1.0", b"HTTP/1.0", b"HTTP/1.2", b"HTTP/1.9", b"HTTP/0.9", b"HTTP/2.0", b"http/1.1", b"HTTP/1.1 ", b"HTTP/1.10", b"HTTP/01.1", b"HTTP/1", b"")  # fmt: skip
_CODINGS = (
    *(b"chunked", b"chunked", b"chunked", b"Chunked", b"CHUNKED", b"chunked ", b"\tchunked", b" chunked", b",chunked", b"chunked,"),
    *(b"gzip, chunked", b"chunked, gzip", b"chunked, chunked", b"identity", b"x", b"", b'"chunked"', b"chunked;q=1", b"chun\x00ked"),
    *(b"\x0bchunked", b"xchunked", b"chunke", b"identity, chunked", b"chunked\x0b", b"\xc3\xa7hunked"),
)
_FRAMING_NAMES = (
    *(b"transfer-encoding", b"transfer-encoding", b"Transfer-Encoding", b"TRANSFER-ENCODING", b"transfer-encoding ", b"transfer_encoding"),
    *(b" transfer-encoding", b"transfer-encoding\t", b"transfer\x00-encoding", b"x\r\ntransfer-encoding", b"x\ntransfer-encoding"),
)
_CONNECTION = (b"close", b"keep-alive", b"Keep-Alive, x-a", b"close, x-id", b"upgrade", b"content-length", b"transfer-encoding", b"host", b"x-a, te", b"x_b", b"close,", b",", b"keep-alive, close")  # fmt: skip
_EXTENSIONS = (b";a", b";a=b", b' ; a="b"', b';a="\r\n"', b';a="', b"\t;a", b" ", b";\n", b";\x00", b"; a=" + b"b" * 300, b";\r", b"x", b'; a="b;c"')  # fmt: skip


def _value_of_length(rng: random.Random, length: int) -> bytes:
    number = b"%d" % length
    return rng.choice(
        (
            *(number, number, number, b"0" + number, b"+" + number, b"-" + number, b"0x%x" % length, number + b" ", b" " + number),
            *(number + b"," + number, number + b", " + number, number + b".0", b"%d" % (length + 7), b"%d" % max(length - 7, 0)),
            *(b"", b"1" * 25, b"18446744073709551616", b"9223372036854775808", number + b"\x00", b"\x0b" + number, number + b"\t"),
            *(b"0", b"%de0" % length, number + b" 0", "٣".encode(), b"%d" % (length + (1 << 32))),
        )
    )


def chunked(rng: random.Random, data: bytes, tricks: bool) -> bytes:
    """A body in chunks. With `tricks` sizes, extensions, ends and trailers go wrong here and there."""
    out = []
    while data:
        size = min(len(data), rng.choice((1, 3, 10, 50, 1000)))
        piece, data = data[:size], data[size:]
        number = b"%x" % size
        end, after = b"\r\n", b"\r\n"
        if tricks and rng.random() < 0.3:
            number = rng.choice(
                (b"0" + number, b"0" * 20 + number, b"0x" + number, b"+" + number, number.upper(), b"%x" % (size + 1), b"%x" % max(size - 1, 0), number + b"\x00", b" " + number, b"f" * 16, b"-1", b"1" + b"0" * 16 + number[-1:], b"")  # fmt: skip
            )
        if tricks and rng.random() < 0.3:
            number += rng.choice(_EXTENSIONS)
        if tricks and rng.random() < 0.15:
            end = rng.choice((b"\n", b"\r", b"\r\r\n", b"\n\n", b" \r\n", b"\r\n\r\n"))
        if tricks and rng.random() < 0.15:
            after = rng.choice((b"\n", b"\r", b"", b"\r\n\r\n", b"x\r\n", b"\r\r\n", b"  "))
        out.append(number + end + piece + after)
    last = rng.choice((b"0", b"0", b"0", b"00", b"000", b"0;a", b"0 ", b"-0", b"0x0", b"")) if tricks else b"0"
    trailers = rng.choice(
        (
            *(b"", b"", b"", b"x-sum: 1\r\n", b"X-Sum: 1\r\nx-t: 2\r\n", b"content-length: 9\r\n", b"transfer-encoding: chunked\r\n"),
            *(b"host: hidden.example\r\n", b"x-sum : 1\r\n", b"x-sum: 1\n", b" x: y\r\n", b"x\r\n", b"x-sum: \x00\r\n", b": v\r\n"),
            b"x-forwarded-for: 1.2.3.4\r\n",
        )
    )
    end = rng.choice((b"\r\n", b"\r\n", b"\r\n", b"\r\n", b"\n", b"", b"\r")) if tricks else b"\r\n"
    return b"".join(out) + last + b"\r\n" + (trailers if tricks or rng.random() < 0.3 else b"") + end


def _target(rng: random.Random, tag: bytes) -> bytes:
    path = b"/f/" + tag
    if rng.random() < 0.75:
        return path
    return rng.choice(
        (
            *(b"http://site.example" + path, b"http://other.example" + path, b"HTTP://other.example:81" + path, b"https://a" + path),
            *(b"http://u@a" + path, b"http:/" + path, b"*", path + b"?a=b c", path + b"#x", path + b"\x00", path + b"\tx", b"/" + path),
            *(path + b"%0d%0ahidden:%201", path + b"/../x", path + b"\xc3\xa9", b"hidden" + path, b"site.example:80", path + b'"<>'),
            *(b"http://other.example?" + tag, b"http://other.example", path + b"\x0b", path + b"?" + b"q" * 3000, b"\\" + path),
            path + b" HTTP/1.1\r\nx: y",
        )
    )


def request(rng: random.Random, tag: bytes, tricks: int) -> bytes:
    """One request with this tag in target, field and body, and so many mistakes."""
    tricky = [False] * 9
    for _ in range(tricks):
        tricky[rng.randrange(9)] = True
    method, version = rng.choice(METHODS), b"HTTP/1.1"
    hidden = b"GET /hidden/" + tag + b" HTTP/1.1\r\nhost: hidden.example\r\nx-hidden: " + tag + b"\r\n\r\n"
    body = rng.choice((b"", tag, hidden, b"0\r\n\r\n" + hidden, tag * 20, b"\r\n" + hidden, b"%x\r\n" % len(hidden) + hidden))
    with_body = method in (b"POST", b"PUT", b"PATCH") or rng.random() < 0.15
    uses_chunks = rng.random() < 0.4
    name = b"content-length" if rng.random() < 0.5 else b"Content-Length"
    fields: list[tuple[bytes, bytes, bytes]] = [(b"host", b": ", b"site.example"), (b"x-id", b": ", tag)]
    written = body if with_body else b""
    if with_body and uses_chunks:
        fields.append((b"transfer-encoding", b": ", b"chunked"))
        written = chunked(rng, body, tricky[0])
    elif with_body:
        fields.append((name, b": ", b"%d" % len(body)))
    if tricky[1]:
        fields.append((name, b": ", _value_of_length(rng, len(written))))
    if tricky[2]:
        coding = (rng.choice(_FRAMING_NAMES), rng.choice(_SEPARATORS), rng.choice(_CODINGS))
        fields.append(coding)
        written = rng.choice((written, chunked(rng, body, True), b"0\r\n\r\n" + hidden))
    if tricky[3]:
        fields.append((rng.choice((b"connection", b"Connection", b"proxy-connection")), b": ", rng.choice(_CONNECTION)))
    if tricky[4]:
        fields.append(
            rng.choice(
                (
                    (b"expect", b": ", b"100-continue"),
                    (b"expect", b": ", b"200-ok"),
                    (b"upgrade", b": ", b"websocket\r\nconnection: upgrade"),
                    (b"upgrade", b": ", b"h2c\r\nhttp2-settings: AAMAAABkAAQAAP__\r\nconnection: upgrade, http2-settings"),
                    (b"te", b": ", b"trailers, gzip"),
                    (b"host", b": ", b"hidden.example"),
                    (b"x-forwarded-for", b": ", b"1.2.3.4"),
                    (b"cookie", b": ", b"a=1\r\ncookie: b=2"),
                    (b"via", b": ", b"1.1 elsewhere"),
                    (b"trailer", b": ", b"content-length"),
                )
            )
        )
    if tricky[5]:
        fields.append(
            (
                rng.choice((b"x-a", b"X-A", b"x\x00", b"x y", b"", b"x\xe9", b"x-a\r", b"x[", b"x-a\x0b", b"x" * 3000, b"(x)")),
                rng.choice(_SEPARATORS),
                rng.choice((b"", b"1", b"a\r\n b", b"a\r\n\tb", b"a\x00b", b"a\rb", b"a\nx-b: 2", b"\xff\xfe", b"a\x7f", b" a ", b"a\tb")),
            )
        )
    if tricky[6] and rng.random() < 0.5:
        version = rng.choice(_VERSIONS)
    if tricky[7]:
        method = rng.choice((b"post", b"GET\t", b" GET", b"G\x00T", b"CONNECT", b"TRACE", b"GET " + b"/x", b"\r\nGET", b"M" * 70, b"PRI"))
    if tricky[8]:
        at = rng.randrange(len(fields))
        fields[at] = (fields[at][0], rng.choice(_SEPARATORS), fields[at][2])
    rng.shuffle(fields)
    target = _target(rng, tag) if tricks else b"/f/" + tag
    space = b" " if rng.random() < 0.97 or not tricks else rng.choice((b"  ", b"\t", b"\x0b", b""))
    head = method + space + target + b" " + version + b"\r\n"
    return head + b"".join(name + separator + value + b"\r\n" for name, separator, value in fields) + b"\r\n" + written


def requests(rng: random.Random, tag: bytes) -> bytes:
    """One to three requests in a row, mutated."""
    count = rng.choice((1, 1, 1, 1, 2, 3))
    tricks = [rng.choice((0, 0, 1, 1, 2, 3)) for _ in range(count)]
    data = b"".join(request(rng, b"%s.%d" % (tag, number), tricks[number]) for number in range(count))
    return mutate_bytes(rng, data, rng.choice((0, 0, 0, 0, 1, 2) if sum(tricks) else (1, 1, 2, 3)))
