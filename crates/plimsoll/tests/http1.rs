//! HTTP/1.1 to backends that do on the wire what a script says.
#![allow(clippy::unwrap_used, reason = "a test may fail by it")]

mod support;

use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Method, Request, Response, StatusCode};
use http_body::{Body as HttpBody, Frame};
use http_body_util::{BodyExt as _, Full};
use plimsoll::client::{
    Client, ClientAddress, Cluster, Error, Informational, ProxyProtocol, ResponseBody, RetryPolicy, Terms, Upgraded,
};
use plimsoll::tls::{TlsConfig, Trust};
use plimsoll_core::health::State;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;

use support::{active, get, plain_config, until, view_of};

/// A connection as its backend sees it.
struct Peer {
    stream: TcpStream,
    /// Which connection it is, from zero.
    index: usize,
    buffer: Vec<u8>,
}

impl Peer {
    async fn more(&mut self) -> bool {
        let mut chunk = vec![0; 64 * 1024];
        let read = self.stream.read(&mut chunk).await.unwrap_or(0);
        self.buffer.extend_from_slice(&chunk[..read]);
        read > 0
    }

    /// The next head; empty when the connection ends first.
    async fn head(&mut self) -> String {
        loop {
            if let Some(at) = self.buffer.windows(4).position(|window| window == b"\r\n\r\n") {
                let rest = self.buffer.split_off(at + 4);
                return String::from_utf8(std::mem::replace(&mut self.buffer, rest)).unwrap();
            }
            if !self.more().await {
                return String::new();
            }
        }
    }

    /// The next `len` bytes, or what there is before the end.
    async fn body(&mut self, len: usize) -> Vec<u8> {
        while self.buffer.len() < len && self.more().await {}
        let rest = self.buffer.split_off(len.min(self.buffer.len()));
        std::mem::replace(&mut self.buffer, rest)
    }

    async fn send(&mut self, bytes: impl AsRef<[u8]>) {
        // Whoever reads it may have gone.
        let _ = self.stream.write_all(bytes.as_ref()).await;
    }
}

/// Serves every connection with `script`. Returns where, and how many connections there were.
async fn backend<F>(script: impl Fn(Peer) -> F + Send + Sync + 'static) -> (SocketAddr, Arc<AtomicUsize>)
where
    F: Future<Output = ()> + Send + 'static,
{
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let connections = Arc::new(AtomicUsize::new(0));
    let count = connections.clone();
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            let index = count.fetch_add(1, Ordering::SeqCst);
            tokio::spawn(script(Peer { stream, index, buffer: Vec::new() }));
        }
    });
    (address, connections)
}

/// A backend that answers each request with the next of `answers`, and closes after the last.
async fn answering(answers: &'static [&'static str]) -> (SocketAddr, Arc<AtomicUsize>) {
    backend(move |mut peer| async move {
        for answer in answers {
            if peer.head().await.is_empty() {
                return;
            }
            peer.send(answer).await;
        }
    })
    .await
}

async fn cluster_of(address: SocketAddr) -> Cluster {
    let mut config = plain_config();
    config.pool.min_connections = 0;
    // What becomes of one attempt.
    config.retry = RetryPolicy::OFF;
    let cluster = Cluster::new("test", config, [address]);
    tokio::spawn(cluster.run());
    until(|| view_of(&cluster, address).snapshot.state == State::Healthy).await;
    cluster
}

/// Polls once.
async fn is_pending(mut future: Pin<&mut impl Future>) -> bool {
    std::future::poll_fn(|cx| Poll::Ready(future.as_mut().poll(cx).is_pending())).await
}

/// A body whose frames come from a channel; the channel's end is its end.
struct Frames {
    frames: mpsc::UnboundedReceiver<Result<Frame<Bytes>, &'static str>>,
    /// What it claims to be long.
    claims: Option<u64>,
    polls: Arc<AtomicUsize>,
}

type Sender = mpsc::UnboundedSender<Result<Frame<Bytes>, &'static str>>;

fn frames(claims: Option<u64>) -> (Sender, Frames) {
    let (send, frames) = mpsc::unbounded_channel();
    (send, Frames { frames, claims, polls: Arc::default() })
}

