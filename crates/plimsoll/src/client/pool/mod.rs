//! Long-lived connections of one client to the backends of its cluster.
//!
//! Own connections instead of a general pool, for three reasons. A connection that breaks tells the
//! cluster's health machine something. Connections are opened before they are needed. A general
//! pool costs CPU per request (that of `hyper-util` a quarter of the whole).
//!
//! An HTTP/1 connection belongs to the request that uses it, and comes back after it; the pool
//! counts it meanwhile. The sender of an HTTP/2 connection stays, and a request carries its
//! [`ConnectionId`]. Each of these connections runs on a task of its own. The lock is held to find
//! a connection and to put it back; a client that is used on one thread (as the proxy's are) never
//! waits for it.

mod alarm;
#[cfg(feature = "http2")]
mod greeting;
mod http1;
#[cfg(feature = "http2")]
mod http2;
#[cfg(not(feature = "http2"))]
#[path = "http2_off.rs"]
mod http2;
#[cfg(feature = "http2")]
mod interim;
mod keep;
mod open;
#[cfg(feature = "http2")]
mod open_http2;
#[cfg(feature = "http2")]
mod send_http2;
#[cfg(feature = "http2")]
mod silence;
#[cfg(feature = "http2")]
mod windows;

use std::num::NonZeroUsize;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use http::uri::Scheme;
use parking_lot::Mutex;
use plimsoll_core::{BackendId, Timestamp};
use tokio::runtime::Handle;

use self::alarm::Alarm;
use self::http1::{Http1, ReturnOutcome};
use self::http2::Http2;
#[cfg(feature = "http2")]
pub(crate) use self::send_http2::Sending;
use super::attempt::Streams;
use super::backend::Backend;
use super::cluster::Shared;
use super::config::{ClusterConfig, PoolConfig};
use super::http1::{Connection, Connections, Lease};
use super::request_body::RequestBody;
use super::stream_id::StreamId;
use crate::tls::TlsConfig;

/// The connections of one client.
pub(crate) struct Pool<B> {
    cluster: Arc<Shared>,
    /// Limit on HTTP/1 connections, idle ones included: one is closed for another to be opened.
    /// `None` for no limit.
    cap: Option<NonZeroUsize>,
    state: Mutex<State<B>>,
    /// Wakes the task that keeps the pool in order, at the latest when the pool is dropped.
    alarm: Arc<Alarm>,
    /// That task has begun.
    is_kept: AtomicBool,
}

struct State<B> {
    slots: Vec<Slot<B>>,
    config: PoolConfig,
    scheme: Scheme,
    /// How connections are opened.
    tls: Option<TlsConfig>,
    /// Each connection carries one request: see [`is_single_use`].
    is_single_use: bool,
    serial: u64,
    /// HTTP/1 connections that are being opened; counted where there is a cap.
    opening: usize,
    /// Time of the last round of the task that keeps the pool: near enough for idle times, and read
    /// without a clock.
    looked: Timestamp,
}

/// Connections to the backend that has this slot of the cluster.
struct Slot<B> {
    id: BackendId,
    backend: Arc<Backend>,
    /// The cluster's count of memberships when `backend` was read.
    read_at: u64,
    http1: Http1,
    http2: Http2<B>,
}

/// A connection for an HTTP/1 request, or the lack of one.
pub(crate) enum Http1Checkout {
    /// An idle connection.
    Ready(Lease, Arc<Backend>),
    /// A connection has to be opened first.
    Open(Arc<Backend>),
    /// The backend is no member any more.
    Gone,
}

impl<B: RequestBody> Pool<B> {
    pub(crate) fn new(cluster: Arc<Shared>, cap: Option<NonZeroUsize>) -> Arc<Self> {
        let config = cluster.config();
        let state = State {
            slots: Vec::new(),
            scheme: config.scheme(),
            tls: config.tls().cloned(),
            is_single_use: is_single_use(&config),
            config: capped(config.pool, cap),
            serial: 0,
            opening: 0,
            looked: cluster.now(),
        };
        let state = Mutex::new(state);
        Arc::new(Self { cluster, cap, state, alarm: Arc::default(), is_kept: AtomicBool::new(false) })
    }

