//! Long-lived connections of one client to the backends of its cluster.
//!
//! Own connections instead of a general pool, for three reasons: a connection that breaks tells the
//! cluster's health machine something, connections are opened before they are needed, and hyper's
//! connection-level API costs a quarter less CPU per request than the pool of `hyper-util`.
//!
//! A connection's sender stays in the pool while a request is on it; what travels with the request is
//! only its [`ConnectionId`]. So nothing has to be handed back that could be lost, and the pool knows of
//! every connection at any time. Each connection runs on a task of its own, which tells the pool when it
//! ends. The lock is held to find a connection and queue the request on it; a client that is used on one
//! thread (as the proxy's are) never waits for it.

mod connect;
mod http1;
mod http2;
mod keep;
mod open;

use std::sync::Arc;

use http::{Request, Response};
use http_body::Body;
use hyper::body::Incoming;
use hyper::client::conn::TrySendError;
use parking_lot::Mutex;
use plimsoll_core::{BackendId, Timestamp};
use tokio::sync::{Notify, oneshot};

use self::http1::Http1;
use self::http2::Http2;
pub(crate) use self::keep::keep;
pub(crate) use self::open::Purpose;
use super::attempt::Home;
use super::cluster::{Backend, Shared};
use super::config::PoolConfig;
use super::error::ConnectError;
use super::form;
use super::outgoing::Outgoing;
use super::replay::Copy;

/// Which HTTP a connection speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Version {
    Http1,
    Http2,
}

/// A connection of this pool. Never used again for another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ConnectionId {
    backend: BackendId,
    version: Version,
    key: usize,
    serial: u64,
}

/// The bodies that can be sent.
pub trait RequestBody: Body<Data: Send, Error: Into<BoxError>> + Send + Unpin + 'static {}

impl<B> RequestBody for B where B: Body<Data: Send, Error: Into<BoxError>> + Send + Unpin + 'static {}

/// An error of any type.
pub(crate) type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// The connections of one client.
pub(crate) struct Pool<B> {
    cluster: Arc<Shared>,
    state: Mutex<State<B>>,
    /// Wakes the task that keeps the pool in order, at the latest when the pool is dropped.
    wake: Arc<Notify>,
}

struct State<B> {
    slots: Vec<Slot<B>>,
    config: PoolConfig,
    serial: u64,
}

/// Connections to the backend that has this slot of the cluster.
struct Slot<B> {
    id: BackendId,
    backend: Arc<Backend>,
    http1: Http1<B>,
    http2: Http2<B>,
}

/// What became of a request that was to be sent.
pub(crate) enum Sending<B, F1, F2> {
    /// It is on an HTTP/1.1 connection; with a copy if it may be sent again.
    Http1(F1, ConnectionId, Arc<Backend>, Option<Copy>),
    /// It is on an HTTP/2 connection; with a copy if it may be sent again.
    Http2(F2, ConnectionId, Arc<Backend>, Option<Copy>),
    /// A connection has to be opened first.
    Open(Request<B>, Arc<Backend>),
    /// Somebody opens a connection; wait for it, then try again.
    Wait(Request<B>, Arc<Backend>, oneshot::Receiver<Result<(), ConnectError>>),
    /// The backend is no member any more.
    Gone(Request<B>),
}

/// Which connection a request may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Use {
    /// Any that is ready.
    Any,
    /// This one, which was opened for it.
    Only(ConnectionId),
    /// A new one.
    New,
}

/// What hyper's future yields.
type Answer<B> = Result<Response<Incoming>, TrySendError<Request<B>>>;

impl<B: RequestBody> Pool<B> {
    pub(crate) fn new(cluster: Arc<Shared>) -> Arc<Self> {
        let config = cluster.config().pool;
        let state = Mutex::new(State { slots: Vec::new(), config, serial: 0 });
        Arc::new(Self { cluster, state, wake: Arc::new(Notify::new()) })
    }

