//! The body of a request on its way to a backend.
//!
//! The caller's body, or nothing: nothing is what a request is sent again with, after it went down
//! with a connection and was known to have had an empty body. Without this the caller's type
//! would have to be able to make an empty one.

use std::pin::Pin;
use std::task::{Context, Poll};

use http_body::{Body, Frame, SizeHint};

/// The caller's body, or nothing.
pub(crate) struct Outgoing<B>(Option<B>);

impl<B> Outgoing<B> {
    pub(crate) fn new(body: B) -> Self {
        Self(Some(body))
    }

    pub(crate) fn empty() -> Self {
        Self(None)
    }
}

impl<B: Body + Unpin> Body for Outgoing<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Self::Data>, Self::Error>>> {
        match &mut self.0 {
            Some(body) => Pin::new(body).poll_frame(cx),
            None => Poll::Ready(None),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.0.as_ref().is_none_or(Body::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        self.0.as_ref().map_or_else(|| SizeHint::with_exact(0), Body::size_hint)
    }
}
