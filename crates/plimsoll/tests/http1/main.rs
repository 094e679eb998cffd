//! HTTP/1.1 to backends that follow a script on the wire.
#![allow(clippy::unwrap_used, reason = "a test may fail by it")]

mod bodies;
mod connections;
mod expecting;
mod requests;
mod responses;
#[path = "../support/mod.rs"]
mod support;
mod uploads;

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
    Client, ClientAddress, Cluster, Error, Informational, ProxyProtocol, RequestOptions, ResponseBody, RetryPolicy,
    Upgraded,
};
use plimsoll::tls::{TlsConfig, TlsTrust};
use plimsoll_core::health::State;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;

use support::{active, get, plain_config, until, view_of};

/// The connection of a cluster's health check.
const CHECKS: usize = 1;

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

    /// The next `len` bytes, or all before the end.
    async fn body(&mut self, len: usize) -> Vec<u8> {
        while self.buffer.len() < len && self.more().await {}
        let rest = self.buffer.split_off(len.min(self.buffer.len()));
        std::mem::replace(&mut self.buffer, rest)
    }

    async fn send(&mut self, bytes: impl AsRef<[u8]>) {
        // Its reader may have left.
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
    // The result of one attempt.
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

/// A body with frames from a channel; the channel's end is its end.
struct Frames {
    frames: mpsc::UnboundedReceiver<Result<Frame<Bytes>, &'static str>>,
    /// The length that it claims.
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
