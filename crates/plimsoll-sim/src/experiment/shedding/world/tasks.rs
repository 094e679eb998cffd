//! The life of a task: its requests are admitted or shed, retried or abandoned, answered in time or
//! late.

use std::time::Duration;

use plimsoll_core::admit::{Arrival, Entry, Shed};
use plimsoll_core::meter::Kind;
use plimsoll_core::{Criticality, Rejection, Timestamp};
use rand_core::Rng as _;
use rand_distr::{Distribution as _, Exp1};

use super::{Event, Guard, REJECTION, World};
use crate::experiment::shedding::measure::Tally;
use crate::experiment::shedding::plan::{Abandoned, Cohorts};
use crate::kernel::NEVER;
use crate::kernel::streams::unit;

/// A task in progress.
#[derive(Debug)]
pub(super) struct Task {
    source: usize,
    arrived: Timestamp,
    /// Time that its user had waited before.
    age: Duration,
    customer: u64,
    cohort: u64,
    /// Requests without an answer yet.
    calls: u32,
    /// Retries left for the current request.
    retries: u32,
    /// CPU-seconds of the current request.
    cost: f64,
    /// CPU-seconds of the answered requests.
    used: f64,
    /// Time of the next retry, and of the task's end. An event for another time is void.
    wakes: Timestamp,
    expires: Timestamp,
    pub(super) running: Option<Running>,
}

/// A request in progress.
#[derive(Debug)]
pub(super) struct Running {
    /// The processor's work at the start; `None` while it waits.
    pub(super) begun: Option<f64>,
    /// `None` without a gate.
    pub(super) entry: Option<Entry>,
    /// CPU-seconds that the gate knows of.
    pub(super) told: f64,
}

/// The end of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ending {
    Useful,
    Late,
    Expired,
    Shed,
    Hopeless,
    Cancelled,
}

