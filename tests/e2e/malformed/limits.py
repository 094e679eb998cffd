"""Sizes, at the limits of the listener's defaults: 64 KiB of head, 100 fields."""

from .row import HOST, get, message, passed, refused, row, silence

# fmt: off
ROWS = (
    row("target-of-4000-bytes", message(b"GET /" + b"a" * 4_000 + b" HTTP/1.1", HOST), "9112 3", passed(target="/" + "a" * 4_000)),
    row("target-too-long", message(b"GET /" + b"a" * 60_000 + b" HTTP/1.1", HOST), "9110 15.5.15", refused(414)),
    row("target-longer-than-any-head", message(b"GET /" + b"a" * 200_000 + b" HTTP/1.1", HOST), "9110 15.5.15", refused(414)),
    row("target-without-end", b"GET /" + b"a" * 200_000, "9110 15.5.15", refused(414)),
    row("field-of-8000-bytes", get(b"X-A: " + b"a" * 8_000), "9110 5.4", passed(x_a="a" * 8_000)),
    row("field-too-long", get(b"X-A: " + b"a" * 80_000), "9110 5.4", refused(431)),
    row("field-without-end", get(b"X-A: " + b"a" * 200_000)[:-4], "9110 5.4", refused(431)),
    row("name-too-long", get(b"X" * 80_000 + b": 1"), "9110 5.4", refused(400, 431)),
    row("name-without-end", get(b"X" * 200_000)[:-4], "9110 5.4", refused(400, 431)),
    row("90-fields", get(*(b"X-%d: 1" % number for number in range(88))), "9110 5.4", passed(x_0="1", x_87="1")),
    row("too-many-fields", get(*(b"X-%d: 1" % number for number in range(150))), "9110 5.4", refused(431)),
    row("too-many-of-one-field", get(*(b"X-A: 1" for _ in range(5_000))), "9110 5.4", refused(431)),
    row("cookies-too-many", get(*(b"Cookie: a=%d" % number for number in range(5_000))), "9110 5.4", refused(431)),
    row("ends-within-request-line", b"GET / HT", "9112 8", silence(), refused(400, 408), half_close=True),
    row("ends-within-head", b"GET / HTTP/1.1\r\nHost: site.example\r\n", "9112 8", silence(), refused(400, 408), half_close=True),
    row("ends-without-a-byte", b"", "9112 9.5", silence(), half_close=True),
)
