//! Localities of a cluster: in which of them a backend is chosen, and what is told of each to [`Spill`].
//!
//! Each locality has usable backends and a policy of its own, so that a policy goes on to see backends only that may be chosen.
//! The rest is common to all: one table of backends, one census, one judge of health. A balancer for each locality would be the
//! obvious way, but a backend that is given another locality by a reload would lose its state and its requests in flight
//! there, and whoever calls would need a second kind of id. And the panic rule should look at all: where most of
//! *one* locality is ill it is drained, and nobody need be chosen that fails its checks.
//!
//! How full a locality is, is the mean of what its healthy backends reported in the last seconds ([`REPORTS_COUNT_FOR`]); how many are
//! healthy is known at once, by their states. Both are looked at once a second, and when a state has changed. In the mean nobody is more than
//! full, or twice as full as the median: else one backend that speaks of percent (85 and not 0.85) would have its whole locality
//! taken for hopelessly overloaded.

use alloc::vec::Vec;
use core::time::Duration;

use rand_core::Rng;

use super::members::Members;
use super::{Balancer, BalancerConfig};
use crate::health::State;
use crate::pick::AnyPolicy;
use crate::spill::{Locality, Route, Spill, SpillConfig, Standing};
use crate::{BackendId, Criticality, Timestamp, median};

/// Between two looks at all backends. A quarter of what rooms are smoothed over would see no more.
const INTERVAL: Duration = Duration::from_secs(1);
/// What a backend said longer ago says nothing of how full it is: two of the half-lives of what is sent, and a little.
const REPORTS_COUNT_FOR: Duration = Duration::from_secs(5);
/// A backend counts as at most so many times as full as the median: as unequal as backends of one locality may be in earnest.
const MOST_OF_MEDIAN: f64 = 2.0;

/// Who of a locality is next.
#[derive(Clone, Debug)]
pub(super) struct Group {
    pub(super) policy: AnyPolicy,
    /// Requests for which one of its backends was chosen.
    pub(super) picks: u64,
}

/// What the balancer knows of one locality.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LocalitySnapshot {
    /// How many backends it has, and how full they are.
    pub locality: Locality,
    /// What it can take, and gets.
    pub standing: Standing,
    /// Attempts for which one of its backends was chosen.
    pub requests: u64,
}

impl Group {
    pub(super) fn new(config: &BalancerConfig) -> Self {
        Self { policy: AnyPolicy::new(config.policy, config.prequal), picks: 0 }
    }

    /// A backend is new here: nothing is known of whoever had its slot.
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
    /// Has so many localities from now on, nearest first, or none. Each is one of those that there were, which keeps what is known of it
    /// and its backends, or is new; backends of those that are gone are of the nearest until [`Balancer::set_locality`] says another.
    pub fn set_localities(&mut self, now: Timestamp, former: &[Option<usize>], config: SpillConfig) {
        for slot in 0..self.members.slots() as u32 {
            self.set_usable(slot, false);
        }
        let known = core::mem::take(&mut self.groups);
        // Without localities, what was learned of the only group, or the nearest, is as good for all.
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
        for slot in 0..self.members.slots() as u32 {
            self.recount_turns(slot);
        }
        self.rebuild();
        self.update_weights(now);
    }

    /// Says in which locality a backend is, 0 is the nearest; a further one than there are is the furthest. All that is known of it
    /// stays.
    pub fn set_locality(&mut self, now: Timestamp, id: BackendId, locality: usize) {
        let locality = locality.min(self.groups.len() - 1);
        let slot = id.slot() as u32;
        if !self.contains(id) || self.members.locality(slot) == locality {
            return;
        }
        self.set_usable(slot, false);
        self.members.at_mut(slot).locality = locality as u32;
        self.groups[locality].begin(id.slot(), self.members.slots());
        self.recount_turns(slot);
        self.next_spill = now;
        self.on_load(now, slot);
    }

    /// Which locality a request goes to, for [`Balancer::pick_at`]; the nearest without localities. Ask once for each attempt.
    pub fn route(&mut self, now: Timestamp, criticality: Criticality, rng: &mut impl Rng) -> Route {
        match &mut self.spill {
            None => Route::To(0),
            Some(spill) => spill.route(now, criticality, rng),
        }
    }

    /// How each locality stands, nearest first; nothing without localities.
    #[must_use]
    pub fn localities(&self, now: Timestamp) -> Vec<LocalitySnapshot> {
        let Some(spill) = &self.spill else { return Vec::new() };
        let localities = self.members.localities(now);
        let both = localities.into_iter().zip(spill.standings(now));
        let all = both.zip(&self.groups);
        all.map(|((locality, standing), group)| LocalitySnapshot { locality, standing, requests: group.picks })
            .collect()
    }

    /// A usable backend of the locality `at` that was not tried; else one of another that can take more; else any of `at`.
    pub(super) fn choose_near(
        &mut self,
        now: Timestamp,
        rng: &mut impl Rng,
        at: usize,
        tried: &[BackendId],
    ) -> Option<u32> {
        let at = at.min(self.groups.len() - 1);
        let found = self.choose_in(now, rng, at, tried);
        let is_new = |balancer: &Self, slot: u32| !tried.contains(&balancer.members.id_at(slot));
        if found.is_some_and(|slot| is_new(self, slot)) {
            return found;
        }
        for other in (0..self.groups.len()).filter(|other| *other != at) {
            if self.spill.as_ref().is_some_and(|spill| spill.takes_more(other))
                && let Some(slot) = self.choose_in(now, rng, other, tried)
                && is_new(self, slot)
            {
                return Some(slot);
            }
        }
        found
    }

    /// Tells how full localities are.
    pub(super) fn see_localities(&mut self, now: Timestamp) {
        self.next_spill = now + INTERVAL;
        if let Some(spill) = &mut self.spill {
            spill.update(now, &self.members.localities(now));
        }
    }

    /// The backend in `slot` is among others now, whose picks are counted apart.
    fn recount_turns(&mut self, slot: u32) {
        let picks = self.groups[self.members.locality(slot)].picks;
        self.members.at_mut(slot).warming.recount(picks);
    }
}

impl Members {
    /// So many localities, each one of before or a new one; nobody is usable.
    fn rearrange(&mut self, former: &[Option<usize>]) {
        for slot in 0..self.slots() as u32 {
            let was = Some(self.locality(slot));
            let now = former.iter().position(|former| *former == was).unwrap_or(0);
            self.at_mut(slot).locality = now as u32;
        }
        self.usable = former.iter().map(|_| Vec::new()).collect();
        self.reserve();
    }

    /// How each locality is.
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

/// The mean of utilizations of which none counts as more than full or twice the median; `None` without any.
fn mean(utilizations: &mut [f64]) -> Option<f64> {
    let most = (MOST_OF_MEDIAN * median::lower(utilizations)?).max(1.0);
    let count = utilizations.len() as f64;
    Some(utilizations.iter().map(|utilization| utilization.min(most) / count).sum())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_backend_that_speaks_of_percent_does_not_fill_its_locality() {
        for others in 1..10 {
            let mut reports = alloc::vec![0.5; others];
            reports.push(85.0);
            assert!(mean(&mut reports).is_some_and(|mean| mean <= 0.75), "{reports:?}");
        }
    }

    #[test]
    fn backends_that_are_all_too_full_are() {
        let full = mean(&mut [1.2, 1.5, 1.8]).expect("there are some");
        assert!((full - 1.5).abs() < 1e-9, "{full}");
        assert_eq!((mean(&mut []), mean(&mut [f64::MAX])), (None, Some(f64::MAX)));
    }
}
