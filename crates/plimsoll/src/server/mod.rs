//! The server side: overload protection, load reports, health and an orderly end.
//!
//! - [`ServerLayer`] wraps any `http` service. It measures the CPU cost of each request and sheds
//!   the least important ones before the server is overloaded. It attaches an ORCA load report to
//!   every response, and answers gRPC health checks, out-of-band load reports and readiness checks.
//! - [`current`] is the request that the calling code serves, and [`pressure`] says whether to
//!   serve it at less cost. [`spawn`], [`spawn_blocking`] and [`bind`] start work on its account.
//! - [`Lifecycle`] holds the phase of the server: starting, serving, lame duck, drained.
//! - [`Lifecycle::shutdown`] ends axum's or tonic's own server without failing a request. [`serve`]
//!   is an accept loop that does so by itself.
//! - [`coalescing`] makes a runtime shed requests in batches.
//!
//! With axum:
//!
//! ```no_run
//! use axum::{Router, routing::get};
//! use plimsoll::server::{DrainConfig, Lifecycle, ServerLayer};
//!
//! #[tokio::main]
//! async fn main() -> std::io::Result<()> {
//!     let lifecycle = Lifecycle::serving(); // after a warm-up: Lifecycle::new(), then ready()
//!     lifecycle.on_sigterm()?;
//!     let layer = ServerLayer::builder(lifecycle.clone()).readiness_path("/readyz").build();
//!     let app = Router::new().route("/", get(|| async { "hello" })).layer(layer);
//!
//!     let listener = tokio::net::TcpListener::bind("127.0.0.1:8081").await?;
//!     let shutdown = lifecycle.shutdown(DrainConfig::default()); // completes after the drain
//!     axum::serve(listener, app).with_graceful_shutdown(shutdown).await
//! }
//! ```
//!
//! With tonic, where `GreeterServer::new(MyGreeter)` is a generated service:
//!
//! ```no_run
//! # use plimsoll::server::{DrainConfig, Lifecycle, ServerLayer};
//! # #[tokio::main]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let greeter = tonic::service::Routes::default();
//! let lifecycle = Lifecycle::serving();
//! lifecycle.on_sigterm()?;
//! tonic::transport::Server::builder()
//!     .layer(ServerLayer::new(lifecycle.clone()))
//!     .add_routes(greeter) // or .add_service(GreeterServer::new(MyGreeter))
//!     .serve_with_shutdown("127.0.0.1:50051".parse()?, lifecycle.shutdown(DrainConfig::default()))
//!     .await?;
//! # Ok(())
//! # }
//! ```
//!
//! With plain hyper, a function as the service, and a warm-up:
//!
//! ```no_run
//! use std::convert::Infallible;
//!
//! use bytes::Bytes;
//! use http::{Request, Response};
//! use http_body_util::Full;
//! use hyper::body::Incoming;
//! use plimsoll::server::{Lifecycle, ServeConfig, ServerLayer, serve};
//!
//! async fn hello(_request: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
//!     Ok(Response::new(Full::from("hello")))
//! }
//!
//! # async fn warm_up() {}
//! # #[tokio::main]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let lifecycle = Lifecycle::new();
//! lifecycle.on_sigterm()?;
//! let listener = tokio::net::TcpListener::bind("127.0.0.1:8080").await?;
//! let layer = ServerLayer::new(lifecycle.clone());
//! // Clients connect from now on, but send no requests yet.
//! let server = tokio::spawn(serve([listener], tower::service_fn(hello), layer, ServeConfig::default()));
//! warm_up().await;
//! lifecycle.ready();
//! println!("{:?}", server.await?);
//! # Ok(())
//! # }
//! ```
//!
//! A caller claims a [criticality](crate::Criticality) in the field `x-criticality`, such as
//! `sheddable`. Callers are strangers by default, and their claims to be critical are capped. Where
//! all callers are services of your own, add [`.trust(Trust::Full)`](ServerLayerBuilder::trust).
//!
//! # Answers
//!
//! A shed request gets its answer from the layer. The field `x-plimsoll-shed` names the reason and
//! advises on a retry. In gRPC, the answer is a status with the same text:
//!
//! | reason | status | gRPC | cause |
//! |---|--:|---|---|
//! | `overloaded` | 503 | `UNAVAILABLE` | this server has more work than it can do |
//! | `overloaded-no-retry` | 503 | `UNAVAILABLE` | so have most of its kind: do not retry |
//! | `quota` | 429 | `RESOURCE_EXHAUSTED` | the customer is over its [`Quota`] |
//! | `deadline` | 504 | `DEADLINE_EXCEEDED` | no answer would come before the caller's deadline |
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
//! To see it in a load test, give the layer less CPU than the test uses: `.cpus(0.5)`, see
//! [`ServerLayerBuilder::cpus`]. By default a server may use all CPUs. A load generator on the same
//! machine takes a part of them, so the server never uses its capacity. The requests wait for a
//! thread of the runtime, before the layer, and few or none are shed. In a unit test, `test::Cpu`
//! makes an overload in virtual time (feature `test-util`).

#[doc(hidden)] // The gate of another process: for the proxy.
pub mod admission;
mod available;
mod body;
mod builder;
mod classify;
pub mod coalescing;
mod context;
mod cost;
mod cpu;
mod endpoints;
mod fleet_limits;
mod gate;
#[cfg(feature = "grpc")]
mod grpc_endpoints;
mod in_progress;
mod layer;
mod lifecycle;
mod places;
#[cfg(feature = "probes")]
mod probed;
mod report;
mod response;
#[cfg(all(feature = "serve", any(feature = "http1", feature = "http2")))]
mod serve;
mod served;
#[cfg(unix)]
mod signals;
#[cfg(feature = "test-util")]
pub(crate) mod test_scope;
#[cfg(all(feature = "serve", any(feature = "http1", feature = "http2")))]
mod unsent;

pub use admission::DecisionCounts;
pub use body::ServerBody;
pub use builder::ServerLayerBuilder;
pub use context::{Cohort, Customer, RequestContext, RequestHead, charge, current, pressure, used};
pub use cost::{RemoteWork, bind, spawn, spawn_blocking};
pub use fleet_limits::FleetLimits;
pub use gate::AdmissionCounts;
#[cfg(feature = "grpc")]
pub use grpc_endpoints::MIN_REPORT_INTERVAL;
pub use layer::{ServerLayer, ServerService};
pub use lifecycle::{CLOSE_GRACE, DrainConfig, DrainEnd, InFlight, Lifecycle, Phase};
pub use plimsoll_core::Rejection;
pub use plimsoll_core::admit::{InvalidQuota, Mode, Outlook, Pressure, QueueConfig, Quota, Shed};
pub use plimsoll_core::classify::{Classifier, Trust};
pub use plimsoll_core::quota::Limiter;
pub use plimsoll_core::shedding;
pub use plimsoll_core::signal::{Loads, Signal};
pub use plimsoll_system::MachineSpeed;
pub use report::ReportSource;
pub use response::ResponseFuture;
#[cfg(all(feature = "serve", any(feature = "http1", feature = "http2"), feature = "tls"))]
pub use serve::serve_tls;
#[cfg(all(feature = "serve", any(feature = "http1", feature = "http2")))]
pub use serve::{ServeConfig, serve};
#[cfg(unix)]
pub use signals::EndSignals;
