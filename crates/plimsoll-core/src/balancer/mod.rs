//! The balancer of one cluster, as one client sees it: health, flow control, slow start and a
//! policy.
//!
//! A request passes these parts in order:
//!
//! 1. A backend is *usable* if the panic threshold ([`Scope`](crate::health::Scope)) admits it and
//!    it is below its limit of active requests. Events keep the usable set up to date, so a pick
//!    does not compute it.
//! 2. The policy picks one of the usable backends.
//! 3. A pick that is in slow start or failed lately may yield to a backend with a better standing.
//!
//! With localities, each locality has its own policy and its own usable backends. Health is judged
//! over all of them ([`localities`]).
//!
//! All threads that send to the cluster share one balancer behind one lock. It holds only the state
//! that must be counted together: active requests, health, and the knowledge from load reports.
//! [`Balancer::pick`] and [`Balancer::finish`] take constant time and do not allocate.
//!
//! # Waking up
//!
//! Call [`Balancer::handle_timeout`] when [`Balancer::poll_timeout`] is due; earlier calls do no
//! harm. Then call [`Balancer::poll_check`] until it returns `None`, and check each backend that it
//! names. Each call that takes an observer may change `poll_timeout`. Where UDP probes are on, call
//! [`Balancer::handle_probes`] and [`Balancer::poll_query`] in the same way.

mod config;
mod localities;
mod members;
mod overview;
mod probed;
mod snapshot;
#[cfg(test)]
mod tests;
mod timers;
mod upkeep;
mod usable;
mod warming;
mod yielding;

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::time::Duration;

pub use config::{BalancerConfig, DEFAULT_MAX_ACTIVE_REQUESTS};
pub use localities::LocalitySnapshot;
pub use overview::{Distribution, LOAD_BINS, LoadMeasure, Overview};
pub use probed::{ProbeCensus, ProbeCounts, ProbeSnapshot};
pub use snapshot::BackendSnapshot;

use crate::health::{Change, CheckOutcome, SharedFaults, State};
use crate::pick::counted::OwnRequests;
use crate::pick::{AnyPolicy, HashKey, HashPicks, ProbeAnswer};
use crate::spill::Spill;
use crate::{BackendId, Event, LoadReport, Observe, Operation, Random, Timestamp, Weight, rng};
use localities::Group;
use members::Members;
use probed::Probes;
use timers::Timers;
use warming::Warming;

/// Time after a cluster's first healthy backend; backends that become healthy within it count as
/// equally old. Nothing says that they are new, and no backend is warmer and could spare them.
const FOUNDING_PERIOD: Duration = Duration::from_secs(1);

/// The end of a request, as far as balancing is concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The backend served the request, or refused it for a reason that lies in the request.
    Success,
    /// The backend answered with an error, or the connection broke.
    Failure,
    /// The backend did not answer in time: it hangs, or it is overloaded. Its peers tell which.
    TimedOut,
    /// The backend answered that it is overloaded.
    Overloaded,
    /// The backend refused the request because of a rate limit, most often the sender's (429,
    /// RESOURCE_EXHAUSTED). It never counts for ejection. It counts against picks only as far as
    /// the other backends are rate limited less often.
    RateLimited,
    /// The client left before the answer was complete: no evidence about the backend.
    Cancelled,
}

/// The end of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Completion {
    /// The outcome.
    pub outcome: Outcome,
    /// From the last byte of the request to the head of the response; `None` without a response.
    pub latency: Option<Duration>,
}

/// The decision on a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pick {
    /// Send it to this backend, which counts it as active from now on; [`Balancer::finish`] must
    /// follow.
    Backend(BackendId),
    /// No backend can take it now, but one may soon: wait for a bounded time.
    Wait(WaitReason),
    /// No backend can take it.
    NoBackend,
}

/// Why a request has to wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaitReason {
    /// No backend has been reached yet.
    Starting,
    /// Flow control: each eligible backend is at its limit of active requests.
    Saturated,
}

