//! Recent failures of a backend, as a penalty that policies can add to its load.
//!
//! A backend that fails fast has few active requests, so a policy that looks for the fewest would
//! send it everything: the sinkhole of SRE ch. 20. The cure there is to count recent errors as if
//! they were active requests. Here `e` is the share of failures among about the last ten requests.
//! Without requests it fades with a half-life:
//!
//! ```text
//! failure:  e ← e + (1 − e)/10        overloaded:  e ← e + (1 − e)/5        success:  e ← e − e/10
//! penalty = 100·e²  active requests
//! ```
//!
//! The square separates one failure, which is no evidence (e = 0.1, one request), from a run of
//! failures (e = 0.65 after ten: 42 requests). The penalty is at most the default limit of flow
//! control, so a backend that fails everything is as good as full. A count of errors was rejected:
//! at a thousand requests a second and one percent of errors everywhere, the noise of the counts
//! would outweigh the load.

use core::time::Duration;

use crate::{Timestamp, decay};

/// Long enough that a failing backend gets only a trickle, short enough to forgive it in seconds.
const HALF_LIFE: Duration = Duration::from_secs(5);
/// Weight of one request in the share of failures.
const GAIN: f32 = 0.1;
/// An overloaded answer is certain evidence; a failure is only a suspicion.
const OVERLOADED_GAIN: f32 = 0.2;
/// Share below which a backend has no penalty. One failure fades to it within a hundred requests.
const NEGLIGIBLE: f32 = 0.01;
/// Penalty, in active requests, of a backend that fails everything.
const MAX_PENALTY: f32 = 100.0;

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ErrorShare {
    share: f32,
    at: Timestamp,
}

impl ErrorShare {
    pub(crate) fn on_success(&mut self, now: Timestamp) {
        if self.share > 0.0 {
            self.set(now, self.share(now) * (1.0 - GAIN));
        }
    }

    pub(crate) fn on_failure(&mut self, now: Timestamp) {
        let share = self.share(now);
        self.set(now, share + (1.0 - share) * GAIN);
    }

    pub(crate) fn on_overloaded(&mut self, now: Timestamp) {
        let share = self.share(now);
        self.set(now, share + (1.0 - share) * OVERLOADED_GAIN);
    }

    /// Whether there is nothing to forgive.
    pub(crate) fn is_clean(&self) -> bool {
        self.share == 0.0
    }

    /// The share of failures at its last change; since then it has only fallen.
    pub(crate) fn max_share(&self) -> f32 {
        self.share
    }

    /// The share of failures, in [0, 1].
    pub(crate) fn share(&self, now: Timestamp) -> f32 {
        if self.share == 0.0 {
            return 0.0;
        }
        self.share * decay::remaining(now, self.at, HALF_LIFE) as f32
    }

    /// Drops a share that has become negligible; returns whether it did.
    pub(crate) fn forgive(&mut self, now: Timestamp) -> bool {
        let forgiven = self.share(now) < NEGLIGIBLE;
        if forgiven {
            self.share = 0.0;
        }
        forgiven
    }

    fn set(&mut self, now: Timestamp, share: f32) {
        // Only `forgive` resets the share to zero, however old it is. So a caller's list of
        // backends to forgive holds each once.
        (self.share, self.at) = (share.max(f32::MIN_POSITIVE), now);
    }
}

/// The penalty for a share of failures, in active requests.
pub(crate) fn penalty(share: f32) -> u32 {
    // Rounded to the nearest; `f32::round` is not in core.
    (MAX_PENALTY * share * share + 0.5) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    impl ErrorShare {
        fn penalty(&self, now: Timestamp) -> u32 {
            penalty(self.share(now))
        }
    }

    fn secs(secs: u64) -> Timestamp {
        Timestamp::from_origin(Duration::from_secs(secs))
    }

    #[test]
    fn one_failure_weighs_little_and_a_run_weighs_everything() {
        let mut errors = ErrorShare::default();
        errors.on_failure(secs(0));
        assert_eq!(errors.penalty(secs(0)), 1);
        for _ in 0..9 {
            errors.on_failure(secs(0));
        }
        assert_eq!(errors.penalty(secs(0)), 42);
        for _ in 0..100 {
            errors.on_failure(secs(0));
        }
        assert_eq!(errors.penalty(secs(0)), 100);
    }

    #[test]
    fn overloaded_is_a_stronger_penalty() {
        let (mut failed, mut overloaded) = (ErrorShare::default(), ErrorShare::default());
        failed.on_failure(secs(0));
        overloaded.on_overloaded(secs(0));
        assert!(overloaded.penalty(secs(0)) > failed.penalty(secs(0)));
    }

    #[test]
    fn time_and_success_forgive() {
        let mut errors = ErrorShare::default();
        for _ in 0..10 {
            errors.on_failure(secs(0));
        }
        assert!((errors.share(secs(5)) - 0.326).abs() < 0.01);
        assert!(!errors.forgive(secs(5)));
        for _ in 0..10 {
            errors.on_success(secs(5));
        }
        assert!(errors.share(secs(5)) < 0.12);
        assert!(errors.forgive(secs(60)) && errors.is_clean());
    }
}
