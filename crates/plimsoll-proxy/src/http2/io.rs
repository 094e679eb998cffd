//! The bytes of one client connection, without TLS, between its socket and hyper.
//!
//! All that is read passes the guard before hyper gets it, and all that is written after hyper gave
//! it. Two things are written past hyper: a GOAWAY when the guard ends the connection, and interim
//! responses (`interim`). Once the client was told why its connection ends, hyper gets an error,
//! and the socket is left to `lingering`.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::{Buf as _, Bytes};
use plimsoll_http2::Breach;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::watch::Watch;
use crate::connection::{Connection, turns};
use crate::request::upgrade::PrefixedStream;

/// The connection, as hyper sees it.
pub(super) struct ClientIo {
    /// Until it is left to `lingering`.
    io: Option<PrefixedStream>,
    connection: Arc<Connection>,
    watch: Arc<Watch>,
    /// Interim responses, as far as they are not written yet.
    interim: Bytes,
}

impl ClientIo {
    pub(super) fn new(io: PrefixedStream, connection: Arc<Connection>, watch: Arc<Watch>) -> Self {
        Self { io: Some(io), connection, watch, interim: Bytes::new() }
    }

    fn io(&mut self) -> io::Result<Pin<&mut PrefixedStream>> {
        self.io.as_mut().map(Pin::new).ok_or_else(|| io::ErrorKind::ConnectionAborted.into())
    }

    /// Ends the connection, and sends the client the reason if that is possible at once.
    fn end(&mut self, cx: &mut Context<'_>, breach: Breach) -> io::Error {
        self.connection.end_for(breach.into());
        let farewell = self.watch.guard.lock().farewell().filter(|_| self.interim.is_empty());
        if let (Some(farewell), Some(mut io)) = (farewell, self.io.take()) {
            let _ = Pin::new(&mut io).poll_write(cx, &farewell);
            *self.watch.ended.lock() = Some(io);
        }
        io::ErrorKind::ConnectionAborted.into()
    }

    fn on_write(&self, polled: &Poll<io::Result<usize>>) {
        self.connection.activity.write_is_blocked(polled.is_pending());
        if let Poll::Ready(Ok(written)) = polled {
            self.connection.activity.on_sent(*written);
        }
    }

    /// Writes the rest of begun interim responses.
    fn poll_interim(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !self.interim.is_empty() {
            let interim = self.interim.clone();
            let polled = self.io()?.poll_write(cx, &interim);
            self.on_write(&polled);
            match ready!(polled)? {
                0 => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                written => self.interim.advance(written),
            }
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncRead for ClientIo {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if this.watch.interim.is_holding() {
            // The next turn releases it.
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        let before = buf.filled().len();
        let polled = this.io()?.poll_read(cx, buf);
        let read = &mut buf.filled_mut()[before..];
        if read.is_empty() {
            return polled;
        }
        // A piece. Its bytes are bounded by windows, and must not keep answers from being written.
        this.connection.activity.on_moved(1);
        let guarded = this.watch.guard.lock().on_read(this.watch.now(), read);
        let passed = match guarded {
            Ok(passed) => passed,
            Err(breach) => return Poll::Ready(Err(this.end(cx, breach))),
        };
        if let Some(stream) = passed.expects {
            this.watch.interim.hold(cx, stream);
            if passed.length < read.len()
                && let Some(io) = &mut this.io
            {
                io.put_back(&read[passed.length..]);
                buf.set_filled(before + passed.length);
            }
        }
        polled
    }
}

impl AsyncWrite for ClientIo {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        ready!(self.poll_interim(cx))?;
        if turns::is_step_over(cx, &self.connection.activity) {
            return Poll::Pending;
        }
        let polled = self.io()?.poll_write(cx, buf);
        self.on_write(&polled);
        if let Poll::Ready(Ok(written)) = &polled {
            self.watch.guard.lock().on_written(self.watch.now(), &buf[..*written]);
        }
        polled
    }

    /// h2 calls this when all that it had to write is written, so that a frame may follow.
    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_interim(cx))?;
        let due = self.watch.interim.due();
        if !due.is_empty() {
            let frames = self.watch.guard.lock().continues(&due);
            self.interim = frames.into();
            ready!(self.poll_interim(cx))?;
        }
        self.io()?.poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.watch.guard.lock().has_ended() {
            *self.watch.ended.lock() = self.io.take();
            return Poll::Ready(Ok(()));
        }
        self.io()?.poll_shutdown(cx)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.as_ref().is_some_and(AsyncWrite::is_write_vectored)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        ready!(self.poll_interim(cx))?;
        if turns::is_step_over(cx, &self.connection.activity) {
            return Poll::Pending;
        }
        let polled = self.io()?.poll_write_vectored(cx, bufs);
        self.on_write(&polled);
        if let Poll::Ready(Ok(written)) = &polled {
            self.watch.guard.lock().on_written_vectored(self.watch.now(), bufs, *written);
        }
        polled
    }
}
