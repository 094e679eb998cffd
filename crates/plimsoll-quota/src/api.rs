//! The API of a quota server: state as JSON, changes of limits, metrics, probes.
//!
//! | request | answer |
//! |---|---|
//! | `GET /` | the index, as text; a browser is sent to the live page |
//! | `GET /live/` | the live page |
//! | `GET /api/v1/live` | the state of a page that a person watches: one service, most demand over a limit first |
//! | `GET /api/v1/live/stream` | the same each second, after ten minutes of history, as server-sent events |
//! | `GET /api/v1/quota` | all services with their customers |
//! | `GET /api/v1/quota/{service}` | one of them, with its tasks |
//! | `GET /api/v1/quota/{service}/customers/{name}` | one customer, with the tasks that hold a rate |
//! | `PUT …/customers/{name}/limit?for=2h` | another limit, for a time |
//! | `DELETE …/customers/{name}/limit` | ends the change |
//! | `…/groups/{name}`, `…/groups/{name}/limit` | the same for a group |
//! | `GET /metrics`, `/healthz`, `/readyz` | as at the proxy |

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Bytes;
use axum::extract::rejection::QueryRejection;
use axum::extract::{DefaultBodyLimit, Extension, FromRequestParts, Path, Query, State};
use axum::http::header::CONTENT_TYPE;
use axum::http::request::Parts;
use axum::http::{HeaderMap, StatusCode, Uri};
use axum::middleware;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, put};
use plimsoll::server::{Lifecycle, Phase};
use plimsoll::tls::ClientNames;
use plimsoll_admin::parts::{
    Called, Client, Form, Problem, check, for_browser, no_foreign_page, page_router, serve_router_tls,
};
use plimsoll_core::quota::{Cut, MAX_LIMITS, MAX_NAMED};
use plimsoll_core::{Criticality, Timestamp};
use serde::{Deserialize, Serialize};
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use crate::caller::Caller;
use crate::changes::Outcome;
use crate::config::Unit;
use crate::hosted::Hosted;
use crate::limits::{Change, Override, units};
use crate::live::{self, LivePage};
use crate::metrics;
use crate::name::{Kind, Name};
use crate::service::{CustomerView, Service};
use crate::services::Services;
use crate::tls::Ports;

/// The media type of metrics.
const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
/// A body: one limit.
const MAX_BODY: usize = 1 << 10;
/// Customers of a service in a list, those with the highest demand.
const MAX_LISTED: usize = 1_000;
/// Time for which a limit lasts without `for`.
const DEFAULT_TIME: Duration = Duration::from_secs(2 * 3_600);
/// The shortest time: a trial takes some seconds of it.
const MIN_TIME: Duration = Duration::from_secs(10);
/// Limits by operators of a service: tasks have room for so many beside those of a file.
const MAX_OVERRIDES: usize = 96;
/// A task takes these and those of the file.
const _: () = assert!(MAX_NAMED + MAX_OVERRIDES <= MAX_LIMITS);
/// The longest time: what is to last longer belongs into the file.
const MAX_TIME: Duration = Duration::from_secs(7 * 24 * 3_600);
/// Time for which a request waits until a new limit is in force, and between two looks.
const MAX_WAIT: Duration = Duration::from_secs(8);
const WAIT_INTERVAL: Duration = Duration::from_millis(50);
/// The largest limit, in CPUs.
const MAX_CPUS: f64 = 1e8;

#[derive(Clone)]
struct Shared {
    services: Arc<Services>,
    /// `None`: without TLS, at loopback.
    tls: Option<Ports>,
    lifecycle: Lifecycle,
}

/// Serves the API until `until`.
pub(crate) async fn serve(
    listener: TcpListener,
    services: Arc<Services>,
    tls: Option<Ports>,
    lifecycle: Lifecycle,
    until: impl Future<Output = ()>,
) {
    let acceptor = tls.as_ref().map(|ports| Arc::clone(&ports.admin));
    let page = Arc::new(LivePage::new(Arc::clone(&services), lifecycle.clone()));
    // It ends with this function.
    let mut sampling = JoinSet::new();
    sampling.spawn(Arc::clone(&page).run());
    serve_router_tls(listener, router(Shared { services, tls, lifecycle }, page), acceptor, until).await;
}

