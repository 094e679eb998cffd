//! A connection on loan from its pool.

use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use plimsoll_core::BackendId;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::Connection;

/// The HTTP/1 connections of a client.
///
/// A trait, so that the body of a response need not carry the type of the request's body.
pub(crate) trait Connections: Send + Sync {
    /// An HTTP/1 connection may serve again; it is returned if its backend has closed it.
    fn give_back_http1(&self, backend: BackendId, connection: Box<Connection>) -> Result<(), Box<Connection>>;
    /// An HTTP/1 connection was closed while it was in use; `is_news`: its end may say something about the backend.
    fn closed_http1(self: Arc<Self>, backend: BackendId, is_news: bool);
}

/// A connection in use. Its pool counts it until it comes back, or is dropped and so closed.
pub(crate) struct Lease {
    home: Arc<dyn Connections>,
    backend: BackendId,
    /// There until it is given back.
    connection: Option<Box<Connection>>,
}

impl Lease {
    pub(crate) fn new(home: Arc<dyn Connections>, backend: BackendId, connection: Box<Connection>) -> Self {
        Self { home, backend, connection: Some(connection) }
    }

    /// The request on it is over, well or not: back to the pool if it may serve another, closed otherwise.
    pub(crate) fn end(mut self) {
        if let Some(mut connection) = self.connection.take_if(|connection| connection.is_reusable) {
            let kept =
                if connection.end() { self.home.give_back_http1(self.backend, connection) } else { Err(connection) };
            self.connection = kept.err();
        }
    }
}

impl Lease {
    /// Sends no more on the connection, and reads until the backend closes it or has sent `max_read` bytes.
    pub(crate) async fn until_closed(mut self, max_read: usize) {
        let stream = &mut self.stream;
        let (mut buffer, mut read) = ([0; 4096], 0);
        if stream.shutdown().await.is_err() {
            return;
        }
        while let Ok(some @ 1..) = stream.read(&mut buffer).await {
            read += some;
            if read > max_read {
                return;
            }
        }
    }
}

impl Deref for Lease {
    type Target = Connection;

    fn deref(&self) -> &Connection {
        self.connection.as_ref().expect("it is there until the lease ends")
    }
}

impl DerefMut for Lease {
    fn deref_mut(&mut self) -> &mut Connection {
        self.connection.as_mut().expect("it is there until the lease ends")
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        if let Some(connection) = self.connection.take() {
            let (serial, requests) = (connection.serial, connection.requests);
            // An end from this side, as of an abandoned request, says nothing.
            let is_news = connection.is_ended() && connection.end_is_news();
            drop(connection);
            tracing::trace!(backend = %self.backend, serial, requests, "connection to a backend closed");
            self.home.clone().closed_http1(self.backend, is_news);
        }
    }
}
