//! One cluster as its client sees it: puts health, flow control, slow start and a policy together.
//!
//! A request meets the parts in this order. Those backends are *usable* that the panic rule
//! ([`Scope`]) lets be chosen and that have fewer active requests than flow control allows; the set is
//! kept up to date as things happen, not computed per pick. The policy chooses among them. A choice that is in slow
//! start or failed lately may give way to another backend that is better off. With localities, each has a policy, and
//! usable backends, of its own; health is judged over all of them ([`localities`]).
//!
//! The caller shares one balancer among all threads that send to the cluster, behind one lock: what must be counted
//! together (active requests, health, what reports taught) is here and nothing else is. [`Balancer::pick`] and
//! [`Balancer::finish`] take constant time and do not allocate.
//!
//! # Waking up
//!
//! Call [`Balancer::handle_timeout`] when [`Balancer::poll_timeout`] says so, and whenever convenient before; then
//! [`Balancer::poll_check`] until it returns `None`, and run a check for each backend that it names. Each call
//! that takes an observer may change `poll_timeout`.

mod config;
mod localities;
mod members;
mod snapshot;
#[cfg(test)]
mod tests;
mod timers;
mod upkeep;
mod usable;
mod warming;
mod yielding;

use alloc::vec::Vec;
use core::time::Duration;

use rand_core::Rng;

pub use config::{BalancerConfig, DEFAULT_MAX_ACTIVE_REQUESTS};
pub use localities::LocalitySnapshot;
pub use snapshot::BackendSnapshot;

use crate::health::{Change, CheckOutcome, SharedFaults, State};
use crate::pick::{AnyPolicy, ProbeAnswer};
use crate::spill::Spill;
use crate::{BackendId, Event, LoadReport, Observe, Operation, Timestamp, Weight, rng};
use localities::Group;
use members::Members;
use timers::Timers;
use warming::Warming;

/// Backends that become healthy for the first time within this time of a cluster's first one came with it: nothing says
/// that they are new, and there is nobody warmer to spare them.
const FOUNDING: Duration = Duration::from_secs(1);

/// How a request ended, as far as balancing is concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The backend did what it was asked, or refused it for a reason that is the request's.
    Success,
    /// The backend answered with an error, or the connection broke.
    Failure,
    /// The backend did not answer in time: it hangs, or it is overloaded. Its peers tell which.
    TimedOut,
    /// The backend answered that it has too much to do.
    Overloaded,
    /// The backend refused the request because of a rate limit, most often of the sender (429, RESOURCE_EXHAUSTED). It counts for the
    /// choice of a backend as far as the others answer so less often, and never for ejection.
    RateLimited,
    /// The client went away before the answer was complete: says nothing of the backend.
    Cancelled,
}

/// The end of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Completion {
    /// How it ended.
    pub outcome: Outcome,
    /// From when all of the request was sent to the head of the response; `None` when there was no response.
    pub latency: Option<Duration>,
}

/// What to do with a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pick {
    /// Send it to this backend, where it is now counted as active; [`Balancer::finish`] must follow.
    Backend(BackendId),
    /// Nobody can take it now, but somebody may soon: wait for a bounded time.
    Wait(WaitReason),
    /// Nobody can take it.
    NoBackend,
}

/// Why a request has to wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaitReason {
    /// No backend has been reached yet.
    Starting,
    /// Flow control: each backend that could take it has as many active requests as it may.
    Saturated,
}

/// The backends of one cluster, and the choice among them.
#[derive(Clone, Debug)]
pub struct Balancer {
    config: BalancerConfig,
    members: Members,
    /// One for each locality, nearest first; one without any.
    groups: Vec<Group>,
    /// Decides between localities; `None` without any.
    spill: Option<Spill>,
    next_spill: Timestamp,
    timers: Timers,
    due_checks: Vec<BackendId>,
    panicking: bool,
    /// When the first backend of the cluster became healthy.
    first_healthy: Option<Timestamp>,
    /// Backends with failures and rate limits that fade, by slot, and the index of the next one to
    /// check.
    penalised: Vec<u32>,
    penalised_next: usize,
    next_update: Timestamp,
    /// When weights were last corrected; `None` while they are not in force.
    last_feedback: Option<Timestamp>,
    next_outlier_sweep: Timestamp,
    /// Operations that failed lately.
    faults: SharedFaults,
}

impl Balancer {
    /// A cluster without backends.
    #[must_use]
    pub fn new(config: BalancerConfig) -> Self {
        Self {
            groups: Vec::from([Group::new(&config)]),
            spill: None,
            next_spill: Timestamp::ZERO,
            config,
            members: Members::default(),
            timers: Timers::default(),
            due_checks: Vec::new(),
            panicking: false,
            first_healthy: None,
            penalised: Vec::new(),
            penalised_next: 0,
            next_update: Timestamp::ZERO,
            last_feedback: None,
            next_outlier_sweep: Timestamp::ZERO,
            faults: SharedFaults::default(),
        }
    }

