//! The classifier of gRPC.

use std::time::Duration;

use http::{HeaderMap, Request, Response, StatusCode};
use plimsoll_core::retry::Advice;

use super::body::GrpcBody;
use super::head::{limited_end, unserved_end};
use super::http::{http_end, unavailable};
use super::{Classify, DynError, Http, error_end};
use crate::{End, Report, RequestFacts};

const STATUS: &str = "grpc-status";
const TIMEOUT: &str = "grpc-timeout";

/// Codes that decide, as numbers.
mod code {
    pub(super) const OK: u8 = 0;
    pub(super) const UNKNOWN: u8 = 2;
    pub(super) const DEADLINE_EXCEEDED: u8 = 4;
    pub(super) const RESOURCE_EXHAUSTED: u8 = 8;
    pub(super) const INTERNAL: u8 = 13;
    pub(super) const UNAVAILABLE: u8 = 14;
    pub(super) const DATA_LOSS: u8 = 15;
}

/// Classifies gRPC by `grpc-status`, in the head or the trailers of a response.
///
/// A call ends with its trailers, so layers wrap the body of a response in a [`GrpcBody`]. It works
/// over tonic's `Channel` and under its servers.
///
/// The facts of a request are its extension of the type [`RequestFacts`], if it has one; calls are
/// not idempotent otherwise. `grpc-timeout` sets the time in which its answer is useful.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Grpc {
    http: Http,
}

impl Grpc {
    /// Also reads the criticality in `x-criticality`. For servers whose callers are trusted with
    /// it.
    #[must_use]
    pub fn with_claims(self) -> Self {
        Self { http: self.http.with_claims() }
    }
}

impl<B, T> Classify<Request<B>, Response<T>> for Grpc {
    type Response<R: Report> = Response<GrpcBody<T, R>>;

    fn facts(&self, request: &Request<B>) -> RequestFacts {
        let mut facts = self.http.facts(request);
        facts.timeout = facts.timeout.or_else(|| timeout(request.headers()));
        facts
    }

    fn end(&self, result: Result<&Response<T>, &DynError>) -> Option<End> {
        match result {
            Ok(response) => grpc_head_end(response.status(), response.headers()),
            Err(error) => Some(error_end(error)),
        }
    }

    fn respond<R: Report>(&self, response: Response<T>, report: R) -> Response<GrpcBody<T, R>> {
        let report = match grpc_head_end(response.status(), response.headers()) {
            Some(end) => {
                report.end(end);
                None
            }
            None => Some(report),
        };
        response.map(|body| GrpcBody::new(body, report))
    }
}

/// The end of a call by the head of its response; `None` if the trailers decide.
///
/// | head | end |
/// |---|---|
/// | another status than 200 | that of HTTP: no gRPC server answered |
/// | `grpc-status` RESOURCE_EXHAUSTED | rate limited; with a time only if the reason is `rate-limit` |
/// | UNAVAILABLE with a reason in `x-plimsoll-shed`, or pushback | overloaded |
/// | UNAVAILABLE with advice in `x-plimsoll-shed` alone | busy |
/// | DEADLINE_EXCEEDED with the reason `deadline` | too late |
/// | other UNAVAILABLE | unavailable |
/// | UNKNOWN, DEADLINE_EXCEEDED, INTERNAL, DATA_LOSS | failed |
/// | another code | served |
#[must_use]
pub fn grpc_head_end(status: StatusCode, headers: &HeaderMap) -> Option<End> {
    if status != StatusCode::OK {
        return Some(http_end(status, headers));
    }
    Some(code_end(code(headers)?, headers))
}

/// The end of a call by its trailers; `None` for a response that ended without some.
///
/// The backend accepted the call, so advice on a retry has no use any more.
#[must_use]
pub fn grpc_trailers_end(trailers: Option<&HeaderMap>) -> End {
    let Some((trailers, code)) = trailers.and_then(|trailers| Some((trailers, code(trailers)?))) else {
        return End::Failed;
    };
    match code_end(code, trailers) {
        End::Overloaded(_) | End::Busy(_) => End::Overloaded(Advice::None),
        End::RateLimited(_) => End::RateLimited(Advice::Never),
        // A backend behind this one had no time for it.
        End::TooLate => End::Served,
        end => end,
    }
}

/// The code in a head or trailers. An unreadable one is UNKNOWN, by the protocol.
fn code(headers: &HeaderMap) -> Option<u8> {
    let text = headers.get(STATUS)?.to_str().ok();
    Some(text.and_then(|text| text.parse().ok()).unwrap_or(code::UNKNOWN))
}

