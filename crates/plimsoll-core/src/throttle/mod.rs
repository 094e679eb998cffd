//! Throttling: whether a client sends a request at all (SRE ch. 21, "Client-Side Throttling").
//!
//! A backend that has too much to do must spend something even on turning requests away, and at some multiple of its capacity that is
//! all it does. A client that sees many of its requests turned away can spare it that, by failing some of them itself, before the
//! network. The bound that both policies keep: a backend that accepts c requests a second is sent K · c, whatever is asked for. The
//! share of those that it turns away is what the clients learn by, so K − 1 rejections for each accepted request is what that costs.
//!
//! - [`adaptive`] is the book's: a probability from what two minutes held.
//! - [`paced`] goes by each outcome, so that an outage is met in seconds, and its end in seconds.
//!
//! Each criticality has a history of its own: a busy backend sheds sheddable requests, and critical
//! ones must not be throttled for it. Each rejected [operation](Operation) has a history too: a
//! failing endpoint throttles itself and not the others (`operations.rs`). One [`Throttle`] is of
//! one client and one cluster.
//!
//! [`Ended`] defines the accepted outcomes, in one table for all senders.

pub mod adaptive;
mod draw;
mod ended;
mod history;
mod operations;
pub mod paced;
mod silence;

use core::fmt;
use core::time::Duration;

use rand_core::Rng;

use self::draw::Draw;
pub use self::ended::{Ended, Loss, Wait};
use self::history::History;
use self::operations::{Heard, Operations};
pub use self::silence::Silence;
use crate::{Criticality, Operation, Ratio, Timestamp};

/// K: how many times what is accepted a client sends, when it cannot send everything.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd)]
pub struct Multiple(f64);

impl Multiple {
    /// The K of SRE ch. 21: of two requests sent one is accepted, so what a client knows of the backend is never old. Lower for
    /// backends to which turning away costs nearly as much as serving, at the price of learning later that there is room.
    pub const DEFAULT: Self = Self(2.0);
    /// At 1 no client could ever learn that more would be accepted; above 10 hardly anything is ever held back.
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

/// How a client holds back.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ThrottlePolicy {
    /// It does not.
    Off,
    /// By equation 21-1: [`adaptive`].
    Adaptive {
        /// K.
        k: Multiple,
        /// How long a request counts; [`adaptive::DEFAULT_WINDOW`].
        window: Duration,
    },
    /// By each outcome: [`paced`].
    Paced {
        /// K.
        k: Multiple,
    },
}

impl ThrottlePolicy {
    /// Its name in configs and metrics.
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
    /// `paced`: it is what the table in `docs/retries.md` favours.
    fn default() -> Self {
        Self::Paced { k: Multiple::DEFAULT }
    }
}

/// What became of a request that was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The backend took it on, whatever it made of it.
    Accepted,
    /// The backend was overloaded, or nobody was answered for long.
    Rejected,
    /// Nothing is known of it: it was taken back before anything could be, or the backend was just not there.
    Unknown,
}

/// Whether a request is sent.
#[derive(Clone, Copy, Debug, PartialEq)]
#[must_use]
pub enum Verdict {
    /// It is. [`Throttle::on_outcome`] is to be told what became of it, once.
    Send(Sent),
    /// It fails here: `throttled`. Nobody is told of it again.
    Hold(Hold),
}

/// Why a request is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Sent {
    /// Nothing is held back now, or this one was drawn to be sent.
    Ordinary,
    /// Nothing had been sent for so long that nobody would notice if the backend were well again.
    Probe,
}

/// Why a request is held back.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Hold {
    /// The share of such requests that is held back now.
    pub share: Ratio,
}

/// Holds requests back: of one client, to one cluster.
#[derive(Clone, Debug)]
pub struct Throttle {
    policy: ThrottlePolicy,
    /// Of the cluster, by [`Criticality::rank`]; `None` where throttling is off.
    cluster: Option<[Cluster; Criticality::ALL.len()]>,
    operations: Operations,
}

/// The cluster's behaviour towards requests of one criticality.
#[derive(Clone, Debug)]
struct Cluster {
    history: History,
    heard: Heard,
    /// Requests, and the throttled ones among them; counted while operations are in trouble, and
    /// just after.
    asked: Heard,
    held: Heard,
}

