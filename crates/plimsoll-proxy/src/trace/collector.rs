//! The collector: one connection, and one request at a time (OTLP 1.x over HTTP/1.1, protobuf).
//!
//! The outcome of a request is that of the specification: 429, 502, 503 and 504 are sent again, after
//! the time in `Retry-After`; all other errors are final. No answer, and no connection, is tried
//! again too.

use std::net::SocketAddr;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::header::{CONTENT_TYPE, HOST, RETRY_AFTER, USER_AGENT};
use http::uri::Authority;
use http::{HeaderMap, HeaderValue, Request, StatusCode};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use plimsoll::tls::{TlsConfig, chain};
use plimsoll_stream::Stream;
use plimsoll_wire::otlp::{ExportTraceServiceResponse, InstrumentationScope, KeyValue, RequestHead, Resource};
use prost::Message as _;
use tokio::net::TcpStream;
use tokio::task::AbortHandle;
use tokio::time::timeout;

use crate::config::CollectorUrl;

/// Time for a connection, and for the answer to a request: OpenTelemetry's default for both together.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);
/// Bytes of an answer that are read.
const MAX_ANSWER: usize = 64 * 1024;
/// The usual port of OTLP over gRPC.
const GRPC_PORT: u16 = 4317;

const PROTOBUF: HeaderValue = HeaderValue::from_static("application/x-protobuf");
const AGENT: HeaderValue = HeaderValue::from_static(concat!("plimsoll/", env!("CARGO_PKG_VERSION")));

/// Where spans are sent, and under which name.
#[derive(Clone, Debug)]
pub(super) struct Target {
    url: CollectorUrl,
    service: String,
    tls: Option<TlsConfig>,
    head: RequestHead,
}

impl PartialEq for Target {
    fn eq(&self, other: &Self) -> bool {
        (&self.url, &self.service, &self.tls) == (&other.url, &other.service, &other.tls)
    }
}

impl Target {
    pub(super) fn new(url: &CollectorUrl, service: &str, tls: Option<&TlsConfig>) -> Self {
        let (name, version) = ("plimsoll".to_owned(), env!("CARGO_PKG_VERSION").to_owned());
        let host = std::env::var("HOSTNAME").unwrap_or_else(|_| "proxy".to_owned());
        let attributes = vec![
            KeyValue::new("service.name", service),
            KeyValue::new("service.version", version.as_str()),
            KeyValue::new("service.instance.id", format!("{host}/{}", std::process::id())),
        ];
        let head = RequestHead::new(&Resource { attributes }, &InstrumentationScope { name, version });
        let tls = tls.filter(|_| url.is_tls).cloned();
        Self { url: url.clone(), service: service.to_owned(), tls, head }
    }

    /// The body of a request with these spans.
    pub(super) fn body(&self, spans: &[Vec<u8>]) -> Bytes {
        BytesMut::freeze(self.head.request(spans.iter().map(Vec::as_slice)))
    }

    pub(super) fn url(&self) -> &CollectorUrl {
        &self.url
    }
}

/// The end of one request to a collector.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Sent {
    /// It accepted the spans, but for this many.
    Accepted { refused: u64 },
    /// It may accept them later, at the earliest after this time.
    Later { reason: String, after: Option<Duration> },
    /// It will never accept them.
    Never { reason: String },
}

