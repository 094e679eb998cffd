//! The tower layer that makes a service tell its clients how it is.
//!
//! Around any `http` service: hyper's, axum's, tonic's. Each response gets the load report, as a
//! header, or as a trailer when it is gRPC; failed ones too, because a client that hears nothing from
//! a failing backend would believe its last good word. A lame duck's HTTP/1 responses close their
//! connection, which is the only way that HTTP/1 has of saying "go elsewhere" without failing a
//! request. (HTTP/2 says it by GOAWAY, which is the connection's matter: see
//! [`serve`](super::serve).)
//!
//! What counts as failed: a status of 500 or more, a gRPC code that blames the server
//! ([`Code::is_failure`]), a request that was shed, an error of the service or of the body. A body
//! that the client gave up on does not.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use http::header::CONNECTION;
use http::{HeaderValue, Request, Response, StatusCode, Version};
use http_body::Body;
use pin_project_lite::pin_project;
use plimsoll_core::LoadReport;
use plimsoll_wire::grpc::{self, Code};
use plimsoll_wire::headers::{ENDPOINT_LOAD_METRICS_BIN, X_PLIMSOLL_SHED};
use tower_layer::Layer;
use tower_service::Service;

use super::body::{OwnBody, ReportBody, Trailers, see_to};
use super::endpoints::Endpoint;
use super::lifecycle::{InFlight, Lifecycle, Phase};
use super::meter;
use super::report::{Arrival, ReportSource, Reporter};

/// Adds load reports, health and lame duck to a service. Clones share one set of counts.
#[derive(Clone)]
pub struct ReportLayer {
    reporter: Arc<Reporter>,
    readiness_path: Option<Arc<str>>,
}

/// What can be set about a [`ReportLayer`].
#[must_use]
pub struct ReportLayerBuilder {
    lifecycle: Lifecycle,
    window: Duration,
    cpus: Option<f64>,
    source: Option<Box<dyn ReportSource>>,
    readiness_path: Option<Arc<str>>,
}

impl ReportLayer {
    /// A layer that reports what it measures, for the server whose life `lifecycle` is.
    #[must_use]
    pub fn new(lifecycle: Lifecycle) -> Self {
        Self::builder(lifecycle).build()
    }

    /// The same, with settings.
    pub fn builder(lifecycle: Lifecycle) -> ReportLayerBuilder {
        ReportLayerBuilder { lifecycle, window: meter::DEFAULT_WINDOW, cpus: None, source: None, readiness_path: None }
    }

    /// The life of the server that this layer reports on.
    #[must_use]
    pub fn lifecycle(&self) -> &Lifecycle {
        &self.reporter.lifecycle
    }

    /// What the server would report now.
    #[must_use]
    pub fn load(&self) -> LoadReport {
        LoadReport::from(&self.reporter.report())
    }
}

impl ReportLayerBuilder {
    /// The window over which rates and CPU are averaged: default 1 s, at least 100 ms.
    pub fn window(mut self, window: Duration) -> Self {
        self.window = window;
        self
    }

    /// The CPUs that 100% utilization stands for: by default all that the process may use. A server
    /// that can only keep one thread busy is full at 1.0. At least a hundredth of a CPU.
    pub fn cpus(mut self, cpus: f64) -> Self {
        self.cpus = Some(cpus.max(0.01));
        self
    }

    /// Reports what `source` makes of the measured load.
    pub fn source(mut self, source: impl ReportSource) -> Self {
        self.source = Some(Box::new(source));
        self
    }

    /// Answers GET and HEAD of `path` (`/readyz`, say): 200 while requests are welcome, else 503. By
    /// default no path is taken from the service.
    pub fn readiness_path(mut self, path: impl Into<Arc<str>>) -> Self {
        self.readiness_path = Some(path.into());
        self
    }

    /// The layer.
    #[must_use]
    pub fn build(self) -> ReportLayer {
        ReportLayer {
            reporter: Reporter::new(self.lifecycle, self.window, self.cpus, self.source),
            readiness_path: self.readiness_path,
        }
    }
}

