//! What holds for any bytes: how they were cut makes no difference, nothing panics, and what is written is read back as
//! what it was.

use bytes::BytesMut;
use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Uri, Version};
use plimsoll_http1::write::{self, Connection};
use plimsoll_http1::{Decoder, Fault, Framing, Limits, Origin, Piece, RequestHead, ResponseHead, Scan};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;

/// Small, so that generated heads come to their edges.
const LIMITS: Limits = Limits { max_size: 160, max_fields: 4, max_target: 12 };
const WIDE: Limits = Limits { max_size: 64 * 1024, max_fields: 100, max_target: 8 * 1024 };

/// Words from which messages, and what nearly is one, can be put together.
const WORDS: &[&[u8]] = &[
    b"GET",
    b"POST",
    b"CONNECT",
    b"OPTIONS",
    b" ",
    b" ",
    b"/",
    b"/a?b",
    b"*",
    b"http://h",
    b"h:80",
    b"#",
    b"@",
    b"%zz",
    b" HTTP/1.1\r\n",
    b" HTTP/1.0\r\n",
    b"HTTP/1.1 200 OK\r\n",
    b"HTTP/1.1 204 \r\n",
    b"HTTP/1.1 100 C\n",
    b"\r\n",
    b"\r\n",
    b"\r",
    b"\n",
    b"\r\n\r\n",
    b"\t",
    b":",
    b": ",
    b"Host: a\r\n",
    b"Host",
    b"Content-Length: 3\r\n",
    b"Content-Length",
    b"Transfer-Encoding: chunked\r\n",
    b"Transfer-Encoding",
    b"chunked",
    b"Connection: close\r\n",
    b"Expect: 100-continue\r\n",
    b"A: b\r\n",
    b"0",
    b"3",
    b"0\r\n",
    b"3\r\nabc\r\n",
    b"1;x\r\n",
    b"0\r\n\r\n",
    b";a=\"",
    b"\xff",
    b"\0",
    b"abc",
];

fn noise() -> impl Strategy<Value = Vec<u8>> {
    let wordy = vec(select(WORDS), 0..40).prop_map(|words| words.concat());
    let request = vec(select(WORDS), 0..8)
        .prop_map(|words| [&b"POST /a HTTP/1.1\r\nHost: a\r\n"[..], &words.concat(), b"\r\n"].concat());
    let response =
        vec(select(WORDS), 0..8).prop_map(|words| [&b"HTTP/1.1 200 OK\r\n"[..], &words.concat(), b"\r\n\r\n"].concat());
    prop_oneof![wordy, request, response, vec(any::<u8>(), 0..300)]
}

/// What became of a head: what is in it, and how many bytes it left.
type Outcome = (Result<Option<String>, Fault>, usize);

/// Reads a head from bytes that come in pieces, `sizes` over and over.
fn in_pieces<H: std::fmt::Debug>(
    bytes: &[u8],
    sizes: &[usize],
    parse: impl Fn(&mut BytesMut, &mut Scan) -> Result<Option<H>, Fault>,
) -> Outcome {
    let (mut buf, mut scan, mut rest) = (BytesMut::new(), Scan::default(), bytes);
    for size in sizes.iter().cycle() {
        let (piece, later) = rest.split_at(rest.len().min(*size));
        buf.extend_from_slice(piece);
        rest = later;
        match parse(&mut buf, &mut scan) {
            Ok(None) if rest.is_empty() => return (Ok(None), 0),
            Ok(None) => {}
            Ok(Some(head)) => return (Ok(Some(format!("{head:?}"))), buf.len() + rest.len()),
            Err(fault) => return (Err(fault), 0),
        }
    }
    unreachable!("there is a size")
}

fn sizes() -> impl Strategy<Value = Vec<usize>> {
    vec(1_usize..40, 1..10)
}

/// The trailers of a body and how many bytes of the next message were left; nothing when it is not whole.
type BodyEnd = Result<Option<(Option<HeaderMap>, usize)>, Fault>;

