//! The balancer: its choice, readiness without lost wake-ups, and exact accounts of requests.

use std::collections::BTreeMap;
use std::future::{Future, Ready, pending, ready};
use std::num::NonZeroU32;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use plimsoll_core::pick::{HashKey, PolicyKind};
use plimsoll_core::{BalancerConfig, Rejection, Weight};
use plimsoll_tower::balance::{Change, ServiceList};
use plimsoll_tower::classify::with_facts;
use plimsoll_tower::{Balance, BoxError, ByResult, Rejected, RequestFacts};
use proptest::prelude::*;
use tokio::sync::{mpsc, oneshot};
use tower::{Service, ServiceBuilder, ServiceExt as _};

/// A service that answers with its name, once its gate lets it.
#[derive(Clone)]
struct Named {
    name: u32,
    state: Arc<State>,
}

#[derive(Default)]
struct State {
    is_ready: AtomicBool,
    fails: AtomicBool,
    /// The connection broke: it never gets ready any more.
    is_closed: AtomicBool,
    waker: Mutex<Option<Waker>>,
    calls: AtomicU32,
}

impl State {
    fn wake(&self) {
        if let Some(waker) = self.waker.lock().expect("no panic").take() {
            waker.wake();
        }
    }

    fn open(&self) {
        self.is_ready.store(true, Ordering::Relaxed);
        self.wake();
    }

    fn close(&self) {
        self.is_closed.store(true, Ordering::Relaxed);
        self.wake();
    }
}

impl Named {
    fn new(name: u32) -> Self {
        Self { name, state: Arc::default() }
    }

    fn opened(name: u32) -> Self {
        let named = Self::new(name);
        named.state.open();
        named
    }
}

impl Service<u64> for Named {
    type Response = u32;
    type Error = BoxError;
    type Future = Ready<Result<u32, BoxError>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        if self.state.is_closed.load(Ordering::Relaxed) {
            return Poll::Ready(Err("closed".into()));
        }
        *self.state.waker.lock().expect("no panic") = Some(cx.waker().clone());
        if self.state.is_ready.load(Ordering::Relaxed) { Poll::Ready(Ok(())) } else { Poll::Pending }
    }

    fn call(&mut self, _request: u64) -> Self::Future {
        self.state.calls.fetch_add(1, Ordering::Relaxed);
        ready(if self.state.fails.load(Ordering::Relaxed) { Err("failed".into()) } else { Ok(self.name) })
    }
}

type NamedChange = Result<Change<u32, Named>, BoxError>;

/// A channel as a source.
struct Source(mpsc::UnboundedReceiver<NamedChange>);

impl futures_core::Stream for Source {
    type Item = NamedChange;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.0.poll_recv(cx)
    }
}

fn source() -> (mpsc::UnboundedSender<NamedChange>, Source) {
    let (send, receive) = mpsc::unbounded_channel();
    (send, Source(receive))
}

fn policy(policy: PolicyKind) -> BalancerConfig {
    BalancerConfig::new(policy)
}

fn insert(named: &Named) -> NamedChange {
    Ok(Change::insert(named.name, named.clone()))
}

/// Answers of each service to this many requests, one after another.
async fn answers<S>(balance: &mut S, requests: u64) -> BTreeMap<u32, u64>
where
    S: Service<u64, Response = u32, Error = BoxError>,
{
    let mut answers = BTreeMap::new();
    for number in 0..requests {
        let name = balance.ready().await.expect("a balancer stays").call(number).await.expect("an answer");
        *answers.entry(name).or_default() += 1;
    }
    answers
}

fn poll_ready<S: Service<u64>>(balance: &mut S) -> Poll<Result<(), S::Error>> {
    balance.poll_ready(&mut Context::from_waker(Waker::noop()))
}