fn data(bytes: impl Into<Bytes>) -> Result<Frame<Bytes>, &'static str> {
    Ok(Frame::data(bytes.into()))
}

impl HttpBody for Frames {
    type Data = Bytes;
    type Error = &'static str;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, &'static str>>> {
        self.polls.fetch_add(1, Ordering::SeqCst);
        self.frames.poll_recv(cx)
    }

    fn size_hint(&self) -> http_body::SizeHint {
        self.claims.map_or_else(http_body::SizeHint::default, http_body::SizeHint::with_exact)
    }
}

fn post(body: Frames) -> Request<Frames> {
    Request::post("/").header("host", "h").body(body).unwrap()
}

async fn text(response: Response<ResponseBody>) -> String {
    String::from_utf8(response.into_body().collect().await.unwrap().to_bytes().to_vec()).unwrap()
}

#[tokio::test]
async fn each_way_to_delimit_a_response_is_read_and_the_connection_serves_on() {
    let (address, connections) = answering(&[
        "HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\n",
        "HTTP/1.1 204 No Content\r\n\r\n",
        "HTTP/1.1 304 Not Modified\r\ncontent-length: 7\r\n\r\n",
        "HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n",
        "HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello",
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\nhel\r\n2;x=y\r\nlo\r\n0\r\nx-sum: 1\r\n\r\n",
        "HTTP/1.0 200 OK\r\nconnection: keep-alive\r\ncontent-length: 3\r\n\r\nold",
        "HTTP/1.1 200 OK\r\n\r\nuntil the end",
    ])
    .await;
    let client = Client::new(&cluster_of(address).await);
    let mut head = get("/");
    *head.method_mut() = Method::HEAD;
    let response = client.send(head).await.unwrap();
    assert_eq!(response.headers()["content-length"], "5");
    assert!(response.body().is_end_stream());
    for want in ["", "", "", "hello"] {
        assert_eq!(text(client.send(get("/")).await.unwrap()).await, want);
    }
    let whole = client.send(get("/")).await.unwrap().into_body().collect().await.unwrap();
    assert_eq!(whole.trailers().unwrap()["x-sum"], "1");
    assert_eq!(whole.to_bytes(), "hello");
    for want in ["old", "until the end"] {
        assert_eq!(text(client.send(get("/")).await.unwrap()).await, want);
    }
    assert_eq!(connections.load(Ordering::SeqCst), 1 + CHECKS);
    assert_eq!(active(client.cluster()), 0);
}

/// The connection by which a cluster finds out whether its backend is there.
const CHECKS: usize = 1;

#[tokio::test]
async fn a_response_that_dribbles_in_is_put_together() {
    let (address, _) = backend(|mut peer| async move {
        if peer.head().await.is_empty() {
            return;
        }
        peer.stream.set_nodelay(true).unwrap();
        for byte in b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n" {
            peer.send([*byte]).await;
            tokio::task::yield_now().await;
        }
        peer.head().await;
    })
    .await;
    let client = Client::new(&cluster_of(address).await);
    assert_eq!(text(client.send(get("/")).await.unwrap()).await, "abc");
}

#[tokio::test]
async fn a_connection_is_not_used_again_after_close_or_bytes_that_belong_to_nothing() {
    for answer in [
        "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok and more",
        "HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 2\r\n\r\nok",
        "HTTP/1.0 200 OK\r\ncontent-length: 2\r\n\r\nok",
    ] {
        let (address, connections) = backend(move |mut peer| async move {
            while !peer.head().await.is_empty() {
                peer.send(answer).await;
            }
        })
        .await;
        let cluster = cluster_of(address).await;
        let client = Client::new(&cluster);
        for sent in 1..=3 {
            assert_eq!(text(client.send(get("/")).await.unwrap()).await, "ok");
            until(|| view_of(&cluster, address).counts.connections_closed == sent).await;
        }
        assert!(connections.load(Ordering::SeqCst) >= 3);
    }
}

