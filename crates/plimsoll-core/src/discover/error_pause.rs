//! When a source that failed is asked again, if it does not wait itself.
//!
//! ```text
//! wait = max(0, min(100 ms · 2ⁿ, 1 s) · U(0.8, 1.2) − time that the source took)     n errors in a row before it
//! ```
//!
//! Sources time their own attempts, see [`Refresh`](super::Refresh). One that does not, and answers with
//! an error at once, would keep a core busy with errors. The time that a source took for its error
//! counts, so a source that waits a second between its attempts is not slowed.
//!
//! A list ends the row of errors. Where it is weak: lists without a pause are all taken, since a source
//! may have several in store.

use core::time::Duration;

use crate::health::BackoffConfig;
use crate::{Random, Ratio};

/// Ten errors a second cost nothing, and a list right after an error is hardly later. The longest wait
/// is the shortest one of sources that wait themselves.
const BACKOFF: BackoffConfig =
    BackoffConfig { initial: Duration::from_millis(100), max: Duration::from_secs(1), jitter: Ratio::from_percent(20) };

/// The wait after errors of a source.
#[derive(Clone, Debug, Default)]
pub struct ErrorPause {
    errors: u32,
}

impl ErrorPause {
    /// The source gave a list.
    pub fn on_list(&mut self) {
        self.errors = 0;
    }

    /// The source failed, `took` after it was asked. Returns the time until it is asked again.
    pub fn on_error(&mut self, took: Duration, rng: &mut impl Random) -> Duration {
        let pause = BACKOFF.delay(self.errors, rng);
        self.errors = self.errors.saturating_add(1);
        pause.saturating_sub(took)
    }
}

#[cfg(test)]
mod tests {
    use rand_core::SeedableRng as _;

    use super::*;

    #[test]
    fn errors_without_a_wait_are_spread_to_one_a_second_until_a_list() {
        let mut rng = rand_pcg::Pcg64Mcg::seed_from_u64(5);
        let mut pause = ErrorPause::default();
        for round in 0..2 {
            for nominal_ms in [100.0, 200.0, 400.0, 800.0, 1_000.0, 1_000.0] {
                let share = pause.on_error(Duration::ZERO, &mut rng).as_secs_f64() * 1e3 / nominal_ms;
                assert!((0.8..=1.2).contains(&share), "{share} of {nominal_ms} ms in round {round}");
            }
            pause.on_list();
        }
    }

    #[test]
    fn source_that_waits_itself_is_not_slowed() {
        let mut rng = rand_pcg::Pcg64Mcg::seed_from_u64(5);
        let mut pause = ErrorPause::default();
        for _ in 0..100 {
            assert_eq!(pause.on_error(Duration::from_millis(1_200), &mut rng), Duration::ZERO);
        }
        let rest = pause.on_error(Duration::from_millis(700), &mut rng);
        assert!((100..=500).contains(&rest.as_millis()), "{rest:?}");
    }
}
