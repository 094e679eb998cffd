//! Slots at backends: their holders, their preemption, and how long one is kept.
#![allow(clippy::unwrap_used, reason = "a test may fail by it")]

mod support;

use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Empty};
use hyper::body::Incoming;
use plimsoll::client::{Client, Cluster, Error, Protocol, RequestOptions, ResponseBody, Upgraded};
use plimsoll_core::slots::Holder;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio::sync::{Notify, Semaphore};
use tokio::task::JoinHandle;
use tokio::time::timeout;

use support::*;

/// A request that has not ended by then never does, however busy the machine.
const NEVER: Duration = Duration::from_secs(15);

const PROTOCOLS: [(Protocol, Speaks); 2] = [(Protocol::Http1, Speaks::Http1), (Protocol::Http2, Speaks::Http2(100))];

fn client_number(number: u64) -> RequestOptions {
    // Both counters and the line of a holder are given by different bits of its hash.
    RequestOptions::default().on_behalf_of(Holder::new(number.wrapping_mul(0x9E37_79B9_7F4A_7C15)))
}

async fn cluster(protocol: Protocol, slots: u32, server: &Server) -> Cluster {
    let mut config = plain_config();
    config.balancer.max_active_requests = NonZeroU32::new(slots).unwrap();
    config.requests.protocol = protocol;
    config.requests.queue_timeout = NEVER;
    running(config, &[server]).await
}

fn send(
    client: &Client<Body>,
    client_number: RequestOptions,
    request: Request<Body>,
) -> JoinHandle<Result<Response<ResponseBody>, Error>> {
    let client = client.clone();
    tokio::spawn(async move { client.send_with(request, client_number).await })
}

fn request(path: &str) -> Request<Body> {
    Request::get(format!("http://h{path}")).body(Empty::new().boxed()).unwrap()
}

/// Answers when it has the whole request; at `/large` with more than fits into any buffer.
fn echo(request: Request<Incoming>) -> Answer {
    if request.uri().path() == "/large" {
        return text(LARGE.get_or_init(|| "x".repeat(8 << 20)));
    }
    Box::pin(async move {
        let _ = request.into_body().collect().await;
        text("ok").await
    })
}

static LARGE: std::sync::OnceLock<String> = std::sync::OnceLock::new();

#[tokio::test]
async fn client_at_its_limit_ends_no_paused_upload_of_another() {
    let server = Server::start(Speaks::Http1, echo).await;
    let mut config = plain_config();
    config.max_active_requests_per_client = NonZeroU32::new(1);
    config.requests.queue_timeout = Duration::from_secs(3);
    let cluster = running(config, &[&server]).await;
    let client = Client::new(&cluster);
    let upload = |number| {
        let (pieces, body) = by_hand();
        pieces.send(Bytes::from_static(b"x")).unwrap();
        (pieces, send(&client, client_number(number), Request::post("http://h/").body(body).unwrap()))
    };
    let (_others_pieces, others) = upload(1);
    until(|| active(&cluster) == 1).await;
    let (own_pieces, own) = upload(2);
    until(|| active(&cluster) == 2).await;

    // Both uploads pause. Only the end of its own helps a client at its limit.
    let answer = timeout(NEVER, client.send_with(request("/"), client_number(2))).await.expect("it has its turn");
    assert_eq!(answer.unwrap().status(), StatusCode::OK);
    assert!(own.await.unwrap().is_err());
    drop(own_pieces);
    assert!(!others.is_finished());
}

#[tokio::test]
async fn upload_that_pauses_ends_for_a_waiting_request() {
    for (protocol, speaks) in PROTOCOLS {
        let server = Server::start(speaks, echo).await;
        let cluster = cluster(protocol, 1, &server).await;
        let client = Client::new(&cluster);
        let (pieces, body) = by_hand();
        pieces.send(Bytes::from_static(b"x")).unwrap();
        let upload = send(&client, client_number(1), Request::post("http://h/").body(body).unwrap());
        until(|| active(&cluster) == 1).await;

        let answer = timeout(NEVER, client.send_with(request("/"), client_number(2))).await.expect("it has its turn");
        assert_eq!(answer.unwrap().status(), StatusCode::OK);
        assert!(matches!(upload.await.unwrap(), Err(Error::Preempted)));
        assert_eq!(cluster.counts().preempted, 1);
        until(|| active(&cluster) == 0).await;
        let view = view_of(&cluster, server.address);
        assert_eq!((view.snapshot.failures, view.counts.cancelled), (0, 1), "the backend is not blamed");
    }
}

