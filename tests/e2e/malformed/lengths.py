"""Where a message ends: `Content-Length`, `Transfer-Encoding`, and both at once."""

from .row import HOST, message, passed, post, refused, row

ABC = b"3\r\nabc\r\n0\r\n\r\n"
CHUNKED = b"Transfer-Encoding: chunked"


def length(value: bytes, body: bytes = b"abcde") -> bytes:
    return post(b"Content-Length:" + value, body=body)


def coding(value: bytes, body: bytes = ABC) -> bytes:
    return post(b"Transfer-Encoding:" + value, body=body)


ABCDE = passed("POST", body=b"abcde", transfer_encoding=None, content_length="5")
CODED = passed("POST", body=b"abc", content_length=None)

# fmt: off
ROWS = (
    # Content-Length.
    row("length", length(b" 5"), "9110 8.6", ABCDE),
    row("length-0", length(b" 0", b""), "9110 8.6", passed("POST")),
    row("length-of-get", message(b"GET / HTTP/1.1", HOST, b"Content-Length: 3", body=b"abc"), "9110 9.3.1", passed(body=b"abc"), refused()),
    row("no-length-is-no-body", post(), "9112 6.3", passed("POST")),
    row("blanks-around-length", length(b"\t 5 \t"), "9110 5.5", ABCDE),
    row("leading-zeros-in-length", length(b" 0005"), "9110 8.6", passed("POST", body=b"abcde"), refused()),
    row("length-twice-equal", post(b"Content-Length: 5", b"Content-Length: 5", body=b"abcde"), "9112 6.3", refused()),
    row("length-twice-different", post(b"Content-Length: 5", b"content-length: 6", body=b"abcde"), "9112 6.3", refused()),
    row("length-in-list-equal", length(b" 5, 5"), "9112 6.3", refused()),
    row("length-in-list-different", length(b" 5, 6"), "9112 6.3", refused()),
    row("length-with-comma", length(b" 5,"), "9112 6.3", refused()),
    row("empty-length", length(b"", b""), "9110 8.6", refused()),
    row("length-of-blanks", length(b"   ", b""), "9110 8.6", refused()),
    row("plus-in-length", length(b" +5"), "9110 8.6", refused()),
    row("minus-in-length", length(b" -5"), "9110 8.6", refused()),
    row("minus-zero-length", length(b" -0", b""), "9110 8.6", refused()),
    row("hexadecimal-length", length(b" 0x5"), "9110 8.6", refused()),
    row("octal-like-length", length(b" 0o5"), "9110 8.6", refused()),
    row("hexadecimal-digits-in-length", length(b" a", b"abcdefghij"), "9110 8.6", refused()),
    row("fraction-in-length", length(b" 5.0"), "9110 8.6", refused()),
    row("exponent-in-length", length(b" 5e0"), "9110 8.6", refused()),
    row("space-within-length", length(b" 5 5"), "9110 8.6", refused()),
    row("underscore-within-length", length(b" 0_5"), "9110 8.6", refused()),
    row("length-with-unit", length(b" 5b"), "9110 8.6", refused()),
    row("length-in-quotes", length(b' "5"'), "9110 8.6", refused()),
    row("length-with-semicolon", length(b" 5;"), "9110 8.6", refused()),
    row("length-with-nul", length(b" 5\x00"), "9110 5.5", refused()),
    row("length-with-vertical-tab", length(b" \x0b5"), "9110 5.5", refused()),
    row("length-in-other-digits", length("\uff15".encode()), "9110 8.6", refused()),
    row("length-of-2-to-63", length(b" 9223372036854775808", b""), "9110 8.6", refused(400, 413)),
    row("length-of-2-to-64", length(b" 18446744073709551616", b""), "9110 8.6", refused(400, 413)),
    row("length-of-2-to-64-and-5", length(b" 18446744073709551621"), "9110 8.6", refused(400, 413)),
    row("length-of-40-digits", length(b" " + b"9" * 40, b""), "9110 8.6", refused(400, 413)),
    row("length-with-space-before-colon", post(b"Content-Length : 5", body=b"abcde"), "9112 5.1", refused()),
    # Transfer-Encoding.
    row("chunked", coding(b" chunked"), "9112 7.1", CODED),
    row("chunked-in-capitals", coding(b" CHUNKED"), "9110 10.1.4", CODED),
    row("chunked-in-mixed-case", coding(b" cHuNkEd"), "9110 10.1.4", CODED),
    row("blanks-around-chunked", coding(b"\t chunked\t "), "9110 5.5", CODED),
    row("chunked-get", message(b"GET / HTTP/1.1", HOST, CHUNKED, body=ABC), "9112 6.1", passed(body=b"abc"), refused()),
    row("chunked-with-comma", coding(b" chunked,"), "9110 5.6.1.2", CODED, refused(400, 501)),
    row("chunked-after-comma", coding(b" , chunked"), "9110 5.6.1.2", CODED, refused(400, 501)),
    row("unknown-coding-before-chunked", coding(b" cow, chunked"), "9112 6.1", refused(501)),
    row("unknown-coding-alone", coding(b" cow"), "9112 6.3", refused(400, 501)),
    row("known-coding-that-is-not-done-here", coding(b" gzip, chunked"), "9112 6.1", refused(501)),
    row("gzip-alone", coding(b" gzip"), "9112 6.3", refused(400, 501)),
    row("identity", coding(b" identity"), "9112 7", refused(400, 501)),
    row("identity-before-chunked", coding(b" identity, chunked"), "9112 7", refused(400, 501)),
    row("chunked-before-identity", coding(b" chunked, identity"), "9112 6.3", refused(400, 501)),
    row("chunked-before-gzip", coding(b" chunked, gzip"), "9112 6.3", refused(400, 501)),
    row("chunked-twice-in-a-list", coding(b" chunked, chunked"), "9112 6.1", refused(400, 501)),
    row("chunked-twice-in-two-fields", post(CHUNKED, CHUNKED, body=ABC), "9112 6.1", refused(400, 501)),
    row("chunked-and-unknown-in-two-fields", post(CHUNKED, b"Transfer-Encoding: cow", body=ABC), "9112 6.3", refused(400, 501)),
    row("unknown-and-chunked-in-two-fields", post(b"Transfer-Encoding: cow", CHUNKED, body=ABC), "9112 6.1", refused(400, 501)),
    row("empty-coding", coding(b""), "9112 6.1", refused(400, 501)),
    row("coding-of-comma", coding(b" ,"), "9112 6.1", refused(400, 501)),
    row("chunked-in-quotes", coding(b' "chunked"'), "9112 6.1", refused(400, 501)),
    row("chunked-in-single-quotes", coding(b" 'chunked'"), "9112 6.1", refused(400, 501)),
    row("chunked-with-parameter", coding(b" chunked;q=1"), "9112 7", refused(400, 501)),
    row("chunked-with-letter-before", coding(b" xchunked"), "9112 6.1", refused(400, 501)),
    row("chunked-with-letter-after", coding(b" chunkedx"), "9112 6.1", refused(400, 501)),
    row("chunked-after-space-in-word", coding(b" x chunked"), "9112 6.1", refused(400, 501)),
    row("chunked-with-long-s", coding("\u017fchunked".encode()), "9112 6.1", refused(400, 501)),
    row("vertical-tab-before-chunked", coding(b" \x0bchunked"), "9110 5.5", refused()),
    row("vertical-tab-after-chunked", coding(b" chunked\x0b"), "9110 5.5", refused()),
    row("form-feed-before-chunked", coding(b"\x0cchunked"), "9110 5.5", refused()),
    row("nul-after-chunked", coding(b" chunked\x00"), "9110 5.5", refused()),
    row("non-breaking-space-before-chunked", coding(b" \xa0chunked"), "9112 6.1", refused(400, 501)),
    row("coding-with-space-before-colon", post(b"Transfer-Encoding : chunked", body=ABC), "9112 5.1", refused()),
    row("coding-with-tab-before-colon", post(b"Transfer-Encoding\t: chunked", body=ABC), "9112 5.1", refused()),
    row("folded-coding", post(b"Transfer-Encoding:", b" chunked", body=ABC), "9112 5.2", refused()),
    row("coding-with-continuation", post(b"Transfer-Encoding: chunked", b" , identity", body=ABC), "9112 5.2", refused()),
    row("coding-in-1.0", message(b"POST / HTTP/1.0", HOST, CHUNKED, body=ABC), "9112 6.1", refused()),
    row("coding-in-1.0-with-keep-alive", message(b"POST / HTTP/1.0", HOST, b"Connection: keep-alive", CHUNKED, body=ABC), "9112 6.1", refused()),
    # Both.
    row("length-then-coding", post(b"Content-Length: 3", CHUNKED, body=ABC), "9112 6.3", refused()),
    row("coding-then-length", post(CHUNKED, b"Content-Length: 13", body=ABC), "9112 6.3", refused()),
    row("length-0-and-coding", post(b"Content-Length: 0", CHUNKED, body=ABC), "9112 6.3", refused()),
    row("length-and-unknown-coding", post(b"Content-Length: 3", b"Transfer-Encoding: cow", body=b"abc"), "9112 6.3", refused(400, 501)),
    row("length-and-empty-coding", post(b"Content-Length: 3", b"Transfer-Encoding:", body=b"abc"), "9112 6.3", refused(400, 501)),
    row("length-and-identity", post(b"Content-Length: 3", b"Transfer-Encoding: identity", body=b"abc"), "9112 6.3", refused(400, 501)),
    row("length-and-coding-with-underscore", post(b"Content-Length: 3", b"Transfer_Encoding: chunked", body=b"abc"), "9110 5.1", passed("POST", body=b"abc"), refused()),
    row("both-in-1.0", message(b"POST / HTTP/1.0", HOST, b"Content-Length: 3", CHUNKED, body=ABC), "9112 6.1", refused()),
)
