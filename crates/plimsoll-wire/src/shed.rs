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

use std::time::Duration;

use http::header::{CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderMap, HeaderValue, Response, StatusCode};
use plimsoll_core::admit;
use plimsoll_core::shedding::Cause;

use crate::grpc::{self, Code};
use crate::headers::{
    GRPC_MESSAGE, GRPC_RETRY_PUSHBACK_MS, GRPC_STATUS, X_ENVOY_OVERLOADED, X_ENVOY_RATELIMITED, X_PLIMSOLL_SHED,
};

/// The reason for an answer without service.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ShedReason {
    /// This backend is overloaded; others may not be.
    Overloaded,
    /// Too many backends are overloaded: a retry would only add load.
    OverloadedNoRetry,
    /// The customer is over its quota.
    Quota,
    /// The client side throttled the request; nothing was sent.
    Throttled,
    /// The deadline passed, or would pass before an answer.
    Deadline,
    /// The backend is draining.
    LameDuck,
    /// Every usable backend is at its limit of active requests.
    Saturated,
    /// No backend is usable.
    NoBackend,
}

/// The answer to a request that a gate sheds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShedAnswer {
    /// The reason.
    pub reason: ShedReason,
    /// The time before a retry, where the reason has one.
    pub after: Option<Duration>,
}

impl From<admit::Shed> for ShedAnswer {
    fn from(shed: admit::Shed) -> Self {
        use admit::{Reason, Retry};
        let reason = match (shed.reason, shed.retry) {
            (Reason::Quota, _) => ShedReason::Quota,
            (Reason::Deadline, _) => ShedReason::Deadline,
            (Reason::Overloaded, Retry::Never) => ShedReason::OverloadedNoRetry,
            (Reason::Overloaded, Retry::Elsewhere | Retry::After(_)) => ShedReason::Overloaded,
        };
        let after = if let Retry::After(after) = shed.retry { Some(after) } else { None };
        Self { reason, after }
    }
}

/// The advice on retrying a shed request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Retry {
    /// At another backend, at once.
    Elsewhere,
    /// Anywhere, after a while.
    After,
    /// Not at all.
    Never,
}

/// One row of the table.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    /// The reason.
    pub reason: ShedReason,
    /// The name in the header, in metrics and in logs.
    pub name: &'static str,
    /// Status of the HTTP answer.
    pub http: StatusCode,
    /// Code of the gRPC answer.
    pub grpc: Code,
    /// Whether to retry.
    pub retry: Retry,
    /// Value of `grpc-retry-pushback-ms`, where gRPC clients need one to act by `retry`.
    pub pushback: Option<&'static str>,
    /// Value of `x-plimsoll-shed`.
    pub header: &'static str,
    /// The text for people, in the body or in `grpc-message`.
    pub message: &'static str,
}

/// A millisecond, because gRPC's C core (1.85, and with it Python, C++, Ruby) takes zero for an answer and never retries.
const AT_ONCE: Option<&str> = Some("1");

/// Value of `x-plimsoll-shed` of an overload with a time after which to come again.
static OVERLOADED_LATER: HeaderValue = HeaderValue::from_static("reason=overloaded, retry=after");

/// Value of `x-plimsoll-shed` of a failure without a reason of the table.
const NO_RETRY: &str = "retry=never";

