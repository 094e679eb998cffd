//! A layer that limits requests in progress, with a queue by criticality.
//!
//! Tower's own limit serves its waiters in order of arrival, and has no bound on them. Under
//! overload each waits until its caller leaves, and the work on it is wasted. This queue is the
//! machine [`plimsoll_core::admit::Queue`]:
//!
//! - The most critical requests are next. Among equals the oldest is next, and the newest once the
//!   queue has not been empty for 100 ms (adaptive LIFO).
//! - A request waits at most 250 ms, and not beyond its
//!   [timeout](crate::RequestFacts::timeout).
//! - The queue holds sixteen requests for each slot. A full one drops its least critical, oldest
//!   request.
//!
//! A request without a slot gets a [`Rejected`](crate::Rejected).
//!
//! ```
//! use plimsoll_tower::plimsoll_core::admit::QueueConfig;
//! use plimsoll_tower::{BoxError, ByResult, ConcurrencyLayer};
//! use tower::{Service, ServiceBuilder, ServiceExt};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() {
//! # let database = tower::service_fn(|sql: &'static str| async move { Ok::<_, BoxError>(sql.len()) });
//! let config = QueueConfig::new(8).expect("not zero");
//! let layer = ConcurrencyLayer::new(config, ByResult);
//! let mut database = ServiceBuilder::new().layer(layer).service(database);
//! assert_eq!(database.ready().await.unwrap().call("SELECT 1").await.unwrap(), 8);
//! # }
//! ```
//!
//! # Readiness
//!
//! The service is always ready, because its queue is bounded. A request that gets a slot waits for
//! the service behind it, on a clone, with the slot. A slot is free again when the future of the
//! response ends or is dropped; a streamed body holds none.
//!
//! # By hand
//!
//! ```
//! use plimsoll_tower::plimsoll_core::admit::QueueConfig;
//! use plimsoll_tower::RequestFacts;
//! use plimsoll_tower::concurrency::ConcurrencyLimit;
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), plimsoll_tower::Rejected> {
//! let limit = ConcurrencyLimit::new(QueueConfig::new(1).expect("not zero"));
//! let slot = limit.enter(&RequestFacts::default()).await?;
//! // the work
//! slot.release();
//! # Ok(())
//! # }
//! ```

mod future;
mod limit;

use std::task::{Context, Poll};

use plimsoll_core::admit::QueueConfig;
use tower_layer::Layer;
use tower_service::Service;

pub use self::future::ConcurrencyFuture;
pub use self::limit::{ConcurrencyLimit, Enter, Slot};
use crate::BoxError;
use crate::classify::{ByResult, Classify};

/// Limits requests in progress: see the [module](self).
#[derive(Clone, Debug)]
pub struct ConcurrencyLayer<C = ByResult> {
    limit: ConcurrencyLimit,
    classify: C,
}

impl<C> ConcurrencyLayer<C> {
    /// A layer with these limits. `classify` reads the facts of requests.
    pub fn new(config: QueueConfig, classify: C) -> Self {
        Self::with(ConcurrencyLimit::new(config), classify)
    }

    /// A layer over a limit that others share.
    pub fn with(limit: ConcurrencyLimit, classify: C) -> Self {
        Self { limit, classify }
    }

    /// The limit, for display.
    pub fn limit(&self) -> &ConcurrencyLimit {
        &self.limit
    }
}

impl<S, C: Clone> Layer<S> for ConcurrencyLayer<C> {
    type Service = ConcurrencyService<S, C>;

    fn layer(&self, inner: S) -> Self::Service {
        ConcurrencyService { inner, limit: self.limit.clone(), classify: self.classify.clone() }
    }
}

/// A service with a limit on requests in progress: see the [module](self).
#[derive(Clone, Debug)]
pub struct ConcurrencyService<S, C = ByResult> {
    inner: S,
    limit: ConcurrencyLimit,
    classify: C,
}

impl<S, C, Req> Service<Req> for ConcurrencyService<S, C>
where
    S: Service<Req> + Clone,
    S::Error: Into<BoxError>,
    C: Classify<Req, S::Response>,
{
    type Response = S::Response;
    type Error = BoxError;
    type Future = ConcurrencyFuture<S, Req>;

    fn poll_ready(&mut self, _cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Req) -> Self::Future {
        let enter = self.limit.enter(&self.classify.facts(&request));
        ConcurrencyFuture::new(enter, self.inner.clone(), request)
    }
}
