//! Tasks at work: requests arrive and are admitted or refused, and messages pass.

use std::time::Duration;

use plimsoll_core::Timestamp;
use plimsoll_core::quota::{FairShare, OwnerConfig};
use rand_core::Rng as _;
use rand_pcg::Pcg64Mcg;

use super::Measured;
use super::accidents::{Accident, Draws};
use super::cores::Cores;
use super::customers::Customers;
use super::doorman::{self, Doorman, Tree};
use super::leases::{Fleet, Step};
use super::measure::Measure;
use super::plan::{Arm, Plan, Rule, Spread};
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
    Doorman(doorman::Step),
    /// The demand of a source's tasks changes.
    Drift(u32),
    /// The rates in use are sampled.
    Sample,
    Accident,
    /// The limit of a customer changes, by the change of this number.
    Change(u32),
    /// The owner is lost.
    Lose,
    /// Another owner begins.
    Begin,
    /// Another master of this server of a tree begins, chosen at random.
    Elect(u32, f64),
}

/// The rule of the arm, with its state.
enum Tasks<'p> {
    Leases(Box<Fleet<'p>>),
    Shares(Shares),
    Doorman(Box<Doorman>),
}

pub(super) struct World<'p> {
    plan: &'p Plan,
    arm: &'p Arm,
    arena: Arena<Event>,
    traffic: Vec<Traffic<'p>>,
    tasks: Tasks<'p>,
    /// `None`: CPU is not scarce.
    cores: Option<Cores>,
    /// Soft limits of the customers.
    soft: Vec<Option<f64>>,
    draws: Pcg64Mcg,
    times: Pcg64Mcg,
    accidents: Draws,
    measure: Measure,
}

