//! Capability of a backend: the requests per second that it would serve at full utilization.
//!
//! ```text
//! capability = (qps − eps) ÷ (utilization + error penalty · eps/qps)
//! ```
//!
//! from its load reports (gRFC A58; its numerator is qps, but failed requests are no service, so
//! they are subtracted here). It needs no knowledge of machines or costs. A backend that is twice
//! as fast, or whose requests cost half as much, reports half the utilization at the same qps.
//! Requests in proportion to capability bring all backends to the same utilization.
//!
//! If that is not enough, since not all clients send to all backends, [feedback](super::feedback)
//! does the rest.
//!
//! The value is smoothed, because utilization is measured over short windows. It does not count
//! during `blackout`, while a new backend is still warming up, nor after `expiry`, when it is
//! stale. Unknown does not mean small: a backend without capability gets the mean of the others.

use core::time::Duration;

use super::feedback::{Feedback, Utilization};
use crate::{LoadReport, Timestamp, decay};

/// Weights from load reports: the settings.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct WeightedConfig {
    /// Time after a backend's first report during which its reports are collected but do not count.
    pub blackout: Duration,
    /// Time without a report after which the capability no longer counts.
    pub expiry: Duration,
    /// Time between two computations of the weights.
    pub update: Duration,
    /// Half-life of earlier reports.
    pub smoothing: Duration,
    /// Utilization charged to a backend whose requests all fail.
    pub error_penalty: f64,
    /// Time constant of the correction of weights by utilization, where capability alone leaves it
    /// uneven. Zero turns it off.
    pub feedback: Duration,
}

impl WeightedConfig {
    /// gRFC A58's `blackout_period`.
    pub const DEFAULT_BLACKOUT: Duration = Duration::from_secs(10);
    /// gRFC A58's `weight_expiration_period`.
    pub const DEFAULT_EXPIRY: Duration = Duration::from_secs(180);
    /// gRFC A58's `weight_update_period`.
    pub const DEFAULT_UPDATE: Duration = Duration::from_secs(1);
    /// gRFC A58's floor of the update period: faster, and the weights would follow noise.
    pub const MIN_UPDATE: Duration = Duration::from_millis(100);
    /// Averages over the few seconds that a utilization measured over one second needs to settle. A
    /// change of a backend's speed shows within ten.
    pub const DEFAULT_SMOOTHING: Duration = Duration::from_secs(3);
    /// gRFC A58's `error_utilization_penalty`.
    pub const DEFAULT_ERROR_PENALTY: f64 = 1.0;
    /// More than twice the age of the knowledge of utilization, so that corrections do not
    /// overshoot.
    pub const DEFAULT_FEEDBACK: Duration = Duration::from_secs(15);
}

impl Default for WeightedConfig {
    fn default() -> Self {
        Self {
            blackout: Self::DEFAULT_BLACKOUT,
            expiry: Self::DEFAULT_EXPIRY,
            update: Self::DEFAULT_UPDATE,
            smoothing: Self::DEFAULT_SMOOTHING,
            error_penalty: Self::DEFAULT_ERROR_PENALTY,
            feedback: Self::DEFAULT_FEEDBACK,
        }
    }
}

/// The parts of a weight.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct CapabilityEstimate {
    pub(crate) weight: f64,
    /// At least half of its requests succeed. The capability of a failing backend says nothing
    /// about the usual one.
    pub(crate) serves: bool,
}

/// The knowledge from one backend's reports.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Capability {
    /// Requests per second at full utilization.
    value: f64,
    serves: bool,
    /// Time of the first report since the backend was added, or since reports stopped for `expiry`.
    first: Option<Timestamp>,
    last: Timestamp,
    pub(crate) feedback: Feedback,
}

impl Capability {
    /// Takes a report. A report without a rate or a utilization has no effect. `failing` is the
    /// share of failed requests that this client saw. Without it, a backend that answers with fast
    /// errors and does not report them would look like the most capable of all.
    pub(crate) fn on_report(&mut self, now: Timestamp, report: &LoadReport, failing: f64, config: &WeightedConfig) {
        let Some(utilization) = report.utilization() else { return };
        if !(report.qps.is_finite() && report.qps > 0.0) {
            return;
        }
        let reported = if report.eps.is_finite() { report.eps } else { 0.0 };
        let eps = reported.clamp(failing * report.qps, report.qps);
        let charged = utilization + config.error_penalty * eps / report.qps;
        let seen = Utilization { reported: utilization, charged, qps: report.qps };
        let sample = (report.qps - eps) / charged;
        if !sample.is_finite() {
            return;
        }
        let serves = 2.0 * eps <= report.qps;
        if self.first.is_none() || self.expired(now, config) {
            *self = Self { value: sample, serves, first: Some(now), last: now, feedback: Feedback::default() };
            self.feedback.on_report(now, seen, 0.0);
            return;
        }
        let left = decay::remaining(now, self.last, config.smoothing);
        self.value = sample + (self.value - sample) * left;
        self.feedback.on_report(now, seen, left);
        (self.serves, self.last) = (serves, now);
    }

