//! Requests that are sent again, and requests that are not sent at all, over real connections on loopback.
#![allow(clippy::unwrap_used, reason = "a test may fail by it")]

mod support;

use std::convert::Infallible;
use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::{HeaderMap, Method, Request, Response, StatusCode};
use http_body::Frame;
use http_body_util::{BodyExt as _, Empty, Full, StreamBody};
use plimsoll::client::{
    Batch, Client, Cluster, ClusterConfig, ClusterCounts, Error, FailedAttempt, Failure, GivenUp, Idempotent, Next,
    Protocol, RetryPolicy, Terms,
};
use plimsoll_core::batch::BatchConfig;
use plimsoll_core::health::State;
use plimsoll_core::retry::{BudgetConfig, MaxAttempts, Tells};
use plimsoll_core::throttle::ThrottlePolicy;
use plimsoll_core::{Criticality, Ratio};
use plimsoll_wire::grpc::Code;
use plimsoll_wire::shed::{Retry, Shed, ShedReason};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

use support::*;

/// Retries that a test never runs out of.
fn rich() -> ClusterConfig {
    let mut config = plain_config();
    config.retry.budget = BudgetConfig { share: Ratio::ONE, floor: 1_000 };
    config
}

/// An answer without service, as a gate of ours gives it.
fn shed(reason: ShedReason, is_grpc: bool) -> Answer {
    now(reason.head(is_grpc, None).map(|()| Empty::new().boxed()))
}

/// The headers of the requests that came to a server.
type Seen = Arc<Mutex<Vec<HeaderMap>>>;

/// A server that turns all away, and what it saw.
async fn overloaded(speaks: Speaks, is_grpc: bool) -> (Server, Seen) {
    refusing(speaks, move || shed(ShedReason::Overloaded, is_grpc)).await
}

async fn refusing(speaks: Speaks, answer: impl Fn() -> Answer + Send + Sync + 'static) -> (Server, Seen) {
    let seen = Seen::default();
    let notes = seen.clone();
    let server = Server::start(speaks, move |request| {
        notes.lock().unwrap().push(request.headers().clone());
        answer()
    })
    .await;
    (server, seen)
}

/// A server that gives back what it is sent, and what it saw.
async fn echo(speaks: Speaks) -> (Server, Seen) {
    let seen = Seen::default();
    let notes = seen.clone();
    let server = Server::start(speaks, move |request| {
        notes.lock().unwrap().push(request.headers().clone());
        Box::pin(async move {
            let body = request.into_body().collect().await.unwrap().to_bytes();
            Response::new(Full::new(body).boxed())
        })
    })
    .await;
    (server, seen)
}

fn post(body: &'static [u8]) -> Request<Full<Bytes>> {
    Request::post("/").body(Full::new(Bytes::from_static(body))).unwrap()
}

async fn whole(response: Response<plimsoll::client::ResponseBody>) -> (StatusCode, Bytes) {
    (response.status(), response.into_body().collect().await.unwrap().to_bytes())
}

fn given_up(counts: &ClusterCounts, why: GivenUp) -> u64 {
    counts.given_up[GivenUp::ALL.iter().position(|listed| *listed == why).unwrap()]
}

/// A peer of which each stream is refused, unseen; how many there were.
async fn refusing_streams() -> (std::net::SocketAddr, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (address, count) = (listener.local_addr().unwrap(), Arc::<AtomicUsize>::default());
    let streams = count.clone();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let streams = streams.clone();
            tokio::spawn(async move {
                // A health check closes before it says anything.
                let Ok(mut connection) = h2::server::handshake(stream).await else { return };
                while let Some(Ok((_, mut respond))) = connection.accept().await {
                    streams.fetch_add(1, Ordering::Relaxed);
                    respond.send_reset(h2::Reason::REFUSED_STREAM);
                }
            });
        }
    });
    (address, count)
}

/// RFC 9113, 8.7: what was refused was not processed, so it may go elsewhere, whatever its method.
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
    // Whoever comes to it is sent there once again; of two requests one does, or both, as a retry takes a turn in the round, too.
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
    assert_eq!(given_up(&cluster.counts(), GivenUp::NoBudget), 0);
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
        assert_eq!((shed.reason, shed.retry), (Some(ShedReason::OverloadedNoRetry), Retry::Never));
    }
    let sent: usize = full.iter().map(Server::requests).sum();
    assert!(sent as f64 <= 1.1 * f64::from(requests) + 10.0, "{sent}: ten are a new client's");
    assert!(sent > requests as usize, "some were tried again");
    assert!(given_up(&cluster.counts(), GivenUp::NoBudget) > 400);
}

