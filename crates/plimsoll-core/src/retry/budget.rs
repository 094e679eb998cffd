//! Retry budget: limits a client's retries to a tenth of its requests, with any failures.
//!
//! ```text
//! allowed  ⇔  retries + 1 ≤ max(share · requests, floor)
//! ```
//!
//! with both sums decaying by half every five seconds. So a total failure that lasts for some
//! seconds raises the load to 1 + share times the ordinary load. A burst of retries is at most
//! share of the requests of some ten seconds. While few requests fail, each gets its retry: up to a
//! tenth may fail before one goes without.
//!
//! The floor is for clients of a few requests a minute, a tenth of which would be no retry at all.
//! It allows two retries in some ten seconds at any rate. It exceeds share · requests only below
//! some three requests a second, so it adds no load to a client that could do harm. Other budgets
//! add a rate on top in place of a floor; the bound would then not hold.
//!
//! # By operation
//!
//! One endpoint that fails all of its requests would use the whole budget. None would be left for a
//! request that meets a backend just as it ends. So the same rule holds for each
//! [operation](Operation) by itself: at most a tenth of its own requests. The remaining budget is a
//! tenth of the others' requests. Nothing is counted for an operation before its first retry, so
//! all requests until then are taken for its own. In a burst it may thus spend the deposits of calm
//! times; within seconds it is at its own tenth.
//!
//! # Alternatives
//!
//! - *A limit on retries in progress* (Envoy's `max_retries`, 3). It does not limit rates: retries
//!   that fail within a millisecond come 3,000 times a second.
//! - *A token for each success* (gRFC A6). It binds only if more than half fail.

use core::time::Duration;

use crate::operation::Table;
use crate::{Operation, Ratio, Timestamp, decay};

/// Half-life of the sums. It is long enough to hold two dozen requests of a client of three a
/// second. It is short enough to spend within seconds a budget that was saved up in calm.
const HALF_LIFE: Duration = Duration::from_secs(5);

/// Interval between two decays of a sum, by 1% each. It saves 15 ns a request.
const TICK: Duration = Duration::from_millis(70);

/// Limits of a retry budget.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BudgetConfig {
    /// Share of the client's requests.
    pub share: Ratio,
    /// Retries in some ten seconds (as they decay) at any rate of requests.
    pub floor: u32,
}

impl BudgetConfig {
    /// The book's tenth: a total failure adds 10% to the load.
    pub const DEFAULT_SHARE: Ratio = Ratio::from_percent(10);
    /// Enough for both retries of one request.
    pub const DEFAULT_FLOOR: u32 = 2;
}

impl Default for BudgetConfig {
    fn default() -> Self {
        Self { share: Self::DEFAULT_SHARE, floor: Self::DEFAULT_FLOOR }
    }
}

/// Retry budget of one client toward one cluster.
///
/// ```
/// use core::time::Duration;
/// use plimsoll_core::retry::{Attempt, Budget, BudgetConfig, Failure, Repeat, RetryConfig};
/// use plimsoll_core::{Operation, Timestamp};
///
/// let (mut rng, now) = (rand_pcg::Pcg64Mcg::new(1), Timestamp::ZERO);
/// let (operation, takes) = (Operation::UNKNOWN, Duration::ZERO);
/// let failed = Attempt {
///     number: 1, failure: Failure::Broken, repeat: Repeat::Safe, deadline: None, operation, takes,
/// };
/// let mut budget = Budget::new(now, BudgetConfig::default());
/// let mut retries = 0;
/// for _ in 0..1_000 {
///     budget.on_request(now, operation);
///     // Its first attempt failed.
///     if let Ok((plan, withdrawal)) = RetryConfig::default().plan(now, &failed, &mut budget, &mut rng) {
///         assert!(plan.wait <= Duration::from_millis(25));
///         withdrawal.spend(); // the retry was sent
///         retries += 1;
///     }
/// }
/// assert_eq!(retries, 100);
/// ```
#[derive(Clone, Debug)]
pub struct Budget {
    config: BudgetConfig,
    all: Counts,
    /// Counts of the operations that were retried lately.
    operations: Table<Counts>,
}

/// A retry that a budget allows, until it is sent or not.
///
/// It is returned once:
///
/// ```compile_fail,E0382
/// # use plimsoll_core::retry::{Budget, BudgetConfig};
/// # use plimsoll_core::{Operation, Timestamp};
/// let mut budget = Budget::new(Timestamp::ZERO, BudgetConfig::default());
/// let withdrawal = budget.withdraw(Timestamp::ZERO, Operation::UNKNOWN).unwrap();
/// budget.refund(withdrawal);
/// budget.refund(withdrawal);
/// ```
#[derive(Debug, PartialEq, Eq)]
#[must_use = "either `Withdrawal::spend` it, or `Budget::refund` it"]
pub struct Withdrawal {
    operation: Operation,
}

impl Withdrawal {
    /// The retry was sent.
    pub fn spend(self) {}
}

