//! Heads of requests: which are taken, and with which fault the others are refused. Each row names the section of RFC
//! 9110 or 9112 that it follows from.

use bytes::BytesMut;
use http::{Method, Uri, Version};
use plimsoll_http1::{Fault, Framing, Limits, MAX_METHOD, RequestHead, Scan};

const LIMITS: Limits = Limits { max_size: 16 * 1024, max_fields: 100, max_target: 8 * 1024 };

fn parse_within(limits: &Limits, bytes: &[u8]) -> Result<Option<RequestHead>, Fault> {
    RequestHead::parse(&mut BytesMut::from(bytes), &mut Scan::default(), limits)
}

fn parse(bytes: &[u8]) -> Result<RequestHead, Fault> {
    Ok(parse_within(&LIMITS, bytes)?.expect("the head is whole"))
}

fn fault_of(bytes: &[u8]) -> Option<Fault> {
    parse(bytes).err()
}

/// A request with nothing special but `fields`, each ended by CRLF.
fn with_fields(fields: &str) -> Vec<u8> {
    format!("POST / HTTP/1.1\r\nHost: a\r\n{fields}\r\n").into_bytes()
}

fn with_target(method: &str, target: &str) -> Vec<u8> {
    format!("{method} {target} HTTP/1.1\r\nHost: a\r\n\r\n").into_bytes()
}

#[track_caller]
fn assert_rows<E: PartialEq + std::fmt::Debug>(rows: &[(&str, &[u8], E)], outcome: impl Fn(&[u8]) -> E) {
    for (section, bytes, expected) in rows {
        assert_eq!(outcome(bytes), *expected, "RFC {section}: {:?}", bytes.escape_ascii().to_string());
    }
}

#[test]
fn start_line_is_three_words_and_single_spaces() {
    use Fault::{BareLineFeed, StartLine, Target, Version};
    let rows: &[(&str, &[u8], Option<Fault>)] = &[
        ("9112, 3", b"GET / HTTP/1.1\r\nHost: a\r\n\r\n", None),
        ("9112, 3", b"GET  / HTTP/1.1\r\nHost: a\r\n\r\n", Some(Target)),
        ("9112, 3", b"GET /  HTTP/1.1\r\nHost: a\r\n\r\n", Some(Target)),
        ("9112, 3", b"GET / x HTTP/1.1\r\nHost: a\r\n\r\n", Some(Target)),
        ("9112, 3", b"GET / HTTP/1.1 \r\nHost: a\r\n\r\n", Some(StartLine)),
        ("9112, 3", b" GET / HTTP/1.1\r\nHost: a\r\n\r\n", Some(StartLine)),
        ("9112, 3", b"GET\t/ HTTP/1.1\r\nHost: a\r\n\r\n", Some(StartLine)),
        ("9112, 3", b"GET /\tHTTP/1.1\r\nHost: a\r\n\r\n", Some(StartLine)),
        ("9112, 3", b"GET /\x0bHTTP/1.1\r\nHost: a\r\n\r\n", Some(StartLine)),
        ("9112, 3", b"GET /\r\nHost: a\r\n\r\n", Some(StartLine)),
        ("9112, 3", b"GET HTTP/1.1\r\nHost: a\r\n\r\n", Some(StartLine)),
        ("9112, 3", b"GET  HTTP/1.1\r\nHost: a\r\n\r\n", Some(StartLine)),
        ("9112, 3", b"GET\r\nHost: a\r\n\r\n", Some(StartLine)),
        ("9112, 2.2", b"GET / HTTP/1.1\r\r\nHost: a\r\n\r\n", Some(StartLine)),
        ("9112, 2.2", b"GET /\rx HTTP/1.1\r\nHost: a\r\n\r\n", Some(Target)),
        ("9112, 2.2", b"GET / HTTP/1.1\nHost: a\n\n", Some(BareLineFeed)),
        ("9112, 2.2", b"GET / HTTP/1.1\r\nHost: a\n\r\n", Some(BareLineFeed)),
        ("9112, 2.2", b"GET / HTTP/1.1\r\nHost: a\r\n\n", Some(BareLineFeed)),
        ("9112, 2.2", b"GET / HTTP/1.1\r\nHost: a\r\n\r\r\n\r\n", Some(Fault::Field)),
        ("9112, 2.2", b"GET / HTTP/1.1\r\n Host: a\r\n\r\n", Some(Fault::Field)),
        ("9112, 2.3", b"GET / HTTP/2.0\r\nHost: a\r\n\r\n", Some(Version)),
        ("9112, 2.3", b"PRI * HTTP/2.0\r\n\r\n", Some(Version)),
        ("9112, 2.3", b"GET / HTTP/0.9\r\nHost: a\r\n\r\n", Some(Version)),
        ("9112, 2.3", b"GET / http/1.1\r\nHost: a\r\n\r\n", Some(StartLine)),
        ("9112, 2.3", b"GET / HTTP/1.10\r\nHost: a\r\n\r\n", Some(StartLine)),
        ("9112, 2.3", b"GET / HTTP/1\r\nHost: a\r\n\r\n", Some(StartLine)),
        ("9112, 2.3", b"GET / HTTP/1.\r\nHost: a\r\n\r\n", Some(StartLine)),
        ("9112, 2.3", b"GET / HTTP/+1.1\r\nHost: a\r\n\r\n", Some(StartLine)),
        ("9112, 2.3", b"GET / HTTPS/1.1\r\nHost: a\r\n\r\n", Some(StartLine)),
    ];
    assert_rows(rows, fault_of);
}

