//! The local account of a task for one customer: a token bucket that allows debt.
//!
//! Requests are admitted while the level is above zero. Their real cost may take it below. The level
//! rises at the assigned rate, up to the depth. Unlike the sliding second of
//! [`Limits`](crate::admit::Limits), a higher rate refills nothing at once: rates move between tasks
//! all the time, and each move would add a second of its rate to the usage of the fleet.
//!
//! What does not fit into a full bucket is counted: the owner lends it to other tasks.

use core::time::Duration;

use crate::Timestamp;

/// The largest debt, in seconds of the rate: a wrong report of a cost must not shut a customer out.
const MAX_DEBT_SECONDS: f64 = 60.0;
/// The unused rate of this time may be given back.
pub(super) const LONGEST_UNUSED: Duration = Duration::from_secs(2);

/// CPU-microseconds that may be used at once.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Bucket {
    level: f64,
    rate: f64,
    depth: f64,
    at: Timestamp,
    /// What did not fit since it was last taken.
    unused: f64,
}

impl Bucket {
    /// A full bucket. `rate` in µCPU, `depth` in CPU-microseconds.
    #[must_use]
    pub fn full(now: Timestamp, rate: f64, depth: f64) -> Self {
        Self { level: depth, rate, depth, at: now, unused: 0.0 }
    }

    /// Changes rate and depth. A higher depth adds nothing to the level, and a lower one takes no
    /// credit away.
    pub fn set(&mut self, now: Timestamp, rate: f64, depth: f64) {
        self.advance(now);
        let credit = (self.level - self.depth).max(0.0);
        (self.rate, self.depth) = (rate, depth);
        self.level = self.level.min(depth + credit);
    }

    /// Adds a credit, which may exceed the depth until it is used.
    pub fn add(&mut self, now: Timestamp, credit: f64) {
        self.advance(now);
        self.level += credit;
    }

    /// Takes what did not fit since the last time, in CPU-microseconds: at most two seconds of the rate.
    /// Nothing is taken if it is less than `least`.
    pub fn take_unused(&mut self, now: Timestamp, least: f64) -> f64 {
        self.advance(now);
        if self.unused < least { 0.0 } else { core::mem::take(&mut self.unused) }
    }

    /// Nobody takes what did not fit so far.
    pub(super) fn forget_unused(&mut self) {
        self.unused = 0.0;
    }

    /// The level at a time, in CPU-microseconds; below zero in debt.
    pub fn level(&mut self, now: Timestamp) -> f64 {
        self.advance(now);
        self.level
    }

    /// Takes a cost, or gives a negative cost back. Call [`Bucket::level`] before.
    pub fn take(&mut self, cost: f64) {
        self.level = (self.level - cost).max(-MAX_DEBT_SECONDS * self.rate.max(1.0));
    }

    fn advance(&mut self, now: Timestamp) {
        let gained = now.since(self.at).as_secs_f64() * self.rate;
        self.at = self.at.max(now);
        let fits = (self.depth - self.level).clamp(0.0, gained);
        self.level += fits;
        self.unused = (self.unused + gained - fits).min(self.rate * LONGEST_UNUSED.as_secs_f64());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(ms: u64) -> Timestamp {
        Timestamp::from_nanos(ms * 1_000_000)
    }

    #[test]
    fn level_rises_at_the_rate_to_the_depth() {
        let mut bucket = Bucket::full(ms(0), 1_000.0, 500.0);
        bucket.take(700.0);
        assert_eq!([ms(0), ms(100), ms(300), ms(900)].map(|at| bucket.level(at)), [-200.0, -100.0, 100.0, 500.0]);
    }

    #[test]
    fn what_does_not_fit_is_counted_once() {
        let mut bucket = Bucket::full(ms(0), 1_000.0, 500.0);
        bucket.take(200.0);
        assert_eq!([200, 300].map(|at| bucket.take_unused(ms(at), 50.0)), [0.0, 100.0]);
        assert_eq!([340, 360].map(|at| bucket.take_unused(ms(at), 50.0)), [0.0, 60.0]);
        assert_eq!(bucket.take_unused(ms(9_000), 50.0), 2_000.0, "at most two seconds of the rate");
    }

    #[test]
    fn higher_rate_refills_nothing_at_once() {
        let mut bucket = Bucket::full(ms(0), 1_000.0, 100.0);
        bucket.take(100.0);
        bucket.set(ms(0), 10_000.0, 1_000.0);
        assert_eq!([ms(0), ms(10)].map(|at| bucket.level(at)), [0.0, 100.0]);
    }

    #[test]
    fn credit_exceeds_the_depth_until_it_is_used() {
        let mut bucket = Bucket::full(ms(0), 1_000.0, 100.0);
        bucket.add(ms(0), 300.0);
        assert_eq!(bucket.level(ms(5_000)), 400.0);
        bucket.set(ms(5_000), 1_000.0, 50.0);
        assert_eq!(bucket.level(ms(5_000)), 350.0);
        bucket.set(ms(5_000), 1_000.0, 100.0);
        bucket.take(300.0);
        assert_eq!([ms(5_010), ms(9_000)].map(|at| bucket.level(at)), [60.0, 100.0]);
    }

    #[test]
    fn absurd_cost_shuts_a_customer_out_for_a_minute() {
        let mut bucket = Bucket::full(ms(0), 1_000.0, 100.0);
        bucket.take(1e18);
        assert!(bucket.level(ms(59_000)) < 0.0 && bucket.level(ms(60_100)) > 0.0);
    }
}
