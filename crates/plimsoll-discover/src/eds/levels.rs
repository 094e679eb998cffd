//! The backends of a service, from its endpoints by levels and localities.
//!
//! ```text
//! HEALTHY, UNKNOWN      usable
//! DEGRADED              usable if 1.4 · usable others < all of its level
//! UNHEALTHY, TIMEOUT    not usable, unless nothing is in any level
//! DRAINING              Draining: no new request
//!
//! level    of a priority number; the first with a usable endpoint is in use
//! Ready    usable, and of the level in use
//! Starting all others, such as the standby in higher levels
//!
//! weight of an endpoint = its own · (W / ΣW) / (S / ΣS)     where localities of the level have weights
//!   W   weight of its locality        S   sum of the endpoints' weights in its locality
//!   Σ   over the localities of the level that have a weight; a locality without one gets no request
//! ```
//!
//! These are Envoy's rules as far as one weight for each backend can express them. There, health moves the
//! shares of levels and localities continuously, with the same factor of 1.4. Here a level is in use or
//! not, because the shares of this proxy's localities follow load reports. [`LocalityFrom::Priority`] makes
//! each level a locality of its own, and then all of them are in use.
//!
//! The weights of localities count if the control plane gives them. Envoy lets them count only with
//! `locality_weighted_lb_config`, a setting of the cluster that EDS does not contain. Istio gives each
//! locality the sum of its endpoints' weights: W / ΣW = S / ΣS, and nothing changes.
//!
//! S counts the endpoints that are not usable, too. Otherwise the last healthy endpoint of a locality would
//! get the whole share of that locality.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;

use http::uri::Authority;
use plimsoll::discover::{Endpoint, Readiness};
use plimsoll_core::Weight;

/// Percent of a level that its healthy endpoints are worth for each percent of their number: Envoy's
/// overprovisioning factor.
const OVERPROVISIONING: usize = 140;

/// The property of endpoints that is their locality in this proxy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LocalityFrom {
    /// The region of their xDS locality.
    #[default]
    Region,
    /// The zone of their xDS locality.
    Zone,
    /// Their priority level: `0`, `1` and further. Endpoints of all levels may then get requests, in the
    /// order of the cluster's localities.
    Priority,
}

/// The health of an endpoint, by the control plane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Health {
    Healthy,
    Degraded,
    Unhealthy,
    Draining,
}

impl Health {
    /// As in Envoy, an unknown status is no reason against an endpoint.
    pub(super) fn of(status: i32) -> Self {
        match status {
            2 | 4 => Self::Unhealthy,
            3 => Self::Draining,
            5 => Self::Degraded,
            _ => Self::Healthy,
        }
    }
}

/// A locality at one priority.
#[derive(Debug)]
pub(super) struct Group {
    pub(super) priority: u32,
    pub(super) weight: Option<u32>,
    /// Sum of the weights of its endpoints.
    pub(super) sum: f64,
    pub(super) zone: Option<Arc<str>>,
    pub(super) locality: Option<Arc<str>>,
}

#[derive(Debug)]
pub(super) struct Entry {
    pub(super) address: SocketAddr,
    pub(super) authority: Option<Authority>,
    pub(super) weight: u32,
    pub(super) health: Health,
    pub(super) group: usize,
}

/// The state of one priority.
#[derive(Clone, Copy, Debug, Default)]
struct Level {
    all: usize,
    healthy: usize,
    degraded: usize,
    /// It has an endpoint for the case that no level has a usable one.
    has_unhealthy: bool,
    /// Sums over the localities with a weight: theirs, and those of their endpoints.
    weights: f64,
    sums: f64,
}

impl Level {
    /// Whether localities without a weight get no request.
    fn is_weighted(&self) -> bool {
        self.weights > 0.0
    }

    fn uses_degraded(&self) -> bool {
        self.healthy * OVERPROVISIONING < self.all * 100
    }

    fn is_usable(&self, health: Health) -> bool {
        match health {
            Health::Healthy => true,
            Health::Degraded => self.uses_degraded(),
            Health::Unhealthy | Health::Draining => false,
        }
    }

    fn has_usable(&self) -> bool {
        self.healthy > 0 || self.degraded > 0
    }
}

fn levels(groups: &[Group], entries: &[Entry]) -> BTreeMap<u32, Level> {
    let mut levels = BTreeMap::<u32, Level>::new();
    for group in groups {
        let level = levels.entry(group.priority).or_default();
        if let Some(weight) = group.weight {
            level.weights += f64::from(weight);
            level.sums += group.sum;
        }
    }
    for entry in entries {
        let group = &groups[entry.group];
        let level = levels.entry(group.priority).or_default();
        level.all += 1;
        if level.is_weighted() && group.weight.is_none() {
            continue;
        }
        match entry.health {
            Health::Healthy => level.healthy += 1,
            Health::Degraded => level.degraded += 1,
            Health::Unhealthy => level.has_unhealthy = true,
            Health::Draining => {}
        }
    }
    levels
}

/// The backends, in the order of their addresses.
pub(super) fn endpoints(groups: &[Group], entries: &[Entry], from: LocalityFrom) -> Vec<Endpoint> {
    let levels = levels(groups, entries);
    let first = |has: fn(&Level) -> bool| levels.iter().find(|(_, level)| has(level)).map(|(number, _)| *number);
    let usable = first(Level::has_usable);
    let in_use = usable.or_else(|| first(|level| level.has_unhealthy));
    let readiness = |entry: &Entry| {
        let group = &groups[entry.group];
        let level = &levels[&group.priority];
        let is_in_use = from == LocalityFrom::Priority || Some(group.priority) == in_use;
        let has_share = group.weight.is_some() || !level.is_weighted();
        // Checks of health that fail everywhere say more about the checker.
        let is_usable = level.is_usable(entry.health) || usable.is_none() && entry.health == Health::Unhealthy;
        match entry.health {
            Health::Draining => Readiness::Draining,
            _ if is_in_use && has_share && is_usable => Readiness::Ready,
            _ => Readiness::Starting,
        }
    };
    let weight = |entry: &Entry| {
        let group = &groups[entry.group];
        let Level { weights, sums, .. } = levels[&group.priority];
        let share = group.weight.map_or(1.0, |weight| f64::from(weight) / weights * sums / group.sum);
        f64::from(entry.weight) * share
    };
    let heaviest = entries.iter().map(weight).fold(1.0, f64::max);
    let (min, max) = (*Weight::RANGE.start(), *Weight::RANGE.end());
    let scale = (max / heaviest).min(1.0);
    let endpoint = |entry: &Entry| {
        let mut endpoint = Endpoint::new(entry.address);
        endpoint.weight = Weight::new((weight(entry) * scale).clamp(min, max)).unwrap_or_default();
        endpoint.authority = entry.authority.clone();
        endpoint.zone = groups[entry.group].zone.clone();
        endpoint.locality = groups[entry.group].locality.clone();
        endpoint.readiness = readiness(entry);
        endpoint
    };
    let mut endpoints: Vec<Endpoint> = entries.iter().map(endpoint).collect();
    endpoints.sort_unstable_by_key(|endpoint| endpoint.address);
    endpoints
}
