//! The queue against a plain list of waiters: any arrivals, ends, departures, changes of backends
//! and limits.

use std::collections::{BTreeMap, VecDeque};
use std::num::NonZeroU32;

use plimsoll_core::queue::{Queue, SeatState, Served, Ticket, Wanted};
use plimsoll_core::slots::{Holder, Holders};
use plimsoll_core::{BackendId, Balancer, BalancerConfig, Completion, Outcome, Pick, Timestamp, Weight};
use plimsoll_testkit::seeded;
use proptest::prelude::*;
use rand_pcg::Pcg64Mcg;

const NOW: Timestamp = Timestamp::ZERO;
const CANCELLED: Completion = Completion { outcome: Outcome::Cancelled, latency: None };

/// A number is the index of a backend, a request or a waiter, modulo their count.
#[derive(Clone, Debug)]
enum Step {
    /// A request arrives that has tried this many of the backends.
    Arrive {
        tried: usize,
    },
    Finish(usize),
    /// A waiter looks at its seat, and goes on with the result.
    Look(usize),
    /// A waiter leaves, with any result.
    Leave(usize),
    Add,
    Remove(usize),
    Refuse(usize),
    Heal(usize),
    Limit(u32),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let who = 0..32_usize;
    let step = prop_oneof![
        16 => prop_oneof![3 => Just(0_usize), 1 => 1..4_usize].prop_map(|tried| Step::Arrive { tried }),
        12 => who.clone().prop_map(Step::Finish),
        8 => who.clone().prop_map(Step::Look),
        5 => who.clone().prop_map(Step::Leave),
        1 => Just(Step::Add),
        1 => who.clone().prop_map(Step::Remove),
        1 => who.clone().prop_map(Step::Refuse),
        3 => who.prop_map(Step::Heal),
        1 => (1..5_u32).prop_map(Step::Limit),
    ];
    prop::collection::vec(step, 1..300)
}

struct World {
    balancer: Balancer,
    queue: Queue<u64>,
    rng: Pcg64Mcg,
    config: BalancerConfig,
    backends: Vec<BackendId>,
    /// Requests at their backends.
    held: Vec<BackendId>,
    arrivals: u64,
    /// All waiters with a seat, by their number.
    seats: BTreeMap<u64, Ticket>,
    /// Those without a result yet, in order.
    waiting: VecDeque<u64>,
    /// Those that were served, with their result.
    called: BTreeMap<u64, SeatState>,
}

impl World {
    fn new() -> Self {
        let mut config = BalancerConfig::default();
        config.max_active_requests = NonZeroU32::MIN;
        let mut world = Self {
            balancer: Balancer::new(config),
            queue: Queue::default(),
            rng: seeded(1),
            config,
            backends: Vec::new(),
            held: Vec::new(),
            arrivals: 0,
            seats: BTreeMap::new(),
            waiting: VecDeque::new(),
            called: BTreeMap::new(),
        };
        (0..2).for_each(|_| world.add());
        world
    }

    fn add(&mut self) {
        let id = self.balancer.add(NOW, Weight::ONE, &mut ());
        self.balancer.on_connected(NOW, id, &mut ());
        self.backends.push(id);
    }

    fn finish(&mut self, id: BackendId) {
        self.balancer.finish(NOW, id, CANCELLED, &mut ());
    }

    fn step(&mut self, step: &Step) {
        let at = |number: usize, count: usize| number.checked_rem(count);
        let backend = |world: &Self, number| at(number, world.backends.len()).map(|at| world.backends[at]);
        match *step {
            Step::Arrive { tried } => {
                let tried: Vec<_> = self.backends.iter().copied().take(tried).collect();
                self.arrive(tried);
            }
            Step::Finish(number) => {
                if let Some(at) = at(number, self.held.len()) {
                    let id = self.held.swap_remove(at);
                    self.finish(id);
                }
            }
            Step::Look(number) | Step::Leave(number) => {
                let Some(at) = at(number, self.seats.len()) else { return };
                let who = *self.seats.keys().nth(at).expect("counted");
                self.visit(who, matches!(step, Step::Leave(_)));
            }
            Step::Add => self.add(),
            Step::Remove(number) => {
                if let Some(at) = at(number, self.backends.len()) {
                    let id = self.backends.remove(at);
                    self.balancer.remove(NOW, id, &mut ());
                }
            }
            Step::Refuse(number) => {
                if let Some(id) = backend(self, number) {
                    self.balancer.on_connect_failed(NOW, id, &mut self.rng, &mut ());
                }
            }
            Step::Heal(number) => {
                if let Some(id) = backend(self, number) {
                    self.balancer.on_connected(NOW, id, &mut ());
                }
            }
            Step::Limit(limit) => {
                self.config.max_active_requests = NonZeroU32::new(limit).expect("from one up");
                self.balancer.set_config(NOW, self.config);
            }
        }
    }

