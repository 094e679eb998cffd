//! A layer that sheds the least important requests of an overloaded server.
//!
//! A server that admits everything under overload does less than it could: each request waits until
//! its caller leaves. This layer admits requests up to the capacity, by their expected costs, and
//! sheds the others before they have cost anything. The machine is
//! [`plimsoll_core::admit::Gate`]: lower criticality is shed first, then the customer with the
//! highest demand over its share.
//!
//! ```
//! use std::convert::Infallible;
//!
//! use plimsoll_tower::{Http, ShedLayer};
//! use tower::{Service, ServiceBuilder, ServiceExt};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() {
//! let handler = tower::service_fn(|_: http::Request<String>| async {
//!     Ok::<_, Infallible>(http::Response::new("hello"))
//! });
//! let layer = ShedLayer::new(Http::default().with_claims());
//! let mut server = ServiceBuilder::new().layer(layer).service(handler);
//! let response = server.ready().await.unwrap().call(http::Request::new(String::new())).await;
//! assert_eq!(*response.unwrap().body(), "hello");
//! # }
//! ```
//!
//! A shed request gets the error [`Rejected`](crate::Rejected). In front of a server of HTTP, a
//! layer above turns it into an answer, by `Rejected::to_http`. With axum, that is its
//! `HandleErrorLayer`. Without it, axum's `Router::layer` does not compile: its services have no
//! errors.
//!
//! ```no_run
//! use axum::error_handling::HandleErrorLayer;
//! use axum::http::Response;
//! use axum::{Router, routing::get};
//! use plimsoll_tower::{BoxError, Http, Rejected, ShedLayer};
//! use tower::ServiceBuilder;
//!
//! async fn answer(error: BoxError) -> Response<String> {
//!     match Rejected::find(&*error) {
//!         Some(rejected) => rejected.to_http().map(|()| rejected.to_string()),
//!         None => Response::builder().status(500).body(error.to_string()).expect("valid"),
//!     }
//! }
//!
//! #[tokio::main]
//! async fn main() -> std::io::Result<()> {
//!     let layers = ServiceBuilder::new()
//!         .layer(HandleErrorLayer::new(answer))
//!         .layer(ShedLayer::new(Http::default()));
//!     let app = Router::new().route("/", get(|| async { "hello" })).layer(layers);
//!     let listener = tokio::net::TcpListener::bind("127.0.0.1:8080").await?;
//!     axum::serve(listener, app).await
//! }
//! ```
//!
//! The answer to a shed request:
//!
//! ```text
//! HTTP/1.1 503 Service Unavailable
//! x-plimsoll-shed: reason=overloaded, retry=elsewhere
//!
//! overloaded: this backend has more work than it can do
//! ```
//!
//! # A first overload
//!
//! Give the gate less CPU than a load test uses, such as half of a CPU, by
//! [`Gate::of_process_with`]. With all CPUs, a load generator on the same machine takes a part of
//! them. The process then never uses its capacity. The requests wait for a thread of the runtime,
//! before the layer, and few or none are shed.
//!
//! # Costs
//!
//! The cost of a request is measured when it ends, and expected for the next one of its
//! [kind](crate::RequestFacts::kind): route and customer.
//!
//! - [`ShedLayer::new`] takes CPU as the scarce resource. The cost is the time of the polls of the
//!   service's future, which is its CPU time unless the thread is interrupted. The capacity is the
//!   number of CPUs. With the feature `process-cpu` (a default one), the CPU clock of the process
//!   shows work outside requests, such as reading and writing; without it the gate does not know of
//!   that.
//! - [`ShedLayer::with_cost`] takes any resource, in units of the caller: rows, tokens, bytes. The
//!   capacity is in units a second, and a closure gives the cost of each response.
//!
//! Admitted work that has not ended is at most the capacity times
//! [`AdmissionConfig::target_delay`], or that of eight requests. The default, 5 ms, suits CPU;
//! requests that hold a resource for seconds need a longer one.
//!
//! # Order
//!
//! Outermost, before work is spent on a request. Streamed bodies are not measured, and neither are
//! tasks that a request starts.
//!
//! # Clones
//!
//! Clones of a layer and of its services share one [`Gate`]: a process has one.