    /// Changes the configuration. What is known of the backends stays: their states, active requests, latencies
    /// and capabilities.
    pub fn set_config(&mut self, now: Timestamp, config: BalancerConfig) {
        for group in &mut self.groups {
            let relearns = match &group.policy {
                AnyPolicy::Prequal(policy) => *policy.config() != config.prequal,
                _ => false,
            };
            if config.policy != self.config.policy || relearns {
                group.policy = AnyPolicy::new(config.policy, config.prequal);
            }
        }
        self.config = config;
        if config.checks.active {
            for id in self.members.iter().map(|(id, _)| id).collect::<Vec<_>>() {
                if let Some(member) = self.members.get_mut(id) {
                    member.health.begin_checks(now);
                }
                self.reschedule(id);
            }
        }
        self.rebuild();
        self.update_weights(now);
    }

    /// Adds a backend, which is checked at once: see [`Balancer::poll_check`]. It is of the nearest locality until
    /// [`Balancer::set_locality`] says another.
    pub fn add(&mut self, now: Timestamp, weight: Weight, observer: &mut impl Observe) -> BackendId {
        let id = self.members.add(now, weight);
        self.groups[0].begin(id.slot(), self.members.slots());
        self.next_spill = now;
        self.penalised.reserve(self.members.slots().saturating_sub(self.penalised.len()));
        self.reschedule(id);
        self.rescope(now, observer);
        id
    }

    /// Takes a backend out. Requests that it still has need not be finished; it is harmless if they are.
    pub fn remove(&mut self, now: Timestamp, id: BackendId, observer: &mut impl Observe) {
        if self.members.get(id).is_none() {
            return;
        }
        self.set_usable(id.slot() as u32, false);
        self.penalised.retain(|slot| *slot as usize != id.slot());
        self.due_checks.retain(|due| *due != id);
        self.members.remove(id);
        self.next_spill = now;
        self.rescope(now, observer);
    }

    /// Chooses a backend for a request and counts it as active there.
    pub fn pick(&mut self, now: Timestamp, rng: &mut impl Rng) -> Pick {
        self.pick_except(now, rng, &[])
    }

    /// Chooses a backend for a further attempt of a request: one that is not in `tried`, unless there is no other.
    pub fn pick_except(&mut self, now: Timestamp, rng: &mut impl Rng, tried: &[BackendId]) -> Pick {
        self.pick_at(now, rng, 0, tried)
    }

    /// Chooses a backend of the locality that [`Balancer::route`] named, preferably none of `tried`; one of another locality that can take
    /// more than it is sent, the nearest first, where that has nobody now.
    pub fn pick_at(&mut self, now: Timestamp, rng: &mut impl Rng, locality: usize, tried: &[BackendId]) -> Pick {
        self.forgive_one(now);
        let chosen = match &self.spill {
            None => self.choose_in(now, rng, 0, tried),
            Some(_) => self.choose_near(now, rng, locality, tried),
        };
        let Some(slot) = chosen else { return self.why_none() };
        let locality = self.members.locality(slot);
        self.groups[locality].picks += 1;
        if let Some(spill) = &mut self.spill {
            spill.sent(now, locality);
        }
        let member = self.members.at_mut(slot);
        member.active += 1;
        member.requests += 1;
        self.on_load(now, slot);
        Pick::Backend(self.members.id_at(slot))
    }

    /// The slot of a usable backend of a locality, preferably none of `tried`; nothing is counted yet.
    fn choose_in(&mut self, now: Timestamp, rng: &mut impl Rng, locality: usize, tried: &[BackendId]) -> Option<u32> {
        if self.members.usable[locality].is_empty() {
            return None;
        }
        let mut slot = self.choose(now, rng, locality);
        if !tried.is_empty() && tried.contains(&self.members.id_at(slot)) {
            // Attempts after the first are rare, and come when a backend is in trouble: a scan is affordable. From anywhere, so
            // that what one backend fails does not all come down on the same other.
            let usable = &self.members.usable[locality];
            let (before, after) = usable.split_at(rng::below(rng, usable.len()));
            let untried = |slot: &&u32| !tried.contains(&self.members.id_at(**slot));
            slot = after.iter().chain(before).find(untried).copied().unwrap_or(slot);
        }
        Some(slot)
    }

    /// A request that was picked for this backend has ended. To be called once for each pick.
    pub fn finish(&mut self, now: Timestamp, id: BackendId, completion: Completion, observer: &mut impl Observe) {
        self.finish_for(now, id, Operation::UNKNOWN, completion, observer);
    }

