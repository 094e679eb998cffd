//! Requests that the proxy sends again, and requests that it holds back, as their clients and `explain` see them.
#![allow(clippy::unwrap_used, reason = "a test may fail by it")]

mod support;

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use http::{HeaderMap, Request, Response, StatusCode};
use hyper::body::Incoming;
use plimsoll::client::{NextStep, NoRetryReason};
use plimsoll_core::Criticality;
use plimsoll_proxy::Proxy;
use plimsoll_proxy::explain::{Explanation, Kind};
use support::*;
use tokio::io::AsyncReadExt as _;
use tokio::net::TcpListener;

/// Turns all away, in the words of a gate.
async fn overloaded() -> Backend {
    Backend::start(|_: Request<Incoming>| async {
        let mut response = Response::new(full("no room"));
        *response.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
        let said = "reason=overloaded, retry=elsewhere".parse().unwrap();
        response.headers_mut().extend(HeaderMap::from_iter([("x-plimsoll-shed".parse().unwrap(), said)]));
        response
    })
    .await
}

fn text(backends: &[SocketAddr], listener: &str, cluster: &str) -> String {
    let backends: Vec<String> = backends.iter().map(|address| format!("\"{address}\"")).collect();
    format!(
        "threads = 1\n[[listeners]]\naddress = \"127.0.0.1:0\"\nname = \"main\"\n{listener}\n[[routes]]\ncluster = \
         \"c\"\n[clusters.c]\nbackends = [{}]\npolicy = \"round-robin\"\n{cluster}\n",
        backends.join(", ")
    )
}

async fn ask(proxy: &Proxy, fields: &str) -> Answered {
    let mut client = Raw::to(address_of(proxy, "main")).await;
    client.ask(&format!("GET / HTTP/1.1\r\nhost: a\r\n{fields}\r\n")).await
}

fn explained(proxy: &Proxy, id: &str) -> Arc<Explanation> {
    proxy.explanations().into_iter().find(|known| known.id.as_str() == id).unwrap()
}

#[tokio::test]
async fn a_request_that_is_turned_away_everywhere_is_told_attempt_by_attempt() {
    let backends = [overloaded().await, overloaded().await];
    let addresses = backends.each_ref().map(|backend| backend.address);
    let proxy = start(&text(&addresses, "", "")).await;
    let answer = ask(&proxy, "x-request-id: mine\r\n").await;
    assert_eq!(answer.status, 503);
    assert!(answer.head.contains("x-plimsoll-shed: reason=overloaded-no-retry, retry=never\r\n"), "{}", answer.head);
    let known = explained(&proxy, "mine");
    assert_eq!((known.end.kind, known.end.word()), (Kind::Failed, Some("overloaded-no-retry")));
    let next: Vec<_> = known.failed.iter().map(|failed| (failed.failure.reason(), failed.next)).collect();
    assert_eq!(next, [("overloaded", NextStep::Retried), ("overloaded", NextStep::GaveUp(NoRetryReason::NoOther))]);
    assert!(
        addresses.iter().all(|address| known.failed.iter().any(|failed| failed.backend == Some((*address).into())))
    );
}

#[tokio::test]
async fn a_request_that_is_served_elsewhere_counts_as_retried() {
    let (full, well) = (overloaded().await, Backend::echo().await);
    let proxy = start(&text(&[full.address, well.address], "", "[explain]\nsample = 0")).await;
    for number in 0..4 {
        let answer = ask(&proxy, &format!("x-request-id: r{number}\r\n")).await;
        assert_eq!(answer.status, 200);
    }
    let known = proxy.explanations();
    assert!(!known.is_empty() && known.iter().all(|known| known.end.kind == Kind::Retried));
    assert!(known.iter().all(|known| known.end.backend == Some(well.address.into()) && known.failed.len() == 1));
}

#[tokio::test]
async fn a_reload_switches_retries_off_and_answers_pass_as_they_come() {
    let backends = [overloaded().await, overloaded().await];
    let addresses = backends.each_ref().map(|backend| backend.address);
    let proxy = start(&text(&addresses, "", "")).await;
    assert!(ask(&proxy, "").await.head.contains("overloaded-no-retry"));
    proxy.reload(parse(&text(&addresses, "", "[clusters.c.retry]\nmax_attempts = 1"))).await.unwrap();
    let answer = ask(&proxy, "").await;
    assert!(answer.head.contains("x-plimsoll-shed: reason=overloaded, retry=elsewhere\r\n"), "{}", answer.head);
}

