//! The table of answers without service. They are written and read here alone.
//!
//! The sender of a refused request must learn three things: that it was not served, why, and
//! whether and where to retry. HTTP and gRPC each express a part of that. `x-plimsoll-shed` states
//! all of it, as an RFC 9651 dictionary: `reason=quota, retry=after`. Metrics and logs use the same
//! reasons.
//!
//! Answers of other software are understood too: `Retry-After` with 503, Envoy's marks, and gRPC's
//! pushback. A pushback that is not a whole number of milliseconds from zero up means never (gRFC
//! A6).

use std::sync::LazyLock;
use std::time::Duration;

use http::header::{CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderMap, HeaderValue, Response, StatusCode};
use plimsoll_core::Rejection;
use plimsoll_core::rejection::{Pushback, Retry, ShedHeader};

use crate::grpc::{self, Code};
use crate::headers::{
    GRPC_MESSAGE, GRPC_RETRY_PUSHBACK_MS, GRPC_STATUS, X_AMZ_RETRY_AFTER, X_ENVOY_OVERLOADED, X_ENVOY_RATELIMITED,
    X_PLIMSOLL_SHED,
};

/// A millisecond, because gRPC's C core (1.85, and with it Python, C++, Ruby) takes zero for an
/// answer and never retries.
const AT_ONCE: HeaderValue = HeaderValue::from_static("1");
/// Pushback for a client that is not to retry.
const NEVER: HeaderValue = HeaderValue::from_static("-1");

/// Value of `x-plimsoll-shed` of a failure without a reason of the table.
const NO_RETRY: HeaderValue = HeaderValue::from_static("retry=never");

/// The status and the code of each reason, in the order of the table.
const CODES: [(StatusCode, Code); Rejection::COUNT] = {
    let mut codes = [(StatusCode::OK, Code::Ok); Rejection::COUNT];
    let mut at = 0;
    while at < codes.len() {
        let row = Rejection::ALL[at].row();
        let Ok(status) = StatusCode::from_u16(row.http) else { panic!("a status of HTTP") };
        codes[at] = (status, grpc::CODES[row.grpc as usize].0);
        at += 1;
    }
    codes
};

/// The values of `x-plimsoll-shed` of each reason, without and with a time, in the order of the
/// table: checked once, and not for each answer.
static HEADERS: LazyLock<[[Option<HeaderValue>; 2]; Rejection::COUNT]> = LazyLock::new(|| {
    let value = |header: ShedHeader| HeaderValue::from_static(header.value);
    Rejection::ALL.map(|rejection| [None, Some(Duration::ZERO)].map(|after| rejection.header(after).map(value)))
});

/// The status of an HTTP answer with this reason.
#[must_use]
pub const fn status(rejection: Rejection) -> StatusCode {
    CODES[rejection as usize].0
}

/// The code of a gRPC answer with this reason.
#[must_use]
pub const fn code(rejection: Rejection) -> Code {
    CODES[rejection as usize].1
}

/// The head of the answer. For gRPC it is the whole answer (trailers-only). For others a body may
/// follow: [`Row::text`](plimsoll_core::rejection::Row::text).
///
/// Where the table says to retry after a while, `after` becomes `Retry-After`, rounded up to whole
/// seconds, at least one. Jitter is up to the caller. With `after`, an overload says to retry later,
/// and not elsewhere: all backends behind the sender are overloaded.
#[must_use]
pub fn head(rejection: Rejection, grpc: bool, after: Option<Duration>) -> Response<()> {
    let row = rejection.row();
    let mut response = Response::new(());
    let headers = response.headers_mut();
    headers.reserve(6);
    if let Some(value) = &HEADERS[rejection as usize][usize::from(after.is_some())] {
        headers.insert(X_PLIMSOLL_SHED, value.clone());
    }
    if let Some(after) = after
        && rejection.header(Some(after)).is_some_and(|header| header.retry == Retry::After)
    {
        headers.insert(RETRY_AFTER, whole_seconds(after));
    }
    if grpc {
        headers.insert(CONTENT_TYPE, grpc::CONTENT_TYPE_GRPC);
        headers.insert(GRPC_STATUS, code(rejection).to_header_value());
        headers.insert(GRPC_MESSAGE, grpc::encode_message(row.text));
        if let Some(pushback) = row.pushback {
            let value = match (pushback, after) {
                (Pushback::AtOnce, None) => AT_ONCE,
                (Pushback::AtOnce, Some(after)) => whole_milliseconds(after),
                (Pushback::Never, _) => NEVER,
            };
            headers.insert(GRPC_RETRY_PUSHBACK_MS, value);
        }
    } else {
        *response.status_mut() = status(rejection);
    }
    response
}

