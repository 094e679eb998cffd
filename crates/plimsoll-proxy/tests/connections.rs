//! What becomes of clients' connections: limits, reload, drain.
#![allow(clippy::unwrap_used, reason = "a test may fail by it")]

mod support;

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt as _, Empty};
use plimsoll_proxy::Proxy;
use plimsoll_testkit::ports::free_port;
use support::*;
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;
use tokio::sync::mpsc;

const GET: &str = "GET / HTTP/1.1\r\nhost: a\r\n\r\n";

/// A backend whose answers are written by hand, and the hands, in the order in which requests came.
async fn held() -> (Backend, mpsc::UnboundedReceiver<Hand>) {
    let (give, hands) = mpsc::unbounded_channel();
    let backend = Backend::start(move |_| {
        let (hand, body) = by_hand();
        give.send(hand).unwrap();
        async move { Response::new(body.boxed()) }
    })
    .await;
    (backend, hands)
}

async fn echoing(listener: &str) -> (Backend, Arc<Proxy>) {
    let backend = Backend::echo().await;
    let proxy = start(&config(backend.address, listener, "")).await;
    (backend, proxy)
}

#[tokio::test]
async fn reload_keeps_connections_and_requests_in_flight() {
    let (backend, mut hands) = held().await;
    let text = config(backend.address, "", "");
    let proxy = start(&text).await;
    let mut client = Raw::to(address_of(&proxy, "main")).await;
    client.send(GET).await;
    let hand = soon(hands.recv()).await.unwrap();
    hand.send(data("before ")).unwrap();
    assert!(client.head().await.starts_with("http/1.1 200"));
    let opened = backend.connections();
    for policy in ["p2c", "round-robin"] {
        proxy
            .reload(parse(&text.replace("[clusters.c]", &format!("[clusters.c]\npolicy = \"{policy}\""))))
            .await
            .unwrap();
    }
    hand.send(data("after")).unwrap();
    drop(hand);
    let body = client.up_to("0\r\n\r\n").await;
    assert!(body.contains("before ") && body.contains("after"), "{body}");
    client.send(GET).await;
    drop(soon(hands.recv()).await.unwrap());
    assert_eq!(client.answer_to("GET").await.status, 200);
    assert_eq!(backend.connections(), opened, "the pool was kept too");
}

#[tokio::test]
async fn requests_in_flight_at_a_removed_cluster_and_backend_finish() {
    let (backend, mut hands) = held().await;
    let other = Backend::echo().await;
    for removed in ["cluster", "backend"] {
        let text = config(backend.address, "", "");
        let proxy = start(&text).await;
        let mut client = Raw::to(address_of(&proxy, "main")).await;
        client.send(GET).await;
        let hand = soon(hands.recv()).await.unwrap();
        let mut next = config(other.address, "", "");
        if removed == "cluster" {
            next = next.replace("clusters.c]", "clusters.d]").replace("\"c\"", "\"d\"");
        }
        proxy.reload(parse(&next)).await.unwrap();
        hand.send(data("still here")).unwrap();
        drop(hand);
        assert_eq!(client.answer_to("GET").await.body, "still here", "{removed}");
        until(|| {
            let health = proxy.clusters()[0].backends()[0].snapshot.state;
            health == plimsoll_core::health::State::Healthy
        })
        .await;
        assert!(client.ask(GET).await.body.starts_with("GET /"), "{removed}");
    }
}

#[tokio::test]
async fn removed_listener_lets_go_and_added_one_serves() {
    let backend = Backend::echo().await;
    let (first, second) = (free_port(), free_port());
    let text = |port: u16| {
        config(backend.address, "", "")
            .replace("127.0.0.1:0", &format!("127.0.0.1:{port}"))
            .replace("threads = 1", "threads = 2")
    };
    let proxy = start(&text(first)).await;
    let mut idle = Raw::to(address_of(&proxy, "main")).await;
    assert_eq!(idle.ask(GET).await.status, 200);
    proxy.reload(parse(&text(second))).await.unwrap();
    assert_eq!(address_of(&proxy, "main").port(), second);
    let last = idle.ask(GET).await;
    assert!(last.status == 200 && last.head.contains("connection: close"), "{last:?}");
    assert_eq!(idle.rest().await, "", "closed");
    soon(async { while TcpStream::connect(("127.0.0.1", first)).await.is_ok() {} }).await;
    let mut added = Raw::to(address_of(&proxy, "main")).await;
    assert_eq!(added.ask(GET).await.status, 200);
}

