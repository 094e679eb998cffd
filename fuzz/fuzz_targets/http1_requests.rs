//! A stream of HTTP/1 requests with their bodies: what one reader takes does not depend on how the bytes were cut, and
//! what is taken is written and read back as the same.
#![no_main]

use bytes::BytesMut;
use http::HeaderMap;
use libfuzzer_sys::fuzz_target;
use plimsoll_http1::write::{self, Connection};
use plimsoll_http1::{Decoder, Fault, Limits, Origin, Piece, RequestHead, Scan};

/// Small, so that inputs of the usual size come to them.
const LIMITS: Limits = Limits { max_size: 1024, max_fields: 40, max_target: 128 };

/// What was read: heads, data and trailers as they came, and why it ended.
#[derive(Debug, Default, PartialEq)]
struct Stream {
    heads: Vec<String>,
    data: Vec<u8>,
    trailers: Vec<HeaderMap>,
    fault: Option<Fault>,
}

/// Takes all that is there for now.
fn take(stream: &mut Stream, buf: &mut BytesMut, scan: &mut Scan, body: &mut Option<Decoder>) -> Result<(), Fault> {
    loop {
        if let Some(decoder) = body {
            while let Some(piece) = decoder.decode(buf)? {
                match piece {
                    Piece::Data(data) => {
                        assert!(!data.is_empty());
                        stream.data.extend_from_slice(&data);
                    }
                    Piece::Trailers(trailers) => stream.trailers.push(trailers),
                }
            }
            if !decoder.is_done() {
                return Ok(());
            }
        }
        *body = None;
        let Some(head) = RequestHead::parse(buf, scan, &LIMITS)? else { return Ok(()) };
        write_and_read(&head);
        *body = Some(Decoder::new(head.framing, Origin::Client));
        stream.heads.push(format!("{head:?}"));
    }
}

fn write_and_read(head: &RequestHead) {
    let mut bytes = Vec::new();
    let connection = if head.keep_alive { Connection::KeepAlive } else { Connection::Close };
    write::request_head(&mut bytes, &head.method, &head.uri, &head.headers, head.framing, connection);
    let limits = Limits { max_size: 4 * LIMITS.max_size, ..LIMITS };
    match RequestHead::parse(&mut BytesMut::from(&bytes[..]), &mut Scan::default(), &limits) {
        Ok(Some(again)) => {
            assert_eq!((again.method, again.uri, again.framing), (head.method.clone(), head.uri.clone(), head.framing));
        }
        // HTTP/1.0 asks for less, and the writer may add a field, a slash or a length.
        Err(Fault::Host | Fault::Expectation) => assert_eq!(head.version, http::Version::HTTP_10),
        Err(Fault::TooManyFields | Fault::TargetTooLong) => {}
        outcome => panic!("written and then not read: {outcome:?}"),
    }
}

fn read(bytes: &[u8], piece: usize) -> Stream {
    let (mut stream, mut buf, mut scan, mut body) = (Stream::default(), BytesMut::new(), Scan::default(), None);
    for piece in bytes.chunks(piece) {
        buf.extend_from_slice(piece);
        if let Err(fault) = take(&mut stream, &mut buf, &mut scan, &mut body) {
            stream.fault = Some(fault);
            break;
        }
    }
    stream
}

fuzz_target!(|data: &[u8]| {
    let Some((piece, bytes)) = data.split_first() else { return };
    let whole = read(bytes, bytes.len().max(1));
    assert_eq!(read(bytes, usize::from(*piece).max(1)), whole);
    assert_eq!(read(bytes, 1), whole);
});
