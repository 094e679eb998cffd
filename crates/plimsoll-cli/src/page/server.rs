//! The requests that the page answers: those of the admin API that its panels send, for all
//! proxies.
//!
//! The guards are those of the admin API: no host name of a stranger, no change from a page of
//! another origin. A browser sends commands to this address alone, and this process sends them on:
//! to the proxies of its command line, and no other path than these.

use std::sync::Arc;

use axum::extract::rejection::QueryRejection;
use axum::extract::{DefaultBodyLimit, Extension, Path, Query, RawQuery, State};
use axum::http::{HeaderMap, StatusCode, Uri};
use axum::response::{IntoResponse as _, Response};
use axum::routing::{get, post};
use axum::{Router, middleware};
use http::Method;
use plimsoll_admin::parts::{Called, Form, Lease, Problem, event_stream, for_browser, no_foreign_page, page_router};
use serde::Deserialize;
use tokio::sync::Semaphore;

use super::watch::{Desk, NoState};
use super::{ask, index};
use crate::admin::path::escaped;

/// Questions and commands to all proxies at a time: each may take an answer of 2 MiB of each proxy.
const MAX_ASKED: usize = 2;
/// No request of the page has a body.
const MAX_BODY: usize = 1 << 10;

#[derive(Clone)]
struct Shared {
    desk: Arc<Desk>,
    asking: Arc<Semaphore>,
}

/// The cluster that a viewer asks for.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Wanted {
    cluster: Option<String>,
}

type Asked = Result<Query<Wanted>, QueryRejection>;

/// The number of requests that a viewer asks for. The proxies judge the other filters.
#[derive(Deserialize)]
struct Last {
    last: Option<usize>,
}

/// The page and its API as a service.
pub(super) fn router(desk: Arc<Desk>) -> Router {
    let shared = Shared { desk, asking: Arc::new(Semaphore::new(MAX_ASKED)) };
    Router::new()
        .route("/", get(root))
        .route("/healthz", get(async || "ok\n"))
        .route("/api/v1/live", get(live))
        .route("/api/v1/live/stream", get(stream))
        .route("/api/v1/explain", get(explain))
        .route("/api/v1/explain/{id}", get(explain_one))
        .route("/api/v1/clusters/{name}/backends/{address}/drain", post(drain))
        .route("/api/v1/clusters/{name}/backends/{address}/undrain", post(undrain))
        .with_state(shared)
        .merge(page_router())
        .fallback(async |uri: Uri| {
            let error = format!("there is no page {:?}", uri.path());
            Problem::new(StatusCode::NOT_FOUND, error, "GET / lists all pages; each proxy has more of them")
        })
        .method_not_allowed_fallback(async || {
            let help = "GET to read, POST to drain and undrain: GET / lists all pages";
            Problem::new(StatusCode::METHOD_NOT_ALLOWED, "this page does not take this method", help)
        })
        .layer(DefaultBodyLimit::max(MAX_BODY))
        .layer(middleware::from_fn_with_state(Called::new(is_own_name), no_foreign_page))
}

/// Whether this is the name of the machine, as it is for a proxy.
fn is_own_name(name: &str) -> bool {
    rustix::system::uname().nodename().to_bytes().eq_ignore_ascii_case(name.as_bytes())
}

async fn root(headers: HeaderMap) -> Response {
    match for_browser(&headers) {
        Some(page) => page.into_response(),
        None => index().into_response(),
    }
}

/// The cluster in the query.
fn cluster(asked: Asked) -> Result<Option<Box<str>>, Problem> {
    let Query(Wanted { cluster }) = asked.map_err(|rejection| {
        let help = "name a cluster: ?cluster=web; without one it is the one with the worst verdict";
        Problem::new(StatusCode::BAD_REQUEST, rejection.body_text(), help)
    })?;
    Ok(cluster.map(String::into_boxed_str))
}

fn no_state(why: &NoState, name: Option<&str>) -> Problem {
    match why {
        NoState::NoCluster => {
            let error = format!("no proxy has a cluster {:?}", name.unwrap_or_default());
            Problem::new(StatusCode::NOT_FOUND, error, "GET /api/v1/live lists the clusters")
        }
        NoState::TooMany => Problem::new(
            StatusCode::SERVICE_UNAVAILABLE,
            "too many other clusters are watched",
            "close a page, or choose the cluster that it shows",
        ),
    }
}

async fn live(State(shared): State<Shared>, form: Form, asked: Asked) -> Result<Response, Problem> {
    let subject = cluster(asked)?;
    let live = shared.desk.live(&subject).await.map_err(|why| no_state(&why, subject.as_deref()))?;
    Ok(form.json(&live))
}

async fn stream(
    State(shared): State<Shared>,
    lease: Option<Extension<Lease>>,
    asked: Asked,
) -> Result<Response, Problem> {
    let subject = cluster(asked)?;
    let first = shared.desk.first(&subject).await.map_err(|why| no_state(&why, subject.as_deref()))?;
    event_stream(&shared.desk.viewers, subject, first, lease.map(|Extension(lease)| lease))
}

async fn explain(
    State(shared): State<Shared>,
    form: Form,
    last: Result<Query<Last>, QueryRejection>,
    RawQuery(query): RawQuery,
) -> Result<Response, Problem> {
    let Query(Last { last }) = last.map_err(|rejection| {
        Problem::new(StatusCode::BAD_REQUEST, rejection.body_text(), "limit the number of requests with last=20")
    })?;
    let query = query.map(|query| format!("?{query}")).unwrap_or_default();
    Ok(shared.explain(form, &format!("/api/v1/explain{query}"), last).await)
}

async fn explain_one(State(shared): State<Shared>, form: Form, Path(id): Path<String>) -> Response {
    shared.explain(form, &format!("/api/v1/explain/{}", escaped(&id)), None).await
}

async fn drain(State(shared): State<Shared>, form: Form, Path(place): Path<(String, String)>) -> Response {
    shared.switch(form, &place, "drain").await
}

async fn undrain(State(shared): State<Shared>, form: Form, Path(place): Path<(String, String)>) -> Response {
    shared.switch(form, &place, "undrain").await
}

impl Shared {
    async fn all(&self, method: Method, path: &str) -> Vec<ask::Answer> {
        // It is never closed; without a permit the question would only be a further one.
        let _permit = self.asking.acquire().await;
        ask::all(&self.desk, method, path).await
    }

    async fn explain(&self, form: Form, path: &str, last: Option<usize>) -> Response {
        let mut answers = self.all(Method::GET, path).await;
        let (status, body) = ask::explained(&mut answers, last);
        (status, form.json(&body)).into_response()
    }

    async fn switch(&self, form: Form, (cluster, backend): &(String, String), verb: &str) -> Response {
        let answers = self.all(Method::POST, &ask::switch_path(cluster, backend, verb)).await;
        let (status, body) = ask::switched(backend, &answers);
        tracing::info!(
            cluster,
            backend,
            proxies = answers.iter().filter(|answer| answer.result.is_ok()).count(),
            of = answers.len(),
            "backend {verb} sent"
        );
        (status, form.json(&body)).into_response()
    }
}

#[cfg(test)]
mod tests;
