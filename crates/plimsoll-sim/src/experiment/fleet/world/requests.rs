//! The life of a request: arrival, pick, backend, answer, and the ways to abandon it.

use std::time::Duration;

use plimsoll_core::retry::{Advice, Attempt, Failure, Repeat};
use plimsoll_core::{BackendId, Completion, Operation, Outcome, Pick, Timestamp};

use super::{Event, World};
use crate::experiment::fleet::measure::Ending;
use crate::experiment::fleet::plan::{Abandoned, Arrivals, Conduct, Failures};
use crate::kernel::NEVER;
use crate::model::backend::{Message, Reception};
use crate::model::keys::{KeyCounts, Keys, LEAST_MEAN};
use crate::model::request::{MAX_OFFERS, Reply, Request};
use crate::model::retries::Next;

/// Shortest think time after a request without a backend. Without it, a user with no think time
/// would ask forever at the same instant.
const LEAST_THOUGHT: Duration = Duration::from_millis(1);

impl World<'_> {
    pub(super) fn thought(&mut self, client: u32) -> bool {
        if self.arena.now > self.arena.end || self.arena.sources[client as usize].stopped {
            return false;
        }
        self.ask(client);
        true
    }

    /// A client has a request.
    pub(super) fn ask(&mut self, client: u32) {
        let cost = self.arena.sources[client as usize].cost(&self.costs) + self.plan.overhead.as_secs_f64();
        let window = self.measure.current;
        let request = self.requests.insert(Request::new(self.arena.now, client, cost, window));
        self.requests[request].key = self.keys.as_mut().map(Keys::draw);
        self.open += 1;
        self.clients[client as usize].retrier.begin(self.arena.now);
        self.measure.arrived(window);
        self.arena.push_lane(self.deadlines, self.arena.now + self.plan.requests.timeout, Event::Deadline(request));
        if self.clients[client as usize].waiting.is_empty() {
            self.offer(request);
        } else {
            self.enqueue(request);
        }
    }

    /// Looks for a backend, for the first time or again. Returns whether the search is over.
    fn offer(&mut self, number: u32) -> bool {
        let request = &mut self.requests[number];
        let client = &mut self.clients[request.client as usize];
        let (now, key) = (self.arena.now, request.key.map(Keys::key));
        let overflow = client.balancer.hash_picks().overflow;
        let pick = client.balancer.pick_for(now, &mut client.rng, 0, request.tried(), key);
        let is_overflow = client.balancer.hash_picks().overflow > overflow;
        match pick {
            Pick::Backend(id) if request.tried().contains(&id) => {
                // Only backends that it was offered to are left. One more round would not help.
                let completion = Completion { outcome: Outcome::Cancelled, latency: None };
                client.balancer.finish(self.arena.now, id, completion, &mut client.changes);
                let ending = ending_of(request.reply);
                self.end_request(number, ending);
            }
            Pick::Backend(id) => {
                request.tried[usize::from(request.offers)] = id;
                request.offers += 1;
                request.id = id;
                request.backend = client.backend(id);
                request.picked = self.arena.now;
                request.queued = NEVER;
                request.granted = false;
                let (window, of, key) = (request.window, request.client, request.key);
                request.away = self.carrier.send(&mut self.arena, Event::Reach(number));
                let probes = self.send_probes(of);
                self.measure.offered(window, probes);
                if let Some(key) = key {
                    self.count_keyed(window, of, id, key, is_overflow);
                }
            }
            Pick::Wait(_) if request.queued == NEVER => self.enqueue(number),
            Pick::Wait(_) => return false,
            Pick::NoBackend => self.end_request(number, Ending::NoBackend),
        }
        true
    }

    /// Counts a pick of a request with a key.
    fn count_keyed(&mut self, window: u16, client: u32, id: BackendId, key: u32, is_overflow: bool) {
        let Some(keys) = &mut self.keys else { return };
        let client = &self.clients[client as usize];
        // A backend that has just joined and is not connected yet has no share of the load.
        let mut known = client.balancer.snapshot(self.arena.now);
        known.retain(|backend| backend.active > 0);
        let total: u32 = known.iter().map(|backend| backend.active).sum();
        let mean = f64::from(total) / known.len() as f64;
        let active = known.iter().find(|backend| backend.id == id).map_or(0, |backend| backend.active);
        let is_member = |former: u32| client.id(former).is_some();
        let is_stray = !is_overflow && keys.went_to(key, client.backend(id), is_member);
        let counts = KeyCounts {
            picks: 1,
            overflow: is_overflow.into(),
            strays: is_stray.into(),
            peak: if mean >= LEAST_MEAN { f64::from(active) / mean } else { 0.0 },
        };
        self.measure.keyed(window, &counts);
    }

    fn enqueue(&mut self, number: u32) {
        let request = &mut self.requests[number];
        let waiting = &mut self.clients[request.client as usize].waiting;
        if waiting.len() >= self.plan.requests.max_pending as usize {
            self.end_request(number, Ending::NoBackend);
            return;
        }
        waiting.push_back(number);
        request.queued = self.arena.now;
        let at = self.arena.now + self.plan.requests.queue_timeout;
        self.arena.push_lane(self.queue_deadlines, at, Event::QueueDeadline(number));
    }

    /// Waiting requests look for a backend, in the order of their arrival.
    pub(super) fn serve_waiting(&mut self, client: u32) {
        while let Some(number) = self.clients[client as usize].waiting.front().copied() {
            if !self.offer(number) {
                break;
            }
            // The end of the request may have removed it from the queue already.
            let waiting = &mut self.clients[client as usize].waiting;
            if waiting.front() == Some(&number) {
                waiting.pop_front();
            }
        }
    }

    pub(super) fn reach(&mut self, number: u32) -> bool {
        let request = &mut self.requests[number];
        let backend = &mut self.backends[request.backend as usize];
        request.reached = self.arena.now;
        request.found = backend.in_flight();
        match backend.receive(self.arena.now, number, request.cost) {
            Reception::Taken => {
                let backend = request.backend;
                self.expect_end(backend);
            }
            Reception::Swallowed => {
                request.away = false;
                self.release(number);
            }
            Reception::Failed => self.reply(number, Reply::Failed),
            Reception::Overloaded => self.reply(number, Reply::Overloaded),
            Reception::Refused => self.reply(number, Reply::Refused),
        }
        true
    }

    /// Schedules the end of the next request of a backend. An event that is too early schedules
    /// another, which is cheaper than one for each change of the shared cores.
    pub(super) fn expect_end(&mut self, number: u32) {
        let backend = &mut self.backends[number as usize];
        if let Some(at) = backend.next()
            && at < backend.scheduled
        {
            backend.scheduled = at;
            self.arena.push(at, Event::Complete(number));
        }
    }

    pub(super) fn complete(&mut self, number: u32) -> bool {
        if self.backends[number as usize].scheduled != self.arena.now {
            return false;
        }
        self.backends[number as usize].scheduled = NEVER;
        let mut handled = false;
        while let Some((request, failed)) = self.backends[number as usize].pop_ended(self.arena.now) {
            handled = true;
            let backend = &mut self.backends[number as usize];
            let Request { found, reached, .. } = self.requests[request];
            if !failed {
                backend.learn(self.arena.now, found, reached);
            }
            if backend.conduct == Conduct::Hang {
                self.requests[request].away = false;
                self.release(request);
            } else {
                self.reply(request, if failed { Reply::Failed } else { Reply::Answered });
            }
        }
        self.expect_end(number);
        handled
    }

    /// The answer of a backend, or of a missing one.
    pub(super) fn reply(&mut self, number: u32, reply: Reply) {
        let request = &mut self.requests[number];
        request.reply = reply;
        let sent = request.awaited && {
            let message = match reply {
                Reply::Answered | Reply::Failed => Some(Message::Answer),
                Reply::Overloaded => Some(Message::ShedAnswer),
                Reply::Lost | Reply::Refused => None,
            };
            let backend = &mut self.backends[request.backend as usize];
            request.report = message.and_then(|message| backend.report(self.arena.now, message));
            match reply {
                // The transport sends these, and repeats lost messages.
                Reply::Lost | Reply::Refused => {
                    self.carrier.send_surely(&mut self.arena, Event::Answer(number));
                    true
                }
                _ => self.carrier.send(&mut self.arena, Event::Answer(number)),
            }
        };
        if !sent {
            request.away = false;
            self.release(number);
        }
    }

    pub(super) fn answer(&mut self, number: u32) -> bool {
        let request = &mut self.requests[number];
        request.away = false;
        if !request.awaited {
            self.release(number);
            return true;
        }
        let (of, reply) = (request.client, request.reply);
        let client = &mut self.clients[of as usize];
        if let Some(report) = &request.report {
            client.balancer.on_report(self.arena.now, request.id, report, &mut client.changes);
        }
        let outcome = match reply {
            Reply::Answered => Outcome::Success,
            Reply::Failed | Reply::Overloaded if self.arm.failures == Failures::Unseen => Outcome::Success,
            Reply::Overloaded => Outcome::Overloaded,
            Reply::Failed | Reply::Lost | Reply::Refused => Outcome::Failure,
        };
        let answered = matches!(reply, Reply::Answered | Reply::Failed | Reply::Overloaded);
        let latency = answered.then(|| self.arena.now.since(request.picked));
        client.balancer.finish(self.arena.now, request.id, Completion { outcome, latency }, &mut client.changes);
        if reply == Reply::Refused {
            client.balancer.on_connect_failed(self.arena.now, request.id, &mut client.rng, &mut client.changes);
        } else {
            request.attempts += 1;
        }
        match self.wait_before_next(number) {
            Some(Duration::ZERO) => {
                self.offer(number);
            }
            Some(wait) => self.arena.push(self.arena.now + wait, Event::Again(number)),
            None => self.end_request(number, ending_of(reply)),
        }
        self.settle(of);
        true
    }

    /// The wait of an answered request before its next offer; `None` without one.
    fn wait_before_next(&mut self, number: u32) -> Option<Duration> {
        let request = &mut self.requests[number];
        let failure = match request.reply {
            Reply::Answered => return None,
            _ if usize::from(request.offers) >= MAX_OFFERS => return None,
            Reply::Refused => return Some(Duration::ZERO),
            Reply::Failed => Failure::Failed(Advice::None),
            Reply::Overloaded => Failure::Shed(Advice::Elsewhere),
            Reply::Lost => Failure::Broken,
        };
        let attempt = Attempt {
            number: u32::from(request.attempts),
            failure,
            repeat: Repeat::Safe,
            deadline: Some(request.arrived + self.plan.requests.timeout),
            operation: Operation::UNKNOWN,
            takes: Duration::ZERO,
        };
        let client = &mut self.clients[request.client as usize];
        match client.retrier.decide(self.arena.now, &attempt, &mut client.rng) {
            Next::Again(again) => {
                request.granted = true;
                Some(again.wait)
            }
            Next::GiveUp(_) => None,
        }
    }

    /// The wait before a retry is over. The client still waits, since no wait passes its deadline.
    pub(super) fn again(&mut self, number: u32) -> bool {
        let of = self.requests[number].client;
        self.offer(number);
        self.settle(of);
        true
    }

    pub(super) fn deadline(&mut self, number: u32) -> bool {
        let request = &mut self.requests[number];
        let timeout = self.plan.requests.timeout;
        if !request.awaited || request.arrived + timeout != self.arena.now {
            return false;
        }
        let of = request.client;
        if request.queued == NEVER {
            let client = &mut self.clients[of as usize];
            let latency = Some(self.arena.now.since(request.picked));
            let outcome = match self.arm.failures {
                Failures::Counted => Outcome::TimedOut,
                Failures::Unseen => Outcome::Success,
            };
            client.balancer.finish(self.arena.now, request.id, Completion { outcome, latency }, &mut client.changes);
            if request.away && self.plan.requests.abandoned == Abandoned::Dropped {
                request.recalled = self.carrier.send(&mut self.arena, Event::Recall(number));
            }
        }
        self.end_request(number, Ending::TimedOut);
        self.settle(of);
        true
    }

    pub(super) fn queue_deadline(&mut self, number: u32) -> bool {
        let request = &self.requests[number];
        if !request.awaited
            || request.queued == NEVER
            || request.queued + self.plan.requests.queue_timeout != self.arena.now
        {
            return false;
        }
        let of = request.client;
        self.end_request(number, Ending::NoBackend);
        self.serve_waiting(of);
        true
    }

    /// A backend learns that a request is abandoned.
    pub(super) fn recall(&mut self, number: u32) -> bool {
        let request = &mut self.requests[number];
        request.recalled = false;
        // If the backend does not have it, it is in flight in one of the directions, and is worked
        // on or done.
        let backend = request.backend;
        if request.away && self.backends[backend as usize].cancel(self.arena.now, number) {
            request.away = false;
            self.expect_end(backend);
        }
        self.release(number);
        true
    }

    /// The client is done with a request.
    fn end_request(&mut self, number: u32, ending: Ending) {
        let request = &mut self.requests[number];
        request.awaited = false;
        let Request { client, window, arrived, queued, granted, offers, backend, .. } = *request;
        if granted {
            self.clients[client as usize].retrier.give_back();
        }
        if queued != NEVER {
            let waiting = &mut self.clients[client as usize].waiting;
            if let Some(place) = waiting.iter().position(|waiting| *waiting == number) {
                waiting.remove(place);
            }
        }
        self.open -= 1;
        let group = (offers > 0).then(|| self.backends[backend as usize].build.group);
        self.measure.ended(window, ending, self.arena.now.since(arrived), group);
        self.release(number);
        if let Arrivals::Closed { think, .. } = self.plan.arrivals {
            self.think(client, think, arrived);
        }
    }

    fn think(&mut self, client: u32, mean: Duration, arrived: Timestamp) {
        let thought = self.arena.sources[client as usize].think(mean);
        let earliest = arrived + LEAST_THOUGHT;
        let at = if self.arena.now == arrived { earliest } else { self.arena.now + thought };
        self.arena.push(at.max(self.arena.now + thought), Event::Think(client));
    }

    /// Frees a request that is no longer in use.
    fn release(&mut self, number: u32) {
        if self.requests[number].is_over() {
            self.requests.free(number);
        }
    }
}

fn ending_of(reply: Reply) -> Ending {
    match reply {
        Reply::Answered => Ending::Answered,
        Reply::Overloaded => Ending::Overloaded,
        Reply::Failed | Reply::Lost => Ending::Failed,
        // It has reached no backend. The proxy's answer is `no-backend`, too.
        Reply::Refused => Ending::NoBackend,
    }
}
