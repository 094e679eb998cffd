//! Checks that a backend speaks HTTP/2 where that is only assumed.
//!
//! Under [`Protocol::Auto`](crate::client::Protocol) the caller's `content-type` decides that a
//! backend is asked over HTTP/2. A backend that knows only HTTP/1.1 answers with an error or closes
//! the connection. It must not count as broken because of a field that any client can write. So
//! connections carry no request before the backend's first byte, until the backend has shown once
//! that it speaks HTTP/2. An HTTP/2 server begins with a SETTINGS frame (RFC 9113, 3.4). Its first
//! byte is part of the length and is zero; no answer of another protocol begins with zero. From
//! then on a connection that breaks is a broken connection.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll};

use plimsoll_stream::Stream;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::oneshot;

use super::interim::Interim;
use super::silence::Heard;

/// The first byte of a SETTINGS frame of less than 65,536 bytes.
const SETTINGS: u8 = 0;

/// A connection that tells its first byte to a waiter, and counts its reads and its interim
/// responses.
pub(super) struct Overheard {
    stream: Stream,
    tells: Option<oneshot::Sender<u8>>,
    heard: Heard,
    interim: Interim,
}

impl Overheard {
    pub(super) fn new(stream: Stream) -> (Self, Greeting) {
        let (tells, first) = oneshot::channel();
        (Self { stream, tells: Some(tells), heard: Heard::default(), interim: Interim::default() }, Greeting(first))
    }

    pub(super) fn heard(&self) -> &Heard {
        &self.heard
    }
}

/// The first byte of a backend.
pub(super) struct Greeting(oneshot::Receiver<u8>);

impl Greeting {
    /// Waits for it, or for the end of `connection`: whether it is that of HTTP/2.
    pub(super) async fn speaks_http2<C>(mut self, connection: &mut C) -> bool
    where
        C: Future<Output = hyper::Result<()>> + Unpin,
    {
        std::future::poll_fn(|cx| match (Pin::new(&mut *connection).poll(cx), Pin::new(&mut self.0).poll(cx)) {
            (Poll::Pending, Poll::Ready(Ok(first))) => Poll::Ready(first == SETTINGS),
            (Poll::Pending, Poll::Pending) => Poll::Pending,
            // It ended, or nothing reads from it any more.
            _ => Poll::Ready(false),
        })
        .await
    }
}

impl AsyncRead for Overheard {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let before = buf.filled().len();
        let read = Pin::new(&mut this.stream).poll_read(cx, buf);
        let Some(first) = buf.filled().get(before) else { return read };
        this.heard.count();
        if let Some(tells) = this.tells.take() {
            // Nobody waits where HTTP/2 is not a guess.
            let _ = tells.send(*first);
        }
        this.interim.read(&buf.filled()[before..])?;
        read
    }
}

impl AsyncWrite for Overheard {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().stream).poll_write(cx, buf)
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
        Pin::new(&mut self.get_mut().stream).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}
