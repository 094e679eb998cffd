//! Properties of the gate for batch work, against a plain list of waiting requests and in virtual
//! time.
//!
//! The list checks any order of events. In virtual time, backends have a limit, report their
//! utilization, or fail.
#![allow(clippy::unwrap_used, reason = "a test may fail by it")]

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::num::NonZeroU32;
use std::time::Duration;

use plimsoll_core::batch::{
    ActiveRequest, Age, BatchConfig, BatchFailure, BatchVerdict, Failure, Fate, Gate, History, Target, Ticket,
    WaitResult,
};
use plimsoll_core::retry::Repeat;
use plimsoll_core::{Criticality, Rejection, Timestamp};
use plimsoll_testkit::seeded;
use proptest::prelude::*;
use rand_pcg::Pcg64Mcg;

fn config(max_active: u32, max_queue: usize) -> BatchConfig {
    let max_active = NonZeroU32::new(max_active).unwrap();
    let mut config = BatchConfig::default();
    config.max_active = max_active;
    config.max_queue = max_queue;
    config
}

/// A number names a request modulo the number of candidates.
#[derive(Clone, Debug)]
enum Step {
    Arrive(usize),
    End(usize, Fate),
    /// A rejected request is requeued.
    Again(usize),
    Leave(usize),
    Pass(u64),
    Limit(u32),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let who = 0..32_usize;
    let fate = prop_oneof![4 => Just(Fate::Accepted), 3 => Just(Fate::Rejected), 1 => Just(Fate::Unknown)];
    let step = prop_oneof![
        8 => (0..4_usize).prop_map(Step::Arrive),
        8 => (who.clone(), fate).prop_map(|(who, fate)| Step::End(who, fate)),
        3 => who.clone().prop_map(Step::Again),
        2 => who.prop_map(Step::Leave),
        4 => (0..3_000_u64).prop_map(Step::Pass),
        1 => (1..9_u32).prop_map(Step::Limit),
    ];
    prop::collection::vec(step, 1..300)
}

/// The gate, and its requests as they are known from outside.
struct Model {
    gate: Gate<u64>,
    rng: Pcg64Mcg,
    now: Timestamp,
    most: u32,
    next: u64,
    /// Waiting requests, by criticality and then in the order of service.
    seats: BTreeMap<(usize, Age), (u64, Ticket, History)>,
    at_backends: Vec<(History, ActiveRequest)>,
    rejected: Vec<History>,
}

impl Model {
    const MAX_QUEUE: usize = 6;

    fn new(most: u32) -> Self {
        Self {
            gate: Gate::new(Timestamp::ZERO, config(most, Self::MAX_QUEUE)),
            rng: seeded(1),
            now: Timestamp::ZERO,
            most,
            next: 0,
            seats: BTreeMap::new(),
            at_backends: Vec::new(),
            rejected: Vec::new(),
        }
    }

    fn step(&mut self, step: &Step) {
        match *step {
            Step::Arrive(rank) => self.arrive(rank),
            Step::End(who, fate) if !self.at_backends.is_empty() => {
                let (mut history, sent) = self.at_backends.remove(who % self.at_backends.len());
                self.gate.end(self.now, sent, fate, &mut self.rng);
                if fate == Fate::Rejected {
                    let failed = BatchFailure { failure: OVERLOADED, repeat: Repeat::Safe, after: None };
                    assert!(self.gate.requeue(&mut history, &failed, &mut self.rng).is_ok());
                    self.rejected.push(history);
                }
            }
            Step::Again(who) if !self.rejected.is_empty() => {
                let mut history = self.rejected.remove(who % self.rejected.len());
                let (former, call) = (history.age(), self.call());
                let BatchVerdict::Waits(ticket, None) = self.gate.enter(self.now, &mut history, call) else {
                    panic!("a requeued request is admitted")
                };
                let key = key(&history);
                let is_last = self.seats.keys().all(|other| other.1 < key.1);
                assert!(
                    Some(key.1) == former || is_last && self.gate.credit().is_probing(),
                    "where it was, or behind all"
                );
                self.seats.insert(key, (call, ticket, history));
            }
            Step::Leave(who) if !self.seats.is_empty() => {
                let key = *self.seats.keys().nth(who % self.seats.len()).unwrap();
                let (call, ticket, _) = self.seats.remove(&key).unwrap();
                assert_eq!(self.gate.leave(ticket), (WaitResult::Pending, Some(call)));
            }
            Step::Pass(ms) => self.now = self.now + Duration::from_millis(ms),
            Step::Limit(most) => {
                self.most = most;
                self.gate.set(config(most, Self::MAX_QUEUE));
            }
            _ => {}
        }
        self.serve();
    }

