//! Marks of overload in a response head or trailers: of Plimsoll, of Envoy, of gRPC and of plain
//! HTTP.

use std::time::Duration;

use http::HeaderMap;
use http::header::RETRY_AFTER;
use plimsoll_core::Rejection;
use plimsoll_core::rejection::{Evidence, Retry};
use plimsoll_core::retry::Advice;

use crate::End;

const SHED: &str = "x-plimsoll-shed";
const PUSHBACK: &str = "grpc-retry-pushback-ms";
const AMZ_RETRY_AFTER: &str = "x-amz-retry-after";
const ENVOY_OVERLOADED: &str = "x-envoy-overloaded";

/// The content of `x-plimsoll-shed`.
struct ShedField {
    reason: Option<Rejection>,
    retry: Retry,
}

impl ShedField {
    /// Reads the members `reason` and `retry`; others are ignored. Without a valid `retry` the
    /// reason's own counts.
    fn read(headers: &HeaderMap) -> Option<Self> {
        let (mut reason, mut retry) = (None, None);
        for member in headers.get(SHED)?.to_str().ok()?.split(',') {
            let Some((key, value)) = member.trim().split_once('=') else { continue };
            let token = value.split(';').next().unwrap_or(value).trim();
            match key.trim() {
                "reason" => reason = Rejection::from_name(token),
                "retry" => retry = Retry::from_name(token),
                _ => {}
            }
        }
        let retry = retry.or_else(|| Some(reason?.header(None)?.retry))?;
        Some(Self { reason, retry })
    }
}

/// The end of a request that the backend says it did not serve, or that it is overloaded; `None` if
/// it says neither.
///
/// `is_grpc` tells whether to read pushback.
pub(super) fn unserved_end(headers: &HeaderMap, is_grpc: bool) -> Option<End> {
    let after = retry_after(headers);
    if let Some(ShedField { reason, retry }) = ShedField::read(headers) {
        // The advice alone: a retry is of no use, and the request may have been served.
        let Some(reason) = reason else {
            let end = if is_grpc && headers.contains_key(PUSHBACK) { End::Overloaded } else { End::Busy };
            return (retry != Retry::Never).then(|| end(retry.advice(after)));
        };
        return Some(match reason.row().evidence {
            Evidence::Overload => End::Overloaded(reason.advice_in_answer(retry, after)),
            Evidence::Headroom => End::Throttled,
            Evidence::TooLate => End::TooLate,
        });
    }
    if is_grpc {
        return headers.get(PUSHBACK).map(|value| End::Overloaded(pushback(value)));
    }
    if headers.contains_key(ENVOY_OVERLOADED) {
        return Some(End::Overloaded(Advice::Elsewhere));
    }
    if let Some(after) = after {
        return Some(End::Busy(Advice::After(after)));
    }
    // A date: two clocks would have to agree.
    headers.contains_key(RETRY_AFTER).then_some(End::Busy(Advice::Elsewhere))
}

/// The end of a request over a rate limit: only the reason `rate-limit` with a time allows a retry.
pub(super) fn limited_end(headers: &HeaderMap) -> End {
    let advice = match ShedField::read(headers) {
        Some(ShedField { reason: Some(reason), retry }) => reason.advice_in_answer(retry, retry_after(headers)),
        // A user of the service has sent too many requests, and decides on a retry (RFC 6585).
        _ => Advice::Never,
    };
    End::RateLimited(advice)
}

/// The advice never to retry, without a reason.
pub(super) fn forbids_retry(headers: &HeaderMap) -> bool {
    ShedField::read(headers).is_some_and(|field| field.retry == Retry::Never)
}

/// 0, or 1 in place of it, is at once; a larger number is a time in milliseconds; anything else is
/// never (gRFC A6).
fn pushback(value: &http::HeaderValue) -> Advice {
    match value.to_str().ok().and_then(|text| text.parse::<u32>().ok()) {
        Some(0 | 1) => Advice::Elsewhere,
        Some(millis) => Advice::After(Duration::from_millis(millis.into())),
        None => Advice::Never,
    }
}

/// `x-amz-retry-after` in milliseconds, else `Retry-After` in seconds.
fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let number = |name: &str| headers.get(name)?.to_str().ok()?.trim().parse::<u32>().ok();
    let millis = || number(AMZ_RETRY_AFTER).map(|millis| Duration::from_millis(millis.into()));
    millis().or_else(|| number(RETRY_AFTER.as_str()).map(|seconds| Duration::from_secs(seconds.into())))
}
