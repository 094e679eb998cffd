//! Throttled requests.

use super::*;

#[tokio::test]
async fn nothing_is_held_back_after_a_restart() {
    let gone = Server::plain().await;
    let address = gone.address;
    let mut config = plain_config();
    config.pool.min_connections = 0;
    let cluster = running(config, &[&gone]).await;
    let client = Client::new(&cluster);
    gone.stop().await;
    // Bound and not listening, so that meanwhile nobody else is given the port.
    let port = tokio::net::TcpSocket::new_v4().unwrap();
    port.set_reuseaddr(true).unwrap();
    port.bind(address).unwrap();
    for _ in 0..100 {
        let error = client.send(get("/")).await.unwrap_err();
        assert_eq!(error.shed_reason(), Some(Rejection::NoBackend), "{error}");
    }
    assert_eq!(cluster.counts().throttled, [0; 4]);
    assert!(given_up(&cluster.counts(), NoRetryReason::NoOther) > 0, "nobody else could be connected to");
    let _again = Server::start_at(address, Speaks::Http1, |_| text("ok")).await;
    until(|| state_of(&cluster, address) == State::Healthy).await;
    assert_eq!(client.send(get("/")).await.unwrap().status(), StatusCode::OK);
}

/// Only sheddable requests are shed, so only those are throttled.
#[tokio::test]
async fn requests_that_would_be_turned_away_are_not_sent_and_others_are() {
    let server = Server::start(Speaks::Http1, |request| {
        if request.uri().path() == "/sheddable" { shed(Rejection::Overloaded, false) } else { text("ok") }
    })
    .await;
    let cluster = running(plain_config(), &[&server]).await;
    let client = Client::new(&cluster);
    let mut held = 0;
    for _ in 0..200 {
        let mut request = get("/sheddable");
        request.headers_mut().insert("x-criticality", "sheddable".parse().unwrap());
        match client.send(request).await {
            Ok(response) => assert_eq!(response.status(), StatusCode::SERVICE_UNAVAILABLE),
            Err(error) => {
                assert!(matches!(error, Error::Throttled { criticality: Criticality::Sheddable, .. }), "{error}");
                assert_eq!((error.shed_reason(), error.nothing_sent()), (Some(Rejection::Throttled), true));
                held += 1;
            }
        }
    }
    assert!(held > 100, "{held}");
    assert_eq!(server.requests() + held, 200, "what is held back is not sent");
    assert_eq!(cluster.counts().throttled, [0, 0, 0, held as u64]);
    for _ in 0..50 {
        assert_eq!(client.send(get("/")).await.unwrap().status(), StatusCode::OK);
    }
    // A draw decides whether a single request is throttled.
    let mut held = 0;
    for _ in 0..50 {
        let options = RequestOptions::default().with_criticality(Criticality::Sheddable);
        held += u32::from(matches!(client.send_with(get("/sheddable"), options).await, Err(Error::Throttled { .. })));
    }
    assert!(held > 0, "the caller's word counts");
}

/// A client that throttles has headroom: were its caller to throttle too, a request would have to
/// be a probe in both at once.
#[tokio::test]
async fn nothing_is_held_back_from_one_who_holds_back() {
    for (speaks, is_grpc) in [(Speaks::Http1, false), (Speaks::Http2(100), true)] {
        let (server, seen) = refusing(speaks, move || shed(Rejection::Throttled, is_grpc)).await;
        let cluster = running(plain_config(), &[&server]).await;
        let client = Client::new(&cluster);
        for _ in 0..200 {
            let mut request = get("/");
            if is_grpc {
                request.headers_mut().insert("content-type", "application/grpc".parse().unwrap());
            }
            let response = client.send(request).await.unwrap();
            let shed = Shed::read(response.status(), response.headers()).unwrap();
            assert_eq!((shed.reason, shed.retry), (Some(Rejection::Throttled), Retry::Never));
        }
        assert_eq!((cluster.counts().throttled, seen.lock().unwrap().len()), ([0; 4], 200));
    }
}

/// A deadline is the caller's choice: it must not eject backends, nor throttle others.
#[tokio::test]
async fn a_deadline_that_is_too_short_says_nothing_of_who_turns_the_request_away() {
    for (speaks, is_grpc) in [(Speaks::Http1, false), (Speaks::Http2(100), true)] {
        let one = refusing(speaks, move || shed(Rejection::Deadline, is_grpc)).await.0;
        let two = refusing(speaks, move || shed(Rejection::Deadline, is_grpc)).await.0;
        let cluster = running(plain_config(), &[&one, &two]).await;
        let client = Client::new(&cluster);
        for _ in 0..200 {
            let mut request = get("/");
            if is_grpc {
                request.headers_mut().insert("content-type", "application/grpc".parse().unwrap());
            }
            let response = client.send(request).await.unwrap();
            let shed = Shed::read(response.status(), response.headers()).unwrap();
            assert_eq!((shed.reason, shed.retry), (Some(Rejection::Deadline), Retry::Never));
            response.into_body().collect().await.unwrap();
        }
        assert_eq!(cluster.counts().throttled, [0; 4]);
        for server in [&one, &two] {
            assert_eq!(state_of(&cluster, server.address), State::Healthy);
        }
    }
}
