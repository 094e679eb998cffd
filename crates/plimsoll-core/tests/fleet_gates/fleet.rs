//! Tasks and their owner under Poisson arrivals, in virtual time.

use std::ops::{Add, Range};
use std::time::Duration;

use plimsoll_core::quota::{Limit, Limits, Owner, OwnerConfig, UNLIMITED};
use plimsoll_core::signal::Gauges;
use plimsoll_core::{Criticality, Rejection, Timestamp};
use rand_core::{Rng as _, SeedableRng as _};
use rand_pcg::Pcg64Mcg;

use crate::Task;

/// Time between two arrivals that are told apart.
const STEP: f64 = 0.002;
/// Steps between two samples of a task, which may report then.
const SAMPLE_STEPS: u64 = 5;
/// Keys of customers without a limit of their own.
pub(crate) const STRANGERS: Range<u64> = 1_000..6_000;

/// Requests of customers at each of some tasks.
#[derive(Clone, Debug)]
pub(crate) struct Load {
    /// Numbered from 1, as the limits of the fleet. Each request is from any of them.
    pub(crate) customers: Range<u64>,
    pub(crate) criticality: Criticality,
    pub(crate) tasks: Range<usize>,
    /// CPUs of demand at each task, of all these customers.
    pub(crate) cpus: f64,
    /// Mean CPU-seconds of a request.
    pub(crate) cost: f64,
    /// One request in ten costs ten times the others.
    pub(crate) is_skewed: bool,
    /// Requests are from each customer in turn.
    pub(crate) is_in_turn: bool,
}

impl Load {
    /// Critical requests of 4 ms.
    pub(crate) const fn new(customer: u64, tasks: Range<usize>, cpus: f64) -> Self {
        let (customers, criticality) = (customer..customer + 1, Criticality::Critical);
        Self { customers, criticality, tasks, cpus, cost: 0.004, is_skewed: false, is_in_turn: false }
    }

    fn cost(&self, rng: &mut Pcg64Mcg) -> f64 {
        match self.is_skewed {
            false => self.cost,
            true if unit(rng) < 0.1 => self.cost * 10.0 / 1.9,
            true => self.cost / 1.9,
        }
    }

    /// The customer of the request of this number.
    fn customer(&self, number: u64, rng: &mut Pcg64Mcg) -> u64 {
        let count = self.customers.end - self.customers.start;
        let at = if self.is_in_turn { number % count } else { (unit(rng) * count as f64) as u64 };
        self.customers.start + at
    }
}

/// The CPU-seconds of requests.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Served {
    pub(crate) asked: f64,
    pub(crate) served: f64,
    pub(crate) refused: f64,
    /// Those of refused requests with the advice against retries.
    pub(crate) no_retry: f64,
}

impl Served {
    /// The part of the demand that is served.
    pub(crate) fn part(&self) -> f64 {
        self.served / self.asked
    }
}

impl Add for Served {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            asked: self.asked + other.asked,
            served: self.served + other.served,
            refused: self.refused + other.refused,
            no_retry: self.no_retry + other.no_retry,
        }
    }
}

/// The requests of each load at each task.
pub(crate) struct Outcome(Vec<Vec<Served>>);

impl Outcome {
    /// Those of a load at one task.
    pub(crate) fn at(&self, load: usize, task: usize) -> Served {
        self.0[load][task]
    }

    /// Those of a load at all tasks.
    pub(crate) fn of(&self, load: usize) -> Served {
        self.0[load].iter().fold(Served::default(), |sum, served| sum + *served)
    }
}

/// Tasks of a core each.
pub(crate) struct Fleet {
    owner: Owner,
    tasks: Vec<Task>,
    rng: Pcg64Mcg,
    steps: u64,
}

impl Fleet {
    /// Customer k + 1 has the soft limit `soft[k]`, in CPUs.
    pub(crate) fn new(seed: u64, tasks: usize, soft: &[f64]) -> Self {
        let limit = |soft: &f64| Limit { soft: Some((soft * 1e6) as u64), ..Limit::new(UNLIMITED) };
        Self::with_limits(seed, tasks, &soft.iter().map(limit).collect::<Vec<_>>(), None)
    }

