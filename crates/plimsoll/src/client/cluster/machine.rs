//! A cluster's balancer and all state under the same lock: random numbers, members, counts.
//!
//! Each cluster has one lock, held for a short time. Slow work (logging, the user's hook, waking
//! tasks) is collected as [`Notice`]s and done after the lock is released.

use crate::address::Address;
use std::collections::{HashMap, HashSet};
use std::ops::Range;
use std::sync::Arc;
use std::task::Waker;
use std::time::Duration;

use http::StatusCode;
use plimsoll_core::health::State;
use plimsoll_core::pick::HashKey;
use plimsoll_core::queue::{Queue, SeatState, Served, Wanted};
use plimsoll_core::retry::hedge::Hedge;
use plimsoll_core::retry::{Budget, Waiting};
use plimsoll_core::slots::{Holder, Holders, Slots};
use plimsoll_core::throttle::{self, Silence, Throttle, ThrottledShare, Verdict};
use plimsoll_core::{
    BackendId, BackendSnapshot, Balancer, Completion, Criticality, Event, LoadReport, Operation, Outcome, Pick, Speed,
    Timestamp,
};
use rand_core::SeedableRng;
use rand_pcg::Pcg64Mcg;
use tokio::sync::Notify;

use super::membership::{Coordination, Membership};
use super::overview::{Transition, Transitions};
use super::preempt::Preemptibles;
use super::probes::Identity;
use super::tally::{BackendCounts, ClusterCounts, Latencies, Usual};
#[cfg(feature = "test-util")]
use super::test_throttle::TestThrottle;
use crate::client::attempt_end::{AttemptEnd, Metric};
use crate::client::backend::Backend;
use crate::client::config::{ClusterConfig, RequestConfig};
use crate::client::preemption::Preemption;
use crate::discover::Endpoint;
#[cfg(feature = "probes")]
use crate::probe::{HandedKeys, ProbeKeys};

/// Requests that a new cluster counts as made. With the default budget they allow ten retries.
///
/// After about five refusals an overloaded backend gets nearly no requests, and several backends
/// may be overloaded.
const CREDIT: u32 = 100;

/// Something that happened to a cluster.
#[derive(Clone, Debug)]
pub struct Notice {
    /// The time since the cluster was made.
    pub at: Timestamp,
    /// The backend of the event. `None` if the event is the cluster's, or the backend was removed.
    pub backend: Option<Arc<Backend>>,
    /// The event.
    pub event: Event,
}

/// One backend as the cluster sees it now.
#[derive(Clone, Debug)]
pub struct BackendView {
    /// Its description by its source.
    pub backend: Arc<Backend>,
    /// The locality in which it counts. `None` where the cluster has no localities.
    pub locality: Option<Arc<str>>,
    /// The balancer's view.
    pub snapshot: BackendSnapshot,
    /// Its counters.
    pub counts: BackendCounts,
}

impl BackendView {
    /// The speed of its machine: its own report, else the word of its source. `None` if neither
    /// states one.
    #[must_use]
    pub fn speed(&self) -> Option<Speed> {
        let reported = self.snapshot.report.and_then(|(_, load)| load.speed);
        reported.or(self.backend.endpoint().speed)
    }
}

/// The kind of a request. Evidence about one kind does not count against another.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Kind {
    pub(crate) criticality: Criticality,
    pub(crate) operation: Operation,
    /// The client of the request.
    pub(crate) client: Holder,
    /// The key of the request, for the policy `hash`.
    pub(crate) key: Option<HashKey>,
}

impl Kind {
    /// The holders of its slot.
    pub(crate) fn holders(self) -> Holders {
        Holders { client: self.client, work: Holder::new(self.operation.hash()) }
    }
}

/// The end of an attempt, with all that was learned from it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Done {
    pub(crate) kind: Kind,
    pub(crate) outcome: Outcome,
    pub(crate) end: AttemptEnd,
    /// The status, if it ended with a response.
    pub(crate) answered: Option<StatusCode>,
    pub(crate) latency: Option<Duration>,
    pub(crate) report: Report,
    /// The outcome for the throttle. `None` if the throttle has it already.
    pub(crate) taken: Option<Taken>,
    /// Its key among the preemptible requests.
    pub(crate) preemptible: Option<usize>,
}

/// The outcome of a sent request of this kind, for the throttle.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Taken {
    pub(crate) kind: Kind,
    pub(crate) outcome: throttle::Outcome,
}

