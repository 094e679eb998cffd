//! The state of a cluster, for people and for metrics.

use alloc::vec::Vec;
use core::time::Duration;

use super::members::Member;
use super::{Balancer, ProbeSnapshot};
use crate::health::{Reason, State};
use crate::pick::AnyPolicy;
use crate::{BackendId, LoadReport, Timestamp};

/// The balancer's knowledge of one backend.
#[derive(Clone, Debug, PartialEq)]
pub struct BackendSnapshot {
    /// The backend.
    pub id: BackendId,
    /// Its state.
    pub state: State,
    /// The reason for that state.
    pub reason: Reason,
    /// Start of that state.
    pub since: Timestamp,
    /// Index of its locality: 0 is the nearest, or the only one without localities.
    pub locality: usize,
    /// Requests in flight.
    pub active: u32,
    /// Share of requests that the policy gives it, relative to the mean (1) of its locality. For
    /// policies without weights, the configured weight.
    pub weight: f64,
    /// Peak-sensitive average of the time to the head of a response.
    pub latency: Option<Duration>,
    /// Share of failures among its recent requests, in [0, 1].
    pub error_share: f64,
    /// Its last load report, and the report's time of arrival.
    pub report: Option<(Timestamp, LoadReport)>,
    /// Requests sent to it so far.
    pub requests: u64,
    /// Requests that failed or were answered as overloaded.
    pub failures: u64,
    /// Its probes; `None` if it is not probed.
    pub probe: Option<ProbeSnapshot>,
}

impl Balancer {
    /// All backends, in the order of their slots.
    #[must_use]
    pub fn snapshot(&self, now: Timestamp) -> Vec<BackendSnapshot> {
        self.members.iter().map(|(id, member)| self.snapshot_of_member(now, id, member)).collect()
    }

    /// The number of healthy backends.
    #[must_use]
    pub fn healthy(&self) -> usize {
        self.members.census.healthy
    }

    /// Whether a backend is healthy, or new and not known to be unreachable.
    #[must_use]
    pub fn can_serve(&self) -> bool {
        self.members.census.healthy + self.members.census.connecting > 0
    }

    /// Whether an operator drained all backends, and there is one. O(1) unless each is a lame duck.
    #[must_use]
    pub fn is_drained(&self) -> bool {
        let members = &self.members;
        let are_lame_ducks = !members.is_empty() && members.census.lame_duck == members.len();
        are_lame_ducks && members.iter().all(|(_, member)| member.health.is_drained())
    }

    /// One backend; `None` if it was removed.
    #[must_use]
    pub fn snapshot_of(&self, now: Timestamp, id: BackendId) -> Option<BackendSnapshot> {
        self.members.get(id).map(|member| self.snapshot_of_member(now, id, member))
    }

    fn snapshot_of_member(&self, now: Timestamp, id: BackendId, member: &Member) -> BackendSnapshot {
        let candidate = &self.members.candidates[id.slot()];
        let configured = f64::from(candidate.inverse_weight).recip();
        let locality = self.members.locality(id.slot() as u32);
        let weight = match &self.groups[locality].policy {
            AnyPolicy::Weighted(policy) => policy.relative(id.slot()).unwrap_or(configured),
            _ => configured,
        };
        BackendSnapshot {
            id,
            state: member.health.state(),
            reason: member.health.reason(),
            since: member.health.since(),
            locality,
            active: member.active,
            weight,
            latency: candidate.latency.seconds(now).map(Duration::from_secs_f64),
            error_share: f64::from(member.errors.share(now)),
            report: member.report,
            requests: member.requests,
            failures: member.failures,
            probe: self.probe_of(id),
        }
    }
}
