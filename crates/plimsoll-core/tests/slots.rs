//! Slots and the queue for them together: greedy clients leave others unaffected.
#![allow(clippy::unwrap_used, reason = "a test may fail by it")]

use std::collections::BTreeMap;
use std::num::NonZeroU32;

use plimsoll_core::queue::{Queue, SeatState, Wanted};
use plimsoll_core::slots::{Holder, Holders, Slots};
use plimsoll_core::{Balancer, BalancerConfig, Completion, Outcome, Pick, Timestamp, Weight};
use proptest::prelude::*;
use rand_core::SeedableRng as _;
use rand_pcg::Pcg64Mcg;

const NOW: Timestamp = Timestamp::ZERO;

/// One backend, as a cluster uses slots and queue.
struct World {
    balancer: Balancer,
    slots: Slots,
    queue: Queue<u64>,
    rng: Pcg64Mcg,
    /// Slots by client, counted here.
    held: BTreeMap<u64, u32>,
    waiting: BTreeMap<u64, u32>,
    capacity: u32,
}

fn holders(client: u64) -> Holders {
    Holders { client: Holder::new(client.wrapping_mul(0x9E37_79B9_7F4A_7C15)), work: Holder::default() }
}

impl World {
    fn new(capacity: u32, limit: u32) -> Self {
        let mut config = BalancerConfig::default();
        config.max_active_requests = NonZeroU32::new(capacity).unwrap();
        let mut balancer = Balancer::new(config);
        let id = balancer.add(NOW, Weight::ONE, &mut ());
        balancer.on_connected(NOW, id, &mut ());
        let mut slots = Slots::default();
        slots.limit_clients(NonZeroU32::new(limit));
        let (held, waiting) = Default::default();
        Self { balancer, slots, queue: Queue::default(), rng: Pcg64Mcg::seed_from_u64(1), held, waiting, capacity }
    }

    fn free(&self) -> u32 {
        self.capacity - self.held.values().sum::<u32>()
    }

    fn took(&mut self, client: u64) {
        self.slots.take(holders(client));
        *self.held.entry(client).or_default() += 1;
    }

    /// A request of `client`; whether it has a slot at once.
    fn arrive(&mut self, client: u64) -> bool {
        let free = self.free();
        self.slots.on_arrival(NOW, holders(client));
        if self.slots.may_take(NOW, holders(client), free)
            && let Pick::Backend(_) = self.balancer.pick(NOW, &mut self.rng)
        {
            self.took(client);
            return true;
        }
        let _seat = self.queue.join(holders(client), Wanted::default(), client);
        *self.waiting.entry(client).or_default() += 1;
        false
    }

    /// A request of `client` ends, if it has one, and its slot goes on.
    fn finish(&mut self, client: u64) {
        let Some(held) = self.held.get_mut(&client).filter(|held| **held > 0) else { return };
        *held -= 1;
        self.slots.give_back(holders(client));
        let id = self.balancer.snapshot(NOW)[0].id;
        self.balancer.finish(NOW, id, Completion { outcome: Outcome::Success, latency: None }, &mut ());
        loop {
            let free = self.free();
            let (slots, balancer, rng) = (&self.slots, &mut self.balancer, &mut self.rng);
            let served = self.queue.serve(
                |holders| slots.may_take(NOW, holders, free),
                |wanted| balancer.pick_except(NOW, rng, &wanted.tried),
            );
            let Some(served) = served else { break };
            assert!(matches!(served.hand, SeatState::Backend(_)));
            *self.waiting.get_mut(&served.call).unwrap() -= 1;
            self.took(served.call);
        }
    }
}

proptest! {
    /// Any number of greedy clients, which leave `others` slots: a client below its limit has a slot
    /// at once, and no client has more than the limit.
    #[test]
    fn clients_below_their_limit_never_wait_for_greedy_ones(
        limit in 1_u32..6,
        greedy in 1_u64..6,
        steps in prop::collection::vec((0_u64..12, any::<bool>()), 1..400),
    ) {
        // Nothing is kept free of clients by their share: it is the limit that decides.
        let mut world = World::new(64 * (limit * greedy as u32 + 8), limit);
        for (number, ends) in steps {
            let client = number % greedy;
            if ends {
                world.finish(client);
            } else {
                let before = world.held.get(&client).copied().unwrap_or(0);
                prop_assert_eq!(world.arrive(client), before < limit);
            }
            prop_assert!(world.held.values().all(|held| *held <= limit), "{:?}", world.held);
            let waits = |client: &u64| world.waiting.get(client).copied().unwrap_or(0) > 0;
            prop_assert!(world.held.iter().all(|(client, held)| *held == limit || !waits(client)));
            prop_assert!(world.arrive(1_000), "another finds a slot at once");
            world.finish(1_000);
        }
    }
}