/// The load report in a response.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Report {
    None,
    Malformed,
    Load(LoadReport),
}

/// The answer to a request for a backend.
pub(crate) enum Found {
    Backend(BackendId, RequestConfig),
    /// In the queue of this locality.
    Wait(RequestConfig, usize),
    NoBackend,
    /// No locality has headroom.
    NoRoom,
    /// The request is throttled.
    Held(ThrottledShare),
}

/// The consequences of a fact.
#[derive(Default)]
pub(super) struct News {
    pub(super) notices: Vec<Notice>,
    /// The members, or their descriptions, changed.
    pub(super) members_changed: bool,
    /// Requests that are served. Mostly one at most, which needs no allocation.
    pub(super) served: (Option<Waker>, Vec<Waker>),
    /// Requests that end in favour of others.
    pub(super) preempted: Vec<Arc<Preemption>>,
}

struct Member {
    id: BackendId,
    /// The number of members that were added before it.
    serial: u64,
    backend: Arc<Backend>,
    counts: BackendCounts,
    silence: Silence,
    /// The keys that it handed out.
    #[cfg(feature = "probes")]
    probe_keys: HandedKeys,
    /// The log says that it hands out no key.
    is_keyless_told: bool,
}

pub(super) struct Machine {
    pub(super) balancer: Balancer,
    pub(super) rng: Pcg64Mcg,
    members: Vec<Option<Member>>,
    /// Members that were ever added.
    members_added: u64,
    membership: Membership,
    events: Vec<(Timestamp, Event)>,
    pub(super) config: Arc<ClusterConfig>,
    pub(super) counts: ClusterCounts,
    pub(super) transitions: Transitions,
    /// Waiting requests, by locality. One queue without localities.
    pub(super) queues: Vec<Queue<Waker>>,
    /// The holders of the slots.
    pub(super) slots: Slots,
    /// Preemptible requests.
    pub(super) preemptibles: Preemptibles,
    pub(super) throttle: Throttle,
    pub(super) budget: Budget,
    /// Requests that wait before a retry.
    pub(super) waiting: Waiting,
    /// The rule of hedges, if any.
    pub(super) hedge: Option<Hedge>,
    /// The usual latency.
    pub(super) usual: Usual,
    /// The silence of all backends together.
    silence: Silence,
    /// This client, as its probes call it.
    pub(super) identity: Identity,
    /// The keys of its probes, for all backends.
    #[cfg(feature = "probes")]
    pub(super) probe_keys: ProbeKeys,
    /// Wakes the task that sends queries.
    driver: Arc<Notify>,
    /// The word of a test; see [`crate::test`].
    #[cfg(feature = "test-util")]
    pub(super) test_throttle: TestThrottle,
}

impl Machine {
    pub(super) fn new(now: Timestamp, config: ClusterConfig, seed: u64, driver: Arc<Notify>) -> Self {
        let mut membership = Membership::default();
        membership.set_choice(config.subset);
        let localities = config.localities.clone();
        let mut rng = Pcg64Mcg::seed_from_u64(seed);
        let identity = Identity::new(&mut rng);
        let mut machine = Self {
            balancer: Balancer::new(config.machine()),
            rng,
            members: Vec::new(),
            members_added: 0,
            membership,
            events: Vec::new(),
            throttle: Throttle::new(now, config.throttle),
            budget: Budget::new(now, config.retry.budget).with_credit(CREDIT),
            waiting: Waiting::default(),
            hedge: config.retry.hedge.map(Hedge::new),
            config: Arc::new(config),
            counts: ClusterCounts::default(),
            transitions: Transitions::default(),
            queues: vec![Queue::default()],
            slots: Slots::default(),
            preemptibles: Preemptibles::default(),
            usual: Usual::default(),
            silence: Silence::default(),
            identity,
            #[cfg(feature = "probes")]
            probe_keys: ProbeKeys::keyless(),
            driver,
            #[cfg(feature = "test-util")]
            test_throttle: super::test_throttle::NONE,
        };
        machine.slots.limit_clients(machine.config.max_active_requests_per_client);
        machine.set_probes(now);
        machine.set_localities(now, localities.as_ref(), None);
        machine
    }

