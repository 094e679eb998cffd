//! A service that balances requests over others, from a source that adds and removes them.
//!
//! The machine is [`plimsoll_core::Balancer`]: a policy picks among the healthy services below
//! their limit of requests in flight. A new service starts slowly, an outlier is ejected for a
//! while, and failures count as load, so that a service that fails fast attracts no requests.
//!
//! ```
//! use plimsoll_tower::plimsoll_core::BalancerConfig;
//! use plimsoll_tower::{Balance, BoxError, ByResult};
//! use plimsoll_tower::balance::ServiceList;
//! use tower::{Service, ServiceExt};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() {
//! let services = ["a", "b"].map(|name| {
//!     (name, tower::service_fn(move |_: &str| async move { Ok::<_, BoxError>(name) }))
//! });
//! let mut balance = Balance::new(BalancerConfig::default(), ServiceList::new(services), ByResult);
//! let mut seen = [balance.ready().await.unwrap().call("GET").await.unwrap(), "?"];
//! seen[1] = balance.ready().await.unwrap().call("GET").await.unwrap();
//! seen.sort();
//! assert_eq!(seen, ["a", "b"]);
//! # }
//! ```
//!
//! # Policies
//!
//! [`BalancerConfig::policy`] names one of [`plimsoll_core::pick`]. Without load reports the
//! default picks the fewest requests in flight, in turn among equals. The policy `hash` reads
//! [`RequestFacts::key`](crate::RequestFacts::key). Active health checks are off: a service that is
//! ready counts as connected.
//!
//! # Sources
//!
//! A source is a stream of [`Change`]s, a [`ServiceList`], or with the feature `tower_0_5` a source
//! of tower's `Discover`. As in tower, an error of the source is an error of the balancer, and ends
//! it: a source that is to survive errors keeps them to itself.
//!
//! # Readiness
//!
//! [`Service::poll_ready`] is ready when a backend is picked and its service is ready. A service
//! that fails to become ready is removed, and the source may insert it again. With no backend, or
//! all at their limits, the balancer waits for [`Balance::max_wait`], a second. Then the next
//! request gets a [`Rejected`]: `no-backend` or `saturated`.
//!
//! As tower's, it is not [`Clone`]: several tasks share it by a `Buffer`.

mod discover;
mod services;
mod shared;

use std::fmt;
use std::future::Future as _;
use std::hash::{Hash, Hasher};
use std::marker::PhantomData;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use plimsoll_core::pick::PolicyKind;
use plimsoll_core::{BackendId, Balancer, BalancerConfig, Pick, Rejection, Timestamp, WaitReason};
use tokio::time::Sleep;
use tower_service::Service;

#[cfg(feature = "tower_0_5")]
pub use self::discover::FromTower;
pub use self::discover::{Change, Discover, NextChange, ServiceList};
use self::services::{Readiness, Services, register};
pub use self::shared::InFlight;
use self::shared::{Shared, State, UNUSED};
use crate::classify::Classify;
use crate::clock::Clock;
use crate::lock::lock;
use crate::response::ResponseFuture;
use crate::{BoxError, Rejected, random};

/// The longest wait for a backend: several times as long as a connection takes across a continent.
const DEFAULT_MAX_WAIT: Duration = Duration::from_secs(1);

/// Changes that one poll takes from the source, so that a flood of them does not keep requests
/// waiting.
const MAX_CHANGES: usize = 256;

/// Balances requests over services: see the [module](self).
pub struct Balance<D: Discover, C, Req> {
    source: Option<Pin<Box<D>>>,
    services: Services<D::Key, D::Service>,
    shared: Arc<Shared>,
    config: BalancerConfig,
    classify: C,
    max_wait: Duration,
    /// The pick for the next request.
    next: Option<Next>,
    /// Begin of the wait for a backend.
    waits_since: Option<Timestamp>,
    timer: Option<Pin<Box<Sleep>>>,
    request: PhantomData<fn(Req)>,
}

/// The decision on the next request.
#[derive(Clone, Copy)]
enum Next {
    Backend(BackendId),
    Rejected(Rejected),
}

