//! A layer that retries failed requests, within a budget that all of them share.
//!
//! A retry is extra load: when everything fails, three attempts each triple it. So retries are at
//! most a tenth of the requests (SRE ch. 21, "Deciding to Retry"). The machine is
//! [`plimsoll_core::retry`], which has all rules and their order. A request is retried if
//!
//! 1. its [`End`](crate::End) is a failure that a retry may cure, and does not forbid it;
//! 2. it was not served, or it is idempotent
//!    ([`RequestFacts::repeat`](crate::RequestFacts::repeat));
//! 3. it has had fewer than three attempts ([`RetryConfig::max_attempts`]);
//! 4. an answer can still arrive before [`RequestFacts::timeout`](crate::RequestFacts::timeout);
//! 5. the budget allows it.
//!
//! The wait before a retry is random, from zero to 25 ms, and twice as long for the next one; after
//! the advice of the backend, if it gives some. A request that gives up gets the result of its last
//! attempt.
//!
//! ```
//! use std::sync::atomic::{AtomicU32, Ordering};
//!
//! use plimsoll_tower::classify::with_facts;
//! use plimsoll_tower::{BoxError, ByResult, RequestFacts, RetryLayer};
//! use tower::{Service, ServiceBuilder, ServiceExt};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() {
//! static ATTEMPTS: AtomicU32 = AtomicU32::new(0);
//! let backend = tower::service_fn(|name: String| async move {
//!     match ATTEMPTS.fetch_add(1, Ordering::Relaxed) {
//!         0 => Err(BoxError::from("connection reset")),
//!         _ => Ok(name),
//!     }
//! });
//! let classify = with_facts(ByResult, |_: &String, facts: RequestFacts| facts.idempotent());
//! let mut client = ServiceBuilder::new().layer(RetryLayer::new(classify)).service(backend);
//! assert_eq!(client.ready().await.unwrap().call("a".to_owned()).await.unwrap(), "a");
//! assert_eq!(ATTEMPTS.load(Ordering::Relaxed), 2);
//! # }
//! ```
//!
//! # Copies of requests
//!
//! A request is copied by [`Clone`], or by a closure ([`RetryLayer::clone_by`]), which may return
//! `None` for a request that cannot be sent twice. A streamed body, such as tonic's, can be read
//! once: `RetryLayer::replay` keeps a bounded copy while it is sent.
//!
//! # Readiness
//!
//! The service is cloned for each request, as by tower's `Retry`. A retry waits until the clone is
//! ready. A retry that was withdrawn from the budget and not sent is returned to it: the caller
//! left during the wait, or a layer below rejected it.
//!
//! # Clones
//!
//! Clones of a layer and of its services share one budget. [`RetryBudget`] can be shared by layers
//! too, and with the feature `tower_0_5` by policies of tower's `Retry`.

mod budget;
mod copy;
mod future;
#[cfg(feature = "http")]
mod replay;

use std::task::{Context, Poll};

use plimsoll_core::retry::{MaxAttempts, RetryConfig};
use tower_layer::Layer;
use tower_service::Service;

pub use self::budget::RetryBudget;
pub use self::copy::{ByClone, CloneBy, CloneRequest};
pub use self::future::RetryFuture;
#[cfg(feature = "http")]
pub use self::replay::{ByReplay, ReplayBody, ReplayError, ReplayLayer, ReplayLimits, ReplayService};
use crate::BoxError;
use crate::classify::{ByResult, Classify};

/// Retries failed requests: see the [module](self).
#[derive(Clone, Debug)]
pub struct RetryLayer<C = ByResult, K = ByClone> {
    retry: Retry<C, K>,
}

/// The parts that a layer, its services and their futures share.
#[derive(Clone, Debug)]
struct Retry<C, K> {
    budget: RetryBudget,
    config: RetryConfig,
    classify: C,
    copy: K,
}

impl<C> RetryLayer<C> {
    /// A layer with a budget of its own and the default settings.
    pub fn new(classify: C) -> Self {
        let (budget, config) = (RetryBudget::default(), RetryConfig::default());
        Self { retry: Retry { budget, config, classify, copy: ByClone } }
    }
}

impl<C, K> RetryLayer<C, K> {
    /// The same with this budget, which others may share.
    #[must_use]
    pub fn budget(mut self, budget: RetryBudget) -> Self {
        self.retry.budget = budget;
        self
    }

    /// The same with these settings.
    #[must_use]
    pub fn config(mut self, config: RetryConfig) -> Self {
        self.retry.config = config;
        self
    }

    /// The same with copies of requests by a closure; `None` for a request that cannot be sent
    /// twice.
    ///
    /// For requests without [`Clone`], such as reqwest's: `.clone_by(reqwest::Request::try_clone)`.
    #[must_use]
    pub fn clone_by<Req, F>(self, copy: F) -> RetryLayer<C, CloneBy<F>>
    where
        F: Fn(&Req) -> Option<Req>,
    {
        let Retry { budget, config, classify, copy: _ } = self.retry;
        RetryLayer { retry: Retry { budget, config, classify, copy: CloneBy(copy) } }
    }
}

impl<S, C: Clone, K: Clone> Layer<S> for RetryLayer<C, K> {
    type Service = RetryService<S, C, K>;

    fn layer(&self, inner: S) -> Self::Service {
        RetryService { inner, retry: self.retry.clone() }
    }
}

/// A service whose failed requests are retried: see the [module](self).
#[derive(Clone, Debug)]
pub struct RetryService<S, C = ByResult, K = ByClone> {
    inner: S,
    retry: Retry<C, K>,
}

impl<S, C, K, Req> Service<Req> for RetryService<S, C, K>
where
    S: Service<Req> + Clone,
    S::Error: Into<BoxError>,
    C: Classify<Req, S::Response> + Clone,
    K: CloneRequest<Req> + Clone,
{
    type Response = S::Response;
    type Error = BoxError;
    type Future = RetryFuture<S, C, K, Req>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.inner.poll_ready(cx).map_err(Into::into)
    }

    fn call(&mut self, request: Req) -> Self::Future {
        let facts = self.retry.classify.facts(&request);
        let begun = self.retry.budget.begin(facts.operation);
        let copy = (self.retry.config.max_attempts > MaxAttempts::ONE)
            .then(|| self.retry.copy.clone_request(&request))
            .flatten();
        let future = self.inner.call(request);
        RetryFuture::new(future, self.inner.clone(), copy, self.retry.clone(), facts, begun)
    }
}