/// The table, in the order of [`ShedReason`].
pub const TABLE: [Row; 8] = [
    Row {
        reason: ShedReason::Overloaded,
        name: "overloaded",
        http: StatusCode::SERVICE_UNAVAILABLE,
        grpc: Code::Unavailable,
        retry: Retry::Elsewhere,
        pushback: AT_ONCE,
        header: "reason=overloaded, retry=elsewhere",
        message: "overloaded: this backend has more work than it can do",
    },
    Row {
        reason: ShedReason::OverloadedNoRetry,
        name: "overloaded-no-retry",
        http: StatusCode::SERVICE_UNAVAILABLE,
        grpc: Code::Unavailable,
        retry: Retry::Never,
        pushback: Some("-1"),
        header: "reason=overloaded-no-retry, retry=never",
        message: "overloaded-no-retry: the service as a whole has more work than it can do",
    },
    Row {
        reason: ShedReason::Quota,
        name: "quota",
        http: StatusCode::TOO_MANY_REQUESTS,
        grpc: Code::ResourceExhausted,
        retry: Retry::After,
        pushback: Some("-1"),
        header: "reason=quota, retry=after",
        message: "quota: the customer is over its quota",
    },
    Row {
        reason: ShedReason::Throttled,
        name: "throttled",
        http: StatusCode::SERVICE_UNAVAILABLE,
        grpc: Code::Unavailable,
        retry: Retry::Never,
        pushback: None,
        header: "reason=throttled, retry=never",
        message: "throttled: not sent, because most requests are shed",
    },
    Row {
        reason: ShedReason::Deadline,
        name: "deadline",
        http: StatusCode::GATEWAY_TIMEOUT,
        grpc: Code::DeadlineExceeded,
        retry: Retry::Never,
        pushback: None,
        header: "reason=deadline, retry=never",
        message: "deadline: no answer came in time",
    },
    Row {
        reason: ShedReason::LameDuck,
        name: "lame-duck",
        http: StatusCode::SERVICE_UNAVAILABLE,
        grpc: Code::Unavailable,
        retry: Retry::Elsewhere,
        pushback: None,
        header: "reason=lame-duck, retry=elsewhere",
        message: "lame-duck: this backend is draining",
    },
    Row {
        reason: ShedReason::Saturated,
        name: "saturated",
        http: StatusCode::SERVICE_UNAVAILABLE,
        grpc: Code::Unavailable,
        retry: Retry::After,
        pushback: None,
        header: "reason=saturated, retry=after",
        message: "saturated: every backend is at its limit of active requests",
    },
    Row {
        reason: ShedReason::NoBackend,
        name: "no-backend",
        http: StatusCode::SERVICE_UNAVAILABLE,
        grpc: Code::Unavailable,
        retry: Retry::After,
        pushback: None,
        header: "reason=no-backend, retry=after",
        message: "no-backend: no backend is usable",
    },
];

/// The values of `x-plimsoll-shed`, in the order of the table: checked once, and not for each answer.
static SAID: [HeaderValue; TABLE.len()] = [said(0), said(1), said(2), said(3), said(4), said(5), said(6), said(7)];

const fn said(place: usize) -> HeaderValue {
    HeaderValue::from_static(TABLE[place].header)
}

impl ShedReason {
    /// The row of this reason.
    #[must_use]
    pub const fn row(self) -> &'static Row {
        &TABLE[self as usize]
    }

    /// The name in the header, in metrics and in logs.
    #[must_use]
    pub const fn name(self) -> &'static str {
        self.row().name
    }

    /// The reason with this name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        TABLE.iter().find(|row| row.name == name).map(|row| row.reason)
    }

    /// The cause in the shedding report; `None` for a reason that is not part of it.
    #[must_use]
    pub fn cause(self) -> Option<Cause> {
        match self {
            Self::Overloaded => Some(Cause::Overloaded),
            Self::OverloadedNoRetry => Some(Cause::OverloadedNoRetry),
            Self::Quota => Some(Cause::Quota),
            Self::Throttled => Some(Cause::Throttled),
            Self::Deadline => Some(Cause::Deadline),
            Self::Saturated => Some(Cause::Saturated),
            Self::NoBackend => Some(Cause::NoBackend),
            Self::LameDuck => None,
        }
    }

    /// Whether the answer is about load: the sender serves other requests meanwhile.
    ///
    /// A health check that gets such an answer has found a live backend.
    #[must_use]
    pub const fn is_of_load(self) -> bool {
        match self {
            Self::Overloaded
            | Self::OverloadedNoRetry
            | Self::Quota
            | Self::Throttled
            | Self::Deadline
            | Self::Saturated => true,
            Self::LameDuck | Self::NoBackend => false,
        }
    }

    /// The head of the answer. For gRPC it is the whole answer (trailers-only). For others a body
    /// may follow: [`Row::message`].
    ///
    /// Where the table says to retry after a while, `after` becomes `Retry-After`, rounded up to
    /// whole seconds, at least one. Jitter is up to the caller. With `after`, an overload says to
    /// retry later, and not elsewhere: all backends behind the sender are overloaded.
    #[must_use]
    pub fn head(self, grpc: bool, after: Option<Duration>) -> Response<()> {
        let row = self.row();
        let mut response = Response::new(());
        let headers = response.headers_mut();
        headers.reserve(6);
        let is_later = self == Self::Overloaded && after.is_some();
        let said = if is_later { &OVERLOADED_LATER } else { &SAID[self as usize] };
        headers.insert(X_PLIMSOLL_SHED, said.clone());
        if let Some(after) = after
            && (is_later || row.retry == Retry::After)
        {
            headers.insert(RETRY_AFTER, whole_seconds(after));
        }
        if grpc {
            let pushback = match after {
                Some(after) if is_later => {
                    Some(HeaderValue::from(u64::try_from(after.as_millis()).unwrap_or(u64::MAX)))
                }
                _ => row.pushback.map(HeaderValue::from_static),
            };
            headers.insert(CONTENT_TYPE, grpc::CONTENT_TYPE_GRPC);
            headers.insert(GRPC_STATUS, row.grpc.to_header_value());
            headers.insert(GRPC_MESSAGE, grpc::encode_message(row.message));
            if let Some(pushback) = pushback {
                headers.insert(GRPC_RETRY_PUSHBACK_MS, pushback);
            }
        } else {
            *response.status_mut() = row.http;
        }
        response
    }
}

