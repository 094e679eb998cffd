//! What can be wrong with a message, and which answer a request with it deserves.

use http::StatusCode;

/// Why a message is not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Fault {
    /// The first line is not `method SP target SP version`, or not a status line.
    StartLine,
    /// The version is none of HTTP/1.
    Version,
    /// The method is longer than [`MAX_METHOD`](crate::MAX_METHOD).
    MethodTooLong,
    /// The method is a known one in another case.
    MethodCase,
    /// The target is no URI, or of a form that the method does not go with (RFC 9112, 3.2).
    Target,
    /// The target is longer than allowed.
    TargetTooLong,
    /// A line feed without a carriage return before it (RFC 9112, 2.2).
    BareLineFeed,
    /// A field's name or value has bytes that do not belong there, or a line is folded (RFC 9112, 5).
    Field,
    /// There are more fields than allowed.
    TooManyFields,
    /// The head is larger than allowed.
    HeadTooLarge,
    /// No host in HTTP/1.1, more than one, or one that is none (RFC 9112, 3.2).
    Host,
    /// A length that is no number, or more than one length (RFC 9112, 6.3).
    ContentLength,
    /// A transfer coding of which `chunked` is not the last, or which HTTP/1.0 does not have (RFC 9112, 6.1).
    TransferEncoding,
    /// A transfer coding besides `chunked` (RFC 9112, 6.1).
    UnknownCoding,
    /// A length beside a transfer coding (RFC 9112, 6.1): the mark of request smuggling.
    LengthAndCoding,
    /// An expectation that is not `100-continue` (RFC 9110, 10.1.1).
    Expectation,
    /// A chunk's size, extension or end is malformed (RFC 9112, 7.1).
    Chunk,
    /// Trailers are malformed, too many or too large (RFC 9112, 7.1.2).
    Trailers,
    /// The connection ended in the middle of a message (RFC 9112, 8).
    CutOff,
}

impl Fault {
    /// All of them, in the order of their declaration.
    pub const ALL: [Self; 19] = [
        Self::StartLine,
        Self::Version,
        Self::MethodTooLong,
        Self::MethodCase,
        Self::Target,
        Self::TargetTooLong,
        Self::BareLineFeed,
        Self::Field,
        Self::TooManyFields,
        Self::HeadTooLarge,
        Self::Host,
        Self::ContentLength,
        Self::TransferEncoding,
        Self::UnknownCoding,
        Self::LengthAndCoding,
        Self::Expectation,
        Self::Chunk,
        Self::Trailers,
        Self::CutOff,
    ];

    /// The status that a server answers a request with that has it.
    #[must_use]
    pub fn status(self) -> StatusCode {
        match self {
            Self::Version => StatusCode::HTTP_VERSION_NOT_SUPPORTED,
            Self::TargetTooLong => StatusCode::URI_TOO_LONG,
            Self::TooManyFields | Self::HeadTooLarge => StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE,
            Self::MethodTooLong | Self::UnknownCoding => StatusCode::NOT_IMPLEMENTED,
            Self::Expectation => StatusCode::EXPECTATION_FAILED,
            _ => StatusCode::BAD_REQUEST,
        }
    }

    /// The word for it in metrics and logs.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::StartLine => "start-line",
            Self::Version => "version",
            Self::MethodTooLong => "method-too-long",
            Self::MethodCase => "method-case",
            Self::Target => "target",
            Self::TargetTooLong => "target-too-long",
            Self::BareLineFeed => "bare-line-feed",
            Self::Field => "field",
            Self::TooManyFields => "too-many-fields",
            Self::HeadTooLarge => "head-too-large",
            Self::Host => "host",
            Self::ContentLength => "content-length",
            Self::TransferEncoding => "transfer-encoding",
            Self::UnknownCoding => "unknown-coding",
            Self::LengthAndCoding => "length-and-coding",
            Self::Expectation => "expectation",
            Self::Chunk => "chunk",
            Self::Trailers => "trailers",
            Self::CutOff => "cut-off",
        }
    }

    /// What is wrong, for a person.
    #[must_use]
    pub fn message(self) -> &'static str {
        match self {
            Self::StartLine => "the first line is not that of an HTTP/1 message",
            Self::Version => "only HTTP/1.0, HTTP/1.1 and HTTP/2 are spoken here",
            Self::MethodTooLong => "the method of the request is longer than any that is known",
            Self::MethodCase => "the method is a known one in another case: methods are case-sensitive",
            Self::Target => "the target of the request is no path, or not one for its method",
            Self::TargetTooLong => "the target of the request is longer than this listener allows",
            Self::BareLineFeed => "a line ends with a line feed that has no carriage return before it",
            Self::Field => "a field's name or value is malformed, or a line is folded",
            Self::TooManyFields => "there are more fields than this listener allows",
            Self::HeadTooLarge => "the head is larger than this listener allows",
            Self::Host => "a request has one host field with a host in it, neither none nor several",
            Self::ContentLength => "content-length is one number, once",
            Self::TransferEncoding => "transfer-encoding ends with chunked, once, and is not for HTTP/1.0",
            Self::UnknownCoding => "no transfer coding but chunked is known here",
            Self::LengthAndCoding => "content-length and transfer-encoding exclude each other",
            Self::Expectation => "no expectation but 100-continue is known here",
            Self::Chunk => "the framing of a chunk is malformed",
            Self::Trailers => "the trailers are malformed or too large",
            Self::CutOff => "the connection ended in the middle of the message",
        }
    }
}

impl std::fmt::Display for Fault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.message())
    }
}

impl std::error::Error for Fault {}
