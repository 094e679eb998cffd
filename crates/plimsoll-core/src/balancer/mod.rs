//! One cluster as its client sees it: puts health, flow control, slow start and a policy together.
//!
//! A request meets the parts in this order. Those backends are *usable* that the panic rule
//! ([`Scope`]) lets be chosen and that have fewer active requests than flow control allows; the set is
//! kept up to date as things happen, not computed per pick. The policy chooses among them. A backend in slow start,
//! or with recent failures, is kept with a probability below one, else the policy chooses again.
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
mod members;
mod snapshot;
#[cfg(test)]
mod tests;
mod timers;

use alloc::vec::Vec;
use core::time::Duration;

use rand_core::Rng;

pub use config::{BalancerConfig, DEFAULT_MAX_ACTIVE_REQUESTS};
pub use snapshot::BackendSnapshot;

use crate::health::{Change, CheckOutcome, Reason, Scope, State, SuccessRateFloor};
use crate::pick::{AnyPolicy, Policy, View};
use crate::{BackendId, Event, LoadReport, Observe, Timestamp, Weight, rng};
use members::{Member, Members};
use timers::Timers;

/// How often a policy is asked before its choice is kept in spite of slow start or failures.
const DRAWS: u32 = 4;

/// How a request ended, as far as balancing is concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The backend did what it was asked, or refused it for a reason that is the request's.
    Success,
    /// The backend failed, or did not answer in time.
    Failure,
    /// The backend answered that it has too much to do.
    Overloaded,
    /// The client went away before the answer was complete: says nothing of the backend.
    Cancelled,
}

/// The end of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Completion {
    /// How it ended.
    pub outcome: Outcome,
    /// From the pick to the head of the response; `None` when there was no response.
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
    policy: AnyPolicy,
    timers: Timers,
    due_checks: Vec<BackendId>,
    panicking: bool,
    /// Backends whose failures are being forgiven, by slot, and whose turn it is to be looked at.
    penalised: Vec<u32>,
    penalised_next: usize,
    next_update: Timestamp,
    next_outlier_sweep: Timestamp,
}

impl Balancer {
    /// A cluster without backends.
    #[must_use]
    pub fn new(config: BalancerConfig) -> Self {
        Self {
            policy: AnyPolicy::new(config.policy),
            config,
            members: Members::default(),
            timers: Timers::default(),
            due_checks: Vec::new(),
            panicking: false,
            penalised: Vec::new(),
            penalised_next: 0,
            next_update: Timestamp::ZERO,
            next_outlier_sweep: Timestamp::ZERO,
        }
    }

    /// Changes the configuration. What is known of the backends stays: their states, active requests, latencies
    /// and capabilities.
    pub fn set_config(&mut self, now: Timestamp, config: BalancerConfig) {
        if config.policy != self.config.policy {
            self.policy = AnyPolicy::new(config.policy);
        }
        self.config = config;
        self.rebuild();
        self.update_weights(now);
    }

    /// Adds a backend, which is checked at once: see [`Balancer::poll_check`].
    pub fn add(&mut self, now: Timestamp, weight: Weight, observer: &mut impl Observe) -> BackendId {
        let id = self.members.add(now, weight);
        if let AnyPolicy::Weighted(policy) = &mut self.policy {
            policy.reserve(self.members.slots());
            policy.forget(id.slot());
        }
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
        self.members.remove(id);
        self.rescope(now, observer);
    }

    /// Chooses a backend for a request and counts it as active there.
    pub fn pick(&mut self, now: Timestamp, rng: &mut impl Rng) -> Pick {
        self.pick_except(now, rng, &[])
    }

