//! JSON of the live page: `GET /api/v1/live`.
//!
//! One answer has at most 20 KB, for any number of backends, clusters and customers: the lists are
//! cut, and say by how much. Rates are means over the last ten
//! seconds. CPUs are reference CPUs. The types can also be read, for `plimsoll top` and for a page
//! over several proxies.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::history::{Series, known};
use crate::round::significant;

/// Clusters in the list, the worst first.
pub const MAX_CLUSTERS: usize = 40;
/// Backends in the list.
pub const MAX_ROWS: usize = 60;
/// Backends in the list where there are more than [`MAX_ROWS`]: a third of them the most loaded.
pub const MAX_ROWS_OF_MANY: usize = 40;
/// Listeners for batch work.
pub const MAX_BATCH: usize = 5;

/// A proxy at one moment, with one of its clusters in detail.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Live {
    /// The moment, in seconds since 1970.
    pub at: f64,
    /// The process.
    pub process: LiveProcess,
    /// The worst verdict of all clusters; `null` if none has a gate.
    pub verdict: Option<LiveVerdict>,
    /// The clusters, the worst verdict first, and then by name.
    pub clusters: Vec<LiveClusterRow>,
    /// Clusters beyond the list.
    pub clusters_left_off: usize,
    /// The cluster that was asked for, else the first one; `null` if there is none.
    pub cluster: Option<LiveCluster>,
    /// Gates of listeners for batch work.
    pub batch: Vec<LiveBatch>,
    /// The latest changes, the newest first.
    pub changes: Vec<LiveChange>,
    /// The last second of the cluster, by series: the next point of each chart. `null` before the
    /// first one.
    pub sample: Option<LiveSample>,
}

/// One second of a cluster.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LiveSample {
    /// Its end, in seconds since 1970.
    pub at: f64,
    /// The number of each series; `null` if it is not known.
    #[serde(flatten)]
    pub series: BTreeMap<String, Option<f32>>,
}

impl LiveSample {
    /// A second that ended at `at`, in seconds since 1970.
    #[must_use]
    pub fn new<S: Series>(at: f64, sample: &S) -> Self {
        Self { at, series: S::ALL.iter().map(|(name, value)| ((*name).to_owned(), known(value(sample)))).collect() }
    }
}

/// The process that answers.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LiveProcess {
    /// `"proxy"` or `"quota"`.
    pub kind: String,
    /// The name of its machine.
    pub name: String,
    /// Version of the program.
    pub version: String,
    /// `"starting"`, `"ready"` or `"draining"`.
    pub state: String,
    /// Time since its start, in seconds; `null` if it is not known.
    pub uptime_s: Option<f64>,
}

impl LiveProcess {
    /// This process, of this kind and in this state.
    #[must_use]
    pub fn new(kind: &str, state: &str, uptime: Duration) -> Self {
        Self {
            kind: kind.to_owned(),
            name: rustix::system::uname().nodename().to_string_lossy().into_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            state: state.to_owned(),
            uptime_s: Some(significant(uptime.as_secs_f64())),
        }
    }
}

/// A verdict on the shedding of a cluster.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LiveVerdict {
    /// The cluster.
    pub cluster: String,
    /// `"fine"`, `"as-intended"`, `"capacity-short"` or `"users-affected"`.
    pub verdict: String,
    /// The verdict in a sentence.
    pub meaning: String,
    /// Time since it began, in seconds.
    pub for_s: f64,
    /// The proxy with it, of several; left out by a single proxy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub proxy: Option<String>,
}

/// A cluster in the list.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LiveClusterRow {
    /// Its name.
    pub name: String,
    /// Its verdict; `null` without a gate.
    pub verdict: Option<String>,
    /// Healthy backends.
    pub healthy: u32,
    /// All backends.
    pub backends: u32,
    /// Requests a second.
    pub requests_qps: f64,
}

