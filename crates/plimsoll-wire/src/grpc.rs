//! The parts of gRPC over HTTP/2 that a load balancer needs.
//!
//! They are the recognition of gRPC requests, the status of a call (in the trailers, or in the head
//! of a response without a body), and the five bytes before each message. Messages pass through
//! unread. Source: `PROTOCOL-HTTP2.md` of gRPC.

use bytes::{BufMut as _, Bytes, BytesMut};
use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderValue, StatusCode};

use crate::headers::{GRPC_MESSAGE, GRPC_STATUS};

/// Value of `content-type` for gRPC with messages in protobuf, the usual encoding.
pub const CONTENT_TYPE_GRPC: HeaderValue = HeaderValue::from_static("application/grpc");

/// The status code of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
#[expect(missing_docs, reason = "the names are gRPC's and defined there")]
pub enum Code {
    Ok = 0,
    Cancelled = 1,
    Unknown = 2,
    InvalidArgument = 3,
    DeadlineExceeded = 4,
    NotFound = 5,
    AlreadyExists = 6,
    PermissionDenied = 7,
    ResourceExhausted = 8,
    FailedPrecondition = 9,
    Aborted = 10,
    OutOfRange = 11,
    Unimplemented = 12,
    Internal = 13,
    Unavailable = 14,
    DataLoss = 15,
    Unauthenticated = 16,
}

/// All codes and the text of each in a `grpc-status` header, at the index of its number.
pub(crate) const CODES: [(Code, &str); 17] = [
    (Code::Ok, "0"),
    (Code::Cancelled, "1"),
    (Code::Unknown, "2"),
    (Code::InvalidArgument, "3"),
    (Code::DeadlineExceeded, "4"),
    (Code::NotFound, "5"),
    (Code::AlreadyExists, "6"),
    (Code::PermissionDenied, "7"),
    (Code::ResourceExhausted, "8"),
    (Code::FailedPrecondition, "9"),
    (Code::Aborted, "10"),
    (Code::OutOfRange, "11"),
    (Code::Unimplemented, "12"),
    (Code::Internal, "13"),
    (Code::Unavailable, "14"),
    (Code::DataLoss, "15"),
    (Code::Unauthenticated, "16"),
];

impl Code {
    /// The code with this number.
    #[must_use]
    pub fn from_number(number: u8) -> Option<Self> {
        CODES.get(usize::from(number)).map(|(code, _)| *code)
    }

    /// The code in the value of a `grpc-status` header; [`Code::Unknown`] if it is none, by the
    /// protocol.
    #[must_use]
    pub fn from_header(value: &HeaderValue) -> Self {
        let number = match value.as_bytes() {
            [digit @ b'0'..=b'9'] => digit - b'0',
            [b'1', digit @ b'0'..=b'6'] => 10 + digit - b'0',
            _ => return Self::Unknown,
        };
        Self::from_number(number).unwrap_or(Self::Unknown)
    }

    /// The code in the headers or trailers, if there is one.
    #[must_use]
    pub fn read(headers: &HeaderMap) -> Option<Self> {
        headers.get(GRPC_STATUS).map(Self::from_header)
    }

    /// The code of an answer without `grpc-status`, as gRPC clients derive it.
    #[must_use]
    pub fn from_http(status: StatusCode) -> Self {
        match status.as_u16() {
            400 => Self::Internal,
            401 => Self::Unauthenticated,
            403 => Self::PermissionDenied,
            404 => Self::Unimplemented,
            429 | 502 | 503 | 504 => Self::Unavailable,
            _ => Self::Unknown,
        }
    }

    /// The value of the `grpc-status` header.
    #[must_use]
    pub fn to_header_value(self) -> HeaderValue {
        HeaderValue::from_static(CODES[self as usize].1)
    }

    /// Whether the server is to blame, as with an HTTP status of 500 or more. The other codes tell
    /// the caller about its own request.
    #[must_use]
    pub fn is_failure(self) -> bool {
        matches!(
            self,
            Self::Unknown
                | Self::DeadlineExceeded
                | Self::ResourceExhausted
                | Self::Internal
                | Self::Unavailable
                | Self::DataLoss
        )
    }
}

/// Whether the head of a request or response is one of gRPC.
///
/// gRPC-Web is not: its trailers are in the body.
#[must_use]
pub fn is_grpc(headers: &HeaderMap) -> bool {
    headers.get(CONTENT_TYPE).is_some_and(|value| is_grpc_content_type(value.as_bytes()))
}

/// Whether `content_type` is `application/grpc`, perhaps with an encoding or parameters.
#[must_use]
pub fn is_grpc_content_type(content_type: &[u8]) -> bool {
    const BASE: &[u8] = b"application/grpc";
    content_type.split_at_checked(BASE.len()).is_some_and(|(base, rest)| {
        base.eq_ignore_ascii_case(BASE) && matches!(rest.first(), None | Some(b'+' | b';' | b' '))
    })
}

/// Bytes before each message.
pub const FRAME_HEADER_LEN: usize = 5;

/// The header before each message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameHeader {
    /// The message is compressed, with the encoding that the headers name.
    pub compressed: bool,
    /// Length of the message in bytes, without this header.
    pub len: u32,
}

impl FrameHeader {
    /// Reads the five bytes; `None` when the first is neither 0 nor 1.
    #[must_use]
    pub fn parse(bytes: [u8; FRAME_HEADER_LEN]) -> Option<Self> {
        let [flag @ (0 | 1), len @ ..] = bytes else {
            return None;
        };
        Some(Self { compressed: flag == 1, len: u32::from_be_bytes(len) })
    }

