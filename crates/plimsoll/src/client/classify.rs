//! Classifies a response as success, failure, overload or rate limit of its backend.
//!
//! | response | outcome |
//! |---|---|
//! | HTTP 429, gRPC RESOURCE_EXHAUSTED | rate limited |
//! | other HTTP below 500 | success: the request may be wrong, the backend is not |
//! | HTTP 503 with `x-plimsoll-shed`, `retry-after` or Envoy's mark | overloaded |
//! | HTTP 504 of who turned it away for its deadline | overloaded |
//! | other HTTP from 500 | failure |
//! | gRPC UNAVAILABLE with `x-plimsoll-shed` or pushback | overloaded |
//! | gRPC DEADLINE_EXCEEDED of who turned it away for its deadline | overloaded |
//! | other gRPC code that blames the server | failure |
//! | gRPC without a code | failure |
//!
//! A rate limit is no failure: mostly it concerns the sender, and the other backends answer the
//! same. [`plimsoll_core`] weighs it against the backend by the rate of such answers at the others.
//!
//! A gRPC call tells how it ended in its trailers, so its head usually decides nothing.
//!
//! A deadline is the word of whoever asks: were a backend to fail by turning away what it has no time for, five requests with no time
//! at all would have it ejected. That it was overloaded makes others preferred, as with any refusal that is quick, and no more; what a
//! throttle learns of it goes by how long it took ([`Attempt::too_late`](super::attempt::Attempt::too_late)).

use http::header::RETRY_AFTER;
use http::{HeaderMap, StatusCode};
use plimsoll_core::Outcome;
use plimsoll_wire::grpc::Code;
use plimsoll_wire::headers::{GRPC_RETRY_PUSHBACK_MS, X_ENVOY_OVERLOADED, X_PLIMSOLL_SHED};
use plimsoll_wire::shed::{Shed, ShedReason, says_no_more_than_no_retry};

/// The outcome as far as the head of a response decides it; `None`: the trailers will.
pub(super) fn head(status: StatusCode, headers: &HeaderMap, is_grpc: bool) -> Option<Outcome> {
    if is_grpc && status == StatusCode::OK {
        return Code::read(headers).map(|code| grpc(code, headers));
    }
    Some(if status == StatusCode::TOO_MANY_REQUESTS {
        Outcome::RateLimited
    } else if status.as_u16() < 500 {
        Outcome::Success
    } else if status == StatusCode::SERVICE_UNAVAILABLE
        && (is_shed(headers) || headers.contains_key(RETRY_AFTER) || headers.contains_key(X_ENVOY_OVERLOADED))
        || status == StatusCode::GATEWAY_TIMEOUT && is_too_late(headers)
    {
        Outcome::Overloaded
    } else {
        Outcome::Failure
    })
}

/// The outcome of a gRPC call that ended with `trailers`.
pub(super) fn trailers(trailers: &HeaderMap) -> Outcome {
    match Code::read(trailers) {
        // It was taken on, so that nobody was turned away: somebody behind the backend had no time for it.
        Some(Code::DeadlineExceeded) if is_too_late(trailers) => Outcome::Cancelled,
        code => code.map_or(Outcome::Failure, |code| grpc(code, trailers)),
    }
}

/// The outcome of a response that ended without trailers.
pub(super) fn bare_end(is_grpc: bool) -> Outcome {
    if is_grpc { Outcome::Failure } else { Outcome::Success }
}

fn grpc(code: Code, headers: &HeaderMap) -> Outcome {
    if code == Code::ResourceExhausted {
        Outcome::RateLimited
    } else if !code.is_failure() {
        Outcome::Success
    } else if code == Code::Unavailable && is_shed(headers) || code == Code::DeadlineExceeded && is_too_late(headers) {
        Outcome::Overloaded
    } else {
        Outcome::Failure
    }
}

/// Why a request was not served, as far as the head or the trailers of its answer say.
pub(super) fn reason(headers: &HeaderMap) -> Option<ShedReason> {
    Shed::read(StatusCode::SERVICE_UNAVAILABLE, headers)?.reason
}