/// A request that kills whoever reads it. Were each layer to try it three times, it would be read nine times.
#[tokio::test]
async fn a_request_that_breaks_each_backend_is_tried_by_the_layer_above_them_alone() {
    let read = Arc::new(AtomicUsize::new(0));
    let mut crashing = Vec::new();
    for _ in 0..3 {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        crashing.push(listener.local_addr().unwrap());
        let read = read.clone();
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                if stream.read(&mut [0; 4096]).await.is_ok_and(|bytes| bytes > 0) {
                    read.fetch_add(1, Ordering::SeqCst);
                }
            }
        });
    }
    let lazy = "min_connections = 0\n[clusters.c.health]\ncheck = \"none\"";
    let inner = [start(&text(&crashing, "", lazy)).await, start(&text(&crashing, "", lazy)).await];
    let outer = start(&text(&inner.each_ref().map(|proxy| address_of(proxy, "main")), "", lazy)).await;
    let answer = ask(&outer, "").await;
    assert_eq!((answer.status, read.load(Ordering::SeqCst)), (502, 3), "{}", answer.head);
    assert!(answer.head.contains("x-plimsoll-shed: retry=never\r\n"), "{}", answer.head);
}

/// What a stranger claims is not believed: it does not get a history of its own.
#[tokio::test]
async fn what_is_held_back_is_answered_here_by_what_the_listener_believes() {
    let backend = overloaded().await;
    let proxy = start(&text(&[backend.address], "", "")).await;
    // As many as make chance small: what is held back is drawn, and settles near nine of ten.
    let mut held = 0;
    for _ in 0..400 {
        let answer = ask(&proxy, "x-criticality: critical-plus\r\n").await;
        assert_eq!(answer.status, 503);
        if answer.head.contains("x-plimsoll-shed: reason=throttled, retry=never\r\n") {
            assert!(answer.head.contains("x-request-id: "), "{}", answer.head);
            held += 1;
        }
    }
    assert!(held > 200, "{held}");
    let counts = proxy.cluster("c").unwrap().counts();
    assert_eq!(counts.throttled[Criticality::Critical.rank()], held);
    assert_eq!(counts.throttled.iter().sum::<u64>(), held);
    assert!(proxy.explanations().iter().any(|known| known.end.word() == Some("throttled")));

    // Where senders are one's own, the less critical may be held back alone.
    let proxy = start(&text(&[backend.address], "trust_criticality = \"critical-plus\"", "")).await;
    for _ in 0..400 {
        ask(&proxy, "x-criticality: sheddable\r\n").await;
    }
    let counts = proxy.cluster("c").unwrap().counts();
    assert!(counts.throttled[Criticality::Sheddable.rank()] > 200);
    assert!(!ask(&proxy, "x-criticality: critical\r\n").await.head.contains("throttled"));
}

/// Backends that hear of many retries tell everybody not to try again.
#[tokio::test]
async fn a_stranger_does_not_say_that_it_has_tried_before() {
    let backend = Backend::echo().await;
    for (listener, is_believed) in [
        ("", false),
        ("criticality = \"critical-plus\"", false),
        ("trust_criticality = \"off\"", false),
        ("trust_criticality = \"sheddable\"", false),
        ("trust_criticality = \"critical\"", false),
        ("trust_criticality = \"critical-plus\"", true),
        ("criticality = \"sheddable\"\ntrust_criticality = \"critical\"", true),
    ] {
        let proxy = start(&text(&[backend.address], listener, "")).await;
        let fields = "x-envoy-attempt-count: 2\r\nx-envoy-attempt-count: 3\r\ngrpc-previous-rpc-attempts: 1\r\n\
                      x-envoy-expected-rq-timeout-ms: 5000\r\n";
        let answer = ask(&proxy, fields).await;
        assert_eq!(answer.status, 200);
        for name in ["x-envoy-attempt-count", "grpc-previous-rpc-attempts"] {
            assert_eq!(answer.body.contains(name), is_believed, "{listener}: {}", answer.body);
        }
        assert!(answer.body.contains("x-envoy-expected-rq-timeout-ms"), "{listener}: {}", answer.body);
    }
}

/// Nor does what it says go on in the proxy's own further attempts.
#[tokio::test]
async fn a_further_attempt_does_not_count_from_what_a_stranger_says() {
    let (refuses, serves) = (overloaded().await, Backend::echo().await);
    let proxy = start(&text(&[refuses.address, serves.address], "criticality = \"critical-plus\"", "")).await;
    let mut numbers = Vec::new();
    for _ in 0..4 {
        let answer = ask(&proxy, "x-envoy-attempt-count: 4000000000\r\n").await;
        assert_eq!(answer.status, 200);
        numbers.extend(answer.body.lines().filter(|line| line.contains("x-envoy-attempt-count")).map(str::to_owned));
    }
    assert!(!numbers.is_empty(), "some of them were sent again");
    assert!(numbers.iter().all(|line| line.ends_with(": 2")), "{numbers:?}");
}