mod future;
mod gate;
mod measure;
mod process;

use std::task::{Context, Poll};
use std::time::Duration;

use plimsoll_core::admit::{AdmissionConfig, Mode};
use tower_layer::Layer;
use tower_service::Service;

pub use self::future::ShedFuture;
pub use self::gate::{Admitted, Gate};
pub use self::measure::{CostBy, Measure, PollTime};
use crate::BoxError;
use crate::classify::{ByResult, Classify};

/// Sheds requests of an overloaded server: see the [module](self).
#[derive(Clone, Debug)]
pub struct ShedLayer<C = ByResult, M = PollTime> {
    gate: Gate,
    classify: C,
    measure: M,
}

impl<C> ShedLayer<C> {
    /// A layer for the CPUs of this process.
    pub fn new(classify: C) -> Self {
        Self::with(Gate::of_process(Mode::Protect), classify)
    }

    /// A layer over a gate that others share, for costs in CPU-seconds.
    pub fn with(gate: Gate, classify: C) -> Self {
        Self { gate, classify, measure: PollTime }
    }
}

impl<C, F> ShedLayer<C, CostBy<F>> {
    /// A layer for a resource with this capacity, in units a second. `cost` gives the units that a
    /// request used, by its response and the time of its polls. A request without a response counts
    /// with its expected cost.
    ///
    /// ```
    /// use plimsoll_tower::plimsoll_core::admit::AdmissionConfig;
    /// use plimsoll_tower::{ByResult, ShedLayer};
    ///
    /// struct Answer {
    ///     tokens: u32,
    /// }
    ///
    /// let config = AdmissionConfig::new(5_000.0).expect("tokens a second");
    /// let cost = |answer: &Answer, _| answer.tokens.into();
    /// let layer = ShedLayer::with_cost(config, ByResult, cost);
    /// ```
    pub fn with_cost<Res>(config: AdmissionConfig, classify: C, cost: F) -> Self
    where
        F: Fn(&Res, Duration) -> f64,
    {
        Self { gate: Gate::new(config, Mode::Protect), classify, measure: CostBy(cost) }
    }
}

impl<C, M> ShedLayer<C, M> {
    /// The gate, for display and for signals of load.
    pub fn gate(&self) -> &Gate {
        &self.gate
    }
}

impl<S, C: Clone, M: Clone> Layer<S> for ShedLayer<C, M> {
    type Service = ShedService<S, C, M>;

    fn layer(&self, inner: S) -> Self::Service {
        let Self { gate, classify, measure } = self.clone();
        ShedService { inner, gate, classify, measure }
    }
}

/// A service behind a gate: see the [module](self).
#[derive(Clone, Debug)]
pub struct ShedService<S, C = ByResult, M = PollTime> {
    inner: S,
    gate: Gate,
    classify: C,
    measure: M,
}

impl<S, C, M, Req> Service<Req> for ShedService<S, C, M>
where
    S: Service<Req>,
    S::Error: Into<BoxError>,
    C: Classify<Req, S::Response>,
    M: Measure<S::Response> + Clone,
{
    type Response = S::Response;
    type Error = BoxError;
    type Future = ShedFuture<S::Future, M>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.inner.poll_ready(cx).map_err(Into::into)
    }

    fn call(&mut self, request: Req) -> Self::Future {
        match self.gate.ask(&self.classify.facts(&request)) {
            Ok(admitted) => ShedFuture::admitted(self.inner.call(request), admitted, self.measure.clone()),
            Err(rejected) => ShedFuture::rejected(rejected),
        }
    }
}
