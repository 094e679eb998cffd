//! The body of a gRPC response, which ends with the code of the call.

use std::pin::Pin;
use std::task::{Context, Poll};

use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;

use super::grpc::grpc_trailers_end;
use crate::{End, Report};

pin_project! {
    /// A response body that reports the end of its call: by the trailers, by an error of the body,
    /// or by the end without trailers. If it is dropped before, the caller abandoned the call.
    #[derive(Debug)]
    pub struct GrpcBody<B, R> {
        #[pin]
        body: B,
        // `None` once the end is reported.
        report: Option<R>,
    }
}

impl<B, R> GrpcBody<B, R> {
    pub(super) fn new(body: B, report: Option<R>) -> Self {
        Self { body, report }
    }
}

impl<B: Body, R: Report> Body for GrpcBody<B, R> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Self::Data>, Self::Error>>> {
        let this = self.project();
        let polled = this.body.poll_frame(cx);
        let end = match &polled {
            Poll::Ready(Some(Ok(frame))) => frame.trailers_ref().map(|trailers| grpc_trailers_end(Some(trailers))),
            Poll::Ready(Some(Err(_))) => Some(End::Broken),
            Poll::Ready(None) => Some(grpc_trailers_end(None)),
            Poll::Pending => None,
        };
        if let Some(end) = end
            && let Some(report) = this.report.take()
        {
            report.end(end);
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        // Readers may stop here, and nothing would be reported.
        self.report.is_none() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
