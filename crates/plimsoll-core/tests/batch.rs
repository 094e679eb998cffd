//! What the gate for batch work promises: against a plain list of who waits, for any order of what happens; and in virtual time, at backends
//! that take so much, that report how loaded they are, or that fail.
#![allow(clippy::unwrap_used, reason = "a test may fail by it")]

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::num::NonZeroU32;
use std::time::Duration;

use plimsoll_core::batch::{Age, BatchConfig, Entered, Fate, Gate, Hand, Target, Ticket};
use plimsoll_core::{Criticality, Timestamp};
use plimsoll_testkit::seeded;
use proptest::prelude::*;
use rand_pcg::Pcg64Mcg;

fn config(max_active: u32, max_queue: usize) -> BatchConfig {
    let max_active = NonZeroU32::new(max_active).unwrap();
    BatchConfig { max_active, max_queue, ..BatchConfig::default() }
}

/// Numbers name who is meant modulo how many there are.
#[derive(Clone, Debug)]
enum Step {
    Arrive(usize),
    End(usize, Fate),
    /// What was rejected comes back.
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

/// The gate, and all that is known of its requests from outside.
struct World {
    gate: Gate<u64>,
    rng: Pcg64Mcg,
    now: Timestamp,
    most: u32,
    next: u64,
    /// Who has a seat: by criticality, then in the order in which they are to be served.
    seats: BTreeMap<(usize, Age), (u64, Ticket)>,
    at_backends: Vec<(usize, Age, Timestamp)>,
    rejected: Vec<(usize, Age)>,
}

impl World {
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
                let (rank, age, sent) = self.at_backends.remove(who % self.at_backends.len());
                self.gate.end(self.now, sent, fate, &mut self.rng);
                if fate == Fate::Rejected {
                    self.rejected.push((rank, age));
                }
            }
            Step::Again(who) if !self.rejected.is_empty() => {
                let (rank, age) = self.rejected.remove(who % self.rejected.len());
                let call = self.call();
                let ticket = self.gate.enter_again(Criticality::ALL[rank], age, call);
                self.seats.insert((rank, age), (call, ticket));
            }
            Step::Leave(who) if !self.seats.is_empty() => {
                let key = *self.seats.keys().nth(who % self.seats.len()).unwrap();
                let (call, ticket) = self.seats.remove(&key).unwrap();
                assert_eq!(self.gate.leave(ticket), (Hand::Empty, Some(call)));
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
        let (age, call) = (self.gate.come(), self.call());
        let waiting = self.seats.len();
        let lowest = self.seats.keys().next_back().copied();
        match self.gate.enter(self.now, Criticality::ALL[rank], age, call) {
            Entered::Begins => {
                assert_eq!(waiting, 0, "nobody is overtaken");
                self.at_backends.push((rank, age, self.now));
            }
            Entered::Waits(ticket, goes) => {
                let full = waiting >= Self::MAX_QUEUE;
                assert_eq!(goes.is_some(), full);
                if let Some(goes) = goes {
                    let key = lowest.unwrap();
                    let (call, seat) = self.seats.remove(&key).unwrap();
                    assert!(
                        call == goes && key.0 > rank,
                        "the newest of the least critical, less critical than who comes"
                    );
                    assert_eq!(self.gate.leave(seat), (Hand::TurnedAway, None));
                }
                self.seats.insert((rank, age), (call, ticket));
            }
            Entered::TurnedAway => {
                assert!(
                    waiting >= Self::MAX_QUEUE && lowest.unwrap().0 <= rank,
                    "there is room, or somebody less critical"
                );
            }
        }
    }

