//! Attempts that fail, after which nobody knows whether the backend saw them.

use super::*;

#[tokio::test]
async fn a_failure_that_may_have_been_carried_out_is_repeated_only_if_that_is_harmless() {
    let answer = || status(502);
    for (method, is_marked, attempts) in
        [(Method::GET, false, 2), (Method::PUT, false, 2), (Method::POST, false, 1), (Method::POST, true, 2)]
    {
        let ((one, _), (two, _)) = (refusing(Speaks::Http1, answer).await, refusing(Speaks::Http1, answer).await);
        let mut config = rich();
        config.retry.attempts.max_attempts = MaxAttempts::new(2).unwrap();
        let cluster = running(config, &[&one, &two]).await;
        let client = Client::new(&cluster);
        let mut request = Request::builder().method(method.clone()).body(Full::new(Bytes::from_static(b"x"))).unwrap();
        if is_marked {
            request.extensions_mut().insert(Idempotent);
        }
        assert_eq!(client.send(request).await.unwrap().status(), StatusCode::BAD_GATEWAY);
        assert_eq!(one.requests() + two.requests(), attempts, "{method} {is_marked}");
        let why = if attempts == 1 { NoRetryReason::MayBeSeen } else { NoRetryReason::TooMany };
        assert_eq!(given_up(&cluster.counts(), why), 1);
    }
}

#[tokio::test]
async fn a_failure_of_the_application_is_never_repeated() {
    let ((one, _), (two, _)) =
        (refusing(Speaks::Http1, || status(500)).await, refusing(Speaks::Http1, || status(504)).await);
    let cluster = running(rich(), &[&one, &two]).await;
    let client = Client::new(&cluster);
    for _ in 0..4 {
        assert!(client.send(get("/")).await.unwrap().status().is_server_error());
    }
    assert_eq!((one.requests(), two.requests()), (2, 2));
    assert_eq!(cluster.counts().retries, []);
}

/// A server that reads a request and closes without an answer, and how many it read.
async fn silent_closer() -> (std::net::SocketAddr, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (address, read) = (listener.local_addr().unwrap(), Arc::new(AtomicUsize::new(0)));
    let count = read.clone();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let count = count.clone();
            tokio::spawn(async move {
                let mut buffer = [0; 4096];
                if stream.read(&mut buffer).await.is_ok_and(|read| read > 0) {
                    count.fetch_add(1, Ordering::SeqCst);
                    stream.shutdown().await.unwrap();
                }
            });
        }
    });
    (address, read)
}

async fn connected(config: ClusterConfig, backends: &[std::net::SocketAddr]) -> Cluster {
    let cluster = Cluster::new("test", config, backends.iter().copied());
    tokio::spawn(cluster.run());
    until(|| cluster.backends().iter().all(|view| view.snapshot.state == State::Healthy)).await;
    cluster
}

#[tokio::test]
async fn a_connection_that_breaks_without_an_answer_loses_no_idempotent_request() {
    let (closing, read) = silent_closer().await;
    let (well, _) = echo(Speaks::Http1).await;
    let mut config = rich();
    config.pool.min_connections = 0;
    let cluster = connected(config, &[closing, well.address]).await;
    let client = Client::new(&cluster);
    for _ in 0..8 {
        let request = Request::put("/").body(Full::new(Bytes::from_static(b"abc"))).unwrap();
        assert_eq!(whole(client.send(request).await.unwrap()).await, (StatusCode::OK, Bytes::from_static(b"abc")));
    }
    let broken = read.load(Ordering::SeqCst) as u64;
    assert!(broken > 0);
    let ClusterCounts { retries, replayed, .. } = cluster.counts();
    let [("closed", "answered", retried)] = retries[..] else { panic!("{retries:?}") };
    assert_eq!(retried + replayed, broken);
}

#[tokio::test]
async fn a_connection_that_breaks_without_an_answer_repeats_no_other_request() {
    let ((one, first), (two, second)) = (silent_closer().await, silent_closer().await);
    let mut config = rich();
    config.pool.min_connections = 0;
    let cluster = connected(config, &[one, two]).await;
    let error = Client::new(&cluster).send(post(b"abc")).await.unwrap_err();
    assert!(matches!(error, Error::Closed { attempts: 1, .. }) && !error.nothing_sent(), "{error}");
    assert_eq!(first.load(Ordering::SeqCst) + second.load(Ordering::SeqCst), 1, "it was sent once");
    assert_eq!(given_up(&cluster.counts(), NoRetryReason::MayBeSeen), 1);
}

#[tokio::test]
async fn a_connection_that_breaks_at_each_attempt_is_not_to_be_tried_again_by_whoever_is_above() {
    for (backends, retry, caller_answer) in [
        (2, RetryPolicy::default(), CallerAnswer::DoNotRetry),
        // The layer above can ask others, or retries at all.
        (1, RetryPolicy::default(), CallerAnswer::Answer),
        (2, RetryPolicy::OFF, CallerAnswer::Answer),
    ] {
        let mut config = plain_config();
        config.pool.min_connections = 0;
        config.retry = retry;
        let mut closing = Vec::new();
        for _ in 0..backends {
            closing.push(silent_closer().await.0);
        }
        let cluster = connected(config, &closing).await;
        let error = Client::new(&cluster).send(get("/")).await.unwrap_err();
        assert!(matches!(error, Error::Closed { .. }), "{error}");
        assert_eq!((error.caller_answer(), error.shed_reason()), (caller_answer, None), "{backends} {retry:?}");
    }
}

/// Were the answer of a gateway a bare 502, the next one would be asked, and each would make attempts of its own.
#[tokio::test]
async fn attempts_do_not_multiply_behind_gateways_that_answer_with_what_befell_them() {
    let ((one, _), (two, _)) = (silent_closer().await, silent_closer().await);
    let mut config = rich();
    config.pool.min_connections = 0;
    let client = Client::<Empty<Bytes>>::new(&connected(config, &[one, two]).await);
    let gateway = || {
        let client = client.clone();
        Server::start(Speaks::Http1, move |_| {
            let client = client.clone();
            Box::pin(async move {
                let error = client.send(get("/")).await.unwrap_err();
                error.to_response(false).map(|text| Full::from(text).boxed())
            })
        })
    };
    let gateways = [gateway().await, gateway().await];
    let cluster = running(rich(), &gateways.each_ref()).await;
    let response = Client::new(&cluster).send(get("/")).await.unwrap();
    assert_eq!(response.status(), StatusCode::BAD_GATEWAY);
    assert_eq!(response.headers()["x-plimsoll-shed"], "retry=never");
    assert_eq!(gateways.iter().map(Server::requests).sum::<usize>(), 1);
}

#[tokio::test]
async fn an_error_says_how_often_it_was_tried_and_that_it_may_have_been_seen() {
    let ((one, _), (two, _)) = (silent_closer().await, silent_closer().await);
    let mut config = rich();
    config.pool.min_connections = 0;
    let cluster = connected(config, &[one, two]).await;
    let client = Client::<Empty<Bytes>>::new(&cluster);
    let mut told = Vec::new();
    let error = client.send_recording(get("/"), RequestOptions::default(), &mut told).await.unwrap_err();
    assert_eq!((error.attempts(), error.nothing_sent()), (3, false), "{error}");
    assert!(error.backend_address().is_some() && error.to_string().ends_with("(the last of 3 attempts)"), "{error}");
    let [FailedAttempt { next: NextStep::Retried, failure: Failure::Error(_), .. }, ..] = &told[..] else {
        panic!("{told:?}")
    };
}