#[tokio::test]
async fn what_an_idle_connection_says_makes_it_useless() {
    let (send, receive) = mpsc::unbounded_channel::<()>();
    let receive = Arc::new(tokio::sync::Mutex::new(receive));
    let (address, _) = backend(move |mut peer| {
        let receive = receive.clone();
        async move {
            while !peer.head().await.is_empty() {
                peer.send("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok").await;
                if peer.index <= CHECKS && receive.lock().await.recv().await.is_some() {
                    peer.send("HTTP/1.1 408 Request Timeout\r\ncontent-length: 0\r\n\r\n").await;
                }
            }
        }
    })
    .await;
    let cluster = cluster_of(address).await;
    let client = Client::new(&cluster);
    assert_eq!(text(client.send(get("/")).await.unwrap()).await, "ok");
    send.send(()).unwrap();
    // Noticed without a request, and since it was the last, another takes its place.
    until(|| view_of(&cluster, address).counts.connections_closed == 1).await;
    until(|| view_of(&cluster, address).counts.connections_opened == 2).await;
    drop(send);
    for _ in 0..3 {
        assert_eq!(text(client.send(get("/")).await.unwrap()).await, "ok");
    }
}

/// A backend that hands on what each request consists of, and answers it.
async fn recording() -> (SocketAddr, mpsc::UnboundedReceiver<String>) {
    let (send, receive) = mpsc::unbounded_channel();
    let (address, _) = backend(move |mut peer| {
        let send = send.clone();
        async move {
            loop {
                let head = peer.head().await;
                if head.is_empty() {
                    return;
                }
                let mut whole = head.clone();
                let length = head.split("content-length: ").nth(1).map(|rest| rest.split("\r\n").next().unwrap());
                if let Some(length) = length {
                    whole += std::str::from_utf8(&peer.body(length.parse().unwrap()).await).unwrap();
                } else if head.contains("transfer-encoding: chunked") {
                    while !(peer.buffer.ends_with(b"\r\n\r\n") && peer.buffer.windows(3).any(|w| w == b"0\r\n")) {
                        assert!(peer.more().await, "cut off: {whole}");
                    }
                    whole += std::str::from_utf8(&std::mem::take(&mut peer.buffer)).unwrap();
                }
                send.send(whole).unwrap();
                peer.send("HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").await;
            }
        }
    })
    .await;
    (address, receive)
}

#[tokio::test]
async fn a_body_is_delimited_by_what_is_known_of_it() {
    let (address, mut seen) = recording().await;
    let client = Client::new(&cluster_of(address).await);
    let mut sent = async |request: Request<Frames>| {
        assert_eq!(client.send(request).await.unwrap().status(), StatusCode::OK);
        seen.recv().await.unwrap()
    };
    let head = "POST / HTTP/1.1\r\nhost: h\r\n";

    // Its own word.
    let (send, body) = frames(Some(5));
    send.send(data("he")).unwrap();
    send.send(data("llo")).unwrap();
    assert_eq!(sent(post(body)).await, format!("{head}content-length: 5\r\n\r\nhello"));

    // That of the field.
    let (send, body) = frames(None);
    send.send(data("hello")).unwrap();
    drop(send);
    let mut request = post(body);
    request.headers_mut().insert("content-length", "5".parse().unwrap());
    assert_eq!(sent(request).await, format!("{head}content-length: 5\r\n\r\nhello"));

    // Nobody's: chunks, with trailers.
    let (send, body) = frames(None);
    send.send(data("hello")).unwrap();
    send.send(data("")).unwrap();
    send.send(data(" there, you")).unwrap();
    send.send(Ok(Frame::trailers(HeaderMap::from_iter([("x-sum".parse().unwrap(), "1".parse().unwrap())])))).unwrap();
    let want =
        format!("{head}transfer-encoding: chunked\r\n\r\n5\r\nhello\r\nb\r\n there, you\r\n0\r\nx-sum: 1\r\n\r\n");
    assert_eq!(sent(post(body)).await, want);

    // It turns out to be empty.
    let (send, body) = frames(None);
    drop(send);
    assert_eq!(sent(post(body)).await, format!("{head}content-length: 0\r\n\r\n"));
}

