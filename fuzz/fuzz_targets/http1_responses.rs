//! A stream of HTTP/1 responses with their bodies: what is read does not depend on how the bytes were cut, and a response that
//! is taken is written and read back with the same body.
#![no_main]

use bytes::BytesMut;
use http::{HeaderMap, Method};
use libfuzzer_sys::fuzz_target;
use plimsoll_http1::write::{self, Connection};
use plimsoll_http1::{Decoder, Fault, Framing, Limits, Origin, Piece, ResponseHead, Scan};

/// Small, so that inputs of the usual size come to them.
const LIMITS: Limits = Limits { max_size: 1024, max_fields: 40, max_target: 0 };

/// What was read: heads, data and trailers as they came, and why it ended.
#[derive(Debug, Default, PartialEq)]
struct Stream {
    heads: Vec<String>,
    data: Vec<u8>,
    trailers: Vec<HeaderMap>,
    fault: Option<Fault>,
}

/// Takes all that is there for now.
fn take(
    stream: &mut Stream,
    buf: &mut BytesMut,
    scan: &mut Scan,
    body: &mut Option<Decoder>,
    method: &Method,
) -> Result<(), Fault> {
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
        let Some(head) = ResponseHead::parse(buf, scan, &LIMITS, method)? else { return Ok(()) };
        assert!(!head.keep_alive || head.framing != Framing::UntilClose);
        write_and_read(&head, method);
        *body = Some(Decoder::new(head.framing, Origin::Backend));
        stream.heads.push(format!("{head:?}"));
    }
}

fn write_and_read(head: &ResponseHead, method: &Method) {
    let mut bytes = Vec::new();
    write::response_head(&mut bytes, head.status, &head.headers, head.framing, Connection::Unsaid);
    let limits = Limits { max_size: 4 * LIMITS.max_size, ..LIMITS };
    match ResponseHead::parse(&mut BytesMut::from(&bytes[..]), &mut Scan::default(), &limits, method) {
        Ok(Some(again)) => assert_eq!((again.status, again.framing), (head.status, head.framing)),
        Err(Fault::TooManyFields) => {}
        outcome => panic!("written and then not read: {outcome:?}"),
    }
}

fn read(bytes: &[u8], piece: usize, method: &Method) -> Stream {
    let (mut stream, mut buf, mut scan, mut body) = (Stream::default(), BytesMut::new(), Scan::default(), None);
    for piece in bytes.chunks(piece) {
        buf.extend_from_slice(piece);
        if let Err(fault) = take(&mut stream, &mut buf, &mut scan, &mut body, method) {
            stream.fault = Some(fault);
            break;
        }
    }
    stream
}

fuzz_target!(|data: &[u8]| {
    let [piece, method, bytes @ ..] = data else { return };
    let method = match method % 4 {
        0 => Method::HEAD,
        1 => Method::CONNECT,
        _ => Method::GET,
    };
    let whole = read(bytes, bytes.len().max(1), &method);
    assert_eq!(read(bytes, usize::from(*piece).max(1), &method), whole);
    assert_eq!(read(bytes, 1, &method), whole);
});
