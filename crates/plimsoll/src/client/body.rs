//! The body of a response, which knows when its request is over.
//!
//! It passes frames through and watches for their end: then the attempt is finished, with the
//! code and the load report of the trailers if there are any, and the connection goes back to the
//! pool. Dropped earlier, the attempt counts as cancelled.

use std::future::Future as _;
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use plimsoll_core::Outcome;
use plimsoll_wire::orca;
use tokio::time::{Instant, Sleep};

use super::attempt::Attempt;
use super::classify;
use super::cluster::Ending;
use super::error::Error;
use super::http1;
use super::outgoing::Progress;

/// The body of a response. Reading it to its end, or dropping it, ends the request.
///
/// Boxed, because a response is handed on many times before its body is looked at.
pub struct ResponseBody(Box<Inner>);

struct Inner {
    // Before the attempt, so that the connection is back when those who wait hear that the request is over.
    source: Source,
    /// `None` for a body that ends nothing.
    attempt: Option<Attempt>,
    address: SocketAddr,
    /// Attempts that were made before that one.
    made_before: u32,
    is_grpc: bool,
    /// Its end was no end, and that was told.
    cut_off: bool,
    idle: Idle,
    /// How far the request's body is, if it was not over when the answer began.
    upload: Option<Progress>,
}

/// Where its bytes come from.
pub(super) enum Source {
    /// Nowhere.
    Empty,
    Http1(http1::Incoming),
    Http2(Incoming),
}

impl Source {
    fn poll_frame(&mut self, cx: &mut Context<'_>, address: SocketAddr) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        match self {
            Self::Empty => Poll::Ready(None),
            Self::Http1(incoming) => {
                incoming.poll_frame(cx).map(|frame| frame.map(|f| f.map_err(|cause| Error::from_http1(address, cause))))
            }
            Self::Http2(incoming) => {
                let frame = Pin::new(incoming).poll_frame(cx);
                frame.map(|frame| frame.map(|f| f.map_err(|cause| Error::from_hyper(address, cause))))
            }
        }
    }

    pub(super) fn is_end_stream(&self) -> bool {
        match self {
            Self::Empty => true,
            Self::Http1(incoming) => incoming.is_end_stream(),
            Self::Http2(incoming) => incoming.is_end_stream(),
        }
    }

    pub(super) fn size_hint(&self) -> SizeHint {
        match self {
            Self::Empty => SizeHint::with_exact(0),
            Self::Http1(incoming) => incoming.size_hint(),
            Self::Http2(incoming) => incoming.size_hint(),
        }
    }
}

/// Notices when a reader has waited too long, and the request's body has not moved either. No timer exists until a read finds nothing.
struct Idle {
    limit: Duration,
    last: Option<Instant>,
    timer: Option<Pin<Box<Sleep>>>,
}

impl ResponseBody {
    pub(super) fn new(
        source: Source,
        attempt: Attempt,
        address: SocketAddr,
        is_grpc: bool,
        idle_limit: Duration,
    ) -> Self {
        let idle = Idle { limit: idle_limit, last: None, timer: None };
        let (attempt, upload) = (Some(attempt), None);
        Self(Box::new(Inner { source, attempt, address, made_before: 0, is_grpc, cut_off: false, idle, upload }))
    }

    /// One without anything in it, whose end is not that of its request.
    pub(super) fn empty(address: SocketAddr) -> Self {
        let idle = Idle { limit: Duration::MAX, last: None, timer: None };
        let (source, attempt, upload) = (Source::Empty, None, None);
        Self(Box::new(Inner { source, attempt, address, made_before: 0, is_grpc: false, cut_off: false, idle, upload }))
    }

    /// The backend that the response comes from.
    #[must_use]
    pub fn backend_address(&self) -> SocketAddr {
        self.0.address
    }

    /// Attempts that were made, the one that was answered included.
    #[must_use]
    pub fn attempts(&self) -> u32 {
        self.0.made_before + 1
    }

    pub(super) fn set_upload(&mut self, upload: Option<Progress>) {
        self.0.upload = upload;
    }

    /// The request is over, as far as the head of the response says how, though the body may be of use yet.
    pub(super) fn settle(&mut self) {
        self.0.complete(classify::bare_end(self.0.is_grpc));
    }

    pub(super) fn set_made_before(&mut self, attempts: u32) {
        self.0.made_before = attempts;
    }
}

impl Inner {
    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        let frame = match self.source.poll_frame(cx, self.address) {
            Poll::Ready(frame) => frame,
            Poll::Pending => {
                ready!(self.idle.poll(cx, self.upload.as_ref().and_then(Progress::moved)));
                self.fail_idle();
                return Poll::Ready(Some(Err(Error::BodyIdle { after: self.idle.limit })));
            }
        };
        self.idle.progress();
        Poll::Ready(match frame {
            Some(Ok(frame)) => {
                if let Some(trailers) = frame.trailers_ref() {
                    if let Some(attempt) = &mut self.attempt {
                        attempt.reported(orca::read_load(trailers));
                    }
                    self.complete(if self.is_grpc { classify::trailers(trailers) } else { Outcome::Success });
                } else if self.source.is_end_stream() {
                    self.complete(classify::bare_end(self.is_grpc));
                }
                Some(Ok(frame))
            }
            Some(Err(error)) => {
                self.fail(error.ending());
                Some(Err(error))
            }
            // hyper takes a stream that was reset without an error for an ended one.
            None if matches!(&self.source, Source::Http2(incoming) if !incoming.is_end_stream())
                && !std::mem::replace(&mut self.cut_off, true) =>
            {
                let error = Error::CutOff { address: self.address };
                self.fail(error.ending());
                Some(Err(error))
            }
            None => {
                self.complete(classify::bare_end(self.is_grpc));
                None
            }
        })
    }

    /// Only a backend that has announced what it owes, and has all of the request, is late with it. On others there may be nothing
    /// to say: a stream of events is quiet while nothing happens, a call while its caller is.
    fn fail_idle(&mut self) {
        let is_uploading = self.upload.as_ref().is_some_and(Progress::is_open);
        if self.source.size_hint().exact().is_some() && !is_uploading {
            self.fail(Ending::TimedOut);
        } else if let Some(attempt) = &mut self.attempt {
            attempt.fail_without_blame(Ending::TimedOut);
        }
    }

    fn complete(&mut self, outcome: Outcome) {
        if let Some(attempt) = &mut self.attempt {
            attempt.complete(outcome);
        }
    }

    fn fail(&mut self, ending: Ending) {
        if let Some(attempt) = &mut self.attempt {
            attempt.fail(ending);
        }
    }
}

impl Idle {
    /// Ready when nothing has come for too long, and the request's body last `moved` as long ago.
    fn poll(&mut self, cx: &mut Context<'_>, moved: Option<Instant>) -> Poll<()> {
        let last = *self.last.get_or_insert_with(Instant::now);
        let last = moved.map_or(last, |moved| moved.max(last));
        // So long that it never ends.
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
        self.0.poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.0.source.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.0.source.size_hint()
    }
}

impl std::fmt::Debug for ResponseBody {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ResponseBody").field("address", &self.0.address).finish_non_exhaustive()
    }
}
