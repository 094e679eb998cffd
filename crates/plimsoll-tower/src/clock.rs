//! Time for the machines, from the clock of tokio: a paused test clock is obeyed.

use std::time::Duration;

use plimsoll_core::Timestamp;
use tokio::time::Instant;

/// In effect never, and within the range of clocks.
const NEVER: Duration = Duration::from_secs(30 * 365 * 24 * 60 * 60);

/// `by` after now, or never.
pub(crate) fn after(by: Duration) -> Instant {
    Instant::now() + by.min(NEVER)
}

/// Counts nanoseconds since it was made.
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

    pub(crate) fn instant(&self, at: Timestamp) -> Instant {
        self.origin + at.since(Timestamp::ZERO).min(NEVER)
    }
}
