//! What a backend does for itself and its clients: turns away what it cannot do, reports its load, says whether it is well, and
//! leaves in time.
//!
//! - [`ServerLayer`] wraps any `http` service. It measures what CPU each request uses, turns the least important away before there is
//!   more to do than can be done, attaches an ORCA load report to every response, and answers gRPC health, load reports
//!   out of band, and readiness checks.
//! - [`current`] is the request that the calling code serves, [`pressure`] whether to serve it at less cost, and [`spawn`],
//!   [`spawn_blocking`] and [`bind`] start work that belongs to it.
//! - [`Lifecycle`] is where the server stands: starting, serving, lame duck, drained.
//! - [`coalescing`] has a runtime turn requests away several at a time.
//! - [`serve`] is an accept loop that puts both together, and ends without failing a request.
//!
//! With axum, or anything else that is a `tower` service:
//!
//! ```no_run
//! use plimsoll::server::{Lifecycle, ServerLayer, ServeConfig, Trust, serve};
//!
//! # async fn warm_up() {}
//! # #[tokio::main]
//! # async fn main() -> std::io::Result<()> {
//! let app = axum::Router::new().route("/", axum::routing::get(|| async { "hello" }));
//!
//! let lifecycle = Lifecycle::new();
//! lifecycle.on_sigterm()?;
//! let reports = ServerLayer::builder(lifecycle.clone())
//!     // All callers are services of our own. Without this line they are strangers, and their
//!     // claims to be critical are capped.
//!     .trust(Trust::Full)
//!     .readiness_path("/readyz")
//!     .build();
//! let listener = tokio::net::TcpListener::bind("127.0.0.1:8080").await?;
//! let server = tokio::spawn(serve([listener], app, reports, ServeConfig::default()));
//! warm_up().await;
//! lifecycle.ready();
//! server.await?;
//! # Ok(())
//! # }
//! ```
//!
//! With plain hyper, and a function as the service:
//!
//! ```no_run
//! use std::convert::Infallible;
//!
//! use bytes::Bytes;
//! use http::{Request, Response};
//! use http_body_util::Full;
//! use hyper::body::Incoming;
//! use plimsoll::server::{Lifecycle, ServerLayer, ServeConfig, serve};
//!
//! async fn hello(_request: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
//!     Ok(Response::new(Full::from("hello")))
//! }
//!
//! # #[tokio::main]
//! # async fn main() -> std::io::Result<()> {
//! let lifecycle = Lifecycle::new();
//! lifecycle.on_sigterm()?;
//! lifecycle.ready();
//! let listener = tokio::net::TcpListener::bind("127.0.0.1:8080").await?;
//! let end = serve([listener], tower::service_fn(hello), ServerLayer::new(lifecycle), ServeConfig::default()).await;
//! println!("{end:?}");
//! # Ok(())
//! # }
//! ```
//!
//! Under a server of your own, wrap the service in the layer, and end in the order of [`serve`]:
//! wait for [`Lifecycle::drained`], close the listener, then end the connections in good order, which takes as long as
//! their clients take to read what was answered; only what is left of [`DrainConfig::drain`] bounds it.

mod admission;
mod available;
mod body;
mod builder;
mod classify;
pub mod coalescing;
mod context;
mod cost;
mod cpu;
mod endpoints;
mod in_progress;
mod layer;
mod lifecycle;
mod places;
mod report;
mod response;
mod serve;
mod served;
#[cfg(unix)]
mod signals;
mod unsent;

pub use admission::{AdmissionCounts, Decided};
pub use body::ServerBody;
pub use builder::ServerLayerBuilder;
pub use context::{Cohort, Customer, RequestContext, RequestHead, charge, current, pressure, used};
pub use cost::{bind, spawn, spawn_blocking};
pub use endpoints::MIN_REPORT_INTERVAL;
pub use layer::{ServerLayer, ServerService};
pub use lifecycle::{DrainConfig, DrainEnd, InFlight, Lifecycle, Phase};
pub use plimsoll_core::admit::{Mode, Outlook, Pressure, QueueConfig, Quota};
pub use plimsoll_core::classify::{Classifier, Trust};
pub use plimsoll_core::signal::{Loads, Signal};
pub use plimsoll_core::throttling;
pub use report::ReportSource;
pub use response::ResponseFuture;
pub use serve::{CLOSE_GRACE, ServeConfig, serve};
#[cfg(unix)]
pub use signals::EndSignals;
