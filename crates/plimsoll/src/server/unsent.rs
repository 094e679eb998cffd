//! Whether a connection still has work to do, as far as it is visible from outside of hyper.
//!
//! A response is handed over long before it is sent: hyper drops a body of one piece with its first
//! frame, and keeps the bytes until the client takes them. So each piece keeps its connection at
//! work until it is written, and so does its request from its call on ([`Tracked`]). Heads,
//! trailers and the ends of chunked bodies are in hyper's own buffers: the socket shows them when
//! it accepts no more ([`Socket`]).
//!
//! A connection is at work while clones of its `Arc` exist: nothing is shared between connections.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes};
use http::{Request, Response};
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use pin_project_lite::pin_project;
use plimsoll_stream::Stream;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::serve::ClientNames;

/// The open work of a connection.
#[derive(Default)]
pub(super) struct Work(Arc<()>);

/// Holds a connection at work, until it is dropped.
type AtWork = Option<Arc<()>>;

impl Work {
    /// Nothing is in flight, and nothing unsent is known of.
    pub(super) fn is_done(&self) -> bool {
        Arc::strong_count(&self.0) == 1
    }

    pub(super) fn socket(&self, stream: Stream) -> Socket {
        Socket { stream, work: Arc::downgrade(&self.0), blocked: None }
    }

    /// `client` is an extension of each request.
    pub(super) fn track<S>(&self, inner: S, client: Option<ClientNames>) -> Tracked<S> {
        Tracked { inner, work: Arc::downgrade(&self.0), client }
    }
}

/// A hyper service that keeps a connection at work while it has requests.
pub(super) struct Tracked<S> {
    inner: S,
    work: Weak<()>,
    client: Option<ClientNames>,
}

impl<S, B> hyper::service::Service<Request<Incoming>> for Tracked<S>
where
    S: hyper::service::Service<Request<Incoming>, Response = Response<B>>,
{
    type Response = Response<TrackedBody<B>>;
    type Error = S::Error;
    type Future = TrackedFuture<S::Future>;

    #[cfg_attr(not(feature = "tls"), expect(unused_mut, reason = "only TLS has names of clients"))]
    fn call(&self, mut request: Request<Incoming>) -> Self::Future {
        #[cfg(feature = "tls")]
        if let Some(client) = &self.client {
            request.extensions_mut().insert(client.clone());
        }
        TrackedFuture { inner: self.inner.call(request), at_work: self.work.upgrade() }
    }
}

pin_project! {
    pub(super) struct TrackedFuture<F> {
        #[pin]
        inner: F,
        at_work: AtWork,
    }
}

impl<F, B, E> Future for TrackedFuture<F>
where
    F: Future<Output = Result<Response<B>, E>>,
{
    type Output = Result<Response<TrackedBody<B>>, E>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        let response = ready!(this.inner.poll(cx))?;
        let at_work = this.at_work.take();
        Poll::Ready(Ok(response.map(|inner| TrackedBody { inner, at_work })))
    }
}

pin_project! {
    pub(super) struct TrackedBody<B> {
        #[pin]
        inner: B,
        at_work: AtWork,
    }
}

impl<B: Body<Data = Bytes>> Body for TrackedBody<B> {
    type Data = Piece;
    type Error = B::Error;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Piece>, B::Error>>> {
        let this = self.project();
        let frame = ready!(this.inner.poll_frame(cx));
        Poll::Ready(frame.map(|frame| Ok(frame?.map_data(|bytes| Piece { bytes, _at_work: this.at_work.clone() }))))
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}

/// A piece of a body, until it was written.
pub(super) struct Piece {
    bytes: Bytes,
    _at_work: AtWork,
}

impl Buf for Piece {
    fn remaining(&self) -> usize {
        self.bytes.remaining()
    }

    fn chunk(&self) -> &[u8] {
        self.bytes.chunk()
    }

    fn advance(&mut self, count: usize) {
        self.bytes.advance(count);
    }

    fn copy_to_bytes(&mut self, len: usize) -> Bytes {
        self.bytes.copy_to_bytes(len)
    }
}

/// A socket that holds its connection at work while it takes no more.
pub(super) struct Socket {
    stream: Stream,
    work: Weak<()>,
    blocked: AtWork,
}

impl Socket {
    fn note<T>(&mut self, written: Poll<T>) -> Poll<T> {
        if written.is_pending() != self.blocked.is_some() {
            self.blocked = if written.is_pending() { self.work.upgrade() } else { None };
        }
        written
    }
}

impl AsyncRead for Socket {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_read(cx, buf)
    }
}

impl AsyncWrite for Socket {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let written = Pin::new(&mut this.stream).poll_write(cx, buf);
        this.note(written)
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_shutdown(cx)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let written = Pin::new(&mut this.stream).poll_write_vectored(cx, bufs);
        this.note(written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use tokio::io::AsyncReadExt as _;
    use tokio::net::{TcpListener, TcpStream};

    use super::*;

    #[tokio::test]
    async fn a_socket_that_takes_no_more_has_something_to_send() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let work = Work::default();
        let mut socket = work.socket(listener.accept().await.unwrap().0.into());
        let bytes = vec![0; 1 << 16];
        let mut sent = 0;
        let mut write = async || {
            poll_fn(|cx| match Pin::new(&mut socket).poll_write(cx, &bytes) {
                Poll::Ready(written) => Poll::Ready(Some(written.unwrap())),
                Poll::Pending => Poll::Ready(None),
            })
            .await
        };
        while let Some(written) = write().await {
            assert!(work.is_done());
            sent += written;
        }
        assert!(!work.is_done());
        client.read_exact(&mut vec![0; sent]).await.unwrap();
        while write().await.is_none() {
            tokio::task::yield_now().await;
        }
        assert!(work.is_done());
    }
}
