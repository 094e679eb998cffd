//! The tower layer that protects a service from overload and reports its load.
//!
//! It wraps any `http` service: hyper's, axum's, tonic's. The way of a request:
//!
//! 1. It is classified ([`classify`](super::classify)).
//! 2. With a limit on requests in progress, it waits for its slot ([`places`](super::places)).
//!    Waiting comes before admission, because the gate measures running requests.
//! 3. The gate ([`admission`](super::admission)) admits it, or sheds it before its body is read.
//! 4. The inner service is polled for readiness last ([`served`](super::served)).
//! 5. Its CPU usage is measured until its response has ended ([`cost`](super::cost)).
//!
//! Health checks, out-of-band reports and exempt requests skip steps 2 and 3.
//!
//! Each response carries the load report: as a header, or as a trailer for gRPC. Failed responses
//! carry it too, because a client that got no report from a failing backend would act on an old
//! one. A lame duck closes the connection with each HTTP/1 response, the only way to redirect an
//! HTTP/1 client without failing a request. HTTP/2 has GOAWAY, which belongs to the connection: see
//! [`serve`](super::serve).
//!
//! A request counts as failed by a status of 500 or more, a gRPC code that blames the server
//! ([`Code::is_failure`](plimsoll_wire::grpc::Code::is_failure)), a shed answer, or an error of the
//! service or of the response body. A body that the client abandoned is no failure.

use std::fmt;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderValue, Method, Request, Response, Version};
use http_body::Body;
use plimsoll_core::LoadReport;
use plimsoll_core::admit::Shed;
use plimsoll_core::shedding::Summary;
use plimsoll_core::signal::Loads;
use plimsoll_wire::grpc;
use plimsoll_wire::headers::ENDPOINT_LOAD_METRICS_BIN;
use plimsoll_wire::shed;
use tower_layer::Layer;
use tower_service::Service;

use super::body::{OwnBody, ServerBody};
use super::builder::ServerLayerBuilder;
use super::classify::{Classified, Rules};
use super::cost::{self, Metered};
use super::endpoints::Endpoint;
use super::fleet_limits::FleetLimits;
use super::gate::{AdmissionCounts, ServerGate};
use super::in_progress::InProgress;
use super::lifecycle::{InFlight, Lifecycle};
use super::places::{Place, Places, Turn};
use super::report::Reporter;
use super::response::{FutureKind, ResponseFuture};
use super::served::Served;

/// Adds admission, load reports, health and lame duck to a service. Clones share one set of counts.
#[derive(Clone)]
#[doc(alias("admission control", "adaptive concurrency", "load shedding", "overload protection", "rate limit"))]
pub struct ServerLayer {
    pub(super) reporter: Arc<Reporter>,
    pub(super) readiness_path: Option<Arc<str>>,
    pub(super) rules: Arc<Rules>,
    /// None: every request is admitted, and no cost is measured.
    pub(super) gate: Option<Arc<ServerGate>>,
    /// None: as many are in progress at a time as there are.
    pub(super) places: Option<Arc<Places>>,
}

impl ServerLayer {
    /// A layer with default settings for the server with this lifecycle.
    #[must_use]
    pub fn new(lifecycle: Lifecycle) -> Self {
        Self::builder(lifecycle).build()
    }

    /// A layer with settings.
    pub fn builder(lifecycle: Lifecycle) -> ServerLayerBuilder {
        ServerLayerBuilder::new(lifecycle)
    }

    /// The lifecycle of the server.
    #[must_use]
    pub fn lifecycle(&self) -> &Lifecycle {
        &self.reporter.lifecycle
    }

    /// The current load report.
    #[must_use]
    pub fn load(&self) -> LoadReport {
        LoadReport::from(&self.reporter.report())
    }

    /// The admitted and shed requests since the start. All zero without admission.
    #[must_use]
    pub fn admission(&self) -> AdmissionCounts {
        self.gate.as_ref().map_or_else(AdmissionCounts::default, |gate| gate.counts())
    }

