//! One HTTP/1 connection of a client: a request, its answer, the next request.
//!
//! ```text
//! bytes ──Input──▶ RequestHead ─────────▶ forward ─────▶ Response
//!          └──▶ Decoder ──▶ pipe ──▶ RequestBody ┘           │
//! bytes ◀──Output── write ◀──────────────────────────────────┘
//! ```
//!
//! All of it is one task, and one future drives both directions: an early response is passed on
//! while the body still comes in, and a request costs no wake-up but those by its two sockets.
//! While it waits for a request it holds no buffer.

mod exchange;

use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use plimsoll_core::Rejection;
use plimsoll_http1::{Limits, RequestHead, Scan};
use plimsoll_stream::{Input, Output, Stream};
use tokio::io::AsyncWrite as _;

use crate::connection::Connection;
use crate::connection::activity::{Memory, Stage};
use crate::connection::time_limits::{LINGER, LINGER_BYTES};
use crate::reason::Refusal;
use crate::request::answer;
use crate::request::forward::Switched;
use crate::request::upgrade::PrefixedStream;

/// How an HTTP/2 connection begins whose client knows beforehand that this is spoken (RFC 9113,
/// 3.4).
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// How the HTTP/1 part of a connection ended.
pub(crate) enum End {
    /// It is closed.
    Closed,
    /// It speaks HTTP/2, as its first bytes say; see [`Http1::into_stream`].
    Http2,
    /// It left HTTP; the client's side is in [`Http1::into_stream`].
    Upgraded(Box<Switched>),
}

/// A connection that speaks HTTP/1, or has not spoken yet.
pub(crate) struct Http1 {
    stream: Stream,
    input: Input,
    output: Output,
    scan: Scan,
    connection: Arc<Connection>,
    /// Whether the first bytes may be those of HTTP/2.
    may_be_http2: bool,
}

/// The state of a connection after an exchange, or in place of one.
enum NextState {
    /// It may have another request.
    Next,
    Http2,
    /// It ends; `unread`: the client may still be sending.
    Close {
        unread: bool,
    },
    /// It is closed, or no more can be said to the client.
    Broken,
    Refuse(Refusal),
    Upgraded(Box<Switched>),
}

impl Http1 {
    pub(crate) fn new(stream: Stream, connection: Arc<Connection>) -> Self {
        Self {
            stream,
            input: Input::default(),
            output: Output::default(),
            scan: Scan::default(),
            connection,
            may_be_http2: true,
        }
    }

    pub(crate) fn connection(&self) -> &Arc<Connection> {
        &self.connection
    }

    /// Serves until the connection ends or speaks something else.
    ///
    /// Requests have a box of their own: each idle connection would hold the memory otherwise. While
    /// requests follow each other it is kept. A new one for each request costs a copy of some KiB,
    /// to memory that the processor's cache no longer has.
    pub(crate) async fn serve(&mut self) -> End {
        loop {
            let state = match poll_fn(|cx| self.poll_next(cx)).await {
                Ok(head) => Box::pin(self.serve_requests(head)).await,
                Err(state) => state,
            };
            match state {
                NextState::Next => {}
                NextState::Http2 => return End::Http2,
                NextState::Close { unread } => {
                    self.close(unread).await;
                    return End::Closed;
                }
                NextState::Broken => return End::Closed,
                NextState::Refuse(refusal) => {
                    Box::pin(self.refuse(refusal)).await;
                    return End::Closed;
                }
                NextState::Upgraded(switched) => return End::Upgraded(switched),
            }
        }
    }

    /// Serves a request and those that follow it soon.
    async fn serve_requests(&mut self, mut head: Box<RequestHead>) -> NextState {
        let state = loop {
            self.connection.activity.set_memory(Memory::Held);
            match self.exchange(head).await {
                NextState::Next => {}
                state => break state,
            }
            match poll_fn(|cx| self.poll_next(cx)).await {
                Ok(next) => head = next,
                Err(state) => break state,
            }
        };
        self.connection.activity.set_memory(Memory::Free);
        state
    }

    /// The connection as it is handed on, with the bytes that were read of it.
    pub(crate) fn into_stream(mut self) -> PrefixedStream {
        PrefixedStream { first: std::mem::take(self.input.bytes()).freeze(), stream: self.stream }
    }

