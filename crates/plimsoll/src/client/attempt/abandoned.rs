//! A request abandoned before it was answered: its slot stays taken until the backend is done with
//! it.
//!
//! Flow control limits the work that runs *at a backend*. Suppose that the slot were free as soon
//! as the caller leaves. Then a client that abandons each request at once would have any number of
//! them running at a time.
//!
//! The backend is told that nobody waits, as always, so that it can stop. Over HTTP/1 this side of
//! the connection is closed, and not more. A server that watches its connections stops and closes
//! the other side. One that does not closes it when its answer is out. Either way its end says that
//! the work is done. Over HTTP/2 the stream is reset, after which the backend says nothing: the
//! slot is kept for the usual latency.
//!
//! ```text
//! HTTP/1   until the connection ends, at most MAX_KEPT and the rest of the request's own limit
//! HTTP/2   until started + usual latency
//! ```

use std::sync::Arc;
use std::time::Duration;

use plimsoll_core::{BackendId, Timestamp};
use tokio::runtime::Handle;
use tokio::time::{sleep, timeout};

use super::Streams;
use crate::client::batch::Place;
use crate::client::cluster::Done;
use crate::client::http1::Lease;
use crate::client::preemption::Preemption;

/// Longest that a slot is kept for a request that nobody waits for.
pub(crate) const MAX_KEPT: Duration = Duration::from_secs(60);

/// The most of an unwanted answer that is read.
const MAX_READ: usize = 64 * 1024;

/// The slot of a request that nobody waits for. Dropped, it comes free.
pub(crate) struct Abandoned {
    pub(super) home: Arc<dyn Streams>,
    pub(super) id: BackendId,
    pub(super) started: Timestamp,
    pub(super) done: Done,
    /// Longest that the caller would have waited.
    pub(super) limit: Duration,
    pub(super) place: Option<Box<Place>>,
    /// Kept until the cluster knows of the end: the last handle drops the waker of a task.
    pub(super) preemption: Option<(Arc<Preemption>, usize)>,
}

impl Abandoned {
    /// Keeps the slot until the backend has closed the connection of `lease`.
    pub(crate) fn until_closed(self, lease: Lease) {
        let left = self.limit.min(MAX_KEPT).saturating_sub(self.age());
        spawn(async move {
            let _ = timeout(left, lease.until_closed(MAX_READ)).await;
            drop(self);
        });
    }

    /// Keeps the slot for as long as answers of the cluster usually take.
    pub(crate) fn for_usual_time(self) {
        let Some(usual) = self.home.cluster().usual_latency() else { return };
        let left = usual.min(self.limit).min(MAX_KEPT).saturating_sub(self.age());
        if !left.is_zero() {
            spawn(async move {
                sleep(left).await;
                drop(self);
            });
        }
    }

    fn age(&self) -> Duration {
        self.home.cluster().now().since(self.started)
    }
}

impl Drop for Abandoned {
    fn drop(&mut self) {
        self.home.finish(self.home.cluster().now(), self.id, &self.done);
        // Last, so that the next request in line finds the backend free.
        drop(self.place.take());
        drop(self.preemption.take());
    }
}

/// Runs `task` on the runtime of this thread. Without one, as when a program ends, the slot comes free at once.
fn spawn(task: impl Future<Output = ()> + Send + 'static) {
    if let Ok(runtime) = Handle::try_current() {
        runtime.spawn(task);
    }
}
