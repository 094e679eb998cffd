//! The tower layer that makes a service protect itself, and tell its clients how it is.
//!
//! Around any `http` service: hyper's, axum's, tonic's. A request comes in, and is told apart ([`classify`](super::classify)); the gate
//! ([`admission`](super::admission)) takes it on or turns it away before its body is read; what it uses is measured until its response has
//! ended ([`cost`](super::cost)). Health checks, reports out of band and what the owner exempts pass beside the gate.
//!
//! Each response gets the load report, as a
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

use bytes::Bytes;
use futures_util::future::BoxFuture;
use http::header::{CONNECTION, CONTENT_TYPE};
use http::{HeaderValue, Method, Request, Response, StatusCode, Version};
use http_body::Body;
use pin_project_lite::pin_project;
use plimsoll_core::LoadReport;
use plimsoll_wire::grpc::{self, Code};
use plimsoll_wire::headers::{ENDPOINT_LOAD_METRICS_BIN, X_PLIMSOLL_SHED};
use plimsoll_wire::shed::ShedReason;
use tower_layer::Layer;
use tower_service::Service;

use super::admission::{AdmissionCounts, Gate};
use super::body::{OwnBody, ServerBody, Trailers, see_to};
use super::builder::ServerLayerBuilder;
use super::classify::Rules;
use super::cost::{self, Metered};
use super::endpoints::Endpoint;
use super::in_progress::InProgress;
use super::lifecycle::{Lifecycle, Phase};
use super::report::{Arrival, Reporter};

/// Adds admission, load reports, health and lame duck to a service. Clones share one set of counts.
#[derive(Clone)]
pub struct ServerLayer {
    pub(super) reporter: Arc<Reporter>,
    pub(super) readiness_path: Option<Arc<str>>,
    pub(super) rules: Arc<Rules>,
    /// None: everything is taken on, and no cost is measured.
    pub(super) gate: Option<Arc<Gate>>,
}

impl ServerLayer {
    /// A layer that protects the server whose life `lifecycle` is, and reports what it measures.
    #[must_use]
    pub fn new(lifecycle: Lifecycle) -> Self {
        Self::builder(lifecycle).build()
    }

    /// The same, with settings.
    pub fn builder(lifecycle: Lifecycle) -> ServerLayerBuilder {
        ServerLayerBuilder::new(lifecycle)
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

    /// What became of the requests that came so far; all zero without admission.
    #[must_use]
    pub fn admission(&self) -> AdmissionCounts {
        self.gate.as_ref().map_or_else(AdmissionCounts::default, |gate| gate.counts())
    }
}

impl<S> Layer<S> for ServerLayer {
    type Service = ServerService<S>;

    fn layer(&self, inner: S) -> ServerService<S> {
        ServerService { inner, layer: self.clone() }
    }
}

/// A service within a [`ServerLayer`].
#[derive(Clone)]
pub struct ServerService<S> {
    inner: S,
    layer: ServerLayer,
}

impl<S, ReqBody, ResBody> Service<Request<ReqBody>> for ServerService<S>
where
    S: Service<Request<ReqBody>, Response = Response<ResBody>>,
    ReqBody: Body + Send + 'static,
    ReqBody::Data: Send,
    ReqBody::Error: Send,
    ResBody: Body<Data = Bytes>,
{
    type Response = Response<ServerBody<ResBody>>;
    type Error = S::Error;
    type Future = ResponseFuture<S::Future>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<ReqBody>) -> Self::Future {
        let layer = &self.layer;
        let reporter = Arc::clone(&layer.reporter);
        let http1 = request.version() <= Version::HTTP_11;
        let kind = match Endpoint::of(&request, layer.readiness_path.as_deref()) {
            Some(endpoint) => FutureKind::Own { answer: Box::pin(endpoint.answer(request, Arc::clone(&reporter))) },
            None => match layer.ask(&request) {
                Ok(taken_on) => self.begin(request, taken_on),
                Err(reason) => {
                    reporter.answered();
                    reporter.failed();
                    FutureKind::Shed { answer: Some(shed(&request, reason, &reporter)) }
                }
            },
        };
        ResponseFuture { kind, reporter, http1 }
    }
}

