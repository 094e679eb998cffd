//! When a source that must be asked is asked again.
//!
//! ```text
//! after an answer  clamp(TTL, 1 s, 5 min)     at most 1 s if the answer lacks a backend of the one before
//! after an error   min(1 s · 2ⁿ, 30 s) · U(0.8, 1.2)     n errors before it
//! ```
//!
//! A name may be missing because a server sent a part of a long answer. So the next question follows
//! soon, and [`Merge`](super::Merge) believes the absence when it is confirmed. Errors have jitter, so
//! that the clients of a restarted server do not return in step.

use core::time::Duration;

use crate::health::BackoffConfig;
use crate::{Random, Ratio};

/// Settings of [`Refresh`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RefreshConfig {
    /// Shortest time to the next question.
    pub min: Duration,
    /// Longest time to the next question.
    pub max: Duration,
    /// Time to the next question after errors.
    pub backoff: BackoffConfig,
}

impl RefreshConfig {
    /// A DNS server answers thousands of questions a second; one a second from each client of a
    /// fleet costs it little, and a TTL of zero is common for headless services.
    pub const DEFAULT_MIN: Duration = Duration::from_secs(1);
    /// A TTL of a day would hide a move of a service for a day.
    pub const DEFAULT_MAX: Duration = Duration::from_secs(300);
    /// The backends are known, so an error costs nothing at first: the first wait is that of an
    /// answer. A server that was away for minutes is asked again within half a minute.
    pub const DEFAULT_BACKOFF: BackoffConfig = BackoffConfig {
        initial: Duration::from_secs(1),
        max: Duration::from_secs(30),
        jitter: Ratio::from_percent(20),
    };
}

impl Default for RefreshConfig {
    fn default() -> Self {
        Self { min: Self::DEFAULT_MIN, max: Self::DEFAULT_MAX, backoff: Self::DEFAULT_BACKOFF }
    }
}

/// The time of the next question to a source.
#[derive(Clone, Debug)]
pub struct Refresh {
    config: RefreshConfig,
    errors: u32,
}

impl Refresh {
    /// For a source that was not asked yet.
    #[must_use]
    pub const fn new(config: RefreshConfig) -> Self {
        Self { config, errors: 0 }
    }

    /// An answer came, valid for `ttl`. Returns the time to the next question.
    ///
    /// `lacks_some`: the answer lacks a backend of the one before.
    pub fn on_answer(&mut self, ttl: Duration, lacks_some: bool) -> Duration {
        self.errors = 0;
        let RefreshConfig { min, max, .. } = self.config;
        if lacks_some { min } else { ttl.max(min).min(max.max(min)) }
    }

    /// The source did not answer, or answered with an error. Returns the time to the next question.
    pub fn on_error(&mut self, rng: &mut impl Random) -> Duration {
        let delay = self.config.backoff.delay(self.errors, rng);
        self.errors = self.errors.saturating_add(1);
        delay
    }
}

#[cfg(test)]
mod tests {
    use rand_core::SeedableRng as _;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn ttl_is_kept_between_one_second_and_five_minutes() {
        let mut refresh = Refresh::new(RefreshConfig::default());
        for (ttl, expected) in [(0, 1), (1, 1), (60, 60), (300, 300), (86_400, 300)] {
            assert_eq!(refresh.on_answer(ttl * SECOND, false), expected * SECOND, "{ttl}");
        }
        assert_eq!(refresh.on_answer(60 * SECOND, true), SECOND);
    }

    #[test]
    fn errors_back_off_to_half_a_minute_until_an_answer() {
        let mut rng = rand_pcg::Pcg64Mcg::seed_from_u64(3);
        let mut refresh = Refresh::new(RefreshConfig::default());
        for round in 0..2 {
            for nominal in [1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0] {
                let share = refresh.on_error(&mut rng).as_secs_f64() / nominal;
                assert!((0.8..=1.2).contains(&share), "{share} of {nominal} s in round {round}");
            }
            refresh.on_answer(SECOND, false);
        }
    }
}
