//! The body of a request on one HTTP/2 stream, which a backend gets whole only if it ended as it
//! should.
//!
//! A stream may still turn out malformed after the last byte that its `content-length` announces:
//! by more data, or by pseudo-fields in its trailers (RFC 9113, 8.1.1). A backend on HTTP/1 counts
//! bytes, and would have executed the request by then. So the piece that completes a body of known
//! length is withheld until the stream has ended. Clients mostly end it in the same frame, and then
//! nothing is held.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::HeaderMap;
use http_body::{Body as _, Frame, SizeHint};
use hyper::body::Incoming;

use super::RequestBodyError;
use super::interim::Continue;
use super::silence::Silence;
use crate::limits::Limits;

/// The body of a request on an HTTP/2 stream.
pub(crate) struct StreamBody {
    incoming: Incoming,
    silence: Silence,
    /// The client waits for 100 (Continue).
    on_first_poll: Option<Continue>,
    /// The last piece, until the end of the stream.
    last: Option<Bytes>,
    /// The trailers behind the last piece.
    trailers: Option<HeaderMap>,
}

type Polled = Poll<Option<Result<Frame<Bytes>, RequestBodyError>>>;

impl StreamBody {
    pub(crate) fn new(incoming: Incoming, limits: &Limits, on_first_poll: Option<Continue>) -> Self {
        let silence = Silence::new(limits.idle_timeout, limits.min_body_rate);
        Self { incoming, silence, on_first_poll, last: None, trailers: None }
    }

    pub(crate) fn poll_frame(&mut self, cx: &mut Context<'_>) -> Polled {
        if let Some(waiting) = self.on_first_poll.take() {
            waiting.send();
        }
        if let Some(trailers) = self.trailers.take() {
            return Poll::Ready(Some(Ok(Frame::trailers(trailers))));
        }
        loop {
            let polled = match ready!(self.poll_incoming(cx)) {
                Some(Ok(frame)) => frame,
                Some(Err(error)) => return Poll::Ready(Some(Err(error))),
                None => return Poll::Ready(self.last.take().map(|last| Ok(Frame::data(last)))),
            };
            match polled.into_data() {
                Ok(data) if self.is_whole() && !self.incoming.is_end_stream() => self.last = Some(data),
                Ok(data) => return Poll::Ready(Some(Ok(Frame::data(data)))),
                Err(frame) => {
                    let Some(last) = self.last.take() else { return Poll::Ready(Some(Ok(frame))) };
                    self.trailers = frame.into_trailers().ok();
                    return Poll::Ready(Some(Ok(Frame::data(last))));
                }
            }
        }
    }

    /// All bytes that were announced have come.
    fn is_whole(&self) -> bool {
        self.incoming.size_hint().exact() == Some(0)
    }

    fn poll_incoming(&mut self, cx: &mut Context<'_>) -> Polled {
        match Pin::new(&mut self.incoming).poll_frame(cx) {
            Poll::Pending => {
                ready!(self.silence.poll(cx));
                Poll::Ready(Some(Err(RequestBodyError::TooSlow)))
            }
            Poll::Ready(Some(frame)) => {
                let data = frame.as_ref().ok().and_then(Frame::data_ref);
                self.silence.on_bytes(data.map_or(0, Bytes::len));
                Poll::Ready(Some(frame.map_err(|_| RequestBodyError::CutOff)))
            }
            // hyper takes a stream that was reset without an error for an ended one. A backend must
            // not see a whole request where the client sent half of one.
            Poll::Ready(None) if !self.incoming.is_end_stream() => Poll::Ready(Some(Err(RequestBodyError::CutOff))),
            Poll::Ready(None) => Poll::Ready(None),
        }
    }

    pub(crate) fn is_end_stream(&self) -> bool {
        self.last.is_none() && self.trailers.is_none() && self.incoming.is_end_stream()
    }

    pub(crate) fn size_hint(&self) -> SizeHint {
        let hint = self.incoming.size_hint();
        let last = self.last.as_ref().map_or(0, Bytes::len) as u64;
        hint.exact().map_or(hint, |left| SizeHint::with_exact(left + last))
    }
}
