//! Who decides for a client: the core's throttle and retries, or what they are compared with.

use plimsoll_core::retry::{self, Budget, BudgetConfig, MaxAttempts, RetryConfig};
use plimsoll_core::throttle::{Multiple, Outcome, Throttle, ThrottlePolicy, Verdict};
use plimsoll_core::{Criticality, Timestamp};
use rand_pcg::Pcg64Mcg;

use crate::experiment::tiers::plan::{Arm, Holding, Retries};
use crate::kernel::streams::unit;
use crate::model::admission_control::AdmissionControl;

/// A client of a tier.
pub(super) struct Caller {
    throttle: Holds,
    budget: Budget,
    retries: Retries,
}

enum Holds {
    Core(Box<Throttle>),
    AdmissionControl(AdmissionControl),
}

/// What is to be done about an attempt that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    Again(retry::Again),
    /// The request has failed; whether whoever it is for is told not to try again.
    GiveUp(retry::Tells),
}

impl Caller {
    pub(super) fn new(now: Timestamp, arm: &Arm) -> Self {
        let k = |k| Multiple::new(k).expect("the plan's K is within its range");
        let throttle = |policy| Holds::Core(Box::new(Throttle::new(now, policy)));
        let share = if let Retries::Budgeted { share, .. } = arm.retries { share } else { BudgetConfig::DEFAULT_SHARE };
        Self {
            throttle: match arm.throttle {
                Holding::Off => throttle(ThrottlePolicy::Off),
                Holding::Adaptive { k: of, window } => throttle(ThrottlePolicy::Adaptive { k: k(of), window }),
                Holding::Paced { k: of } => throttle(ThrottlePolicy::Paced { k: k(of) }),
                Holding::AdmissionControl => Holds::AdmissionControl(AdmissionControl::default()),
            },
            budget: Budget::new(now, BudgetConfig { share, ..BudgetConfig::default() }),
            retries: arm.retries,
        }
    }

    pub(super) fn begin(&mut self, now: Timestamp) {
        self.budget.on_request(now);
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
        self.budget.give_back();
    }

    pub(super) fn decide(&mut self, now: Timestamp, attempt: &retry::Attempt, rng: &mut Pcg64Mcg) -> Next {
        let at_once = retry::Again { wait: std::time::Duration::ZERO, at: retry::Where::Elsewhere };
        match self.retries {
            Retries::None => Next::GiveUp(retry::Tells::Answer),
            Retries::Naive { attempts } if attempt.number < attempts => Next::Again(at_once),
            Retries::Naive { .. } => Next::GiveUp(retry::Tells::Answer),
            Retries::Budgeted { attempts, .. } => {
                let max_attempts = u8::try_from(attempts).ok().and_then(MaxAttempts::new);
                let max_attempts = max_attempts.expect("the plan's attempts are within their range");
                let config = RetryConfig { max_attempts, ..RetryConfig::default() };
                match config.decide(now, attempt, &mut self.budget, rng) {
                    retry::Verdict::Again(again) => Next::Again(again),
                    retry::Verdict::GiveUp(why) => Next::GiveUp(why.tells()),
                }
            }
        }
    }
}
