//! Reads the end of an attempt from a response. Its outcome for the balancer:
//!
//! | response | outcome |
//! |---|---|
//! | HTTP 429, gRPC RESOURCE_EXHAUSTED | rate limited |
//! | other HTTP below 500 | success: the request may be wrong, the backend is not |
//! | HTTP 503 with `x-plimsoll-shed`, `retry-after`, `x-amz-retry-after` or Envoy's mark | overloaded |
//! | HTTP 504 with the shed reason `deadline` | overloaded |
//! | other HTTP from 500 | failure |
//! | gRPC UNAVAILABLE with `x-plimsoll-shed` or pushback | overloaded |
//! | gRPC DEADLINE_EXCEEDED with the shed reason `deadline` | overloaded |
//! | other gRPC code that blames the server | failure |
//! | gRPC without a code | failure |
//!
//! A rate limit is no failure: mostly it concerns the sender, and the other backends answer the
//! same. [`plimsoll_core`] weighs it against the backend by the rate of such answers at the others.
//!
//! A gRPC call tells how it ended in its trailers, so its head usually decides nothing.
//!
//! A deadline is the caller's choice. Suppose that a backend failed by shedding a request without time:
//! five requests without any time would have it ejected. An overloaded backend is avoided, as after any
//! quick refusal, and no more. The throttle goes by the length of the wait
//! ([`Lesson`](super::attempt_end::Lesson)).

use http::{HeaderMap, StatusCode};
use plimsoll_core::{Outcome, Rejection};
use plimsoll_wire::grpc::Code;
use plimsoll_wire::headers::{GRPC_RETRY_PUSHBACK_MS, X_ENVOY_OVERLOADED, X_PLIMSOLL_SHED};
use plimsoll_wire::shed::{Shed, says_no_more_than_no_retry, says_when};

use super::attempt_end::AttemptEnd;

/// The end as far as the head of a response decides it; `None`: the trailers will.
pub(super) fn head(status: StatusCode, headers: &HeaderMap, is_grpc: bool) -> Option<AttemptEnd> {
    if is_grpc && status == StatusCode::OK {
        return Code::read(headers).map(|code| grpc(code, headers));
    }
    Some(if status == StatusCode::TOO_MANY_REQUESTS {
        AttemptEnd::RateLimited
    } else if status.as_u16() < 500 {
        AttemptEnd::Served
    } else if status == StatusCode::SERVICE_UNAVAILABLE
        && (is_shed(headers) || says_when(headers) || headers.contains_key(X_ENVOY_OVERLOADED))
        || status == StatusCode::GATEWAY_TIMEOUT && is_too_late(headers)
    {
        shed(headers)
    } else {
        AttemptEnd::Failed
    })
}

/// The end of a gRPC call with `trailers`.
pub(super) fn trailers(trailers: &HeaderMap) -> AttemptEnd {
    match Code::read(trailers) {
        // The backend accepted the call, so nobody was shed: a backend behind it had no time for it.
        Some(Code::DeadlineExceeded) if is_too_late(trailers) => AttemptEnd::ExpiredBehind,
        // It was accepted before it was shed: the reason is that of a backend behind it.
        code => {
            let end = code.map_or(AttemptEnd::Failed, |code| grpc(code, trailers));
            if end.row().outcome == Outcome::Overloaded { AttemptEnd::PushedBack } else { end }
        }
    }
}

/// The end of a response without trailers.
pub(super) fn bare_end(is_grpc: bool) -> AttemptEnd {
    if is_grpc { AttemptEnd::Failed } else { AttemptEnd::Served }
}

fn grpc(code: Code, headers: &HeaderMap) -> AttemptEnd {
    if code == Code::ResourceExhausted {
        AttemptEnd::RateLimited
    } else if !code.is_failure() {
        AttemptEnd::Served
    } else if code == Code::Unavailable && is_shed(headers) || code == Code::DeadlineExceeded && is_too_late(headers) {
        shed(headers)
    } else {
        AttemptEnd::Failed
    }
}

fn shed(headers: &HeaderMap) -> AttemptEnd {
    reason(headers).map_or(AttemptEnd::PushedBack, AttemptEnd::Shed)
}

/// Why a request was not served, as far as the head or the trailers of its answer say.
fn reason(headers: &HeaderMap) -> Option<Rejection> {
    Shed::read(StatusCode::SERVICE_UNAVAILABLE, headers)?.reason
}

/// Whether it is the time of the request that was too short.
fn is_too_late(headers: &HeaderMap) -> bool {
    reason(headers) == Some(Rejection::Deadline)
}

fn is_shed(headers: &HeaderMap) -> bool {
    let says_so = headers.contains_key(X_PLIMSOLL_SHED) || headers.contains_key(GRPC_RETRY_PUSHBACK_MS);
    says_so && !says_no_more_than_no_retry(headers)
}

#[cfg(test)]
mod tests {
    use plimsoll_core::retry::{Advice, Failure};

    use super::*;
    use crate::client::refused::Refusal;

    fn head(status: StatusCode, headers: &HeaderMap, is_grpc: bool) -> Option<Outcome> {
        super::head(status, headers, is_grpc).map(|end| end.row().outcome)
    }

    fn trailers(trailers: &HeaderMap) -> Outcome {
        super::trailers(trailers).row().outcome
    }

    fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        pairs.iter().map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap())).collect()
    }

    /// They mean the same in `plimsoll-tower`, which has a test over the same file.
    #[test]
    fn heads_have_the_meaning_in_the_shared_table() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/response-heads.txt");
        let text = std::fs::read_to_string(path).expect("the file is there");
        let is_retried = |failure: &Failure| {
            !matches!(failure, Failure::Final | Failure::Shed(Advice::Never) | Failure::Failed(Advice::Never))
        };
        let mut count = 0;
        for line in text.lines().filter(|line| !line.starts_with('#')) {
            let [status, fields, outcome, failure] = line.split('|').map(str::trim).collect::<Vec<_>>()[..] else {
                panic!("four columns: {line}")
            };
            let pairs = fields.split("; ").filter_map(|pair| pair.split_once(": "));
            let headers: HeaderMap =
                pairs.map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap())).collect();
            let status = status.parse().unwrap();
            let found = head(status, &headers, headers.contains_key("grpc-status")).unwrap();
            let refused = Refusal::read(status, &headers).map(|refused| refused.failure());
            let refused = refused.filter(is_retried);
            let refused = refused.map_or_else(|| "no".to_owned(), |failure| format!("{failure:?}"));
            assert_eq!((format!("{found:?}").as_str(), refused.as_str()), (outcome, failure), "{line}");
            count += 1;
        }
        assert!(count > 30, "{count}");
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
        assert_eq!(head(503, &[("x-amz-retry-after", "150")]), Some(Outcome::Overloaded));
        assert_eq!(head(503, &[("x-amz-retry-after", "soon")]), Some(Outcome::Failure));
        assert_eq!(head(503, &[("x-plimsoll-shed", "reason=overloaded")]), Some(Outcome::Overloaded));
    }

    #[test]
    fn who_turns_away_says_why_and_has_not_failed() {
        for &rejection in Rejection::SHED {
            for grpc in [false, true] {
                let answer = plimsoll_wire::shed::head(rejection, grpc, None);
                assert_eq!(reason(answer.headers()), Some(rejection), "{rejection}");
                let is_customers = matches!(rejection, Rejection::Quota | Rejection::RateLimit);
                let expected = if is_customers { Outcome::RateLimited } else { Outcome::Overloaded };
                assert_eq!(head(answer.status(), answer.headers(), grpc), Some(expected), "{rejection}");
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
