//! The requests that the admin API answers.

mod process;

use std::net::SocketAddr;
use std::sync::Arc;

use axum::extract::rejection::QueryRejection;
use axum::extract::{Path, Query, Request, State};
use axum::http::header::{CONTENT_TYPE, HOST, ORIGIN};
use axum::http::{HeaderName, HeaderValue, Method, StatusCode};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use plimsoll_core::health::Reason;
use serde::Serialize;

use crate::explain::{Explained, Wanted};
use crate::fleet::{Fleet, Missing, Readiness};
use crate::host;
use crate::metrics;
use crate::snapshot::ClusterSnapshot;
use crate::throttling::ThrottlingView;
use crate::view::{BackendView, BatchView, ClusterView, SwitchedView};

/// The media type of metrics, as the format asks for it.
const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Whether a page made the browser send the request, and whose (Fetch Metadata).
const SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

type Shared = State<Arc<dyn Fleet>>;

/// The API as a service.
pub fn router(fleet: Arc<dyn Fleet>) -> Router {
    let backend = "/api/v1/clusters/{name}/backends/{address}";
    Router::new()
        .route("/metrics", get(metrics))
        .route("/healthz", get(async || "ok\n"))
        .route("/readyz", get(ready))
        .route("/api/v1/clusters", get(clusters))
        .route("/api/v1/clusters/{name}", get(cluster))
        .route("/api/v1/clusters/{name}/backends", get(backends))
        .route("/api/v1/batch", get(batch))
        .route("/api/v1/throttling", get(throttling))
        .route("/api/v1/explain", get(explain))
        .route("/api/v1/explain/{id}", get(explain_one))
        .route(&format!("{backend}/drain"), post(drain))
        .route(&format!("{backend}/undrain"), post(undrain))
        .merge(process::routes())
        .fallback(async || Problem::new(StatusCode::NOT_FOUND, "there is no such page", PAGES))
        .method_not_allowed_fallback(async || {
            let mend = "GET to read, POST for commands (drain, undrain, reload, upgrade); see the header allow";
            Problem::new(StatusCode::METHOD_NOT_ALLOWED, "this page does not take this method", mend)
        })
        .layer(middleware::from_fn_with_state(Arc::clone(&fleet), no_foreign_page))
        .with_state(fleet)
}

const PAGES: &str = "ask for /metrics, /healthz, /readyz, /api/v1/clusters, /api/v1/clusters/{name}, \
     /api/v1/clusters/{name}/backends, /api/v1/batch, /api/v1/throttling, /api/v1/explain, /api/v1/explain/{id}, /api/v1/process, or POST /api/v1/process/reload, .../upgrade, .../drain, /api/v1/clusters/{name}/backends/{address}/drain or .../undrain";

/// An answer that is not what was asked for.
#[derive(Debug, Serialize)]
struct Problem {
    #[serde(skip)]
    status: StatusCode,
    error: String,
    mend: String,
}

impl Problem {
    fn new(status: StatusCode, error: impl Into<String>, mend: impl Into<String>) -> Self {
        Self { status, error: error.into(), mend: mend.into() }
    }

    fn no_cluster(name: &str, clusters: &[ClusterSnapshot]) -> Self {
        let names: Vec<&str> = clusters.iter().map(|cluster| cluster.name.as_str()).collect();
        let error = format!("there is no cluster {name:?}");
        Self::new(StatusCode::NOT_FOUND, error, format!("use one of: {}", names.join(", ")))
    }

    fn no_request(id: &str, explained: &Explained) -> Self {
        let error = format!("nothing is remembered of a request with the id {id:?}");
        let reach = explained.remembered.iter().filter_map(|kind| {
            let back = kind.reaches_back_s?;
            Some(format!("{} of the {} ones, back to {back:.0} s ago", kind.requests, kind.outcome))
        });
        let reach: Vec<String> = reach.collect();
        let mend = if reach.is_empty() {
            "nothing is remembered yet; look at [explain] in the configuration if that is no surprise to you".to_owned()
        } else {
            format!(
                "remembered are {}; of those that were served at once only a sample: raise entries or sample in [explain], or \
                 look for it in the access log",
                reach.join(", ")
            )
        };
        Self::new(StatusCode::NOT_FOUND, error, mend)
    }

    fn no_backend(address: &str, cluster: &ClusterSnapshot) -> Self {
        let addresses: Vec<String> = cluster.backends.iter().map(|backend| backend.address.to_string()).collect();
        let error = format!("there is no backend {address:?} in cluster {:?}", cluster.name);
        Self::new(StatusCode::NOT_FOUND, error, format!("use one of: {}", addresses.join(", ")))
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        (self.status, Json(self)).into_response()
    }
}

/// Refuses what a page of another origin made a browser send: the API trusts who can reach it, and a browser on
/// this machine can.
async fn no_foreign_page(State(fleet): Shared, request: Request, next: Next) -> Response {
    let is_probe = matches!(request.uri().path(), "/healthz" | "/readyz");
    if !is_probe && let Some(name) = host::foreign(request.headers(), |name| fleet.is_called(name)) {
        let error = format!("the admin API does not go by the name {name:?}: a page may have made it lead here");
        let mend = "ask by IP address or as localhost, or list the name in hosts in [admin] of the configuration";
        return Problem::new(StatusCode::FORBIDDEN, error, mend).into_response();
    }
    if request.method() != Method::GET && is_foreign(&request) {
        let mend = "send it from a page of this address, or by a program that sends no header origin";
        return Problem::new(StatusCode::FORBIDDEN, "a page of another origin may not change anything", mend)
            .into_response();
    }
    next.run(request).await
}

