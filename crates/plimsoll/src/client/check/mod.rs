//! One look at a backend: does it serve?
//!
//! Every check opens a connection of its own, so that it also finds out whether the backend still
//! accepts one, and closes it. It is bounded by one timeout for the whole.

mod grpc;
mod http;
mod vigil;

use std::sync::Arc;
use std::time::Duration;

use plimsoll_core::LoadReport;
use plimsoll_core::health::CheckOutcome;

pub(crate) use self::vigil::vigil;
use super::cluster::Backend;
use super::config::{Check, ClusterConfig, Protocol};
use super::error::ConnectError;
use super::pool;
use crate::stream::Stream;
use crate::tls::Alpn;

/// What a check found, and the load report that came with it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Finding {
    pub(crate) outcome: CheckOutcome,
    pub(crate) report: Option<LoadReport>,
}

impl From<CheckOutcome> for Finding {
    fn from(outcome: CheckOutcome) -> Self {
        Self { outcome, report: None }
    }
}

/// Checks `backend` once, as `config` says. An error says nothing of it: the check could not be made.
pub(crate) async fn check(backend: Arc<Backend>, config: Arc<ClusterConfig>) -> Result<Finding, ConnectError> {
    let limit = config.check_timeout.0;
    let connect = connect(&backend, &config, limit.min(config.requests.connect_timeout));
    tokio::time::timeout(limit, async {
        let stream = match connect.await {
            Ok(stream) => stream,
            Err(ConnectError::Tls(error)) => {
                // Somebody is there. Nobody but the owner can mend what is wrong, so that it must be seen.
                tracing::warn!(backend = backend.label(), %error, "TLS with a backend failed");
                return Ok(CheckOutcome::Failed.into());
            }
            Err(error) if error.is_own_shortage() => return Err(error),
            Err(_) => return Ok(CheckOutcome::Unreachable.into()),
        };
        Ok(match &config.check {
            Check::None | Check::Tcp => CheckOutcome::Passed.into(),
            Check::Http { path, host } => http::check(stream, &backend, path, host.as_ref()).await,
            Check::Grpc { service } => grpc::check(stream, &backend, config.scheme(), service).await.into(),
        })
    })
    .await
    .unwrap_or(Ok(CheckOutcome::Failed.into()))
}

/// A connection of the kind that a check needs, or requests where the check needs none.
async fn connect(backend: &Backend, config: &ClusterConfig, limit: Duration) -> Result<Stream, ConnectError> {
    let alpn = match (&config.check, config.requests.protocol) {
        (Check::Grpc { .. }, _) => Alpn::Http2,
        (Check::None | Check::Tcp, Protocol::Http2) => Alpn::Http2,
        _ => Alpn::Http1,
    };
    pool::connect(backend, config, limit, alpn, None).await
}
