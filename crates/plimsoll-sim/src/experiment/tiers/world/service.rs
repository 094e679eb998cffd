//! How a tier serves: by a rate that it keeps to, by a queue, or by a queue behind the core's shedder.

use std::collections::VecDeque;
use std::time::Duration;

use plimsoll_core::admit::{Admission, Ask, Ranked, RankedConfig, Retry, Shed, Verdict};
use plimsoll_core::retry::{Advice, Failure};
use plimsoll_core::{Timestamp, Weight};

use super::requests::{Reply, Sending};
use super::{Event, World};
use crate::experiment::tiers::plan::{Arm, Server, Tier};
use crate::kernel::streams::unit;

/// A tier that keeps to a rate takes on what comes within so much of it, as one with a short queue does, in seconds.
const BURST: f64 = 0.1;
/// Or so many: the tenth of a second of a tier that serves a few a second holds none.
const LEAST_BURST: f64 = 10.0;
/// A tier that turns everything away answers with so little work that it may be taken for none.
const STANDS_STILL: f64 = 1e-9;

/// What a task has taken on.
#[derive(Debug)]
pub(super) struct Work {
    pub(super) tier: usize,
    pub(super) task: usize,
    pub(super) sending: Sending,
    admission: Option<Admission>,
}

pub(super) struct Service {
    server: Server,
    /// Requests a second at a strength of 1.
    capacity: f64,
    strength: f64,
    /// Of one that keeps to a rate: what it could take on now, and when that was.
    tokens: f64,
    filled: Timestamp,
    tasks: Vec<Task>,
}

struct Task {
    /// The first is being worked on if `is_busy`.
    queue: VecDeque<u32>,
    is_busy: bool,
    shedder: Option<Box<Ranked>>,
}

impl Service {
    pub(super) fn new(now: Timestamp, tier: &Tier, arm: &Arm) -> Self {
        let server = arm.server.unwrap_or(tier.server);
        let task = |_| Task {
            queue: VecDeque::new(),
            is_busy: false,
            shedder: (server == Server::Ranked).then(|| {
                let config = RankedConfig::new(1.0).expect("a core");
                Box::new(Ranked::new(now, config))
            }),
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
        let work = |admission| Work { tier, task, sending, admission };
        match service.server {
            Server::Limited => {
                if service.takes(self.now) {
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
                let ask = Ask {
                    criticality: sending.criticality,
                    customer: 0,
                    share: Weight::ONE,
                    cost: service.cost(),
                    overhead: 0.0,
                    deadline: sending.deadline,
                    cohort: None,
                    is_retry: sending.is_retry,
                };
                let shedder = service.tasks[task].shedder.as_mut().expect("this kind of server has one");
                match shedder.admit(self.now, &ask, &mut self.decisions) {
                    Verdict::Admit(admission) => {
                        let number = self.work.insert(work(Some(admission)));
                        self.enqueue(tier, task, number);
                    }
                    Verdict::Shed(Shed { retry, .. }) => {
                        let advice = match retry {
                            Retry::Elsewhere => Advice::Elsewhere,
                            Retry::After(wait) => Advice::After(wait),
                            Retry::Never => Advice::Never,
                        };
                        self.reject(tier, sending, advice);
                    }
                }
            }
        }
    }

    fn reject(&mut self, tier: usize, sending: Sending, advice: Advice) {
        self.measure.attempt(self.now, tier, |sent| sent.rejected += 1);
        let at = self.now + self.plan.tiers[tier].latency;
        self.queue.push(at, Event::Reply(sending.attempt, Reply::Failed(Failure::TurnedAway(advice))));
    }

    fn enqueue(&mut self, tier: usize, task: usize, number: u32) {
        self.services[tier].tasks[task].queue.push_back(number);
        self.work_on(tier, task);
    }

    /// The task begins with the next request, if it can.
    fn work_on(&mut self, tier: usize, task: usize) {
        let service = &mut self.services[tier];
        if service.strength == 0.0 || service.tasks[task].is_busy {
            return;
        }
        // One that protects itself does not work on what nobody waits for.
        while service.server == Server::Ranked
            && let Some(number) = service.tasks[task].queue.front().copied()
            && self.work[number].sending.deadline.is_some_and(|deadline| deadline <= self.now)
        {
            let of = &mut service.tasks[task];
            of.queue.pop_front();
            if let (Some(shedder), Some(admission)) = (&mut of.shedder, self.work[number].admission.take()) {
                shedder.finish(self.now, admission, 0.0);
            }
            self.work.free(number);
        }
        let cost = service.cost();
        let of = &mut service.tasks[task];
        if !of.queue.is_empty() {
            of.is_busy = true;
            let at = self.now + Duration::from_secs_f64(cost);
            self.queue.push(at, Event::Done(tier as u32, task as u32));
        }
    }

    /// A task has done its part of a request.
    pub(super) fn done(&mut self, tier: usize, task: usize) {
        let service = &mut self.services[tier];
        let cost = service.cost();
        let of = &mut service.tasks[task];
        of.is_busy = false;
        let number = of.queue.pop_front().expect("what is worked on is at the head");
        if let (Some(shedder), Some(admission)) = (&mut of.shedder, self.work[number].admission.take()) {
            shedder.finish(self.now, admission, cost);
        }
        self.worked(number);
        self.work_on(tier, task);
    }

    /// The tier's own part of a request is done: it asks the next tier, or answers.
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
        self.queue.push(self.now + self.plan.tiers[tier].latency, Event::Reply(sending.attempt, reply));
    }

    /// The strength of a tier changes.
    pub(super) fn strengthen(&mut self, tier: usize, strength: f64) {
        let service = &mut self.services[tier];
        // What could be taken on by now is by the strength that there was.
        if strength != service.strength {
            let rate = service.rate();
            service.tokens = (service.tokens + self.now.since(service.filled).as_secs_f64() * rate).min(burst(rate));
            service.filled = self.now;
            service.strength = strength;
            service.tokens = service.tokens.min(burst(service.rate()));
        }
        for task in 0..self.services[tier].tasks.len() {
            self.work_on(tier, task);
        }
    }
}
