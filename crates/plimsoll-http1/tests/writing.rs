//! What is written, to the byte. Each row names the section of RFC 9110 or 9112 that it follows from.

use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Uri};
use plimsoll_http1::Framing;
use plimsoll_http1::write::{self, Connection};

fn fields(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
    let pair =
        |(name, value): &(&'static str, &'static str)| (HeaderName::from_static(name), HeaderValue::from_static(value));
    pairs.iter().map(pair).collect()
}

fn request(uri: &Uri, headers: &HeaderMap, framing: Framing, connection: Connection) -> String {
    let mut bytes = Vec::new();
    write::request_head(&mut bytes, &Method::POST, uri, headers, framing, connection);
    String::from_utf8(bytes).expect("it is ASCII")
}

fn response(status: u16, headers: &HeaderMap, framing: Framing, connection: Connection) -> String {
    let mut bytes = Vec::new();
    let status = StatusCode::from_u16(status).expect("it is a status");
    write::response_head(&mut bytes, status, headers, framing, connection);
    String::from_utf8(bytes).expect("it is ASCII")
}

/// What a map may say about a body that came by another protocol.
const FOREIGN: &[(&str, &str)] =
    &[("content-length", "5"), ("transfer-encoding", "chunked"), ("connection", "close"), ("a", "b")];

#[test]
fn head_of_a_request_says_of_its_body_what_the_framing_says() {
    let rows = [
        ("9112, 6.3, 7", Framing::Empty, "POST / HTTP/1.1\r\na: b\r\n\r\n"),
        ("9110, 8.6", Framing::Length(0), "POST / HTTP/1.1\r\na: b\r\ncontent-length: 0\r\n\r\n"),
        ("9112, 6.2", Framing::Length(1090), "POST / HTTP/1.1\r\na: b\r\ncontent-length: 1090\r\n\r\n"),
        ("9112, 6.1", Framing::Chunked, "POST / HTTP/1.1\r\na: b\r\ntransfer-encoding: chunked\r\n\r\n"),
    ];
    for (section, framing, expected) in rows {
        let was = request(&Uri::from_static("/"), &fields(FOREIGN), framing, Connection::Unsaid);
        assert_eq!(was, expected, "RFC {section}");
    }
}

#[test]
fn head_of_a_response_says_of_its_body_what_the_framing_says() {
    let rows = [
        ("9110, 8.6", 304, Framing::Empty, "HTTP/1.1 304 Not Modified\r\ncontent-length: 5\r\na: b\r\n\r\n"),
        ("9110, 8.6", 200, Framing::Empty, "HTTP/1.1 200 OK\r\ncontent-length: 5\r\na: b\r\n\r\n"),
        ("9110, 8.6", 204, Framing::Empty, "HTTP/1.1 204 No Content\r\na: b\r\n\r\n"),
        ("9110, 8.6", 204, Framing::Length(0), "HTTP/1.1 204 No Content\r\na: b\r\n\r\n"),
        ("9112, 6.1", 204, Framing::Chunked, "HTTP/1.1 204 No Content\r\na: b\r\n\r\n"),
        ("9110, 8.6", 103, Framing::Empty, "HTTP/1.1 103 Early Hints\r\na: b\r\n\r\n"),
        ("9110, 8.6", 101, Framing::Empty, "HTTP/1.1 101 Switching Protocols\r\na: b\r\n\r\n"),
        ("9112, 6.2", 200, Framing::Length(0), "HTTP/1.1 200 OK\r\na: b\r\ncontent-length: 0\r\n\r\n"),
        (
            "9112, 6.2",
            200,
            Framing::Length(u64::MAX),
            "HTTP/1.1 200 OK\r\na: b\r\ncontent-length: 18446744073709551615\r\n\r\n",
        ),
        ("9112, 6.1", 200, Framing::Chunked, "HTTP/1.1 200 OK\r\na: b\r\ntransfer-encoding: chunked\r\n\r\n"),
        ("9112, 6.3, 8", 200, Framing::UntilClose, "HTTP/1.1 200 OK\r\na: b\r\n\r\n"),
        ("9112, 4", 799, Framing::UntilClose, "HTTP/1.1 799 \r\na: b\r\n\r\n"),
    ];
    for (section, status, framing, expected) in rows {
        let was = response(status, &fields(FOREIGN), framing, Connection::Unsaid);
        assert_eq!(was, expected, "RFC {section}");
    }
}

