//! One HTTP/1 connection to a backend: its bytes, and how far the response on it has been read.
//!
//! Its user (the pool, a request, the body of a response) owns it and drives it by its own polls:
//! no task stands between a request and its socket.

use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker, ready};

use bytes::BytesMut;
use http::Method;
use plimsoll_core::Timestamp;
use plimsoll_http1::{Decoder, Fault, Framing, Limits, Origin, Piece, ResponseHead, Scan};
use plimsoll_stream::Stream;
use tokio::io::{AsyncRead as _, AsyncReadExt as _, ReadBuf};
use tokio::time::{Instant, Sleep};

use super::buffers;
use crate::client::error::Cause;

/// The largest head of a response that is accepted. Servers commonly limit their own to 8 KiB to 64
/// KiB; a larger one is a fault.
const LIMITS: Limits = Limits { max_size: 128 * 1024, max_fields: 256, max_target: 128 * 1024 };

/// The most that one read asks for: a body of a megabyte takes a few reads then. More would leave
/// the processor's cache before it is written, and would hold the thread for longer at a time.
const MAX_READ: usize = 128 * 1024;

/// A connection that carries at most one request.
pub(crate) struct Connection {
    pub(crate) stream: Stream,
    /// Read, and not yet taken.
    input: BytesMut,
    /// Bytes that the next read asks for.
    read_size: usize,
    /// The memory for reading is more than others should keep.
    is_large: bool,
    decoder: Decoder,
    /// It may serve a further request when this one is over.
    pub(crate) is_reusable: bool,
    /// For the deadlines of the requests on it, once there was one; see [`Connection::poll_deadline`].
    timer: Option<Pin<Box<Sleep>>>,
    /// Woken when something happens while it is idle.
    watch: Waker,
    pub(crate) serial: u64,
    /// Requests that it was used for.
    pub(crate) requests: u64,
    /// Reading found its end.
    is_ended: bool,
    /// The backend said that it closes after this response.
    end_is_announced: bool,
    /// It was opened to be there when it is needed.
    pub(crate) is_spare: bool,
    /// It carries one request.
    pub(crate) is_single_use: bool,
    pub(crate) idle_since: Timestamp,
}

impl Connection {
    pub(crate) fn new(stream: Stream, serial: u64, watch: Arc<impl Wake + Send + Sync + 'static>) -> Box<Self> {
        Box::new(Self {
            stream,
            input: BytesMut::new(),
            read_size: buffers::INPUT,
            is_large: false,
            decoder: Decoder::new(Framing::Empty, Origin::Backend),
            is_reusable: true,
            timer: None,
            watch: Waker::from(watch),
            serial,
            requests: 0,
            is_ended: false,
            end_is_announced: false,
            is_spare: false,
            is_single_use: false,
            idle_since: Timestamp::ZERO,
        })
    }

    /// Whether nothing has come on it, not even its end, while nothing may come. It costs no system call if nothing has.
    pub(crate) fn is_silent(&mut self) -> bool {
        self.poll_silence(&mut Context::from_waker(Waker::noop()))
    }

    /// The same, and has its watch woken when something comes.
    pub(crate) fn watch_silence(&mut self) -> bool {
        let watch = self.watch.clone();
        self.poll_silence(&mut Context::from_waker(&watch))
    }

    fn poll_silence(&mut self, cx: &mut Context<'_>) -> bool {
        // Below TLS there may be bytes that were read off the socket already.
        if !self.stream.is_tls() && self.stream.poll_read_ready(cx).is_pending() {
            return true;
        }
        let mut byte = [0];
        Pin::new(&mut self.stream).poll_read(cx, &mut ReadBuf::new(&mut byte)).is_pending()
    }

    /// Whether it was idle before, so that its end may cross a request.
    pub(super) fn was_idle(&self) -> bool {
        self.is_spare || self.requests > 1
    }

    /// A request begins.
    pub(super) fn begin(&mut self) {
        self.requests += 1;
        self.is_reusable = !self.is_single_use;
    }

    /// Ready when it is later than `deadline`.
    ///
    /// The timer stays armed from request to request, and is corrected only if it fires, or would
    /// fire too late: deadlines mostly follow one another, and nearly no request meets its own. So
    /// a request costs one comparison. A timer for each would be armed and disarmed in the queue of
    /// all timers of the thread.
    pub(super) fn poll_deadline(&mut self, cx: &mut Context<'_>, deadline: Instant) -> Poll<()> {
        let timer = self.timer.get_or_insert_with(|| Box::pin(tokio::time::sleep_until(deadline)));
        if timer.deadline() > deadline {
            timer.as_mut().reset(deadline);
        }
        loop {
            ready!(timer.as_mut().poll(cx));
            if timer.deadline() >= deadline {
                return Poll::Ready(());
            }
            timer.as_mut().reset(deadline);
        }
    }