#[tokio::test]
async fn request_in_flight_at_a_removed_listener_finishes_and_its_connection_ends() {
    let (backend, mut hands) = held().await;
    let text = |port: u16| {
        config(backend.address, "", "[drain]\ntimeout = \"200ms\"").replace("127.0.0.1:0", &format!("127.0.0.1:{port}"))
    };
    let proxy = start(&text(free_port())).await;
    let mut one = Raw::to(address_of(&proxy, "main")).await;
    one.send(GET).await;
    let first = soon(hands.recv()).await.unwrap();
    let (mut two, ended) = http2::<Empty<Bytes>>(address_of(&proxy, "main")).await;
    let second = two.send_request(Request::get("http://a/").body(Empty::new()).unwrap());
    let (second, hand) = soon(async { tokio::join!(second, hands.recv()) }).await;
    proxy.reload(parse(&text(free_port()))).await.unwrap();
    for hand in [first, hand.unwrap()] {
        hand.send(data("whole")).unwrap();
    }
    assert!(one.rest().await.ends_with("whole\r\n0\r\n\r\n"));
    let body = soon(second.unwrap().into_body().collect()).await.unwrap().to_bytes();
    assert_eq!(body, "whole");
    soon(ended).await.unwrap();
}

#[tokio::test]
async fn changed_limits_apply_to_new_connections() {
    let (_backend, proxy) = echoing("max_body = \"1KiB\"").await;
    let text = proxy.config().print();
    let post = format!("POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 2000\r\n\r\n{}", "x".repeat(2000));
    let mut old = Raw::to(address_of(&proxy, "main")).await;
    assert_eq!(old.ask(&post).await.status, 413);
    proxy.reload(parse(&text.replace("max_body = \"1KiB\"", "max_body = \"4KiB\""))).await.unwrap();
    assert_eq!(old.ask(&post).await.status, 413, "as it was when the connection came");
    let mut new = Raw::to(address_of(&proxy, "main")).await;
    assert_eq!(new.ask(&post).await.status, 200);
}

#[tokio::test]
async fn slow_head_and_idle_connection_end_and_a_silent_http2_connection_does_not_by_the_limit_for_heads() {
    let (_backend, proxy) = echoing("header_read_timeout = \"100ms\"\nidle_timeout = \"20s\"").await;
    let (mut two, _ended) = http2::<Empty<Bytes>>(address_of(&proxy, "main")).await;
    let begun = Instant::now();
    let mut slow = Raw::to(address_of(&proxy, "main")).await;
    slow.send("GET / HTTP/1.1\r\nho").await;
    assert!(slow.rest().await.starts_with("HTTP/1.1 408 "));
    assert!(begun.elapsed() >= Duration::from_millis(100));
    // A further one, so that the limit has passed for the HTTP/2 connection whenever it looks.
    let mut slow = Raw::to(address_of(&proxy, "main")).await;
    assert_eq!(slow.ask(GET).await.status, 200);
    slow.send("GET / HTTP/1.1\r\nho").await;
    assert!(slow.rest().await.starts_with("HTTP/1.1 408 "));
    assert!(!two.is_closed());
    let response = soon(two.send_request(Request::get("http://a/").body(Empty::new()).unwrap())).await.unwrap();
    assert_eq!(response.status(), 200);

    let (_backend, proxy) = echoing("header_read_timeout = \"100ms\"\nidle_timeout = \"100ms\"").await;
    let mut idle = Raw::to(address_of(&proxy, "main")).await;
    assert_eq!(idle.ask(GET).await.status, 200);
    assert_eq!(idle.rest().await, "");
    let (_two, ended) = http2::<Empty<Bytes>>(address_of(&proxy, "main")).await;
    soon(ended).await.unwrap();
    until(|| proxy.listeners()[0].connections == 0).await;
}

