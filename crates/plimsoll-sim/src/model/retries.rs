//! Whether a client sends again what has failed: as the core decides, or what that is compared with.

use std::time::Duration;

use plimsoll_core::retry::{self, Budget, BudgetConfig, MaxAttempts, RetryConfig};
use plimsoll_core::{Operation, Ratio, Timestamp};
use rand_pcg::Pcg64Mcg;

/// Whether clients send again what has failed.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Retries {
    /// Never.
    #[default]
    None,
    /// At once, whatever the answer says, and its own caller is told nothing but that it failed.
    Naive {
        /// Attempts, the first included.
        attempts: u32,
    },
    /// As [`RetryConfig`](plimsoll_core::retry::RetryConfig) decides: behind a budget, as the answer says, within the deadline, which is
    /// passed on; and who gives up tells its caller.
    Budgeted {
        /// Attempts, the first included.
        attempts: u32,
        /// Retries, as a share of the requests.
        share: Ratio,
    },
}

/// What one client has left to retry with.
#[derive(Clone, Debug)]
pub(crate) struct Retrier {
    retries: Retries,
    budget: Budget,
}

/// What is to be done about an attempt that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    Again(retry::RetryPlan),
    /// The request has failed; whether whoever it is for is told not to try again.
    GiveUp(retry::CallerAnswer),
}

impl Retrier {
    pub(crate) fn new(now: Timestamp, retries: Retries) -> Self {
        let share = if let Retries::Budgeted { share, .. } = retries { share } else { BudgetConfig::DEFAULT_SHARE };
        Self { retries, budget: Budget::new(now, BudgetConfig { share, ..BudgetConfig::default() }) }
    }

    /// A request begins.
    pub(crate) fn begin(&mut self, now: Timestamp) {
        self.budget.on_request(now, Operation::UNKNOWN);
    }

    /// A retry that was granted was not sent.
    pub(crate) fn give_back(&mut self) {
        self.budget.give_back(Operation::UNKNOWN);
    }

    pub(crate) fn decide(&mut self, now: Timestamp, attempt: &retry::Attempt, rng: &mut Pcg64Mcg) -> Next {
        let at_once = retry::RetryPlan { wait: Duration::ZERO, at: retry::RetryTarget::OtherBackend };
        match self.retries {
            Retries::None => Next::GiveUp(retry::CallerAnswer::Answer),
            Retries::Naive { attempts } if attempt.number < attempts => Next::Again(at_once),
            Retries::Naive { .. } => Next::GiveUp(retry::CallerAnswer::Answer),
            Retries::Budgeted { attempts, .. } => {
                let max_attempts = u8::try_from(attempts).ok().and_then(MaxAttempts::new);
                let max_attempts = max_attempts.expect("the plan's attempts are within their range");
                let mut config = RetryConfig::default();
                config.max_attempts = max_attempts;
                match config.decide(now, attempt, &mut self.budget, rng) {
                    retry::Verdict::Retry(again) => Next::Again(again),
                    retry::Verdict::GiveUp(why) => Next::GiveUp(why.caller_answer()),
                }
            }
        }
    }
}
