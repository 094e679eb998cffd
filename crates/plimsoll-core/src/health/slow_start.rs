//! Slow start: a new backend takes a growing share.
//!
//! A restarted task is slow at first: cold caches, code not yet compiled, connections to set up. So
//! its share rises in a straight line from `floor` to the whole over `window`. Slow start applies
//! to the policy's pick. With n backends, a backend gets one in `n ÷ share` of the cluster's picks.
//! After that it yields to a warmer one: the less loaded of two drawn at random.
//!
//! A weight inside each policy, as in Envoy, was rejected. Only some policies know weights, and one
//! that looks for the fewest active requests would send everything to a backend that is new in a
//! busy cluster. When all backends are new, the rule changes nothing, because none is warmer.

use core::time::Duration;

use crate::{Ratio, Timestamp};

/// The growth of the share of a backend that became healthy.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SlowStartConfig {
    /// Time until the whole share; zero turns slow start off.
    pub window: Duration,
    /// The first share. Not zero: without requests a backend cannot warm up.
    pub floor: Ratio,
}

impl SlowStartConfig {
    /// Covers the warm-up of most run-times. Equal to the blackout of a new backend's load reports.
    pub const DEFAULT_WINDOW: Duration = Duration::from_secs(10);
    /// Envoy's `min_weight_percent`.
    pub const DEFAULT_FLOOR: Ratio = Ratio::from_percent(10);

    /// The share, in (0, 1], of a backend that has been healthy since `since`.
    pub(crate) fn share(&self, now: Timestamp, since: Timestamp) -> f64 {
        let age = now.nanos_since(since) as f64;
        let window = self.window.as_nanos() as f64;
        if age >= window {
            return 1.0;
        }
        let floor = self.floor.as_f64();
        floor + (1.0 - floor) * age / window
    }
}

impl Default for SlowStartConfig {
    fn default() -> Self {
        Self { window: Self::DEFAULT_WINDOW, floor: Self::DEFAULT_FLOOR }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn share_rises_in_a_straight_line_from_the_floor() {
        let config = SlowStartConfig::default();
        let at = |secs| config.share(Timestamp::from_origin(Duration::from_secs(secs)), Timestamp::ZERO);
        assert!((at(0) - 0.1).abs() < 1e-9);
        assert!((at(5) - 0.55).abs() < 1e-9);
        assert_eq!((at(10), at(99)), (1.0, 1.0));
    }

    #[test]
    fn a_zero_window_is_off() {
        let config = SlowStartConfig { window: Duration::ZERO, ..SlowStartConfig::default() };
        assert_eq!(config.share(Timestamp::ZERO, Timestamp::ZERO), 1.0);
    }
}
