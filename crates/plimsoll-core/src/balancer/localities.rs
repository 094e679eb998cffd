//! The localities of a cluster: choice of a locality's backend, and the state of each for
//! [`Spill`].
//!
//! Each locality has its own usable backends and its own policy, so that a policy still sees only
//! backends that may be chosen. The rest is common to all: one table of backends, one census, one
//! judgment of health. The obvious way, one balancer per locality, was rejected. A backend that a
//! reload moves to another locality would lose its state and its requests in flight, and callers
//! would need a second kind of id. Besides, the panic threshold should look at all localities: a
//! locality with mostly unhealthy backends is drained, and no backend that fails its checks need be
//! chosen.
//!
//! The utilization of a locality is the mean over its healthy backends' reports of the last seconds
//! ([`REPORTS_COUNT_FOR`]). The number of healthy backends is known at once, from their states.
//! Both are evaluated once a second, and when a state has changed. In the mean, no backend counts
//! as more than full, or as more than twice the median if that is larger. Otherwise one backend
//! that reports percent (85 instead of 0.85) would make its whole locality look hopelessly
//! overloaded.

use alloc::vec::Vec;
use core::time::Duration;

use super::members::Members;
use super::{Balancer, BalancerConfig};
use crate::health::State;
use crate::pick::{AnyPolicy, HashKey};
use crate::spill::{Locality, Route, Spill, SpillConfig, Standing};
use crate::{BackendId, Criticality, Random, Timestamp, median};

/// Time between two evaluations. A quarter of the smoothing of headroom: more often would show no
/// more.
const INTERVAL: Duration = Duration::from_secs(1);
/// Age limit of a load report: a little over two half-lives of the sent rate.
const REPORTS_COUNT_FOR: Duration = Duration::from_secs(5);
/// Cap of a backend's utilization, as a multiple of the median: the largest inequality to expect
/// among backends of one locality.
const MAX_TIMES_MEDIAN: f64 = 2.0;

/// The policy of one locality.
#[derive(Clone, Debug)]
pub(super) struct Group {
    pub(super) policy: AnyPolicy,
    /// Number of picks of its backends.
    pub(super) picks: u64,
}

/// The balancer's knowledge of one locality.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LocalitySnapshot {
    /// Its numbers of backends, and their utilization.
    pub locality: Locality,
    /// Its capacity and its load.
    pub standing: Standing,
    /// Attempts that picked one of its backends.
    pub requests: u64,
}

impl Group {
    pub(super) fn new(config: &BalancerConfig) -> Self {
        Self { policy: AnyPolicy::new(config.policy, config.prequal, config.hash), picks: 0 }
    }

    /// Drops the knowledge of the slot's previous backend: the new one starts unknown.
    pub(super) fn begin(&mut self, slot: usize, slots: usize) {
        match &mut self.policy {
            AnyPolicy::Weighted(policy) => {
                policy.reserve(slots);
                policy.forget(slot);
            }
            AnyPolicy::Prequal(policy) => policy.notes().forget(slot as u32),
            _ => {}
        }
    }
}

impl Balancer {
    /// Replaces the localities, nearest first; an empty list means none. Each entry names a former
    /// locality, which keeps its knowledge and its backends, or is `None` for a new one. Backends
    /// of removed localities belong to the nearest until [`Balancer::set_locality`] moves them.
    pub fn set_localities(&mut self, now: Timestamp, former: &[Option<usize>], config: SpillConfig) {
        for slot in 0..self.members.slots() as u32 {
            self.set_usable(slot, false);
        }
        let known = core::mem::take(&mut self.groups);
        // Without localities, the knowledge of the only group, or of the nearest, serves all.
        let groups = if former.is_empty() { &[Some(0)] } else { former };
        let group = |former: &Option<usize>| former.and_then(|i| known.get(i)).cloned();
        self.groups = groups.iter().map(|former| group(former).unwrap_or_else(|| Group::new(&self.config))).collect();
        self.members.rearrange(groups);
        self.spill = match (self.spill.take(), former) {
            (_, []) => None,
            (None, former) => Some(Spill::new(now, config, former.len())),
            (Some(mut spill), former) => {
                spill.arrange(former);
                spill.set_config(config);
                Some(spill)
            }
        };
        self.next_spill = now;
        for group in &mut self.groups {
            if let AnyPolicy::Hash(_) = group.policy {
                let BalancerConfig { policy, prequal, hash, .. } = self.config;
                group.policy = AnyPolicy::new(policy, prequal, hash);
            }
        }
        for slot in 0..self.members.slots() as u32 {
            self.restart_turns(slot);
            self.enter_ring(slot);
        }
        self.rebuild();
        self.update_weights(now);
    }

    /// Moves a backend to a locality: 0 is the nearest, and an index past the end means the
    /// furthest. The knowledge of the backend stays.
    pub fn set_locality(&mut self, now: Timestamp, id: BackendId, locality: usize) {
        let locality = locality.min(self.groups.len() - 1);
        let slot = id.slot() as u32;
        if !self.contains(id) || self.members.locality(slot) == locality {
            return;
        }
        self.set_usable(slot, false);
        self.leave_ring(slot);
        self.members.at_mut(slot).locality = locality as u32;
        self.enter_ring(slot);
        self.groups[locality].begin(id.slot(), self.members.slots());
        self.restart_turns(slot);
        self.next_spill = now;
        self.on_load(now, slot);
    }

