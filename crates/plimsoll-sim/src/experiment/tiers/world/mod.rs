//! Tiers at work: what happens, in the order of time. What a client does about a request is in [`requests`], how a tier serves in
//! [`service`], who decides for a client in [`caller`].

mod caller;
mod requests;
mod service;

use plimsoll_core::Timestamp;
use rand_pcg::Pcg64Mcg;

use super::Measured;
use super::measure::Measure;
use super::plan::{Arm, Plan, Retries};
use crate::kernel::NEVER;
use crate::kernel::queue::Queue;
use crate::kernel::slab::Slab;
use crate::kernel::streams::Streams;
use crate::model::arrival;
use caller::Caller;
use requests::{Reply, Request};
use service::{Service, Work};

/// Between two tellings of how far a run is: seldom enough to cost nothing.
const EVENTS_PER_TELLING: u64 = 1 << 16;

/// One attempt of one request: an event for another attempt is void.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Attempt {
    request: u32,
    /// From 1, of all attempts of the run.
    number: u64,
}

#[derive(Clone, Copy, Debug)]
enum Event {
    /// A request of this source.
    Arrive(u32),
    Phase(u32),
    /// The reply to an attempt is with its client.
    Reply(Attempt, Reply),
    /// A client waits no longer for an attempt.
    Timeout(Attempt),
    /// The wait before the next attempt is over.
    Retry(Attempt),
    /// A task of a tier is done with what it works on.
    Done(u32, u32),
}

pub(super) struct World<'p> {
    plan: &'p Plan,
    arm: &'p Arm,
    now: Timestamp,
    queue: Queue<Event>,
    sources: Vec<arrival::Source>,
    load: f64,
    /// Of each tier, those that ask it: the clients, then the tasks of each tier but the last.
    callers: Vec<Vec<Caller>>,
    services: Vec<Service>,
    requests: Slab<Request>,
    work: Slab<Work>,
    attempts: u64,
    /// Which client a request is of, and which task an attempt goes to.
    whose: Pcg64Mcg,
    targets: Pcg64Mcg,
    decisions: Pcg64Mcg,
    failures: Pcg64Mcg,
    measure: Measure,
}

impl<'p> World<'p> {
    pub(super) fn new(plan: &'p Plan, arm: &'p Arm, seed: u64) -> Self {
        let streams = Streams::new(seed);
        let now = Timestamp::ZERO;
        let clients = arm.clients.unwrap_or(plan.clients);
        let askers = std::iter::once(clients).chain(plan.tiers.iter().map(|tier| tier.tasks));
        let caller = |_| Caller::new(now, arm);
        let mut world = Self {
            plan,
            arm,
            now,
            queue: Queue::default(),
            sources: Vec::new(),
            load: 1.0,
            callers: askers.take(plan.tiers.len()).map(|count| (0..count.get()).map(caller).collect()).collect(),
            services: plan.tiers.iter().map(|tier| Service::new(now, tier, arm)).collect(),
            requests: Slab::default(),
            work: Slab::default(),
            attempts: 0,
            whose: streams.stream("whose", 0),
            targets: streams.stream("targets", 0),
            decisions: streams.stream("decisions", 0),
            failures: streams.stream("failures", 0),
            measure: Measure::new(plan),
        };
        for (number, source) in (0..).zip(&plan.sources) {
            let (when, what) = (streams.stream("arrivals", number), streams.stream("costs", number));
            let mut source = arrival::Source::new(when, what, source.rate * arm.load, 1.0);
            world.queue.push(source.advance(now, 1.0), Event::Arrive(number as u32));
            world.sources.push(source);
        }
        for (number, phase) in (0..).zip(&plan.phases) {
            world.queue.push(now + phase.at, Event::Phase(number));
        }
        world
    }

    pub(super) fn run(mut self, progress: &mut dyn FnMut(f64)) -> Measured<'p> {
        let end = Timestamp::from_origin(self.plan.duration);
        let mut events = 0;
        while let Some((at, event)) = self.queue.pop_until(end) {
            self.now = at;
            events += 1;
            if events % EVENTS_PER_TELLING == 0 {
                progress(at.as_nanos() as f64 / end.as_nanos() as f64);
            }
            match event {
                Event::Arrive(source) => self.arrive(source as usize),
                Event::Phase(number) => self.begin_phase(number as usize),
                Event::Reply(attempt, reply) => self.replied(attempt, reply),
                Event::Timeout(attempt) => self.timed_out(attempt),
                Event::Retry(attempt) => self.retry(attempt),
                Event::Done(tier, task) => self.done(tier as usize, task as usize),
            }
        }
        progress(1.0);
        Measured { arm: self.arm, clients: self.callers[0].len() as f64, measure: self.measure, events }
    }

    fn begin_phase(&mut self, number: usize) {
        let load = self.plan.phases[number].load;
        let from = std::mem::replace(&mut self.load, load);
        for (i, source) in (0..).zip(&mut self.sources) {
            let due = source.change(self.now, from, load);
            if due < NEVER {
                self.queue.push(due, Event::Arrive(i));
            }
        }
        for tier in 0..self.plan.tiers.len() {
            let strength = self.plan.tiers[tier].strength.get(number).copied().unwrap_or(1.0);
            self.strengthen(tier, strength);
        }
    }

    /// Whether clients pass on when a request is of no use any more, and which attempt it is.
    fn propagates(&self) -> bool {
        matches!(self.arm.retries, Retries::Budgeted { .. })
    }
}
