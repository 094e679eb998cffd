//! The servers of a tier: a fixed rate, a queue, or a queue behind the core's gate.

use std::collections::VecDeque;
use std::time::Duration;

use plimsoll_core::Timestamp;
use plimsoll_core::admit::{AdmissionConfig, Arrival, Entry, GateVerdict, Quota};
use plimsoll_core::meter::Kind;
use plimsoll_core::retry::{Advice, Failure};

use super::requests::{Reply, Sending};
use super::{Event, World};
use crate::experiment::tiers::plan::{Arm, Server, Tier};
use crate::kernel::streams::unit;
use crate::model::gated::Gated;

/// Seconds of its rate that a tier with a fixed rate admits as a burst, as a server with a short
/// queue does.
const BURST: f64 = 0.1;
/// Smallest burst. A tenth of a second of a slow tier would hold no request.
const LEAST_BURST: f64 = 10.0;
/// Smallest rate. A tier that sheds everything does almost no work for its answers.
const STANDS_STILL: f64 = 1e-9;
/// All requests are alike, and of one customer.
const KIND: Kind = Kind { route: 0, customer: 0 };

/// An admitted request.
#[derive(Debug)]
pub(super) struct Work {
    pub(super) tier: usize,
    pub(super) task: usize,
    pub(super) sending: Sending,
    entry: Option<Entry>,
}

pub(super) struct Service {
    server: Server,
    /// Requests a second at a strength of 1.
    capacity: f64,
    strength: f64,
    /// With a fixed rate: requests that could be admitted at the time `filled`.
    tokens: f64,
    filled: Timestamp,
    tasks: Vec<Task>,
}

struct Task {
    /// The first one is in progress if `is_busy`.
    queue: VecDeque<u32>,
    is_busy: bool,
    guard: Option<Box<Guard>>,
}

/// A task behind a gate.
struct Guard {
    server: Gated,
    /// End of the current request, which is charged from its start.
    busy_until: Timestamp,
}

impl Guard {
    fn new(now: Timestamp) -> Self {
        Self { server: Gated::new(now, AdmissionConfig::new(1.0).expect("a core")), busy_until: now }
    }

    /// Updates the gate if it is time.
    fn look(&mut self, now: Timestamp, waiting: usize) {
        let cpu = self.server.charged - self.busy_until.since(now).as_secs_f64();
        self.server.look(now, cpu, waiting);
    }
}

impl Service {
    pub(super) fn new(now: Timestamp, tier: &Tier, arm: &Arm) -> Self {
        let server = arm.server.unwrap_or(tier.server);
        let task = |_| Task {
            queue: VecDeque::new(),
            is_busy: false,
            guard: (server == Server::Ranked).then(|| Box::new(Guard::new(now))),
        };
        Self {
            server,
            capacity: tier.capacity,
            strength: 1.0,
            tokens: burst(tier.capacity),
            filled: now,
            tasks: (0..tier.tasks.get()).map(task).collect(),
        }
    }

    fn rate(&self) -> f64 {
        self.capacity * self.strength
    }

    /// Whether a request is within the rate.
    fn takes(&mut self, now: Timestamp) -> bool {
        let rate = self.rate();
        self.tokens = (self.tokens + now.since(self.filled).as_secs_f64() * rate).min(burst(rate));
        self.filled = now;
        let is_within = self.tokens >= 1.0;
        self.tokens -= f64::from(u8::from(is_within));
        is_within
    }

    /// CPU-seconds of a request: a task has one core.
    fn cost(&self) -> f64 {
        self.tasks.len() as f64 / self.rate().max(STANDS_STILL)
    }
}

fn burst(rate: f64) -> f64 {
    if rate > 0.0 { (rate * BURST).max(LEAST_BURST) } else { 0.0 }
}

