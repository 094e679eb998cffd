//! Endpoints of the layer itself: readiness, gRPC health, and load reports out of band.
//!
//! Plain functions from a request to a response, told apart by path, so that they work under hyper,
//! axum and tonic alike. None of them counts as a request in flight or in the rates.
//!
//! Health is that of the process: every service name gets the same answer, because a lame duck goes
//! away with all of its services. A server that keeps health per service answers these paths
//! itself, outside of the layer.

use std::sync::Arc;
use std::time::Duration;

use bytes::{Buf as _, Bytes};
use futures_util::{Stream, stream};
use http::header::{CACHE_CONTROL, CONTENT_LENGTH, CONTENT_TYPE};
use http::{HeaderValue, Method, Request, Response, StatusCode};
use http_body::{Body, Frame};
use http_body_util::BodyExt as _;
use plimsoll_wire::grpc::{self, Code};
use plimsoll_wire::headers::{ENDPOINT_LOAD_METRICS_BIN, X_PLIMSOLL_PROBE_KEY};
use plimsoll_wire::health::{CHECK_PATH, HealthCheckRequest, HealthCheckResponse, ServingStatus, WATCH_PATH};
use plimsoll_wire::orca_service::{OrcaLoadReportRequest, STREAM_CORE_METRICS_PATH};
use plimsoll_wire::probe::{ClientKey, Seed};
use tokio::sync::watch;

use super::body::OwnBody;
use super::lifecycle::Phase;
use super::report::Reporter;

/// Least time between reports out of band. gRPC's servers default to 30 s, which is too slow to
/// balance by. Its clients act on a report at most once a second.
pub const MIN_REPORT_INTERVAL: Duration = Duration::from_secs(1);

/// Longest request message that is read: a service name or a list of names.
const MAX_REQUEST: usize = 4096;

/// A question that the layer answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Endpoint {
    Readiness,
    HealthCheck,
    HealthWatch,
    LoadReports,
}

impl Endpoint {
    /// The endpoint that this request asks for, if the layer answers it.
    pub(super) fn of<B>(request: &Request<B>, readiness_path: Option<&str>) -> Option<Self> {
        let path = request.uri().path();
        let endpoint = match path {
            CHECK_PATH => Self::HealthCheck,
            WATCH_PATH => Self::HealthWatch,
            STREAM_CORE_METRICS_PATH => Self::LoadReports,
            _ => {
                let asked = readiness_path == Some(path) && matches!(*request.method(), Method::GET | Method::HEAD);
                return asked.then_some(Self::Readiness);
            }
        };
        grpc::is_grpc(request.headers()).then_some(endpoint)
    }

    /// Answers `request`.
    pub(super) async fn answer<B: Body>(self, request: Request<B>, reporter: Arc<Reporter>) -> Response<OwnBody> {
        let key = self.key(&request, &reporter);
        let mut response = self.respond(request, reporter).await;
        response.headers_mut().extend(key.map(|key| (X_PLIMSOLL_PROBE_KEY, key.to_header_value())));
        response
    }

    /// The key for the probes of the client that sent `request`, if it is a health check that requests
    /// one.
    fn key<B>(self, request: &Request<B>, reporter: &Reporter) -> Option<ClientKey> {
        let is_check = match self {
            Self::Readiness => *request.method() == Method::GET,
            Self::HealthCheck => true,
            Self::HealthWatch | Self::LoadReports => false,
        };
        let seed = Seed::read(request.headers()).filter(|_| is_check)?.ok()?;
        reporter.probe_keys.read().client_key(seed.instance())
    }

    async fn respond<B: Body>(self, request: Request<B>, reporter: Arc<Reporter>) -> Response<OwnBody> {
        if self == Self::Readiness {
            return readiness(&reporter, request.method());
        }
        let Some(message) = read(request.into_body()).await else {
            return trailers_only(Code::Internal, "request message is longer than 4 KiB or was cut off", &reporter);
        };
        let answer = match self {
            Self::LoadReports => grpc::unframe(&message).map(|asked| load_reports(&asked, &reporter)),
            _ => grpc::unframe::<HealthCheckRequest>(&message).map(|_| match self {
                Self::HealthCheck => check(&reporter),
                _ => watch(&reporter),
            }),
        };
        answer
            .unwrap_or_else(|| trailers_only(Code::Internal, "request is not one message of the right type", &reporter))
    }
}

fn readiness(reporter: &Reporter, method: &Method) -> Response<OwnBody> {
    let phase = reporter.lifecycle.phase();
    let text = phase.name();
    let body = (method != Method::HEAD).then(|| Bytes::from_static(text.as_bytes()));
    let mut response = Response::new(OwnBody::Whole(body));
    if !phase.is_serving() {
        *response.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
    }
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/plain"));
    headers.insert(CONTENT_LENGTH, HeaderValue::from(text.len()));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(ENDPOINT_LOAD_METRICS_BIN, reporter.header(None));
    response
}

