//! Envoy's filter `admission_control`, a client throttle, by its documentation.
//!
//! ```text
//! P(throttle) = min(most, ((sent − succeeded ÷ threshold) ÷ (sent + 1))^(1 ÷ aggression))
//! ```
//!
//! over a sliding window of *sent* requests. Unlike in SRE ch. 21, throttled requests do not count.
//! So at x times the capacity, the number of sent requests grows with √x, and with x itself where
//! `most` binds.

use std::collections::VecDeque;
use std::time::Duration;

use plimsoll_core::Timestamp;

/// Envoy's defaults, at version 1.40.
pub(crate) const WINDOW: Duration = Duration::from_secs(30);
pub(crate) const THRESHOLD: f64 = 0.95;
pub(crate) const AGGRESSION: f64 = 1.0;
pub(crate) const MOST: f64 = 0.8;

/// Step by which the window moves.
const STEP: Duration = Duration::from_secs(1);

/// The state of one client.
#[derive(Clone, Debug, Default)]
pub(crate) struct AdmissionControl {
    /// The step, the requests sent in it, and those of them that succeeded.
    steps: VecDeque<(u64, u32, u32)>,
    sent: u32,
    succeeded: u32,
}

impl AdmissionControl {
    /// The probability that a request is throttled.
    pub(crate) fn probability(&mut self, now: Timestamp) -> f64 {
        self.slide(now);
        let (sent, succeeded) = (f64::from(self.sent), f64::from(self.succeeded));
        ((sent - succeeded / THRESHOLD) / (sent + 1.0)).max(0.0).powf(AGGRESSION.recip()).min(MOST)
    }

    /// A sent request has succeeded, or not.
    pub(crate) fn on_outcome(&mut self, now: Timestamp, is_success: bool) {
        let step = self.slide(now);
        if self.steps.back().is_none_or(|last| last.0 < step) {
            self.steps.push_back((step, 0, 0));
        }
        if let Some((_, sent, succeeded)) = self.steps.back_mut() {
            *sent += 1;
            *succeeded += u32::from(is_success);
            self.sent += 1;
            self.succeeded += u32::from(is_success);
        }
    }

    fn slide(&mut self, now: Timestamp) -> u64 {
        let step = now.as_nanos() / STEP.as_nanos() as u64;
        let kept = WINDOW.as_secs() / STEP.as_secs();
        while let Some((first, sent, succeeded)) = self.steps.front().copied()
            && first + kept <= step
        {
            self.sent -= sent;
            self.succeeded -= succeeded;
            self.steps.pop_front();
        }
        step
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secs(secs: u64) -> Timestamp {
        Timestamp::from_origin(Duration::from_secs(secs))
    }

    #[test]
    fn client_throttles_by_the_outcomes_of_half_a_minute() {
        let mut client = AdmissionControl::default();
        assert_eq!(client.probability(secs(0)), 0.0);
        for n in 0..100 {
            client.on_outcome(secs(n / 10), n < 95);
        }
        assert!(client.probability(secs(10)).abs() < 1e-12, "95 of a hundred are enough");
        (0..100).for_each(|_| client.on_outcome(secs(10), false));
        assert!((client.probability(secs(10)) - 100.0 / 201.0).abs() < 1e-12);
        (0..900).for_each(|_| client.on_outcome(secs(10), false));
        assert_eq!(client.probability(secs(10)), 0.8, "never more than that");
        assert_eq!(client.probability(secs(40)), 0.0, "all of it is forgotten");
    }
}
