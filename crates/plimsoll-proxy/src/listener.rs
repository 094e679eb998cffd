//! One listening address on one thread: its limits, its routes, and what the threads share of it.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use arc_swap::ArcSwap;
use http::{Request, Response};
use plimsoll::client::{self, Client};
use tokio::sync::Notify;

use crate::config;
use crate::phase::Life;
use crate::reason::Refusals;
use crate::request_body::RequestBody;
use crate::route::RouteTable;

/// What a client may take of a listener.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Limits {
    pub(crate) header_read_timeout: Duration,
    pub(crate) idle_timeout: Duration,
    pub(crate) max_headers: usize,
    pub(crate) max_header_size: usize,
    pub(crate) max_connections: usize,
    pub(crate) max_body: Option<u64>,
}

impl From<&config::Listener> for Limits {
    fn from(listener: &config::Listener) -> Self {
        Self {
            header_read_timeout: listener.header_read_timeout,
            idle_timeout: listener.idle_timeout,
            max_headers: listener.max_headers.get() as usize,
            max_header_size: listener.max_header_size.bytes(),
            max_connections: listener.max_connections.get(),
            max_body: listener.max_body.map(|size| size.bytes() as u64),
        }
    }
}

/// Where a route leads, on one thread.
pub(crate) struct Target {
    client: Client<RequestBody>,
    request_timeout: Option<Duration>,
}

impl Target {
    pub(crate) fn new(client: Client<RequestBody>, request_timeout: Option<Duration>) -> Self {
        Self { client, request_timeout }
    }

    pub(crate) fn cluster_name(&self) -> &str {
        self.client.cluster().name()
    }

    pub(crate) async fn send(
        &self,
        request: Request<RequestBody>,
    ) -> Result<Response<client::ResponseBody>, client::Error> {
        match self.request_timeout {
            None => self.client.send(request).await,
            Some(timeout) => self.client.send_within(request, timeout).await,
        }
    }
}

/// What the threads of one listener share.
#[derive(Debug, Default)]
pub(crate) struct Shared {
    pub(crate) refusals: Refusals,
    connections: AtomicUsize,
    pub(crate) accepted: AtomicU64,
    room: Notify,
}

impl Shared {
    /// Connections that are open now.
    pub(crate) fn connections(&self) -> usize {
        self.connections.load(Ordering::Relaxed)
    }

    /// The limit may be another now: those who wait for room look again.
    pub(crate) fn limits_changed(&self) {
        self.room.notify_waiters();
    }
}

/// A connection that counts against the listener's limit until this is dropped.
pub(crate) struct Seat(Arc<Shared>);

impl Seat {
    /// Waits until there is room for one more.
    pub(crate) async fn take(listener: &ListenerState) -> Self {
        let shared = &listener.shared;
        loop {
            // Registered before the look, so that a seat freed in between wakes this one.
            let mut room = pin!(shared.room.notified());
            room.as_mut().enable();
            let most = listener.limits.load().max_connections;
            let one_more = |open: usize| (open < most).then_some(open + 1);
            if shared.connections.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_more).is_ok() {
                return Self(Arc::clone(shared));
            }
            room.await;
        }
    }

    /// One whether there is room or not.
    pub(crate) fn take_anyway(shared: &Arc<Shared>) -> Self {
        shared.connections.fetch_add(1, Ordering::Relaxed);
        Self(Arc::clone(shared))
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.0.connections.fetch_sub(1, Ordering::Relaxed);
        self.0.room.notify_one();
    }
}

/// A listener on one thread.
pub(crate) struct ListenerState {
    /// For connections that come from now on.
    pub(crate) limits: ArcSwap<Limits>,
    pub(crate) routes: ArcSwap<RouteTable<Arc<Target>>>,
    pub(crate) life: Life,
    pub(crate) shared: Arc<Shared>,
}
