//! A cluster at one moment: everything that its metrics and pages show.

use plimsoll_core::Timestamp;
use plimsoll_core::pick::PolicyKind;

use super::Cluster;
use super::again::Restraint;
use super::follow::DiscoveryView;
use super::localities::LocalityView;
use super::machine::BackendView;
use super::overrides::OverrideView;
use super::tally::ClusterCounts;

/// A cluster at one moment.
#[derive(Clone, Debug)]
pub struct ClusterView {
    /// The name of the cluster.
    pub name: Box<str>,
    /// The moment, on the clock of the snapshots.
    pub at: Timestamp,
    /// The policy that picks a backend.
    pub policy: PolicyKind,
    /// The members, in the order in which they were added.
    pub backends: Vec<BackendView>,
    /// The number of known backends. With a subset, not all of them are members.
    pub known: usize,
    /// The source of the backends.
    pub discovery: DiscoveryView,
    /// Changes of single backends by hand, by address.
    pub overrides: Vec<OverrideView>,
    /// Requests that wait because all backends are at their limit.
    pub waiting: usize,
    /// The localities, nearest first. Empty where the cluster has none.
    pub localities: Vec<LocalityView>,
    /// The counters since the cluster was created.
    pub counts: ClusterCounts,
    /// The state of the throttle and of the retry budget.
    pub restraint: Restraint,
}

impl Cluster {
    /// The cluster now. All but `discovery` and `overrides` is read under one lock: these parts agree with each other.
    #[must_use]
    pub fn view(&self) -> ClusterView {
        let (discovery, overrides) = (self.discovery(), self.overrides());
        let at = self.0.now();
        let machine = self.0.machine.lock();
        ClusterView {
            name: self.0.name.clone(),
            at,
            policy: machine.config.balancer.policy,
            backends: machine.view(at),
            known: machine.known(),
            discovery,
            overrides,
            waiting: machine.waiting(),
            localities: machine.localities(at),
            counts: machine.counts.clone(),
            restraint: machine.restraint(at),
        }
    }
}
