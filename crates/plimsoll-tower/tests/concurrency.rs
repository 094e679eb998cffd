//! The concurrency layer: order, bounds, and that no slot or wake-up is lost by cancellation.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::future::{Future, pending};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use plimsoll_core::admit::QueueConfig;
use plimsoll_core::{Criticality, Rejection};
use plimsoll_tower::classify::with_facts;
use plimsoll_tower::concurrency::{ConcurrencyLimit, Enter, Slot};
use plimsoll_tower::{BoxError, ByResult, ConcurrencyLayer, Rejected, RequestFacts};
use proptest::prelude::*;
use tokio::sync::oneshot;
use tower::{Layer as _, Service, ServiceExt as _};

fn slots(slots: usize) -> QueueConfig {
    QueueConfig::new(slots).expect("not zero")
}

fn facts(criticality: Criticality) -> RequestFacts {
    RequestFacts::default().with_criticality(criticality)
}

/// Counts its wake-ups.
#[derive(Default)]
struct Woken(AtomicUsize);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// A waiting request under test.
struct Task {
    enter: Pin<Box<Enter>>,
    woken: Arc<Woken>,
}

impl Task {
    fn new(enter: Enter) -> Self {
        Self { enter: Box::pin(enter), woken: Arc::default() }
    }

    fn poll(&mut self) -> Poll<Result<Slot, Rejected>> {
        let waker = Waker::from(Arc::clone(&self.woken));
        self.enter.as_mut().poll(&mut Context::from_waker(&waker))
    }

    fn is_woken(&self) -> bool {
        self.woken.0.load(Ordering::Relaxed) > 0
    }
}

