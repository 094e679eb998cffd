//! The throttle layer: its decisions, and exact accounts of requests however they end.

use std::future::{Future, pending};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use plimsoll_core::retry::Advice;
use plimsoll_core::throttle::{Multiple, ThrottlePolicy};
use plimsoll_core::{Criticality, Ratio, Rejection};
use plimsoll_tower::classify::{DynError, by, error_end, with_facts};
use plimsoll_tower::throttle::{Permit, Throttle};
use plimsoll_tower::{BoxError, ByResult, End, Rejected, Report, RequestFacts, ThrottleLayer};
use proptest::prelude::*;
use tower::{Service, ServiceBuilder, ServiceExt as _};

/// Equation 21-1 with K = 2: its share is exact in the counts.
const ADAPTIVE: ThrottlePolicy = ThrottlePolicy::Adaptive { k: Multiple::DEFAULT, window: Duration::from_secs(120) };

const CRITICAL: Criticality = Criticality::Critical;

/// The equation.
fn expected_share(requests: u32, accepts: u32) -> f64 {
    let (requests, accepts) = (f64::from(requests), f64::from(accepts));
    ((requests - 2.0 * accepts) / (requests + 1.0)).max(0.0)
}

fn poll_once<F: Future>(future: &mut std::pin::Pin<&mut F>) -> Poll<F::Output> {
    future.as_mut().poll(&mut Context::from_waker(Waker::noop()))
}

/// Answers that are an end by themselves.
fn by_answer() -> impl plimsoll_tower::Classify<End, End, Response<Permit> = End> + Clone {
    by(|result: Result<&End, &DynError>| result.map_or_else(error_end, |end| *end))
}

#[tokio::test(start_paused = true)]
async fn client_stops_sending_when_its_backend_rejects_and_resumes_after() {
    let sent = Arc::new(AtomicU32::new(0));
    let layer = ThrottleLayer::new(by_answer());
    let mut client = ServiceBuilder::new().layer(&layer).service(tower::service_fn(|end: End| {
        sent.fetch_add(1, Ordering::Relaxed);
        async move { Ok::<_, BoxError>(end) }
    }));
    let mut run = async |seconds: u64, end: End| {
        let (before, mut rejected) = (sent.load(Ordering::Relaxed), 0);
        for _ in 0..seconds * 100 {
            tokio::time::advance(Duration::from_millis(10)).await;
            match client.ready().await.expect("always ready").call(end).await {
                Ok(_) => {}
                Err(error) => {
                    let found = Rejected::find(&*error).map(Rejected::reason);
                    assert_eq!(found, Some(Rejection::Throttled));
                    rejected += 1;
                }
            }
        }
        (sent.load(Ordering::Relaxed) - before, rejected)
    };
    assert_eq!(run(5, End::Served).await, (500, 0));
    run(5, End::Overloaded(Advice::None)).await;
    let (sent_in_outage, throttled) = run(5, End::Overloaded(Advice::None)).await;
    assert!(sent_in_outage < 20 && sent_in_outage + throttled == 500, "{sent_in_outage} sent, {throttled} not");
    run(5, End::Served).await;
    assert_eq!(run(2, End::Served).await, (200, 0));
}

#[tokio::test(start_paused = true)]
async fn clones_of_a_layer_share_one_history() {
    let layer = ThrottleLayer::with_policy(ADAPTIVE, by_answer());
    let backend = tower::service_fn(|end: End| async move { Ok::<_, BoxError>(end) });
    let mut one = ServiceBuilder::new().layer(layer.clone()).service(backend);
    let mut other = one.clone();
    one.ready().await.expect("ready").call(End::Overloaded(Advice::None)).await.expect("first ones are sent");
    other.ready().await.expect("ready").call(End::Served).await.ok();
    let expected = expected_share(2, 1).max(expected_share(2, 0));
    assert!(layer.throttle().throttled_share(CRITICAL).as_f64() <= expected);
    assert!(one.ready().await.is_ok() && layer.throttle().throttled_share(Criticality::Sheddable) == Ratio::ZERO);
}

