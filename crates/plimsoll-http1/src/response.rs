//! The head of a response.

use bytes::{Bytes, BytesMut};
use http::header::{CONTENT_LENGTH, HeaderMap, TRANSFER_ENCODING};
use http::{Method, StatusCode, Version};

use crate::scan::{Limits, Scan};
use crate::{Fault, Framing, Origin, fields};

/// The head of a response, and what it says about the connection.
#[derive(Debug)]
pub struct ResponseHead {
    /// Its status, from 100 to 999.
    pub status: StatusCode,
    /// HTTP/1.0 or 1.1.
    pub version: Version,
    /// All fields, those of the connection included.
    pub headers: HeaderMap,
    /// How its body is delimited.
    pub framing: Framing,
    /// The connection may be used again when the response is over. Not after a 101: what follows is not HTTP/1.
    pub keep_alive: bool,
}

impl ResponseHead {
    /// Takes the head of a response to a request with `method` off the front of `buf`; `None` when more bytes are needed,
    /// to be asked again with the same `scan`. Interim responses (1xx) come one by one, before the final one.
    ///
    /// # Errors
    /// What is wrong with it. The connection is of no more use then.
    pub fn parse(buf: &mut BytesMut, scan: &mut Scan, limits: &Limits, method: &Method) -> Result<Option<Self>, Fault> {
        let Some(len) = scan.head_len(buf, limits, Origin::Backend)? else { return Ok(None) };
        Self::read(&buf.split_to(len).freeze(), limits, method).map(Some)
    }

    fn read(head: &Bytes, limits: &Limits, method: &Method) -> Result<Self, Fault> {
        let line_len = memchr::memchr(b'\n', head).ok_or(Fault::StartLine)?;
        let line = &head[..line_len];
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        let (version, status) = status_line(line)?;
        let (mut headers, present) = fields::read(head, line_len + 1, limits.max_fields)?;
        let framing = Framing::of_response(&headers, present, version, status, method)?;
        if present.content_lengths {
            fields::keep_first(&mut headers, &CONTENT_LENGTH);
        }
        let keep_alive = fields::keep_alive(&headers, present, version) && !is_last(&headers, framing, status, method);
        Ok(Self { status, version, headers, framing, keep_alive })
    }
}

/// Whether no other response can follow on the connection, whatever this one says about it.
fn is_last(headers: &HeaderMap, framing: Framing, status: StatusCode, method: &Method) -> bool {
    let is_tunnel = status == StatusCode::SWITCHING_PROTOCOLS || *method == Method::CONNECT && status.is_success();
    // A 204 that announces a body is wrong (RFC 9110, 8.6), but common. Should the body come after all, it must not be
    // read as the next response.
    let has_stray_body = status == StatusCode::NO_CONTENT
        && (headers.contains_key(TRANSFER_ENCODING) || headers.get(CONTENT_LENGTH).is_some_and(|length| length != "0"));
    framing == Framing::UntilClose || is_tunnel || has_stray_body
}

/// `HTTP/1.x SP 3DIGIT [SP reason]`. What the reason says is nobody's business any more.
fn status_line(line: &[u8]) -> Result<(Version, StatusCode), Fault> {
    let (version, rest) = line.split_at_checked(8).ok_or(Fault::StartLine)?;
    let version = match version {
        b"HTTP/1.0" => Version::HTTP_10,
        [b'H', b'T', b'T', b'P', b'/', b'1', b'.', b'1'..=b'9'] => Version::HTTP_11,
        [b'H', b'T', b'T', b'P', b'/', b'0'..=b'9', b'.', b'0'..=b'9'] => return Err(Fault::Version),
        _ => return Err(Fault::StartLine),
    };
    let [b' ', code @ ..] = rest else { return Err(Fault::StartLine) };
    let (code, reason) = code.split_at_checked(3).ok_or(Fault::StartLine)?;
    if !matches!(reason, [] | [b' ', ..]) || reason.iter().any(|byte| byte.is_ascii_control() && *byte != b'\t') {
        return Err(Fault::StartLine);
    }
    Ok((version, StatusCode::from_bytes(code).map_err(|_| Fault::StartLine)?))
}
