//! The client as a tower service, with a response for a gRPC request that got none.
//!
//! A gRPC client reads the end of its call from a status, and makes nothing of an error below:
//! tonic reports `Unknown` for each, which misleads retries, alerts and callers. So a gRPC request
//! gets a response in any case: the status that the proxy would answer with, `x-plimsoll-shed` and
//! pushback among its metadata, and the error in full as its message. The error itself is among the
//! response's extensions, for layers between. A body that breaks off ends with trailers likewise.
//!
//! Any other request gets the error: no HTTP status belongs to the client alone.

use crate::address::Address;
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::{Request, Response};
use http_body::{Body, Frame, SizeHint};
use plimsoll_wire::grpc;
use plimsoll_wire::headers::GRPC_MESSAGE;

use super::body::ResponseBody;
use super::error::Error;
use super::pool::Pool;
use super::request_body::RequestBody;
use super::request_options::RequestOptions;
use super::send;

/// The response body of the client as a tower service. A gRPC call ends with trailers even if it
/// fails.
pub struct ServiceBody {
    /// `None` when it has failed, and where there was no response.
    source: Option<ResponseBody>,
    backend: Option<Address>,
    attempts: u32,
    is_grpc: bool,
}

/// Sends `request`; a gRPC request gets a response in any case.
pub(super) async fn call<B: RequestBody>(
    pool: &Arc<Pool<B>>,
    request: Request<B>,
) -> Result<Response<ServiceBody>, Error> {
    let is_grpc = grpc::is_grpc(request.headers());
    match send::send(pool, request, RequestOptions::default(), None).await {
        Ok(response) => Ok(response.map(|body| ServiceBody {
            backend: Some(body.backend_address()),
            attempts: body.attempts(),
            source: Some(body),
            is_grpc,
        })),
        Err(error) if is_grpc => Ok(unanswered(error)),
        Err(error) => Err(error),
    }
}

/// The response to a gRPC request that got none.
#[cold]
fn unanswered(error: Error) -> Response<ServiceBody> {
    let (backend, attempts) = (error.backend_address(), error.attempts());
    let mut response = error.to_response(true).map(|_| ServiceBody { source: None, backend, attempts, is_grpc: true });
    response.headers_mut().insert(GRPC_MESSAGE, grpc::encode_message(&error.in_full().to_string()));
    response.extensions_mut().insert(error);
    response
}

impl ServiceBody {
    /// The backend of the response, or of the failed call.
    #[must_use]
    pub fn backend_address(&self) -> Option<Address> {
        self.backend
    }

    /// The number of attempts, with the answered one.
    #[must_use]
    pub fn attempts(&self) -> u32 {
        self.attempts
    }
}

impl Body for ServiceBody {
    type Data = Bytes;
    type Error = Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        let Some(source) = &mut self.source else { return Poll::Ready(None) };
        match ready!(Pin::new(source).poll_frame(cx)) {
            Some(Err(error)) if self.is_grpc => {
                self.source = None;
                let (_, code, _) = error.row();
                Poll::Ready(Some(Ok(Frame::trailers(grpc::trailers(code, &error.in_full().to_string())))))
            }
            frame => Poll::Ready(frame),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.source.as_ref().is_none_or(Body::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        self.source.as_ref().map_or_else(|| SizeHint::with_exact(0), Body::size_hint)
    }
}

impl fmt::Debug for ServiceBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServiceBody").field("backend", &self.backend).finish_non_exhaustive()
    }
}