    fn arrive(&mut self, tried: Vec<BackendId>) {
        if self.queue.is_empty() {
            match self.balancer.pick_except(NOW, &mut self.rng, &tried) {
                Pick::Backend(id) => return self.held.push(id),
                Pick::NoBackend => return,
                Pick::Wait(_) => {}
            }
        }
        self.arrivals += 1;
        self.seats
            .insert(self.arrivals, self.queue.join(Holders::default(), Wanted { tried, key: None }, self.arrivals));
        self.waiting.push_back(self.arrivals);
    }

    fn visit(&mut self, who: u64, goes: bool) {
        let (hand, call) = self.queue.look(&self.seats[&who]);
        assert_eq!(call.copied(), (hand == SeatState::Empty).then_some(who));
        assert_eq!(hand, self.called.get(&who).copied().unwrap_or(SeatState::Empty), "nobody gets anything uncalled");
        match hand {
            SeatState::Backend(id) if !goes && !self.balancer.contains(id) => {
                self.queue.rejoin(&self.seats[&who], who);
                self.called.remove(&who);
                self.waiting.push_front(who);
                return;
            }
            SeatState::Backend(id) if goes => self.finish(id),
            SeatState::Backend(id) => self.held.push(id),
            SeatState::Empty if !goes => return,
            SeatState::Empty | SeatState::NoBackend | SeatState::Displaced => {}
        }
        let ticket = self.seats.remove(&who).expect("it was looked up");
        assert_eq!(self.queue.leave(ticket), (hand, (hand == SeatState::Empty).then_some(who)));
        self.called.remove(&who);
        self.waiting.retain(|waiter| *waiter != who);
    }

    fn serve(&mut self) {
        let before: BTreeMap<_, _> = self.balancer.snapshot(NOW).iter().map(|it| (it.id, it.active)).collect();
        while let Some(Served { call: who, hand, .. }) =
            self.queue.serve(|_| true, |wanted| self.balancer.pick_except(NOW, &mut self.rng, &wanted.tried))
        {
            assert_eq!(self.waiting.pop_front(), Some(who), "first come, first served");
            self.called.insert(who, hand);
        }
        for backend in self.balancer.snapshot(NOW) {
            let limit = self.config.max_active_requests.get();
            assert!(backend.active <= limit || backend.active <= before[&backend.id], "{backend:?} of {limit}");
        }
    }

    fn check(&self) {
        assert_eq!(self.queue.len(), self.waiting.len());
        assert_eq!(self.queue.is_empty(), self.waiting.is_empty());
        let in_hands = self.called.values().filter_map(|hand| match hand {
            SeatState::Backend(id) => Some(id),
            _ => None,
        });
        let mut active: BTreeMap<BackendId, u32> = self.backends.iter().map(|id| (*id, 0)).collect();
        for id in self.held.iter().chain(in_hands) {
            active.entry(*id).and_modify(|count| *count += 1);
        }
        for backend in self.balancer.snapshot(NOW) {
            assert_eq!(backend.active, active[&backend.id], "every pick is held by one, and finished once");
        }
        if !self.waiting.is_empty() {
            let found = self.balancer.clone().pick(NOW, &mut self.rng.clone());
            assert!(matches!(found, Pick::Wait(_)), "somebody waits, and yet {found:?}");
        }
    }
}

