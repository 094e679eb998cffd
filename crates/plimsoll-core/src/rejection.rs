//! The reasons for rejecting a request, in one table.
//!
//! A reason is one row: its name, its answer in HTTP and gRPC, its advice on retries, and its
//! effects. Every other list of reasons is a subset of the table, by a column: [`Rejection::SHED`],
//! [`Rejection::GATE`], [`Rejection::REPORTED`]. Counters are arrays in the order of the table, so
//! each reason has a count of its own.
//!
//! The end of an attempt at a backend is another subject: a lost connection rejects nothing.

use core::fmt;
use core::time::Duration;

use crate::retry;

/// The advice on retrying a rejected request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Retry {
    /// At another backend, at once.
    Elsewhere,
    /// Anywhere, after a while.
    After,
    /// Not at all.
    Never,
}

/// The names of advice in `x-plimsoll-shed`.
macro_rules! retry_name {
    (Elsewhere) => {
        "elsewhere"
    };
    (After) => {
        "after"
    };
    (Never) => {
        "never"
    };
}

impl Retry {
    /// The name in `x-plimsoll-shed`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Elsewhere => retry_name!(Elsewhere),
            Self::After => retry_name!(After),
            Self::Never => retry_name!(Never),
        }
    }

    /// The advice with this name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        [Self::Elsewhere, Self::After, Self::Never].into_iter().find(|retry| retry.name() == name)
    }

    /// The same for the retry decision, with the time in the answer. Advice to wait for an unknown
    /// time is none.
    #[must_use]
    pub const fn advice(self, after: Option<Duration>) -> retry::Advice {
        match (self, after) {
            (Self::Never, _) => retry::Advice::Never,
            (Self::After, Some(after)) => retry::Advice::After(after),
            (Self::After, None) => retry::Advice::None,
            (Self::Elsewhere, _) => retry::Advice::Elsewhere,
        }
    }
}

/// A value of `x-plimsoll-shed`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShedHeader {
    /// Its advice.
    pub retry: Retry,
    /// The value, with the name and the advice.
    pub value: &'static str,
}

/// Pushback for gRPC clients, which need it to follow the advice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pushback {
    /// At once, or after the time in the answer.
    AtOnce,
    /// Never.
    Never,
}

/// The evidence about a backend in its answer, for the throttle and the retries of its client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Evidence {
    /// The backend has no capacity for the request.
    Overload,
    /// The backend has headroom, and throttled the request toward another backend.
    Headroom,
    /// The time of the request was too short, perhaps by its caller's choice.
    TooLate,
}

/// The weight of a reason in the [shedding report](crate::shedding).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reported {
    /// Whether more capacity would have helped. It would not if a customer is at its own limit, if
    /// no backend is usable, or if the deadline was too short, perhaps by the client's doing.
    pub is_shortage: bool,
    /// Whether users are affected by requests lost for this reason. A customer's own limit does not
    /// count: the customer agreed to it.
    pub affects_users: bool,
}

/// The class of an error for degraded answers: a setting names the classes that it replaces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trouble {
    /// Backends are overloaded: the gate says so, or a backend does.
    Overloaded,
    /// All backends were at their limit of active requests for too long.
    Saturated,
    /// No backend is usable.
    NoBackend,
    /// No answer came in time.
    Deadline,
    /// The backend closed the connection, or its answer was none.
    Failed,
    /// The backend answered 500, 502, 503 or 504, without a reason of the table.
    ServerError,
    /// The customer is over its quota.
    Quota,
}

impl Trouble {
    /// All classes, in the order of their declaration.
    pub const ALL: [Self; 7] = [
        Self::Overloaded,
        Self::Saturated,
        Self::NoBackend,
        Self::Deadline,
        Self::Failed,
        Self::ServerError,
        Self::Quota,
    ];

    /// The classes without a response that clients can use. A backend's own error page may be one,
    /// and a customer over its quota should notice.
    pub const WITHOUT_SERVICE: [Self; 5] =
        [Self::Overloaded, Self::Saturated, Self::NoBackend, Self::Deadline, Self::Failed];

