//! One request: its route, its way to a backend, and the answer's way back.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use http::header::{CONNECTION, HOST};
use http::{HeaderValue, Method, Request, Response, StatusCode, Version};
use http_body::Body as _;
use hyper::body::Incoming;
use plimsoll_wire::grpc;

use crate::activity::{ActiveRequest, Connection};
use crate::answer;
use crate::hop;
use crate::listener::Target;
use crate::phase::Phase;
use crate::reason::Refusal;
use crate::request_body::RequestBody;
use crate::response_body::ResponseBody;

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
    let admitted = admit(connection, &request);
    let request = RequestBody::of(request, connection.limits.max_body);
    let mut response = match admitted {
        Ok(target) => send(connection, &target, request, is_grpc).await,
        Err(refusal) => refuse(connection, refusal, is_grpc),
    };
    if version < Version::HTTP_2 && connection.listener.life.phase() != Phase::Serving {
        response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    }
    // The versions of the two sides have nothing to do with each other. An HTTP/1.0 client is hyper's business: told of
    // 1.1 it says in the old way that the connection stays, told of 1.0 it closes it.
    *response.version_mut() = version.max(Version::HTTP_11);
    Ok(response.map(|body| body.holding(active)))
}

fn refuse(connection: &Connection, refusal: Refusal, is_grpc: bool) -> Response<ResponseBody> {
    connection.listener.shared.refusals.count(refusal);
    answer::for_refusal(refusal, is_grpc)
}

/// Where the request is to go, before anything of its body is read.
fn admit(connection: &Connection, request: &Request<Incoming>) -> Result<Arc<Target>, Refusal> {
    if request.method() == Method::CONNECT {
        return Err(Refusal::Connect);
    }
    if connection.limits.max_body.is_some_and(|most| request.body().size_hint().lower() > most) {
        return Err(Refusal::BodyTooLarge);
    }
    let host = host(request).ok_or(Refusal::BadHost)?;
    let routes = connection.listener.routes.load();
    routes.find(host, request.uri().path(), request.method()).cloned().ok_or(Refusal::NoRoute)
}

/// The host that a request is for; `None` where that is not clear, empty where an old client or HTTP/2 names none.
///
/// HTTP/2 has it in the authority, HTTP/1 in a field, unless the target is in absolute form (RFC 9112, 3.2).
fn host<B>(request: &Request<B>) -> Option<&str> {
    let mut fields = request.headers().get_all(HOST).iter();
    let (field, further) = (fields.next(), fields.next());
    let authority = request.uri().authority();
    if further.is_some() || field.is_none() && request.version() == Version::HTTP_11 {
        return None;
    }
    Some(match (authority, field) {
        (Some(authority), _) => authority.as_str().rsplit_once('@').map_or(authority.as_str(), |(_, host)| host),
        (None, Some(field)) => field.to_str().unwrap_or(""),
        (None, None) => "",
    })
}

async fn send(
    connection: &Connection,
    target: &Target,
    mut request: Request<RequestBody>,
    is_grpc: bool,
) -> Response<ResponseBody> {
    let http2 = request.version() == Version::HTTP_2;
    hop::strip_request(request.headers_mut());
    if request.uri().authority().is_some() {
        // What the request was routed by is what the backend gets to see, whatever the field beside it says.
        request.headers_mut().remove(HOST);
    }
    let overrun = request.body().overrun();
    match target.send(request).await {
        Ok(response) if response.status() == StatusCode::SWITCHING_PROTOCOLS => answer::for_switch(is_grpc),
        Ok(mut response) => {
            hop::strip_response(response.headers_mut());
            response.map(if is_grpc && http2 { ResponseBody::backend_call } else { ResponseBody::backend })
        }
        Err(_) if overrun.is_some_and(|overrun| overrun.load(Ordering::Relaxed)) => {
            refuse(connection, Refusal::BodyTooLarge, is_grpc)
        }
        Err(error) => {
            tracing::debug!(cluster = target.cluster_name(), %error, "request failed");
            answer::for_error(&error, is_grpc)
        }
    }
}
