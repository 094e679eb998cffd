//! Changes of single backends by hand.
//!
//! An added backend receives requests of all users, so these are for the callers that could also change
//! the configuration: the user of the process and root, on this machine. `drain` is older and open to
//! every client of the port: it is harmless where enough backends are left.

use std::time::Duration;

use axum::body::Bytes;
use axum::extract::rejection::{BytesRejection, QueryRejection};
use axum::extract::{Path, Query, State};
use axum::http::StatusCode;
use axum::response::Response;
use plimsoll::address::Address;
use plimsoll::discover::{Endpoint, MAX_OVERRIDES, OverrideCommand};
use plimsoll_core::{Speed, Weight};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer, Serialize};

use super::answer::{Form, Problem};
use super::client::{Client, check};
use super::{Shared, find};
use crate::fleet::{BackendOrder, Missing, Obeyed, Refused};
use crate::snapshot::ClusterSnapshot;
use crate::view::{BackendView, OverrideShown, overrides_of};

/// A body: the description of one backend.
pub(super) const MAX_BODY: usize = 4 << 10;
/// Longest `for`: an override for longer is one without an end.
const MAX_TIME: Duration = Duration::from_secs(366 * 24 * 60 * 60);

const ADDRESS_HELP: &str =
    "use its IP address and port, such as 10.0.0.1:8080 or [2001:db8::1]:8080: a name may lead elsewhere later";
const PUT_HELP: &str =
    "PUT takes weight, zone, locality and speed, such as {\"weight\": 2, \"zone\": \"a\"}; each may be missing";
const PATCH_HELP: &str =
    "PATCH takes weight (null: that of the source) and state (draining or ready), such as {\"weight\": 0.5}";
const QUERY_HELP: &str = "PUT, PATCH and DELETE take for, such as ?for=10m; DELETE also takes ?revoke";

type Place = Path<(String, String)>;
type Words = Result<Query<Terms>, QueryRejection>;
type Body = Result<Bytes, BytesRejection>;

/// The query.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Terms {
    #[serde(rename = "for")]
    lasts: Option<String>,
    revoke: Option<String>,
}

/// The body of `PUT`.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Description {
    weight: Option<f64>,
    zone: Option<String>,
    locality: Option<String>,
    speed: Option<f64>,
}

/// The body of `PATCH`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Part {
    #[serde(default, deserialize_with = "present")]
    weight: Option<Option<f64>>,
    state: Option<PartState>,
}

#[derive(Clone, Copy, Deserialize, PartialEq)]
#[serde(rename_all = "lowercase")]
enum PartState {
    Draining,
    Ready,
}

/// `null` is a value, and a missing field is none.
fn present<'de, D: Deserializer<'de>>(value: D) -> Result<Option<Option<f64>>, D::Error> {
    Option::deserialize(value).map(Some)
}

/// A backend after a change.
#[derive(Serialize)]
struct Changed {
    address: String,
    overrides: Vec<OverrideShown>,
    /// `null`: no member, or outside the subset of this proxy.
    backend: Option<BackendView>,
    /// Whether the change outlives the process.
    persistent: bool,
    warnings: Vec<String>,
}

/// The overrides of a cluster.
#[derive(Serialize)]
struct Listed {
    cluster: String,
    overrides: Vec<OverrideShown>,
}

pub(super) async fn list(
    State(fleet): State<Shared>,
    form: Form,
    Path(name): Path<String>,
) -> Result<Response, Problem> {
    let cluster = find(&*fleet, &name)?.view;
    let overrides = cluster.summary.overrides.iter().map(OverrideShown::from).collect();
    Ok(form.json(&Listed { cluster: name, overrides }))
}

pub(super) async fn show(State(fleet): State<Shared>, form: Form, Path(place): Place) -> Result<Response, Problem> {
    let cluster = find(&*fleet, &place.0)?;
    let address = address(&place.1)?;
    match view(&cluster, address) {
        Some(backend) => Ok(form.json(&backend)),
        None => Err(Problem::no_backend(&place.1, &cluster)),
    }
}

