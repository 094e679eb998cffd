//! One look at a backend: does it serve?
//!
//! Every check opens a connection of its own, so that it also finds out whether the backend still
//! accepts one, and closes it. It is bounded by one timeout for the whole.

#[cfg(all(feature = "grpc", feature = "http2"))]
mod grpc;
mod http;
mod vigil;

use std::sync::Arc;
use std::time::Duration;

use ::http::{HeaderMap, HeaderValue, StatusCode};
use plimsoll_core::health::CheckOutcome;
use plimsoll_core::{LoadReport, Rejection};
use plimsoll_stream::Stream;
use plimsoll_wire::headers::X_PLIMSOLL_PROBE_KEY;
#[cfg(feature = "probes")]
pub(crate) use plimsoll_wire::probe::ClientKey;
use plimsoll_wire::shed::Shed;

pub(crate) use self::vigil::vigil;
use super::backend::Backend;
use super::config::{Check, ClusterConfig, Version};
use super::connect;
use super::error::ConnectError;

/// Without probes there are no keys.
#[cfg(not(feature = "probes"))]
pub(crate) type ClientKey = std::convert::Infallible;

/// The result of a check, with the rest of its answer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Finding {
    pub(crate) outcome: CheckOutcome,
    pub(crate) report: Option<LoadReport>,
    /// The key for probes of this backend.
    pub(crate) key: Option<ClientKey>,
}

impl From<CheckOutcome> for Finding {
    fn from(outcome: CheckOutcome) -> Self {
        Self { outcome, report: None, key: None }
    }
}

/// Whether the backend is too loaded for this check: it serves others then, and must keep its
/// requests. As a lame duck it would pass them to its peers, which would be lame ducks next.
fn is_busy(status: StatusCode, headers: &HeaderMap) -> bool {
    Shed::read(status, headers).and_then(|shed| shed.reason).is_some_and(Rejection::is_of_load)
}

/// Adds a request for a key to the headers of a check.
fn request_key(headers: &mut HeaderMap, request: Option<HeaderValue>) {
    headers.extend(request.map(|value| (X_PLIMSOLL_PROBE_KEY, value)));
}

/// The key in the answer to a check. A malformed one is none.
fn key_in(headers: &HeaderMap) -> Option<ClientKey> {
    #[cfg(feature = "probes")]
    return ClientKey::read(headers).and_then(Result::ok);
    #[cfg(not(feature = "probes"))]
    {
        let _ = headers;
        None
    }
}

/// Checks `backend` once, as `config` says, and requests a key for its probes with the value
/// `key_request`. An error is no evidence: the check could not be made.
pub(crate) async fn check(
    backend: Arc<Backend>,
    config: Arc<ClusterConfig>,
    key_request: Option<HeaderValue>,
) -> Result<Finding, ConnectError> {
    let limit = config.check_timeout.0;
    let connect = connect(&backend, &config, limit.min(config.requests.connect_timeout));
    tokio::time::timeout(limit, async {
        let stream = match connect.await {
            Ok(stream) => stream,
            Err(ConnectError::Tls(error)) => {
                // A server answers there. Only its owner can fix the cause, so the log has to show
                // it.
                tracing::warn!(backend = backend.label(), %error, "TLS handshake with backend failed");
                return Ok(CheckOutcome::Failed.into());
            }
            Err(error) if error.is_own_shortage() => return Err(error),
            Err(_) => return Ok(CheckOutcome::Unreachable.into()),
        };
        Ok(match &config.check {
            Check::None | Check::Tcp => CheckOutcome::Passed.into(),
            Check::Http { path, host } => {
                let (version, scheme) = (version(&config), config.scheme());
                let asked = http::Asked {
                    path,
                    host: host.as_ref(),
                    version,
                    scheme,
                    key_request,
                    reports: &config.load_reports,
                };
                http::check(stream, &backend, asked).await
            }
            #[cfg(all(feature = "grpc", feature = "http2"))]
            Check::Grpc { service } => grpc::check(stream, &backend, config.scheme(), service, key_request).await,
        })
    })
    .await
    .unwrap_or(Ok(CheckOutcome::Failed.into()))
}

/// The protocol of a check: that of the cluster, as a backend may know no other.
fn version(config: &ClusterConfig) -> Version {
    match &config.check {
        #[cfg(all(feature = "grpc", feature = "http2"))]
        Check::Grpc { .. } => Version::Http2,
        _ => config.requests.protocol.version(false),
    }
}

/// A connection of the kind that a check needs, or requests where the check needs none.
async fn connect(backend: &Backend, config: &ClusterConfig, limit: Duration) -> Result<Stream, ConnectError> {
    connect::connect(backend, config, limit, version(config).alpn(), None).await
}

/// The output of `answer`, with `connection` driven meanwhile: here instead of on a task of its
/// own, so that it ends with the check.
async fn beside<T>(connection: impl Future, answer: impl Future<Output = T>) -> T {
    let mut answer = std::pin::pin!(answer);
    tokio::select! {
        answer = &mut answer => answer,
        // A server may close with its answer: the connection has read it.
        _ = connection => answer.await,
    }
}
