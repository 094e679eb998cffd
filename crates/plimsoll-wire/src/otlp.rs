//! Spans for a collector: the trace messages of the OpenTelemetry protocol (OTLP 1.x).
//!
//! Only the fields that are written here, and the answer. Generated types of all signals would
//! bring a dozen crates, for these twelve messages.
//!
//! A span is encoded by itself ([`encode_span`]), since whoever ends it has its facts at hand; a
//! request is its head ([`RequestHead`]) and such spans, one after the other.
//!
//! Source: `opentelemetry-proto` 1.9, `opentelemetry/proto/collector/trace/v1/trace_service.proto`.

use bytes::BytesMut;
use prost::Message as _;
use prost::encoding::{encode_varint, encoded_len_varint};

/// The path of a request for a collector over HTTP.
pub const PATH: &str = "/v1/traces";

/// An attribute of a span or of its source.
#[derive(Clone, PartialEq, prost::Message)]
pub struct KeyValue {
    /// Its name.
    #[prost(string, tag = "1")]
    pub key: String,
    /// Its value.
    #[prost(message, optional, tag = "2")]
    pub value: Option<AnyValue>,
}

/// The value of an attribute.
#[derive(Clone, PartialEq, prost::Message)]
pub struct AnyValue {
    /// The value.
    #[prost(oneof = "Value", tags = "1, 2, 3, 4")]
    pub value: Option<Value>,
}

/// The kinds of values that are written here.
#[derive(Clone, PartialEq, prost::Oneof)]
pub enum Value {
    /// Text.
    #[prost(string, tag = "1")]
    String(String),
    /// A truth value.
    #[prost(bool, tag = "2")]
    Bool(bool),
    /// A whole number.
    #[prost(int64, tag = "3")]
    Int(i64),
    /// A number.
    #[prost(double, tag = "4")]
    Double(f64),
}

/// A span.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Span {
    /// 16 bytes.
    #[prost(bytes = "vec", tag = "1")]
    pub trace_id: Vec<u8>,
    /// 8 bytes.
    #[prost(bytes = "vec", tag = "2")]
    pub span_id: Vec<u8>,
    /// The value of `tracestate`.
    #[prost(string, tag = "3")]
    pub trace_state: String,
    /// 8 bytes, or none for the first span of its trace.
    #[prost(bytes = "vec", tag = "4")]
    pub parent_span_id: Vec<u8>,
    /// Its name, of few in all.
    #[prost(string, tag = "5")]
    pub name: String,
    /// Its side of a request.
    #[prost(enumeration = "SpanKind", tag = "6")]
    pub kind: i32,
    /// Nanoseconds since 1970.
    #[prost(fixed64, tag = "7")]
    pub start_time_unix_nano: u64,
    /// Nanoseconds since 1970.
    #[prost(fixed64, tag = "8")]
    pub end_time_unix_nano: u64,
    /// Its facts.
    #[prost(message, repeated, tag = "9")]
    pub attributes: Vec<KeyValue>,
    /// How it ended.
    #[prost(message, optional, tag = "15")]
    pub status: Option<Status>,
    /// The flags of its context in the lowest byte; bits 8 and 9: whether the parent is of another
    /// process.
    #[prost(fixed32, tag = "16")]
    pub flags: u32,
}

/// Bits of [`Span::flags`] beside those of the context: the next one is known, and set.
pub const PARENT_IS_REMOTE: u32 = 0x300;
/// The same: known, and not set.
pub const PARENT_IS_LOCAL: u32 = 0x100;

/// The side of a request that a span describes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, prost::Enumeration)]
#[repr(i32)]
pub enum SpanKind {
    /// None is stated.
    Unspecified = 0,
    /// No request.
    Internal = 1,
    /// Its receiver's.
    Server = 2,
    /// Its sender's.
    Client = 3,
}

/// How a span ended.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Status {
    /// For a person.
    #[prost(string, tag = "2")]
    pub message: String,
    /// The kind of end.
    #[prost(enumeration = "StatusCode", tag = "3")]
    pub code: i32,
}

/// The kind of end of a span.
#[derive(Clone, Copy, Debug, PartialEq, Eq, prost::Enumeration)]
#[repr(i32)]
pub enum StatusCode {
    /// Nothing is stated.
    Unset = 0,
    /// Well.
    Ok = 1,
    /// In an error.
    Error = 2,
}

/// The process that made spans.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Resource {
    /// Its facts, such as `service.name`.
    #[prost(message, repeated, tag = "1")]
    pub attributes: Vec<KeyValue>,
}

/// The code that made spans.
#[derive(Clone, PartialEq, prost::Message)]
pub struct InstrumentationScope {
    /// Its name.
    #[prost(string, tag = "1")]
    pub name: String,
    /// Its version.
    #[prost(string, tag = "2")]
    pub version: String,
}

/// A collector's answer.
#[derive(Clone, PartialEq, prost::Message)]
pub struct ExportTraceServiceResponse {
    /// Present if not all spans were accepted.
    #[prost(message, optional, tag = "1")]
    pub partial_success: Option<PartialSuccess>,
}

/// The part of a request that was refused.
#[derive(Clone, PartialEq, prost::Message)]
pub struct PartialSuccess {
    /// Spans that were refused.
    #[prost(int64, tag = "1")]
    pub rejected_spans: i64,
    /// Why.
    #[prost(string, tag = "2")]
    pub error_message: String,
}

