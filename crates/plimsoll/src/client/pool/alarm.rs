//! Events on idle connections, for the task that keeps the pool.
//!
//! An idle connection is watched, because its end is evidence about its backend. Its socket wakes a
//! [`Watch`], which notes the connection here and wakes the one task of the pool. So a connection
//! needs no task of its own. In use it wakes its request instead, and no watch has to be cancelled.

use std::sync::Arc;
use std::task::Wake;

use parking_lot::Mutex;
use plimsoll_core::BackendId;
use tokio::sync::Notify;

/// Connections with events that nobody has handled yet.
#[derive(Default)]
pub(crate) struct Alarm {
    /// Serial numbers, each with the backend of the connection.
    raised: Mutex<Vec<(BackendId, u64)>>,
    notify: Notify,
}

impl Alarm {
    /// Wakes the task without news of a connection.
    pub(super) fn ring(&self) {
        self.notify.notify_one();
    }

    /// Ready when there is news.
    pub(super) async fn raised(&self) {
        self.notify.notified().await;
    }

    /// The alarms since the last call.
    pub(super) fn take(&self) -> Vec<(BackendId, u64)> {
        std::mem::take(&mut self.raised.lock())
    }
}

/// The waker of one connection's socket.
pub(super) struct Watch {
    pub(super) alarm: Arc<Alarm>,
    pub(super) backend: BackendId,
    pub(super) serial: u64,
}

impl Wake for Watch {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.alarm.raised.lock().push((self.backend, self.serial));
        self.alarm.ring();
    }
}
