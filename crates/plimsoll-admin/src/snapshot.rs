//! The state of a fleet at one moment: the source of both metrics and API.
//!
//! Clusters are the library's own views. The facts of the proxy are plain data. All counters start at
//! the creation of their object and never fall.

use std::time::{Duration, SystemTime};

use plimsoll::client::ClusterView;
use plimsoll::probe::ResponderView;
use plimsoll_core::Criticality;
use plimsoll_core::admit::AdmissionConfig;
use plimsoll_core::shedding::Summary;
use plimsoll_core::signal::Loads;
use plimsoll_system::MachineSpeed;

use crate::split::{MirrorSnapshot, SplitSnapshot};

/// A whole fleet, with this of each cluster.
#[derive(Clone, Debug)]
pub struct FleetSnapshot<C = ClusterSnapshot> {
    /// Its clusters.
    pub clusters: Vec<C>,
    /// Where its requests come in.
    pub listeners: Vec<ListenerSnapshot>,
    /// The splits of its routes.
    pub splits: Vec<SplitSnapshot>,
    /// The mirrors of its routes.
    pub mirrors: Vec<MirrorSnapshot>,
    /// Configurations that came into force after the first.
    pub reloads_taken: u64,
    /// Configurations that were refused.
    pub reloads_refused: u64,
    /// The last reload; `None` where there is no configuration to reload.
    pub last_reload: Option<LastReloadSnapshot>,
    /// Lines of the access log that were dropped.
    pub access_log_dropped: u64,
    /// Decisions of the limits on requests, by customer: those with a table, and all others as one.
    pub request_limits: Vec<(Box<str>, &'static str, u64)>,
    /// The etcd of the fleet; `None` without one.
    pub etcd: Option<EtcdSnapshot>,
    /// The fate of the spans of recorded requests.
    pub traces: TracesSnapshot,
    /// How short memory and descriptors are.
    pub pressure: PressureSnapshot,
    /// Answers that are kept to be given again.
    pub stale_answers: StaleSnapshot,
}

impl<C> Default for FleetSnapshot<C> {
    fn default() -> Self {
        Self {
            clusters: Vec::new(),
            listeners: Vec::new(),
            splits: Vec::new(),
            mirrors: Vec::new(),
            reloads_taken: 0,
            reloads_refused: 0,
            last_reload: None,
            access_log_dropped: 0,
            request_limits: Vec::new(),
            etcd: None,
            traces: TracesSnapshot::default(),
            pressure: PressureSnapshot::default(),
            stale_answers: StaleSnapshot::default(),
        }
    }
}

impl<C> FleetSnapshot<C> {
    /// The same with something else of each cluster.
    pub(crate) fn map<D>(self, cluster: impl FnMut(C) -> D) -> FleetSnapshot<D> {
        FleetSnapshot {
            clusters: self.clusters.into_iter().map(cluster).collect(),
            listeners: self.listeners,
            splits: self.splits,
            mirrors: self.mirrors,
            reloads_taken: self.reloads_taken,
            reloads_refused: self.reloads_refused,
            last_reload: self.last_reload,
            access_log_dropped: self.access_log_dropped,
            request_limits: self.request_limits,
            etcd: self.etcd,
            traces: self.traces,
            pressure: self.pressure,
            stale_answers: self.stale_answers,
        }
    }
}

/// The last reload. The start counts as one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LastReloadSnapshot {
    /// The file is in force.
    pub is_taken: bool,
    /// Its time.
    pub at: SystemTime,
}

/// The etcd of the fleet, and the part of this proxy in it.
#[derive(Clone, Debug, Default)]
pub struct EtcdSnapshot {
    /// Whether it answers.
    pub is_reachable: bool,
    /// Its answers.
    pub answers: u64,
    /// Requests without an answer, and broken streams.
    pub failures: u64,
    /// The index of this proxy in its group.
    pub index: Option<u32>,
    /// Clusters with a ledger, and whether this proxy leads it.
    pub ledgers: Vec<(String, bool)>,
}

