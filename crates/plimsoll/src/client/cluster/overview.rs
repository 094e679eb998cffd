//! A cluster at one moment, added up: for a page that asks once a second, whatever the number of
//! backends.

use std::collections::VecDeque;
use std::sync::Arc;

use plimsoll_core::health::{Reason, State};
use plimsoll_core::pick::PolicyKind;
use plimsoll_core::{Overview, Timestamp};

use super::Cluster;
use super::again::Restraint;
use super::machine::{BackendView, Machine};
use super::tally::ClusterCounts;
use crate::client::backend::Backend;

/// Backends read in one go. Requests wait for the lock meanwhile, some ten microseconds.
const BATCH: usize = 512;
/// Latest changes of state that are kept. A cluster that loses a zone has thousands at once; their
/// number is in [`ClusterCounts::transitions`].
const MAX_TRANSITIONS: usize = 32;

/// A cluster at one moment, added up.
#[derive(Clone, Debug)]
pub struct ClusterOverview {
    /// The name of the cluster.
    pub name: Box<str>,
    /// The moment, on the clock of the snapshots.
    pub at: Timestamp,
    /// The policy that picks a backend.
    pub policy: PolicyKind,
    /// The members, added up. They are read in several parts: a change between two of them may be missed.
    pub backends: Overview,
    /// The backends to show, at most as many as asked for ([`Overview::rows`]).
    pub rows: Vec<BackendView>,
    /// The number of known backends. With a subset, not all of them are members.
    pub known: usize,
    /// Requests that wait because all backends are at their limit.
    pub waiting: usize,
    /// The counters since the cluster was created.
    pub counts: ClusterCounts,
    /// The state of the throttle and of the retry budget.
    pub restraint: Restraint,
    /// The latest changes of state, at most 32, the latest last.
    pub transitions: Vec<Transition>,
}

/// A change of a backend's state.
#[derive(Clone, Debug)]
pub struct Transition {
    /// The moment.
    pub at: Timestamp,
    /// The backend.
    pub backend: Arc<Backend>,
    /// The new state.
    pub to: State,
    /// Its reason.
    pub reason: Reason,
}

/// The latest changes of state of a cluster.
#[derive(Debug, Default)]
pub(super) struct Transitions(VecDeque<Transition>);

impl Transitions {
    pub(super) fn add(&mut self, transition: Transition) {
        if self.0.len() == MAX_TRANSITIONS {
            self.0.pop_front();
        }
        self.0.push_back(transition);
    }
}

impl Cluster {
    /// The cluster now, with at most `rows` backends. The lock of the cluster is free between two
    /// parts, so requests do not wait for the whole.
    #[must_use]
    pub fn overview(&self, rows: usize) -> ClusterOverview {
        let mut backends = Overview::default();
        let mut next = 0;
        loop {
            let at = self.0.now();
            let machine = self.0.machine.lock();
            backends.add(&machine.balancer, next..next + BATCH);
            next += BATCH;
            if next < machine.slots_of_members() {
                continue;
            }
            let rows = if rows == 0 { Vec::new() } else { machine.rows(at, &backends, rows) };
            return ClusterOverview {
                name: self.0.name.clone(),
                at,
                policy: machine.config.balancer.policy,
                rows,
                known: machine.known(),
                waiting: machine.waiting(),
                counts: machine.counts.clone(),
                restraint: machine.restraint(at),
                transitions: machine.transitions.0.iter().cloned().collect(),
                backends,
            };
        }
    }
}

impl Machine {
    fn rows(&self, now: Timestamp, overview: &Overview, rows: usize) -> Vec<BackendView> {
        let ids = overview.rows(rows).into_iter();
        ids.filter_map(|id| self.view_of(self.balancer.snapshot_of(now, id)?)).collect()
    }
}

#[cfg(test)]
mod tests {
    use crate::address::Address;

    use super::*;
    use crate::client::ClusterConfig;
    use crate::discover::Endpoint;

    #[test]
    fn overview_has_every_backend_when_they_are_many() {
        let address = |i: usize| Address::from(([10, 0, (i >> 8) as u8, i as u8], 80));
        let count = 2 * BATCH + 3;
        let cluster = Cluster::new("many", ClusterConfig::default(), (0..count).map(address));
        let overview = cluster.overview(7);
        assert_eq!((overview.backends.total() as usize, overview.known), (count, count));
        assert_eq!(overview.rows.len(), 7);
        assert!(cluster.overview(0).rows.is_empty());
    }

    #[test]
    fn transitions_keep_the_latest() {
        let mut transitions = Transitions::default();
        let backend = Arc::new(Backend::new(Endpoint::from(Address::from(([10, 0, 0, 1], 80)))));
        for second in 0..40 {
            let at = Timestamp::from_nanos(second);
            transitions.add(Transition { at, backend: backend.clone(), to: State::Healthy, reason: Reason::Drained });
        }
        assert_eq!((transitions.0.len(), transitions.0[0].at), (MAX_TRANSITIONS, Timestamp::from_nanos(8)));
    }
}
