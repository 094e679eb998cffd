//! Client-side throttling: whether a client sends a request at all (SRE ch. 21, "Client-Side
//! Throttling").
//!
//! An overloaded backend spends resources even on rejections, and at some multiple of its capacity
//! it does nothing else. A client that sees many rejections can spare it that: it fails some of its
//! requests itself, before the network. Both policies keep the same bound: a backend that accepts c
//! requests a second is sent K · c, at any offered rate. Clients learn from the rejected ones among
//! them, so the price is K − 1 rejections for each accepted request.
//!
//! - [`adaptive`] is the book's: a probability from the counts of two minutes.
//! - [`paced`] follows each outcome, so it reacts to an outage within seconds, and to its end
//!   within seconds.
//!
//! Each criticality has a history of its own: a busy backend sheds sheddable requests, and critical
//! ones must not be throttled for it. Each rejected [operation](Operation) has a history too: a
//! failing endpoint throttles itself and not the others. One [`Throttle`] serves one client and one
//! cluster.
//!
//! [`AttemptEvidence`] defines the accepted outcomes, in one table for all senders.

pub mod adaptive;
mod draw;
mod evidence;
mod history;
mod operations;
pub mod paced;
mod quiet;
mod sent;
mod silence;

use core::fmt;
use core::time::Duration;

use self::draw::Draw;
pub use self::evidence::{AttemptEvidence, Loss, Wait};
use self::history::History;
use self::operations::{Operations, OutcomeCount};
pub use self::sent::SentRequest;
pub use self::silence::Silence;
use crate::{Criticality, Operation, Random, Ratio, Timestamp};

/// K: the multiple of accepted requests that a client sends when it cannot send all.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd)]
pub struct Multiple(f64);

impl Multiple {
    /// The K of SRE ch. 21: one of two sent requests is accepted, so the client's knowledge of the
    /// backend is always fresh. A lower K suits backends for which a rejection costs nearly as much
    /// as an answer. Its price is that the client learns of headroom later.
    pub const DEFAULT: Self = Self(2.0);
    /// At 1 a client could never learn of more capacity; above 10 it throttles hardly anything.
    pub const RANGE: core::ops::RangeInclusive<f64> = 1.01..=10.0;

    /// `value` as a multiple, or `None` outside [`Multiple::RANGE`].
    #[must_use]
    pub fn new(value: f64) -> Option<Self> {
        Self::RANGE.contains(&value).then_some(Self(value))
    }

    /// The multiple as a number.
    #[must_use]
    pub const fn as_f64(self) -> f64 {
        self.0
    }
}

impl Default for Multiple {
    fn default() -> Self {
        Self::DEFAULT
    }
}

impl fmt::Display for Multiple {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// Rule by which a client throttles.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ThrottlePolicy {
    /// No throttling.
    Off,
    /// By equation 21-1: [`adaptive`].
    Adaptive {
        /// K.
        k: Multiple,
        /// Length of the window in which a request counts; [`adaptive::DEFAULT_WINDOW`].
        window: Duration,
    },
    /// By each outcome: [`paced`].
    Paced {
        /// K.
        k: Multiple,
    },
}

impl ThrottlePolicy {
    /// The policy's name in configs and metrics.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Adaptive { .. } => "adaptive",
            Self::Paced { .. } => "paced",
        }
    }
}

impl Default for ThrottlePolicy {
    /// `paced`, which reacts within seconds.
    fn default() -> Self {
        Self::Paced { k: Multiple::DEFAULT }
    }
}

/// Outcome of a sent request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The backend accepted the request, with any answer.
    Accepted,
    /// The backend was overloaded, or long silent toward all callers.
    Rejected,
    /// No evidence: the request was taken back before any, or the backend was unreachable.
    Unknown,
}

/// Decision on a request.
#[derive(Clone, Copy, Debug, PartialEq)]
#[must_use]
pub enum Verdict {
    /// Send it, and report its outcome to [`Throttle::on_outcome`] once.
    Send(SendKind),
    /// Throttle it: it fails here, and has no outcome to report.
    Throttle(ThrottledShare),
}

/// Reason for sending a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum SendKind {
    /// Nothing is throttled now, or the random draw let this one through.
    Ordinary,
    /// Nothing was sent for long, so this request tests whether the backend has recovered.
    Probe,
}

/// A throttled request.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ThrottledShare {
    /// The share of such requests that is throttled now.
    pub share: Ratio,
}

/// The throttle of one client toward one cluster.
///
/// ```
/// use plimsoll_core::throttle::{Outcome, Throttle, ThrottlePolicy};
/// use plimsoll_core::{Criticality, Operation, Timestamp};
///
/// let mut rng = rand_pcg::Pcg64Mcg::new(1);
/// let mut throttle = Throttle::new(Timestamp::ZERO, ThrottlePolicy::default());
/// let mut sent = 0;
/// for millis in 0..5_000 {
///     let now = Timestamp::from_nanos(millis * 1_000_000);
///     if let Ok(request) = throttle.begin(now, Criticality::Critical, Operation::UNKNOWN, &mut rng) {
///         sent += 1; // to a backend that rejects everything
///         throttle.end(now, request, Outcome::Rejected);
///     }
/// }
/// assert!(sent < 500, "{sent} of 5,000 requests were sent");
/// ```
#[derive(Clone, Debug)]
pub struct Throttle {
    policy: ThrottlePolicy,
    /// The cluster's histories, by [`Criticality::rank`]; `None` if throttling is off.
    cluster: Option<[Cluster; Criticality::ALL.len()]>,
    operations: Operations,
}

