//! Latency of a backend: an average that follows a rise at once and a fall slowly.
//!
//! ```text
//! sample > value:  value = sample
//! otherwise:       value = sample + (value − sample) · 2^(−Δt/h)
//! ```
//!
//! where value is the one after the last sample. Between samples the estimate fades by the same half-life, so that a backend that was
//! slow once and has not been asked since is asked again.

use core::time::Duration;

use crate::{Timestamp, decay};

/// Finagle's time constant is 10 s; this is the half-life that goes with it (10 s · ln 2).
const HALF_LIFE: Duration = Duration::from_millis(6931);

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct PeakEwma {
    seconds: f64,
    /// Of the last sample; `None` before the first.
    at: Option<Timestamp>,
}

impl PeakEwma {
    /// A request was answered after `latency`.
    pub(crate) fn on_answer(&mut self, now: Timestamp, latency: Duration) {
        let sample = latency.as_secs_f64();
        // A sample above the value before it faded is above the average too: one formula for both cases.
        let left = self.at.map_or(0.0, |at| decay::remaining(now, at, HALF_LIFE));
        self.seconds = (self.seconds * left + sample * (1.0 - left)).max(sample);
        self.at = Some(now);
    }

    /// A request failed after `latency`: that may be slow news, but a fast failure is no sign of speed.
    pub(crate) fn on_failure(&mut self, now: Timestamp, latency: Duration) {
        if self.at.is_some() && latency.as_secs_f64() > self.seconds(now).unwrap_or(0.0) {
            self.on_answer(now, latency);
        }
    }

    /// The estimate, in seconds; `None` before the first answer.
    pub(crate) fn seconds(&self, now: Timestamp) -> Option<f64> {
        self.at.map(|at| self.seconds * decay::remaining(now, at, HALF_LIFE))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(ms: u64) -> Timestamp {
        Timestamp::from_origin(Duration::from_millis(ms))
    }

    fn near(latency: &PeakEwma, now: Timestamp, want_ms: f64) {
        let got = latency.seconds(now).expect("has samples") * 1e3;
        assert!((got - want_ms).abs() < 0.02 * want_ms, "{got} ms for {want_ms} ms");
    }

    #[test]
    fn rises_at_once_and_falls_by_half_in_a_half_life() {
        let mut latency = PeakEwma::default();
        assert_eq!(latency.seconds(ms(0)), None);
        latency.on_answer(ms(0), Duration::from_millis(10));
        latency.on_answer(ms(1), Duration::from_millis(110));
        near(&latency, ms(1), 110.0);
        for i in 1..=6931 {
            latency.on_answer(ms(1 + i), Duration::from_millis(10));
        }
        near(&latency, ms(6932), 60.0);
    }

    #[test]
    fn fades_while_nobody_asks() {
        let mut latency = PeakEwma::default();
        latency.on_answer(ms(0), Duration::from_millis(100));
        near(&latency, ms(6931), 50.0);
    }

    #[test]
    fn a_fast_failure_does_not_look_like_speed() {
        let mut latency = PeakEwma::default();
        latency.on_failure(ms(0), Duration::from_micros(10));
        assert_eq!(latency.seconds(ms(0)), None);
        latency.on_answer(ms(0), Duration::from_millis(100));
        latency.on_failure(ms(1), Duration::from_micros(10));
        near(&latency, ms(1), 100.0);
        latency.on_failure(ms(1), Duration::from_secs(1));
        near(&latency, ms(1), 1000.0);
    }

    #[test]
    fn higher_sample_never_gives_a_lower_estimate() {
        let after = |sample_ms: u64| {
            let mut latency = PeakEwma::default();
            latency.on_answer(ms(0), Duration::from_secs(1));
            latency.on_answer(ms(6_931), Duration::from_millis(sample_ms));
            latency
        };
        // Half of the old second counts after one half-life, and half of the sample.
        for (sample_ms, want_ms) in [(100, 550.0), (490, 745.0), (510, 755.0), (999, 999.5), (1_100, 1_100.0)] {
            near(&after(sample_ms), ms(6_931), want_ms);
        }
    }
}