fn serving_status(phase: Phase) -> ServingStatus {
    if phase.is_serving() { ServingStatus::Serving } else { ServingStatus::NotServing }
}

fn check(reporter: &Arc<Reporter>) -> Response<OwnBody> {
    let message = grpc::frame(&HealthCheckResponse::of(serving_status(reporter.lifecycle.phase())));
    let frames = [Frame::data(message), last_frame(Code::Ok, "", reporter)];
    streaming(stream::iter(frames))
}

/// Says the status now and at every change, until the server ends.
fn watch(reporter: &Arc<Reporter>) -> Response<OwnBody> {
    let phases = reporter.lifecycle.subscribe();
    let reporter = Arc::clone(reporter);
    let mut said = None;
    streaming(until_drained(phases, reporter, None, move |phase, _| {
        let status = serving_status(phase);
        (said.replace(status) != Some(status)).then(|| grpc::frame(&HealthCheckResponse::of(status)))
    }))
}

/// Sends a report now, at the interval asked for, and at every change of phase, until the server
/// ends.
fn load_reports(asked: &OrcaLoadReportRequest, reporter: &Arc<Reporter>) -> Response<OwnBody> {
    let interval = asked.interval().unwrap_or_default().max(MIN_REPORT_INTERVAL);
    let phases = reporter.lifecycle.subscribe();
    streaming(until_drained(phases, Arc::clone(reporter), Some(interval), |_, reporter| {
        Some(grpc::frame(&reporter.report()))
    }))
}

/// Sends the output of `say` at once, at each change of phase and after each `interval`; ends with
/// the server.
fn until_drained(
    phases: watch::Receiver<Phase>,
    reporter: Arc<Reporter>,
    interval: Option<Duration>,
    say: impl FnMut(Phase, &Reporter) -> Option<Bytes> + Send + 'static,
) -> impl Stream<Item = Frame<Bytes>> + Send {
    struct State<F> {
        phases: watch::Receiver<Phase>,
        reporter: Arc<Reporter>,
        say: F,
        begun: bool,
    }
    let state = State { phases, reporter, say, begun: false };
    stream::unfold(Some(state), move |state| async move {
        let mut state = state?;
        loop {
            if state.begun {
                tokio::select! {
                    _ = state.phases.changed() => {}
                    () = sleep_or_never(interval) => {}
                }
            }
            state.begun = true;
            let phase = *state.phases.borrow_and_update();
            if phase == Phase::Drained {
                return Some((last_frame(Code::Unavailable, "the server has ended", &state.reporter), None));
            }
            if let Some(message) = (state.say)(phase, &state.reporter) {
                return Some((Frame::data(message), Some(state)));
            }
        }
    })
}

async fn sleep_or_never(interval: Option<Duration>) {
    match interval {
        Some(interval) => tokio::time::sleep(interval).await,
        None => std::future::pending().await,
    }
}

fn streaming(frames: impl Stream<Item = Frame<Bytes>> + Send + 'static) -> Response<OwnBody> {
    let mut response = Response::new(OwnBody::Stream(Box::pin(frames)));
    response.headers_mut().insert(CONTENT_TYPE, grpc::CONTENT_TYPE_GRPC);
    response
}

fn last_frame(code: Code, message: &str, reporter: &Reporter) -> Frame<Bytes> {
    let mut trailers = grpc::trailers(code, message);
    trailers.insert(ENDPOINT_LOAD_METRICS_BIN, reporter.header(None));
    Frame::trailers(trailers)
}

fn trailers_only(code: Code, message: &str, reporter: &Reporter) -> Response<OwnBody> {
    let mut response = Response::new(OwnBody::Whole(None));
    *response.headers_mut() = grpc::trailers(code, message);
    response.headers_mut().insert(CONTENT_TYPE, grpc::CONTENT_TYPE_GRPC);
    response.headers_mut().insert(ENDPOINT_LOAD_METRICS_BIN, reporter.header(None));
    response
}

/// The whole body; `None` when it is too long or breaks off.
async fn read<B: Body>(body: B) -> Option<Vec<u8>> {
    let mut body = std::pin::pin!(body);
    let mut bytes = Vec::new();
    while let Some(frame) = body.frame().await {
        let Ok(mut data) = frame.ok()?.into_data() else { continue };
        if bytes.len() + data.remaining() > MAX_REQUEST {
            return None;
        }
        while data.has_remaining() {
            let chunk = data.chunk();
            bytes.extend_from_slice(chunk);
            let length = chunk.len();
            data.advance(length);
        }
    }
    Some(bytes)
}
