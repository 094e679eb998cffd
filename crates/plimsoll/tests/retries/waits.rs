//! Retries that are waited for, or come too late.

use plimsoll_core::slots::Holder;

use super::*;

/// What one client lets wait is bounded, and all others may still wait.
#[tokio::test]
async fn request_without_a_place_to_wait_is_answered_at_once() {
    let server = Server::start(Speaks::Http2(1_000), |request| {
        Box::pin(async {
            request.into_body().collect().await.unwrap();
            Response::builder().status(503).header("retry-after", "9").body(Empty::new().boxed()).unwrap()
        })
    })
    .await;
    let mut config = rich();
    config.balancer.max_active_requests = std::num::NonZeroU32::new(10_000).unwrap();
    config.throttle = ThrottlePolicy::Off;
    config.requests.protocol = Protocol::Http2;
    config.pool.max_streams = std::num::NonZeroU32::new(1_000).unwrap();
    config.retry.attempts.pushback_max = Duration::from_secs(10);
    config.retry.budget.floor = 100_000;
    let cluster = running(config, &[&server]).await;
    let client = Client::new(&cluster);
    let (greedy, other) = (Holder::new(u64::MAX / 3), Holder::new(u64::MAX / 7));
    // Three places of 16 KiB; half of all 1,024 are for one client, which are 171 requests.
    let send = |holder| {
        let client = client.clone();
        let request = Request::put("/").body(Full::new(Bytes::from(vec![7; 40 * 1024]))).unwrap();
        async move { client.send_with(request, RequestOptions::default().on_behalf_of(holder)).await.unwrap().status() }
    };
    let denied = || given_up(&cluster.counts(), NoRetryReason::TooManyWait);
    let mut waiting = tokio::task::JoinSet::new();
    for _ in 0..171 {
        waiting.spawn(send(greedy));
    }
    // All are answered, so those with a place have it.
    until(|| server.requests() == 171 && active(&cluster) == 0).await;
    let budget_used = || cluster.restraint().budget_used.as_f64();
    until(|| budget_used() > 0.0).await;
    for _ in 0..3 {
        assert_eq!(send(greedy).await, StatusCode::SERVICE_UNAVAILABLE);
    }
    let of_greedy = denied();
    assert!(of_greedy >= 3, "{of_greedy}");
    // The budget forgets, so that one more retry may not show in it.
    let of_other = waiting.spawn(send(other));
    until(|| server.requests() == 171 + 3 + 1 && active(&cluster) == 0).await;
    tokio::task::yield_now().await;
    assert_eq!(denied(), of_greedy);
    assert!(!of_other.is_finished(), "it waits");
    waiting.shutdown().await;
    until(|| budget_used() == 0.0).await;
    // Callers that left hold no places.
    waiting.spawn(send(greedy));
    until(|| budget_used() > 0.0).await;
    assert_eq!(denied(), of_greedy);
}

/// A caller that may have time to wait is told how long.
#[tokio::test]
async fn a_wait_that_is_longer_than_anybody_waits_is_for_the_caller_to_wait() {
    let later =
        || now(shed::head(Rejection::Overloaded, false, Some(Duration::from_secs(30))).map(|()| Empty::new().boxed()));
    let ((one, _), (two, _)) = (refusing(Speaks::Http1, later).await, refusing(Speaks::Http1, later).await);
    let cluster = running(rich(), &[&one, &two]).await;
    let response = Client::new(&cluster).send(get("/")).await.unwrap();
    let expected =
        Shed { reason: Some(Rejection::Overloaded), retry: Retry::After, after: Some(Duration::from_secs(30)) };
    assert_eq!(Shed::read(response.status(), response.headers()), Some(expected));
    assert_eq!(given_up(&cluster.counts(), NoRetryReason::TooLong), 1);
}

#[tokio::test]
async fn whoever_leaves_before_a_retry_is_made_has_not_used_it() {
    let later = || now(Response::builder().status(503).header("retry-after", "1").body(Empty::new().boxed()).unwrap());
    let (server, _) = refusing(Speaks::Http1, later).await;
    let cluster = running(rich(), &[&server]).await;
    let client = Client::new(&cluster);
    let call = tokio::spawn(async move { client.send(get("/")).await.map(drop) });
    until(|| cluster.restraint().budget_used > Ratio::ZERO).await;
    call.abort();
    assert!(call.await.unwrap_err().is_cancelled());
    assert_eq!(cluster.restraint().budget_used, Ratio::ZERO);
}