    /// The name in the file, in metrics, and in the header.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Overloaded => Rejection::Overloaded.name(),
            Self::Saturated => Rejection::Saturated.name(),
            Self::NoBackend => Rejection::NoBackend.name(),
            Self::Deadline => Rejection::Deadline.name(),
            Self::Failed => "failed",
            Self::ServerError => "server-error",
            Self::Quota => Rejection::Quota.name(),
        }
    }
}

/// One row of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row {
    /// The reason.
    pub rejection: Rejection,
    /// The name in headers, metrics, logs and settings.
    pub name: &'static str,
    /// The text for people, which begins with the name.
    pub text: &'static str,
    /// Status of the HTTP answer.
    pub http: u16,
    /// Code of the gRPC answer.
    pub grpc: u8,
    /// Value of `x-plimsoll-shed`; `None` for an answer without advice on retries.
    pub header: Option<ShedHeader>,
    /// The same in an answer that names a time.
    pub header_with_time: Option<ShedHeader>,
    /// `grpc-retry-pushback-ms`.
    pub pushback: Option<Pushback>,
    /// Value of `Retry-After`, where it is always the same.
    pub retry_after: Option<&'static str>,
    /// The place among the labels of a gate's decisions; `None` if no gate decides so.
    pub gate: Option<usize>,
    /// Whether the reason is load: the sender serves other requests meanwhile. A health check that
    /// gets such an answer has found a live backend.
    pub is_of_load: bool,
    /// The weight in the shedding report; `None` for a reason that is not part of it.
    pub reported: Option<Reported>,
    /// The class for degraded answers; `None` for a reason that no other answer replaces.
    pub degraded: Option<Trouble>,
    /// The evidence about the backend that answers so.
    pub evidence: Evidence,
    /// The reason that batch work reports if its wait for a retry is abandoned; `None` if it is not
    /// retried.
    pub batch: Option<Rejection>,
}

const SHORTAGE: Option<Reported> = Some(Reported { is_shortage: true, affects_users: true });
const NO_SHORTAGE: Option<Reported> = Some(Reported { is_shortage: false, affects_users: true });
const OWN_LIMIT: Option<Reported> = Some(Reported { is_shortage: false, affects_users: false });

/// Codes of gRPC.
mod grpc {
    pub(super) const INVALID_ARGUMENT: u8 = 3;
    pub(super) const DEADLINE_EXCEEDED: u8 = 4;
    pub(super) const PERMISSION_DENIED: u8 = 7;
    pub(super) const RESOURCE_EXHAUSTED: u8 = 8;
    pub(super) const UNIMPLEMENTED: u8 = 12;
    pub(super) const INTERNAL: u8 = 13;
    pub(super) const UNAVAILABLE: u8 = 14;
}

/// The value of `x-plimsoll-shed`: the last advice counts.
macro_rules! header {
    ($name:literal) => {
        None
    };
    ($name:literal $retry:ident) => {
        Some(ShedHeader { retry: Retry::$retry, value: concat!("reason=", $name, ", retry=", retry_name!($retry)) })
    };
    ($name:literal $retry:ident $with_time:ident) => {
        header!($name $with_time)
    };
}