    /// Finds a backend for a request, unless the request is throttled. After [`Found::Backend`] and
    /// [`Found::Wait`] the throttle must be told the outcome.
    pub(super) fn begin(&mut self, now: Timestamp, kind: Kind, tried: &[BackendId]) -> Found {
        let holders = kind.holders();
        self.slots.on_arrival(now, holders);
        let Kind { criticality, operation, .. } = kind;
        #[cfg(feature = "test-util")]
        if let Some(hold) = self.test_hold(criticality) {
            return Found::Held(hold);
        }
        if let Verdict::Throttle(hold) = self.throttle.ask_for(now, criticality, operation, &mut self.rng) {
            return Found::Held(hold);
        }
        let Some(at) = self.route(now, criticality) else {
            self.not_sent(now, kind);
            return Found::NoRoom;
        };
        if tried.is_empty() && self.is_behind(now, at, holders) {
            return Found::Wait(self.config.requests, at);
        }
        let found = self.pick(now, at, kind, tried);
        if let Found::NoBackend = found {
            self.not_sent(now, kind);
        }
        found
    }

    /// An admitted request was not sent after all.
    pub(super) fn not_sent(&mut self, now: Timestamp, kind: Kind) {
        self.taken(now, Taken { kind, outcome: throttle::Outcome::Unknown });
    }

    pub(super) fn taken(&mut self, now: Timestamp, taken: Taken) {
        if taken.outcome == throttle::Outcome::Accepted {
            self.silence.on_answer(now);
        }
        let Kind { criticality, operation, .. } = taken.kind;
        self.throttle.on_outcome_of(now, criticality, operation, taken.outcome);
    }

    pub(super) fn pick(&mut self, now: Timestamp, at: usize, kind: Kind, tried: &[BackendId]) -> Found {
        let holders = kind.holders();
        if !self.may_take(now, holders) {
            return Found::Wait(self.config.requests, at);
        }
        let picked = self.balancer.pick_for(now, &mut self.rng, at, tried, kind.key);
        if self.balancer.has_queries() {
            self.driver.notify_one();
        }
        match picked {
            Pick::Backend(id) => {
                self.slots.take(holders);
                Found::Backend(id, self.config.requests)
            }
            Pick::Wait(_) => Found::Wait(self.config.requests, at),
            Pick::NoBackend => {
                self.counts.no_backend += 1;
                Found::NoBackend
            }
        }
    }

    /// Whether a request of these holders may have a free slot. The cheap estimate also subtracts
    /// requests at ineligible backends, so it is never too high. Only if it says no are all backends
    /// read.
    fn may_take(&self, now: Timestamp, holders: Holders) -> bool {
        if self.slots.is_at_limit(holders) {
            return self.has_no_backend();
        }
        let at_least = self.balancer.capacity().saturating_sub(self.slots.in_use());
        self.slots.may_take(now, holders, at_least) || self.slots.may_take(now, holders, self.free_slots())
    }

    /// Whether no backend is eligible. Then each request may have a slot: the balancer reports that
    /// there is none.
    fn has_no_backend(&self) -> bool {
        self.balancer.capacity() == 0
    }

    /// Free slots. Unlimited if no backend is eligible.
    fn free_slots(&self) -> u32 {
        if self.has_no_backend() { u32::MAX } else { self.balancer.free_slots() }
    }

    /// Whether a request of these holders must queue behind another one of its client, which gets
    /// any free slot first.
    pub(super) fn is_behind(&self, now: Timestamp, at: usize, holders: Holders) -> bool {
        self.queues[at].first_before(holders).is_some_and(|first| self.may_take(now, first))
    }

    /// Gives a fact to the balancer, and returns the consequences.
    pub(super) fn tell(
        &mut self,
        now: Timestamp,
        fact: impl FnOnce(&mut Balancer, &mut Pcg64Mcg, &mut dyn FnMut(Timestamp, Event)),
    ) -> News {
        let events = &mut self.events;
        fact(&mut self.balancer, &mut self.rng, &mut |at, event| events.push((at, event)));
        self.news(now)
    }

