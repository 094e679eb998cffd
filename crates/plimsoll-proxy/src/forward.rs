//! One request: its route, its way to a backend, and the answer's way back.

use std::convert::Infallible;
use std::sync::Arc;

use http::header::{CONNECTION, HOST};
use http::{HeaderValue, Method, Request, Response, Version};
use http_body::Body as _;
use hyper::body::Incoming;
use plimsoll_wire::grpc;

use crate::answer::{self, Refusal};
use crate::body::{ActiveRequest, RequestBody, ResponseBody};
use crate::connection::Connection;
use crate::hop;
use crate::listener::Target;
use crate::phase::Phase;

/// Answers a request, by a backend or here.
pub(crate) async fn forward(
    connection: Arc<Connection>,
    request: Request<Incoming>,
) -> Result<Response<ResponseBody>, Infallible> {
    let active = ActiveRequest::begin(connection);
    let connection = active.connection();
    let version = request.version();
    let is_grpc = grpc::is_grpc(request.headers());
    if version == Version::HTTP_2 {
        connection.activity.is_http2();
    }
    let mut response = match admit(connection, &request) {
        Ok(target) => send(connection, &target, request, is_grpc).await,
        Err(refusal) => {
            connection.listener.shared.refusals.count(refusal);
            refusal.response(is_grpc)
        }
    };
    if version < Version::HTTP_2 && connection.listener.life.phase() != Phase::Serving {
        response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    }
    // The versions of the two sides have nothing to do with each other.
    *response.version_mut() = version;
    Ok(response.map(|body| body.holding(active)))
}

/// Where the request is to go, before anything of its body is read.
fn admit(connection: &Connection, request: &Request<Incoming>) -> Result<Arc<Target>, Refusal> {
    if request.method() == Method::CONNECT {
        return Err(Refusal::Connect);
    }
    if connection.limits.max_body.is_some_and(|most| request.body().size_hint().lower() > most) {
        return Err(Refusal::BodyTooLarge);
    }
    // HTTP/2 has the host in the authority, HTTP/1 in a field, unless the target is in absolute form (RFC 9112, 3.2.2).
    let host = match request.uri().authority() {
        Some(authority) => authority.as_str(),
        None => request.headers().get(HOST).and_then(|host| host.to_str().ok()).unwrap_or(""),
    };
    let routes = connection.listener.routes.load();
    routes.find(host, request.uri().path(), request.method()).cloned().ok_or(Refusal::NoRoute)
}

async fn send(
    connection: &Connection,
    target: &Target,
    mut request: Request<Incoming>,
    is_grpc: bool,
) -> Response<ResponseBody> {
    hop::strip_request(request.headers_mut());
    let limit = connection.limits.max_body;
    let request = request.map(|incoming| RequestBody::new(incoming, limit));
    match target.send(request).await {
        Ok(mut response) => {
            hop::strip_response(response.headers_mut());
            response.map(ResponseBody::backend)
        }
        Err(error) => {
            tracing::debug!(cluster = target.cluster_name(), %error, "request failed");
            answer::for_error(&error, is_grpc)
        }
    }
}
