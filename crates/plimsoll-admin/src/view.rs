//! What the JSON API shows: the state of a fleet in the words that a person asks with.
//!
//! Rates and utilization are those that the backend reports of itself, all of its clients together; a
//! backend that reports nothing has `null` there. What this proxy alone sent is in `requests` and `failures`.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use plimsoll::address::Address;
use plimsoll::client;
use plimsoll::discover::OverrideChange;
use plimsoll_core::health::{Reason, State};
use plimsoll_core::spread::Spread;
use plimsoll_core::{Speed, spread};
use serde::Serialize;

use crate::discovery::DiscoveryView;
use crate::snapshot::BatchSnapshot;

/// A cluster.
#[derive(Clone, Debug, Serialize)]
pub struct ClusterView {
    /// Its name.
    pub name: String,
    /// How a backend is chosen.
    pub policy: &'static str,
    /// Backends by state.
    pub backends: StateCounts,
    /// Its localities, nearest first; none where all backends are equally near.
    pub localities: Vec<LocalityView>,
    /// All backends that it has; with a subset, more than those.
    pub known: usize,
    /// Changes of single backends by hand.
    pub overrides: usize,
    /// The source of its backends.
    pub discovery: DiscoveryView,
    /// Requests in flight, all backends together.
    pub in_flight: u64,
    /// Requests that wait for a backend.
    pub waiting: usize,
    /// Requests sent to backends.
    pub requests: u64,
    /// How many of them failed.
    pub failures: u64,
    /// How evenly utilization lies on the healthy backends that report it; `null` when none does.
    pub spread: Option<SpreadView>,
    /// What all others together could still do when the most utilized backend is full, in backends.
    pub waste: Option<f64>,
}

/// A locality of a cluster.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LocalityView {
    /// Its name.
    pub name: String,
    /// Its backends.
    pub backends: u32,
    /// How many of them are healthy.
    pub healthy: u32,
    /// The mean of what these report, 1 is full; `null` if none did of late.
    pub utilization: Option<f64>,
    /// Requests a second that it can take from this process; `null` while that is not known.
    pub room_qps: Option<f64>,
    /// Requests a second that it gets from this process.
    pub sent_qps: f64,
    /// It gets nothing, too few of its backends being healthy.
    pub drained: bool,
    /// Attempts that were sent there.
    pub requests: u64,
}

/// How many backends there are in each state.
#[derive(Clone, Debug, Serialize)]
pub struct StateCounts {
    /// In any.
    pub total: usize,
    /// By the name of the state.
    #[serde(flatten)]
    pub by_state: BTreeMap<&'static str, usize>,
}

/// How evenly a load lies on backends.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct SpreadView {
    /// Largest over mean; 1 is perfectly even.
    pub max_over_mean: f64,
    /// Largest over smallest; `null` when a backend has nothing.
    pub max_over_min: Option<f64>,
    /// In [`ClusterView::waste`].
    #[serde(skip)]
    pub(crate) waste: f64,
}

/// The gate of a listener for batch work.
#[derive(Clone, Debug, Serialize)]
pub struct BatchView {
    /// The listener's name.
    pub listener: String,
    /// Requests that wait, by criticality.
    pub queued: BTreeMap<&'static str, usize>,
    /// Requests at backends.
    pub active: u32,
    /// How many may be now, a fraction included.
    pub credit: f64,
    /// How many may be at most.
    pub max_active: u32,
    /// Connections to backends, idle ones included.
    pub connections: usize,
    /// Utilization of backends by their reports; `null` where they make none.
    pub utilization: Option<f64>,
    /// Requests that went back into the queue, each as often as it did.
    pub requeued: u64,
    /// Requests that were answered without service, by reason.
    pub turned_away: BTreeMap<&'static str, u64>,
}

impl BatchView {
    /// That of this listener.
    pub(crate) fn of(listener: &str, batch: &BatchSnapshot) -> Self {
        Self {
            listener: listener.to_owned(),
            queued: batch.queued.iter().map(|(criticality, queued)| (criticality.name(), *queued)).collect(),
            active: batch.active,
            credit: batch.credit,
            max_active: batch.max_active,
            connections: batch.connections,
            utilization: batch.utilization,
            requeued: batch.requeued,
            turned_away: batch.turned_away.iter().copied().collect(),
        }
    }
}

