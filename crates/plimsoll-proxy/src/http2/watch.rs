//! State shared by the tasks of one HTTP/2 connection: its guard, and the guard's dealings with
//! them.

use std::sync::Arc;

use parking_lot::Mutex;
use plimsoll_core::Timestamp;
use plimsoll_http2::Guard;
use tokio::time::Instant;

use crate::connection::end_reason::{EndReason, Timeout};
use crate::limits::Limits;
use crate::request::upgrade::PrefixedStream;
use crate::request_body::interim::Interim;

/// Watches the bytes of a connection.
pub(super) struct Watch {
    begun: Instant,
    pub(super) guard: Mutex<Guard>,
    pub(super) interim: Arc<Interim>,
    /// The connection, once its client was sent the reason for its end.
    pub(super) ended: Mutex<Option<PrefixedStream>>,
}

impl Watch {
    pub(super) fn new(guard: Guard) -> Self {
        Self { begun: Instant::now(), guard: Mutex::new(guard), interim: Arc::default(), ended: Mutex::new(None) }
    }

    pub(super) fn now(&self) -> Timestamp {
        Timestamp::ZERO + self.begun.elapsed()
    }

    /// Whether there are streams with answers that have not gone out yet.
    pub(super) fn has_streams(&self) -> bool {
        self.guard.lock().has_streams()
    }

    /// See [`Guard::is_wary`].
    pub(super) fn is_wary(&self) -> bool {
        self.guard.lock().is_wary()
    }

    /// Whether the client holds up its streams, or a block of headers.
    pub(super) fn look(&self, limits: &Limits) -> Result<(), EndReason> {
        let now = self.now();
        let mut guard = self.guard.lock();
        guard.look(now, limits.idle_timeout, limits.min_body_rate).map_err(EndReason::from)?;
        let is_slow = guard.headers_since().is_some_and(|since| now.since(since) >= limits.header_read_timeout);
        if is_slow { Err(EndReason::Timeout(Timeout::Head)) } else { Ok(()) }
    }
}