#[tokio::test]
async fn a_request_has_three_attempts_at_different_backends() {
    let full = [(); 4].map(|()| overloaded(Speaks::Http1, false));
    let full: Vec<_> = futures_util::future::join_all(full).await.into_iter().map(|(server, _)| server).collect();
    let cluster = running(rich(), &full.iter().collect::<Vec<_>>()).await;
    let client = Client::<Empty<Bytes>>::new(&cluster);
    let mut told = Vec::new();
    let response = client.send_telling(get("/"), Terms::default(), &mut told).await.unwrap();
    assert_eq!(response.body().attempts(), 3);
    assert_eq!(full.iter().map(Server::requests).max(), Some(1));
    let next: Vec<_> = told.iter().map(|failed| failed.next).collect();
    assert_eq!(next, [Next::Retried, Next::Retried, Next::GivenUp(GivenUp::TooMany)]);
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
        (Some(ShedReason::Overloaded), Retry::Elsewhere),
        "its caller may know others"
    );
    assert_eq!((full.requests(), given_up(&cluster.counts(), GivenUp::NoOther)), (1, 1));
}

/// Whoever may have the time to wait is told how long.
#[tokio::test]
async fn a_wait_that_is_longer_than_anybody_waits_is_for_the_caller_to_wait() {
    let later =
        || now(ShedReason::Overloaded.head(false, Some(Duration::from_secs(30))).map(|()| Empty::new().boxed()));
    let ((one, _), (two, _)) = (refusing(Speaks::Http1, later).await, refusing(Speaks::Http1, later).await);
    let cluster = running(rich(), &[&one, &two]).await;
    let response = Client::new(&cluster).send(get("/")).await.unwrap();
    let expected =
        Shed { reason: Some(ShedReason::Overloaded), retry: Retry::After, after: Some(Duration::from_secs(30)) };
    assert_eq!(Shed::read(response.status(), response.headers()), Some(expected));
    assert_eq!(given_up(&cluster.counts(), GivenUp::TooLong), 1);
}

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
        (Speaks::Http1, (|| shed(ShedReason::LameDuck, false)) as fn() -> Answer),
        (Speaks::Http1, || shed(ShedReason::Saturated, false)),
        (Speaks::Http2(100), || shed(ShedReason::LameDuck, true)),
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
        let expected = Shed { reason: Some(ShedReason::OverloadedNoRetry), retry: Retry::Never, after: None };
        assert_eq!(Shed::read(response.status(), response.headers()), Some(expected));
        let pushback = response.headers().get("grpc-retry-pushback-ms");
        assert_eq!(pushback.is_some_and(|pushback| pushback == "-1"), is_grpc);
        assert!(!response.headers().contains_key("retry-after"));
    }
}

#[tokio::test]
async fn whoever_leaves_before_a_retry_is_made_has_not_used_it() {
    let later = || now(Response::builder().status(503).header("retry-after", "9").body(Empty::new().boxed()).unwrap());
    let (server, _) = refusing(Speaks::Http1, later).await;
    let cluster = running(rich(), &[&server]).await;
    let client = Client::new(&cluster);
    let call = tokio::spawn(async move { client.send(get("/")).await.map(drop) });
    until(|| cluster.restraint().budget_used > Ratio::ZERO).await;
    call.abort();
    assert!(call.await.unwrap_err().is_cancelled());
    assert_eq!(cluster.restraint().budget_used, Ratio::ZERO);
}

