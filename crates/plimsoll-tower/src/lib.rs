//! The overload machines of Plimsoll as tower layers, each usable on its own.
//!
//! | problem | layer | lines |
//! |---|---|--:|
//! | backends are overloaded, and this client makes it worse | [`ThrottleLayer`] | 1 |
//! | single requests fail | [`RetryLayer`], with a budget that all requests share | 1 |
//! | a resource serves few requests at a time | [`ConcurrencyLayer`], by criticality | 2 |
//! | this server is overloaded | [`ShedLayer`], by cost and criticality | 1 |
//! | requests go to several services | [`Balance`], with health and policies | 2 |
//!
//! Each layer's module has an example that runs. [`shed`] has a whole server of axum, and
//! `classify::http_by` a whole client with reqwest:
//!
//! ```toml
//! [dependencies]
//! plimsoll-tower = "0.1"
//! tower = { version = "0.5", features = ["util"] }
//! ```
//!
//! The decisions are those of [`plimsoll_core`]; the layers add the clock of tokio, a lock, and the
//! contract of [`tower_service::Service`].
//!
//! # One word for each outcome
//!
//! A layer learns from the end of each request: [`End`]. A *classifier* reads it from the response
//! or the error, and reads the [`RequestFacts`] of a request, such as its criticality. `Http` and
//! `Grpc` are classifiers for those protocols; [`classify::by`] makes one of a closure, for any
//! service.
//!
//! ```
//! use plimsoll_tower::classify::{DynError, by, error_end, with_facts};
//! use plimsoll_tower::{BoxError, End, RequestFacts, RetryLayer, ThrottleLayer};
//! use tower::{Service, ServiceBuilder, ServiceExt};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() {
//! # let store = tower::service_fn(|key: String| async { Ok::<_, BoxError>(key) });
//! let classify = by(|result: Result<&String, &DynError>| match result {
//!     Ok(_) => End::Served,
//!     Err(error) => error_end(error),
//! });
//! let classify = with_facts(classify, |_: &String, facts: RequestFacts| facts.idempotent());
//! let mut store = ServiceBuilder::new()
//!     .layer(RetryLayer::new(classify))
//!     .layer(ThrottleLayer::new(classify))
//!     .service(store);
//! assert_eq!(store.ready().await.unwrap().call("key".to_owned()).await.unwrap(), "key");
//! # }
//! ```
//!
//! # Order
//!
//! From the caller to the network: [`ShedLayer`], a timeout of the request, [`RetryLayer`],
//! [`ThrottleLayer`], a timeout of the attempt, [`ConcurrencyLayer`], [`Balance`]. It is the order
//! of the calls of tower's `ServiceBuilder::layer`.
//!
//! # Errors
//!
//! The error of each layer is a [`BoxError`], as in tower. [`Rejected::find`] tells a request that
//! a layer rejected from one that failed at its service. A server answers it by `Rejected::to_http` or
//! `to_grpc`.
//!
//! # Features
//!
//! | feature | adds |
//! |---|---|
//! | `http` (default) | `Http` and `Grpc` |
//! | `process-cpu` (default) | the CPU clock of the process, for [`ShedLayer`] |
//! | `tower_0_5` | [`RetryBudget`] as a budget of tower's `Retry`; sources of tower's `Discover` |
//!
//! The crates below 1.0 in signatures are re-exported: their versions here are those to implement.
//! So settings, such as `BudgetConfig`, are in `plimsoll_tower::plimsoll_core`.
//!
//! *SRE ch. 21* is the chapter [Handling Overload](https://sre.google/sre-book/handling-overload/)
//! of the book *Site Reliability Engineering* (O'Reilly, 2016).
#![forbid(unsafe_code)]

#[cfg(feature = "http")]
mod answer;
pub mod balance;
pub mod classify;
mod clock;
pub mod concurrency;
mod end;
mod facts;
mod lock;
mod random;
mod rejected;
mod response;
pub mod retry;
pub mod shed;
pub mod throttle;

#[cfg(feature = "tower_0_5")]
pub use tower;
pub use {futures_core, plimsoll_core, tower_layer, tower_service};

pub use self::balance::Balance;
pub use self::classify::{By, ByResult, Classify};
#[cfg(feature = "http")]
pub use self::classify::{Grpc, Http};
pub use self::concurrency::ConcurrencyLayer;
pub use self::end::{End, Report};
pub use self::facts::RequestFacts;
pub use self::rejected::{BoxError, Rejected};
pub use self::response::ResponseFuture;
pub use self::retry::{RetryBudget, RetryLayer};
pub use self::shed::ShedLayer;
pub use self::throttle::ThrottleLayer;

/// Runs the examples of the README and of the guide as tests of the documentation.
#[cfg(all(doctest, feature = "http"))]
mod pages {
    #[doc = include_str!("../README.md")]
    mod readme {}

    #[doc = include_str!("../../../docs/tower.md")]
    mod guide {}
}
