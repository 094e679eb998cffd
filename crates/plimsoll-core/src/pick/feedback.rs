//! Feedback: corrects each weight by utilization, where capability alone leaves it uneven.
//!
//! Requests in proportion to [capability](super::capability) bring all backends to the same
//! utilization, if all clients together send each backend its share. With subsets and unequal
//! clients they do not. A backend with the busiest clients gets more than its share from all of
//! them. Its capability, requests over utilization, does not show that. So each weight has a factor
//! c that follows the backend's utilization u:
//!
//! ```text
//! c ← c · (1 + Δt/T · (ū/u − 1)),   1/4 ≤ c ≤ 4
//! ```
//!
//! Here ū is the harmonic mean over the backends that this client knows, at which the corrections
//! balance, and T is the time constant. The factor that brings u to ū is ū/u, whatever other
//! clients send. All clients of the backend see the same report and correct alike, so they need not
//! know each other. T must be well above the age of the knowledge of utilization, or corrections
//! overshoot. That age is a window of one second, smoothing, and one update: some six seconds.
//!
//! Some servers report a configured number as their utilization, to get fixed shares (the only way
//! that gRPC has). No correction would ever change it, and c would run into its limit. A
//! measurement never stays the same for long. So a utilization that does not move counts as
//! configured, and c returns to 1. Charges for failures do not make it a measurement. A utilization
//! of 1 or more that stands still while its rate moves does count: such a server is full, and
//! cannot report by how much.
//!
//! A backend in slow start is left out. It gets less than its weight, whatever the weight is. Its
//! factor would only wind up, and act on the backend in full when slow start ends. A backend may
//! also begin to get its weight's share: slow start ends, its reports count, or the policy comes
//! into force. Its smoothed utilization is then still from the time before. Until an eighth of that
//! is left, after three half-lives of the smoothing, nothing is corrected. Capability has already
//! corrected the earlier difference.

use core::time::Duration;

use crate::{Timestamp, decay};

/// A utilization unchanged for this long is not measured. Servers that measure it do so every
/// second or more often.
const MEASURED_WITHIN: Duration = Duration::from_secs(5);
/// Utilization added on both sides: below it, a measurement is noise.
const FLOOR: f64 = 0.01;
/// Limits of the factor. Clients cannot correct a backend that is further from its share.
const LIMITS: (f64, f64) = (0.25, 4.0);
/// Cap of a reported utilization. Backends that report percent can still be told from each other,
/// and an absurd report is forgotten in seven half-lives.
const MAX_UTILIZATION: f64 = 100.0;
/// Half-lives of the smoothing after which earlier reports no longer count.
const SETTLING: u32 = 3;
/// Limits of ū/u in one step.
const STEP: (f64, f64) = (0.5, 2.0);

/// The utilization in a load report.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Utilization {
    /// The backend's own value.
    pub(crate) reported: f64,
    /// The reported value plus the charge for its failures.
    pub(crate) charged: f64,
    /// Requests per second of the same report.
    pub(crate) qps: f64,
}

impl Utilization {
    /// Whether a measuring server could report one after the other.
    fn moved_since(&self, before: &Self) -> bool {
        self.reported != before.reported || self.reported >= 1.0 && self.qps != before.qps
    }
}

/// The correction of one backend's weight.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Feedback {
    /// The last report.
    reported: Option<Utilization>,
    /// Time of the last change of the reported utilization; `None` before any change.
    changed: Option<Timestamp>,
    /// Smoothed, with charges.
    utilization: f64,
    /// Time since which it gets its weight's share; `None` while it does not.
    share_since: Option<Timestamp>,
    /// Whether that is long enough ago for its utilization to show it.
    settled: bool,
    factor: f64,
}

impl Default for Feedback {
    fn default() -> Self {
        Self { reported: None, changed: None, utilization: 0.0, share_since: None, settled: false, factor: 1.0 }
    }
}

impl Feedback {
    /// Takes a report; `left` is the remaining weight of earlier reports, in [0, 1].
    pub(crate) fn on_report(&mut self, now: Timestamp, utilization: Utilization, left: f64) {
        let charged = utilization.charged.min(MAX_UTILIZATION);
        match self.reported.replace(utilization) {
            None => self.utilization = charged,
            Some(before) => {
                if utilization.moved_since(&before) {
                    self.changed = Some(now);
                }
                self.utilization = charged + (self.utilization - charged) * left;
            }
        }
    }

    /// The factor to multiply the weight with.
    pub(crate) fn factor(&self) -> f64 {
        self.factor
    }

    /// Notes whether the backend gets its weight's share; `smoothing` is the half-life of reports.
    pub(crate) fn settle(&mut self, now: Timestamp, has_its_share: bool, smoothing: Duration) {
        let since = has_its_share.then(|| self.share_since.unwrap_or(now));
        self.share_since = since;
        self.settled = since.is_some_and(|since| now.since(since) >= smoothing * SETTLING);
    }

    /// The utilization to compare with others', if it is measured and settled.
    pub(crate) fn measured(&self, now: Timestamp) -> Option<f64> {
        let changed = self.changed.filter(|changed| self.settled && now.since(*changed) < MEASURED_WITHIN);
        changed.map(|_| self.utilization + FLOOR)
    }

