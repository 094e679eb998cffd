"""The chunked coding: sizes, extensions, line ends, trailers. The head of such a request may go on before the fault shows."""

from .row import broken_body, passed, post, row, silence


def chunks(body: bytes) -> bytes:
    return post(b"Transfer-Encoding: chunked", body=body)


def size(text: bytes) -> bytes:
    """One chunk whose size line is this, with five bytes of data."""
    return chunks(text + b"\r\nabcde\r\n0\r\n\r\n")


def trailer(*lines: bytes) -> bytes:
    return chunks(b"5\r\nabcde\r\n0\r\n" + b"".join(line + b"\r\n" for line in lines) + b"\r\n")


WHOLE = passed("POST", body=b"abcde")
BROKEN = broken_body()

# fmt: off
ROWS = (
    # Sizes.
    row("several-chunks", chunks(b"1\r\na\r\n4\r\nbcde\r\n0\r\n\r\n"), "9112 7.1", WHOLE),
    row("no-data", chunks(b"0\r\n\r\n"), "9112 7.1", passed("POST")),
    row("size-in-capitals", chunks(b"A\r\nabcdefghij\r\n0\r\n\r\n"), "9112 7.1", passed("POST", body=b"abcdefghij")),
    row("size-in-small-letters", chunks(b"a\r\nabcdefghij\r\n0\r\n\r\n"), "9112 7.1", passed("POST", body=b"abcdefghij")),
    row("size-with-leading-zeros", size(b"0005"), "9112 7.1", WHOLE),
    row("last-chunk-of-many-zeros", chunks(b"5\r\nabcde\r\n000\r\n\r\n"), "9112 7.1", WHOLE),
    row("size-with-endless-zeros", size(b"0" * 5_000 + b"5"), "9112 7.1", BROKEN),
    row("size-empty", size(b""), "9112 7.1", BROKEN),
    row("size-minus", size(b"-5"), "9112 7.1", BROKEN),
    row("size-minus-zero", chunks(b"-0\r\n\r\n"), "9112 7.1", BROKEN),
    row("size-plus", size(b"+5"), "9112 7.1", BROKEN),
    row("size-0x", size(b"0x5"), "9112 7.1", BROKEN),
    row("size-h", size(b"5h"), "9112 7.1", BROKEN),
    row("size-g", size(b"g"), "9112 7.1", BROKEN),
    row("size-underscore", size(b"0_5"), "9112 7.1", BROKEN),
    row("size-fraction", size(b"5.0"), "9112 7.1", BROKEN),
    row("size-in-quotes", size(b'"5"'), "9112 7.1", BROKEN),
    row("space-before-size", size(b" 5"), "9112 7.1", BROKEN),
    row("tab-before-size", size(b"\t5"), "9112 7.1", BROKEN),
    row("space-after-size", size(b"5 "), "9112 7.1", BROKEN),
    row("tab-after-size", size(b"5\t"), "9112 7.1", BROKEN),
    row("space-within-size", size(b"0 5"), "9112 7.1", BROKEN),
    row("nul-after-size", size(b"5\x00"), "9112 7.1", BROKEN),
    row("vertical-tab-after-size", size(b"5\x0b"), "9112 7.1", BROKEN),
    row("size-of-16-digits", size(b"ffffffffffffffff"), "9112 7.1", broken_body(400, 413), silence(), half_close=True),
    row("size-of-17-digits", size(b"10000000000000005"), "9112 7.1", broken_body(400, 413)),
    row("size-of-40-digits", size(b"f" * 40), "9112 7.1", broken_body(400, 413)),
    row("size-wraps-at-32-bits", size(b"100000005"), "9112 7.1", silence(), BROKEN, half_close=True),
    row("size-too-small", chunks(b"3\r\nabcde\r\n0\r\n\r\n"), "9112 7.1", BROKEN),
    row("size-too-large", chunks(b"6\r\nabcde\r\n0\r\n\r\n"), "9112 7.1", BROKEN),
    # Line ends.
    row("bare-lf-after-size", chunks(b"5\nabcde\r\n0\r\n\r\n"), "9112 7.1", BROKEN),
    row("bare-cr-after-size", chunks(b"5\rabcde\r\n0\r\n\r\n"), "9112 7.1", BROKEN),
    row("cr-cr-lf-after-size", chunks(b"5\r\r\nabcde\r\n0\r\n\r\n"), "9112 7.1", BROKEN),
    row("bare-lf-after-data", chunks(b"5\r\nabcde\n0\r\n\r\n"), "9112 7.1", BROKEN),
    row("bare-cr-after-data", chunks(b"5\r\nabcde\r0\r\n\r\n"), "9112 7.1", BROKEN),
    row("nothing-after-data", chunks(b"5\r\nabcde0\r\n\r\n"), "9112 7.1", BROKEN),
    row("junk-after-data", chunks(b"5\r\nabcdeXX0\r\n\r\n"), "9112 7.1", BROKEN),
    row("two-line-ends-after-data", chunks(b"5\r\nabcde\r\n\r\n0\r\n\r\n"), "9112 7.1", BROKEN),
    row("bare-lf-after-last-chunk", chunks(b"5\r\nabcde\r\n0\n\r\n"), "9112 7.1", BROKEN),
    row("bare-lf-at-end", chunks(b"5\r\nabcde\r\n0\r\n\n"), "9112 7.1", BROKEN),
    row("bare-cr-at-end", chunks(b"5\r\nabcde\r\n0\r\n\rX\r\n\r\n"), "9112 7.1", BROKEN),
    # Extensions.
    row("extension", size(b"5;a"), "9112 7.1.1", WHOLE),
    row("extension-with-value", size(b"5;a=b;c=d"), "9112 7.1.1", WHOLE),
    row("extension-in-quotes", size(b'5;a="b;c"'), "9112 7.1.1", WHOLE),
    row("extension-of-last-chunk", chunks(b"5\r\nabcde\r\n0;a=b\r\n\r\n"), "9112 7.1.1", WHOLE),
    row("blanks-before-extension", size(b"5 ; a = b"), "9112 7.1.1", WHOLE, BROKEN),
    row("extension-without-name", size(b"5;"), "9112 7.1.1", WHOLE, BROKEN),
    row("extension-with-bare-lf", size(b"5;a\nb"), "9112 7.1.1", BROKEN),
    row("extension-with-bare-cr", size(b"5;a\rb"), "9112 7.1.1", BROKEN),
    row("extension-with-nul", size(b"5;a\x00b"), "9112 7.1.1", BROKEN),
    row("extension-with-control", size(b"5;a\x01b"), "9112 7.1.1", BROKEN, WHOLE),
    row("extension-with-crlf-in-quotes", chunks(b'5;a="\r\nabcde\r\n0\r\n\r\n'), "9112 7.1.1", BROKEN, WHOLE),
    row("extension-too-long", size(b"5;a=" + b"b" * 20_000), "9112 7.1.1", broken_body(400, 413, 431)),
    row("extension-endless", chunks(b"5;" + b"a" * 200_000), "9112 7.1.1", broken_body(400, 413, 431)),
    row("extensions-of-too-many-chunks", chunks(b"".join(b"1;" + b"a" * 200 + b"\r\nb\r\n" for _ in range(2_000)) + b"0\r\n\r\n"), "9112 7.1.1", broken_body(400, 413, 431)),
    # Trailers.
    row("trailer", trailer(b"X-Sum: 1"), "9112 7.1.2", passed("POST", body=b"abcde", trailers={"x-sum": "1"})),
    row("trailer-announced", post(b"Trailer: X-Sum", b"Transfer-Encoding: chunked", body=b"5\r\nabcde\r\n0\r\nX-Sum: 1\r\n\r\n"), "9110 6.6.2", passed("POST", body=b"abcde", trailers={"x-sum": "1"})),
    row("length-as-trailer", trailer(b"Content-Length: 9"), "9110 6.5.1", passed("POST", body=b"abcde", trailers={"content-length": None}), BROKEN),
    row("coding-as-trailer", trailer(b"Transfer-Encoding: chunked"), "9110 6.5.1", passed("POST", body=b"abcde", trailers={"transfer-encoding": None}), BROKEN),
    row("host-as-trailer", trailer(b"Host: other.example"), "9110 6.5.1", passed("POST", body=b"abcde", host="site.example", trailers={"host": None}), BROKEN),
    row("authorization-as-trailer", trailer(b"Authorization: Basic YTpi"), "9110 6.5.1", passed("POST", body=b"abcde", trailers={"authorization": None}), BROKEN),
    row("connection-as-trailer", trailer(b"Connection: close"), "9110 6.5.1", passed("POST", body=b"abcde", trailers={"connection": None}), BROKEN),
    row("forwarded-for-as-trailer", trailer(b"X-Forwarded-For: 192.0.2.1"), "9110 6.5.1", passed("POST", body=b"abcde", trailers={"x-forwarded-for": None}), BROKEN),
    row("trailer-folded", trailer(b"X-Sum: 1", b" 2"), "9112 5.2", BROKEN),
    row("trailer-without-colon", trailer(b"X-Sum"), "9112 5", BROKEN),
    row("trailer-with-space-before-colon", trailer(b"X-Sum : 1"), "9112 5.1", BROKEN),
    row("trailer-with-empty-name", trailer(b": 1"), "9110 5.1", BROKEN),
    row("trailer-with-nul", trailer(b"X-Sum: \x00"), "9110 5.5", BROKEN),
    row("trailer-with-bare-cr", trailer(b"X-Sum: 1\r2"), "9110 5.5", BROKEN),
    row("trailer-with-bare-lf", chunks(b"5\r\nabcde\r\n0\r\nX-Sum: 1\n\r\n"), "9112 2.2", BROKEN),
    row("request-line-as-trailer", chunks(b"5\r\nabcde\r\n0\r\nGET /hidden HTTP/1.1\r\nHost: site.example\r\n\r\n"), "9112 7.1.2", BROKEN),
    row("too-many-trailers", trailer(*(b"X-%d: 1" % number for number in range(1_000))), "9112 7.1.2", broken_body(400, 413, 431)),
    row("endless-trailer", chunks(b"0\r\nX-Sum: " + b"a" * 200_000), "9112 7.1.2", broken_body(400, 413, 431)),
    # An end before the end.
    row("ends-within-size", chunks(b"5"), "9112 8", silence(), BROKEN, half_close=True),
    row("ends-within-data", chunks(b"5\r\nabc"), "9112 8", silence(), BROKEN, half_close=True),
    row("ends-after-data", chunks(b"5\r\nabcde\r\n"), "9112 8", silence(), BROKEN, half_close=True),
    row("ends-after-last-chunk", chunks(b"5\r\nabcde\r\n0\r\n"), "9112 8", silence(), BROKEN, half_close=True),
    row("ends-within-trailer", chunks(b"5\r\nabcde\r\n0\r\nX-Sum: 1"), "9112 8", silence(), BROKEN, half_close=True),
)
