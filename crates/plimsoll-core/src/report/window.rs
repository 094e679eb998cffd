//! Rates of requests, failures and CPU use of a server, over a sliding window.
//!
//! All three are means over one and the same sliding window (1 s by default). That matters more
//! than its length: a balancer divides requests by CPU, and over different windows the quotient
//! would swing with every change of load. A window has two advantages over an exponential mean:
//! older events have no influence at all, and it needs no correction at the start.
//!
//! The shell passes running totals about every [`TICK`], when it answers a request. The total at
//! the beginning of the window is interpolated between the two samples around it. So after a pause
//! (no requests, no samples) the rates rise over one window in place of a jump.
//!
//! For a total x: `rate = (x(now) − x(now − window)) / window`. A younger window divides by its
//! age, but no less than a tick.

use alloc::collections::VecDeque;
use core::time::Duration;

use crate::Timestamp;

/// Least time between samples: a tenth of the default window, and long beside the 1 µs that reading
/// the CPU clock of a process takes.
pub const TICK: Duration = Duration::from_millis(100);

/// Default window: short enough to follow load, long enough to contain hundreds of requests.
pub const DEFAULT_WINDOW: Duration = Duration::from_secs(1);

/// Running totals since some origin; they never fall.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Totals {
    /// Requests answered, failures included.
    pub answered: u64,
    /// Requests failed.
    pub failed: u64,
    /// CPU time used by the process.
    pub cpu: Duration,
}

/// Means over the window.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Rates {
    /// Requests answered per second.
    pub(super) qps: f64,
    /// Requests failed per second.
    pub(super) eps: f64,
    /// CPU seconds per second: the number of busy CPUs.
    pub(super) cpus: f64,
}

/// The window. It needs totals whenever it is [`due`](Self::due).
#[derive(Clone, Debug)]
pub(super) struct LoadWindow {
    length: Duration,
    /// Oldest first; never empty. All but the first are younger than the window.
    samples: VecDeque<(Timestamp, Totals)>,
}

impl LoadWindow {
    /// A window that begins now, with these totals.
    pub(super) fn new(now: Timestamp, length: Duration, totals: Totals) -> Self {
        Self { length: length.max(TICK), samples: VecDeque::from([(now, totals)]) }
    }

    /// Whether it is time for a sample: a tick has passed, or there was none yet.
    pub(super) fn due(&self, now: Timestamp) -> bool {
        self.samples.len() == 1 || self.samples.back().is_some_and(|(at, _)| now.since(*at) >= TICK)
    }

    /// Takes a sample and returns the present rates.
    pub(super) fn sample(&mut self, now: Timestamp, totals: Totals) -> Rates {
        // Times out of order come from threads that read the clock before they waited for the lock.
        let latest = self.samples.back().map_or(now, |(at, _)| *at);
        self.samples.push_back((now.max(latest), totals));
        self.forget(now);
        self.rates(now, totals)
    }

    /// Drops samples before the window, except the youngest of them.
    fn forget(&mut self, now: Timestamp) {
        while self.samples.get(1).is_some_and(|(at, _)| now.since(*at) >= self.length) {
            self.samples.pop_front();
        }
    }

