//! Quiet times: while nothing is rejected, a throttle sends everything and only counts.
//!
//! A shell that shares a [`Throttle`] among threads need not lock it for that. It asks for the time
//! until which it may send without [`ask`](Throttle::ask), counts accepts by itself, and reports
//! their number. A request that ends otherwise is reported at once, after the accepts before it.
//!
//! ```text
//! now < quiet_until:    send             accepted: count      rejected: on_quiet_accepts, on_outcome
//! else:                 on_quiet_accepts, ask, quiet_until
//! ```
//!
//! The counts are then exact. The times of accepts are off by 16 ms, which the decay of the counts
//! ignores anyway.
//!
//! Only [`paced`](super::paced) has quiet times. Equation 21-1 counts a request when it is sent:
//! even a first request without an answer yet throttles the second one.

use super::{Outcome, Throttle, ThrottlePolicy, paced};
use crate::{Criticality, Timestamp};

impl Throttle {
    /// The time until which each request of this criticality may be sent without asking, as long as
    /// all of them are accepted. `None`: each one must ask.
    ///
    /// After this time, the next request must ask, so that the time of the last one is known: probes
    /// depend on it.
    #[must_use]
    pub fn quiet_until(&self, now: Timestamp, criticality: Criticality) -> Option<Timestamp> {
        let is_quiet = match (self.policy, &self.cluster) {
            (ThrottlePolicy::Off, _) | (_, None) => true,
            (ThrottlePolicy::Adaptive { .. }, _) => false,
            (ThrottlePolicy::Paced { .. }, Some(cluster)) => {
                let cluster = &cluster[criticality.rank()];
                cluster.history.is_like_new() && self.operations.is_empty() && !cluster.throttled.is_recent(now)
            }
        };
        is_quiet.then(|| now + paced::TICK)
    }

    /// Reports requests that were sent in a [quiet time](Self::quiet_until) and accepted. If it has
    /// ended since, they count for no operation.
    pub fn on_quiet_accepts(&mut self, now: Timestamp, criticality: Criticality, count: u32) {
        if count == 0 {
            return;
        }
        if self.quiet_until(now, criticality).is_none() {
            return (0..count).for_each(|_| self.on_outcome(now, criticality, Outcome::Accepted));
        }
        if let Some(cluster) = &mut self.cluster {
            let cluster = &mut cluster[criticality.rank()];
            cluster.heard.add_all(now, count);
            cluster.history.on_quiet_accepts(now, count);
        }
    }
}

#[cfg(test)]
mod tests {
    use core::time::Duration;

    use rand_pcg::Pcg64Mcg;

    use super::*;
    use crate::Operation;
    use crate::throttle::Multiple;

    const CRITICAL: Criticality = Criticality::Critical;

    fn at(millis: u64) -> Timestamp {
        Timestamp::from_nanos(millis * 1_000_000)
    }

    #[test]
    fn throttle_is_quiet_until_a_rejection_and_after_enough_accepts() {
        let mut throttle = Throttle::new(at(0), ThrottlePolicy::default());
        let is_quiet = |throttle: &Throttle| throttle.quiet_until(at(1), CRITICAL).is_some();
        assert_eq!(throttle.quiet_until(at(1), CRITICAL), Some(at(17)));
        throttle.on_outcome(at(1), CRITICAL, Outcome::Unknown);
        assert!(is_quiet(&throttle), "no evidence");
        throttle.on_outcome(at(1), CRITICAL, Outcome::Rejected);
        assert!(!is_quiet(&throttle));
        assert!(throttle.quiet_until(at(1), Criticality::Sheddable).is_some(), "another history");
        throttle.on_outcome(at(1), CRITICAL, Outcome::Accepted);
        assert!(is_quiet(&throttle));
        throttle.on_outcome_of(at(1), CRITICAL, Operation::new(1, 2), Outcome::Rejected);
        throttle.on_outcome(at(1), CRITICAL, Outcome::Accepted);
        assert!(!is_quiet(&throttle), "an operation was rejected");
    }

    #[test]
    fn throttle_is_not_quiet_for_a_minute_after_it_throttled_an_operation() {
        let (mut throttle, mut rng) = (Throttle::new(at(0), ThrottlePolicy::default()), Pcg64Mcg::new(1));
        let operation = Operation::new(1, 2);
        let mut throttled = 0;
        for _ in 0..200 {
            match throttle.begin(at(1), CRITICAL, operation, &mut rng) {
                Ok(sent) => throttle.end(at(1), sent, Outcome::Rejected),
                Err(_) => throttled += 1,
            }
        }
        assert!(throttled > 0);
        for request in 0..10_000 {
            throttle.on_outcome_of(at(1 + 5 * request), CRITICAL, operation, Outcome::Accepted);
        }
        let quiet = [2, 60_000, 60_002].map(|millis| throttle.quiet_until(at(millis), CRITICAL).is_some());
        assert_eq!(quiet, [false, false, true]);
    }

    #[test]
    fn policy_off_is_always_quiet_and_adaptive_never() {
        let adaptive = ThrottlePolicy::Adaptive { k: Multiple::DEFAULT, window: Duration::from_secs(120) };
        let mut off = Throttle::new(at(0), ThrottlePolicy::Off);
        off.on_outcome(at(0), CRITICAL, Outcome::Rejected);
        assert!(off.quiet_until(at(1), CRITICAL).is_some());
        assert_eq!(Throttle::new(at(0), adaptive).quiet_until(at(1), CRITICAL), None);
    }

    /// A throttle that hears of accepts together decides like one that hears of each.
    #[test]
    fn accepts_count_the_same_together_as_one_by_one() {
        for (before, accepts, after) in [(0, 1, 30), (0, 500, 420), (20, 300, 300)] {
            let throttles = [false, true].map(|together| {
                let mut throttle = Throttle::new(at(0), ThrottlePolicy::default());
                (0..before).for_each(|_| throttle.on_outcome(at(1), CRITICAL, Outcome::Rejected));
                if together {
                    throttle.on_quiet_accepts(at(20), CRITICAL, accepts);
                } else {
                    (0..accepts).for_each(|_| throttle.on_outcome(at(20), CRITICAL, Outcome::Accepted));
                }
                (0..after).for_each(|_| throttle.on_outcome(at(30), CRITICAL, Outcome::Rejected));
                throttle
            });
            let [together, single] = throttles.map(|throttle| throttle.throttled_share(at(30), CRITICAL).as_f64());
            assert!((together - single).abs() < 1e-9, "{together}, {single}");
            assert!(single > 0.01 && single < 0.99, "{before}, {accepts}, {after}: {single}");
        }
    }
}