#[tokio::test]
async fn a_body_that_is_there_at_once_has_a_length_and_an_empty_one_is_never_longer_than_it_is() {
    let (address, mut seen) = recording().await;
    let cluster = cluster_of(address).await;
    let client = Client::<Full<Bytes>>::new(&cluster);
    let request = |method: Method, body: &'static str| {
        Request::builder().method(method).uri("http://h/p?q").body(Full::from(body)).unwrap()
    };
    client.send(request(Method::PUT, "hello")).await.unwrap();
    assert_eq!(seen.recv().await.unwrap(), "PUT /p?q HTTP/1.1\r\nhost: h\r\ncontent-length: 5\r\n\r\nhello");
    client.send(request(Method::GET, "")).await.unwrap();
    assert_eq!(seen.recv().await.unwrap(), "GET /p?q HTTP/1.1\r\nhost: h\r\n\r\n");
    // A field must not promise what does not come.
    let mut lying = request(Method::DELETE, "");
    lying.headers_mut().insert("content-length", "44".parse().unwrap());
    client.send(lying).await.unwrap();
    assert_eq!(seen.recv().await.unwrap(), "DELETE /p?q HTTP/1.1\r\nhost: h\r\ncontent-length: 0\r\n\r\n");
    let mut closing = request(Method::GET, "");
    closing.headers_mut().insert("connection", "close".parse().unwrap());
    client.send(closing).await.unwrap();
    assert_eq!(seen.recv().await.unwrap(), "GET /p?q HTTP/1.1\r\nhost: h\r\nconnection: close\r\n\r\n");
    assert_eq!(view_of(&cluster, address).counts.connections_closed, 1);
}

fn large(len: usize) -> Bytes {
    (0..len).map(|at| (at % 251) as u8).collect::<Vec<_>>().into()
}

#[tokio::test]
async fn large_bodies_pass_both_ways_whole() {
    const LEN: usize = 5_000_000;
    let (address, connections) = backend(|mut peer| async move {
        while !peer.head().await.is_empty() {
            let body = peer.body(LEN).await;
            peer.send(format!("HTTP/1.1 200 OK\r\ncontent-length: {LEN}\r\n\r\n")).await;
            peer.send(body).await;
        }
    })
    .await;
    let client = Client::<Full<Bytes>>::new(&cluster_of(address).await);
    for _ in 0..3 {
        let response = client.send(Request::post("/").body(Full::from(large(LEN))).unwrap()).await.unwrap();
        assert!(response.into_body().collect().await.unwrap().to_bytes() == large(LEN));
    }
    assert_eq!(connections.load(Ordering::SeqCst), 1 + CHECKS);
}

#[tokio::test]
async fn chunks_of_any_size_arrive_as_they_were() {
    let sizes = [1, 15, 16, 4095, 4096, 4097, 20_000, 1_000_000, 3];
    let (address, _) = backend(move |mut peer| async move {
        if peer.head().await.is_empty() {
            return;
        }
        let mut whole = Vec::new();
        loop {
            while !peer.buffer.windows(2).any(|window| window == b"\r\n") {
                assert!(peer.more().await);
            }
            let line = peer.buffer.iter().position(|byte| *byte == b'\r').unwrap();
            let size = usize::from_str_radix(std::str::from_utf8(&peer.buffer[..line]).unwrap(), 16).unwrap();
            peer.body(line + 2).await;
            let chunk = peer.body(size + 2).await;
            assert!(chunk.ends_with(b"\r\n"));
            whole.extend_from_slice(&chunk[..size]);
            if size == 0 {
                break;
            }
        }
        assert!(whole == sizes.iter().flat_map(|size| large(*size)).collect::<Vec<_>>());
        peer.send("HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").await;
    })
    .await;
    let client = Client::new(&cluster_of(address).await);
    let (send, body) = frames(None);
    for size in sizes {
        send.send(data(large(size))).unwrap();
    }
    drop(send);
    assert_eq!(client.send(post(body)).await.unwrap().status(), StatusCode::OK);
}

#[tokio::test]
async fn an_early_answer_ends_the_upload_and_the_connection() {
    let (address, _) = backend(|mut peer| async move {
        if peer.head().await.is_empty() {
            return;
        }
        peer.send("HTTP/1.1 413 Content Too Large\r\ncontent-length: 3\r\n\r\nbig").await;
        // It reads no further, and leaves the connection open: to wait for it would be to wait for ever.
        std::future::pending().await
    })
    .await;
    let cluster = cluster_of(address).await;
    let client = Client::new(&cluster);
    let (send, body) = frames(Some(100_000_000));
    send.send(data(vec![7; 20_000_000])).unwrap();
    let response = client.send(post(body)).await.unwrap();
    assert_eq!(response.status(), StatusCode::PAYLOAD_TOO_LARGE);
    assert_eq!(text(response).await, "big");
    until(|| send.is_closed()).await;
    let counts = view_of(&cluster, address).counts;
    assert_eq!((counts.connections_closed, active(&cluster)), (1, 0));
}