    /// The five bytes.
    #[must_use]
    pub fn to_bytes(self) -> [u8; FRAME_HEADER_LEN] {
        let [a, b, c, d] = self.len.to_be_bytes();
        [u8::from(self.compressed), a, b, c, d]
    }
}

/// The message with its frame header, uncompressed.
#[must_use]
pub fn frame(message: &impl prost::Message) -> Bytes {
    let len = message.encoded_len();
    let header = FrameHeader { compressed: false, len: u32::try_from(len).expect("messages of this crate are small") };
    let mut bytes = BytesMut::with_capacity(FRAME_HEADER_LEN + len);
    bytes.put_slice(&header.to_bytes());
    message.encode(&mut bytes).expect("a BytesMut grows as needed");
    bytes.freeze()
}

/// The one message of a unary request or response; `None` when `body` is not exactly one
/// uncompressed frame with a message of this type.
#[must_use]
pub fn unframe<M: prost::Message + Default>(body: &[u8]) -> Option<M> {
    let (header, message) = body.split_first_chunk::<FRAME_HEADER_LEN>()?;
    let header = FrameHeader::parse(*header)?;
    if header.compressed || usize::try_from(header.len).ok()? != message.len() {
        return None;
    }
    M::decode(message).ok()
}

/// Trailers that end a call; they are the head of the response when there is nothing else.
#[must_use]
pub fn trailers(code: Code, message: &str) -> HeaderMap {
    let mut trailers = HeaderMap::with_capacity(4);
    trailers.insert(GRPC_STATUS, code.to_header_value());
    if !message.is_empty() {
        trailers.insert(GRPC_MESSAGE, encode_message(message));
    }
    trailers
}

/// Percent-encodes a `grpc-message`: all bytes but visible ASCII and space, and the percent sign.
#[must_use]
pub fn encode_message(message: &str) -> HeaderValue {
    const HEX: &[u8; 16] = b"0123456789ABCDEF";
    let mut text = Vec::with_capacity(message.len());
    for byte in message.bytes() {
        match byte {
            b'%' | 0..b' ' | 0x7f.. => {
                text.extend([b'%', HEX[usize::from(byte >> 4)], HEX[usize::from(byte & 15)]]);
            }
            _ => text.push(byte),
        }
    }
    HeaderValue::from_maybe_shared(Bytes::from(text)).expect("only visible ASCII and space are left")
}

/// Decodes a `grpc-message`. An invalid escape stays as it is, by the protocol.
#[must_use]
pub fn decode_message(value: &HeaderValue) -> String {
    let mut bytes = value.as_bytes();
    let mut text = Vec::with_capacity(bytes.len());
    while let Some((&byte, rest)) = bytes.split_first() {
        bytes = rest;
        let escaped = match rest {
            [high, low, ..] if byte == b'%' => hex(*high).zip(hex(*low)),
            _ => None,
        };
        match escaped {
            Some((high, low)) => {
                text.push(high << 4 | low);
                bytes = &rest[2..];
            }
            None => text.push(byte),
        }
    }
    String::from_utf8_lossy(&text).into_owned()
}

fn hex(digit: u8) -> Option<u8> {
    char::from(digit).to_digit(16).and_then(|value| u8::try_from(value).ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_read_back_as_written() {
        for (index, (code, text)) in CODES.iter().enumerate() {
            assert_eq!(*code as usize, index);
            assert_eq!(*text, index.to_string());
            assert_eq!(Code::from_header(&code.to_header_value()), *code);
        }
        for junk in ["", "17", "-1", "007", "x", "1 "] {
            assert_eq!(Code::from_header(&HeaderValue::from_static(junk)), Code::Unknown, "{junk:?}");
        }
    }

    #[test]
    fn grpc_is_told_by_content_type() {
        for (content_type, expected) in [
            ("application/grpc", true),
            ("application/grpc+proto", true),
            ("Application/gRPC;charset=utf-8", true),
            ("application/grpc-web", false),
            ("application/grpc-web+proto", false),
            ("application/json", false),
            ("", false),
        ] {
            assert_eq!(is_grpc_content_type(content_type.as_bytes()), expected, "{content_type}");
        }
        assert!(!is_grpc(&HeaderMap::new()));
    }

    #[test]
    fn frame_header_has_a_flag_and_a_big_endian_length() {
        let header = FrameHeader { compressed: true, len: 0x0102_0304 };
        assert_eq!(header.to_bytes(), [1, 1, 2, 3, 4]);
        assert_eq!(FrameHeader::parse([1, 1, 2, 3, 4]), Some(header));
        assert_eq!(FrameHeader::parse([2, 0, 0, 0, 0]), None);
    }

    #[test]
    fn unframe_wants_exactly_one_message() {
        let message = crate::health::HealthCheckRequest { service: "x".into() };
        let framed = frame(&message);
        assert_eq!(framed.as_ref(), b"\0\0\0\0\x03\x0a\x01x");
        assert_eq!(unframe(&framed), Some(message));
        for junk in [&b""[..], b"\0\0\0\0", b"\x01\0\0\0\0", b"\0\0\0\0\x01", b"\0\0\0\0\0x", b"\0\0\0\0\x01\xff"] {
            assert_eq!(unframe::<crate::health::HealthCheckRequest>(junk), None, "{junk:?}");
        }
    }

    #[test]
    fn messages_survive_percent_encoding() {
        assert_eq!(encode_message("50% überlastet\n"), "50%25 %C3%BCberlastet%0A");
        assert_eq!(decode_message(&HeaderValue::from_static("%41%4a%4A%zz%4")), "AJJ%zz%4");
    }
}
