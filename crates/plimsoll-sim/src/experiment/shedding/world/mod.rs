//! The server at work. [`tasks`] holds the life of a task.

mod tasks;

use std::collections::VecDeque;
use std::time::Duration;

use plimsoll_core::Timestamp;
use plimsoll_core::admit::AdmissionConfig;
use rand_pcg::Pcg64Mcg;

use super::Measured;
use super::measure::{Measure, Reading};
use super::meters::Meters;
use super::plan::{Arm, Plan, Shedder, Source};
use crate::kernel::NEVER;
use crate::kernel::queue::Lane;
use crate::kernel::slab::Slab;
use crate::model::arena::{self, Arena};
use crate::model::cost::Sampler;
use crate::model::gated::Gated;
use crate::model::processor::Processor;
use crate::reference::procrustean::{Procrustean, ProcrusteanConfig};
use tasks::Task;

/// The number of a rejection, which runs in the processor as requests do.
const REJECTION: u32 = u32::MAX;

#[derive(Clone, Copy, Debug)]
pub(super) enum Event {
    /// A task's request is retried.
    Retry(u32),
    /// The user of a task leaves.
    Expire(u32),
    Complete,
    Tick,
}

/// The rule that sheds requests.
enum Guard {
    None,
    Procrustean(Procrustean),
    Ranked(Box<Gated>),
}

impl Guard {
    fn new(now: Timestamp, shedder: Shedder, cores: f64) -> Self {
        match shedder {
            Shedder::None => Self::None,
            Shedder::Procrustean { soft, hard } => {
                let config = ProcrusteanConfig::new(soft, hard).expect("the plan has them in order");
                Self::Procrustean(Procrustean::new(config))
            }
            Shedder::Ranked { load_line, target_delay, outlook } => {
                let mut config = AdmissionConfig::new(cores).expect("the plan has more than no cores");
                (config.load_line, config.target_delay, config.outlook) = (load_line, target_delay, outlook);
                Self::Ranked(Box::new(Gated::new(now, config)))
            }
        }
    }
}

/// Draws of the tasks of one source, beside their arrivals.
struct Origin {
    costs: Sampler,
    /// Costs of all requests of a task but the first. The number of these depends on the arm, and
    /// must not change the costs of first requests.
    later_costs: Pcg64Mcg,
    customers: Pcg64Mcg,
    ages: Pcg64Mcg,
    patience: Duration,
}

impl Origin {
    fn new(plan: &Plan, source: &Source, number: u64, arena: &Arena<Event>) -> Self {
        let stream = |label| arena.streams.stream(label, number);
        let cost = source.cost.unwrap_or(plan.cost);
        Self {
            costs: cost.sampler(),
            later_costs: stream("later costs"),
            customers: stream("customers"),
            ages: stream("ages"),
            patience: source.patience.unwrap_or(plan.patience),
        }
    }
}

pub(super) struct World<'p> {
    plan: &'p Plan,
    arm: &'p Arm,
    cores: f64,
    arena: Arena<Event>,
    ticks: Lane,
    origins: Vec<Origin>,
    processor: Processor,
    /// CPU-seconds of a request beside its cost.
    overhead: f64,
    /// Most running requests.
    concurrency: usize,
    /// Running requests.
    running: usize,
    /// Admitted requests that wait for a running one to end.
    waiting: VecDeque<u32>,
    /// Expected end of the next request. An event for another time is void.
    scheduled: Timestamp,
    tasks: Slab<Task>,
    /// Number of tasks so far: the number of a cohort.
    arrived: u64,
    /// Requests in progress, and the maximum since the last reading.
    in_progress: usize,
    most_in_progress: usize,
    /// Tasks with a request that the shedder measures.
    metered: Vec<u32>,
    guard: Guard,
    rng: Pcg64Mcg,
    waits: Pcg64Mcg,
    /// CPU-seconds admitted so far.
    taken: f64,
    meters: Meters,
    measure: Measure,
}

