//! The bodies that pass through: a request's with its limit, a response's from a backend or from here.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use http_body_util::Full;
use hyper::body::Incoming;
use plimsoll::client;

use crate::connection::Connection;

/// The body of a request on its way to a backend, cut off with an error where it is longer than allowed.
pub(crate) struct RequestBody {
    incoming: Incoming,
    left: u64,
}

/// The body of a request was longer than the listener allows.
#[derive(Clone, Copy, Debug)]
pub(crate) enum RequestBodyError {
    TooLong,
}

impl fmt::Display for RequestBodyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the body of the request is longer than this listener allows")
    }
}

impl std::error::Error for RequestBodyError {}

impl RequestBody {
    /// `limit` in bytes.
    pub(crate) fn new(incoming: Incoming, limit: Option<u64>) -> Self {
        Self { incoming, left: limit.unwrap_or(u64::MAX) }
    }
}

impl Body for RequestBody {
    type Data = Bytes;
    type Error = Box<dyn std::error::Error + Send + Sync>;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        let Some(frame) = ready!(Pin::new(&mut self.incoming).poll_frame(cx)) else { return Poll::Ready(None) };
        let frame = frame?;
        if let Some(data) = frame.data_ref() {
            match self.left.checked_sub(data.len() as u64) {
                Some(left) => self.left = left,
                None => return Poll::Ready(Some(Err(RequestBodyError::TooLong.into()))),
            }
        }
        Poll::Ready(Some(Ok(frame)))
    }

    fn is_end_stream(&self) -> bool {
        self.incoming.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.incoming.size_hint()
    }
}

/// The body of a response on its way to the client.
pub(crate) struct ResponseBody {
    source: Source,
    /// Ends the request at its connection when the body is dropped.
    _activity: Option<ActiveRequest>,
}

#[expect(clippy::large_enum_variant, reason = "nearly every body is a backend's: boxed, each would cost an allocation")]
enum Source {
    Backend(client::ResponseBody),
    Local(Full<Bytes>),
}

/// A request that its connection counts as active until this is dropped.
pub(crate) struct ActiveRequest(Arc<Connection>);

impl ActiveRequest {
    pub(crate) fn begin(connection: Arc<Connection>) -> Self {
        connection.activity.begin();
        Self(connection)
    }

    pub(crate) fn connection(&self) -> &Connection {
        &self.0
    }
}

impl Drop for ActiveRequest {
    fn drop(&mut self) {
        self.0.activity.end();
    }
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

    /// Keeps `request` active until this body is done with.
    pub(crate) fn holding(mut self, request: ActiveRequest) -> Self {
        self._activity = Some(request);
        self
    }
}

impl Body for ResponseBody {
    type Data = Bytes;
    type Error = client::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        match &mut self.source {
            Source::Backend(body) => Pin::new(body).poll_frame(cx),
            Source::Local(body) => Pin::new(body).poll_frame(cx).map_err(|never| match never {}),
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.source {
            Source::Backend(body) => body.is_end_stream(),
            Source::Local(body) => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.source {
            Source::Backend(body) => body.size_hint(),
            Source::Local(body) => body.size_hint(),
        }
    }
}
