//! What a backend says of its load: means over the last second, renewed ten times a second.
//!
//! As the library's server measures itself: totals are sampled when an answer gives occasion, a tick after the last
//! sample at the earliest, and the rates stand until the next sample. So what an answer carries is as old as it would
//! be in life: up to a tick, plus half the window by which any mean lags behind.
//!
//! For a total x: `rate = (x(now) − x(now − window)) / window`, the earlier value interpolated between the samples
//! around it; over the age of the process while that is shorter, but no less than a tick.

use std::collections::VecDeque;
use std::time::Duration;

use plimsoll_core::Timestamp;

/// What a mean is over.
pub(crate) const WINDOW: Duration = Duration::from_secs(1);
/// Least time between samples.
pub(crate) const TICK: Duration = Duration::from_millis(100);

/// Running totals.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Totals {
    /// Requests answered, well or ill.
    pub(crate) answered: f64,
    /// Requests failed.
    pub(crate) failed: f64,
    /// CPU-seconds.
    pub(crate) cpu: f64,
}

impl Totals {
    fn blend(&self, other: &Self, share: f64, of: impl Fn(f64, f64, f64) -> f64) -> Self {
        Self {
            answered: of(self.answered, other.answered, share),
            failed: of(self.failed, other.failed, share),
            cpu: of(self.cpu, other.cpu, share),
        }
    }
}

/// The sliding window of one backend.
#[derive(Clone, Debug)]
pub(crate) struct Meter {
    /// Oldest first, never empty; all but the first younger than the window.
    samples: VecDeque<(Timestamp, Totals)>,
    rates: Totals,
    due: Timestamp,
}

impl Meter {
    pub(crate) fn new(now: Timestamp, totals: Totals) -> Self {
        Self { samples: VecDeque::from([(now, totals)]), rates: Totals::default(), due: now }
    }

    /// Whether totals are wanted.
    pub(crate) fn is_due(&self, now: Timestamp) -> bool {
        now >= self.due
    }

    /// Totals as they are now.
    pub(crate) fn sample(&mut self, now: Timestamp, totals: Totals) {
        self.due = now + TICK;
        self.samples.push_back((now, totals));
        while self.samples.get(1).is_some_and(|(at, _)| now.since(*at) >= WINDOW) {
            self.samples.pop_front();
        }
        let ((first_at, first), (second_at, second)) = (self.samples[0], self.samples[1]);
        let age = now.since(first_at);
        let between = second_at.since(first_at).as_secs_f64();
        let before_window = age.saturating_sub(WINDOW).as_secs_f64();
        let gone = if between > 0.0 { (before_window / between).min(1.0) } else { 0.0 };
        let at_start = first.blend(&second, gone, |first, second, gone| first + gone * (second - first));
        let span = age.clamp(TICK, WINDOW).as_secs_f64();
        self.rates = totals.blend(&at_start, span, |total, start, span| (total - start) / span);
    }

    /// Per second, as of the last sample.
    pub(crate) fn rates(&self) -> Totals {
        self.rates
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(ms: u64) -> Timestamp {
        Timestamp::from_nanos(ms * 1_000_000)
    }

    fn steady(ms: u64) -> Totals {
        Totals { answered: ms as f64, failed: ms as f64 / 10.0, cpu: ms as f64 / 2000.0 }
    }

    #[test]
    fn steady_load_is_said_as_it_is() {
        let mut meter = Meter::new(ms(0), Totals::default());
        for at in (100..5_000).step_by(130) {
            assert!(meter.is_due(ms(at)));
            meter.sample(ms(at), steady(at));
            let rates = meter.rates();
            assert!((rates.answered - 1000.0).abs() < 1e-6 && (rates.failed - 100.0).abs() < 1e-6, "{at}: {rates:?}");
            assert!((rates.cpu - 0.5).abs() < 1e-9);
        }
    }

    #[test]
    fn a_step_shows_after_a_tick_and_is_all_there_after_a_window() {
        let mut meter = Meter::new(ms(0), Totals::default());
        for at in (100..=2_000).step_by(100) {
            meter.sample(ms(at), Totals::default());
        }
        for (at, share) in [(2_100, 0.1), (2_500, 0.5), (3_000, 1.0), (3_500, 1.0)] {
            meter.sample(ms(at), Totals { cpu: (at - 2_000) as f64 / 1000.0, ..Totals::default() });
            assert!((meter.rates().cpu - share).abs() < 1e-9, "{at}: {:?}", meter.rates());
        }
    }

    #[test]
    fn memory_is_bounded_by_the_window() {
        let mut meter = Meter::new(ms(0), Totals::default());
        for at in (100..60_000).step_by(100) {
            meter.sample(ms(at), steady(at));
        }
        assert!(meter.samples.len() <= 12, "{}", meter.samples.len());
    }
}