impl std::fmt::Display for ShedReason {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

impl Retry {
    /// Its name in the header.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Elsewhere => "elsewhere",
            Self::After => "after",
            Self::Never => "never",
        }
    }

    fn from_name(name: &str) -> Option<Self> {
        [Self::Elsewhere, Self::After, Self::Never].into_iter().find(|retry| retry.name() == name)
    }
}

/// The content of an answer without service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shed {
    /// The reason; `None` in an answer of other software or a later version.
    pub reason: Option<ShedReason>,
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
            return Some(Self { reason: Some(ShedReason::Quota), retry: Retry::After, after: retry_after(headers) });
        }
        if headers.contains_key(X_ENVOY_OVERLOADED) {
            return Some(Self { reason: Some(ShedReason::Overloaded), retry: Retry::Elsewhere, after: None });
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
                "reason" => reason = ShedReason::from_name(token),
                "retry" => retry = Retry::from_name(token),
                _ => {}
            }
        }
        let retry = retry.or_else(|| reason.map(|reason| reason.row().retry))?;
        Some(Self { reason, retry, after: None })
    }
}

/// Makes the head of a backend's answer that of an overloaded service: whoever gives up on a request tells its own caller not to try again
/// (SRE ch. 21, "Deciding to Retry"). The status stays, and so does the body.
pub fn say_overloaded_no_retry(headers: &mut HeaderMap, is_grpc: bool) {
    say_never(headers, ShedReason::OverloadedNoRetry.row().header, is_grpc);
}

/// Adds to the head of an answer that is in no row of the table that its request is not to be tried again: 502 in place of an answer
/// that never came is such a one, and without this word it would be taken for one that another backend may do better.
pub fn say_no_retry(headers: &mut HeaderMap, is_grpc: bool) {
    say_never(headers, NO_RETRY, is_grpc);
}

/// Whether the head of an answer says that its request is not to be tried again and nothing else, so that it may have been carried out.
#[must_use]
pub fn says_no_more_than_no_retry(headers: &HeaderMap) -> bool {
    headers.get(X_PLIMSOLL_SHED).is_some_and(|said| said == NO_RETRY)
}