/// The cluster's behaviour towards requests of one criticality.
#[derive(Clone, Debug)]
struct Cluster {
    history: History,
    heard: OutcomeCount,
    /// Requests, and the throttled ones among them. Counted while operations are in trouble and
    /// just after.
    requests: OutcomeCount,
    throttled: OutcomeCount,
}

impl Cluster {
    fn new(now: Timestamp, history: History) -> Self {
        let [heard, requests, throttled] = [OutcomeCount::new(now); 3];
        Self { history, heard, requests, throttled }
    }

    /// The share of requests throttled in the last seconds, for their operations among other
    /// reasons.
    fn recent_throttled_share(&self, now: Timestamp) -> Ratio {
        let requests = self.requests.count(now);
        ratio(self.throttled.count(now) / requests.max(1.0))
    }
}

impl Throttle {
    /// A throttle without history, which sends everything.
    #[must_use]
    pub fn new(now: Timestamp, policy: ThrottlePolicy) -> Self {
        let cluster = History::new(now, policy).map(|history| Cluster::new(now, history));
        let cluster = cluster.map(|cluster| [(); Criticality::ALL.len()].map(|()| cluster.clone()));
        Self { policy, cluster, operations: Operations::default() }
    }

    /// Decides on a request of this criticality. Ask once for each attempt before sending it,
    /// retries and hedges included: they are load like any other.
    pub fn ask(&mut self, now: Timestamp, criticality: Criticality, rng: &mut impl Random) -> Verdict {
        self.ask_for(now, criticality, Operation::UNKNOWN, rng)
    }

    /// As [`ask`](Self::ask), for a request of this operation. It is sent if neither the operation
    /// nor the cluster throttles it.
    pub fn ask_for(
        &mut self,
        now: Timestamp,
        criticality: Criticality,
        operation: Operation,
        rng: &mut impl Random,
    ) -> Verdict {
        let Some(cluster) = &mut self.cluster else { return Verdict::Send(SendKind::Ordinary) };
        let Cluster { history: cluster, heard, requests, throttled } = &mut cluster[criticality.rank()];
        let is_trouble = !self.operations.is_empty() || throttled.is_recent(now);
        if is_trouble {
            requests.add(now);
        }
        // The ratio of `adaptive` has no headroom: after four rejections and no accept it would
        // throttle four of five.
        let is_enough = !operation.is_known()
            || matches!(self.policy, ThrottlePolicy::Paced { .. })
            || heard.count(now) >= operations::ENOUGH;
        let (operation, draw) = (operation.of(criticality), &mut Draw::new(rng));
        if let Some(share) = self.operations.throttle(now, operation, draw) {
            throttled.add(now);
            return Verdict::Throttle(ThrottledShare { share });
        }
        let sent = match cluster.judge(now, draw) {
            Some(sent) => sent,
            None if !is_enough => SendKind::Ordinary,
            None => {
                cluster.on_throttled();
                if is_trouble {
                    throttled.add(now);
                }
                return Verdict::Throttle(ThrottledShare { share: cluster.throttled_share(now) });
            }
        };
        cluster.on_sent(now, sent, draw);
        Verdict::Send(self.operations.send(now, operation, draw).map_or(sent, |other| sent.max(other)))
    }

    /// Reports the outcome of a sent request; once for each.
    pub fn on_outcome(&mut self, now: Timestamp, criticality: Criticality, outcome: Outcome) {
        self.on_outcome_of(now, criticality, Operation::UNKNOWN, outcome);
    }

    /// As [`on_outcome`](Self::on_outcome), for a request of this operation. The cluster hears of
    /// it unless the operation fails alone.
    pub fn on_outcome_of(&mut self, now: Timestamp, criticality: Criticality, operation: Operation, outcome: Outcome) {
        let Some(cluster) = &mut self.cluster else { return };
        let Cluster { history, heard, .. } = &mut cluster[criticality.rank()];
        let parent = (heard.count(now), history.is_in_outage(now));
        let told = self.operations.on_outcome(now, operation.of(criticality), outcome, parent, self.policy);
        if told != Outcome::Unknown {
            heard.add(now);
        }
        history.on_outcome(now, told);
    }

    /// The throttled share of requests of this criticality: the larger of the cluster's share now
    /// and the operations' share in the last seconds. For display; [`Throttle::ask`] decides.
    #[must_use]
    pub fn throttled_share(&self, now: Timestamp, criticality: Criticality) -> Ratio {
        let Some(cluster) = &self.cluster else { return Ratio::ZERO };
        let cluster = &cluster[criticality.rank()];
        let (of_all, lately) = (cluster.history.throttled_share(now), cluster.recent_throttled_share(now));
        if of_all > lately { of_all } else { lately }
    }

    /// The policy in use.
    #[must_use]
    pub const fn policy(&self) -> ThrottlePolicy {
        self.policy
    }
}

/// A probability, clamped after rounding.
fn ratio(share: f64) -> Ratio {
    Ratio::new(share.clamp(0.0, 1.0)).unwrap_or(Ratio::ZERO)
}
