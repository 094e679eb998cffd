//! Load balancing and overload protection for Rust services, on hyper, tower and tonic.
//!
//! - [`server`]: a tower layer for backends. It sheds the least important requests under overload,
//!   reports the load to clients, and ends without failing a request.
//! - [`client`]: spreads requests over the backends of a cluster. It is a `tower` service over
//!   hyper's connections, and the transport of a tonic client.
//! - [`discover`]: sources of the list of backends.
//! - [`probe`]: probes by UDP.
//! - [`tls`]: certificates, and TLS to backends.
//! - [`Body`]: one body type for requests of all kinds.
//! - `metrics`, with the feature `metrics`: a collector for `prometheus-client`.
//! - `test`, with the feature `test-util`: tools for the tests of services.
//!
//! The state machines of `plimsoll-core` make all decisions. This crate gives them sockets, a clock
//! and threads.
//!
//! A server of axum that sheds under overload, and ends without failing a request:
//!
//! ```toml
//! [dependencies]
//! axum = "0.8"
//! plimsoll = { version = "0.1", default-features = false, features = ["server"] }
//! tokio = { version = "1", features = ["macros", "net", "rt-multi-thread"] }
//! ```
//!
//! ```no_run
//! use axum::{Router, routing::get};
//! use plimsoll::server::{DrainConfig, Lifecycle, ServerLayer};
//!
//! #[tokio::main]
//! async fn main() -> std::io::Result<()> {
//!     let lifecycle = Lifecycle::serving();
//!     lifecycle.on_sigterm()?;
//!     let layer = ServerLayer::new(lifecycle.clone());
//!     let app = Router::new().route("/", get(|| async { "hello" })).layer(layer);
//!     let listener = tokio::net::TcpListener::bind("127.0.0.1:8081").await?;
//!     let shutdown = lifecycle.shutdown(DrainConfig::default());
//!     axum::serve(listener, app).with_graceful_shutdown(shutdown).await
//! }
//! ```
//!
//! The module [`server`] has servers of tonic and hyper too, and the module [`client`] has clients.
//!
//! # Features
//!
//! All but `tls-aws-lc`, `metrics` and `test-util` are on by default. A service that only sheds, reports its load and drains
//! needs `server`: 39 crates, no C compiler, no procedural macro.
//!
//! | feature | adds | needs a C compiler |
//! |---|---|---|
//! | `client` | the client over HTTP/1.1, with discovery; includes `http1` | no |
//! | `server` | the tower layer, for axum, tonic or hyper | no |
//! | `serve` | an accept loop of its own, over `http1`, `http2` or both; includes `server` | no |
//! | `http1`, `http2` | that version, in `serve`; HTTP/2 in `client` | no |
//! | `grpc` | health checks of gRPC, on both sides; the stream of load reports | no |
//! | `probes` | probes by UDP, on both sides | yes |
//! | `tls-ring`, `tls-aws-lc` | TLS with this cryptography; AWS-LC counts where both are on | yes |
//! | `tls` | TLS with the provider that the program installs in rustls | no |
//! | `metrics` | a collector of the metrics of clusters, for `prometheus-client` | no |
//! | `test-util` | tools for the tests of services | no |
//!
//! Shed gRPC requests get a status with or without `grpc`. A client without `http2` sends gRPC
//! requests over HTTP/1.1, as gRPC-Web does.

#![cfg_attr(docsrs, feature(doc_cfg))]
// Parts that only some features use are shared by all.
#![cfg_attr(
    not(all(
        feature = "client",
        feature = "grpc",
        feature = "http2",
        feature = "probes",
        feature = "serve",
        feature = "tls"
    )),
    allow(dead_code, unused_imports)
)]

#[cfg(feature = "client")]
pub mod address;
#[cfg(feature = "client")]
mod body;
#[cfg(feature = "client")]
pub mod client;
#[cfg(any(feature = "client", feature = "server"))]
mod clock;
#[cfg(feature = "client")]
pub mod discover;
#[cfg(feature = "server")]
mod first;
#[cfg(feature = "metrics")]
pub mod metrics;
#[cfg(feature = "probes")]
pub mod probe;
#[cfg(feature = "server")]
pub mod server;
#[cfg(feature = "test-util")]
pub mod test;
#[cfg(feature = "tls")]
pub mod tls;
#[cfg(all(feature = "client", not(feature = "tls")))]
#[path = "tls_off.rs"]
mod tls;

#[cfg(feature = "client")]
#[doc(inline)]
pub use address::Address;
#[cfg(feature = "client")]
pub use body::Body;
#[cfg(feature = "client")]
#[doc(inline)]
pub use client::{Check, Client, Cluster, ClusterConfig, Error, PolicyKind, Protocol, RequestOptions, RetryPolicy};
#[cfg(feature = "client")]
#[doc(inline)]
pub use discover::{Discover, Endpoint};
pub use plimsoll_core::{BackendId, Criticality, LoadReport, Ratio, Rejection, Speed, Timestamp, Weight};
/// The removal of hop-by-hop fields, for gateways.
pub use plimsoll_wire::hop;
#[cfg(feature = "server")]
#[doc(inline)]
pub use server::{DrainConfig, Lifecycle, Pressure, Quota, RequestContext, ServerLayer};
#[cfg(all(feature = "serve", any(feature = "http1", feature = "http2")))]
#[doc(inline)]
pub use server::{ServeConfig, serve};
#[cfg(feature = "tls")]
#[doc(inline)]
pub use tls::TlsConfig;

/// Runs the Rust code of the README and the guides as tests of the documentation.
#[cfg(doctest)]
mod guides {
    #[doc = include_str!("../README.md")]
    mod crate_readme {}
    #[doc = include_str!("../../../README.md")]
    mod readme {}
    #[doc = include_str!("../../../docs/customers.md")]
    mod customers {}
    #[doc = include_str!("../../../docs/machine-speed.md")]
    mod machine_speed {}
    #[cfg(feature = "metrics")]
    #[doc = include_str!("../../../docs/metrics.md")]
    mod metrics {}
    #[doc = include_str!("../../../docs/overload.md")]
    mod overload {}
    #[doc = include_str!("../../../docs/policies.md")]
    mod policies {}
    #[doc = include_str!("../../../docs/probes.md")]
    mod probes {}
    #[cfg(feature = "test-util")]
    #[doc = include_str!("../../../docs/testing.md")]
    mod testing {}
}

#[cfg(not(target_os = "linux"))]
compile_error!(
    "plimsoll needs Linux; help: use plimsoll-core or plimsoll-tower, or one of the other portable crates (docs/crates.md)"
);