fn say_never(headers: &mut HeaderMap, said: &'static str, is_grpc: bool) {
    headers.insert(X_PLIMSOLL_SHED, HeaderValue::from_static(said));
    headers.remove(RETRY_AFTER);
    if is_grpc && let Some(pushback) = ShedReason::OverloadedNoRetry.row().pushback {
        headers.insert(GRPC_RETRY_PUSHBACK_MS, HeaderValue::from_static(pushback));
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

/// Zero, or the one that stands for it: elsewhere at once; more: after that many milliseconds; anything else: never.
fn pushback_of(value: &HeaderValue) -> Shed {
    let millis = value.to_str().ok().and_then(|text| text.parse::<u32>().ok());
    let (retry, after) = match millis {
        Some(0 | 1) => (Retry::Elsewhere, None),
        Some(millis) => (Retry::After, Some(Duration::from_millis(u64::from(millis)))),
        None => (Retry::Never, None),
    };
    Shed { reason: None, retry, after }
}

/// `Retry-After` in seconds. The form with a date is not read: it needs two clocks that agree.
fn retry_after(headers: &HeaderMap) -> Option<Duration> {
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
    fn table_is_complete_and_says_one_thing() {
        for (index, row) in TABLE.iter().enumerate() {
            assert_eq!(row.reason as usize, index, "a reason finds its own row");
            assert_eq!(row.header, format!("reason={}, retry={}", row.name, row.retry.name()));
            assert_eq!(ShedReason::from_name(row.name), Some(row.reason));
            assert!(row.message.starts_with(&format!("{}: ", row.name)), "a person finds the reason, too");
        }
    }

    #[test]
    fn every_answer_reads_back_as_it_was_meant() {
        for row in &TABLE {
            for grpc in [false, true] {
                let head = row.reason.head(grpc, Some(Duration::from_millis(1_200)));
                // An overload with a time is one that passes.
                let retry = if row.reason == ShedReason::Overloaded { Retry::After } else { row.retry };
                let after = (retry == Retry::After).then_some(Duration::from_secs(2));
                let expected = Shed { reason: Some(row.reason), retry, after };
                assert_eq!(Shed::read(head.status(), head.headers()), Some(expected), "{} grpc={grpc}", row.name);
                let status = if grpc { StatusCode::OK } else { row.http };
                assert_eq!(head.status(), status);
                assert_eq!(Code::read(head.headers()), grpc.then_some(row.grpc));
                let pushback =
                    head.headers().get(GRPC_RETRY_PUSHBACK_MS).filter(|_| row.reason == ShedReason::Overloaded);
                assert_eq!(pushback.is_some_and(|pushback| pushback == "1200"), grpc && pushback.is_some());
                let head = row.reason.head(grpc, None);
                let expected = Shed { reason: Some(row.reason), retry: row.retry, after: None };
                assert_eq!(Shed::read(head.status(), head.headers()), Some(expected), "{} grpc={grpc}", row.name);
            }
        }
    }

    #[test]
    fn whoever_is_told_to_wait_is_told_whole_seconds_and_one_at_least() {
        for (millis, seconds) in [(0, "1"), (400, "1"), (1_000, "1"), (1_001, "2")] {
            let head = ShedReason::Quota.head(false, Some(Duration::from_millis(millis)));
            assert_eq!(head.headers()[RETRY_AFTER], seconds, "{millis} ms");
        }
    }

    #[test]
    fn an_answer_given_up_on_reads_as_one_not_to_be_retried() {
        let never = |reason| Some(Shed { reason, retry: Retry::Never, after: None });
        for (grpc, after) in [(false, None), (true, None), (false, Some(Duration::from_secs(30)))] {
            for reason in [ShedReason::Overloaded, ShedReason::LameDuck, ShedReason::Saturated] {
                let mut head = reason.head(grpc, after);
                say_overloaded_no_retry(head.headers_mut(), grpc);
                assert_eq!(
                    Shed::read(head.status(), head.headers()),
                    never(Some(ShedReason::OverloadedNoRetry)),
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
                Some(Shed { reason: Some(ShedReason::Quota), retry: Retry::After, after: None }),
            ),
            (
                503,
                &[("x-envoy-overloaded", "true")],
                Some(Shed { reason: Some(ShedReason::Overloaded), retry: Retry::Elsewhere, after: None }),
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
                Some(Shed { reason: Some(ShedReason::LameDuck), retry: Retry::Elsewhere, after: None }),
            ),
        ] {
            let status = StatusCode::from_u16(status).unwrap();
            assert_eq!(Shed::read(status, &headers(pairs)), expected, "{status} {pairs:?}");
        }
    }
}