    fn call(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    fn arrive(&mut self, rank: usize) {
        let (mut history, call) = (History::new(Criticality::ALL[rank]), self.call());
        let waiting = self.seats.len();
        let lowest = self.seats.keys().next_back().copied();
        match self.gate.enter(self.now, &mut history, call) {
            BatchVerdict::Begins => {
                assert_eq!(waiting, 0, "no request is overtaken");
                self.send(history);
            }
            BatchVerdict::Waits(ticket, goes) => {
                let full = waiting >= Self::MAX_QUEUE;
                assert_eq!(goes.is_some(), full);
                if let Some(goes) = goes {
                    let key = lowest.unwrap();
                    let (call, seat, _) = self.seats.remove(&key).unwrap();
                    assert!(
                        call == goes && key.0 > rank,
                        "the newest of the least critical, less critical than the newcomer"
                    );
                    assert_eq!(self.gate.leave(seat), (WaitResult::Shed, None));
                }
                self.seats.insert(key(&history), (call, ticket, history));
            }
            BatchVerdict::Shed => {
                assert!(
                    waiting >= Self::MAX_QUEUE && lowest.unwrap().0 <= rank,
                    "the queue is not full, or has a less critical request"
                );
            }
        }
    }

    fn send(&mut self, mut history: History) {
        let sent = self.gate.sent(self.now, &mut history);
        self.at_backends.push((history, sent));
    }

    fn serve(&mut self) {
        while let Some(call) = self.gate.serve(self.now) {
            let (_, (expected, ticket, history)) = self.seats.pop_first().unwrap();
            assert_eq!(call, expected, "the most critical, and of these the oldest");
            assert_eq!(self.gate.leave(ticket), (WaitResult::Slot, None));
            self.send(history);
        }
        assert_eq!(self.gate.active() as usize, self.at_backends.len());
        let credit = self.gate.credit().as_f64();
        assert!((1.0..=f64::from(self.most)).contains(&credit), "{credit}");
        let queued: usize = Criticality::ALL.into_iter().map(|criticality| self.gate.queued(criticality)).sum();
        assert_eq!(queued, self.seats.len());
        let rests = self.gate.poll_timeout(self.now);
        if !self.seats.is_empty() && self.at_backends.is_empty() {
            assert!(rests.is_some_and(|until| until > self.now), "somebody waits for nothing");
        }
    }
}

/// The order of service: the lesser first.
fn key(history: &History) -> (usize, Age) {
    (history.criticality().rank(), history.age().unwrap())
}

proptest! {
    #[test]
    fn no_request_is_lost_overtaken_or_blocked(steps in steps(), most in 1..9_u32) {
        let mut model = Model::new(most);
        for step in &steps {
            let before = model.at_backends.len();
            model.step(step);
            let (after, most) = (model.at_backends.len(), model.most as usize);
            prop_assert!(after <= most.max(before), "{after} at backends of at most {most}");
        }
    }
}

/// Backends in virtual time.
#[derive(Clone, Copy)]
struct Backends {
    /// Requests that they serve at a time; further ones are rejected within a millisecond.
    places: u32,
    /// Slots that other traffic uses.
    others: u32,
    reports: bool,
    /// Begin and end of a total outage, in seconds.
    down: (f64, f64),
}

impl Backends {
    /// Nanoseconds that each request holds a slot.
    const TAKES: u64 = 20_000_000;
}

/// Requests at a gate. Some fail at every backend.
struct World {
    backends: Backends,
    gate: Gate<u64>,
    rng: Pcg64Mcg,
    now: u64,
    busy: u32,
    requests: BTreeMap<u64, (History, Option<Ticket>)>,
    /// Times of events, and the request of each.
    events: BinaryHeap<Reverse<(u64, u64)>>,
    at_backends: BTreeMap<u64, (ActiveRequest, bool)>,
    /// The number of requests that always fail, and their failure: every tenth, from the first on.
    poison: (u64, Failure),
}

/// The last event.
enum LastEvent {
    Accepted { utilization: f64 },
    Rejected,
    Nothing,
}

impl World {
    fn new(backends: Backends, most: u32, seed: u64) -> Self {
        Self {
            backends,
            gate: Gate::new(Timestamp::ZERO, config(most, 10_000)),
            rng: seeded(seed),
            now: 0,
            busy: 0,
            requests: BTreeMap::new(),
            events: BinaryHeap::new(),
            at_backends: BTreeMap::new(),
            poison: (0, Failure::Broken),
        }
    }

    fn is_poison(&self, number: u64) -> bool {
        number.is_multiple_of(10) && number / 10 < self.poison.0
    }