/// A cluster in detail.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LiveCluster {
    /// Its name.
    pub name: String,
    /// How a backend is chosen.
    pub policy: String,
    /// Its gate; `null` without one. Then costs in CPUs are not known, and requests are counted alone.
    pub gate: Option<LiveGate>,
    /// Requests by criticality, the most important first.
    pub demand: Vec<LiveDemand>,
    /// Its backends.
    pub backends: LiveBackends,
    /// The customers that ask for most; none without a gate.
    pub customers: Vec<LiveCustomer>,
    /// Throttling, retries and hedges of this process as a client of the backends.
    pub traffic: LiveTraffic,
}

/// The gate of a cluster.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LiveGate {
    /// The verdict.
    pub verdict: String,
    /// The verdict in a sentence.
    pub meaning: String,
    /// Time since the verdict began, in seconds.
    pub verdict_for_s: f64,
    /// The proxy with this verdict, of several; left out by a single proxy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub proxy: Option<String>,
    /// Time of shedding without a pause of five minutes; `null` while nothing is shed.
    pub throttled_for_s: Option<f64>,
    /// Whether requests are only counted as shed.
    pub dry_run: bool,
    /// CPUs that the protected process can use.
    pub capacity_cpus: f64,
    /// The load line: CPUs of these that requests may fill.
    pub load_line_cpus: f64,
    /// CPUs that it uses; `null` while it cannot be seen.
    pub used_cpus: Option<f64>,
    /// CPUs that would have been enough; `null` while that is not known.
    pub enough_cpus: Option<f64>,
    /// The signal that caused shedding in the last second.
    pub binding_signal: Option<String>,
    /// Load by signal, 1 at its limit.
    pub signals: BTreeMap<String, f64>,
}

/// Requests of one criticality.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LiveDemand {
    /// Its name.
    pub criticality: String,
    /// Requests a second that arrived.
    pub offered_qps: f64,
    /// CPUs that they would keep busy; `null` without a gate.
    pub offered_cpus: Option<f64>,
    /// Admitted requests a second.
    pub admitted_qps: f64,
    /// CPUs that they keep busy.
    pub admitted_cpus: Option<f64>,
    /// Shed requests a second.
    pub shed_qps: f64,
    /// CPUs that they would keep busy.
    pub shed_cpus: Option<f64>,
    /// Shed requests by reason; reasons without any are left out.
    pub shed: BTreeMap<String, LiveShed>,
}

/// Requests shed for one reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LiveShed {
    /// Requests a second.
    pub qps: f64,
    /// CPUs that they would keep busy; `null` without a gate.
    pub cpus: Option<f64>,
}

/// The backends of a cluster.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LiveBackends {
    /// Those that this process is connected to.
    pub total: u32,
    /// All that the cluster has.
    pub known: usize,
    /// By state.
    pub by_state: BTreeMap<String, u32>,
    /// The quantity that is the load: `"utilization"` (reported, 1 is full), or `"in-flight"` (requests
    /// of this process) where no backend reports.
    pub measure: String,
    /// Largest load of a healthy backend; `null` if there is none.
    pub max: Option<f64>,
    /// Mean load of healthy backends.
    pub mean: Option<f64>,
    /// Largest load over the mean; `null` if all are idle.
    pub max_over_mean: Option<f64>,
    /// Capacity that the others have left when the most loaded one is full: in backends for utilization, in
    /// requests else.
    pub waste: Option<f64>,
    /// Healthy backends by load, in bins of `bin` from 0; the last one has no upper bound.
    pub histogram: Vec<u32>,
    /// Width of a bin.
    pub bin: f64,
    /// Whether the list has every backend. Else it has the most loaded ones and then unhealthy ones.
    pub is_complete: bool,
    /// Unhealthy backends beyond the list.
    pub left_off: usize,
    /// Backends.
    pub rows: Vec<LiveBackend>,
}

/// A backend.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LiveBackend {
    /// Where it listens.
    pub address: String,
    /// Its locality; left out where the cluster has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub locality: Option<String>,
    /// Its state.
    pub state: String,
    /// Why it is in that state.
    pub reason: String,
    /// For how long, in seconds.
    pub since_s: f64,
    /// Its load; `null` if it is not known.
    pub load: Option<f64>,
    /// Requests in flight from this process.
    pub in_flight: u32,
    /// Requests a second that it reports; left out if it does not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub qps: Option<f64>,
    /// Recent peak latency in milliseconds; `null` before the first response.
    pub latency_ms: Option<f64>,
    /// Share of failures among its recent requests.
    pub error_share: f64,
    /// The proxies that have it; left out by a single proxy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seen: Option<LiveSeen>,
}

