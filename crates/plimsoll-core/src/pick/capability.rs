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
//! A backend may report a utilization and no rate. Its requests per second are then
//! [counted](super::counted) here.
//!
//! The value is smoothed, because utilization is measured over short windows. It does not count
//! during `blackout`, while a new backend is still warming up, nor after `expiry`, when it is
//! stale. Unknown does not mean small: a backend without capability gets the mean of the others.

use core::time::Duration;

use super::counted::{Counted, OwnRequests};
use super::feedback::{Feedback, Utilization};
use crate::{LoadReport, Timestamp, decay};

/// Weights from load reports: the settings.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
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

/// The origin of the rate in a capability. Capabilities of one source compare with each other only.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RateSource {
    /// The backend's reports: the requests of all clients.
    Reported,
    /// The requests of this client.
    Counted,
}

/// The parts of a weight.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct CapabilityEstimate {
    /// Weight by the backend's own reports.
    pub(crate) weight: f64,
    /// Part of the mean, in [0, 1], to add to it. Zero for a reported rate.
    pub(crate) prior: f64,
    pub(crate) source: RateSource,
    /// Its utilization does not follow its load: the weight is the mean at most.
    pub(crate) is_pinned: bool,
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
    /// The rate of this client's requests, while the backend reports none.
    counted: Option<Counted>,
}

impl Capability {
    /// Takes a report. A report without a utilization has no effect. `own` has the share of failed
    /// requests that this client saw. Without it, a backend that answers with fast errors and does
    /// not report them would look like the most capable of all.
    pub(crate) fn on_report(
        &mut self,
        now: Timestamp,
        report: &LoadReport,
        own: &OwnRequests,
        config: &WeightedConfig,
    ) {
        let Some(utilization) = report.utilization() else { return };
        if !(report.qps.is_finite() && report.qps > 0.0) {
            if report.qps == 0.0 {
                self.count(now, utilization, own, config);
            }
            return;
        }
        let reported = if report.eps.is_finite() { report.eps } else { 0.0 };
        let eps = reported.clamp(own.failing * report.qps, report.qps);
        let charged = utilization + config.error_penalty * eps / report.qps;
        let seen = Utilization { reported: utilization, charged, qps: report.qps };
        let sample = (report.qps - eps) / charged;
        if !sample.is_finite() {
            return;
        }
        let serves = 2.0 * eps <= report.qps;
        if self.first.is_none() || self.counted.is_some() || self.expired(now, config) {
            *self = Self { value: sample, serves, first: Some(now), last: now, ..Self::default() };
            self.feedback.on_report(now, seen, 0.0);
            return;
        }
        let left = decay::remaining(now, self.last, config.smoothing);
        self.value = sample + (self.value - sample) * left;
        self.feedback.on_report(now, seen, left);
        (self.serves, self.last) = (serves, now);
    }

    /// Takes a report without a rate. A backend that reports its rate does so without requests too,
    /// as zero: such a report has no effect.
    fn count(&mut self, now: Timestamp, utilization: f64, own: &OwnRequests, config: &WeightedConfig) {
        if self.first.is_none() || self.expired(now, config) {
            let counted = Some(Counted::new(now, own, utilization));
            *self = Self { first: Some(now), last: now, counted, ..Self::default() };
        } else if let Some(counted) = &mut self.counted
            && counted.on_report(now, own, utilization, config)
        {
            self.last = now;
        }
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
        let value = self.known(now, config)?;
        if let Some(counted) = &self.counted {
            return counted.estimate(now, config);
        }
        let factor = if config.feedback.is_zero() { 1.0 } else { self.feedback.factor() };
        let (weight, serves, source) = (value * factor, self.serves, RateSource::Reported);
        Some(CapabilityEstimate { weight, prior: 0.0, serves, is_pinned: false, source })
    }

    /// The capability by reported rates, if reports count now; zero while the rate is counted.
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