    pub(super) fn finish(&mut self, now: Timestamp, id: BackendId, done: &Done, bucket: usize) -> News {
        let metric = done.end.row().metric;
        if done.answered.is_some() {
            self.silence.on_answer(now);
        }
        if let Some(latency) = done.latency {
            self.counts.latency.record(bucket, latency);
            // Refusals are quick, and the latency of an abandoned wait is unknown.
            let is_refusal = matches!(done.outcome, Outcome::Overloaded | Outcome::RateLimited);
            if metric != Metric::TimedOut && !is_refusal {
                self.usual.record(bucket);
            }
        }
        if let Some(member) = self.member_mut(id) {
            member.counts.ended(metric, done.answered);
            if done.answered.is_some() {
                member.silence.on_answer(now);
            }
        }
        if let Some(taken) = done.taken {
            self.taken(now, taken);
        }
        self.report(now, id, &done.report);
        self.slots.give_back(done.kind.holders());
        if let Some(key) = done.preemptible {
            self.preemptibles.remove(key);
        }
        let (events, completion) = (&mut self.events, Completion { outcome: done.outcome, latency: done.latency });
        self.balancer.finish_for(now, id, done.kind.operation, completion, &mut |at, event| events.push((at, event)));
        self.news(now)
    }

    pub(super) fn report(&mut self, now: Timestamp, id: BackendId, report: &Report) {
        match report {
            Report::None => return,
            Report::Malformed => {}
            Report::Load(load) => {
                let events = &mut self.events;
                self.balancer.on_report(now, id, load, &mut |at, event| events.push((at, event)));
            }
        }
        if let Some(counts) = self.counts_of(id) {
            match report {
                Report::Load(_) => counts.reports += 1,
                _ => counts.malformed_reports += 1,
            }
        }
    }

    /// Replaces the list of known backends, and those of them that are drained by hand.
    pub(super) fn update(&mut self, now: Timestamp, endpoints: Vec<Arc<Endpoint>>, drained: HashSet<Address>) -> News {
        let changed = self.membership.replace(endpoints, drained);
        if !changed.is_empty() {
            let changed: HashSet<Address> = changed.into_iter().collect();
            self.switch_drains(now, &changed);
        }
        self.resubset(now)
    }

    /// Begins or ends the drains of those members. A new member begins drained.
    fn switch_drains(&mut self, now: Timestamp, changed: &HashSet<Address>) {
        let events = &mut self.events;
        let mut observe = |at, event| events.push((at, event));
        for member in self.members.iter().flatten() {
            let address = member.backend.address();
            match changed.contains(&address).then(|| self.membership.is_drained(address)) {
                Some(true) => self.balancer.drain(now, member.id, &mut observe),
                Some(false) => self.balancer.undrain(now, member.id, &mut observe),
                None => {}
            }
        }
    }

    /// Changes the configuration. Backends that stay keep their state.
    pub(super) fn set_config(&mut self, now: Timestamp, config: ClusterConfig) -> News {
        self.balancer.set_config(now, config.machine());
        self.membership.set_choice(config.subset);
        if config.throttle != self.config.throttle {
            self.throttle = Throttle::new(now, config.throttle);
        }
        if config.retry.budget != self.config.retry.budget {
            self.budget = Budget::new(now, config.retry.budget);
        }
        match (&mut self.hedge, config.retry.hedge) {
            (Some(hedge), Some(config)) => hedge.set_config(config),
            (hedge, config) => *hedge = config.map(Hedge::new),
        }
        let former = std::mem::replace(&mut self.config, Arc::new(config));
        let config = self.config.clone();
        self.slots.limit_clients(config.max_active_requests_per_client);
        self.set_probes(now);
        self.set_localities(now, config.localities.as_ref(), former.localities.as_ref());
        self.resubset(now)
    }

    /// Takes the word of a coordinator on the subset.
    pub(super) fn coordinate(&mut self, now: Timestamp, word: Coordination) -> News {
        if *self.membership.coordination() == word {
            return News::default();
        }
        self.membership.coordinate(word);
        self.resubset(now)
    }

    /// The number of known backends, members or not.
    pub(super) fn known(&self) -> usize {
        self.membership.known()
    }

    /// Known backends that are drained by hand.
    pub(super) fn drained(&self) -> usize {
        self.membership.drained()
    }

    /// After a new draw of the subset: tells it the states of the members, then changes the members.
    fn resubset(&mut self, now: Timestamp) -> News {
        for (address, state) in self.states(now) {
            self.membership.on_state(address, state);
        }
        self.reconcile(now);
        News { members_changed: true, ..self.news(now) }
    }

    fn states(&self, now: Timestamp) -> Vec<(Address, State)> {
        let known = |snapshot: BackendSnapshot| Some((self.backend(snapshot.id)?.address(), snapshot.state));
        self.balancer.snapshot(now).into_iter().filter_map(known).collect()
    }