#[test]
fn what_is_no_request_is_known_by_its_first_byte() {
    for (section, bytes, expected) in [
        ("9112, 2.2", &b"\x16"[..], Fault::StartLine),
        ("9112, 2.2", b"\0", Fault::StartLine),
        ("9112, 2.2", b"\n", Fault::BareLineFeed),
        ("9112, 2.2", b"\rG", Fault::StartLine),
        ("9112, 2.2", b"\xff", Fault::StartLine),
    ] {
        assert_eq!(parse_within(&LIMITS, bytes).err(), Some(expected), "RFC {section}: {bytes:?}");
    }
}

#[test]
fn two_empty_lines_before_a_request_are_passed_over_and_no_more() {
    let request = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n";
    for (lines, expected) in [(0, None), (1, None), (2, None), (3, Some(Fault::StartLine))] {
        let bytes = [&b"\r\n".repeat(lines)[..], request].concat();
        assert_eq!(fault_of(&bytes), expected, "RFC 9112, 2.2: {lines} empty lines");
    }
}

#[test]
fn empty_line_that_comes_in_two_reads_is_passed_over() {
    let (mut buf, mut scan) = (BytesMut::from(&b"\r"[..]), Scan::default());
    assert!(RequestHead::parse(&mut buf, &mut scan, &LIMITS).expect("nothing is wrong yet").is_none());
    buf.extend_from_slice(b"\nGET / HTTP/1.1\r\nHost: a\r\n\r\n");
    assert!(RequestHead::parse(&mut buf, &mut scan, &LIMITS).expect("it is well-formed").is_some());
    assert!(buf.is_empty());
}

#[test]
fn any_token_is_a_method_but_a_known_one_in_another_case() {
    for (method, is_taken) in [
        ("GET", true),
        ("get", false),
        ("Post", false),
        ("brew", true),
        ("QUERY", true),
        ("VERSION-CONTROL", true),
        ("M-SEARCH", true),
        ("!#$%&'*+-.^_`|~09azAZ", true),
        ("G(T", false),
        ("GE:T", false),
        ("GE\u{e9}T", false),
        ("GE\0T", false),
        ("\"GET\"", false),
    ] {
        let head = parse(&with_target(method, "/"));
        assert_eq!(head.is_ok(), is_taken, "RFC 9110, 9.1 and 5.6.2: {method:?}");
        if let Ok(head) = head {
            assert_eq!(head.method.as_str(), method);
        }
    }
}

#[test]
fn later_minor_version_is_read_as_1_1() {
    for (version, expected) in
        [("1.0", Version::HTTP_10), ("1.1", Version::HTTP_11), ("1.2", Version::HTTP_11), ("1.9", Version::HTTP_11)]
    {
        let head = parse(format!("GET / HTTP/{version}\r\nHost: a\r\n\r\n").as_bytes()).expect("it is HTTP/1");
        assert_eq!(head.version, expected, "RFC 9110, 2.5: {version}");
    }
}

