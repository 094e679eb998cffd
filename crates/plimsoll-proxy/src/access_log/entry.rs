//! What the log says of one request.
//!
//! What the client sent is kept as it came, by reference to the bytes that hold it anyway; it is cut and escaped when the
//! line is made.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use http::header::{HOST, USER_AGENT};
use http::{HeaderName, HeaderValue, Method, Request, StatusCode, Uri, Version};

use crate::peer::Peer;

const X_REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");

/// A request as it will stand in the log. What is public is filled in on its way.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(super) at: SystemTime,
    pub(super) begun: Instant,
    pub(super) client: SocketAddr,
    pub(super) listener: Arc<str>,
    pub(super) scheme: &'static str,
    pub(super) tls_version: Option<&'static str>,
    pub(super) server_name: Option<Box<str>>,
    pub(super) method: Method,
    pub(super) uri: Uri,
    pub(super) protocol: Version,
    pub(super) host: Option<HeaderValue>,
    pub(super) user_agent: Option<HeaderValue>,
    pub(super) request_id: Option<HeaderValue>,
    pub(super) trace_parent: Option<HeaderValue>,
    /// Where its route leads.
    pub(crate) cluster: Option<Arc<str>>,
    /// Of the answer; `None` when the client left before there was one.
    pub(crate) status: Option<StatusCode>,
    /// Of the request's body, as far as it was read.
    pub(crate) bytes_in: u64,
    /// Of the answer's body, as far as it was handed to the connection.
    pub(crate) bytes_out: u64,
    /// From the begin of the request to the head of the backend's answer.
    pub(crate) head_after: Option<Duration>,
    /// Who answered, or was asked last.
    pub(crate) backend: Option<SocketAddr>,
    /// Backends that were tried; zero when that is not known.
    pub(crate) attempts: u32,
    /// Why the proxy answered itself.
    pub(crate) reason: Option<&'static str>,
    /// What was given in place of an error.
    pub(crate) degraded: Option<&'static str>,
    /// The answer came to its end.
    pub(crate) complete: bool,
}

impl Entry {
    /// Of a request whose head has just been read, before anything in it is changed.
    pub(crate) fn new<B>(peer: &Peer, listener: &Arc<str>, request: &Request<B>) -> Self {
        let field = |name| request.headers().get(name).cloned();
        let tls = peer.tls.as_ref();
        Self {
            at: SystemTime::now(),
            begun: Instant::now(),
            client: peer.address,
            listener: Arc::clone(listener),
            scheme: if tls.is_some() { "https" } else { "http" },
            tls_version: tls.map(|tls| tls.version),
            server_name: tls.and_then(|tls| tls.server_name.clone()),
            method: request.method().clone(),
            uri: request.uri().clone(),
            protocol: request.version(),
            host: field(HOST),
            user_agent: field(USER_AGENT),
            request_id: field(X_REQUEST_ID),
            trace_parent: field(TRACEPARENT),
            cluster: None,
            status: None,
            bytes_in: 0,
            bytes_out: 0,
            head_after: None,
            backend: None,
            attempts: 0,
            reason: None,
            degraded: None,
            complete: false,
        }
    }

    /// The head of a backend's answer is here.
    pub(crate) fn on_head(&mut self, status: StatusCode) {
        self.status = Some(status);
        self.head_after = Some(self.begun.elapsed());
    }

    /// The host that the request was for, as the client wrote it.
    pub(super) fn authority(&self) -> &[u8] {
        match (self.uri.authority(), &self.host) {
            (Some(authority), _) => authority.as_str().as_bytes(),
            (None, Some(host)) => host.as_bytes(),
            (None, None) => b"",
        }
    }
}
