//! A response that is read while its request is still being sent.
//!
//! The rest of the request gets a task of its own here, and only here. Suppose that it went on only
//! while the response is read. Then a caller that sends all before it reads, and a backend that
//! answers as it reads, would wait for each other for ever. Once the response is over, nothing more
//! is sent.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use parking_lot::Mutex;
use plimsoll_http1::Piece;
use tokio::io::AsyncWrite;
use tokio::task::AbortHandle;

use super::Lease;
use super::upload::{Failure, Upload};
use crate::client::error::Cause;
use crate::client::outgoing::{Outgoing, Progress};
use crate::client::request_body::RequestBody;

/// The response's side. Dropped, the connection is closed and nothing more is sent.
pub(crate) struct Duplex {
    shared: Arc<Mutex<Shared>>,
    upload: AbortHandle,
    progress: Option<Progress>,
}

struct Shared {
    /// There until the response's side is done with it.
    lease: Option<Lease>,
    /// The request's body failed; why.
    failed: Option<Cause>,
    /// The request is out.
    is_sent: bool,
    reader: Option<Waker>,
}

impl Duplex {
    /// Sends the rest of `body` beside the response that comes on `lease`.
    pub(super) fn spawn<B: RequestBody>(lease: Lease, mut upload: Upload<Outgoing<B>>, mut body: Outgoing<B>) -> Self {
        let shared = Shared { lease: Some(lease), failed: None, is_sent: false, reader: None };
        let shared = Arc::new(Mutex::new(shared));
        let mut writer = Writer(shared.clone());
        let progress = body.follow();
        let upload = tokio::spawn(async move {
            // The caller's body is polled outside the lock.
            let result = std::future::poll_fn(|cx| upload.poll_rest(cx, &mut body, &mut writer)).await;
            let mut shared = writer.0.lock();
            match result {
                Ok(()) => shared.is_sent = true,
                // Nobody reads it any more; the response may well be whole.
                Err(Failure::Write(_)) => {}
                Err(Failure::Body(error)) => shared.failed = Some(Cause::body(error)),
            }
            let reader = shared.reader.take();
            drop(shared);
            if let Some(reader) = reader {
                reader.wake();
            }
        });
        Self { shared, upload: upload.abort_handle(), progress }
    }

    /// The progress of the request's body, for its one follower.
    pub(super) fn take_progress(&mut self) -> Option<Progress> {
        self.progress.take()
    }

    /// The next piece of the response.
    pub(super) fn poll_piece(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Piece>, Cause>> {
        let mut shared = self.shared.lock();
        if let Some(cause) = shared.failed.take() {
            return Poll::Ready(Err(cause));
        }
        let Some(lease) = &mut shared.lease else { return Poll::Ready(Ok(None)) };
        let piece = lease.poll_piece(cx);
        if piece.is_pending() && !shared.is_sent {
            shared.reader = Some(cx.waker().clone());
        }
        piece
    }

    /// Whether the response is over.
    pub(super) fn is_done(&self) -> bool {
        self.shared.lock().lease.as_ref().is_none_or(|lease| lease.is_done())
    }

    /// Bytes of the response's body that are still to come, as far as that is known.
    pub(super) fn remaining(&self) -> Option<u64> {
        self.shared.lock().lease.as_ref().map_or(Some(0), |lease| lease.remaining())
    }

    /// The response is over, well or not.
    pub(super) fn end(self) {
        let mut shared = self.shared.lock();
        let is_sent = shared.is_sent;
        let lease = shared.lease.take();
        drop(shared);
        if let Some(mut lease) = lease {
            lease.is_reusable &= is_sent;
            lease.end();
        }
    }
}

impl Drop for Duplex {
    fn drop(&mut self) {
        self.upload.abort();
        let lease = self.shared.lock().lease.take();
        drop(lease);
    }
}

/// The request's side of the connection.
struct Writer(Arc<Mutex<Shared>>);

impl Writer {
    fn with<T>(
        &self,
        write: impl FnOnce(Pin<&mut plimsoll_stream::Stream>) -> Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        match &mut self.0.lock().lease {
            Some(lease) => write(Pin::new(&mut lease.stream)),
            None => Poll::Ready(Err(io::ErrorKind::BrokenPipe.into())),
        }
    }
}

impl AsyncWrite for Writer {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        self.with(|stream| stream.poll_write(cx, buf))
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.with(|stream| stream.poll_flush(cx))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.with(|stream| stream.poll_shutdown(cx))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.with(|stream| stream.poll_write_vectored(cx, bufs))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }
}
