//! News of idle connections, for the task that keeps the pool.
//!
//! An idle connection is watched, because its end says something about its backend. Its socket wakes a [`Watch`], which notes
//! the connection here and wakes the one task of the pool: so a connection needs no task of its own, and while it is in use,
//! and wakes its request instead, nothing has to be told to stop watching.

use std::sync::Arc;
use std::task::Wake;

use parking_lot::Mutex;
use plimsoll_core::BackendId;
use tokio::sync::Notify;

/// Connections on which something has happened.
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

    /// What has been raised since the last time.
    pub(super) fn take(&self) -> Vec<(BackendId, u64)> {
        std::mem::take(&mut self.raised.lock())
    }
}

/// What the socket of one connection wakes.
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
