//! Heads of responses: what is forgiven to backends, and what is not. Each row names the section of RFC 9110 or 9112 that it
//! follows from.

use bytes::BytesMut;
use http::{Method, Version};
use plimsoll_http1::{Fault, Framing, Limits, ResponseHead, Scan};

const LIMITS: Limits = Limits { max_size: 16 * 1024, max_fields: 100, max_target: 0 };

fn parse(method: &Method, bytes: &[u8]) -> Result<ResponseHead, Fault> {
    let head = ResponseHead::parse(&mut BytesMut::from(bytes), &mut Scan::default(), &LIMITS, method)?;
    Ok(head.expect("the head is whole"))
}

#[test]
fn status_line_is_version_and_code() {
    let rows: [(&str, &[u8], Result<u16, Fault>); 23] = [
        ("9112, 4", b"HTTP/1.1 200 OK\r\n\r\n", Ok(200)),
        ("9112, 4", b"HTTP/1.1 200 \r\n\r\n", Ok(200)),
        ("9112, 4", b"HTTP/1.1 200\r\n\r\n", Ok(200)),
        ("9112, 4", b"HTTP/1.0 404 Not\tFound \xe9\r\n\r\n", Ok(404)),
        ("9110, 2.5", b"HTTP/1.7 200 OK\r\n\r\n", Ok(200)),
        ("9110, 15", b"HTTP/1.1 100 Continue\r\n\r\n", Ok(100)),
        ("9110, 15", b"HTTP/1.1 999 x\r\n\r\n", Ok(999)),
        ("9112, 2.2", b"HTTP/1.1 200 OK\n\n", Ok(200)),
        ("9112, 2.2", b"HTTP/1.1 200 OK\nA: b\r\nC: d\n\r\n", Ok(200)),
        ("9110, 15", b"HTTP/1.1 099 x\r\n\r\n", Err(Fault::StartLine)),
        ("9112, 4", b"HTTP/1.1 20 OK\r\n\r\n", Err(Fault::StartLine)),
        ("9112, 4", b"HTTP/1.1 2000 OK\r\n\r\n", Err(Fault::StartLine)),
        ("9112, 4", b"HTTP/1.1 2x0 OK\r\n\r\n", Err(Fault::StartLine)),
        ("9112, 4", b"HTTP/1.1  200 OK\r\n\r\n", Err(Fault::StartLine)),
        ("9112, 4", b"HTTP/1.1 200\tOK\r\n\r\n", Err(Fault::StartLine)),
        ("9112, 4", b"HTTP/1.1 200 O\0K\r\n\r\n", Err(Fault::StartLine)),
        ("9112, 2.2", b"HTTP/1.1 200 OK\r\r\n\r\n", Err(Fault::StartLine)),
        ("9112, 4", b" HTTP/1.1 200 OK\r\n\r\n", Err(Fault::StartLine)),
        ("9112, 4", b"\r\nHTTP/1.1 200 OK\r\n\r\n", Err(Fault::StartLine)),
        ("9112, 2.3", b"http/1.1 200 OK\r\n\r\n", Err(Fault::StartLine)),
        ("9112, 2.3", b"HTTP/2.0 200 OK\r\n\r\n", Err(Fault::Version)),
        ("9112, 2.3", b"HTTP/1 200 OK\r\n\r\n", Err(Fault::StartLine)),
        ("9112, 4", b"ICY 200 OK\r\n\r\n", Err(Fault::StartLine)),
    ];
    for (section, bytes, expected) in rows {
        let outcome = parse(&Method::GET, bytes).map(|head| head.status.as_u16());
        assert_eq!(outcome, expected, "RFC {section}: {}", bytes.escape_ascii());
    }
}

#[test]
fn long_reason_is_no_long_target() {
    let bytes = format!("HTTP/1.1 200 {}\r\n\r\n", "x".repeat(1000));
    assert!(parse(&Method::GET, bytes.as_bytes()).is_ok(), "RFC 9112, 4");
}

#[test]
fn field_lines_are_neither_folded_nor_padded() {
    for (section, fields) in [
        ("9112, 5.1", &b"A : b\r\n"[..]),
        ("9112, 5.2", b"A: b\r\n c\r\n"),
        ("9112, 5.2", b"A: b\n\tc\n"),
        ("9112, 2.2", b"A: b\rc\r\n"),
        ("9110, 5.5", b"A: b\0\r\n"),
    ] {
        let bytes = [b"HTTP/1.1 200 OK\r\n", fields, b"\r\n"].concat();
        let outcome = parse(&Method::GET, &bytes).err();
        assert_eq!(outcome, Some(Fault::Field), "RFC {section}: {}", fields.escape_ascii());
    }
}