fn code_end(code: u8, headers: &HeaderMap) -> End {
    match code {
        code::OK => End::Served,
        code::RESOURCE_EXHAUSTED => limited_end(headers),
        code::UNAVAILABLE => unserved_end(headers, true).unwrap_or_else(|| unavailable(headers)),
        code::DEADLINE_EXCEEDED if unserved_end(headers, true) == Some(End::TooLate) => End::TooLate,
        code::UNKNOWN | code::DEADLINE_EXCEEDED | code::INTERNAL | code::DATA_LOSS => End::Failed,
        _ => End::Served,
    }
}

/// The time in `grpc-timeout`: at most eight digits and a unit.
fn timeout(headers: &HeaderMap) -> Option<Duration> {
    let text = headers.get(TIMEOUT)?.to_str().ok()?;
    let (digits, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
    if digits.len() > 8 || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let number: u64 = digits.parse().ok()?;
    Some(match unit {
        "H" => Duration::from_secs(number * 3_600),
        "M" => Duration::from_secs(number * 60),
        "S" => Duration::from_secs(number),
        "m" => Duration::from_millis(number),
        "u" => Duration::from_micros(number),
        "n" => Duration::from_nanos(number),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        pairs.iter().map(|(name, value)| (name.parse().expect("a name"), value.parse().expect("a value"))).collect()
    }

    #[test]
    fn head_and_trailers_decide_the_end_by_the_code() {
        let unavailable = End::Unavailable(Advice::Elsewhere);
        let limited = End::RateLimited(Advice::Never);
        let overloaded = End::Overloaded;
        let pushed_back = |millis| overloaded(Advice::After(Duration::from_millis(millis)));
        for (pairs, in_head, in_trailers) in [
            (&[("grpc-status", "0")][..], End::Served, End::Served),
            (&[("grpc-status", "5")], End::Served, End::Served),
            (&[("grpc-status", "2")], End::Failed, End::Failed),
            (&[("grpc-status", "x")], End::Failed, End::Failed),
            (&[("grpc-status", "13")], End::Failed, End::Failed),
            (&[("grpc-status", "8"), ("grpc-retry-pushback-ms", "5")], limited, limited),
            (
                &[("grpc-status", "8"), ("x-plimsoll-shed", "reason=rate-limit"), ("retry-after", "1")],
                End::RateLimited(Advice::After(Duration::from_secs(1))),
                limited,
            ),
            (&[("grpc-status", "14")], unavailable, unavailable),
            (&[("grpc-status", "14"), ("grpc-retry-pushback-ms", "50")], pushed_back(50), overloaded(Advice::None)),
            (
                &[("grpc-status", "14"), ("grpc-retry-pushback-ms", "-1")],
                overloaded(Advice::Never),
                overloaded(Advice::None),
            ),
            (
                &[("grpc-status", "14"), ("x-plimsoll-shed", "reason=overloaded")],
                overloaded(Advice::Elsewhere),
                overloaded(Advice::None),
            ),
            (&[("grpc-status", "4")], End::Failed, End::Failed),
            (&[("grpc-status", "4"), ("x-plimsoll-shed", "reason=deadline")], End::TooLate, End::Served),
        ] {
            let headers = headers(pairs);
            assert_eq!(grpc_head_end(StatusCode::OK, &headers), Some(in_head), "{pairs:?}");
            assert_eq!(grpc_trailers_end(Some(&headers)), in_trailers, "{pairs:?}");
        }
        assert_eq!(grpc_head_end(StatusCode::OK, &HeaderMap::new()), None);
        assert_eq!(grpc_head_end(StatusCode::BAD_GATEWAY, &HeaderMap::new()), Some(unavailable));
        assert_eq!([None, Some(&HeaderMap::new())].map(grpc_trailers_end), [End::Failed; 2]);
    }

    #[test]
    fn timeout_of_a_call_is_read_with_each_unit() {
        let read = |text| timeout(&headers(&[("grpc-timeout", text)]));
        let millis = |text| read(text).map(|timeout| timeout.as_millis());
        assert_eq!(
            ["1H", "2M", "3S", "4m", "5000u", "6000000n"].map(millis),
            [Some(3_600_000), Some(120_000), Some(3_000), Some(4), Some(5), Some(6)]
        );
        assert_eq!(["", "1", "m", "+1S", "1s", "123456789S", "µ"].map(read), [None; 7]);
    }
}
