//! The waits between connection attempts to a refusing backend.
//!
//! `delay(n) = min(initial · 2^n, max) · U(1 − jitter, 1 + jitter)`. Doubling, so that a thousand
//! clients of a dead backend do not keep its machine busy; jitter, so that they do not return in
//! step (gRFC A6).

use core::time::Duration;

use crate::{Random, Ratio, rng};

/// Exponential backoff of checks of a refusing backend.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BackoffConfig {
    /// Delay before the second check.
    pub initial: Duration,
    /// Largest delay, before jitter.
    pub max: Duration,
    /// Jitter of a delay, as a share of it, either way.
    pub jitter: Ratio,
}

impl BackoffConfig {
    /// A restarted process is up again in about this time. A refused connection on a local network
    /// costs both sides some tens of microseconds.
    pub const DEFAULT_INITIAL: Duration = Duration::from_millis(100);
    /// A machine that was unreachable for long is used again within seconds of its return.
    pub const DEFAULT_MAX: Duration = Duration::from_secs(5);
    /// gRPC's connection backoff.
    pub const DEFAULT_JITTER: Ratio = Ratio::from_percent(20);

    pub(crate) fn delay(&self, refusals: u32, rng: &mut impl Random) -> Duration {
        let grown = self.initial.saturating_mul(1_u32.checked_shl(refusals).unwrap_or(u32::MAX));
        let jitter = 1.0 + self.jitter.as_f64() * (2.0 * rng::unit(rng) - 1.0);
        grown.min(self.max).mul_f64(jitter)
    }
}

impl Default for BackoffConfig {
    fn default() -> Self {
        Self { initial: Self::DEFAULT_INITIAL, max: Self::DEFAULT_MAX, jitter: Self::DEFAULT_JITTER }
    }
}

#[cfg(test)]
mod tests {
    use rand_core::SeedableRng;

    use super::*;

    #[test]
    fn delays_double_up_to_the_maximum_and_stay_within_the_jitter() {
        let mut rng = rand_pcg::Pcg64Mcg::seed_from_u64(7);
        let config = BackoffConfig::default();
        for (refusals, nominal_ms) in [(0, 100.0), (1, 200.0), (3, 800.0), (6, 5000.0), (40, 5000.0), (99, 5000.0)] {
            for _ in 0..100 {
                let ms = config.delay(refusals, &mut rng).as_secs_f64() * 1e3;
                assert!((0.8..=1.2).contains(&(ms / nominal_ms)), "{ms} ms after {refusals} refusals");
            }
        }
    }
}