    /// Chooses a backend for a further attempt of a request: one that is not in `tried`, unless there is no other.
    pub fn pick_except(&mut self, now: Timestamp, rng: &mut impl Rng, tried: &[BackendId]) -> Pick {
        self.forgive_one(now);
        if self.members.usable.is_empty() {
            return self.why_none();
        }
        let mut slot = self.choose(now, rng);
        if tried.iter().any(|id| id.slot() == slot as usize) {
            let untried = |slot: &u32| tried.iter().all(|id| id.slot() != *slot as usize);
            // Attempts after the first are rare, and come when a backend is in trouble: a scan is affordable.
            slot = self.members.usable.iter().copied().find(untried).unwrap_or(slot);
        }
        let member = self.members.at_mut(slot);
        member.active += 1;
        member.requests += 1;
        self.on_load(now, slot);
        Pick::Backend(self.members.id_at(slot))
    }

    /// A request that was picked for this backend has ended. To be called once for each pick.
    pub fn finish(&mut self, now: Timestamp, id: BackendId, completion: Completion, observer: &mut impl Observe) {
        let Some(member) = self.members.get_mut(id) else { return };
        let slot = id.slot() as u32;
        member.active = member.active.saturating_sub(1);
        let mut eject = false;
        let was_clean = member.errors.is_clean();
        match completion.outcome {
            Outcome::Success => {
                member.errors.on_success(now);
                member.outlier.on_success();
            }
            Outcome::Failure => {
                member.failures += 1;
                member.errors.on_failure(now);
                eject = member.outlier.on_failure(&self.config.outlier);
            }
            Outcome::Overloaded => {
                member.failures += 1;
                member.errors.on_overloaded(now);
            }
            Outcome::Cancelled => {}
        }
        if was_clean && !member.errors.is_clean() {
            self.penalised.push(slot);
        }
        if let Some(latency) = completion.latency {
            let estimate = &mut self.members.candidates[slot as usize].latency;
            match completion.outcome {
                Outcome::Success => estimate.on_answer(now, latency),
                Outcome::Failure | Outcome::Overloaded => estimate.on_failure(now, latency),
                Outcome::Cancelled => {}
            }
        }
        self.on_load(now, slot);
        if eject {
            self.eject(now, id, Reason::ConsecutiveFailures, observer);
        }
    }

    /// A load report of this backend arrived, with a response, a check or by itself.
    pub fn on_report(&mut self, now: Timestamp, id: BackendId, report: &LoadReport, observer: &mut impl Observe) {
        let Some(member) = self.members.get_mut(id) else { return };
        member.capability.on_report(now, report, &self.config.weighted);
        member.report = Some((now, *report));
        if report.lame_duck {
            let change = member.health.on_lame_duck_report(now, &self.config.checks);
            self.apply(now, id, change, observer);
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
        let regular = self.next_update.min(self.next_outlier_sweep);
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
            self.update_weights(now);
        }
        if self.next_outlier_sweep <= now {
            self.sweep_outliers(now, observer);
        }
    }