    /// The same of a request for this operation. A failure that other backends share does not eject this one.
    pub fn finish_for(
        &mut self,
        now: Timestamp,
        id: BackendId,
        operation: Operation,
        completion: Completion,
        observer: &mut impl Observe,
    ) {
        let Some(member) = self.members.get_mut(id) else { return };
        let slot = id.slot() as u32;
        member.active = member.active.saturating_sub(1);
        let mut row = None;
        let was_clean = member.is_clean();
        match completion.outcome {
            Outcome::Success => {
                self.faults.on_success(operation, id);
                member.errors.on_success(now);
                member.outlier.on_success();
            }
            Outcome::RateLimited => {
                member.errors.on_success(now);
                member.outlier.on_success();
            }
            Outcome::Failure => {
                member.failures += 1;
                // For the choice each failure counts, since backends are compared there. Else one
                // that fails at once would draw all requests as soon as another has failed the
                // operation once.
                member.errors.on_failure(now);
                if self.faults.on_failure(operation, id) {
                    row = member.outlier.on_failure(&self.config.outlier);
                }
            }
            Outcome::TimedOut => {
                member.failures += 1;
                member.errors.on_failure(now);
                if self.faults.on_failure(operation, id) {
                    row = member.outlier.on_timeout(&self.config.outlier);
                }
            }
            Outcome::Overloaded => {
                member.failures += 1;
                member.errors.on_overloaded(now);
                member.outlier.on_overloaded();
            }
            Outcome::Cancelled => {}
        }
        if completion.outcome != Outcome::Cancelled {
            self.members.answered(now, slot, completion.outcome == Outcome::RateLimited);
        }
        if was_clean && !self.members.at(slot).is_clean() {
            self.penalised.push(slot);
        }
        if let Some(latency) = completion.latency {
            let estimate = &mut self.members.candidates[slot as usize].latency;
            match completion.outcome {
                Outcome::Success => estimate.on_answer(now, latency),
                Outcome::Failure | Outcome::TimedOut | Outcome::Overloaded | Outcome::RateLimited => {
                    estimate.on_failure(now, latency);
                }
                Outcome::Cancelled => {}
            }
        }
        self.on_load(now, slot);
        if let Some(row) = row {
            self.eject_after_row(now, id, row, observer);
        }
    }

    /// A load report of this backend arrived, with a response, a check or by itself.
    pub fn on_report(&mut self, now: Timestamp, id: BackendId, report: &LoadReport, observer: &mut impl Observe) {
        let limited = self.members.limited;
        let Some(member) = self.members.get_mut(id) else { return };
        let failing = f64::from(member.failing(now, &limited));
        member.capability.on_report(now, report, failing, &self.config.weighted);
        member.report = Some((now, *report));
        if report.lame_duck {
            let change = member.health.on_lame_duck_report(now, &self.config.checks);
            self.apply(now, id, change, observer);
        }
        let policy = &mut self.groups[self.members.locality(id.slot() as u32)].policy;
        if let (AnyPolicy::Prequal(policy), Some(in_flight)) = (policy, report.in_flight) {
            let answer = ProbeAnswer { in_flight, latency: report.latency };
            policy.notes().on_report(now, id.slot() as u32, answer, self.members.candidates[id.slot()].load);
        }
    }

    /// A connection to this backend was set up.
    pub fn on_connected(&mut self, now: Timestamp, id: BackendId, observer: &mut impl Observe) {
        let Some(member) = self.members.get_mut(id) else { return };
        let change = member.health.on_connected(now, &self.config.checks);
        self.apply(now, id, change, observer);
    }

    /// A connection to this backend could not be set up.
    pub fn on_connect_failed(
        &mut self,
        now: Timestamp,
        id: BackendId,
        rng: &mut impl Rng,
        observer: &mut impl Observe,
    ) {
        let Some(member) = self.members.get_mut(id) else { return };
        let change = member.health.on_connect_failed(now, &self.config.backoff, rng);
        self.apply(now, id, change, observer);
    }

    /// The process behind a lame duck has ended (a connection held open to it was closed). Without effect on a backend
    /// that is no lame duck, or that an operator drained.
    pub fn on_gone(&mut self, now: Timestamp, id: BackendId, observer: &mut impl Observe) {
        let Some(member) = self.members.get_mut(id) else { return };
        let change = member.health.on_gone(now);
        self.apply(now, id, change, observer);
    }

    /// A check that [`Balancer::poll_check`] asked for has ended.
    pub fn on_check(
        &mut self,
        now: Timestamp,
        id: BackendId,
        outcome: CheckOutcome,
        rng: &mut impl Rng,
        observer: &mut impl Observe,
    ) {
        let Some(member) = self.members.get_mut(id) else { return };
        let change = member.health.on_check(now, outcome, &self.config.checks, &self.config.backoff, rng);
        self.apply(now, id, change, observer);
    }

