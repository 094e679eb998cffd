//! The body of a response, which knows when its request is over.
//!
//! It passes frames through and watches for their end: then the attempt is finished, with the
//! code and the load report of the trailers if there are any, and the connection goes back to the
//! pool. Dropped earlier, the attempt counts as cancelled.

use crate::address::Address;
use std::future::Future as _;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use tokio::time::{Instant, Sleep};

use super::attempt::Attempt;
use super::attempt_end::AttemptEnd;
use super::classify;
use super::error::Error;
use super::http1;
#[cfg(feature = "http2")]
use super::http2_body::Http2Body;
use super::outgoing::Progress;
use super::preemption::Preemption;

/// Frames that are read before the reader asks: the message and the trailers of a short gRPC response.
const MAX_AHEAD: usize = 2;

/// The body of a response. Reading it to its end, or dropping it, ends the request.
///
/// Boxed, because a response is handed on many times before its body is looked at.
pub struct ResponseBody(Box<Inner>);

struct Inner {
    // Before the attempt, so that the connection is back when waiting requests learn of the end.
    source: Source,
    /// `None` for a body that ends nothing.
    attempt: Option<Attempt>,
    address: Address,
    /// Attempts that were made before that one.
    made_before: u32,
    is_grpc: bool,
    /// Its end was no end, and that was told.
    cut_off: bool,
    idle: Idle,
    /// How far the request's body is, if it was not over when the answer began.
    upload: Option<Progress>,
    /// Bytes that the reader has still to get, where the length was announced. Kept here, since a
    /// broken source has none left.
    left: Option<u64>,
    /// The frames that came together with the head.
    ahead: [Option<Result<Frame<Bytes>, Error>>; MAX_AHEAD],
    /// Source and attempt, while the reader has a piece; see [`preemption`](super::preemption).
    parked: Option<ParkedState>,
}

/// State of a body while it is parked.
struct ParkedState {
    preemption: Arc<Preemption>,
    /// Bytes of the piece that the reader has.
    given: u64,
}

/// A body and its attempt, while the reader has a piece.
struct Parked {
    // Before the attempt, as in [`Inner`].
    source: Source,
    attempt: Attempt,
}

/// Where its bytes come from.
pub(super) enum Source {
    /// Nowhere.
    Empty,
    Http1(http1::Incoming),
    #[cfg(feature = "http2")]
    Http2(Http2Body),
}

impl Source {
    fn poll_frame(&mut self, cx: &mut Context<'_>, address: Address) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        match self {
            Self::Empty => Poll::Ready(None),
            Self::Http1(incoming) => {
                incoming.poll_frame(cx).map(|frame| frame.map(|f| f.map_err(|cause| Error::from_http1(address, cause))))
            }
            #[cfg(feature = "http2")]
            Self::Http2(incoming) => incoming.poll_frame(cx, address),
        }
    }

    pub(super) fn is_end_stream(&self) -> bool {
        match self {
            Self::Empty => true,
            Self::Http1(incoming) => incoming.is_end_stream(),
            #[cfg(feature = "http2")]
            Self::Http2(incoming) => incoming.is_end_stream(),
        }
    }

    pub(super) fn size_hint(&self) -> SizeHint {
        match self {
            Self::Empty => SizeHint::with_exact(0),
            Self::Http1(incoming) => incoming.size_hint(),
            #[cfg(feature = "http2")]
            Self::Http2(incoming) => incoming.size_hint(),
        }
    }
}

/// Notices when a reader has waited too long and the request's body has not moved either. No timer
/// exists until a read finds nothing.
struct Idle {
    limit: Duration,
    last: Option<Instant>,
    timer: Option<Pin<Box<Sleep>>>,
}

impl ResponseBody {
    pub(super) fn new(source: Source, attempt: Attempt, address: Address, is_grpc: bool, idle_limit: Duration) -> Self {
        let idle = Idle { limit: idle_limit, last: None, timer: None };
        let mut inner = Box::new(Inner::new(source, Some(attempt), address));
        (inner.idle, inner.is_grpc) = (idle, is_grpc);
        inner.read_ahead();
        Self(inner)
    }

    /// An empty body that does not end its request.
    pub(super) fn empty(address: Address) -> Self {
        Self(Box::new(Inner::new(Source::Empty, None, address)))
    }