/// The content of an answer without service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shed {
    /// The reason; `None` in an answer of other software or a later version.
    pub reason: Option<Rejection>,
    /// Whether to retry.
    pub retry: Retry,
    /// The time before a retry, if the answer states one.
    pub after: Option<Duration>,
}

impl Shed {
    /// Recognizes an answer without service. `None` if the request was served, or may have been.
    ///
    /// `headers` are those of the response, or the trailers of a gRPC call.
    #[must_use]
    pub fn read(status: StatusCode, headers: &HeaderMap) -> Option<Self> {
        let code = Code::read(headers);
        if status.is_success() && matches!(code, None | Some(Code::Ok)) {
            return None;
        }
        if let Some(shed) = headers.get(X_PLIMSOLL_SHED).and_then(Self::parse) {
            return Some(Self { after: retry_after(headers), ..shed });
        }
        let refused = status == StatusCode::SERVICE_UNAVAILABLE || code == Some(Code::Unavailable);
        if let (Some(_), Some(pushback)) = (code, headers.get(GRPC_RETRY_PUSHBACK_MS)) {
            return refused.then(|| pushback_of(pushback));
        }
        if headers.contains_key(X_ENVOY_RATELIMITED) {
            return Some(Self { reason: Some(Rejection::Quota), retry: Retry::After, after: retry_after(headers) });
        }
        if headers.contains_key(X_ENVOY_OVERLOADED) {
            return Some(Self { reason: Some(Rejection::Overloaded), retry: Retry::Elsewhere, after: None });
        }
        let after = retry_after(headers)?;
        (refused || status == StatusCode::TOO_MANY_REQUESTS).then_some(Self {
            reason: None,
            retry: Retry::After,
            after: Some(after),
        })
    }

    /// Reads the members `reason` and `retry`; others are ignored. Without a valid `retry` that of
    /// the reason's row counts, and without either the header says nothing.
    fn parse(value: &HeaderValue) -> Option<Self> {
        let (mut reason, mut retry) = (None, None);
        for member in value.to_str().ok()?.split(',') {
            let Some((key, value)) = member.trim().split_once('=') else { continue };
            let token = value.split(';').next().unwrap_or(value).trim();
            match key.trim() {
                "reason" => reason = Rejection::from_name(token).filter(|reason| reason.row().header.is_some()),
                "retry" => retry = Retry::from_name(token),
                _ => {}
            }
        }
        let retry = retry.or_else(|| reason.and_then(|reason| reason.row().header).map(|header| header.retry))?;
        Some(Self { reason, retry, after: None })
    }
}

/// Turns the head of a backend's answer into that of an overloaded service. A client that gives up
/// on a request tells its own caller not to retry (SRE ch. 21, "Deciding to Retry"). Status and body
/// stay.
pub fn say_overloaded_no_retry(headers: &mut HeaderMap, is_grpc: bool) {
    if let Some(value) = &HEADERS[Rejection::OverloadedNoRetry as usize][0] {
        say_never(headers, value.clone(), is_grpc);
    }
}

/// Adds the advice never to retry to the head of an answer without a reason of the table. An example
/// is a 502 in place of a missing answer: without the advice, its reader would try another backend.
pub fn say_no_retry(headers: &mut HeaderMap, is_grpc: bool) {
    say_never(headers, NO_RETRY, is_grpc);
}

/// Whether an answer has the advice never to retry and no reason: its request may have been carried
/// out.
#[must_use]
pub fn says_no_more_than_no_retry(headers: &HeaderMap) -> bool {
    headers.get(X_PLIMSOLL_SHED).is_some_and(|said| said == NO_RETRY)
}

fn say_never(headers: &mut HeaderMap, value: HeaderValue, is_grpc: bool) {
    headers.insert(X_PLIMSOLL_SHED, value);
    headers.remove(RETRY_AFTER);
    headers.remove(X_AMZ_RETRY_AFTER);
    if is_grpc {
        headers.insert(GRPC_RETRY_PUSHBACK_MS, NEVER);
    }
}

