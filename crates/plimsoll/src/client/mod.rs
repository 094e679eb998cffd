//! The client side: which backend gets a request, over which connection.
//!
//! A [`Cluster`] is the backends of one service and the machine that decides among them; it is shared by
//! all threads. A [`Client`] sends requests to a cluster over connections of its own. A program on a
//! multi-threaded runtime has one client and clones it; a program with one runtime per core has one
//! client per core over one cluster, and a request then never leaves its thread.
//!
//! The client is a [`tower_service::Service`], works with plain hyper requests, and is the transport of a
//! tonic client as it is. It reads load reports (ORCA) in every response, keeps every backend below its
//! limit of active requests, sends nothing to lame ducks, and moves a request to another backend when
//! none of it was sent.
//!
//! ```no_run
//! use bytes::Bytes;
//! use http_body_util::{BodyExt as _, Empty};
//! use plimsoll::client::{Client, Cluster, ClusterConfig};
//! use plimsoll::discover;
//!
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let endpoints = discover::resolve(["10.0.0.1:8080", "10.0.0.2:8080"]).await?;
//! let cluster = Cluster::new("search", ClusterConfig::default(), endpoints);
//! tokio::spawn(cluster.run());
//! let client = Client::new(&cluster);
//!
//! let request = http::Request::get("http://search.example/?q=plimsoll").body(Empty::<Bytes>::new())?;
//! let response = client.send(request).await?;
//! println!("{}: {:?}", response.status(), response.into_body().collect().await?.to_bytes());
//! # Ok(())
//! # }
//! ```

mod abandoned;
mod answer;
mod attempt;
mod batch;
mod body;
mod check;
mod classify;
mod cluster;
mod config;
mod error;
mod form;
mod http1;
mod http2_body;
mod inherit;
mod localities;
mod operations;
mod outgoing;
mod pool;
mod preemption;
mod refused;
mod replay;
mod send;
mod service;
mod timer;
mod told;

use std::fmt;
use std::future::Future;
use std::num::NonZeroUsize;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use http::{Request, Response};
use plimsoll_core::Criticality;
use plimsoll_core::slots::Holder;
use plimsoll_wire::metadata::Metadata;
use tokio::runtime::Handle;
use tower_service::Service;

pub use self::batch::{Batch, BatchView};
pub use self::body::ResponseBody;
pub use self::cluster::{
    Backend, BackendCounts, BackendView, Cluster, ClusterCounts, Ending, HedgeCounts, Latencies, LocalityView, Notice,
    Restraint,
};
pub use self::config::{
    Check, CheckTimeout, ClusterConfig, PoolConfig, Protocol, RequestConfig, RetryPolicy, SubsetChoice,
};
pub use self::error::{Cause, ConnectError, Error};
pub use self::http1::{Informational, Upgraded};
pub use self::localities::{BadLocalities, Localities};
use self::pool::Pool;
pub use self::pool::RequestBody;
pub use self::refused::Refused;
pub use self::service::ServiceBody;
pub use self::told::{FailedAttempt, Failure, GivenUp, Next};
/// Whose request it is, where backends are told by the PROXY protocol: an extension of the request.
pub use plimsoll_wire::proxy_protocol::Addresses as ClientAddress;
pub use plimsoll_wire::proxy_protocol::Version as ProxyProtocol;

/// On what terms a request is sent.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Terms {
    /// Time to the head of the response; `None` for the configured one.
    pub timeout: Option<Duration>,
    /// Longest time without any byte of the response's body while the reader waits for one, [`Duration::MAX`] for any time; `None` for the
    /// configured one.
    pub body_idle_timeout: Option<Duration>,
    /// Who is told of interim responses, as over HTTP/1.1 they come; `None` for nobody.
    pub informational: Option<Informational>,
    /// How critical the request is, which is then what it says to its backend; `None` for what it says in its headers.
    pub criticality: Option<Criticality>,
    /// What it is taken to say of itself here, whatever its headers say, which go on as they are; `None` for what they say. For whoever has
    /// read them, or does not believe them.
    pub metadata: Option<Metadata>,
    /// The gate that it goes through, if it is batch work; `None` if not.
    pub batch: Option<Batch>,
    /// The client that it is sent for: no client takes all slots from others. Requests that name
    /// none count as those of one client.
    pub client: Holder,
}

/// Marks a request as idempotent, in its extensions.
///
/// Such a request may be retried when a backend may have seen it, whatever its method.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Idempotent;

impl Terms {
    /// Sets the time to the response head.
    #[must_use]
    pub fn within(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }

    /// Sets the longest pause of the response body; [`Duration::MAX`] for no limit, as for a stream
    /// with rare messages.
    #[must_use]
    pub fn with_body_idle_timeout(mut self, timeout: Duration) -> Self {
        self.body_idle_timeout = Some(timeout);
        self
    }

    /// Sets the criticality, and replaces the claims in the headers by it.
    #[must_use]
    pub fn with_criticality(mut self, criticality: Criticality) -> Self {
        self.criticality = Some(criticality);
        self
    }

    /// Sends the request as batch work through this gate.
    ///
    /// It waits for credit. The throttle and the retry budget do not apply, and a shed request is
    /// queued again. Its timeout counts anew for each attempt, and not while it waits.
    #[must_use]
    pub fn through(mut self, batch: Batch) -> Self {
        self.batch = Some(batch);
        self
    }