/// The backends of one cluster, and the choice among them.
///
/// ```
/// use core::time::Duration;
/// use plimsoll_core::{Balancer, BalancerConfig, Completion, Outcome, Pick, Timestamp, Weight};
///
/// let mut rng = rand_pcg::Pcg64Mcg::new(1);
/// let mut balancer = Balancer::new(BalancerConfig::default());
/// let now = Timestamp::ZERO;
/// let backends = [(); 3].map(|()| balancer.add(now, Weight::ONE, &mut ()));
/// backends.iter().for_each(|id| balancer.on_connected(now, *id, &mut ()));
/// balancer.drain(now, backends[0], &mut ()); // a lame duck gets no more requests
/// let mut requests = [0; 3];
/// for _ in 0..100 {
///     let Pick::Backend(id) = balancer.pick(now, &mut rng) else { panic!("two serve") };
///     requests[backends.iter().position(|backend| *backend == id).expect("it was added")] += 1;
///     let completion = Completion { outcome: Outcome::Success, latency: Some(Duration::from_millis(1)) };
///     balancer.finish(now, id, completion, &mut ());
/// }
/// assert_eq!(requests, [0, 50, 50]);
/// ```
#[derive(Clone, Debug)]
pub struct Balancer {
    config: BalancerConfig,
    members: Members,
    /// One group per locality, nearest first; a single group without localities.
    groups: Vec<Group>,
    /// Decides between localities; `None` without localities.
    spill: Option<Spill>,
    next_spill: Timestamp,
    timers: Timers,
    due_checks: Vec<BackendId>,
    panicking: bool,
    /// Time of the cluster's first healthy backend.
    first_healthy: Option<Timestamp>,
    /// Slots of backends whose failures and rate limits still fade, and the index of the next one
    /// to check.
    penalised: Vec<u32>,
    penalised_next: usize,
    next_update: Timestamp,
    /// Time of the last correction of weights; `None` while feedback is off.
    last_feedback: Option<Timestamp>,
    next_outlier_sweep: Timestamp,
    /// Operations that failed lately.
    faults: SharedFaults,
    /// Probes of the backends; `None` while they are off.
    probes: Option<Box<Probes>>,
    hash_picks: HashPicks,
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
            probes: None,
            hash_picks: HashPicks::default(),
        }
    }

    /// Changes the configuration. The knowledge of the backends stays: states, active requests,
    /// latencies and capabilities.
    pub fn set_config(&mut self, now: Timestamp, config: BalancerConfig) {
        for group in &mut self.groups {
            let relearns = match &mut group.policy {
                AnyPolicy::Prequal(policy) => *policy.config() != config.prequal,
                AnyPolicy::Hash(policy) => {
                    policy.set_config(config.hash);
                    false
                }
                _ => false,
            };
            if config.policy != self.config.policy || relearns {
                group.policy = AnyPolicy::new(config.policy, config.prequal, config.hash);
            }
        }
        self.config = config;
        (0..self.members.slots() as u32).for_each(|slot| self.enter_ring(slot));
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

    /// Adds a backend, to be checked at once: see [`Balancer::poll_check`]. It belongs to the
    /// nearest locality until [`Balancer::set_locality`] moves it.
    ///
    /// The policy `hash` knows it by the number of its slot. Where clients are to agree on the
    /// backend of a key, use [`Balancer::add_as`].
    pub fn add(&mut self, now: Timestamp, weight: Weight, observer: &mut impl Observe) -> BackendId {
        self.enlist(now, weight, None, observer)
    }

    /// [`Balancer::add`] of a backend with an identity: a hash of its address or name, different
    /// for each backend ([`Backend::key_of`](crate::subset::Backend::key_of)).
    pub fn add_as(&mut self, now: Timestamp, identity: u64, weight: Weight, observer: &mut impl Observe) -> BackendId {
        self.enlist(now, weight, Some(identity), observer)
    }

    fn enlist(
        &mut self,
        now: Timestamp,
        weight: Weight,
        identity: Option<u64>,
        observer: &mut impl Observe,
    ) -> BackendId {
        let id = self.members.add(now, weight, identity);
        self.enter_ring(id.slot() as u32);
        self.groups[0].begin(id.slot(), self.members.slots());
        self.next_spill = now;
        self.penalised.reserve(self.members.slots().saturating_sub(self.penalised.len()));
        self.reschedule(id);
        self.rescope(now, observer);
        id
    }

    /// Removes a backend. Its requests in flight need not be finished; finishing them is harmless.
    pub fn remove(&mut self, now: Timestamp, id: BackendId, observer: &mut impl Observe) {
        if self.members.get(id).is_none() {
            return;
        }
        self.set_usable(id.slot() as u32, false);
        self.leave_ring(id.slot() as u32);
        self.penalised.retain(|slot| *slot as usize != id.slot());
        self.due_checks.retain(|due| *due != id);
        self.forget_prober(id);
        self.members.remove(id);
        self.next_spill = now;
        self.rescope(now, observer);
    }

    /// Changes the configured weight of a backend. Its requests, state, latency, slow start and
    /// reports stay.
    ///
    /// A policy that reads configured weights follows with the next pick. `weighted` computes its
    /// weights again at the next [`Balancer::handle_timeout`], which is due at once: all changes of
    /// one list then cost one pass.
    pub fn set_weight(&mut self, now: Timestamp, id: BackendId, weight: Weight) {
        if !self.contains(id) || !self.members.set_weight(id.slot() as u32, weight) {
            return;
        }
        self.next_update = self.next_update.min(now);
        self.enter_ring(id.slot() as u32);
        self.on_load(now, id.slot() as u32);
    }

    /// Picks a backend for a request and counts the request as active there.
    pub fn pick(&mut self, now: Timestamp, rng: &mut impl Random) -> Pick {
        self.pick_except(now, rng, &[])
    }

    /// Picks a backend for a further attempt of a request: one not in `tried`, unless there is no
    /// other.
    pub fn pick_except(&mut self, now: Timestamp, rng: &mut impl Random, tried: &[BackendId]) -> Pick {
        self.pick_at(now, rng, 0, tried)
    }

    /// Picks a backend of the locality that [`Balancer::route`] named, preferably none of `tried`.
    /// If that locality has no such backend now, the nearest locality with headroom provides one.
    pub fn pick_at(&mut self, now: Timestamp, rng: &mut impl Random, locality: usize, tried: &[BackendId]) -> Pick {
        self.pick_for(now, rng, locality, tried, None)
    }

    /// [`Balancer::pick_at`] for a request with this key. Only the policy `hash` reads keys.
    pub fn pick_for(
        &mut self,
        now: Timestamp,
        rng: &mut impl Random,
        locality: usize,
        tried: &[BackendId],
        key: Option<HashKey>,
    ) -> Pick {
        self.forgive_one(now);
        let chosen = match &self.spill {
            None => self.choose_in(now, rng, 0, tried, key),
            Some(_) => self.choose_near(now, rng, locality, tried, key),
        };
        let Some(slot) = chosen else { return self.wait_or_no_backend() };
        let locality = self.members.locality(slot);
        self.groups[locality].picks += 1;
        if let AnyPolicy::Hash(policy) = &self.groups[locality].policy {
            self.hash_picks.count(policy.last_placement());
        }
        if let Some(spill) = &mut self.spill {
            spill.sent(now, locality);
        }
        let member = self.members.at_mut(slot);
        member.active += 1;
        member.requests += 1;
        member.last_used = now;
        let is_inactive = member.is_inactive;
        self.on_load(now, slot);
        let id = self.members.id_at(slot);
        if is_inactive {
            self.wake(now, id, rng);
        }
        if self.probes.is_some() {
            self.query_for_policy(now, rng);
        }
        Pick::Backend(id)
    }

    /// The slot of a usable backend of a locality, preferably none of `tried`. Counts nothing yet.
    fn choose_in(
        &mut self,
        now: Timestamp,
        rng: &mut impl Random,
        locality: usize,
        tried: &[BackendId],
        key: Option<HashKey>,
    ) -> Option<u32> {
        if self.members.usable[locality].is_empty() {
            return None;
        }
        let mut slot = self.choose(now, rng, locality, key);
        if !tried.is_empty() && tried.contains(&self.members.id_at(slot)) {
            if let AnyPolicy::Hash(policy) = &mut self.groups[locality].policy {
                let (members, view) = (&self.members, self.members.view(now, locality, key));
                let is_tried = |slot| tried.contains(&members.id_at(slot));
                if let Some(next) = policy.choose_untried(&view, is_tried) {
                    return Some(next);
                }
            }
            // A scan is affordable: further attempts are rare, and come when a backend is in
            // trouble. It starts anywhere, so that one backend's failures do not all go to the same
            // other backend.
            let usable = &self.members.usable[locality];
            let (before, after) = usable.split_at(rng::below(rng, usable.len()));
            let untried = |slot: &&u32| !tried.contains(&self.members.id_at(**slot));
            slot = after.iter().chain(before).find(untried).copied().unwrap_or(slot);
        }
        Some(slot)
    }

    /// Ends a request that was picked for this backend. Call it once for each pick.
    pub fn finish(&mut self, now: Timestamp, id: BackendId, completion: Completion, observer: &mut impl Observe) {
        self.finish_for(now, id, Operation::UNKNOWN, completion, observer);
    }

    /// [`Balancer::finish`] for a request of a known operation. A failure that other backends share
    /// does not eject this backend.
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
        member.last_used = now;
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
                // For picks each failure counts, since picks compare backends. Otherwise a backend
                // that fails fast would attract all requests as soon as another backend has failed
                // the same operation once.
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
            if completion.latency.is_some() {
                self.members.at_mut(slot).last_success = Some(now);
            }
            self.members.record_answer(now, slot, completion.outcome == Outcome::RateLimited);
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

    /// Takes a load report of this backend, which came with a response, a check or by itself.
    pub fn on_report(&mut self, now: Timestamp, id: BackendId, report: &LoadReport, observer: &mut impl Observe) {
        let limited = self.members.limited;
        let Some(member) = self.members.get_mut(id) else { return };
        let own = OwnRequests {
            begun_and_ended: 2 * member.requests - u64::from(member.active),
            failing: f64::from(member.failing(now, &limited)),
        };
        member.capability.on_report(now, report, &own, &self.config.weighted);
        member.report = Some((now, *report));
        if report.lame_duck {
            let change = member.health.on_lame_duck_report(now, &self.config.checks);
            self.apply(now, id, change, observer);
        }
        let slot = id.slot() as u32;
        let policy = &mut self.groups[self.members.locality(slot)].policy;
        if let (AnyPolicy::Prequal(policy), Some(in_flight)) = (policy, report.in_flight) {
            let answer = ProbeAnswer { in_flight, latency: report.latency };
            let (load, usable) = (self.members.candidates[id.slot()].load, self.members.is_usable(slot));
            policy.on_report(now, slot, answer, load, usable);
        }
    }

    /// Records a new connection to this backend.
    pub fn on_connected(&mut self, now: Timestamp, id: BackendId, observer: &mut impl Observe) {
        let Some(member) = self.members.get_mut(id) else { return };
        let change = member.health.on_connected(now, &self.config.checks);
        self.apply(now, id, change, observer);
        self.tell_prober_of_connection(now, id);
    }

    /// Records a failed attempt to connect to this backend.
    pub fn on_connect_failed(
        &mut self,
        now: Timestamp,
        id: BackendId,
        rng: &mut impl Random,
        observer: &mut impl Observe,
    ) {
        let Some(member) = self.members.get_mut(id) else { return };
        member.last_success = None;
        let change = member.health.on_connect_failed(now, &self.config.backoff, rng);
        self.apply(now, id, change, observer);
    }

    /// Records the end of the process behind a lame duck: a connection held open to it was closed.
    /// No effect on a backend that is no lame duck, or that an operator drained.
    pub fn on_process_ended(&mut self, now: Timestamp, id: BackendId, observer: &mut impl Observe) {
        let Some(member) = self.members.get_mut(id) else { return };
        let change = member.health.on_process_ended(now);
        self.apply(now, id, change, observer);
    }

    /// Takes the outcome of a check that [`Balancer::poll_check`] asked for.
    pub fn on_check(
        &mut self,
        now: Timestamp,
        id: BackendId,
        outcome: CheckOutcome,
        rng: &mut impl Random,
        observer: &mut impl Observe,
    ) {
        let judged = self.judged(id, outcome);
        let Some(member) = self.members.get_mut(id) else { return };
        match outcome {
            CheckOutcome::Passed => member.last_success = Some(now),
            CheckOutcome::NotServing | CheckOutcome::Failed | CheckOutcome::Unreachable => member.last_success = None,
            CheckOutcome::NotMade => {}
        }
        let change = member.health.on_check(now, judged, &self.config.checks, &self.config.backoff, rng);
        self.apply(now, id, change, observer);
        self.tell_prober_of_check(now, id, outcome, rng, observer);
    }

    /// Drains a backend until [`Balancer::undrain`]: it gets no new requests and finishes the rest.
    pub fn drain(&mut self, now: Timestamp, id: BackendId, observer: &mut impl Observe) {
        let Some(member) = self.members.get_mut(id) else { return };
        let change = member.health.drain(now);
        self.apply(now, id, change, observer);
    }

    /// Ends a drain: the backend is checked at once, and used when it passes.
    pub fn undrain(&mut self, now: Timestamp, id: BackendId, observer: &mut impl Observe) {
        let Some(member) = self.members.get_mut(id) else { return };
        let change = member.health.undrain(now);
        self.apply(now, id, change, observer);
    }

    /// Time of the next call of [`Balancer::handle_timeout`]. It may be past, and the call may find
    /// nothing to do.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Timestamp> {
        if self.members.is_empty() {
            return None;
        }
        let mut regular = self.next_update.min(self.next_outlier_sweep);
        if self.spill.is_some() {
            regular = regular.min(self.next_spill);
        }
        let probes = self.probes.as_ref().and_then(|probes| probes.poll_timeout());
        [self.timers.next(), probes].into_iter().flatten().chain([regular]).min()
    }

    /// Does the work due at `now`: ends ejections, updates weights, sweeps for outliers, finds
    /// checks to run.
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
            self.update_spill(now);
        }
    }

    /// A backend to check now; report the outcome to [`Balancer::on_check`].
    pub fn poll_check(&mut self) -> Option<BackendId> {
        self.due_checks.pop()
    }

    /// A backend to probe for its requests in flight and its latency, without delay for any
    /// request. Call this after each pick until it returns `None`. Only the policy `prequal` with
    /// live probes ever names a backend.
    ///
    /// With [`ProbeSource::Frugal`](crate::pick::ProbeSource), pass the answer to
    /// [`Balancer::on_report`]; a lost probe needs no call. With
    /// [`ProbeSource::Live`](crate::pick::ProbeSource), pass it to [`Balancer::on_probe`] within
    /// some milliseconds.
    pub fn poll_probe(&mut self, rng: &mut impl Random) -> Option<BackendId> {
        let mut localities = self.groups.iter_mut().zip(&self.members.usable);
        let slot = localities.find_map(|(group, usable)| match &mut group.policy {
            AnyPolicy::Prequal(policy) => policy.poll_probe(usable, rng),
            _ => None,
        })?;
        Some(self.members.id_at(slot))
    }

    /// Takes the answer of a backend that [`Balancer::poll_probe`] named, with
    /// [`ProbeSource::Live`](crate::pick::ProbeSource).
    pub fn on_probe(&mut self, now: Timestamp, id: BackendId, answer: ProbeAnswer) {
        let slot = id.slot() as u32;
        if !self.contains(id) || !self.members.is_usable(slot) {
            return;
        }
        let locality = self.members.locality(slot);
        if let AnyPolicy::Prequal(policy) = &mut self.groups[locality].policy {
            policy.on_answer(&self.members.view(now, locality, None), slot, answer);
        }
    }

    /// Picks under the policy `hash`, by the place of the backend in the order of the key.
    #[must_use]
    pub fn hash_picks(&self) -> HashPicks {
        self.hash_picks
    }

    /// The first backend in the order of this key, and whether it is usable now. `None` under another
    /// policy than `hash`, without backends, and with localities, which have an order each.
    #[must_use]
    pub fn hash_home(&self, key: HashKey) -> Option<(BackendId, bool)> {
        let [group] = &self.groups[..] else { return None };
        let AnyPolicy::Hash(policy) = &group.policy else { return None };
        let (slot, is_usable) = policy.home(key)?;
        Some((self.members.id_at(slot), is_usable))
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
        if !matches!(to, State::Healthy | State::Ejected) && self.probes.is_some() {
            self.wake_unhealthy(now, id);
        }
        if to == State::Healthy {
            let first_healthy = *self.first_healthy.get_or_insert(now);
            let group = &mut self.groups[self.members.locality(id.slot() as u32)];
            let picks = group.picks;
            let member = self.members.at_mut(id.slot() as u32);
            let founding =
                from == State::Connecting && member.requests == 0 && now.since(first_healthy) < FOUNDING_PERIOD;
            member.warming = if founding { Warming::complete() } else { Warming::begin(now, picks) };
            if from != State::Ejected {
                // An ejected backend was there all the time; any other may be another process now.
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
