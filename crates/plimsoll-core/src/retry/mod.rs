//! Retries: whether, when and where a failed request is sent again.
//!
//! A retry is extra load. It serves one request in a hundred well that fails for a reason of its
//! own backend. When everything fails, three attempts each triple the load on backends that are
//! down already. Through three services that all do so the load is 27-fold (SRE ch. 21, "Deciding
//! to Retry"). Such a load goes on when its cause is gone (Bronson et al., "Metastable Failures in
//! Distributed Systems", HotOS 2021). So a request is retried only if each of these agrees, in this
//! order:
//!
//! 1. the failure: not if the answer was "don't retry", nor if it is the application's own failure;
//! 2. repetition: the backend did not process the request, or it is idempotent; and its body is
//!    kept;
//! 3. the limit of attempts: [`RetryConfig::max_attempts`];
//! 4. the deadline: an answer can still arrive before it, after the wait;
//! 5. the retry [`Budget`], shared by all requests to a cluster: it makes a total failure cost a
//!    tenth more, and not three times as much.
//!
//! The budget comes last, so that each withdrawal is used. The [throttle](crate::throttle) comes
//! after it: to the throttle, a retry is an attempt like any other.
//!
//! # Wait
//!
//! There is no wait if the answer said "elsewhere": another backend has its own load. Otherwise the
//! wait is drawn from zero to `base · 2^(retry − 1)`, at most `max` (*full jitter*: clients that
//! failed together must not return together). If the answer names a time (`Retry-After`, pushback),
//! the wait is that time plus such a draw, for the same reason. A time beyond
//! [`RetryConfig::pushback_max`] is not waited for: the caller gets the answer, and may have the time.
//!
//! A limit of the sender is the same at all backends: a rate limit is retried after the time in the
//! answer or not at all, a quota never
//! ([`Rejection::advice_in_answer`](crate::Rejection::advice_in_answer)).
//! [`Waiting`] bounds the requests that wait, and their memory.
//!
//! # The caller's answer
//!
//! Only the layer just above the overloaded one retries. A layer that gives up advises its own
//! caller not to retry: [`GiveUp::caller_answer`]. A layer that throttles a request answers `throttled`,
//! which also says so ([`Failure::Throttled`] for the caller).
//!
//! [`hedge`] sends a second attempt while the first is unanswered, from the same budget.

mod attempts;
mod budget;
mod decision;
pub mod hedge;
mod jitter;
mod waiting;

pub use attempts::MaxAttempts;
pub use budget::{Budget, BudgetConfig, Withdrawal};
pub use decision::{
    Advice, Attempt, CallerAnswer, Failure, GiveUp, Repeat, RetryConfig, RetryPlan, RetryTarget, Verdict,
};
pub use waiting::{Places, Waiting};
