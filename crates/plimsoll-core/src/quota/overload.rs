//! The requests that a task lacks CPU for.
//!
//! ```text
//! lacking at a criticality = shed ÷ (asked + 10) above 10%, until below 5%      requests, half-life 2 s
//! ```
//!
//! A task near saturation sheds a request now and then by chance, and another task would serve it: that is no lack.

use core::time::Duration;

use super::rule::LEVELS;
use crate::{Criticality, Timestamp, decay};

/// Two times between reports: a lack that is reported still lasts.
const HALF_LIFE: Duration = Duration::from_secs(2);
/// Requests that are counted as served from the start: one that is shed among the first few is no lack.
const PRIOR: f64 = 10.0;
/// The share of shed requests above which CPU is lacking, and below which it is not any more.
const LACKING: f64 = 0.1;
const ENOUGH: f64 = 0.05;

#[derive(Clone, Copy, Debug, Default)]
struct Level {
    asked: f64,
    shed: f64,
    at: Timestamp,
    is_lacking: bool,
}

/// The share of shed requests by criticality.
#[derive(Clone, Debug, Default)]
pub(super) struct Overload {
    levels: [Level; LEVELS],
}

impl Overload {
    /// A request came, and is shed for lack of CPU or not.
    pub(super) fn on_request(&mut self, now: Timestamp, criticality: Criticality, is_shed: bool) {
        let level = &mut self.levels[criticality.rank()];
        level.decay(now);
        level.asked += 1.0;
        level.shed += f64::from(u8::from(is_shed));
    }

    /// The most critical requests that CPU is lacking for; `None`: there is enough.
    pub(super) fn level(&mut self, now: Timestamp) -> Option<Criticality> {
        for level in &mut self.levels {
            level.decay(now);
            let least = if level.is_lacking { ENOUGH } else { LACKING };
            level.is_lacking = level.shed > least * (level.asked + PRIOR);
        }
        Criticality::ALL.into_iter().find(|criticality| self.levels[criticality.rank()].is_lacking)
    }
}

impl Level {
    fn decay(&mut self, now: Timestamp) {
        let left = decay::remaining(now, self.at, HALF_LIFE);
        (self.asked, self.shed, self.at) = (self.asked * left, self.shed * left, self.at.max(now));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A hundred requests a second at each criticality, of which those of `is_shed` are shed.
    fn offer(overload: &mut Overload, seconds: core::ops::Range<u64>, is_shed: impl Fn(Criticality, u64) -> bool) {
        for n in seconds.start * 100..seconds.end * 100 {
            for criticality in Criticality::ALL {
                overload.on_request(Timestamp::from_nanos(n * 10_000_000), criticality, is_shed(criticality, n));
            }
        }
    }

    fn at(seconds: u64) -> Timestamp {
        Timestamp::from_nanos(seconds * 1_000_000_000)
    }

    #[test]
    fn task_lacks_cpu_for_the_criticality_that_it_sheds_and_those_below() {
        for from in Criticality::ALL {
            let mut overload = Overload::default();
            let is_at = |criticality: Criticality, n| criticality.rank() == from.rank() && n % 5 == 0;
            offer(&mut overload, 0..5, |criticality, n| criticality.rank() > from.rank() || is_at(criticality, n));
            assert_eq!(overload.level(at(5)), Some(from));
        }
    }

    #[test]
    fn some_requests_in_a_hundred_are_no_lack() {
        let mut overload = Overload::default();
        offer(&mut overload, 0..20, |_, n| n % 12 == 0);
        assert_eq!(overload.level(at(20)), None);
        overload.on_request(at(60), Criticality::Critical, true);
        assert_eq!(overload.level(at(60)), None, "one says nothing");
    }

    #[test]
    fn lack_ends_at_half_of_the_share_at_which_it_begins() {
        let mut overload = Overload::default();
        offer(&mut overload, 0..10, |_, n| n % 5 == 0);
        assert!(overload.level(at(10)).is_some());
        offer(&mut overload, 10..30, |_, n| n % 12 == 0);
        assert!(overload.level(at(30)).is_some(), "8% is less than it began with, and not half of it");
        offer(&mut overload, 30..50, |_, n| n % 25 == 0);
        assert_eq!(overload.level(at(50)), None);
    }

    #[test]
    fn lack_is_forgotten_without_requests() {
        let mut overload = Overload::default();
        offer(&mut overload, 0..10, |_, _| true);
        assert_eq!(overload.level(at(10)), Some(Criticality::ALL[0]));
        assert_eq!(overload.level(at(40)), None);
    }

    #[test]
    fn few_requests_that_are_all_shed_are_a_lack() {
        let mut overload = Overload::default();
        (0..20).for_each(|second| overload.on_request(at(second), Criticality::Critical, true));
        assert_eq!(overload.level(at(20)), Some(Criticality::Critical));
    }
}
