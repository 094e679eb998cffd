//! Where the body of a message ends: the one decision that both of its sides must make alike (RFC 9112, 6.3).

use http::header::{CONTENT_LENGTH, HeaderMap, HeaderValue, TRANSFER_ENCODING};
use http::{Method, StatusCode, Version};

use crate::fields::{self, Present};
use crate::{Fault, Origin};

/// How a body is delimited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Framing {
    /// There is none.
    Empty,
    /// So many bytes; zero is a body too, an empty one.
    Length(u64),
    /// Chunks, and perhaps trailers.
    Chunked,
    /// All that comes until the connection is closed. Responses only.
    UntilClose,
}

impl Framing {
    /// That of a request.
    pub(crate) fn of_request(headers: &HeaderMap, present: Present, version: Version) -> Result<Self, Fault> {
        let has_length = present.content_length;
        if present.transfer_encoding {
            if has_length {
                return Err(Fault::LengthAndCoding);
            }
            return chunked(headers, version, Origin::Client);
        }
        if has_length { length(headers, Origin::Client).map(Self::Length) } else { Ok(Self::Empty) }
    }

    /// That of the response to a request with `method`.
    pub(crate) fn of_response(
        headers: &HeaderMap,
        present: Present,
        version: Version,
        status: StatusCode,
        method: &Method,
    ) -> Result<Self, Fault> {
        let (has_length, has_coding) = (present.content_length, present.transfer_encoding);
        if has_coding && has_length {
            return Err(Fault::LengthAndCoding);
        }
        // Where it says nothing about this message it is passed on, and so has to be a number there, too.
        let length = if has_length { Some(length(headers, Origin::Backend)?) } else { None };
        if is_bodiless(status, method) {
            // What came as the body of an interim response would be read as the next response.
            match length {
                _ if !status.is_informational() || status == StatusCode::SWITCHING_PROTOCOLS => Ok(Self::Empty),
                _ if has_coding => Err(Fault::TransferEncoding),
                Some(1..) => Err(Fault::ContentLength),
                _ => Ok(Self::Empty),
            }
        } else if has_coding {
            chunked(headers, version, Origin::Backend)
        } else {
            Ok(length.map_or(Self::UntilClose, Self::Length))
        }
    }

    /// Whether nothing is to come.
    #[must_use]
    pub fn is_empty(self) -> bool {
        matches!(self, Self::Empty | Self::Length(0))
    }
}

/// Whether nothing follows the head of a response, whatever it says (RFC 9112, 6.3, 1 and 2).
fn is_bodiless(status: StatusCode, method: &Method) -> bool {
    status.is_informational()
        || status == StatusCode::NO_CONTENT
        || status == StatusCode::NOT_MODIFIED
        || *method == Method::HEAD
        || *method == Method::CONNECT && status.is_success()
}

fn chunked(headers: &HeaderMap, version: Version, origin: Origin) -> Result<Framing, Fault> {
    let mut codings = fields::list(headers, &TRANSFER_ENCODING);
    let is_chunked = |coding: &[u8]| coding.eq_ignore_ascii_case(b"chunked");
    let (first, second) = (codings.next(), codings.next());
    if version < Version::HTTP_11 {
        return Err(Fault::TransferEncoding);
    }
    match (first, second) {
        // Empty members of a list are nothing (RFC 9110, 5.6.1.2), but not every reader takes `,chunked` for the same.
        (Some(only), None) if is_chunked(only) => match origin {
            Origin::Client if !headers.get_all(TRANSFER_ENCODING).iter().all(|line| is_chunked(line.as_bytes())) => {
                Err(Fault::TransferEncoding)
            }
            Origin::Client | Origin::Backend => Ok(Framing::Chunked),
        },
        (Some(first), Some(second)) => {
            let last = codings.last().unwrap_or(second);
            let chunked_before = fields::list(headers, &TRANSFER_ENCODING).filter(|c| is_chunked(c)).count() > 1;
            // With chunked at the end the length would be known; only what is in the chunks would not.
            let unknown = is_chunked(last) && !chunked_before && !is_chunked(first);
            Err(if unknown { Fault::UnknownCoding } else { Fault::TransferEncoding })
        }
        _ => Err(Fault::TransferEncoding),
    }
}

fn length(headers: &HeaderMap, origin: Origin) -> Result<u64, Fault> {
    let mut lines = headers.get_all(CONTENT_LENGTH).iter();
    let first = lines.next().map_or(Err(Fault::ContentLength), number)?;
    match origin {
        Origin::Client if lines.next().is_some() => Err(Fault::ContentLength),
        Origin::Backend if lines.any(|line| number(line) != Ok(first)) => Err(Fault::ContentLength),
        Origin::Client | Origin::Backend => Ok(first),
    }
}

/// The longest body that is believed in: what does not fit into a signed number becomes a negative one in some programs
/// (RFC 9110, 8.6, warns of it).
const MAX_LENGTH: u64 = i64::MAX as u64;

/// Whether a value of `Content-Length` is one number that is believed in, in whatever version of HTTP it came.
fn is_length(value: &HeaderValue) -> bool {
    number(value).is_ok()
}

/// Whether a message says its length once, as a number, or not at all.
#[must_use]
pub fn has_valid_length(headers: &HeaderMap) -> bool {
    let mut lengths = headers.get_all(CONTENT_LENGTH).iter();
    lengths.next().is_none_or(is_length) && lengths.next().is_none()
}

/// Digits and nothing else; `str::parse` would take a sign.
fn number(value: &HeaderValue) -> Result<u64, Fault> {
    let digits = value.as_bytes();
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return Err(Fault::ContentLength);
    }
    digits
        .iter()
        .try_fold(0_u64, |sum, digit| sum.checked_mul(10)?.checked_add(u64::from(digit - b'0')))
        .filter(|length| *length <= MAX_LENGTH)
        .ok_or(Fault::ContentLength)
}