    /// The head of the response to a request with `method`, or of one that comes before it. `has_begun` is set as soon as
    /// there is a byte of it.
    pub(super) fn poll_head(
        &mut self,
        cx: &mut Context<'_>,
        scan: &mut Scan,
        method: &Method,
        has_begun: &mut bool,
    ) -> Poll<Result<ResponseHead, Cause>> {
        loop {
            if !self.input.is_empty() {
                *has_begun = true;
                if let Some(head) = ResponseHead::parse(&mut self.input, scan, &LIMITS, method)? {
                    return Poll::Ready(Ok(head));
                }
            }
            if ready!(self.poll_fill(cx, buffers::INPUT))? == 0 {
                let is_cut_off = !self.input.is_empty();
                let end = || io::Error::from(io::ErrorKind::UnexpectedEof);
                return Poll::Ready(Err(if is_cut_off { Fault::CutOff.into() } else { end().into() }));
            }
        }
    }

    /// The body that `head` announces follows.
    pub(super) fn begin_body(&mut self, head: &ResponseHead) {
        self.decoder = Decoder::new(head.framing, Origin::Backend);
        self.is_reusable &= head.keep_alive;
        self.end_is_announced = !head.keep_alive;
    }

    /// Whether its end, by the backend, says something about that one: it was used, and the end was not announced.
    pub(crate) fn end_is_news(&self) -> bool {
        self.requests > 0 && !self.is_single_use && !self.end_is_announced
    }

    /// Whether the backend has ended it, or the way there has, as far as was read.
    pub(crate) fn is_ended(&self) -> bool {
        self.is_ended
    }

    /// Whether the body of the response is over.
    pub(super) fn is_done(&self) -> bool {
        self.decoder.is_done()
    }

    /// Bytes of the body that are still to come, as far as that is known.
    pub(super) fn remaining(&self) -> Option<u64> {
        self.decoder.remaining()
    }

    /// Whether all of the body has been read, though not taken.
    pub(super) fn has_whole_body(&self) -> bool {
        self.remaining().is_some_and(|remaining| remaining <= self.input.len() as u64)
    }

    /// The next piece of the body; `None` at its end.
    pub(super) fn poll_piece(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Piece>, Cause>> {
        loop {
            if !self.input.is_empty() {
                // The spare capacity behind the bytes read stays here, however much the decoder
                // removes.
                let room = self.input.split_off(self.input.len());
                let piece = self.decoder.decode(&mut self.input);
                self.input.unsplit(room);
                let piece = piece?;
                if piece.is_some() {
                    return Poll::Ready(Ok(piece));
                }
            }
            if self.decoder.is_done() {
                return Poll::Ready(Ok(None));
            }
            let due = self.remaining().map_or(self.read_size, |due| usize::try_from(due).unwrap_or(MAX_READ));
            if ready!(self.poll_fill(cx, due))? == 0 {
                self.decoder.end_of_input()?;
                return Poll::Ready(Ok(None));
            }
        }
    }

    /// Reads once, with room for `due` bytes within reason. Zero is the end of the connection.
    fn poll_fill(&mut self, cx: &mut Context<'_>, due: usize) -> Poll<io::Result<usize>> {
        if self.input.capacity() == 0 {
            self.input = buffers::input();
        }
        let due = due.clamp(buffers::INPUT, MAX_READ);
        // The space left by the last responses is enough if it is most of the need: a response that
        // comes in two reads goes out in two writes.
        if self.input.capacity() - self.input.len() < due - due / 4 {
            self.input.reserve(due);
            self.is_large |= due > buffers::MAX_INPUT;
        }
        let room = self.input.capacity() - self.input.len();
        let read = pin!(self.stream.read_buf(&mut self.input)).poll(cx);
        match read {
            Poll::Ready(Ok(0) | Err(_)) => self.is_ended = true,
            Poll::Ready(Ok(read)) if read == room => self.read_size = (due * 2).min(MAX_READ),
            Poll::Pending if self.input.is_empty() => self.leave_input(),
            _ => {}
        }
        read
    }

    /// Gives the memory for reading back, when nothing is in it.
    fn leave_input(&mut self) {
        let input = std::mem::take(&mut self.input);
        if !std::mem::replace(&mut self.is_large, false) {
            buffers::return_input(input);
        }
    }

    /// The request on it is over. Returns whether it may serve another.
    pub(crate) fn end(&mut self) -> bool {
        let is_clean = self.input.is_empty();
        if is_clean && self.input.capacity() > 0 {
            self.leave_input();
        }
        self.read_size = buffers::INPUT;
        self.is_reusable && is_clean && self.decoder.is_done()
    }

    /// Its bytes, those first that were read already.
    pub(crate) fn take_input(&mut self) -> BytesMut {
        std::mem::take(&mut self.input)
    }
}