/// Whether it is the time of the request that was too short.
fn is_too_late(headers: &HeaderMap) -> bool {
    reason(headers) == Some(ShedReason::Deadline)
}

fn is_shed(headers: &HeaderMap) -> bool {
    let says_so = headers.contains_key(X_PLIMSOLL_SHED) || headers.contains_key(GRPC_RETRY_PUSHBACK_MS);
    says_so && !says_no_more_than_no_retry(headers)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        pairs.iter().map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap())).collect()
    }

    #[test]
    fn plain_responses_are_judged_by_their_status() {
        let head = |status, pairs| head(StatusCode::from_u16(status).unwrap(), &headers(pairs), false);
        assert_eq!(head(200, &[]), Some(Outcome::Success));
        assert_eq!(head(429, &[]), Some(Outcome::RateLimited));
        assert_eq!(head(429, &[("retry-after", "1")]), Some(Outcome::RateLimited));
        assert_eq!(head(500, &[("x-plimsoll-shed", "reason=overloaded")]), Some(Outcome::Failure));
        assert_eq!(head(503, &[]), Some(Outcome::Failure));
        assert_eq!(head(503, &[("retry-after", "1")]), Some(Outcome::Overloaded));
        assert_eq!(head(503, &[("x-plimsoll-shed", "reason=overloaded")]), Some(Outcome::Overloaded));
    }

    #[test]
    fn who_turns_away_says_why_and_has_not_failed() {
        for row in &plimsoll_wire::shed::TABLE {
            for grpc in [false, true] {
                let answer = row.reason.head(grpc, None);
                assert_eq!(reason(answer.headers()), Some(row.reason), "{}", row.name);
                let is_customers = row.reason == ShedReason::Quota;
                let expected = if is_customers { Outcome::RateLimited } else { Outcome::Overloaded };
                assert_eq!(head(answer.status(), answer.headers(), grpc), Some(expected), "{}", row.name);
            }
        }
    }

    #[test]
    fn a_deadline_that_nobody_names_is_a_failure() {
        assert_eq!(head(StatusCode::GATEWAY_TIMEOUT, &headers(&[]), false), Some(Outcome::Failure));
        let plain = headers(&[("grpc-status", "4")]);
        assert_eq!((head(StatusCode::OK, &plain, true), trailers(&plain)), (Some(Outcome::Failure), Outcome::Failure));
        let behind = headers(&[("grpc-status", "4"), ("x-plimsoll-shed", "reason=deadline, retry=never")]);
        assert_eq!(trailers(&behind), Outcome::Cancelled);
    }

    #[test]
    fn calls_are_judged_by_their_code_wherever_it_stands() {
        let of = |pairs: &[(&'static str, &'static str)]| head(StatusCode::OK, &headers(pairs), true);
        assert_eq!(of(&[]), None);
        assert_eq!(of(&[("grpc-status", "5")]), Some(Outcome::Success));
        assert_eq!(of(&[("grpc-status", "13")]), Some(Outcome::Failure));
        assert_eq!(of(&[("grpc-status", "8")]), Some(Outcome::RateLimited));
        let quota = [("grpc-status", "8"), ("grpc-retry-pushback-ms", "-1"), ("x-plimsoll-shed", "reason=quota")];
        assert_eq!(of(&quota), Some(Outcome::RateLimited));
        assert_eq!(of(&[("grpc-status", "14"), ("grpc-retry-pushback-ms", "0")]), Some(Outcome::Overloaded));
        let broken = [("grpc-status", "14"), ("grpc-retry-pushback-ms", "-1"), ("x-plimsoll-shed", "retry=never")];
        assert_eq!(of(&broken), Some(Outcome::Failure));
        assert_eq!(trailers(&headers(&[("grpc-status", "0")])), Outcome::Success);
        assert_eq!(trailers(&headers(&[])), Outcome::Failure);
        assert_eq!(head(StatusCode::BAD_GATEWAY, &headers(&[]), true), Some(Outcome::Failure));
    }
}