    /// The load by each signal, and the signal that causes shedding. `None` without admission.
    #[must_use]
    pub fn loads(&self) -> Option<Loads> {
        self.gate.as_ref().map(|gate| gate.admission.gate().loads())
    }

    /// The reference CPUs that this process may use, those that it uses, and the speed of the machine.
    /// `None` without admission.
    #[cfg(feature = "metrics")]
    pub(crate) fn cpus(&self) -> Option<(f64, Option<f64>, plimsoll_core::Speed)> {
        let gate = self.gate.as_ref()?.admission.gate();
        Some((gate.capacity(), gate.cpus(), gate.speed()))
    }

    /// Enforces limits of customers over a fleet: the handle for a client of the quota server.
    ///
    /// `None` without admission.
    #[must_use]
    pub fn fleet_limits(&self) -> Option<FleetLimits> {
        let gate = Arc::clone(self.gate.as_ref()?.admission.gate());
        let rules = Arc::clone(&self.rules);
        Some(FleetLimits::new(gate, move |name| rules.key(name)))
    }

    /// The shedding report: a verdict, the offered, admitted and shed load, and the CPUs that
    /// suffice.
    ///
    /// Costs are those expected when the requests came. `None` without admission.
    #[must_use]
    pub fn shedding_report(&self) -> Option<Summary> {
        self.gate.as_ref().map(|gate| gate.admission.shedding_report())
    }
}

impl<S> Layer<S> for ServerLayer {
    type Service = ServerService<S>;

    fn layer(&self, inner: S) -> ServerService<S> {
        ServerService { inner, layer: self.clone() }
    }
}

/// A service inside a [`ServerLayer`].
#[derive(Clone)]
pub struct ServerService<S> {
    inner: S,
    layer: ServerLayer,
}

impl<S, ReqBody, ResBody> Service<Request<ReqBody>> for ServerService<S>
where
    S: Service<Request<ReqBody>, Response = Response<ResBody>> + Clone,
    ReqBody: Body + Send + 'static,
    ReqBody::Data: Send,
    ReqBody::Error: Send,
    ResBody: Body<Data = Bytes>,
{
    type Response = Response<ServerBody<ResBody>>;
    type Error = S::Error;
    type Future = ResponseFuture<S, ReqBody>;

    /// Always ready: a request that waits for the inner service counts, and may be shed.
    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<ReqBody>) -> Self::Future {
        let reporter = Arc::clone(&self.layer.reporter);
        let http1 = request.version() <= Version::HTTP_11;
        let kind = match Endpoint::of(&request, self.layer.readiness_path.as_deref()) {
            Some(endpoint) => FutureKind::Own { answer: Box::pin(endpoint.answer(request, Arc::clone(&reporter))) },
            None => self.enter(request),
        };
        ResponseFuture { kind, reporter, http1 }
    }
}

impl<S> ServerService<S> {
    /// Lets a request begin, or wait for its place, or turns it away.
    fn enter<B>(&mut self, mut request: Request<B>) -> FutureKind<S, B>
    where
        S: Service<Request<B>> + Clone,
    {
        let classified = self.layer.rules.classify(&mut request);
        let Some(places) = self.layer.places.as_ref().filter(|_| !classified.exempt) else {
            return self.ask(request, classified, None);
        };
        match places.enter(classified.context.criticality, classified.context.deadline) {
            Turn::Now(place) => self.ask(request, classified, Some(place)),
            Turn::Never(turned_away) => self.turn_away(&request, &classified, turned_away),
            Turn::NotNow(turned_away) => {
                self.count(&request, &classified, turned_away);
                self.ask(request, classified, None)
            }
            Turn::Later(waits) => {
                let service = self.clone();
                let in_flight = self.layer.reporter.lifecycle.begin();
                FutureKind::Waits {
                    waits,
                    waiting: Some(Box::new(Waiting { service, request, classified, in_flight })),
                }
            }
        }
    }