impl<'p> World<'p> {
    pub(super) fn new(plan: &'p Plan, arm: &'p Arm, seed: u64) -> Self {
        let mut arena = Arena::new(seed, plan.duration);
        let now = arena.now;
        let customers = Customers::new(plan);
        let sources = 0..plan.sources.len();
        let traffic: Vec<Traffic<'_>> = sources.map(|i| Traffic::new(plan, &customers, i, &arena)).collect();
        traffic.iter().for_each(|of| arena.add_source(of.rate(), 1.0, 1.0));
        arena.add_phases(plan.phases.iter().map(|phase| phase.at));
        for outage in &plan.outages {
            arena.push(Timestamp::from_origin(outage.at), Event::Lose);
            arena.push(Timestamp::from_origin(outage.at + outage.lasts), Event::Begin);
        }
        for (change, number) in plan.changes.iter().zip(0..) {
            arena.push(Timestamp::from_origin(change.at), Event::Change(number));
        }
        let tasks = match arm.rule {
            Rule::Leases { outlook, lease, trial, groups } => Tasks::Leases(Box::new(Fleet::new(
                now,
                plan,
                OwnerConfig { lease, outlook, ..OwnerConfig::default() },
                trial,
                groups,
            ))),
            Rule::Even | Rule::Weights { .. } => Tasks::Shares(Shares::new(now, arm.rule, plan)),
            Rule::Doorman { levels, branches, refresh, lease } => {
                let (levels, branches) = (levels.get(), branches.get());
                let tree = Tree { levels, branches, refresh, lease, delay: plan.delay };
                Tasks::Doorman(Box::new(Doorman::new(now, tree, plan.tasks.get() as usize, &customers.limits)))
            }
        };
        if let Rule::Weights { every } = arm.rule {
            arena.push(now + every, Event::Weigh);
        }
        for (number, source) in (0..).zip(&plan.sources) {
            if let Spread::Drifting { every, .. } = source.spread {
                arena.push(now + every, Event::Drift(number));
            }
        }
        let accidents = Draws::new(plan, &arena);
        if let Some(at) = accidents.next(now) {
            arena.push(at, Event::Accident);
        }
        arena.push(now + plan.sample_every, Event::Sample);
        let mut world = Self {
            plan,
            arm,
            traffic,
            tasks,
            cores: plan.cpus.map(|cpus| Cores::new(now, plan.tasks.get() as usize, cpus)),
            soft: customers.soft.clone(),
            draws: arena.stream("draws"),
            times: arena.stream("times of connections"),
            accidents,
            measure: Measure::new(plan, customers),
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
        let begins = self.arena.now + 2 * self.plan.delay;
        let mut at = || begins + self.plan.reconnect.mul_f64(unit(&mut self.times));
        match &mut self.tasks {
            Tasks::Leases(_) => {
                for task in 0..self.plan.tasks.get() {
                    self.arena.push(at(), Event::Fleet(Step::Connect(task)));
                }
            }
            Tasks::Doorman(doorman) => doorman.begin(at),
            Tasks::Shares(_) => {}
        }
        self.schedule();
    }

    /// What the last step made due, and the messages that it sent.
    fn schedule(&mut self) {
        let sent = match &mut self.tasks {
            Tasks::Leases(fleet) => {
                fleet.due().for_each(|(at, step)| self.arena.push(at, Event::Fleet(step)));
                &mut fleet.sent
            }
            Tasks::Doorman(doorman) => {
                doorman.due().for_each(|(at, step)| self.arena.push(at, Event::Doorman(step)));
                &mut doorman.sent
            }
            Tasks::Shares(_) => return,
        };
        if !sent.is_empty() {
            self.measure.messages(self.arena.now, &std::mem::take(sent));
        }
    }

    fn request(&mut self, source: usize, task: usize) {
        let now = self.arena.now;
        let traffic = &mut self.traffic[source];
        let (customer, cost) = (traffic.customer(), traffic.cost());
        let draw = (self.draws.next_u64() >> 11) as f64 / (1_u64 << 53) as f64;
        let criticality = self.plan.sources[source].criticality;
        let request = Request { customer, task, criticality, cost, draw };
        let (cores, draws) = (&mut self.cores, &mut self.draws);
        let own = FairShare { share: self.soft[customer].unwrap_or(1.0), demand: None };
        let mut admit = |expected, fair| match cores {
            Some(cores) => cores.admit(now, &request, expected, fair, draws),
            None => true,
        };
        let is_admitted = match &mut self.tasks {
            Tasks::Leases(fleet) => fleet.ask(now, &request, |expected, fair| admit(expected, fair.unwrap_or(own))),
            Tasks::Doorman(doorman) => doorman.ask(now, &request) && admit(cost, own),
            Tasks::Shares(shares) => shares.ask(now, customer, task, cost) && admit(cost, own),
        };
        self.measure.request(now, source, customer, cost, is_admitted);
        self.schedule();
    }

    /// The demand of a source changed.
    fn set_loads(&mut self) {
        let traffic = &self.traffic;
        self.arena.set_loads(|source| traffic[source].load());
    }

    fn sample(&mut self) {
        let now = self.arena.now;
        match &mut self.tasks {
            Tasks::Leases(fleet) => self.measure.held(now, fleet.held().into_iter()),
            Tasks::Doorman(doorman) => self.measure.held(now, doorman.held(now)),
            Tasks::Shares(shares) => self.measure.held(now, shares.held()),
        }
        self.arena.push(now + self.plan.sample_every, Event::Sample);
    }

    fn happen(&mut self) {
        let now = self.arena.now;
        match self.accidents.draw() {
            Some(Accident::Spike { source, task }) => {
                self.traffic[source].spike(task, self.plan.accidents.spike);
                self.set_loads();
            }
            Some(Accident::Loss { server, successor, lasts }) => self.lose(server, successor, lasts),
            None => {}
        }
        if let Some(at) = self.accidents.next(now) {
            self.arena.push(at, Event::Accident);
        }
    }

    /// The owner is lost, or the server at this part of a tree, and another one follows.
    fn lose(&mut self, server: f64, successor: f64, lasts: Duration) {
        let now = self.arena.now;
        match &mut self.tasks {
            Tasks::Leases(fleet) => {
                fleet.lose();
                self.arena.push(now + lasts, Event::Begin);
            }
            // With an election the old master may stay.
            Tasks::Doorman(doorman) if lasts.is_zero() => doorman.elect(now, doorman.server(server), successor),
            Tasks::Doorman(doorman) => {
                let server = doorman.lose(server);
                self.arena.push(now + lasts, Event::Elect(server, successor));
            }
            Tasks::Shares(_) => {}
        }
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
        for (traffic, source) in self.traffic.iter_mut().zip(&self.plan.sources) {
            traffic.set_load(load * source.loads.get(number).copied().unwrap_or(1.0));
        }
        self.set_loads();
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
            (Event::Doorman(step), Tasks::Doorman(doorman)) => {
                let traffic = &self.traffic;
                let demand = |task, customer| traffic.iter().map(|of| of.demand(task, customer)).sum();
                doorman.act(now, step, demand);
                self.schedule();
            }
            (Event::Drift(source), _) => {
                if let Spread::Drifting { every, by } = self.plan.sources[source as usize].spread {
                    self.traffic[source as usize].drift(by);
                    self.arena.push(now + every, Event::Drift(source));
                }
                self.set_loads();
            }
            (Event::Sample, _) => self.sample(),
            (Event::Accident, _) => self.happen(),
            (Event::Elect(server, successor), Tasks::Doorman(doorman)) => {
                doorman.elect(now, server, successor);
                self.schedule();
            }
            (Event::Change(number), Tasks::Leases(fleet)) => {
                fleet.change(now, number as usize);
                self.schedule();
            }
            (Event::Lose, Tasks::Leases(fleet)) => fleet.lose(),
            (Event::Lose, Tasks::Doorman(doorman)) => doorman.lose_root(),
            (Event::Begin, Tasks::Doorman(doorman)) => {
                doorman.elect(now, 0, unit(&mut self.times));
                self.schedule();
            }
            (Event::Begin, Tasks::Leases(fleet)) => {
                fleet.begin(now);
                self.connect_all();
            }
            _ => {}
        }
    }
}