fn router(shared: Shared, page: Arc<LivePage>) -> Router {
    // A page of another name has no certificate for this server, and its name is not in the server's.
    let is_tls = shared.tls.is_some();
    Router::new()
        .route("/", get(index))
        .route("/healthz", get(async || "ok\n"))
        .route("/readyz", get(ready))
        .route("/metrics", get(metrics))
        .route("/api/v1/quota", get(list))
        .route("/api/v1/quota/{service}", get(show))
        .nest("/api/v1/quota/{service}/customers", named(Kind::Customer))
        .nest("/api/v1/quota/{service}/groups", named(Kind::Group))
        .with_state(shared)
        .merge(live::router(page))
        .merge(page_router())
        .fallback(async |uri: Uri| {
            let error = format!("there is no page {:?}", uri.path());
            Problem::new(StatusCode::NOT_FOUND, error, "GET / lists all pages")
        })
        .method_not_allowed_fallback(async || {
            let help = "GET to read, PUT and DELETE for a customer's limit: GET / lists all pages";
            Problem::new(StatusCode::METHOD_NOT_ALLOWED, "this page does not take this method", help)
        })
        .layer(DefaultBodyLimit::max(MAX_BODY))
        .layer(middleware::from_fn_with_state(Called::new(move |_| is_tls), no_foreign_page))
}

/// The pages of a customer or a group.
fn named(kind: Kind) -> Router<Shared> {
    Router::new()
        .route("/{name}", get(customer))
        .route("/{name}/limit", put(set_limit).delete(end_limit))
        .layer(Extension(kind))
}

/// The customer or the group of a page.
struct Named {
    service: String,
    name: Name,
}

impl<S: Send + Sync> FromRequestParts<S> for Named {
    type Rejection = Response;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Response> {
        let kind = Extension::<Kind>::from_request_parts(parts, state).await;
        let Extension(kind) = kind.map_err(IntoResponse::into_response)?;
        let path = Path::<(String, String)>::from_request_parts(parts, state).await;
        let Path((service, name)) = path.map_err(IntoResponse::into_response)?;
        Ok(Self { service, name: Name::new(kind, name.as_bytes()) })
    }
}

