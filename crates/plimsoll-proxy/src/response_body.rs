//! The body of a response on its way to the client: a backend's, or one of the proxy's own.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use http_body_util::Full;
use plimsoll::client;
use plimsoll_wire::orca;

use crate::activity::ActiveRequest;
use crate::reason;

/// The body of a response on its way to the client.
pub(crate) struct ResponseBody {
    source: Source,
    /// Ends the request at its connection when the body is dropped.
    _activity: Option<ActiveRequest>,
}

enum Source {
    Backend(client::ResponseBody),
    /// One that is ended by trailers should it break off.
    BackendCall(client::ResponseBody),
    Local(Full<Bytes>),
    Ended,
}

impl ResponseBody {
    /// A body of the proxy's own.
    pub(crate) fn local(body: Bytes) -> Self {
        Self { source: Source::Local(Full::new(body)), _activity: None }
    }

    /// A backend's.
    pub(crate) fn backend(body: client::ResponseBody) -> Self {
        Self { source: Source::Backend(body), _activity: None }
    }

    /// That of a gRPC call over HTTP/2, whose client reads in trailers how it ended.
    pub(crate) fn backend_call(body: client::ResponseBody) -> Self {
        Self { source: Source::BackendCall(body), _activity: None }
    }

    /// Keeps `request` active until this body is done with.
    pub(crate) fn holding(mut self, request: ActiveRequest) -> Self {
        self._activity = Some(request);
        self
    }
}

/// The frame without the load report that trailers may hold; see `hop::strip_response`.
fn without_report<E>(mut frame: Result<Frame<Bytes>, E>) -> Result<Frame<Bytes>, E> {
    if let Ok(Some(trailers)) = frame.as_mut().map(Frame::trailers_mut) {
        orca::strip(trailers);
    }
    frame
}

impl Body for ResponseBody {
    type Data = Bytes;
    type Error = client::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        match &mut self.source {
            Source::Backend(body) => Pin::new(body).poll_frame(cx).map(|frame| frame.map(without_report)),
            Source::BackendCall(body) => {
                let frame = ready!(Pin::new(body).poll_frame(cx));
                Poll::Ready(match frame {
                    Some(Err(error)) => {
                        self.source = Source::Ended;
                        Some(Ok(Frame::trailers(reason::trailers_for(&error))))
                    }
                    frame => frame.map(without_report),
                })
            }
            Source::Ended => Poll::Ready(None),
            Source::Local(body) => Pin::new(body).poll_frame(cx).map_err(|never| match never {}),
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.source {
            Source::Backend(body) | Source::BackendCall(body) => body.is_end_stream(),
            Source::Ended => true,
            Source::Local(body) => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.source {
            Source::Backend(body) | Source::BackendCall(body) => body.size_hint(),
            Source::Ended => SizeHint::with_exact(0),
            Source::Local(body) => body.size_hint(),
        }
    }
}
