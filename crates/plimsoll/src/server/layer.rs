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
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use http::header::{CONNECTION, CONTENT_TYPE, HeaderName};
use http::{HeaderValue, Method, Request, Response, StatusCode, Version};
use http_body::Body;
use pin_project_lite::pin_project;
use plimsoll_core::LoadReport;
use plimsoll_core::admit::{Mode, RankedConfig};
use plimsoll_core::classify::Classifier;
use plimsoll_wire::grpc::{self, Code};
use plimsoll_wire::headers::{ENDPOINT_LOAD_METRICS_BIN, X_PLIMSOLL_SHED};
use plimsoll_wire::shed::ShedReason;
use tower_layer::Layer;
use tower_service::Service;

use super::admission::{AdmissionCounts, Gate, Gauge};
use super::body::{OwnBody, ServerBody, Trailers, see_to};
use super::classify::Rules;
use super::context::{Customer, RequestHead};
use super::cost::{self, Metered};
use super::cpu;
use super::endpoints::Endpoint;
use super::in_progress::InProgress;
use super::lifecycle::{Lifecycle, Phase};
use super::meter;
use super::report::{Arrival, ReportSource, Reporter};

/// Adds admission, load reports, health and lame duck to a service. Clones share one set of counts.
#[derive(Clone)]
pub struct ServerLayer {
    reporter: Arc<Reporter>,
    readiness_path: Option<Arc<str>>,
    rules: Arc<Rules>,
    /// None: everything is taken on, and no cost is measured.
    gate: Option<Arc<Gate>>,
}

/// What can be set about a [`ServerLayer`].
#[must_use]
pub struct ServerLayerBuilder {
    lifecycle: Lifecycle,
    window: Duration,
    cpus: Option<f64>,
    source: Option<Box<dyn ReportSource>>,
    readiness_path: Option<Arc<str>>,
    rules: Rules,
    admission: Option<Mode>,
    gauge: Option<Gauge>,
}

impl ServerLayer {
    /// A layer that protects the server whose life `lifecycle` is, and reports what it measures.
    #[must_use]
    pub fn new(lifecycle: Lifecycle) -> Self {
        Self::builder(lifecycle).build()
    }

    /// The same, with settings.
    pub fn builder(lifecycle: Lifecycle) -> ServerLayerBuilder {
        ServerLayerBuilder {
            lifecycle,
            window: meter::DEFAULT_WINDOW,
            cpus: None,
            source: None,
            readiness_path: None,
            rules: Rules::default(),
            admission: Some(Mode::default()),
            gauge: None,
        }
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

impl ServerLayerBuilder {
    /// The window over which rates and CPU are averaged: default 1 s, at least 100 ms.
    pub fn window(mut self, window: Duration) -> Self {
        self.window = window;
        self
    }

    /// The CPUs that 100% utilization stands for: by default all that the process may use. A server
    /// that can only keep one thread busy is full at 1.0. At least a hundredth of a CPU.
    pub fn cpus(mut self, cpus: f64) -> Self {
        self.cpus = Some(if cpus.is_finite() { cpus.max(0.01) } else { cpu::available() });
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

    /// What is done about too much load: by default [`Mode::Protect`]. `None`: nothing, and no cost is measured.
    pub fn admission(mut self, mode: impl Into<Option<Mode>>) -> Self {
        self.admission = mode.into();
        self
    }

    /// How far senders are believed that say how critical their requests are, and what requests are otherwise: by default they are
    /// believed, and [`Criticality::Critical`](plimsoll_core::Criticality::Critical).
    pub fn criticality(mut self, classifier: Classifier) -> Self {
        self.rules.classifier = classifier;
        self
    }

    /// The customer of a request is named by this header. Only where those who send it are trusted to: customers that take others'
    /// names take their shares. By default all requests are of one customer.
    pub fn customer_header(mut self, header: HeaderName) -> Self {
        self.rules.customer_header = Some(header);
        self
    }

    /// The customer of a request is named by this rule: from a verified token, say. Where it names none, the header does.
    pub fn customer_by(mut self, rule: impl Fn(RequestHead<'_>) -> Option<Customer> + Send + Sync + 'static) -> Self {
        self.rules.customer = Some(Box::new(rule));
        self
    }

    /// Requests for which `route` gives the same number are expected to cost alike. By default those of the same method and path do;
    /// where paths hold names without end (`/users/7`), what comes before the name makes a better one.
    pub fn route_by(mut self, route: impl Fn(RequestHead<'_>) -> u64 + Send + Sync + 'static) -> Self {
        self.rules.route = Some(Box::new(route));
        self
    }

    /// Requests of which this says so are served whatever the load. Health checks, reports and readiness are, in any case.
    pub fn exempt(mut self, exempt: impl Fn(RequestHead<'_>) -> bool + Send + Sync + 'static) -> Self {
        self.rules.exempt = Some(Box::new(exempt));
        self
    }

    /// A further measure of how loaded the server is, beside its CPU: 1 is as much as it can bear, from there on requests are turned
    /// away. Asked about a hundred times a second, on the path of a request: it must not block.
    pub fn gauge(mut self, gauge: impl Fn() -> f64 + Send + Sync + 'static) -> Self {
        self.gauge = Some(Box::new(gauge));
        self
    }

    /// The layer.
    #[must_use]
    pub fn build(self) -> ServerLayer {
        let cpus = self.cpus.unwrap_or_else(cpu::available);
        let config = RankedConfig::new(cpus).expect("a hundredth of a CPU or more");
        let gate = self.admission.map(|mode| Gate::new(config, mode, self.gauge));
        ServerLayer {
            reporter: Reporter::new(self.lifecycle, self.window, cpus, self.source),
            readiness_path: self.readiness_path,
            rules: Arc::new(self.rules),
            gate,
        }
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
