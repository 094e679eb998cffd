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
//! Each criticality has a history of its own: what is turned away at a busy backend is the sheddable, and the critical must not be
//! held back for it. One [`Throttle`] is of one client and one cluster.
//!
//! What counts as accepted: [`Ended`], one table for all who send.

pub mod adaptive;
mod ended;
pub mod paced;
mod silence;

use alloc::boxed::Box;
use core::fmt;
use core::time::Duration;

use rand_core::Rng;

pub use self::ended::{Ended, Wait};
pub use self::silence::Silence;
use crate::{Criticality, Ratio, Timestamp};

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
    /// The backend was overloaded, out of reach, or did not answer for long.
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
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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
    histories: Histories,
}

/// By [`Criticality::rank`].
#[derive(Clone, Debug)]
#[expect(
    clippy::large_enum_variant,
    reason = "what nearly everybody has stands in place: it is asked for each request"
)]
enum Histories {
    Off,
    /// Two kilobytes, which nobody should carry who has another policy.
    Adaptive(Box<[adaptive::History; Criticality::ALL.len()]>),
    Paced([paced::Pace; Criticality::ALL.len()]),
}

impl Throttle {
    /// One that has seen nothing yet, and holds nothing back. Allocates, once.
    #[must_use]
    pub fn new(now: Timestamp, policy: ThrottlePolicy) -> Self {
        let histories = match policy {
            ThrottlePolicy::Off => Histories::Off,
            ThrottlePolicy::Adaptive { window, .. } => {
                let history = adaptive::History::new(now, window);
                Histories::Adaptive(Box::new([history; Criticality::ALL.len()]))
            }
            ThrottlePolicy::Paced { k } => Histories::Paced([paced::Pace::new(now, k); Criticality::ALL.len()]),
        };
        Self { policy, histories }
    }

    /// Whether a request of this criticality is sent. Ask once for each attempt that is about to be sent, retries and hedges among
    /// them: they are load like any other.
    pub fn ask(&mut self, now: Timestamp, criticality: Criticality, rng: &mut impl Rng) -> Verdict {
        match (&mut self.histories, self.policy) {
            (Histories::Adaptive(of), ThrottlePolicy::Adaptive { k, .. }) => of[criticality.rank()].ask(now, k, rng),
            (Histories::Paced(of), _) => of[criticality.rank()].ask(now, rng),
            _ => Verdict::Send(Sent::Ordinary),
        }
    }

    /// What became of a request that was sent; once for each.
    pub fn on_outcome(&mut self, now: Timestamp, criticality: Criticality, outcome: Outcome) {
        match (&mut self.histories, self.policy) {
            (Histories::Adaptive(of), _) => of[criticality.rank()].on_outcome(now, outcome),
            (Histories::Paced(of), ThrottlePolicy::Paced { k }) => of[criticality.rank()].on_outcome(now, k, outcome),
            _ => {}
        }
    }

    /// The share of requests of this criticality that is held back now. For those who look; [`Throttle::ask`] decides.
    #[must_use]
    pub fn held(&self, now: Timestamp, criticality: Criticality) -> Ratio {
        match (&self.histories, self.policy) {
            (Histories::Adaptive(of), ThrottlePolicy::Adaptive { k, .. }) => of[criticality.rank()].held(now, k),
            (Histories::Paced(of), _) => of[criticality.rank()].held(),
            _ => Ratio::ZERO,
        }
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
