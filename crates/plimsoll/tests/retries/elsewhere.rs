//! Requests shed at one backend and served at another.

use super::*;

/// RFC 9113, 8.7: a refused request was not processed, so it may go elsewhere, with any method.
#[tokio::test]
async fn what_a_peer_refuses_unseen_is_served_elsewhere() {
    let (refusing, streams) = refusing_streams().await;
    let well = Server::start(Speaks::Http2(100), |_| text("ok")).await;
    let mut config = rich();
    config.requests.protocol = Protocol::Http2;
    let cluster = Cluster::new("test", config, [refusing, well.address]);
    tokio::spawn(cluster.run());
    until(|| cluster.backends().iter().all(|view| view.snapshot.state == State::Healthy)).await;
    let client = Client::new(&cluster);
    for _ in 0..2 {
        let response = client.send(post(b"once")).await.unwrap();
        assert_eq!(whole(response).await, (StatusCode::OK, Bytes::from_static(b"ok")));
    }
    // A request that comes to it is sent there once again. Of two requests one does, or both, as a
    // retry takes a turn in the round, too.
    assert!([2, 4].contains(&streams.load(Ordering::Relaxed)), "{streams:?}");
}

#[tokio::test]
async fn what_an_overloaded_backend_turns_away_is_served_elsewhere_whatever_its_method() {
    for (speaks, protocol) in [(Speaks::Http1, Protocol::Http1), (Speaks::Http2(100), Protocol::Http2)] {
        let ((full, _), (well, seen)) = (overloaded(speaks, false).await, echo(speaks).await);
        let mut config = rich();
        config.requests.protocol = protocol;
        let cluster = running(config, &[&full, &well]).await;
        let client = Client::new(&cluster);
        for _ in 0..6 {
            let response = client.send(post(b"something")).await.unwrap();
            assert_eq!(whole(response).await, (StatusCode::OK, Bytes::from_static(b"something")), "{protocol:?}");
        }
        assert_eq!(well.requests(), 6);
        assert!(full.requests() >= 1);
        assert!(full.connections() <= 2, "a refusal does not cost its connection: {}", full.connections());
        let counts = cluster.counts();
        assert_eq!(counts.retries, [("overloaded", "answered", full.requests() as u64)]);
        assert_eq!(active(&cluster), 0);
        let numbers =
            seen.lock().unwrap().iter().map(|head| head.get("x-envoy-attempt-count").cloned()).collect::<Vec<_>>();
        assert_eq!(numbers.iter().flatten().count(), full.requests(), "a first attempt says nothing");
        assert!(numbers.iter().flatten().all(|number| number == "2"));
    }
}

#[tokio::test]
async fn a_call_that_is_turned_away_is_made_elsewhere_and_says_how_often_it_was_made() {
    let (full, _) = overloaded(Speaks::Http2(100), true).await;
    let ok = HeaderMap::from_iter([("grpc-status".parse().unwrap(), "0".parse().unwrap())]);
    let seen = Seen::default();
    let notes = seen.clone();
    let well = Server::start(Speaks::Http2(100), move |request| {
        notes.lock().unwrap().push(request.headers().clone());
        let ok = ok.clone();
        Box::pin(async move {
            let message = request.into_body().collect().await.unwrap().to_bytes();
            grpc(message, ok).await
        })
    })
    .await;
    let cluster = running(rich(), &[&full, &well]).await;
    let client = Client::new(&cluster);
    for _ in 0..4 {
        let mut request = post(b"\0\0\0\0\x01x");
        request.headers_mut().insert("content-type", "application/grpc".parse().unwrap());
        request.headers_mut().insert("grpc-timeout", "5S".parse().unwrap());
        let body = client.send(request).await.unwrap().into_body().collect().await.unwrap();
        assert_eq!(Code::read(body.trailers().unwrap()), Some(Code::Ok));
        assert_eq!(body.to_bytes(), &b"\0\0\0\0\x01x"[..]);
    }
    let seen = seen.lock().unwrap();
    let again: Vec<_> = seen.iter().filter(|head| head.contains_key("grpc-previous-rpc-attempts")).collect();
    assert_eq!(again.len(), full.requests());
    assert!(again.iter().all(|head| head["grpc-previous-rpc-attempts"] == "1"));
    assert!(again.iter().all(|head| head["grpc-timeout"] != "5S"), "some of it is gone");
    assert!(seen.iter().all(|head| !head.contains_key("x-envoy-attempt-count")));
}

