//! The response future: the stage of a request until its response begins.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::header::CONNECTION;
use http::{HeaderValue, Request, Response, StatusCode};
use http_body::Body;
use pin_project_lite::pin_project;
use plimsoll_wire::grpc::{self, Code};
use plimsoll_wire::headers::{ENDPOINT_LOAD_METRICS_BIN, X_PLIMSOLL_COST_US, X_PLIMSOLL_SHED};
use tower_service::Service;

use super::body::{OwnBody, ServerBody, Trailers, see_to};
use super::cost::Metered;
use super::in_progress::InProgress;
use super::layer::Waiting;
use super::lifecycle::Phase;
use super::places::Waits;
use super::report::{Arrival, Reporter};
use super::served::Served;

pin_project! {
    /// The response future of a [`ServerService`](super::ServerService).
    pub struct ResponseFuture<S, B>
    where
        S: Service<Request<B>>,
    {
        #[pin]
        pub(super) kind: FutureKind<S, B>,
        pub(super) reporter: Arc<Reporter>,
        pub(super) http1: bool,
    }
}

pin_project! {
    #[project = FutureKindProj]
    pub(super) enum FutureKind<S, B>
    where
        S: Service<Request<B>>,
    {
        Waits {
            #[pin]
            waits: Waits,
            // Boxed, for most do not wait.
            waiting: Option<Box<Waiting<S, B>>>,
        },
        Service {
            #[pin]
            inner: Metered<Served<S, B>>,
            arrival: Arrival,
            in_progress: Option<InProgress>,
        },
        Shed { answer: Option<Response<OwnBody>> },
        Own { answer: Pin<Box<dyn Future<Output = Response<OwnBody>> + Send>> },
    }
}

impl<S, ReqBody, ResBody> Future for ResponseFuture<S, ReqBody>
where
    S: Service<Request<ReqBody>, Response = Response<ResBody>> + Clone,
    ResBody: Body<Data = Bytes>,
{
    type Output = Result<Response<ServerBody<ResBody>>, S::Error>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut this = self.project();
        if let FutureKindProj::Waits { waits, waiting } = this.kind.as_mut().project() {
            let turn = ready!(waits.poll(cx));
            let then = waiting.take().expect(POLLED_ONCE).go_on(turn);
            this.kind.set(then);
        }
        let mut response = match this.kind.project() {
            FutureKindProj::Own { answer } => ready!(answer.as_mut().poll(cx)).map(ServerBody::own),
            FutureKindProj::Waits { .. } => unreachable!("who has had its turn waits no more"),
            FutureKindProj::Shed { answer } => answer.take().expect(POLLED_ONCE).map(ServerBody::own),
            FutureKindProj::Service { inner, arrival, in_progress } => {
                let result = ready!(inner.poll(cx));
                this.reporter.answered();
                let in_progress = in_progress.take().expect(POLLED_ONCE);
                match result {
                    Ok(response) => {
                        if !has_failed(&response) {
                            this.reporter.took(*arrival);
                        }
                        attach(response, this.reporter, in_progress)
                    }
                    Err(error) => {
                        this.reporter.failed();
                        return Poll::Ready(Err(error));
                    }
                }
            }
        };
        if *this.http1
            && this.reporter.lifecycle.phase() >= Phase::LameDuck
            && response.status() != StatusCode::SWITCHING_PROTOCOLS
        {
            response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
        }
        Poll::Ready(Ok(response))
    }
}

const POLLED_ONCE: &str = "a future is not polled after it was ready";

/// Whether the head of a response says that the request failed or was shed.
pub(super) fn has_failed<B>(response: &Response<B>) -> bool {
    let by_grpc = || matches!(Code::read(response.headers()), Some(code) if code != Code::Ok);
    response.status().is_server_error() || response.headers().contains_key(X_PLIMSOLL_SHED) || by_grpc()
}

/// Puts the report into the head or the trailers, and counts a failure that the head shows.
fn attach<B>(response: Response<B>, reporter: &Arc<Reporter>, in_progress: InProgress) -> Response<ServerBody<B>> {
    let (mut head, body) = response.into_parts();
    let mut trailers = Trailers::Done;
    if grpc::is_grpc(&head.headers) {
        if Code::read(&head.headers).is_some() {
            see_to(&mut head.headers, reporter, Some(in_progress.request()));
        } else {
            trailers = Trailers::Awaited;
        }
    } else {
        if head.status.is_server_error() || head.headers.contains_key(X_PLIMSOLL_SHED) {
            reporter.failed();
        }
        head.headers.insert(ENDPOINT_LOAD_METRICS_BIN, reporter.header(Some(in_progress.request())));
    }
    if reporter.has_cost_header {
        head.headers.insert(X_PLIMSOLL_COST_US, in_progress.request().cost_us().into());
    }
    Response::from_parts(head, ServerBody::service(body, Arc::clone(reporter), in_progress, trailers))
}
