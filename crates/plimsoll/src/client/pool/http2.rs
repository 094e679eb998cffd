//! The HTTP/2 connections to one backend, each with many concurrent requests.
//!
//! Requests go to the first connection with a free stream. A further connection is opened only when
//! none has one: so there is one connection until the peer's stream limit is reached. While it is
//! being opened, all requests that need it wait for that one attempt, instead of each opening its
//! own. A connection that is [silent](super::silence) for long gets no new request, and is closed
//! when its last request is over.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use http::{Request, Response};
use hyper::body::Incoming;
use hyper::client::conn::TrySendError;
use hyper::client::conn::http2::SendRequest;
use hyper::rt::Executor;
use plimsoll_core::Timestamp;
use slab::Slab;
use tokio::sync::oneshot;

use super::silence::{Heard, Silence};
use super::windows;
use crate::client::error::ConnectError;
use crate::client::outgoing::Outgoing;

/// The peer's limit of concurrent streams, as its connection's task last saw it.
#[derive(Clone)]
pub(super) struct StreamLimit(Arc<AtomicU32>);

impl StreamLimit {
    pub(super) fn unknown() -> Self {
        Self(Arc::new(AtomicU32::new(u32::MAX)))
    }

    pub(super) fn set(&self, streams: usize) {
        self.0.store(u32::try_from(streams).unwrap_or(u32::MAX), Ordering::Relaxed);
    }

    fn get(&self) -> u32 {
        self.0.load(Ordering::Relaxed)
    }
}

struct Connection<B> {
    send: SendRequest<Outgoing<B>>,
    serial: u64,
    requests: u64,
    /// Nobody waited for it.
    spare: bool,
    active: u32,
    limit: StreamLimit,
    silence: Silence,
    idle_since: Timestamp,
}

/// Spawns the work of hyper beside a request. All that work is one type, as large as a connection,
/// although most requests only wait for an answer. Boxed, it is not copied on its way into a task.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tasks;

impl<F: Future<Output: Send> + Send + 'static> Executor<F> for Tasks {
    fn execute(&self, task: F) {
        drop(tokio::spawn(Box::pin(task)));
    }
}

/// Tells a waiting request the result of opening a connection.
pub(super) type Opened = oneshot::Sender<Result<(), ConnectError>>;

/// The connections to one backend.
pub(super) struct Http2<B> {
    connections: Slab<Connection<B>>,
    /// There was one, so that the backend is known to speak it.
    is_spoken: bool,
    opening: bool,
    waiting: Vec<Opened>,
    /// Connections with a lower serial number are not taken in.
    oldest: u64,
}

impl<B> Default for Http2<B> {
    fn default() -> Self {
        Self { connections: Slab::new(), is_spoken: false, opening: false, waiting: Vec::new(), oldest: 0 }
    }
}

impl<B> Http2<B> {
    pub(super) fn len(&self) -> usize {
        self.connections.len() + usize::from(self.opening)
    }

    /// Whether the backend is known to speak HTTP/2.
    pub(super) fn is_spoken(&self) -> bool {
        self.is_spoken
    }

    /// Whether a connection is of use that was begun with this serial number.
    pub(super) fn takes(&self, serial: u64) -> bool {
        serial >= self.oldest
    }

    pub(super) fn insert(
        &mut self,
        send: SendRequest<Outgoing<B>>,
        serial: u64,
        limit: StreamLimit,
        heard: Heard,
        now: Timestamp,
    ) -> usize {
        let spare = self.waiting.is_empty();
        self.is_spoken = true;
        let silence = Silence::of(heard);
        let connection = Connection { send, serial, requests: 0, spare, active: 0, limit, silence, idle_since: now };
        self.connections.insert(connection)
    }

    /// The first connection with room for a stream.
    pub(super) fn with_room(&self, max_streams: u32) -> Option<(usize, u64)> {
        let max_streams = max_streams.min(windows::MAX_STREAMS);
        self.connections.iter().find_map(|(key, connection)| {
            let has_room = connection.active < connection.limit.get().min(max_streams);
            (has_room && !connection.silence.is_long() && connection.send.is_ready())
                .then_some((key, connection.serial))
        })
    }

    /// Whether the connection was idle before, so that its end may cross a request.
    pub(super) fn was_idle(&self, key: usize) -> bool {
        self.connections.get(key).is_some_and(|connection| connection.spare || connection.requests > 0)
    }

    /// The activity on a connection so far.
    pub(super) fn heard(&self, key: usize) -> u32 {
        self.connections.get(key).map_or(0, |connection| connection.silence.heard())
    }

    pub(super) fn send(
        &mut self,
        key: usize,
        request: Request<Outgoing<B>>,
    ) -> impl Future<Output = Result<Response<Incoming>, TrySendError<Request<Outgoing<B>>>>> + use<B>
    where
        B: http_body::Body + 'static,
        Outgoing<B>: http_body::Body,
    {
        let connection = &mut self.connections[key];
        connection.requests += 1;
        connection.active += 1;
        connection.send.try_send_request(request)
    }

    /// A request is over. `in_vain`: without an answer, the time of its sending and the activity up
    /// to then.
    pub(super) fn give_back(&mut self, key: usize, serial: u64, in_vain: Option<(Timestamp, u32)>, now: Timestamp) {
        let Some(connection) = self.connections.get_mut(key).filter(|c| c.serial == serial) else { return };
        connection.active -= 1;
        connection.idle_since = now;
        if let Some((sent, heard)) = in_vain {
            connection.silence.unanswered(now, sent, heard);
        }
        if connection.active == 0 && connection.silence.is_long() {
            self.connections.remove(key);
        }
    }

    /// The connection has closed. Returns how many requests it served, if it was still here.
    pub(super) fn remove(&mut self, key: usize, serial: u64) -> Option<u64> {
        self.connections.get(key).filter(|c| c.serial == serial)?;
        Some(self.connections.remove(key).requests)
    }

    /// Closes connections that were idle since `before` or longer.
    pub(super) fn close_idle(&mut self, before: Timestamp) {
        self.connections.retain(|_, c| c.active > 0 || c.idle_since > before);
    }

    /// Waits for the connection that is being opened. Returns `true` when the caller has to open it.
    pub(super) fn wait_for_opening(&mut self, waiter: Option<Opened>) -> bool {
        self.waiting.extend(waiter);
        !std::mem::replace(&mut self.opening, true)
    }

    /// The opening has ended. Tell the returned waiters.
    pub(super) fn opened(&mut self) -> Vec<Opened> {
        self.opening = false;
        std::mem::take(&mut self.waiting)
    }

    /// The backend is no member any more: all connections go, those in use after their requests.
    pub(super) fn retire(&mut self) {
        self.connections.clear();
        self.waiting.clear();
    }

    /// Connections are opened in another way from the serial number `oldest` on: all others go, as
    /// when the backend does. Requests that wait for one ask again.
    pub(super) fn renew(&mut self, oldest: u64) {
        self.oldest = oldest;
        self.connections.clear();
    }
}
