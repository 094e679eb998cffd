//! The state of a fleet at one moment, as plain data: what metrics and API are written from.
//!
//! Counts begin when the thing that they count was made and never fall; a fleet fills a snapshot by copying what
//! its machines know, and computes nothing.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::time::Duration;

use parking_lot::Mutex;
use plimsoll_core::health::{Reason, State};
use plimsoll_core::pick::PolicyKind;
use plimsoll_core::shedding::Summary;
use plimsoll_core::signal::Loads;
use plimsoll_core::{Criticality, LoadReport};

/// A whole fleet.
#[derive(Clone, Debug, Default)]
pub struct FleetSnapshot {
    /// Its clusters.
    pub clusters: Vec<ClusterSnapshot>,
    /// Where its requests come in.
    pub listeners: Vec<ListenerSnapshot>,
    /// Configurations that came into force after the first.
    pub reloads_taken: u64,
    /// Configurations that were refused.
    pub reloads_refused: u64,
    /// Lines of the access log that were dropped.
    pub access_log_dropped: u64,
    /// How short memory and descriptors are.
    pub pressure: PressureSnapshot,
    /// Answers that are kept to be given again.
    pub stale_answers: StaleSnapshot,
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
#[derive(Clone, Debug, Default)]
pub struct ClusterSnapshot {
    /// Its name.
    pub name: String,
    /// How a backend is chosen.
    pub policy: PolicyKind,
    /// Its backends; with a subset, those that this process is connected to.
    pub backends: Vec<BackendSnapshot>,
    /// All backends that it has.
    pub known: usize,
    /// Requests that wait now because all backends are at their limit of active requests.
    pub waiting: usize,
    /// Its localities, nearest first; none where all backends are equally near.
    pub localities: Vec<LocalitySnapshot>,
    /// Requests that no locality had room for, by criticality; empty without localities.
    pub no_room: Vec<(Criticality, u64)>,
    /// Requests that had to wait so.
    pub waited: u64,
    /// Requests that failed because all backends were at their limit.
    pub saturated: u64,
    /// Requests that ended because their clients were slow while others waited.
    pub preempted: u64,
    /// Requests that found no usable backend.
    pub no_backend: u64,
    /// Attempts at another backend after one of which nothing was sent.
    pub further_attempts: u64,
    /// Requests sent again because a kept-alive connection had just closed.
    pub replayed: u64,
    /// Requests that were held back, nothing sent, by criticality.
    pub throttled: Vec<(Criticality, u64)>,
    /// Of requests by criticality, the share that is held back now.
    pub held: Vec<(Criticality, f64)>,
    /// Requests sent again after a backend may have seen them: why, how that ended, and how often.
    pub retries: Vec<(&'static str, &'static str, u64)>,
    /// Requests that were not served and not sent again, by why not.
    pub given_up: Vec<(&'static str, u64)>,
    /// Requests for which a second backend was chosen while the first was slow.
    pub hedges: u64,
    /// Those of them that the second answered while the first was out.
    pub hedges_won: u64,
    /// Requests that were slow enough for it, when the budget was used up.
    pub hedges_denied: u64,
    /// How much of the budget for retries is used up, in \[0, 1\].
    pub retry_budget_used: f64,
    /// Times that too few backends were healthy.
    pub panics: u64,
    /// Time from all of a request to the head of its response.
    pub latency: Histogram,
    /// Changes of state of its backends.
    pub transitions: Vec<Transition>,
    /// Its gate; `None` if it has none.
    pub inbound: Option<InboundSnapshot>,
}

impl ClusterSnapshot {
    /// Whether some of its backends are outside the subset that this process is connected to.
    pub(crate) fn has_outsiders(&self) -> bool {
        self.known > self.backends.len()
    }
}

/// One locality of a cluster.
#[derive(Clone, Debug, Default)]
pub struct LocalitySnapshot {
    /// Its name.
    pub name: String,
    /// Its backends.
    pub backends: u32,
    /// How many of them are healthy.
    pub healthy: u32,
    /// The mean of what the healthy ones reported in the last seconds, 1 is full; `None` if none did.
    pub utilization: Option<f64>,
    /// Requests a second that it can take from this process; `None` while that is not known.
    pub room: Option<f64>,
    /// Requests a second that it gets from this process.
    pub rate: f64,
    /// It gets nothing, too few of its backends being healthy.
    pub is_drained: bool,
    /// Attempts that were sent there.
    pub requests: u64,
}

/// The gate before the process that a cluster's backends are.
#[derive(Clone, Debug, Default)]
pub struct InboundSnapshot {
    /// Requests that it decided upon, by criticality and decision.
    pub decisions: Vec<(Criticality, &'static str, u64)>,
    /// The same by customer, for those that the configuration names; all others are one.
    pub customers: Vec<(Box<str>, &'static str, u64)>,
    /// CPUs that the process uses; `None` while it cannot be seen.
    pub cpus: Option<f64>,
    /// CPUs that it can use.
    pub capacity: f64,
    /// How loaded the process is by each signal, and which one has requests turned away.
    pub loads: Loads,
    /// It is only counted who would be turned away.
    pub dry_run: bool,
    /// What that means; `None` if nobody keeps account.
    pub shedding: Option<Summary>,
}

/// One backend of a cluster.
#[derive(Clone, Debug)]
pub struct BackendSnapshot {
    /// Where it listens.
    pub address: SocketAddr,
    /// The locality that it is in; `None` where the cluster has none.
    pub locality: Option<String>,
    /// Its state.
    pub state: State,
    /// Why it is in that state.
    pub reason: Reason,
    /// For how long.
    pub since: Duration,
    /// Requests that it has now.
    pub in_flight: u32,
    /// Share of the requests that the policy means it to get, relative to the mean (1).
    pub weight: f64,
    /// Recent peak of the time from all of a request to the head of its response, fading.
    pub latency: Option<Duration>,
    /// Share of failures among its recent requests, in \[0, 1\].
    pub error_share: f64,
    /// What it last said of its load.
    pub report: Option<Reported>,
    /// Requests sent to it.
    pub requests: u64,
    /// How many of them failed, or were answered as overloaded.
    pub failures: u64,
    /// How requests at it ended.
    pub attempts: AttemptCounts,
    /// Load reports read.
    pub reports: u64,
    /// Load reports that could not be read.
    pub malformed_reports: u64,
    /// Connections open now.
    pub connections: u64,
    /// Connections opened.
    pub connections_opened: u64,
    /// Connections that could not be opened.
    pub connections_failed: u64,
}

/// A load report, and how old it is.
#[derive(Clone, Copy, Debug)]
pub struct Reported {
    /// Since it came.
    pub age: Duration,
    /// What it says.
    pub load: LoadReport,
}

/// How attempts at a backend ended.
#[derive(Clone, Copy, Debug, Default)]
pub struct AttemptCounts {
    /// With a response, by class of status: index 0 is 1xx, 4 is 5xx.
    pub responses: [u64; 5],
    /// The client went away first.
    pub cancelled: u64,
    /// There was no connection.
    pub connect_failed: u64,
    /// The connection broke before the response was complete.
    pub broken: u64,
    /// It took too long.
    pub timed_out: u64,
}

impl AttemptCounts {
    /// Each ending with its name in metrics, and its count.
    pub(crate) fn by_result(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let classes = ["1xx", "2xx", "3xx", "4xx", "5xx"].into_iter().zip(self.responses);
        let others = [
            ("cancelled", self.cancelled),
            ("connect-failed", self.connect_failed),
            ("broken", self.broken),
            ("timed-out", self.timed_out),
        ];
        classes.chain(others)
    }
}

/// A histogram of times.
#[derive(Clone, Debug, Default)]
pub struct Histogram {
    /// Upper bound in seconds, and the number of times up to it and above the bound before. The last bound
    /// is infinite.
    pub buckets: Vec<(f64, u64)>,
    /// Sum of all times.
    pub sum: Duration,
    /// Number of all times.
    pub count: u64,
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

/// How often backends of a cluster came into a state for a reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transition {
    /// The state that they came into.
    pub to: State,
    /// Why.
    pub reason: Reason,
    /// How often.
    pub count: u64,
}

/// Counts transitions as they happen; shared between who sees them and who makes snapshots.
#[derive(Debug, Default)]
pub struct Transitions(Mutex<HashMap<(State, Reason), u64>>);

impl Transitions {
    /// Counts one.
    pub fn record(&self, to: State, reason: Reason) {
        *self.0.lock().entry((to, reason)).or_default() += 1;
    }

    /// All that were counted, in the order of their names.
    #[must_use]
    pub fn counts(&self) -> Vec<Transition> {
        let counts = self.0.lock();
        let mut list: Vec<Transition> =
            counts.iter().map(|(&(to, reason), &count)| Transition { to, reason, count }).collect();
        list.sort_by_key(|transition| (transition.to.name(), transition.reason.name()));
        list
    }
}
