//! Admission: which requests a server takes on, and what those it turns away are told.
//!
//! A server that takes on more than it can do does less than it could: requests wait until nobody wants their answers any more,
//! and the work on them was for nothing (SRE ch. 21, CRE). So it turns some away while they have cost next to nothing yet, and
//! it matters which.
//!
//! - [`Gate`] is what a server asks: the first of the following, with what it has to know.
//! - [`Observed`] is what can be told to a gate of a server that is another process.
//! - [`Narrow`] tells when such a server can use less of its CPUs than there are.
//! - [`Limits`] keeps each customer that has a hard limit within it, whatever the load: its [`Quota`].
//! - [`Ranked`] gives up the least important first, knowing what requests cost.
//! - [`Queue`] is for servers that can work on so many at a time, whatever these use: who is next.
//! - [`cohort`](cohort()) has requests that belong together taken on or turned away together.
//! - [`Procrustean`] gives up a share of all alike, knowing nothing of them: the simplest that works, and what the other one is
//!   measured against.
//! - [`Coalescing`] lets a thread that turns many away do so to several at a time.

mod account;
mod attempts;
mod backlog;
mod coalescing;
mod cohort;
mod gate;
mod limits;
mod narrow;
mod outside;
mod procrustean;
mod queue;
mod quota;
mod ranked;
#[cfg(test)]
mod tests;
mod usage;

use core::time::Duration;

use crate::{Criticality, Timestamp, Weight};

pub use coalescing::Coalescing;
pub use cohort::cohort;
pub use gate::{Arrival, Entry, Gate, Mode, Seen};
pub use limits::{Charge, Limits, Standing};
pub use narrow::Narrow;
pub use outside::{Flow, Observed, Outside};
pub use procrustean::{Procrustean, ProcrusteanConfig};
pub use queue::{Entered, Gone, Queue, QueueConfig};
pub use quota::{InvalidQuota, Quota};
pub use ranked::{Outlook, Ranked, RankedConfig};

/// What is known of a request that asks to be taken on.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ask {
    /// How bad it is to lose it.
    pub criticality: Criticality,
    /// Whose it is: any number that is always the same for one customer, and seldom for two, such as a hash of the name.
    pub customer: u64,
    /// What its customer is entitled to, beside other customers: [`Quota::share`].
    pub share: Weight,
    /// What it is expected to cost, in CPU-seconds; above zero.
    pub cost: f64,
    /// The part of that which is spent for it as for any other, and not by its own code: no reason to expect a late answer.
    pub overhead: f64,
    /// After this its answer is of no use.
    pub deadline: Option<Timestamp>,
    /// Requests of one cohort, such as a user's session, are taken on or turned away together: [`cohort`](cohort()), or any number
    /// that is the same for all of them and changes now and then, or the unlucky stay so. `None`: each by itself.
    pub cohort: Option<u64>,
    /// Whether it was turned away or failed before, here or elsewhere.
    pub is_retry: bool,
}

/// What becomes of a request that asks.
#[derive(Debug, PartialEq)]
#[must_use]
pub enum Verdict {
    /// It is taken on; once it is over, [`Ranked::finish`] is to be told.
    Admit(Admission),
    /// It is turned away.
    Shed(Shed),
}

/// A request that was taken on.
#[derive(Debug, PartialEq)]
#[must_use]
pub struct Admission {
    criticality: Criticality,
    /// CPU-seconds that it is counted with, and that it is known to have used.
    counted: f64,
    used: f64,
}

/// Why a request is turned away, and what is said of trying again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shed {
    /// Why.
    pub reason: Reason,
    /// Whether to try again.
    pub retry: Retry,
}

/// Why a request is turned away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// There is more to do than can be done.
    Overloaded,
    /// Its deadline has passed, or will have before it could be answered.
    Deadline,
    /// Its customer has used up what it may, whatever else there is to do.
    Quota,
}

/// Whether a request that was turned away may be tried again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Retry {
    /// At another backend, at once.
    Elsewhere,
    /// Here or elsewhere, after so long: at random for each, so that not all come at once.
    After(Duration),
    /// Nowhere: others have as much to do, or nobody would want the answer.
    Never,
}

/// How near requests of some criticality are to being turned away.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Pressure {
    /// Not near.
    #[default]
    None,
    /// Some may soon be, or are: answers that cost less leave room for more.
    Degrade,
    /// Most are.
    Severe,
}

impl Pressure {
    /// Of a queue that is full at 1, and at 0 when the first are turned away.
    fn of(near: f64) -> Self {
        if near <= 0.0 {
            Self::None
        } else if near < 0.5 {
            Self::Degrade
        } else {
            Self::Severe
        }
    }
}

impl Shed {
    /// Of one whose deadline has passed, or will have.
    pub const DEADLINE: Self = Self { reason: Reason::Deadline, retry: Retry::Never };

    const fn overloaded(retry: Retry) -> Self {
        Self { reason: Reason::Overloaded, retry }
    }
}