    fn head_limits(&self) -> Limits {
        let limits = &self.connection.limits;
        Limits { max_size: limits.max_header_size, max_fields: limits.max_headers, max_target: limits.max_uri }
    }

    /// The head of the next request, or the state of the connection without one.
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Result<Box<RequestHead>, NextState>> {
        let activity = &self.connection.activity;
        loop {
            if !self.input.is_empty() {
                activity.enter(Stage::Head);
                if self.may_be_http2 {
                    match preface(self.input.bytes()) {
                        Some(true) => return Poll::Ready(Err(NextState::Http2)),
                        Some(false) => self.may_be_http2 = false,
                        None => {}
                    }
                }
                if !self.may_be_http2 {
                    let head_limits = self.head_limits();
                    match RequestHead::parse(self.input.bytes(), &mut self.scan, &head_limits) {
                        Ok(Some(head)) => {
                            activity.enter(Stage::Busy);
                            return Poll::Ready(Ok(Box::new(head)));
                        }
                        Ok(None) => {}
                        Err(fault) => return Poll::Ready(Err(NextState::Refuse(Refusal::Malformed(fault)))),
                    }
                }
            }
            if self.input.is_empty() {
                activity.enter(Stage::Idle);
                if activity.is_closing() {
                    return Poll::Ready(Err(NextState::Broken));
                }
            }
            match self.input.poll_head(&mut self.stream, cx) {
                Poll::Ready(Ok(read)) if read > 0 => {}
                Poll::Ready(_) => return Poll::Ready(Err(NextState::Broken)),
                Poll::Pending if activity.is_overdue() => return Poll::Ready(Err(self.overdue())),
                Poll::Pending if activity.memory() == Memory::Unwanted => return Poll::Ready(Err(NextState::Next)),
                Poll::Pending => return Poll::Pending,
            }
        }
    }

    /// A client that has sent a part of a head gets a response.
    fn overdue(&self) -> NextState {
        if self.input.is_empty() { NextState::Broken } else { NextState::Refuse(Refusal::of(Rejection::SlowHead)) }
    }

    /// Responds to bytes that are no valid request, and closes.
    async fn refuse(&mut self, refusal: Refusal) {
        self.connection.context.counts.refusals.count(refusal);
        answer::write_refusal(self.output.buffer(), refusal);
        if poll_fn(|cx| self.poll_write(cx)).await.is_ok() {
            self.close(true).await;
        }
    }

    fn poll_write(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let activity = &self.connection.activity;
        let polled = self.output.poll_write(&mut self.stream, cx, |written| activity.on_sent(written));
        activity.write_is_blocked(polled.is_pending());
        polled
    }

    /// Ends the connection so that the client gets all that was written to it.
    async fn close(&mut self, unread: bool) {
        if unread || poll_fn(|cx| Poll::Ready(self.has_more_to_do(cx))).await {
            Box::pin(self.linger(unread)).await;
        }
    }

    /// Whether more than a close of the socket is due: a word of TLS, or bytes to be read, which
    /// would make a reset of the close.
    fn has_more_to_do(&self, cx: &mut Context<'_>) -> bool {
        matches!(self.stream, Stream::Tls(_)) || !self.input.is_empty() || self.stream.poll_read_ready(cx).is_ready()
    }

    async fn linger(&mut self, unread: bool) {
        let unread = unread || !matches!(self.stream, Stream::Tls(_));
        let mut dropped = 0;
        let _ = tokio::time::timeout(LINGER, poll_fn(|cx| self.poll_close(cx, unread, &mut dropped))).await;
    }

    fn poll_close(&mut self, cx: &mut Context<'_>, unread: bool, dropped: &mut usize) -> Poll<()> {
        if ready!(Pin::new(&mut self.stream).poll_shutdown(cx)).is_err() || !unread && self.input.is_empty() {
            return Poll::Ready(());
        }
        loop {
            *dropped += std::mem::take(self.input.bytes()).len();
            if *dropped > LINGER_BYTES || !matches!(ready!(self.input.poll_head(&mut self.stream, cx)), Ok(1..)) {
                return Poll::Ready(());
            }
        }
    }
}

/// Whether the first bytes of a connection are HTTP/2's; `None` if more are needed to know.
fn preface(bytes: &[u8]) -> Option<bool> {
    let common = bytes.len().min(PREFACE.len());
    if bytes[..common] != PREFACE[..common] { Some(false) } else { (common == PREFACE.len()).then_some(true) }
}
