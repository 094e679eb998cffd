//! A token bucket in one number: the time at which it is full again.
//!
//! ```text
//! due' = max(due, now) + interval        admitted if due' ≤ now + depth      (GCRA)
//! ```
//!
//! *interval* is the time that earns one token, *depth* the time that fills an empty bucket.

use core::num::NonZeroU32;
use core::time::Duration;

use crate::Timestamp;

/// The depth of a bucket that holds a second of its rate.
const DEPTH_NANOS: u64 = 1_000_000_000;

/// When the bucket is full again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Due(u64);

impl Due {
    /// The same with one request more, if there is a token for it. The bucket holds a second of its
    /// rate.
    pub(crate) fn after(self, now: Timestamp, rate: NonZeroU32) -> Option<Self> {
        self.take(now, DEPTH_NANOS / u64::from(rate.get()), DEPTH_NANOS).ok()
    }

    /// The same with one request more, in a bucket of this interval and depth in nanoseconds. Without
    /// a token: the time until there is one.
    pub(crate) fn take(self, now: Timestamp, interval: u64, depth: u64) -> Result<Self, Duration> {
        let now = now.as_nanos();
        let due = self.0.max(now) + interval;
        if due <= now + depth { Ok(Self(due)) } else { Err(Duration::from_nanos(due - now - depth)) }
    }

    /// The same in a bucket of depth `to` in place of `from`, as full as it was.
    pub(crate) fn scaled(self, now: Timestamp, from: u64, to: u64) -> Self {
        let missing = u128::from(self.0.saturating_sub(now.as_nanos())) * u128::from(to) / u128::from(from);
        // No more is missing than the depth, which fits.
        Self(now.as_nanos() + u64::try_from(missing).unwrap_or(to))
    }

    /// Time until it is full again.
    pub(crate) fn wait(self, now: Timestamp) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(now.as_nanos()))
    }
}