impl World<'_> {
    pub(super) fn begin_task(&mut self, number: usize) {
        let (source, origin) = (&self.plan.sources[number], &mut self.origins[number]);
        let cost = self.arena.sources[number].cost(&origin.costs);
        let age = if source.age.is_zero() {
            Duration::ZERO
        } else {
            let means: f64 = Exp1.sample(&mut origin.ages);
            source.age.mul_f64(means)
        };
        let customers = source.customers.get();
        let other = if customers == 1 { 0 } else { origin.customers.next_u64() % u64::from(customers) };
        let task = Task {
            source: number,
            arrived: self.arena.now,
            age,
            customer: source.customer.wrapping_add(other),
            cohort: self.arrived,
            calls: source.calls.get(),
            retries: source.retries,
            cost,
            used: 0.0,
            wakes: NEVER,
            expires: match self.plan.abandoned {
                Abandoned::Finished => NEVER,
                Abandoned::Dropped => self.arena.now + origin.patience.saturating_sub(age),
            },
            running: None,
        };
        self.arrived += 1;
        let expires = task.expires;
        let task = self.tasks.insert(task);
        if expires < NEVER {
            self.arena.push(expires, Event::Expire(task));
        }
        self.measure.count(self.arena.now, number, |tally| tally.arrived += 1);
        self.send(task, false);
        self.expect_end();
    }

    pub(super) fn retry(&mut self, number: u32) {
        if self.tasks[number].wakes == self.arena.now {
            self.tasks[number].wakes = NEVER;
            self.send(number, true);
            self.expect_end();
        }
    }

    /// Sends the current request of a task.
    fn send(&mut self, number: u32, is_retry: bool) {
        let Task { source, arrived, cost, .. } = self.tasks[number];
        let base = self.plan.sources[source].criticality;
        let age = self.age(number);
        let Some(criticality) = self.arm.schedule.map_or(Some(base), |schedule| schedule.at(base, age)) else {
            return self.close(number, Ending::Cancelled);
        };
        let decided = self.decide(number, criticality, is_retry);
        self.measure.sent(self.arena.now, arrived, source, decided.is_err());
        match decided {
            Ok(entry) => {
                self.taken += cost + self.overhead;
                if entry.is_some() {
                    self.metered.push(number);
                }
                self.tasks[number].running = Some(Running { begun: None, entry, told: 0.0 });
                self.waiting.push_back(number);
                self.start_waiting();
                self.in_progress += 1;
                self.most_in_progress = self.most_in_progress.max(self.in_progress);
            }
            Err(shed) => {
                let cost = self.plan.rejection.as_secs_f64();
                self.taken += cost;
                self.processor.begin(self.arena.now, cost, REJECTION);
                self.turned_away(number, shed);
            }
        }
    }

    /// Starts admitted requests, up to the limit.
    fn start_waiting(&mut self) {
        while self.running < self.concurrency
            && let Some(number) = self.waiting.pop_front()
        {
            let Task { source, cost, running, .. } = &mut self.tasks[number];
            self.processor.begin(self.arena.now, *cost + self.overhead, number);
            let begun = self.processor.work();
            self.meters.begin(*source, begun);
            running.as_mut().expect("a waiting request is in progress").begun = Some(begun);
            self.running += 1;
        }
    }

    fn decide(&mut self, number: u32, criticality: Criticality, is_retry: bool) -> Result<Option<Entry>, Shed> {
        let age = self.age(number);
        let task = &self.tasks[number];
        let (source, origin) = (&self.plan.sources[task.source], &self.origins[task.source]);
        match &mut self.guard {
            Guard::None => Ok(None),
            Guard::Procrustean(shedder) => shedder.shed(self.in_progress as f64).map_or(Ok(None), Err),
            Guard::Ranked(server) => {
                self.processor.advance(self.arena.now);
                server.look(self.arena.now, self.processor.cpu(), self.in_progress);
                let is_cohort = self.arm.cohorts == Cohorts::Told && source.takes_several();
                let arrival = Arrival {
                    criticality,
                    kind: Kind { route: task.source as u64, customer: task.customer },
                    quota: source.quota(),
                    timeout: self.plan.tells_deadline.then(|| origin.patience.saturating_sub(age)),
                    cohort: is_cohort.then_some(task.cohort),
                    is_retry,
                };
                let (entry, shed) = server.gate.ask(self.arena.now, &arrival, &mut self.rng).into_parts();
                shed.map_or(Ok(entry), Err)
            }
        }
    }

    /// The current request was shed: retries it, or gives up the task.
    fn turned_away(&mut self, number: u32, shed: Shed) {
        let wait = self.plan.sources[self.tasks[number].source].wait;
        let wait = if wait.is_zero() { wait } else { wait.mul_f64(0.5 + unit(&mut self.waits)) };
        let is_wanted = self.age(number).saturating_add(wait) < self.patience(number);
        let task = &mut self.tasks[number];
        if shed.reason == Rejection::Deadline {
            self.close(number, Ending::Hopeless);
        } else if task.retries > 0 && is_wanted {
            task.retries -= 1;
            task.wakes = self.arena.now + wait;
            self.arena.push(task.wakes, Event::Retry(number));
        } else {
            self.close(number, Ending::Shed);
        }
    }

    /// A request has been answered.
    pub(super) fn end_request(&mut self, number: u32) {
        let cost = self.tasks[number].cost;
        self.stop(number, cost + self.overhead);
        let is_late = self.age(number) > self.patience(number);
        let task = &mut self.tasks[number];
        task.used += cost;
        task.calls -= 1;
        if is_late {
            self.close(number, Ending::Late);
        } else if task.calls == 0 {
            self.close(number, Ending::Useful);
        } else {
            let origin = &mut self.origins[task.source];
            task.cost = origin.costs.draw(&mut origin.later_costs);
            task.retries = self.plan.sources[task.source].retries;
            self.send(number, false);
        }
    }

    /// The user has left, and the server drops the task.
    pub(super) fn expire(&mut self, number: u32) {
        let task = &self.tasks[number];
        // A task that waits for a retry ends at that retry.
        let (true, Some(Running { begun, .. })) = (task.expires == self.arena.now, &task.running) else { return };
        let (begun, cost) = (*begun, task.cost);
        let used = match begun {
            Some(begun) => {
                self.processor.cancel(self.arena.now, number);
                self.processor.work() - begun
            }
            None => {
                self.waiting.retain(|waiting| *waiting != number);
                0.0
            }
        };
        self.taken -= (cost + self.overhead - used).max(0.0);
        self.stop(number, used);
        self.close(number, Ending::Expired);
        self.expect_end();
    }

    /// The current request ends, after some CPU-seconds with its overhead.
    fn stop(&mut self, number: u32, used: f64) {
        let Task { running, source, .. } = &mut self.tasks[number];
        let Some(Running { begun, entry, told }) = running.take() else { return };
        self.in_progress -= 1;
        if let Some(begun) = begun {
            self.running -= 1;
            self.meters.end(*source, begun, used);
        }
        if let (Guard::Ranked(server), Some(entry)) = (&mut self.guard, entry) {
            let used = (used - self.overhead).max(0.0);
            server.gate.end(self.arena.now, entry, used);
            server.charged += used - told;
            self.metered.retain(|metered| *metered != number);
        }
        self.start_waiting();
    }

    fn close(&mut self, number: u32, ending: Ending) {
        let task = &mut self.tasks[number];
        (task.wakes, task.expires) = (NEVER, NEVER);
        let (arrived, source, used) = (task.arrived, task.source, task.used);
        let now = self.arena.now.since(Timestamp::ZERO);
        self.measure.count(arrived, source, |tally: &mut Tally| match ending {
            Ending::Useful => {
                tally.useful += 1;
                tally.useful_cpu += used;
                tally.last = now;
            }
            Ending::Late => tally.late += 1,
            Ending::Expired => tally.expired += 1,
            Ending::Shed => tally.shed += 1,
            Ending::Hopeless => tally.hopeless += 1,
            Ending::Cancelled => tally.cancelled += 1,
        });
        if ending == Ending::Useful {
            self.measure.answered(self.arena.now, arrived, source);
        }
        self.tasks.free(number);
    }

    /// Time that the user of a task has waited.
    fn age(&self, number: u32) -> Duration {
        let task = &self.tasks[number];
        self.arena.now.since(task.arrived).saturating_add(task.age)
    }

    fn patience(&self, number: u32) -> Duration {
        self.origins[self.tasks[number].source].patience
    }
}
