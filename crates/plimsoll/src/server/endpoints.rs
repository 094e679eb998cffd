//! Endpoints of the layer itself: readiness, and the services of gRPC.
//!
//! Plain functions from a request to a response, told apart by path, so that they work under hyper,
//! axum and tonic alike. None of them counts as a request in flight or in the rates.
//!
//! Health is that of the process: every service name gets the same answer, because a lame duck goes
//! away with all of its services. A server that keeps health per service answers these paths
//! itself, outside of the layer.

use std::sync::Arc;

use bytes::Bytes;
use http::header::{CACHE_CONTROL, CONTENT_LENGTH, CONTENT_TYPE};
use http::{HeaderValue, Method, Request, Response, StatusCode};
use http_body::Body;
use plimsoll_wire::headers::ENDPOINT_LOAD_METRICS_BIN;
#[cfg(feature = "probes")]
use plimsoll_wire::headers::X_PLIMSOLL_PROBE_KEY;
#[cfg(feature = "probes")]
use plimsoll_wire::probe::{ClientKey, Seed};

use super::body::OwnBody;
#[cfg(feature = "grpc")]
use super::grpc_endpoints::Call;
use super::report::Reporter;

/// A question that the layer answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Endpoint {
    Readiness,
    #[cfg(feature = "grpc")]
    Grpc(Call),
}

impl Endpoint {
    /// The endpoint that this request asks for, if the layer answers it.
    pub(super) fn of<B>(request: &Request<B>, readiness_path: Option<&str>) -> Option<Self> {
        #[cfg(feature = "grpc")]
        if let Some(call) = Call::of(request) {
            return Some(Self::Grpc(call));
        }
        let asked = readiness_path == Some(request.uri().path());
        (asked && matches!(*request.method(), Method::GET | Method::HEAD)).then_some(Self::Readiness)
    }

    /// Answers `request`.
    pub(super) async fn answer<B: Body>(self, request: Request<B>, reporter: Arc<Reporter>) -> Response<OwnBody> {
        #[cfg(feature = "probes")]
        let key = self.key(&request, &reporter);
        let response = match self {
            Self::Readiness => readiness(&reporter, request.method()),
            #[cfg(feature = "grpc")]
            Self::Grpc(call) => call.respond(request, reporter).await,
        };
        #[cfg(feature = "probes")]
        let response = with_key(response, key);
        response
    }

    /// The key for the probes of the client that sent `request`, if it is a health check that requests
    /// one.
    #[cfg(feature = "probes")]
    fn key<B>(self, request: &Request<B>, reporter: &Reporter) -> Option<ClientKey> {
        let is_check = match self {
            Self::Readiness => *request.method() == Method::GET,
            #[cfg(feature = "grpc")]
            Self::Grpc(call) => call == Call::HealthCheck,
        };
        let seed = Seed::read(request.headers()).filter(|_| is_check)?.ok()?;
        reporter.probe_keys.read().client_key(seed.instance())
    }
}

#[cfg(feature = "probes")]
fn with_key(mut response: Response<OwnBody>, key: Option<ClientKey>) -> Response<OwnBody> {
    response.headers_mut().extend(key.map(|key| (X_PLIMSOLL_PROBE_KEY, key.to_header_value())));
    response
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
