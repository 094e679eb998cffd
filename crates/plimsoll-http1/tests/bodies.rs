//! Bodies: chunk framing, trailers and ends. Each row names the section of RFC 9110 or 9112 that it follows from.

use bytes::{Bytes, BytesMut};
use http::HeaderMap;
use plimsoll_http1::{Decoder, Fault, Framing, Origin, Piece};

/// The data of a body, its trailers, and what was left of the bytes.
type Body = (Vec<u8>, Option<HeaderMap>, Bytes);

/// Nothing when it is not whole.
fn read(framing: Framing, origin: Origin, bytes: &[u8]) -> Result<Option<Body>, Fault> {
    let (mut buf, mut decoder) = (BytesMut::from(bytes), Decoder::new(framing, origin));
    let (mut data, mut trailers) = (Vec::new(), None);
    while let Some(piece) = decoder.decode(&mut buf)? {
        match piece {
            Piece::Data(bytes) => data.extend_from_slice(&bytes),
            Piece::Trailers(map) => trailers = Some(map),
        }
    }
    Ok(decoder.is_done().then(|| (data, trailers, buf.freeze())))
}

#[derive(Debug, PartialEq)]
enum Outcome {
    Whole(&'static str),
    Partial,
    Refused(Fault),
}
use Outcome::{Partial, Refused, Whole};

#[track_caller]
fn assert_chunked(rows: &[(&str, Origin, &[u8], Outcome)]) {
    for (section, origin, bytes, expected) in rows {
        let outcome = read(Framing::Chunked, *origin, bytes);
        let is_as_expected = match (&outcome, expected) {
            (Ok(Some((data, _, _))), Whole(text)) => data == text.as_bytes(),
            (Ok(None), Partial) => true,
            (Err(fault), Refused(expected)) => fault == expected,
            _ => false,
        };
        assert!(is_as_expected, "RFC {section}, {origin:?}: {}: {outcome:?}", bytes.escape_ascii());
    }
}

#[test]
fn chunks_are_taken_if_their_sizes_and_ends_are_beyond_doubt() {
    use Origin::{Backend, Client};
    const REFUSED: Outcome = Refused(Fault::Chunk);
    assert_chunked(&[
        ("9112, 7.1", Client, b"0\r\n\r\n", Whole("")),
        ("9112, 7.1", Client, b"5\r\nhello\r\n0\r\n\r\n", Whole("hello")),
        ("9112, 7.1", Client, b"2\r\nhe\r\n3\r\nllo\r\n0\r\n\r\n", Whole("hello")),
        ("9112, 7.1", Client, b"a\r\n0123456789\r\n0\r\n\r\n", Whole("0123456789")),
        ("9112, 7.1", Client, b"A\r\n0123456789\r\n00\r\n\r\n", Whole("0123456789")),
        ("9112, 7.1", Client, b"0000000000000005\r\nhello\r\n0\r\n\r\n", Whole("hello")),
        ("9112, 7.1", Client, b"2\r\n\r\n\r\n0\r\n\r\n", Whole("\r\n")),
        ("9112, 7.1", Client, b"00000000000000005\r\nhello\r\n0\r\n\r\n", REFUSED),
        ("9112, 7.1", Client, b"10000000000000005\r\nhello\r\n0\r\n\r\n", REFUSED),
        ("9112, 7.1", Client, b"ffffffffffffffff\r\n", Partial),
        ("9112, 7.1", Client, b"\r\nhello", REFUSED),
        ("9112, 7.1", Client, b"x\r\n", REFUSED),
        ("9112, 7.1", Client, b"0x5\r\nhello\r\n0\r\n\r\n", REFUSED),
        ("9112, 7.1", Client, b"+5\r\nhello\r\n0\r\n\r\n", REFUSED),
        ("9112, 7.1", Client, b"-1\r\n", REFUSED),
        ("9112, 7.1", Client, b"5_0\r\n", REFUSED),
        ("9112, 7.1", Client, b"5,\r\n", REFUSED),
        ("9112, 7.1", Client, b" 5\r\nhello\r\n0\r\n\r\n", REFUSED),
        ("9112, 7.1", Client, b"5 \r\nhello\r\n0\r\n\r\n", REFUSED),
        ("9112, 7.1", Client, b"5 5\r\nhello\r\n0\r\n\r\n", REFUSED),
        ("9112, 7.1", Backend, b"5   \r\nhello\r\n0 \r\n\r\n", Whole("hello")),
        ("9112, 7.1", Backend, b" 5\r\nhello\r\n0\r\n\r\n", REFUSED),
        ("9112, 7.1", Backend, b"5 5\r\nhello\r\n0\r\n\r\n", REFUSED),
        ("9112, 7.1", Client, b"5\r\nhello!\r\n0\r\n\r\n", REFUSED),
        ("9112, 7.1", Client, b"5\r\nhello0\r\n\r\n", REFUSED),
        ("9112, 7.1", Client, b"5\r\nhello\n0\r\n\r\n", REFUSED),
        ("9112, 7.1", Client, b"5\r\nhello\r0\r\n\r\n", REFUSED),
        ("9112, 2.2", Client, b"5\nhello\r\n0\r\n\r\n", REFUSED),
        ("9112, 2.2", Backend, b"5\nhello\r\n0\r\n\r\n", REFUSED),
        ("9112, 2.2", Client, b"5\rhello\r\n0\r\n\r\n", REFUSED),
        ("9112, 2.2", Client, b"5\r\r\nhello\r\n0\r\n\r\n", REFUSED),
        ("9112, 7.1", Client, b"5\r\nhello\r\n0\r\n", Partial),
        ("9112, 7.1", Client, b"5\r\nhello\r\n0\r\n\r", Partial),
        ("9112, 7.1", Client, b"5\r\nhello\r\n", Partial),
        ("9112, 7.1", Client, b"5\r\nhello\r", Partial),
        ("9112, 7.1", Client, b"5", Partial),
        ("9112, 7.1", Client, b"", Partial),
    ]);
}

#[test]
fn extensions_are_passed_over_if_they_end_with_their_line() {
    use Origin::{Backend, Client};
    const REFUSED: Outcome = Refused(Fault::Chunk);
    assert_chunked(&[
        ("9112, 7.1.1", Client, b"5;a\r\nhello\r\n0\r\n\r\n", Whole("hello")),
        ("9112, 7.1.1", Client, b"5;a=b;c=\"d;e\"\r\nhello\r\n0;z\r\n\r\n", Whole("hello")),
        ("9112, 7.1.1", Client, b"5 \t; a = b\r\nhello\r\n0\r\n\r\n", Whole("hello")),
        ("9112, 7.1.1", Client, b"5;a=\"\\\"\"\r\nhello\r\n0\r\n\r\n", Whole("hello")),
        ("9112, 7.1.1", Backend, b"5;a\r\nhello\r\n0\r\n\r\n", Whole("hello")),
        ("9112, 7.1.1", Client, b"5;a=\"\r\nhello\r\n0\r\n\r\n", REFUSED),
        ("9112, 7.1.1", Client, b"5;a=\"\\\"\r\nhello\r\n0\r\n\r\n", REFUSED),
        ("9112, 7.1.1", Client, b"5;a\nhello\r\n0\r\n\r\n", REFUSED),
        ("9112, 7.1.1", Client, b"5;a\rb\r\nhello\r\n0\r\n\r\n", REFUSED),
        ("9112, 7.1.1", Client, b"5;\n\r\nhello\r\n0\r\n\r\n", REFUSED),
        ("9112, 7.1.1", Client, b"5;\0\r\nhello\r\n0\r\n\r\n", REFUSED),
        ("9112, 7.1.1", Client, b"5\x0b;a\r\nhello\r\n0\r\n\r\n", REFUSED),
        ("9112, 7.1.1", Client, b"5 a\r\nhello\r\n0\r\n\r\n", REFUSED),
        ("9112, 7.1.1", Client, b"0;a\n\r\n\r\n", REFUSED),
    ]);
}

#[test]
fn extensions_are_bounded_per_line_and_by_the_data() {
    let chunk =
        |size: usize, extension: usize| format!("{size:x};{}\r\n{}\r\n", "e".repeat(extension - 1), "d".repeat(size));
    let outcome = |body: String| read(Framing::Chunked, Origin::Client, format!("{body}0\r\n\r\n").as_bytes()).err();
    assert_eq!(outcome(chunk(1, 1021)), None, "RFC 9112, 7.1.1: the longest line there may be");
    assert_eq!(outcome(chunk(1, 1022)), Some(Fault::Chunk), "RFC 9112, 7.1.1");
    assert_eq!(outcome(chunk(1, 1000).repeat(16)), None, "RFC 9112, 7.1.1");
    assert_eq!(outcome(chunk(1, 1000).repeat(17)), Some(Fault::Chunk), "RFC 9112, 7.1.1");
    assert_eq!(outcome(chunk(4096, 85).repeat(1000)), None, "RFC 9112, 7.1.1: a signature with each chunk");
}

#[test]
fn sizes_filled_up_with_blanks_are_no_extensions() {
    let body = format!("{}0\r\n\r\n", "1       \r\nd\r\n".repeat(10_000));
    let outcome = read(Framing::Chunked, Origin::Backend, body.as_bytes());
    assert!(matches!(outcome, Ok(Some((data, ..))) if data.len() == 10_000), "RFC 9112, 7.1");
}

#[test]
fn size_that_cannot_become_one_is_refused_before_its_line_ends() {
    for (bytes, expected) in [
        (&b"x"[..], Some(Fault::Chunk)),
        (b"5x", Some(Fault::Chunk)),
        (b"11111111111111111", Some(Fault::Chunk)),
        (b"GET / HTTP/1.1", Some(Fault::Chunk)),
        (b"1111111111111111", None),
        (b"5;x", None),
        (b"5 ", None),
    ] {
        let outcome = read(Framing::Chunked, Origin::Client, bytes).err();
        assert_eq!(outcome, expected, "RFC 9112, 7.1: {}", bytes.escape_ascii());
    }
    assert_eq!(read(Framing::Chunked, Origin::Client, &b"5;".repeat(512)).err(), Some(Fault::Chunk));
}

#[test]
fn trailers_come_after_the_data_without_those_that_may_not_be_trailers() {
    let forbidden = "Host: b\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\nConnection: close\r\nTrailer: x\r\n\
        Authorization: x\r\nCookie: x\r\nSet-Cookie: x\r\nContent-Type: x\r\nContent-Encoding: x\r\nIf-Match: x\r\n\
        Range: x\r\nCache-Control: x\r\nX-Forwarded-For: 1.2.3.4\r\nForwarded: for=1.2.3.4\r\nTE: x\r\nUpgrade: x\r\n";
    let body = format!("1\r\nd\r\n0\r\ngrpc-status: 0\r\n{forbidden}X-Sum: \t1 \r\nX-Sum: 2\r\n\r\nrest");
    let (data, trailers, rest) =
        read(Framing::Chunked, Origin::Client, body.as_bytes()).expect("well-formed").expect("whole");
    let trailers = trailers.expect("there are some");
    assert_eq!((&data[..], &rest[..]), (&b"d"[..], &b"rest"[..]), "RFC 9112, 7.1.2");
    let mut pairs: Vec<_> = trailers.iter().map(|(name, value)| (name.as_str(), value.as_bytes())).collect();
    pairs.sort_unstable();
    let expected: [(&str, &[u8]); 3] = [("grpc-status", b"0"), ("x-sum", b"1"), ("x-sum", b"2")];
    assert_eq!(pairs, expected, "RFC 9110, 6.5.1");
}

#[test]
fn trailers_none_of_which_may_be_one_are_none() {
    let body = b"0\r\nHost: b\r\n\r\n";
    let (_, trailers, _) = read(Framing::Chunked, Origin::Client, body).expect("well-formed").expect("whole");
    assert_eq!(trailers, None, "RFC 9110, 6.5.1");
}

#[test]
fn malformed_trailers_are_refused() {
    use Origin::{Backend, Client};
    const REFUSED: Outcome = Refused(Fault::Trailers);
    assert_chunked(&[
        ("9112, 7.1.2", Client, b"0\r\nA: b\r\n\r\n", Whole("")),
        ("9112, 7.1.2", Client, b"0\r\nA: b\r\n", Partial),
        ("9112, 7.1.2", Client, b"0\r\nA: b\n\r\n", REFUSED),
        ("9112, 7.1.2", Client, b"0\r\n\n", REFUSED),
        ("9112, 2.2", Backend, b"0\r\nA: b\n\n", Whole("")),
        ("9112, 7.1.2", Client, b"0\r\nA\r\n\r\n", REFUSED),
        ("9112, 5.1", Client, b"0\r\nA : b\r\n\r\n", REFUSED),
        ("9112, 5.2", Client, b"0\r\nA: b\r\n c\r\n\r\n", REFUSED),
        ("9112, 5.2", Client, b"0\r\n A: b\r\n\r\n", REFUSED),
        ("9110, 5.5", Client, b"0\r\nA: \0\r\n\r\n", REFUSED),
        ("9112, 2.2", Client, b"0\r\nA: b\rc\r\n\r\n", REFUSED),
        ("9112, 7.1", Client, b"0\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n", REFUSED),
    ]);
}

#[test]
fn trailers_are_bounded() {
    let outcome = |trailers: String| {
        read(Framing::Chunked, Origin::Client, format!("0\r\n{trailers}\r\n").as_bytes()).map(|body| body.is_some())
    };
    assert_eq!(outcome("A: b\r\n".repeat(100)), Ok(true), "RFC 9112, 7.1.2");
    assert_eq!(outcome("A: b\r\n".repeat(101)), Err(Fault::Trailers), "RFC 9112, 7.1.2");
    assert_eq!(outcome(format!("A: {}\r\n", "b".repeat(16 * 1024))), Err(Fault::Trailers), "RFC 9112, 7.1.2");
    let endless = [&b"0\r\nA: "[..], &b"b".repeat(16 * 1024)].concat();
    assert_eq!(read(Framing::Chunked, Origin::Client, &endless).err(), Some(Fault::Trailers), "RFC 9112, 7.1.2");
}

#[test]
fn body_is_as_long_as_its_length_and_no_longer() {
    for (framing, bytes, data, rest) in [
        (Framing::Empty, &b"GET /"[..], &b""[..], &b"GET /"[..]),
        (Framing::Length(0), b"GET /", b"", b"GET /"),
        (Framing::Length(5), b"helloGET /", b"hello", b"GET /"),
        (Framing::Chunked, b"5\r\nhello\r\n0\r\n\r\nGET /", b"hello", b"GET /"),
    ] {
        let (was, _, left) = read(framing, Origin::Client, bytes).expect("well-formed").expect("whole");
        assert_eq!((&was[..], &left[..]), (data, rest), "RFC 9112, 6.3: {framing:?}");
    }
}

#[test]
fn what_is_still_to_come_is_told_where_it_is_known() {
    let mut decoder = Decoder::new(Framing::Length(5), Origin::Client);
    assert_eq!(decoder.remaining(), Some(5));
    assert_eq!(decoder.decode(&mut BytesMut::from(&b"he"[..])), Ok(Some(Piece::Data(Bytes::from_static(b"he")))));
    assert_eq!(decoder.remaining(), Some(3));
    assert_eq!(Decoder::new(Framing::Empty, Origin::Client).remaining(), Some(0));
    assert_eq!(Decoder::new(Framing::Chunked, Origin::Client).remaining(), None);
    assert_eq!(Decoder::new(Framing::UntilClose, Origin::Backend).remaining(), None);
}

#[test]
fn end_of_the_connection_ends_a_body_only_if_nothing_else_does() {
    for (framing, bytes, expected) in [
        (Framing::UntilClose, &b"hello"[..], Ok(())),
        (Framing::UntilClose, b"", Ok(())),
        (Framing::Empty, b"", Ok(())),
        (Framing::Length(5), b"hello", Ok(())),
        (Framing::Length(5), b"hell", Err(Fault::CutOff)),
        (Framing::Length(5), b"", Err(Fault::CutOff)),
        (Framing::Chunked, b"", Err(Fault::CutOff)),
        (Framing::Chunked, b"5\r\nhello\r\n", Err(Fault::CutOff)),
        (Framing::Chunked, b"0\r\n", Err(Fault::CutOff)),
        (Framing::Chunked, b"0\r\n\r\n", Ok(())),
    ] {
        let (mut buf, mut decoder) = (BytesMut::from(bytes), Decoder::new(framing, Origin::Backend));
        while decoder.decode(&mut buf).expect("well-formed").is_some() {}
        assert_eq!(decoder.end_of_input(), expected, "RFC 9112, 8: {framing:?} {}", bytes.escape_ascii());
        assert_eq!(decoder.is_done(), expected.is_ok());
    }
}

#[test]
fn body_that_went_wrong_stays_wrong_whatever_follows() {
    for (framed, fault) in [
        (&b"0\r\nA : b\r\n\r\n"[..], Fault::Trailers),
        (b"0\r\nA: b\n", Fault::Trailers),
        (b"x\r\n", Fault::Chunk),
        (b"1\r\nab", Fault::Chunk),
    ] {
        let mut decoder = Decoder::new(Framing::Chunked, Origin::Client);
        let mut buf = BytesMut::from(framed);
        while let Ok(Some(_)) = decoder.decode(&mut buf) {}
        for next in [&b"\r\n"[..], b"0\r\n\r\n", b"B: c\r\n\r\n"] {
            buf = BytesMut::from(next);
            assert_eq!(
                decoder.decode(&mut buf),
                Err(fault),
                "RFC 9112, 7.1: {} and then {next:?}",
                framed.escape_ascii()
            );
        }
        assert!(!decoder.is_done());
        assert_eq!(decoder.end_of_input(), Err(fault));
    }
}
