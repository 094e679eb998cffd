//! How many retries a client can afford: at most a tenth of its requests, whatever fails.
//!
//! ```text
//! allowed  ⇔  retries + 1 ≤ max(share · requests, floor)
//! ```
//!
//! with both sums decaying by half every five seconds. So the load of a total failure is 1 + share times the ordinary one, once it has
//! gone on for some seconds, and never more than share of what some ten seconds held at once. While little fails every request
//! gets its retry: up to a tenth may fail before one goes without.
//!
//! The floor is for clients of a few requests a minute, a tenth of which would be no retry at all: two in some ten seconds, whatever they
//! send. It is above share · requests only below two requests a second (three at its most), so it adds nothing to the load of a client
//! that could do harm. It is not a rate that is added on top, as in other budgets: then the bound would not be one.
//!
//! # By operation
//!
//! One endpoint that fails all of its requests would take the whole budget. None would be left for
//! a request that meets a backend just as it ends. So the same rule holds for each
//! [operation](Operation) by itself: at most a tenth of its own requests. The remaining budget is a
//! tenth of the others' requests. At its first retry an operation is taken to have made all
//! requests so far, since nothing was counted for it. In a burst it may thus spend the deposits of
//! calm times, and it has its own tenth within seconds.
//!
//! Why not a limit on retries in progress (Envoy's `max_retries`, 3)? It says nothing of rates: retries that fail in a millisecond
//! come 3,000 times a second within it. Why not a token for each success (gRFC A6)? It binds only when more than half fail.

use core::time::Duration;

use crate::operation::Table;
use crate::{Operation, Ratio, Timestamp, decay};

/// Half of what is counted is forgotten in this time. Long enough to hold two dozen requests of a client of three a second, short enough for
/// a budget that was saved up in calm to be spent in seconds.
const HALF_LIFE: Duration = Duration::from_secs(5);

/// What is counted decays by so much time at once, which is 1%: a request costs 15 ns less than with each.
const TICK: Duration = Duration::from_millis(70);

/// How many retries a client can afford.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BudgetConfig {
    /// Of its requests.
    pub share: Ratio,
    /// So many in some ten seconds (as they decay) however few requests there are.
    pub floor: u32,
}

impl BudgetConfig {
    /// The book's tenth: a total failure adds 10% to the load.
    pub const DEFAULT_SHARE: Ratio = Ratio::from_percent(10);
    /// One request can have both its retries.
    pub const DEFAULT_FLOOR: u32 = 2;
}

impl Default for BudgetConfig {
    fn default() -> Self {
        Self { share: Self::DEFAULT_SHARE, floor: Self::DEFAULT_FLOOR }
    }
}

/// Retries and requests of one client to one cluster.
#[derive(Clone, Debug)]
pub struct Budget {
    config: BudgetConfig,
    all: Counts,
    /// Of the operations that were retried lately.
    operations: Table<Counts>,
}

/// Requests and retries, decaying.
#[derive(Clone, Copy, Debug)]
struct Counts {
    requests: f64,
    retries: f64,
    at: Timestamp,
}

impl Budget {
    /// One that has seen nothing yet.
    #[must_use]
    pub const fn new(now: Timestamp, config: BudgetConfig) -> Self {
        Self { config, all: Counts { requests: 0.0, retries: 0.0, at: now }, operations: Table::new() }
    }

    /// The same, as if so many requests had just begun. Whoever has just started finds out who is overloaded by its first requests, and
    /// would fail some of them for want of a history.
    #[must_use]
    pub fn with_credit(mut self, requests: u32) -> Self {
        self.all.requests = f64::from(requests);
        self
    }

    /// A request begins: once for each, whatever becomes of it and however often it is tried.
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

    /// Takes one retry, or a hedge, if there is one left.
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

    /// Gives one back that was taken and not sent after all: the throttle held it back, or no backend was to be had.
    pub fn give_back(&mut self, operation: Operation) {
        self.all.give_back();
        for key in operation.keys() {
            if let Some(counts) = self.operations.get_mut(key) {
                counts.give_back();
            }
        }
    }

    /// How much of it is used up. For those who look.
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

    /// Retries a client gets in a minute in which each of its requests fails three times.
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
    fn a_total_failure_costs_a_tenth_more() {
        for rate in [3, 10, 1_000] {
            let granted = granted(rate, BudgetConfig::default());
            // Whole retries: one is less than the tenth of what is remembered, 7.2 s of requests.
            assert!((0.06..=0.105).contains(&granted), "{granted} at {rate} a second");
        }
        assert!((0.099..=0.1).contains(&granted(1_000, BudgetConfig::default())));
    }

    #[test]
    fn a_client_of_few_requests_has_its_retries() {
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
    fn without_share_and_floor_there_are_none() {
        assert_eq!(granted(100, BudgetConfig { share: Ratio::ZERO, floor: 0 }), 0.0);
    }

    #[test]
    fn credit_is_for_the_first_seconds_alone() {
        let new = || Budget::new(at(0), BudgetConfig::default()).with_credit(100);
        let granted = |at: Timestamp| {
            let mut budget = new();
            (0..100).filter(|_| budget.take(at, Operation::UNKNOWN)).count()
        };
        assert_eq!([0, 5_000_000, 60_000_000].map(|micros| granted(at(micros))), [10, 5, 2]);
    }

    #[test]
    fn what_was_given_back_can_be_taken_again() {
        let mut budget = Budget::new(at(0), BudgetConfig { share: Ratio::ZERO, floor: 1 });
        assert!(budget.take(at(0), Operation::UNKNOWN) && !budget.take(at(0), Operation::UNKNOWN));
        assert_eq!(budget.used(at(0)), Ratio::ONE);
        budget.give_back(Operation::UNKNOWN);
        assert!(budget.take(at(0), Operation::UNKNOWN));
    }

    /// At ten times the load of the others each of its requests fails, as often as it is tried.
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
    fn used_share_is_of_what_is_allowed() {
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

    /// A minute ago the first operation was retried more often than the others are now.
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
