//! How bad it is to lose a request changes while its user waits.
//!
//! A page nobody waits for any more is the cheapest thing to shed, and nothing on the wire says that nobody does. But users leave
//! after a while, so the older a request the likelier its work is for nothing. With a the time since the user began:
//!
//! ```text
//! criticality(a) = base             a < full_until
//!                  min(base, then)  full_until ≤ a < cancelled_after
//!                  none             a ≥ cancelled_after: not to be sent at all
//! ```
//!
//! Why steps and not a slope: a criticality is one of four words that a whole company has agreed on. Why the age and not what is left
//! until a deadline: a deadline says when an answer is of no use at all, and is set generously; users go one by one, and long before.
//!
//! What may go wrong: a schedule needs the time at which the user began, not that of the attempt. A retry that counts as young keeps its
//! place before those who have waited less.
//!
//! Source: SRE ch. 21, "Criticality", of which this is the part that changes over time.

use std::time::Duration;

use plimsoll_core::Criticality;

/// What a request's criticality becomes as it ages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Schedule {
    /// Younger than this a request is as critical as it was.
    pub full_until: Duration,
    /// What it is from then on, unless it was less critical already.
    pub then: Criticality,
    /// From this age on nobody wants the answer; `None`: never.
    pub cancelled_after: Option<Duration>,
}

impl Schedule {
    /// The criticality of a request that was `base` when its user began, `age` ago; `None`: it is to be cancelled.
    #[must_use]
    pub fn at(&self, base: Criticality, age: Duration) -> Option<Criticality> {
        if self.cancelled_after.is_some_and(|after| age >= after) {
            return None;
        }
        Some(if age < self.full_until { base } else { base.min(self.then) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SCHEDULE: Schedule = Schedule {
        full_until: Duration::from_secs(2),
        then: Criticality::SheddablePlus,
        cancelled_after: Some(Duration::from_secs(10)),
    };

    #[test]
    fn a_request_is_full_then_lower_then_cancelled() {
        let critical = |ms| SCHEDULE.at(Criticality::Critical, Duration::from_millis(ms));
        for (ms, expected) in [
            (0, Some(Criticality::Critical)),
            (1_999, Some(Criticality::Critical)),
            (2_000, Some(Criticality::SheddablePlus)),
            (9_999, Some(Criticality::SheddablePlus)),
            (10_000, None),
        ] {
            assert_eq!(critical(ms), expected, "{ms} ms");
        }
    }

    #[test]
    fn age_never_makes_a_request_more_critical() {
        for base in Criticality::ALL {
            for seconds in 0..10 {
                assert!(SCHEDULE.at(base, Duration::from_secs(seconds)) <= Some(base));
            }
        }
        assert_eq!(SCHEDULE.at(Criticality::Sheddable, Duration::from_secs(5)), Some(Criticality::Sheddable));
    }

    #[test]
    fn without_an_end_a_request_is_never_cancelled() {
        let schedule = Schedule { cancelled_after: None, ..SCHEDULE };
        assert_eq!(schedule.at(Criticality::CriticalPlus, Duration::MAX), Some(Criticality::SheddablePlus));
    }
}
