//! The client's side of a request: it is sent, retried or abandoned, and its outcome is passed on.

use plimsoll_core::retry::{self, Advice, CallerAnswer, Failure, Repeat};
use plimsoll_core::throttle::Outcome;
use plimsoll_core::{Criticality, Operation, Timestamp};
use rand_core::Rng as _;

use super::{Attempt, Event, World};
use crate::model::retries::Next;

/// Number of remembered tasks. Later attempts may go to one of them again.
const REMEMBERED: usize = 8;

/// A request of one client to one tier.
#[derive(Debug)]
pub(super) struct Request {
    tier: usize,
    caller: usize,
    source: usize,
    criticality: Criticality,
    /// Arrival, and the end of the wait.
    arrived: Timestamp,
    deadline: Timestamp,
    /// The work that needs it; `None`: a user.
    serves: Option<u32>,
    /// Whether that work is a retry.
    is_further: bool,
    attempts: u32,
    tried: [u32; REMEMBERED],
    /// The attempt in flight, or the next one. 0: none, and every reply is void.
    current: u64,
}

/// The reply of a tier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::experiment::tiers) enum Reply {
    Ok,
    Failed(Failure),
}

/// An attempt on its way.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sending {
    pub(super) attempt: Attempt,
    pub(super) source: usize,
    pub(super) criticality: Criticality,
    /// As far as the caller tells it.
    pub(super) deadline: Option<Timestamp>,
    pub(super) is_retry: bool,
}

