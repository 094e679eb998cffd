//! Tiers at work. [`requests`] is the client's side of a request, [`service`] the server's side,
//! and [`caller`] decides for a client.

mod caller;
mod requests;
mod service;

use rand_pcg::Pcg64Mcg;

use super::Measured;
use super::measure::Measure;
use super::plan::{Arm, Plan, Retries};
use crate::kernel::slab::Slab;
use crate::model::arena::{self, Arena};
use caller::Caller;
use requests::{Reply, Request};
use service::{Service, Work};

/// One attempt of one request. An event for another attempt is void.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::experiment::tiers) struct Attempt {
    request: u32,
    /// Counted from 1, over all attempts of the run.
    number: u64,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Event {
    /// The reply to an attempt reaches its client.
    Reply(Attempt, Reply),
    /// A client stops waiting for an attempt.
    Timeout(Attempt),
    /// The wait before the next attempt is over.
    Retry(Attempt),
    /// A task of a tier finishes its current request.
    Done(u32, u32),
}

pub(super) struct World<'p> {
    plan: &'p Plan,
    arm: &'p Arm,
    arena: Arena<Event>,
    /// The callers of each tier: the clients, then the tasks of each tier but the last.
    callers: Vec<Vec<Caller>>,
    services: Vec<Service>,
    requests: Slab<Request>,
    work: Slab<Work>,
    attempts: u64,
    /// Draws the client of a request, and the task of an attempt.
    whose: Pcg64Mcg,
    targets: Pcg64Mcg,
    decisions: Pcg64Mcg,
    failures: Pcg64Mcg,
    measure: Measure,
}

impl<'p> World<'p> {
    pub(super) fn new(plan: &'p Plan, arm: &'p Arm, seed: u64) -> Self {
        let mut arena = Arena::new(seed, plan.duration);
        let now = arena.now;
        plan.sources.iter().for_each(|source| arena.add_source(source.rate * arm.load, 1.0, 1.0));
        arena.add_phases(plan.phases.iter().map(|phase| phase.at));
        let clients = arm.clients.unwrap_or(plan.clients);
        let askers = std::iter::once(clients).chain(plan.tiers.iter().map(|tier| tier.tasks));
        let caller = |_| Caller::new(now, arm);
        Self {
            plan,
            arm,
            callers: askers.take(plan.tiers.len()).map(|count| (0..count.get()).map(caller).collect()).collect(),
            services: plan.tiers.iter().map(|tier| Service::new(now, tier, arm)).collect(),
            requests: Slab::default(),
            work: Slab::default(),
            attempts: 0,
            whose: arena.stream("whose"),
            targets: arena.stream("targets"),
            decisions: arena.stream("decisions"),
            failures: arena.stream("failures"),
            measure: Measure::new(plan),
            arena,
        }
    }

    pub(super) fn run(mut self, progress: &mut dyn FnMut(f64)) -> Measured<'p> {
        arena::run(&mut self, progress);
        let clients = self.callers[0].len() as f64;
        Measured { arm: self.arm, clients, measure: self.measure, events: self.arena.events }
    }

    /// Whether clients pass on the deadline of a request and the number of the attempt.
    fn propagates(&self) -> bool {
        matches!(self.arm.retries, Retries::Budgeted { .. })
    }
}

impl arena::World for World<'_> {
    type Event = Event;

    fn arena(&mut self) -> &mut Arena<Event> {
        &mut self.arena
    }

    fn arrive(&mut self, source: usize) {
        self.ask_first(source);
    }

    fn begin_phase(&mut self, number: usize) {
        let load = self.plan.phases[number].load;
        self.arena.set_loads(|_| load);
        for tier in 0..self.plan.tiers.len() {
            let strength = self.plan.tiers[tier].strength.get(number).copied().unwrap_or(1.0);
            self.strengthen(tier, strength);
        }
    }

    fn handle(&mut self, event: Event) {
        match event {
            Event::Reply(attempt, reply) => self.replied(attempt, reply),
            Event::Timeout(attempt) => self.timed_out(attempt),
            Event::Retry(attempt) => self.retry(attempt),
            Event::Done(tier, task) => self.done(tier as usize, task as usize),
        }
    }
}
