//! The services of gRPC that the layer answers: health, and load reports out of band.

use std::sync::Arc;
use std::time::Duration;

use bytes::{Buf as _, Bytes};
use futures_util::{Stream, stream};
use http::header::CONTENT_TYPE;
use http::{Request, Response};
use http_body::{Body, Frame};
use http_body_util::BodyExt as _;
use plimsoll_wire::grpc::{self, Code};
use plimsoll_wire::headers::ENDPOINT_LOAD_METRICS_BIN;
use plimsoll_wire::health::{CHECK_PATH, HealthCheckRequest, HealthCheckResponse, ServingStatus, WATCH_PATH};
use plimsoll_wire::orca_service::{OrcaLoadReportRequest, STREAM_CORE_METRICS_PATH};
use tokio::sync::watch;

use super::body::OwnBody;
use super::lifecycle::Phase;
use super::report::Reporter;

/// Least time between reports out of band. gRPC's servers default to 30 s, which is too slow to
/// balance by. Its clients act on a report at most once a second.
pub const MIN_REPORT_INTERVAL: Duration = Duration::from_secs(1);

/// Longest request message that is read: a service name or a list of names.
const MAX_REQUEST: usize = 4096;

/// A call that the layer answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Call {
    HealthCheck,
    HealthWatch,
    LoadReports,
}

impl Call {
    /// The call that this request is, if the layer answers it.
    pub(super) fn of<B>(request: &Request<B>) -> Option<Self> {
        let call = match request.uri().path() {
            CHECK_PATH => Self::HealthCheck,
            WATCH_PATH => Self::HealthWatch,
            STREAM_CORE_METRICS_PATH => Self::LoadReports,
            _ => return None,
        };
        grpc::is_grpc(request.headers()).then_some(call)
    }

    pub(super) async fn respond<B: Body>(self, request: Request<B>, reporter: Arc<Reporter>) -> Response<OwnBody> {
        let Some(message) = read(request.into_body()).await else {
            return trailers_only(Code::Internal, "request message is longer than 4 KiB or was cut off", &reporter);
        };
        let answer = match self {
            Self::LoadReports => grpc::unframe(&message).map(|asked| load_reports(&asked, &reporter)),
            Self::HealthCheck => grpc::unframe::<HealthCheckRequest>(&message).map(|_| check(&reporter)),
            Self::HealthWatch => grpc::unframe::<HealthCheckRequest>(&message).map(|_| watch(&reporter)),
        };
        answer
            .unwrap_or_else(|| trailers_only(Code::Internal, "request is not one message of the right type", &reporter))
    }
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
