//! Tools for the tests of services: a request under pressure, a throttled cluster, a CPU in virtual
//! time.
//!
//! An overload is hard to make in a test. These tools state it instead. They are behind the feature `test-util`, for `dev-dependencies`:
//!
//! ```toml
//! [dev-dependencies]
//! plimsoll = { version = "0.1", features = ["test-util"] }
//! ```
//!
//! | test | tool |
//! |---|---|
//! | a handler that degrades its answer | [`scope`] |
//! | the charges of a handler | [`charged`] |
//! | a client with throttled requests | [`throttle`] |
//! | the same random decisions in each run | [`ServerLayerBuilder::seed`], [`ClusterBuilder::seed`] |
//! | an overload, in virtual time | [`Cpu`], with the paused clock of tokio |
//!
//! All of this crate reads the clock of tokio, so `#[tokio::test(start_paused = true)]` and
//! `tokio::time::advance` control its gates, queues, deadlines, budgets and throttles. A handler
//! under pressure:
//!
//! ```
//! use plimsoll::Criticality;
//! use plimsoll::server::{Pressure, RequestContext, pressure};
//! use plimsoll::test::scope;
//!
//! async fn results() -> &'static str {
//!     if pressure() == Pressure::None { "ten results, ranked" } else { "three results" }
//! }
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() {
//! let request = || RequestContext::new(Criticality::Sheddable);
//! assert_eq!(scope(request(), Pressure::None, results()).await, "ten results, ranked");
//! assert_eq!(scope(request(), Pressure::Degrade, results()).await, "three results");
//! # }
//! ```
//!
//! [`ServerLayerBuilder::seed`]: crate::server::ServerLayerBuilder::seed
//! [`ClusterBuilder::seed`]: crate::client::ClusterBuilder::seed

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use plimsoll_core::admit::Pressure;
use plimsoll_core::{Criticality, Ratio};
use tokio::sync::Semaphore;

use crate::client::Cluster;
use crate::server::test_scope;
use crate::server::{RemoteWork, RequestContext};

/// Runs a future as a request with this context, under this pressure.
///
/// In it, [`current`](crate::server::current) is the context and
/// [`pressure`](crate::server::pressure) the pressure, also in tasks of
/// [`spawn`](crate::server::spawn). Requests that a [`Client`](crate::client::Client) sends in it
/// inherit criticality, deadline, customer, cohort and trace. They do so when `send` is called, so the
/// call belongs into the future: `async { client.send(request).await }`.
///
/// A whole service can be tested too, with its [`ServerLayer`](crate::server::ServerLayer): its
/// handlers are under the same pressure, and have the context that the layer reads from the headers.
///
/// ```
/// use axum::{Router, routing::get};
/// use http::Request;
/// use plimsoll::Criticality;
/// use plimsoll::server::{Lifecycle, Pressure, RequestContext, ServerLayer, pressure};
/// use plimsoll::test::scope;
/// use tower::ServiceExt as _;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// let handler = || async { if pressure() == Pressure::None { "whole" } else { "degraded" } };
/// let app = Router::new().route("/", get(handler)).layer(ServerLayer::new(Lifecycle::serving()));
///
/// let answer = app.oneshot(Request::get("/").body(axum::body::Body::empty()).unwrap());
/// let answer = scope(RequestContext::new(Criticality::Critical), Pressure::Severe, answer).await.unwrap();
/// assert_eq!(axum::body::to_bytes(answer.into_body(), 100).await.unwrap(), "degraded");
/// # }
/// ```
pub fn scope<F: Future>(
    context: RequestContext,
    pressure: Pressure,
    future: F,
) -> impl Future<Output = F::Output> + use<F> {
    test_scope::scope(context, pressure, future)
}

/// The sum of the charges by this name so far, in a [`scope`]; 0 without one.
///
/// ```
/// use plimsoll::Criticality;
/// use plimsoll::server::{Pressure, RequestContext, charge};
/// use plimsoll::test::{charged, scope};
///
/// async fn generate() -> String {
///     charge("tokens", 812.0);
///     "a text".to_owned()
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// let test = async {
///     generate().await;
///     assert_eq!(charged("tokens"), 812.0);
/// };
/// scope(RequestContext::new(Criticality::Critical), Pressure::None, test).await;
/// # }
/// ```
#[must_use]
pub fn charged(name: &str) -> f64 {
    test_scope::charged(name)
}

/// Has a cluster throttle this share of the requests of a criticality, from now on.
///
/// They end with [`Error::Throttled`](crate::client::Error::Throttled), as after many answers that
/// shed them. Other requests go on by the cluster's own throttle; a share of 0 gives these back to it.
///
/// ```
/// use http::Request;
/// use plimsoll::Body;
/// use plimsoll::client::{Client, Cluster, Error};
/// use plimsoll::{Criticality, Ratio};
/// use plimsoll::test::throttle;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let cluster = Cluster::builder("search").backends(["127.0.0.1:1"]).spawn()?;
/// throttle(&cluster, Criticality::Critical, Ratio::ONE);
/// let error = Client::new(&cluster).send(Request::get("/").body(Body::empty())?).await.unwrap_err();
/// assert!(matches!(error, Error::Throttled { .. }));
/// # Ok(())
/// # }
/// ```
pub fn throttle(cluster: &Cluster, criticality: Criticality, share: Ratio) {
    cluster.throttle_in_test(criticality, share);
}

/// A machine with a number of CPUs, in the virtual time of a test.
///
/// Work of a request takes a CPU for a time of the paused clock, and is charged to the request and to
/// the machine. Further work waits, as on a real machine. So a gate sees an overload that costs no
/// time and is the same in each run.
///
/// ```
/// use std::time::Duration;
///
/// use plimsoll::server::{Lifecycle, ServerLayer};
/// use plimsoll::test::Cpu;
///
/// let cpu = Cpu::new(1);
/// let layer = cpu.drive(ServerLayer::builder(Lifecycle::serving())).seed(7).build();
/// // A handler under the layer:
/// let handler = async || cpu.work(Duration::from_millis(20)).await;
/// # drop((layer, handler));
/// ```
#[derive(Clone, Debug)]
pub struct Cpu {
    free: Arc<Semaphore>,
    count: u32,
    /// In nanoseconds.
    used: Arc<AtomicU64>,
}

impl Cpu {
    /// A machine with this many CPUs, at least one.
    #[must_use]
    pub fn new(count: u32) -> Self {
        let count = count.max(1);
        Self { free: Arc::new(Semaphore::new(count as usize)), count, used: Arc::default() }
    }

    /// Has a layer measure this machine in place of the real one. Signals of the real machine, such as
    /// its memory, are off.
    pub fn drive(&self, builder: crate::server::ServerLayerBuilder) -> crate::server::ServerLayerBuilder {
        let used = Arc::clone(&self.used);
        let builder = builder.cpus(f64::from(self.count)).memory(None).cpu_pressure(None).memory_pressure(None);
        builder.cpu_clock(move || Duration::from_nanos(used.load(Ordering::Relaxed)))
    }

    /// Works for the current request: takes a CPU for this time of the clock, when one is free.
    pub async fn work(&self, time: Duration) {
        let work = RemoteWork::begin();
        let _busy = self.free.acquire().await.expect("it is never closed");
        let mut left = time;
        // In slices, as the clock of a real process moves.
        while !left.is_zero() {
            let slice = left.min(Self::SLICE);
            tokio::time::sleep(slice).await;
            work.charge(slice);
            self.used.fetch_add(u64::try_from(slice.as_nanos()).unwrap_or(u64::MAX), Ordering::Relaxed);
            left -= slice;
        }
    }

    /// CPU time that all work has used.
    #[must_use]
    pub fn used(&self) -> Duration {
        Duration::from_nanos(self.used.load(Ordering::Relaxed))
    }

    /// The resolution of tokio's timer.
    const SLICE: Duration = Duration::from_millis(1);
}