    /// Adds, changes and removes members until they match the membership.
    ///
    /// The address identifies a backend. A member keeps its state, counts and connections when its
    /// other properties change.
    fn reconcile(&mut self, now: Timestamp) {
        let wanted = self.membership.members();
        let index: HashMap<_, usize> = wanted.iter().enumerate().map(|(at, endpoint)| (endpoint.address, at)).collect();
        let mut kept = vec![false; wanted.len()];
        let config = self.config.clone();
        let place_of = |endpoint: &Endpoint| config.localities.as_ref().map_or(0, |known| known.place_of(endpoint));
        let events = &mut self.events;
        let mut observe = |at, event| events.push((at, event));
        for slot in &mut self.members {
            let Some(member) = slot else { continue };
            match index.get(&member.backend.address()) {
                Some(&at) => {
                    let wanted = &wanted[at];
                    if !member.backend.is_described_as(wanted) {
                        self.balancer.set_weight(now, member.id, wanted.weight);
                        member.backend = Arc::new(member.backend.described(wanted.clone()));
                    }
                    // Also when the cluster's localities have changed.
                    self.balancer.set_locality(now, member.id, place_of(wanted));
                    kept[at] = true;
                }
                None => {
                    self.balancer.remove(now, member.id, &mut observe);
                    *slot = None;
                }
            }
        }
        for (endpoint, _) in wanted.into_iter().zip(kept).filter(|(_, kept)| !kept) {
            let id = self.balancer.add_as(now, Backend::identity(&endpoint), endpoint.weight, &mut observe);
            self.balancer.set_locality(now, id, place_of(&endpoint));
            if self.membership.is_drained(endpoint.address) {
                self.balancer.drain(now, id, &mut observe);
            }
            if self.members.len() <= id.slot() {
                self.members.resize_with(id.slot() + 1, || None);
            }
            let (backend, counts) = (Arc::new(Backend::new(endpoint)), BackendCounts::default());
            let serial = self.members_added;
            self.members_added += 1;
            self.members[id.slot()] = Some(Member {
                id,
                serial,
                backend,
                counts,
                silence: Silence::default(),
                #[cfg(feature = "probes")]
                probe_keys: HandedKeys::default(),
                is_keyless_told: false,
            });
        }
        self.begin_probes(now);
    }

    pub(super) fn backend(&self, id: BackendId) -> Option<&Arc<Backend>> {
        self.member(id).map(|member| &member.backend)
    }

    pub(super) fn ids(&self) -> impl Iterator<Item = (BackendId, &Arc<Backend>)> {
        self.members.iter().flatten().map(|member| (member.id, &member.backend))
    }

    pub(super) fn counts_of(&mut self, id: BackendId) -> Option<&mut BackendCounts> {
        self.member_mut(id).map(|member| &mut member.counts)
    }

    /// The head of a response of `id` arrived. Its body may take long.
    pub(super) fn answers(&mut self, now: Timestamp, id: BackendId) {
        if let Some(member) = self.member_mut(id) {
            member.silence.on_answer(now);
        }
    }

    /// A wait for the response of `id` to the request sent at `sent` was abandoned. Returns the
    /// durations of unanswered waits: for this backend, and for all.
    pub(super) fn unanswered(&mut self, now: Timestamp, id: BackendId, sent: Timestamp) -> [Option<Duration>; 2] {
        let Some(usual) = self.usual.latency() else { return [None; 2] };
        let of_member = self.member_mut(id).and_then(|member| member.silence.on_abandoned(now, sent, usual));
        [of_member, self.silence.on_abandoned(now, sent, usual)]
    }

    /// The request sent at `sent` is lost. Returns the duration of losses without an answer; `None`
    /// if any request was answered since `sent`.
    pub(super) fn lost(&mut self, now: Timestamp, sent: Timestamp) -> Option<Duration> {
        self.silence.on_loss(now, sent)
    }

    pub(super) fn view(&self, now: Timestamp) -> Vec<BackendView> {
        // Of ten thousand they are 3 MB: without growth, and without a list between.
        let mut views = Vec::with_capacity(self.members.len());
        self.view_part(now, 0..self.members.len(), self.members_added, &mut views);
        views
    }

