//! The spans of one recorded request: its own, and those of its attempts.
//!
//! Attributes are those of OpenTelemetry's conventions for HTTP, and ours under `plimsoll.`. The
//! query of a path is left out: it holds secrets more often than facts. So are fields of the head,
//! but for the user agent. Texts of the client are cut.

use std::borrow::Cow;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use http::{HeaderMap, HeaderValue, Method, StatusCode, Version};
use plimsoll::address::{Address, UnixPath};
use plimsoll::client::{AttemptSpan, AttemptStart, AttemptSummary, Tracer};
use plimsoll_core::trace::{Recording, SpanId, TraceContext};
use plimsoll_wire::headers::TRACESTATE;
use plimsoll_wire::otlp::{
    self, KeyValue, PARENT_IS_LOCAL, PARENT_IS_REMOTE, Span, SpanKind, Status, StatusCode as SpanStatus, Value,
};
use plimsoll_wire::trace_context;

use super::queue::Queue;
use super::with_rng;
use crate::access_log::{Entry, Text};

/// Bytes of a text that a client chose.
const MAX_TEXT: usize = 256;

/// A recorded request.
#[derive(Debug)]
pub(crate) struct RequestTrace {
    queue: Arc<Queue>,
    recording: Recording,
    /// The value of `tracestate`.
    state: Option<HeaderValue>,
    /// The client, where a trusted proxy names it.
    client: Option<IpAddr>,
}

/// The span of an attempt under way.
struct Attempt {
    queue: Arc<Queue>,
    span: Span,
    begun: Instant,
}

impl RequestTrace {
    pub(super) fn new(queue: &Arc<Queue>, recording: Recording, headers: &HeaderMap, client: Option<IpAddr>) -> Self {
        let state = recording.parent.and_then(|_| trace_context::state(headers));
        Self { queue: Arc::clone(queue), recording, state, client }
    }

    /// A span of the trace that began at `at` and took `took`.
    fn span(&self, id: SpanId, parent: Option<SpanId>, at: SystemTime, took: Duration) -> Span {
        let TraceContext { trace, flags, .. } = self.recording.context;
        let start = at.duration_since(UNIX_EPOCH).unwrap_or_default();
        let nanos = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        Span {
            trace_id: trace.bits().to_be_bytes().to_vec(),
            span_id: id.bits().to_be_bytes().to_vec(),
            parent_span_id: parent.map(|parent| parent.bits().to_be_bytes().to_vec()).unwrap_or_default(),
            trace_state: self.state.as_ref().and_then(|state| state.to_str().ok()).unwrap_or_default().to_owned(),
            start_time_unix_nano: nanos(start),
            end_time_unix_nano: nanos(start + took),
            flags: u32::from(flags.is_sampled) | u32::from(flags.is_random) << 1,
            ..Span::default()
        }
    }

    /// The request has ended, with these facts.
    pub(crate) fn end(&self, entry: &Entry) {
        let mut span = self.span(self.recording.context.span, self.recording.parent, entry.at, entry.begun.elapsed());
        span.flags |= if self.recording.parent.is_some() { PARENT_IS_REMOTE } else { PARENT_IS_LOCAL };
        span.kind = SpanKind::Server as i32;
        self.describe(&mut span, entry);
        self.queue.push(otlp::encode_span(&span));
    }

    fn describe(&self, span: &mut Span, entry: &Entry) {
        let mut facts = Facts(Vec::with_capacity(24));
        span.name = facts.method(&entry.method).to_owned();
        facts.add("url.scheme", entry.scheme);
        let path = entry.text(Text::Path).map(|path| path.split(|byte| *byte == b'?').next().unwrap_or_default());
        facts.text("url.path", path);
        if let Some(authority) = entry.text(Text::Authority) {
            let (host, port) = split_port(authority);
            facts.text("server.address", Some(host));
            facts.maybe("server.port", port);
        }
        let client = self.client.map_or(entry.client, |ip| (ip, 0).into());
        facts.add(
            "client.address",
            if client.inet().is_some() { client.host().to_string() } else { client.to_string() },
        );
        facts.peer(entry.client);
        facts.add("network.protocol.version", if entry.protocol == Version::HTTP_2 { "2" } else { "1.1" });
        facts.text("user_agent.original", entry.text(Text::UserAgent));
        facts.maybe("http.response.status_code", entry.status.map(|status| i64::from(status.as_u16())));
        facts.add("plimsoll.listener", &*entry.listener);
        facts.maybe("plimsoll.cluster", entry.cluster.as_deref());
        facts.text("plimsoll.customer", entry.customer());
        facts.maybe("plimsoll.criticality", entry.criticality.map(|criticality| criticality.name()));
        facts.add("plimsoll.attempts", i64::from(entry.attempts));
        facts.maybe("plimsoll.reason", entry.reason);
        facts.maybe("plimsoll.cause", entry.cause);
        facts.maybe("plimsoll.degraded", entry.degraded);
        facts.maybe("plimsoll.expected_cpu_s", entry.expected);
        facts.maybe("plimsoll.used_cpu_s", entry.used);
        facts.text("plimsoll.request_id", entry.request_id());
        if !entry.complete {
            facts.add("plimsoll.complete", false);
        }
        let is_error = entry.status.is_none_or(|status| status.is_server_error());
        if is_error {
            let status = entry.status.as_ref().map(StatusCode::as_str);
            let error = entry.reason.or(status).unwrap_or("left");
            facts.add("error.type", error);
            span.status = Some(Status { message: String::new(), code: SpanStatus::Error as i32 });
        }
        span.attributes = facts.0;
    }
}