#[tokio::test(start_paused = true)]
async fn each_criticality_has_a_history_of_its_own() {
    let throttle = Throttle::new(ADAPTIVE);
    let sheddable = RequestFacts::default().with_criticality(Criticality::Sheddable);
    for _ in 0..50 {
        if let Ok(permit) = throttle.begin(&sheddable) {
            permit.end(End::Overloaded(Advice::None));
        }
    }
    assert!(throttle.throttled_share(Criticality::Sheddable).as_f64() > 0.9);
    assert_eq!(throttle.throttled_share(CRITICAL), Ratio::ZERO);
    assert!((0..100).all(|_| throttle.begin(&RequestFacts::default()).map(|permit| permit.end(End::Served)).is_ok()));
}

/// The fate of one request.
#[derive(Clone, Copy, Debug)]
enum Fate {
    Ends(End),
    Fails(End),
    DroppedUnpolled,
    DroppedPending,
}

fn fate() -> impl Strategy<Value = Fate> {
    let ends = prop_oneof![
        Just(End::Served),
        Just(End::Failed),
        Just(End::RateLimited(Advice::Never)),
        Just(End::Throttled),
        Just(End::Overloaded(Advice::Elsewhere)),
    ];
    let errors = prop_oneof![
        Just(End::Broken),
        Just(End::ConnectRefused),
        Just(End::TimedOut),
        Just(End::Rejected(Rejected::new(Rejection::Saturated))),
        Just(End::Cancelled),
    ];
    prop_oneof![
        4 => ends.prop_map(Fate::Ends),
        2 => errors.prop_map(Fate::Fails),
        1 => Just(Fate::DroppedUnpolled),
        1 => Just(Fate::DroppedPending),
    ]
}

/// An error that carries its end.
#[derive(Debug, thiserror::Error)]
#[error("failed")]
struct Failed(End);

proptest! {
    /// Each sent request counts once, as accepted, rejected or not at all.
    #[test]
    fn account_is_exact_for_each_fate_of_a_request(fates in prop::collection::vec(fate(), 1..60)) {
        let classify = by(|result: Result<&End, &DynError>| match result {
            Ok(end) => *end,
            Err(error) => error.downcast_ref::<Failed>().expect("ours").0,
        });
        let layer = ThrottleLayer::with_policy(ADAPTIVE, classify);
        let mut client = ServiceBuilder::new().layer(&layer).service(tower::service_fn(|fate: Fate| async move {
            match fate {
                Fate::Ends(end) => Ok(end),
                Fate::Fails(end) => Err(BoxError::from(Failed(end))),
                Fate::DroppedUnpolled | Fate::DroppedPending => pending().await,
            }
        }));
        let (mut requests, mut accepts) = (0, 0);
        for fate in fates {
            let cannot_be_throttled = layer.throttle().throttled_share(CRITICAL) == Ratio::ZERO;
            let mut future = pin!(client.call(fate));
            let is_throttled = |result: &Result<End, BoxError>| match result {
                Ok(_) => false,
                Err(error) => error.downcast_ref::<Rejected>().is_some(),
            };
            match fate {
                // Without a poll it is not seen whether it was throttled.
                Fate::DroppedUnpolled if cannot_be_throttled => {}
                Fate::DroppedUnpolled | Fate::DroppedPending => match poll_once(&mut future) {
                    Poll::Pending => {}
                    Poll::Ready(result) => requests += u32::from(is_throttled(&result)),
                },
                Fate::Ends(end) | Fate::Fails(end) => {
                    let Poll::Ready(result) = poll_once(&mut future) else { panic!("it has ended") };
                    if is_throttled(&result) {
                        requests += 1;
                    } else {
                        match end {
                            End::Served | End::Failed | End::RateLimited(_) | End::Throttled => {
                                requests += 1;
                                accepts += 1;
                            }
                            End::Overloaded(_) | End::TimedOut => requests += 1,
                            _ => {}
                        }
                    }
                }
            }
        }
        drop(client);
        let found = layer.throttle().throttled_share(CRITICAL).as_f64();
        let expected = expected_share(requests, accepts);
        prop_assert!((found - expected).abs() < 1e-9, "{found}, not {expected}: {requests} and {accepts}");
    }
}

