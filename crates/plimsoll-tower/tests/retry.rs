//! The retry layer: which requests are retried, when, and that its budget is exact.

use std::convert::Infallible;
use std::future::{Future, Ready, pending, ready};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use plimsoll_core::retry::{Advice, BudgetConfig, MaxAttempts, RetryConfig};
use plimsoll_core::{Ratio, Rejection};
use plimsoll_tower::classify::{DynError, by, error_end, with_facts};
use plimsoll_tower::{BoxError, Classify, End, Rejected, RequestFacts, RetryBudget, RetryLayer};
use tokio::time::Instant;
use tower::{Layer as _, Service, ServiceExt as _};

/// A backend that answers by a script, the last entry for ever.
#[derive(Clone)]
struct Backend {
    script: Arc<Vec<End>>,
    attempts: Arc<Mutex<Vec<Instant>>>,
}

impl Backend {
    fn new(script: impl Into<Vec<End>>) -> Self {
        Self { script: Arc::new(script.into()), attempts: Arc::default() }
    }

    fn attempts(&self) -> usize {
        self.attempts.lock().expect("no panic").len()
    }

    /// Times between attempts.
    fn waits(&self) -> Vec<Duration> {
        self.attempts.lock().expect("no panic").windows(2).map(|pair| pair[1] - pair[0]).collect()
    }
}

impl Service<u32> for Backend {
    type Response = End;
    type Error = Infallible;
    type Future = Ready<Result<End, Infallible>>;

    fn poll_ready(&mut self, _cx: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _request: u32) -> Self::Future {
        let mut attempts = self.attempts.lock().expect("no panic");
        let end = self.script[attempts.len().min(self.script.len() - 1)];
        attempts.push(Instant::now());
        ready(Ok(end))
    }
}

fn by_answer() -> impl Classify<u32, End> + Clone {
    by(|result: Result<&End, &DynError>| result.map_or_else(error_end, |end| *end))
}

fn idempotent() -> impl Classify<u32, End> + Clone {
    with_facts(by_answer(), |_: &u32, facts: RequestFacts| facts.idempotent())
}

/// As many retries as requests.
fn rich() -> RetryBudget {
    RetryBudget::new(BudgetConfig { share: Ratio::ONE, floor: 1_000 })
}

/// As many as this.
fn of(floor: u32) -> RetryBudget {
    RetryBudget::new(BudgetConfig { share: Ratio::ZERO, floor })
}

async fn call<S: Service<u32, Response = End, Error = BoxError>>(service: &mut S) -> Result<End, BoxError> {
    service.ready().await.expect("ready").call(7).await
}

const OVERLOADED: End = End::Overloaded(Advice::None);

#[tokio::test(start_paused = true)]
async fn request_is_retried_by_its_end_and_its_repetition() {
    let unavailable = End::Unavailable(Advice::Elsewhere);
    for (end, if_unsafe, if_idempotent) in [
        (End::Served, 1, 1),
        (End::RateLimited(Advice::Never), 1, 1),
        (End::RateLimited(Advice::None), 1, 1),
        (End::RateLimited(Advice::After(Duration::from_millis(10))), 3, 3),
        (End::Failed, 1, 1),
        (unavailable, 1, 3),
        (OVERLOADED, 3, 3),
        (End::Overloaded(Advice::Never), 1, 1),
        (End::TooLate, 1, 1),
        (End::Throttled, 1, 1),
        (End::ConnectRefused, 3, 3),
        (End::ConnectFailed, 3, 3),
        (End::Broken, 1, 3),
        (End::TimedOut, 1, 3),
        (End::Rejected(Rejected::new(Rejection::Throttled)), 1, 1),
        (End::Rejected(Rejected::new(Rejection::Overloaded)), 3, 3),
        (End::Cancelled, 1, 1),
    ] {
        let backend = Backend::new([end]);
        call(&mut RetryLayer::new(by_answer()).budget(rich()).layer(backend.clone())).await.expect("an answer");
        assert_eq!(backend.attempts(), if_unsafe, "{end:?}");
        let backend = Backend::new([end]);
        call(&mut RetryLayer::new(idempotent()).budget(rich()).layer(backend.clone())).await.expect("an answer");
        assert_eq!(backend.attempts(), if_idempotent, "{end:?}, idempotent");
    }
}

#[tokio::test(start_paused = true)]
async fn caller_gets_the_first_answer_that_is_no_failure_or_the_last_one() {
    let backend = Backend::new([OVERLOADED, End::Broken, End::Served]);
    let mut client = RetryLayer::new(idempotent()).layer(backend.clone());
    assert_eq!(call(&mut client).await.expect("an answer"), End::Served);
    let backend = Backend::new([OVERLOADED, End::Broken, End::TimedOut, End::Served]);
    let mut client = RetryLayer::new(idempotent()).layer(backend.clone());
    assert_eq!(call(&mut client).await.expect("an answer"), End::TimedOut);
    assert_eq!(backend.attempts(), 3);
}

