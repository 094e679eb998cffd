//! Whether a backend speaks HTTP/2, where that is a guess.
//!
//! Under [`Protocol::Auto`](crate::client::Protocol) it is the sender's `content-type` that has a backend spoken to by HTTP/2. A
//! backend that knows HTTP/1.1 only answers with an error or closes, and must not be held to be broken for what any client can
//! write. So the connection carries no request before the backend's first byte has come: a server that speaks HTTP/2 begins with a
//! SETTINGS frame (RFC 9113, 3.4), whose first byte, of its length, is zero; nothing that another protocol answers begins so.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::oneshot;

use crate::client::error::ConnectError;
use crate::stream::Stream;

/// The first byte of a SETTINGS frame of less than 65,536 bytes.
const SETTINGS: u8 = 0;

/// A connection whose first byte is told to who waits for it.
pub(super) struct Overheard {
    stream: Stream,
    tells: Option<oneshot::Sender<u8>>,
}

impl Overheard {
    pub(super) fn new(stream: Stream) -> (Self, Greeting) {
        let (tells, first) = oneshot::channel();
        (Self { stream, tells: Some(tells) }, Greeting(first))
    }
}

/// What a backend says first.
pub(super) struct Greeting(oneshot::Receiver<u8>);

impl Greeting {
    /// Waits for it, while `connection` reads.
    pub(super) async fn of<C>(mut self, connection: &mut C) -> Result<(), ConnectError>
    where
        C: Future<Output = hyper::Result<()>> + Unpin,
    {
        std::future::poll_fn(|cx| {
            let ended = Pin::new(&mut *connection).poll(cx);
            match (self.0.try_recv(), ended) {
                (Ok(SETTINGS), Poll::Pending) => Poll::Ready(Ok(())),
                (Ok(first), _) if first != SETTINGS => Poll::Ready(Err(ConnectError::NotHttp2)),
                (_, Poll::Ready(Err(error))) => Poll::Ready(Err(ConnectError::Handshake(error.into()))),
                (_, Poll::Ready(Ok(()))) => Poll::Ready(Err(ConnectError::ClosedAtOnce)),
                // The connection has registered who is to be woken.
                (_, Poll::Pending) => Poll::Pending,
            }
        })
        .await
    }
}

impl AsyncRead for Overheard {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let before = buf.filled().len();
        let read = Pin::new(&mut this.stream).poll_read(cx, buf);
        if this.tells.is_some()
            && let Some(first) = buf.filled().get(before)
            && let Some(tells) = this.tells.take()
        {
            // Nobody waits where HTTP/2 is not a guess.
            let _ = tells.send(*first);
        }
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