/// A hanging backend rejects nothing. A caller that leaves after half of the request's timeout is
/// evidence, one that leaves earlier is none.
#[tokio::test(start_paused = true)]
async fn abandoned_request_is_evidence_after_half_of_its_timeout() {
    for (patience, is_evidence) in [(49, false), (50, true)] {
        let classify =
            with_facts(ByResult, |_: &(), facts: RequestFacts| facts.with_timeout(Duration::from_millis(100)));
        let layer = ThrottleLayer::with_policy(ADAPTIVE, classify);
        let hangs = tower::service_fn(|()| pending::<Result<(), BoxError>>());
        let mut client = ServiceBuilder::new().layer(&layer).service(hangs);
        for _ in 0..20 {
            let call = client.ready().await.expect("ready").call(());
            tokio::time::timeout(Duration::from_millis(patience), call).await.ok();
        }
        let share = layer.throttle().throttled_share(CRITICAL).as_f64();
        assert_eq!(share > 0.5, is_evidence, "{patience} ms: {share}");
    }
}

#[tokio::test(start_paused = true)]
async fn timeout_below_the_layer_is_a_rejection() {
    let layer = ThrottleLayer::with_policy(ADAPTIVE, ByResult);
    let hangs = tower::service_fn(|()| async {
        let wait = pending::<()>();
        tokio::time::timeout(Duration::from_millis(10), wait).await.map_err(BoxError::from)
    });
    let mut client = ServiceBuilder::new().layer(&layer).service(hangs);
    for _ in 0..20 {
        client.ready().await.expect("ready").call(()).await.expect_err("it hangs");
    }
    assert!(layer.throttle().throttled_share(CRITICAL).as_f64() > 0.9);
}

#[tokio::test(start_paused = true)]
async fn broken_connections_count_only_in_a_silence() {
    let throttle = Throttle::new(ADAPTIVE);
    let facts = RequestFacts::default();
    for at in 0..1_000 {
        tokio::time::advance(Duration::from_millis(1)).await;
        let permit = throttle.begin(&facts).expect("nothing is rejected");
        permit.end(if at % 100 == 0 { End::Served } else { End::Broken });
    }
    assert_eq!(throttle.throttled_share(CRITICAL), Ratio::ZERO, "others are answered");
    for _ in 0..2_000 {
        tokio::time::advance(Duration::from_millis(1)).await;
        if let Ok(permit) = throttle.begin(&facts) {
            permit.end(End::Broken);
        }
    }
    assert!(throttle.throttled_share(CRITICAL).as_f64() > 0.5, "nothing is");
}

/// The mistake of a guard written by hand: a block that captured a field of it dropped the rest at
/// once. The permit of a block lives until its end, so the throttle learns.
#[tokio::test(start_paused = true)]
async fn permit_in_an_async_block_lives_until_its_end() {
    struct Sent {
        permit: Permit,
        end: End,
    }
    let throttle = Throttle::new(ADAPTIVE);
    for _ in 0..20 {
        let Ok(permit) = throttle.begin(&RequestFacts::default()) else { continue };
        let sent = Sent { permit, end: End::Overloaded(Advice::None) };
        tokio::spawn(async move {
            tokio::time::sleep(Duration::from_millis(10)).await;
            sent.permit.end(sent.end);
        })
        .await
        .expect("no panic");
    }
    assert!(throttle.throttled_share(CRITICAL).as_f64() > 0.9);
}

/// A backend that is not ready keeps the client waiting: no request is accounted meanwhile.
#[tokio::test(start_paused = true)]
async fn readiness_is_that_of_the_service_behind() {
    let slow = ServiceBuilder::new()
        .layer(ThrottleLayer::new(ByResult))
        .concurrency_limit(1)
        .service(tower::service_fn(|()| pending::<Result<(), BoxError>>()));
    let (mut one, mut other) = (slow.clone(), slow);
    let held = one.ready().await.expect("first").call(());
    let mut ready = pin!(other.ready());
    assert!(poll_once(&mut ready).is_pending());
    drop(held);
    assert!(poll_once(&mut ready).is_ready());
}

#[test]
fn reports_and_services_can_move_between_threads() {
    fn is_send_and_sync<T: Send + Sync + 'static>() {}
    is_send_and_sync::<Permit>();
    is_send_and_sync::<ThrottleLayer>();
    fn reports(report: impl Report) {
        report.end(End::Served);
    }
    reports(Throttle::default().begin(&RequestFacts::default()).expect("a new throttle sends"));
}