impl World<'_> {
    /// A user asks the first tier.
    pub(super) fn ask_first(&mut self, source: usize) {
        self.measure.request(self.arena.now, source, |tally| tally.arrived += 1);
        let clients = self.callers[0].len() as u64;
        let caller = (self.whose.next_u64() % clients) as usize;
        self.begin(Request {
            tier: 0,
            caller,
            source,
            criticality: self.plan.sources[source].criticality,
            arrived: self.arena.now,
            deadline: self.arena.now + self.plan.patience,
            serves: None,
            is_further: false,
            attempts: 0,
            tried: [u32::MAX; REMEMBERED],
            current: 0,
        });
    }

    /// A task of a tier asks the next one, to serve its own request.
    pub(super) fn ask_next(&mut self, number: u32) {
        let work = &self.work[number];
        let (tier, caller, sending) = (work.tier + 1, work.task, work.sending);
        self.begin(Request {
            tier,
            caller,
            source: sending.source,
            criticality: sending.criticality,
            arrived: self.arena.now,
            deadline: sending.deadline.unwrap_or(self.arena.now + self.plan.patience),
            serves: Some(number),
            is_further: sending.is_retry && self.propagates(),
            attempts: 0,
            tried: [u32::MAX; REMEMBERED],
            current: 0,
        });
    }

    fn begin(&mut self, request: Request) {
        self.callers[request.tier][request.caller].begin(self.arena.now);
        let number = self.requests.insert(request);
        self.attempt(number);
    }

    fn attempt(&mut self, number: u32) {
        let (now, propagates) = (self.arena.now, self.propagates());
        let request = &mut self.requests[number];
        let (tier, caller) = (request.tier, &mut self.callers[request.tier][request.caller]);
        let is_held = !caller.sends(now, request.criticality, &mut self.decisions);
        self.measure.attempt(now, tier, |sent| {
            sent.asked += 1;
            sent.held += u64::from(is_held);
        });
        if is_held {
            if request.attempts > 0 {
                caller.was_held();
            }
            // The caller of a throttled request must not retry.
            return self.fail(number, Failure::Throttled);
        }
        self.attempts += 1;
        request.attempts += 1;
        request.current = self.attempts;
        let attempt = Attempt { request: number, number: self.attempts };
        let sending = Sending {
            attempt,
            source: request.source,
            criticality: request.criticality,
            deadline: propagates.then_some(request.deadline),
            is_retry: request.is_further || request.attempts > 1,
        };
        let deadline = request.deadline;
        let task = self.draw(number);
        self.arena.push((now + self.plan.timeout).min(deadline.max(now)), Event::Timeout(attempt));
        self.serve(tier, task, sending);
    }

    /// A random task that the request has not tried, while there is one. Random in every arm, so
    /// that a comparison of throttles and retries does not depend on a balancing policy.
    fn draw(&mut self, number: u32) -> usize {
        let request = &mut self.requests[number];
        let tasks = self.plan.tiers[request.tier].tasks.get();
        let tried = request.tried.iter().filter(|task| **task < tasks).count() as u32;
        let mut left = (self.targets.next_u64() % u64::from(if tried < tasks { tasks - tried } else { tasks })) as u32;
        let is_free = |task: &u32| tried >= tasks || !request.tried.contains(task);
        let mut task = 0;
        for candidate in (0..tasks).filter(is_free) {
            task = candidate;
            if left == 0 {
                break;
            }
            left -= 1;
        }
        if let Some(place) = request.tried.iter_mut().find(|place| **place == u32::MAX) {
            *place = task;
        }
        task as usize
    }

    pub(super) fn replied(&mut self, attempt: Attempt, reply: Reply) {
        if self.requests[attempt.request].current != attempt.number {
            return;
        }
        match reply {
            Reply::Ok => {
                self.learn(attempt.request, Outcome::Accepted);
                self.succeed(attempt.request);
            }
            Reply::Failed(failure) => self.failed(attempt.request, failure),
        }
    }

    pub(super) fn timed_out(&mut self, attempt: Attempt) {
        if self.requests[attempt.request].current == attempt.number {
            self.failed(attempt.request, Failure::TimedOut);
        }
    }

    fn learn(&mut self, number: u32, outcome: Outcome) {
        let request = &self.requests[number];
        self.callers[request.tier][request.caller].on_outcome(self.arena.now, request.criticality, outcome);
    }

    fn failed(&mut self, number: u32, failure: Failure) {
        self.learn(number, failure.evidence().outcome());
        let request = &mut self.requests[number];
        let attempt = retry::Attempt {
            number: request.attempts,
            failure,
            repeat: Repeat::Safe,
            deadline: Some(request.deadline),
            operation: Operation::UNKNOWN,
            takes: self.plan.tiers[request.tier].latency,
        };
        let caller = &mut self.callers[request.tier][request.caller];
        match caller.decide(self.arena.now, &attempt, &mut self.decisions) {
            // Even the most naive client leaves with its user.
            Next::Again(again) if self.arena.now + again.wait < request.deadline => {
                self.attempts += 1;
                request.current = self.attempts;
                let waited = Attempt { request: number, number: self.attempts };
                self.arena.push(self.arena.now + again.wait, Event::Retry(waited));
            }
            Next::Again(_) => self.fail(number, failure),
            Next::GiveUp(CallerAnswer::Answer) => self.fail(number, failure),
            Next::GiveUp(CallerAnswer::DoNotRetry) => self.fail(number, Failure::Shed(Advice::Never)),
        }
    }

    pub(super) fn retry(&mut self, attempt: Attempt) {
        if self.requests[attempt.request].current == attempt.number {
            self.attempt(attempt.request);
        }
    }

    fn succeed(&mut self, number: u32) {
        match self.close(number) {
            Some(work) => self.answer(work, Reply::Ok),
            None => {
                let Request { arrived, source, deadline, .. } = self.requests[number];
                if self.arena.now <= deadline {
                    self.measure.request(arrived, source, |tally| tally.useful += 1);
                }
            }
        }
    }

    /// The request failed, and so does the work that needs it. Naive clients pass on no more than
    /// the failure.
    fn fail(&mut self, number: u32, failure: Failure) {
        if let Some(work) = self.close(number) {
            let answer = match failure {
                Failure::Throttled | Failure::Shed(_) if self.propagates() => failure,
                _ => Failure::Failed(Advice::None),
            };
            self.answer(work, Reply::Failed(answer));
        }
    }

    /// Ends a request; gives the work that needed it.
    fn close(&mut self, number: u32) -> Option<u32> {
        self.requests[number].current = 0;
        self.requests.free(number);
        self.requests[number].serves
    }
}
