//! Clients and backends at work: every event runs a machine of the core and carries out its actions.

mod pair;
mod server;

use std::collections::VecDeque;

use plimsoll_core::Timestamp;
use plimsoll_core::health::CheckOutcome;
use plimsoll_core::probe::{
    Action, Answer, Notice, Pace, Pacer, Path, Prober, ProberConfig, Purpose, Query, Reply, ServerState, Traffic,
    Verdict,
};
use rand_distr::{Distribution as _, Exp1};
use rand_pcg::Pcg64Mcg;

use super::Measured;
use super::link::Link;
use super::measure::{Burst, Measure};
use super::plan::{Arm, Occurrence, Plan, Rule};
use crate::kernel::NEVER;
use crate::kernel::slab::Slab;
use crate::kernel::streams::unit;
use crate::model::arena::{self, Arena};
use pair::{Pair, VALID, client_of, instance, peer};
use server::Server;

/// Jitter of health checks, either way.
const CHECK_JITTER: f64 = 0.1;

#[derive(Clone, Copy, Debug)]
pub(super) enum Event {
    /// The client connects to the backend of a pair.
    Connect(u32),
    /// The prober of a pair wakes up.
    Poll(u32),
    /// A datagram arrives.
    Arrive(u32),
    /// The machine of a pair's backend refuses a datagram.
    Refused(u32),
    /// A health check of a pair is due.
    Check(u32),
    /// The check of a pair that a prober requested has its outcome.
    Checked(u32),
    /// A request of a pair.
    Request(u32),
    /// A client may send queries that wait for their pace.
    Pace(u32),
    /// The responder of a backend wakes up.
    Respond(u32),
    /// A backend's new process starts.
    Start(u32),
    Change(u32),
    Sample,
}

#[derive(Clone, Copy, Debug)]
enum Datagram {
    Query(Query),
    Answer(Answer),
    Notice(Notice),
}

/// A client: the queries of all its pairs share a pace.
struct Client {
    config: ProberConfig,
    pacer: Pacer,
    waiting: VecDeque<(u32, Query)>,
    burst: Burst,
}

/// The arguments of an event of a prober.
struct Turn<'a> {
    prober: &'a mut Prober,
    now: Timestamp,
    config: &'a ProberConfig,
    traffic: &'a Traffic,
    rng: &'a mut Pcg64Mcg,
    actions: &'a mut Vec<Action>,
}

pub(super) struct World<'p> {
    plan: &'p Plan,
    arm: &'p Arm,
    arena: Arena<Event>,
    link: Link,
    clients: Vec<Client>,
    /// By client, then by backend.
    pairs: Vec<Pair>,
    servers: Vec<Server>,
    under_way: Slab<(u32, Datagram)>,
    /// The first lame duck.
    lame_since: Option<Timestamp>,
    actions: Vec<Action>,
    rng: Pcg64Mcg,
    measure: Measure,
}

impl<'p> World<'p> {
    pub(super) fn new(plan: &'p Plan, arm: &'p Arm, seed: u64) -> Self {
        let arena = Arena::new(seed, plan.duration);
        let lease_s = if matches!(arm.rule, Rule::Polled) { 0 } else { ProberConfig::DEFAULT_LEASE_S };
        let client = |number| Client {
            config: ProberConfig {
                lease_s,
                inactive_after: Some(plan.inactive_after),
                ..ProberConfig::new(instance(number, 0))
            },
            pacer: Pacer::new(Pace::QUERIES),
            waiting: VecDeque::new(),
            burst: Burst::default(),
        };
        let (clients, backends) = (plan.clients.get(), plan.backends.get());
        let link = super::plan::Link { loss: arm.loss.unwrap_or(plan.link.loss), ..plan.link };
        let mut world = Self {
            plan,
            arm,
            link: Link::new(link, arena.stream("link")),
            clients: (0..clients).map(client).collect(),
            pairs: (0..clients * backends).map(|_| Pair::new()).collect(),
            servers: (0..backends).map(Server::new).collect(),
            under_way: Slab::default(),
            lame_since: None,
            actions: Vec::new(),
            rng: arena.stream("clients"),
            measure: Measure::new(plan),
            arena,
        };
        world.begin();
        world
    }

