//! Periodic work of the balancer, as opposed to work on events.
//!
//! Weights and success rates compare all backends, in O(n), about once a second and every ten
//! seconds. Penalties fade by one backend per pick.

use super::Balancer;
use super::members::Member;
use crate::health::{Reason, Row, State, SuccessRateFloor, Tally, has_capacity};
use crate::pick::AnyPolicy;
use crate::{BackendId, Observe, Timestamp};

impl Balancer {
    /// Updates one backend with recent failures or rate limits, so that its penalty fades without
    /// events. One backend per pick keeps a pick at constant time.
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

    /// Corrects weights by the utilization since the last time.
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
                    self.members.cap_capabilities(locality, most);
                }
            }
        }
    }

    /// Ejects outliers by their success rate in the interval that ends, and begins the next
    /// interval.
    pub(super) fn sweep_outliers(&mut self, now: Timestamp, observer: &mut impl Observe) {
        self.next_outlier_sweep = now + self.config.outlier.interval;
        self.eject_by_success_rate(now, observer);
        for member in self.members.iter_mut() {
            let ejected = member.health.state() == State::Ejected;
            member.outlier.next_interval(ejected);
        }
    }

    fn eject_by_success_rate(&mut self, now: Timestamp, observer: &mut impl Observe) {
        let config = self.config.outlier;
        let rates = self.members.healthy().filter_map(|(_, member)| member.outlier.success_rate(&config));
        let Some(floor) = SuccessRateFloor::new(&config, rates) else { return };
        let add = |all: Tally, (_, member): (_, &Member)| all.with(&member.outlier.tally);
        let all = self.members.healthy().fold(Tally::default(), add);
        for slot in 0..self.members.slots() as u32 {
            let Some(member) = self.members.occupant(slot).filter(|member| member.is_healthy()) else { continue };
            let is_outlier = member.outlier.success_rate(&config).is_some_and(|rate| floor.is_outlier(rate));
            let tally = member.outlier.tally;
            if is_outlier && tally.is_fault(&all.without(&tally)) && self.peers_have_capacity(now, slot) {
                self.eject(now, self.members.id_at(slot), Reason::SuccessRate, observer);
            }
        }
    }

    /// Whether the healthy peers of `slot` can take its load, according to recent reports.
    fn peers_have_capacity(&self, now: Timestamp, slot: u32) -> bool {
        let recent = self.config.outlier.interval;
        let peers = self.members.healthy_peers(slot);
        let utilization = peers.filter_map(|peer| {
            let (_, report) = peer.report.filter(|(at, _)| now.since(*at) <= recent)?;
            report.utilization()
        });
        has_capacity(utilization, self.members.census.healthy)
    }

    /// Ejects the backend after a row of failures, if they are its own fault.
    pub(super) fn eject_after_row(&mut self, now: Timestamp, id: BackendId, row: Row, observer: &mut impl Observe) {
        // The cheap test first: in an outage each failure comes here.
        if !self.may_eject(id) {
            return;
        }
        let peers = self.members.healthy_peers(id.slot() as u32);
        if row.is_fault(peers.map(|peer| peer.outlier.as_peer())) {
            self.eject(now, id, Reason::ConsecutiveFailures, observer);
        }
    }

    fn may_eject(&self, id: BackendId) -> bool {
        let census = self.members.census;
        let is_healthy = self.members.get(id).is_some_and(Member::is_healthy);
        is_healthy && self.config.outlier.allows(self.members.len(), census.healthy, census.ejected)
    }

    fn eject(&mut self, now: Timestamp, id: BackendId, reason: Reason, observer: &mut impl Observe) {
        if !self.may_eject(id) {
            return;
        }
        let Some(member) = self.members.get_mut(id) else { return };
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
