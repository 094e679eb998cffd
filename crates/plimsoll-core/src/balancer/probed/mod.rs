//! UDP probes of the backends: their results become health, reports and queries.
//!
//! Each backend has a [`Prober`], which sees the events of its connections, checks and requests. Its
//! actions take effect here. The caller sends the queries of [`Balancer::poll_query`] and passes
//! answers and notices in.
//!
//! A backend is inactive only while it is healthy: checks of an unreachable one bring it back, and
//! must not stop. A pick wakes it, and so does any change to another state.

mod census;
mod table;
#[cfg(test)]
mod tests;

use alloc::boxed::Box;
use alloc::vec::Vec;

pub use census::{ProbeCensus, ProbeCounts, ProbeSnapshot};
pub(super) use table::Probes;

use super::Balancer;
use super::members::Member;
use crate::health::{CheckOutcome, State};
use crate::probe::{
    Action, Answer, Authenticity, Notice, Path, Prober, ProberConfig, Purpose, Query, Traffic, Verdict,
};
use crate::{BackendId, Event, Observe, Random, Timestamp};

impl Balancer {
    /// Switches probes on, changes their settings, or switches them off. [`Balancer::probe`] begins
    /// them for each backend.
    pub fn set_probes(&mut self, now: Timestamp, config: Option<ProberConfig>, rng: &mut impl Random) {
        match (config, &mut self.probes) {
            (Some(config), Some(probes)) => probes.config = config,
            (Some(config), None) => self.probes = Some(Box::new(Probes::new(config))),
            (None, _) => {
                let ids: Vec<BackendId> = self.members.iter().map(|(id, _)| id).collect();
                ids.into_iter().for_each(|id| self.end_probes(now, id, rng));
                self.probes = None;
            }
        }
    }

    /// Begins to probe a backend at this TCP port, unless it is probed already. No effect while
    /// probes are off.
    pub fn probe(&mut self, now: Timestamp, id: BackendId, port: u16) {
        let (Some(probes), Some(member)) = (&mut self.probes, self.members.get(id)) else { return };
        if probes.entry(id).is_some() {
            return;
        }
        let mut prober = Prober::new(port);
        if matches!(member.health.state(), State::Healthy | State::Ejected) {
            prober.on_connected(now);
        }
        probes.insert(id, prober);
    }

    /// Ends the probes of a backend: its checks go on.
    pub fn end_probes(&mut self, now: Timestamp, id: BackendId, rng: &mut impl Random) {
        if self.forget_prober(id) {
            self.resume_checks(now, id, rng);
        }
    }

    /// Does the work of probes that is due at `now`. Call it beside [`Balancer::handle_timeout`];
    /// then send the queries of [`Balancer::poll_query`].
    pub fn handle_probes(&mut self, now: Timestamp, rng: &mut impl Random, observer: &mut impl Observe) {
        while let Some(id) = self.probes.as_mut().and_then(|probes| probes.pop_due(now)) {
            self.on_probed(now, id, rng, observer, |prober, config, traffic, rng, actions| {
                prober.poll(now, config, traffic, rng, actions);
            });
        }
    }

    /// A query to send to the UDP port of a backend. Call it until it returns `None`, after
    /// [`Balancer::handle_probes`] and each event of probes.
    pub fn poll_query(&mut self) -> Option<(BackendId, Query)> {
        self.probes.as_mut()?.queries.pop_front()
    }

    /// Whether [`Balancer::poll_query`] has a query: a pick may cause one.
    #[must_use]
    pub fn has_queries(&self) -> bool {
        self.probes.as_ref().is_some_and(|probes| !probes.queries.is_empty())
    }

    /// Takes an answer with a valid MAC from the address of this backend.
    pub fn on_probe_answer(
        &mut self,
        now: Timestamp,
        id: BackendId,
        answer: &Answer,
        rng: &mut impl Random,
        observer: &mut impl Observe,
    ) {
        let verdict = self.on_probed(now, id, rng, observer, |prober, config, traffic, rng, actions| {
            let verdict = prober.on_answer(now, answer, config, rng, actions);
            // The answer may show that the backend can become inactive.
            prober.poll(now, config, traffic, rng, actions);
            verdict
        });
        self.count(|counts| match verdict {
            Some(Verdict::Believed) => counts.answers += 1,
            _ => counts.doubted += 1,
        });
    }

