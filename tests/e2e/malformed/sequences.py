"""Several requests on one connection, and one request made to look like two (smuggling)."""

from .row import HOST, broken_body, get, in_turn, message, passed, post, refused, row, silence

HIDDEN = message(b"GET /hidden HTTP/1.1", HOST)
CHUNKED = b"Transfer-Encoding: chunked"


def at(target: bytes, *lines: bytes, method: bytes = b"GET", body: bytes = b"") -> bytes:
    return message(method + b" " + target + b" HTTP/1.1", HOST, *lines, body=body)


# fmt: off
ROWS = (
    # Pipelines.
    row("two", at(b"/1") + at(b"/2"), "9112 9.3.2", in_turn(passed(target="/1"), passed(target="/2"))),
    row(
        "twenty",
        b"".join(at(b"/%d" % number) for number in range(20)),
        "9112 9.3.2",
        in_turn(*(passed(target=f"/{number}") for number in range(20))),
    ),
    row(
        "bodies-between",
        at(b"/1", b"Content-Length: 3", method=b"POST", body=b"abc")
        + at(b"/2")
        + at(b"/3", CHUNKED, method=b"PUT", body=b"2\r\nde\r\n0\r\n\r\n")
        + at(b"/4"),
        "9112 9.3.2",
        in_turn(passed("POST", "/1", b"abc"), passed(target="/2"), passed("PUT", "/3", b"de"), passed(target="/4")),
    ),
    row("empty-line-between", at(b"/1") + b"\r\n" + at(b"/2"), "9112 2.2", in_turn(passed(target="/1"), passed(target="/2"))),
    row(
        "empty-line-after-a-body",
        at(b"/1", b"Content-Length: 3", method=b"POST", body=b"abc\r\n") + at(b"/2"),
        "9112 2.2",
        in_turn(passed("POST", "/1", b"abc"), passed(target="/2")),
    ),
    row("good-then-bad", at(b"/1") + at(b"/2", b"X : 1"), "9112 5.1", in_turn(passed(target="/1"), refused())),
    row("good-then-bad-then-good", at(b"/1") + at(b"/2", b"X : 1") + at(b"/3"), "9112 9.6", in_turn(passed(target="/1"), refused())),
    row("good-then-junk", at(b"/1") + b"\x00\x01\x02\r\n\r\n", "9112 2.2", in_turn(passed(target="/1"), refused())),
    row("good-then-unknown-version", at(b"/1") + message(b"GET / HTTP/2.0", HOST), "9110 15.6.6", in_turn(passed(target="/1"), refused(505))),
    row("good-then-preface", at(b"/1") + b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "9113 3.3", in_turn(passed(target="/1"), refused(400, 505)), in_turn(passed(target="/1"), silence())),
    row("nothing-after-close", at(b"/1", b"Connection: close") + at(b"/2"), "9112 9.6", passed(target="/1", ends=True)),
    row("nothing-after-1.0", message(b"GET /1 HTTP/1.0", HOST) + at(b"/2"), "9112 9.3", passed(target="/1", ends=True)),
    row("bad-chunk-then-good", at(b"/1", CHUNKED, method=b"POST", body=b"z\r\n\r\n") + at(b"/2"), "9112 7.1", broken_body()),
    # One request that others may take for two.
    row("cl.te", post(b"Content-Length: 6", CHUNKED, body=b"0\r\n\r\nG"), "9112 11.2", refused()),
    row("te.cl", post(CHUNKED, b"Content-Length: 4", body=b"%x\r\n%s\r\n0\r\n\r\n" % (len(HIDDEN), HIDDEN)), "9112 11.2", refused()),
    row("te.te", post(CHUNKED, b"Transfer-Encoding: xchunked", body=b"0\r\n\r\n" + HIDDEN), "9112 11.2", refused(400, 501)),
    row("te.te-by-case", post(CHUNKED, b"transfer-encoding: IDENTITY", body=b"0\r\n\r\n" + HIDDEN), "9112 11.2", refused(400, 501)),
    row("te-hidden-by-space", post(b"Content-Length: 5", b"Transfer-Encoding : chunked", body=b"0\r\n\r\n" + HIDDEN), "9112 11.2", refused()),
    row("te-hidden-by-lf", post(b"X: y\nTransfer-Encoding: chunked", b"Content-Length: 5", body=b"0\r\n\r\n" + HIDDEN), "9112 11.2", refused()),
    row("te-hidden-by-fold", post(b"X: y", b" Transfer-Encoding: chunked", b"Content-Length: 5", body=b"0\r\n\r\n" + HIDDEN), "9112 11.2", refused()),
    row("te-hidden-by-nul", post(b"Transfer-Encoding: chunked\x00", b"Content-Length: 5", body=b"0\r\n\r\n" + HIDDEN), "9112 11.2", refused()),
    row("te-hidden-behind-first-line", b"POST / HTTP/1.1\r\n Transfer-Encoding: chunked\r\nHost: site.example\r\nContent-Length: 5\r\n\r\n0\r\n\r\n" + HIDDEN, "9112 2.2", refused()),
    row("cl.0: the body is a body", at(b"/1", b"Content-Length: %d" % len(HIDDEN), method=b"POST", body=HIDDEN) + at(b"/2"), "9112 6.3", in_turn(passed("POST", "/1", HIDDEN), passed(target="/2"))),
    row("cl.0-for-get: the body is a body", at(b"/1", b"Content-Length: %d" % len(HIDDEN), body=HIDDEN) + at(b"/2"), "9112 6.3", in_turn(passed("GET", "/1", HIDDEN), passed(target="/2")), refused()),
    row("cl.0-for-head: the body is a body", at(b"/1", b"Content-Length: 3", method=b"OPTIONS", body=b"abc") + at(b"/2"), "9112 6.3", in_turn(passed("OPTIONS", "/1", b"abc"), passed(target="/2"))),
    row("0.cl: length with a blank name", post(b"Content-Length : %d" % len(HIDDEN), body=HIDDEN), "9112 11.2", refused()),
    row("0.cl: length folded", post(b"Content-Length:", b" %d" % len(HIDDEN), body=HIDDEN), "9112 11.2", refused()),
    row("more-body-than-length", at(b"/1", b"Content-Length: 3", method=b"POST", body=b"abcX") + at(b"/2"), "9112 6.3", in_turn(passed("POST", "/1", b"abc"), passed("XGET", "/2"))),
    row("more-body-than-length-of-junk", at(b"/1", b"Content-Length: 3", method=b"POST", body=b"abc{}\r\n\r\n"), "9112 6.3", in_turn(passed("POST", "/1", b"abc"), refused())),
    row("less-body-than-length-takes-the-next", at(b"/1", b"Content-Length: %d" % len(HIDDEN), method=b"POST") + HIDDEN + at(b"/2"), "9112 6.3", in_turn(passed("POST", "/1", HIDDEN), passed(target="/2"))),
    row("body-of-a-size-line", at(b"/1", b"Content-Length: 5", method=b"POST", body=b"0\r\n\r\n") + at(b"/2"), "9112 6.3", in_turn(passed("POST", "/1", b"0\r\n\r\n"), passed(target="/2"))),
    row("chunk-that-holds-a-request", at(b"/1", CHUNKED, method=b"POST", body=b"%x\r\n%s\r\n0\r\n\r\n" % (len(HIDDEN), HIDDEN)) + at(b"/2"), "9112 7.1", in_turn(passed("POST", "/1", HIDDEN), passed(target="/2"))),
    row("chunk-extension-that-holds-a-request", at(b"/1", CHUNKED, method=b"POST", body=b"3;\nGET /hidden HTTP/1.1\r\nabc\r\n0\r\n\r\n"), "9112 7.1.1", broken_body()),
    row("chunk-size-with-cr-only-that-hides", at(b"/1", CHUNKED, method=b"POST", body=b"2\r\r\n;a\r\n0\r\n\r\n") + HIDDEN, "9112 7.1", broken_body()),
    row("trailer-ends-with-lf-only-that-hides", at(b"/1", CHUNKED, method=b"POST", body=b"0\r\n\n") + HIDDEN, "9112 7.1.2", broken_body()),
    row("body-that-ends-too-early", post(b"Content-Length: 10", body=b"abc"), "9112 8", silence(), broken_body(), half_close=True),
    row("response-in-the-body", at(b"/1", b"Content-Length: 38", method=b"POST", body=b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n") + get(), "9112 6.3", in_turn(passed("POST", "/1", b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"), passed())),
)
