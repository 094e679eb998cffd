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
use tokio::net::TcpStream;

pub(crate) use self::vigil::vigil;
use super::cluster::Backend;
use super::config::{Check, ClusterConfig};

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

/// Checks `backend` once, as `config` says.
pub(crate) async fn check(backend: Arc<Backend>, config: Arc<ClusterConfig>) -> Finding {
    let limit = config.check_timeout.0;
    let connect = connect(&backend, limit.min(config.requests.connect_timeout));
    tokio::time::timeout(limit, async {
        let Ok(stream) = connect.await else {
            return CheckOutcome::Unreachable.into();
        };
        match &config.check {
            Check::None | Check::Tcp => CheckOutcome::Passed.into(),
            Check::Http { path, host } => http::check(stream, &backend, path, host.as_ref()).await,
            Check::Grpc { service } => grpc::check(stream, &backend, service).await.into(),
        }
    })
    .await
    .unwrap_or(CheckOutcome::Failed.into())
}

async fn connect(backend: &Backend, limit: Duration) -> std::io::Result<TcpStream> {
    let stream = tokio::time::timeout(limit, TcpStream::connect(backend.address())).await??;
    stream.set_nodelay(true)?;
    Ok(stream)
}
