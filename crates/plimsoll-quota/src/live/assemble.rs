//! The answer of the live page, from surveys and the memory of the services.

use std::collections::BTreeMap;
use std::sync::Arc;

use plimsoll_admin::{LiveProcess, LiveSample};
use plimsoll_core::Criticality;
use plimsoll_core::quota::Cut;
use serde::Serialize;

use super::survey::Survey;
use super::view::{CustomerRow, Live, ServiceDetail, ServiceRow};
use super::{NoService, State};
use crate::config::Unit;
use crate::hosted::Hosted;
use crate::service::CustomerView;

/// Bytes of the list of customers: 50 with usual names. Names come from strangers, and a long one may have
/// a kilobyte as JSON.
const MAX_CUSTOMERS_BYTES: usize = 11 << 10;
/// Bytes of the list of services.
const MAX_SERVICES_BYTES: usize = 2_500;

/// The services at `at`, in seconds since 1970, with one in detail: the one named, else the first of the list.
pub(super) fn assemble(
    services: &BTreeMap<String, Arc<Hosted>>,
    surveys: &BTreeMap<&str, Survey>,
    state: &State,
    process: LiveProcess,
    named: Option<&str>,
    at: f64,
) -> Result<Live, NoService> {
    let is_cutting = |name: &str| state.tracks.get(name).is_some_and(|track| track.is_cutting());
    let mut ranked: Vec<(&str, &Survey)> = surveys.iter().map(|(name, survey)| (*name, survey)).collect();
    ranked.sort_by_key(|(name, _)| !is_cutting(name));
    let chosen = match named {
        Some(name) => Some(*ranked.iter().find(|(known, _)| *known == name).ok_or(NoService)?),
        None => ranked.first().copied(),
    };
    let track = chosen.and_then(|(name, _)| state.tracks.get(name));
    let rows = fitting(ranked.iter().map(|(name, survey)| service_row(name, survey)), MAX_SERVICES_BYTES);
    Ok(Live {
        at,
        process,
        services_left_off: ranked.len() - rows.len(),
        services: rows,
        service: chosen.map(|(name, survey)| detail(name, survey, &services[name])),
        changes: state.changes.latest(),
        sample: track.and_then(|track| track.history.latest()).map(|sample| LiveSample::new(state.at, sample)),
    })
}

fn service_row(name: &str, survey: &Survey) -> ServiceRow {
    ServiceRow { name: name.to_owned(), unit: survey.unit.name(), tasks: survey.tasks, customers_cut: survey.cut }
}

fn detail(name: &str, survey: &Survey, hosted: &Hosted) -> ServiceDetail {
    let views: Vec<CustomerView> = {
        let service = hosted.lock();
        survey.first().into_iter().filter_map(|id| service.at(id)).collect()
    };
    let customers = fitting(views.iter().map(|view| customer_row(survey.unit, view)), MAX_CUSTOMERS_BYTES);
    ServiceDetail {
        name: name.to_owned(),
        unit: survey.unit.name(),
        tasks: survey.tasks,
        tasks_overloaded: survey.overloaded,
        is_unsure: survey.is_unsure,
        is_dry_run: survey.is_dry_run,
        customers_limited: survey.limited,
        customers_cut: survey.cut,
        customers_left_off: survey.listed.saturating_sub(customers.len()),
        customers,
    }
}

fn customer_row(unit: Unit, view: &CustomerView) -> CustomerRow {
    let CustomerView { name, state, .. } = view;
    let rate = |rate: u64| rate as f64 / unit.scale();
    let cut = Some(state.cut).filter(|cut| *cut != Cut::NONE);
    CustomerRow {
        name: name.shown(),
        kind: name.kind.noun(),
        limit: view.has_limit().then(|| rate(state.limit)),
        soft_limit: view.soft.filter(|_| unit == Unit::Cpus).map(rate),
        demand: rate(state.demand.iter().sum()),
        used: rate(state.used),
        granted: rate(state.held),
        cut: cut.map(|cut| Criticality::ALL[cut.rank].name()),
        cut_admitted: cut.map(|cut| cut.part),
        tasks: state.tasks,
        is_dry_run: view.is_dry_run,
    }
}

/// The first rows, as many as have this many bytes as JSON.
fn fitting<T: Serialize>(rows: impl Iterator<Item = T>, bytes: usize) -> Vec<T> {
    let mut left = bytes;
    let fits = |row: &T| {
        let size = serde_json::to_vec(row).map_or(usize::MAX, |text| text.len() + 1);
        left.checked_sub(size).inspect(|after| left = *after).is_some()
    };
    rows.take_while(fits).collect()
}