#[test]
fn connection_field_is_the_callers_alone() {
    for (connection, expected) in [
        (Connection::Unsaid, "HTTP/1.1 200 OK\r\na: b\r\n\r\n"),
        (Connection::KeepAlive, "HTTP/1.1 200 OK\r\na: b\r\nconnection: keep-alive\r\n\r\n"),
        (Connection::Close, "HTTP/1.1 200 OK\r\na: b\r\nconnection: close\r\n\r\n"),
        (Connection::Upgrade, "HTTP/1.1 200 OK\r\na: b\r\nconnection: upgrade\r\n\r\n"),
    ] {
        let headers = fields(&[("a", "b"), ("connection", "a, b")]);
        assert_eq!(response(200, &headers, Framing::UntilClose, connection), expected, "RFC 9110, 7.6.1");
    }
}

#[test]
fn target_without_a_path_gets_one_where_the_authority_is_gone() {
    let query_alone = Uri::from_static("http://h?q").into_parts().path_and_query.expect("it has a query");
    assert_eq!(query_alone.as_str(), "?q");
    let rows = [
        ("9112, 3.2.1", Uri::from(query_alone), "/?q"),
        ("9112, 3.2.1", Uri::default(), "/"),
        ("9112, 3.2.1", Uri::from_static("//a?b"), "//a?b"),
        ("9112, 3.2.2", Uri::from_static("http://h?q"), "http://h?q"),
        ("9112, 3.2.2", Uri::from_static("https://h:1/a?b"), "https://h:1/a?b"),
        ("9112, 3.2.3", Uri::from_static("h:80"), "h:80"),
        ("9112, 3.2.4", Uri::from_static("*"), "*"),
        ("9112, 3.2.4", Uri::from(PathAndQuery::from_static("*")), "*"),
    ];
    for (section, uri, expected) in rows {
        let was = request(&uri, &HeaderMap::new(), Framing::Empty, Connection::Unsaid);
        assert_eq!(was, format!("POST {expected} HTTP/1.1\r\n\r\n"), "RFC {section}");
    }
}

#[test]
fn fields_said_several_times_are_written_several_times_and_in_order() {
    let headers = fields(&[("set-cookie", "a"), ("b", ""), ("set-cookie", "c")]);
    let was = response(200, &headers, Framing::UntilClose, Connection::Unsaid);
    assert_eq!(was, "HTTP/1.1 200 OK\r\nset-cookie: a\r\nset-cookie: c\r\nb: \r\n\r\n", "RFC 9110, 5.3");
}

#[test]
fn chunk_begins_with_its_size_in_hexadecimal() {
    for (len, expected) in
        [(1, "1\r\n"), (15, "f\r\n"), (16, "10\r\n"), (0x00ab_cdef, "abcdef\r\n"), (usize::MAX, "ffffffffffffffff\r\n")]
    {
        let mut bytes = Vec::new();
        write::chunk_start(&mut bytes, len);
        assert_eq!(bytes, expected.as_bytes(), "RFC 9112, 7.1");
    }
}

#[test]
fn last_chunk_has_the_trailers_that_may_be_trailers() {
    let trailers = fields(&[("grpc-status", "0"), ("content-length", "5"), ("host", "b"), ("x-forwarded-for", "::1")]);
    for (trailers, expected) in [(None, "0\r\n\r\n"), (Some(&trailers), "0\r\ngrpc-status: 0\r\n\r\n")] {
        let mut bytes = Vec::new();
        write::last_chunk(&mut bytes, trailers);
        assert_eq!(bytes, expected.as_bytes(), "RFC 9110, 6.5.1");
    }
}
