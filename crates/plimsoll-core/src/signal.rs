//! How busy a server is, from what it can see of itself.
//!
//! Two measures, for they fail in different ways:
//!
//! - *CPUs*: CPU-seconds used per second. Says how much is left below the load line, and nothing above it: a server that is asked for
//!   twice what it can do uses all of its CPU, as does one that is just full. Nor does it see a neighbour who takes half of the
//!   machine.
//! - *Executor load average*: requests that run or could run, on average (SRE ch. 21, "Utilization signals"). Says how much too much it
//!   is: requests that wait for something else than CPU do not count, and a request of which many tasks could run counts once, or a
//!   burst of small tasks would look like overload.
//!
//! Both are smoothed over a fraction of a second, so that a burst which is over by then passes nearly unseen:
//!
//! ```text
//! x = x · 2^(−Δt ÷ half-life) + (total − last total) ÷ Δt · (1 − 2^(−Δt ÷ half-life))
//! ```

use core::time::Duration;

use crate::{Timestamp, decay};

/// Ten times as long as chance takes to pass on a busy server, and short beside the patience of a user.
const HALF_LIFE: Duration = Duration::from_millis(100);

/// Running totals since some origin; none of them ever falls.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Totals {
    /// CPU-seconds that the process has used.
    pub cpu: f64,
    /// Seconds during which requests ran or could run, of all requests together.
    pub runnable: f64,
}

/// What the signals say.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Signals {
    /// CPUs in use.
    pub cpus: f64,
    /// Requests that run or could run.
    pub load_average: f64,
}

/// Smooths the signals.
#[derive(Clone, Debug)]
pub struct Smoothed {
    last: Totals,
    at: Timestamp,
    signals: Signals,
}

impl Smoothed {
    /// One that begins, with these totals.
    #[must_use]
    pub fn new(now: Timestamp, totals: Totals) -> Self {
        Self { last: totals, at: now, signals: Signals::default() }
    }

    /// What the signals are, with these totals: to be asked every few milliseconds.
    pub fn sample(&mut self, now: Timestamp, totals: Totals) -> Signals {
        let gone = now.nanos_since(self.at) as f64 * 1e-9;
        if gone > 0.0 {
            let left = decay::remaining(now, self.at, HALF_LIFE);
            let last = core::mem::replace(&mut self.last, totals);
            let smooth =
                |smoothed: f64, now: f64, last: f64| smoothed * left + (now - last).max(0.0) / gone * (1.0 - left);
            self.signals.cpus = smooth(self.signals.cpus, totals.cpu, last.cpu);
            self.signals.load_average = smooth(self.signals.load_average, totals.runnable, last.runnable);
            self.at = now;
        }
        self.signals
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The load average every 10 ms, if so many requests could run in each.
    fn averages(requests: impl Fn(u64) -> f64, samples: u64) -> impl Iterator<Item = f64> {
        let mut smoothed = Smoothed::new(Timestamp::ZERO, Totals::default());
        let mut totals = Totals::default();
        (0..samples)
            .map(move |sample| {
                totals.runnable += requests(sample) * 0.01;
                smoothed.sample(Timestamp::from_nanos((sample + 1) * 10_000_000), totals).load_average
            })
            .collect::<alloc::vec::Vec<_>>()
            .into_iter()
    }

    #[test]
    fn a_short_burst_is_hardly_seen_and_a_lasting_rise_is() {
        let burst = averages(|sample| if sample == 100 { 50.0 } else { 4.0 }, 300);
        assert!(burst.fold(0.0, f64::max) < 8.0);
        let rise: alloc::vec::Vec<_> = averages(|sample| if sample >= 100 { 50.0 } else { 4.0 }, 300).collect();
        assert!((rise[99] - 4.0).abs() < 0.1 && rise[130] > 40.0 && (rise[299] - 50.0).abs() < 0.1);
    }

    #[test]
    fn two_looks_at_one_time_say_the_same() {
        let mut smoothed = Smoothed::new(Timestamp::ZERO, Totals::default());
        let now = Timestamp::from_nanos(1_000_000);
        let totals = Totals { cpu: 0.001, runnable: 0.003 };
        assert_eq!(smoothed.sample(now, totals), smoothed.sample(now, totals));
    }
}