#[tokio::test]
async fn request_that_takes_longer_than_the_idle_limit_is_left_alone() {
    let (backend, mut hands) = held().await;
    let limits = "header_read_timeout = \"50ms\"\nidle_timeout = \"50ms\"";
    let proxy = start(&config(backend.address, limits, "")).await;
    let mut client = Raw::to(address_of(&proxy, "main")).await;
    client.send(GET).await;
    let hand = soon(hands.recv()).await.unwrap();
    for _ in 0..3 {
        let mut idle = Raw::to(address_of(&proxy, "main")).await;
        assert_eq!(idle.rest().await, "");
    }
    hand.send(data("late")).unwrap();
    drop(hand);
    assert_eq!(client.answer_to("GET").await.body, "late");
}

#[tokio::test]
async fn client_that_takes_nothing_of_its_answer_is_let_go() {
    let backend = Backend::start(|_| async { Response::new(full(vec![0; 64 << 20])) }).await;
    let proxy = start(&config(backend.address, "idle_timeout = \"100ms\"", "")).await;
    let mut client = TcpStream::connect(address_of(&proxy, "main")).await.unwrap();
    client.write_all(GET.as_bytes()).await.unwrap();
    until(|| backend.requests() == 1).await;
    until(|| active(&proxy) == 0 && proxy.listeners()[0].connections == 0).await;
    let counts = proxy.cluster("c").unwrap().backends()[0].counts;
    assert_eq!(counts.cancelled, 1);
}

#[tokio::test]
async fn connections_beyond_the_limit_wait_for_room_on_any_thread() {
    let backend = Backend::echo().await;
    let text =
        config(backend.address, "max_connections = 1\nidle_timeout = \"1h\"", "").replace("threads = 1", "threads = 3");
    let proxy = start(&text).await;
    let address = address_of(&proxy, "main");
    // The kernel puts each on some thread: none may find the only seat taken by a thread that has no connection.
    for _ in 0..12 {
        let mut client = Raw::to(address).await;
        assert_eq!(client.ask(GET).await.status, 200);
        drop(client);
        until(|| proxy.listeners()[0].connections == 0).await;
    }
    let mut first = Raw::to(address).await;
    assert_eq!(first.ask(GET).await.status, 200);
    let mut waiting = Vec::new();
    for _ in 0..6 {
        let mut client = Raw::to(address).await;
        client.send(GET).await;
        waiting.push(client);
    }
    assert_eq!(first.ask(GET).await.status, 200, "the first goes on");
    assert_eq!(proxy.listeners()[0].connections, 1);
    assert_eq!(backend.requests(), 14);
    drop(first);
    let mut served = tokio::task::JoinSet::new();
    for mut client in waiting {
        served.spawn(async move { client.answer_to("GET").await.status });
    }
    // Each gives its seat to another.
    while let Some(status) = served.join_next().await {
        assert_eq!(status.unwrap(), 200);
    }
}

#[tokio::test]
async fn idle_connections_make_room_for_who_comes_to_a_full_listener() {
    let backend = Backend::echo().await;
    let proxy = start(&config(backend.address, "max_connections = 10\nheader_read_timeout = \"400ms\"", "")).await;
    let address = address_of(&proxy, "main");
    let mut idle = Vec::new();
    for _ in 0..5 {
        let mut one = Raw::to(address).await;
        assert_eq!(one.ask(GET).await.status, 200);
        let (mut two, ended) = http2::<Empty<Bytes>>(address).await;
        soon(two.send_request(Request::get("http://a/").body(Empty::new()).unwrap())).await.unwrap();
        idle.push((one, two, ended));
    }
    assert_eq!((proxy.listeners()[0].connections, proxy.listeners()[0].waited), (10, 0));
    // Each may be idle for 75 s.
    for _ in 0..3 {
        assert_eq!(soon(Raw::to(address).await.ask(GET)).await.status, 200);
    }
    let listener = &proxy.listeners()[0];
    assert!(listener.waited >= 1 && listener.ended.iter().any(|(why, count)| *why == "idle" && *count >= 1));
}