    /// Takes a notice from the address of this backend.
    pub fn on_probe_notice(
        &mut self,
        now: Timestamp,
        id: BackendId,
        notice: &Notice,
        authenticity: Authenticity,
        rng: &mut impl Random,
        observer: &mut impl Observe,
    ) {
        let verdict = self.on_probed(now, id, rng, observer, |prober, config, _, rng, actions| {
            prober.on_notice(now, notice, authenticity, config, rng, actions)
        });
        self.count(|counts| match verdict {
            Some(Verdict::Believed) => counts.notices += 1,
            _ => counts.doubted += 1,
        });
    }

    /// A check brought a key that this backend did not have before. Call it before
    /// [`Balancer::on_check`].
    pub fn on_new_probe_key(
        &mut self,
        now: Timestamp,
        id: BackendId,
        rng: &mut impl Random,
        observer: &mut impl Observe,
    ) {
        self.on_probed(now, id, rng, observer, |prober, _, _, _, actions| prober.on_new_key(now, actions));
    }

    /// The machine of this backend answered a query with a closed UDP port.
    pub fn on_query_refused(
        &mut self,
        now: Timestamp,
        id: BackendId,
        rng: &mut impl Random,
        observer: &mut impl Observe,
    ) {
        self.count(|counts| counts.refused += 1);
        self.on_probed(now, id, rng, observer, |prober, config, _, rng, actions| {
            prober.on_refused(now, config, rng, actions);
        });
    }

    /// Whether probes replace the checks of this backend, and a watch over a lame duck.
    #[must_use]
    pub fn is_observed(&self, id: BackendId) -> bool {
        self.prober(id).is_some_and(Prober::replaces_checks)
    }

    /// The probes of a backend; `None` if it is not probed.
    #[must_use]
    pub fn probe_of(&self, id: BackendId) -> Option<ProbeSnapshot> {
        self.prober(id).map(ProbeSnapshot::of)
    }

    /// Counts since probes were switched on; `None` while they are off.
    #[must_use]
    pub fn probe_counts(&self) -> Option<ProbeCounts> {
        self.probes.as_ref().map(|probes| probes.counts)
    }

    /// Probed backends by their path.
    #[must_use]
    pub fn probe_census(&self) -> ProbeCensus {
        self.probes.as_ref().map(|probes| probes.census).unwrap_or_default()
    }

    /// Sends the queries that the policy `prequal` wants after a pick.
    pub(super) fn query_for_policy(&mut self, now: Timestamp, rng: &mut impl Random) {
        while let Some(id) = self.poll_probe(rng) {
            self.on_probed(now, id, rng, &mut (), |prober, config, _, rng, actions| {
                prober.ask(now, config, rng, actions);
            });
        }
    }

    pub(super) fn tell_prober_of_connection(&mut self, now: Timestamp, id: BackendId) {
        if let Some(probes) = &mut self.probes {
            probes.tell(id, |prober| prober.on_connected(now));
        }
    }

    pub(super) fn tell_prober_of_check(
        &mut self,
        now: Timestamp,
        id: BackendId,
        outcome: CheckOutcome,
        rng: &mut impl Random,
        observer: &mut impl Observe,
    ) {
        self.on_probed(now, id, rng, observer, |prober, _, _, rng, actions| {
            prober.on_check(now, outcome, rng, actions);
        });
    }

    /// A request goes to an inactive backend.
    #[cold]
    pub(super) fn wake(&mut self, now: Timestamp, id: BackendId, rng: &mut impl Random) {
        self.count(|counts| counts.woken += 1);
        self.on_probed(now, id, rng, &mut (), |prober, config, _, _, actions| {
            prober.wake(now, config, actions);
        });
    }

    /// A backend is no longer healthy: it needs checks, even if it was inactive.
    pub(super) fn wake_unhealthy(&mut self, now: Timestamp, id: BackendId) {
        let Some(probes) = &mut self.probes else { return };
        let config = probes.config;
        let replaces_checks = probes.tell(id, |prober| {
            prober.wake(now, &config, &mut Vec::new());
            prober.replaces_checks()
        });
        if let (Some(replaces_checks), Some(member)) = (replaces_checks, self.members.get_mut(id)) {
            member.is_inactive = false;
            if !replaces_checks {
                member.health.end_pause();
            }
            self.reschedule(id);
        }
    }

    /// The outcome of a check as probes let it count. A TCP check cannot see that a server wants no
    /// requests, and one may have begun before the server said so.
    pub(super) fn judged(&self, id: BackendId, outcome: CheckOutcome) -> CheckOutcome {
        let wants_none = self.prober(id).is_some_and(|prober| prober.path() == Path::Works && prober.is_unready());
        if outcome == CheckOutcome::Passed && wants_none { CheckOutcome::NotServing } else { outcome }
    }

