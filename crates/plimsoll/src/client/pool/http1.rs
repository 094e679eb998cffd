//! The HTTP/1.1 connections to one backend: one request at a time on each.
//!
//! Idle ones are a stack: the last used goes first, so that under little load few connections do all the
//! work and the others grow old and are closed. A connection is put on the stack as soon as its
//! response is complete, although hyper may need a moment more before it takes the next request (it
//! may still be sending the last one's body). One that is not ready is passed over; so no task has
//! to be started to wait for it.

use http::{Request, Response};
use hyper::body::Incoming;
use hyper::client::conn::TrySendError;
use hyper::client::conn::http1::SendRequest;
use plimsoll_core::Timestamp;
use slab::Slab;

use crate::client::outgoing::Outgoing;

struct Connection<B> {
    send: SendRequest<Outgoing<B>>,
    serial: u64,
    /// Requests that it was used for.
    requests: u64,
    /// It was opened to be there when it is needed.
    spare: bool,
    idle_since: Option<Timestamp>,
}

/// The connections to one backend.
pub(super) struct Http1<B> {
    connections: Slab<Connection<B>>,
    /// Keys of idle connections, the one idle for longest first.
    idle: Vec<usize>,
}

impl<B> Default for Http1<B> {
    fn default() -> Self {
        Self { connections: Slab::new(), idle: Vec::new() }
    }
}

impl<B> Http1<B> {
    pub(super) fn len(&self) -> usize {
        self.connections.len()
    }

    /// Takes in a new connection. It is idle at once if `idle_since` says since when.
    pub(super) fn insert(
        &mut self,
        send: SendRequest<Outgoing<B>>,
        serial: u64,
        idle_since: Option<Timestamp>,
    ) -> usize {
        let key =
            self.connections.insert(Connection { send, serial, requests: 0, spare: idle_since.is_some(), idle_since });
        if idle_since.is_some() {
            self.idle.push(key);
        }
        key
    }

    /// An idle connection that is ready for a request; it counts as in use from here.
    pub(super) fn take_ready(&mut self) -> Option<(usize, u64)> {
        let at = self.idle.iter().rposition(|key| self.connections[*key].send.is_ready())?;
        let key = self.idle.remove(at);
        let connection = &mut self.connections[key];
        connection.idle_since = None;
        Some((key, connection.serial))
    }

    /// Whether the connection was idle before, so that its end may cross a request.
    pub(super) fn was_idle(&self, key: usize) -> bool {
        self.connections.get(key).is_some_and(|connection| connection.spare || connection.requests > 0)
    }

    pub(super) fn has(&self, key: usize, serial: u64) -> bool {
        self.connections.get(key).is_some_and(|connection| connection.serial == serial)
    }

    /// Sends on a connection that was taken.
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
        connection.send.try_send_request(request)
    }

    /// The request on it is over: it is idle now, or closed if `max_idle` already are.
    pub(super) fn give_back(&mut self, key: usize, serial: u64, now: Timestamp, max_idle: usize) {
        let has_room = self.idle.len() < max_idle;
        let Some(connection) = self.connections.get_mut(key).filter(|c| c.serial == serial) else {
            return;
        };
        if !has_room || connection.send.is_closed() {
            // Only a full pool removes it here: of one that closed, its task tells.
            if !has_room {
                self.connections.remove(key);
            }
            return;
        }
        if connection.idle_since.is_none() {
            connection.idle_since = Some(now);
            self.idle.push(key);
        }
    }

    /// The connection has closed. Returns how many requests it served, if it was still here.
    pub(super) fn remove(&mut self, key: usize, serial: u64) -> Option<u64> {
        if !self.has(key, serial) {
            return None;
        }
        self.idle.retain(|idle| *idle != key);
        Some(self.connections.remove(key).requests)
    }

    /// Closes what has been idle since `before` or longer.
    pub(super) fn close_idle(&mut self, before: Timestamp) {
        let connections = &mut self.connections;
        let old = self.idle.iter().take_while(|key| connections[**key].idle_since.is_some_and(|at| at <= before));
        let old = old.count();
        for key in self.idle.drain(..old) {
            connections.remove(key);
        }
    }

    /// The backend is no member any more: everything goes, what is in use when its request is over
    /// (hyper serves a request to its end after its sender was dropped).
    pub(super) fn retire(&mut self) {
        self.idle.clear();
        self.connections.clear();
    }
}