#[tokio::test]
async fn upload_that_pauses_goes_on_while_slots_are_free() {
    for (protocol, speaks) in PROTOCOLS {
        let server = Server::start(speaks, echo).await;
        let cluster = cluster(protocol, 2, &server).await;
        let client = Client::new(&cluster);
        let (pieces, body) = by_hand();
        pieces.send(Bytes::from_static(b"x")).unwrap();
        let upload = send(&client, client_number(1), Request::post("http://h/").body(body).unwrap());
        until(|| active(&cluster) == 1).await;
        // Longer than the debt that ends a request.
        tokio::time::sleep(Duration::from_millis(1_200)).await;
        assert_eq!(client.send_with(request("/"), client_number(2)).await.unwrap().status(), StatusCode::OK);
        drop(pieces);
        assert_eq!(upload.await.unwrap().unwrap().status(), StatusCode::OK);
        assert_eq!(cluster.counts().preempted, 0);
    }
}

#[tokio::test]
async fn response_that_nobody_reads_ends_for_a_waiting_request() {
    for (protocol, speaks) in PROTOCOLS {
        let server = Server::start(speaks, echo).await;
        let cluster = cluster(protocol, 1, &server).await;
        let client = Client::new(&cluster);
        let mut unread = client.send_with(request("/large"), client_number(1)).await.unwrap().into_body();
        assert!(unread.frame().await.unwrap().is_ok());

        let answer = timeout(NEVER, client.send_with(request("/"), client_number(2))).await.expect("it has its turn");
        assert_eq!(answer.unwrap().status(), StatusCode::OK);
        let rest = unread.collect().await;
        assert!(matches!(rest, Err(Error::Preempted)), "a part must not look like the whole");
    }
}

#[tokio::test]
async fn response_that_is_read_goes_on_while_others_wait() {
    for (protocol, speaks) in PROTOCOLS {
        let (frames, body) = by_hand();
        let body = std::sync::Mutex::new(Some(body));
        let server = Server::start(speaks, move |_| match body.lock().unwrap().take() {
            Some(body) => now(Response::new(body)),
            None => text("ok"),
        })
        .await;
        let cluster = cluster(protocol, 1, &server).await;
        let client = Client::new(&cluster);
        let mut events = client.send_with(request("/"), client_number(1)).await.unwrap().into_body();
        frames.send(Bytes::from_static(b"one")).unwrap();
        assert!(events.frame().await.unwrap().is_ok());
        let other = send(&client, client_number(2), request("/"));
        until(|| cluster.waiting() == 1).await;
        // It waits for the backend and not for its reader, for longer than the debt that would end
        // it.
        assert!(timeout(Duration::from_millis(1_500), events.frame()).await.is_err());
        frames.send(Bytes::from_static(b"two")).unwrap();
        drop(frames);
        assert_eq!(events.collect().await.unwrap().to_bytes(), "two");
        assert_eq!(other.await.unwrap().unwrap().status(), StatusCode::OK);
        assert_eq!(cluster.counts().preempted, 0);
    }
}

#[tokio::test]
async fn client_with_many_slow_requests_leaves_slots_for_others() {
    let release = Arc::new(Semaphore::new(0));
    let gate = release.clone();
    let server = Server::start(Speaks::Http1, move |request| {
        let gate = gate.clone();
        Box::pin(async move {
            if request.uri().path() == "/slow" {
                gate.acquire().await.unwrap().forget();
            }
            text("ok").await
        })
    })
    .await;
    let cluster = cluster(Protocol::Http1, 36, &server).await;
    let client = Client::new(&cluster);
    // Two are seen, so that neither may take all.
    for number in 1..=2 {
        client.send_with(request("/"), client_number(number)).await.unwrap();
    }
    let greedy: Vec<_> = (0..50).map(|_| send(&client, client_number(1), request("/slow"))).collect();
    until(|| active(&cluster) + cluster.waiting() as u32 == 50).await;
    assert_eq!(active(&cluster), 32, "eight ninths of 36, and the rest wait");

    let answer = timeout(NEVER, client.send_with(request("/"), client_number(2))).await.expect("a slot is free");
    assert_eq!(answer.unwrap().status(), StatusCode::OK);
    assert_eq!(cluster.waiting(), 18);
    release.add_permits(50);
    for request in greedy {
        request.await.unwrap().unwrap();
    }
}

