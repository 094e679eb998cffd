//! Batch work through its gate, over real connections on loopback.
#![allow(clippy::unwrap_used, reason = "a test may fail by it")]

mod support;

use std::net::SocketAddr;
use std::num::{NonZeroU32, NonZeroUsize};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, StatusCode};
use http_body_util::{BodyExt as _, Empty, Full};
use plimsoll::client::{
    Batch, Client, Cluster, Error, FailedAttempt, NextStep, NoRetryReason, Protocol, RequestOptions,
};
use plimsoll::discover::Fixed;
use plimsoll_core::batch::BatchConfig;
use plimsoll_core::{Criticality, LoadReport, Rejection};
use plimsoll_wire::shed::{self, Shed};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use support::*;

fn config(max_active: u32) -> BatchConfig {
    let mut config = BatchConfig::default();
    config.max_active = NonZeroU32::new(max_active).unwrap();
    config
}

fn options(batch: &Batch) -> RequestOptions {
    RequestOptions::default().with_batch(batch.clone())
}

fn queued(batch: &Batch) -> usize {
    batch.view().queued.iter().map(|(_, queued)| queued).sum()
}

fn post(body: &'static [u8]) -> Request<Full<Bytes>> {
    Request::post("/").body(Full::new(Bytes::from_static(body))).unwrap()
}

fn shed(reason: Rejection) -> Answer {
    now(shed::head(reason, false, None).map(|()| Empty::new().boxed()))
}

/// Serves `places` requests at a time, each for some milliseconds, sheds further ones, and echoes
/// bodies.
async fn narrow(speaks: Speaks, places: usize) -> (Server, Arc<AtomicUsize>) {
    let (room, refused) = (Arc::new(Semaphore::new(places)), Arc::new(AtomicUsize::new(0)));
    let count = refused.clone();
    let server = Server::start(speaks, move |request| match room.clone().try_acquire_owned() {
        Err(_) => {
            count.fetch_add(1, Ordering::SeqCst);
            shed(Rejection::Overloaded)
        }
        Ok(place) => Box::pin(async move {
            let body = request.into_body().collect().await.unwrap().to_bytes();
            tokio::time::sleep(Duration::from_millis(3)).await;
            drop(place);
            http::Response::new(Full::new(body).boxed())
        }),
    })
    .await;
    (server, refused)
}

/// Its answer is let go by hand, which a test then waits for.
async fn held(speaks: Speaks) -> (Server, Arc<Semaphore>) {
    let leave = Arc::new(Semaphore::new(0));
    let gate = leave.clone();
    let server = Server::start(speaks, move |_| {
        let gate = gate.clone();
        Box::pin(async move {
            gate.acquire().await.unwrap().forget();
            text("ok").await
        })
    })
    .await;
    (server, leave)
}

/// Answers, but for `/bad`, which breaks the connection.
async fn brittle() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let mut stream = BufReader::new(stream);
            tokio::spawn(async move {
                let mut head = String::new();
                while let Ok(1..) = stream.read_line(&mut head).await {
                    if !head.ends_with("\r\n\r\n") {
                        continue;
                    }
                    if head.starts_with("GET /bad ") {
                        return;
                    }
                    head.clear();
                    let written = stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").await;
                    if written.is_err() {
                        return;
                    }
                }
            });
        }
    });
    address
}

/// Sends a request that always fails, and others meanwhile. Returns the result of the first.
async fn one_that_fails_among_others(cluster: &Cluster) -> (Result<StatusCode, Error>, Vec<FailedAttempt>) {
    let mut settings = config(16);
    settings.queue_timeout = Duration::from_secs(30);
    let batch = Batch::new(settings);
    let client = Client::new(cluster);
    let bad = {
        let (client, options) = (client.clone(), options(&batch));
        tokio::spawn(async move {
            let mut told = Vec::new();
            let sent = client.send_recording(get("/bad"), options, &mut told).await;
            (sent.map(|response| response.status()), told)
        })
    };
    until(|| batch.view().counts.rejected > 0).await;
    while !bad.is_finished() {
        let mut requests = JoinSet::new();
        for _ in 0..32 {
            let (client, options) = (client.clone(), options(&batch));
            requests.spawn(async move { client.send_with(get("/"), options).await.unwrap().status() });
        }
        assert!(requests.join_all().await.iter().all(|status| *status == StatusCode::OK));
    }
    assert!(batch.view().counts.accepted >= 32);
    bad.await.unwrap()
}

