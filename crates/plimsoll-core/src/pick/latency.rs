//! Latency of a backend: an average that rises at once and falls slowly.
//!
//! ```text
//! sample > value:  value = sample
//! otherwise:       value = sample + (value − sample) · 2^(−Δt/h)
//! ```
//!
//! `value` is the one after the last sample. Between samples the estimate fades with the same
//! half-life, so that a backend that was slow once gets requests again.

use core::time::Duration;

use crate::{Timestamp, decay};

/// Finagle's time constant of 10 s, as a half-life (10 s · ln 2).
const HALF_LIFE: Duration = Duration::from_millis(6931);

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct PeakEwma {
    seconds: f64,
    /// Time of the last sample; `None` before the first.
    at: Option<Timestamp>,
}

impl PeakEwma {
    /// Takes the latency of an answered request.
    pub(crate) fn on_answer(&mut self, now: Timestamp, latency: Duration) {
        let sample = latency.as_secs_f64();
        // One formula covers both cases: a sample above the unfaded value is above the average too.
        let left = self.at.map_or(0.0, |at| decay::remaining(now, at, HALF_LIFE));
        self.seconds = (self.seconds * left + sample * (1.0 - left)).max(sample);
        self.at = Some(now);
    }

    /// Takes the latency of a failed request, if it is higher. A fast failure is no sign of speed.
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
    fn latency_rises_at_once_and_halves_in_a_half_life() {
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
    fn latency_fades_without_requests() {
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
        // After one half-life, half of the old second counts, and half of the sample.
        for (sample_ms, want_ms) in [(100, 550.0), (490, 745.0), (510, 755.0), (999, 999.5), (1_100, 1_100.0)] {
            near(&after(sample_ms), ms(6_931), want_ms);
        }
    }
}
