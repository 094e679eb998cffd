//! Checks of backends that UDP probes observe: the actions of a [`Prober`](crate::probe::Prober).

use rand_core::Rng;

use super::Balancer;
use crate::{BackendId, Timestamp};

impl Balancer {
    /// Stops the checks of a backend until [`Balancer::resume_checks`], because probes replace them.
    pub fn pause_checks(&mut self, id: BackendId) {
        let Some(member) = self.members.get_mut(id) else { return };
        member.health.pause_checks();
        self.reschedule(id);
    }

    /// Goes on with the checks of a backend.
    pub fn resume_checks(&mut self, now: Timestamp, id: BackendId, rng: &mut impl Rng) {
        let Some(member) = self.members.get_mut(id) else { return };
        member.health.resume_checks(now, &self.config.checks, rng);
        self.reschedule(id);
    }

    /// Has a backend checked now, even if its checks are paused. Its failure makes the backend
    /// refusing at once. No effect on a drained backend, or while a check runs.
    pub fn request_check(&mut self, now: Timestamp, id: BackendId) {
        let Some(member) = self.members.get_mut(id) else { return };
        member.health.request_check(now);
        self.reschedule(id);
    }
}
