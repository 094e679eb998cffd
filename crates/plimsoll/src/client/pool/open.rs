//! Adding connections to the pool, and noticing that they end.

use std::pin::pin;
use std::sync::{Arc, Weak};

use hyper::client::conn::http2;
use hyper_util::rt::{TokioIo, TokioTimer};
use plimsoll_core::BackendId;
use tokio::sync::oneshot;

use super::alarm::Watch;
use super::greeting::Overheard;
use super::http1::ReturnOutcome;
use super::http2::{Opened, StreamLimit, Tasks};
use super::silence::Heard;
use super::{Pool, is_single_use, windows};
use crate::client::ClientAddress;
use crate::client::backend::{Backend, Persistence};
use crate::client::config::{ClusterConfig, Protocol, Version};
use crate::client::connect::connect;
use crate::client::error::{ConnectError, h2_error};
use crate::client::http1::{Connection, Lease};
use crate::client::outgoing::Outgoing;
use crate::client::request_body::RequestBody;
use crate::client::stream_id::ConnectionId;
use crate::tls::Alpn;

/// Limit on abandoned streams with outstanding frames. With hyper's ten, frames that the backends
/// had already sent count as errors of the peer, which in the end close the connection that others
/// share.
const MAX_RESET_STREAMS: usize = 1024;

impl<B: RequestBody> Pool<B> {
    /// Opens an HTTP/1 connection for a request; `None` when the backend is no member any more.
    /// `client` is the client of the request, in a cluster that tells its backends the client's
    /// address.
    ///
    /// It is opened to the end though the request may leave before. A failure to connect is news of
    /// the backend, however short the caller's deadline is. The next request uses the connection,
    /// unless the backend closes after each response: there a connection without a request occupies
    /// a worker. A few at a time only, and not where connections are capped: there it ends with its
    /// request.
    pub(crate) async fn open_http1(
        self: &Arc<Self>,
        id: BackendId,
        client: Option<ClientAddress>,
    ) -> Result<Option<Lease>, ConnectError> {
        if let Some(_opening) = self.opens() {
            return self.open_lease(id, client).await;
        }
        let (mut sender, opened) = oneshot::channel();
        let pool = self.clone();
        tokio::spawn(async move {
            let mut opening = pin!(pool.open_lease(id, client));
            let mut orphan = None;
            let opened = tokio::select! {
                biased;
                opened = opening.as_mut() => opened,
                () = sender.closed() => {
                    orphan = pool.orphan(id);
                    if orphan.is_none() {
                        return;
                    }
                    opening.await
                }
            };
            drop(orphan);
            if let Err(Ok(Some(mut lease))) = sender.send(opened)
                && !lease.is_single_use
                && pool.cluster.backend(id).is_some_and(|backend| backend.persistence() != Persistence::Closes)
            {
                lease.is_spare = true;
                lease.end();
            }
        });
        // It is dropped only with its runtime.
        opened.await.unwrap_or(Ok(None))
    }

