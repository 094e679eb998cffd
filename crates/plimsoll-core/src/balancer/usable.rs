//! The set of usable backends, kept in step with states, load and the panic threshold.
//!
//! A backend is usable if the panic threshold admits its state and it is below its limit of active
//! requests. Both change one backend at a time, in constant time. Only when the panic threshold is
//! crossed is the whole set computed again.

use super::members::Member;
use super::{Balancer, Pick, WaitReason};
use crate::health::Scope;
use crate::pick::{AnyPolicy, Policy};
use crate::{Event, Observe, Timestamp};

impl Balancer {
    /// Concurrent requests that all backends in scope take together, over all localities.
    #[must_use]
    pub fn capacity(&self) -> u32 {
        let backends = u32::try_from(self.in_scope()).unwrap_or(u32::MAX);
        backends.saturating_mul(self.config.max_active_requests.get())
    }

    /// Further requests that these backends could take now. O(n) in the number of backends.
    #[must_use]
    pub fn free_slots(&self) -> u32 {
        let limit = self.config.max_active_requests.get();
        (0..self.members.slots() as u32)
            .filter(|slot| self.members.is_in_scope(*slot))
            .filter_map(|slot| self.members.occupant(slot))
            .fold(0, |free: u32, member| free.saturating_add(limit.saturating_sub(member.active)))
    }

    fn in_scope(&self) -> usize {
        let census = self.members.census;
        match census.scope(self.config.panic_threshold) {
            Scope::Healthy => census.healthy,
            Scope::Suspects => census.healthy + census.ejected + census.failing,
            Scope::Unreachable => census.candidates(),
        }
    }

    pub(super) fn wait_or_no_backend(&self) -> Pick {
        let census = self.members.census;
        if self.in_scope() > 0 {
            Pick::Wait(WaitReason::Saturated)
        } else if census.connecting > 0 {
            Pick::Wait(WaitReason::Starting)
        } else {
            Pick::NoBackend
        }
    }

    /// Updates the load that policies see, and usability, from the active requests of `slot`.
    pub(super) fn on_load(&mut self, now: Timestamp, slot: u32) {
        let member = self.members.at(slot);
        let policy = &mut self.groups[member.locality as usize].policy;
        let (active, load) = (member.active, member.load(now, policy.penalty_unit(), &self.members.limited));
        self.members.candidates[slot as usize].load = load;
        if let AnyPolicy::Hash(policy) = policy {
            policy.on_active(slot, active);
        }
        let wanted = self.members.is_in_scope(slot) && active < self.config.max_active_requests.get();
        if wanted != self.members.is_usable(slot) {
            self.set_usable(slot, wanted);
        } else if wanted {
            policy.on_load(slot, &self.members.candidates[slot as usize]);
        }
    }

    pub(super) fn set_usable(&mut self, slot: u32, usable: bool) {
        if !self.members.set_usable(slot, usable) {
            return;
        }
        let policy = &mut self.groups[self.members.locality(slot)].policy;
        if usable {
            policy.on_usable(slot, &self.members.candidates[slot as usize]);
        } else {
            policy.on_unusable(slot);
        }
    }

    /// Applies the panic threshold after the counts by state have changed.
    pub(super) fn rescope(&mut self, now: Timestamp, observer: &mut impl Observe) {
        let census = self.members.census;
        let scope = census.scope(self.config.panic_threshold);
        let (healthy, candidates) = (census.healthy, census.candidates());
        let panicking = scope != Scope::Healthy;
        if panicking != self.panicking {
            self.panicking = panicking;
            let event = if panicking {
                Event::PanicBegan { healthy, candidates }
            } else {
                Event::PanicEnded { healthy, candidates }
            };
            observer.observe(now, event);
        }
        if scope != self.members.scope {
            self.rebuild();
        }
    }

    /// Computes the usable set again: O(n), when the scope or the configuration changes.
    pub(super) fn rebuild(&mut self) {
        self.members.scope = self.members.census.scope(self.config.panic_threshold);
        for slot in 0..self.members.slots() as u32 {
            let below_limit = |member: &Member| member.active < self.config.max_active_requests.get();
            let wanted = self.members.occupant(slot).is_some_and(below_limit) && self.members.is_in_scope(slot);
            self.set_usable(slot, false);
            self.set_usable(slot, wanted);
        }
    }
}