/// Spans for a collector.
#[derive(Clone, Debug, Default)]
pub struct TracesSnapshot {
    /// Spans that were exported, or dropped, by result.
    pub spans: Vec<(&'static str, u64)>,
    /// Requests that were not recorded because of the rates.
    pub limited: u64,
}

/// Answers that are kept to be given again in place of errors.
#[derive(Clone, Copy, Debug, Default)]
pub struct StaleSnapshot {
    /// How many.
    pub entries: usize,
    /// What they take.
    pub bytes: usize,
}

/// How short the process is of memory and descriptors.
#[derive(Clone, Copy, Debug, Default)]
pub struct PressureSnapshot {
    /// 0 is normal, 1 is that it holds less, 2 that it takes nothing new.
    pub level: u8,
    /// The most memory that it may use, in bytes; `None` for any.
    pub max_memory_bytes: Option<u64>,
    /// File descriptors that are open; `None` where the system does not say.
    pub open_descriptors: Option<u64>,
    /// File descriptors that may be open; `None` for any number.
    pub max_descriptors: Option<u64>,
}

/// One cluster.
#[derive(Clone, Debug)]
pub struct ClusterSnapshot {
    /// The library's view of it.
    pub view: ClusterView,
    /// Its gate; `None` if it has none.
    pub inbound: Option<InboundSnapshot>,
}

impl ClusterSnapshot {
    /// Whether some backends are outside the subset that this process is connected to.
    pub(crate) fn has_outsiders(&self) -> bool {
        self.view.summary.known > self.view.backends.len()
    }
}

/// The gate before the process that a cluster's backends are.
#[derive(Clone, Debug)]
pub struct InboundSnapshot {
    /// Requests that it decided upon, by criticality and decision.
    pub decisions: Vec<(Criticality, &'static str, u64)>,
    /// The same by customer, for those that the configuration names; all others are one.
    pub customers: Vec<(Box<str>, &'static str, u64)>,
    /// Reference CPUs that the process uses; `None` while it cannot be seen.
    pub cpus: Option<f64>,
    /// Reference CPUs that it can use.
    pub capacity: f64,
    /// The speed of the machine; `None` without a setting, which counts as 1.
    pub speed: Option<MachineSpeed>,
    /// How loaded the process is by each signal, and which one has requests turned away.
    pub loads: Loads,
    /// It is only counted who would be turned away.
    pub dry_run: bool,
    /// The shedding report.
    pub shedding: Summary,
}

impl InboundSnapshot {
    /// CPUs that requests may fill, out of `capacity`.
    pub(crate) fn load_line(&self) -> f64 {
        self.capacity * AdmissionConfig::DEFAULT_LOAD_LINE.as_f64()
    }
}

/// A listener.
#[derive(Clone, Debug, Default)]
pub struct ListenerSnapshot {
    /// Its name.
    pub name: String,
    /// Connections open now.
    pub connections: usize,
    /// Connections accepted.
    pub accepted: u64,
    /// Connections that had to wait, as all that there may be were open.
    pub waited: u64,
    /// Connections that were closed as soon as they were accepted, by reason.
    pub turned_away: Vec<(&'static str, u64)>,
    /// Connections that ended before a request could come, by reason.
    pub failed_handshakes: Vec<(&'static str, u64)>,
    /// TLS handshakes, by kind.
    pub tls_handshakes: Vec<(&'static str, u64)>,
    /// TLS handshakes that wait for their turn.
    pub waiting_handshakes: usize,
    /// Certificates that clients are shown: the first name, and the last moment of validity.
    pub certificates: Vec<(String, SystemTime)>,
    /// Time of threads that TLS handshakes took.
    pub handshake_time: Duration,
    /// Connections that the proxy ended because of what their client did or did not do, by reason.
    pub ended: Vec<(&'static str, u64)>,
    /// HTTP/2 streams that were ended because their client took nothing.
    pub stalled_streams: u64,
    /// Requests that were answered without a cluster, by reason.
    pub refusals: Vec<(&'static str, u64)>,
    /// Answers that were given in place of errors, by kind and reason.
    pub degraded: Vec<(&'static str, &'static str, u64)>,
    /// Its gate for batch work; `None` if it has none.
    pub batch: Option<BatchSnapshot>,
    /// Its answers to probes by UDP; `None` if it gives none.
    pub probes: Option<ResponderView>,
}

/// The gate of a listener for batch work.
#[derive(Clone, Debug, Default)]
pub struct BatchSnapshot {
    /// Requests that wait, by criticality.
    pub queued: Vec<(Criticality, usize)>,
    /// Requests at backends.
    pub active: u32,
    /// How many may be now.
    pub credit: f64,
    /// How many may be at most.
    pub max_active: u32,
    /// Connections to backends, idle ones included.
    pub connections: usize,
    /// Utilization of backends by their reports; `None` where they make none.
    pub utilization: Option<f64>,
    /// Requests that went back into the queue, each as often as it did.
    pub requeued: u64,
    /// Requests that were answered without service, by reason.
    pub turned_away: Vec<(&'static str, u64)>,
}