/// Targets, and the form of each that a router and a writer see; nothing where it is refused.
const TARGETS: &[(&str, &str, &str, Option<&str>)] = &[
    ("9112, 3.2.1", "GET", "/", Some("/")),
    ("9112, 3.2.1", "GET", "/a/b?c=d&e", Some("/a/b?c=d&e")),
    ("9112, 3.2.1", "GET", "//x", Some("//x")),
    ("9112, 3.2.1", "GET", "//x:80/y", Some("//x:80/y")),
    ("9112, 3.2.1", "GET", "///", Some("///")),
    ("9112, 3.2.1", "GET", "/?", Some("/?")),
    ("9112, 3.2.1", "GET", "/a?b?c/d", Some("/a?b?c/d")),
    ("9112, 3.2.1", "GET", "/../a/./b", Some("/../a/./b")),
    ("9112, 3.2.1", "GET", "/%", Some("/%")),
    ("9112, 3.2.1", "GET", "/%zz%2f%00%0d%0a", Some("/%zz%2f%00%0d%0a")),
    ("9112, 3.2.1", "GET", "/*", Some("/*")),
    ("9112, 3.2.1", "GET", "/http://h/", Some("/http://h/")),
    ("9112, 3.2.1", "GET", "/a@b:c;d[e]", Some("/a@b:c;d[e]")),
    ("9112, 3.2.1", "GET", "/a\\b|c\"{d}", Some("/a\\b|c\"{d}")),
    ("9112, 3.2.1", "GET", "/a?\\^`{|}\"[", None),
    ("9112, 3.2.1", "GET", "/a?\\^`{|}[", Some("/a?\\^`{|}[")),
    ("9112, 3.2.1", "GET", "/<", None),
    ("9112, 3.2.1", "GET", "/a?<", None),
    ("9112, 3.2.1", "GET", "a", None),
    ("9112, 3.2.1", "GET", "a/b", None),
    ("9112, 3.2.1", "GET", "?q", None),
    ("9112, 3.2.1", "GET", "\\", None),
    ("9112, 3.2.1", "GET", ".", None),
    ("9110, 7.1", "GET", "/a#b", None),
    ("9110, 7.1", "GET", "/a?b#c", None),
    ("9110, 7.1", "GET", "#", None),
    ("9110, 7.1", "GET", "http://h#f", None),
    ("9110, 7.1", "GET", "http://h/#", None),
    ("9112, 3.2", "GET", "/caf\u{e9}", None),
    ("9112, 3.2", "GET", "/\u{7f}", None),
    ("9112, 3.2", "GET", "/\0", None),
    ("9112, 3.2.2", "GET", "http://h/", Some("http://h/")),
    ("9112, 3.2.2", "GET", "http://h/a?b", Some("http://h/a?b")),
    ("9112, 3.2.2", "GET", "https://h:8443/a", Some("https://h:8443/a")),
    ("9112, 3.2.2", "GET", "http://h:/a", Some("http://h:/a")),
    ("9112, 3.2.2", "GET", "HTTP://H/", Some("http://H/")),
    ("9112, 3.2.2", "GET", "http://[::1]:80/", Some("http://[::1]:80/")),
    ("9112, 3.2.2", "GET", "http://h?q", Some("http://h/?q")),
    ("9110, 4.2.3", "GET", "http://h", Some("http://h/")),
    ("9110, 4.2.1", "GET", "http:///a", None),
    ("9110, 4.2.1", "GET", "http://", None),
    ("9110, 4.2.1", "GET", "http://:80/", None),
    ("9110, 4.2.1", "GET", "http:/a", None),
    ("9110, 4.2.1", "GET", "http:h", None),
    ("9110, 4.2.1", "GET", "http://h:80:80/", None),
    ("9110, 4.2.1", "GET", "http://h:+80/", None),
    ("9110, 4.2.1", "GET", "http://h:65536/", None),
    ("9110, 4.2.1", "GET", "http://a,b/", None),
    ("9110, 4.2.1", "GET", "http://[::1]x/", None),
    ("9110, 4.2.1", "GET", "http://x[::1]/", None),
    ("9110, 4.2.1", "GET", "http://h\\@x/", None),
    ("9110, 4.2.4", "GET", "http://u@h/", None),
    ("9110, 4.2.4", "GET", "http://u:p@h/", None),
    ("9110, 4.2.4", "GET", "http://@h/", None),
    ("9112, 3.2.2", "GET", "ftp://h/", None),
    ("9112, 3.2.2", "GET", "httpx://h/", None),
    ("9112, 3.2.2", "GET", "javascript:1", None),
    ("9112, 3.2.2", "GET", "*://h/", None),
    ("9112, 3.2.3", "GET", "h:80", None),
    ("9112, 3.2.3", "GET", "h", None),
    ("9112, 3.2.3", "CONNECT", "h:80", Some("h:80")),
    ("9112, 3.2.3", "CONNECT", "[::1]:80", Some("[::1]:80")),
    ("9112, 3.2.3", "CONNECT", "h", None),
    ("9112, 3.2.3", "CONNECT", "h:", None),
    ("9112, 3.2.3", "CONNECT", ":80", None),
    ("9112, 3.2.3", "CONNECT", "h:+80", None),
    ("9112, 3.2.3", "CONNECT", "[::1]", None),
    ("9112, 3.2.3", "CONNECT", "u@h:80", None),
    ("9112, 3.2.3", "CONNECT", "/", None),
    ("9112, 3.2.3", "CONNECT", "*", None),
    ("9112, 3.2.3", "CONNECT", "http://h:80/", None),
    ("9112, 3.2.3", "CONNECT", "h:80/", None),
    ("9112, 3.2.4", "OPTIONS", "*", Some("*")),
    ("9112, 3.2.4", "OPTIONS", "/", Some("/")),
    ("9112, 3.2.4", "OPTIONS", "http://h", Some("http://h")),
    ("9112, 3.2.4", "OPTIONS", "http://h/", Some("http://h/")),
    ("9112, 3.2.4", "OPTIONS", "http://h?q", Some("http://h/?q")),
    ("9112, 3.2.4", "GET", "*", None),
    ("9112, 3.2.4", "OPTIONS", "**", None),
    ("9112, 3.2.4", "OPTIONS", "*?q", None),
];

