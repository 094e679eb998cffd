//! The body of an answer: bytes or the request's own body, then perhaps trailers.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::HeaderMap;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;

/// What an answer carries after its head.
#[derive(Debug)]
pub(crate) struct AnswerBody {
    content: Content,
    trailers: Option<HeaderMap>,
}

#[derive(Debug)]
enum Content {
    Bytes(Bytes),
    /// Sent back as it comes: memory is bounded by the flow control of both sides.
    Echo(Incoming),
    End,
}

impl AnswerBody {
    /// These bytes.
    pub(crate) fn bytes(bytes: impl Into<Bytes>) -> Self {
        Self { content: Content::Bytes(bytes.into()), trailers: None }
    }

    /// Nothing.
    pub(crate) fn empty() -> Self {
        Self { content: Content::End, trailers: None }
    }

    /// What the client sends.
    pub(crate) fn echo(request: Incoming) -> Self {
        Self { content: Content::Echo(request), trailers: None }
    }

    /// With these at the end.
    pub(crate) fn with_trailers(self, trailers: HeaderMap) -> Self {
        Self { trailers: Some(trailers), ..self }
    }
}

impl Body for AnswerBody {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let this = &mut *self;
        if let Content::Echo(request) = &mut this.content {
            while let Some(frame) = ready!(Pin::new(&mut *request).poll_frame(context)) {
                // Trailers of the request are the client's; the answer has its own.
                if frame.as_ref().is_ok_and(Frame::is_trailers) {
                    continue;
                }
                return Poll::Ready(Some(frame));
            }
        }
        match std::mem::replace(&mut this.content, Content::End) {
            Content::Bytes(bytes) if !bytes.is_empty() => Poll::Ready(Some(Ok(Frame::data(bytes)))),
            _ => Poll::Ready(this.trailers.take().map(|trailers| Ok(Frame::trailers(trailers)))),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.trailers.is_none()
            && match &self.content {
                Content::Bytes(bytes) => bytes.is_empty(),
                Content::Echo(request) => request.is_end_stream(),
                Content::End => true,
            }
    }

    fn size_hint(&self) -> SizeHint {
        // An exact size becomes a content-length, which gRPC answers do not carry.
        if self.trailers.is_some() {
            return SizeHint::default();
        }
        match &self.content {
            Content::Bytes(bytes) => SizeHint::with_exact(bytes.len() as u64),
            Content::Echo(request) => request.size_hint(),
            Content::End => SizeHint::with_exact(0),
        }
    }
}
