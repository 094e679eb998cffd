//! `GET /api/v1/live` and its stream.

use std::sync::Arc;

use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use axum::http::StatusCode;
use axum::response::Response;
use axum::routing::get;
use axum::{Extension, Router};
use plimsoll_admin::parts::{Form, Lease, Problem, event_stream};
use serde::Deserialize;

use super::LivePage;

/// The service that a client asks for.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Wanted {
    service: Option<String>,
}

type Asked = Result<Query<Wanted>, QueryRejection>;

/// The data of a page.
pub(crate) fn router(page: Arc<LivePage>) -> Router {
    Router::new().route("/api/v1/live", get(live)).route("/api/v1/live/stream", get(stream)).with_state(page)
}

/// The service in the query.
fn service(asked: Asked) -> Result<Option<String>, Problem> {
    let Query(Wanted { service }) = asked.map_err(|rejection| {
        let help = "name a service: ?service=shop; without one it is the first by name with a cut";
        Problem::new(StatusCode::BAD_REQUEST, rejection.body_text(), help)
    })?;
    Ok(service)
}

fn no_service(name: Option<&str>) -> Problem {
    let error = format!("there is no service {:?}", name.unwrap_or_default());
    Problem::new(StatusCode::NOT_FOUND, error, "GET /api/v1/quota lists them")
}

async fn live(State(page): State<Arc<LivePage>>, form: Form, asked: Asked) -> Result<Response, Problem> {
    let service = service(asked)?;
    let live = page.live(service.as_deref()).map_err(|_| no_service(service.as_deref()))?;
    Ok(form.json(&live))
}

/// The server each second, after ten minutes of history.
async fn stream(
    State(page): State<Arc<LivePage>>,
    lease: Option<Extension<Lease>>,
    asked: Asked,
) -> Result<Response, Problem> {
    let service = service(asked)?;
    let first = page.first(service.as_deref()).map_err(|_| no_service(service.as_deref()))?;
    let subject = service.map(String::into_boxed_str);
    event_stream(&page.viewers, subject, first, lease.map(|Extension(lease)| lease))
}