    /// Returns whether the backend was probed.
    pub(super) fn forget_prober(&mut self, id: BackendId) -> bool {
        if let Some(member) = self.members.get_mut(id) {
            member.is_inactive = false;
        }
        self.probes.as_mut().is_some_and(|probes| probes.remove(id))
    }

    fn prober(&self, id: BackendId) -> Option<&Prober> {
        self.probes.as_ref()?.entry(id).map(|entry| &entry.prober)
    }

    fn count(&mut self, count: impl FnOnce(&mut ProbeCounts)) {
        if let Some(probes) = &mut self.probes {
            count(&mut probes.counts);
        }
    }

    /// Gives an event to the prober of a backend, and lets its actions take effect.
    fn on_probed<R: Random, T>(
        &mut self,
        now: Timestamp,
        id: BackendId,
        rng: &mut R,
        observer: &mut impl Observe,
        event: impl FnOnce(&mut Prober, &ProberConfig, &Traffic, &mut R, &mut Vec<Action>) -> T,
    ) -> Option<T> {
        let (probes, member) = (self.probes.as_mut()?, self.members.get(id)?);
        probes.entry(id)?;
        let config = probes.config;
        let traffic = Traffic {
            last_request: member.last_used,
            in_flight: member.active,
            // Checks of a backend that is not healthy must go on.
            last_success: member.last_success.filter(|_| member.is_healthy()),
        };
        let mut actions = core::mem::take(&mut probes.actions);
        let told = probes.tell(id, |prober| {
            let result = event(prober, &config, &traffic, rng, &mut actions);
            (result, prober.is_inactive(), prober.is_unready())
        });
        let (result, is_inactive, is_unready) = told?;
        if let Some(member) = self.members.get_mut(id) {
            member.is_inactive = is_inactive;
        }
        for action in actions.drain(..) {
            self.act(now, id, action, rng, observer);
        }
        if is_unready && self.members.get(id).is_some_and(Member::is_healthy) {
            // A connection or check that began earlier may have healed it.
            self.on_unready(now, id, observer);
        }
        if let Some(probes) = &mut self.probes {
            probes.actions = actions;
        }
        Some(result)
    }

    fn act(
        &mut self,
        now: Timestamp,
        id: BackendId,
        action: Action,
        rng: &mut impl Random,
        observer: &mut impl Observe,
    ) {
        match action {
            Action::Send(query) => {
                let Some(probes) = &mut self.probes else { return };
                probes.counts.queries += u64::from(matches!(query.purpose, Purpose::Ask { .. }));
                probes.queries.push_back((id, query));
            }
            // Pools close connections that are idle for as long by themselves.
            Action::CloseConnections => {}
            Action::PauseChecks => self.pause_checks(id),
            Action::ResumeChecks => self.resume_checks(now, id, rng),
            Action::CheckNow => self.request_check(now, id),
            Action::Report(report) => self.on_report(now, id, &report, observer),
            Action::StopRequests(_) => self.on_unready(now, id, observer),
            Action::ProcessEnded => self.on_process_ended(now, id, observer),
            Action::PathSilent(cause) => observer.observe(now, Event::ProbesSilent { backend: id, cause }),
        }
    }

    fn on_unready(&mut self, now: Timestamp, id: BackendId, observer: &mut impl Observe) {
        let Some(member) = self.members.get_mut(id) else { return };
        let change = member.health.on_lame_duck_report(now, &self.config.checks);
        self.apply(now, id, change, observer);
    }

    /// Stops the checks of a backend, because probes replace them.
    fn pause_checks(&mut self, id: BackendId) {
        let Some(member) = self.members.get_mut(id) else { return };
        member.health.pause_checks();
        self.reschedule(id);
    }

    fn resume_checks(&mut self, now: Timestamp, id: BackendId, rng: &mut impl Random) {
        let Some(member) = self.members.get_mut(id) else { return };
        member.health.resume_checks(now, &self.config.checks, rng);
        self.reschedule(id);
    }

    /// Has a backend checked now, even if its checks are paused. Its failure makes the backend
    /// refusing at once. No effect on a drained backend, or while a check runs.
    fn request_check(&mut self, now: Timestamp, id: BackendId) {
        let Some(member) = self.members.get_mut(id) else { return };
        member.health.request_check(now);
        self.reschedule(id);
    }
}
