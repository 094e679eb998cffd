//! Time for the machines, which read no clock themselves.
//!
//! Nanoseconds since the cluster, or the gate of a server, was made, from the monotonic clock of
//! the runtime (so a paused test clock is obeyed). One reading costs about 25 ns and is made once
//! per event.

use std::time::Duration;

use plimsoll_core::Timestamp;
use tokio::time::Instant;

/// In effect never, yet within the range of clocks: a limit of [`Duration::MAX`] is no limit.
pub(crate) const NEVER: Duration = Duration::from_secs(30 * 365 * 24 * 60 * 60);

/// `by` after `from`, or never.
pub(crate) fn after(from: Instant, by: Duration) -> Instant {
    from + by.min(NEVER)
}

/// Turns instants of the runtime into [`Timestamp`]s.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    origin: Instant,
}

impl Clock {
    pub(crate) fn start() -> Self {
        Self { origin: Instant::now() }
    }

    pub(crate) fn now(&self) -> Timestamp {
        Timestamp::from_origin(self.origin.elapsed())
    }

    pub(crate) fn at(&self, instant: Instant) -> Timestamp {
        Timestamp::from_origin(instant.saturating_duration_since(self.origin))
    }

    pub(crate) fn instant(&self, at: Timestamp) -> Instant {
        self.origin + at.since(Timestamp::ZERO)
    }
}