#[tokio::test]
async fn raised_limit_lets_those_in_who_wait() {
    let backend = Backend::echo().await;
    let text = config(backend.address, "max_connections = 1\nidle_timeout = \"1h\"", "");
    let proxy = start(&text).await;
    let mut first = Raw::to(address_of(&proxy, "main")).await;
    assert_eq!(first.ask(GET).await.status, 200);
    let mut second = Raw::to(address_of(&proxy, "main")).await;
    second.send(GET).await;
    assert_eq!(first.ask(GET).await.status, 200);
    assert_eq!(backend.requests(), 2);
    proxy.reload(parse(&text.replace("max_connections = 1", "max_connections = 2"))).await.unwrap();
    assert_eq!(second.answer_to("GET").await.status, 200);
}

/// Two clients with a streaming answer each, on both protocols, while the proxy drains.
#[tokio::test]
async fn drain_finishes_streams_and_sends_clients_away() {
    let (backend, mut hands) = held().await;
    let drain = "[drain]\nannounce = \"1ms\"\ntimeout = \"20s\"\n";
    let text = config(backend.address, "", "").replace("[[listeners]]", &format!("{drain}[[listeners]]"));
    let proxy = start(&text).await;
    let address = address_of(&proxy, "main");
    let mut one = Raw::to(address).await;
    one.send(GET).await;
    let first = soon(hands.recv()).await.unwrap();
    first.send(data("begun ")).unwrap();
    assert!(!one.head().await.contains("connection: close"));
    let (mut two, ended) = http2::<Empty<Bytes>>(address).await;
    let second = two.send_request(Request::get("http://a/").body(Empty::new()).unwrap());
    let (response, second) = soon(async { tokio::join!(second, hands.recv()) }).await;
    let mut idle = Raw::to(address).await;
    idle.send(GET).await;
    drop(soon(hands.recv()).await.unwrap());
    assert_eq!(idle.answer_to("GET").await.status, 200);
    let mut silent = Raw::to(address).await;

    let draining = tokio::spawn({
        let proxy = Arc::clone(&proxy);
        async move { proxy.drain().await }
    });
    until(|| !proxy.is_ready()).await;
    assert!(proxy.reload(parse(&text)).await.is_err());
    // GOAWAY: the connection soon takes no more requests, and the one on it goes on.
    soon(async {
        loop {
            let request = Request::get("http://a/").body(Empty::new()).unwrap();
            tokio::select! {
                answer = two.send_request(request) => if answer.is_err() { break },
                hand = hands.recv() => drop(hand),
            }
        }
    })
    .await;
    idle.send(GET).await;
    drop(soon(hands.recv()).await.unwrap());
    assert!(idle.head().await.contains("connection: close"));
    let mut late = Raw::to(address).await;
    late.send(GET).await;
    drop(soon(hands.recv()).await.unwrap());
    assert!(late.answer_to("GET").await.head.contains("connection: close"));
    assert!(!draining.is_finished());

    first.send(data("ended")).unwrap();
    drop(first);
    assert!(one.up_to("0\r\n\r\n").await.ends_with("ended\r\n0\r\n\r\n"));
    let second = second.unwrap();
    second.send(data("ended")).unwrap();
    drop(second);
    assert_eq!(soon(response.unwrap().into_body().collect()).await.unwrap().to_bytes(), "ended");
    soon(ended).await.unwrap();
    soon(draining).await.unwrap();
    assert_eq!(silent.rest().await, "");
    assert_eq!(one.rest().await, "");
    assert!(TcpStream::connect(address).await.is_err());
}

#[tokio::test]
async fn answer_on_its_way_to_a_slow_client_is_not_cut_by_the_drain() {
    const LENGTH: usize = 16 << 20;
    let backend = Backend::start(|_| async { Response::new(full(vec![b'x'; LENGTH])) }).await;
    let drain = "[drain]\nannounce = \"1ms\"\ntimeout = \"20s\"\n";
    let text = config(backend.address, "", "").replace("[[listeners]]", &format!("{drain}[[listeners]]"));
    let proxy = start(&text).await;
    let mut client = Raw::to(address_of(&proxy, "main")).await;
    client.send(GET).await;
    client.head().await;
    let draining = tokio::spawn({
        let proxy = Arc::clone(&proxy);
        async move { proxy.drain().await }
    });
    until(|| !proxy.is_ready()).await;
    assert_eq!(client.rest().await.len(), LENGTH);
    soon(draining).await.unwrap();
}