/// Ten milliseconds at least is what half of the answers take, and nine were left to begin with.
#[tokio::test]
async fn a_retry_is_not_made_with_less_time_left_than_answers_usually_take() {
    let answer = |request: Request<hyper::body::Incoming>| -> Answer {
        if request.headers().contains_key("x-envoy-expected-rq-timeout-ms") {
            return shed(ShedReason::Overloaded, false);
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
    assert_eq!((one.requests() + two.requests(), given_up(&cluster.counts(), GivenUp::TooLate)), (21, 1));
}

/// While it waits for the time that a backend named, all backends are taken out of use.
#[tokio::test]
async fn whoever_waited_for_nobody_is_told_what_the_backend_said() {
    for (after, reason, retry_after) in [
        (Some(Duration::ZERO), ShedReason::Overloaded, Some(Duration::ZERO)),
        // It names no time: there was nothing to wait for but luck.
        (None, ShedReason::OverloadedNoRetry, None),
    ] {
        let drained: Arc<Mutex<Option<Cluster>>> = Arc::default();
        let cluster = drained.clone();
        let answer = move || {
            let cluster = cluster.lock().unwrap().clone().unwrap();
            cluster.backends().iter().for_each(|view| assert!(cluster.drain(view.backend.address())));
            let mut head = ShedReason::Overloaded.head(false, None);
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
        let error = Client::new(&cluster).send_telling(get("/"), Terms::default(), &mut told).await.unwrap_err();
        assert!(matches!(error, Error::Refused { .. }), "{error}");
        assert_eq!((error.shed_reason(), error.retry_after()), (Some(reason), retry_after), "{error}");
        let [FailedAttempt { next: Next::GivenUp(GivenUp::NoOther), .. }] = &told[..] else { panic!("{told:?}") };
        assert_eq!(given_up(&cluster.counts(), GivenUp::NoOther), 1);
        assert_eq!((cluster.counts().retries, cluster.restraint().budget_used), (Vec::new(), Ratio::ZERO));
    }
}

#[tokio::test]
async fn whoever_is_told_not_to_retry_does_not() {
    for (speaks, answer) in [
        (Speaks::Http1, (|| shed(ShedReason::OverloadedNoRetry, false)) as fn() -> Answer),
        (Speaks::Http1, || shed(ShedReason::Quota, false)),
        (Speaks::Http2(100), || shed(ShedReason::OverloadedNoRetry, true)),
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
        assert_eq!(given_up(&cluster.counts(), GivenUp::ToldNotTo), 1);
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
    for terms in [Terms::default(), Terms::default().through(batch.clone())] {
        let before = one.requests() + two.requests();
        let response = client.send_with(get("/"), terms).await.unwrap();
        assert_eq!(response.status(), StatusCode::TOO_MANY_REQUESTS);
        assert_eq!(response.headers()["retry-after"], "3");
        assert!(!response.headers().contains_key("x-plimsoll-shed"), "it is passed on as it came");
        assert_eq!(one.requests() + two.requests(), before + 1);
    }
    assert_eq!(cluster.restraint().budget_used, Ratio::ZERO);
    assert_eq!((cluster.counts().throttled, batch.view().counts.rejected), ([0; 4], 0));
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
    assert_eq!((count.load(Ordering::SeqCst), given_up(&cluster.counts(), GivenUp::TooLong)), (3, 1));
}

#[tokio::test]
async fn a_retry_that_could_not_be_answered_in_time_is_not_made() {
    let (server, _) = refusing(Speaks::Http1, || {
        now(Response::builder().status(503).header("retry-after", "2").body(Empty::new().boxed()).unwrap())
    })
    .await;
    let cluster = running(rich(), &[&server]).await;
    let client = Client::new(&cluster);
    let mut request = get("/");
    request.headers_mut().insert("x-envoy-expected-rq-timeout-ms", "1500".parse().unwrap());
    let response = client.send(request).await.unwrap();
    assert_eq!((response.status(), server.requests()), (StatusCode::SERVICE_UNAVAILABLE, 1));
    assert_eq!(given_up(&cluster.counts(), GivenUp::TooLate), 1);
}

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
        let why = if attempts == 1 { GivenUp::MayBeSeen } else { GivenUp::TooMany };
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
    assert_eq!(given_up(&cluster.counts(), GivenUp::MayBeSeen), 1);
}

#[tokio::test]
async fn a_connection_that_breaks_at_each_attempt_is_not_to_be_tried_again_by_whoever_is_above() {
    for (backends, retry, tells) in [
        (2, RetryPolicy::default(), Tells::DoNotRetry),
        // Who can ask others, or asks again at all, is above.
        (1, RetryPolicy::default(), Tells::Answer),
        (2, RetryPolicy::OFF, Tells::Answer),
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
        assert_eq!((error.tells(), error.shed_reason()), (tells, None), "{backends} {retry:?}");
    }
}

#[tokio::test]
async fn an_error_says_how_often_it_was_tried_and_that_it_may_have_been_seen() {
    let ((one, _), (two, _)) = (silent_closer().await, silent_closer().await);
    let mut config = rich();
    config.pool.min_connections = 0;
    let cluster = connected(config, &[one, two]).await;
    let client = Client::<Empty<Bytes>>::new(&cluster);
    let mut told = Vec::new();
    let error = client.send_telling(get("/"), Terms::default(), &mut told).await.unwrap_err();
    assert_eq!((error.attempts(), error.nothing_sent()), (3, false), "{error}");
    assert!(error.backend_address().is_some() && error.to_string().ends_with("(the last of 3 attempts)"), "{error}");
    let [FailedAttempt { next: Next::Retried, failure: Failure::Error(_), .. }, ..] = &told[..] else {
        panic!("{told:?}")
    };
}

#[tokio::test]
async fn a_body_longer_than_what_is_kept_is_sent_once() {
    for (speaks, protocol) in [(Speaks::Http1, Protocol::Http1), (Speaks::Http2(100), Protocol::Http2)] {
        for (limit, is_kept) in [(5, false), (6, true)] {
            let full = Server::start(speaks, |request| {
                Box::pin(async move {
                    request.into_body().collect().await.unwrap();
                    shed(ShedReason::Overloaded, false).await
                })
            })
            .await;
            let (well, _) = echo(speaks).await;
            let mut config = rich();
            config.requests.protocol = protocol;
            config.retry.max_body = NonZeroUsize::new(limit);
            let cluster = running(config, &[&full, &well]).await;
            let client = Client::new(&cluster);
            let mut not_served = 0;
            for _ in 0..4 {
                // Of a length that is not told.
                let pieces = ["abc", "def"].map(|piece| Ok::<_, Infallible>(Frame::data(Bytes::from(piece))));
                let body = StreamBody::new(futures_util::stream::iter(pieces));
                let (status, body) = whole(client.send(Request::post("/").body(body).unwrap()).await.unwrap()).await;
                match status {
                    StatusCode::OK => assert_eq!(body, "abcdef"),
                    _ => not_served += 1,
                }
            }
            let turned_away = full.requests();
            assert!(turned_away > 0);
            assert_eq!(not_served, if is_kept { 0 } else { turned_away }, "{protocol:?} {limit}");
            assert_eq!(given_up(&cluster.counts(), GivenUp::BodyIsGone), not_served as u64);
        }
    }
}

#[tokio::test]
async fn a_body_that_is_still_being_sent_when_it_is_turned_away_is_sent_again_whole() {
    for (speaks, protocol) in [(Speaks::Http1, Protocol::Http1), (Speaks::Http2(100), Protocol::Http2)] {
        let ((full, _), (well, _)) = (overloaded(speaks, false).await, echo(speaks).await);
        let mut config = rich();
        config.requests.protocol = protocol;
        let cluster = running(config, &[&full, &well]).await;
        let client = Client::new(&cluster);
        for served in 0..3 {
            let (send, body) = by_hand();
            send.send(Bytes::from_static(b"abc")).unwrap();
            let client = client.clone();
            let call = tokio::spawn(async move { client.send(Request::post("/").body(body).unwrap()).await });
            // At once, or after it was turned away.
            until(|| well.requests() == served + 1).await;
            send.send(Bytes::from_static(b"def")).unwrap();
            drop(send);
            let response = call.await.unwrap().unwrap();
            assert_eq!(whole(response).await, (StatusCode::OK, Bytes::from_static(b"abcdef")), "{protocol:?}");
        }
        assert!(full.requests() > 0);
    }
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
    assert_eq!((shed.reason, one.requests() + two.requests()), (Some(ShedReason::Overloaded), 1));
}

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
        assert_eq!(error.shed_reason(), Some(ShedReason::NoBackend), "{error}");
    }
    assert_eq!(cluster.counts().throttled, [0; 4]);
    assert!(given_up(&cluster.counts(), GivenUp::NoOther) > 0, "nobody else could be connected to");
    let _again = Server::start_at(address, Speaks::Http1, |_| text("ok")).await;
    until(|| state_of(&cluster, address) == State::Healthy).await;
    assert_eq!(client.send(get("/")).await.unwrap().status(), StatusCode::OK);
}

/// Nothing but the sheddable is turned away, so that nothing but the sheddable is held back.
#[tokio::test]
async fn requests_that_would_be_turned_away_are_not_sent_and_others_are() {
    let server = Server::start(Speaks::Http1, |request| {
        if request.uri().path() == "/sheddable" { shed(ShedReason::Overloaded, false) } else { text("ok") }
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
                assert_eq!((error.shed_reason(), error.nothing_sent()), (Some(ShedReason::Throttled), true));
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
    // Whether a single one is held back is drawn by lot.
    let mut held = 0;
    for _ in 0..50 {
        let terms = Terms::default().with_criticality(Criticality::Sheddable);
        held += u32::from(matches!(client.send_with(get("/sheddable"), terms).await, Err(Error::Throttled { .. })));
    }
    assert!(held > 0, "the caller's word counts");
}

/// One who holds back has room: were its caller to hold back, too, a request would have to be a probe in both at once.
#[tokio::test]
async fn nothing_is_held_back_from_one_who_holds_back() {
    for (speaks, is_grpc) in [(Speaks::Http1, false), (Speaks::Http2(100), true)] {
        let (server, seen) = refusing(speaks, move || shed(ShedReason::Throttled, is_grpc)).await;
        let cluster = running(plain_config(), &[&server]).await;
        let client = Client::new(&cluster);
        for _ in 0..200 {
            let mut request = get("/");
            if is_grpc {
                request.headers_mut().insert("content-type", "application/grpc".parse().unwrap());
            }
            let response = client.send(request).await.unwrap();
            let shed = Shed::read(response.status(), response.headers()).unwrap();
            assert_eq!((shed.reason, shed.retry), (Some(ShedReason::Throttled), Retry::Never));
        }
        assert_eq!((cluster.counts().throttled, seen.lock().unwrap().len()), ([0; 4], 200));
    }
}