/// As the writer puts it.
fn written(method: &Method, uri: &Uri) -> String {
    let mut bytes = Vec::new();
    let connection = plimsoll_http1::write::Connection::Unsaid;
    plimsoll_http1::write::request_head(&mut bytes, method, uri, &http::HeaderMap::new(), Framing::Empty, connection);
    let text = String::from_utf8(bytes).expect("targets are ASCII");
    text.split(' ').nth(1).expect("a start line has three words").to_owned()
}

#[test]
fn target_is_taken_in_the_form_in_which_it_came_or_not_at_all() {
    for (section, method, target, expected) in TARGETS {
        let outcome = parse(&with_target(method, target)).map(|head| written(&head.method, &head.uri));
        let expected = expected.map(str::to_owned).ok_or(Fault::Target);
        assert_eq!(outcome, expected, "RFC {section}: {method} {target:?}");
    }
}

#[test]
fn options_about_a_whole_server_have_an_asterisk_when_the_authority_is_taken_off() {
    let head = parse(&with_target("OPTIONS", "http://h:81")).expect("it is well-formed");
    assert_eq!(head.uri.path(), "*", "RFC 9112, 3.2.4");
    assert_eq!(head.uri.authority().map(|authority| authority.as_str()), Some("h:81"));
    let path = head.uri.into_parts().path_and_query.expect("it has a path");
    assert_eq!(written(&Method::OPTIONS, &Uri::from(path)), "*");
}

#[test]
fn no_byte_that_ends_a_word_or_a_line_gets_into_a_target() {
    for prefix in ["/", "/a?", "http://h", "http://h/", "*", "h:8"] {
        for byte in (0..=b' ').chain(0x7f..=0xff) {
            let mut request = format!("GET {prefix}").into_bytes();
            request.extend([byte, b'x']);
            request.extend_from_slice(b" HTTP/1.1\r\nHost: a\r\n\r\n");
            assert!(fault_of(&request).is_some(), "RFC 9112, 3.2: {prefix:?} and byte {byte:#x}");
        }
    }
}

#[test]
fn host_is_said_once_and_is_one() {
    let rows = [
        ("9110, 7.2", "Host: example.com\r\n", true),
        ("9110, 7.2", "Host: example.com:8080\r\n", true),
        ("9110, 7.2", "Host: example.com:\r\n", true),
        ("9110, 7.2", "Host: \t example.com \t\r\n", true),
        ("9110, 7.2", "Host: 127.0.0.1\r\n", true),
        ("9110, 7.2", "Host: [::1]\r\n", true),
        ("9110, 7.2", "Host: [2001:db8::1]:443\r\n", true),
        ("9110, 7.2", "Host: [::ffff:1.2.3.4]\r\n", true),
        ("9110, 7.2", "Host: under_score.example\r\n", true),
        ("9110, 7.2", "host: a\r\n", true),
        ("9112, 3.2", "", false),
        ("9112, 3.2", "Host:\r\n", false),
        ("9112, 3.2", "Host: a\r\nHost: a\r\n", false),
        ("9112, 3.2", "Host: a\r\nhOST: b\r\n", false),
        ("9112, 3.2", "Host: a\r\nHost:\r\n", false),
        ("9112, 3.2", "Host: a, b\r\n", false),
        ("9112, 3.2", "Host: a,b\r\n", false),
        ("9112, 3.2", "Host: a b\r\n", false),
        ("9112, 3.2", "Host: a\tb\r\n", false),
        ("9112, 3.2", "Host: a/b\r\n", false),
        ("9112, 3.2", "Host: a\\b\r\n", false),
        ("9112, 3.2", "Host: a?b\r\n", false),
        ("9112, 3.2", "Host: a#b\r\n", false),
        ("9112, 3.2", "Host: u@a\r\n", false),
        ("9112, 3.2", "Host: http://a\r\n", false),
        ("9112, 3.2", "Host: a:b\r\n", false),
        ("9112, 3.2", "Host: a:80:80\r\n", false),
        ("9112, 3.2", "Host: a:+80\r\n", false),
        ("9112, 3.2", "Host: a:65536\r\n", false),
        ("9112, 3.2", "Host: :80\r\n", false),
        ("9112, 3.2", "Host: ::1\r\n", false),
        ("9112, 3.2", "Host: [::1\r\n", false),
        ("9112, 3.2", "Host: ::1]\r\n", false),
        ("9112, 3.2", "Host: []\r\n", false),
        ("9112, 3.2", "Host: [a]\r\n", false),
        ("9112, 3.2", "Host: [::1]a\r\n", false),
        ("9112, 3.2", "Host: [::1]a:80\r\n", false),
        ("9112, 3.2", "Host: a[::1]\r\n", false),
        ("9112, 3.2", "Host: [::1%25eth0]\r\n", false),
        ("9112, 3.2", "Host: a%00b\r\n", false),
        ("9112, 3.2", "Host: caf\u{e9}\r\n", false),
    ];
    for (section, fields, is_taken) in rows {
        let outcome = fault_of(format!("GET / HTTP/1.1\r\n{fields}\r\n").as_bytes());
        assert_eq!(outcome, (!is_taken).then_some(Fault::Host), "RFC {section}: {fields:?}");
    }
}