    /// A backend to check now; its outcome must come to [`Balancer::on_check`].
    pub fn poll_check(&mut self) -> Option<BackendId> {
        self.due_checks.pop()
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

    fn choose(&mut self, now: Timestamp, rng: &mut impl Rng) -> u32 {
        let view = View {
            now,
            usable: &self.members.usable,
            candidates: &self.members.candidates,
            least_inverse_weight: self.members.least_inverse_weight(),
        };
        let mut slot = self.policy.choose(&view, rng);
        for _ in 1..DRAWS {
            let keep = self.members.at(slot).keep(now, &self.config.slow_start);
            if keep >= 1.0 || rng::unit(rng) < keep {
                break;
            }
            slot = self.policy.choose(&view, rng);
        }
        slot
    }

    fn why_none(&self) -> Pick {
        let census = self.members.census;
        let scope = census.scope(self.config.panic_threshold);
        let in_scope = match scope {
            Scope::Healthy => census.healthy,
            Scope::Suspects => census.healthy + census.ejected + census.failing,
            Scope::Unreachable => census.candidates(),
        };
        if in_scope > 0 {
            Pick::Wait(WaitReason::Saturated)
        } else if census.connecting > 0 {
            Pick::Wait(WaitReason::Starting)
        } else {
            Pick::NoBackend
        }
    }

    /// Brings the load that policies see, and usability, in line with the active requests of `slot`.
    fn on_load(&mut self, now: Timestamp, slot: u32) {
        let member = self.members.at(slot);
        let (active, load) = (member.active, member.load(now));
        self.members.candidates[slot as usize].load = load;
        let wanted = self.members.is_in_scope(slot) && active < self.config.max_active_requests.get();
        if wanted != self.members.is_usable(slot) {
            self.set_usable(slot, wanted);
        } else if wanted {
            self.policy.on_load(slot, &self.members.candidates[slot as usize]);
        }
    }

    fn set_usable(&mut self, slot: u32, usable: bool) {
        if !self.members.set_usable(slot, usable) {
            return;
        }
        if usable {
            self.policy.on_usable(slot, &self.members.candidates[slot as usize]);
        } else {
            self.policy.on_unusable(slot);
        }
    }

    /// Looks at one of the backends with recent failures, so that their penalty fades though nothing happens to
    /// them. One per pick keeps a pick at constant time.
    fn forgive_one(&mut self, now: Timestamp) {
        if self.penalised.is_empty() {
            return;
        }
        if self.penalised_next >= self.penalised.len() {
            self.penalised_next = 0;
        }
        let slot = self.penalised[self.penalised_next];
        if self.members.at_mut(slot).errors.forgive(now) {
            self.penalised.swap_remove(self.penalised_next);
        } else {
            self.penalised_next += 1;
        }
        self.on_load(now, slot);
    }

    fn eject(&mut self, now: Timestamp, id: BackendId, reason: Reason, observer: &mut impl Observe) {
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

    fn apply(&mut self, now: Timestamp, id: BackendId, change: Option<Change>, observer: &mut impl Observe) {
        self.reschedule(id);
        let Some(Change { from, to, reason }) = change else { return };
        self.members.recount(id);
        if to == State::Healthy {
            let member = self.members.at_mut(id.slot() as u32);
            member.healthy_since = now;
            if from != State::Ejected {
                // Ejected backends were there all the time; others may be another process now.
                member.capability.reset();
                if let AnyPolicy::Weighted(policy) = &mut self.policy {
                    policy.forget(id.slot());
                }
            }
        }
        observer.observe(now, Event::StateChanged { backend: id, from, to, reason });
        self.on_load(now, id.slot() as u32);
        self.rescope(now, observer);
    }

    /// Follows the panic rule after the counts by state have changed.
    fn rescope(&mut self, now: Timestamp, observer: &mut impl Observe) {
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

    /// Computes anew who is usable: O(n), when the panic rule or the configuration changes.
    fn rebuild(&mut self) {
        self.members.scope = self.members.census.scope(self.config.panic_threshold);
        for slot in 0..self.members.slots() as u32 {
            let below_limit = |member: &Member| member.active < self.config.max_active_requests.get();
            let wanted = self.members.occupant(slot).is_some_and(below_limit) && self.members.is_in_scope(slot);
            self.set_usable(slot, false);
            self.set_usable(slot, wanted);
        }
    }

    fn update_weights(&mut self, now: Timestamp) {
        self.next_update = now + self.config.weighted.update;
        if let AnyPolicy::Weighted(policy) = &mut self.policy {
            let members = &self.members;
            policy.reserve(members.slots());
            policy.update(
                members.capabilities(now, &self.config.weighted),
                |slot| f64::from(members.candidates[slot].inverse_weight).recip(),
                &members.usable,
                &members.candidates,
            );
        }
    }

    fn sweep_outliers(&mut self, now: Timestamp, observer: &mut impl Observe) {
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

    fn reschedule(&mut self, id: BackendId) {
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