#[tokio::test]
async fn an_early_answer_is_delivered_though_the_backend_closes_on_the_upload() {
    let (address, _) = backend(|mut peer| async move {
        if peer.head().await.is_empty() {
            return;
        }
        peer.send("HTTP/1.1 403 Forbidden\r\nconnection: close\r\ncontent-length: 2\r\n\r\nno").await;
    })
    .await;
    let client = Client::new(&cluster_of(address).await);
    let (send, body) = frames(Some(100_000_000));
    send.send(data(vec![7; 100_000_000])).unwrap();
    let response = client.send(post(body)).await.unwrap();
    assert_eq!(response.status(), StatusCode::FORBIDDEN);
    assert_eq!(text(response).await, "no");
}

#[tokio::test]
async fn an_upload_goes_on_beside_a_response_that_nobody_reads() {
    const LEN: usize = 30_000_000;
    let (arrived, mut has_arrived) = mpsc::unbounded_channel();
    let (address, connections) = backend(move |mut peer| {
        let arrived = arrived.clone();
        async move {
            while !peer.head().await.is_empty() {
                peer.send("HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\n").await;
                arrived.send(peer.body(LEN).await.len()).unwrap();
                peer.send("hello").await;
            }
        }
    })
    .await;
    let client = Client::new(&cluster_of(address).await);
    for _ in 0..2 {
        let (send, body) = frames(Some(LEN as u64));
        let response = client.send(post(body)).await.unwrap();
        for _ in 0..10 {
            send.send(data(vec![7; LEN / 10])).unwrap();
        }
        assert_eq!(has_arrived.recv().await, Some(LEN));
        assert_eq!(text(response).await, "hello");
    }
    assert_eq!(connections.load(Ordering::SeqCst), 1 + CHECKS, "whole in both directions, it serves on");
}

/// A backend that answers before it has the request, and then waits.
async fn hasty() -> SocketAddr {
    let script = |mut peer: Peer| async move {
        if !peer.head().await.is_empty() {
            peer.send("HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\n").await;
            while peer.more().await {
                if peer.buffer.ends_with(b"end") {
                    peer.send("hello").await;
                }
            }
        }
    };
    backend(script).await.0
}

#[tokio::test]
async fn an_upload_stops_with_the_response_that_is_dropped_or_over() {
    let cluster = cluster_of(hasty().await).await;
    let client = Client::new(&cluster);
    let (send, body) = frames(Some(1000));
    drop(client.send(post(body)).await.unwrap());
    until(|| send.is_closed()).await;
    assert_eq!(active(&cluster), 0);

    let (send, body) = frames(Some(1000));
    let response = client.send(post(body)).await.unwrap();
    send.send(data("not all, and the end")).unwrap();
    assert_eq!(text(response).await, "hello");
    until(|| send.is_closed()).await;
    until(|| cluster.backends()[0].counts.connections_open() == 1).await;
    assert_eq!(active(&cluster), 0);
}

#[tokio::test]
async fn a_body_that_fails_beside_its_response_fails_the_response() {
    let cluster = cluster_of(hasty().await).await;
    let client = Client::new(&cluster);
    let (send, body) = frames(None);
    let mut response = client.send(post(body)).await.unwrap();
    let mut frame = std::pin::pin!(response.body_mut().frame());
    assert!(is_pending(frame.as_mut()).await);
    send.send(Err("gone")).unwrap();
    let error = frame.await.unwrap().unwrap_err();
    assert!(matches!(error, Error::RequestBody(_)), "{error}");
    assert_eq!(cluster.backends()[0].counts.cancelled, 1);
}

