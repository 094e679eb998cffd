//! Answers of a backend that did not serve a request, so that another may.
//!
//! | answer | not carried out | next step |
//! |---|---|---|
//! | `x-plimsoll-shed` with a reason | for certain | as `retry` says, not before `Retry-After` |
//! | `x-plimsoll-shed` without | | none: the caller has no use for a retry |
//! | `x-envoy-overloaded` | for certain | elsewhere |
//! | gRPC with pushback | for certain | as the pushback says |
//! | HTTP 503 with `Retry-After` or `x-amz-retry-after` | | after that |
//! | HTTP 502, 503; gRPC UNAVAILABLE | | elsewhere |
//! | customer over its quota (429, `x-envoy-ratelimited`) | for certain | none: all backends share it |
//! | the reason `rate-limit` | for certain | after `Retry-After`, else none |
//!
//! 500 is no such answer: another attempt would fail again. 504 is none either: no time is left,
//! and the work may go on at the backend.

use std::fmt;
use std::time::Duration;

use http::{HeaderMap, StatusCode};
use plimsoll_core::Rejection;
use plimsoll_core::rejection::Retry;
use plimsoll_core::retry::{self, Advice};
use plimsoll_wire::grpc::Code;
use plimsoll_wire::headers::GRPC_RETRY_PUSHBACK_MS;
use plimsoll_wire::shed::{Shed, says_no_more_than_no_retry};

use super::attempt_end::AttemptEnd;

/// An answer of a backend without service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The HTTP status.
    pub status: StatusCode,
    /// The gRPC code.
    pub code: Option<Code>,
    /// The reason, if the answer states a known one.
    pub why: Option<Rejection>,
    /// The advice on retrying.
    pub retry: Retry,
    /// The time before a retry.
    pub after: Option<Duration>,
    /// The request was certainly not carried out.
    pub is_certain: bool,
}

impl Refusal {
    /// The refusal in the head of a response, if it is one.
    pub(super) fn read(status: StatusCode, headers: &HeaderMap) -> Option<Self> {
        let code = Code::read(headers);
        if let Some(Shed { reason, retry, after }) = Shed::read(status, headers) {
            // RFC 6585: this user has sent too many requests, so a retry is for the user to decide.
            let is_quota = status == StatusCode::TOO_MANY_REQUESTS || code == Some(Code::ResourceExhausted);
            let reason = reason.or(is_quota.then_some(Rejection::Quota));
            let is_never = reason.is_some_and(|reason| reason.advice_in_answer(retry, after) == Advice::Never);
            let retry = if is_never { Retry::Never } else { retry };
            let pushes_back = code.is_some() && headers.contains_key(GRPC_RETRY_PUSHBACK_MS);
            let is_certain = reason.is_some() || pushes_back && !says_no_more_than_no_retry(headers);
            return Some(Self { status, code, why: reason, retry, after, is_certain });
        }
        let is_unavailable = match code {
            Some(code) => code == Code::Unavailable,
            None => matches!(status, StatusCode::BAD_GATEWAY | StatusCode::SERVICE_UNAVAILABLE),
        };
        let retry = Retry::Elsewhere;
        is_unavailable.then_some(Self { status, code, why: None, retry, after: None, is_certain: false })
    }

    /// The same as the core has it.
    pub(super) fn failure(&self) -> retry::Failure {
        self.end().row().retry_with(self.retry.advice(self.after))
    }

    /// The row of the table of ends for it.
    pub(super) fn end(&self) -> AttemptEnd {
        match (self.why, self.is_certain, self.retry) {
            (Some(why), ..) => AttemptEnd::Shed(why),
            (None, true, Retry::Never) => AttemptEnd::PushedBackFinally,
            (None, true, _) => AttemptEnd::PushedBack,
            (None, false, Retry::Never) => AttemptEnd::UnavailableFinally,
            (None, false, _) => AttemptEnd::Unavailable,
        }
    }