    const OWN: OwnRequests = OwnRequests { begun_and_ended: 0, failing: 0.0 };

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
        capability.on_report(secs(0), &report(0.5, 100.0, 0.0), &OWN, &CONFIG);
        assert_eq!(capability.known(secs(9), &CONFIG), None);
        assert_eq!(capability.known(secs(10), &CONFIG), Some(200.0));
        assert_eq!(capability.known(secs(180), &CONFIG), None);
        capability.on_report(secs(200), &report(0.5, 100.0, 0.0), &OWN, &CONFIG);
        assert_eq!(capability.known(secs(201), &CONFIG), None);
        assert_eq!(capability.known(secs(210), &CONFIG), Some(200.0));
    }

    #[test]
    fn failures_are_no_service_and_cost_utilization() {
        let mut capability = Capability::default();
        capability.on_report(secs(0), &report(0.25, 100.0, 50.0), &OWN, &CONFIG);
        let known = capability.known(secs(10), &CONFIG).expect("known");
        assert!((known - 50.0 / 0.75).abs() < 1e-9, "{known}");
    }

    #[test]
    fn capability_forgets_half_of_old_reports_in_a_half_life() {
        let mut capability = Capability::default();
        capability.on_report(secs(0), &report(0.5, 100.0, 0.0), &OWN, &CONFIG);
        capability.on_report(secs(3), &report(0.5, 200.0, 0.0), &OWN, &CONFIG);
        assert!((capability.value - 300.0).abs() < 0.1, "{}", capability.value);
    }

    #[test]
    fn rate_is_counted_until_the_first_report_with_one() {
        let mut capability = Capability::default();
        let own = |requests| OwnRequests { begun_and_ended: 2 * requests, failing: 0.0 };
        for second in 0..=20 {
            let u = 0.5 + second as f64 * 1e-9;
            capability.on_report(secs(second), &report(u, 0.0, 0.0), &own(30 * second), &CONFIG);
            let estimate = capability.weight(secs(second), &CONFIG);
            assert_eq!(estimate.is_some(), second >= 10, "{second} s");
            if let Some(estimate) = estimate {
                assert!((estimate.weight - 30.0 / 0.55).abs() < 0.1, "{estimate:?}");
                assert_eq!(estimate.source, RateSource::Counted);
            }
        }
        capability.on_report(secs(21), &report(0.5, 100.0, 0.0), &own(630), &CONFIG);
        assert_eq!(capability.weight(secs(21), &CONFIG), None, "a blackout, as for a new backend");
        // A backend without requests reports no rate for a moment.
        capability.on_report(secs(25), &report(0.1, 0.0, 0.0), &own(700), &CONFIG);
        let estimate = capability.weight(secs(31), &CONFIG).expect("known");
        assert_eq!((estimate.weight, estimate.prior, estimate.source), (200.0, 0.0, RateSource::Reported));
        // Silence makes it a new backend, which may have another kind of reports.
        capability.on_report(secs(300), &report(0.1, 0.0, 0.0), &own(700), &CONFIG);
        capability.on_report(secs(309), &report(0.2, 0.0, 0.0), &own(790), &CONFIG);
        let estimate = capability.weight(secs(310), &CONFIG).expect("known");
        assert_eq!(estimate.source, RateSource::Counted);
    }

    #[test]
    fn reports_without_rate_or_utilization_teach_nothing() {
        let mut capability = Capability::default();
        for junk in [
            report(0.0, 100.0, 0.0),
            report(0.5, -1.0, 0.0),
            report(0.5, f64::NAN, 0.0),
            report(f64::NAN, 1.0, 0.0),
            report(0.5, f64::INFINITY, 0.0),
            report(1e-300, 1e300, 0.0),
        ] {
            capability.on_report(secs(0), &junk, &OWN, &CONFIG);
        }
        assert_eq!(capability.known(secs(100), &CONFIG), None);
    }
}
