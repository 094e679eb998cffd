//! What a response says of its backend: success, failure, or overload.
//!
//! | response | outcome |
//! |---|---|
//! | HTTP below 500 | success: the request may be wrong, the backend is not |
//! | HTTP 503 with `x-plimsoll-shed`, `retry-after` or Envoy's mark | overloaded |
//! | other HTTP from 500 | failure |
//! | gRPC RESOURCE_EXHAUSTED of a customer over its quota | success: so is HTTP 429 |
//! | other gRPC code that blames the server | failure |
//! | gRPC UNAVAILABLE with `x-plimsoll-shed` or pushback | overloaded |
//! | gRPC without a code | failure |
//!
//! A gRPC call tells how it ended in its trailers, so its head usually decides nothing.

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
    Some(if status.as_u16() < 500 {
        Outcome::Success
    } else if status == StatusCode::SERVICE_UNAVAILABLE
        && (is_shed(headers) || headers.contains_key(RETRY_AFTER) || headers.contains_key(X_ENVOY_OVERLOADED))
    {
        Outcome::Overloaded
    } else {
        Outcome::Failure
    })
}

/// The outcome of a gRPC call that ended with `trailers`.
pub(super) fn trailers(trailers: &HeaderMap) -> Outcome {
    Code::read(trailers).map_or(Outcome::Failure, |code| grpc(code, trailers))
}

/// The outcome of a response that ended without trailers.
pub(super) fn bare_end(is_grpc: bool) -> Outcome {
    if is_grpc { Outcome::Failure } else { Outcome::Success }
}

fn grpc(code: Code, headers: &HeaderMap) -> Outcome {
    if !code.is_failure() || code == Code::ResourceExhausted && is_over_quota(headers) {
        Outcome::Success
    } else if code == Code::Unavailable && is_shed(headers) {
        Outcome::Overloaded
    } else {
        Outcome::Failure
    }
}

/// Whether an overloaded answer is that of one who holds requests back from an overloaded one.
pub(super) fn is_held_back(headers: &HeaderMap) -> bool {
    Shed::read(StatusCode::SERVICE_UNAVAILABLE, headers).is_some_and(|shed| shed.reason == Some(ShedReason::Throttled))
}

/// Whether it is the customer that has used up what it may, and not the backend.
fn is_over_quota(headers: &HeaderMap) -> bool {
    Shed::read(StatusCode::OK, headers).is_some_and(|shed| shed.reason == Some(ShedReason::Quota))
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
        assert_eq!(head(429, &[("retry-after", "1")]), Some(Outcome::Success));
        assert_eq!(head(500, &[("x-plimsoll-shed", "reason=overloaded")]), Some(Outcome::Failure));
        assert_eq!(head(503, &[]), Some(Outcome::Failure));
        assert_eq!(head(503, &[("retry-after", "1")]), Some(Outcome::Overloaded));
        assert_eq!(head(503, &[("x-plimsoll-shed", "reason=overloaded")]), Some(Outcome::Overloaded));
    }

    #[test]
    fn one_who_holds_back_is_told_from_one_who_is_overloaded() {
        for row in &plimsoll_wire::shed::TABLE {
            for grpc in [false, true] {
                let head = row.reason.head(grpc, None);
                assert_eq!(is_held_back(head.headers()), row.reason == ShedReason::Throttled, "{}", row.name);
            }
        }
    }

    #[test]
    fn calls_are_judged_by_their_code_wherever_it_stands() {
        let of = |pairs: &[(&'static str, &'static str)]| head(StatusCode::OK, &headers(pairs), true);
        assert_eq!(of(&[]), None);
        assert_eq!(of(&[("grpc-status", "5")]), Some(Outcome::Success));
        assert_eq!(of(&[("grpc-status", "13")]), Some(Outcome::Failure));
        assert_eq!(of(&[("grpc-status", "8")]), Some(Outcome::Failure));
        let quota = [("grpc-status", "8"), ("grpc-retry-pushback-ms", "-1"), ("x-plimsoll-shed", "reason=quota")];
        assert_eq!(of(&quota), Some(Outcome::Success));
        assert_eq!(of(&[("grpc-status", "14"), ("grpc-retry-pushback-ms", "0")]), Some(Outcome::Overloaded));
        let broken = [("grpc-status", "14"), ("grpc-retry-pushback-ms", "-1"), ("x-plimsoll-shed", "retry=never")];
        assert_eq!(of(&broken), Some(Outcome::Failure));
        assert_eq!(trailers(&headers(&[("grpc-status", "0")])), Outcome::Success);
        assert_eq!(trailers(&headers(&[])), Outcome::Failure);
        assert_eq!(head(StatusCode::BAD_GATEWAY, &headers(&[]), true), Some(Outcome::Failure));
    }
}
