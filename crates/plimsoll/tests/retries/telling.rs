//! The answer to the caller of a request that was not served.

use super::*;

#[tokio::test]
async fn whoever_was_turned_away_everywhere_is_told_not_to_retry_whatever_the_backends_said() {
    let pushback = || {
        let mut response = Response::new(Empty::new().boxed());
        let fields = [("content-type", "application/grpc"), ("grpc-status", "14"), ("grpc-retry-pushback-ms", "0")];
        for (name, value) in fields {
            response.headers_mut().insert(name, value.parse().unwrap());
        }
        now(response)
    };
    for (speaks, answer) in [
        (Speaks::Http1, (|| shed(Rejection::LameDuck, false)) as fn() -> Answer),
        (Speaks::Http1, || shed(Rejection::Saturated, false)),
        (Speaks::Http2(100), || shed(Rejection::LameDuck, true)),
        (Speaks::Http2(100), pushback),
    ] {
        let ((one, _), (two, _)) = (refusing(speaks, answer).await, refusing(speaks, answer).await);
        let cluster = running(rich(), &[&one, &two]).await;
        let mut request = get("/");
        let is_grpc = matches!(speaks, Speaks::Http2(_));
        if is_grpc {
            request.headers_mut().insert("content-type", "application/grpc".parse().unwrap());
        }
        let response = Client::new(&cluster).send(request).await.unwrap();
        let expected = Shed { reason: Some(Rejection::OverloadedNoRetry), retry: Retry::Never, after: None };
        assert_eq!(Shed::read(response.status(), response.headers()), Some(expected));
        let pushback = response.headers().get("grpc-retry-pushback-ms");
        assert_eq!(pushback.is_some_and(|pushback| pushback == "-1"), is_grpc);
        assert!(!response.headers().contains_key("retry-after"));
    }
}

/// While it waits for the time that a backend named, all backends are taken out of use.
#[tokio::test]
async fn whoever_waited_for_nobody_is_told_what_the_backend_said() {
    for (after, reason, retry_after) in [
        (Some(Duration::ZERO), Rejection::Overloaded, Some(Duration::ZERO)),
        // It names no time: there was nothing to wait for but luck.
        (None, Rejection::OverloadedNoRetry, None),
    ] {
        let drained: Arc<Mutex<Option<Cluster>>> = Arc::default();
        let cluster = drained.clone();
        let answer = move || {
            let cluster = cluster.lock().unwrap().clone().unwrap();
            cluster.backends().iter().for_each(|view| assert!(cluster.drain(view.backend.address())));
            let mut head = shed::head(Rejection::Overloaded, false, None);
            head.headers_mut().insert("x-plimsoll-shed", "reason=overloaded, retry=after".parse().unwrap());
            if let Some(after) = after {
                head.headers_mut().insert("retry-after", after.as_secs().into());
            }
            now(head.map(|()| Empty::new().boxed()))
        };
        let ((one, _), (two, _)) =
            (refusing(Speaks::Http1, answer.clone()).await, refusing(Speaks::Http1, answer).await);
        let cluster = running(rich(), &[&one, &two]).await;
        *drained.lock().unwrap() = Some(cluster.clone());
        let mut told = Vec::new();
        let error =
            Client::new(&cluster).send_recording(get("/"), RequestOptions::default(), &mut told).await.unwrap_err();
        assert!(matches!(error, Error::Refused { .. }), "{error}");
        assert_eq!((error.shed_reason(), error.retry_after()), (Some(reason), retry_after), "{error}");
        let [FailedAttempt { next: NextStep::GaveUp(NoRetryReason::NoOther), .. }] = &told[..] else {
            panic!("{told:?}")
        };
        assert_eq!(given_up(&cluster.counts(), NoRetryReason::NoOther), 1);
        assert_eq!((cluster.counts().retries, cluster.restraint().budget_used), (Vec::new(), Ratio::ZERO));
    }
}

#[tokio::test]
async fn whoever_is_told_not_to_retry_does_not() {
    for (speaks, answer) in [
        (Speaks::Http1, (|| shed(Rejection::OverloadedNoRetry, false)) as fn() -> Answer),
        (Speaks::Http1, || shed(Rejection::Quota, false)),
        (Speaks::Http2(100), || shed(Rejection::OverloadedNoRetry, true)),
        (Speaks::Http2(100), || {
            let mut response = Response::new(Empty::new().boxed());
            let fields =
                [("content-type", "application/grpc"), ("grpc-status", "14"), ("grpc-retry-pushback-ms", "-1")];
            for (name, value) in fields {
                response.headers_mut().insert(name, value.parse().unwrap());
            }
            now(response)
        }),
    ] {
        let ((one, _), (two, _)) = (refusing(speaks, answer).await, refusing(speaks, answer).await);
        let cluster = running(rich(), &[&one, &two]).await;
        let client = Client::new(&cluster);
        let mut request = get("/");
        if matches!(speaks, Speaks::Http2(_)) {
            request.headers_mut().insert("content-type", "application/grpc".parse().unwrap());
        }
        client.send(request).await.unwrap();
        assert_eq!(one.requests() + two.requests(), 1);
        assert_eq!(given_up(&cluster.counts(), NoRetryReason::ToldNotTo), 1);
    }
}

/// Another backend would say the same, nobody has too much to do, and others are not to pay for it.
#[tokio::test]
async fn a_customer_over_its_quota_is_told_so_at_once_and_costs_nobody_else_anything() {
    let over = || now(Response::builder().status(429).header("retry-after", "3").body(Empty::new().boxed()).unwrap());
    let ((one, _), (two, _)) = (refusing(Speaks::Http1, over).await, refusing(Speaks::Http1, over).await);
    let cluster = running(rich(), &[&one, &two]).await;
    let client = Client::new(&cluster);
    let batch = Batch::new(BatchConfig::default());
    for options in [RequestOptions::default(), RequestOptions::default().with_batch(batch.clone())] {
        let before = one.requests() + two.requests();
        let response = client.send_with(get("/"), options).await.unwrap();
        assert_eq!(response.status(), StatusCode::TOO_MANY_REQUESTS);
        assert_eq!(response.headers()["retry-after"], "3");
        assert!(!response.headers().contains_key("x-plimsoll-shed"), "it is passed on as it came");
        assert_eq!(one.requests() + two.requests(), before + 1);
    }
    assert_eq!(cluster.restraint().budget_used, Ratio::ZERO);
    assert_eq!((cluster.counts().throttled, batch.view().counts.rejected), ([0; 4], 0));
}

#[tokio::test]
async fn with_one_attempt_answers_are_passed_on_as_they_come() {
    let ((one, _), (two, _)) = (overloaded(Speaks::Http1, false).await, overloaded(Speaks::Http1, false).await);
    let mut config = plain_config();
    config.retry = RetryPolicy::OFF;
    let cluster = running(config, &[&one, &two]).await;
    let client = Client::new(&cluster);
    let response = client.send(get("/")).await.unwrap();
    let shed = Shed::read(response.status(), response.headers()).unwrap();
    assert_eq!((shed.reason, one.requests() + two.requests()), (Some(Rejection::Overloaded), 1));
}