    /// Moves the factor by the time since `last`; `mean` is that of all measured utilizations, if
    /// there are any.
    pub(crate) fn correct(&mut self, now: Timestamp, last: Timestamp, mean: Option<f64>, time_constant: Duration) {
        match self.measured(now).zip(mean) {
            Some((utilization, mean)) => {
                let share = (now.since(last).as_secs_f64() / time_constant.as_secs_f64()).min(1.0);
                let step = 1.0 + share * ((mean / utilization).clamp(STEP.0, STEP.1) - 1.0);
                self.factor = (self.factor * step).clamp(LIMITS.0, LIMITS.1);
            }
            None => self.factor = 1.0 + (self.factor - 1.0) * decay::remaining(now, last, time_constant),
        }
    }
}

/// The mean at which corrections balance: harmonic, so that all steps add up to zero. `None`
/// without any.
pub(crate) fn mean(utilizations: impl Iterator<Item = f64>) -> Option<f64> {
    let (mut count, mut sum) = (0_u32, 0.0);
    for utilization in utilizations {
        count += 1;
        sum += 1.0 / utilization;
    }
    (count > 0).then(|| f64::from(count) / sum)
}

#[cfg(test)]
mod tests {
    use super::*;

    const T: Duration = Duration::from_secs(10);

    fn secs(secs: u64) -> Timestamp {
        Timestamp::from_origin(Duration::from_secs(secs))
    }

    fn free_of_failures(utilization: f64) -> Utilization {
        Utilization { reported: utilization, charged: utilization, qps: 100.0 }
    }

    #[test]
    fn feedback_forgets_an_absurd_report() {
        let mut feedback = Feedback::default();
        for second in 0..30 {
            let utilization = if second == 1 { 1e300 } else { 0.5 };
            let left = if second == 0 { 0.0 } else { 0.8 };
            feedback.on_report(secs(second), free_of_failures(utilization), left);
        }
        assert!(feedback.utilization < 0.6, "{feedback:?}");
    }

    /// Runs `backends` for a minute. Each second, a backend reports the product of its factor and
    /// its excess, with a little noise. Returns the factors.
    fn run<const N: usize>(excess: [f64; N], noise: f64) -> [f64; N] {
        let mut backends = [Feedback::default(); N];
        for second in 1..60 {
            let now = secs(second);
            for (i, (backend, excess)) in backends.iter_mut().zip(excess).enumerate() {
                let noise = if (second + i as u64).is_multiple_of(2) { 1.0 + noise } else { 1.0 - noise };
                backend.on_report(now, free_of_failures(0.5 * excess * backend.factor() * noise), 0.8);
                backend.settle(now, true, Duration::ZERO);
            }
            let mean = mean(backends.iter().filter_map(|backend| backend.measured(now)));
            backends.iter_mut().for_each(|backend| backend.correct(now, secs(second - 1), mean, T));
        }
        backends.map(|backend| backend.factor())
    }

    #[test]
    fn feedback_evens_out_excess_load() {
        let excess = [1.4, 1.0, 0.8];
        let loads: [f64; 3] = core::array::from_fn(|i| run(excess, 0.02)[i] * excess[i]);
        for load in loads {
            assert!((load / loads[0] - 1.0).abs() < 0.05, "{loads:?}");
        }
    }

    #[test]
    fn feedback_ignores_utilization_from_before_the_full_share() {
        let mut backend = Feedback::default();
        for second in 1..40 {
            let now = secs(second);
            backend.on_report(now, free_of_failures(0.9 + second as f64 * 1e-3), 0.8);
            // From 10 s on it gets its weight's share, except for a moment at 25 s.
            backend.settle(now, second >= 10 && second != 25, Duration::from_secs(3));
            let settled = (19..25).contains(&second) || second >= 35;
            assert_eq!(backend.measured(now).is_some(), settled, "{second} s");
        }
    }

    #[test]
    fn equal_backends_are_left_alone() {
        for factor in run([1.0; 4], 0.1) {
            assert!((factor - 1.0).abs() < 0.03, "{factor}");
        }
    }

    #[test]
    fn constant_utilization_gets_no_feedback() {
        let mut backend = Feedback::default();
        for second in 1..100 {
            // Neither changing failures nor a changing rate make it a measurement.
            let rates = Utilization { charged: 0.9 + second as f64 * 1e-3, qps: 100.0 + second as f64, reported: 0.9 };
            backend.on_report(secs(second), rates, 0.8);
            backend.settle(secs(second), true, Duration::ZERO);
            backend.correct(secs(second), secs(second - 1), Some(0.3), T);
        }
        assert_eq!((backend.measured(secs(100)), backend.factor()), (None, 1.0));
    }

    #[test]
    fn feedback_lowers_weight_when_a_full_backend_reports_one() {
        let mut backend = Feedback::default();
        for second in 1..30 {
            let full = Utilization { qps: 100.0 + (second % 3) as f64, ..free_of_failures(1.0) };
            backend.on_report(secs(second), full, 0.8);
            backend.settle(secs(second), true, Duration::ZERO);
            backend.correct(secs(second), secs(second - 1), Some(0.5), T);
        }
        assert!(backend.factor() < 0.5, "{}", backend.factor());
    }

    #[test]
    fn feedback_fades_when_reports_stop_changing() {
        let mut backend = Feedback::default();
        for second in 1..200 {
            let utilization = if second < 60 { 0.9 + second as f64 * 1e-3 } else { 0.9 };
            backend.on_report(secs(second), free_of_failures(utilization), 0.8);
            backend.settle(secs(second), true, Duration::ZERO);
            // In the end no other backend has a measurement either.
            backend.correct(secs(second), secs(second - 1), (second < 100).then_some(0.3), T);
            if second == 60 {
                assert_eq!(backend.factor(), 0.25);
            }
        }
        assert!((backend.factor() - 1.0).abs() < 1e-3, "{}", backend.factor());
    }
}
