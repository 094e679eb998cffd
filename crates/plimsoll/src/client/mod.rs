//! The client side: the choice of a backend and a connection for each request.
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
//! use http_body_util::BodyExt as _;
//! use plimsoll::Body;
//! use plimsoll::client::{Client, Cluster};
//!
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let cluster = Cluster::builder("search").backends(["10.0.0.1:8080", "10.0.0.2:8080"]).spawn()?;
//! let client = Client::new(&cluster);
//!
//! let request = http::Request::get("http://search.example/?q=plimsoll").body(Body::empty())?;
//! let response = client.send(request).await?;
//! println!("{}: {:?}", response.status(), response.into_body().collect().await?.to_bytes());
//! # Ok(())
//! # }
//! ```

mod answer;
mod attempt;
mod attempt_end;
mod backend;
mod batch;
mod body;
mod builder;
mod check;
mod classify;
mod cluster;
mod config;
mod connect;
mod error;
mod failed_attempt;
mod form;
mod http1;
#[cfg(feature = "http2")]
mod http2_body;
#[cfg(feature = "http2")]
mod hyper_error;
mod informational;
mod inherit;
mod load_reports;
mod localities;
mod operations;
mod outgoing;
mod pool;
mod preemption;
mod refused;
mod replay;
mod request_body;
mod request_options;
mod send;
mod service;
mod stream_id;
mod timer;
mod trace;
mod upgraded;

use std::fmt;
use std::future::Future;
use std::num::NonZeroUsize;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use http::{Request, Response};
use tokio::runtime::Handle;
use tower_service::Service;

use crate::body::Body;

pub use self::backend::Backend;
pub use self::batch::{Batch, BatchView};
pub use self::body::ResponseBody;
pub use self::builder::{BuildError, ClusterBuilder};
pub use self::cluster::{
    BackendCounts, BackendView, Cluster, ClusterCounts, ClusterOverview, ClusterSummary, ClusterView, Coordination,
    DiscoveryView, HedgeCounts, Latencies, LocalityView, Notice, OverrideOutcome, OverrideView, ProbeDrops, ProbesView,
    Restraint, SourceFailure, Transition,
};
#[cfg(feature = "probes")]
pub use self::config::ProbeConfig;
pub use self::config::{
    Check, CheckTimeout, ClusterConfig, Ping, PoolConfig, Protocol, RequestConfig, RetryPolicy, SubsetChoice,
};
pub use self::error::{Cause, ConnectError, Error};
pub use self::failed_attempt::{FailedAttempt, Failure, NextStep, NoRetryReason};
pub use self::informational::{Informational, InterimReceiver};
pub use self::load_reports::{LoadReports, ReportFormat};
pub use self::localities::{InvalidLocalities, Localities};
use self::pool::Pool;
pub use self::refused::Refusal;
pub use self::request_body::RequestBody;
pub use self::request_options::{Idempotent, RequestOptions};
pub use self::service::ServiceBody;
pub use self::trace::{AttemptSpan, AttemptStart, AttemptSummary, Tracer};
pub use self::upgraded::Upgraded;
/// The settings of a balancer: [`ClusterConfig::balancer`].
pub use plimsoll_core::BalancerConfig;
pub use plimsoll_core::batch::{BatchConfig, Counts as BatchCounts, Target};
pub use plimsoll_core::health::{BackoffConfig, CheckConfig, OutlierConfig, Reason, SlowStartConfig, State};
pub use plimsoll_core::pick::{
    HashConfig, HashKey, HashPicks, LoadBound, PolicyKind, PrequalConfig, ProbeRule, ProbeSource, WeightedConfig,
};
pub use plimsoll_core::rejection::Retry;
pub use plimsoll_core::retry::hedge::HedgeConfig;
pub use plimsoll_core::retry::{BudgetConfig, CallerAnswer, MaxAttempts, RetryConfig};
/// The party that a slot is charged to.
pub use plimsoll_core::slots::Holder;
pub use plimsoll_core::spill::SpillConfig;
pub use plimsoll_core::subset::{Algorithm, Client as SubsetClient, MissingInput, SubsetConfig};
pub use plimsoll_core::throttle::{Multiple, ThrottlePolicy};
/// The values of a balancer, in views and notices.
pub use plimsoll_core::{
    BackendId, BackendSnapshot, Distribution, Event, LoadMeasure, LocalitySnapshot, Overview, ProbeCensus, ProbeCounts,
    ProbeSnapshot,
};
/// The defect of a message over HTTP/1.1, in a [`Cause`].
pub use plimsoll_http1::Fault;
pub use plimsoll_wire::grpc::Code as GrpcCode;
/// The metadata of a request: its criticality, deadline and attempt.
pub use plimsoll_wire::metadata::Metadata;
pub use plimsoll_wire::orca::UtilizationMetric;
/// The client of a request, for backends that learn it by the PROXY protocol: an extension of the
/// request.
pub use plimsoll_wire::proxy_protocol::Addresses as ClientAddress;
pub use plimsoll_wire::proxy_protocol::Version as ProxyProtocol;

/// Sends requests to the backends of a cluster. Clones share their connections.
///
/// `B` is the body of its requests: [`Body`] takes any, and each other type saves its conversion.
#[doc(alias("load balancer", "reverse proxy"))]
pub struct Client<B = Body> {
    inner: Arc<Inner<B>>,
}

struct Inner<B> {
    pool: Arc<Pool<B>>,
    cluster: Cluster,
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
        let client = Self { inner: Arc::new(Inner { pool, cluster: cluster.clone() }) };
        if let Ok(runtime) = Handle::try_current() {
            client.inner.pool.keep(&runtime);
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
    /// The request's own `host` or authority is sent, or else the backend's. Dropping the future
    /// abandons the request.
    ///
    /// # Errors
    ///
    /// See [`Error`]; [`Error::nothing_sent`] tells whether the request is known not to have been seen.
    pub fn send(&self, request: Request<B>) -> impl Future<Output = Result<Response<ResponseBody>, Error>> + Send {
        send::send(&self.inner.pool, request, RequestOptions::default(), None)
    }

    /// Sends `request` with options of its own.
    ///
    /// # Errors
    ///
    /// As [`Client::send`].
    pub fn send_with(
        &self,
        request: Request<B>,
        options: RequestOptions,
    ) -> impl Future<Output = Result<Response<ResponseBody>, Error>> + Send {
        send::send(&self.inner.pool, request, options, None)
    }

    /// Sends `request`, and adds each failed attempt with its next step to `told`.
    ///
    /// It does so whether or not the request is answered in the end.
    ///
    /// # Errors
    ///
    /// As [`Client::send`].
    pub fn send_recording(
        &self,
        request: Request<B>,
        options: RequestOptions,
        told: &mut Vec<FailedAttempt>,
    ) -> impl Future<Output = Result<Response<ResponseBody>, Error>> + Send {
        send::send(&self.inner.pool, request, options, Some(told))
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
/// A gRPC request always gets a response. Without an answer of a backend, it ends with a code, with
/// `x-plimsoll-shed` and with pushback (trailers-only), and has the [`Error`] among its extensions.
/// So a tonic client gets a status with that code. [`Client::send`] returns the error.
impl<B: RequestBody> Service<Request<B>> for Client<B> {
    type Response = Response<ServiceBody>;
    type Error = Error;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Error>> + Send>>;

    fn poll_ready(&mut self, _cx: &mut Context<'_>) -> Poll<Result<(), Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let client = self.clone();
        Box::pin(async move { service::call(&client.inner.pool, request).await })
    }
}