/// Rounded up, and one at least.
fn whole_seconds(time: Duration) -> HeaderValue {
    // The usual ones need no memory.
    const USUAL: [&str; 10] = ["1", "2", "3", "4", "5", "6", "7", "8", "9", "10"];
    let seconds = (time.as_secs() + u64::from(time.subsec_nanos() > 0)).max(1);
    let usual = usize::try_from(seconds - 1).ok().and_then(|place| USUAL.get(place));
    usual.map_or_else(|| HeaderValue::from(seconds), |text| HeaderValue::from_static(text))
}

/// A pushback after `time`: rounded up, since a retry before it is refused again, and at least one
/// ([`AT_ONCE`]).
fn whole_milliseconds(time: Duration) -> HeaderValue {
    let milliseconds = time.as_nanos().div_ceil(1_000_000).max(1);
    HeaderValue::from(u64::try_from(milliseconds).unwrap_or(u64::MAX))
}

/// The advice of a pushback: 0, or 1 in place of it, is elsewhere at once; a larger number is a time
/// in milliseconds; anything else is never.
fn pushback_of(value: &HeaderValue) -> Shed {
    let millis = value.to_str().ok().and_then(|text| text.parse::<u32>().ok());
    let (retry, after) = match millis {
        Some(0 | 1) => (Retry::Elsewhere, None),
        Some(millis) => (Retry::After, Some(Duration::from_millis(u64::from(millis)))),
        None => (Retry::Never, None),
    };
    Shed { reason: None, retry, after }
}

/// Whether an answer states a time before a retry, or a date.
#[must_use]
pub fn says_when(headers: &HeaderMap) -> bool {
    headers.contains_key(RETRY_AFTER) || amz_retry_after(headers).is_some()
}

/// `x-amz-retry-after` in milliseconds. As the clients of AWS do, it ignores any other value.
fn amz_retry_after(headers: &HeaderMap) -> Option<Duration> {
    let millis: u32 = headers.get(X_AMZ_RETRY_AFTER)?.to_str().ok()?.trim().parse().ok()?;
    Some(Duration::from_millis(u64::from(millis)))
}

