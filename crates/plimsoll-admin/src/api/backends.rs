//! The list of a cluster's backends: filtered, sorted and cut, since ten thousand of them are 2.7 MB.

use axum::extract::rejection::QueryRejection;
use axum::extract::{Path, Query, State};
use axum::http::StatusCode;
use axum::response::Response;
use plimsoll::client;
use plimsoll_core::health::State as Health;
use serde::{Deserialize, Serialize};

use super::answer::{Form, Problem};
use super::{Shared, find};
use crate::view::BackendView;

/// The backends that a client asks for.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Wanted {
    #[serde(default)]
    state: Option<Of>,
    #[serde(default)]
    sort: Option<Sort>,
    #[serde(default)]
    limit: Option<usize>,
    /// Backends before the first one.
    #[serde(default)]
    offset: usize,
}

/// The state of a wanted backend.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Of {
    Connecting,
    Healthy,
    LameDuck,
    Refusing,
    Ejected,
    /// All but healthy.
    Unhealthy,
}

impl Of {
    fn includes(self, state: Health) -> bool {
        match self {
            Self::Connecting => state == Health::Connecting,
            Self::Healthy => state == Health::Healthy,
            Self::LameDuck => state == Health::LameDuck,
            Self::Refusing => state == Health::Refusing,
            Self::Ejected => state == Health::Ejected,
            Self::Unhealthy => state != Health::Healthy,
        }
    }
}

/// The order of backends: the largest first, and an unknown figure last.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Sort {
    Utilization,
    InFlight,
    Requests,
    Failures,
    ErrorShare,
    Latency,
    Qps,
}

impl Sort {
    fn key(self, backend: &client::BackendView) -> Option<f64> {
        let snapshot = &backend.snapshot;
        let report = snapshot.report.map(|(_, report)| report);
        match self {
            Self::Utilization => report.and_then(|report| report.utilization()),
            Self::InFlight => Some(f64::from(snapshot.active)),
            Self::Requests => Some(snapshot.requests as f64),
            Self::Failures => Some(snapshot.failures as f64),
            Self::ErrorShare => Some(snapshot.error_share),
            Self::Latency => snapshot.latency.map(|latency| latency.as_secs_f64()),
            Self::Qps => report.map(|report| report.qps),
        }
    }
}

#[derive(Serialize)]
struct Backends {
    cluster: String,
    /// All backends of the filter, also those that the answer leaves out.
    matching: usize,
    backends: Vec<BackendView>,
}

/// `GET /api/v1/clusters/{name}/backends`.
pub(super) async fn list(
    State(fleet): State<Shared>,
    form: Form,
    Path(name): Path<String>,
    wanted: Result<Query<Wanted>, QueryRejection>,
) -> Result<Response, Problem> {
    let Query(Wanted { state, sort, limit, offset }) = wanted.map_err(|rejection| {
        let help = "filter by state (healthy, unhealthy, connecting, lame-duck, refusing, ejected), sort by utilization, \
                    in-flight, requests, failures, error-share, latency or qps, and cut with limit=20 and offset=20";
        Problem::new(StatusCode::BAD_REQUEST, rejection.body_text(), help)
    })?;
    let cluster = find(&*fleet, &name)?.view;
    let is_wanted = |backend: &&client::BackendView| state.is_none_or(|of| of.includes(backend.snapshot.state));
    let mut backends: Vec<&client::BackendView> = cluster.backends.iter().filter(is_wanted).collect();
    if let Some(sort) = sort {
        // A stable order: equal ones stay as the cluster has them.
        backends.sort_by(|a, b| {
            let [a, b] = [a, b].map(|backend| sort.key(backend).unwrap_or(f64::NEG_INFINITY));
            b.total_cmp(&a)
        });
    }
    let matching = backends.len();
    let shown = backends.into_iter().skip(offset).take(limit.unwrap_or(usize::MAX));
    let backends = shown.map(|backend| BackendView::of(backend, &cluster.summary)).collect();
    Ok(form.json(&Backends { cluster: name, matching, backends }))
}