/// Clients of tower and tonic name no options, so the cluster names the gate.
#[tokio::test]
async fn requests_of_a_batch_cluster_go_through_its_gate() {
    let (server, leave) = held(Speaks::Http1).await;
    let (batch, own) = (Batch::new(config(1)), Batch::new(config(1)));
    let builder = Cluster::builder("index").configure(|config| *config = plain_config()).batch(batch.clone());
    let cluster = builder.endpoints([server.address]).spawn().unwrap();
    assert!(!cluster.batch_with(own.clone()), "it has one");
    let client = Client::new(&cluster);
    let mut requests = JoinSet::new();
    for _ in 0..3 {
        let mut service = client.clone();
        requests.spawn(async move { tower::Service::call(&mut service, get("/")).await.unwrap().status() });
    }
    until(|| (batch.view().active, queued(&batch)) == (1, 2)).await;
    // A request with a gate of its own does not wait for that of the cluster.
    let (other, options) = (client.clone(), options(&own));
    requests.spawn(async move { other.send_with(get("/"), options).await.unwrap().status() });
    until(|| server.requests() == 2).await;
    assert_eq!((own.view().active, queued(&batch)), (1, 2));
    leave.add_permits(4);
    assert!(requests.join_all().await.iter().all(|status| *status == StatusCode::OK));
    assert_eq!((batch.view().counts.accepted, own.view().counts.accepted), (3, 1));
}

