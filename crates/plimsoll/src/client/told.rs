//! What is told of attempts that failed, to whoever has to explain them.
//!
//! Of a request that is answered at once there is nothing to tell, and nothing is allocated for it.

use std::fmt;
use std::net::SocketAddr;
use std::time::Duration;

use super::error::Error;
use super::refused::Refused;

/// An attempt at a backend by which the request was not served.
#[derive(Clone, Debug)]
pub struct FailedAttempt {
    /// Where; `None` if it is no backend any more.
    pub backend: Option<SocketAddr>,
    /// When it had failed, since the request came.
    pub after: Duration,
    /// Why it failed.
    pub failure: Failure,
    /// What came of it.
    pub next: Next,
}

/// Why an attempt failed.
#[derive(Clone, Debug)]
pub enum Failure {
    /// There was no answer.
    Error(Error),
    /// The answer was that the backend did not serve the request.
    Refused(Refused),
}

impl Failure {
    /// The word for it in metrics and logs.
    #[must_use]
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Error(error) => error.reason(),
            Self::Refused(refused) => refused.reason(),
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Error(error) => error.in_full().fmt(f),
            Self::Refused(refused) => refused.fmt(f),
        }
    }
}

/// What comes of an attempt that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Next {
    /// Nothing had been sent: another backend was asked.
    Elsewhere,
    /// It was tried again, within the budget for that.
    Retried,
    /// It is batch work, and waits again.
    Queued,
    /// Another attempt of it was out, or its answer there, and is what counts.
    Hedged,
    /// Why it was not.
    GivenUp(GivenUp),
}

/// Why a request is not tried again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum GivenUp {
    /// No other backend was left to ask, or none that has room.
    NoOther,
    /// As many were asked as may be.
    TooMany,
    /// No time was left.
    TooLate,
    /// The backend may have carried it out, and doing so twice may not be the same as once.
    MayBeSeen,
    /// What was sent of its body is not kept.
    BodyIsGone,
    /// The backend said not to.
    ToldNotTo,
    /// The backend said when to come again, which is later than anybody waits.
    TooLong,
    /// So many requests were tried again lately that one more would only add load.
    NoBudget,
    /// The cluster turns so many away that requests are held back.
    HeldBack,
    /// Every other backend would fail as well.
    Final,
}

impl GivenUp {
    /// All.
    pub const ALL: [Self; 10] = [
        Self::NoOther,
        Self::TooMany,
        Self::TooLate,
        Self::MayBeSeen,
        Self::BodyIsGone,
        Self::ToldNotTo,
        Self::TooLong,
        Self::NoBudget,
        Self::HeldBack,
        Self::Final,
    ];

    /// The word for it in metrics.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::NoOther => "no-other-backend",
            Self::TooMany => "attempts",
            Self::TooLate => "deadline",
            Self::MayBeSeen => "unsafe",
            Self::BodyIsGone => "impossible",
            Self::ToldNotTo => "told-not",
            Self::TooLong => "too-long",
            Self::NoBudget => "budget",
            Self::HeldBack => "throttled",
            Self::Final => "final",
        }
    }
}

impl Next {
    /// In words.
    #[must_use]
    pub const fn text(self) -> &'static str {
        match self {
            Self::Elsewhere => "tried elsewhere: nothing had been sent",
            Self::Retried => "tried again",
            Self::Queued => "it waits again, as batch work does",
            Self::Hedged => "another attempt of it was out already",
            Self::GivenUp(GivenUp::NoOther) => "given up: no other backend was left that has room",
            Self::GivenUp(GivenUp::TooMany) => "given up: it was tried as often as may be",
            Self::GivenUp(GivenUp::TooLate) => "given up: no time was left",
            Self::GivenUp(GivenUp::MayBeSeen) => "not tried again: the backend may have seen the request",
            Self::GivenUp(GivenUp::BodyIsGone) => "not tried again: what was sent of its body is not kept",
            Self::GivenUp(GivenUp::ToldNotTo) => "not tried again: the backend said not to",
            Self::GivenUp(GivenUp::TooLong) => "not tried again: the backend said to come later than anybody waits",
            Self::GivenUp(GivenUp::NoBudget) => "not tried again: too many requests were lately",
            Self::GivenUp(GivenUp::HeldBack) => "not tried again: requests to this cluster are held back",
            Self::GivenUp(GivenUp::Final) => "not tried again: any other backend would fail as well",
        }
    }
}