    /// Starts the task that keeps the pool in order, on the runtime of this thread, unless it runs.
    pub(crate) fn keep_once(self: &Arc<Self>) {
        if !self.is_kept.load(Ordering::Relaxed) {
            self.keep(&Handle::current());
        }
    }

    /// Starts that task on `runtime`, unless it runs.
    #[cold]
    pub(crate) fn keep(self: &Arc<Self>, runtime: &Handle) {
        if !self.is_kept.swap(true, Ordering::Relaxed) {
            runtime.spawn(keep::keep(Arc::downgrade(self), self.alarm.clone(), self.cluster.changes()));
        }
    }

    /// Connections that there are now.
    pub(crate) fn connections(&self) -> usize {
        self.state.lock().slots.iter().map(|slot| slot.http1.len() + slot.http2.len()).sum()
    }

    /// An HTTP/1 connection to `id`: an idle one if there is one and it `may_be_used`.
    pub(crate) fn take_http1(self: &Arc<Self>, id: BackendId, may_be_used: bool) -> Http1Checkout {
        let mut ended = Vec::new();
        let mut state = self.state.lock();
        let outdated = state.refresh(id, &self.cluster);
        let may_be_used = may_be_used && !state.is_single_use;
        let Some(slot) = state.slot(id, &self.cluster) else { return Http1Checkout::Gone };
        let backend = slot.backend.clone();
        let taken = if may_be_used { slot.http1.take(&mut ended) } else { None };
        drop(state);
        self.count_closed(id, ended.len() + outdated.len());
        match taken {
            Some(connection) => Http1Checkout::Ready(Lease::new(self.clone(), id, connection), backend),
            None => Http1Checkout::Open(backend),
        }
    }

    /// An HTTP/1 connection is about to be opened: closes an idle one if there would be too many. A
    /// capped client never has more requests than its cap, so there is one.
    pub(super) fn opens(&self) -> Option<Opening<'_, B>> {
        let cap = self.cap?;
        let mut state = self.state.lock();
        state.opening += 1;
        let connections: usize = state.slots.iter().map(|slot| slot.http1.len()).sum();
        let excess = (connections + state.opening).saturating_sub(cap.get());
        let mut closed = Vec::new();
        for slot in &mut state.slots {
            let id = slot.id;
            closed.extend(slot.http1.take_oldest(excess - closed.len()).map(|connection| (id, connection)));
        }
        drop(state);
        for (id, connection) in closed {
            drop(connection);
            self.cluster.connection_closed(id);
        }
        Some(Opening(self))
    }

    fn count_closed(&self, id: BackendId, connections: usize) {
        for _ in 0..connections {
            self.cluster.connection_closed(id);
        }
    }
}

/// A connection that is being opened, where there is a cap.
pub(super) struct Opening<'p, B>(&'p Pool<B>);

impl<B> Drop for Opening<'_, B> {
    fn drop(&mut self) {
        self.0.state.lock().opening -= 1;
    }
}

/// Whether a connection carries one request only: it names its client, or none is kept without a request.
fn is_single_use(config: &ClusterConfig) -> bool {
    config.proxy_protocol.is_some() || config.pool.max_idle_connections == 0
}

/// A connection that is opened before it is needed would be one of few.
fn capped(config: PoolConfig, cap: Option<NonZeroUsize>) -> PoolConfig {
    if cap.is_some() { PoolConfig { min_connections: 0, ..config } } else { config }
}

