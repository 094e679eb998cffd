//! `GET path`: 2xx passes, and so does a shed check; 503 means not serving, anything else fails.

use bytes::Bytes;
use http::header::{CONNECTION, HOST, USER_AGENT};
use http::uri::{Authority, PathAndQuery, Scheme};
use http::{HeaderValue, Request, Response, StatusCode, Uri, Version as HttpVersion};
use http_body_util::Empty;
use hyper::body::Incoming;
use hyper::client::conn::http1;
#[cfg(feature = "http2")]
use hyper::client::conn::http2;
#[cfg(feature = "http2")]
use hyper_util::rt::TokioExecutor;
use hyper_util::rt::TokioIo;
use plimsoll_core::health::CheckOutcome;
use plimsoll_stream::Stream;
use plimsoll_wire::orca;

use super::{Finding, beside, is_busy, key_in, request_key};
use crate::client::backend::Backend;
use crate::client::config::Version;
use crate::client::form;
use crate::client::load_reports::LoadReports;

const AGENT: HeaderValue = HeaderValue::from_static("plimsoll-check");

/// The request of a check.
pub(super) struct Asked<'a> {
    pub(super) path: &'a PathAndQuery,
    pub(super) host: Option<&'a Authority>,
    pub(super) version: Version,
    pub(super) scheme: Scheme,
    pub(super) key_request: Option<HeaderValue>,
    pub(super) reports: &'a LoadReports,
}

pub(super) async fn check(stream: Stream, backend: &Backend, asked: Asked<'_>) -> Finding {
    let metrics = &asked.reports.utilization;
    let Some(response) = ask(stream, backend, asked).await else {
        return CheckOutcome::Failed.into();
    };
    let report = orca::read_load_by(response.headers(), metrics).and_then(Result::ok);
    let outcome = match response.status() {
        _ if report.is_some_and(|report| report.lame_duck) => CheckOutcome::NotServing,
        status if status.is_success() => CheckOutcome::Passed,
        status if is_busy(status, response.headers()) => CheckOutcome::Passed,
        StatusCode::SERVICE_UNAVAILABLE => CheckOutcome::NotServing,
        _ => CheckOutcome::Failed,
    };
    Finding { outcome, report, key: key_in(response.headers()) }
}

async fn ask(stream: Stream, backend: &Backend, asked: Asked<'_>) -> Option<Response<Incoming>> {
    let io = TokioIo::new(stream);
    let mut request = Request::new(Empty::<Bytes>::new());
    *request.uri_mut() = Uri::from(asked.path.clone());
    let host = asked.host.and_then(|host| HeaderValue::from_str(host.as_str()).ok());
    request.headers_mut().extend(host.map(|host| (HOST, host)));
    request.headers_mut().insert(USER_AGENT, AGENT);
    request_key(request.headers_mut(), asked.key_request);
    if let Some(format) = asked.reports.request {
        format.request(request.headers_mut());
    }
    match asked.version {
        Version::Http1 => {
            form::http1(&mut request, backend, &mut false);
            let (mut sender, connection) = http1::handshake(io).await.ok()?;
            let response = beside(connection, sender.send_request(request)).await.ok()?;
            backend.note_keep_alive(leaves_open(&response));
            Some(response)
        }
        #[cfg(feature = "http2")]
        Version::Http2 => {
            form::http2(&mut request, backend, &asked.scheme, &mut false);
            let (mut sender, connection) = http2::handshake(TokioExecutor::new(), io).await.ok()?;
            beside(connection, sender.send_request(request)).await.ok()
        }
    }
}

/// Whether the server keeps the connection open after this HTTP/1 response (RFC 9112, 9.3).
fn leaves_open<B>(response: &Response<B>) -> bool {
    let says = |option: &str| {
        let values = response.headers().get_all(CONNECTION).iter().filter_map(|value| value.to_str().ok());
        values.flat_map(|value| value.split(',')).any(|each| each.trim().eq_ignore_ascii_case(option))
    };
    match response.version() {
        HttpVersion::HTTP_10 => says("keep-alive"),
        _ => !says("close"),
    }
}
