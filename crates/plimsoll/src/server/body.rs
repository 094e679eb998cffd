//! The body of a response: that of the service with a report in its trailers, or one of our own.
//!
//! A request is in flight until its body has ended or was dropped. The load report of a gRPC call
//! stands in its trailers, which is also where the call says whether it failed; so both are seen to
//! when the trailers pass.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
#[cfg(feature = "grpc")]
use futures_util::Stream;
use http::HeaderMap;
use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;
use plimsoll_wire::grpc::Code;
use plimsoll_wire::headers::ENDPOINT_LOAD_METRICS_BIN;

use super::cost;
use super::in_progress::InProgress;
use super::report::Reporter;

pin_project! {
    /// The body of a response that passed through a [`ServerLayer`](super::ServerLayer).
    pub struct ServerBody<B> {
        #[pin]
        kind: Kind<B>,
    }
}

pin_project! {
    #[project = KindProj]
    enum Kind<B> {
        Service {
            #[pin]
            inner: B,
            reporter: Arc<Reporter>,
            in_progress: Option<InProgress>,
            trailers: Trailers,
        },
        Own { own: OwnBody },
    }
}

/// Whether trailers are still to come that have to be seen to.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Trailers {
    /// gRPC: they carry the report and the status.
    Awaited,
    /// They went by, or it is not gRPC.
    Done,
}

/// Answers of the layer itself.
pub(super) enum OwnBody {
    Whole(Option<Bytes>),
    #[cfg(feature = "grpc")]
    Stream(Pin<Box<dyn Stream<Item = Frame<Bytes>> + Send>>),
}

impl<B> ServerBody<B> {
    pub(super) fn service(inner: B, reporter: Arc<Reporter>, in_progress: InProgress, trailers: Trailers) -> Self {
        Self { kind: Kind::Service { inner, reporter, in_progress: Some(in_progress), trailers } }
    }

    pub(super) fn own(own: OwnBody) -> Self {
        Self { kind: Kind::Own { own } }
    }
}

impl<B: Body<Data = Bytes>> Body for ServerBody<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        let (inner, reporter, in_progress, trailers) = match self.project().kind.project() {
            KindProj::Service { inner, reporter, in_progress, trailers } => (inner, reporter, in_progress, trailers),
            KindProj::Own { own } => return own.poll(cx).map(|frame| frame.map(Ok)),
        };
        let polled = match in_progress.as_ref().map(InProgress::request) {
            Some(request) => cost::run(request, || inner.poll_frame(cx)),
            None => inner.poll_frame(cx),
        };
        let frame = match ready!(polled) {
            Some(Ok(frame)) if *trailers == Trailers::Awaited => Some(Ok(match frame.into_trailers() {
                Ok(mut map) => {
                    *trailers = Trailers::Done;
                    see_to(&mut map, reporter, in_progress.as_ref().map(InProgress::request));
                    Frame::trailers(map)
                }
                Err(frame) => frame,
            })),
            Some(Ok(frame)) => Some(Ok(frame)),
            Some(Err(error)) => {
                // The end of a request counts once.
                if in_progress.take().is_some() {
                    reporter.failed();
                }
                Some(Err(error))
            }
            None => {
                if in_progress.take().is_some() && *trailers == Trailers::Awaited {
                    reporter.failed();
                }
                None
            }
        };
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        match &self.kind {
            Kind::Service { inner, .. } => inner.is_end_stream(),
            Kind::Own { own } => matches!(own, OwnBody::Whole(None)),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.kind {
            Kind::Service { inner, .. } => inner.size_hint(),
            Kind::Own { own: OwnBody::Whole(bytes) } => {
                SizeHint::with_exact(bytes.as_ref().map_or(0, |bytes| bytes.len() as u64))
            }
            #[cfg(feature = "grpc")]
            Kind::Own { own: OwnBody::Stream(_) } => SizeHint::default(),
        }
    }
}

impl OwnBody {
    #[cfg_attr(not(feature = "grpc"), expect(unused_variables, reason = "only streams wait"))]
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Option<Frame<Bytes>>> {
        match self {
            Self::Whole(bytes) => Poll::Ready(bytes.take().map(Frame::data)),
            #[cfg(feature = "grpc")]
            Self::Stream(stream) => stream.as_mut().poll_next(cx),
        }
    }
}

/// Attaches the report to the trailers of a gRPC call, or to a head that is all there is of it, and
/// counts the call as failed if it was.
pub(super) fn see_to(map: &mut HeaderMap, reporter: &Reporter, request: Option<&Arc<cost::Request>>) {
    if Code::read(map).unwrap_or(Code::Unknown).is_failure() {
        reporter.failed();
    }
    map.insert(ENDPOINT_LOAD_METRICS_BIN, reporter.header(request.map(Arc::as_ref)));
}
