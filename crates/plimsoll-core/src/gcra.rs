//! A token bucket in one number: the time at which it is full again.
//!
//! ```text
//! due' = max(due, now) + 1 / rate            admitted if due' ≤ now + 1 s      (GCRA)
//! ```

use core::num::NonZeroU32;
use core::time::Duration;

use crate::Timestamp;

/// The depth of each bucket: a second of its rate.
const DEPTH_NANOS: u64 = 1_000_000_000;

/// When the bucket is full again.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Due(u64);

impl Due {
    /// The same with one request more, if there is a token for it.
    pub(crate) fn after(self, now: Timestamp, rate: NonZeroU32) -> Option<Self> {
        let now = now.as_nanos();
        let due = self.0.max(now) + DEPTH_NANOS / u64::from(rate.get());
        (due <= now + DEPTH_NANOS).then_some(Self(due))
    }

    /// Time until it is full again.
    pub(crate) fn wait(self, now: Timestamp) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(now.as_nanos()))
    }
}