/// A backend.
#[derive(Clone, Debug, Serialize)]
pub struct BackendView {
    /// Where it listens.
    pub address: String,
    /// The locality that it is in; `null` where the cluster has none.
    pub locality: Option<String>,
    /// Its state.
    pub state: &'static str,
    /// Why it is in that state.
    pub reason: &'static str,
    /// For how long, in seconds.
    pub since_s: f64,
    /// Requests that it has now.
    pub in_flight: u32,
    /// Share of the requests that the policy means it to get, relative to the mean.
    pub weight: f64,
    /// Requests per second.
    pub qps: Option<f64>,
    /// Failures per second.
    pub eps: Option<f64>,
    /// Utilization, 1 is full: its own measure, or that of its CPU.
    pub utilization: Option<f64>,
    /// Age of the report that the three come from, in seconds.
    pub report_age_s: Option<f64>,
    /// Speed of its machine, relative to the reference core: its own report, else its source's word;
    /// `null` if neither states one.
    pub speed: Option<f64>,
    /// Recent peak of the time from all of a request to the head of its response, fading by half in 7 s, in milliseconds.
    pub latency_ms: Option<f64>,
    /// Share of failures among its recent requests.
    pub error_share: f64,
    /// Requests sent to it.
    pub requests: u64,
    /// How many of them failed.
    pub failures: u64,
    /// Connections open.
    pub connections: u64,
    /// Its probes by UDP; `null` if it is not probed.
    pub probe: Option<ProbeShown>,
    /// Changes by hand.
    pub overrides: Vec<OverrideShown>,
}

/// The probes of a backend.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct ProbeShown {
    /// `"unknown"`, `"works"`, or the reason for which probes are of no use.
    pub path: &'static str,
    /// Whether it has neither connections nor checks until the next request.
    pub inactive: bool,
}

/// A change of a backend by hand.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct OverrideShown {
    /// The address of the backend.
    pub address: String,
    /// `"added"`, `"removed"`, `"weight"` or `"drained"`.
    pub kind: &'static str,
    /// Its end by the wall clock, in seconds; `null`: when it is revoked.
    pub until: Option<String>,
    /// The weight, of an addition or a weight.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub weight: Option<f64>,
    /// The zone of an addition.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub zone: Option<String>,
    /// The locality of an addition.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub locality: Option<String>,
    /// The speed of the machine of an addition.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub speed: Option<f64>,
}

impl From<&client::OverrideView> for OverrideShown {
    fn from(view: &client::OverrideView) -> Self {
        let (weight, endpoint) = match &view.change {
            OverrideChange::Added(endpoint) => (Some(endpoint.weight.as_f64()), Some(endpoint)),
            OverrideChange::Weight(weight) => (Some(weight.as_f64()), None),
            OverrideChange::Removed | OverrideChange::Drained => (None, None),
        };
        let text = |text: &Arc<str>| text.to_string();
        Self {
            address: view.address.to_string(),
            kind: view.change.kind().name(),
            until: view.remaining.map(wall_clock),
            weight,
            zone: endpoint.and_then(|endpoint| endpoint.zone.as_ref()).map(text),
            locality: endpoint.and_then(|endpoint| endpoint.locality.as_ref()).map(text),
            speed: endpoint.and_then(|endpoint| endpoint.speed).map(Speed::as_f64),
        }
    }
}

/// The time after `remaining`, to the nearest second, so that two answers name the same.
fn wall_clock(remaining: Duration) -> String {
    let until = SystemTime::now() + remaining + Duration::from_millis(500);
    humantime::format_rfc3339_seconds(until).to_string()
}

/// The overrides of one address. They are sorted by address.
pub(crate) fn overrides_of(cluster: &client::ClusterSummary, address: Address) -> &[client::OverrideView] {
    let overrides = &cluster.overrides;
    let begin = overrides.partition_point(|each| each.address < address);
    let end = overrides.partition_point(|each| each.address <= address);
    &overrides[begin..end]
}

/// A backend that was just drained or undrained.
#[derive(Clone, Debug, Serialize)]
#[serde(untagged)]
pub enum SwitchedView {
    /// The cluster sends to it, or would.
    Member(Box<BackendView>),
    /// The cluster knows it, and it is not in the subset that this process uses.
    OutsideSubset {
        /// Where it listens.
        address: String,
        /// `"outside-subset"`: nothing is known of it here, as nothing is sent to it.
        state: &'static str,
        /// `"drained"` or `"undrained"`.
        reason: &'static str,
        /// What follows from that.
        meaning: &'static str,
    },
}