/// A connection to a collector. Closed when dropped.
pub(super) struct Connection {
    sender: SendRequest<Full<Bytes>>,
    task: AbortHandle,
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Sends `body` on `connection`, or on a new one, which is kept there.
pub(super) async fn send(target: &Target, connection: &mut Option<Connection>, body: Bytes) -> Sent {
    let kept = connection.take().filter(|connection| !connection.sender.is_closed());
    let mut used = match kept {
        Some(connection) => connection,
        None => match timeout(CONNECT_TIMEOUT, connect(target)).await {
            Ok(Ok(connection)) => connection,
            Ok(Err(reason)) => return later(target, reason),
            Err(_) => return later(target, "no connection within 5 s".to_owned()),
        },
    };
    let mut request = Request::post(target.url.path.clone()).body(Full::new(body)).expect("a path is a target");
    let headers = request.headers_mut();
    headers.insert(HOST, HeaderValue::from_str(target.url.authority.as_str()).expect("an authority is visible ASCII"));
    headers.insert(CONTENT_TYPE, PROTOBUF);
    headers.insert(USER_AGENT, AGENT);
    let answered = timeout(ANSWER_TIMEOUT, async {
        used.sender.ready().await?;
        let response = used.sender.send_request(request).await?;
        let (head, body) = response.into_parts();
        let body = Limited::new(body, MAX_ANSWER).collect().await.map(|body| body.to_bytes());
        Ok::<_, hyper::Error>((head, body))
    });
    match answered.await {
        Ok(Ok((head, body))) => {
            let is_whole = body.is_ok();
            let sent = outcome(head.status, &head.headers, &body.unwrap_or_default());
            // The rest of a body that was too long is not read.
            *connection = is_whole.then_some(used);
            sent
        }
        Ok(Err(error)) => later(target, chain(&error)),
        Err(_) => later(target, "no answer within 10 s".to_owned()),
    }
}

/// The outcome of a request with this answer.
fn outcome(status: StatusCode, headers: &HeaderMap, body: &[u8]) -> Sent {
    let reason = format!("it answered {status}");
    match status.as_u16() {
        200..=299 => {
            let partial = ExportTraceServiceResponse::decode(body).unwrap_or_default().partial_success;
            let refused = partial.map_or(0, |partial| u64::try_from(partial.rejected_spans).unwrap_or_default());
            Sent::Accepted { refused }
        }
        429 | 502..=504 => {
            let after = headers.get(RETRY_AFTER).and_then(|after| after.to_str().ok()?.trim().parse().ok());
            Sent::Later { reason, after: after.map(Duration::from_secs) }
        }
        _ => Sent::Never { reason },
    }
}

fn later(target: &Target, mut reason: String) -> Sent {
    if target.url.authority.port_u16() == Some(GRPC_PORT) {
        reason += " (port 4317 is usually OTLP over gRPC; OTLP over HTTP is at 4318)";
    }
    Sent::Later { reason, after: None }
}

async fn connect(target: &Target) -> Result<Connection, String> {
    let Target { url: CollectorUrl { is_tls, authority, .. }, tls, .. } = target;
    let tcp = open(authority).await.map_err(|error| format!("cannot connect: {error}"))?;
    let stream = match tls.as_ref().filter(|_| *is_tls) {
        None => Stream::Tcp(tcp),
        Some(tls) => {
            let stream = tls.connect_http1(tcp, authority.host()).await;
            stream.map_err(|error| format!("no TLS with the collector: {}", chain(&error)))?
        }
    };
    let (sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(|error| chain(&error))?;
    // Its end shows at the sender.
    let task = tokio::spawn(async move { drop(connection.await) }).abort_handle();
    Ok(Connection { sender, task })
}

async fn open(authority: &Authority) -> std::io::Result<TcpStream> {
    let host = authority.host().trim_start_matches('[').trim_end_matches(']');
    let port = authority.port_u16().unwrap_or_default();
    let addresses: Vec<SocketAddr> = tokio::net::lookup_host((host, port)).await?.collect();
    let tcp = TcpStream::connect(&*addresses).await?;
    tcp.set_nodelay(true)?;
    Ok(tcp)
}

#[cfg(test)]
mod tests {
    use plimsoll_wire::otlp::PartialSuccess;

    use super::*;

    #[test]
    fn answers_are_judged_as_the_specification_says() {
        let none = HeaderMap::new();
        let later = |status, headers: &HeaderMap| match outcome(status, headers, b"") {
            Sent::Later { after, .. } => Some(after),
            _ => None,
        };
        for status in [429, 502, 503, 504].map(|status| StatusCode::from_u16(status).unwrap()) {
            assert_eq!(later(status, &none), Some(None), "{status}");
        }
        for status in [301, 400, 401, 404, 413, 500, 501].map(|status| StatusCode::from_u16(status).unwrap()) {
            assert!(matches!(outcome(status, &none, b""), Sent::Never { .. }), "{status}");
        }
        let headers = HeaderMap::from_iter([(RETRY_AFTER, HeaderValue::from_static("7"))]);
        assert_eq!(later(StatusCode::SERVICE_UNAVAILABLE, &headers), Some(Some(Duration::from_secs(7))));
    }

    #[test]
    fn part_that_was_refused_is_counted() {
        let partial = PartialSuccess { rejected_spans: 3, error_message: String::new() };
        let answer = ExportTraceServiceResponse { partial_success: Some(partial) }.encode_to_vec();
        assert_eq!(outcome(StatusCode::OK, &HeaderMap::new(), &answer), Sent::Accepted { refused: 3 });
        for other in [&b""[..], b"{}"] {
            assert_eq!(outcome(StatusCode::OK, &HeaderMap::new(), other), Sent::Accepted { refused: 0 });
        }
    }
}
