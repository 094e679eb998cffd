//! Feedback: what capability alone does not even out, utilization itself corrects.
//!
//! Requests in proportion to [capability](super::capability) bring all backends to the same utilization if all clients
//! together send each of them its share. With subsets and unequal clients they do not: a backend whose clients happen to be the
//! busy ones gets more than its share from all of them, and its capability, requests over utilization, does not show it.
//! So each weight is corrected by a factor c that follows the backend's utilization u:
//!
//! ```text
//! c ← c · (1 + Δt/T · (ū/u − 1)),   1/4 ≤ c ≤ 4
//! ```
//!
//! with ū the harmonic mean of those that this client knows, about which the corrections balance, and T the time constant.
//! The factor that makes u equal to ū is ū/u whoever else is sending, because all clients of the backend see the same
//! report and do the same; so nothing has to be known of them. T must be well above the age of what is known of
//! utilization (a window of one second, smoothing, and one update: some six seconds), or corrections overshoot.
//!
//! Some servers report a utilization that is a configured number and not a measurement, to be given fixed shares (it is
//! the only way that gRPC has). No correction would ever change it, and c would run into its limit. A measurement is never twice the
//! same for long, so a utilization that does not move is taken for what it is, and c goes back to 1. Failures that are
//! charged on top do not make it a measurement. One that stands still at 1 or more while its rate moves does: such a server
//! is full, and cannot say how much more than full.
//!
//! A backend in slow start is left out. It gets less than its weight says, whatever that is: its factor would only wind up,
//! and all of it come down on the backend when slow start ends. And when a backend begins to get what its weight says (slow
//! start is over, its reports are believed, the policy came into force), what is known of its utilization is still of
//! the time before. Until an eighth of that is left, after three half-lives of the smoothing, nothing is corrected: it would be corrected
//! for what capability has mended already.

use core::time::Duration;

use crate::{Timestamp, decay};

/// A utilization that has not changed for so long is not measured: the servers that do measure do it every second or more
/// often.
const MEASURED_WITHIN: Duration = Duration::from_secs(5);
/// Utilization added on both sides: below it, what is measured is noise.
const FLOOR: f64 = 0.01;
/// Limits of the factor: what is further from its share than that is not for clients to mend.
const LIMITS: (f64, f64) = (0.25, 4.0);
/// No report counts as more: who speaks of percent is still told from others who do, and what was beyond all measure is forgotten in
/// seven half-lives.
const MOST: f64 = 100.0;
/// Half-lives of the smoothing after which what was before does not count.
const SETTLING: u32 = 3;
/// Limits of ū/u in one step.
const STEP: (f64, f64) = (0.5, 2.0);

/// What a report says of utilization.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Utilization {
    /// As the backend named it.
    pub(crate) reported: f64,
    /// With what its failures are charged.
    pub(crate) charged: f64,
    /// Requests per second that it came with.
    pub(crate) qps: f64,
}

impl Utilization {
    /// Whether a server that measures would say one after the other.
    fn moved_since(&self, before: &Self) -> bool {
        self.reported != before.reported || self.reported >= 1.0 && self.qps != before.qps
    }
}

/// The correction of one backend's weight.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Feedback {
    /// As last reported.
    reported: Option<Utilization>,
    /// When that moved; `None` while it has not.
    changed: Option<Timestamp>,
    /// Smoothed.
    utilization: f64,
    /// Since when it gets what its weight says; `None` while it does not.
    share_since: Option<Timestamp>,
    /// That was long enough ago for its utilization to show it.
    settled: bool,
    factor: f64,
}

impl Default for Feedback {
    fn default() -> Self {
        Self { reported: None, changed: None, utilization: 0.0, share_since: None, settled: false, factor: 1.0 }
    }
}

