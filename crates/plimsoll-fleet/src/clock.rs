//! The time of the core's machines.

use std::time::Duration;

use plimsoll_core::Timestamp;
use tokio::time::Instant;

/// A clock that begins at 0.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock(Instant);

impl Clock {
    pub(crate) fn start() -> Self {
        Self(Instant::now())
    }

    pub(crate) fn now(self) -> Timestamp {
        self.at(Instant::now())
    }

    /// The timestamp of an instant; an earlier one than the start is 0.
    pub(crate) fn at(self, instant: Instant) -> Timestamp {
        Timestamp::from_nanos(instant.saturating_duration_since(self.0).as_nanos() as u64)
    }

    pub(crate) fn instant(self, at: Timestamp) -> Instant {
        self.0 + Duration::from_nanos(at.as_nanos())
    }
}