    /// Lets the connection of an abandoned request be opened, while this is held; `None` where
    /// there are enough.
    fn orphan(&self, id: BackendId) -> Option<Orphan<'_, B>> {
        let mut state = self.state.lock();
        // Not made where there may be none: its end takes the lock that is held here.
        state.slot(id, &self.cluster)?.http1.may_orphan().then(|| Orphan { pool: self, id })
    }

    async fn open_lease(
        self: &Arc<Self>,
        id: BackendId,
        client: Option<ClientAddress>,
    ) -> Result<Option<Lease>, ConnectError> {
        let Some(connection) = self.connect_http1(id, client).await? else { return Ok(None) };
        let mut state = self.state.lock();
        let Some(slot) = state.slot(id, &self.cluster) else {
            drop(state);
            self.cluster.connection_closed(id);
            return Ok(None);
        };
        slot.http1.lend();
        drop(state);
        Ok(Some(Lease::new(self.clone(), id, connection)))
    }

    /// Opens an HTTP/1 connection that no request waits for. It stays only where `min_connections` asks for it, and never
    /// to a backend that closes after each response. Elsewhere it is closed at once, and has shown that the backend accepts
    /// connections.
    async fn open_spare_http1(self: &Arc<Self>, id: BackendId) {
        // A failure was told to the cluster; no caller waits for it.
        let Ok(Some(mut connection)) = self.connect_http1(id, None).await else { return };
        connection.is_spare = true;
        let mut state = self.state.lock();
        let (looked, config) = (state.looked, state.config);
        let kept = match state.slot(id, &self.cluster) {
            Some(slot)
                if slot.http1.len() < config.min_connections && slot.backend.persistence() != Persistence::Closes =>
            {
                slot.http1.put(connection, looked, config.max_idle_connections)
            }
            _ => ReturnOutcome::No(connection),
        };
        drop(state);
        self.settle(id, kept);
    }

    async fn connect_http1(
        self: &Arc<Self>,
        id: BackendId,
        client: Option<ClientAddress>,
    ) -> Result<Option<Box<Connection>>, ConnectError> {
        // Before the configuration and the backend's name, so that one with an older number than it needs is not kept.
        let serial = self.state.lock().next_serial();
        let Some(backend) = self.cluster.backend(id) else { return Ok(None) };
        let config = self.cluster.config();
        let limit = config.requests.connect_timeout;
        let opened = connect(&backend, &config, limit, Alpn::Http1, client).await;
        let stream = opened.inspect_err(|error| self.cluster.connect_failed(id, error))?;
        self.cluster.connected(id);
        let watch = Watch { alarm: self.alarm.clone(), backend: id, serial };
        let mut connection = Connection::new(stream, serial, Arc::new(watch));
        connection.is_single_use = is_single_use(&config);
        Ok(Some(connection))
    }

    /// A connection was put into the pool, or not.
    pub(super) fn settle(self: &Arc<Self>, id: BackendId, kept: ReturnOutcome) {
        match kept {
            ReturnOutcome::Yes => {}
            ReturnOutcome::No(connection) => {
                drop(connection);
                self.cluster.connection_closed(id);
            }
            ReturnOutcome::Closed(connection) => {
                let is_news = connection.end_is_news();
                drop(connection);
                self.on_closed_http1(id, is_news);
            }
        }
    }

    /// Opens an HTTP/2 connection, and tells the waiting requests.
    async fn open_http2(self: &Arc<Self>, mut opening: Http2Opening<B>) {
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

    /// Opens a connection that no request waits for.
    pub(super) fn open_in_background(self: &Arc<Self>, id: BackendId, version: Version) {
        let pool = Arc::downgrade(self);
        match version {
            Version::Http1 => drop(tokio::spawn(async move {
                if let Some(pool) = pool.upgrade() {
                    pool.open_spare_http1(id).await;
                }
            })),
            Version::Http2 => {
                // Made here: a runtime that is ending drops the task without a turn.
                let opening = Http2Opening { pool: pool.clone(), id, is_over: false };
                tokio::spawn(async move {
                    if let Some(pool) = pool.upgrade() {
                        pool.open_http2(opening).await;
                    }
                });
            }
        }
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

    /// An HTTP/1 connection has ended, by the backend or before its request was over; see [`Connection::end_is_news`].
    pub(super) fn on_closed_http1(self: &Arc<Self>, id: BackendId, is_news: bool) {
        self.cluster.connection_closed(id);
        self.replace(id, Version::Http1, is_news);
    }

    /// A connection has ended. If that was the last one to the backend and its end is news, another
    /// is opened. A refusal shows that the backend is unreachable before a request finds out. An
    /// HTTP/2 connection then stays, since requests share it; for HTTP/1 see
    /// [`Pool::open_spare_http1`].
    fn replace(self: &Arc<Self>, id: BackendId, version: Version, is_news: bool) {
        if !is_news {
            return;
        }
        let mut state = self.state.lock();
        let Some(slot) = state.existing(id) else { return };
        let is_last = slot.http1.len() + slot.http2.len() == 0;
        if !is_last || version == Version::Http2 && !slot.http2.wait_for_opening(None) {
            return;
        }
        drop(state);
        self.open_in_background(id, version);
    }
}

/// An HTTP/2 connection that is being opened. Dropped with its runtime, it lets the waiting
/// requests ask again.
struct Http2Opening<B: RequestBody> {
    pool: Weak<Pool<B>>,
    id: BackendId,
    is_over: bool,
}

impl<B: RequestBody> Http2Opening<B> {
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

/// A connection that is being opened though the request that wanted it has left.
struct Orphan<'a, B: RequestBody> {
    pool: &'a Pool<B>,
    id: BackendId,
}

impl<B: RequestBody> Drop for Orphan<'_, B> {
    fn drop(&mut self) {
        if let Some(slot) = self.pool.state.lock().existing(self.id) {
            slot.http1.orphan_ended();
        }
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
