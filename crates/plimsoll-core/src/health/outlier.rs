//! Outlier detection: leaves out a backend that fails more than its peers.
//!
//! Two rules, both passive (gRFC A50, Envoy). The first looks at failures in a row, as they happen.
//! The second looks at success rates below `mean − k·σ` of the cluster, once per interval. Both
//! also need evidence that the backend, and not the load, is at fault: see [`peers`](super::peers).
//! An ejection lasts `base × times ejected`, at most `max`. The multiplier falls by one for each
//! interval without ejection. No more than a share of the backends is ejected at once, and never
//! the last healthy one.
//!
//! An *overloaded* answer is no failure here. Ejecting an overloaded backend would move its load to
//! the others and overload them too. The policies steer by such answers instead.
//!
//! Sources: Envoy's `outlier_detection`, gRFC A50. They lack the second condition. Envoy's users
//! report that the rule ejects healthy hosts wherever success rates hardly differ (issues 18752 and
//! 37723). Finagle's `FailureAccrual` judges each backend by itself, so a fault that all backends
//! share takes out all of them.

use core::num::NonZeroU32;
use core::time::Duration;

use super::peers::{Peer, Row, Tally};
use crate::{Ratio, Timestamp};

/// The settings of outlier detection.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct OutlierConfig {
    /// Failures in a row that eject; `None` turns the rule off.
    pub consecutive_failures: Option<NonZeroU32>,
    /// Standard deviations below the mean at which a success rate ejects; `None` turns the rule
    /// off.
    pub success_rate_stdev: Option<f64>,
    /// Time between two sweeps of success rates.
    pub interval: Duration,
    /// Length of the first ejection.
    pub base_ejection: Duration,
    /// Length of the longest ejection.
    pub max_ejection: Duration,
    /// Share of the backends that may be ejected at once; one is always allowed.
    pub max_ejected: Ratio,
    /// Backends with enough requests below which success rates are not compared.
    pub min_hosts: u32,
    /// Requests in an interval below which a success rate is no evidence.
    pub min_requests: u32,
}

impl OutlierConfig {
    /// Envoy's `consecutive_5xx`.
    pub const DEFAULT_CONSECUTIVE_FAILURES: NonZeroU32 = NonZeroU32::new(5).expect("not zero");
    /// gRFC A50's `stdev_factor` of 1900 thousandths.
    pub const DEFAULT_SUCCESS_RATE_STDEV: f64 = 1.9;
    /// gRFC A50.
    pub const DEFAULT_INTERVAL: Duration = Duration::from_secs(10);
    /// gRFC A50.
    pub const DEFAULT_BASE_EJECTION: Duration = Duration::from_secs(30);
    /// gRFC A50.
    pub const DEFAULT_MAX_EJECTION: Duration = Duration::from_secs(300);
    /// gRFC A50.
    pub const DEFAULT_MAX_EJECTED: Ratio = Ratio::from_percent(10);
    /// gRFC A50.
    pub const DEFAULT_MIN_HOSTS: u32 = 5;
    /// gRFC A50.
    pub const DEFAULT_MIN_REQUESTS: u32 = 100;

    /// Whether one more of `members` may be ejected.
    pub(crate) fn allows(&self, members: usize, healthy: usize, ejected: usize) -> bool {
        let most = ((self.max_ejected.as_f64() * members as f64) as usize).max(1);
        healthy > 1 && ejected < most
    }
}

impl Default for OutlierConfig {
    fn default() -> Self {
        Self {
            consecutive_failures: Some(Self::DEFAULT_CONSECUTIVE_FAILURES),
            success_rate_stdev: Some(Self::DEFAULT_SUCCESS_RATE_STDEV),
            interval: Self::DEFAULT_INTERVAL,
            base_ejection: Self::DEFAULT_BASE_EJECTION,
            max_ejection: Self::DEFAULT_MAX_EJECTION,
            max_ejected: Self::DEFAULT_MAX_EJECTED,
            min_hosts: Self::DEFAULT_MIN_HOSTS,
            min_requests: Self::DEFAULT_MIN_REQUESTS,
        }
    }
}

/// Weight of one request in the recent share of failures: a memory of about ten requests. Fewer,
/// and chance rules; more, and an outage of all backends shows too late.
const GAIN: f64 = 0.1;

/// The memory of outlier ejection for one backend.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Outlier {
    row: Row,
    /// Share of failures among about the last ten requests.
    failing: f64,
    /// Requests of this interval.
    pub(crate) tally: Tally,
    previous: Tally,
    multiplier: u32,
}

impl Outlier {
    pub(crate) fn on_success(&mut self) {
        self.row = Row::default();
        self.failing -= self.failing * GAIN;
        self.tally.successes += 1;
    }

    /// The row of failures, if it is now long enough to eject.
    pub(crate) fn on_failure(&mut self, config: &OutlierConfig) -> Option<Row> {
        self.row.failures += 1;
        self.tally.failures += 1;
        self.on_any_failure(config)
    }

    /// [`Outlier::on_failure`] for a timeout.
    pub(crate) fn on_timeout(&mut self, config: &OutlierConfig) -> Option<Row> {
        self.row.timeouts += 1;
        self.tally.timeouts += 1;
        self.on_any_failure(config)
    }

    pub(crate) fn on_overloaded(&mut self) {
        self.tally.overloaded += 1;
    }

    /// The failures of this backend, as evidence for its peers.
    pub(crate) fn as_peer(&self) -> Peer {
        Peer { failing: self.failing, tally: self.previous.with(&self.tally) }
    }

