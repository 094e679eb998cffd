//! The body of a response, which knows when its request is over.
//!
//! It passes hyper's frames through and watches for their end: then the attempt is finished, with the
//! code and the load report of the trailers if there are any, and the connection goes back to the
//! pool. Dropped earlier, the attempt counts as cancelled.

use std::future::Future as _;
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http::Version;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use plimsoll_core::Outcome;
use plimsoll_wire::orca;
use tokio::time::{Instant, Sleep};

use super::attempt::Attempt;
use super::classify;
use super::cluster::Ending;
use super::error::Error;

/// The body of a response. Reading it to its end, or dropping it, ends the request.
pub struct ResponseBody {
    incoming: Incoming,
    attempt: Attempt,
    address: SocketAddr,
    is_grpc: bool,
    http2: bool,
    /// Its end was no end, and that was told.
    cut_off: bool,
    idle: Idle,
}

/// Notices when a reader has waited too long. No timer exists until a read finds nothing.
struct Idle {
    limit: Duration,
    last: Option<Instant>,
    timer: Option<Pin<Box<Sleep>>>,
}

impl ResponseBody {
    /// `version` is that of the response.
    pub(super) fn new(
        incoming: Incoming,
        version: Version,
        attempt: Attempt,
        address: SocketAddr,
        is_grpc: bool,
        idle_limit: Duration,
    ) -> Self {
        let idle = Idle { limit: idle_limit, last: None, timer: None };
        Self { incoming, attempt, address, is_grpc, http2: version == Version::HTTP_2, cut_off: false, idle }
    }

    /// The backend that the response comes from.
    #[must_use]
    pub fn backend_address(&self) -> SocketAddr {
        self.address
    }
}

impl Idle {
    /// Ready when nothing has come for too long.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let limit = self.limit;
        let last = *self.last.get_or_insert_with(Instant::now);
        let timer = self.timer.get_or_insert_with(|| Box::pin(tokio::time::sleep_until(last + limit)));
        loop {
            ready!(timer.as_mut().poll(cx));
            if Instant::now() < last + limit {
                timer.as_mut().reset(last + limit);
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

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        let this = self.get_mut();
        let frame = match Pin::new(&mut this.incoming).poll_frame(cx) {
            Poll::Ready(frame) => frame,
            Poll::Pending => {
                ready!(this.idle.poll(cx));
                this.attempt.fail(Ending::TimedOut);
                return Poll::Ready(Some(Err(Error::BodyIdle { after: this.idle.limit })));
            }
        };
        this.idle.progress();
        Poll::Ready(match frame {
            Some(Ok(frame)) => {
                if let Some(trailers) = frame.trailers_ref() {
                    this.attempt.reported(orca::read_load(trailers));
                    let outcome = if this.is_grpc { classify::trailers(trailers) } else { Outcome::Success };
                    this.attempt.complete(outcome);
                } else if this.incoming.is_end_stream() {
                    this.attempt.complete(classify::bare_end(this.is_grpc));
                }
                Some(Ok(frame))
            }
            Some(Err(cause)) => {
                let error = Error::from_hyper(this.address, cause);
                this.attempt.fail(error.ending());
                Some(Err(error))
            }
            // hyper takes a stream that was reset without an error for an ended one.
            None if this.http2 && !this.incoming.is_end_stream() && !std::mem::replace(&mut this.cut_off, true) => {
                let error = Error::CutOff { address: this.address };
                this.attempt.fail(error.ending());
                Some(Err(error))
            }
            None => {
                this.attempt.complete(classify::bare_end(this.is_grpc));
                None
            }
        })
    }

    fn is_end_stream(&self) -> bool {
        self.incoming.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.incoming.size_hint()
    }
}

impl std::fmt::Debug for ResponseBody {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ResponseBody").field("address", &self.address).finish_non_exhaustive()
    }
}