    pub(crate) fn wake(&self) -> &Arc<Notify> {
        &self.wake
    }

    /// Puts `request` on a connection to `id` if one is ready.
    pub(crate) fn send(
        self: &Arc<Self>,
        id: BackendId,
        version: Version,
        which: Use,
        mut request: Request<Outgoing<B>>,
        lent_host: &mut bool,
    ) -> Sending<
        Outgoing<B>,
        impl Future<Output = Answer<Outgoing<B>>> + use<B>,
        impl Future<Output = Answer<Outgoing<B>>> + use<B>,
    > {
        let mut state = self.state.lock();
        let max_streams = state.config.max_streams.get();
        let Some(slot) = state.slot(id, &self.cluster) else {
            return Sending::Gone(request);
        };
        let backend = slot.backend.clone();
        match version {
            Version::Http1 => {
                let found = match which {
                    Use::Any => slot.http1.take_ready(),
                    Use::New => None,
                    Use::Only(c) => slot.http1.has(c.key, c.serial).then_some((c.key, c.serial)),
                };
                let Some((key, serial)) = found else {
                    return Sending::Open(request, backend);
                };
                form::http1(&mut request, &backend, lent_host);
                let copy = Copy::of(&request, slot.http1.was_idle(key));
                let answer = slot.http1.send(key, request);
                Sending::Http1(answer, ConnectionId { backend: id, version, key, serial }, backend, copy)
            }
            Version::Http2 => match slot.http2.with_room(max_streams) {
                Some((key, serial)) => {
                    form::http2(&mut request, &backend, lent_host);
                    let copy = Copy::of(&request, slot.http2.was_idle(key));
                    let answer = slot.http2.send(key, request);
                    Sending::Http2(answer, ConnectionId { backend: id, version, key, serial }, backend, copy)
                }
                None => {
                    let (opened, receiver) = oneshot::channel();
                    if slot.http2.wait_for_opening(Some(opened)) {
                        drop(state);
                        self.open_in_background(id, Version::Http2);
                    }
                    Sending::Wait(request, backend, receiver)
                }
            },
        }
    }
}

impl<B> State<B> {
    /// The slot of `id`, made or renewed if it has to be; `None` when `id` is no member.
    fn slot(&mut self, id: BackendId, cluster: &Shared) -> Option<&mut Slot<B>> {
        let index = id.slot();
        if self.slots.get(index).is_none_or(|slot| slot.id != id) {
            let backend = cluster.backend(id)?;
            let slot = Slot { id, backend, http1: Http1::default(), http2: Http2::default() };
            match self.slots.get_mut(index) {
                Some(old) => *old = slot,
                None => {
                    for at in self.slots.len()..index {
                        self.slots.push(Slot::vacant(at, &slot.backend));
                    }
                    self.slots.push(slot);
                }
            }
        }
        Some(&mut self.slots[index])
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
    fn vacant(at: usize, backend: &Arc<Backend>) -> Self {
        let at = u32::try_from(at).expect("slots are counted in 32 bits");
        Self {
            id: BackendId::new(at, u32::MAX),
            backend: backend.clone(),
            http1: Http1::default(),
            http2: Http2::default(),
        }
    }
}

impl<B: RequestBody> Home for Pool<B> {
    fn cluster(&self) -> &Shared {
        &self.cluster
    }

    fn give_back(&self, connection: ConnectionId, now: Timestamp) {
        let mut state = self.state.lock();
        let max_idle = state.config.max_idle_connections.get();
        let Some(slot) = state.existing(connection.backend) else { return };
        match connection.version {
            Version::Http1 => slot.http1.give_back(connection.key, connection.serial, now, max_idle),
            Version::Http2 => slot.http2.give_back(connection.key, connection.serial, now),
        }
    }
}

impl<B> Drop for Pool<B> {
    /// Ends the task that keeps the pool, which holds no handle to it.
    fn drop(&mut self) {
        self.wake.notify_one();
    }
}
