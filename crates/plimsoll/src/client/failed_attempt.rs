//! Records of failed attempts, for logs and explanations.
//!
//! A request that is answered at once has none, and allocates nothing for them.

use crate::address::Address;
use std::fmt;
use std::time::Duration;

use super::error::Error;
use super::refused::Refusal;

/// A failed attempt at a backend.
#[derive(Clone, Debug)]
pub struct FailedAttempt {
    /// The backend; `None` if it was removed since.
    pub backend: Option<Address>,
    /// The time from the request's arrival to the failure.
    pub after: Duration,
    /// The reason.
    pub failure: Failure,
    /// The next step.
    pub next: NextStep,
}

/// The reason why an attempt failed.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Failure {
    /// There was no answer.
    Error(Error),
    /// The backend answered without service.
    Refused(Refusal),
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

/// The step after a failed attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum NextStep {
    /// Nothing had been sent: the request goes to another backend.
    Elsewhere,
    /// The request was retried, within the retry budget.
    Retried,
    /// The request is batch work, and is queued again.
    Queued,
    /// Another attempt was in flight or answered, and counts instead.
    Hedged,
    /// No retry, for this reason.
    GaveUp(NoRetryReason),
}

/// The reason why a request is not retried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum NoRetryReason {
    /// No other backend is left, or none has headroom.
    NoOther,
    /// Attempts exhausted.
    TooMany,
    /// No time left.
    TooLate,
    /// The backend may have carried it out, and doing so twice may do harm.
    MayBeSeen,
    /// The sent part of the body was not kept.
    BodyIsGone,
    /// The backend advised against a retry.
    ToldNotTo,
    /// The backend asked for a longer wait than is allowed.
    TooLong,
    /// Retry budget exhausted.
    NoBudget,
    /// Requests to this cluster are throttled.
    HeldBack,
    /// Any other backend would fail as well.
    Final,
    /// Too many requests wait before a retry.
    TooManyWait,
}

impl NoRetryReason {
    /// All.
    pub const ALL: [Self; 11] = [
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
        Self::TooManyWait,
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
            Self::TooManyWait => "waiting",
        }
    }
}

impl NextStep {
    /// A phrase for people.
    #[must_use]
    pub const fn text(self) -> &'static str {
        match self {
            Self::Elsewhere => "sent to another backend: nothing had been sent before",
            Self::Retried => "retried",
            Self::Queued => "queued again, as batch work",
            Self::Hedged => "another attempt was in flight",
            Self::GaveUp(NoRetryReason::NoOther) => "gave up: no other backend has headroom",
            Self::GaveUp(NoRetryReason::TooMany) => "gave up: attempts exhausted",
            Self::GaveUp(NoRetryReason::TooLate) => "gave up: no time left",
            Self::GaveUp(NoRetryReason::MayBeSeen) => "not retried: the backend may have received the request",
            Self::GaveUp(NoRetryReason::BodyIsGone) => "not retried: the request body was not kept",
            Self::GaveUp(NoRetryReason::ToldNotTo) => "not retried: the backend advised against it",
            Self::GaveUp(NoRetryReason::TooLong) => "not retried: the backend asked for too long a wait",
            Self::GaveUp(NoRetryReason::NoBudget) => "not retried: retry budget exhausted",
            Self::GaveUp(NoRetryReason::HeldBack) => "not retried: requests to this cluster are throttled",
            Self::GaveUp(NoRetryReason::TooManyWait) => "not retried: too many requests wait before a retry",
            Self::GaveUp(NoRetryReason::Final) => "not retried: any other backend would fail as well",
        }
    }
}
