//! The state of a cluster, for people and for metrics.

use alloc::vec::Vec;
use core::time::Duration;

use super::Balancer;
use crate::health::{Reason, State};
use crate::pick::AnyPolicy;
use crate::{BackendId, LoadReport, Timestamp};

/// What the balancer knows of one backend.
#[derive(Clone, Debug, PartialEq)]
pub struct BackendSnapshot {
    /// Which.
    pub id: BackendId,
    /// Its state.
    pub state: State,
    /// Why it is in that state.
    pub reason: Reason,
    /// Since when.
    pub since: Timestamp,
    /// The place of its locality, 0 is the nearest; 0 without localities.
    pub locality: usize,
    /// Requests that it has now.
    pub active: u32,
    /// Share of requests that the policy means it to get, relative to the mean (1) of its locality. Policies without weights
    /// give the configured one.
    pub weight: f64,
    /// Peak-sensitive average of the time to the head of a response.
    pub latency: Option<Duration>,
    /// Share of failures among its recent requests, in [0, 1].
    pub error_share: f64,
    /// Its last load report, and when that came.
    pub report: Option<(Timestamp, LoadReport)>,
    /// Requests sent to it so far.
    pub requests: u64,
    /// How many of them failed or were answered as overloaded.
    pub failures: u64,
}

impl Balancer {
    /// All backends, in the order of their slots.
    #[must_use]
    pub fn snapshot(&self, now: Timestamp) -> Vec<BackendSnapshot> {
        self.members
            .iter()
            .map(|(id, member)| {
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
                }
            })
            .collect()
    }
}