#[test]
fn http_1_0_needs_no_host_but_a_good_one_if_any() {
    for (fields, expected) in [
        ("", None),
        ("Host: a\r\n", None),
        ("Host: a\r\nHost: a\r\n", Some(Fault::Host)),
        ("Host: a b\r\n", Some(Fault::Host)),
    ] {
        let outcome = fault_of(format!("GET / HTTP/1.0\r\n{fields}\r\n").as_bytes());
        assert_eq!(outcome, expected, "RFC 9112, 3.2: {fields:?}");
    }
}

#[test]
fn field_lines_are_neither_folded_nor_padded_nor_torn() {
    let rows: &[(&str, &[u8], bool)] = &[
        ("9112, 5", b"A: b\r\n", true),
        ("9112, 5", b"A:b\r\n", true),
        ("9112, 5", b"A: \t b \t \r\n", true),
        ("9112, 5", b"A:\r\n", true),
        ("9112, 5", b"A: \r\n", true),
        ("9110, 5.5", b"A: b\tc\r\n", true),
        ("9110, 5.5", b"A: \x80\xff\r\n", true),
        ("9110, 5.1", b"!#$%&'*+-.^_`|~: b\r\n", true),
        ("9112, 5.1", b"A : b\r\n", false),
        ("9112, 5.1", b"A\t: b\r\n", false),
        ("9112, 5.1", b"A b: c\r\n", false),
        ("9112, 5.1", b": b\r\n", false),
        ("9112, 5.1", b"A\r\n", false),
        ("9112, 5.1", b"A\x00: b\r\n", false),
        ("9112, 5.1", b"A\r: b\r\n", false),
        ("9112, 5.1", b"(A): b\r\n", false),
        ("9112, 5.1", b"\"A\": b\r\n", false),
        ("9112, 5.1", b"\xc3\xa9: b\r\n", false),
        ("9112, 5.2", b"A: b\r\n c\r\n", false),
        ("9112, 5.2", b"A: b\r\n\tc\r\n", false),
        ("9112, 5.2", b"A: b\r\n \r\n", false),
        ("9112, 5.2", b"A:\r\n b\r\n", false),
        ("9110, 5.5", b"A: b\x00\r\n", false),
        ("9110, 5.5", b"A: b\x0bc\r\n", false),
        ("9110, 5.5", b"A: b\x7f\r\n", false),
        ("9112, 2.2", b"A: b\rc\r\n", false),
        ("9112, 2.2", b"A: b\r\r\n", false),
        ("9112, 2.2", b"A: \rTransfer-Encoding: chunked\r\n", false),
    ];
    for (section, fields, is_taken) in rows {
        let request = [&b"GET / HTTP/1.1\r\nHost: a\r\n"[..], fields, b"\r\n"].concat();
        let text = fields.escape_ascii().to_string();
        assert_eq!(fault_of(&request), (!is_taken).then_some(Fault::Field), "RFC {section}: {text}");
    }
}