    fn on_any_failure(&mut self, config: &OutlierConfig) -> Option<Row> {
        self.failing += (1.0 - self.failing) * GAIN;
        config.consecutive_failures.filter(|min| self.row.is_due(min.get())).map(|_| self.row.mark_compared())
    }

    /// Begins an ejection. Returns its end.
    pub(crate) fn eject(&mut self, now: Timestamp, config: &OutlierConfig) -> Timestamp {
        self.multiplier += 1;
        self.row = Row::default();
        now + config.base_ejection.saturating_mul(self.multiplier).min(config.max_ejection)
    }

    /// The success rate of the interval that ends, if it had enough requests.
    pub(crate) fn success_rate(&self, config: &OutlierConfig) -> Option<f64> {
        let total = self.tally.total();
        (total > 0 && total >= u64::from(config.min_requests)).then(|| self.tally.successes as f64 / total as f64)
    }

    /// Begins the next interval.
    pub(crate) fn next_interval(&mut self, ejected: bool) {
        self.previous = core::mem::take(&mut self.tally);
        if !ejected {
            self.multiplier = self.multiplier.saturating_sub(1);
        }
    }
}

/// The success rate below which a backend is an outlier.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SuccessRateFloor {
    mean: f64,
    /// (k·σ)²
    square_below_mean: f64,
}

impl SuccessRateFloor {
    /// The floor for a fleet with these success rates; `None` if they are too few.
    pub(crate) fn new(config: &OutlierConfig, rates: impl Iterator<Item = f64> + Clone) -> Option<Self> {
        let stdevs = config.success_rate_stdev?;
        let count = rates.clone().count();
        if count == 0 || count < config.min_hosts as usize {
            return None;
        }
        let mean = rates.clone().sum::<f64>() / count as f64;
        let variance = rates.map(|rate| (rate - mean) * (rate - mean)).sum::<f64>() / count as f64;
        Some(Self { mean, square_below_mean: stdevs * stdevs * variance })
    }

    /// Whether `rate < mean − k·σ`, computed on squares, which needs no root.
    pub(crate) fn is_outlier(&self, rate: f64) -> bool {
        let below = self.mean - rate;
        below > 0.0 && below * below > self.square_below_mean
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use std::vec::Vec;

    use super::*;

    #[test]
    fn failures_must_come_in_a_row() {
        let config = OutlierConfig::default();
        let mut outlier = Outlier::default();
        for _ in 0..4 {
            assert_eq!(outlier.on_failure(&config), None);
        }
        outlier.on_success();
        for _ in 0..4 {
            assert_eq!(outlier.on_failure(&config), None);
        }
        assert!(outlier.on_failure(&config).is_some());
    }

    #[test]
    fn each_ejection_is_longer_until_a_quiet_interval_forgives_one() {
        let config = OutlierConfig::default();
        let mut outlier = Outlier::default();
        let length = |outlier: &mut Outlier| outlier.eject(Timestamp::ZERO, &config).as_nanos() / 1_000_000_000;
        assert_eq!((length(&mut outlier), length(&mut outlier)), (30, 60));
        outlier.next_interval(false);
        assert_eq!(length(&mut outlier), 60);
        for _ in 0..20 {
            length(&mut outlier);
        }
        assert_eq!(length(&mut outlier), 300);
    }

    #[test]
    fn the_last_healthy_backend_is_never_ejected() {
        let config = OutlierConfig::default();
        assert!(!config.allows(1, 1, 0));
        assert!(config.allows(4, 4, 0));
        assert!(!config.allows(4, 3, 1));
        assert!(config.allows(20, 19, 1));
    }

    #[test]
    fn only_a_rate_far_below_the_fleet_is_an_outlier() {
        let config = OutlierConfig::default();
        let rates: Vec<f64> = [0.99, 0.98, 1.0, 0.99, 0.98, 1.0, 0.99, 0.5].to_vec();
        let floor = SuccessRateFloor::new(&config, rates.iter().copied()).unwrap();
        assert!(floor.is_outlier(0.5));
        assert!(!floor.is_outlier(0.98));
        assert!(SuccessRateFloor::new(&config, rates.iter().copied().take(4)).is_none());
    }

    #[test]
    fn success_rate_is_unknown_when_requests_are_too_few() {
        let config = OutlierConfig::default();
        let mut outlier = Outlier::default();
        for _ in 0..99 {
            outlier.on_success();
        }
        assert_eq!(outlier.success_rate(&config), None);
        outlier.on_success();
        assert_eq!(outlier.success_rate(&config), Some(1.0));
    }

    #[test]
    fn only_a_rate_below_the_mean_by_more_than_the_floor_is_an_outlier() {
        let floor = SuccessRateFloor { mean: 0.75, square_below_mean: 0.0625 };
        for (rate, is_outlier) in [(0.4, true), (0.49, true), (0.5, false), (0.6, false), (1.0, false), (1.1, false)] {
            assert_eq!(floor.is_outlier(rate), is_outlier, "{rate}");
        }
    }

    #[test]
    fn interval_without_requests_has_no_success_rate() {
        let config = OutlierConfig { min_requests: 0, ..OutlierConfig::default() };
        let mut outlier = Outlier::default();
        assert_eq!(outlier.success_rate(&config), None);
        outlier.on_success();
        assert_eq!(outlier.success_rate(&config), Some(1.0));
    }
}
