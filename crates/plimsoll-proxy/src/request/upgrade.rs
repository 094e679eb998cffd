//! Requests for another protocol on the same connection: WebSocket and the like (RFC 9110, 7.8; RFC
//! 8441).
//!
//! A client asks on HTTP/1 with `Upgrade`, on HTTP/2 with an extended `CONNECT`; backends are
//! always asked on HTTP/1. Once a backend agrees, bytes are passed on both ways until either side
//! is done, or nothing has passed for `upgrade_idle_timeout`. A tunnel outlives reloads: its route
//! and limits are not read again.
//!
//! HTTP/2 itself is never upgraded to (`h2c`): requests in such a tunnel would bypass every rule
//! here.

use std::hash::{BuildHasher as _, RandomState};
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use bytes::{Buf as _, Bytes};
use http::header::{CONNECTION, HeaderMap, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_KEY, SEC_WEBSOCKET_VERSION, UPGRADE};
use http::{HeaderValue, Method, Request, Response, StatusCode};
use hyper::body::Incoming;
use hyper::ext::Protocol;
use hyper::upgrade::OnUpgrade;
use plimsoll_stream::Stream;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf, copy_bidirectional};
use tokio::sync::watch;

use crate::phase::{self, Phase};

/// A client's wish for another protocol.
pub(crate) struct Upgrade {
    protocol: HeaderValue,
}

impl Upgrade {
    /// That of a request on HTTP/1 that has one.
    pub(crate) fn of_http1(headers: &HeaderMap) -> Option<Self> {
        let protocol = headers.get(UPGRADE)?;
        (!names_http(protocol)).then(|| Self { protocol: protocol.clone() })
    }

    /// That of an extended `CONNECT` on HTTP/2, and the client's side of the tunnel; makes the
    /// request the one that HTTP/1 has for it. `None`, and nothing done, for any other request.
    pub(crate) fn of_http2(request: &mut Request<Incoming>) -> Option<(Self, OnUpgrade)> {
        if request.method() != Method::CONNECT {
            return None;
        }
        let protocol = request.extensions_mut().remove::<Protocol>()?;
        let protocol = HeaderValue::from_str(protocol.as_str()).ok()?;
        // Here it is one name (RFC 8441, 4), there it may be a list.
        if names_http(&protocol) || protocol.as_bytes().contains(&b',') {
            return None;
        }
        let client = hyper::upgrade::on(&mut *request);
        *request.method_mut() = Method::GET;
        if protocol.as_bytes().eq_ignore_ascii_case(b"websocket") {
            let headers = request.headers_mut();
            headers.insert(SEC_WEBSOCKET_KEY, nonce());
            headers.entry(SEC_WEBSOCKET_VERSION).or_insert(HeaderValue::from_static("13"));
        }
        Some((Self { protocol }, client))
    }

    /// Asks a backend for the client's protocol.
    pub(crate) fn ask(self, headers: &mut HeaderMap) {
        headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
        headers.insert(UPGRADE, self.protocol);
    }
}

/// Whether one of the protocols is HTTP, or TLS, which can carry anything.
fn names_http(protocols: &HeaderValue) -> bool {
    let mut names = protocols.as_bytes().split(|byte| *byte == b',').map(|name| name.trim_ascii().to_ascii_lowercase());
    names.any(|name| name == b"h2c" || name == b"h2" || name.starts_with(b"http/") || name.starts_with(b"tls/"))
}

/// Sixteen fresh bytes (RFC 6455, 4.1). They protect nothing: they show that a response belongs to
/// this request.
fn nonce() -> HeaderValue {
    let mut bytes = [0_u8; 16];
    for half in bytes.chunks_exact_mut(8) {
        half.copy_from_slice(&RandomState::new().hash_one(0).to_ne_bytes());
    }
    HeaderValue::try_from(BASE64_STANDARD.encode(bytes)).expect("base64 is ASCII")
}

/// The answer to an extended `CONNECT` for a backend's 101 (RFC 8441, 5.1).
pub(crate) fn http2_answer<B>(mut response: Response<B>) -> Response<B> {
    *response.status_mut() = StatusCode::OK;
    let headers = response.headers_mut();
    headers.remove(SEC_WEBSOCKET_ACCEPT);
    headers.remove(UPGRADE);
    headers.remove(CONNECTION);
    response
}

