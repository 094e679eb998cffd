//! The retry budget of a client, shared by its tasks.

use std::fmt;
use std::sync::{Arc, Mutex};

use plimsoll_core::retry::{Attempt, Budget, BudgetConfig, GiveUp, RetryConfig, RetryPlan, Withdrawal};
use plimsoll_core::{Operation, Ratio, Timestamp};
use rand_pcg::Pcg64Mcg;

use crate::clock::Clock;
use crate::lock::lock;
use crate::random;

/// The retry budget of one client toward one cluster. Clones share it.
///
/// A deposit is made once a request, at any number of attempts. Retries are at most a tenth of the
/// requests, or two in some ten seconds.
///
/// A fifth, and one budget for two layers:
///
/// ```
/// use plimsoll_tower::plimsoll_core::Ratio;
/// use plimsoll_tower::plimsoll_core::retry::BudgetConfig;
/// use plimsoll_tower::{ByResult, RetryBudget, RetryLayer};
///
/// let share = Ratio::new(0.2).expect("a share");
/// let fifth = BudgetConfig { share, ..BudgetConfig::default() };
/// let budget = RetryBudget::new(fifth);
/// let reads = RetryLayer::new(ByResult).budget(budget.clone());
/// let writes = RetryLayer::new(ByResult).budget(budget);
/// ```
#[derive(Clone)]
pub struct RetryBudget {
    shared: Arc<Shared>,
}

struct Shared {
    clock: Clock,
    state: Mutex<(Budget, Pcg64Mcg)>,
}

impl RetryBudget {
    /// A budget without requests.
    #[must_use]
    pub fn new(config: BudgetConfig) -> Self {
        Self::with_credit(config, 0)
    }

    /// A budget with the deposits of this number of requests: a client that has just started is
    /// more likely to meet a failing backend.
    #[must_use]
    pub fn with_credit(config: BudgetConfig, requests: u32) -> Self {
        let clock = Clock::start();
        let budget = Budget::new(clock.now(), config).with_credit(requests);
        Self { shared: Arc::new(Shared { clock, state: Mutex::new((budget, random::generator())) }) }
    }

    /// The used share of the budget, for display.
    #[must_use]
    pub fn used(&self) -> Ratio {
        let now = self.now();
        lock(&self.shared.state).0.used(now)
    }

    pub(super) fn now(&self) -> Timestamp {
        self.shared.clock.now()
    }

    /// Counts a request that begins. Returns the time.
    pub(super) fn begin(&self, operation: Operation) -> Timestamp {
        let now = self.now();
        lock(&self.shared.state).0.on_request(now, operation);
        now
    }

    /// Decides on a retry after a failed attempt.
    pub(super) fn plan(&self, config: &RetryConfig, attempt: &Attempt) -> Result<(RetryPlan, Withdrawal), GiveUp> {
        let now = self.now();
        let (budget, rng) = &mut *lock(&self.shared.state);
        config.plan(now, attempt, budget, rng)
    }

    pub(super) fn refund(&self, withdrawal: Withdrawal) {
        lock(&self.shared.state).0.refund(withdrawal);
    }
}

/// Deposits are of requests, so a policy calls `deposit` once for each, when it begins.
#[cfg(feature = "tower_0_5")]
impl tower::retry::budget::Budget for RetryBudget {
    fn deposit(&self) {
        self.begin(Operation::UNKNOWN);
    }

    fn withdraw(&self) -> bool {
        let now = self.now();
        lock(&self.shared.state).0.take(now, Operation::UNKNOWN)
    }
}

impl Default for RetryBudget {
    fn default() -> Self {
        Self::new(BudgetConfig::default())
    }
}

impl fmt::Debug for RetryBudget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RetryBudget").field("used", &self.used()).finish_non_exhaustive()
    }
}