macro_rules! rejections {
    ($($(#[$doc:meta])* $reason:ident: $name:literal, $text:literal, $http:literal $grpc:ident
        $(, $retry:ident $(or $with_time:ident)?)? { $($column:ident: $value:expr),* $(,)? })*) => {
        /// A reason for rejecting a request.
        ///
        /// The answer names it, and advises on a retry:
        ///
        /// ```
        /// use plimsoll_core::Rejection;
        ///
        /// let row = Rejection::Overloaded.row();
        /// assert_eq!(row.http, 503);
        /// assert_eq!(row.text, "overloaded: this backend has more work than it can do");
        /// // The field x-plimsoll-shed:
        /// assert_eq!(row.header.expect("it advises").value, "reason=overloaded, retry=elsewhere");
        /// ```
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum Rejection {
            $(
                $(#[$doc])*
                #[doc = concat!("\n\nName `", $name, "`; status ", $http, ", gRPC `", stringify!($grpc), "`.")]
                $reason,
            )*
        }

        impl Rejection {
            /// All reasons, in the order of the table.
            pub const ALL: [Self; [$($name),*].len()] = [$(Self::$reason),*];
        }

        /// The table, in the order of [`Rejection`].
        const TABLE: [Row; Rejection::COUNT] = [$(Row {
            name: $name,
            text: concat!($name, ": ", $text),
            http: $http,
            grpc: grpc::$grpc,
            header: header!($name $($retry)?),
            header_with_time: header!($name $($retry $($with_time)?)?),
            $($column: $value,)*
            ..Row::without_effect(Rejection::$reason)
        }),*];
    };
}

rejections! {
    /// This backend is overloaded; others may not be.
    Overloaded: "overloaded", "this backend has more work than it can do",
        503 UNAVAILABLE, Elsewhere or After {
        pushback: Some(Pushback::AtOnce),
        gate: Some(0),
        is_of_load: true,
        reported: SHORTAGE,
        degraded: Some(Trouble::Overloaded),
        batch: Some(Rejection::Overloaded),
    }
    /// Too many backends are overloaded: a retry would only add load.
    OverloadedNoRetry: "overloaded-no-retry", "the service as a whole has more work than it can do",
        503 UNAVAILABLE, Never {
        pushback: Some(Pushback::Never),
        gate: Some(1),
        is_of_load: true,
        reported: SHORTAGE,
        degraded: Some(Trouble::Overloaded),
        batch: Some(Rejection::Overloaded),
    }
    /// The customer is over its quota.
    Quota: "quota", "the customer is over its quota",
        429 RESOURCE_EXHAUSTED, After {
        pushback: Some(Pushback::Never),
        gate: Some(3),
        is_of_load: true,
        reported: OWN_LIMIT,
        degraded: Some(Trouble::Quota),
    }
    /// The customer sends more requests per second than its limit.
    RateLimit: "rate-limit", "the customer sends more requests per second than its limit",
        429 RESOURCE_EXHAUSTED, After {
        pushback: Some(Pushback::AtOnce),
        is_of_load: true,
        degraded: Some(Trouble::Quota),
    }
    /// The client side throttled the request; nothing was sent.
    Throttled: "throttled", "not sent, because most requests are shed",
        503 UNAVAILABLE, Never {
        is_of_load: true,
        reported: SHORTAGE,
        evidence: Evidence::Headroom,
        degraded: Some(Trouble::Overloaded),
        batch: Some(Rejection::Throttled),
    }
    /// The deadline passed, or would pass before an answer.
    Deadline: "deadline", "no answer came in time",
        504 DEADLINE_EXCEEDED, Never {
        gate: Some(2),
        is_of_load: true,
        reported: NO_SHORTAGE,
        evidence: Evidence::TooLate,
        degraded: Some(Trouble::Deadline),
    }
    /// The backend is draining.
    LameDuck: "lame-duck", "this backend is draining",
        503 UNAVAILABLE, Elsewhere {
        degraded: Some(Trouble::NoBackend),
        batch: Some(Rejection::LameDuck),
    }
    /// Every usable backend is at its limit of active requests.
    Saturated: "saturated", "every backend is at its limit of active requests",
        503 UNAVAILABLE, After {
        is_of_load: true,
        reported: SHORTAGE,
        degraded: Some(Trouble::Saturated),
        batch: Some(Rejection::Saturated),
    }
    /// No backend is usable.
    NoBackend: "no-backend", "no backend is usable",
        503 UNAVAILABLE, After {
        reported: NO_SHORTAGE,
        degraded: Some(Trouble::NoBackend),
        batch: Some(Rejection::NoBackend),
    }

    // Decisions of a proxy about the request itself.

    /// No route matches.
    NoRoute: "no-route", "no route matches this request", 404 UNIMPLEMENTED {}
    /// `CONNECT`: a reverse proxy is no forward proxy.
    Connect: "connect", "a reverse proxy opens no tunnels", 405 UNIMPLEMENTED {}
    /// `TRACE`: its response shows a client the fields that proxies add, credentials included.
    Trace: "trace", "TRACE is not allowed", 405 UNIMPLEMENTED {}
    /// The body is longer than the listener allows.
    BodyTooLarge: "body-too-large", "the body is longer than this listener allows",
        413 RESOURCE_EXHAUSTED {}
    /// The head took too long.
    SlowHead: "slow-head", "the request head took too long", 408 DEADLINE_EXCEEDED {}
    /// The body came too slowly.
    SlowBody: "slow-body", "the request body arrived too slowly", 408 DEADLINE_EXCEEDED {}
    /// Memory is nearly used up.
    Memory: "memory", "the proxy is almost out of memory",
        503 UNAVAILABLE {
        retry_after: Some("1"),
    }
    /// The route has an answer for all its requests.
    RouteAnswer: "route-answer", "the route has a fixed answer", 403 PERMISSION_DENIED {}
    /// The route redirects the request to the URL that it was sent to.
    RedirectLoop: "redirect-loop", "the route redirects the request to its own URL", 508 INTERNAL {}
    /// The route drops its requests without an answer.
    BlackHole: "black-hole", "the route drops its requests", 403 PERMISSION_DENIED {}
    /// An extended CONNECT, and the cluster speaks HTTP/2 only.
    NoUpgrade: "no-upgrade",
        "backends of this route speak HTTP/2 only and cannot switch protocols",
        501 UNIMPLEMENTED {}
    /// Servers read the path in different ways, and routes depend on it.
    AmbiguousPath: "ambiguous-path",
        "servers may read this path in different ways, with different routes",
        400 INVALID_ARGUMENT {}
    /// The customer is named more than once.
    Customers: "customers", "the customer is named more than once", 400 INVALID_ARGUMENT {}
    /// The request has passed this proxy before, again and again.
    Loop: "loop", "the request passed this proxy too often: a backend leads back to it",
        508 INTERNAL {}
}

impl Row {
    const fn without_effect(rejection: Rejection) -> Self {
        Self {
            rejection,
            name: "",
            text: "",
            http: 0,
            grpc: 0,
            header: None,
            header_with_time: None,
            pushback: None,
            retry_after: None,
            gate: None,
            is_of_load: false,
            reported: None,
            degraded: None,
            evidence: Evidence::Overload,
            batch: None,
        }
    }
}

/// A list of the reasons with a column, in the order of the table.
macro_rules! having {
    ($column:ident) => {{
        const COUNT: usize = {
            let (mut at, mut count) = (0, 0);
            while at < TABLE.len() {
                count += TABLE[at].$column.is_some() as usize;
                at += 1;
            }
            count
        };
        let mut list = [Rejection::ALL[0]; COUNT];
        let (mut at, mut count) = (0, 0);
        while at < TABLE.len() {
            if TABLE[at].$column.is_some() {
                list[count] = TABLE[at].rejection;
                count += 1;
            }
            at += 1;
        }
        list
    }};
}

impl Rejection {
    /// The number of reasons.
    pub const COUNT: usize = Self::ALL.len();
    /// The reasons that an answer names in `x-plimsoll-shed`.
    pub const SHED: &[Self] = &having!(header);
    /// The reasons of the shedding report.
    pub const REPORTED: &[Self] = &having!(reported);
    /// The reasons of a gate, in the order of its labels.
    pub const GATE: &[Self] = &{
        let mut list = having!(gate);
        let mut at = 0;
        while at < TABLE.len() {
            if let Some(place) = TABLE[at].gate {
                list[place] = TABLE[at].rejection;
            }
            at += 1;
        }
        list
    };

    /// The row of this reason.
    #[must_use]
    pub const fn row(self) -> &'static Row {
        const ROWS: &[Row; Rejection::COUNT] = &TABLE;
        &ROWS[self as usize]
    }

    /// The place in [`Rejection::REPORTED`].
    #[must_use]
    pub const fn report_place(self) -> Option<usize> {
        const PLACES: [Option<usize>; Rejection::COUNT] = {
            let mut places = [None; Rejection::COUNT];
            let mut at = 0;
            while at < Rejection::REPORTED.len() {
                places[Rejection::REPORTED[at] as usize] = Some(at);
                at += 1;
            }
            places
        };
        PLACES[self as usize]
    }

    /// The name in headers, metrics, logs and settings.
    #[must_use]
    pub const fn name(self) -> &'static str {
        self.row().name
    }

    /// The reason with this name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|rejection| rejection.name() == name)
    }

    /// The value of `x-plimsoll-shed` in an answer with or without a time.
    #[must_use]
    pub const fn header(self, after: Option<Duration>) -> Option<ShedHeader> {
        if after.is_some() { self.row().header_with_time } else { self.row().header }
    }

    /// The advice for the retry decision, in an answer with or without a time.
    #[must_use]
    pub const fn advice(self, after: Option<Duration>) -> retry::Advice {
        match self.header(after) {
            Some(header) => header.retry.advice(after),
            None => retry::Advice::None,
        }
    }

    /// The advice for the reader of an answer with this reason, with its word `retry` and its time.
    ///
    /// A limit of the sender holds at all backends. So nothing is retried over a quota, which the
    /// sender should notice, and over a rate limit only after the time in the answer.
    #[must_use]
    pub const fn advice_in_answer(self, retry: Retry, after: Option<Duration>) -> retry::Advice {
        match (self, retry.advice(after)) {
            (Self::RateLimit, advice @ retry::Advice::After(_)) => advice,
            (Self::RateLimit | Self::Quota, _) => retry::Advice::Never,
            (_, advice) => advice,
        }
    }

    /// Whether the reason is load: the sender serves other requests meanwhile.
    #[must_use]
    pub const fn is_of_load(self) -> bool {
        self.row().is_of_load
    }

    /// Whether more capacity would have helped, as the shedding report counts it.
    #[must_use]
    pub const fn is_shortage(self) -> bool {
        matches!(self.row().reported, Some(Reported { is_shortage: true, .. }))
    }

    /// Whether the shedding report counts it as lost for users.
    #[must_use]
    pub const fn affects_users(self) -> bool {
        matches!(self.row().reported, Some(Reported { affects_users: true, .. }))
    }
}