/// All data of a body that comes in pieces, and how it ended.
fn body_in_pieces(framing: Framing, origin: Origin, bytes: &[u8], sizes: &[usize]) -> (Vec<u8>, BodyEnd) {
    let (mut buf, mut decoder, mut rest) = (BytesMut::new(), Decoder::new(framing, origin), bytes);
    let (mut data, mut trailers) = (Vec::new(), None);
    for size in sizes.iter().cycle() {
        let (piece, later) = rest.split_at(rest.len().min(*size));
        buf.extend_from_slice(piece);
        rest = later;
        loop {
            match decoder.decode(&mut buf) {
                Ok(Some(Piece::Data(bytes))) => {
                    assert!(!bytes.is_empty(), "a piece has data");
                    data.extend_from_slice(&bytes);
                }
                Ok(Some(Piece::Trailers(map))) => trailers = Some(map),
                Ok(None) => break,
                Err(fault) => return (data, Err(fault)),
            }
        }
        if decoder.is_done() {
            return (data, Ok(Some((trailers, buf.len() + rest.len()))));
        }
        if rest.is_empty() {
            return (data, Ok(None));
        }
    }
    unreachable!("there is a size")
}

/// Chunk framing as it is defined, for bytes that are all there, with neither extensions nor trailers: the data, and
/// what is left; nothing where the bytes are not that.
fn reference_chunked(mut bytes: &[u8]) -> Option<(Vec<u8>, &[u8])> {
    let mut data = Vec::new();
    loop {
        let line_end = bytes.windows(2).position(|pair| pair == b"\r\n")?;
        let line = std::str::from_utf8(&bytes[..line_end]).ok()?;
        let is_size = (1..=16).contains(&line.len()) && line.bytes().all(|byte| byte.is_ascii_hexdigit());
        let size = if is_size { usize::from_str_radix(line, 16).ok()? } else { return None };
        bytes = &bytes[line_end + 2..];
        if size == 0 {
            return Some((data, bytes.strip_prefix(b"\r\n")?));
        }
        data.extend_from_slice(bytes.get(..size)?);
        bytes = bytes[size..].strip_prefix(b"\r\n")?;
    }
}

fn method() -> impl Strategy<Value = Method> {
    let token = "[!#$%&'*+.^_`|~0-9A-Za-z-]{1,20}";
    prop_oneof![
        select(vec![Method::GET, Method::HEAD, Method::POST, Method::OPTIONS, Method::QUERY]),
        token.prop_filter_map("CONNECT has other targets", |token| {
            Method::from_bytes(token.as_bytes()).ok().filter(|method| *method != Method::CONNECT)
        }),
    ]
}

fn uri() -> impl Strategy<Value = Uri> {
    let path = "/[!-~]{0,12}(\\?[!-~]{0,12})?";
    let path = path.prop_filter_map("not all of these are paths", |path| {
        (!path.contains('#')).then(|| PathAndQuery::try_from(path).ok().map(Uri::from)).flatten()
    });
    let absolute = "https?://[a-z0-9.-]{1,8}(:[0-9]{1,4})?(/[a-z%]{0,8})?(\\?[!-~]{0,8})?";
    let absolute = absolute.prop_filter_map("not all of these are URIs", |text| {
        (!text.contains('#')).then(|| Uri::try_from(text).ok()).flatten()
    });
    prop_oneof![path, absolute]
}

/// Fields that say nothing about the message itself.
fn headers() -> impl Strategy<Value = HeaderMap> {
    let name = "x-[!#$%&'*+.^_`|~0-9a-z-]{1,12}".prop_filter_map("a name", |name| HeaderName::try_from(name).ok());
    let value = vec(select((b' '..=b'~').chain(0x80..=0xff).chain([b'\t']).collect::<Vec<u8>>()), 0..20);
    let value = value.prop_filter_map("a value", |value| HeaderValue::from_bytes(value.trim_ascii()).ok());
    vec((name, value), 0..40)
        .prop_map(|pairs| pairs.into_iter().filter(|(name, _)| !name.as_str().starts_with("x-forwarded-")).collect())
}

fn framing() -> impl Strategy<Value = Framing> {
    let length = (0..=i64::MAX as u64).prop_map(Framing::Length);
    prop_oneof![Just(Framing::Empty), Just(Framing::Length(0)), length, Just(Framing::Chunked)]
}