impl ServerLayer {
    /// Takes the request on, with its cost measured or without, or says why not.
    fn ask<B>(&self, request: &Request<B>) -> Result<Option<Arc<cost::Request>>, ShedReason> {
        let Some((gate, classified)) = self.gate.as_ref().zip(self.rules.classify(request)) else { return Ok(None) };
        gate.ask(classified).map(Some)
    }
}

impl<S> ServerService<S> {
    fn begin<B>(&mut self, mut request: Request<B>, taken_on: Option<Arc<cost::Request>>) -> FutureKind<S::Future>
    where
        S: Service<Request<B>>,
    {
        let reporter = &self.layer.reporter;
        let arrival = reporter.arrived();
        let in_progress = Some(InProgress::new(reporter.lifecycle.begin(), taken_on.clone()));
        let inner = match taken_on {
            Some(taken_on) => {
                request.extensions_mut().insert(taken_on.context.clone());
                let inner = cost::run(&taken_on, || self.inner.call(request));
                Served::Metered { inner: Metered::new(taken_on, inner) }
            }
            None => Served::Plain { inner: self.inner.call(request) },
        };
        FutureKind::Service { inner, arrival, in_progress }
    }
}

/// The answer to a request that is turned away.
fn shed<B>(request: &Request<B>, reason: ShedReason, reporter: &Reporter) -> Response<OwnBody> {
    let is_grpc = grpc::is_grpc(request.headers());
    let mut response = reason.head(is_grpc, None);
    let headers = response.headers_mut();
    headers.insert(ENDPOINT_LOAD_METRICS_BIN, reporter.header());
    let text = Bytes::from_static(reason.row().message.as_bytes());
    let body = if is_grpc {
        None
    } else {
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/plain"));
        (request.method() != Method::HEAD).then_some(text)
    };
    response.map(|()| OwnBody::Whole(body))
}

pin_project! {
    /// The response to come from a [`ServerService`].
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
            inner: Served<F>,
            arrival: Arrival,
            in_progress: Option<InProgress>,
        },
        Shed { answer: Option<Response<OwnBody>> },
        Own { answer: BoxFuture<'static, Response<OwnBody>> },
    }
}

pin_project! {
    #[project = ServedProj]
    enum Served<F> {
        Metered { #[pin] inner: Metered<F> },
        Plain { #[pin] inner: F },
    }
}

impl<F: Future> Future for Served<F> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        match self.project() {
            ServedProj::Metered { inner } => inner.poll(cx),
            ServedProj::Plain { inner } => inner.poll(cx),
        }
    }
}

impl<F, B, E> Future for ResponseFuture<F>
where
    F: Future<Output = Result<Response<B>, E>>,
    B: Body<Data = Bytes>,
{
    type Output = Result<Response<ServerBody<B>>, E>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        let mut response = match this.kind.project() {
            FutureKindProj::Own { answer } => ready!(answer.as_mut().poll(cx)).map(ServerBody::own),
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
fn has_failed<B>(response: &Response<B>) -> bool {
    let by_grpc = || matches!(Code::read(response.headers()), Some(code) if code != Code::Ok);
    response.status().is_server_error() || response.headers().contains_key(X_PLIMSOLL_SHED) || by_grpc()
}

/// Puts the report where a client will look for it, and judges what can be judged by the head.
fn attach<B>(response: Response<B>, reporter: &Arc<Reporter>, in_progress: InProgress) -> Response<ServerBody<B>> {
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
    Response::from_parts(head, ServerBody::service(body, Arc::clone(reporter), in_progress, trailers))
}