/// A backend in the eyes of several proxies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LiveSeen {
    /// Proxies that have it in their lists.
    pub proxies: u32,
    /// Proxies that see it in the state of its row.
    pub in_state: u32,
}

/// A customer.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LiveCustomer {
    /// Its name.
    pub name: String,
    /// Requests a second.
    pub offered_qps: f64,
    /// CPUs that they would keep busy.
    pub offered_cpus: f64,
    /// CPUs that the admitted ones keep busy.
    pub used_cpus: f64,
    /// Shed requests a second.
    pub shed_qps: f64,
    /// CPUs that the shed ones would keep busy.
    pub shed_cpus: f64,
    /// Shed requests a second by reason.
    pub shed: BTreeMap<String, f64>,
    /// Its share of CPUs when there is not enough for all.
    pub soft_limit_cpus: f64,
    /// Largest number of CPUs that it may use; `null` without a limit.
    pub hard_limit_cpus: Option<f64>,
    /// Its limit over a fleet.
    #[serde(flatten)]
    pub fleet: LiveFleetLimit,
}

/// A customer's limit over a fleet. Figures that are not known are left out.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct LiveFleetLimit {
    /// The hard limit over all tasks, in CPUs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fleet_limit_cpus: Option<f64>,
    /// The part of it at this task.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fleet_rate_cpus: Option<f64>,
    /// CPUs used at all tasks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fleet_used_cpus: Option<f64>,
    /// CPUs asked for at all tasks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fleet_demand_cpus: Option<f64>,
    /// The criticality that is admitted in part; all below it are refused.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fleet_cut: Option<String>,
    /// The admitted part of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fleet_cut_admitted: Option<f32>,
}

/// Throttling, retries and hedges.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LiveTraffic {
    /// Requests a second.
    pub requests_qps: f64,
    /// Failed attempts a second.
    pub failures_qps: f64,
    /// Throttled requests a second by criticality; those without any are left out.
    pub throttled: BTreeMap<String, f64>,
    /// Share of requests throttled now by criticality; those without are left out.
    pub held: BTreeMap<String, f64>,
    /// Retries a second.
    pub retries_qps: f64,
    /// Retries denied a second, by reason; reasons without any are left out.
    pub retries_denied: BTreeMap<String, f64>,
    /// Share of the retry budget in use; 1 is exhausted.
    pub retry_budget_used: f64,
    /// Hedges a second.
    pub hedges_qps: f64,
    /// Hedges a second that responded first.
    pub hedges_won_qps: f64,
    /// Requests a second that were sent to no backend, by reason; reasons without any are left out.
    pub unserved: BTreeMap<String, f64>,
    /// Requests that wait for a backend below its limit.
    pub waiting: usize,
    /// Requests in flight.
    pub in_flight: u64,
    /// Median time to the head of a response, in milliseconds; `null` without a response.
    pub p50_ms: Option<f64>,
    /// The same of the slowest hundredth.
    pub p99_ms: Option<f64>,
}

/// The gate of a listener for batch work.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LiveBatch {
    /// The listener's name.
    pub listener: String,
    /// Requests that wait.
    pub queued: usize,
    /// Requests at backends.
    pub active: u32,
    /// Requests that may be there now.
    pub credit: f64,
    /// Requests that may be there at most.
    pub max_active: u32,
    /// Mean utilization of backends; `null` where they report none.
    pub utilization: Option<f64>,
}

/// A change.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LiveChange {
    /// The moment, in seconds since 1970.
    pub at: f64,
    /// `"backend"`, `"verdict"`, `"reload"` or `"process"`.
    pub kind: String,
    /// The cluster; `null` for the whole process.
    pub cluster: Option<String>,
    /// The subject: the address of a backend, or the number of backends.
    pub subject: String,
    /// The change in a few words.
    pub text: String,
    /// The proxies that saw it, of several; left out by a single proxy.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub proxies: Vec<String>,
}