/// `x-amz-retry-after`, which is the more exact, else `Retry-After` in seconds. The form with a date
/// is not read: it needs two clocks that agree.
fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    if let Some(after) = amz_retry_after(headers) {
        return Some(after);
    }
    let seconds: u32 = headers.get(RETRY_AFTER)?.to_str().ok()?.trim().parse().ok()?;
    Some(Duration::from_secs(u64::from(seconds)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        pairs.iter().map(|(name, value)| (name.parse().unwrap(), HeaderValue::from_static(value))).collect()
    }

    #[test]
    fn pushback_is_never_shorter_than_the_time_and_never_zero() {
        for (micros, pushback) in [(0, "1"), (1, "1"), (1_000, "1"), (1_001, "2"), (42_900, "43")] {
            let head = super::head(Rejection::RateLimit, true, Some(Duration::from_micros(micros)));
            assert_eq!(head.headers()[GRPC_RETRY_PUSHBACK_MS], pushback, "{micros} us");
        }
    }

    #[test]
    fn every_answer_reads_back_as_it_was_meant() {
        for &reason in Rejection::SHED {
            for grpc in [false, true] {
                let head = super::head(reason, grpc, Some(Duration::from_millis(1_200)));
                // An overload with a time is one that passes.
                let advice = reason.row().header.unwrap().retry;
                let retry = if reason == Rejection::Overloaded { Retry::After } else { advice };
                let after = (retry == Retry::After).then_some(Duration::from_secs(2));
                let expected = Shed { reason: Some(reason), retry, after };
                assert_eq!(Shed::read(head.status(), head.headers()), Some(expected), "{reason} grpc={grpc}");
                let status = if grpc { StatusCode::OK } else { super::status(reason) };
                assert_eq!(head.status(), status);
                assert_eq!(Code::read(head.headers()), grpc.then_some(code(reason)));
                let pushback = head.headers().get(GRPC_RETRY_PUSHBACK_MS).filter(|_| reason == Rejection::Overloaded);
                assert_eq!(pushback.is_some_and(|pushback| pushback == "1200"), grpc && pushback.is_some());
                let head = super::head(reason, grpc, None);
                let expected = Shed { reason: Some(reason), retry: advice, after: None };
                assert_eq!(Shed::read(head.status(), head.headers()), Some(expected), "{reason} grpc={grpc}");
            }
        }
    }

    #[test]
    fn whoever_is_told_to_wait_is_told_whole_seconds_and_one_at_least() {
        for (millis, seconds) in [(0, "1"), (400, "1"), (1_000, "1"), (1_001, "2")] {
            let head = head(Rejection::Quota, false, Some(Duration::from_millis(millis)));
            assert_eq!(head.headers()[RETRY_AFTER], seconds, "{millis} ms");
        }
    }

    #[test]
    fn an_answer_given_up_on_reads_as_one_not_to_be_retried() {
        let never = |reason| Some(Shed { reason, retry: Retry::Never, after: None });
        for (grpc, after) in [(false, None), (true, None), (false, Some(Duration::from_secs(30)))] {
            for reason in [Rejection::Overloaded, Rejection::LameDuck, Rejection::Saturated] {
                let mut head = head(reason, grpc, after);
                say_overloaded_no_retry(head.headers_mut(), grpc);
                assert_eq!(
                    Shed::read(head.status(), head.headers()),
                    never(Some(Rejection::OverloadedNoRetry)),
                    "{reason} grpc={grpc}"
                );
                let pushback = head.headers().get(GRPC_RETRY_PUSHBACK_MS).map(HeaderValue::as_bytes);
                assert_eq!(pushback, grpc.then_some(&b"-1"[..]), "{reason}");
                assert!(!head.headers().contains_key(RETRY_AFTER), "{reason}");
            }
        }
        let mut failure = Response::new(());
        *failure.status_mut() = StatusCode::BAD_GATEWAY;
        say_no_retry(failure.headers_mut(), false);
        assert_eq!(Shed::read(failure.status(), failure.headers()), never(None));
        assert!(says_no_more_than_no_retry(failure.headers()));
        say_overloaded_no_retry(failure.headers_mut(), false);
        assert!(!says_no_more_than_no_retry(failure.headers()));
    }

    #[test]
    fn answers_of_others_are_understood() {
        let after = |seconds| Some(Duration::from_secs(seconds));
        for (status, pairs, expected) in [
            (503, &[][..], None),
            (500, &[("retry-after", "1")], None),
            (503, &[("retry-after", "7")], Some(Shed { reason: None, retry: Retry::After, after: after(7) })),
            (503, &[("retry-after", "Wed, 21 Oct 2026 07:28:00 GMT")], None),
            (200, &[("retry-after", "7")], None),
            (200, &[("x-plimsoll-shed", "reason=quota")], None),
            (
                429,
                &[("x-envoy-ratelimited", "true")],
                Some(Shed { reason: Some(Rejection::Quota), retry: Retry::After, after: None }),
            ),
            (
                503,
                &[("x-envoy-overloaded", "true")],
                Some(Shed { reason: Some(Rejection::Overloaded), retry: Retry::Elsewhere, after: None }),
            ),
            (
                200,
                &[("grpc-status", "14"), ("grpc-retry-pushback-ms", "0")],
                Some(Shed { reason: None, retry: Retry::Elsewhere, after: None }),
            ),
            (
                200,
                &[("grpc-status", "14"), ("grpc-retry-pushback-ms", "5000")],
                Some(Shed { reason: None, retry: Retry::After, after: after(5) }),
            ),
            (
                200,
                &[("grpc-status", "14"), ("grpc-retry-pushback-ms", "soon")],
                Some(Shed { reason: None, retry: Retry::Never, after: None }),
            ),
            (200, &[("grpc-status", "3"), ("grpc-retry-pushback-ms", "0")], None),
            (503, &[("x-plimsoll-shed", "nonsense")], None),
            (
                503,
                &[("x-plimsoll-shed", "retry=never;x=1, reason=from-the-future, criticality=critical")],
                Some(Shed { reason: None, retry: Retry::Never, after: None }),
            ),
            (
                503,
                &[("x-plimsoll-shed", "reason=lame-duck")],
                Some(Shed { reason: Some(Rejection::LameDuck), retry: Retry::Elsewhere, after: None }),
            ),
        ] {
            let status = StatusCode::from_u16(status).unwrap();
            assert_eq!(Shed::read(status, &headers(pairs)), expected, "{status} {pairs:?}");
        }
    }
}