    /// Sends the request for this client. A client leaves some slots to others.
    #[must_use]
    pub fn on_behalf_of(mut self, client: Holder) -> Self {
        self.client = client;
        self
    }

    /// Passes interim responses to `informational`.
    #[must_use]
    pub fn telling(mut self, informational: Informational) -> Self {
        self.informational = Some(informational);
        self
    }

    /// What they say, and else what is configured. By value: what is borrowed here would be held by the future of every request.
    fn over(&self, configured: RequestConfig) -> RequestConfig {
        RequestConfig {
            request_timeout: self.timeout.unwrap_or(configured.request_timeout),
            body_idle_timeout: self.body_idle_timeout.unwrap_or(configured.body_idle_timeout),
            ..configured
        }
    }
}

/// Sends requests to the backends of a cluster. Clones share their connections.
pub struct Client<B> {
    inner: Arc<Inner<B>>,
}

struct Inner<B> {
    pool: Arc<Pool<B>>,
    cluster: Cluster,
    kept: AtomicBool,
}

impl<B: RequestBody> Client<B> {
    /// A client with connections of its own to the backends of `cluster`.
    ///
    /// On a runtime it opens them at once, otherwise with its first request.
    #[must_use]
    pub fn new(cluster: &Cluster) -> Self {
        Self::with_cap(cluster, None)
    }

    /// A client with a limit on its HTTP/1 connections, idle ones included. It opens none in
    /// advance.
    ///
    /// It is for a bounded number of requests, as through one [`Batch`]. Over HTTP/2 requests share
    /// connections, about one to each backend.
    #[must_use]
    pub fn capped(cluster: &Cluster, connections: NonZeroUsize) -> Self {
        Self::with_cap(cluster, Some(connections))
    }

    fn with_cap(cluster: &Cluster, cap: Option<NonZeroUsize>) -> Self {
        let pool = Pool::new(cluster.0.clone(), cap);
        let client = Self { inner: Arc::new(Inner { pool, cluster: cluster.clone(), kept: AtomicBool::new(false) }) };
        if let Ok(runtime) = Handle::try_current() {
            client.keep_pool(&runtime);
        }
        client
    }

    /// The cluster of this client.
    #[must_use]
    pub fn cluster(&self) -> &Cluster {
        &self.inner.cluster
    }

    /// The current number of connections to backends, idle ones included.
    #[must_use]
    pub fn connections(&self) -> usize {
        self.inner.pool.connections()
    }

    /// Sends `request` and waits for the head of the response.
    ///
    /// The request's own `host` or authority is sent; one that names none gets the backend's. Dropping the
    /// future gives the request up.
    ///
    /// # Errors
    ///
    /// See [`Error`]; [`Error::nothing_sent`] tells whether the request is known not to have been seen.
    pub fn send(&self, request: Request<B>) -> impl Future<Output = Result<Response<ResponseBody>, Error>> + Send {
        send::send(self, request, Terms::default(), None)
    }

    /// Sends `request` on other terms than the configured ones.
    ///
    /// # Errors
    ///
    /// As [`Client::send`].
    pub fn send_with(
        &self,
        request: Request<B>,
        terms: Terms,
    ) -> impl Future<Output = Result<Response<ResponseBody>, Error>> + Send {
        send::send(self, request, terms, None)
    }

    /// Sends `request`, and adds each failed attempt with its next step to `told`.
    ///
    /// It does so whether or not the request is answered in the end.
    ///
    /// # Errors
    ///
    /// As [`Client::send`].
    pub fn send_telling(
        &self,
        request: Request<B>,
        terms: Terms,
        told: &mut Vec<FailedAttempt>,
    ) -> impl Future<Output = Result<Response<ResponseBody>, Error>> + Send {
        send::send(self, request, terms, Some(told))
    }

    fn keep_pool_once(&self) {
        if !self.inner.kept.load(Ordering::Relaxed) {
            self.keep_pool(&Handle::current());
        }
    }

    #[cold]
    fn keep_pool(&self, runtime: &Handle) {
        if !self.inner.kept.swap(true, Ordering::Relaxed) {
            let pool = &self.inner.pool;
            let changes = self.inner.cluster.0.changes();
            runtime.spawn(pool::keep(Arc::downgrade(pool), pool.alarm().clone(), changes));
        }
    }
}

impl<B> Clone for Client<B> {
    fn clone(&self) -> Self {
        Self { inner: self.inner.clone() }
    }
}

impl<B> fmt::Debug for Client<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").field("cluster", &self.inner.cluster).finish_non_exhaustive()
    }
}

/// Always ready: where all backends are at their limit, the call itself waits, since only it has a
/// deadline. Calls are boxed; [`Client::send`] is not.
///
/// A gRPC request always gets a response: one that no backend answered ends with the code that says why (trailers-only, with
/// `x-plimsoll-shed` and pushback), and has the [`Error`] among its extensions. So a tonic client gets a status with that code.
/// [`Client::send`] returns the error.
impl<B: RequestBody> Service<Request<B>> for Client<B> {
    type Response = Response<ServiceBody>;
    type Error = Error;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Error>> + Send>>;

    fn poll_ready(&mut self, _cx: &mut Context<'_>) -> Poll<Result<(), Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let client = self.clone();
        Box::pin(async move { service::call(&client, request).await })
    }
}
