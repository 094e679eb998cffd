//! The end of a request, and its meaning for each machine, in one table.

use plimsoll_core::Outcome;
use plimsoll_core::retry::{Advice, Failure};

use crate::Rejected;

/// The end of a request, and its meaning for each machine:
///
/// | end | balancer | throttle | retry |
/// |---|---|---|---|
/// | [`Served`](Self::Served) | success | accepted | |
/// | [`RateLimited`](Self::RateLimited) | rate limited | accepted | by its advice; without any, no |
/// | [`Failed`](Self::Failed) | failure | accepted | no: another backend would fail, too |
/// | [`Unavailable`](Self::Unavailable) | failure | accepted | if idempotent |
/// | [`Overloaded`](Self::Overloaded) | overloaded | rejected | yes |
/// | [`Busy`](Self::Busy) | overloaded | rejected | if idempotent |
/// | [`TooLate`](Self::TooLate) | overloaded | rejected after a long wait | no |
/// | [`Throttled`](Self::Throttled) | overloaded | accepted: it has headroom | no |
/// | [`ConnectRefused`](Self::ConnectRefused) | failure | no evidence | yes |
/// | [`ConnectFailed`](Self::ConnectFailed) | failure | rejected in a silence | yes |
/// | [`Broken`](Self::Broken) | failure | rejected in a silence | if idempotent |
/// | [`TimedOut`](Self::TimedOut) | timed out | rejected | if idempotent |
/// | [`Rejected`](Self::Rejected) | no evidence | no evidence | by its advice |
/// | [`Cancelled`](Self::Cancelled) | no evidence | no evidence | no |
///
/// A *silence* is half a second in which no request was answered
/// ([`AttemptEvidence`](plimsoll_core::throttle::AttemptEvidence)).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum End {
    /// An answer that does not blame the backend. The request may be wrong.
    Served,
    /// An answer that names a rate limit, mostly the sender's: HTTP 429. The request was not
    /// served. All backends share the limit, so it is retried only if the answer says when.
    RateLimited(Advice),
    /// An error that another backend would give, too: HTTP 500.
    Failed,
    /// An error that may be the backend's own: HTTP 502. It may have served the request.
    Unavailable(Advice),
    /// The backend is overloaded or draining, and did not serve the request.
    Overloaded(Advice),
    /// The backend is overloaded by its own word, and may have served the request: HTTP 503 with a
    /// time before a retry.
    Busy(Advice),
    /// The backend shed the request because its time was too short.
    TooLate,
    /// The backend throttled the request toward a backend of its own.
    Throttled,
    /// Nothing listens at the address.
    ConnectRefused,
    /// No connection could be made.
    ConnectFailed,
    /// The connection broke before the answer.
    Broken,
    /// No answer came in time.
    TimedOut,
    /// A layer of this side rejected the request: nothing was sent.
    Rejected(Rejected),
    /// This side took the request back.
    Cancelled,
}

impl End {
    /// The outcome for a balancer.
    #[must_use]
    pub const fn outcome(self) -> Outcome {
        match self {
            Self::Served => Outcome::Success,
            Self::RateLimited(_) => Outcome::RateLimited,
            Self::Failed | Self::Unavailable(_) | Self::ConnectRefused | Self::ConnectFailed | Self::Broken => {
                Outcome::Failure
            }
            Self::Overloaded(_) | Self::Busy(_) | Self::TooLate | Self::Throttled => Outcome::Overloaded,
            Self::TimedOut => Outcome::TimedOut,
            Self::Rejected(_) | Self::Cancelled => Outcome::Cancelled,
        }
    }

    /// The failure for a retry decision; `None` if the request was served, or there is no use in a
    /// retry.
    #[must_use]
    pub const fn failure(self) -> Option<Failure> {
        Some(match self {
            Self::Served | Self::RateLimited(Advice::None | Advice::Never) | Self::Cancelled => return None,
            Self::RateLimited(advice) => Failure::Shed(advice),
            Self::Failed => Failure::Final,
            Self::Unavailable(advice) | Self::Busy(advice) => Failure::Failed(advice),
            Self::Overloaded(advice) => Failure::Shed(advice),
            Self::TooLate => Failure::Shed(Advice::Never),
            Self::Throttled => Failure::Throttled,
            // Nothing was sent, so any request may be sent again. A wait, because the same backend
            // may be the only one.
            Self::ConnectRefused | Self::ConnectFailed => Failure::Shed(Advice::None),
            Self::Broken => Failure::Broken,
            Self::TimedOut => Failure::TimedOut,
            Self::Rejected(rejected) => Failure::Shed(rejected.advice()),
        })
    }

    /// Whether a throttle counts it as accepted in all circumstances.
    pub(crate) const fn is_accepted(self) -> bool {
        matches!(self, Self::Served | Self::RateLimited(_) | Self::Failed | Self::Unavailable(_) | Self::Throttled)
    }

    /// Whether a backend answered.
    #[must_use]
    pub const fn is_answer(self) -> bool {
        matches!(
            self,
            Self::Served
                | Self::RateLimited(_)
                | Self::Failed
                | Self::Unavailable(_)
                | Self::Overloaded(_)
                | Self::Busy(_)
                | Self::TooLate
                | Self::Throttled
        )
    }
}

/// Takes the end of one request. A report that is dropped is of a request that its caller
/// abandoned.
#[must_use = "a machine learns from ends: pass the report on, or call `Report::end`"]
pub trait Report {
    /// Reports the end.
    fn end(self, end: End);
}
