//! Tasks at work: requests arrive and are admitted or refused, and messages pass.

use plimsoll_core::Timestamp;
use plimsoll_core::quota::OwnerConfig;
use rand_core::Rng as _;
use rand_pcg::Pcg64Mcg;

use super::Measured;
use super::leases::{Fleet, Step};
use super::measure::Measure;
use super::plan::{Arm, Plan, Rule};
use super::rules::{Request, Shares};
use super::traffic::Traffic;
use crate::kernel::streams::unit;
use crate::model::arena::{self, Arena};

#[derive(Clone, Copy, Debug)]
pub(super) enum Event {
    /// A request of a source at a task.
    Request(u32, u32),
    /// New weights.
    Weigh,
    Fleet(Step),
    /// The owner is lost.
    Lose,
    /// Another owner begins.
    Begin,
}

/// The rule of the arm, with its state.
enum Tasks<'p> {
    Leases(Box<Fleet<'p>>),
    Shares(Shares),
}

pub(super) struct World<'p> {
    plan: &'p Plan,
    arm: &'p Arm,
    arena: Arena<Event>,
    traffic: Vec<Traffic<'p>>,
    tasks: Tasks<'p>,
    draws: Pcg64Mcg,
    times: Pcg64Mcg,
    measure: Measure,
}

impl<'p> World<'p> {
    pub(super) fn new(plan: &'p Plan, arm: &'p Arm, seed: u64) -> Self {
        let mut arena = Arena::new(seed, plan.duration);
        let now = arena.now;
        let traffic: Vec<Traffic<'_>> = (0..plan.sources.len()).map(|i| Traffic::new(plan, i, &arena)).collect();
        traffic.iter().for_each(|of| arena.add_source(of.rate(), 1.0, 1.0));
        arena.add_phases(plan.phases.iter().map(|phase| phase.at));
        for outage in &plan.outages {
            arena.push(Timestamp::from_origin(outage.at), Event::Lose);
            arena.push(Timestamp::from_origin(outage.at + outage.lasts), Event::Begin);
        }
        let tasks = match arm.rule {
            Rule::Leases { outlook, lease } => {
                Tasks::Leases(Box::new(Fleet::new(now, plan, OwnerConfig { lease, outlook })))
            }
            Rule::Even | Rule::Weights { .. } => Tasks::Shares(Shares::new(now, arm.rule, plan)),
        };
        if let Rule::Weights { every } = arm.rule {
            arena.push(now + every, Event::Weigh);
        }
        let mut world = Self {
            plan,
            arm,
            traffic,
            tasks,
            draws: arena.stream("draws"),
            times: arena.stream("times of connections"),
            measure: Measure::new(plan),
            arena,
        };
        world.connect_all();
        world
    }

    pub(super) fn run(mut self, progress: &mut dyn FnMut(f64)) -> Measured<'p> {
        arena::run(&mut self, progress);
        Measured { arm: self.arm, measure: self.measure, events: self.arena.events }
    }

    /// Each task finds the owner at a random time.
    fn connect_all(&mut self) {
        if let Tasks::Leases(_) = self.tasks {
            for task in 0..self.plan.tasks.get() {
                let at = self.arena.now + self.plan.reconnect.mul_f64(unit(&mut self.times)) + 2 * self.plan.delay;
                self.arena.push(at, Event::Fleet(Step::Connect(task)));
            }
        }
        self.schedule();
    }

    /// What the fleet made due.
    fn schedule(&mut self) {
        if let Tasks::Leases(fleet) = &mut self.tasks {
            fleet.due().for_each(|(at, step)| self.arena.push(at, Event::Fleet(step)));
        }
    }

    fn request(&mut self, source: usize, task: usize) {
        let now = self.arena.now;
        let traffic = &mut self.traffic[source];
        let (customer, cost) = (traffic.customer, traffic.cost());
        let draw = (self.draws.next_u64() >> 11) as f64 / (1_u64 << 53) as f64;
        let criticality = self.plan.sources[source].criticality;
        let is_admitted = match &mut self.tasks {
            Tasks::Leases(fleet) => fleet.ask(now, &Request { customer, task, criticality, cost, draw }),
            Tasks::Shares(shares) => shares.ask(now, customer, task, cost),
        };
        self.measure.request(now, source, customer, cost, is_admitted);
        self.schedule();
    }
}

impl arena::World for World<'_> {
    type Event = Event;

    fn arena(&mut self) -> &mut Arena<Event> {
        &mut self.arena
    }

    fn arrive(&mut self, source: usize) {
        let now = self.arena.now;
        let (task, delays) = self.traffic[source].arrive(now);
        for delay in delays {
            if delay.is_zero() {
                self.request(source, task);
            } else {
                self.arena.push(now + delay, Event::Request(source as u32, task as u32));
            }
        }
    }

    fn begin_phase(&mut self, number: usize) {
        let load = self.plan.phases[number].load;
        let sources = &self.plan.sources;
        self.arena.set_loads(|source| load * sources[source].loads.get(number).copied().unwrap_or(1.0));
    }

    fn handle(&mut self, event: Event) {
        let now = self.arena.now;
        match (event, &mut self.tasks) {
            (Event::Request(source, task), _) => self.request(source as usize, task as usize),
            (Event::Weigh, Tasks::Shares(shares)) => {
                shares.weigh(now);
                if let Rule::Weights { every } = self.arm.rule {
                    self.arena.push(now + every, Event::Weigh);
                }
            }
            (Event::Fleet(step), Tasks::Leases(fleet)) => {
                fleet.act(now, step);
                self.schedule();
            }
            (Event::Lose, Tasks::Leases(fleet)) => fleet.lose(),
            (Event::Begin, Tasks::Leases(fleet)) => {
                fleet.begin(now);
                self.connect_all();
            }
            _ => {}
        }
    }
}