#[tokio::test]
async fn a_body_that_fails_or_is_not_as_long_as_it_says_ends_the_request() {
    let (address, _) = backend(|mut peer| async move { while peer.more().await {} }).await;
    let cluster = cluster_of(address).await;
    let client = Client::new(&cluster);
    let cases: [(&[Result<&'static str, &'static str>], &str); 3] = [
        (&[Ok("some"), Err("gone")], "gone"),
        (&[Ok("some")], "it is shorter than its announced length"),
        (&[Ok("some"), Ok("more than that")], "it is longer than its announced length"),
    ];
    for (parts, want) in cases {
        let (send, body) = frames(Some(10));
        for part in parts {
            send.send(part.map(|part| Frame::data(part.into()))).unwrap();
        }
        drop(send);
        let error = client.send(post(body)).await.unwrap_err();
        assert!(matches!(&error, Error::RequestBody(cause) if cause.to_string() == want), "{error}");
    }
    let counts = view_of(&cluster, address).counts;
    assert_eq!((counts.cancelled, counts.connections_closed), (3, 3));
}

fn expecting(body: Frames) -> Request<Frames> {
    let mut request = post(body);
    *request.method_mut() = Method::PUT;
    request.headers_mut().insert("expect", "100-continue".parse().unwrap());
    request
}

#[tokio::test]
async fn an_expecting_body_is_asked_for_only_when_the_backend_wants_it() {
    let (address, connections) = backend(|mut peer| async move {
        loop {
            let head = peer.head().await;
            if head.is_empty() {
                return;
            }
            assert!(head.contains("expect: 100-continue"));
            if peer.index == CHECKS {
                peer.send("HTTP/1.1 100 Continue\r\n\r\n").await;
                assert_eq!(peer.body(5).await, b"hello");
            }
            peer.send("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok").await;
            if peer.index > CHECKS {
                assert!(!peer.more().await, "nothing of the body");
                return;
            }
        }
    })
    .await;
    let cluster = cluster_of(address).await;
    let client = Client::new(&cluster);
    let (send, body) = frames(Some(5));
    let polls = body.polls.clone();
    send.send(data("hello")).unwrap();
    assert_eq!(text(client.send(expecting(body)).await.unwrap()).await, "ok");
    assert!(polls.load(Ordering::SeqCst) > 0);
    assert_eq!(view_of(&cluster, address).counts.connections_open(), 1);

    // The other connections' backend answers at once: the body is never asked for, and the connection is of no more use.
    let mut busy = get_frames("/");
    busy.headers_mut().insert("expect", "100-continue".parse().unwrap());
    let held = client.send(busy);
    let mut held = std::pin::pin!(held);
    assert!(is_pending(held.as_mut()).await);
    let (_send, body) = frames(Some(5));
    let polls = body.polls.clone();
    assert_eq!(text(client.send(expecting(body)).await.unwrap()).await, "ok");
    assert_eq!(polls.load(Ordering::SeqCst), 0);
    until(|| connections.load(Ordering::SeqCst) == 2 + CHECKS).await;
}

fn get_frames(path: &str) -> Request<Frames> {
    let (send, body) = frames(Some(0));
    drop(send);
    Request::get(path).body(body).unwrap()
}

#[tokio::test(start_paused = true)]
async fn an_expecting_body_is_sent_after_a_while_to_a_backend_that_says_nothing() {
    let (address, _) = backend(|mut peer| async move {
        if !peer.head().await.is_empty() {
            assert_eq!(peer.body(5).await, b"hello");
            peer.send("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok").await;
        }
    })
    .await;
    let client = Client::new(&cluster_of(address).await);
    let (send, body) = frames(Some(5));
    send.send(data("hello")).unwrap();
    let started = tokio::time::Instant::now();
    assert_eq!(text(client.send(expecting(body)).await.unwrap()).await, "ok");
    assert!(started.elapsed() >= Duration::from_secs(1));
}