impl<'p> World<'p> {
    pub(super) fn new(plan: &'p Plan, arm: &'p Arm, seed: u64) -> Self {
        let mut arena = Arena::new(seed, plan.duration);
        let now = arena.now;
        let cores = arm.cores.unwrap_or(plan.cores);
        plan.sources.iter().for_each(|source| arena.add_source(source.rate, 1.0, 1.0));
        arena.add_phases(plan.phases.iter().map(|phase| phase.at));
        let ticks = arena.open_lane();
        arena.push_lane(ticks, now + plan.tick, Event::Tick);
        let origins = (0..).zip(&plan.sources).map(|(number, source)| Origin::new(plan, source, number, &arena));
        Self {
            plan,
            arm,
            cores,
            ticks,
            origins: origins.collect(),
            processor: Processor::new(now, cores, 1.0),
            overhead: plan.overhead.as_secs_f64(),
            concurrency: arm.concurrency.or(plan.concurrency).map_or(usize::MAX, |most| most.get() as usize),
            running: 0,
            waiting: VecDeque::new(),
            scheduled: NEVER,
            tasks: Slab::default(),
            arrived: 0,
            in_progress: 0,
            most_in_progress: 0,
            metered: Vec::new(),
            guard: Guard::new(now, arm.shedder, cores),
            rng: arena.stream("admission"),
            waits: arena.stream("waits"),
            taken: 0.0,
            meters: Meters::new(plan.sources.len(), plan.tick),
            measure: Measure::new(plan),
            arena,
        }
    }

    pub(super) fn run(mut self, progress: &mut dyn FnMut(f64)) -> Measured<'p> {
        arena::run(&mut self, progress);
        Measured { arm: self.arm, cores: self.cores, measure: self.measure, events: self.arena.events }
    }

    fn expect_end(&mut self) {
        if let Some(at) = self.processor.next()
            && at < self.scheduled
        {
            self.scheduled = at;
            self.arena.push(at, Event::Complete);
        }
    }

    fn complete(&mut self) {
        if self.scheduled != self.arena.now {
            return;
        }
        self.scheduled = NEVER;
        self.processor.advance(self.arena.now);
        while let Some(number) = self.processor.pop_ended() {
            if number != REJECTION {
                self.end_request(number);
            }
        }
        self.expect_end();
    }

    /// Reports running requests to the gate that have used their expected cost. A server that times
    /// each poll of a request's task knows it too. On a worker thread a request is timed as a
    /// whole, so the gate learns it at the end.
    fn meter(&mut self) {
        if self.concurrency < usize::MAX {
            return;
        }
        let Guard::Ranked(server) = &mut self.guard else { return };
        for number in &self.metered {
            if let Some(running) = &mut self.tasks[*number].running
                && let Some((entry, begun)) = running.entry.as_mut().zip(running.begun)
            {
                // The overhead comes first, and is charged to no request.
                let used = self.processor.work() - begun - self.overhead;
                if used >= entry.progress_due() {
                    server.gate.progress(self.arena.now, entry, used);
                    server.charged += used - std::mem::replace(&mut running.told, used);
                }
            }
        }
    }

    fn tick(&mut self) {
        self.processor.advance(self.arena.now);
        self.meter();
        let (now, measure) = (self.arena.now, &mut self.measure);
        self.meters.tick(self.processor.work(), |source, used| measure.used_in_a_second(now, source, used));
        let left = (self.taken - self.processor.cpu()).max(0.0) / self.cores;
        self.measure.readings.push(Reading {
            at: self.arena.now.since(Timestamp::ZERO),
            delay: Duration::from_secs_f64(left),
            cpu: self.processor.cpu(),
            in_progress: std::mem::replace(&mut self.most_in_progress, self.in_progress),
        });
        self.arena.push_lane(self.ticks, self.arena.now + self.plan.tick, Event::Tick);
    }
}

impl arena::World for World<'_> {
    type Event = Event;

    fn arena(&mut self) -> &mut Arena<Event> {
        &mut self.arena
    }

    fn arrive(&mut self, source: usize) {
        self.begin_task(source);
    }

    fn begin_phase(&mut self, number: usize) {
        let (phase, sources) = (&self.plan.phases[number], &self.plan.sources);
        self.arena.set_loads(|i| phase.load * sources[i].load.get(number).copied().unwrap_or(1.0));
    }

    fn handle(&mut self, event: Event) {
        match event {
            Event::Retry(task) => self.retry(task),
            Event::Expire(task) => self.expire(task),
            Event::Complete => self.complete(),
            Event::Tick => self.tick(),
        }
    }
}
