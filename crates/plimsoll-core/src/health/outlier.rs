//! Outlier ejection: leave out a backend that answers worse than its fellows.
//!
//! Two rules, both passive (gRFC A50, Envoy): several failures in a row, seen at once; and a success rate
//! below `mean − k·σ` of the fleet, looked at once per interval. An ejection lasts `base × times ejected`, at
//! most `max`; the multiplier falls by one for each interval without ejection. Never more than a share of the backends
//! at once, and never the last healthy one: a fault that all share is no outlier.
//!
//! An *overloaded* answer is no failure here. Ejecting a backend for being full would push its load onto
//! the others and fill them too; the policies steer by it instead.

use core::num::NonZeroU32;
use core::time::Duration;

use crate::{Ratio, Timestamp};

/// When a backend is ejected, and for how long.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct OutlierConfig {
    /// Failures in a row that eject; `None` turns the rule off.
    pub consecutive_failures: Option<NonZeroU32>,
    /// How many standard deviations below the mean a success rate ejects; `None` turns the rule off.
    pub success_rate_stdev: Option<f64>,
    /// Between two looks at success rates.
    pub interval: Duration,
    /// Length of the first ejection.
    pub base_ejection: Duration,
    /// Length of the longest.
    pub max_ejection: Duration,
    /// Share of the backends that may be ejected at once; one is always allowed.
    pub max_ejected: Ratio,
    /// Backends with enough requests below which success rates are not compared.
    pub min_hosts: u32,
    /// Requests in an interval below which a success rate says nothing.
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

/// What outlier ejection remembers of one backend.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Outlier {
    failures_in_a_row: u32,
    successes: u32,
    total: u32,
    multiplier: u32,
}

impl Outlier {
    pub(crate) fn on_success(&mut self) {
        self.failures_in_a_row = 0;
        self.successes += 1;
        self.total += 1;
    }

    /// Whether the failures in a row now suffice to eject.
    pub(crate) fn on_failure(&mut self, config: &OutlierConfig) -> bool {
        self.failures_in_a_row += 1;
        self.total += 1;
        config.consecutive_failures.is_some_and(|most| self.failures_in_a_row >= most.get())
    }

    /// Begins an ejection: until when.
    pub(crate) fn eject(&mut self, now: Timestamp, config: &OutlierConfig) -> Timestamp {
        self.multiplier += 1;
        self.failures_in_a_row = 0;
        now + config.base_ejection.saturating_mul(self.multiplier).min(config.max_ejection)
    }

    /// The success rate of the interval that ends, if it had requests enough.
    pub(crate) fn success_rate(&self, config: &OutlierConfig) -> Option<f64> {
        (self.total > 0 && self.total >= config.min_requests).then(|| f64::from(self.successes) / f64::from(self.total))
    }

    /// Begins the next interval.
    pub(crate) fn next_interval(&mut self, ejected: bool) {
        (self.successes, self.total) = (0, 0);
        if !ejected {
            self.multiplier = self.multiplier.saturating_sub(1);
        }
    }
}

/// The line below which a success rate is an outlier.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SuccessRateFloor {
    mean: f64,
    /// (k·σ)²
    square_below_mean: f64,
}

impl SuccessRateFloor {
    /// The line for a fleet with these success rates, or `None` when there are too few to tell.
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
            assert!(!outlier.on_failure(&config));
        }
        outlier.on_success();
        for _ in 0..4 {
            assert!(!outlier.on_failure(&config));
        }
        assert!(outlier.on_failure(&config));
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
    fn too_few_requests_say_nothing() {
        let config = OutlierConfig::default();
        let mut outlier = Outlier::default();
        for _ in 0..99 {
            outlier.on_success();
        }
        assert_eq!(outlier.success_rate(&config), None);
        outlier.on_success();
        assert_eq!(outlier.success_rate(&config), Some(1.0));
    }
}