#[tokio::test]
async fn one_overloaded_backend_of_four_is_seen_by_nobody() {
    let (full, _) = overloaded(Speaks::Http1, false).await;
    let others = [Server::plain().await, Server::plain().await, Server::plain().await];
    let cluster = running(plain_config(), &[&full, &others[0], &others[1], &others[2]]).await;
    let client = Client::new(&cluster);
    for _ in 0..400 {
        assert_eq!(client.send(get("/")).await.unwrap().status(), StatusCode::OK);
    }
    assert_eq!(given_up(&cluster.counts(), NoRetryReason::NoBudget), 0);
}

/// Every backend is overloaded: a request may have three attempts, all of them together a tenth more than without.
#[tokio::test]
async fn a_total_failure_adds_a_tenth_and_callers_are_told_not_to_retry() {
    let servers = [(); 4];
    let mut full = Vec::new();
    for () in servers {
        full.push(overloaded(Speaks::Http1, false).await.0);
    }
    let mut config = plain_config();
    config.throttle = ThrottlePolicy::Off;
    let cluster = running(config, &full.iter().collect::<Vec<_>>()).await;
    let client = Client::new(&cluster);
    let requests = 500;
    for _ in 0..requests {
        let response = client.send(get("/")).await.unwrap();
        let shed = Shed::read(response.status(), response.headers()).unwrap();
        assert_eq!((shed.reason, shed.retry), (Some(Rejection::OverloadedNoRetry), Retry::Never));
    }
    let sent: usize = full.iter().map(Server::requests).sum();
    assert!(sent as f64 <= 1.1 * f64::from(requests) + 10.0, "{sent}: ten are a new client's");
    assert!(sent > requests as usize, "some were tried again");
    assert!(given_up(&cluster.counts(), NoRetryReason::NoBudget) > 400);
}

#[tokio::test]
async fn a_request_has_three_attempts_at_different_backends() {
    let full = [(); 4].map(|()| overloaded(Speaks::Http1, false));
    let full: Vec<_> = futures_util::future::join_all(full).await.into_iter().map(|(server, _)| server).collect();
    let cluster = running(rich(), &full.iter().collect::<Vec<_>>()).await;
    let client = Client::<Empty<Bytes>>::new(&cluster);
    let mut told = Vec::new();
    let response = client.send_recording(get("/"), RequestOptions::default(), &mut told).await.unwrap();
    assert_eq!(response.body().attempts(), 3);
    assert_eq!(full.iter().map(Server::requests).max(), Some(1));
    let next: Vec<_> = told.iter().map(|failed| failed.next).collect();
    assert_eq!(next, [NextStep::Retried, NextStep::Retried, NextStep::GaveUp(NoRetryReason::TooMany)]);
    assert!(told.iter().all(|failed| failed.failure.reason() == "overloaded" && failed.backend.is_some()));
}

#[tokio::test]
async fn the_answer_of_an_only_backend_is_passed_on_as_it_is() {
    let (full, _) = overloaded(Speaks::Http1, false).await;
    let cluster = running(rich(), &[&full]).await;
    let client = Client::new(&cluster);
    let response = client.send(get("/")).await.unwrap();
    let shed = Shed::read(response.status(), response.headers()).unwrap();
    assert_eq!(
        (shed.reason, shed.retry),
        (Some(Rejection::Overloaded), Retry::Elsewhere),
        "its caller may know others"
    );
    assert_eq!((full.requests(), given_up(&cluster.counts(), NoRetryReason::NoOther)), (1, 1));
}