#[tokio::test]
async fn one_that_fails_wherever_it_is_sent_gets_its_failure_and_others_are_served() {
    let server = Server::start(Speaks::Http1, |request| match request.uri().path() {
        "/bad" => status(503),
        _ => text("ok"),
    })
    .await;
    let (answered, told) = one_that_fails_among_others(&running(plain_config(), &[&server]).await).await;
    assert_eq!(answered.unwrap(), StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(told.last().unwrap().next, NextStep::GaveUp(NoRetryReason::TooMany));

    let cluster = Cluster::new("test", plain_config(), [brittle().await]);
    tokio::spawn(cluster.run());
    let (answered, told) = one_that_fails_among_others(&cluster).await;
    assert!(matches!(answered, Err(Error::Closed { .. })), "{answered:?}");
    assert_eq!(told.last().unwrap().next, NextStep::GaveUp(NoRetryReason::TooMany));
}

#[tokio::test]
async fn a_sender_in_a_hurry_costs_others_no_credit() {
    for (timeout, said, rejected) in [(20_000, Some("300"), 0), (300, Some("20000"), 1), (300, None, 1)] {
        let (server, _leave) = held(Speaks::Http1).await;
        let mut settings = plain_config();
        settings.requests.request_timeout = Duration::from_millis(timeout);
        let cluster = running(settings, &[&server]).await;
        let batch = Batch::new(config(4));
        let mut request = post(b"");
        if let Some(said) = said {
            request.headers_mut().insert("x-envoy-expected-rq-timeout-ms", said.parse().unwrap());
        }
        let sent = Client::new(&cluster).send_with(request, options(&batch)).await;
        assert!(matches!(sent, Err(Error::Timeout { .. })), "{sent:?}");
        assert_eq!(batch.view().counts.rejected, rejected, "{timeout} ms, and its sender waits for {said:?}");
    }
}

#[tokio::test]
async fn all_of_many_times_what_backends_take_is_served_over_few_connections() {
    for (speaks, protocol) in [(Speaks::Http1, Protocol::Http1), (Speaks::Http2(100), Protocol::Http2)] {
        let ((one, first), (other, second)) = (narrow(speaks, 2).await, narrow(speaks, 1).await);
        let mut settings = plain_config();
        settings.requests.protocol = protocol;
        let cluster = running(settings, &[&one, &other]).await;
        let batch = Batch::new(config(8));
        let client = Client::capped(&cluster, NonZeroUsize::new(8).unwrap());
        let mut requests = JoinSet::new();
        for _ in 0..400 {
            let (client, options) = (client.clone(), options(&batch));
            requests.spawn(async move {
                let response = client.send_with(post(b"something"), options).await.unwrap();
                (response.status(), response.into_body().collect().await.unwrap().to_bytes())
            });
        }
        let open =
            |cluster: &Cluster| -> u64 { cluster.backends().iter().map(|view| view.counts.connections_open()).sum() };
        while let Some(answered) = requests.join_next().await {
            assert_eq!(answered.unwrap(), (StatusCode::OK, Bytes::from_static(b"something")), "{protocol:?}");
            assert!(open(&cluster) <= 8 && batch.view().active <= 8, "{protocol:?}: {}", open(&cluster));
        }
        let refused = first.load(Ordering::SeqCst) + second.load(Ordering::SeqCst);
        let view = batch.view();
        assert_eq!((view.counts.requeued, view.counts.rejected), (refused as u64, refused as u64));
        assert_eq!((view.active, queued(&batch)), (0, 0));
        let counts = cluster.counts();
        assert!(counts.retries.is_empty() && counts.given_up.iter().all(|count| *count == 0), "{counts:?}");
        assert_eq!(cluster.restraint().budget_used.as_f64(), 0.0);
        assert!(cluster.restraint().held.iter().all(|(_, held)| held.as_f64() == 0.0));
    }
}

#[tokio::test]
async fn connections_to_one_backend_make_room_for_those_to_another() {
    let servers = [held(Speaks::Http1).await, held(Speaks::Http1).await, held(Speaks::Http1).await];
    let cluster = running(plain_config(), &servers.each_ref().map(|(server, _)| server)).await;
    let client = Client::capped(&cluster, NonZeroUsize::new(2).unwrap());
    servers.iter().for_each(|(_, leave)| leave.add_permits(100));
    // Round robin, so that each request goes to the next.
    for _ in 0..9 {
        let response = client.send(post(b"")).await.unwrap();
        response.into_body().collect().await.unwrap();
        let open: u64 = cluster.backends().iter().map(|view| view.counts.connections_open()).sum();
        assert!(open <= 2, "{open}");
    }
}

#[tokio::test]
async fn who_goes_away_while_it_waits_leaves_the_queue() {
    let (server, leave) = held(Speaks::Http1).await;
    let cluster = running(plain_config(), &[&server]).await;
    let batch = Batch::new(config(1));
    let client = Client::new(&cluster);
    let send = || {
        let (client, options) = (client.clone(), options(&batch));
        tokio::spawn(async move { client.send_with(post(b""), options).await.unwrap().status() })
    };
    let first = send();
    until(|| server.requests() == 1).await;
    let (gone, stays) = (send(), send());
    until(|| queued(&batch) == 2).await;
    gone.abort();
    until(|| queued(&batch) == 1).await;
    leave.add_permits(2);
    assert_eq!([first.await.unwrap(), stays.await.unwrap()], [StatusCode::OK; 2]);
    assert_eq!(server.requests(), 2);
}

#[tokio::test]
async fn the_less_critical_goes_when_the_queue_is_full_and_is_told_when_to_come_again() {
    let (server, leave) = held(Speaks::Http1).await;
    let cluster = running(plain_config(), &[&server]).await;
    let mut settings = config(1);
    settings.max_queue = 1;
    let batch = Batch::new(settings);
    let client = Client::new(&cluster);
    let send = |criticality| {
        let (client, options) = (client.clone(), options(&batch).with_criticality(criticality));
        tokio::spawn(async move { client.send_with(post(b""), options).await })
    };
    let first = send(Criticality::Sheddable);
    until(|| server.requests() == 1).await;
    let low = send(Criticality::Sheddable);
    until(|| queued(&batch) == 1).await;
    let high = send(Criticality::SheddablePlus);
    let Err(error) = low.await.unwrap() else { panic!("it had to go") };
    assert_eq!((error.shed_reason(), error.nothing_sent()), (Some(Rejection::Overloaded), true));
    assert!(error.retry_after().unwrap() >= Duration::from_secs(1));
    let Err(Error::TurnedAway { waited, .. }) = send(Criticality::SheddablePlus).await.unwrap() else {
        panic!("it is as critical as who waits, and came later")
    };
    assert!(waited < Duration::from_secs(1));
    leave.add_permits(2);
    assert_eq!(first.await.unwrap().unwrap().status(), StatusCode::OK);
    assert_eq!(high.await.unwrap().unwrap().status(), StatusCode::OK);
    assert_eq!(batch.view().counts.full, 2);
}

#[tokio::test]
async fn one_that_waited_long_enough_is_told_why_nobody_took_it() {
    for (reason, expected) in [
        (Rejection::Overloaded, Rejection::Overloaded),
        (Rejection::OverloadedNoRetry, Rejection::Overloaded),
        (Rejection::Throttled, Rejection::Throttled),
        (Rejection::Saturated, Rejection::Saturated),
    ] {
        let server = Server::start(Speaks::Http1, move |_| shed(reason)).await;
        let cluster = running(plain_config(), &[&server]).await;
        let mut settings = config(4);
        settings.queue_timeout = Duration::from_millis(300);
        let batch = Batch::new(settings);
        let mut told: Vec<FailedAttempt> = Vec::new();
        let sent = Client::new(&cluster).send_recording(post(b"x"), options(&batch), &mut told).await;
        let Err(Error::TurnedAway { reason: why, waited, attempts, .. }) = sent else { panic!("{sent:?}") };
        assert_eq!((why, attempts as usize), (expected, server.requests()));
        assert!(waited >= Duration::from_millis(300));
        // Some 50, 100 and 200 ms are between probes.
        assert!((1..=5).contains(&server.requests()), "{} probes", server.requests());
        assert!(told.len() == server.requests() && told.iter().all(|failed| failed.next == NextStep::Queued));
        let view = batch.view();
        assert_eq!((view.timed_out, view.active, queued(&batch)), (1, 0, 0));
    }
}

#[tokio::test]
async fn what_cannot_be_sent_again_is_answered_with_what_the_backend_said() {
    let refusing = Server::start(Speaks::Http1, |_| shed(Rejection::Overloaded)).await;
    let cluster = running(plain_config(), &[&refusing]).await;
    let batch = Batch::new(config(4));
    let client = Client::new(&cluster);
    let long = Request::post("/").body(Full::new(Bytes::from(vec![b'x'; 200_000]))).unwrap();
    let mut told = Vec::new();
    let response = client.send_recording(long, options(&batch), &mut told).await.unwrap();
    let said = Shed::read(response.status(), response.headers()).unwrap();
    assert_eq!(said.reason, Some(Rejection::Overloaded));
    assert_eq!(told[0].next, NextStep::GaveUp(NoRetryReason::BodyIsGone));
    assert_eq!(refusing.requests(), 1);
    response.into_body().collect().await.unwrap();

    // A customer over its quota is so everywhere, and may not throttle any other.
    let quota = Server::start(Speaks::Http1, |_| shed(Rejection::Quota)).await;
    let cluster = running(plain_config(), &[&quota]).await;
    let batch = Batch::new(config(4));
    let response = Client::new(&cluster).send_with(post(b""), options(&batch)).await.unwrap();
    assert_eq!(response.status(), StatusCode::TOO_MANY_REQUESTS);
    response.into_body().collect().await.unwrap();
    assert_eq!((quota.requests(), batch.view().counts.rejected), (1, 0));
}

#[tokio::test]
async fn what_a_backend_may_have_done_comes_back_only_if_it_is_idempotent() {
    for (method, answers) in [(Method::PUT, true), (Method::POST, false)] {
        let count = AtomicUsize::new(0);
        // 503 without a word of why: it may have begun.
        let server = Server::start(Speaks::Http1, move |_| match count.fetch_add(1, Ordering::SeqCst) {
            0 => status(503),
            _ => text("ok"),
        })
        .await;
        let cluster = running(plain_config(), &[&server]).await;
        let batch = Batch::new(config(4));
        let request = Request::builder().method(&method).uri("/").body(Full::new(Bytes::from_static(b"x"))).unwrap();
        let response = Client::new(&cluster).send_with(request, options(&batch)).await.unwrap();
        assert_eq!(response.status() == StatusCode::OK, answers, "{method}");
        assert_eq!(batch.view().counts.rejected, 1, "either way it was turned away");
    }
}

#[tokio::test]
async fn with_no_backend_there_it_waits_until_there_is_one() {
    let cluster = Cluster::new("test", plain_config(), std::iter::empty::<std::net::SocketAddr>());
    tokio::spawn(cluster.run());
    let batch = Batch::new(config(4));
    let client = Client::new(&cluster);
    let sent = {
        let (client, options) = (client.clone(), options(&batch));
        tokio::spawn(async move { client.send_with(post(b""), options).await.unwrap().status() })
    };
    until(|| batch.view().counts.rejected >= 2).await;
    let server = Server::plain().await;
    cluster.follow(Fixed::new([server.address]));
    assert_eq!(sent.await.unwrap(), StatusCode::OK);
}

#[tokio::test]
async fn credit_falls_where_backends_report_more_load_than_the_target() {
    let load = |utilization| LoadReport { application_utilization: utilization, ..LoadReport::default() };
    for (utilization, grows) in [(0.2, true), (0.95, false)] {
        let server = Server::start(Speaks::Http1, move |_| {
            Box::pin(async move {
                tokio::time::sleep(Duration::from_millis(2)).await;
                reporting(load(utilization)).await
            })
        })
        .await;
        let cluster = running(plain_config(), &[&server]).await;
        let batch = Batch::new(config(32));
        let client = Client::new(&cluster);
        let mut requests = JoinSet::new();
        for _ in 0..300 {
            let (client, options) = (client.clone(), options(&batch));
            requests.spawn(async move {
                let response = client.send_with(post(b""), options).await.unwrap();
                response.into_body().collect().await.unwrap();
            });
        }
        requests.join_all().await;
        let view = batch.view();
        assert_eq!(view.credit > 1.2, grows, "{view:?}");
        assert!((view.utilization.unwrap() - utilization).abs() < 1e-6);
    }
}

#[tokio::test]
async fn a_further_attempt_says_how_much_time_is_left_and_not_which_it_is() {
    let seen = Arc::new(std::sync::Mutex::new(Vec::new()));
    let notes = seen.clone();
    let server = Server::start(Speaks::Http1, move |request| {
        let mut notes = notes.lock().unwrap();
        notes.push(request.headers().clone());
        if notes.len() < 3 { shed(Rejection::Overloaded) } else { text("ok") }
    })
    .await;
    let cluster = running(plain_config(), &[&server]).await;
    let batch = Batch::new(config(4));
    let mut request = post(b"x");
    request.headers_mut().insert("x-envoy-expected-rq-timeout-ms", "10000".parse().unwrap());
    assert_eq!(Client::new(&cluster).send_with(request, options(&batch)).await.unwrap().status(), StatusCode::OK);
    let seen = seen.lock().unwrap();
    assert!(seen.iter().all(|headers| !headers.contains_key("x-envoy-attempt-count")));
    let left: Vec<u64> = seen
        .iter()
        .map(|headers| headers["x-envoy-expected-rq-timeout-ms"].to_str().unwrap().parse().unwrap())
        .collect();
    // A rest of 25 ms at least, and one of 50.
    assert!(left.len() == 3 && left[1] + 25 <= left[0] && left[2] + 50 <= left[1], "{left:?}");
}