proptest! {
    #[test]
    fn no_request_waits_beside_a_free_slot_and_no_slot_is_lost(steps in steps()) {
        let mut world = World::new();
        for step in &steps {
            world.step(step);
            world.serve();
            world.check();
        }
        let seats: Vec<u64> = world.seats.keys().copied().collect();
        for who in seats {
            world.visit(who, true);
            world.serve();
        }
        for id in std::mem::take(&mut world.held) {
            world.finish(id);
        }
        world.check();
        prop_assert!(world.balancer.snapshot(NOW).iter().all(|backend| backend.active == 0));
    }
}

#[test]
fn waiter_takes_a_tried_backend_when_no_other_is_free() {
    let mut world = World::new();
    world.arrive(Vec::new());
    world.arrive(Vec::new());
    let [a, b] = world.held[..] else { panic!("two places, two requests") };
    world.arrive(vec![a]);
    world.arrive(Vec::new());
    world.finish(a);
    world.serve();
    assert_eq!(world.called, BTreeMap::from([(1, SeatState::Backend(a))]));
    world.finish(b);
    world.serve();
    assert_eq!(world.called[&2], SeatState::Backend(b));
}

#[test]
fn waiter_gets_an_untried_backend_when_two_are_free() {
    let mut world = World::new();
    world.arrive(Vec::new());
    world.arrive(Vec::new());
    let [a, b] = world.held[..] else { panic!("two places, two requests") };
    world.arrive(vec![a]);
    world.finish(a);
    world.finish(b);
    world.serve();
    assert_eq!(world.called, BTreeMap::from([(1, SeatState::Backend(b))]));
}

#[test]
fn seats_are_used_again() {
    let mut queue = Queue::default();
    for _ in 0..1000 {
        let tickets = [
            queue.join(Holders::default(), Wanted::default(), ()),
            queue.join(Holders::default(), Wanted::default(), ()),
        ];
        for ticket in tickets {
            assert!(["Ticket(0)", "Ticket(1)"].contains(&format!("{ticket:?}").as_str()));
            let _ = queue.leave(ticket);
        }
    }
}

fn client(number: u64) -> Holders {
    // Bits 24 to 31 determine its line.
    Holders { client: Holder::new(number << 24), ..Holders::default() }
}

/// Serves one request after another, and returns their order.
fn order(queue: &mut Queue<u64>, denied: Option<Holders>) -> Vec<u64> {
    let id = World::new().backends[0];
    let mut order = Vec::new();
    while let Some(served) = queue.serve(|holders| Some(holders) != denied, |_| Pick::Backend(id)) {
        order.push(served.call);
    }
    order
}

/// A queue where clients 1, 2 and 3 wait with `counts` requests each, numbered by client and order;
/// and their tickets.
fn lines(counts: [u64; 3]) -> (Queue<u64>, Vec<Ticket>) {
    let (mut queue, mut tickets) = (Queue::default(), Vec::new());
    for (number, count) in (1..).zip(counts) {
        tickets.extend((1..=count).map(|at| queue.join(client(number), Wanted::default(), 100 * number + at)));
    }
    (queue, tickets)
}

#[test]
fn lines_of_clients_take_turns_at_any_length() {
    let (mut queue, _tickets) = lines([4, 1, 2]);
    assert_eq!(order(&mut queue, None), [101, 201, 301, 102, 302, 103, 104]);
    assert!(queue.is_empty());
}

#[test]
fn client_at_its_share_delays_no_other() {
    let (mut queue, _tickets) = lines([3, 0, 2]);
    assert_eq!(order(&mut queue, Some(client(1))), [301, 302]);
    assert_eq!((queue.len(), queue.first_before(client(1)), queue.first_before(client(3))), (3, Some(client(1)), None));
    assert_eq!(order(&mut queue, None), [101, 102, 103]);
}