#[test]
fn where_a_response_ends_depends_on_its_request_and_status_first() {
    use Fault::{ContentLength, LengthAndCoding, TransferEncoding, UnknownCoding};
    use Framing::{Chunked, Empty, Length, UntilClose};
    let (connect, get, head) = ("CONNECT", "GET", "HEAD");
    let rows = [
        ("9112, 6.3, 1", head, 200, "Content-Length: 5\r\n", Ok(Empty)),
        ("9112, 6.3, 1", head, 200, "Transfer-Encoding: chunked\r\n", Ok(Empty)),
        ("9112, 6.3, 1", get, 304, "Content-Length: 5\r\n", Ok(Empty)),
        ("9112, 6.3, 1", get, 204, "", Ok(Empty)),
        ("9112, 6.3, 1", get, 204, "Content-Length: 0\r\n", Ok(Empty)),
        ("9112, 6.3, 1", get, 204, "Transfer-Encoding: chunked\r\n", Ok(Empty)),
        ("9112, 6.3, 1", get, 100, "", Ok(Empty)),
        ("9112, 6.3, 1", get, 103, "Content-Length: 0\r\n", Ok(Empty)),
        ("9112, 6.3, 1", get, 101, "Content-Length: 5\r\n", Ok(Empty)),
        ("9110, 8.6", get, 103, "Content-Length: 5\r\n", Err(ContentLength)),
        ("9112, 6.1", get, 103, "Transfer-Encoding: chunked\r\n", Err(TransferEncoding)),
        ("9112, 6.1", head, 100, "Transfer-Encoding: chunked\r\n", Err(TransferEncoding)),
        ("9112, 6.3, 2", connect, 200, "Content-Length: 5\r\n", Ok(Empty)),
        ("9112, 6.3, 2", connect, 200, "Transfer-Encoding: chunked\r\n", Ok(Empty)),
        ("9112, 6.3, 2", connect, 407, "Content-Length: 5\r\n", Ok(Length(5))),
        ("9112, 6.3, 3", get, 200, "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n", Err(LengthAndCoding)),
        ("9112, 6.3, 3", head, 200, "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n", Err(LengthAndCoding)),
        ("9112, 6.3, 4", get, 200, "Transfer-Encoding: chunked\r\n", Ok(Chunked)),
        ("9110, 5.6.1.2", get, 200, "Transfer-Encoding: , chunked,\r\n", Ok(Chunked)),
        ("9112, 6.1", get, 200, "Transfer-Encoding: gzip, chunked\r\n", Err(UnknownCoding)),
        ("9112, 6.3, 4", get, 200, "Transfer-Encoding: identity\r\n", Err(TransferEncoding)),
        ("9112, 6.1", get, 200, "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n", Err(TransferEncoding)),
        ("9112, 6.3, 5", get, 200, "Content-Length: 5\r\nContent-Length: 5\r\n", Ok(Length(5))),
        ("9112, 6.3, 5", get, 200, "Content-Length: 5\r\nContent-Length: 6\r\n", Err(ContentLength)),
        ("9112, 6.3, 5", get, 200, "Content-Length: 5\r\nContent-Length: x\r\n", Err(ContentLength)),
        ("9112, 6.3, 5", get, 200, "Content-Length: +5\r\n", Err(ContentLength)),
        ("9112, 6.3, 5", head, 200, "Content-Length: 5\r\nContent-Length: 6\r\n", Err(ContentLength)),
        ("9112, 6.3, 5", get, 304, "Content-Length: x\r\n", Err(ContentLength)),
        ("9112, 6.3, 6", get, 200, "Content-Length: 0\r\n", Ok(Length(0))),
        ("9112, 6.3, 8", get, 200, "", Ok(UntilClose)),
        ("9112, 6.3, 8", get, 205, "", Ok(UntilClose)),
        ("9112, 6.3, 8", get, 404, "Connection: keep-alive\r\n", Ok(UntilClose)),
    ];
    for (section, method, status, fields, expected) in rows {
        let method = Method::from_bytes(method.as_bytes()).expect("it is a token");
        let bytes = format!("HTTP/1.1 {status} x\r\n{fields}\r\n");
        let outcome = parse(&method, bytes.as_bytes()).map(|head| head.framing);
        assert_eq!(outcome, expected, "RFC {section}: {method} {bytes:?}");
    }
}