impl fmt::Display for Rejection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    extern crate std;

    use std::collections::BTreeSet;
    use std::format;

    use super::*;

    #[test]
    fn each_reason_finds_its_own_row_by_place_and_name() {
        for (place, rejection) in Rejection::ALL.into_iter().enumerate() {
            let row = rejection.row();
            assert_eq!((rejection as usize, row.rejection), (place, rejection));
            assert_eq!(Rejection::from_name(row.name), Some(rejection));
            assert!(row.text.starts_with(&format!("{rejection}: ")), "people find the name, too");
        }
        assert_eq!(Rejection::ALL.map(Rejection::name).into_iter().collect::<BTreeSet<_>>().len(), Rejection::COUNT);
    }

    #[test]
    fn header_has_the_name_and_the_advice_of_its_reason() {
        for &rejection in Rejection::SHED {
            for after in [None, Some(Duration::from_secs(1))] {
                let ShedHeader { retry, value } = rejection.header(after).expect("it is one of those");
                assert_eq!(value, format!("reason={rejection}, retry={}", retry.name()));
            }
        }
    }

    #[test]
    fn limit_of_the_sender_is_retried_after_a_named_time_or_not() {
        use retry::Advice;
        let (second, none) = (Some(Duration::from_secs(1)), None);
        for (reason, retry, after, expected) in [
            (Rejection::RateLimit, Retry::After, second, Advice::After(Duration::from_secs(1))),
            (Rejection::RateLimit, Retry::After, none, Advice::Never),
            (Rejection::RateLimit, Retry::Elsewhere, second, Advice::Never),
            (Rejection::RateLimit, Retry::Never, second, Advice::Never),
            (Rejection::Quota, Retry::After, second, Advice::Never),
            (Rejection::Quota, Retry::Elsewhere, none, Advice::Never),
            (Rejection::Overloaded, Retry::After, second, Advice::After(Duration::from_secs(1))),
            (Rejection::Overloaded, Retry::After, none, Advice::None),
            (Rejection::LameDuck, Retry::Elsewhere, second, Advice::Elsewhere),
            (Rejection::OverloadedNoRetry, Retry::Never, none, Advice::Never),
        ] {
            assert_eq!(reason.advice_in_answer(retry, after), expected, "{reason}, {retry:?}, {after:?}");
        }
    }

    #[test]
    fn labels_of_a_gate_are_its_reasons_each_once() {
        for (place, rejection) in Rejection::GATE.iter().enumerate() {
            assert_eq!(rejection.row().gate, Some(place));
        }
    }
}
