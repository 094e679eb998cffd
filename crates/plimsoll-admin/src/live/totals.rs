//! The counters of a cluster at one moment, and the rates between two moments.

use plimsoll::client::{ClusterCounts, Latencies, NoRetryReason};
use plimsoll_core::shedding::{Class, Tally};
use plimsoll_core::{Criticality, Rejection, Timestamp};

use super::source::LiveClusterSnapshot;

const CLASSES: usize = Criticality::ALL.len();
const REASONS: usize = Rejection::REPORTED.len();

/// Counters of a cluster since its start. The sums over backends fall when a backend is removed.
#[derive(Clone, Debug)]
pub(super) struct Totals {
    at: Timestamp,
    has_gate: bool,
    offered: [Tally; CLASSES],
    admitted: [Tally; CLASSES],
    shed: [[Tally; REASONS]; CLASSES],
    requests: u64,
    failures: u64,
    throttled: [u64; CLASSES],
    retries: u64,
    retries_denied: [u64; NoRetryReason::ALL.len()],
    hedges: u64,
    hedges_won: u64,
    saturated: u64,
    no_backend: u64,
    latency: [u64; Latencies::BOUNDS.len() + 1],
}

impl Totals {
    pub(super) fn of(cluster: &LiveClusterSnapshot) -> Self {
        let (overview, counts) = (&cluster.overview, &cluster.overview.counts);
        let classes = match &cluster.inbound {
            Some(gate) => gate.shedding.total,
            None => std::array::from_fn(|rank| without_gate(counts, rank)),
        };
        Self {
            at: overview.at,
            has_gate: cluster.inbound.is_some(),
            offered: classes.map(|class| class.offered),
            admitted: classes.map(|class| class.admitted),
            shed: classes.map(|class| class.shed),
            requests: counts.offered.iter().sum(),
            failures: overview.backends.failures,
            throttled: counts.throttled,
            retries: counts.retries.iter().map(|(.., count)| count).sum(),
            retries_denied: counts.given_up,
            hedges: counts.hedges.sent,
            hedges_won: counts.hedges.won,
            saturated: counts.saturated,
            no_backend: counts.no_backend,
            latency: counts.latency.buckets,
        }
    }

    /// Whether these are later counts of the same counters. A gate that came or went with a reload has
    /// others.
    pub(super) fn continues(&self, before: &Self) -> bool {
        let is_later = |(now, then): (&Tally, &Tally)| now.requests >= then.requests;
        self.has_gate == before.has_gate && self.offered.iter().zip(&before.offered).all(is_later)
    }

    /// Rates since `before`; zero if no time has passed.
    pub(super) fn since(&self, before: &Self) -> Rates {
        let seconds = self.at.since(before.at).as_secs_f64();
        let rate = |now: u64, then: u64| if seconds > 0.0 { now.saturating_sub(then) as f64 / seconds } else { 0.0 };
        let cost = |now: f64, then: f64| if seconds > 0.0 { (now - then).max(0.0) / seconds } else { 0.0 };
        let tally =
            |now: Tally, then: Tally| Rate { qps: rate(now.requests, then.requests), cpus: cost(now.cost, then.cost) };
        Rates {
            offered: std::array::from_fn(|at| tally(self.offered[at], before.offered[at])),
            admitted: std::array::from_fn(|at| tally(self.admitted[at], before.admitted[at])),
            shed: std::array::from_fn(|at| {
                std::array::from_fn(|reason| tally(self.shed[at][reason], before.shed[at][reason]))
            }),
            requests: rate(self.requests, before.requests),
            failures: rate(self.failures, before.failures),
            throttled: std::array::from_fn(|at| rate(self.throttled[at], before.throttled[at])),
            retries: rate(self.retries, before.retries),
            retries_denied: std::array::from_fn(|at| rate(self.retries_denied[at], before.retries_denied[at])),
            hedges: rate(self.hedges, before.hedges),
            hedges_won: rate(self.hedges_won, before.hedges_won),
            saturated: rate(self.saturated, before.saturated),
            no_backend: rate(self.no_backend, before.no_backend),
            latency: std::array::from_fn(|at| self.latency[at].saturating_sub(before.latency[at])),
        }
    }
}

/// Requests of a criticality at a cluster without a gate. Their cost is not known.
fn without_gate(counts: &ClusterCounts, rank: usize) -> Class {
    let mut class = Class::default();
    let (offered, throttled, no_headroom) = (counts.offered[rank], counts.throttled[rank], counts.no_room[rank]);
    class.offered.requests = offered;
    class.admitted.requests = offered.saturating_sub(throttled + no_headroom);
    for (reason, count) in [(Rejection::Throttled, throttled), (Rejection::Saturated, no_headroom)] {
        if let Some(place) = reason.report_place() {
            class.shed[place].requests = count;
        }
    }
    class
}

/// Requests a second, and CPUs that they would keep busy.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Rate {
    pub(super) qps: f64,
    pub(super) cpus: f64,
}

/// Rates of a cluster, per second. Arrays are by criticality, or in the order of the reasons.
#[derive(Clone, Debug, Default)]
pub(super) struct Rates {
    pub(super) offered: [Rate; CLASSES],
    pub(super) admitted: [Rate; CLASSES],
    pub(super) shed: [[Rate; REASONS]; CLASSES],
    pub(super) requests: f64,
    pub(super) failures: f64,
    pub(super) throttled: [f64; CLASSES],
    pub(super) retries: f64,
    pub(super) retries_denied: [f64; NoRetryReason::ALL.len()],
    pub(super) hedges: f64,
    pub(super) hedges_won: f64,
    pub(super) saturated: f64,
    pub(super) no_backend: f64,
    /// Responses by latency, of the whole time.
    latency: [u64; Latencies::BOUNDS.len() + 1],
}

impl Rates {
    /// The latency that this share of the responses did not exceed, in milliseconds; `None` without
    /// a response. It is interpolated within a bucket, so it is exact to its bounds only.
    pub(super) fn quantile_ms(&self, share: f64) -> Option<f64> {
        let total: u64 = self.latency.iter().sum();
        let mut left = share * total as f64;
        let bounds = Latencies::BOUNDS;
        for (at, count) in self.latency.iter().map(|count| *count as f64).enumerate() {
            if count > 0.0 && left <= count {
                let low = at.checked_sub(1).map_or(0.0, |below| bounds[below]);
                // Above the last bound nothing is known but the bound.
                let high = bounds.get(at).copied().unwrap_or(low);
                return Some((low + (high - low) * left / count) * 1e3);
            }
            left -= count;
        }
        None
    }
}
