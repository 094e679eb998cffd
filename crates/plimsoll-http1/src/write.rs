//! Messages into bytes.
//!
//! Everything is appended to a `Vec`, so that a head, a short body and the end of the body leave in one write. What delimits
//! the body is written as [`Framing`] says; the fields that would say it (`Content-Length`, `Transfer-Encoding`) and `Connection`
//! are left out of the map's: a map may come from HTTP/2, where they delimit nothing, and must not do so here.

use http::header::{CONNECTION, CONTENT_LENGTH, HeaderMap, TRANSFER_ENCODING};
use http::uri::PathAndQuery;
use http::{Method, StatusCode, Uri};

use crate::{Framing, fields::is_forbidden_trailer};

/// What a message says about its connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Connection {
    /// Nothing: it stays, among those who speak HTTP/1.1.
    Unsaid,
    /// It stays; for those who speak HTTP/1.0.
    KeepAlive,
    /// It ends with this message.
    Close,
    /// It changes to the protocol that the field `Upgrade` names.
    Upgrade,
}

/// Room for a head without growing, in most cases.
pub const TYPICAL_HEAD: usize = 512;

/// Appends the head of a request. The target is written in the form in which it is, an absolute one with its authority.
/// An `Empty` body is announced by nothing, a `Length` of zero by a length.
pub fn request_head(
    into: &mut Vec<u8>,
    method: &Method,
    uri: &Uri,
    headers: &HeaderMap,
    framing: Framing,
    connection: Connection,
) {
    into.extend_from_slice(method.as_str().as_bytes());
    into.push(b' ');
    if let Some(scheme) = uri.scheme_str() {
        into.extend_from_slice(scheme.as_bytes());
        into.extend_from_slice(b"://");
    }
    if let Some(authority) = uri.authority() {
        into.extend_from_slice(authority.as_str().as_bytes());
    }
    let path = uri.path_and_query().map_or("", PathAndQuery::as_str).as_bytes();
    match (uri.authority(), path) {
        // `OPTIONS http://host` asks about the server as a whole (RFC 9112, 3.2.4).
        (Some(_), b"*") => {}
        (None, [b'/', ..] | b"*") | (Some(_), _) => into.extend_from_slice(path),
        // A query alone is what is left of `http://host?query`, whose path is `/` (RFC 9112, 3.2.1).
        (None, _) => {
            into.push(b'/');
            into.extend_from_slice(path);
        }
    }
    into.extend_from_slice(b" HTTP/1.1\r\n");
    fields(into, headers, framing, connection, false);
    into.extend_from_slice(b"\r\n");
}

/// Appends the head of a response. An `Empty` body keeps the length that the map says: that of the body which a response to
/// `HEAD`, or a 304, stands for. A 1xx or 204 stands for none, and says none (RFC 9110, 8.6; RFC 9112, 6.1).
pub fn response_head(
    into: &mut Vec<u8>,
    status: StatusCode,
    headers: &HeaderMap,
    framing: Framing,
    connection: Connection,
) {
    if status == StatusCode::OK {
        into.extend_from_slice(b"HTTP/1.1 200 OK\r\n");
    } else {
        into.extend_from_slice(b"HTTP/1.1 ");
        into.extend_from_slice(status.as_str().as_bytes());
        into.push(b' ');
        into.extend_from_slice(status.canonical_reason().unwrap_or("").as_bytes());
        into.extend_from_slice(b"\r\n");
    }
    let has_no_body = status.is_informational() || status == StatusCode::NO_CONTENT;
    let framing = if has_no_body { Framing::Empty } else { framing };
    fields(into, headers, framing, connection, framing == Framing::Empty && !has_no_body);
    into.extend_from_slice(b"\r\n");
}

fn fields(into: &mut Vec<u8>, headers: &HeaderMap, framing: Framing, connection: Connection, keeps_length: bool) {
    for (name, value) in headers {
        let is_framing = *name == TRANSFER_ENCODING || *name == CONTENT_LENGTH && !keeps_length;
        if is_framing || *name == CONNECTION {
            continue;
        }
        field(into, name.as_str().as_bytes(), value.as_bytes());
    }
    match framing {
        Framing::Length(length) => {
            into.extend_from_slice(b"content-length: ");
            decimal(into, length);
            into.extend_from_slice(b"\r\n");
        }
        Framing::Chunked => into.extend_from_slice(b"transfer-encoding: chunked\r\n"),
        Framing::Empty | Framing::UntilClose => {}
    }
    match connection {
        Connection::Unsaid => {}
        Connection::KeepAlive => into.extend_from_slice(b"connection: keep-alive\r\n"),
        Connection::Close => into.extend_from_slice(b"connection: close\r\n"),
        Connection::Upgrade => into.extend_from_slice(b"connection: upgrade\r\n"),
    }
}

fn field(into: &mut Vec<u8>, name: &[u8], value: &[u8]) {
    into.reserve(name.len() + value.len() + 4);
    into.extend_from_slice(name);
    into.extend_from_slice(b": ");
    into.extend_from_slice(value);
    into.extend_from_slice(b"\r\n");
}

fn decimal(into: &mut Vec<u8>, mut number: u64) {
    let mut digits = [0_u8; 20];
    let mut at = digits.len();
    loop {
        at -= 1;
        digits[at] = b'0' + (number % 10) as u8;
        number /= 10;
        if number == 0 {
            break;
        }
    }
    into.extend_from_slice(&digits[at..]);
}

/// Appends what stands before the data of a chunk of `len` bytes, which must not be zero: that would end the body.
pub fn chunk_start(into: &mut Vec<u8>, len: usize) {
    debug_assert!(len > 0, "an empty chunk ends the body");
    let digits = (usize::BITS - len.leading_zeros()).div_ceil(4).max(1);
    for digit in (0..digits).rev() {
        into.push(b"0123456789abcdef"[len >> (4 * digit) & 15]);
    }
    into.extend_from_slice(b"\r\n");
}

/// What stands after the data of a chunk.
pub const CHUNK_END: &[u8] = b"\r\n";

/// Appends the end of a chunked body, with its trailers, of which those that may not be trailers (RFC 9110, 6.5.1) are
/// left out.
pub fn last_chunk(into: &mut Vec<u8>, trailers: Option<&HeaderMap>) {
    into.extend_from_slice(b"0\r\n");
    for (name, value) in trailers.into_iter().flatten().filter(|(name, _)| !is_forbidden_trailer(name)) {
        field(into, name.as_str().as_bytes(), value.as_bytes());
    }
    into.extend_from_slice(b"\r\n");
}
