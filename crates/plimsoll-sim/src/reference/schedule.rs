//! Lowers the criticality of a request while its user waits.
//!
//! An abandoned page is the cheapest thing to shed, but nothing on the wire says that it is
//! abandoned. Users leave after a while, so the work of an older request is more likely to be
//! wasted. With a the time since the user began:
//!
//! ```text
//! criticality(a) = base             a < full_until
//!                  min(base, then)  full_until ≤ a < cancelled_after
//!                  none             a ≥ cancelled_after: not to be sent at all
//! ```
//!
//! # Alternatives
//!
//! - *A slope in place of steps.* A criticality is one of four words that a whole company has
//!   agreed on.
//! - *The time until a deadline in place of the age.* A deadline marks the end of an answer's use,
//!   and is set generously. Users leave one by one, long before it.
//!
//! # Where it is weak
//!
//! A schedule needs the time at which the user began, not that of the attempt. A retry that counts
//! as young keeps its precedence over requests that have waited less.
//!
//! Source: SRE ch. 21, "Criticality", for the levels that this changes over time.

use std::time::Duration;

use plimsoll_core::Criticality;

/// Criticality of a request as it ages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Schedule {
    /// Age up to which a request keeps its criticality.
    pub full_until: Duration,
    /// Highest criticality from then on.
    pub then: Criticality,
    /// Age from which nobody wants the answer; `None`: never.
    pub cancelled_after: Option<Duration>,
}

impl Schedule {
    /// The criticality of a request of age `age` that began as `base`; `None` if it is to be
    /// cancelled.
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
    fn request_is_full_then_lower_then_cancelled_as_it_ages() {
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
    fn request_is_never_cancelled_without_an_end() {
        let schedule = Schedule { cancelled_after: None, ..SCHEDULE };
        assert_eq!(schedule.at(Criticality::CriticalPlus, Duration::MAX), Some(Criticality::SheddablePlus));
    }
}