impl<B> State<B> {
    /// The slot of `id`, made or renewed if it has to be; `None` when `id` is no member.
    fn slot(&mut self, id: BackendId, cluster: &Shared) -> Option<&mut Slot<B>> {
        let index = id.slot();
        if self.slots.get(index).is_none_or(|slot| slot.id != id) {
            let read_at = cluster.memberships();
            let backend = cluster.backend(id)?;
            let slot = Slot { id, backend, read_at, http1: Http1::default(), http2: Http2::default() };
            match self.slots.get_mut(index) {
                Some(old) => *old = slot,
                None => {
                    let vacant = (0..).skip(self.slots.len()).take(index - self.slots.len());
                    let vacant: Vec<_> = vacant.map(|at| Slot::vacant(at, &slot.backend)).collect();
                    self.slots.extend(vacant);
                    self.slots.push(slot);
                }
            }
        }
        self.slots.get_mut(index)
    }

    /// Takes over the cluster's description of `id`, if it may have changed. Where TLS asks for the name in it and
    /// that is another one, the connections are of no more use: a server has shown a certificate for the former name
    /// only. Returns those that were idle; the others end with their requests.
    #[expect(clippy::vec_box, reason = "they are boxed in the pool, and large")]
    fn refresh(&mut self, id: BackendId, cluster: &Shared) -> Vec<Box<Connection>> {
        let read_at = cluster.memberships();
        let is_named_by_backend = self.tls.as_ref().is_some_and(|tls| tls.server_name().is_none());
        let Some(slot) = self.existing(id).filter(|slot| slot.read_at != read_at) else { return Vec::new() };
        let Some(backend) = cluster.backend(id) else { return Vec::new() };
        slot.read_at = read_at;
        let former = std::mem::replace(&mut slot.backend, backend);
        if !is_named_by_backend || slot.backend.has_host_of(&former) {
            return Vec::new();
        }
        let oldest = self.next_serial();
        let Some(slot) = self.existing(id) else { return Vec::new() };
        slot.http2.renew(oldest);
        slot.http1.renew(oldest)
    }

    /// The slot of `id` if there is one.
    fn existing(&mut self, id: BackendId) -> Option<&mut Slot<B>> {
        self.slots.get_mut(id.slot()).filter(|slot| slot.id == id)
    }

    fn next_serial(&mut self) -> u64 {
        self.serial += 1;
        self.serial
    }
}

impl<B> Slot<B> {
    /// A place for a slot below one that is needed first; no backend ever has this generation.
    fn vacant(at: u32, backend: &Arc<Backend>) -> Self {
        Self {
            id: BackendId::new(at, u32::MAX),
            backend: backend.clone(),
            read_at: 0,
            http1: Http1::default(),
            http2: Http2::default(),
        }
    }
}

impl<B: RequestBody> Streams for Pool<B> {
    fn cluster(&self) -> &Shared {
        &self.cluster
    }

    fn give_back(&self, stream: StreamId, in_vain_since: Option<Timestamp>, now: Timestamp) {
        let StreamId { connection, heard } = stream;
        let mut state = self.state.lock();
        if let Some(slot) = state.existing(connection.backend) {
            slot.http2.give_back(connection.key, connection.serial, in_vain_since.map(|since| (since, heard)), now);
        }
    }
}

impl<B: RequestBody> Connections for Pool<B> {
    fn give_back_http1(&self, backend: BackendId, connection: Box<Connection>) -> Result<(), Box<Connection>> {
        let mut state = self.state.lock();
        let (looked, max_idle) = (state.looked, state.config.max_idle_connections);
        let kept = match state.existing(backend) {
            Some(slot) => slot.http1.give_back(connection, looked, max_idle),
            None => ReturnOutcome::No(connection),
        };
        drop(state);
        match kept {
            ReturnOutcome::Yes => Ok(()),
            ReturnOutcome::No(connection) => {
                drop(connection);
                self.cluster.connection_closed(backend);
                Ok(())
            }
            ReturnOutcome::Closed(connection) => Err(connection),
        }
    }

    fn closed_http1(self: Arc<Self>, backend: BackendId, is_news: bool) {
        if let Some(slot) = self.state.lock().existing(backend) {
            slot.http1.closed();
        }
        self.on_closed_http1(backend, is_news);
    }
}

impl<B> Drop for Pool<B> {
    /// Ends the task that keeps the pool, which holds no handle to it.
    fn drop(&mut self) {
        self.alarm.ring();
    }
}
