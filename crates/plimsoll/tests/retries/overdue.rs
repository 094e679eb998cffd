//! Attempts that take longer than one attempt may.

use super::*;

const LIMIT: Duration = Duration::from_millis(80);

/// A server that answers after `delay`, and records requests.
async fn slow(speaks: Speaks, delay: Duration) -> (Server, Seen) {
    refusing(speaks, move || {
        Box::pin(async move {
            tokio::time::sleep(delay).await;
            text("slow").await
        })
    })
    .await
}

fn limited(protocol: Protocol) -> ClusterConfig {
    let mut config = rich();
    config.requests.protocol = protocol;
    config.requests.attempt_timeout = LIMIT;
    config.requests.request_timeout = Duration::from_secs(20);
    config
}

/// Sends until a request was at `slow`; the responses, and the longest time of one.
async fn until_seen(client: &Client<Full<Bytes>>, slow: &Seen, request: impl Fn() -> Request<Full<Bytes>>) -> Duration {
    let mut longest = Duration::ZERO;
    for _ in 0..100 {
        let begun = Instant::now();
        let response = client.send(request()).await.unwrap();
        longest = longest.max(begun.elapsed());
        let (status, body) = whole(response).await;
        assert_eq!((status, &body[..]), (StatusCode::OK, &b"ok"[..]));
        if !slow.lock().unwrap().is_empty() {
            return longest;
        }
    }
    panic!("the slow server got no request");
}

const HANGS: Duration = Duration::from_secs(60);

#[tokio::test]
async fn overdue_attempt_makes_way_for_another_backend() {
    for (speaks, protocol) in [(Speaks::Http1, Protocol::Http1), (Speaks::Http2(100), Protocol::Http2)] {
        let ((hangs, seen), quick) = (slow(speaks, HANGS).await, Server::start(speaks, |_| text("ok")).await);
        let cluster = running(limited(protocol), &[&hangs, &quick]).await;
        let client = Client::new(&cluster);
        let took =
            until_seen(&client, &seen, || Request::put("/").body(Full::new(Bytes::from_static(b"body"))).unwrap())
                .await;
        assert!((LIMIT..HANGS / 10).contains(&took), "{protocol:?}: {took:?}");
        assert_eq!(cluster.counts().retries, [("attempt-timeout", "answered", 1)], "{protocol:?}");
        let late: u64 = cluster.backends().iter().map(|backend| backend.counts.timed_out).sum();
        assert_eq!(late, 1, "{protocol:?}");
    }
}

#[tokio::test]
async fn overdue_attempt_is_told_with_its_next_step() {
    let ((hangs, seen), quick) = (slow(Speaks::Http1, HANGS).await, Server::start(Speaks::Http1, |_| text("ok")).await);
    let cluster = running(limited(Protocol::Http1), &[&hangs, &quick]).await;
    let client = Client::new(&cluster);
    loop {
        let mut told = Vec::new();
        let response = client.send_recording(get("/"), RequestOptions::default(), &mut told).await;
        assert_eq!(response.unwrap().status(), StatusCode::OK);
        if !seen.lock().unwrap().is_empty() {
            assert!(
                matches!(
                    &told[..],
                    [FailedAttempt {
                        failure: Failure::Error(Error::Overdue { after: LIMIT, address: Some(_) }),
                        next: NextStep::Retried,
                        ..
                    }]
                ),
                "{told:?}"
            );
            return;
        }
    }
}

/// One that may have been carried out, one with no budget, one with no other backend: each is
/// answered late instead of not at all.
#[tokio::test]
async fn overdue_attempt_goes_on_when_no_other_may_be_made() {
    let late = LIMIT * 3;
    let no_budget = || {
        let mut config = limited(Protocol::Http1);
        config.retry.budget = BudgetConfig { share: Ratio::ZERO, floor: 0 };
        config
    };
    let mut last_attempt = limited(Protocol::Http1);
    last_attempt.retry.attempts.max_attempts = MaxAttempts::ONE;
    for (config, servers, request) in [
        (limited(Protocol::Http1), 2, post(b"once")),
        (limited(Protocol::Http2), 2, post(b"once")),
        (limited(Protocol::Http1), 1, get("/").map(|_| Full::default())),
        (last_attempt, 2, get("/").map(|_| Full::default())),
    ] {
        let speaks = if config.requests.protocol == Protocol::Http2 { Speaks::Http2(100) } else { Speaks::Http1 };
        let ((one, _), (two, _)) = (slow(speaks, late).await, slow(speaks, late).await);
        let all = [&one, &two];
        let cluster = running(config, &all[..servers]).await;
        let begun = Instant::now();
        let response = Client::new(&cluster).send(request).await.unwrap();
        assert_eq!((response.status(), one.requests() + two.requests()), (StatusCode::OK, 1));
        assert!(begun.elapsed() >= late);
        let counts = cluster.counts();
        assert_eq!((counts.retries, counts.given_up), (Vec::new(), [0; NoRetryReason::ALL.len()]));
    }
    // A new cluster has a credit; this uses it up.
    let ((one, _), (two, _)) = (slow(Speaks::Http1, late).await, slow(Speaks::Http1, late).await);
    let cluster = running(no_budget(), &[&one, &two]).await;
    let client = Client::new(&cluster);
    for _ in 0..3 {
        assert_eq!(client.send(get("/")).await.unwrap().status(), StatusCode::OK);
    }
    assert_eq!((one.requests() + two.requests(), cluster.counts().retries), (3, Vec::new()));
}

/// The attempt has no time while its caller sends, and all of it from then on.
#[tokio::test]
async fn overdue_time_begins_when_the_caller_has_sent_all() {
    for (speaks, protocol) in [(Speaks::Http1, Protocol::Http1), (Speaks::Http2(100), Protocol::Http2)] {
        let (one, _) = echo(speaks).await;
        let (two, _) = echo(speaks).await;
        let cluster = running(limited(protocol), &[&one, &two]).await;
        let (send, pieces) = tokio::sync::mpsc::channel::<&'static [u8]>(1);
        let body = StreamBody::new(futures_util::stream::unfold(pieces, |mut pieces| async move {
            let piece = pieces.recv().await?;
            Some((Ok::<_, Infallible>(Frame::data(Bytes::from_static(piece))), pieces))
        }));
        let request = Request::put("/").body(Box::pin(body)).unwrap();
        let feeder = tokio::spawn(async move {
            for piece in [&b"slow "[..], b"but ", b"sure"] {
                tokio::time::sleep(LIMIT * 2).await;
                send.send(piece).await.unwrap();
            }
        });
        let response = Client::new(&cluster).send(request).await.unwrap();
        assert_eq!(whole(response).await, (StatusCode::OK, Bytes::from_static(b"slow but sure")));
        feeder.await.unwrap();
        assert_eq!((one.requests() + two.requests(), cluster.counts().retries), (1, Vec::new()), "{protocol:?}");
    }
}

#[tokio::test]
async fn overdue_hedged_request_keeps_both_attempts() {
    let ((one, _), (two, _)) = (slow(Speaks::Http1, LIMIT * 3).await, slow(Speaks::Http1, LIMIT * 3).await);
    let mut config = limited(Protocol::Http1);
    config.retry.hedge = Some(plimsoll_core::retry::hedge::HedgeConfig::default());
    let cluster = running(config, &[&one, &two]).await;
    let response = Client::new(&cluster).send(get("/")).await.unwrap();
    assert_eq!((response.status(), cluster.counts().retries), (StatusCode::OK, Vec::new()));
}
