//! The spans of attempts, for traces.
//!
//! Each attempt at a backend is a span: a retry or a hedge is a sibling of the first, so a trace
//! shows which one cost the time. There are two ways to receive them:
//!
//! - A [`Tracer`] in the [`RequestOptions`](super::RequestOptions) of a request. It also writes the headers of each
//!   attempt, so that the service behind continues the span of this very attempt.
//! - A subscriber of `tracing`. Without a tracer, an attempt is a span `attempt` at the level debug
//!   with the target `plimsoll::trace`, within the current span; a filter
//!   with that target has it exported by `tracing-opentelemetry`. A request that was not sent at all is an event there.
//!
//! While nobody listens, a request pays two branches: one for the tracer, one for the level that
//! `tracing` keeps in an atomic.

use crate::address::Address;
use std::fmt;

use http::{HeaderMap, Method, StatusCode};
use tracing::field::Empty;

/// The target of spans and events for traces.
pub(crate) const TARGET: &str = "plimsoll::trace";

/// Receives the attempts of a request.
pub trait Tracer: fmt::Debug + Send + Sync {
    /// An attempt begins. `headers` are those that its backend gets: the place to name its span.
    ///
    /// The headers of an earlier attempt may still be there.
    fn begin(&self, attempt: &AttemptStart<'_>, headers: &mut HeaderMap) -> Box<dyn AttemptSpan>;
}

/// The span of an attempt under way.
pub trait AttemptSpan: Send + Sync {
    /// The attempt has ended. Called once.
    fn end(self: Box<Self>, end: &AttemptSummary);
}

/// The begin of an attempt.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct AttemptStart<'a> {
    /// The name of the cluster.
    pub cluster: &'a str,
    /// The backend; `None` if it has just been removed.
    pub backend: Option<Address>,
    /// The method of the request.
    pub method: &'a Method,
    /// Attempts of this request before it.
    pub resends: u32,
    /// It is sent while another attempt is under way.
    pub is_hedge: bool,
}

/// The end of an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct AttemptSummary {
    /// The kind of end, as in metrics: `served`, `timeout`, or the reason for which the backend shed
    /// the request.
    pub end: &'static str,
    /// The status of the response; `None` without one.
    pub status: Option<StatusCode>,
    /// The backend shed the request.
    pub is_shed: bool,
    /// It brought no response, or not all of it, and was not withdrawn for another attempt.
    pub is_failure: bool,
}

impl AttemptSummary {
    /// The kind of error for the attribute `error.type`: a status from 400 on, or the kind of end.
    /// `None` without an error.
    #[must_use]
    pub fn error_type(&self) -> Option<&str> {
        match &self.status {
            _ if self.is_shed => Some(self.end),
            Some(status) if status.is_client_error() || status.is_server_error() => Some(status.as_str()),
            _ if self.is_failure => Some(self.end),
            _ => None,
        }
    }
}

/// The tracer of requests without one: spans of `tracing`.
#[derive(Debug)]
struct Spans;

/// A span of `tracing`.
struct Span(tracing::Span);

/// The tracer of a request: its own, or else `tracing`, if a subscriber wants spans.
#[inline]
pub(super) fn tracer(own: Option<&dyn Tracer>) -> Option<&dyn Tracer> {
    match own {
        None if tracing::enabled!(target: TARGET, tracing::Level::DEBUG) => Some(&Spans),
        own => own,
    }
}

/// A request ends without an attempt, for this reason.
pub(super) fn not_sent(cluster: &str, reason: &'static str) {
    tracing::debug!(target: TARGET, cluster, reason, "request not sent");
}

impl Tracer for Spans {
    fn begin(&self, attempt: &AttemptStart<'_>, _: &mut HeaderMap) -> Box<dyn AttemptSpan> {
        let &AttemptStart { cluster, backend, method, resends, is_hedge } = attempt;
        Box::new(Span(tracing::debug_span!(
            target: TARGET,
            "attempt",
            otel.name = method.as_str(),
            otel.kind = "client",
            otel.status_code = Empty,
            http.request.method = method.as_str(),
            http.request.resend_count = (resends > 0).then_some(resends),
            http.response.status_code = Empty,
            server.address = backend.map(|backend| tracing::field::display(backend.host())),
            server.port = backend.and_then(Address::port),
            error.type = Empty,
            plimsoll.cluster = cluster,
            plimsoll.hedge = is_hedge.then_some(true),
            plimsoll.reason = Empty,
        )))
    }
}

impl AttemptSpan for Span {
    fn end(self: Box<Self>, end: &AttemptSummary) {
        let Self(span) = *self;
        if let Some(status) = end.status {
            span.record("http.response.status_code", status.as_u16());
        }
        if let Some(error) = end.error_type() {
            span.record("otel.status_code", "ERROR");
            span.record("error.type", error);
        }
        if end.is_shed {
            span.record("plimsoll.reason", end.end);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn error_type_is_the_reason_a_status_or_the_kind_of_end() {
        let of = |end, status: Option<u16>, is_shed, is_failure| {
            let status = status.map(|status| StatusCode::from_u16(status).unwrap());
            AttemptSummary { end, status, is_shed, is_failure }.error_type().map(str::to_owned)
        };
        for (end, status, is_shed, is_failure, error) in [
            ("served", Some(200), false, false, None),
            ("served", Some(404), false, false, Some("404")),
            ("failed", Some(500), false, true, Some("500")),
            ("overloaded", Some(503), true, true, Some("overloaded")),
            ("overloaded", Some(200), true, true, Some("overloaded")),
            ("cut-off", Some(200), false, true, Some("cut-off")),
            ("connect-failed", None, false, true, Some("connect-failed")),
            ("withdrawn", None, false, false, None),
        ] {
            assert_eq!(of(end, status, is_shed, is_failure).as_deref(), error, "{end} {status:?}");
        }
    }
}