    fn serve(&mut self) {
        while let Some(call) = self.gate.serve(self.now) {
            let ((rank, age), (expected, ticket)) = self.seats.pop_first().unwrap();
            assert_eq!(call, expected, "the most critical, and of these the oldest");
            assert_eq!(self.gate.leave(ticket), (Hand::Place, None));
            self.at_backends.push((rank, age, self.now));
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

proptest! {
    #[test]
    fn nobody_is_lost_overtaken_or_kept_waiting_for_nothing(steps in steps(), most in 1..9_u32) {
        let mut world = World::new(most);
        for step in &steps {
            let before = world.at_backends.len();
            world.step(step);
            let (after, most) = (world.at_backends.len(), world.most as usize);
            prop_assert!(after <= most.max(before), "{after} at backends of at most {most}");
        }
    }
}

/// Backends in virtual time.
#[derive(Clone, Copy)]
struct Backends {
    /// Requests that they work on at a time; further ones are rejected within a millisecond.
    places: u32,
    /// Of them, those of others.
    others: u32,
    reports: bool,
    /// Seconds in which everything is rejected.
    down: (f64, f64),
}

/// What a second brought.
#[derive(Clone, Copy, Debug, Default)]
struct Second {
    accepted: u32,
    rejected: u32,
    most_active: u32,
    utilization: f64,
}

/// Twenty times as many wait as can be at backends, and each takes 20 ms of a place.
fn run(backends: Backends, most: u32, seconds: usize, seed: u64) -> Vec<Second> {
    const TAKES: u64 = 20_000_000;
    let mut rng = seeded(seed);
    let mut gate: Gate<u64> = Gate::new(Timestamp::ZERO, config(most, 10_000));
    let mut found = vec![Second::default(); seconds];
    let mut seats: BTreeMap<Age, (u64, Ticket)> = BTreeMap::new();
    // When, and what: the end of a request that was sent then.
    let mut ends: BinaryHeap<Reverse<(u64, u64, bool, Age)>> = BinaryHeap::new();
    let (mut now, mut busy, mut next) = (0_u64, 0_u32, 0_u64);
    let mut come = |gate: &mut Gate<u64>, seats: &mut BTreeMap<Age, (u64, Ticket)>| {
        next += 1;
        let age = gate.come();
        seats.insert(age, (next, gate.enter_again(Criticality::SheddablePlus, age, next)));
    };
    for _ in 0..most * 20 {
        come(&mut gate, &mut seats);
    }
    loop {
        let at = Timestamp::from_nanos(now);
        while gate.serve(at).is_some() {
            let (age, (_, ticket)) = seats.pop_first().unwrap();
            assert_eq!(gate.leave(ticket).0, Hand::Place);
            let second = now as f64 / 1e9;
            let is_down = (backends.down.0..backends.down.1).contains(&second);
            let taken = !is_down && busy + backends.others < backends.places;
            busy += u32::from(taken);
            ends.push(Reverse((now + if taken { TAKES } else { 1_000_000 }, now, taken, age)));
        }
        let ended = ends.peek().map_or(u64::MAX, |Reverse((at, ..))| *at);
        let rest = gate.poll_timeout(at).map_or(u64::MAX, Timestamp::as_nanos);
        now = ended.min(rest);
        assert_ne!(now, u64::MAX, "nothing will ever happen again");
        let Some(second) = found.get_mut((now / 1_000_000_000) as usize) else { return found };
        second.most_active = second.most_active.max(gate.active());
        if rest < ended {
            continue;
        }
        let Reverse((_, sent, taken, age)) = ends.pop().unwrap();
        let (at, sent) = (Timestamp::from_nanos(now), Timestamp::from_nanos(sent));
        let utilization = f64::from(busy + backends.others) / f64::from(backends.places);
        if taken {
            if backends.reports {
                gate.on_report(at, utilization);
            }
            busy -= 1;
            second.accepted += 1;
            second.utilization = utilization;
            gate.end(at, sent, Fate::Accepted, &mut rng);
            come(&mut gate, &mut seats);
        } else {
            second.rejected += 1;
            gate.end(at, sent, Fate::Rejected, &mut rng);
            let ticket = gate.enter_again(Criticality::SheddablePlus, age, 0);
            seats.insert(age, (0, ticket));
        }
    }
}

const NEVER: (f64, f64) = (0.0, 0.0);
const SEEDS: std::ops::Range<u64> = 0..20;

#[test]
fn what_is_sent_is_what_backends_have_room_for() {
    for (places, others) in [(8, 0), (30, 10), (100, 97)] {
        for seed in SEEDS {
            let found = run(Backends { places, others, reports: false, down: NEVER }, 64, 60, seed);
            let room = f64::from((places - others).min(64)) * 50.0;
            let settled = &found[20..];
            let mean =
                |of: fn(&Second) -> u32| settled.iter().map(|s| f64::from(of(s))).sum::<f64>() / settled.len() as f64;
            let (accepted, rejected) = (mean(|s| s.accepted) / room, mean(|s| s.rejected) / room);
            assert!(accepted > 0.6, "{places}, {others} of others, seed {seed}: {accepted} of what there is room for");
            assert!(rejected < 0.2, "{places}, {others} of others, seed {seed}: {rejected} rejected");
            assert!(found.iter().all(|second| second.most_active <= 64));
        }
    }
}

#[test]
fn the_utilization_that_backends_report_stays_at_the_target() {
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
fn a_service_that_is_down_is_asked_by_one_probe_at_a_time_and_is_soon_at_work_again() {
    for seed in SEEDS {
        let found = run(Backends { places: 30, others: 0, reports: false, down: (20.0, 60.0) }, 32, 80, seed);
        for second in &found[22..60] {
            assert!(second.rejected <= 3 && second.most_active <= 1, "seed {seed}: {second:?}");
        }
        let probes: u32 = found[22..60].iter().map(|second| second.rejected).sum();
        assert!(probes >= 10, "seed {seed}: {probes} in 38 s, each after three seconds at most");
        let half = found[60..].iter().position(|second| second.accepted > 700);
        assert!(half.is_some_and(|after| after <= 9), "seed {seed}: half of what is possible after {half:?} s");
    }
}
