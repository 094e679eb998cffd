//! A cluster at one moment: everything that its metrics and pages show.

use plimsoll_core::Timestamp;
use plimsoll_core::pick::{HashPicks, PolicyKind};

use super::Cluster;
use super::again::Restraint;
use super::follow::DiscoveryView;
use super::localities::LocalityView;
use super::machine::{BackendView, Machine};
use super::overrides::OverrideView;
use super::probes_view::ProbesView;
use super::tally::ClusterCounts;

/// Backends in a part. Requests wait for the lock while it is read, some ten microseconds.
const PART: usize = 128;

/// A cluster at one moment.
#[derive(Clone, Debug)]
pub struct ClusterView {
    /// The cluster as a whole.
    pub summary: ClusterSummary,
    /// The members, in the order of their slots.
    pub backends: Vec<BackendView>,
}

/// A cluster at one moment, without its single backends.
#[derive(Clone, Debug)]
pub struct ClusterSummary {
    /// The name of the cluster.
    pub name: Box<str>,
    /// The moment, on the clock of the snapshots.
    pub at: Timestamp,
    /// The policy that picks a backend.
    pub policy: PolicyKind,
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
    /// Picks by the place of the backend in the order of the key; `None` unless the policy is `hash`.
    pub hash_picks: Option<HashPicks>,
    /// The state of the throttle and of the retry budget.
    pub restraint: Restraint,
    /// The probes; `None` while they are off.
    pub probes: Option<ProbesView>,
}

impl Cluster {
    /// The cluster now. All but `discovery` and `overrides` is read under one lock: these parts agree with each other.
    #[must_use]
    pub fn view(&self) -> ClusterView {
        let (discovery, overrides) = (self.discovery(), self.overrides());
        let at = self.0.now();
        let machine = self.0.machine.lock();
        ClusterView { summary: self.summary_of(&machine, at, discovery, overrides), backends: machine.view(at) }
    }

    /// The cluster now, with its members in parts: `each` gets one after the other, in the order of
    /// their slots.
    ///
    /// The lock of the cluster is free between two parts and during `each`, so requests do not wait
    /// for the whole. The members are those of the first moment: one that is removed before its part
    /// is missing, and one that is added meanwhile is left out. So no address comes twice.
    pub fn view_in_parts(&self, mut each: impl FnMut(&[BackendView])) -> ClusterSummary {
        let (discovery, overrides) = (self.discovery(), self.overrides());
        let at = self.0.now();
        let machine = self.0.machine.lock();
        let summary = self.summary_of(&machine, at, discovery, overrides);
        let (slots, added) = (machine.slots_of_members(), machine.members_added());
        drop(machine);
        let mut part = Vec::with_capacity(PART.min(slots));
        for begin in (0..slots).step_by(PART) {
            let at = self.0.now();
            self.0.machine.lock().view_part(at, begin..begin + PART, added, &mut part);
            each(&part);
            part.clear();
        }
        summary
    }

    fn summary_of(
        &self,
        machine: &Machine,
        at: Timestamp,
        discovery: DiscoveryView,
        overrides: Vec<OverrideView>,
    ) -> ClusterSummary {
        ClusterSummary {
            name: self.0.name.clone(),
            at,
            policy: machine.config.balancer.policy,
            known: machine.known(),
            discovery,
            overrides,
            waiting: machine.waiting(),
            localities: machine.localities(at),
            counts: machine.counts.clone(),
            hash_picks: (machine.config.balancer.policy == PolicyKind::Hash).then(|| machine.balancer.hash_picks()),
            restraint: machine.restraint(at),
            probes: machine.probes(),
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::address::Address;

    use super::*;
    use crate::client::ClusterConfig;
    use crate::discover::OverrideCommand::{Remove, Revoke};

    fn addresses(ports: impl Iterator<Item = u16>) -> Vec<Address> {
        ports.map(|port| Address::from(([10, 0, 0, 1], port))).collect()
    }

    #[test]
    fn parts_have_the_members_of_the_view() {
        for count in [0, 1, PART, PART + 1, 3 * PART] {
            let cluster = Cluster::new("many", ClusterConfig::default(), addresses(1..=count as u16));
            let (mut parts, mut found) = (0, Vec::new());
            let summary = cluster.view_in_parts(|part| {
                parts += 1;
                found.extend(part.iter().map(|each| each.backend.address()));
            });
            let want: Vec<_> = cluster.view().backends.iter().map(|each| each.backend.address()).collect();
            assert_eq!((found, parts, summary.known), (want, count.div_ceil(PART), count));
        }
    }

    /// The first member is removed after its part, and added again in the slot of a later part.
    #[test]
    fn parts_have_no_member_twice_when_it_moves() {
        let (first, last) = (1, 2 * PART as u16);
        let cluster = Cluster::new("many", ClusterConfig::default(), addresses(first..=last));
        let mut found = Vec::new();
        cluster.view_in_parts(|part| {
            found.extend(part.iter().map(|each| each.backend.address()));
            if found.len() == PART {
                for (port, command) in [(first, Remove), (last, Remove), (first, Revoke)] {
                    cluster.override_backend(([10, 0, 0, 1], port), command, None).unwrap();
                }
            }
        });
        let moved = cluster.view().backends.iter().position(|each| each.backend.address().port() == Some(first));
        assert!(moved >= Some(PART), "the test moves it: {moved:?}");
        assert_eq!(found, addresses(first..=last - 1), "each once, without the one that was removed");
    }
}