/// A backend that carries each request out until it is told to go on, though nobody waits for it
/// any more.
#[tokio::test]
async fn request_of_a_client_that_left_keeps_its_slot_until_the_backend_is_done() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let server = listener.local_addr().unwrap();
    let (begun, done) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let (begins, ends) = (begun.clone(), done.clone());
    tokio::spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            let (begins, ends) = (begins.clone(), ends.clone());
            tokio::spawn(async move {
                let mut head = [0; 1024];
                while let Ok(1..) = stream.read(&mut head).await {
                    begins.notify_one();
                    ends.notified().await;
                    stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok").await.unwrap();
                }
            });
        }
    });
    let mut config = plain_config();
    config.balancer.max_active_requests = NonZeroU32::MIN;
    let cluster = Cluster::new("test", config, [server]);
    tokio::spawn(cluster.run());
    until(|| state_of(&cluster, server) == plimsoll_core::health::State::Healthy).await;
    let client = Client::new(&cluster);

    let abandoned = send(&client, client_number(1), request("/"));
    begun.notified().await;
    abandoned.abort();
    assert!(abandoned.await.unwrap_err().is_cancelled());
    let next = send(&client, client_number(1), request("/"));
    until(|| cluster.waiting() == 1).await;
    assert_eq!(active(&cluster), 1, "the backend still works on it");
    done.notify_one();
    begun.notified().await;
    assert_eq!((active(&cluster), cluster.waiting()), (1, 0), "the next one has its slot");
    done.notify_one();
    assert_eq!(next.await.unwrap().unwrap().status(), StatusCode::OK);
}

/// Requests that a drained backend still has do not keep others from a second backend.
#[tokio::test]
async fn slots_of_a_drained_backend_are_not_counted_against_the_others() {
    let release = Arc::new(Semaphore::new(0));
    let gate = release.clone();
    let slow = Server::start(Speaks::Http1, move |_| {
        let gate = gate.clone();
        Box::pin(async move {
            gate.acquire().await.unwrap().forget();
            text("ok").await
        })
    })
    .await;
    let quick = Server::start(Speaks::Http1, echo).await;
    let mut config = plain_config();
    config.balancer.max_active_requests = NonZeroU32::new(20).unwrap();
    let cluster = running(config, &[&slow]).await;
    let client = Client::new(&cluster);
    let held: Vec<_> = (0..20).map(|number| send(&client, client_number(1 + number % 2), request("/"))).collect();
    until(|| active(&cluster) + cluster.waiting() as u32 == 20).await;
    let endpoints = [&slow, &quick].map(|server| plimsoll::discover::Endpoint::new(server.address)).to_vec();
    cluster.follow(plimsoll::discover::Fixed::new(endpoints));
    until(|| state_of(&cluster, quick.address) == plimsoll_core::health::State::Healthy).await;
    assert!(cluster.drain(slow.address));
    // Both clients hold nearly as many slots as there are at the backend that is left.
    for number in 1..=2 {
        let answer =
            timeout(NEVER, client.send_with(request("/"), client_number(number))).await.expect("a slot is free");
        assert_eq!(answer.unwrap().status(), StatusCode::OK);
    }
    release.add_permits(held.len());
    for request in held {
        request.await.unwrap().unwrap();
    }
}

/// The client of this tunnel reads nothing, so nothing is read from its backend either. The tunnel
/// must learn of its preemption all the same.
#[tokio::test]
async fn tunnel_whose_client_reads_nothing_ends_for_a_waiting_request() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let server = listener.local_addr().unwrap();
    tokio::spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            tokio::spawn(async move {
                let mut head = [0; 1024];
                while let Ok(read @ 1..) = stream.read(&mut head).await {
                    if !String::from_utf8_lossy(&head[..read]).contains("upgrade") {
                        stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok").await.unwrap();
                        continue;
                    }
                    let switch = b"HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: a\r\n\r\n";
                    stream.write_all(switch).await.unwrap();
                    while stream.write_all(&[0; 1024]).await.is_ok() {}
                }
            });
        }
    });
    let mut config = plain_config();
    config.balancer.max_active_requests = NonZeroU32::MIN;
    let cluster = Cluster::new("test", config, [server]);
    tokio::spawn(cluster.run());
    until(|| state_of(&cluster, server) == plimsoll_core::health::State::Healthy).await;
    let client = Client::new(&cluster);
    let mut asks = request("/");
    asks.headers_mut().insert("connection", "upgrade".parse().unwrap());
    asks.headers_mut().insert("upgrade", "a".parse().unwrap());
    let mut switched = client.send_with(asks, client_number(1)).await.unwrap();
    let mut tunnel = Upgraded::take(&mut switched).expect("it switched");
    let preempted = tunnel.preempted();
    let mut some = [0; 64];
    assert!(tunnel.read(&mut some).await.unwrap() > 0);
    // From here on nothing is read, as while a client takes nothing.
    let answer = timeout(NEVER, async {
        let (answer, ()) = tokio::join!(client.send_with(request("/"), client_number(2)), async {
            preempted.await;
            drop(tunnel);
        });
        answer
    });
    assert_eq!(answer.await.expect("it has its turn").unwrap().status(), StatusCode::OK);
}
