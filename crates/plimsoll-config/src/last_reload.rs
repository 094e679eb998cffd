//! The latest reload of a file: its outcome and its time, for metrics.
//!
//! One number holds both, so that a reader never sees the outcome of one reload with the time of
//! another, without a lock.

use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The outcome of a reload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReloadOutcome {
    /// The file is in force.
    Taken,
    /// The file has a problem, and nothing has changed.
    Refused,
}

/// A record of the latest reload. The start counts as one.
#[derive(Debug)]
pub struct LastReload(
    /// Milliseconds since the Unix epoch; negative for a refusal.
    AtomicI64,
);

impl LastReload {
    /// The record of a process that started with a good file at `now`.
    #[must_use]
    pub fn started(now: SystemTime) -> Self {
        let record = Self(AtomicI64::new(0));
        record.set(ReloadOutcome::Taken, now);
        record
    }

    /// Records a reload.
    pub fn set(&self, outcome: ReloadOutcome, now: SystemTime) {
        let since = now.duration_since(UNIX_EPOCH).unwrap_or_default().as_millis();
        // Zero has no sign. A clock at the epoch is wrong anyway.
        let millis = i64::try_from(since).unwrap_or(i64::MAX).max(1);
        let signed = if outcome == ReloadOutcome::Taken { millis } else { -millis };
        self.0.store(signed, Ordering::Relaxed);
    }

    /// The outcome, and its time to the millisecond.
    #[must_use]
    pub fn get(&self) -> (ReloadOutcome, SystemTime) {
        let signed = self.0.load(Ordering::Relaxed);
        let outcome = if signed > 0 { ReloadOutcome::Taken } else { ReloadOutcome::Refused };
        (outcome, UNIX_EPOCH + Duration::from_millis(signed.unsigned_abs()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn latest_outcome_is_kept_with_its_time() {
        let at = |seconds| UNIX_EPOCH + Duration::from_secs(seconds);
        let last = LastReload::started(at(1_000));
        assert_eq!(last.get(), (ReloadOutcome::Taken, at(1_000)));
        last.set(ReloadOutcome::Refused, at(2_000));
        assert_eq!(last.get(), (ReloadOutcome::Refused, at(2_000)));
        last.set(ReloadOutcome::Taken, at(3_000));
        assert_eq!(last.get(), (ReloadOutcome::Taken, at(3_000)));
        last.set(ReloadOutcome::Refused, UNIX_EPOCH - Duration::from_secs(5));
        assert_eq!(last.get().0, ReloadOutcome::Refused, "whatever the clock says");
    }
}
