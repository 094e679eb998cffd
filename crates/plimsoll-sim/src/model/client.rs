//! A client: the core's machines, held as a real one holds them.
//!
//! The backends that its subset names (without one: all) are members of its balancer. Changes of state that the
//! balancer tells of are told to the subset, and where that wants others, members are added and removed; a request
//! that a removed one still has finishes as if nothing had happened.

use std::collections::VecDeque;

use plimsoll_core::health::State;
use plimsoll_core::subset::Subset;
use plimsoll_core::{BackendId, Balancer, BalancerConfig, Event, Observe, Timestamp, Weight};
use rand_pcg::Pcg64Mcg;

use super::retries::{Retrier, Retries};
use crate::kernel::NEVER;

/// One client.
#[derive(Clone, Debug)]
pub(crate) struct Client {
    pub(crate) balancer: Balancer,
    pub(crate) retrier: Retrier,
    /// Of its decisions.
    pub(crate) rng: Pcg64Mcg,
    /// Requests that wait for a backend, in order.
    pub(crate) waiting: VecDeque<u32>,
    /// When its balancer is woken: an event for another time is void.
    pub(crate) wake_at: Timestamp,
    subset: Option<Subset>,
    /// Backends by the balancer's slot.
    by_slot: Vec<u32>,
    /// Members, in the order of the backends.
    members: Vec<(u32, BackendId)>,
    pub(crate) changes: Changes,
}

/// Changes of state that nobody has looked at yet.
#[derive(Clone, Debug, Default)]
pub(crate) struct Changes(VecDeque<(BackendId, State)>);

impl Observe for Changes {
    fn observe(&mut self, _now: Timestamp, event: Event) {
        if let Event::StateChanged { backend, to, .. } = event {
            self.0.push_back((backend, to));
        }
    }
}

impl Client {
    pub(crate) fn new(now: Timestamp, config: BalancerConfig, retries: Retries, rng: Pcg64Mcg) -> Self {
        Self {
            balancer: Balancer::new(config),
            retrier: Retrier::new(now, retries),
            rng,
            waiting: VecDeque::new(),
            wake_at: NEVER,
            subset: None,
            by_slot: Vec::new(),
            members: Vec::new(),
            changes: Changes::default(),
        }
    }

    /// Takes the backends of a subset as its own, from now on.
    pub(crate) fn set_subset(&mut self, now: Timestamp, mut subset: Subset, weights: &[Weight]) {
        for known in self.balancer.snapshot(now) {
            subset.on_state(self.backend(known.id), known.state);
        }
        let wanted = subset.members().to_vec();
        self.subset = Some(subset);
        self.set_members(now, &wanted, weights);
    }

    /// Makes these backends, no others, the members of its balancer.
    pub(crate) fn set_members(&mut self, now: Timestamp, wanted: &[u32], weights: &[Weight]) {
        let mut wanted = wanted.to_vec();
        wanted.sort_unstable();
        let (kept, gone): (Vec<_>, Vec<_>) =
            self.members.drain(..).partition(|(backend, _)| wanted.binary_search(backend).is_ok());
        self.members = kept;
        for (_, id) in gone {
            self.balancer.remove(now, id, &mut self.changes);
        }
        for backend in wanted {
            let Err(place) = self.members.binary_search_by_key(&backend, |(member, _)| *member) else { continue };
            let id = self.balancer.add_as(now, backend.into(), weights[backend as usize], &mut self.changes);
            if self.by_slot.len() <= id.slot() {
                self.by_slot.resize(id.slot() + 1, 0);
            }
            self.by_slot[id.slot()] = backend;
            self.members.insert(place, (backend, id));
        }
    }

    /// Tells the subset what the balancer told, until both agree.
    pub(crate) fn follow(&mut self, now: Timestamp, weights: &[Weight]) {
        while let Some((id, state)) = self.changes.0.pop_front() {
            let Some(subset) = &mut self.subset else { continue };
            if !self.balancer.contains(id) {
                continue;
            }
            if subset.on_state(self.by_slot[id.slot()], state) {
                let wanted = subset.members().to_vec();
                self.set_members(now, &wanted, weights);
            }
        }
    }

    /// Whether there is anything to follow.
    pub(crate) fn has_changes(&self) -> bool {
        !self.changes.0.is_empty()
    }

    /// The backend that its balancer calls `id`.
    pub(crate) fn backend(&self, id: BackendId) -> u32 {
        self.by_slot[id.slot()]
    }

    /// What its balancer calls a backend, if it is a member.
    pub(crate) fn id(&self, backend: u32) -> Option<BackendId> {
        let at = self.members.binary_search_by_key(&backend, |(member, _)| *member).ok()?;
        Some(self.members[at].1)
    }

    /// The backends that are members, in their order.
    #[cfg(test)]
    pub(crate) fn members(&self) -> Vec<u32> {
        self.members.iter().map(|(backend, _)| *backend).collect()
    }
}