/// Tags of the messages that are put together here: the field, and a length follows.
const RESOURCE_SPANS: u8 = 1 << 3 | 2;
const RESOURCE: u8 = 1 << 3 | 2;
const SCOPE_SPANS: u8 = 2 << 3 | 2;
const SCOPE: u8 = 1 << 3 | 2;
const SPANS: u8 = 2 << 3 | 2;

impl KeyValue {
    /// An attribute.
    pub fn new(key: &str, value: impl Into<Value>) -> Self {
        Self { key: key.to_owned(), value: Some(AnyValue { value: Some(value.into()) }) }
    }
}

impl From<&str> for Value {
    fn from(text: &str) -> Self {
        Self::String(text.to_owned())
    }
}

impl From<String> for Value {
    fn from(text: String) -> Self {
        Self::String(text)
    }
}

impl From<bool> for Value {
    fn from(is: bool) -> Self {
        Self::Bool(is)
    }
}

impl From<i64> for Value {
    fn from(number: i64) -> Self {
        Self::Int(number)
    }
}

impl From<f64> for Value {
    fn from(number: f64) -> Self {
        Self::Double(number)
    }
}

/// The bytes of a span in a request.
#[must_use]
pub fn encode_span(span: &Span) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(span.encoded_len() + 6);
    put(&mut bytes, SPANS, span.encoded_len());
    span.encode(&mut bytes).expect("a vector grows");
    bytes
}

/// The begin of each request of a process.
#[derive(Clone, Debug)]
pub struct RequestHead {
    resource: Vec<u8>,
    scope: Vec<u8>,
}

impl RequestHead {
    /// That of spans of this process and code.
    #[must_use]
    pub fn new(resource: &Resource, scope: &InstrumentationScope) -> Self {
        let field = |tag, message: Vec<u8>| {
            let mut bytes = Vec::new();
            put(&mut bytes, tag, message.len());
            bytes.extend(message);
            bytes
        };
        Self { resource: field(RESOURCE, resource.encode_to_vec()), scope: field(SCOPE, scope.encode_to_vec()) }
    }

    /// A request with these spans, as [`encode_span`] gives them.
    #[must_use]
    pub fn request<'s>(&self, spans: impl Iterator<Item = &'s [u8]> + Clone) -> BytesMut {
        let of_scope = self.scope.len() + spans.clone().map(<[u8]>::len).sum::<usize>();
        let of_resource = self.resource.len() + 1 + encoded_len_varint(of_scope as u64) + of_scope;
        let mut bytes = BytesMut::with_capacity(of_resource + 6);
        put(&mut bytes, RESOURCE_SPANS, of_resource);
        bytes.extend_from_slice(&self.resource);
        put(&mut bytes, SCOPE_SPANS, of_scope);
        bytes.extend_from_slice(&self.scope);
        spans.for_each(|span| bytes.extend_from_slice(span));
        bytes
    }
}

fn put(bytes: &mut impl bytes::BufMut, tag: u8, len: usize) {
    bytes.put_u8(tag);
    encode_varint(len as u64, bytes);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The request as one message, for comparison.
    #[derive(Clone, PartialEq, prost::Message)]
    struct Request {
        #[prost(message, repeated, tag = "1")]
        resource_spans: Vec<ResourceSpans>,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    struct ResourceSpans {
        #[prost(message, optional, tag = "1")]
        resource: Option<Resource>,
        #[prost(message, repeated, tag = "2")]
        scope_spans: Vec<ScopeSpans>,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    struct ScopeSpans {
        #[prost(message, optional, tag = "1")]
        scope: Option<InstrumentationScope>,
        #[prost(message, repeated, tag = "2")]
        spans: Vec<Span>,
    }

    fn span(name: &str) -> Span {
        Span {
            trace_id: vec![7; 16],
            span_id: vec![8; 8],
            name: name.to_owned(),
            kind: SpanKind::Client as i32,
            start_time_unix_nano: 1,
            end_time_unix_nano: 2,
            attributes: vec![KeyValue::new("n", 3), KeyValue::new("s", "text"), KeyValue::new("d", 0.5)],
            status: Some(Status { message: String::new(), code: StatusCode::Error as i32 }),
            flags: PARENT_IS_REMOTE | 1,
            ..Span::default()
        }
    }

    #[test]
    fn request_in_parts_reads_as_the_message_that_it_stands_for() {
        let resource = Resource { attributes: vec![KeyValue::new("service.name", "edge")] };
        let scope = InstrumentationScope { name: "plimsoll".to_owned(), version: "1".to_owned() };
        for count in [0, 1, 300] {
            let spans: Vec<Span> = (0..count).map(|i| span(&"x".repeat(i))).collect();
            let encoded: Vec<Vec<u8>> = spans.iter().map(encode_span).collect();
            let request = RequestHead::new(&resource, &scope).request(encoded.iter().map(Vec::as_slice));
            let scope_spans = vec![ScopeSpans { scope: Some(scope.clone()), spans }];
            let expected =
                Request { resource_spans: vec![ResourceSpans { resource: Some(resource.clone()), scope_spans }] };
            assert_eq!(Request::decode(&*request).unwrap(), expected);
        }
    }
}