#[test]
fn length_of_a_body_is_known_in_one_way_or_the_request_is_refused() {
    use Fault::{ContentLength, Field, LengthAndCoding, TransferEncoding, UnknownCoding};
    let rows = [
        ("9112, 6.3, 7", "", Ok(Framing::Empty)),
        ("9112, 6.3, 6", "Content-Length: 0\r\n", Ok(Framing::Length(0))),
        ("9112, 6.3, 6", "Content-Length: 5\r\n", Ok(Framing::Length(5))),
        ("9112, 6.3, 6", "Content-Length: \t5 \r\n", Ok(Framing::Length(5))),
        ("9110, 8.6", "Content-Length: 0005\r\n", Ok(Framing::Length(5))),
        ("9110, 8.6", "Content-Length: 9223372036854775807\r\n", Ok(Framing::Length(i64::MAX as u64))),
        ("9110, 8.6", "Content-Length: 9223372036854775808\r\n", Err(ContentLength)),
        ("9110, 8.6", "Content-Length: 18446744073709551616\r\n", Err(ContentLength)),
        ("9110, 8.6", "Content-Length: 18446744073709551621\r\n", Err(ContentLength)),
        ("9110, 8.6", "Content-Length:\r\n", Err(ContentLength)),
        ("9110, 8.6", "Content-Length: +5\r\n", Err(ContentLength)),
        ("9110, 8.6", "Content-Length: -5\r\n", Err(ContentLength)),
        ("9110, 8.6", "Content-Length: 0x5\r\n", Err(ContentLength)),
        ("9110, 8.6", "Content-Length: 5.0\r\n", Err(ContentLength)),
        ("9110, 8.6", "Content-Length: 5 5\r\n", Err(ContentLength)),
        ("9110, 8.6", "Content-Length: 5,\r\n", Err(ContentLength)),
        ("9110, 8.6", "Content-Length: \u{665}\r\n", Err(ContentLength)),
        ("9112, 6.3, 5", "Content-Length: 5, 5\r\n", Err(ContentLength)),
        ("9112, 6.3, 5", "Content-Length: 5\r\nContent-Length: 5\r\n", Err(ContentLength)),
        ("9112, 6.3, 5", "Content-Length: 5\r\ncontent-LENGTH: 6\r\n", Err(ContentLength)),
        ("9112, 6.3, 4", "Transfer-Encoding: chunked\r\n", Ok(Framing::Chunked)),
        ("9112, 7", "transfer-encoding:\tCHUNKED \t\r\n", Ok(Framing::Chunked)),
        ("9112, 6.3, 3", "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n", Err(LengthAndCoding)),
        ("9112, 6.3, 3", "Content-Length: 0\r\nTransfer-Encoding: chunked\r\n", Err(LengthAndCoding)),
        ("9112, 6.3, 3", "Content-Length: x\r\nTransfer-Encoding: x\r\n", Err(LengthAndCoding)),
        ("9112, 6.1", "Transfer-Encoding: gzip, chunked\r\n", Err(UnknownCoding)),
        ("9112, 6.1", "Transfer-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n", Err(UnknownCoding)),
        ("9112, 6.1", "Transfer-Encoding: identity, chunked\r\n", Err(UnknownCoding)),
        ("9112, 6.1", "Transfer-Encoding: a, b, chunked\r\n", Err(UnknownCoding)),
        ("9112, 6.3, 4", "Transfer-Encoding: chunked, gzip\r\n", Err(TransferEncoding)),
        ("9112, 6.3, 4", "Transfer-Encoding: gzip\r\n", Err(TransferEncoding)),
        ("9112, 6.3, 4", "Transfer-Encoding: identity\r\n", Err(TransferEncoding)),
        ("9112, 6.3, 4", "Transfer-Encoding:\r\n", Err(TransferEncoding)),
        ("9112, 6.3, 4", "Transfer-Encoding: ,\r\n", Err(TransferEncoding)),
        ("9112, 6.3, 4", "Transfer-Encoding: xchunked\r\n", Err(TransferEncoding)),
        ("9112, 6.3, 4", "Transfer-Encoding: chunkedx\r\n", Err(TransferEncoding)),
        ("9112, 6.3, 4", "Transfer-Encoding: \"chunked\"\r\n", Err(TransferEncoding)),
        ("9112, 6.3, 4", "Transfer-Encoding: 'chunked'\r\n", Err(TransferEncoding)),
        ("9112, 6.3, 4", "Transfer-Encoding: chunk\r\n", Err(TransferEncoding)),
        ("9112, 7", "Transfer-Encoding: chunked;a=b\r\n", Err(TransferEncoding)),
        ("9112, 6.1", "Transfer-Encoding: chunked, chunked\r\n", Err(TransferEncoding)),
        ("9112, 6.1", "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n", Err(TransferEncoding)),
        ("9112, 6.1", "Transfer-Encoding: chunked, gzip, chunked\r\n", Err(TransferEncoding)),
        ("9112, 6.1", "Transfer-Encoding: gzip, chunked, chunked\r\n", Err(TransferEncoding)),
        ("9110, 5.6.1.2", "Transfer-Encoding: ,chunked\r\n", Err(TransferEncoding)),
        ("9110, 5.6.1.2", "Transfer-Encoding: chunked,\r\n", Err(TransferEncoding)),
        ("9110, 5.6.1.2", "Transfer-Encoding:\r\nTransfer-Encoding: chunked\r\n", Err(TransferEncoding)),
        ("9112, 5.1", "Transfer-Encoding : chunked\r\n", Err(Field)),
        ("9112, 5.1", "Content-Length : 5\r\n", Err(Field)),
        ("9112, 5.2", "Transfer-Encoding:\r\n chunked\r\n", Err(Field)),
        ("9110, 5.5", "Transfer-Encoding: \u{b}chunked\r\n", Err(Field)),
        ("9110, 5.5", "Transfer-Encoding: chunked\0\r\n", Err(Field)),
        ("9110, 5.1", "Transfer_Encoding: chunked\r\n", Ok(Framing::Empty)),
    ];
    for (section, fields, expected) in rows {
        assert_eq!(parse(&with_fields(fields)).map(|head| head.framing), expected, "RFC {section}: {fields:?}");
    }
}

