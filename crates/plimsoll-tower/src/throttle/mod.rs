//! A layer that throttles a client while its backends reject requests (SRE ch. 21, "Client-Side
//! Throttling").
//!
//! An overloaded backend spends resources even on rejections. A client that sees many of them fails
//! a share of its requests itself, before the network. It sends at most K times the requests that
//! are accepted; K is 2. The machine is [`plimsoll_core::throttle`], which has the equations; it
//! keeps a history for each criticality, and for each [operation](plimsoll_core::Operation) that is
//! rejected.
//!
//! ```
//! use plimsoll_tower::plimsoll_core::retry::Advice;
//! use plimsoll_tower::classify::{DynError, by, error_end};
//! use plimsoll_tower::{BoxError, End, Rejected, ThrottleLayer};
//! use tower::{Service, ServiceBuilder, ServiceExt};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() {
//! let classify = by(|result: Result<&&str, &DynError>| match result {
//!     Ok(&"BUSY") => End::Overloaded(Advice::None),
//!     Ok(_) => End::Served,
//!     Err(error) => error_end(error),
//! });
//! let backend = tower::service_fn(|_: &str| async { Ok::<_, BoxError>("BUSY") });
//! let mut client = ServiceBuilder::new().layer(ThrottleLayer::new(classify)).service(backend);
//!
//! let mut throttled = 0;
//! for _ in 0..100 {
//!     let result = client.ready().await.unwrap().call("GET").await;
//!     throttled += u32::from(result.is_err_and(|error| Rejected::find(&*error).is_some()));
//! }
//! assert!(throttled > 30, "{throttled} of 100 requests were not sent");
//! # }
//! ```
//!
//! Of HTTP, a 503 is a rejection if it has `Retry-After`, `x-plimsoll-shed` or `x-envoy-overloaded`
//! (`classify::http_end`). Other 503 and all 429 do not throttle: a gateway answers 503 for one
//! broken backend, and 429 names a limit of the sender. For a backend that sheds by a plain 503,
//! use [`by`](crate::classify::by).
//!
//! # Order
//!
//! Below retries, so that each attempt counts; above a timeout, so that the throttle learns of
//! timeouts. A timeout above it drops the request: that is no evidence, unless the request had
//! waited for half of [`RequestFacts::timeout`](crate::RequestFacts::timeout).
//!
//! # Clones
//!
//! Clones of a layer and of its services share one history: make one layer for each cluster.
//!
//! # By hand
//!
//! Without tower, a [`Throttle`] gives a [`Permit`] for each request to send. The report consumes
//! it:
//!
//! ```
//! use plimsoll_tower::throttle::Throttle;
//! use plimsoll_tower::{End, RequestFacts};
//!
//! let throttle = Throttle::default();
//! match throttle.begin(&RequestFacts::default()) {
//!     Ok(permit) => permit.end(End::Served), // after the answer
//!     Err(rejected) => println!("{rejected}"),
//! }
//! ```
//!
//! A permit that nobody keeps is a warning, as is one that is kept under a name and not used:
//!
//! ```compile_fail
//! #![deny(unused_must_use)]
//! # use plimsoll_tower::{RequestFacts, throttle::Throttle};
//! # fn send(throttle: &Throttle) -> Result<(), plimsoll_tower::Rejected> {
//! throttle.begin(&RequestFacts::default())?;
//! # Ok(())
//! # }
//! ```
//!
//! ```compile_fail
//! #![deny(unused_variables)]
//! # use plimsoll_tower::{RequestFacts, throttle::Throttle};
//! # fn send(throttle: &Throttle) -> Result<(), plimsoll_tower::Rejected> {
//! let permit = throttle.begin(&RequestFacts::default())?;
//! # Ok(())
//! # }
//! ```
//!
//! An end is reported once:
//!
//! ```compile_fail,E0382
//! # use plimsoll_tower::{End, RequestFacts, throttle::Throttle};
//! # let throttle = Throttle::default();
//! let permit = throttle.begin(&RequestFacts::default()).unwrap();
//! permit.end(End::Served);
//! permit.end(End::Served);
//! ```
//!
//! A permit has no fields to capture one by one. A block that names it has all of it, until its
//! end:
//!
//! ```compile_fail,E0616
//! # use plimsoll_tower::{End, RequestFacts, throttle::Throttle};
//! # let throttle = Throttle::default();
//! let permit = throttle.begin(&RequestFacts::default()).unwrap();
//! let future = async move { permit.sent };
//! ```

mod permit;
mod tally;
#[cfg(test)]
mod tests;

use std::task::{Context, Poll};

use plimsoll_core::throttle::ThrottlePolicy;
use tower_layer::Layer;
use tower_service::Service;

pub use self::permit::{Permit, Throttle};
use crate::BoxError;
use crate::classify::{ByResult, Classify};
use crate::response::ResponseFuture;

/// Throttles the requests of a client: see the [module](self).
#[derive(Clone, Debug)]
pub struct ThrottleLayer<C = ByResult> {
    throttle: Throttle,
    classify: C,
}

impl<C> ThrottleLayer<C> {
    /// A layer with the policy `paced`, which reacts within seconds.
    pub fn new(classify: C) -> Self {
        Self::with(Throttle::default(), classify)
    }

    /// A layer with this policy, such as the book's
    /// [`Adaptive`](plimsoll_core::throttle::ThrottlePolicy::Adaptive).
    pub fn with_policy(policy: ThrottlePolicy, classify: C) -> Self {
        Self::with(Throttle::new(policy), classify)
    }

    /// A layer over a throttle that others share.
    pub fn with(throttle: Throttle, classify: C) -> Self {
        Self { throttle, classify }
    }

    /// The throttle, for display.
    pub fn throttle(&self) -> &Throttle {
        &self.throttle
    }
}

impl<S, C: Clone> Layer<S> for ThrottleLayer<C> {
    type Service = ThrottleService<S, C>;

    fn layer(&self, inner: S) -> Self::Service {
        ThrottleService { inner, throttle: self.throttle.clone(), classify: self.classify.clone() }
    }
}

/// A service whose requests are throttled: see the [module](self).
#[derive(Clone, Debug)]
pub struct ThrottleService<S, C = ByResult> {
    inner: S,
    throttle: Throttle,
    classify: C,
}

impl<S, C, Req> Service<Req> for ThrottleService<S, C>
where
    S: Service<Req>,
    S::Error: Into<BoxError>,
    C: Classify<Req, S::Response> + Clone,
{
    type Response = C::Response<Permit>;
    type Error = BoxError;
    type Future = ResponseFuture<S::Future, C, Permit, Req>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.inner.poll_ready(cx).map_err(Into::into)
    }

    fn call(&mut self, request: Req) -> Self::Future {
        match self.throttle.begin(&self.classify.facts(&request)) {
            Ok(permit) => ResponseFuture::sent(self.inner.call(request), self.classify.clone(), permit),
            Err(rejected) => ResponseFuture::rejected(rejected),
        }
    }
}