    /// Asks the gate about a request that has a place, if it needs one.
    fn ask<B>(&mut self, request: Request<B>, classified: Classified, place: Option<Place>) -> FutureKind<S, B>
    where
        S: Service<Request<B>> + Clone,
    {
        let Some(gate) = self.layer.gate.as_ref().filter(|_| !classified.exempt) else {
            return self.begin(request, Arc::new(cost::Request::free(classified.context)), place);
        };
        match gate.ask(classified, &Asked::by(&request)) {
            Ok(taken_on) => self.begin(request, taken_on, place),
            Err(turned_away) => self.answer(&request, turned_away),
        }
    }

    fn begin<B>(
        &mut self,
        mut request: Request<B>,
        taken_on: Arc<cost::Request>,
        place: Option<Place>,
    ) -> FutureKind<S, B>
    where
        S: Service<Request<B>> + Clone,
    {
        let reporter = &self.layer.reporter;
        let arrival = reporter.arrived();
        let in_progress = Some(InProgress::new(reporter.lifecycle.begin(), Arc::clone(&taken_on), place));
        request.extensions_mut().insert(taken_on.context.clone());
        let inner = cost::run(&taken_on, || Served::begin(&mut self.inner, request));
        FutureKind::Service { inner: Metered::new(taken_on, inner), arrival, in_progress }
    }

    /// A request gets no place.
    fn turn_away<B>(&self, request: &Request<B>, classified: &Classified, turned_away: Shed) -> FutureKind<S, B>
    where
        S: Service<Request<B>>,
    {
        self.count(request, classified, turned_away);
        self.answer(request, turned_away)
    }

    fn count<B>(&self, request: &Request<B>, classified: &Classified, turned_away: Shed) {
        if let Some(gate) = &self.layer.gate {
            gate.got_no_slot(classified, turned_away.reason, &Asked::by(request));
        }
    }

    fn answer<B>(&self, request: &Request<B>, turned_away: Shed) -> FutureKind<S, B>
    where
        S: Service<Request<B>>,
    {
        let reporter = &self.layer.reporter;
        reporter.answered();
        reporter.failed();
        let reason = turned_away.reason.name();
        tracing::debug!(target: "plimsoll::trace", reason, "request shed");
        FutureKind::Shed { answer: Some(shed(request, turned_away, reporter)) }
    }
}

/// A request that waits for its place.
pub(super) struct Waiting<S, B> {
    service: ServerService<S>,
    request: Request<B>,
    classified: Classified,
    /// A server that drains waits for those, too.
    in_flight: InFlight,
}

impl<S, B> Waiting<S, B>
where
    S: Service<Request<B>> + Clone,
{
    /// Continues the request with its slot, or sheds it.
    pub(super) fn go_on(self, turn: Result<Place, Shed>) -> FutureKind<S, B> {
        let Self { mut service, request, mut classified, in_flight } = self;
        let then = match turn {
            Ok(place) => {
                classified.waited();
                service.ask(request, classified, Some(place))
            }
            Err(turned_away) => service.turn_away(&request, &classified, turned_away),
        };
        drop(in_flight);
        then
    }
}

/// A request's method and path, for logs.
struct Asked<'a> {
    method: &'a Method,
    path: &'a str,
}

impl<'a> Asked<'a> {
    fn by<B>(request: &'a Request<B>) -> Self {
        Self { method: request.method(), path: request.uri().path() }
    }
}

impl fmt::Display for Asked<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.method, self.path)
    }
}

/// The answer to a request that is shed.
fn shed<B>(request: &Request<B>, turned_away: Shed, reporter: &Reporter) -> Response<OwnBody> {
    let is_grpc = grpc::is_grpc(request.headers());
    let Shed { reason, after } = turned_away;
    let mut response = shed::head(reason, is_grpc, after);
    let headers = response.headers_mut();
    headers.insert(ENDPOINT_LOAD_METRICS_BIN, reporter.header(None));
    let text = Bytes::from_static(reason.row().text.as_bytes());
    let body = if is_grpc {
        None
    } else {
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/plain"));
        (request.method() != Method::HEAD).then_some(text)
    };
    response.map(|()| OwnBody::Whole(body))
}