#[test]
fn http_1_0_has_lengths_and_no_codings() {
    for (fields, expected) in [
        ("Content-Length: 5\r\n", Ok(Framing::Length(5))),
        ("Transfer-Encoding: chunked\r\n", Err(Fault::TransferEncoding)),
        ("Transfer-Encoding: identity\r\n", Err(Fault::TransferEncoding)),
        ("Transfer-Encoding: chunked\r\nContent-Length: 5\r\n", Err(Fault::LengthAndCoding)),
    ] {
        let outcome = parse(format!("POST / HTTP/1.0\r\n{fields}\r\n").as_bytes()).map(|head| head.framing);
        assert_eq!(outcome, expected, "RFC 9112, 6.1: {fields:?}");
    }
}

#[test]
fn connection_ends_when_the_client_says_so() {
    for (version, fields, expected) in [
        ("1.1", "", true),
        ("1.1", "Connection: close\r\n", false),
        ("1.1", "Connection: CLOSE\r\n", false),
        ("1.1", "Connection: x, close\r\n", false),
        ("1.1", "Connection: x\r\nConnection: ,close ,\r\n", false),
        ("1.1", "Connection: keep-alive, close\r\n", false),
        ("1.1", "Connection: closed\r\n", true),
        ("1.2", "", true),
        ("1.0", "", false),
        ("1.0", "Connection: Keep-Alive\r\n", true),
        ("1.0", "Connection: keep-alive, close\r\n", false),
    ] {
        let head = parse(format!("GET / HTTP/{version}\r\nHost: a\r\n{fields}\r\n").as_bytes()).expect("well-formed");
        assert_eq!(head.keep_alive, expected, "RFC 9112, 9.3: {version} {fields:?}");
    }
}

#[test]
fn only_100_continue_can_be_expected_and_only_before_a_body() {
    for (version, fields, expected) in [
        ("1.1", "Content-Length: 5\r\nExpect: 100-continue\r\n", Ok(true)),
        ("1.1", "Transfer-Encoding: chunked\r\nExpect: 100-Continue\r\n", Ok(true)),
        ("1.1", "Content-Length: 0\r\nExpect: 100-continue\r\n", Ok(false)),
        ("1.1", "Expect: 100-continue\r\n", Ok(false)),
        ("1.1", "Content-Length: 5\r\n", Ok(false)),
        ("1.1", "Content-Length: 5\r\nExpect: x\r\n", Err(Fault::Expectation)),
        ("1.1", "Content-Length: 5\r\nExpect: 100-continue, x\r\n", Err(Fault::Expectation)),
        ("1.1", "Content-Length: 5\r\nExpect: 100-continue\r\nExpect: x\r\n", Err(Fault::Expectation)),
        ("1.1", "Expect: x\r\n", Err(Fault::Expectation)),
        ("1.0", "Content-Length: 5\r\nExpect: 100-continue\r\n", Ok(false)),
        ("1.0", "Content-Length: 5\r\nExpect: x\r\n", Ok(false)),
    ] {
        let head = parse(format!("POST / HTTP/{version}\r\nHost: a\r\n{fields}\r\n").as_bytes());
        assert_eq!(head.map(|head| head.expects_continue), expected, "RFC 9110, 10.1.1: {version} {fields:?}");
    }
}

#[test]
fn upgrade_is_wanted_when_the_connection_field_says_so_too() {
    for (version, fields, expected) in [
        ("1.1", "Connection: Upgrade\r\nUpgrade: websocket\r\n", true),
        ("1.1", "Connection: keep-alive, upgrade\r\nUpgrade: websocket\r\n", true),
        ("1.1", "Upgrade: websocket\r\n", false),
        ("1.1", "Connection: upgrade\r\n", false),
        ("1.0", "Connection: upgrade\r\nUpgrade: websocket\r\n", false),
    ] {
        let head = parse(format!("GET / HTTP/{version}\r\nHost: a\r\n{fields}\r\n").as_bytes()).expect("well-formed");
        assert_eq!(head.wants_upgrade, expected, "RFC 9110, 7.8: {version} {fields:?}");
    }
}