    fn rates(&self, now: Timestamp, totals: Totals) -> Rates {
        let (Some((first_at, first)), Some((second_at, second))) = (self.samples.front(), self.samples.get(1)) else {
            return Rates::default();
        };
        let age = now.since(*first_at);
        let span = age.clamp(TICK, self.length).as_secs_f64();
        let between = second_at.since(*first_at).as_secs_f64();
        let before_window = age.saturating_sub(self.length).as_secs_f64();
        let gone = if between > 0.0 { (before_window / between).min(1.0) } else { 0.0 };
        let rate = |total: f64, first: f64, second: f64| {
            let at_start = first + gone * (second - first);
            ((total - at_start) / span).max(0.0)
        };
        Rates {
            qps: rate(totals.answered as f64, first.answered as f64, second.answered as f64),
            eps: rate(totals.failed as f64, first.failed as f64, second.failed as f64),
            cpus: rate(totals.cpu.as_secs_f64(), first.cpu.as_secs_f64(), second.cpu.as_secs_f64()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(millis: u64) -> Timestamp {
        Timestamp::from_nanos(millis * 1_000_000)
    }

    /// Totals of a server that answers `qps`, fails a tenth, and keeps half a CPU busy.
    fn steady(qps: u64, millis: u64) -> Totals {
        let answered = qps * millis / 1_000;
        Totals { answered, failed: answered / 10, cpu: Duration::from_millis(millis / 2) }
    }

    fn close(a: f64, b: f64) -> bool {
        (a - b).abs() <= 0.02 * b.abs().max(1e-9)
    }

    #[test]
    fn steady_load_is_measured_exactly() {
        let mut window = LoadWindow::new(ms(0), DEFAULT_WINDOW, Totals::default());
        for t in (100..5_000).step_by(130) {
            assert!(window.due(ms(t)));
            let rates = window.sample(ms(t), steady(1_000, t));
            assert!(close(rates.qps, 1_000.0) && close(rates.eps, 100.0) && close(rates.cpus, 0.5), "{t} {rates:?}");
        }
    }

    #[test]
    fn samples_are_due_once_a_tick() {
        let mut window = LoadWindow::new(ms(0), DEFAULT_WINDOW, Totals::default());
        assert!(window.due(ms(1)), "the first request is counted at once");
        let rates = window.sample(ms(1), Totals { answered: 1, ..Totals::default() });
        assert!(close(rates.qps, 10.0), "over a tick, not over a millisecond: {rates:?}");
        assert!(!window.due(ms(100)));
        assert!(window.due(ms(101)));
    }

    #[test]
    fn events_before_the_window_have_no_influence() {
        let mut window = LoadWindow::new(ms(0), DEFAULT_WINDOW, Totals::default());
        for t in (100..=3_000).step_by(100) {
            window.sample(ms(t), steady(1_000, t));
        }
        let mut rates = Rates::default();
        for t in (3_100..=4_000).step_by(100) {
            rates = window.sample(ms(t), steady(1_000, 3_000));
        }
        assert_eq!(rates, Rates::default());
    }

    #[test]
    fn after_a_pause_rates_rise_over_one_window() {
        let mut window = LoadWindow::new(ms(0), DEFAULT_WINDOW, Totals::default());
        let after = |n| Totals { answered: n, ..Totals::default() };
        let first = window.sample(ms(10_000), after(1));
        assert!(close(first.qps, 0.1), "one request in ten seconds: {first:?}");
        let mut last = 0.0;
        for t in 1..=10 {
            let rates = window.sample(ms(10_000 + t * 100), after(1 + t * 10));
            assert!(rates.qps > last);
            last = rates.qps;
        }
        assert!(close(last, 100.0), "{last}");
    }

    #[test]
    fn memory_is_bounded_by_the_window() {
        let mut window = LoadWindow::new(ms(0), DEFAULT_WINDOW, Totals::default());
        for t in (100..60_000).step_by(100) {
            window.sample(ms(t), steady(10, t));
        }
        assert!(window.samples.len() <= 12, "{}", window.samples.len());
    }

    #[test]
    fn clock_readings_out_of_order_do_no_harm() {
        let mut window = LoadWindow::new(ms(1_000), DEFAULT_WINDOW, Totals::default());
        window.sample(ms(1_200), steady(1_000, 200));
        let rates = window.sample(ms(1_100), steady(1_000, 200));
        assert!(rates.qps.is_finite() && rates.qps >= 0.0);
        let rates = window.sample(ms(900), Totals::default());
        assert!(rates.qps.is_finite() && rates.qps >= 0.0);
    }

    #[test]
    fn requests_of_the_first_instant_count() {
        let mut window = LoadWindow::new(ms(0), DEFAULT_WINDOW, Totals::default());
        window.sample(ms(0), Totals { answered: 10, ..Totals::default() });
        let rates = window.sample(ms(200), Totals { answered: 20, ..Totals::default() });
        assert!(close(rates.qps, 100.0), "{rates:?}");
    }
}
