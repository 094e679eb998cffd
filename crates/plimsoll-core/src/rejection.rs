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
    /// The place among the labels of a gate's decisions; `None` if no gate decides so.
    pub gate: Option<usize>,
    /// Whether the reason is load: the sender serves other requests meanwhile. A health check that
    /// gets such an answer has found a live backend.
    pub is_of_load: bool,
    /// The weight in the shedding report; `None` for a reason that is not part of it.
    pub reported: Option<Reported>,
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
    pub(super) const DEADLINE_EXCEEDED: u8 = 4;
    pub(super) const RESOURCE_EXHAUSTED: u8 = 8;
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
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum Rejection {
            $($(#[$doc])* $reason,)*
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
        batch: Some(Rejection::Overloaded),
    }
    /// Too many backends are overloaded: a retry would only add load.
    OverloadedNoRetry: "overloaded-no-retry", "the service as a whole has more work than it can do",
        503 UNAVAILABLE, Never {
        pushback: Some(Pushback::Never),
        gate: Some(1),
        is_of_load: true,
        reported: SHORTAGE,
        batch: Some(Rejection::Overloaded),
    }
    /// The customer is over its quota.
    Quota: "quota", "the customer is over its quota",
        429 RESOURCE_EXHAUSTED, After {
        pushback: Some(Pushback::Never),
        gate: Some(3),
        is_of_load: true,
        reported: OWN_LIMIT,
    }
    /// The client side throttled the request; nothing was sent.
    Throttled: "throttled", "not sent, because most requests are shed",
        503 UNAVAILABLE, Never {
        is_of_load: true,
        reported: SHORTAGE,
        evidence: Evidence::Headroom,
        batch: Some(Rejection::Throttled),
    }
    /// The deadline passed, or would pass before an answer.
    Deadline: "deadline", "no answer came in time",
        504 DEADLINE_EXCEEDED, Never {
        gate: Some(2),
        is_of_load: true,
        reported: NO_SHORTAGE,
        evidence: Evidence::TooLate,
    }
    /// The backend is draining.
    LameDuck: "lame-duck", "this backend is draining",
        503 UNAVAILABLE, Elsewhere {
        batch: Some(Rejection::LameDuck),
    }
    /// Every usable backend is at its limit of active requests.
    Saturated: "saturated", "every backend is at its limit of active requests",
        503 UNAVAILABLE, After {
        is_of_load: true,
        reported: SHORTAGE,
        batch: Some(Rejection::Saturated),
    }
    /// No backend is usable.
    NoBackend: "no-backend", "no backend is usable",
        503 UNAVAILABLE, After {
        reported: NO_SHORTAGE,
        batch: Some(Rejection::NoBackend),
    }
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
            gate: None,
            is_of_load: false,
            reported: None,
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
    fn labels_of_a_gate_are_its_reasons_each_once() {
        for (place, rejection) in Rejection::GATE.iter().enumerate() {
            assert_eq!(rejection.row().gate, Some(place));
        }
    }
}
