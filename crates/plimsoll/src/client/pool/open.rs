//! Adding connections to the pool, and noticing that they end.

use std::pin::pin;
use std::sync::Arc;

use plimsoll_core::BackendId;
use tokio::sync::oneshot;

use super::alarm::Watch;
use super::http1::ReturnOutcome;
#[cfg(feature = "http2")]
use super::open_http2::Http2Opening;
use super::{Pool, is_single_use};
use crate::client::ClientAddress;
use crate::client::backend::Persistence;
use crate::client::config::Version;
use crate::client::connect::connect;
use crate::client::error::ConnectError;
use crate::client::http1::{Connection, Lease};
use crate::client::request_body::RequestBody;
use crate::tls::Alpn;

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

    /// Opens a connection that no request waits for.
    pub(super) fn open_in_background(self: &Arc<Self>, id: BackendId, version: Version) {
        let pool = Arc::downgrade(self);
        match version {
            Version::Http1 => drop(tokio::spawn(async move {
                if let Some(pool) = pool.upgrade() {
                    pool.open_spare_http1(id).await;
                }
            })),
            #[cfg(feature = "http2")]
            Version::Http2 => {
                // Made here: a runtime that is ending drops the task without a turn.
                let opening = Http2Opening::new(pool.clone(), id);
                tokio::spawn(async move {
                    if let Some(pool) = pool.upgrade() {
                        pool.open_http2(opening).await;
                    }
                });
            }
        }
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
    pub(super) fn replace(self: &Arc<Self>, id: BackendId, version: Version, is_news: bool) {
        if !is_news {
            return;
        }
        let mut state = self.state.lock();
        let Some(slot) = state.existing(id) else { return };
        let is_last = slot.http1.len() + slot.http2.len() == 0;
        if !is_last || version != Version::Http1 && !slot.http2.wait_for_opening(None) {
            return;
        }
        drop(state);
        self.open_in_background(id, version);
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