impl SwitchedView {
    /// Of a backend that is not in the subset, and was drained or undrained.
    pub(crate) fn outside_subset(address: Address, reason: Reason) -> Self {
        let meaning = match reason {
            Reason::Drained => "outside the subset of this proxy: no requests now, and none if it joins the subset",
            _ => "outside the subset of this proxy: no requests now, but requests if it joins the subset",
        };
        Self::OutsideSubset { address: address.to_string(), state: "outside-subset", reason: reason.name(), meaning }
    }
}

impl From<&client::ClusterView> for ClusterView {
    fn from(view: &client::ClusterView) -> Self {
        let client::ClusterView { summary: cluster, backends } = view;
        let in_state = |state: State| backends.iter().filter(|backend| backend.snapshot.state == state).count();
        let spread = utilization_spread(backends);
        Self {
            name: cluster.name.to_string(),
            policy: cluster.policy.name(),
            backends: StateCounts {
                total: backends.len(),
                by_state: State::ALL.into_iter().map(|state| (state.name(), in_state(state))).collect(),
            },
            localities: cluster.localities.iter().map(LocalityView::from).collect(),
            known: cluster.known,
            overrides: cluster.overrides.len(),
            discovery: DiscoveryView::of(cluster),
            in_flight: backends.iter().map(|backend| u64::from(backend.snapshot.active)).sum(),
            waiting: cluster.waiting,
            requests: backends.iter().map(|backend| backend.snapshot.requests).sum(),
            failures: backends.iter().map(|backend| backend.snapshot.failures).sum(),
            spread,
            waste: spread.map(|spread| spread.waste),
        }
    }
}

impl From<&client::LocalityView> for LocalityView {
    fn from(view: &client::LocalityView) -> Self {
        let (locality, standing) = (view.snapshot.locality, view.snapshot.standing);
        Self {
            name: view.name.to_string(),
            backends: locality.backends,
            healthy: locality.healthy,
            utilization: locality.utilization.map(rounded),
            room_qps: standing.room.map(rounded),
            sent_qps: rounded(standing.sent),
            drained: standing.is_drained,
            requests: view.snapshot.requests,
        }
    }
}

/// The spread of utilization over the healthy backends that report it. Others are left out: what a backend said
/// before it went away says nothing of now.
pub(crate) fn utilization_spread(backends: &[client::BackendView]) -> Option<SpreadView> {
    spread::of(backends.iter().filter_map(healthy_utilization)).map(SpreadView::from)
}

/// The reported utilization of a backend, if it is healthy.
pub(crate) fn healthy_utilization(backend: &client::BackendView) -> Option<f64> {
    let snapshot = &backend.snapshot;
    snapshot.report.filter(|_| snapshot.state == State::Healthy)?.1.utilization()
}

impl From<Spread> for SpreadView {
    fn from(spread: Spread) -> Self {
        Self {
            max_over_mean: spread.max_over_mean,
            max_over_min: Some(spread.max_over_min).filter(|ratio| ratio.is_finite()),
            waste: spread.waste,
        }
    }
}

impl BackendView {
    /// A backend of `cluster`.
    pub(crate) fn of(view: &client::BackendView, cluster: &client::ClusterSummary) -> Self {
        let now = cluster.at;
        let client::BackendView { backend, locality, snapshot, counts } = view;
        let load = snapshot.report.map(|(_, load)| load);
        Self {
            address: backend.label().to_owned(),
            locality: locality.as_ref().map(ToString::to_string),
            state: snapshot.state.name(),
            reason: snapshot.reason.name(),
            since_s: rounded(now.since(snapshot.since).as_secs_f64()),
            in_flight: snapshot.active,
            weight: snapshot.weight,
            qps: load.map(|load| load.qps),
            eps: load.map(|load| load.eps),
            utilization: load.and_then(|load| load.utilization()),
            report_age_s: snapshot.report.map(|(at, _)| now.since(at).as_secs_f64()),
            speed: view.speed().map(|speed| rounded(speed.as_f64())),
            latency_ms: snapshot.latency.map(|latency| rounded(latency.as_secs_f64() * 1e3)),
            error_share: snapshot.error_share,
            requests: snapshot.requests,
            failures: snapshot.failures,
            connections: counts.connections_open(),
            probe: snapshot.probe.map(|probe| ProbeShown { path: probe.path.name(), inactive: probe.is_inactive }),
            overrides: overrides_of(cluster, backend.address()).iter().map(OverrideShown::from).collect(),
        }
    }
}

/// To a thousandth: more digits are noise to whoever reads them.
fn rounded(value: f64) -> f64 {
    (value * 1e3).round() / 1e3
}
