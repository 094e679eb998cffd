//! The decisions of a client: those of the core's throttle and retries ([`Retrier`]), or of a
//! reference.

use plimsoll_core::retry;
use plimsoll_core::throttle::{Multiple, Outcome, Throttle, ThrottlePolicy, Verdict};
use plimsoll_core::{Criticality, Timestamp};
use rand_pcg::Pcg64Mcg;

use crate::experiment::tiers::plan::{Arm, Holding};
use crate::kernel::streams::unit;
use crate::model::retries::{Next, Retrier};
use crate::reference::admission_control::AdmissionControl;

/// A client of a tier.
pub(super) struct Caller {
    throttle: Holds,
    retrier: Retrier,
}

enum Holds {
    Core(Box<Throttle>),
    AdmissionControl(AdmissionControl),
}

impl Caller {
    pub(super) fn new(now: Timestamp, arm: &Arm) -> Self {
        let k = |k| Multiple::new(k).expect("the plan's K is within its range");
        let throttle = |policy| Holds::Core(Box::new(Throttle::new(now, policy)));
        Self {
            throttle: match arm.throttle {
                Holding::Off => throttle(ThrottlePolicy::Off),
                Holding::Adaptive { k: of, window } => throttle(ThrottlePolicy::Adaptive { k: k(of), window }),
                Holding::Paced { k: of } => throttle(ThrottlePolicy::Paced { k: k(of) }),
                Holding::AdmissionControl => Holds::AdmissionControl(AdmissionControl::default()),
            },
            retrier: Retrier::new(now, arm.retries),
        }
    }

    pub(super) fn begin(&mut self, now: Timestamp) {
        self.retrier.begin(now);
    }

    /// Whether an attempt is sent.
    pub(super) fn sends(&mut self, now: Timestamp, criticality: Criticality, rng: &mut Pcg64Mcg) -> bool {
        match &mut self.throttle {
            Holds::Core(throttle) => matches!(throttle.ask(now, criticality, rng), Verdict::Send(_)),
            Holds::AdmissionControl(control) => unit(rng) >= control.probability(now),
        }
    }

    pub(super) fn on_outcome(&mut self, now: Timestamp, criticality: Criticality, outcome: Outcome) {
        match &mut self.throttle {
            Holds::Core(throttle) => throttle.on_outcome(now, criticality, outcome),
            Holds::AdmissionControl(control) => control.on_outcome(now, outcome == Outcome::Accepted),
        }
    }

    /// A retry that was granted was not sent.
    pub(super) fn was_held(&mut self) {
        self.retrier.give_back();
    }

    pub(super) fn decide(&mut self, now: Timestamp, attempt: &retry::Attempt, rng: &mut Pcg64Mcg) -> Next {
        self.retrier.decide(now, attempt, rng)
    }
}