/// All backends share the limit: an earlier retry would be refused again.
#[tokio::test(start_paused = true)]
async fn request_over_a_rate_limit_is_retried_after_its_time() {
    let limited = |millis| End::RateLimited(Advice::After(Duration::from_millis(millis)));
    let backend = Backend::new([limited(700), End::Served]);
    assert_eq!(call(&mut RetryLayer::new(by_answer()).layer(backend.clone())).await.expect("an answer"), End::Served);
    let wait = backend.waits()[0];
    assert!((Duration::from_millis(700)..=Duration::from_millis(726)).contains(&wait), "{wait:?}");
    // Not with a longer time than the layer waits for, and not beyond the budget.
    for (end, budget) in [(limited(1_001), rich()), (limited(700), of(0))] {
        let backend = Backend::new([end, End::Served]);
        let mut client = RetryLayer::new(by_answer()).budget(budget).layer(backend.clone());
        assert_eq!((call(&mut client).await.expect("an answer"), backend.attempts()), (end, 1));
    }
}

/// The budget's bound is on requests, not on attempts.
#[tokio::test(start_paused = true)]
async fn total_failure_costs_a_tenth_more() {
    let backend = Backend::new([OVERLOADED]);
    let mut client = RetryLayer::new(by_answer()).layer(backend.clone());
    for _ in 0..2_000 {
        tokio::time::advance(Duration::from_millis(5)).await;
        call(&mut client).await.expect("an answer");
    }
    let retries = backend.attempts() - 2_000;
    assert!((150..=205).contains(&retries), "{retries} retries of 2,000 requests");
}

#[tokio::test(start_paused = true)]
async fn clones_share_the_budget_and_so_do_layers() {
    let budget = of(2);
    let backend = Backend::new([OVERLOADED]);
    let mut one = RetryLayer::new(by_answer()).budget(budget.clone()).layer(backend.clone());
    let mut other = RetryLayer::new(by_answer()).budget(budget.clone()).layer(backend.clone());
    let mut third = one.clone();
    for client in [&mut one, &mut other, &mut third] {
        call(client).await.expect("an answer");
    }
    assert_eq!(backend.attempts(), 3 + 2);
    assert_eq!(budget.used(), Ratio::ONE);
}

#[tokio::test(start_paused = true)]
async fn waits_are_below_ceilings_that_double_and_after_the_named_time() {
    let mut config = RetryConfig::default();
    config.max_attempts = MaxAttempts::new(4).expect("four");
    let mut longest = [Duration::ZERO; 3];
    for _ in 0..200 {
        let backend = Backend::new([OVERLOADED]);
        call(&mut RetryLayer::new(by_answer()).budget(rich()).config(config).layer(backend.clone())).await.ok();
        let waits = backend.waits();
        assert_eq!(waits.len(), 3);
        for (longest, wait) in longest.iter_mut().zip(waits) {
            *longest = wait.max(*longest);
        }
    }
    // The timer rounds up to a millisecond.
    for (longest, ceiling) in longest.iter().zip([25, 50, 100]) {
        let (least, most) = (Duration::from_millis(ceiling * 9 / 10), Duration::from_millis(ceiling + 1));
        assert!((least..=most).contains(longest), "{longest:?} of {ceiling} ms");
    }
    let backend = Backend::new([End::Overloaded(Advice::After(Duration::from_millis(300))), End::Served]);
    call(&mut RetryLayer::new(by_answer()).layer(backend.clone())).await.expect("an answer");
    let wait = backend.waits()[0];
    assert!((300..=326).contains(&wait.as_millis()), "{wait:?}");
    let backend = Backend::new([End::Overloaded(Advice::After(Duration::from_secs(2)))]);
    call(&mut RetryLayer::new(by_answer()).layer(backend.clone())).await.expect("an answer");
    assert_eq!(backend.attempts(), 1, "the caller may have the time");
}

#[tokio::test(start_paused = true)]
async fn request_without_time_is_not_retried() {
    let in_time = |timeout: u64| {
        with_facts(by_answer(), move |_: &u32, facts: RequestFacts| facts.with_timeout(Duration::from_millis(timeout)))
    };
    let named = End::Overloaded(Advice::After(Duration::from_millis(100)));
    for (timeout, attempts) in [(100, 1), (200, 2)] {
        let backend = Backend::new([named]);
        call(&mut RetryLayer::new(in_time(timeout)).layer(backend.clone())).await.expect("an answer");
        assert_eq!(backend.attempts(), attempts, "{timeout} ms");
    }
}

#[tokio::test(start_paused = true)]
async fn request_is_retried_as_often_as_it_can_be_copied() {
    for (copies, attempts) in [(0, 1), (1, 2), (9, 3)] {
        let left = Arc::new(AtomicU32::new(copies));
        let of_layer = Arc::clone(&left);
        let copy = move |request: &u32| {
            of_layer
                .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1))
                .ok()
                .map(|_| *request)
        };
        let backend = Backend::new([OVERLOADED]);
        let mut client = RetryLayer::new(by_answer()).budget(rich()).clone_by(copy).layer(backend.clone());
        call(&mut client).await.expect("an answer");
        assert_eq!(backend.attempts(), attempts, "{copies} copies");
        assert_eq!(left.load(Ordering::Relaxed), copies.saturating_sub(2), "no copy without a use");
    }
}