#[test]
fn http_1_0_has_no_codings() {
    let outcome =
        parse(&Method::GET, b"HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n").map(|head| head.framing);
    assert_eq!(outcome, Err(Fault::TransferEncoding), "RFC 9112, 6.1");
}

#[test]
fn length_said_twice_is_passed_on_once() {
    for method in [Method::GET, Method::HEAD] {
        let head =
            parse(&method, b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 05\r\n\r\n").expect("equal");
        let lines: Vec<_> = head.headers.get_all("content-length").iter().collect();
        assert_eq!(lines, ["5"], "RFC 9112, 6.3, 5: {method}");
    }
}

#[test]
fn connection_is_used_again_only_where_a_next_response_can_follow() {
    let rows = [
        ("9112, 9.3", "GET", "1.1 200", "Content-Length: 5\r\n", true),
        ("9112, 9.3", "GET", "1.1 200", "Content-Length: 5\r\nConnection: close\r\n", false),
        ("9112, 9.3", "GET", "1.1 200", "Content-Length: 5\r\nConnection: x, Close\r\n", false),
        ("9112, 9.3", "GET", "1.0 200", "Content-Length: 5\r\n", false),
        ("9112, 9.3", "GET", "1.0 200", "Content-Length: 5\r\nConnection: keep-alive\r\n", true),
        ("9112, 9.3", "GET", "1.0 200", "Content-Length: 5\r\nConnection: keep-alive, close\r\n", false),
        ("9112, 6.3, 8", "GET", "1.1 200", "", false),
        ("9112, 6.3, 1", "HEAD", "1.1 200", "", true),
        ("9112, 6.3, 1", "GET", "1.1 204", "", true),
        ("9112, 6.3, 1", "GET", "1.1 304", "Content-Length: 5\r\n", true),
        ("9110, 8.6", "GET", "1.1 204", "Content-Length: 0\r\n", true),
        ("9110, 8.6", "GET", "1.1 204", "Content-Length: 5\r\n", false),
        ("9112, 6.1", "GET", "1.1 204", "Transfer-Encoding: chunked\r\n", false),
        ("9110, 7.8", "GET", "1.1 101", "Connection: upgrade\r\nUpgrade: x\r\n", false),
        ("9112, 6.3, 2", "CONNECT", "1.1 200", "", false),
        ("9112, 9.3", "CONNECT", "1.1 407", "Content-Length: 0\r\n", true),
        ("9110, 15.2", "GET", "1.1 100", "", true),
    ];
    for (section, method, line, fields, expected) in rows {
        let method = Method::from_bytes(method.as_bytes()).expect("it is a token");
        let head = parse(&method, format!("HTTP/{line} x\r\n{fields}\r\n").as_bytes()).expect("it is well-formed");
        assert_eq!(head.keep_alive, expected, "RFC {section}: {method} {line} {fields:?}");
    }
}

#[test]
fn interim_responses_come_before_the_final_one() {
    let mut buf = BytesMut::from(
        &b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 x\r\nLink: a\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nd"
            [..],
    );
    let mut scan = Scan::default();
    for status in [100, 103, 200] {
        let head =
            ResponseHead::parse(&mut buf, &mut scan, &LIMITS, &Method::GET).expect("well-formed").expect("whole");
        assert_eq!((head.status.as_u16(), head.version), (status, Version::HTTP_11), "RFC 9110, 15.2");
    }
    assert_eq!(&buf[..], b"d");
}

#[test]
fn large_heads_are_refused() {
    let small = Limits { max_size: 60, max_fields: 2, max_target: 0 };
    for (fields, expected) in [
        ("A: b\r\n".repeat(2), None),
        ("A: b\r\n".repeat(3), Some(Fault::TooManyFields)),
        (format!("A: {}\r\n", "b".repeat(36)), None),
        (format!("A: {}\r\n", "b".repeat(37)), Some(Fault::HeadTooLarge)),
    ] {
        let mut buf = BytesMut::from(format!("HTTP/1.1 200 OK\r\n{fields}\r\n").as_bytes());
        let outcome = ResponseHead::parse(&mut buf, &mut Scan::default(), &small, &Method::GET).err();
        assert_eq!(outcome, expected, "RFC 9110, 5.4: {fields:?}");
    }
}
