//! The requests that the admin API answers.

pub(crate) mod answer;
mod backends;
pub(crate) mod client;
mod index;
pub(crate) mod live;
mod overrides;
mod process;
mod tap;

use std::convert::Infallible;
use std::sync::Arc;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::rejection::QueryRejection;
use axum::extract::{DefaultBodyLimit, Path, Query, Request, State};
use axum::http::header::{CONTENT_TYPE, HOST, ORIGIN};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Uri};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use plimsoll::discover::OverrideCommand;
use plimsoll_core::health::Reason;
use serde::{Deserialize, Serialize};

use self::answer::{Form, Problem};
use self::client::Client;
use self::index::PAGES;
use crate::explain::Wanted;
use crate::fleet::{BackendOrder, Fleet};
use crate::host;
use crate::metrics::{Encoder, Scrape};
use crate::page;
use crate::readiness::Readiness;
use crate::shedding::{SheddingView, Windows};
use crate::snapshot::ClusterSnapshot;
use crate::split::{MirrorSnapshot, SplitView};
use crate::view::{BackendView, BatchView, ClusterView, SwitchedView};

/// The media type of metrics, as the format asks for it.
const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Most lines of warnings beside the readiness.
const MAX_WARNINGS: usize = 20;

/// Whether a page made the browser send the request, and whose (Fetch Metadata).
const SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

pub(crate) type Shared = Arc<dyn Fleet>;

/// The API as a service.
pub fn router(fleet: Arc<dyn Fleet>) -> Router {
    PAGES
        .iter()
        .fold(page::router(), |router, page| router.route(page.path(), (page.route)()))
        .fallback(async |uri: Uri| {
            let error = format!("there is no page {:?}", uri.path());
            Problem::new(StatusCode::NOT_FOUND, error, "GET / lists all pages")
        })
        .method_not_allowed_fallback(async || {
            let help = "GET to read, POST for commands (drain, undrain, reload, upgrade), PUT, PATCH and DELETE for a \
                        backend: GET / lists all pages";
            Problem::new(StatusCode::METHOD_NOT_ALLOWED, "this page does not take this method", help)
        })
        .layer(DefaultBodyLimit::max(overrides::MAX_BODY))
        .layer(middleware::from_fn_with_state(Called::by(&fleet), no_foreign_page))
        .with_state(fleet)
}

/// Whether the API may be asked for under a name; in lower case and without a port.
#[derive(Clone)]
pub struct Called(Arc<dyn Fn(&str) -> bool + Send + Sync>);

impl Called {
    /// By a rule.
    pub fn new(rule: impl Fn(&str) -> bool + Send + Sync + 'static) -> Self {
        Self(Arc::new(rule))
    }

    fn by(fleet: &Shared) -> Self {
        let fleet = Arc::clone(fleet);
        Self::new(move |name| fleet.is_called(name))
    }
}

/// Refuses what a page of another origin made a browser send: the API trusts who can reach it, and a browser on
/// this machine can.
pub async fn no_foreign_page(State(called): State<Called>, request: Request, next: Next) -> Response {
    let is_probe = matches!(request.uri().path(), "/healthz" | "/readyz");
    if !is_probe && let Some(name) = host::foreign(request.headers(), |name| (called.0)(name)) {
        let error = format!("the admin API is not known as {name:?}: DNS rebinding by a web page is possible");
        let help = "use an IP address or localhost, or add the name to hosts in [admin] of the configuration";
        return Problem::new(StatusCode::FORBIDDEN, error, help).into_response();
    }
    if request.method() != Method::GET && is_foreign(&request) {
        let help = "send it without the header origin, or from a page of this address";
        return Problem::new(StatusCode::FORBIDDEN, "a web page of another origin may change nothing", help)
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

/// Metrics leave in parts, each written when the connection can take it: see [`Encoder`]. Requests that share the
/// thread have their turn between two parts.
async fn metrics(State(fleet): State<Shared>) -> Response {
    let backends = fleet.backend_metrics();
    let scrape = Scrape { readiness: fleet.readiness(), snapshot: fleet.scrape(backends), backends };
    let parts = futures_util::stream::unfold(Encoder::new(scrape), async |mut encoder| {
        tokio::task::yield_now().await;
        Some((Ok::<_, Infallible>(Bytes::from(encoder.next()?)), encoder))
    });
    ([(CONTENT_TYPE, OPEN_METRICS)], Body::from_stream(parts)).into_response()
}

/// The status is for probes, which ask under any name. The lines are for people, and name files and hosts: a web page that
/// was made to lead here does not read them.
async fn ready(State(fleet): State<Shared>, headers: HeaderMap) -> Response {
    let (status, word) = match fleet.readiness() {
        Readiness::Ready => (StatusCode::OK, "ready"),
        Readiness::NotReady(reason) => (StatusCode::SERVICE_UNAVAILABLE, reason),
    };
    let mut text = format!("{word}\n");
    if host::foreign(&headers, |name| fleet.is_called(name)).is_none() {
        let unserved = fleet.unserved();
        text.extend(unserved.iter().take(MAX_WARNINGS).map(|each| format!("warning: {each}\n")));
        if let Some(further) = unserved.len().checked_sub(MAX_WARNINGS).filter(|further| *further > 0) {
            text.push_str(&format!("warning: {further} more clusters have no backend\n"));
        }
    }
    (status, text).into_response()
}

#[derive(Serialize)]
struct Clusters {
    clusters: Vec<ClusterView>,
}

async fn clusters(State(fleet): State<Shared>, form: Form) -> Response {
    form.json(&Clusters {
        clusters: fleet.snapshot().clusters.iter().map(|each| ClusterView::from(&each.view)).collect(),
    })
}

/// The cluster of this name as it is now.
fn find(fleet: &dyn Fleet, name: &str) -> Result<ClusterSnapshot, Problem> {
    let mut clusters = fleet.snapshot().clusters;
    match clusters.iter().position(|cluster| *cluster.view.summary.name == *name) {
        Some(place) => Ok(clusters.swap_remove(place)),
        None => Err(Problem::no_cluster(name, &clusters)),
    }
}

async fn cluster(State(fleet): State<Shared>, form: Form, Path(name): Path<String>) -> Result<Response, Problem> {
    Ok(form.json(&ClusterView::from(&find(&*fleet, &name)?.view)))
}

#[derive(Serialize)]
struct Batches {
    listeners: Vec<BatchView>,
}

async fn batch(State(fleet): State<Shared>, form: Form) -> Response {
    let listeners = fleet.snapshot().listeners;
    let listeners = listeners.iter().filter_map(|each| Some(BatchView::of(&each.name, each.batch.as_ref()?)));
    form.json(&Batches { listeners: listeners.collect() })
}

#[derive(Serialize)]
struct Splits<'s> {
    splits: Vec<SplitView<'s>>,
    mirrors: &'s [MirrorSnapshot],
}

async fn splits(State(fleet): State<Shared>, form: Form) -> Response {
    let snapshot = fleet.snapshot();
    let splits = snapshot.splits.iter().map(SplitView::of).collect();
    form.json(&Splits { splits, mirrors: &snapshot.mirrors })
}

#[derive(Serialize)]
struct SheddingReports {
    clusters: Vec<SheddingView>,
}

/// The windows that a client asks for.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct OfWindow {
    #[serde(default)]
    window: Windows,
}