#[test]
fn limits_are_kept_to_the_byte() {
    let small = Limits { max_size: 100, max_fields: 3, max_target: 10 };
    let sized = |size: usize| {
        let start = "GET / HTTP/1.1\r\nHost: a\r\nB: ";
        format!("{start}{}\r\n\r\n", "b".repeat(size - start.len() - 4)).into_bytes()
    };
    let with_method = |len: usize| with_target(&"M".repeat(len), "/");
    let targeted = |len: usize| with_target("GET", &format!("/{}", "a".repeat(len - 1)));
    let fielded = |count: usize| with_fields(&"B: b\r\n".repeat(count - 1));
    let rows = [
        ("9110, 5.4", sized(100), None),
        ("9110, 5.4", sized(101), Some(Fault::HeadTooLarge)),
        ("9112, 3", with_method(MAX_METHOD), None),
        ("9112, 3", with_method(MAX_METHOD + 1), Some(Fault::MethodTooLong)),
        ("9112, 3", with_method(90), Some(Fault::MethodTooLong)),
        ("9112, 3", targeted(10), None),
        ("9112, 3", targeted(11), Some(Fault::TargetTooLong)),
        ("9112, 3", targeted(80), Some(Fault::TargetTooLong)),
        ("9110, 5.4", fielded(3), None),
        ("9110, 5.4", fielded(4), Some(Fault::TooManyFields)),
    ];
    for (section, bytes, expected) in rows {
        let outcome = parse_within(&small, &bytes).map(|head| assert!(head.is_some())).err();
        assert_eq!(outcome, expected, "RFC {section}: {:?}", bytes.escape_ascii().to_string());
    }
}

#[test]
fn what_is_too_large_is_refused_before_it_is_whole() {
    let small = Limits { max_size: 200, max_fields: 3, max_target: 10 };
    for (bytes, expected) in [
        (b"a".repeat(85), None),
        (b"a".repeat(86), Some(Fault::MethodTooLong)),
        ([b"GET ".to_vec(), b"a".repeat(81)].concat(), None),
        ([b"GET ".to_vec(), b"a".repeat(82)].concat(), Some(Fault::TargetTooLong)),
        ([b"GET / HTTP/1.1\r\n".to_vec(), b"a".repeat(183)].concat(), None),
        ([b"GET / HTTP/1.1\r\n".to_vec(), b"a".repeat(184)].concat(), Some(Fault::HeadTooLarge)),
    ] {
        assert_eq!(parse_within(&small, &bytes).map(|head| assert!(head.is_none())).err(), expected, "{}", bytes.len());
    }
}

#[test]
fn no_number_of_fields_and_no_length_of_a_target_is_a_panic() {
    let wide = Limits { max_size: usize::MAX, max_fields: usize::MAX, max_target: usize::MAX };
    let outcome = |bytes: &[u8]| parse_within(&wide, bytes).map(|head| assert!(head.is_some())).err();
    assert_eq!(outcome(&with_fields(&"B: b\r\n".repeat(33))), None);
    assert_eq!(outcome(&with_fields(&"B: b\r\n".repeat(40_000))), Some(Fault::TooManyFields));
    let many: String = (0..40_000).map(|number| format!("b{number}: b\r\n")).collect();
    assert_eq!(outcome(&with_fields(&many)), Some(Fault::TooManyFields));
    assert_eq!(outcome(&with_target("GET", &format!("/{}", "a".repeat(70_000)))), Some(Fault::TargetTooLong));
    assert_eq!(outcome(&with_fields(&format!("{}: b\r\n", "a".repeat(70_000)))), Some(Fault::Field));
}

#[test]
fn every_fault_has_the_status_that_the_rfc_asks_for() {
    for (section, fault, status) in [
        ("9110, 15.6.6", Fault::Version, 505),
        ("9112, 3", Fault::MethodTooLong, 501),
        ("9110, 15.5.15", Fault::TargetTooLong, 414),
        ("6585, 5", Fault::TooManyFields, 431),
        ("6585, 5", Fault::HeadTooLarge, 431),
        ("9112, 6.1", Fault::UnknownCoding, 501),
        ("9110, 10.1.1", Fault::Expectation, 417),
    ] {
        assert_eq!(fault.status().as_u16(), status, "RFC {section}: {fault}");
    }
    let others = Fault::ALL.iter().filter(|fault| fault.status().as_u16() == 400).count();
    assert_eq!(others, Fault::ALL.len() - 7, "RFC 9112, 2.2, 3, 3.2, 6.1 and 6.3");
    let names: std::collections::BTreeSet<&str> = Fault::ALL.iter().map(|fault| fault.name()).collect();
    assert_eq!(names.len(), Fault::ALL.len(), "each has a name of its own");
}

#[test]
fn pipelined_requests_come_one_by_one() {
    let mut buf = BytesMut::from(&b"GET /1 HTTP/1.1\r\nHost: a\r\n\r\nGET /2 HTTP/1.1\r\nHost: a\r\n\r\nGET"[..]);
    let mut scan = Scan::default();
    for path in ["/1", "/2"] {
        let head = RequestHead::parse(&mut buf, &mut scan, &LIMITS).expect("well-formed").expect("whole");
        assert_eq!(head.uri.path(), path, "RFC 9112, 9.3.2");
    }
    assert!(RequestHead::parse(&mut buf, &mut scan, &LIMITS).expect("well-formed so far").is_none());
    assert_eq!(&buf[..], b"GET");
}