const INDEX: &str = "\
GET    /live/                                            a page for browsers: customers over the fleet
GET    /api/v1/live                                      its figures: ?service=
GET    /api/v1/live/stream                               the same each second, after ten minutes of history
GET    /api/v1/quota                                     all services
GET    /api/v1/quota/{service}                           one service, with its tasks
GET    /api/v1/quota/{service}/customers/{name}          one customer, with its tasks
PUT    /api/v1/quota/{service}/customers/{name}/limit    another limit: ?for=2h, {\"hard_limit\": 4}
DELETE /api/v1/quota/{service}/customers/{name}/limit    ends the change
GET    /api/v1/quota/{service}/groups/{name}             one group; /limit as for a customer
GET    /metrics, /healthz, /readyz
";

async fn index(headers: HeaderMap) -> Response {
    for_browser(&headers).map_or_else(|| INDEX.into_response(), IntoResponse::into_response)
}

async fn ready(State(shared): State<Shared>) -> (StatusCode, &'static str) {
    match shared.lifecycle.phase() {
        Phase::Serving => (StatusCode::OK, "ready\n"),
        Phase::Starting => (StatusCode::SERVICE_UNAVAILABLE, "starting\n"),
        _ => (StatusCode::SERVICE_UNAVAILABLE, "draining\n"),
    }
}

async fn metrics(State(shared): State<Shared>) -> Response {
    ([(CONTENT_TYPE, OPEN_METRICS)], metrics::encode(&shared.services, shared.tls.as_ref())).into_response()
}

#[derive(Serialize)]
struct All {
    /// Those that this server owns.
    services: Vec<ServiceShown>,
    /// Of all services.
    owners: Vec<OwnerShown>,
}

#[derive(Serialize)]
struct OwnerShown {
    service: String,
    /// Whether it is this server.
    here: bool,
    /// The address of another server, for tasks; `null`: this one, or none is known.
    owner: Option<String>,
    /// The number of the owner; `null`: none is known.
    epoch: Option<u64>,
    /// Another server may own the service: the lease of this one in etcd could not be renewed.
    overdue: bool,
    /// The settings in etcd have a problem, and are not in force.
    refused_settings: bool,
}

#[derive(Serialize)]
struct ServiceShown {
    service: String,
    /// `requests`: all numbers of CPUs are requests a second.
    unit: &'static str,
    /// Tasks with a lease.
    tasks: u32,
    /// Those that lack CPU.
    overloaded_tasks: u32,
    lease_s: f64,
    dry_run: bool,
    /// Tasks may hold rates that this server does not know yet.
    unsure: bool,
    /// Tasks that try new limits before all get them; `null`: all limits are in force.
    trying: Option<Vec<String>>,
    /// The last change is not in force: these tasks lost their streams with it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    refused_after: Vec<String>,
    /// The limit of each customer without one of its own; `null`: none.
    other_customers_limit_cpus: Option<f64>,
    /// The group of all of them together.
    #[serde(skip_serializing_if = "Option::is_none")]
    other_customers_group: Option<String>,
    customers: Vec<CustomerShown>,
    groups: Vec<CustomerShown>,
    #[serde(skip_serializing_if = "Option::is_none")]
    instances: Option<Vec<InstanceShown>>,
    /// The Envoys before the tasks of a service that counts CPU.
    #[serde(skip_serializing_if = "Option::is_none")]
    envoys: Option<Box<ServiceShown>>,
}

#[derive(Serialize)]
struct InstanceShown {
    instance: String,
    cpus: f64,
    connected: bool,
    /// The most critical requests that it lacks CPU for; `null`: it has enough.
    overloaded: Option<&'static str>,
}

/// A customer, or a group.
#[derive(Serialize)]
struct CustomerShown {
    /// Absent for a group.
    #[serde(skip_serializing_if = "Option::is_none")]
    customer: Option<String>,
    /// The name of a group, or the group of a customer.
    #[serde(skip_serializing_if = "Option::is_none")]
    group: Option<String>,
    /// `null`: no limit.
    limit_cpus: Option<f64>,
    /// Its share while tasks have not enough CPU for all; `null`: that of the tasks' settings.
    soft_limit_cpus: Option<f64>,
    /// Demand over all tasks, refused requests included.
    offered_cpus: f64,
    offered_by_criticality_cpus: [f64; Criticality::ALL.len()],
    used_cpus: f64,
    /// The sum of the rates that tasks may be using.
    held_cpus: f64,
    tasks: usize,
    /// `null`: nothing is refused by criticality.
    cut: Option<CutShown>,
    dry_run: bool,
    /// Seconds until a limit by an operator ends; `null`: it is that of the file.
    limit_ends_in_s: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    holders: Option<Vec<HolderShown>>,
}

#[derive(Serialize)]
struct CutShown {
    /// Requests below it are refused.
    criticality: &'static str,
    /// The part of it that is admitted.
    admitted: f32,
}

#[derive(Serialize)]
struct HolderShown {
    instance: String,
    offered_cpus: f64,
    held_cpus: f64,
}

/// A rate in CPUs, or in requests a second.
fn cpus(unit: Unit, rate: u64) -> f64 {
    rate as f64 / unit.scale()
}

impl CustomerShown {
    fn of(now: Timestamp, unit: Unit, view: &CustomerView) -> Self {
        let state = &view.state;
        let cut = (state.cut != Cut::NONE)
            .then(|| CutShown { criticality: Criticality::ALL[state.cut.rank].name(), admitted: state.cut.part });
        let (customer, group) = match view.name.kind {
            Kind::Customer => (Some(view.name.shown()), view.group.clone()),
            Kind::Group => (None, Some(view.name.shown())),
        };
        Self {
            customer,
            group,
            limit_cpus: view.has_limit().then(|| cpus(unit, state.limit)),
            soft_limit_cpus: view.soft.filter(|_| unit == Unit::Cpus).map(|soft| cpus(unit, soft)),
            offered_cpus: cpus(unit, state.demand.iter().sum()),
            offered_by_criticality_cpus: state.demand.map(|rate| cpus(unit, rate)),
            used_cpus: cpus(unit, view.state.used),
            held_cpus: cpus(unit, state.held),
            tasks: state.tasks,
            cut,
            dry_run: view.is_dry_run,
            limit_ends_in_s: view.by_operator.map(|to| to.until.since(now).as_secs_f64()),
            holders: None,
        }
    }
}

fn names(tasks: &[Arc<str>]) -> Vec<String> {
    tasks.iter().map(|task| task.to_string()).collect()
}

fn service_shown(now: Timestamp, name: &str, hosted: &Hosted, with_tasks: bool) -> ServiceShown {
    let service = hosted.lock();
    let config = service.config();
    let all = |kind| {
        let heaviest = service.heaviest(kind, MAX_LISTED);
        heaviest.iter().map(|view| CustomerShown::of(now, config.unit, view)).collect()
    };
    let instances = with_tasks.then(|| {
        let shown = service.instances();
        shown
            .map(|of| InstanceShown {
                instance: of.name.to_owned(),
                cpus: of.cpus,
                connected: of.is_connected,
                overloaded: of.overloaded.map(Criticality::name),
            })
            .collect()
    });
    ServiceShown {
        service: name.to_owned(),
        unit: config.unit.name(),
        tasks: service.tasks(),
        overloaded_tasks: service.overloaded(),
        lease_s: config.lease.as_secs_f64(),
        dry_run: config.dry_run,
        unsure: service.is_unsure(),
        trying: (!service.changes().is_idle()).then(|| names(&service.changes().tried)),
        refused_after: match service.changes().last_outcome() {
            Some(Outcome::Refused(tasks)) => names(tasks),
            _ => Vec::new(),
        },
        other_customers_limit_cpus: config.other_customers.hard_limit,
        other_customers_group: config.other_customers.group.clone(),
        customers: all(Kind::Customer),
        groups: all(Kind::Group),
        instances,
        envoys: None,
    }
}

async fn list(State(shared): State<Shared>, form: Form) -> Response {
    let now = shared.services.now();
    let services = shared.services.all();
    let services = services.iter().map(|(name, hosted)| service_shown(now, name, hosted, false)).collect();
    form.json(&All { services, owners: owners(&shared.services) })
}

fn owners(services: &Services) -> Vec<OwnerShown> {
    let names: Vec<String> = services.configs.read().keys().cloned().collect();
    let refused = services.bad_settings.lock().clone();
    let shown = names.into_iter().map(|service| {
        let ownership = services.ownership(&service);
        let (epoch, address) = ownership.owner().unzip();
        let hosted = services.get(&service);
        OwnerShown {
            here: hosted.is_some(),
            owner: address.filter(|address| !address.is_empty()).map(str::to_owned),
            epoch,
            overdue: hosted.is_some_and(|hosted| hosted.lock().is_overdue()),
            refused_settings: refused.contains(&service),
            service,
        }
    });
    shown.collect()
}

async fn show(State(shared): State<Shared>, form: Form, Path(name): Path<String>) -> Result<Response, Problem> {
    let hosted = find(&shared, &name)?;
    let now = shared.services.now();
    let mut shown = service_shown(now, &name, &hosted, true);
    let front = hosted.front().map(|front| service_shown(now, &name, &front, true));
    shown.envoys = front.filter(|front| front.tasks > 0).map(Box::new);
    Ok(form.json(&shown))
}

async fn customer(
    State(shared): State<Shared>,
    form: Form,
    Named { service, name }: Named,
) -> Result<Response, Problem> {
    let hosted = find(&shared, &service)?;
    customer_shown(&shared, form, &hosted.lock(), &name)
}

fn customer_shown(shared: &Shared, form: Form, service: &Service, name: &Name) -> Result<Response, Problem> {
    let view = service.named(name).ok_or_else(|| unknown(name))?;
    let unit = service.config().unit;
    let holder = |(instance, demand, held): (Arc<str>, u64, u32)| HolderShown {
        instance: instance.to_string(),
        offered_cpus: cpus(unit, demand),
        held_cpus: cpus(unit, u64::from(held)),
    };
    let holders = service.holders(name).into_iter().map(holder).collect();
    let shown = CustomerShown { holders: Some(holders), ..CustomerShown::of(shared.services.now(), unit, &view) };
    Ok(form.json(&shown))
}

fn unknown(name: &Name) -> Problem {
    let help = match name.kind {
        Kind::Customer => "a customer without a limit of its own is known while it has demand above 2% of its limit",
        Kind::Group => "add the group to the file of the server with its customers, and send SIGHUP",
    };
    Problem::new(StatusCode::NOT_FOUND, format!("no {} \"{}\" is known", name.kind.noun(), name.shown()), help)
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Terms {
    #[serde(rename = "for")]
    lasts: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct LimitBody {
    hard_limit: f64,
}

async fn set_limit(
    State(shared): State<Shared>,
    form: Form,
    client: Client,
    names: Option<Extension<ClientNames>>,
    Named { service, name }: Named,
    terms: Result<Query<Terms>, QueryRejection>,
    body: Bytes,
) -> Result<Response, Problem> {
    operator(&shared, client, names).await?;
    let hosted = find(&shared, &service)?;
    let lasts = lasts(terms)?;
    let limit = limit(&body)?;
    if name.bytes.is_empty() || name.bytes.len() > 256 {
        let error = format!("the name of a {} has 1 to 256 bytes", name.kind.noun());
        return Err(Problem::new(StatusCode::BAD_REQUEST, error, "use the name as requests have it"));
    }
    if name.kind == Kind::Group && hosted.lock().named(&name).is_none() {
        return Err(unknown(&name));
    }
    let now = shared.services.now();
    let to = Override { limit: units(hosted.lock().config().unit, limit), until: now + lasts };
    {
        let service = hosted.lock();
        if service.overridden() >= MAX_OVERRIDES && !service.is_overridden(&name) {
            let error = format!("the limits of {MAX_OVERRIDES} customers are changed by API already");
            return Err(Problem::new(StatusCode::CONFLICT, error, "end another change first, or use the file"));
        }
    }
    let shown = |kind| (name.kind == kind).then(|| name.shown());
    let (customer, group) = (shown(Kind::Customer), shown(Kind::Group));
    tracing::info!(customer, group, limit_cpus = limit, lasts_s = lasts.as_secs(), "limit changed by API");
    change_limit(&shared, form, &service, &hosted, &name, Some(to)).await
}

/// Changes a limit, and waits for the end of its trial.
async fn change_limit(
    shared: &Shared,
    form: Form,
    service: &str,
    hosted: &Arc<Hosted>,
    name: &Name,
    to: Option<Override>,
) -> Result<Response, Problem> {
    let change = Change::Override(name.clone(), to);
    let number = hosted.change(|service| service.change(shared.services.now(), change));
    let until = Instant::now() + MAX_WAIT;
    loop {
        let outcome = hosted.lock().changes().outcome(number).cloned();
        match outcome {
            Some(Outcome::Applied) => return customer_shown(shared, form, &hosted.lock(), name),
            Some(Outcome::Refused(tasks)) => {
                let error = format!("the limit is not in force: {} lost their streams with it", tasks.join(" and "));
                let help = "the former limit stays; see the logs of these tasks";
                return Err(Problem::new(StatusCode::CONFLICT, error, help));
            }
            None if Instant::now() >= until => break,
            None => {}
        }
        sleep(WAIT_INTERVAL).await;
    }
    let shown = service_shown(shared.services.now(), service, hosted, false);
    Ok((StatusCode::ACCEPTED, form.json(&shown)).into_response())
}

async fn end_limit(
    State(shared): State<Shared>,
    form: Form,
    client: Client,
    names: Option<Extension<ClientNames>>,
    Named { service, name }: Named,
) -> Result<Response, Problem> {
    operator(&shared, client, names).await?;
    let hosted = find(&shared, &service)?;
    if !hosted.lock().is_overridden(&name) {
        let error = format!("the limit of \"{}\" was not changed by API", name.shown());
        return Err(Problem::new(StatusCode::NOT_FOUND, error, "change the limit of the file, and send SIGHUP"));
    }
    change_limit(&shared, form, &service, &hosted, &name, None).await
}

/// Checks that the client of a request may change limits.
async fn operator(shared: &Shared, client: Client, names: Option<Extension<ClientNames>>) -> Result<(), Problem> {
    if shared.tls.is_none() {
        return check(client, "limits are changed").await.map(drop);
    }
    let caller = names.map_or_else(Caller::nobody, |Extension(names)| Caller::Certified(names));
    let operators = shared.services.operators.read().clone();
    caller.may_operate(&operators).map_err(|denied| {
        tracing::warn!(error = %denied, "change of a limit refused");
        let help = format!("add one of the names to {} in the file of the server, and send SIGHUP", denied.setting());
        Problem::new(StatusCode::FORBIDDEN, denied.to_string(), help)
    })
}

fn find(shared: &Shared, service: &str) -> Result<Arc<Hosted>, Problem> {
    shared.services.get(service).ok_or_else(|| {
        let names: Vec<String> = shared.services.configs.read().keys().cloned().collect();
        if names.iter().any(|name| name == service) {
            let error = match shared.services.ownership(service).owner() {
                Some((_, address)) if !address.is_empty() => format!("service {service:?} has its owner at {address}"),
                _ => format!("no owner of service {service:?} is known here"),
            };
            return Problem::new(StatusCode::MISDIRECTED_REQUEST, error, "ask the API of the owner");
        }
        let error = format!("there is no service {service:?}");
        Problem::new(StatusCode::NOT_FOUND, error, format!("use one of: {}", names.join(", ")))
    })
}

fn lasts(terms: Result<Query<Terms>, QueryRejection>) -> Result<Duration, Problem> {
    let help = "write a time with a unit, such as ?for=10m or ?for=2h; a limit that is to stay belongs into the file";
    let bad = |error: String| Problem::new(StatusCode::BAD_REQUEST, error, help);
    let Query(Terms { lasts }) = terms.map_err(|error| bad(error.body_text()))?;
    let Some(text) = lasts else { return Ok(DEFAULT_TIME) };
    match humantime::parse_duration(&text) {
        Ok(time) if time < MIN_TIME => Err(bad(format!("for={text} is shorter than 10 s"))),
        Ok(time) if time > MAX_TIME => Err(bad(format!("for={text} is longer than 7 days"))),
        Ok(time) => Ok(time),
        Err(_) => Err(bad(format!("for={text} is not a duration"))),
    }
}

fn limit(body: &[u8]) -> Result<f64, Problem> {
    let help = "PUT takes the limit in CPUs over all tasks, such as {\"hard_limit\": 4}";
    let bad = |error: String| Problem::new(StatusCode::BAD_REQUEST, error, help);
    let LimitBody { hard_limit } =
        serde_json::from_slice(body).map_err(|error| bad(format!("the body cannot be read: {error}")))?;
    if !(0.0..=MAX_CPUS).contains(&hard_limit) {
        return Err(bad(format!("hard_limit {hard_limit} is not from 0 to {MAX_CPUS}")));
    }
    Ok(hard_limit)
}