/// Whether a browser says that a page of another origin sent this.
fn is_foreign(request: &Request) -> bool {
    let header = |name| request.headers().get(name).map(HeaderValue::as_bytes);
    // Newer browsers say it even where they send no origin. `none` is a page that a person opened by its address.
    if header(SEC_FETCH_SITE).is_some_and(|site| site != b"same-origin" && site != b"none") {
        return true;
    }
    let Some(origin) = header(ORIGIN) else { return false };
    let [http, https] = ["http://", "https://"].map(|scheme| origin.strip_prefix(scheme.as_bytes()));
    http.or(https) != header(HOST)
}

async fn metrics(State(fleet): Shared) -> Response {
    ([(CONTENT_TYPE, OPEN_METRICS)], metrics::encode(fleet.readiness(), fleet.snapshot())).into_response()
}

async fn ready(State(fleet): Shared) -> Response {
    match fleet.readiness() {
        Readiness::Ready => "ready\n".into_response(),
        Readiness::NotReady(reason) => (StatusCode::SERVICE_UNAVAILABLE, format!("{reason}\n")).into_response(),
    }
}

#[derive(Serialize)]
struct Clusters {
    clusters: Vec<ClusterView>,
}

async fn clusters(State(fleet): Shared) -> Json<Clusters> {
    Json(Clusters { clusters: fleet.snapshot().clusters.iter().map(ClusterView::from).collect() })
}

/// The cluster of this name as it is now.
fn find(fleet: &dyn Fleet, name: &str) -> Result<ClusterSnapshot, Problem> {
    let mut clusters = fleet.snapshot().clusters;
    match clusters.iter().position(|cluster| cluster.name == name) {
        Some(place) => Ok(clusters.swap_remove(place)),
        None => Err(Problem::no_cluster(name, &clusters)),
    }
}

async fn cluster(State(fleet): Shared, Path(name): Path<String>) -> Result<Json<ClusterView>, Problem> {
    Ok(Json(ClusterView::from(&find(&*fleet, &name)?)))
}

#[derive(Serialize)]
struct Backends {
    cluster: String,
    backends: Vec<BackendView>,
}

async fn backends(State(fleet): Shared, Path(name): Path<String>) -> Result<Json<Backends>, Problem> {
    let cluster = find(&*fleet, &name)?;
    Ok(Json(Backends { backends: cluster.backends.iter().map(BackendView::from).collect(), cluster: cluster.name }))
}

#[derive(Serialize)]
struct Batches {
    listeners: Vec<BatchView>,
}

async fn batch(State(fleet): Shared) -> Json<Batches> {
    let listeners = fleet.snapshot().listeners;
    let listeners = listeners.iter().filter_map(|each| Some(BatchView::of(&each.name, each.batch.as_ref()?)));
    Json(Batches { listeners: listeners.collect() })
}

#[derive(Serialize)]
struct Throttling {
    clusters: Vec<ThrottlingView>,
}

async fn throttling(State(fleet): Shared) -> Json<Throttling> {
    Json(Throttling { clusters: fleet.snapshot().clusters.iter().filter_map(ThrottlingView::of).collect() })
}

async fn explain(
    State(fleet): Shared,
    wanted: Result<Query<Wanted>, QueryRejection>,
) -> Result<Json<Explained>, Problem> {
    let Query(wanted) = wanted.map_err(|rejection| {
        let mend = "choose by outcome, reason, criticality, customer or cluster, and say how many by last=20";
        Problem::new(StatusCode::BAD_REQUEST, rejection.body_text(), mend)
    })?;
    if wanted.most() > Wanted::MOST {
        let error = format!("last={} is more than are told at a time", wanted.most());
        let mend = format!(
            "ask for {} at most, and choose by outcome, reason, criticality, customer or cluster",
            Wanted::MOST
        );
        return Err(Problem::new(StatusCode::BAD_REQUEST, error, mend));
    }
    Ok(Json(fleet.explain(&wanted)))
}

async fn explain_one(State(fleet): Shared, Path(id): Path<String>) -> Result<Json<Explained>, Problem> {
    let explained = fleet.explain(&Wanted { id: Some(id.clone()), ..Wanted::default() });
    if explained.requests.is_empty() { Err(Problem::no_request(&id, &explained)) } else { Ok(Json(explained)) }
}

async fn drain(State(fleet): Shared, Path(place): Path<(String, String)>) -> Result<Json<SwitchedView>, Problem> {
    switch(&*fleet, &place, Reason::Drained, |cluster, backend| fleet.drain(cluster, backend))
}

async fn undrain(State(fleet): Shared, Path(place): Path<(String, String)>) -> Result<Json<SwitchedView>, Problem> {
    switch(&*fleet, &place, Reason::Undrained, |cluster, backend| fleet.undrain(cluster, backend))
}

/// Does something with a backend, and shows it as it is then.
fn switch(
    fleet: &dyn Fleet,
    (name, address): &(String, String),
    reason: Reason,
    act: impl FnOnce(&str, SocketAddr) -> Result<(), Missing>,
) -> Result<Json<SwitchedView>, Problem> {
    let before = find(fleet, name)?;
    let Ok(backend) = address.parse() else { return Err(Problem::no_backend(address, &before)) };
    act(name, backend).map_err(|missing| match missing {
        Missing::Cluster => Problem::no_cluster(name, &fleet.snapshot().clusters),
        Missing::Backend => Problem::no_backend(address, &before),
    })?;
    let after = find(fleet, name)?;
    match after.backends.iter().find(|candidate| candidate.address == backend) {
        Some(member) => Ok(Json(SwitchedView::Member(Box::new(member.into())))),
        None if after.has_outsiders() => Ok(Json(SwitchedView::outside_subset(backend, reason))),
        // A reload has just removed it.
        None => Err(Problem::no_backend(address, &after)),
    }
}

#[cfg(test)]
pub(crate) mod tests;