    /// All clients start within the first interval of checks.
    fn begin(&mut self) {
        for pair in 0..self.pairs.len() as u32 {
            let at = Timestamp::from_origin(self.plan.check_every.mul_f64(unit(&mut self.rng)));
            self.arena.push(at, Event::Connect(pair));
        }
        for (number, change) in (0..).zip(&self.plan.changes) {
            self.arena.push(Timestamp::from_origin(change.at), Event::Change(number));
        }
        self.arena.push(Timestamp::from_origin(self.plan.sample_every), Event::Sample);
    }

    pub(super) fn run(mut self, progress: &mut dyn FnMut(f64)) -> Measured<'p> {
        arena::run(&mut self, progress);
        if self.lame_since.is_some() {
            for pair in self.pairs.iter().filter(|pair| !pair.knows) {
                let of = if pair.had_probes { &mut self.measure.probing } else { &mut self.measure.others };
                of.unaware += 1;
            }
        }
        Measured { arm: self.arm, measure: self.measure, events: self.arena.events }
    }

    fn client_of(&self, pair: u32) -> u32 {
        pair / self.plan.backends
    }

    fn server_of(&self, pair: u32) -> u32 {
        pair % self.plan.backends
    }

    fn is_measured(&self) -> bool {
        self.arena.now.since(Timestamp::ZERO) >= self.plan.warmup
    }

    fn connect(&mut self, pair: u32) {
        let now = self.arena.now;
        let of = &mut self.pairs[pair as usize];
        of.traffic.last_request = now;
        of.traffic.last_success = Some(now);
        if self.arm.rule != Rule::Checks {
            of.prober.on_connected(now);
            self.reschedule(pair);
        }
        self.schedule_check(pair, unit);
        self.schedule_request(pair);
    }

    fn schedule_request(&mut self, pair: u32) {
        if let Some(every) = self.plan.request_every {
            let factor: f64 = Exp1.sample(&mut self.rng);
            self.arena.push(self.arena.now + every.mul_f64(factor), Event::Request(pair));
        }
    }

    fn schedule_check(&mut self, pair: u32, factor: impl FnOnce(&mut Pcg64Mcg) -> f64) {
        let at = self.arena.now + self.plan.check_every.mul_f64(factor(&mut self.rng));
        self.pairs[pair as usize].check_at = at;
        self.arena.push(at, Event::Check(pair));
    }

    /// Schedules the next wake-up of a prober, if it is earlier than the scheduled one.
    fn reschedule(&mut self, pair: u32) {
        let of = &mut self.pairs[pair as usize];
        if let Some(at) = of.prober.poll_timeout().map(|at| at.max(self.arena.now))
            && at < of.poll_at
        {
            of.poll_at = at;
            self.arena.push(at, Event::Poll(pair));
        }
    }

    fn poll(&mut self, pair: u32) {
        let of = &mut self.pairs[pair as usize];
        if of.poll_at != self.arena.now {
            return;
        }
        of.poll_at = NEVER;
        self.with_prober(pair, |of| of.prober.poll(of.now, of.config, of.traffic, of.rng, of.actions));
    }

    /// Runs an event of a pair's prober, and its actions.
    fn with_prober<R>(&mut self, pair: u32, event: impl FnOnce(Turn<'_>) -> R) -> R {
        let config = self.clients[self.client_of(pair) as usize].config;
        let mut actions = std::mem::take(&mut self.actions);
        let of = &mut self.pairs[pair as usize];
        let result = event(Turn {
            prober: &mut of.prober,
            now: self.arena.now,
            config: &config,
            traffic: &of.traffic,
            rng: &mut self.rng,
            actions: &mut actions,
        });
        for action in actions.drain(..) {
            self.act(pair, action);
        }
        self.actions = actions;
        self.reschedule(pair);
        result
    }

    fn act(&mut self, pair: u32, action: Action) {
        let now = self.arena.now;
        let server = &self.servers[self.server_of(pair) as usize];
        match action {
            Action::Send(query) => {
                if matches!(query.purpose, Purpose::Ask { .. }) {
                    self.measure.queries += 1;
                    let unanswered = &mut self.pairs[pair as usize].unanswered;
                    *unanswered = unanswered.or(Some(now));
                }
                let client = self.client_of(pair);
                self.clients[client as usize].waiting.push_back((pair, query));
                self.pace(client);
            }
            Action::PauseChecks => self.pairs[pair as usize].check_at = NEVER,
            Action::ResumeChecks => {
                if let Some(since) = self.pairs[pair as usize].unanswered {
                    self.measure.resumed = self.measure.resumed.max(Some(now.since(since)));
                }
                self.schedule_check(pair, unit);
            }
            Action::CheckNow => self.arena.push(now + 2 * self.plan.link.delay, Event::Checked(pair)),
            Action::StopRequests(_) => {
                self.measure.wrong += u64::from(!server.was_unready(now));
                self.learn(pair);
            }
            Action::ProcessEnded => {
                self.measure.wrong += u64::from(!server.has_ended());
                self.arena.push(now + 2 * self.plan.link.delay, Event::Checked(pair));
            }
            Action::PathSilent(_) => self.measure.silenced += 1,
            Action::CloseConnections | Action::Report(_) => {}
        }
    }

    /// The client of a pair knows of the lame duck.
    fn learn(&mut self, pair: u32) {
        let of = &mut self.pairs[pair as usize];
        if let Some(since) = self.lame_since.filter(|_| !of.knows) {
            of.knows = true;
            let group = if of.had_probes { &mut self.measure.probing } else { &mut self.measure.others };
            group.known.push(self.arena.now.since(since));
        }
    }

    /// Sends the queries of a client that its pace permits.
    fn pace(&mut self, client: u32) {
        let now = self.arena.now;
        let of = &mut self.clients[client as usize];
        for _ in 0..of.pacer.take(now, of.waiting.len()) {
            let Some((pair, query)) = of.waiting.pop_front() else { break };
            let burst = of.burst.count(now);
            self.measure.burst = self.measure.burst.max(burst);
            self.measure.sent(now, self.plan);
            for at in self.link.arrivals(now) {
                let datagram = self.under_way.insert((pair, Datagram::Query(query)));
                self.arena.push(at, Event::Arrive(datagram));
            }
        }
        if !of.waiting.is_empty() {
            self.arena.push(of.pacer.ready_at(of.waiting.len()), Event::Pace(client));
        }
    }

    fn send_to_client(&mut self, pair: u32, datagram: Datagram) {
        self.measure.sent(self.arena.now, self.plan);
        for at in self.link.arrivals(self.arena.now) {
            let number = self.under_way.insert((pair, datagram));
            self.arena.push(at, Event::Arrive(number));
        }
    }

    fn arrive_datagram(&mut self, number: u32) {
        let (pair, datagram) = self.under_way[number];
        self.under_way.free(number);
        match datagram {
            Datagram::Query(query) => self.query(pair, &query),
            Datagram::Answer(answer) => {
                let verdict =
                    self.with_prober(pair, |of| of.prober.on_answer(of.now, &answer, of.config, of.rng, of.actions));
                if verdict == Verdict::Believed {
                    self.pairs[pair as usize].unanswered = None;
                }
            }
            Datagram::Notice(notice) => {
                self.with_prober(pair, |of| of.prober.on_notice(of.now, &notice, VALID, of.config, of.rng, of.actions));
            }
        }
    }

    fn query(&mut self, pair: u32, query: &Query) {
        let now = self.arena.now;
        let acknowledges = matches!(query.purpose, Purpose::Acknowledge { .. });
        if acknowledges && matches!(self.arm.rule, Rule::Pushed { .. }) {
            return;
        }
        let (client, server) = (self.client_of(pair), self.server_of(pair));
        let Some(reply) = self.servers[server as usize].on_query(now, &peer(client), query) else {
            self.arena.push(now + self.plan.link.delay, Event::Refused(pair));
            return;
        };
        if let Reply::Answer(answer) = reply {
            self.send_to_client(pair, Datagram::Answer(answer));
        }
    }

    fn respond(&mut self, server: u32) {
        let now = self.arena.now;
        for (to, notice) in self.servers[server as usize].poll(now) {
            let pair = client_of(&to) * self.plan.backends.get() + server;
            let of = &mut self.pairs[pair as usize];
            of.notices += 1;
            if !matches!(self.arm.rule, Rule::Pushed { times } if of.notices > times.get()) {
                self.measure.notices += 1;
                self.send_to_client(pair, Datagram::Notice(notice));
            }
        }
        if let Some(at) = self.servers[server as usize].poll_timeout() {
            self.arena.push(at.max(now), Event::Respond(server));
        }
    }

    /// A health check: it sees the process and its state.
    fn check(&mut self, pair: u32) {
        if self.pairs[pair as usize].check_at != self.arena.now {
            return;
        }
        self.schedule_check(pair, |rng| 1.0 + CHECK_JITTER * (2.0 * unit(rng) - 1.0));
        self.checked(pair);
    }

    fn checked(&mut self, pair: u32) {
        let now = self.arena.now;
        self.measure.checks += u64::from(self.is_measured());
        let outcome = match self.servers[self.server_of(pair) as usize].state() {
            None => CheckOutcome::Unreachable,
            Some(ServerState::Healthy) => CheckOutcome::Passed,
            Some(ServerState::Starting | ServerState::LameDuck) => CheckOutcome::NotServing,
        };
        if outcome == CheckOutcome::Passed {
            self.pairs[pair as usize].traffic.last_success = Some(now);
        }
        if outcome == CheckOutcome::NotServing {
            self.learn(pair);
        }
        if self.arm.rule != Rule::Checks {
            self.with_prober(pair, |of| of.prober.on_check(of.now, outcome, of.rng, of.actions));
        }
    }

    fn request(&mut self, pair: u32) {
        let now = self.arena.now;
        let serves = self.servers[self.server_of(pair) as usize].state().is_some();
        let of = &mut self.pairs[pair as usize];
        of.traffic.last_request = now;
        if serves {
            of.traffic.last_success = Some(now);
        }
        if self.arm.rule != Rule::Checks {
            self.with_prober(pair, |of| {
                of.prober.wake(of.now, of.config, of.actions);
                of.prober.on_connected(of.now);
            });
        }
        self.schedule_request(pair);
    }

    fn change(&mut self, number: usize) {
        let now = self.arena.now;
        match self.plan.changes[number].event {
            Occurrence::Block => self.link.block(true),
            Occurrence::Open => self.link.block(false),
            Occurrence::LameDuck => {
                if self.lame_since.is_none() {
                    self.lame_since = Some(now);
                    for pair in &mut self.pairs {
                        pair.had_probes = pair.prober.path() == Path::Works;
                    }
                }
                for server in 0..self.servers.len() as u32 {
                    self.servers[server as usize].become_lame_duck(now);
                    self.respond(server);
                }
            }
            Occurrence::Restart { down } => {
                for server in 0..self.servers.len() as u32 {
                    self.servers[server as usize].end();
                    self.arena.push(now + down, Event::Start(server));
                }
            }
        }
    }

    fn sample(&mut self) {
        if self.is_measured() {
            let inactive = self.pairs.iter().filter(|pair| pair.prober.is_inactive()).count();
            self.measure.inactive.push(inactive as f64 / self.pairs.len() as f64);
        }
        self.arena.push(self.arena.now + self.plan.sample_every, Event::Sample);
    }
}

impl arena::World for World<'_> {
    type Event = Event;

    fn arena(&mut self) -> &mut Arena<Event> {
        &mut self.arena
    }

    fn arrive(&mut self, _source: usize) {
        unreachable!("requests are events of pairs")
    }

    fn handle(&mut self, event: Event) {
        match event {
            Event::Connect(pair) => self.connect(pair),
            Event::Poll(pair) => self.poll(pair),
            Event::Arrive(number) => self.arrive_datagram(number),
            Event::Refused(pair) => {
                self.with_prober(pair, |of| of.prober.on_refused(of.now, of.config, of.rng, of.actions))
            }
            Event::Check(pair) => self.check(pair),
            Event::Checked(pair) => self.checked(pair),
            Event::Request(pair) => self.request(pair),
            Event::Pace(client) => self.pace(client),
            Event::Respond(server) => self.respond(server),
            Event::Start(server) => self.servers[server as usize].start(self.arena.now),
            Event::Change(number) => self.change(number as usize),
            Event::Sample => self.sample(),
        }
    }
}