#[tokio::test(start_paused = true)]
async fn requests_wait_by_criticality_and_arrival() {
    use Criticality::{Critical, CriticalPlus, Sheddable};
    let limit = ConcurrencyLimit::new(slots(1));
    let held = limit.enter(&facts(Critical)).await.expect("a free slot");
    let order = Rc::new(RefCell::new(Vec::new()));
    let local = tokio::task::LocalSet::new();
    for (name, criticality) in [("a", Sheddable), ("b", Critical), ("c", CriticalPlus), ("d", Critical)] {
        let (enter, order) = (limit.enter(&facts(criticality)), Rc::clone(&order));
        local.spawn_local(async move {
            let slot = enter.await.expect("within the longest wait");
            order.borrow_mut().push(name);
            slot.release();
        });
    }
    assert_eq!((limit.in_progress(), limit.waiting()), (1, 4));
    held.release();
    local.await;
    assert_eq!(*order.borrow(), ["c", "b", "d", "a"]);
    assert_eq!((limit.in_progress(), limit.waiting()), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn lasting_queue_serves_the_newest_first() {
    let limit = ConcurrencyLimit::new(slots(1));
    let held = limit.enter(&RequestFacts::default()).await.expect("a free slot");
    let mut tasks: Vec<Task> = (0..3).map(|_| Task::new(limit.enter(&RequestFacts::default()))).collect();
    assert!(tasks.iter_mut().all(|task| task.poll().is_pending()));
    tokio::time::advance(Duration::from_millis(110)).await;
    held.release();
    let woken: Vec<bool> = tasks.iter().map(Task::is_woken).collect();
    assert_eq!(woken, [false, false, true]);
}

#[tokio::test(start_paused = true)]
async fn wait_ends_with_its_limit_or_the_deadline() {
    let limit = ConcurrencyLimit::new(slots(1));
    let _held = limit.enter(&RequestFacts::default()).await.expect("a free slot");
    for (timeout, waited, reason) in [
        (None, 250, Rejection::Overloaded),
        (Some(400), 250, Rejection::Overloaded),
        (Some(40), 40, Rejection::Deadline),
    ] {
        let mut facts = RequestFacts::default();
        facts.timeout = timeout.map(Duration::from_millis);
        let begun = tokio::time::Instant::now();
        let rejected = limit.enter(&facts).await.expect_err("the slot is held");
        assert_eq!((rejected.reason(), begun.elapsed().as_millis()), (reason, waited));
        assert_eq!(limit.waiting(), 0);
    }
}

/// Only a poll needs a runtime, for its timer.
#[test]
fn request_enters_and_leaves_outside_of_a_runtime() {
    let limit = ConcurrencyLimit::new(slots(1));
    let Poll::Ready(Ok(held)) = Task::new(limit.enter(&RequestFacts::default())).poll() else { panic!("a free slot") };
    let waits = limit.enter(&RequestFacts::default());
    assert_eq!(limit.waiting(), 1);
    drop(waits);
    held.release();
    assert_eq!((limit.in_progress(), limit.waiting()), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn full_queue_drops_its_least_critical_request_at_once() {
    let mut config = slots(1);
    config.max_waiting = 1;
    let limit = ConcurrencyLimit::new(config);
    let held = limit.enter(&RequestFacts::default()).await.expect("a free slot");
    let mut sheddable = Task::new(limit.enter(&facts(Criticality::Sheddable)));
    assert!(sheddable.poll().is_pending());
    let mut critical = Task::new(limit.enter(&facts(Criticality::Critical)));
    assert!(sheddable.is_woken());
    let Poll::Ready(Err(rejected)) = sheddable.poll() else { panic!("it was displaced") };
    assert_eq!(rejected.reason(), Rejection::Overloaded);
    let rejected = limit.enter(&facts(Criticality::Sheddable)).await.expect_err("the queue is full");
    assert_eq!(rejected.reason(), Rejection::Overloaded);
    held.release();
    assert!(critical.poll().is_ready());
}

/// A slot is handed to a waiter that is dropped before its next poll.
#[tokio::test(start_paused = true)]
async fn slot_of_a_waiter_that_is_dropped_goes_to_the_next_one() {
    let limit = ConcurrencyLimit::new(slots(1));
    let held = limit.enter(&RequestFacts::default()).await.expect("a free slot");
    let mut first = Task::new(limit.enter(&RequestFacts::default()));
    let mut second = Task::new(limit.enter(&RequestFacts::default()));
    assert!(first.poll().is_pending() && second.poll().is_pending());
    held.release();
    assert!(first.is_woken() && !second.is_woken());
    drop(first);
    assert!(second.is_woken(), "no wake-up is lost");
    let Poll::Ready(Ok(slot)) = second.poll() else { panic!("it has the slot") };
    slot.release();
    assert_eq!((limit.in_progress(), limit.waiting()), (0, 0));
}

/// A waiter that left makes headroom in the queue at once.
#[tokio::test(start_paused = true)]
async fn abandoned_waits_do_not_fill_the_queue() {
    let mut config = slots(1);
    config.max_waiting = 2;
    let limit = ConcurrencyLimit::new(config);
    let _held = limit.enter(&RequestFacts::default()).await.expect("a free slot");
    for _ in 0..10 {
        let mut task = Task::new(limit.enter(&RequestFacts::default()));
        assert!(task.poll().is_pending());
    }
    let mut sheddable = Task::new(limit.enter(&facts(Criticality::Sheddable)));
    assert!(sheddable.poll().is_pending(), "the queue is empty");
}

/// One step of a random history.
#[derive(Clone, Copy, Debug)]
enum Step {
    Enter(usize),
    Poll(usize),
    /// Drops a waiting or admitted request.
    Drop(usize),
    Advance(u64),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        3 => (0..4usize).prop_map(Step::Enter),
        3 => (0..16usize).prop_map(Step::Poll),
        2 => (0..16usize).prop_map(Step::Drop),
        1 => (1..120u64).prop_map(Step::Advance),
    ]
}

proptest! {
    /// Requests are polled, dropped and delayed at random. At no time are more in progress than the
    /// limit; a slot is free only if no request waits; and at the end nothing is left.
    #[test]
    fn limit_keeps_its_bounds_at_each_cancellation(steps in prop::collection::vec(step(), 1..200)) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
        runtime.expect("a runtime").block_on(async {
            const SLOTS: usize = 2;
            let mut config = slots(SLOTS);
            config.max_waiting = 5;
            let limit = ConcurrencyLimit::new(config);
            let mut waiting = BTreeMap::new();
            let mut admitted = BTreeMap::new();
            for (number, step) in steps.into_iter().enumerate() {
                let nth = |map: &BTreeMap<usize, Task>, n: usize| map.keys().nth(n % map.len().max(1)).copied();
                match step {
                    Step::Enter(rank) => {
                        waiting.insert(number, Task::new(limit.enter(&facts(Criticality::ALL[rank]))));
                    }
                    Step::Poll(n) => {
                        let Some(key) = nth(&waiting, n) else { continue };
                        match waiting.get_mut(&key).expect("there").poll() {
                            Poll::Pending => {}
                            Poll::Ready(result) => {
                                waiting.remove(&key);
                                result.ok().map(|slot| admitted.insert(key, slot));
                            }
                        }
                    }
                    Step::Drop(n) if n % 2 == 0 => {
                        let key = nth(&waiting, n / 2);
                        key.map(|key| waiting.remove(&key));
                    }
                    Step::Drop(_) => {
                        admitted.pop_first();
                    }
                    Step::Advance(millis) => tokio::time::advance(Duration::from_millis(millis)).await,
                }
                prop_assert!(admitted.len() <= SLOTS);
                prop_assert!(limit.in_progress() <= SLOTS && limit.waiting() <= 5);
                prop_assert!(limit.in_progress() == SLOTS || limit.waiting() == 0, "a slot is free, and one waits");
            }
            waiting.clear();
            admitted.clear();
            prop_assert_eq!((limit.in_progress(), limit.waiting()), (0, 0));
            Ok(())
        })?;
    }
}

#[tokio::test(start_paused = true)]
async fn layer_limits_requests_of_all_clones() {
    let (now, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let (in_progress, seen) = (Arc::clone(&now), Arc::clone(&most));
    let backend = tower::service_fn(move |()| {
        let (now, most) = (Arc::clone(&in_progress), Arc::clone(&seen));
        async move {
            most.fetch_max(now.fetch_add(1, Ordering::Relaxed) + 1, Ordering::Relaxed);
            tokio::time::sleep(Duration::from_millis(10)).await;
            now.fetch_sub(1, Ordering::Relaxed);
            Ok::<_, BoxError>(())
        }
    });
    let layer = ConcurrencyLayer::new(slots(3), ByResult);
    let service = layer.layer(backend);
    let tasks: Vec<_> = (0..30)
        .map(|_| {
            let mut service = service.clone();
            tokio::spawn(async move { service.ready().await.expect("always").call(()).await })
        })
        .collect();
    for task in tasks {
        task.await.expect("no panic").expect("served");
    }
    assert_eq!((now.load(Ordering::Relaxed), most.load(Ordering::Relaxed)), (0, 3));
    assert_eq!((layer.limit().in_progress(), layer.limit().waiting()), (0, 0));
}

/// A service behind the layer that is not ready keeps the request waiting with its slot; a dropped
/// one gives the slot back.
#[tokio::test(start_paused = true)]
async fn slot_is_held_while_the_service_is_not_ready() {
    let behind = tower::limit::ConcurrencyLimit::new(
        tower::service_fn(|wait: Option<oneshot::Receiver<()>>| async move {
            match wait {
                Some(wait) => wait.await.map_err(BoxError::from),
                None => Ok(()),
            }
        }),
        1,
    );
    let layer = ConcurrencyLayer::new(slots(2), ByResult);
    let mut service = layer.layer(behind);
    let (free, wait) = oneshot::channel();
    let first = tokio::spawn(service.call(Some(wait)));
    let second = tokio::spawn(service.call(None));
    tokio::task::yield_now().await;
    assert_eq!(layer.limit().in_progress(), 2);
    second.abort();
    assert!(second.await.expect_err("aborted").is_cancelled());
    assert_eq!(layer.limit().in_progress(), 1);
    free.send(()).expect("it waits");
    first.await.expect("no panic").expect("served");
    assert_eq!(layer.limit().in_progress(), 0);
}

#[tokio::test(start_paused = true)]
async fn layer_reads_the_criticality_of_requests() {
    let classify =
        with_facts(ByResult, |criticality: &Criticality, facts: RequestFacts| facts.with_criticality(*criticality));
    let mut config = slots(1);
    config.max_waiting = 1;
    let layer = ConcurrencyLayer::new(config, classify);
    let mut service = layer.layer(tower::service_fn(|_: Criticality| pending::<Result<(), BoxError>>()));
    let _busy = tokio::spawn(service.call(Criticality::Critical));
    let waits = tokio::spawn(service.call(Criticality::Sheddable));
    tokio::task::yield_now().await;
    let _displaces = tokio::spawn(service.call(Criticality::Critical));
    let error = waits.await.expect("no panic").expect_err("displaced");
    assert_eq!(Rejected::find(&*error).map(Rejected::reason), Some(Rejection::Overloaded));
}