    /// The backend that the response comes from.
    #[must_use]
    pub fn backend_address(&self) -> Address {
        self.0.address
    }

    /// The number of attempts, with the answered one.
    #[must_use]
    pub fn attempts(&self) -> u32 {
        self.0.made_before + 1
    }

    pub(super) fn set_upload(&mut self, upload: Option<Progress>) {
        self.0.upload = upload;
    }

    /// Ends the request by the head of the response, though the body may still be of use.
    pub(super) fn settle(&mut self) {
        self.0.unpark();
        self.0.complete(classify::bare_end(self.0.is_grpc));
    }

    pub(super) fn set_made_before(&mut self, attempts: u32) {
        self.0.made_before = attempts;
    }
}

impl Inner {
    fn new(source: Source, attempt: Option<Attempt>, address: Address) -> Self {
        Self {
            source,
            attempt,
            address,
            made_before: 0,
            is_grpc: false,
            cut_off: false,
            idle: Idle { limit: Duration::MAX, last: None, timer: None },
            upload: None,
            left: None,
            ahead: [None, None],
            parked: None,
        }
    }

    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        if let Some(frame) = self.take_ahead() {
            return Poll::Ready(Some(frame));
        }
        if !self.unpark() || self.attempt.as_ref().is_some_and(|attempt| attempt.is_preempted(cx)) {
            self.end_for_others();
            return Poll::Ready(Some(Err(Error::Preempted)));
        }
        let frame = self.poll_source(cx);
        if let Poll::Ready(Some(Ok(frame))) = &frame {
            self.park(frame.data_ref().map_or(0, Bytes::len));
        }
        frame
    }

    /// Parks source and attempt where the cluster can end them, while the reader has a piece of
    /// `given` bytes.
    fn park(&mut self, given: usize) {
        if self.source.is_end_stream() {
            return;
        }
        let Some(mut attempt) = self.attempt.take_if(|attempt| attempt.is_open()) else { return };
        let preemption = attempt.preemption().clone();
        let source = std::mem::replace(&mut self.source, Source::Empty);
        // One that has ended meanwhile is dropped, and found missing at the next look.
        drop(preemption.park(Box::new(Parked { source, attempt })));
        self.parked = Some(ParkedState { preemption, given: given as u64 });
    }

    /// Takes the parked part back; says whether it was there.
    fn unpark(&mut self) -> bool {
        let Some(away) = self.parked.take() else { return true };
        let parked = away.preemption.unpark(away.given).and_then(|parked| parked.downcast::<Parked>().ok());
        let Some(parked) = parked else { return false };
        (self.source, self.attempt) = (parked.source, Some(parked.attempt));
        true
    }

    #[cold]
    fn end_for_others(&mut self) {
        self.source = Source::Empty;
        if let Some(attempt) = &mut self.attempt {
            attempt.fail(AttemptEnd::Preempted);
        }
    }

    fn poll_source(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        match self.source.poll_frame(cx, self.address) {
            Poll::Ready(frame) => Poll::Ready(self.take(frame)),
            Poll::Pending => {
                self.await_upload();
                ready!(self.idle.poll(cx, self.upload.as_ref().and_then(Progress::moved)));
                self.fail_idle();
                Poll::Ready(Some(Err(Error::BodyIdle { after: self.idle.limit })))
            }
        }
    }

    /// Takes in a frame of the source.
    fn take(&mut self, frame: Option<Result<Frame<Bytes>, Error>>) -> Option<Result<Frame<Bytes>, Error>> {
        self.idle.progress();
        match frame {
            Some(Ok(frame)) => {
                if let Some(trailers) = frame.trailers_ref() {
                    if let Some(attempt) = &mut self.attempt {
                        attempt.read_report(trailers);
                    }
                    self.complete(if self.is_grpc { classify::trailers(trailers) } else { AttemptEnd::Served });
                } else if self.source.is_end_stream() {
                    self.complete(classify::bare_end(self.is_grpc));
                }
                Some(Ok(frame))
            }
            Some(Err(error)) => {
                self.fail(error.end());
                Some(Err(error))
            }
            #[cfg(feature = "http2")]
            // hyper takes a stream that was reset without an error for an ended one.
            None if matches!(&self.source, Source::Http2(incoming) if !incoming.is_end_stream())
                && !std::mem::replace(&mut self.cut_off, true) =>
            {
                let error = Error::CutOff { address: self.address };
                self.fail(error.end());
                Some(Err(error))
            }
            None => {
                self.complete(classify::bare_end(self.is_grpc));
                None
            }
        }
    }

    /// Takes the frames that came together with the head, so that a short response gives its slot
    /// back before its reader has looked at it. Of a longer one the rest is parked: a client may
    /// never ask for it.
    fn read_ahead(&mut self) {
        self.left = self.source.size_hint().exact();
        let mut cx = Context::from_waker(Waker::noop());
        for at in 0..self.ahead.len() {
            if self.attempt.as_ref().is_none_or(|attempt| !attempt.is_open()) {
                return;
            }
            let Poll::Ready(frame) = self.source.poll_frame(&mut cx, self.address) else { break };
            self.ahead[at] = self.take(frame);
        }
        self.park(0);
    }

    /// The frames read ahead, in order.
    fn take_ahead(&mut self) -> Option<Result<Frame<Bytes>, Error>> {
        let frame = self.ahead.iter_mut().find_map(Option::take)?;
        if let (Some(away), Ok(frame)) = (&mut self.parked, &frame) {
            away.given += frame.data_ref().map_or(0, Bytes::len) as u64;
        }
        Some(frame)
    }

    /// A backend is late only if it has announced more and has all of the request. Others may have
    /// nothing to say: a stream of events is quiet while nothing happens, a call while its caller
    /// is.
    fn fail_idle(&mut self) {
        let is_uploading = self.upload.as_ref().is_some_and(Progress::is_open);
        if self.source.size_hint().exact().is_some() && !is_uploading {
            self.fail(AttemptEnd::BodyOverdue);
        } else if let Some(attempt) = &mut self.attempt {
            attempt.fail(AttemptEnd::BodyIdle);
        }
    }

    /// Nothing comes from the backend, and the caller owes more of the request: this waits for the
    /// caller.
    fn await_upload(&mut self) {
        if self.upload.as_ref().is_some_and(Progress::is_awaited)
            && let Some(attempt) = self.attempt.as_mut().filter(|attempt| attempt.is_open())
        {
            attempt.preemption().wait();
        }
    }

    fn complete(&mut self, end: AttemptEnd) {
        if let Some(attempt) = &mut self.attempt {
            attempt.complete(end);
        }
    }

    fn fail(&mut self, end: AttemptEnd) {
        if let Some(attempt) = &mut self.attempt {
            attempt.fail(end);
        }
    }
}