impl World<'_> {
    /// An attempt is with a task.
    pub(super) fn serve(&mut self, tier: usize, task: usize, sending: Sending) {
        let service = &mut self.services[tier];
        let work = |entry| Work { tier, task, sending, entry };
        match service.server {
            Server::Limited => {
                if service.takes(self.arena.now) {
                    let number = self.work.insert(work(None));
                    self.worked(number);
                } else {
                    self.reject(tier, sending, Advice::None);
                }
            }
            Server::Queue => {
                let number = self.work.insert(work(None));
                self.enqueue(tier, task, number);
            }
            Server::Ranked => {
                let Task { guard, queue, .. } = &mut service.tasks[task];
                let guard = guard.as_mut().expect("this kind of server has one");
                guard.look(self.arena.now, queue.len());
                let arrival = Arrival {
                    criticality: sending.criticality,
                    kind: KIND,
                    quota: Quota::UNLIMITED,
                    timeout: sending.deadline.map(|deadline| deadline.since(self.arena.now)),
                    cohort: None,
                    is_retry: sending.is_retry,
                };
                match guard.server.gate.ask(self.arena.now, &arrival, &mut self.decisions) {
                    GateVerdict::Admitted(entry) => {
                        let number = self.work.insert(work(Some(entry)));
                        self.enqueue(tier, task, number);
                    }
                    GateVerdict::Shed(shed) | GateVerdict::WouldShed(_, shed) => {
                        self.reject(tier, sending, shed.advice());
                    }
                }
            }
        }
    }

    fn reject(&mut self, tier: usize, sending: Sending, advice: Advice) {
        self.measure.attempt(self.arena.now, tier, |sent| sent.rejected += 1);
        let at = self.arena.now + self.plan.tiers[tier].latency;
        self.arena.push(at, Event::Reply(sending.attempt, Reply::Failed(Failure::Shed(advice))));
    }

    fn enqueue(&mut self, tier: usize, task: usize, number: u32) {
        self.services[tier].tasks[task].queue.push_back(number);
        self.work_on(tier, task);
    }

    /// Starts the next request, if the task is free.
    fn work_on(&mut self, tier: usize, task: usize) {
        let service = &mut self.services[tier];
        if service.strength == 0.0 || service.tasks[task].is_busy {
            return;
        }
        // A task with a gate skips abandoned requests.
        while service.server == Server::Ranked
            && let Some(number) = service.tasks[task].queue.front().copied()
            && self.work[number].sending.deadline.is_some_and(|deadline| deadline <= self.arena.now)
        {
            let of = &mut service.tasks[task];
            of.queue.pop_front();
            if let (Some(guard), Some(entry)) = (&mut of.guard, self.work[number].entry.take()) {
                guard.server.gate.end_unsent(self.arena.now, entry);
            }
            self.work.free(number);
        }
        let cost = service.cost();
        let of = &mut service.tasks[task];
        if !of.queue.is_empty() {
            of.is_busy = true;
            let at = self.arena.now + Duration::from_secs_f64(cost);
            if let Some(guard) = &mut of.guard {
                guard.server.charged += cost;
                guard.busy_until = at;
            }
            self.arena.push(at, Event::Done(tier as u32, task as u32));
        }
    }

    /// A task finishes its part of a request.
    pub(super) fn done(&mut self, tier: usize, task: usize) {
        let service = &mut self.services[tier];
        let cost = service.cost();
        let of = &mut service.tasks[task];
        of.is_busy = false;
        let number = of.queue.pop_front().expect("what is worked on is at the head");
        if let (Some(guard), Some(entry)) = (&mut of.guard, self.work[number].entry.take()) {
            guard.server.gate.end(self.arena.now, entry, cost);
        }
        self.worked(number);
        self.work_on(tier, task);
    }

    /// The tier's own part of a request is done. The task asks the next tier, or answers.
    fn worked(&mut self, number: u32) {
        let tier = self.work[number].tier;
        let errors = self.plan.tiers[tier].errors.as_f64();
        if errors > 0.0 && unit(&mut self.failures) < errors {
            let sending = self.work[number].sending;
            self.work.free(number);
            self.reject(tier, sending, Advice::None);
        } else if tier + 1 < self.plan.tiers.len() {
            self.ask_next(number);
        } else {
            self.answer(number, Reply::Ok);
        }
    }

    /// A task answers what it was sent.
    pub(super) fn answer(&mut self, number: u32, reply: Reply) {
        let Work { tier, sending, .. } = self.work[number];
        self.work.free(number);
        self.arena.push(self.arena.now + self.plan.tiers[tier].latency, Event::Reply(sending.attempt, reply));
    }

    /// The strength of a tier changes.
    pub(super) fn strengthen(&mut self, tier: usize, strength: f64) {
        let service = &mut self.services[tier];
        // Requests that could be admitted by now, at the strength until now.
        if strength != service.strength {
            let rate = service.rate();
            service.tokens =
                (service.tokens + self.arena.now.since(service.filled).as_secs_f64() * rate).min(burst(rate));
            service.filled = self.arena.now;
            service.strength = strength;
            service.tokens = service.tokens.min(burst(service.rate()));
        }
        for task in 0..self.services[tier].tasks.len() {
            self.work_on(tier, task);
        }
    }
}
