//! Adding HTTP/2 connections to the pool, and noticing that they end.

use std::sync::{Arc, Weak};

use hyper::client::conn::http2;
use hyper_util::rt::{TokioIo, TokioTimer};
use plimsoll_core::BackendId;

use super::greeting::Overheard;
use super::http2::{Opened, StreamLimit, Tasks};
use super::silence::Heard;
use super::{Pool, windows};
use crate::client::backend::Backend;
use crate::client::config::{ClusterConfig, Protocol, Version};
use crate::client::connect::connect;
use crate::client::error::ConnectError;
use crate::client::hyper_error::h2_error;
use crate::client::outgoing::Outgoing;
use crate::client::request_body::RequestBody;
use crate::client::stream_id::ConnectionId;
use crate::tls::Alpn;

/// Limit on abandoned streams with outstanding frames. With hyper's ten, frames that the backends
/// had already sent count as errors of the peer, which in the end close the connection that others
/// share.
const MAX_RESET_STREAMS: usize = 1024;

impl<B: RequestBody> Pool<B> {
    /// Opens an HTTP/2 connection, and tells the waiting requests.
    pub(super) async fn open_http2(self: &Arc<Self>, mut opening: Http2Opening<B>) {
        let result = self.try_open_http2(opening.id).await;
        for waiter in opening.end() {
            // A request that left meanwhile need not be told.
            let _ = waiter.send(result.clone());
        }
    }

    async fn try_open_http2(self: &Arc<Self>, id: BackendId) -> Result<(), ConnectError> {
        let (serial, is_known) = {
            let mut state = self.state.lock();
            (state.next_serial(), state.existing(id).is_some_and(|slot| slot.http2.is_spoken()))
        };
        let Some(backend) = self.cluster.backend(id) else { return Ok(()) };
        let config = self.cluster.config();
        let opened = begin_http2(&backend, &config, is_known).await;
        let (send, mut connection, heard) = opened.inspect_err(|error| self.cluster.connect_failed(id, error))?;
        self.cluster.connected(id);

        let (stream_limit, now) = (StreamLimit::unknown(), self.cluster.now());
        let mut state = self.state.lock();
        let Some(slot) = state.slot(id, &self.cluster).filter(|slot| slot.http2.takes(serial)) else {
            drop(state);
            self.cluster.connection_closed(id);
            return Ok(());
        };
        let key = slot.http2.insert(send, serial, stream_limit.clone(), heard, now);
        slot.backend.note_keep_alive(true);
        drop(state);
        let connection_id = ConnectionId { backend: id, key, serial };
        let (pool, pings) = (Arc::downgrade(self), config.pool.ping.is_some());
        tokio::spawn(async move {
            let result = std::future::poll_fn(|cx| {
                let polled = std::pin::Pin::new(&mut connection).poll(cx);
                if polled.is_pending() {
                    stream_limit.set(connection.current_max_send_streams());
                }
                polled
            })
            .await;
            trace_end(connection_id, result, pings);
            // Told before the connection is dropped: a request that is still queued on it is given
            // back by the drop, and must not find it in the pool again.
            closed(&pool, connection_id);
        });
        Ok(())
    }

    /// An HTTP/2 connection has ended.
    fn on_closed_http2(self: &Arc<Self>, connection: ConnectionId) {
        let id = connection.backend;
        self.cluster.connection_closed(id);
        let requests = {
            let mut state = self.state.lock();
            state.existing(id).and_then(|slot| slot.http2.remove(connection.key, connection.serial))
        };
        self.replace(id, Version::Http2, requests.is_some_and(|requests| requests > 0));
    }
}

/// An HTTP/2 connection that is being opened. Dropped with its runtime, it lets the waiting
/// requests ask again.
pub(super) struct Http2Opening<B: RequestBody> {
    pool: Weak<Pool<B>>,
    id: BackendId,
    is_over: bool,
}

impl<B: RequestBody> Http2Opening<B> {
    pub(super) fn new(pool: Weak<Pool<B>>, id: BackendId) -> Self {
        Self { pool, id, is_over: false }
    }

    /// It has ended: the waiting requests. Once only, as another may begin then.
    fn end(&mut self) -> Vec<Opened> {
        if std::mem::replace(&mut self.is_over, true) {
            return Vec::new();
        }
        let Some(pool) = self.pool.upgrade() else { return Vec::new() };
        pool.state.lock().existing(self.id).map(|slot| slot.http2.opened()).unwrap_or_default()
    }
}

impl<B: RequestBody> Drop for Http2Opening<B> {
    fn drop(&mut self) {
        drop(self.end());
    }
}

/// A connection of hyper's that sends bodies `B`, to be driven by its opener.
type Driven<B> = http2::Connection<TokioIo<Overheard>, Outgoing<B>, Tasks>;

/// Opens an HTTP/2 connection to `backend` and its activity. Without a configured protocol, the
/// backend must first show on the connection that it speaks HTTP/2.
async fn begin_http2<B: RequestBody>(
    backend: &Backend,
    config: &ClusterConfig,
    is_known: bool,
) -> Result<(http2::SendRequest<Outgoing<B>>, Driven<B>, Heard), ConnectError> {
    let limit = config.requests.connect_timeout;
    let (stream, greeting) = Overheard::new(connect(backend, config, limit, Alpn::Http2, None).await?);
    let heard = stream.heard().clone();
    let mut builder = http2::Builder::new(Tasks);
    if let Some(ping) = config.pool.ping {
        builder.timer(TokioTimer::new()).keep_alive_interval(ping.interval).keep_alive_timeout(ping.timeout);
    }
    let (send, mut connection) = builder
        .max_concurrent_reset_streams(MAX_RESET_STREAMS)
        .max_local_error_reset_streams(None)
        .initial_stream_window_size(windows::STREAM)
        .initial_connection_window_size(windows::CONNECTION)
        .handshake(TokioIo::new(stream))
        .await
        .map_err(|error| ConnectError::Handshake(Arc::new(error)))?;
    if !is_known && config.requests.protocol == Protocol::Auto {
        let speaks_it = tokio::time::timeout(limit, greeting.speaks_http2(&mut connection)).await;
        speaks_it.unwrap_or(false).then_some(()).ok_or(ConnectError::NotHttp2)?;
    }
    Ok((send, connection, heard))
}

fn closed<B: RequestBody>(pool: &Weak<Pool<B>>, connection: ConnectionId) {
    if let Some(pool) = pool.upgrade() {
        pool.on_closed_http2(connection);
    }
}

fn trace_end(connection: ConnectionId, result: hyper::Result<()>, pings: bool) {
    let Err(error) = result else { return };
    if pings && h2_error(&error).is_some_and(|error| error.reason() == Some(h2::Reason::ENHANCE_YOUR_CALM)) {
        tracing::warn!(backend = %connection.backend, %error, "backend refuses PINGs: raise ping_interval");
    } else {
        tracing::debug!(backend = %connection.backend, %error, "connection to a backend broke");
    }
}
