//! `GET /api/v1/live` and its stream.

use axum::Extension;
use axum::body::Bytes;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use axum::http::StatusCode;
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use axum::response::{IntoResponse as _, Response};
use serde::Deserialize;

use super::Shared;
use super::answer::{Form, Problem};
use crate::lease::Lease;
use crate::live::{MAX_VIEWERS, Subject, Viewers};

/// The cluster that a client asks for.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Wanted {
    cluster: Option<String>,
}

type Asked = Result<Query<Wanted>, QueryRejection>;

/// The cluster in the query.
fn cluster(asked: Asked) -> Result<Option<String>, Problem> {
    let Query(Wanted { cluster }) = asked.map_err(|rejection| {
        let help = "name a cluster: ?cluster=web; without one it is the one with the worst verdict";
        Problem::new(StatusCode::BAD_REQUEST, rejection.body_text(), help)
    })?;
    Ok(cluster)
}

fn no_cluster(name: Option<&str>) -> Problem {
    let error = format!("there is no cluster {:?}", name.unwrap_or_default());
    Problem::new(StatusCode::NOT_FOUND, error, "GET /api/v1/clusters lists them")
}

/// The fleet now.
pub(super) async fn live(State(fleet): State<Shared>, form: Form, asked: Asked) -> Result<Response, Problem> {
    let cluster = cluster(asked)?;
    let live = fleet.page().live(&*fleet, cluster.as_deref()).map_err(|_| no_cluster(cluster.as_deref()))?;
    Ok(form.json(&live))
}

/// The fleet each second, after ten minutes of history.
pub(super) async fn stream(
    State(fleet): State<Shared>,
    lease: Option<Extension<Lease>>,
    asked: Asked,
) -> Result<Response, Problem> {
    let cluster = cluster(asked)?;
    let first = fleet.page().first(&*fleet, cluster.as_deref()).map_err(|_| no_cluster(cluster.as_deref()))?;
    let subject = cluster.map(String::into_boxed_str);
    event_stream(fleet.page().viewers(), subject, first, lease.map(|Extension(lease)| lease))
}

/// The answer to a page of this subject, which begins with `first` and goes on with its events.
///
/// # Errors
/// Too many pages are open.
pub fn event_stream(
    viewers: &Viewers,
    subject: Subject,
    first: Bytes,
    lease: Option<Lease>,
) -> Result<Response, Problem> {
    let body = viewers.watch(subject, first, lease).ok_or_else(|| {
        let error = format!("{MAX_VIEWERS} pages or programs watch already");
        Problem::new(StatusCode::SERVICE_UNAVAILABLE, error, "close one of them, or ask for /api/v1/live now and then")
    })?;
    Ok(([(CONTENT_TYPE, "text/event-stream"), (CACHE_CONTROL, "no-store")], body).into_response())
}