    /// The locality of a request, for [`Balancer::pick_at`]; the nearest without localities. Call
    /// it once for each attempt.
    pub fn route(&mut self, now: Timestamp, criticality: Criticality, rng: &mut impl Random) -> Route {
        match &mut self.spill {
            None => Route::To(0),
            Some(spill) => spill.route(now, criticality, rng),
        }
    }

    /// The state of each locality, nearest first; empty without localities.
    #[must_use]
    pub fn localities(&self, now: Timestamp) -> Vec<LocalitySnapshot> {
        let Some(spill) = &self.spill else { return Vec::new() };
        let localities = self.members.localities(now);
        let both = localities.into_iter().zip(spill.standings(now));
        let all = both.zip(&self.groups);
        all.map(|((locality, standing), group)| LocalitySnapshot { locality, standing, requests: group.picks })
            .collect()
    }

    /// An untried usable backend of the locality `at`; else of another with headroom; else any of
    /// `at`.
    pub(super) fn choose_near(
        &mut self,
        now: Timestamp,
        rng: &mut impl Random,
        at: usize,
        tried: &[BackendId],
        key: Option<HashKey>,
    ) -> Option<u32> {
        let at = at.min(self.groups.len() - 1);
        let found = self.choose_in(now, rng, at, tried, key);
        let is_new = |balancer: &Self, slot: u32| !tried.contains(&balancer.members.id_at(slot));
        if found.is_some_and(|slot| is_new(self, slot)) {
            return found;
        }
        for other in (0..self.groups.len()).filter(|other| *other != at) {
            if self.spill.as_ref().is_some_and(|spill| spill.has_headroom(other))
                && let Some(slot) = self.choose_in(now, rng, other, tried, key)
                && is_new(self, slot)
            {
                return Some(slot);
            }
        }
        found
    }

    /// Passes the utilization of localities to the spill.
    pub(super) fn update_spill(&mut self, now: Timestamp) {
        self.next_spill = now + INTERVAL;
        if let Some(spill) = &mut self.spill {
            spill.update(now, &self.members.localities(now));
        }
    }

    /// Tells the policy `hash` of the backend in `slot`, or of its weight.
    pub(super) fn enter_ring(&mut self, slot: u32) {
        let Some(member) = self.members.occupant(slot) else { return };
        if let AnyPolicy::Hash(policy) = &mut self.groups[member.locality as usize].policy {
            let weight = f64::from(self.members.candidates[slot as usize].inverse_weight).recip();
            policy.join(slot, member.identity, weight);
            policy.on_active(slot, member.active);
        }
    }

    /// Takes the backend in `slot` from the policy `hash`.
    pub(super) fn leave_ring(&mut self, slot: u32) {
        if let AnyPolicy::Hash(policy) = &mut self.groups[self.members.locality(slot)].policy {
            policy.leave(slot);
        }
    }

    /// Restarts the turns of the backend in `slot`: its new locality has another count of picks.
    fn restart_turns(&mut self, slot: u32) {
        let picks = self.groups[self.members.locality(slot)].picks;
        self.members.at_mut(slot).warming.restart_turns(picks);
    }
}

impl Members {
    /// Replaces the localities: each is a former one or new. No backend is usable after this.
    fn rearrange(&mut self, former: &[Option<usize>]) {
        for slot in 0..self.slots() as u32 {
            let was = Some(self.locality(slot));
            let now = former.iter().position(|former| *former == was).unwrap_or(0);
            self.at_mut(slot).locality = now as u32;
        }
        self.usable = former.iter().map(|_| Vec::new()).collect();
        self.reserve();
    }

    /// The counts and utilization of each locality.
    fn localities(&self, now: Timestamp) -> Vec<Locality> {
        let none = Locality { healthy: 0, backends: 0, utilization: None };
        let mut localities = Vec::from_iter(self.usable.iter().map(|_| (none, Vec::new())));
        for (_, member) in self.iter() {
            let (locality, reports) = &mut localities[member.locality as usize];
            locality.backends += 1;
            if member.health.state() != State::Healthy {
                continue;
            }
            locality.healthy += 1;
            let fresh = member.report.filter(|(at, _)| now.since(*at) <= REPORTS_COUNT_FOR);
            if let Some(utilization) = fresh.and_then(|(_, report)| report.utilization()) {
                reports.push(utilization);
            }
        }
        let with_mean =
            |(locality, mut reports): (Locality, Vec<f64>)| Locality { utilization: mean(&mut reports), ..locality };
        localities.into_iter().map(with_mean).collect()
    }
}

/// The mean of utilizations, each capped at the larger of full and twice the median; `None` without
/// any.
fn mean(utilizations: &mut [f64]) -> Option<f64> {
    let most = (MAX_TIMES_MEDIAN * median::lower(utilizations)?).max(1.0);
    let count = utilizations.len() as f64;
    Some(utilizations.iter().map(|utilization| utilization.min(most) / count).sum())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percent_report_of_one_backend_does_not_fill_its_locality() {
        for others in 1..10 {
            let mut reports = alloc::vec![0.5; others];
            reports.push(85.0);
            assert!(mean(&mut reports).is_some_and(|mean| mean <= 0.75), "{reports:?}");
        }
    }

    #[test]
    fn locality_mean_exceeds_one_when_all_backends_are_overloaded() {
        let full = mean(&mut [1.2, 1.5, 1.8]).expect("there are some");
        assert!((full - 1.5).abs() < 1e-9, "{full}");
        assert_eq!((mean(&mut []), mean(&mut [f64::MAX])), (None, Some(f64::MAX)));
    }
}
