//! Requests sent to a second backend while the first is slow.

use std::pin::pin;

use plimsoll::client::{ConnectError, HedgeCounts};
use plimsoll_core::retry::hedge::HedgeConfig;

use super::*;

/// As many answers as it takes to know how long they take, and some more.
const WARM: usize = 30;

/// Long enough that a busy machine does not make a quick answer slow.
const DELAY: Duration = Duration::from_millis(100);

fn hedging(protocol: Protocol) -> ClusterConfig {
    let mut config = rich();
    config.retry.hedge = Some(HedgeConfig::default().at_least(DELAY));
    config.requests.protocol = protocol;
    config
}

/// A server that answers `/`, and anything else by `slow`; and the requests that it saw of those.
async fn slow(speaks: Speaks, slow: impl Fn() -> Answer + Send + Sync + 'static) -> (Server, Seen) {
    let seen = Seen::default();
    let notes = seen.clone();
    let server = Server::start(speaks, move |request| {
        if request.uri().path() == "/" {
            return text("ok");
        }
        notes.lock().unwrap().push(request.headers().clone());
        slow()
    })
    .await;
    (server, seen)
}

fn never() -> Answer {
    Box::pin(std::future::pending())
}

/// Counts answers that somebody still waits for.
struct Out(Arc<AtomicUsize>);

impl Out {
    fn of(count: &Arc<AtomicUsize>) -> Self {
        count.fetch_add(1, Ordering::SeqCst);
        Self(count.clone())
    }
}