    /// Caps the capability at `most`, which the other backends suggest. A wild report would
    /// otherwise take its half-lives to be forgotten.
    pub(crate) fn cap(&mut self, most: f64) {
        self.value = self.value.min(most);
    }

    /// Starts over: the backend was unreachable, and its former capability is no evidence.
    pub(crate) fn reset(&mut self) {
        *self = Self::default();
    }

    /// The capability with its feedback, if it counts now.
    pub(crate) fn weight(&self, now: Timestamp, config: &WeightedConfig) -> Option<CapabilityEstimate> {
        let factor = if config.feedback.is_zero() { 1.0 } else { self.feedback.factor() };
        self.known(now, config).map(|value| CapabilityEstimate { weight: value * factor, serves: self.serves })
    }

    /// The capability, if it counts now.
    pub(crate) fn known(&self, now: Timestamp, config: &WeightedConfig) -> Option<f64> {
        let first = self.first?;
        (!self.expired(now, config) && now.since(first) >= config.blackout).then_some(self.value)
    }

    fn expired(&self, now: Timestamp, config: &WeightedConfig) -> bool {
        now.since(self.last) >= config.expiry
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CONFIG: WeightedConfig = WeightedConfig {
        blackout: WeightedConfig::DEFAULT_BLACKOUT,
        expiry: WeightedConfig::DEFAULT_EXPIRY,
        update: WeightedConfig::DEFAULT_UPDATE,
        smoothing: WeightedConfig::DEFAULT_SMOOTHING,
        error_penalty: WeightedConfig::DEFAULT_ERROR_PENALTY,
        feedback: WeightedConfig::DEFAULT_FEEDBACK,
    };

    fn secs(secs: u64) -> Timestamp {
        Timestamp::from_origin(Duration::from_secs(secs))
    }

    fn report(utilization: f64, qps: f64, eps: f64) -> LoadReport {
        LoadReport { cpu_utilization: utilization, qps, eps, ..LoadReport::default() }
    }

    #[test]
    fn unknown_in_blackout_and_when_stale_and_in_blackout_again_after() {
        let mut capability = Capability::default();
        assert_eq!(capability.known(secs(0), &CONFIG), None);
        capability.on_report(secs(0), &report(0.5, 100.0, 0.0), 0.0, &CONFIG);
        assert_eq!(capability.known(secs(9), &CONFIG), None);
        assert_eq!(capability.known(secs(10), &CONFIG), Some(200.0));
        assert_eq!(capability.known(secs(180), &CONFIG), None);
        capability.on_report(secs(200), &report(0.5, 100.0, 0.0), 0.0, &CONFIG);
        assert_eq!(capability.known(secs(201), &CONFIG), None);
        assert_eq!(capability.known(secs(210), &CONFIG), Some(200.0));
    }

    #[test]
    fn failures_are_no_service_and_cost_utilization() {
        let mut capability = Capability::default();
        capability.on_report(secs(0), &report(0.25, 100.0, 50.0), 0.0, &CONFIG);
        let known = capability.known(secs(10), &CONFIG).expect("known");
        assert!((known - 50.0 / 0.75).abs() < 1e-9, "{known}");
    }

    #[test]
    fn capability_forgets_half_of_old_reports_in_a_half_life() {
        let mut capability = Capability::default();
        capability.on_report(secs(0), &report(0.5, 100.0, 0.0), 0.0, &CONFIG);
        capability.on_report(secs(3), &report(0.5, 200.0, 0.0), 0.0, &CONFIG);
        assert!((capability.value - 300.0).abs() < 0.1, "{}", capability.value);
    }

    #[test]
    fn reports_without_rate_or_utilization_teach_nothing() {
        let mut capability = Capability::default();
        for junk in [
            report(0.0, 100.0, 0.0),
            report(0.5, 0.0, 0.0),
            report(f64::NAN, 1.0, 0.0),
            report(0.5, f64::INFINITY, 0.0),
            report(1e-300, 1e300, 0.0),
        ] {
            capability.on_report(secs(0), &junk, 0.0, &CONFIG);
        }
        assert_eq!(capability.known(secs(100), &CONFIG), None);
    }
}
