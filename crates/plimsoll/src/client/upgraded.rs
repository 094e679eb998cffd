//! A connection that has left HTTP.

use std::fmt;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::{Buf as _, BytesMut};
use http::Response;
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::attempt::Attempt;
use super::error::Error;
use super::http1::Lease;
use super::preemption::Preemption;

/// The connection to the backend after its answer `101 Switching Protocols`: bytes, in both directions. The request counts as
/// active at its backend until this is dropped, which closes the connection. While others wait for a slot, an idle one may end with
/// [`Error::Preempted`].
pub struct Upgraded {
    /// Read together with the head.
    early: BytesMut,
    lease: Lease,
    _attempt: Attempt,
    preemption: Arc<Preemption>,
}

/// Where it lies in the response until it is taken: an extension must be one that can be cloned.
#[derive(Clone)]
struct Deposit(Arc<Mutex<Option<Upgraded>>>);

impl Upgraded {
    pub(crate) fn new(mut lease: Lease, mut attempt: Attempt) -> Self {
        attempt.upgraded();
        lease.is_reusable = false;
        let preemption = attempt.preemption().clone();
        // Until its client has read, it is waited for.
        preemption.wait();
        Self { early: lease.take_input(), lease, _attempt: attempt, preemption }
    }

    pub(crate) fn put_into<T>(self, response: &mut Response<T>) {
        response.extensions_mut().insert(Deposit(Arc::new(Mutex::new(Some(self)))));
    }

    /// Ready when the tunnel was ended for other requests. For a task that may be busy writing to its client, and so would not
    /// find out by reading.
    pub fn preempted(&self) -> impl Future<Output = ()> + Send + use<> {
        self.preemption.clone().ended()
    }

    /// An error once it was ended for other requests.
    fn check(&self, cx: &Context<'_>) -> io::Result<()> {
        self.preemption.watch(cx.waker());
        if self.preemption.is_ended() { Err(io::Error::other(Error::Preempted)) } else { Ok(()) }
    }

    /// Bytes that went to the backend keep the tunnel from being ended.
    fn note(&self, written: &Poll<io::Result<usize>>) {
        if let Poll::Ready(Ok(bytes)) = written {
            self.preemption.moved(*bytes as u64);
            self.preemption.wait();
        }
    }

    /// Takes the tunnel out of the response that made the switch. `None` if there was no switch, or
    /// it was taken before. A dropped response drops a tunnel that was not taken.
    pub fn take<T>(response: &mut Response<T>) -> Option<Self> {
        response.extensions_mut().remove::<Deposit>()?.0.lock().take()
    }
}

impl AsyncRead for Upgraded {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if this.early.is_empty() {
            this.check(cx)?;
            let before = buf.filled().len();
            let read = Pin::new(&mut this.lease.stream).poll_read(cx, buf);
            match read {
                // Neither side has anything to say.
                Poll::Pending => this.preemption.wait(),
                Poll::Ready(_) => {
                    this.preemption.moved((buf.filled().len() - before) as u64);
                    // A client that takes nothing of it is waited for as well.
                    this.preemption.wait();
                }
            }
            return read;
        }
        let len = this.early.len().min(buf.remaining());
        buf.put_slice(&this.early[..len]);
        this.early.advance(len);
        if this.early.is_empty() {
            // It may live for long, and holds no memory for reading any more.
            this.early = BytesMut::new();
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Upgraded {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let written = Pin::new(&mut this.lease.stream).poll_write(cx, buf);
        this.note(&written);
        written
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().lease.stream).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().lease.stream).poll_shutdown(cx)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let written = Pin::new(&mut this.lease.stream).poll_write_vectored(cx, bufs);
        this.note(&written);
        written
    }

    fn is_write_vectored(&self) -> bool {
        self.lease.stream.is_write_vectored()
    }
}

impl fmt::Debug for Upgraded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Upgraded").finish_non_exhaustive()
    }
}