    /// The word for it in metrics and logs.
    #[must_use]
    pub fn reason(&self) -> &'static str {
        self.end().row().name
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.code {
            Some(code) => write!(f, "answered with {code:?}")?,
            None => write!(f, "answered with {}", self.status.as_u16())?,
        }
        if let Some(why) = self.why {
            write!(f, ", {why}")?;
        }
        match (self.retry, self.after) {
            (Retry::Never, _) => f.write_str(", do not retry"),
            (_, Some(after)) => write!(f, ", retry after {after:?}"),
            (_, None) => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        pairs.iter().map(|(name, value)| (name.parse().unwrap(), HeaderValue::from_static(value))).collect()
    }

    #[test]
    fn what_was_not_served_is_told_from_what_failed() {
        let shed = |text| ("x-plimsoll-shed", text);
        let pushback = |text| ("grpc-retry-pushback-ms", text);
        let unavailable = ("grpc-status", "14");
        let ms = |ms| Some(Duration::from_millis(ms));
        // status, headers; retry, after, certain
        for (status, pairs, expected) in [
            (200, &[][..], None),
            (404, &[], None),
            (500, &[], None),
            (504, &[], None),
            (200, &[("grpc-status", "0")], None),
            (200, &[("grpc-status", "13")], None),
            (200, &[("grpc-status", "4")], None),
            (502, &[], Some((Retry::Elsewhere, None, false))),
            (503, &[], Some((Retry::Elsewhere, None, false))),
            (502, &[shed("retry=never")], Some((Retry::Never, None, false))),
            (200, &[unavailable, shed("retry=never"), pushback("-1")], Some((Retry::Never, None, false))),
            (503, &[("retry-after", "2")], Some((Retry::After, ms(2_000), false))),
            (503, &[("x-amz-retry-after", "150")], Some((Retry::After, ms(150), false))),
            (503, &[("x-amz-retry-after", " 150 "), ("retry-after", "1")], Some((Retry::After, ms(150), false))),
            (503, &[("x-amz-retry-after", "-1"), ("retry-after", "1")], Some((Retry::After, ms(1_000), false))),
            (503, &[("x-amz-retry-after", "1.5")], Some((Retry::Elsewhere, None, false))),
            (500, &[("x-amz-retry-after", "150")], None),
            (429, &[("x-amz-retry-after", "150")], Some((Retry::Never, ms(150), true))),
            (503, &[shed("reason=overloaded, retry=elsewhere")], Some((Retry::Elsewhere, None, true))),
            (503, &[shed("reason=overloaded-no-retry, retry=never")], Some((Retry::Never, None, true))),
            (503, &[shed("reason=lame-duck, retry=elsewhere")], Some((Retry::Elsewhere, None, true))),
            (503, &[("x-envoy-overloaded", "true")], Some((Retry::Elsewhere, None, true))),
            (429, &[shed("reason=quota, retry=after"), ("retry-after", "1")], Some((Retry::Never, ms(1_000), true))),
            (429, &[], None),
            (429, &[("retry-after", "3")], Some((Retry::Never, ms(3_000), true))),
            (429, &[("x-envoy-ratelimited", "true")], Some((Retry::Never, None, true))),
            (429, &[shed("reason=rate-limit"), ("retry-after", "1")], Some((Retry::After, ms(1_000), true))),
            (429, &[shed("reason=rate-limit, retry=after")], Some((Retry::Never, None, true))),
            (429, &[shed("reason=from-the-future, retry=elsewhere")], Some((Retry::Never, None, true))),
            (429, &[shed("reason=overloaded, retry=elsewhere")], Some((Retry::Elsewhere, None, true))),
            (200, &[("grpc-status", "8"), shed("reason=from-the-future")], None),
            (200, &[("grpc-status", "8"), shed("retry=elsewhere")], Some((Retry::Never, None, true))),
            (200, &[unavailable], Some((Retry::Elsewhere, None, false))),
            (200, &[unavailable, pushback("0")], Some((Retry::Elsewhere, None, true))),
            (200, &[unavailable, pushback("40")], Some((Retry::After, ms(40), true))),
            (200, &[unavailable, pushback("-1")], Some((Retry::Never, None, true))),
            (200, &[unavailable, pushback("soon")], Some((Retry::Never, None, true))),
        ] {
            let read = Refusal::read(StatusCode::from_u16(status).unwrap(), &headers(pairs));
            assert_eq!(read.map(|r| (r.retry, r.after, r.is_certain)), expected, "{status} {pairs:?}");
        }
    }
}