impl Idle {
    /// Ready when nothing has come for too long, and the request's body last `moved` as long ago.
    fn poll(&mut self, cx: &mut Context<'_>, moved: Option<Instant>) -> Poll<()> {
        let last = *self.last.get_or_insert_with(Instant::now);
        let last = moved.map_or(last, |moved| moved.max(last));
        // The limit is beyond the clock: it never ends.
        let Some(end) = last.checked_add(self.limit) else { return Poll::Pending };
        let timer = self.timer.get_or_insert_with(|| Box::pin(tokio::time::sleep_until(end)));
        loop {
            ready!(timer.as_mut().poll(cx));
            if Instant::now() < end {
                timer.as_mut().reset(end);
                continue;
            }
            return Poll::Ready(());
        }
    }

    /// Something came: the next wait begins anew. The timer itself stays where it is and is put right
    /// only if it fires, so that a frame costs nothing here.
    fn progress(&mut self) {
        self.last = None;
    }
}

impl Body for ResponseBody {
    type Data = Bytes;
    type Error = Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        let frame = self.0.poll_frame(cx);
        if let (Some(left), Poll::Ready(Some(Ok(frame)))) = (&mut self.0.left, &frame) {
            *left = left.saturating_sub(frame.data_ref().map_or(0, Bytes::len) as u64);
        }
        frame
    }

    fn is_end_stream(&self) -> bool {
        let inner = &self.0;
        inner.ahead.iter().all(Option::is_none) && inner.parked.is_none() && inner.source.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        match self.0.left {
            Some(left) => SizeHint::with_exact(left),
            None if self.is_end_stream() => SizeHint::with_exact(0),
            None => SizeHint::default(),
        }
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.unpark();
    }
}

impl std::fmt::Debug for ResponseBody {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ResponseBody").field("address", &self.0.address).finish_non_exhaustive()
    }
}