impl<D, C, Req> Balance<D, C, Req>
where
    D: Discover,
    D::Key: Hash + Eq + Clone,
{
    /// A balancer over the services of a source.
    pub fn new(mut config: BalancerConfig, source: D, classify: C) -> Self {
        config.checks.active = false;
        let state = State { balancer: Balancer::new(config), rng: random::generator(), waiter: None };
        Self {
            source: Some(Box::pin(source)),
            services: Services::default(),
            shared: Arc::new(Shared { clock: Clock::start(), state: Mutex::new(state) }),
            config,
            classify,
            max_wait: DEFAULT_MAX_WAIT,
            next: None,
            waits_since: None,
            timer: None,
            request: PhantomData,
        }
    }

    /// The same with this longest wait for a backend.
    #[must_use]
    pub fn max_wait(self, max_wait: Duration) -> Self {
        Self { max_wait, ..self }
    }

    /// Services, ready or not.
    pub fn len(&self) -> usize {
        self.services.len()
    }

    /// Whether there are no services.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn apply(&mut self, now: Timestamp, change: Change<D::Key, D::Service>) {
        let (Change::Remove(key) | Change::Insert { key, .. }) = &change;
        // The service is dropped without the lock.
        let removed = self.services.remove(key);
        let balancer = &mut lock(&self.shared.state).balancer;
        if let Some((id, _)) = &removed {
            balancer.remove(now, *id, &mut ());
        }
        if let Change::Insert { key, service, weight } = change {
            let id = balancer.add_as(now, identity(&key), weight, &mut ());
            self.services.insert(id, key, service);
        }
    }
}

impl<D, C, Req> Balance<D, C, Req>
where
    D: Discover,
    D::Key: Hash + Eq + Clone,
    D::Error: Into<BoxError>,
    D::Service: Service<Req>,
{
    /// Takes changes from the source.
    fn poll_source(&mut self, cx: &mut Context<'_>) -> Result<(), BoxError> {
        for _ in 0..MAX_CHANGES {
            let Some(source) = &mut self.source else { return Ok(()) };
            match source.as_mut().poll_discover(cx) {
                Poll::Pending => return Ok(()),
                Poll::Ready(None) => self.source = None,
                Poll::Ready(Some(change)) => {
                    let now = self.shared.clock.now();
                    self.apply(now, change.map_err(Into::into)?);
                }
            }
        }
        cx.waker().wake_by_ref();
        Ok(())
    }

    fn poll_services(&mut self, cx: &mut Context<'_>) {
        let shared = &self.shared;
        self.services.poll_due(cx, |readiness| {
            let now = shared.clock.now();
            let balancer = &mut lock(&shared.state).balancer;
            match readiness {
                Readiness::Ready(id) => balancer.on_connected(now, id, &mut ()),
                Readiness::Failed(id) => balancer.remove(now, id, &mut ()),
            }
        });
    }

    /// Picks a backend whose service is ready; the reason if there is none.
    fn pick(&self, now: Timestamp, state: &mut State) -> Result<BackendId, Rejection> {
        if !self.services.is_any_ready() {
            return Err(Rejection::NoBackend);
        }
        match state.balancer.pick_except(now, &mut state.rng, self.services.pending()) {
            Pick::Backend(id) if self.services.is_ready(id) => Ok(id),
            Pick::Backend(id) => {
                state.balancer.finish(now, id, UNUSED, &mut ());
                Err(Rejection::Saturated)
            }
            Pick::Wait(WaitReason::Saturated) => Err(Rejection::Saturated),
            Pick::Wait(WaitReason::Starting) | Pick::NoBackend => Err(Rejection::NoBackend),
        }
    }

    /// The decision on the next request.
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Next> {
        loop {
            let now = self.shared.clock.now();
            let (wake_at, stale) = {
                let state = &mut *lock(&self.shared.state);
                if state.balancer.poll_timeout().is_some_and(|at| at <= now) {
                    state.balancer.handle_timeout(now, &mut ());
                    while state.balancer.poll_check().is_some() {}
                }
                match self.next.take() {
                    // It may have been removed since.
                    Some(Next::Backend(id)) if !self.services.is_ready(id) => {
                        state.balancer.finish(now, id, UNUSED, &mut ());
                    }
                    Some(next) => return Poll::Ready(next),
                    None => {}
                }
                match self.pick(now, state) {
                    Ok(id) => {
                        self.waits_since = None;
                        return Poll::Ready(Next::Backend(id));
                    }
                    Err(reason) => {
                        let until = *self.waits_since.get_or_insert(now) + self.max_wait;
                        let is_hopeless = self.source.is_none() && self.services.len() == 0;
                        if until <= now || is_hopeless {
                            self.waits_since = None;
                            return Poll::Ready(Next::Rejected(Rejected::new(reason)));
                        }
                        // Under the lock of the pick, so that no end is missed.
                        let stale = register(&mut state.waiter, cx);
                        (state.balancer.poll_timeout().map_or(until, |at| at.min(until)), stale)
                    }
                }
            };
            drop(stale);
            let at = self.shared.clock.instant(wake_at);
            let timer = self.timer.get_or_insert_with(|| Box::pin(tokio::time::sleep_until(at)));
            if timer.deadline() != at {
                timer.as_mut().reset(at);
            }
            if timer.as_mut().poll(cx).is_pending() {
                return Poll::Pending;
            }
            self.timer = None;
        }
    }
}