#[tokio::test]
async fn a_body_that_was_not_asked_for_yet_can_be_sent_again() {
    let (address, _) = backend(|mut peer| async move {
        // The first connection that serves ends when the second request comes.
        for served in 0..2 {
            if peer.head().await.is_empty() || peer.index == CHECKS && served == 1 {
                return;
            }
            peer.send("HTTP/1.1 100 Continue\r\n\r\n").await;
            assert_eq!(peer.body(5).await, b"hello");
            peer.send("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok").await;
        }
    })
    .await;
    let cluster = cluster_of(address).await;
    let client = Client::new(&cluster);
    for _ in 0..2 {
        let (send, body) = frames(Some(5));
        send.send(data("hello")).unwrap();
        assert_eq!(text(client.send(expecting(body)).await.unwrap()).await, "ok");
    }
    assert_eq!(cluster.counts().replayed, 1);
}

#[tokio::test]
async fn interim_responses_are_told_of_and_are_bounded() {
    let (address, _) = backend(|mut peer| async move {
        while !peer.head().await.is_empty() {
            peer.send("HTTP/1.1 102 Processing\r\n\r\nHTTP/1.1 103 Early Hints\r\nlink: </s.css>\r\n\r\n").await;
            peer.send("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok").await;
            peer.head().await;
            for _ in 0..50 {
                peer.send("HTTP/1.1 103 Early Hints\r\n\r\n").await;
            }
        }
    })
    .await;
    let cluster = cluster_of(address).await;
    let client = Client::new(&cluster);
    let (send, mut told) = mpsc::unbounded_channel();
    let terms = Terms::default().telling(Informational::new(move |response| send.send(response).unwrap()));
    assert_eq!(text(client.send_with(get("/"), terms).await.unwrap()).await, "ok");
    assert_eq!(told.recv().await.unwrap().status(), StatusCode::PROCESSING);
    assert_eq!(told.recv().await.unwrap().headers()["link"], "</s.css>");
    let error = client.send(get("/")).await.unwrap_err();
    assert!(matches!(error, Error::BadResponse { .. }), "{error}");
    assert_eq!(active(&cluster), 0);
}

#[tokio::test]
async fn a_switch_that_was_asked_for_gives_the_connection_and_keeps_the_request_active() {
    let (address, _) = backend(|mut peer| async move {
        if !peer.head().await.contains("connection: upgrade\r\n") {
            peer.send("HTTP/1.1 101 Switching Protocols\r\nupgrade: echo\r\n\r\n").await;
            return;
        }
        peer.send("HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: echo\r\n\r\nwelcome").await;
        while peer.more().await {
            let echo = std::mem::take(&mut peer.buffer);
            peer.send(echo).await;
        }
    })
    .await;
    let cluster = cluster_of(address).await;
    let client = Client::new(&cluster);
    let mut request = get("/");
    request.headers_mut().insert("connection", "Upgrade".parse().unwrap());
    request.headers_mut().insert("upgrade", "echo".parse().unwrap());
    let mut response = client.send(request).await.unwrap();
    assert_eq!(
        (response.status(), &response.headers()["upgrade"]),
        (StatusCode::SWITCHING_PROTOCOLS, &"echo".parse().unwrap())
    );
    assert!(response.body().is_end_stream());
    let mut upgraded = Upgraded::take(&mut response).unwrap();
    assert!(Upgraded::take(&mut response).is_none());
    drop(response);
    let mut bytes = [0; 7];
    upgraded.read_exact(&mut bytes).await.unwrap();
    assert_eq!(&bytes, b"welcome");
    upgraded.write_all(b"and you").await.unwrap();
    upgraded.read_exact(&mut bytes).await.unwrap();
    assert_eq!(&bytes, b"and you");
    assert_eq!(active(&cluster), 1);
    drop(upgraded);
    assert_eq!(active(&cluster), 0);
    assert_eq!(view_of(&cluster, address).counts.connections_closed, 1);

    let error = client.send(get("/")).await.unwrap_err();
    assert!(matches!(error, Error::BadResponse { .. }), "{error}");
}