#[tokio::test(start_paused = true)]
async fn every_policy_uses_all_services() {
    for kind in PolicyKind::ALL {
        let services = (0..4).map(|name| (name, Named::opened(name)));
        let classify = with_facts(ByResult, |number: &u64, facts: RequestFacts| {
            facts.with_key(HashKey::of(&number.to_le_bytes()))
        });
        let mut balance = Balance::new(policy(kind), ServiceList::new(services), classify);
        let found = answers(&mut balance, 400).await;
        assert_eq!((found.len(), balance.len()), (4, 4), "{kind}: {found:?}");
        assert!(found.values().all(|count| *count > 20), "{kind}: {found:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn round_robin_follows_weights() {
    let (send, source) = source();
    for (name, weight) in [(1, 1.0), (2, 3.0)] {
        let weight = Weight::new(weight).expect("in range");
        send.send(Ok(Change::Insert { key: name, service: Named::opened(name), weight })).expect("open");
    }
    let mut balance = Balance::new(policy(PolicyKind::RoundRobin), source, ByResult);
    assert_eq!(answers(&mut balance, 400).await, BTreeMap::from([(1, 100), (2, 300)]));
}

#[tokio::test(start_paused = true)]
async fn hash_sends_equal_keys_to_one_service() {
    let classify =
        with_facts(ByResult, |number: &u64, facts: RequestFacts| facts.with_key(HashKey::of(&number.to_le_bytes())));
    let services = || (0..8).map(|name| (format!("10.0.0.{name}:80"), Named::opened(name)));
    // Two clients agree.
    let mut one = Balance::new(policy(PolicyKind::Hash), ServiceList::new(services()), classify);
    let mut other = Balance::new(policy(PolicyKind::Hash), ServiceList::new(services()), classify);
    for number in 0..100 {
        let first = one.ready().await.expect("ready").call(number).await.expect("an answer");
        let second = one.ready().await.expect("ready").call(number).await.expect("an answer");
        let third = other.ready().await.expect("ready").call(number).await.expect("an answer");
        assert_eq!([first; 2], [second, third], "key {number}");
    }
}

#[tokio::test(start_paused = true)]
async fn service_that_is_not_ready_gets_no_request_and_wakes_the_balancer() {
    let (send, source) = source();
    let (slow, quick) = (Named::new(1), Named::opened(2));
    send.send(insert(&slow)).expect("open");
    let mut balance = Balance::new(policy(PolicyKind::RoundRobin), source, ByResult).max_wait(Duration::MAX);
    let task = tokio::spawn(async move {
        let first = balance.ready().await.expect("ready").call(0).await.expect("an answer");
        (first, balance)
    });
    tokio::task::yield_now().await;
    assert!(!task.is_finished(), "none is ready");
    let begun = tokio::time::Instant::now();
    slow.state.open();
    let (first, mut balance) = task.await.expect("no panic");
    assert_eq!(begun.elapsed(), Duration::ZERO, "woken, and not by a timer");
    assert_eq!(first, 1, "the waker of the service woke the task");
    slow.state.is_ready.store(false, Ordering::Relaxed);
    send.send(insert(&quick)).expect("open");
    assert_eq!(answers(&mut balance, 20).await, BTreeMap::from([(2, 20)]));
    slow.state.open();
    assert_eq!(answers(&mut balance, 20).await.len(), 2);
}

#[tokio::test(start_paused = true)]
async fn end_of_a_request_wakes_the_balancer_that_waits_for_it() {
    let mut config = BalancerConfig::default();
    config.max_active_requests = NonZeroU32::MIN;
    let hangs = tower::service_fn(|wait: Option<oneshot::Receiver<()>>| async move {
        match wait {
            Some(wait) => wait.await.map_err(BoxError::from),
            None => Ok(()),
        }
    });
    for is_dropped in [false, true] {
        let mut balance =
            Balance::new(config, ServiceList::new([(1, hangs)]), ByResult).max_wait(Duration::from_secs(60));
        let (free, wait) = oneshot::channel();
        let first = tokio::spawn(balance.ready().await.expect("ready").call(Some(wait)));
        let second = tokio::spawn(async move { balance.ready().await.expect("ready").call(None).await });
        tokio::task::yield_now().await;
        assert!(!second.is_finished(), "the service is at its limit");
        let begun = tokio::time::Instant::now();
        match is_dropped {
            true => first.abort(),
            false => free.send(()).expect("it waits"),
        }
        second.await.expect("no panic").expect("served");
        assert_eq!(begun.elapsed(), Duration::ZERO, "woken, and not by a timer");
    }
}

#[tokio::test(start_paused = true)]
async fn wait_for_a_backend_is_bounded() {
    let (send, source) = source();
    let mut balance = Balance::new(BalancerConfig::default(), source, ByResult);
    let reject = async |balance: &mut Balance<Source, ByResult, u64>| {
        let begun = tokio::time::Instant::now();
        let error = balance.ready().await.expect("it stays").call(0).await.expect_err("no backend");
        (Rejected::find(&*error).map(Rejected::reason), begun.elapsed())
    };
    let second = Duration::from_secs(1);
    assert_eq!(reject(&mut balance).await, (Some(Rejection::NoBackend), second));
    // The next request has a wait of its own.
    assert_eq!(reject(&mut balance).await, (Some(Rejection::NoBackend), second));
    send.send(insert(&Named::new(1))).expect("open");
    assert_eq!(reject(&mut balance).await, (Some(Rejection::NoBackend), second));
    drop(send);
    assert_eq!(reject(&mut balance).await, (Some(Rejection::NoBackend), second), "its service may be ready yet");
    let mut none: Balance<_, _, u64> =
        Balance::new(BalancerConfig::default(), ServiceList::new([] as [(u32, Named); 0]), ByResult);
    let error = none.ready().await.expect("it stays").call(0).await.expect_err("there never will be one");
    assert!(none.is_empty() && Rejected::find(&*error).is_some());

    let mut config = BalancerConfig::default();
    config.max_active_requests = NonZeroU32::MIN;
    let hangs = tower::service_fn(|_: u64| pending::<Result<u32, BoxError>>());
    let mut full = Balance::new(config, ServiceList::new([(1, hangs)]), ByResult);
    let _held = full.ready().await.expect("ready").call(0);
    let error = full.ready().await.expect("it stays").call(0).await.expect_err("full");
    assert_eq!(Rejected::find(&*error).map(Rejected::reason), Some(Rejection::Saturated));
}

#[tokio::test(start_paused = true)]
async fn outlier_is_ejected_for_a_while() {
    let services: Vec<_> = (0..5).map(Named::opened).collect();
    let list = ServiceList::new(services.clone().into_iter().map(|named| (named.name, named)));
    let mut balance = Balance::new(policy(PolicyKind::RoundRobin), list, ByResult);
    answers(&mut balance, 50).await;
    services[0].state.fails.store(true, Ordering::Relaxed);
    let mut failed = 0;
    for number in 0..500 {
        let result = balance.ready().await.expect("ready").call(number).await;
        failed += u32::from(result.is_err());
    }
    assert!((5..30).contains(&failed), "{failed} of 500 requests failed: a fifth went to the outlier at first");
    services[0].state.fails.store(false, Ordering::Relaxed);
    tokio::time::advance(Duration::from_secs(120)).await;
    let before = services[0].state.calls.load(Ordering::Relaxed);
    answers(&mut balance, 500).await;
    assert!(services[0].state.calls.load(Ordering::Relaxed) > before, "it is used after its ejection");
}

#[tokio::test(start_paused = true)]
async fn removed_and_replaced_services_get_no_more_requests() {
    let (send, source) = source();
    let mut balance = Balance::new(policy(PolicyKind::RoundRobin), source, ByResult);
    let (one, two) = (Named::opened(1), Named::opened(2));
    send.send(insert(&one)).expect("open");
    send.send(insert(&two)).expect("open");
    assert_eq!(answers(&mut balance, 10).await.len(), 2);
    // Also one that was picked already.
    assert!(poll_ready(&mut balance).is_ready());
    send.send(Ok(Change::Remove(1))).expect("open");
    assert_eq!(answers(&mut balance, 10).await, BTreeMap::from([(2, 10)]));
    send.send(Ok(Change::insert(2, Named::opened(3)))).expect("open");
    assert_eq!(answers(&mut balance, 10).await, BTreeMap::from([(3, 10)]));
    assert_eq!(balance.len(), 1);
    send.send(Ok(Change::Remove(7))).expect("open");
    assert_eq!(answers(&mut balance, 1).await, BTreeMap::from([(3, 1)]), "an unknown key has no effect");
}

#[tokio::test(start_paused = true)]
async fn service_that_fails_to_get_ready_is_removed_and_may_come_back() {
    let (send, source) = source();
    let mut balance = Balance::new(policy(PolicyKind::RoundRobin), source, ByResult);
    let (one, two) = (Named::opened(1), Named::opened(2));
    send.send(insert(&one)).expect("open");
    send.send(insert(&two)).expect("open");
    assert_eq!(answers(&mut balance, 10).await.len(), 2);
    one.state.close();
    // It may have been ready since before.
    answers(&mut balance, 3).await;
    assert_eq!(answers(&mut balance, 10).await, BTreeMap::from([(2, 10)]));
    assert_eq!(balance.len(), 1);
    send.send(Ok(Change::insert(1, Named::opened(1)))).expect("open");
    assert_eq!(answers(&mut balance, 10).await.len(), 2);
}

#[tokio::test(start_paused = true)]
async fn error_of_the_source_ends_the_balancer() {
    let (send, source) = source();
    let mut balance: Balance<_, _, u64> = Balance::new(BalancerConfig::default(), source, ByResult);
    send.send(Err("no such host".into())).expect("open");
    let Err(error) = balance.ready().await else { panic!("the source failed") };
    assert_eq!(error.to_string(), "no such host");
}

/// A flood of changes is taken in parts, and none is lost.
#[tokio::test(start_paused = true)]
async fn flood_of_changes_is_taken_in_parts() {
    let list = ServiceList::new((0..1_000).map(|name| (name, Named::opened(name))));
    let mut balance = Balance::new(policy(PolicyKind::RoundRobin), list, ByResult);
    assert!(poll_ready(&mut balance).is_ready());
    assert_eq!(balance.len(), 256);
    answers(&mut balance, 4).await;
    assert_eq!(balance.len(), 1_000);
}

#[tokio::test(start_paused = true)]
async fn tasks_share_a_balancer_by_a_buffer() {
    let services = (0..3).map(|name| (name, Named::opened(name)));
    let balance = Balance::new(policy(PolicyKind::LeastLoaded), ServiceList::new(services), ByResult);
    let shared = ServiceBuilder::new().buffer(16).service(balance);
    let tasks: Vec<_> = (0..30).map(|number| tokio::spawn(shared.clone().oneshot(number))).collect();
    let mut found = BTreeMap::<u32, u32>::new();
    for task in tasks {
        *found.entry(task.await.expect("no panic").expect("an answer")).or_default() += 1;
    }
    assert_eq!(found.values().sum::<u32>(), 30);
    assert_eq!(found.len(), 3, "{found:?}");
}

#[cfg(feature = "tower_0_5")]
#[tokio::test(start_paused = true)]
async fn source_of_tower_is_a_source() {
    use plimsoll_tower::balance::FromTower;
    let services: Vec<_> = (0..3).map(Named::opened).collect();
    let list = tower::discover::ServiceList::new::<u64>(services);
    let mut balance = Balance::new(policy(PolicyKind::RoundRobin), FromTower(list), ByResult);
    assert_eq!(answers(&mut balance, 30).await.values().copied().collect::<Vec<_>>(), [10; 3]);
}

/// One step of a random history.
#[derive(Clone, Copy, Debug)]
enum Step {
    Call,
    Finish(usize),
    Drop(usize),
    PollOnly,
}

proptest! {
    /// Requests end or are dropped at random. No service gets more than its limit, and afterwards
    /// all slots are free.
    #[test]
    fn limits_hold_and_no_slot_leaks_at_each_cancellation(steps in prop::collection::vec(prop_oneof![
        3 => Just(Step::Call),
        2 => (0..8usize).prop_map(Step::Finish),
        2 => (0..8usize).prop_map(Step::Drop),
        1 => Just(Step::PollOnly),
    ], 1..120)) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
        runtime.expect("a runtime").block_on(async {
            let mut config = BalancerConfig::new(PolicyKind::LeastLoaded);
            config.max_active_requests = NonZeroU32::new(2).expect("two");
            let services = (0..2).map(|name| {
                (name, tower::service_fn(move |wait: oneshot::Receiver<()>| async move {
                    wait.await.map(|()| name).map_err(BoxError::from)
                }))
            });
            let mut balance = Balance::new(config, ServiceList::new(services), ByResult);
            let mut in_flight = Vec::new();
            let mut cx = Context::from_waker(Waker::noop());
            for step in steps {
                match step {
                    Step::Call => {
                        let ready = balance.poll_ready(&mut cx).is_ready();
                        prop_assert_eq!(ready, in_flight.len() < 4, "{} of 4 in flight", in_flight.len());
                        if ready {
                            let (free, wait) = oneshot::channel();
                            in_flight.push((free, Box::pin(balance.call(wait))));
                        }
                    }
                    Step::Finish(n) if n < in_flight.len() => {
                        let (free, mut future) = in_flight.swap_remove(n);
                        free.send(()).expect("it waits");
                        prop_assert!(future.as_mut().poll(&mut cx).is_ready());
                    }
                    Step::Drop(n) if n < in_flight.len() => drop(in_flight.swap_remove(n)),
                    Step::PollOnly => {
                        let _ = balance.poll_ready(&mut cx);
                    }
                    Step::Finish(_) | Step::Drop(_) => {}
                }
            }
            in_flight.clear();
            for _ in 0..4 {
                prop_assert!(balance.poll_ready(&mut cx).is_ready(), "a slot leaked");
                let (free, wait) = oneshot::channel();
                in_flight.push((free, Box::pin(balance.call(wait))));
            }
            prop_assert!(balance.poll_ready(&mut cx).is_pending());
            Ok(())
        })?;
    }
}