    fn at(&self) -> Timestamp {
        Timestamp::from_nanos(self.now)
    }

    /// A request arrives.
    fn come(&mut self, number: u64) {
        self.requests.insert(number, (History::new(Criticality::SheddablePlus), None));
        self.enter(number);
    }

    fn enter(&mut self, number: u64) {
        let now = self.at();
        let (history, seat) = self.requests.get_mut(&number).unwrap();
        match self.gate.enter(now, history, number) {
            BatchVerdict::Begins => self.send(number),
            BatchVerdict::Waits(ticket, None) => *seat = Some(ticket),
            entered => panic!("the queue is not full: {entered:?}"),
        }
    }

    fn send(&mut self, number: u64) {
        let now = self.at();
        let second = self.now as f64 / 1e9;
        let is_down = (self.backends.down.0..self.backends.down.1).contains(&second);
        let has_room = self.busy + self.backends.others < self.backends.places;
        let taken = !is_down && has_room && !self.is_poison(number);
        self.busy += u32::from(taken);
        let sent = self.gate.sent(now, &mut self.requests.get_mut(&number).unwrap().0);
        self.at_backends.insert(number, (sent, taken));
        self.events.push(Reverse((self.now + if taken { Backends::TAKES } else { 1_000_000 }, number)));
    }