/// Clients 1 and 2 share a line. Client 1 is at its limit, and its requests go to many endpoints.
#[test]
fn client_at_its_limit_hides_no_other_of_its_line() {
    let (mut queue, mut tickets) = (Queue::default(), Vec::new());
    let of = |client: u64| Holders { client: Holder::new(7 << 24 | client), work: Holder::new(0) };
    for number in 0..1_000 {
        let work = Holder::new(number);
        tickets.push(queue.join(Holders { work, ..of(1) }, Wanted::default(), number));
    }
    (0..3).for_each(|number| tickets.push(queue.join(of(2), Wanted::default(), 2_000 + number)));
    assert_eq!((queue.first_before(of(2)), queue.heads().count()), (Some(of(2)), 2));
    let id = World::new().backends[0];
    let mut asked = 0;
    let mut serve = |queue: &mut Queue<u64>| {
        let may_take = |holders: Holders| {
            asked += 1;
            holders.client != of(1).client
        };
        queue.serve(may_take, |_| Pick::Backend(id)).map(|served| served.call)
    };
    assert_eq!([0; 4].map(|_| serve(&mut queue)), [Some(2_000), Some(2_001), Some(2_002), None]);
    assert!(asked < 4 * 65, "{asked} questions");
    // Without a limit both take turns.
    tickets.push(queue.join(of(2), Wanted::default(), 2_003));
    let order = order(&mut queue, None);
    assert_eq!((&order[..3], order.len()), (&[0, 2_003, 1][..], 1_001));
}

/// 100 clients in a line each, all at their limits with 40 requests: 4,000, more than one call
/// considers. The last one has a request more.
#[test]
fn calls_consider_a_bounded_number_and_go_on_behind_them() {
    let (mut queue, mut tickets) = (Queue::default(), Vec::new());
    for number in 0..100 {
        for work in 0..40 {
            let holders = Holders { work: Holder::new(work), ..client(number) };
            tickets.push(queue.join(holders, Wanted::default(), number));
        }
    }
    tickets.push(queue.join(client(200), Wanted::default(), 200));
    let id = World::new().backends[0];
    let mut asked = Vec::new();
    let mut serve = |queue: &mut Queue<u64>| {
        let mut count = 0;
        let may_take = |holders| {
            count += 1;
            holders == client(200)
        };
        let served = queue.serve(may_take, |_| Pick::Backend(id)).map(|served| served.call);
        asked.push(count);
        served
    };
    assert_eq!([serve(&mut queue), serve(&mut queue)], [None, Some(200)]);
    assert!(asked.iter().all(|count| (1_000..=2_088).contains(count)), "{asked:?}");
}

#[test]
fn newcomer_displaces_the_last_of_the_longest_line_only() {
    let (mut queue, tickets) = lines([4, 2, 0]);
    assert_eq!(queue.displace(client(3)), Some(104));
    assert_eq!(queue.look(&tickets[3]), (SeatState::Displaced, None));
    assert_eq!(queue.displace(client(2)), None, "its line would be as long");
    assert_eq!(queue.displace(client(3)), Some(103));
    assert_eq!(queue.displace(client(1)), None);
    for ticket in tickets {
        let _ = queue.leave(ticket);
    }
    assert!(queue.is_empty() && queue.heads().next().is_none());
}

#[test]
fn client_has_one_line_for_all_endpoints() {
    let (mut queue, mut tickets) = (Queue::default(), Vec::new());
    for number in 1..=100 {
        let holders = Holders { work: Holder::new(number << 24), ..client(1) };
        tickets.push(queue.join(holders, Wanted::default(), number));
    }
    tickets.push(queue.join(client(2), Wanted::default(), 200));
    assert_eq!(queue.heads().count(), 2);
    assert_eq!(queue.displace(client(2)), Some(100));
    // A denied request in front delays no other of the same line.
    let id = World::new().backends[0];
    let second = Holders { work: Holder::new(2 << 24), ..client(1) };
    assert_eq!(queue.serve(|holders| holders == second, |_| Pick::Backend(id)).map(|served| served.call), Some(2));
}

#[test]
fn rejoining_waiter_is_first_and_others_keep_their_turns() {
    let (mut queue, tickets) = lines([2, 1, 1]);
    let id = World::new().backends[0];
    assert_eq!(queue.serve(|_| true, |_| Pick::Backend(id)).map(|served| served.call), Some(101));
    queue.rejoin(&tickets[0], 101);
    assert_eq!(queue.heads().map(|(holders, _)| holders).collect::<Vec<_>>(), [1, 2, 3].map(client));
    assert_eq!(order(&mut queue, None), [101, 201, 301, 102]);
}