async fn shedding(
    State(fleet): State<Shared>,
    form: Form,
    wanted: Result<Query<OfWindow>, QueryRejection>,
) -> Result<Response, Problem> {
    let Query(OfWindow { window }) = wanted.map_err(|rejection| {
        let help = "choose a window: ?window=1m, 10m, 1h or all; without one it is 1m";
        Problem::new(StatusCode::BAD_REQUEST, rejection.body_text(), help)
    })?;
    let clusters = fleet.snapshot().clusters;
    let clusters = clusters.iter().filter_map(|cluster| SheddingView::of(cluster, window)).collect();
    Ok(form.json(&SheddingReports { clusters }))
}

async fn explain(
    State(fleet): State<Shared>,
    form: Form,
    wanted: Result<Query<Wanted>, QueryRejection>,
) -> Result<Response, Problem> {
    Ok(form.json(&fleet.explain(&self::wanted(wanted)?)))
}

/// The requests that a client asks for.
fn wanted(wanted: Result<Query<Wanted>, QueryRejection>) -> Result<Wanted, Problem> {
    let Query(wanted) = wanted.map_err(|rejection| {
        let help = "filter by outcome, reason, criticality, customer or cluster, and limit the number with last=20";
        Problem::new(StatusCode::BAD_REQUEST, rejection.body_text(), help)
    })?;
    if wanted.most() > Wanted::MOST {
        let error = format!("last={} is above the limit of {}", wanted.most(), Wanted::MOST);
        let help = "ask for fewer, and filter by outcome, reason, criticality, customer or cluster";
        return Err(Problem::new(StatusCode::BAD_REQUEST, error, help));
    }
    Ok(wanted)
}

async fn explain_one(State(fleet): State<Shared>, form: Form, Path(id): Path<String>) -> Result<Response, Problem> {
    let explained = fleet.explain(&Wanted { id: Some(id.clone()), ..Wanted::default() });
    if explained.requests.is_empty() { Err(Problem::no_request(&id, &explained)) } else { Ok(form.json(&explained)) }
}

async fn drain(
    State(fleet): State<Shared>,
    form: Form,
    client: Client,
    Path(place): Path<(String, String)>,
) -> Result<Response, Problem> {
    let switched = switch(&fleet, place, client, Reason::Drained).await;
    switched.map(|view| form.json(&view))
}

async fn undrain(
    State(fleet): State<Shared>,
    form: Form,
    client: Client,
    Path(place): Path<(String, String)>,
) -> Result<Response, Problem> {
    let switched = switch(&fleet, place, client, Reason::Undrained).await;
    switched.map(|view| form.json(&view))
}

/// Drains or undrains a backend, and shows it as it is then.
async fn switch(
    fleet: &Shared,
    (name, address): (String, String),
    client: Client,
    reason: Reason,
) -> Result<SwitchedView, Problem> {
    let before = find(&**fleet, &name)?;
    let Ok(backend) = address.parse() else { return Err(Problem::no_backend(&address, &before)) };
    let command = OverrideCommand::Patch { weight: None, is_drained: Some(reason == Reason::Drained) };
    let caller = client::address(&client);
    let order = BackendOrder { cluster: name.clone(), backend, command, lasts: None, caller };
    overrides::order(fleet, order).await?;
    let after = find(&**fleet, &name)?;
    match after.view.backends.iter().find(|candidate| candidate.backend.address() == backend) {
        Some(member) => Ok(SwitchedView::Member(Box::new(BackendView::of(member, &after.view.summary)))),
        None if after.has_outsiders() => Ok(SwitchedView::outside_subset(backend, reason)),
        // A reload has just removed it.
        None => Err(Problem::no_backend(&address, &after)),
    }
}

#[cfg(test)]
pub(crate) mod tests;