pub(super) async fn put(
    State(fleet): State<Shared>,
    form: Form,
    client: Client,
    Path(place): Place,
    terms: Words,
    body: Body,
) -> Result<Response, Problem> {
    let caller = check(client, "backends are changed").await?;
    let cluster = find(&*fleet, &place.0)?;
    let backend = address(&place.1)?;
    let lasts = lasts(&no_revoke(terms)?)?;
    let body = body.map_err(bad_body)?;
    let Description { weight, zone, locality, speed } =
        if body.trim_ascii().is_empty() { Description::default() } else { json(&body, PUT_HELP)? };
    if let Some(locality) = &locality {
        known_locality(&cluster, locality)?;
    }
    let mut endpoint = Endpoint::new(backend);
    endpoint.weight = weight.map(in_range).transpose()?.unwrap_or(Weight::ONE);
    endpoint.zone = zone.map(Into::into);
    endpoint.locality = locality.map(Into::into);
    endpoint.speed = speed.map(known_speed).transpose()?;
    let order = BackendOrder { cluster: place.0, backend, command: OverrideCommand::Put(endpoint), lasts, caller };
    obey(fleet, form, order).await
}

pub(super) async fn patch(
    State(fleet): State<Shared>,
    form: Form,
    client: Client,
    Path(place): Place,
    terms: Words,
    body: Body,
) -> Result<Response, Problem> {
    let caller = check(client, "backends are changed").await?;
    find(&*fleet, &place.0)?;
    let backend = address(&place.1)?;
    let lasts = lasts(&no_revoke(terms)?)?;
    let Part { weight, state } = json(&body.map_err(bad_body)?, PATCH_HELP)?;
    if weight.is_none() && state.is_none() {
        return Err(Problem::new(StatusCode::BAD_REQUEST, "the body changes nothing", PATCH_HELP));
    }
    let command = OverrideCommand::Patch {
        weight: weight.map(|weight| weight.map(in_range).transpose()).transpose()?,
        is_drained: state.map(|state| state == PartState::Draining),
    };
    obey(fleet, form, BackendOrder { cluster: place.0, backend, command, lasts, caller }).await
}

pub(super) async fn delete(
    State(fleet): State<Shared>,
    form: Form,
    client: Client,
    Path(place): Place,
    terms: Words,
) -> Result<Response, Problem> {
    let caller = check(client, "backends are changed").await?;
    find(&*fleet, &place.0)?;
    let backend = address(&place.1)?;
    let terms = query(terms)?;
    let command = match terms.revoke.as_deref() {
        None => OverrideCommand::Remove,
        Some("" | "true") if terms.lasts.is_some() => {
            return Err(Problem::new(StatusCode::BAD_REQUEST, "revoke has no time: leave out for", QUERY_HELP));
        }
        Some("" | "true") => OverrideCommand::Revoke,
        Some(other) => {
            let error = format!("revoke={other} is not known");
            return Err(Problem::new(StatusCode::BAD_REQUEST, error, QUERY_HELP));
        }
    };
    let lasts = lasts(&terms)?;
    obey(fleet, form, BackendOrder { cluster: place.0, backend, command, lasts, caller }).await
}

/// Has the fleet obey an order. Saves it, so it may take a while.
pub(super) async fn order(fleet: &Shared, order: BackendOrder) -> Result<Obeyed, Problem> {
    let (cluster, backend) = (order.cluster.clone(), order.backend);
    let obeying = {
        let fleet = fleet.clone();
        tokio::task::spawn_blocking(move || fleet.override_backend(order))
    };
    let refused = |refused| match refused {
        Refused::Missing(Missing::Cluster) => Problem::no_cluster(&cluster, &fleet.snapshot().clusters),
        Refused::Missing(Missing::Backend) => match find(&**fleet, &cluster) {
            Ok(found) => Problem::no_backend(&backend.to_string(), &found),
            Err(problem) => problem,
        },
        Refused::TooMany => Problem::new(
            StatusCode::CONFLICT,
            format!("cluster {cluster:?} has {MAX_OVERRIDES} overrides, the most that it may have"),
            format!("revoke some of /api/v1/clusters/{cluster}/overrides, and put long lists into the source"),
        ),
        Refused::Declined(declined) => Problem::new(StatusCode::CONFLICT, declined.error, declined.help),
    };
    obeying.await.expect("the fleet obeys or refuses, and does not panic").map_err(refused)
}