    /// Takes the backend out of use until [`Balancer::undrain`]: it finishes what it has.
    pub fn drain(&mut self, now: Timestamp, id: BackendId, observer: &mut impl Observe) {
        let Some(member) = self.members.get_mut(id) else { return };
        let change = member.health.drain(now);
        self.apply(now, id, change, observer);
    }

    /// Ends a drain: the backend is checked at once and used when it passes.
    pub fn undrain(&mut self, now: Timestamp, id: BackendId, observer: &mut impl Observe) {
        let Some(member) = self.members.get_mut(id) else { return };
        let change = member.health.undrain(now);
        self.apply(now, id, change, observer);
    }

    /// When [`Balancer::handle_timeout`] wants to be called next. May name a time that is past, and one at
    /// which there turns out to be nothing to do.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Timestamp> {
        if self.members.is_empty() {
            return None;
        }
        let mut regular = self.next_update.min(self.next_outlier_sweep);
        if self.spill.is_some() {
            regular = regular.min(self.next_spill);
        }
        Some(self.timers.next().map_or(regular, |at| at.min(regular)))
    }

    /// Does what is due at `now`: ends ejections, computes weights, compares success rates, finds checks to run.
    pub fn handle_timeout(&mut self, now: Timestamp, observer: &mut impl Observe) {
        while let Some(id) = self.timers.pop_due(now) {
            let Some(member) = self.members.get_mut(id) else { continue };
            if member.health.wake_at().is_none_or(|at| at > now) {
                // Rescheduled since, by an entry of its own.
                continue;
            }
            let change = member.health.end_ejection(now);
            if member.health.take_check(now) {
                self.due_checks.push(id);
            }
            self.apply(now, id, change, observer);
        }
        if self.next_update <= now {
            self.feed_back(now);
            self.update_weights(now);
        }
        if self.next_outlier_sweep <= now {
            self.sweep_outliers(now, observer);
        }
        if self.next_spill <= now {
            self.see_localities(now);
        }
    }

    /// A backend to check now; its outcome must come to [`Balancer::on_check`].
    pub fn poll_check(&mut self) -> Option<BackendId> {
        self.due_checks.pop()
    }

    /// A backend to ask for its requests in flight and its latency, without delaying any request; its answer goes to
    /// [`Balancer::on_probe`], no later than some milliseconds after. Call after each pick until it returns `None`. Only a
    /// policy that probes, and is told to ([`ProbeSource::Live`](crate::pick::ProbeSource)), ever names one.
    pub fn poll_probe(&mut self, rng: &mut impl Rng) -> Option<BackendId> {
        let mut localities = self.groups.iter_mut().zip(&self.members.usable);
        let slot = localities.find_map(|(group, usable)| match &mut group.policy {
            AnyPolicy::Prequal(policy) if policy.asks() => policy.next_probe(usable, rng),
            _ => None,
        })?;
        Some(self.members.id_at(slot))
    }

    /// A backend that [`Balancer::poll_probe`] named has answered.
    pub fn on_probe(&mut self, now: Timestamp, id: BackendId, answer: ProbeAnswer) {
        let slot = id.slot() as u32;
        if !self.contains(id) || !self.members.is_usable(slot) {
            return;
        }
        let locality = self.members.locality(slot);
        if let AnyPolicy::Prequal(policy) = &mut self.groups[locality].policy {
            policy.on_answer(&self.members.view(now, locality), slot, answer);
        }
    }

    /// Whether `id` is still a member.
    #[must_use]
    pub fn contains(&self, id: BackendId) -> bool {
        self.members.get(id).is_some()
    }

    /// Whether too few backends are healthy, so that verdicts on the others are set aside.
    #[must_use]
    pub fn panicking(&self) -> bool {
        self.panicking
    }

    fn apply(&mut self, now: Timestamp, id: BackendId, change: Option<Change>, observer: &mut impl Observe) {
        self.reschedule(id);
        let Some(Change { from, to, reason }) = change else { return };
        self.members.recount(id);
        self.next_spill = now;
        if to == State::Healthy {
            let first_healthy = *self.first_healthy.get_or_insert(now);
            let group = &mut self.groups[self.members.locality(id.slot() as u32)];
            let picks = group.picks;
            let member = self.members.at_mut(id.slot() as u32);
            let founding = from == State::Connecting && member.requests == 0 && now.since(first_healthy) < FOUNDING;
            member.warming = if founding { Warming::over() } else { Warming::begin(now, picks) };
            if from != State::Ejected {
                // Ejected backends were there all the time; others may be another process now.
                member.capability.reset();
                if let AnyPolicy::Weighted(policy) = &mut group.policy {
                    policy.forget(id.slot());
                }
            }
        }
        observer.observe(now, Event::StateChanged { backend: id, from, to, reason });
        self.on_load(now, id.slot() as u32);
        self.rescope(now, observer);
    }
}