impl Tracer for RequestTrace {
    fn begin(&self, attempt: &AttemptStart<'_>, headers: &mut HeaderMap) -> Box<dyn AttemptSpan> {
        let id = with_rng(SpanId::random);
        trace_context::write(headers, TraceContext { span: id, ..self.recording.context });
        if self.recording.parent.is_none() {
            // Of a trace that could not be read.
            headers.remove(TRACESTATE);
        }
        let mut span = self.span(id, Some(self.recording.context.span), SystemTime::now(), Duration::ZERO);
        span.flags |= PARENT_IS_LOCAL;
        span.kind = SpanKind::Client as i32;
        let mut facts = Facts(Vec::with_capacity(12));
        span.name = facts.method(attempt.method).to_owned();
        if let Some(backend) = attempt.backend {
            facts.add("server.address", backend.host().to_string());
            facts.maybe("server.port", backend.port().map(i64::from));
            facts.peer(backend);
        }
        if attempt.resends > 0 {
            facts.add("http.request.resend_count", i64::from(attempt.resends));
        }
        facts.add("plimsoll.cluster", attempt.cluster);
        if attempt.is_hedge {
            facts.add("plimsoll.hedge", true);
        }
        span.attributes = facts.0;
        Box::new(Attempt { queue: Arc::clone(&self.queue), span, begun: Instant::now() })
    }
}

impl AttemptSpan for Attempt {
    fn end(mut self: Box<Self>, end: &AttemptSummary) {
        let Self { span, begun, .. } = &mut *self;
        span.end_time_unix_nano += u64::try_from(begun.elapsed().as_nanos()).unwrap_or_default();
        let mut facts = Facts(std::mem::take(&mut span.attributes));
        facts.maybe("http.response.status_code", end.status.map(|status| i64::from(status.as_u16())));
        facts.add("plimsoll.end", end.end);
        if end.is_shed {
            facts.add("plimsoll.reason", end.end);
        }
        if let Some(error) = end.error_type() {
            facts.add("error.type", error);
            span.status = Some(Status { message: String::new(), code: SpanStatus::Error as i32 });
        }
        span.attributes = facts.0;
        self.queue.push(otlp::encode_span(&self.span));
    }
}

/// The attributes of a span.
struct Facts(Vec<KeyValue>);

impl Facts {
    fn add(&mut self, key: &str, value: impl Into<Value>) {
        self.0.push(KeyValue::new(key, value));
    }

    fn maybe(&mut self, key: &str, value: Option<impl Into<Value>>) {
        if let Some(value) = value {
            self.add(key, value);
        }
    }

    /// A text of a client, which may be long and need not be text.
    fn text(&mut self, key: &str, text: Option<&[u8]>) {
        let cut = text.map(|text| String::from_utf8_lossy(&text[..text.len().min(MAX_TEXT)]));
        self.maybe(key, cut.map(Cow::into_owned));
    }

    fn peer(&mut self, address: Address) {
        match address {
            Address::Inet(address) => {
                self.add("network.peer.address", address.ip().to_string());
                self.add("network.peer.port", i64::from(address.port()));
            }
            Address::Unix(path) => {
                self.add("network.transport", "unix");
                if path != UnixPath::UNNAMED {
                    self.add("network.peer.address", path.as_str());
                }
            }
        }
    }

    /// Adds the method. Returns the name of a span of it: clients may invent methods without end.
    fn method<'m>(&mut self, method: &'m Method) -> &'m str {
        const KNOWN: [Method; 9] = [
            Method::GET,
            Method::HEAD,
            Method::POST,
            Method::PUT,
            Method::PATCH,
            Method::DELETE,
            Method::OPTIONS,
            Method::CONNECT,
            Method::TRACE,
        ];
        if KNOWN.contains(method) {
            self.add("http.request.method", method.as_str());
            return method.as_str();
        }
        self.add("http.request.method", "_OTHER");
        self.text("http.request.method_original", Some(method.as_str().as_bytes()));
        "HTTP"
    }
}

/// The host and the port of an authority.
fn split_port(authority: &[u8]) -> (&[u8], Option<i64>) {
    let at = authority.iter().rposition(|byte| *byte == b':');
    let port = at.and_then(|at| std::str::from_utf8(&authority[at + 1..]).ok()?.parse::<u16>().ok());
    match (at, port) {
        (Some(at), Some(port)) => (&authority[..at], Some(i64::from(port))),
        _ => (authority, None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn authority_is_split_at_its_port() {
        for (authority, host, port) in [
            ("a.example", "a.example", None),
            ("a.example:8080", "a.example", Some(8080)),
            ("[::1]", "[::1]", None),
            ("[::1]:80", "[::1]", Some(80)),
            ("a:x", "a:x", None),
        ] {
            assert_eq!(split_port(authority.as_bytes()), (host.as_bytes(), port));
        }
    }

    #[test]
    fn invented_methods_share_one_name() {
        let mut facts = Facts(Vec::new());
        let method = Method::from_bytes(b"BREW").unwrap();
        assert_eq!(facts.method(&method), "HTTP");
        let other =
            [KeyValue::new("http.request.method", "_OTHER"), KeyValue::new("http.request.method_original", "BREW")];
        assert_eq!(facts.0, other);
    }
}
