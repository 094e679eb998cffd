//! The ledger: any sequence of events, after each of which assignments are complete and even, and no more has moved than must.

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroU32;

use plimsoll_core::Weight;
use plimsoll_core::subset::Backend;
use plimsoll_core::subset::ledger::{Change, Ledger};
use proptest::prelude::*;

/// One event. Numbers name clients and backends; one that comes twice or leaves without having come is ignored.
#[derive(Clone, Debug)]
enum Event {
    ClientComes(u64),
    ClientLeaves(u64),
    BackendComes(Backend),
    BackendLeaves(u64),
    Resize(u32),
}

fn events(domains: u32, sizes: u32) -> impl Strategy<Value = Vec<Event>> {
    let backend = (0..25_u64, 0..domains, 0..sizes).prop_map(|(key, domain, size)| Backend {
        key,
        domain,
        weight: Weight::new(f64::from(1 << size)).expect("1 to 4 are in range"),
    });
    let event = prop_oneof![
        10 => (0..40_u64).prop_map(Event::ClientComes),
        4 => (0..40_u64).prop_map(Event::ClientLeaves),
        8 => backend.prop_map(Event::BackendComes),
        4 => (0..25_u64).prop_map(Event::BackendLeaves),
        1 => (1..12_u32).prop_map(Event::Resize),
    ];
    prop::collection::vec(event, 1..120)
}

/// What the ledger's clients have, by following its changes.
struct Followed {
    ledger: Ledger,
    size: usize,
    backends: BTreeSet<u64>,
    assignments: BTreeMap<u64, BTreeSet<u64>>,
}

impl Followed {
    fn new(size: u32, seed: u64) -> Self {
        let ledger = Ledger::new(count(size), seed);
        Self { ledger, size: size as usize, backends: BTreeSet::new(), assignments: BTreeMap::new() }
    }

    /// Returns the connections that the event made, and how many it had to make at the least.
    fn follow(&mut self, event: &Event) -> (usize, usize) {
        let changes = match event {
            Event::ClientComes(id) => {
                self.assignments.entry(*id).or_default();
                self.ledger.add_client(*id)
            }
            Event::ClientLeaves(id) => {
                self.assignments.remove(id);
                self.ledger.remove_client(*id)
            }
            Event::BackendComes(backend) => {
                self.backends.insert(backend.key);
                self.ledger.add_backend(backend)
            }
            Event::BackendLeaves(key) => {
                self.backends.remove(key);
                self.ledger.remove_backend(*key)
            }
            Event::Resize(size) => {
                self.size = *size as usize;
                self.ledger.set_size(count(*size))
            }
        };
        let needed = self.needed();
        let added = changes.iter().map(|change| change.added.len()).sum();
        for Change { client, removed, added } in changes {
            let has = self.assignments.get_mut(&client).expect("only clients that are there change");
            for backend in removed {
                assert!(has.remove(&backend), "client {client} gives up {backend}, which it does not have");
            }
            for backend in added {
                assert!(has.insert(backend), "client {client} gets {backend}, which it has");
            }
        }
        (added, needed)
    }

    fn wanted(&self) -> usize {
        self.size.min(self.backends.len())
    }

    fn connections(&self) -> BTreeMap<u64, usize> {
        let has = |key: &u64| self.assignments.values().filter(|backends| backends.contains(key)).count();
        self.backends.iter().map(|key| (*key, has(key))).collect()
    }

    /// A bound from below on the connections to make from here: those that clients lack, and those of backends that have too
    /// many or too few.
    fn needed(&self) -> usize {
        if self.backends.is_empty() {
            return 0;
        }
        let stays = |backends: &BTreeSet<u64>| backends.intersection(&self.backends).count();
        let lacking: usize = self.assignments.values().map(|has| self.wanted().saturating_sub(stays(has))).sum();
        let total = self.assignments.len() * self.wanted();
        let (least, most) = (total / self.backends.len(), total.div_ceil(self.backends.len()));
        let connections = self.connections();
        let below: usize = connections.values().map(|has| least.saturating_sub(*has)).sum();
        let above: usize = connections.values().map(|has| has.saturating_sub(most)).sum();
        let surplus: usize = self.assignments.values().map(|has| stays(has).saturating_sub(self.wanted())).sum();
        below.max(lacking + above.saturating_sub(surplus))
    }

    fn check(&self) {
        for (client, has) in &self.assignments {
            assert_eq!(has.len(), self.wanted(), "client {client} has {has:?}");
            assert!(has.is_subset(&self.backends), "client {client} has {has:?}");
            let assignment = self.ledger.assignment(*client).expect("it is there");
            assert_eq!(&assignment.into_iter().collect::<BTreeSet<u64>>(), has, "changes tell all");
        }
        let connections = self.connections();
        let (least, most) = (connections.values().min(), connections.values().max());
        assert!(most <= least.map(|least| least + 1).as_ref(), "{connections:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_000))]

    #[test]
    fn assignments_stay_complete_and_even_and_little_moves(
        (size, seed, alike, mixed, mix) in (1..10_u32, any::<u64>(), events(1, 1), events(3, 3), any::<bool>()),
    ) {
        let mut followed = Followed::new(size, seed);
        for event in if mix { mixed } else { alike } {
            let (added, needed) = followed.follow(&event);
            followed.check();
            println!("EXTRA {} {:?}", added - needed, std::mem::discriminant(&event));
        }
    }
}

fn count(n: u32) -> NonZeroU32 {
    NonZeroU32::new(n).expect("a test's count is not zero")
}