#[tokio::test(start_paused = true)]
async fn retry_that_is_abandoned_in_its_wait_is_refunded() {
    let budget = of(1);
    let backend = Backend::new([End::Overloaded(Advice::After(Duration::from_millis(500)))]);
    let mut client = RetryLayer::new(by_answer()).budget(budget.clone()).layer(backend.clone());
    for _ in 0..5 {
        let call = call(&mut client);
        assert!(tokio::time::timeout(Duration::from_millis(100), call).await.is_err(), "it waits for its retry");
        assert_eq!(budget.used(), Ratio::ZERO, "refunded");
    }
    assert_eq!(backend.attempts(), 5);
}

/// A service that is ready for one call.
#[derive(Clone)]
struct ReadyOnce {
    is_spent: bool,
    fails: Arc<AtomicBool>,
}

impl Service<u32> for ReadyOnce {
    type Response = End;
    type Error = BoxError;
    type Future = Ready<Result<End, BoxError>>;

    fn poll_ready(&mut self, _cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        match self.is_spent {
            false => Poll::Ready(Ok(())),
            true if self.fails.load(Ordering::Relaxed) => Poll::Ready(Err("closed".into())),
            true => Poll::Pending,
        }
    }

    fn call(&mut self, _request: u32) -> Self::Future {
        self.is_spent = true;
        ready(Ok(End::Overloaded(Advice::Elsewhere)))
    }
}

#[tokio::test(start_paused = true)]
async fn retry_waits_for_readiness_and_is_refunded_without_it() {
    let (budget, fails) = (of(1), Arc::new(AtomicBool::new(false)));
    let service = ReadyOnce { is_spent: false, fails: Arc::clone(&fails) };
    let mut client = RetryLayer::new(by_answer()).budget(budget.clone()).layer(service.clone());
    assert!(tokio::time::timeout(Duration::from_secs(1), call(&mut client)).await.is_err(), "it is never ready");
    assert_eq!(budget.used(), Ratio::ZERO);
    fails.store(true, Ordering::Relaxed);
    let mut client = RetryLayer::new(by_answer()).budget(budget.clone()).layer(service);
    assert_eq!(call(&mut client).await.expect_err("closed").to_string(), "closed");
    assert_eq!(budget.used(), Ratio::ZERO);
}

#[tokio::test(start_paused = true)]
async fn retry_that_a_layer_below_rejects_is_refunded() {
    let budget = of(1);
    let attempts = Arc::new(AtomicU32::new(0));
    let throttled = tower::service_fn(|_: u32| {
        let attempt = attempts.fetch_add(1, Ordering::Relaxed);
        async move {
            match attempt {
                0 => Ok(OVERLOADED),
                _ => Err(BoxError::from(Rejected::new(Rejection::Throttled))),
            }
        }
    });
    let mut client = RetryLayer::new(by_answer()).budget(budget.clone()).layer(throttled);
    let error = call(&mut client).await.expect_err("the retry is throttled");
    assert_eq!(Rejected::find(&*error).map(Rejected::reason), Some(Rejection::Throttled));
    assert_eq!((attempts.load(Ordering::Relaxed), budget.used()), (2, Ratio::ZERO));
}

/// A retry that was sent is spent, also if its caller leaves then.
#[tokio::test(start_paused = true)]
async fn retry_that_is_abandoned_after_it_was_sent_is_spent() {
    let budget = of(1);
    let attempts = Arc::new(AtomicU32::new(0));
    let hangs = tower::service_fn(|_: u32| {
        let attempt = attempts.fetch_add(1, Ordering::Relaxed);
        async move { if attempt == 0 { Ok::<_, BoxError>(OVERLOADED) } else { pending().await } }
    });
    let mut client = RetryLayer::new(by_answer()).budget(budget.clone()).layer(hangs);
    assert!(tokio::time::timeout(Duration::from_secs(1), call(&mut client)).await.is_err());
    assert_eq!(attempts.load(Ordering::Relaxed), 2);
    assert!(budget.used().as_f64() > 0.8, "it decays within seconds");
}

#[cfg(feature = "tower_0_5")]
#[tokio::test(start_paused = true)]
async fn budget_serves_policies_of_towers_retry() {
    use tower::retry::budget::Budget;
    let budget: Arc<dyn Budget> = Arc::new(RetryBudget::default());
    (0..100).for_each(|_| budget.deposit());
    assert_eq!((0..100).filter(|_| budget.withdraw()).count(), 10);
}

#[test]
fn futures_and_services_can_move_between_threads() {
    fn is_send<T: Send>(_: T) {}
    let mut client = RetryLayer::new(by_answer()).layer(Backend::new([OVERLOADED]));
    is_send(client.clone());
    is_send(client.call(1));
    fn is_future(_: impl Future) {}
    is_future(client.call(1));
}