async fn obey(fleet: Shared, form: Form, command: BackendOrder) -> Result<Response, Problem> {
    let (name, address) = (command.cluster.clone(), command.backend);
    let Obeyed { serving, is_persistent, error } = order(&fleet, command).await?;
    let cluster = find(&*fleet, &name)?;
    let mut warnings = Vec::new();
    if serving == 0 {
        warnings.push(format!(
            "cluster {name:?} has no backend left: its requests are answered with 503; revoke an override, or add a backend"
        ));
    }
    warnings.extend(error.map(|error| format!("not saved yet, and lost if the process ends now: {error}")));
    Ok(form.json(&Changed {
        address: address.to_string(),
        overrides: overrides_of(&cluster.view.summary, address).iter().map(OverrideShown::from).collect(),
        backend: view(&cluster, address),
        persistent: is_persistent,
        warnings,
    }))
}

fn view(cluster: &ClusterSnapshot, address: Address) -> Option<BackendView> {
    let member = cluster.view.backends.iter().find(|member| member.backend.address() == address)?;
    Some(BackendView::of(member, &cluster.view.summary))
}

fn address(text: &str) -> Result<Address, Problem> {
    let bad = |error| Problem::new(StatusCode::BAD_REQUEST, error, ADDRESS_HELP);
    let address: Address = text.parse().map_err(|_| bad(format!("{text:?} is no address of a backend")))?;
    if let Some(inet) = address.inet()
        && (inet.port() == 0 || inet.ip().is_unspecified())
    {
        return Err(bad(format!("nothing can listen at {address}")));
    }
    Ok(address)
}

fn query(terms: Words) -> Result<Terms, Problem> {
    let Query(terms) =
        terms.map_err(|rejection| Problem::new(StatusCode::BAD_REQUEST, rejection.body_text(), QUERY_HELP))?;
    Ok(terms)
}

/// The terms of a request that revokes nothing.
fn no_revoke(terms: Words) -> Result<Terms, Problem> {
    let terms = query(terms)?;
    match terms.revoke {
        Some(_) => Err(Problem::new(StatusCode::BAD_REQUEST, "only DELETE takes revoke", QUERY_HELP)),
        None => Ok(terms),
    }
}

fn lasts(terms: &Terms) -> Result<Option<Duration>, Problem> {
    let Some(text) = &terms.lasts else { return Ok(None) };
    let bad = |error: String| {
        let help =
            "write a time with a unit, such as ?for=10m or ?for=2h; without it the change lasts until it is revoked";
        Problem::new(StatusCode::BAD_REQUEST, error, help)
    };
    match humantime::parse_duration(text) {
        Ok(Duration::ZERO) => Err(bad("for must be longer than zero".to_owned())),
        Ok(time) if time > MAX_TIME => Err(bad(format!("for={text} is longer than 366 days"))),
        Ok(time) => Ok(Some(time)),
        Err(_) => Err(bad(format!("for={text} is not a duration"))),
    }
}

fn in_range(weight: f64) -> Result<Weight, Problem> {
    Weight::new(weight).ok_or_else(|| {
        let help = "use 0.001 to 1000; to send it nothing, PATCH {\"state\": \"draining\"}";
        Problem::new(StatusCode::BAD_REQUEST, format!("weight {weight} is out of range"), help)
    })
}

fn known_speed(speed: f64) -> Result<Speed, Problem> {
    Speed::new(speed).ok_or_else(|| {
        let help = "use 0.01 to 100, relative to the reference core";
        Problem::new(StatusCode::BAD_REQUEST, format!("speed {speed} is out of range"), help)
    })
}

fn known_locality(cluster: &ClusterSnapshot, name: &str) -> Result<(), Problem> {
    let names: Vec<&str> = cluster.view.summary.localities.iter().map(|locality| &*locality.name).collect();
    if names.contains(&name) {
        return Ok(());
    }
    let help = match names.is_empty() {
        true => "leave it out: the cluster has no localities".to_owned(),
        false => format!("use one of: {}", names.join(", ")),
    };
    Err(Problem::new(StatusCode::BAD_REQUEST, format!("the cluster has no locality {name:?}"), help))
}

fn bad_body(rejection: BytesRejection) -> Problem {
    let help = format!("a body has {MAX_BODY} bytes at most: it describes one backend");
    Problem::new(rejection.status(), rejection.body_text(), help)
}

fn json<T: DeserializeOwned>(body: &[u8], help: &str) -> Result<T, Problem> {
    serde_json::from_slice(body)
        .map_err(|error| Problem::new(StatusCode::BAD_REQUEST, format!("the body is not as expected: {error}"), help))
}

#[cfg(test)]
mod tests;