impl Feedback {
    /// The backend reported this; `left` is what counts of earlier reports, in [0, 1].
    pub(crate) fn on_report(&mut self, now: Timestamp, utilization: Utilization, left: f64) {
        let charged = utilization.charged.min(MOST);
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

    /// What the weight is to be multiplied with.
    pub(crate) fn factor(&self) -> f64 {
        self.factor
    }

    /// The backend gets what its weight says, or does not; `smoothing` is the half-life of what earlier reports said.
    pub(crate) fn settle(&mut self, now: Timestamp, has_its_share: bool, smoothing: Duration) {
        let since = has_its_share.then(|| self.share_since.unwrap_or(now));
        self.share_since = since;
        self.settled = since.is_some_and(|since| now.since(since) >= smoothing * SETTLING);
    }

    /// The utilization to compare with others', if it is measured, and what weights have made of it.
    pub(crate) fn measured(&self, now: Timestamp) -> Option<f64> {
        let changed = self.changed.filter(|changed| self.settled && now.since(*changed) < MEASURED_WITHIN);
        changed.map(|_| self.utilization + FLOOR)
    }

    /// Moves the factor by the time since `last`; `mean` is that of all measured utilizations, if there are any.
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

/// The mean about which corrections balance: harmonic, so that the steps of all add up to none. `None` without any.
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
    fn a_report_beyond_all_measure_is_forgotten() {
        let mut feedback = Feedback::default();
        for second in 0..30 {
            let utilization = if second == 1 { 1e300 } else { 0.5 };
            let left = if second == 0 { 0.0 } else { 0.8 };
            feedback.on_report(secs(second), free_of_failures(utilization), left);
        }
        assert!(feedback.utilization < 0.6, "{feedback:?}");
    }

    /// Runs `backends` for a minute: each second its utilization is what its factor and its excess make it, and reported with a
    /// little noise. Returns the factors.
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
    fn a_backend_that_gets_too_much_gets_less_until_it_is_as_the_others() {
        let excess = [1.4, 1.0, 0.8];
        let loads: [f64; 3] = core::array::from_fn(|i| run(excess, 0.02)[i] * excess[i]);
        for load in loads {
            assert!((load / loads[0] - 1.0).abs() < 0.05, "{loads:?}");
        }
    }

    #[test]
    fn what_is_known_of_the_time_before_corrects_nothing() {
        let mut backend = Feedback::default();
        for second in 1..40 {
            let now = secs(second);
            backend.on_report(now, free_of_failures(0.9 + second as f64 * 1e-3), 0.8);
            // From 10 s on it gets what its weight says, but for a moment at 25 s.
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
    fn a_utilization_that_never_changes_is_no_measurement() {
        let mut backend = Feedback::default();
        for second in 1..100 {
            // Nor do the failures that come and go make it one, nor its rate.
            let rates = Utilization { charged: 0.9 + second as f64 * 1e-3, qps: 100.0 + second as f64, reported: 0.9 };
            backend.on_report(secs(second), rates, 0.8);
            backend.settle(secs(second), true, Duration::ZERO);
            backend.correct(secs(second), secs(second - 1), Some(0.3), T);
        }
        assert_eq!((backend.measured(secs(100)), backend.factor()), (None, 1.0));
    }

    #[test]
    fn a_full_backend_that_cannot_say_how_full_gets_less() {
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
    fn the_correction_is_forgotten_when_reports_stand_still() {
        let mut backend = Feedback::default();
        for second in 1..200 {
            let utilization = if second < 60 { 0.9 + second as f64 * 1e-3 } else { 0.9 };
            backend.on_report(secs(second), free_of_failures(utilization), 0.8);
            backend.settle(secs(second), true, Duration::ZERO);
            // Nor has any other backend a measurement, in the end.
            backend.correct(secs(second), secs(second - 1), (second < 100).then_some(0.3), T);
            if second == 60 {
                assert_eq!(backend.factor(), 0.25);
            }
        }
        assert!((backend.factor() - 1.0).abs() < 1e-3, "{}", backend.factor());
    }
}