    /// Appends the members in these slots that were among the first `added`.
    pub(super) fn view_part(&self, now: Timestamp, slots: Range<usize>, added: u64, views: &mut Vec<BackendView>) {
        let (begin, end) = (slots.start.min(self.members.len()), slots.end.min(self.members.len()));
        let members = self.members[begin..end].iter().flatten().filter(|member| member.serial < added);
        views.extend(members.filter_map(|member| self.view_of(self.balancer.snapshot_of(now, member.id)?)));
    }

    /// Members that were ever added, those that were removed again included.
    pub(super) fn members_added(&self) -> u64 {
        self.members_added
    }

    pub(super) fn view_of(&self, snapshot: BackendSnapshot) -> Option<BackendView> {
        let member = self.member(snapshot.id)?;
        let locality = self.locality_name(snapshot.locality);
        Some(BackendView { backend: member.backend.clone(), locality, counts: member.counts, snapshot })
    }

    /// Slots for members, free ones included.
    pub(super) fn slots_of_members(&self) -> usize {
        self.members.len()
    }

    /// The keys that a backend handed out.
    #[cfg(feature = "probes")]
    pub(super) fn handed_keys(&self, id: BackendId) -> Option<&HandedKeys> {
        self.member(id).map(|member| &member.probe_keys)
    }

    #[cfg(feature = "probes")]
    pub(super) fn handed_keys_mut(&mut self, id: BackendId) -> Option<&mut HandedKeys> {
        self.member_mut(id).map(|member| &mut member.probe_keys)
    }

    /// Whether this is the first call for a backend.
    pub(super) fn tell_keyless(&mut self, id: BackendId) -> bool {
        self.member_mut(id).is_some_and(|member| !std::mem::replace(&mut member.is_keyless_told, true))
    }

    fn member_mut(&mut self, id: BackendId) -> Option<&mut Member> {
        self.members.get_mut(id.slot())?.as_mut().filter(|member| member.id == id)
    }

    fn member(&self, id: BackendId) -> Option<&Member> {
        self.members.get(id.slot())?.as_ref().filter(|member| member.id == id)
    }

    /// The events since the last call and their consequences: free slots go to waiting requests.
    /// Allocates only if there is an event.
    pub(super) fn news(&mut self, now: Timestamp) -> News {
        let mut news = News::default();
        // A change of members may cause further events.
        while !self.events.is_empty() {
            for (at, event) in std::mem::take(&mut self.events) {
                let backend = self.count(at, event);
                if let (Some(backend), Event::StateChanged { to, .. }) = (&backend, event)
                    && self.membership.on_state(backend.address(), to)
                {
                    self.reconcile(at);
                    news.members_changed = true;
                }
                news.notices.push(Notice { at, backend, event });
            }
        }
        for at in 0..self.queues.len() {
            while !self.queues[at].is_empty() {
                let (free, has_none) = (self.free_slots(), self.has_no_backend());
                let (balancer, rng, slots) = (&mut self.balancer, &mut self.rng, &self.slots);
                let may_take = |holders| has_none || slots.may_take(now, holders, free);
                let pick = |wanted: &Wanted| balancer.pick_for(now, rng, at, &wanted.tried, wanted.key);
                let served = self.queues[at].serve(may_take, pick);
                let Some(Served { call, hand, holders }) = served else { break };
                match hand {
                    SeatState::Backend(_) => self.slots.take(holders),
                    SeatState::NoBackend => self.counts.no_backend += 1,
                    SeatState::Empty | SeatState::Displaced => {}
                }
                match &mut news.served {
                    (first @ None, _) => *first = Some(call),
                    (_, others) => others.push(call),
                }
            }
        }
        self.preempt(now, &mut news);
        if self.balancer.has_queries() {
            self.driver.notify_one();
        }
        news
    }

    /// Counts an event, and finds its backend.
    fn count(&mut self, at: Timestamp, event: Event) -> Option<Arc<Backend>> {
        match event {
            Event::StateChanged { backend, to, reason, .. } => {
                self.counts.transition(to, reason);
                let backend = self.backend(backend).cloned()?;
                self.transitions.add(Transition { at, backend: backend.clone(), to, reason });
                Some(backend)
            }
            Event::ProbesSilent { backend, .. } => self.backend(backend).cloned(),
            Event::PanicBegan { .. } => {
                self.counts.panics += 1;
                None
            }
            Event::PanicEnded { .. } => None,
        }
    }
}

impl Done {
    pub(crate) fn bucket(&self) -> usize {
        self.latency.map_or(0, Latencies::bucket)
    }
}