impl<S> Layer<S> for ReportLayer {
    type Service = ReportService<S>;

    fn layer(&self, inner: S) -> ReportService<S> {
        ReportService { inner, layer: self.clone() }
    }
}

/// A service within a [`ReportLayer`].
#[derive(Clone)]
pub struct ReportService<S> {
    inner: S,
    layer: ReportLayer,
}

impl<S, ReqBody, ResBody> Service<Request<ReqBody>> for ReportService<S>
where
    S: Service<Request<ReqBody>, Response = Response<ResBody>>,
    ReqBody: Body + Send + 'static,
    ReqBody::Data: Send,
    ReqBody::Error: Send,
    ResBody: Body<Data = Bytes>,
{
    type Response = Response<ReportBody<ResBody>>;
    type Error = S::Error;
    type Future = ResponseFuture<S::Future>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<ReqBody>) -> Self::Future {
        let reporter = Arc::clone(&self.layer.reporter);
        let http1 = request.version() <= Version::HTTP_11;
        let kind = match Endpoint::of(&request, self.layer.readiness_path.as_deref()) {
            Some(endpoint) => FutureKind::Own { answer: Box::pin(endpoint.answer(request, Arc::clone(&reporter))) },
            None => {
                let arrival = reporter.arrived();
                let in_flight = Some(reporter.lifecycle.begin());
                FutureKind::Service { inner: self.inner.call(request), arrival, in_flight }
            }
        };
        ResponseFuture { kind, reporter, http1 }
    }
}

pin_project! {
    /// The response to come from a [`ReportService`].
    pub struct ResponseFuture<F> {
        #[pin]
        kind: FutureKind<F>,
        reporter: Arc<Reporter>,
        http1: bool,
    }
}

pin_project! {
    #[project = FutureKindProj]
    enum FutureKind<F> {
        Service {
            #[pin]
            inner: F,
            arrival: Arrival,
            in_flight: Option<InFlight>,
        },
        Own { answer: BoxFuture<'static, Response<OwnBody>> },
    }
}

impl<F, B, E> Future for ResponseFuture<F>
where
    F: Future<Output = Result<Response<B>, E>>,
    B: Body<Data = Bytes>,
{
    type Output = Result<Response<ReportBody<B>>, E>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        let mut response = match this.kind.project() {
            FutureKindProj::Own { answer } => ready!(answer.as_mut().poll(cx)).map(ReportBody::own),
            FutureKindProj::Service { inner, arrival, in_flight } => {
                let result = ready!(inner.poll(cx));
                this.reporter.answered();
                let in_flight = in_flight.take().expect("a future is not polled after it was ready");
                match result {
                    Ok(response) => {
                        if !has_failed(&response) {
                            this.reporter.took(*arrival);
                        }
                        attach(response, this.reporter, in_flight)
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

/// Whether the head of a response says that the request failed or was shed.
fn has_failed<B>(response: &Response<B>) -> bool {
    let by_grpc = || matches!(Code::read(response.headers()), Some(code) if code != Code::Ok);
    response.status().is_server_error() || response.headers().contains_key(X_PLIMSOLL_SHED) || by_grpc()
}

/// Puts the report where a client will look for it, and judges what can be judged by the head.
fn attach<B>(response: Response<B>, reporter: &Arc<Reporter>, in_flight: InFlight) -> Response<ReportBody<B>> {
    let (mut head, body) = response.into_parts();
    let mut trailers = Trailers::Done;
    if grpc::is_grpc(&head.headers) {
        if Code::read(&head.headers).is_some() {
            see_to(&mut head.headers, reporter);
        } else {
            trailers = Trailers::Awaited;
        }
    } else {
        if head.status.is_server_error() || head.headers.contains_key(X_PLIMSOLL_SHED) {
            reporter.failed();
        }
        head.headers.insert(ENDPOINT_LOAD_METRICS_BIN, reporter.header());
    }
    Response::from_parts(head, ReportBody::service(body, Arc::clone(reporter), in_flight, trailers))
}