impl Cluster {
    fn new(now: Timestamp, history: History) -> Self {
        let [heard, asked, held] = [Heard::new(now); 3];
        Self { history, heard, asked, held }
    }

    /// The share of requests throttled in the last seconds, for their operations among other
    /// reasons.
    fn held_lately(&self, now: Timestamp) -> Ratio {
        let asked = self.asked.count(now);
        ratio(self.held.count(now) / asked.max(1.0))
    }
}

impl Throttle {
    /// One that has seen nothing yet, and holds nothing back.
    #[must_use]
    pub fn new(now: Timestamp, policy: ThrottlePolicy) -> Self {
        let cluster = History::new(now, policy).map(|history| Cluster::new(now, history));
        let cluster = cluster.map(|cluster| [(); Criticality::ALL.len()].map(|()| cluster.clone()));
        Self { policy, cluster, operations: Operations::default() }
    }

    /// Whether a request of this criticality is sent. Ask once for each attempt that is about to be sent, retries and hedges among
    /// them: they are load like any other.
    pub fn ask(&mut self, now: Timestamp, criticality: Criticality, rng: &mut impl Rng) -> Verdict {
        self.ask_for(now, criticality, Operation::UNKNOWN, rng)
    }

    /// The same for a request for this operation: it is sent if neither the operation nor the
    /// cluster throttles it.
    pub fn ask_for(
        &mut self,
        now: Timestamp,
        criticality: Criticality,
        operation: Operation,
        rng: &mut impl Rng,
    ) -> Verdict {
        let Some(cluster) = &mut self.cluster else { return Verdict::Send(Sent::Ordinary) };
        let Cluster { history: cluster, heard, asked, held } = &mut cluster[criticality.rank()];
        let is_trouble = !self.operations.is_empty() || held.is_recent(now);
        if is_trouble {
            asked.add(now);
        }
        // The ratio of `adaptive` has no headroom: after four rejections and no accept it would hold back four of five.
        let is_enough = !operation.is_known()
            || matches!(self.policy, ThrottlePolicy::Paced { .. })
            || heard.count(now) >= operations::ENOUGH;
        let (operation, draw) = (operation.of(criticality), &mut Draw::new(rng));
        if let Some(share) = self.operations.hold_back(now, operation, draw) {
            held.add(now);
            return Verdict::Hold(Hold { share });
        }
        let sent = match cluster.judge(now, draw) {
            Some(sent) => sent,
            None if !is_enough => Sent::Ordinary,
            None => {
                cluster.held_back();
                if is_trouble {
                    held.add(now);
                }
                return Verdict::Hold(Hold { share: cluster.held(now) });
            }
        };
        cluster.sent(now, sent, draw);
        Verdict::Send(self.operations.send(now, operation, draw).map_or(sent, |other| sent.max(other)))
    }

    /// What became of a request that was sent; once for each.
    pub fn on_outcome(&mut self, now: Timestamp, criticality: Criticality, outcome: Outcome) {
        self.on_outcome_of(now, criticality, Operation::UNKNOWN, outcome);
    }

    /// The same of a request for this operation. The cluster is told as far as the operation is not alone with it.
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

    /// The throttled share of requests of this criticality. It is the cluster's share now or the
    /// operations' share in the last seconds, whichever is more. For display; [`Throttle::ask`]
    /// decides.
    #[must_use]
    pub fn held(&self, now: Timestamp, criticality: Criticality) -> Ratio {
        let Some(cluster) = &self.cluster else { return Ratio::ZERO };
        let cluster = &cluster[criticality.rank()];
        let (of_all, lately) = (cluster.history.held(now), cluster.held_lately(now));
        if of_all > lately { of_all } else { lately }
    }

    /// What it goes by.
    #[must_use]
    pub const fn policy(&self) -> ThrottlePolicy {
        self.policy
    }
}

/// A probability that rounding may have moved beyond its ends.
fn ratio(share: f64) -> Ratio {
    Ratio::new(share.clamp(0.0, 1.0)).unwrap_or(Ratio::ZERO)
}
