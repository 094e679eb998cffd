//! `grpc.health.v1.Health/Check`, over HTTP/2.

use bytes::Bytes;
use http::header::{CONTENT_TYPE, TE};
use http::uri::Scheme;
use http::{HeaderValue, Method, Request, StatusCode, Uri};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use plimsoll_core::health::CheckOutcome;
use plimsoll_stream::Stream;
use plimsoll_wire::grpc::{self, CONTENT_TYPE_GRPC, Code};
use plimsoll_wire::health::{CHECK_PATH, HealthCheckRequest, HealthCheckResponse, ServingStatus};

use super::{Finding, beside, is_busy, key_in, request_key};
use crate::client::backend::Backend;

/// The answer has one number in it; more than this is not an answer.
const MAX_ANSWER_BYTES: usize = 1024;

pub(super) async fn check(
    stream: Stream,
    backend: &Backend,
    scheme: Scheme,
    service: &str,
    key_request: Option<HeaderValue>,
) -> Finding {
    let handshake = http2::handshake::<_, _, Full<Bytes>>(TokioExecutor::new(), TokioIo::new(stream));
    let Ok((mut sender, connection)) = handshake.await else {
        return CheckOutcome::Failed.into();
    };
    let mut key = None;
    let answer = async {
        let mut request = request(backend, scheme, service)?;
        request_key(request.headers_mut(), key_request);
        let response = sender.send_request(request).await.ok()?;
        key = key_in(response.headers());
        if response.status() != StatusCode::OK {
            return None;
        }
        if is_busy(response.status(), response.headers()) {
            return Some((Code::Ok, Some(HealthCheckResponse::of(ServingStatus::Serving))));
        }
        let mut code = Code::read(response.headers());
        let body = Limited::new(response.into_body(), MAX_ANSWER_BYTES).collect().await.ok()?;
        if let Some(trailers) = body.trailers() {
            code = Code::read(trailers).or(code);
        }
        Some((code?, grpc::unframe::<HealthCheckResponse>(&body.to_bytes())))
    };
    let outcome = match beside(connection, answer).await {
        Some((Code::Ok, Some(health))) if health.status() == ServingStatus::Serving => CheckOutcome::Passed,
        Some((Code::Ok, Some(health))) if health.status() == ServingStatus::NotServing => CheckOutcome::NotServing,
        Some((Code::Unavailable, _)) => CheckOutcome::NotServing,
        _ => CheckOutcome::Failed,
    };
    Finding { outcome, report: None, key }
}

fn request(backend: &Backend, scheme: Scheme, service: &str) -> Option<Request<Full<Bytes>>> {
    let uri =
        Uri::builder().scheme(scheme).authority(backend.authority().clone()).path_and_query(CHECK_PATH).build().ok()?;
    let message = grpc::frame(&HealthCheckRequest { service: service.to_owned() });
    let mut request = Request::new(Full::new(message));
    *request.method_mut() = Method::POST;
    *request.uri_mut() = uri;
    request.headers_mut().insert(CONTENT_TYPE, CONTENT_TYPE_GRPC);
    request.headers_mut().insert(TE, HeaderValue::from_static("trailers"));
    Some(request)
}
