//! What has to be looked at now and then, rather than when something happens.
//!
//! Weights and success rates compare all backends, O(n), about once a second and every ten; penalties fade one
//! backend per pick.

use super::Balancer;
use crate::health::{Reason, State, SuccessRateFloor};
use crate::pick::AnyPolicy;
use crate::{BackendId, Observe, Timestamp};

impl Balancer {
    /// Looks at one of the backends with recent failures or rate limits, so that their penalty fades though nothing happens to
    /// them. One per pick keeps a pick at constant time.
    pub(super) fn forgive_one(&mut self, now: Timestamp) {
        if self.penalised.is_empty() {
            return;
        }
        if self.penalised_next >= self.penalised.len() {
            self.penalised_next = 0;
        }
        let slot = self.penalised[self.penalised_next];
        if self.members.forgive(now, slot) {
            self.penalised.swap_remove(self.penalised_next);
        } else {
            self.penalised_next += 1;
        }
        self.on_load(now, slot);
    }

    /// Corrects weights by what utilization has come to since the last time.
    pub(super) fn feed_back(&mut self, now: Timestamp) {
        let is_weighted = matches!(self.groups[0].policy, AnyPolicy::Weighted(_));
        let in_force = is_weighted && !self.config.weighted.feedback.is_zero();
        let last = core::mem::replace(&mut self.last_feedback, in_force.then_some(now));
        if in_force {
            self.members.feed_back(now, last, &self.config);
        }
    }

    pub(super) fn update_weights(&mut self, now: Timestamp) {
        self.next_update = now + self.config.weighted.update;
        for (locality, group) in self.groups.iter_mut().enumerate() {
            if let AnyPolicy::Weighted(policy) = &mut group.policy {
                let members = &self.members;
                policy.reserve(members.slots());
                let most = policy.update(
                    members.capabilities(now, locality, &self.config.weighted),
                    |slot| {
                        let is_here = members.locality(slot as u32) == locality;
                        if is_here { f64::from(members.candidates[slot].inverse_weight).recip() } else { 0.0 }
                    },
                    &members.usable[locality],
                    &members.candidates,
                );
                if let Some(most) = most {
                    self.members.hold_capabilities(locality, most);
                }
            }
        }
    }

    pub(super) fn sweep_outliers(&mut self, now: Timestamp, observer: &mut impl Observe) {
        self.next_outlier_sweep = now + self.config.outlier.interval;
        let config = self.config.outlier;
        let rates = self.members.iter().filter_map(|(_, member)| member.outlier.success_rate(&config));
        if let Some(floor) = SuccessRateFloor::new(&config, rates) {
            for slot in 0..self.members.slots() as u32 {
                let rate = self.members.occupant(slot).and_then(|member| member.outlier.success_rate(&config));
                if rate.is_some_and(|rate| floor.is_outlier(rate)) {
                    self.eject(now, self.members.id_at(slot), Reason::SuccessRate, observer);
                }
            }
        }
        for member in self.members.iter_mut() {
            let ejected = member.health.state() == State::Ejected;
            member.outlier.next_interval(ejected);
        }
    }

    pub(super) fn eject(&mut self, now: Timestamp, id: BackendId, reason: Reason, observer: &mut impl Observe) {
        let census = self.members.census;
        if !self.config.outlier.allows(self.members.len(), census.healthy, census.ejected) {
            return;
        }
        let Some(member) = self.members.get_mut(id) else { return };
        if member.health.state() != State::Healthy {
            return;
        }
        let until = member.outlier.eject(now, &self.config.outlier);
        let change = member.health.eject(now, until, reason);
        self.apply(now, id, change, observer);
    }

    pub(super) fn reschedule(&mut self, id: BackendId) {
        let Some(member) = self.members.get_mut(id) else { return };
        let at = member.health.wake_at();
        if at != member.scheduled {
            member.scheduled = at;
            if let Some(at) = at {
                self.timers.push(at, id);
            }
        }
    }
}