impl Drop for Out {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

fn late(millis: u64, answer: impl Fn() -> Answer + Send + Sync + 'static) -> Answer {
    Box::pin(async move {
        tokio::time::sleep(Duration::from_millis(millis)).await;
        answer().await
    })
}

async fn warm(cluster: &Cluster) -> Client<Full<Bytes>> {
    let client = Client::new(cluster);
    for _ in 0..WARM {
        assert_eq!(whole(client.send(bare(Method::GET, "/")).await.unwrap()).await.0, StatusCode::OK);
    }
    client
}

fn bare(method: Method, path: &str) -> Request<Full<Bytes>> {
    Request::builder().method(method).uri(path).body(Full::default()).unwrap()
}

#[tokio::test]
async fn what_one_backend_does_not_answer_another_does_and_nobody_is_blamed() {
    for (speaks, protocol) in [(Speaks::Http1, Protocol::Http1), (Speaks::Http2(100), Protocol::Http2)] {
        let out = Arc::<AtomicUsize>::default();
        let count = out.clone();
        let never = move || -> Answer {
            let out = Out::of(&count);
            Box::pin(async move {
                let _out = out;
                std::future::pending().await
            })
        };
        let ((stuck, at_stuck), (well, at_well)) = (slow(speaks, never).await, slow(speaks, || text("ok")).await);
        let cluster = running(hedging(protocol), &[&stuck, &well]).await;
        let client = warm(&cluster).await;
        let mut attempts = Vec::new();
        for _ in 0..10 {
            let mut request = bare(Method::GET, "/slow");
            request.headers_mut().insert("x-envoy-expected-rq-timeout-ms", "5000".parse().unwrap());
            let mut told = Vec::new();
            let response = client.send_recording(request, RequestOptions::default(), &mut told).await.unwrap();
            attempts.push(response.body().attempts());
            assert_eq!(response.body().backend_address(), well.address.into());
            assert_eq!(whole(response).await.1, "ok");
            assert!(told.is_empty(), "nothing has failed: {told:?}");
        }
        let hedged = at_stuck.lock().unwrap().len() as u64;
        assert!(hedged >= 5, "{hedged}");
        let sent = HedgeCounts { sent: hedged, won: hedged, denied: 0 };
        assert_eq!(cluster.counts().hedges, sent, "{protocol:?}");
        assert_eq!(attempts.iter().filter(|attempts| **attempts == 2).count() as u64, hedged);
        let seen = at_well.lock().unwrap().clone();
        let marked: Vec<_> = seen.iter().filter(|head| head.contains_key("x-envoy-attempt-count")).collect();
        assert_eq!(marked.len() as u64, hedged);
        assert!(marked.iter().all(|head| head["x-envoy-attempt-count"] == "2"));
        assert!(marked.iter().all(|head| head["x-envoy-expected-rq-timeout-ms"] != "5000"), "some of it is gone");
        // A backend keeps the slot of an abandoned attempt until it is done.
        until(|| active(&cluster) == 0).await;
        let view = view_of(&cluster, stuck.address);
        let blame = (view.snapshot.failures, view.counts.broken, view.counts.timed_out, view.snapshot.state);
        assert_eq!((view.counts.cancelled, blame), (hedged, (0, 0, 0, State::Healthy)));
        assert_eq!((active(&cluster), cluster.counts().throttled), (0, [0; 4]));
        // A connection with an answer to come must serve nobody else; over HTTP/2 it is the stream that ends.
        let closed = if protocol == Protocol::Http1 { hedged } else { 0 };
        assert_eq!(view.counts.connections_closed, closed);
        until(|| out.load(Ordering::SeqCst) == 0).await;
    }
}

#[tokio::test]
async fn nothing_is_hedged_unless_that_is_wanted_nor_without_further_attempts() {
    let mut without_attempts = hedging(Protocol::Auto);
    without_attempts.retry.attempts.max_attempts = MaxAttempts::ONE;
    for mut config in [rich(), without_attempts] {
        config.requests.request_timeout = Duration::from_millis(100);
        let ((stuck, at_stuck), (well, _)) =
            (slow(Speaks::Http1, never).await, slow(Speaks::Http1, || text("ok")).await);
        let cluster = running(config, &[&stuck, &well]).await;
        let client = warm(&cluster).await;
        let mut late = 0;
        for _ in 0..6 {
            late += usize::from(client.send(bare(Method::GET, "/slow")).await.is_err());
        }
        assert!(late > 0 && at_stuck.lock().unwrap().len() == late, "{late}");
        assert_eq!(cluster.counts().hedges, HedgeCounts::default());
    }
}

type Make = fn() -> Request<Full<Bytes>>;

#[tokio::test]
async fn only_what_is_safe_and_has_no_body_is_hedged() {
    let upgrade = || {
        let mut request = bare(Method::GET, "/slow");
        request.headers_mut().insert("connection", "upgrade".parse().unwrap());
        request.headers_mut().insert("upgrade", "websocket".parse().unwrap());
        request
    };
    let with_body = || Request::get("/slow").body(Full::new(Bytes::from_static(b"body"))).unwrap();
    let marked = || {
        let mut request = bare(Method::POST, "/slow");
        request.extensions_mut().insert(Idempotent);
        request
    };
    let requests: [(Make, bool); 8] = [
        (|| bare(Method::GET, "/slow"), true),
        (|| bare(Method::HEAD, "/slow"), true),
        (marked, true),
        (|| bare(Method::POST, "/slow"), false),
        (|| bare(Method::PUT, "/slow"), false),
        (|| bare(Method::DELETE, "/slow"), false),
        (with_body, false),
        (upgrade, false),
    ];
    for (request, is_hedged) in requests {
        let ((stuck, at_stuck), (well, _)) =
            (slow(Speaks::Http1, never).await, slow(Speaks::Http1, || text("ok")).await);
        let mut config = hedging(Protocol::Auto);
        config.requests.request_timeout = Duration::from_millis(if is_hedged { 10_000 } else { 200 });
        let cluster = running(config, &[&stuck, &well]).await;
        let client = warm(&cluster).await;
        for _ in 0..2 {
            let _ = client.send(request()).await;
        }
        let head = request();
        assert!(!at_stuck.lock().unwrap().is_empty());
        assert_eq!(cluster.counts().hedges.sent > 0, is_hedged, "{head:?}");
    }
}

/// A tenth of 180 requests, and the ten that a new client has.
#[tokio::test]
async fn when_everything_is_slow_hedges_are_a_tenth() {
    let servers = [(); 2].map(|()| slow(Speaks::Http2(1_000), || late(400, || text("ok"))));
    let servers = futures_util::future::join_all(servers).await;
    let mut config = hedging(Protocol::Http2);
    config.retry.budget = BudgetConfig::default();
    let cluster = running(config, &[&servers[0].0, &servers[1].0]).await;
    let client = warm(&cluster).await;
    let requests = (0..150).map(|_| client.send(bare(Method::GET, "/slow")));
    for answered in futures_util::future::join_all(requests).await {
        assert_eq!(answered.unwrap().status(), StatusCode::OK);
    }
    let HedgeCounts { sent, denied, .. } = cluster.counts().hedges;
    assert!((15..=28).contains(&sent), "{sent}");
    assert_eq!(sent + denied, 150);
    let seen: usize = servers.iter().map(|(_, seen)| seen.lock().unwrap().len()).sum();
    assert_eq!(seen as u64, 150 + sent);
}

#[tokio::test]
async fn an_attempt_that_fails_leaves_it_to_the_other() {
    let ((slow_one, at_slow), (full, _)) = (
        slow(Speaks::Http1, || late(300, || text("late"))).await,
        slow(Speaks::Http1, || shed(Rejection::Overloaded, false)).await,
    );
    let cluster = running(hedging(Protocol::Auto), &[&slow_one, &full]).await;
    let client = warm(&cluster).await;
    let (mut sent, mut hedged) = (0, 0);
    // Each pick is random: 40 of them without a hedge have a chance of one in 10^12.
    while hedged < 2 && sent < 40 {
        sent += 1;
        let mut told = Vec::new();
        let request = bare(Method::GET, "/slow");
        let response = client.send_recording(request, RequestOptions::default(), &mut told).await.unwrap();
        assert_eq!(whole(response).await, (StatusCode::OK, Bytes::from_static(b"late")));
        let next: Vec<_> = told.iter().map(|attempt| attempt.next).collect();
        match next[..] {
            [NextStep::Hedged] => hedged += 1,
            [NextStep::Retried] => {}
            _ => panic!("{told:?}"),
        }
    }
    assert!(hedged > 0);
    assert_eq!(cluster.counts().hedges, HedgeCounts { sent: hedged, won: 0, denied: 0 });
    assert_eq!(at_slow.lock().unwrap().len(), sent);
    assert_eq!(active(&cluster), 0);
}

/// A 500 is passed on wherever it is the only answer, but not where another may be better.
#[tokio::test]
async fn a_quick_failure_of_a_hedge_does_not_count() {
    let ((slow_one, _), (broken, at_broken)) =
        (slow(Speaks::Http1, || late(300, || text("late"))).await, slow(Speaks::Http1, || status(500)).await);
    let cluster = running(hedging(Protocol::Auto), &[&slow_one, &broken]).await;
    let client = warm(&cluster).await;
    let mut answers = Vec::new();
    // With a fifth failure in a row it would be ejected.
    for _ in 0..4 {
        answers.push(client.send(bare(Method::GET, "/slow")).await.unwrap().status().as_u16());
    }
    let HedgeCounts { sent, won, .. } = cluster.counts().hedges;
    assert_eq!((answers.iter().filter(|status| **status == 200).count() as u64, won), (sent, 0), "{answers:?}");
    assert!(sent > 0 && at_broken.lock().unwrap().len() == 4);
}

/// Such an answer is as good as any where the other attempt has none. Its backend does not wait for
/// the outcome.
#[tokio::test]
async fn the_answer_of_one_counts_where_the_other_has_none_and_frees_its_backend_at_once() {
    for (speaks, protocol) in [(Speaks::Http1, Protocol::Http1), (Speaks::Http2(100), Protocol::Http2)] {
        let broken = || now(Response::builder().status(500).body(Full::from("broken").boxed()).unwrap());
        let ((stuck, at_stuck), (broken, _)) = (slow(speaks, never).await, slow(speaks, broken).await);
        let mut config = hedging(protocol);
        config.requests.request_timeout = Duration::from_secs(1);
        let cluster = running(config, &[&stuck, &broken]).await;
        let client = warm(&cluster).await;
        let expected = (StatusCode::INTERNAL_SERVER_ERROR, Bytes::from_static(b"broken"));
        let mut hedged = 0;
        // Of two one at least is at the one that is stuck first.
        for _ in 0..2 {
            let mut sending = pin!(client.send(bare(Method::GET, "/slow")));
            let view = || view_of(&cluster, broken.address).snapshot;
            let before = view().failures;
            let freed = until(|| view().failures > before && view().active == 0);
            let response = tokio::select! {
                response = sending.as_mut() => response,
                () = freed => {
                    hedged += 1;
                    assert_eq!(active(&cluster), 1, "the other is out still");
                    sending.await
                }
            };
            assert_eq!(whole(response.unwrap()).await, expected);
        }
        assert!(hedged > 0);
        assert_eq!((cluster.counts().hedges.sent, at_stuck.lock().unwrap().len() as u64), (hedged, hedged));
        until(|| active(&cluster) == 0).await;
    }
}

/// Otherwise requests with a millisecond left would end all hedging.
#[tokio::test]
async fn how_little_time_a_caller_has_says_nothing_of_how_long_answers_take() {
    let ((stuck, _), (well, _)) =
        (slow(Speaks::Http1, never).await, slow(Speaks::Http1, || late(20, || text("ok"))).await);
    let cluster = running(hedging(Protocol::Auto), &[&stuck, &well]).await;
    let client = warm(&cluster).await;
    for _ in 0..500 {
        let mut request = bare(Method::GET, "/slow");
        request.headers_mut().insert("x-envoy-expected-rq-timeout-ms", "1".parse().unwrap());
        let error = client.send(request).await.unwrap_err();
        // An abandoned request takes its connection with it, so the time may pass before the next one is open.
        let is_timeout = matches!(&error, Error::Timeout { .. })
            || matches!(&error, Error::Connect { cause: ConnectError::Timeout(_), .. });
        assert!(is_timeout, "{error}");
    }
    for _ in 0..2 {
        let answer = tokio::time::timeout(Duration::from_secs(5), client.send(bare(Method::GET, "/slow"))).await;
        assert_eq!(whole(answer.unwrap().unwrap()).await.1, "ok");
    }
    assert!(cluster.counts().hedges.sent > 0);
}

#[tokio::test]
async fn where_both_fail_it_goes_on_as_after_two_attempts() {
    for (speaks, protocol) in [(Speaks::Http1, Protocol::Http1), (Speaks::Http2(100), Protocol::Http2)] {
        for (most, third) in [(2, None), (3, Some("ok"))] {
            let full = || late(150, || shed(Rejection::Overloaded, false));
            let ((one, at_one), (two, at_two), (well, at_well)) =
                (slow(speaks, full).await, slow(speaks, full).await, slow(speaks, || text("ok")).await);
            let mut config = hedging(protocol);
            config.retry.attempts.max_attempts = MaxAttempts::new(most).unwrap();
            let cluster = running(config, &[&one, &two, &well]).await;
            let client = warm(&cluster).await;
            // The first two attempts are at those that are not drained.
            cluster.drain(well.address);
            let mut told = Vec::new();
            let sent = {
                let sending = client.send_recording(bare(Method::GET, "/slow"), RequestOptions::default(), &mut told);
                let back = async {
                    until(|| at_one.lock().unwrap().len() + at_two.lock().unwrap().len() == 2).await;
                    cluster.undrain(well.address);
                };
                tokio::join!(sending, back).0
            };
            let response = sent.unwrap();
            let next: Vec<_> = told.iter().map(|attempt| attempt.next).collect();
            assert_eq!(response.body().attempts(), if third.is_some() { 3 } else { 2 }, "{told:?}");
            if third.is_some() {
                assert_eq!(next, [NextStep::Hedged, NextStep::Retried]);
                assert_eq!(whole(response).await, (StatusCode::OK, Bytes::from_static(b"ok")));
                assert_eq!(at_well.lock().unwrap()[0]["x-envoy-attempt-count"], "3");
            } else {
                assert_eq!(next, [NextStep::Hedged, NextStep::GaveUp(NoRetryReason::TooMany)]);
                let told = Shed::read(response.status(), response.headers()).unwrap();
                assert_eq!((told.reason, told.retry), (Some(Rejection::OverloadedNoRetry), Retry::Never));
            }
            assert_eq!(cluster.counts().hedges, HedgeCounts { sent: 1, won: 0, denied: 0 });
            assert_eq!(at_one.lock().unwrap().len() + at_two.lock().unwrap().len(), 2);
            until(|| active(&cluster) == 0).await;
        }
    }
}

#[tokio::test]
async fn a_request_that_neither_answers_is_too_late_and_leaves_nothing_behind() {
    let ((one, _), (two, _)) = (slow(Speaks::Http1, never).await, slow(Speaks::Http1, never).await);
    let mut config = hedging(Protocol::Auto);
    config.requests.request_timeout = Duration::from_millis(400);
    let cluster = running(config, &[&one, &two]).await;
    let client = warm(&cluster).await;
    let error = client.send(bare(Method::GET, "/slow")).await.unwrap_err();
    assert!(matches!(error, Error::Timeout { .. }), "{error}");
    assert_eq!(error.attempts(), 2);
    until(|| active(&cluster) == 0).await;
    // A caller that leaves while both are out leaves both.
    let sending = client.send(bare(Method::GET, "/slow"));
    assert!(tokio::time::timeout(Duration::from_millis(300), sending).await.is_err());
    assert_eq!(cluster.counts().hedges.sent, 2);
    until(|| active(&cluster) == 0).await;
    assert_eq!(cluster.backends().iter().map(|view| view.counts.cancelled).sum::<u64>(), 2);
}

#[tokio::test]
async fn another_delay_is_followed_with_what_is_known() {
    let ((stuck, at_stuck), (well, _)) = (slow(Speaks::Http1, never).await, slow(Speaks::Http1, || text("ok")).await);
    let cluster = running(hedging(Protocol::Auto), &[&stuck, &well]).await;
    let client = warm(&cluster).await;
    let mut config = hedging(Protocol::Auto);
    config.retry.hedge = Some(HedgeConfig::default().at_least(Duration::from_millis(300)));
    cluster.set_config(config);
    let began = Instant::now();
    for _ in 0..2 {
        assert_eq!(whole(client.send(bare(Method::GET, "/slow")).await.unwrap()).await.1, "ok");
    }
    let HedgeCounts { sent, won, .. } = cluster.counts().hedges;
    assert!(sent > 0 && sent == won && sent == at_stuck.lock().unwrap().len() as u64, "{sent} {won}");
    assert!(began.elapsed() >= Duration::from_millis(300), "{:?}", began.elapsed());
    cluster.set_config(rich());
    let sending = client.send(bare(Method::GET, "/slow"));
    let other = client.send(bare(Method::GET, "/slow"));
    let both = async { tokio::join!(sending, other) };
    assert!(tokio::time::timeout(Duration::from_millis(500), both).await.is_err(), "one of them waits");
    assert_eq!(cluster.counts().hedges.sent, sent);
}