impl<D, C, Req> Service<Req> for Balance<D, C, Req>
where
    D: Discover,
    D::Key: Hash + Eq + Clone,
    D::Error: Into<BoxError>,
    D::Service: Service<Req>,
    <D::Service as Service<Req>>::Error: Into<BoxError>,
    C: Classify<Req, <D::Service as Service<Req>>::Response> + Clone,
{
    type Response = C::Response<InFlight>;
    type Error = BoxError;
    type Future = ResponseFuture<<D::Service as Service<Req>>::Future, C, InFlight, Req>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.poll_source(cx)?;
        self.poll_services(cx);
        self.poll_next(cx).map(|next| {
            self.next = Some(next);
            Ok(())
        })
    }

    fn call(&mut self, request: Req) -> Self::Future {
        let picked = match self.next.take().expect("called before it was ready") {
            Next::Rejected(rejected) => return ResponseFuture::rejected(rejected),
            Next::Backend(id) => id,
        };
        let facts = self.classify.facts(&request);
        let now = self.shared.clock.now();
        let mut backend = picked;
        if let (PolicyKind::Hash, Some(key)) = (self.config.policy, facts.key) {
            let State { balancer, rng, .. } = &mut *lock(&self.shared.state);
            balancer.finish(now, picked, UNUSED, &mut ());
            backend = match balancer.pick_for(now, rng, 0, self.services.pending(), Some(key)) {
                Pick::Backend(id) if self.services.is_ready(id) => id,
                other => {
                    if let Pick::Backend(id) = other {
                        balancer.finish(now, id, UNUSED, &mut ());
                    }
                    return ResponseFuture::rejected(Rejected::new(Rejection::NoBackend));
                }
            };
        }
        let shared = Arc::clone(&self.shared);
        let report = InFlight { shared, backend, operation: facts.operation, at: now, is_ended: false };
        ResponseFuture::sent(self.services.call(backend, request), self.classify.clone(), report)
    }
}

impl<D: Discover, C, Req> fmt::Debug for Balance<D, C, Req> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Balance").field("policy", &self.config.policy).finish_non_exhaustive()
    }
}

/// The identity of a backend, the same in all clients: FNV-1a of its key. The hasher of the
/// standard library may change.
fn identity(key: &impl Hash) -> u64 {
    struct Fnv(u64);

    impl Hasher for Fnv {
        fn write(&mut self, bytes: &[u8]) {
            for byte in bytes {
                self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3);
            }
        }

        fn finish(&self) -> u64 {
            self.0
        }
    }

    let mut hasher = Fnv(0xcbf2_9ce4_8422_2325);
    key.hash(&mut hasher);
    hasher.finish()
}
