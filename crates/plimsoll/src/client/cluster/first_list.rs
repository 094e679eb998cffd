//! The wait of requests for the first list of a source.
//!
//! A source such as DNS answers some milliseconds after the start. Without a wait, the first requests
//! of a program would fail, with no backend known. A cluster from a builder therefore has them wait,
//! as a queue at saturated backends: for the same time, and as long a queue.
//!
//! Clusters that follow a source by themselves do not wait: their programs decide when to begin, by
//! [`Cluster::until_listed`](super::Cluster::until_listed).

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use super::Shared;

/// The wait for the first list.
#[derive(Debug, Default)]
pub(super) struct FirstList {
    /// Requests read it without a lock; `false` in all clusters that have a list.
    is_awaited: AtomicBool,
    waiting: AtomicUsize,
}

/// A request that waits, until this is dropped.
struct Waiting<'a>(&'a AtomicUsize);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Shared {
    /// Requests wait from now on until there is a list.
    pub(crate) fn wait_for_first_list(&self) {
        self.first_list.is_awaited.store(true, Ordering::Relaxed);
    }

    /// Whether requests wait for a list.
    pub(crate) fn awaits_first_list(&self) -> bool {
        self.first_list.is_awaited.load(Ordering::Relaxed)
    }

    /// Waits for the first list, at most this long, and as long as a request may take or wait in the
    /// queue. Beyond the length of that queue there is no wait.
    pub(crate) async fn first_list(&self, most: Duration) {
        let requests = self.config().requests;
        let before = self.first_list.waiting.fetch_add(1, Ordering::Relaxed);
        let _waiting = Waiting(&self.first_list.waiting);
        if before >= requests.max_pending {
            return;
        }
        let most = most.min(requests.queue_timeout).min(requests.request_timeout);
        let mut is_listed = self.is_listed.subscribe();
        let listed = is_listed.wait_for(|is_listed| *is_listed);
        if tokio::time::timeout(most, listed).await.is_ok() {
            self.first_list.is_awaited.store(false, Ordering::Relaxed);
        }
    }
}
