//! Adding connections to the pool, and noticing that they end.

use std::sync::{Arc, Weak};

use hyper::client::conn::{http1, http2};
use hyper_util::rt::TokioExecutor;
use plimsoll_core::BackendId;

use super::connect::connect;
use super::http2::StreamLimit;
use super::{ConnectionId, Pool, RequestBody, Version};
use crate::client::error::ConnectError;
use crate::client::outgoing::Outgoing;

/// What a new connection is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// One request, which is waiting for it.
    Request,
    /// To be there when it is needed.
    Spare,
}

impl<B: RequestBody> Pool<B> {
    /// Opens an HTTP/1.1 connection. For a request it counts as in use at once.
    pub(crate) async fn open_http1(
        self: &Arc<Self>,
        id: BackendId,
        purpose: Purpose,
    ) -> Result<Option<ConnectionId>, ConnectError> {
        let Some(backend) = self.cluster.backend(id) else { return Ok(None) };
        let limit = self.cluster.config().requests.connect_timeout;
        let (send, connection) = async {
            let io = connect(backend.address(), limit).await?;
            http1::handshake::<_, Outgoing<B>>(io).await.map_err(|e| ConnectError::Handshake(Arc::new(e)))
        }
        .await
        .inspect_err(|_| self.cluster.connect_failed(id))?;
        self.cluster.connected(id);

        let mut state = self.state.lock();
        let serial = state.next_serial();
        let Some(slot) = state.slot(id, &self.cluster) else {
            drop(state);
            self.cluster.connection_closed(id);
            return Ok(None);
        };
        let idle_since = (purpose == Purpose::Spare).then(|| self.cluster.now());
        let key = slot.http1.insert(send, serial, idle_since);
        drop(state);
        let connection_id = ConnectionId { backend: id, version: Version::Http1, key, serial };
        let pool = Arc::downgrade(self);
        tokio::spawn(async move {
            let mut connection = connection.with_upgrades();
            let result = (&mut connection).await;
            trace_end(connection_id, result);
            // Told before the connection is dropped: a request that is still queued on it is given
            // back by the drop, and must not find it in the pool again.
            closed(&pool, connection_id);
        });
        Ok(Some(connection_id))
    }

    /// Opens an HTTP/2 connection, and tells those who wait for it.
    async fn open_http2(self: &Arc<Self>, id: BackendId) {
        let result = self.try_open_http2(id).await;
        let waiting = self.state.lock().existing(id).map(|slot| slot.http2.opened());
        for waiter in waiting.into_iter().flatten() {
            // Who has gone away meanwhile need not be told.
            let _ = waiter.send(result.clone());
        }
    }

    async fn try_open_http2(self: &Arc<Self>, id: BackendId) -> Result<(), ConnectError> {
        let Some(backend) = self.cluster.backend(id) else { return Ok(()) };
        let limit = self.cluster.config().requests.connect_timeout;
        let (send, mut connection) = async {
            let io = connect(backend.address(), limit).await?;
            http2::Builder::new(TokioExecutor::new())
                .handshake::<_, Outgoing<B>>(io)
                .await
                .map_err(|e| ConnectError::Handshake(Arc::new(e)))
        }
        .await
        .inspect_err(|_| self.cluster.connect_failed(id))?;
        self.cluster.connected(id);

        let (stream_limit, now) = (StreamLimit::unknown(), self.cluster.now());
        let mut state = self.state.lock();
        let serial = state.next_serial();
        let Some(slot) = state.slot(id, &self.cluster) else {
            drop(state);
            self.cluster.connection_closed(id);
            return Ok(());
        };
        let key = slot.http2.insert(send, serial, stream_limit.clone(), now);
        drop(state);
        let connection_id = ConnectionId { backend: id, version: Version::Http2, key, serial };
        let pool = Arc::downgrade(self);
        tokio::spawn(async move {
            let result = std::future::poll_fn(|cx| {
                let polled = std::pin::Pin::new(&mut connection).poll(cx);
                if polled.is_pending() {
                    stream_limit.set(connection.current_max_send_streams());
                }
                polled
            })
            .await;
            trace_end(connection_id, result);
            // Before the drop, as above.
            closed(&pool, connection_id);
        });
        Ok(())
    }

    /// Opens a connection that no request waits for.
    pub(super) fn open_in_background(self: &Arc<Self>, id: BackendId, version: Version) {
        let pool = Arc::downgrade(self);
        tokio::spawn(async move {
            let Some(pool) = pool.upgrade() else { return };
            match version {
                // What fails here was told to the cluster; nobody else waits for it.
                Version::Http1 => drop(pool.open_http1(id, Purpose::Spare).await),
                Version::Http2 => pool.open_http2(id).await,
            }
        });
    }

    /// A connection has ended. If it was the backend's last and had been of use, one is opened in its
    /// place: if that is refused, the backend is known to be gone before a request finds out.
    fn on_closed(self: &Arc<Self>, connection: ConnectionId) {
        let (id, version) = (connection.backend, connection.version);
        self.cluster.connection_closed(id);
        let mut state = self.state.lock();
        let Some(slot) = state.existing(id) else { return };
        let requests = match version {
            Version::Http1 => slot.http1.remove(connection.key, connection.serial),
            Version::Http2 => slot.http2.remove(connection.key, connection.serial),
        };
        let was_last = slot.http1.len() + slot.http2.len() == 0;
        if !was_last || requests.is_none_or(|requests| requests == 0) {
            return;
        }
        if version == Version::Http2 && !slot.http2.wait_for_opening(None) {
            return;
        }
        drop(state);
        self.open_in_background(id, version);
    }
}

fn closed<B: RequestBody>(pool: &Weak<Pool<B>>, connection: ConnectionId) {
    if let Some(pool) = pool.upgrade() {
        pool.on_closed(connection);
    }
}

fn trace_end(connection: ConnectionId, result: hyper::Result<()>) {
    if let Err(error) = result {
        tracing::debug!(backend = %connection.backend, %error, "connection to a backend broke");
    }
}
