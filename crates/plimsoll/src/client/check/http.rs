//! `GET path`: 2xx passes, 503 says not serving, anything else fails.

use bytes::Bytes;
use http::header::{HOST, USER_AGENT};
use http::uri::{Authority, PathAndQuery};
use http::{HeaderValue, Request, StatusCode, Uri};
use http_body_util::Empty;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use plimsoll_core::health::CheckOutcome;
use plimsoll_wire::orca;

use super::Finding;
use crate::client::cluster::Backend;
use crate::stream::Stream;

const AGENT: HeaderValue = HeaderValue::from_static("plimsoll-check");

pub(super) async fn check(stream: Stream, backend: &Backend, path: &PathAndQuery, host: Option<&Authority>) -> Finding {
    let Ok((mut sender, connection)) = http1::handshake::<_, Empty<Bytes>>(TokioIo::new(stream)).await else {
        return CheckOutcome::Failed.into();
    };
    let host = host.and_then(|host| HeaderValue::from_str(host.as_str()).ok());
    let mut request = Request::new(Empty::new());
    *request.uri_mut() = Uri::from(path.clone());
    request.headers_mut().insert(HOST, host.unwrap_or_else(|| backend.host().clone()));
    request.headers_mut().insert(USER_AGENT, AGENT);
    // The connection runs here instead of on a task of its own, so that it ends with the check.
    let mut response = std::pin::pin!(sender.send_request(request));
    let response = tokio::select! {
        response = &mut response => response,
        // A server may close with its answer: what the connection read is there.
        _ = connection => response.await,
    };
    let Ok(response) = response else {
        return CheckOutcome::Failed.into();
    };
    let report = orca::read_load(response.headers()).and_then(Result::ok);
    let outcome = match response.status() {
        _ if report.is_some_and(|report| report.lame_duck) => CheckOutcome::NotServing,
        status if status.is_success() => CheckOutcome::Passed,
        StatusCode::SERVICE_UNAVAILABLE => CheckOutcome::NotServing,
        _ => CheckOutcome::Failed,
    };
    Finding { outcome, report }
}
