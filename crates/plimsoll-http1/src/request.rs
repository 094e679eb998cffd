//! The head of a request.

use bytes::{Bytes, BytesMut};
use http::header::{EXPECT, HeaderMap};
use http::{Method, Uri, Version};

use crate::method::{MAX_METHOD, is_miscased};
use crate::scan::{Limits, Scan};
use crate::{Fault, Framing, Origin, fields, target};

/// The head of a request, and what it says about the connection.
#[derive(Debug)]
pub struct RequestHead {
    /// Its method; any token of up to [`MAX_METHOD`] bytes.
    pub method: Method,
    /// Its target, in the form in which it came.
    pub uri: Uri,
    /// HTTP/1.0 or 1.1; a minor version above is read as 1.1 (RFC 9110, 2.5).
    pub version: Version,
    /// All fields, those of the connection included, but for an `Expect` that means nothing: an old client's, or one of a
    /// request without a body.
    pub headers: HeaderMap,
    /// How its body is delimited.
    pub framing: Framing,
    /// The client wants to go on with the connection.
    pub keep_alive: bool,
    /// The client waits for `100 Continue` before it sends the body.
    pub expects_continue: bool,
    /// The client would like another protocol on this connection.
    pub wants_upgrade: bool,
}

impl RequestHead {
    /// Takes a head off the front of `buf`; `None` when more bytes are needed, to be asked again with the same `scan`.
    ///
    /// # Errors
    /// What is wrong with it. Nothing after it can be read then: where it ends is not known.
    pub fn parse(buf: &mut BytesMut, scan: &mut Scan, limits: &Limits) -> Result<Option<Self>, Fault> {
        let Some(len) = scan.head_len(buf, limits, Origin::Client)? else { return Ok(None) };
        Self::read(&buf.split_to(len).freeze(), limits).map(Some)
    }

    fn read(head: &Bytes, limits: &Limits) -> Result<Self, Fault> {
        let line_len = memchr::memchr(b'\n', head).ok_or(Fault::StartLine)?;
        let line = head[..line_len].strip_suffix(b"\r").ok_or(Fault::StartLine)?;
        let first = memchr::memchr(b' ', line).ok_or(Fault::StartLine)?;
        let last = memchr::memrchr(b' ', line).ok_or(Fault::StartLine)?;
        let (method, version) = (&line[..first], &line[last + 1..]);
        if !method.iter().all(|byte| fields::is_token_byte(*byte)) {
            return Err(Fault::StartLine);
        }
        let version = version_of(version)?;
        if last <= first + 1 {
            return Err(Fault::StartLine);
        }
        if method.len() > MAX_METHOD {
            return Err(Fault::MethodTooLong);
        }
        if last - first - 1 > limits.max_target.min(target::MAX_TARGET) {
            return Err(Fault::TargetTooLong);
        }
        let method = Method::from_bytes(method).map_err(|_| Fault::StartLine)?;
        if is_miscased(&method) {
            return Err(Fault::MethodCase);
        }
        let uri = target::read(head.slice(first + 1..last), &method)?;
        let (mut headers, present) = fields::read(head, line_len + 1, limits.max_fields)?;
        target::check_host(&headers, version)?;
        let framing = Framing::of_request(&headers, present, version)?;
        let keep_alive = fields::keep_alive(&headers, present, version);
        let is_1_1 = version == Version::HTTP_11;
        let expects_continue = is_1_1 && present.expect && expects_continue(&headers)? && !framing.is_empty();
        if present.expect && !expects_continue {
            headers.remove(EXPECT);
        }
        let wants_upgrade = is_1_1 && present.upgrade && fields::has_connection_option(&headers, "upgrade");
        Ok(Self { method, uri, version, headers, framing, keep_alive, expects_continue, wants_upgrade })
    }
}

fn version_of(version: &[u8]) -> Result<Version, Fault> {
    match version {
        b"HTTP/1.1" => Ok(Version::HTTP_11),
        b"HTTP/1.0" => Ok(Version::HTTP_10),
        [b'H', b'T', b'T', b'P', b'/', major @ b'0'..=b'9', b'.', b'0'..=b'9'] => {
            if *major == b'1' {
                Ok(Version::HTTP_11)
            } else {
                Err(Fault::Version)
            }
        }
        _ => Err(Fault::StartLine),
    }
}

fn expects_continue(headers: &HeaderMap) -> Result<bool, Fault> {
    let mut expects = false;
    for value in headers.get_all(EXPECT) {
        if !value.as_bytes().eq_ignore_ascii_case(b"100-continue") {
            return Err(Fault::Expectation);
        }
        expects = true;
    }
    Ok(expects)
}