/// Half of the answers take at least ten milliseconds, and nine were left to begin with.
#[tokio::test]
async fn a_retry_is_not_made_with_less_time_left_than_answers_usually_take() {
    let answer = |request: Request<hyper::body::Incoming>| -> Answer {
        if request.headers().contains_key("x-envoy-expected-rq-timeout-ms") {
            return shed(Rejection::Overloaded, false);
        }
        Box::pin(async {
            tokio::time::sleep(Duration::from_millis(12)).await;
            text("ok").await
        })
    };
    let (one, two) = (Server::start(Speaks::Http1, answer).await, Server::start(Speaks::Http1, answer).await);
    let cluster = running(rich(), &[&one, &two]).await;
    let client = Client::new(&cluster);
    for _ in 0..20 {
        assert_eq!(client.send(get("/")).await.unwrap().status(), StatusCode::OK);
    }
    let mut request = get("/");
    request.headers_mut().insert("x-envoy-expected-rq-timeout-ms", "9".parse().unwrap());
    assert_eq!(client.send(request).await.unwrap().status(), StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!((one.requests() + two.requests(), given_up(&cluster.counts(), NoRetryReason::TooLate)), (21, 1));
}

#[tokio::test]
async fn a_named_wait_is_waited_and_not_longer_than_anybody_does() {
    let count = Arc::new(AtomicUsize::new(0));
    let counted = count.clone();
    let server = Server::start(Speaks::Http1, move |_| match counted.fetch_add(1, Ordering::SeqCst) {
        0 => now(Response::builder().status(503).header("retry-after", "1").body(Empty::new().boxed()).unwrap()),
        1 => text("ok"),
        _ => now(Response::builder().status(503).header("retry-after", "3600").body(Empty::new().boxed()).unwrap()),
    })
    .await;
    let cluster = running(rich(), &[&server]).await;
    let client = Client::new(&cluster);
    let begun = Instant::now();
    assert_eq!(client.send(get("/")).await.unwrap().status(), StatusCode::OK);
    assert!(begun.elapsed() >= Duration::from_secs(1), "{:?}", begun.elapsed());
    let begun = Instant::now();
    assert_eq!(client.send(get("/")).await.unwrap().status(), StatusCode::SERVICE_UNAVAILABLE);
    assert!(begun.elapsed() < Duration::from_secs(1));
    assert_eq!((count.load(Ordering::SeqCst), given_up(&cluster.counts(), NoRetryReason::TooLong)), (3, 1));
}

/// It is the same limit at all backends, so nothing comes back before its time.
#[tokio::test]
async fn request_over_a_rate_limit_is_retried_after_its_time_alone() {
    const TIME: Duration = Duration::from_millis(200);
    for (reason, millis, is_served) in
        [("rate-limit", Some("200"), true), ("rate-limit", None, false), ("quota", Some("200"), false)]
    {
        let count = AtomicUsize::new(0);
        let answer = move || match count.fetch_add(1, Ordering::SeqCst) {
            0 => {
                let answer = Response::builder().status(429);
                let answer = answer.header("x-plimsoll-shed", format!("reason={reason}, retry=after"));
                let answer =
                    millis.into_iter().fold(answer, |answer, millis| answer.header("x-amz-retry-after", millis));
                now(answer.body(Empty::new().boxed()).unwrap())
            }
            _ => text("ok"),
        };
        let (server, _) = refusing(Speaks::Http1, answer).await;
        let cluster = running(rich(), &[&server]).await;
        let begun = Instant::now();
        let status = Client::new(&cluster).send(get("/")).await.unwrap().status();
        let expected = if is_served { (StatusCode::OK, 2) } else { (StatusCode::TOO_MANY_REQUESTS, 1) };
        assert_eq!((status, server.requests()), expected, "{reason}, {millis:?}");
        assert!(!is_served || begun.elapsed() >= TIME, "{reason}, {millis:?}: {:?}", begun.elapsed());
    }
}

#[tokio::test]
async fn a_retry_that_could_not_be_answered_in_time_is_not_made() {
    let (server, _) = refusing(Speaks::Http1, || {
        now(Response::builder().status(503).header("retry-after", "1").body(Empty::new().boxed()).unwrap())
    })
    .await;
    let cluster = running(rich(), &[&server]).await;
    let client = Client::new(&cluster);
    let mut request = get("/");
    request.headers_mut().insert("x-envoy-expected-rq-timeout-ms", "500".parse().unwrap());
    let response = client.send(request).await.unwrap();
    assert_eq!((response.status(), server.requests()), (StatusCode::SERVICE_UNAVAILABLE, 1));
    assert_eq!(given_up(&cluster.counts(), NoRetryReason::TooLate), 1);
}