    /// Serves waiting requests, and moves on to the next event.
    fn step(&mut self) -> LastEvent {
        while let Some(number) = self.gate.serve(self.at()) {
            let ticket = self.requests.get_mut(&number).unwrap().1.take().unwrap();
            assert_eq!(self.gate.leave(ticket).0, WaitResult::Slot);
            self.send(number);
        }
        let next = self.events.peek().map_or(u64::MAX, |Reverse((at, _))| *at);
        let rest = self.gate.poll_timeout(self.at()).map_or(u64::MAX, Timestamp::as_nanos);
        self.now = next.min(rest);
        assert_ne!(self.now, u64::MAX, "nothing will ever happen again");
        if rest < next {
            return LastEvent::Nothing;
        }
        let Reverse((_, number)) = self.events.pop().unwrap();
        let Some((sent, taken)) = self.at_backends.remove(&number) else {
            self.enter(number);
            return LastEvent::Nothing;
        };
        let now = self.at();
        if taken {
            let utilization = f64::from(self.busy + self.backends.others) / f64::from(self.backends.places);
            if self.backends.reports {
                self.gate.on_report(now, utilization);
            }
            self.busy -= 1;
            self.gate.end(now, sent, Fate::Accepted, &mut self.rng);
            self.requests.remove(&number);
            return LastEvent::Accepted { utilization };
        }
        let failure = if self.is_poison(number) { self.poison.1 } else { OVERLOADED };
        let failed = BatchFailure { failure, repeat: Repeat::Safe, after: None };
        let history = &mut self.requests.get_mut(&number).unwrap().0;
        let again = self.gate.requeue(history, &failed, &mut self.rng);
        self.gate.end(now, sent, Fate::Rejected, &mut self.rng);
        match again {
            Ok(pause) => self.events.push(Reverse((self.now + pause.as_nanos() as u64, number))),
            Err(_) => drop(self.requests.remove(&number)),
        }
        LastEvent::Rejected
    }
}

/// Counts of one second.
#[derive(Clone, Copy, Debug, Default)]
struct Second {
    accepted: u32,
    rejected: u32,
    most_active: u32,
    utilization: f64,
}

/// Runs with twenty times as many waiting requests as may be at backends, at any time.
fn run(backends: Backends, most: u32, seconds: usize, seed: u64) -> Vec<Second> {
    run_with((0, OVERLOADED), backends, most, seconds, seed)
}

/// The same with requests among them that always fail.
fn run_with(poison: (u64, Failure), backends: Backends, most: u32, seconds: usize, seed: u64) -> Vec<Second> {
    let mut found = vec![Second::default(); seconds];
    let mut world = World::new(backends, most, seed);
    world.poison = poison;
    let mut come = 0..;
    come.by_ref().take(20 * most as usize).for_each(|number| world.come(number));
    loop {
        let happened = world.step();
        let Some(second) = found.get_mut((world.now / 1_000_000_000) as usize) else { return found };
        second.most_active = second.most_active.max(world.gate.active() + 1);
        match happened {
            LastEvent::Nothing => {}
            LastEvent::Rejected => second.rejected += 1,
            LastEvent::Accepted { utilization } => {
                second.accepted += 1;
                second.utilization = utilization;
                world.come(come.next().unwrap());
            }
        }
    }
}

/// Seconds until a thousand requests are done, with requests among them that always fail. A single
/// such request gives up in the end, if its failure allows that.
fn finish(poison: (u64, Failure), seed: u64) -> f64 {
    let mut world = World::new(Backends { places: 100, others: 0, reports: false, down: NEVER }, 16, seed);
    world.poison = poison;
    (0..poison.0 + 1_000).for_each(|number| world.come(number));
    let mut left = 1_000;
    while left > 0 {
        left -= u32::from(matches!(world.step(), LastEvent::Accepted { .. }));
        assert!(world.now < 300_000_000_000, "{left} are not done in five minutes, {poison:?}");
    }
    let took = world.now as f64 / 1e9;
    while poison.0 == 1 && poison.1 != OVERLOADED && !world.requests.is_empty() {
        let _happened = world.step();
        assert!(world.now < 600_000_000_000, "{} did not give up", world.requests.len());
    }
    took
}

const OVERLOADED: Failure = Failure::Rejected(Rejection::Overloaded);
const NEVER: (f64, f64) = (0.0, 0.0);
const SEEDS: std::ops::Range<u64> = 0..20;

#[test]
fn sent_requests_match_the_capacity_of_backends() {
    for (places, others) in [(8, 0), (30, 10), (100, 97)] {
        for seed in SEEDS {
            let found = run(Backends { places, others, reports: false, down: NEVER }, 64, 60, seed);
            let room = f64::from((places - others).min(64)) * 50.0;
            let settled = &found[20..];
            let mean =
                |of: fn(&Second) -> u32| settled.iter().map(|s| f64::from(of(s))).sum::<f64>() / settled.len() as f64;
            let (accepted, rejected) = (mean(|s| s.accepted) / room, mean(|s| s.rejected) / room);
            assert!(accepted > 0.6, "{places}, {others} of others, seed {seed}: {accepted} of the capacity");
            assert!(rejected < 0.2, "{places}, {others} of others, seed {seed}: {rejected} rejected");
            assert!(found.iter().all(|second| second.most_active <= 64));
        }
    }
}

#[test]
fn reported_utilization_stays_at_the_target() {
    for (places, others) in [(30, 0), (30, 10), (50, 20)] {
        for seed in SEEDS {
            let found = run(Backends { places, others, reports: true, down: NEVER }, 64, 60, seed);
            let settled = &found[30..];
            let mean = settled.iter().map(|second| second.utilization).sum::<f64>() / settled.len() as f64;
            let target = Target::DEFAULT.as_f64();
            assert!((mean - target).abs() < 0.07, "{places}, {others} of others, seed {seed}: {mean}");
            assert!(found.iter().all(|second| second.rejected == 0), "nothing is ever rejected");
        }
    }
}

#[test]
fn unreachable_service_gets_one_probe_at_a_time_and_recovers_soon() {
    for seed in SEEDS {
        let found = run(Backends { places: 30, others: 0, reports: false, down: (20.0, 60.0) }, 32, 80, seed);
        for second in &found[22..60] {
            assert!(second.rejected <= 3 && second.most_active <= 1, "seed {seed}: {second:?}");
        }
        let probes: u32 = found[22..60].iter().map(|second| second.rejected).sum();
        assert!(probes >= 10, "seed {seed}: {probes} in 38 s, each after three seconds at most");
        let half = found[60..].iter().position(|second| second.accepted > 700);
        assert!(half.is_some_and(|after| after <= 9), "seed {seed}: half of the capacity after {half:?} s");
    }
}

#[test]
fn request_that_always_fails_does_not_delay_the_others() {
    for seed in SEEDS {
        let alone = finish((0, Failure::Broken), seed);
        for failure in [Failure::Broken, Failure::Unavailable, OVERLOADED] {
            let took = finish((1, failure), seed);
            assert!(took < alone + 3.0, "{failure:?}, seed {seed}: {took} s, and {alone} without it");
        }
    }
}

#[test]
fn hundred_failing_requests_do_not_stop_the_others() {
    for seed in SEEDS {
        for failure in [Failure::Broken, OVERLOADED] {
            let took = finish((100, failure), seed);
            assert!(took < 60.0, "{failure:?}, seed {seed}: {took} s");
        }
    }
}

#[test]
fn requests_that_always_fail_do_not_keep_credit_down() {
    let backends = Backends { places: 100, others: 0, reports: false, down: NEVER };
    for seed in SEEDS {
        let found = run_with((100, OVERLOADED), backends, 16, 60, seed);
        let accepted: u32 = found[30..].iter().map(|second| second.accepted).sum();
        // Sixteen at a time, each for 20 ms.
        let share = f64::from(accepted) / (30.0 * 800.0);
        assert!(share > 0.6, "seed {seed}: {share} of the credit, {:?}", &found[50..]);
    }
}