#[tokio::test]
async fn what_is_no_response_and_what_is_half_of_one_are_told_apart() {
    for (answer, is_bad) in [
        ("SSH-2.0-OpenSSH_9.6\r\n\r\n", true),
        ("HTTP/1.1 200 OK\r\ncontent-length: 2\r\ntransfer-encoding: chunked\r\n\r\n", true),
        ("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nxyz\r\n", true),
        ("HTTP/1.1 200 OK\r\ncontent-le", false),
        ("HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nhalf", false),
        ("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhel", false),
        ("", false),
    ] {
        let (address, _) = backend(move |mut peer| async move {
            if !peer.head().await.is_empty() {
                peer.send(answer).await;
            }
        })
        .await;
        let cluster = cluster_of(address).await;
        let error = match Client::new(&cluster).send(get("/")).await {
            Ok(response) => response.into_body().collect().await.unwrap_err(),
            Err(error) => error,
        };
        assert_eq!(matches!(error, Error::BadResponse { .. }), is_bad, "{answer:?}: {error}");
        assert_eq!(matches!(error, Error::Closed { .. }), !is_bad, "{answer:?}: {error}");
        let counts = view_of(&cluster, address).counts;
        assert_eq!((counts.connections_open(), active(&cluster)), (0, 0));
    }
}

#[tokio::test]
async fn where_backends_are_told_whose_a_connection_is_it_carries_one_request() {
    let (address, mut seen) = recording().await;
    let mut config = plain_config();
    config.proxy_protocol = Some(ProxyProtocol::V1);
    let cluster = Cluster::new("test", config, [address]);
    tokio::spawn(cluster.run());
    let client = Client::new(&cluster);
    for last in [7, 8] {
        let mut request = Request::get("/").header("host", "h").body(Full::<Bytes>::default()).unwrap();
        let destination = "198.51.100.1:80".parse().unwrap();
        let source = SocketAddr::from(([192, 0, 2, last], 5000));
        request.extensions_mut().insert(ClientAddress { source, destination });
        assert_eq!(text(client.send(request).await.unwrap()).await, "");
        let want = format!(
            "PROXY TCP4 192.0.2.{last} 198.51.100.1 5000 80\r\nGET / HTTP/1.1\r\nhost: h\r\nconnection: close\r\n\r\n"
        );
        assert_eq!(seen.recv().await.unwrap(), want);
    }
    let counts = view_of(&cluster, address).counts;
    assert_eq!((counts.connections_opened, counts.connections_closed), (2, 2));
}

/// A backend that speaks TLS, and answers each request with `body`.
async fn secure(body: &'static [u8], and_more: &'static str) -> (SocketAddr, Arc<AtomicUsize>) {
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let key = rustls::pki_types::PrivateKeyDer::Pkcs8(made.signing_key.serialize_der().into());
    let config = rustls::ServerConfig::builder_with_provider(plimsoll::tls::provider())
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![made.cert.der().clone()], key)
        .unwrap();
    let acceptor = tokio_rustls::TlsAcceptor::from(Arc::new(config));
    backend(move |peer| {
        let acceptor = acceptor.clone();
        async move {
            let Ok(mut tls) = acceptor.accept(peer.stream).await else { return };
            let mut head = Vec::new();
            while tls.read_buf(&mut head).await.is_ok_and(|read| read > 0) {
                if head.ends_with(b"\r\n\r\n") {
                    head.clear();
                    let answer = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", body.len());
                    tls.write_all(answer.as_bytes()).await.unwrap();
                    tls.write_all(body).await.unwrap();
                    tls.write_all(and_more.as_bytes()).await.unwrap();
                    tls.flush().await.unwrap();
                }
            }
        }
    })
    .await
}

#[tokio::test]
async fn connections_serve_on_under_tls_unless_there_is_more_than_the_response() {
    static LONG: [u8; 300_000] = [7; 300_000];
    for (body, and_more, serves_on) in [(&b"ok"[..], "", true), (&LONG, "", true), (b"ok", "HTTP/1.1 200 OK", false)] {
        let (address, connections) = secure(body, and_more).await;
        let mut config = plain_config();
        config.pool.min_connections = 0;
        config.tls = Some(TlsConfig::new(Trust::Anybody, None, None));
        let cluster = Cluster::new("test", config, [address]);
        tokio::spawn(cluster.run());
        until(|| view_of(&cluster, address).snapshot.state == State::Healthy).await;
        let checks = connections.load(Ordering::SeqCst);
        let client = Client::new(&cluster);
        for _ in 0..5 {
            let response = client.send(get("/")).await.unwrap();
            assert!(response.into_body().collect().await.unwrap().to_bytes() == body);
        }
        assert_eq!(connections.load(Ordering::SeqCst) - checks == 1, serves_on);
    }
}