/// Requests and retries, decaying.
#[derive(Clone, Copy, Debug)]
struct Counts {
    requests: f64,
    retries: f64,
    at: Timestamp,
}

impl Budget {
    /// A budget without requests.
    #[must_use]
    pub const fn new(now: Timestamp, config: BudgetConfig) -> Self {
        Self { config, all: Counts { requests: 0.0, retries: 0.0, at: now }, operations: Table::new() }
    }

    /// Adds a credit for this number of requests. A client that has just started learns of
    /// overloaded backends by its first requests. Without a history it would fail some of them.
    #[must_use]
    pub fn with_credit(mut self, requests: u32) -> Self {
        self.all.requests = f64::from(requests);
        self
    }

    /// Counts a request when it begins: once for each, at any number of attempts.
    pub fn on_request(&mut self, now: Timestamp, operation: Operation) {
        self.all.decay(now);
        self.all.requests += 1.0;
        if self.operations.is_empty() {
            return;
        }
        for key in operation.keys() {
            if let Some(counts) = self.operations.get_mut(key) {
                counts.decay(now);
                counts.requests += 1.0;
            }
        }
    }

    /// Withdraws one retry or hedge, if one is left.
    pub fn take(&mut self, now: Timestamp, operation: Operation) -> bool {
        self.all.decay(now);
        if !self.all.is_left(&self.config) {
            return false;
        }
        let new = Counts { retries: 0.0, ..self.all };
        let counted = |counts: &Counts| counts.retries * decay::remaining(now, counts.at, HALF_LIFE);
        let is_left = operation.keys().all(|key| {
            let counts = self.operations.get_or_insert(key, counted, || new);
            counts.decay(now);
            counts.is_left(&self.config)
        });
        if is_left {
            self.all.retries += 1.0;
            for key in operation.keys() {
                if let Some(counts) = self.operations.get_mut(key) {
                    counts.retries += 1.0;
                }
            }
        }
        is_left
    }

    /// Returns a withdrawn retry that was not sent: it was throttled, or no backend was usable.
    pub fn give_back(&mut self, operation: Operation) {
        self.all.give_back();
        for key in operation.keys() {
            if let Some(counts) = self.operations.get_mut(key) {
                counts.give_back();
            }
        }
    }

    /// As [`take`](Self::take), with a token: either it is spent, or it is refunded.
    pub fn withdraw(&mut self, now: Timestamp, operation: Operation) -> Option<Withdrawal> {
        self.take(now, operation).then_some(Withdrawal { operation })
    }

    /// Returns a withdrawn retry that was not sent.
    pub fn refund(&mut self, withdrawal: Withdrawal) {
        self.give_back(withdrawal.operation);
    }

    /// The share of the budget that is used. For display.
    #[must_use]
    pub fn used(&self, now: Timestamp) -> Ratio {
        let mut then = self.all;
        then.decay(now);
        let limit = then.limit(&self.config);
        if limit > 0.0 { Ratio::new((then.retries / limit).min(1.0)).unwrap_or(Ratio::ONE) } else { Ratio::ONE }
    }
}

impl Counts {
    fn is_left(&self, config: &BudgetConfig) -> bool {
        self.retries + 1.0 <= self.limit(config)
    }

    fn limit(&self, config: &BudgetConfig) -> f64 {
        (config.share.as_f64() * self.requests).max(f64::from(config.floor))
    }

    fn give_back(&mut self) {
        self.retries = (self.retries - 1.0).max(0.0);
    }