/// What the writer adds for itself.
fn without_own_fields(mut headers: HeaderMap) -> HeaderMap {
    for name in ["host", "content-length", "transfer-encoding", "connection"] {
        headers.remove(name);
    }
    headers
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1024, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn head_of_a_request_is_the_same_however_its_bytes_are_cut(bytes in noise(), sizes in sizes()) {
        for limits in [LIMITS, WIDE] {
            let parse = |buf: &mut BytesMut, scan: &mut Scan| RequestHead::parse(buf, scan, &limits);
            let whole = in_pieces(&bytes, &[usize::MAX], parse);
            prop_assert_eq!(&in_pieces(&bytes, &sizes, parse), &whole);
            prop_assert_eq!(&in_pieces(&bytes, &[1], parse), &whole);
        }
    }

    #[test]
    fn head_of_a_response_is_the_same_however_its_bytes_are_cut(bytes in noise(), sizes in sizes()) {
        for limits in [LIMITS, WIDE] {
            let parse = |buf: &mut BytesMut, scan: &mut Scan| ResponseHead::parse(buf, scan, &limits, &Method::GET);
            let whole = in_pieces(&bytes, &[usize::MAX], parse);
            prop_assert_eq!(&in_pieces(&bytes, &sizes, parse), &whole);
            prop_assert_eq!(&in_pieces(&bytes, &[1], parse), &whole);
        }
    }

    #[test]
    fn body_is_the_same_however_its_bytes_are_cut(
        bytes in noise(),
        sizes in sizes(),
        framing in framing(),
        is_client in any::<bool>(),
    ) {
        let origin = if is_client { Origin::Client } else { Origin::Backend };
        for framing in [framing, Framing::Chunked, Framing::Length(bytes.len() as u64 / 2), Framing::UntilClose] {
            let whole = body_in_pieces(framing, origin, &bytes, &[usize::MAX]);
            prop_assert_eq!(&body_in_pieces(framing, origin, &bytes, &sizes), &whole);
            prop_assert_eq!(&body_in_pieces(framing, origin, &bytes, &[1]), &whole);
        }
    }

    #[test]
    fn chunked_body_is_what_its_definition_says(
        bodies in vec(vec(any::<u8>(), 1..50), 0..8),
        // Where a byte is changed, and into which.
        damage in proptest::option::of((any::<proptest::sample::Index>(), select(&b"\r\n0123456789abcdefABCDEF;: x\0"[..]))),
        sizes in sizes(),
    ) {
        let mut bytes = Vec::new();
        for body in &bodies {
            write::chunk_start(&mut bytes, body.len());
            bytes.extend_from_slice(body);
            bytes.extend_from_slice(write::CHUNK_END);
        }
        write::last_chunk(&mut bytes, None);
        bytes.extend_from_slice(b"next");
        if let Some((at, byte)) = damage {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        let (data, outcome) = body_in_pieces(Framing::Chunked, Origin::Client, &bytes, &sizes);
        match (reference_chunked(&bytes), outcome) {
            (Some((expected, rest)), Ok(Some((None, left)))) => {
                prop_assert_eq!(data, expected);
                prop_assert_eq!(left, rest.len());
            }
            // Extensions and trailers are more than the reference knows.
            (None, Ok(Some(_))) => prop_assert!(damage.is_some_and(|(_, byte)| b";:x0".contains(&byte))),
            (None, Ok(None) | Err(_)) => {}
            (expected, was) => prop_assert!(false, "{was:?} and not {expected:?}"),
        }
    }

    #[test]
    fn request_that_was_written_is_read_back(
        method in method(),
        uri in uri(),
        headers in headers(),
        framing in framing(),
        connection in select(vec![Connection::Unsaid, Connection::KeepAlive, Connection::Close]),
    ) {
        let mut with_host = headers.clone();
        with_host.insert("host", HeaderValue::from_static("a"));
        let mut bytes = Vec::new();
        write::request_head(&mut bytes, &method, &uri, &with_host, framing, connection);
        let mut buf = BytesMut::from(&bytes[..]);
        let head = RequestHead::parse(&mut buf, &mut Scan::default(), &WIDE).expect("well-formed").expect("whole");
        prop_assert!(buf.is_empty());
        prop_assert_eq!(head.method, method);
        // `OPTIONS http://host` and `OPTIONS http://host/` are not the same, which URIs cannot tell.
        prop_assert_eq!(head.uri, uri);
        prop_assert_eq!(head.version, Version::HTTP_11);
        prop_assert_eq!(without_own_fields(head.headers), headers);
        prop_assert_eq!(head.framing, framing);
        prop_assert_eq!(head.keep_alive, connection != Connection::Close);
    }

    #[test]
    fn response_that_was_written_is_read_back(
        status in 100_u16..1000,
        headers in headers(),
        framing in framing(),
        until_close in any::<bool>(),
        method in method(),
        is_last in any::<bool>(),
    ) {
        let status = StatusCode::from_u16(status).expect("it is one");
        let is_bodiless = status.is_informational() || matches!(status.as_u16(), 204 | 304) || method == Method::HEAD;
        let framing = match framing {
            _ if is_bodiless => Framing::Empty,
            Framing::Empty => Framing::UntilClose,
            _ if until_close => Framing::UntilClose,
            framing => framing,
        };
        let connection = if is_last { Connection::Close } else { Connection::Unsaid };
        let mut bytes = Vec::new();
        write::response_head(&mut bytes, status, &headers, framing, connection);
        let mut buf = BytesMut::from(&bytes[..]);
        let head = ResponseHead::parse(&mut buf, &mut Scan::default(), &WIDE, &method).expect("well-formed").expect("whole");
        prop_assert!(buf.is_empty());
        prop_assert_eq!(head.status, status);
        prop_assert_eq!(without_own_fields(head.headers), headers);
        prop_assert_eq!(head.framing, framing);
        let stays = !is_last && framing != Framing::UntilClose && status != StatusCode::SWITCHING_PROTOCOLS;
        prop_assert_eq!(head.keep_alive, stays);
    }

    #[test]
    fn trailers_that_were_written_are_read_back(headers in headers()) {
        let mut bytes = Vec::new();
        write::last_chunk(&mut bytes, Some(&headers));
        let (data, outcome) = body_in_pieces(Framing::Chunked, Origin::Client, &bytes, &[usize::MAX]);
        let (trailers, left) = outcome.expect("well-formed").expect("whole");
        prop_assert_eq!((data.len(), left), (0, 0));
        prop_assert_eq!(trailers.unwrap_or_default(), headers);
    }

    #[test]
    fn target_that_is_taken_is_written_as_it_was_with_the_slash_that_an_empty_path_stands_for(
        method in select(vec!["GET", "OPTIONS", "CONNECT"]),
        target in prop_oneof![
            "[!-~]{1,12}",
            "/[!-~]{0,12}",
            "https?://[!-~]{1,12}",
            "https?://[a-z:@\\[\\]0-9.]{1,6}[/?*][!-~]{0,6}",
            "[a-z\\[\\]:]{1,4}:[+0-9]{0,4}",
        ],
    ) {
        let mut buf = BytesMut::from(format!("{method} {target} HTTP/1.1\r\nHost: a\r\n\r\n").as_bytes());
        if let Ok(Some(head)) = RequestHead::parse(&mut buf, &mut Scan::default(), &WIDE) {
            let mut bytes = Vec::new();
            write::request_head(&mut bytes, &head.method, &head.uri, &head.headers, head.framing, Connection::Unsaid);
            let written = String::from_utf8(bytes).expect("it is ASCII");
            let written = written.split(' ').nth(1).expect("there is a target");
            let has_no_path = head.uri.path_and_query().is_some_and(|path| path == "/") && !target.ends_with('/');
            let after_scheme = target.find("://").filter(|_| head.uri.authority().is_some()).map_or(0, |at| at + 3);
            let expected = match target[after_scheme..].find(['/', '?']).map(|at| target.split_at(after_scheme + at)) {
                _ if has_no_path => format!("{target}/"),
                Some((before, query)) if after_scheme > 0 && query.starts_with('?') => format!("{before}/{query}"),
                _ => target.clone(),
            };
            prop_assert_eq!(written, expected);
        }
    }

    #[test]
    fn request_that_is_taken_is_written_and_read_back_as_the_same(bytes in noise()) {
        let parse = |bytes: &[u8]| RequestHead::parse(&mut BytesMut::from(bytes), &mut Scan::default(), &WIDE);
        if let Ok(Some(head)) = parse(&bytes) {
            let connection = if head.keep_alive { Connection::KeepAlive } else { Connection::Close };
            let mut bytes = Vec::new();
            write::request_head(&mut bytes, &head.method, &head.uri, &head.headers, head.framing, connection);
            match parse(&bytes) {
                Ok(Some(again)) => {
                    prop_assert_eq!((&again.method, &again.uri, again.framing), (&head.method, &head.uri, head.framing));
                    prop_assert_eq!(without_own_fields(again.headers), without_own_fields(head.headers));
                    prop_assert_eq!(again.keep_alive, head.keep_alive);
                }
                // HTTP/1.0 has neither of what HTTP/1.1 asks for.
                outcome => {
                    prop_assert_eq!(head.version, Version::HTTP_10);
                    prop_assert!(matches!(outcome, Err(Fault::Host | Fault::Expectation)));
                }
            }
        }
    }
}
