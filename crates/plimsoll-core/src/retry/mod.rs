//! Retries: whether a request that failed is sent again, when and where.
//!
//! A retry is load that nobody asked for. One in a hundred that fails for a reason of its own backend is well served by it; when
//! everything fails, three attempts each are three times the load on what is down already, and through three services that all do so, 27
//! times (SRE ch. 21, "Deciding to Retry"; Bronson et al., "Metastable Failures in Distributed Systems", HotOS 2021, on why such a load
//! goes on when its cause is gone). So a request is tried again only if each of these agrees, in this order:
//!
//! 1. what failed says so: not where the answer was "don't retry", nor where it is the application's own failure;
//! 2. it may be sent twice: the backend did not look at it, or it is idempotent; and it still can be, its body being kept;
//! 3. it has attempts left: [`RetryConfig::max_attempts`];
//! 4. it can still be answered before its deadline, having waited;
//! 5. the client can afford it: [`Budget`], shared by all requests to a cluster, so that a total failure costs a tenth more and not three
//!    times as much.
//!
//! The budget is asked last, so that nothing is taken from it in vain. Whether the [throttle](crate::throttle) lets the attempt through
//! is asked after it: a retry is an attempt like any other there.
//!
//! # When
//!
//! At once where the other end said "elsewhere": another backend has its own load. Otherwise after a wait drawn from
//! nothing to `base · 2^(retry − 1)`, at most `max` (*full jitter*: clients that failed together must not return together). When the
//! answer names a time (`Retry-After`, pushback), after that time, and up to the first wait more for the same reason.
//!
//! # What the caller is told
//!
//! Only the layer just above what is overloaded retries. Whoever gives up tells its own caller not to try: [`GiveUp::tells`]. Whose
//! throttle holds a request back answers `throttled`, which says so, too ([`Failure::HeldBack`] for the caller).
//!
//! [`hedge`] sends a second attempt while the first has not failed, behind the same budget.

mod attempts;
mod budget;
mod decision;
pub mod hedge;
mod jitter;

pub use attempts::MaxAttempts;
pub use budget::{Budget, BudgetConfig};
pub use decision::{Advice, Again, Attempt, Failure, GiveUp, Repeat, RetryConfig, Tells, Verdict, Where};