    fn decay(&mut self, now: Timestamp) {
        if now.nanos_since(self.at) < TICK.as_nanos() as u64 {
            return;
        }
        let left = decay::remaining(now, self.at, HALF_LIFE);
        self.requests *= left;
        self.retries *= left;
        self.at = now;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(micros: u64) -> Timestamp {
        Timestamp::from_nanos(micros * 1_000)
    }

    /// Retries per request of a client that fails each request three times, over a minute.
    fn granted(requests_per_second: u64, config: BudgetConfig) -> f64 {
        let mut budget = Budget::new(at(0), config);
        let requests = 60 * requests_per_second;
        let mut retries = 0;
        for request in 0..requests {
            let now = at(request * 1_000_000 / requests_per_second);
            budget.on_request(now, Operation::UNKNOWN);
            retries += (0..2).filter(|_| budget.take(now, Operation::UNKNOWN)).count();
        }
        retries as f64 / requests as f64
    }

    #[test]
    fn total_failure_adds_a_tenth_to_the_load() {
        for rate in [3, 10, 1_000] {
            let granted = granted(rate, BudgetConfig::default());
            // Retries are whole: one is less than a tenth of the remembered requests, those of 7.2
            // s.
            assert!((0.06..=0.105).contains(&granted), "{granted} at {rate} a second");
        }
        assert!((0.099..=0.1).contains(&granted(1_000, BudgetConfig::default())));
    }

    #[test]
    fn slow_client_gets_its_retries_from_the_floor() {
        let mut budget = Budget::new(at(0), BudgetConfig::default());
        for minute in 0..10 {
            let now = at(minute * 60_000_000);
            budget.on_request(now, Operation::UNKNOWN);
            assert_eq!(
                [(); 3].map(|()| budget.take(now, Operation::UNKNOWN)),
                [true, minute == 0, false],
                "minute {minute}"
            );
        }
    }

    #[test]
    fn budget_without_share_and_floor_allows_no_retry() {
        assert_eq!(granted(100, BudgetConfig { share: Ratio::ZERO, floor: 0 }), 0.0);
    }

    #[test]
    fn credit_fades_within_seconds() {
        let new = || Budget::new(at(0), BudgetConfig::default()).with_credit(100);
        let granted = |at: Timestamp| {
            let mut budget = new();
            (0..100).filter(|_| budget.take(at, Operation::UNKNOWN)).count()
        };
        assert_eq!([0, 5_000_000, 60_000_000].map(|micros| granted(at(micros))), [10, 5, 2]);
    }

    #[test]
    fn returned_retry_can_be_withdrawn_again() {
        let mut budget = Budget::new(at(0), BudgetConfig { share: Ratio::ZERO, floor: 1 });
        assert!(budget.take(at(0), Operation::UNKNOWN) && !budget.take(at(0), Operation::UNKNOWN));
        assert_eq!(budget.used(at(0)), Ratio::ONE);
        budget.give_back(Operation::UNKNOWN);
        assert!(budget.take(at(0), Operation::UNKNOWN));
    }

    #[test]
    fn token_is_refunded_to_the_operation_that_withdrew() {
        let mut budget = Budget::new(at(0), BudgetConfig { share: Ratio::ZERO, floor: 1 });
        let operation = Operation::new(1, 2);
        let withdrawal = budget.withdraw(at(0), operation).expect("the floor");
        assert_eq!(budget.withdraw(at(0), operation), None);
        budget.refund(withdrawal);
        let again = budget.withdraw(at(0), operation).expect("refunded to both levels and to the whole");
        again.spend();
        assert_eq!(budget.withdraw(at(0), operation), None, "spent");
    }

    /// An operation with ten times the load of the others fails at each attempt.
    #[test]
    fn operation_that_fails_leaves_the_others_a_tenth_of_their_requests() {
        let mut budget = Budget::new(at(0), BudgetConfig::default());
        let group = |number| Operation::new(number, 1);
        let (mut retries, mut others) = (0, 0);
        for request in 0..6_600_u64 {
            let now = at(request * 10_000);
            let is_other = request % 11 == 0;
            // Ever new paths of one group are one operation, too.
            let operation = if is_other { Operation::new(0, 0) } else { group(request % 1_000) };
            budget.on_request(now, operation);
            // The failing operation may spend the first deposits.
            let is_late = request >= 3_300;
            match is_other {
                true => others += u32::from(is_late && request % 110 == 0 && budget.take(now, operation)),
                false => retries += (0..2).filter(|_| budget.take(now, operation) && is_late).count(),
            }
        }
        assert!((29..=30).contains(&others), "{others} of the 30 that one in ten of the others would need");
        assert!((270..=300).contains(&retries), "{retries}, of which a tenth of 3,000 are allowed");
    }

    #[test]
    fn used_share_is_relative_to_the_limit() {
        let mut budget = Budget::new(at(0), BudgetConfig { share: Ratio::ZERO, floor: 4 });
        let used = [(); 5].map(|()| {
            budget.take(at(0), Operation::UNKNOWN);
            budget.used(at(0)).as_f64()
        });
        assert_eq!(used, [0.25, 0.5, 0.75, 1.0, 1.0]);
        assert_eq!(Budget::new(at(0), BudgetConfig { share: Ratio::ZERO, floor: 0 }).used(at(0)), Ratio::ONE);
    }

    #[test]
    fn counts_decay_in_whole_ticks() {
        let mut counts = Counts { requests: 1_000.0, retries: 100.0, at: at(0) };
        counts.decay(at(69_999));
        assert_eq!((counts.requests, counts.retries, counts.at), (1_000.0, 100.0, at(0)));
        counts.decay(at(70_000));
        assert!((counts.requests - 990.3).abs() < 0.2 && (counts.retries - 99.03).abs() < 0.02, "{counts:?}");
        assert_eq!(counts.at, at(70_000));
    }

    /// The first operation was retried more often a minute ago than the others are now.
    #[test]
    fn full_table_forgets_the_operation_with_the_fewest_recent_retries() {
        let mut budget = Budget::new(at(0), BudgetConfig { share: Ratio::ONE, floor: u32::MAX });
        let operation = |number| Operation::new(number, number);
        let minute = at(60_000_000);
        assert!((0..5).all(|_| budget.take(at(0), operation(0))));
        assert!((1..=32).all(|number| budget.take(minute, operation(number))));
        let is_known = |number| budget.operations.clone().get_mut(operation(number).keys().next().unwrap()).is_some();
        assert_eq!([0, 1, 31].map(is_known), [false, true, true]);
    }
}