/// Passes bytes both ways until either side is done, the tunnel is idle for too long, it is
/// preempted, or the listener closes.
pub(crate) async fn tunnel<C, B>(
    client: C,
    mut backend: B,
    preempted: impl Future<Output = ()>,
    idle_timeout: Duration,
    mut phases: watch::Receiver<Phase>,
) where
    C: AsyncRead + AsyncWrite + Unpin,
    B: AsyncRead + AsyncWrite + Unpin,
{
    let passed = Arc::new(AtomicU64::new(0));
    let mut client = Counted { io: client, passed: Arc::clone(&passed) };
    let idle = async {
        let mut seen = 0;
        loop {
            tokio::time::sleep(idle_timeout).await;
            let now = passed.load(Ordering::Relaxed);
            if std::mem::replace(&mut seen, now) == now {
                return;
            }
        }
    };
    tokio::select! {
        _ = copy_bidirectional(&mut client, &mut backend) => {}
        () = idle => {}
        () = preempted => {}
        () = phase::reached(&mut phases, Phase::Closing) => {}
    }
}

/// The client's connection, with bytes that were read ahead.
pub(crate) struct PrefixedStream {
    pub(crate) first: Bytes,
    pub(crate) stream: Stream,
}

impl PrefixedStream {
    /// Has `bytes`, which were read, come once more.
    pub(crate) fn put_back(&mut self, bytes: &[u8]) {
        self.first =
            if self.first.is_empty() { Bytes::copy_from_slice(bytes) } else { [bytes, &self.first].concat().into() };
    }
}

impl AsyncRead for PrefixedStream {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if self.first.is_empty() {
            return Pin::new(&mut self.stream).poll_read(cx, buf);
        }
        let len = self.first.len().min(buf.remaining());
        buf.put_slice(&self.first[..len]);
        self.first.advance(len);
        if self.first.is_empty() {
            // It may be a slice of a larger buffer, and the tunnel may last long.
            self.first = Bytes::new();
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for PrefixedStream {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, bufs)
    }
}

/// Counts the bytes that pass.
struct Counted<T> {
    io: T,
    passed: Arc<AtomicU64>,
}

impl<T> Counted<T> {
    fn count(&self, bytes: usize) {
        self.passed.fetch_add(bytes as u64, Ordering::Relaxed);
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for Counted<T> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        let polled = Pin::new(&mut self.io).poll_read(cx, buf);
        self.count(buf.filled().len() - before);
        polled
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for Counted<T> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.io).poll_write(cx, buf);
        if let Poll::Ready(Ok(written)) = &polled {
            self.count(*written);
        }
        polled
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, duplex};

    use super::*;
    use crate::phase::Life;

    fn wish(protocol: &'static str) -> bool {
        let headers = HeaderMap::from_iter([(UPGRADE, HeaderValue::from_static(protocol))]);
        Upgrade::of_http1(&headers).is_some()
    }

    #[test]
    fn http_is_never_upgraded_to() {
        assert!(wish("websocket") && wish("IRC/6.9") && wish("a, b"));
        for http in ["h2c", "H2C", "websocket, h2c", "HTTP/2.0", "TLS/1.0", "h2"] {
            assert!(!wish(http), "{http}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn tunnel_passes_bytes_and_ends_when_nothing_passes() {
        let idle = Duration::from_secs(10);
        let ((mut ours, client), (backend, mut theirs)) = (duplex(64), duplex(64));
        let life = Life::new();
        let tunnel = tokio::spawn(tunnel(client, backend, std::future::pending(), idle, life.watch()));
        let mut byte = [0];
        for _ in 0..5 {
            tokio::time::sleep(idle * 9 / 10).await;
            ours.write_all(b"x").await.unwrap();
            theirs.read_exact(&mut byte).await.unwrap();
            theirs.write_all(b"y").await.unwrap();
            ours.read_exact(&mut byte).await.unwrap();
        }
        assert!(!tunnel.is_finished());
        tokio::time::timeout(idle * 3, tunnel).await.expect("it has ended").unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn tunnel_ends_when_its_listener_closes() {
        let ((_ours, client), (backend, _theirs)) = (duplex(64), duplex(64));
        let life = Life::new();
        let tunnel =
            tokio::spawn(tunnel(client, backend, std::future::pending(), Duration::from_secs(3600), life.watch()));
        life.advance(Phase::LameDuck);
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert!(!tunnel.is_finished());
        life.advance(Phase::Closing);
        tokio::time::timeout(Duration::from_secs(1), tunnel).await.expect("it has ended").unwrap();
    }
}