    /// Customer k + 1 has the limit `named[k]`; all others, and requests without a customer, have `others`.
    pub(crate) fn with_limits(seed: u64, tasks: usize, named: &[Limit], others: Option<Limit>) -> Self {
        let mut owner = Owner::new(Timestamp::ZERO, OwnerConfig::default());
        let count = if others.is_some() { STRANGERS.end } else { 1 + named.len() as u64 };
        for customer in 0..count as usize {
            let named = customer.checked_sub(1).and_then(|at| named.get(at)).copied();
            let limit = named.or(others).unwrap_or(Limit::new(UNLIMITED));
            let id = owner.add_customer(Timestamp::ZERO, limit.limit);
            owner.set_soft_limit(id, limit.soft.is_some());
        }
        let named = (1..).zip(named.iter().copied()).collect();
        let limits = Limits { named, others, ..Limits::default() };
        let tasks = (0..tasks).map(|_| Task::new(&mut owner, limits.clone())).collect();
        Self { owner, tasks, rng: Pcg64Mcg::seed_from_u64(seed), steps: 0 }
    }

    /// Runs the loads for some seconds.
    pub(crate) fn run(&mut self, loads: &[Load], seconds: f64) -> Outcome {
        let begun = self.seconds();
        let gap = |load: &Load, rng: &mut Pcg64Mcg| -(1.0 - unit(rng)).ln() * load.cost / load.cpus;
        let mut next: Vec<Vec<f64>> = Vec::new();
        for load in loads {
            next.push(load.tasks.clone().map(|_| begun + gap(load, &mut self.rng)).collect());
        }
        let mut outcome = vec![vec![Served::default(); self.tasks.len()]; loads.len()];
        let mut numbers = vec![0; loads.len()];
        let mut due = Vec::new();
        for _ in 0..(seconds / STEP) as u64 {
            self.step();
            let (now, at) = (self.now(), self.seconds());
            for (which, load) in loads.iter().enumerate() {
                for (task, next) in load.tasks.clone().zip(&mut next[which]) {
                    while *next <= at {
                        due.push((*next, which, task));
                        *next += gap(load, &mut self.rng);
                    }
                }
            }
            // The first of a step has the best chance.
            due.sort_by(|(one, ..), (other, ..)| one.total_cmp(other));
            for (_, which, task) in due.drain(..) {
                numbers[which] += 1;
                let asked = self.ask(now, task, &loads[which], numbers[which]);
                let sum = &mut outcome[which][task];
                *sum = *sum + asked;
            }
            if self.steps.is_multiple_of(SAMPLE_STEPS) {
                self.report(now);
            }
        }
        Outcome(outcome)
    }

    fn ask(&mut self, now: Timestamp, task: usize, load: &Load, number: u64) -> Served {
        let (asked, customer) = (load.cost(&mut self.rng), load.customer(number, &mut self.rng));
        match self.tasks[task].ask_at(now, customer, load.criticality, asked, &mut self.rng) {
            Ok(()) => Served { asked, served: asked, ..Served::default() },
            Err(Rejection::OverloadedNoRetry) => Served { asked, refused: asked, no_retry: asked, ..Served::default() },
            Err(_) => Served { asked, refused: asked, ..Served::default() },
        }
    }

    fn step(&mut self) {
        self.steps += 1;
        let now = self.now();
        self.owner.handle_timeout(now);
        while let Some((id, assignment)) = self.owner.poll_assignment() {
            self.tasks.iter_mut().find(|task| task.id == id).expect("it joined").assign(now, assignment);
        }
        for task in &mut self.tasks {
            task.run(now, STEP);
            if self.steps.is_multiple_of(SAMPLE_STEPS) {
                task.seen.runnable = task.running.len() as f64;
                task.gate.observe(now, task.seen, &Gauges::default());
            }
        }
    }

    fn report(&mut self, now: Timestamp) {
        for task in &mut self.tasks {
            if let Some(report) = task.report(now) {
                let answer = self.owner.report(now, task.id, &report).expect("in order");
                task.assign(now, answer);
            }
        }
    }

    fn seconds(&self) -> f64 {
        self.steps as f64 * STEP
    }

    fn now(&self) -> Timestamp {
        Timestamp::ZERO + Duration::from_secs_f64(self.seconds())
    }
}

/// A number in [0, 1).
fn unit(rng: &mut Pcg64Mcg) -> f64 {
    f64::from(rng.next_u32()) / (f64::from(u32::MAX) + 1.0)
}
