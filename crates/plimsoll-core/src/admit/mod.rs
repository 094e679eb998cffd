//! Admission: which requests a server admits, and the advice that shed requests get.
//!
//! An overloaded server that admits everything does less than it could. Requests wait until their
//! callers have left, and the work on them is wasted (SRE ch. 21, CRE). So a server sheds some of
//! them while they have cost next to nothing, and the choice of them matters.
//!
//! - [`Gate`] is the entry point of a server. It combines the modules below with the measurements
//!   that they need.
//! - [`ProcessObserver`] measures a server that is another process, for its gate.
//! - [`Limits`] keeps each customer with a hard limit within it, at any load: its [`Quota`].
//! - [`RankedAdmission`] sheds the least important requests first. It knows the costs of requests.
//! - [`Queue`] is for servers with a limit on requests in progress, at any cost of these. It
//!   chooses the next one.
//! - [`cohort`](cohort()) makes requests that belong together be admitted or shed together.
//! - [`Coalescing`] lets a thread that sheds many requests shed several at a time.

mod account;
mod attempts;
mod backlog;
mod coalescing;
mod cohort;
mod gate;
mod limits;
mod process_observer;
mod queue;
mod quota;
mod ranked;
#[cfg(test)]
mod tests;
mod usage;

use core::time::Duration;

use crate::retry::Advice;
use crate::{Criticality, Rejection, Timestamp};

pub use crate::outlook::Outlook;
pub use coalescing::Coalescing;
pub use cohort::cohort;
pub use gate::{Arrival, Entry, Gate, GateVerdict, Mode, Observation};
pub use limits::{Charge, Limits, Standing};
pub use process_observer::{Flow, ProcessCounters, ProcessObserver};
pub use queue::{AbandonedWait, Queue, QueueConfig, QueueVerdict};
pub use quota::{InvalidQuota, Quota};
pub use ranked::{AdmissionConfig, RankedAdmission};

/// A request that asks for admission.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ask {
    /// How bad it is to lose the request.
    pub criticality: Criticality,
    /// The customer: any number that is always the same for one customer and seldom for two, such
    /// as a hash of its name.
    pub customer: u64,
    /// The customer's share beside other customers, above 0: [`Quota::share`], or that of the fleet.
    pub share: f64,
    /// The customer's demand at this criticality, in CPUs, where it is known beyond this server: that at a mean one.
    /// `None`: it is measured here.
    pub demand: Option<f64>,
    /// Expected cost, in CPU-seconds; above zero.
    pub cost: f64,
    /// The part of `cost` outside the request's own code, as any request has it. It is no reason to
    /// expect a late answer.
    pub overhead: f64,
    /// The end of the time in which an answer is useful.
    pub deadline: Option<Timestamp>,
    /// The cohort. Requests of one cohort, such as a user's session, are admitted or shed together:
    /// [`cohort`](cohort()), or any number that is the same for all of them. The number must change
    /// now and then, or an unlucky cohort stays unlucky. `None`: the request is on its own.
    pub cohort: Option<u64>,
    /// Whether the request was shed or failed before, here or elsewhere.
    pub is_retry: bool,
}

/// The decision on a request.
#[derive(Debug, PartialEq)]
#[must_use]
pub enum Verdict {
    /// The request is admitted. Call [`RankedAdmission::finish`] when it ends.
    Admit(Admission),
    /// The request is shed.
    Shed(Shed),
}

/// An admitted request.
#[derive(Debug, PartialEq)]
#[must_use]
pub struct Admission {
    criticality: Criticality,
    /// CPU-seconds that the request counts for, and CPU-seconds that it is known to have used.
    counted: f64,
    used: f64,
}

/// A rejection of a request, with its advice to the caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shed {
    /// The reason, and with it the advice.
    pub reason: Rejection,
    /// The time before a retry here or elsewhere, if the advice has one. It is random for each
    /// request, so that they do not all return at once.
    pub after: Option<Duration>,
}

/// How close the gate is to shedding requests of one criticality.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Pressure {
    /// Not close.
    #[default]
    None,
    /// Some requests are shed, or soon will be. Cheaper answers leave headroom for more.
    Degrade,
    /// Most requests are shed.
    Severe,
}

impl Pressure {
    /// The pressure of a queue: `near` is 0 where shedding begins, and 1 when the queue is full.
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
    /// Shed because the deadline has passed, or would pass before the answer.
    pub const DEADLINE: Self = Self::at_once(Rejection::Deadline);
    /// Shed because of overload; another backend may serve the request.
    pub const OVERLOADED: Self = Self::at_once(Rejection::Overloaded);

    const fn at_once(reason: Rejection) -> Self {
        Self { reason, after: None }
    }

    /// The advice for the retry decision of the caller.
    #[must_use]
    pub const fn advice(self) -> Advice {
        self.reason.advice(self.after)
    }
}
