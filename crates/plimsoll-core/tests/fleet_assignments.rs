//! Assignments by leaders that replace each other at any time, over a map in place of the store.

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroU32;
use std::time::Duration;

use plimsoll_core::fleet::{AssignmentWrite, Assignments, AssignmentsConfig, ListedBackend};
use plimsoll_core::{Timestamp, Weight};
use proptest::prelude::*;
use proptest::test_runner::RngSeed;
use rand_core::{Rng, SeedableRng as _};
use rand_pcg::Pcg64Mcg;

proptest! {
    // The seed is fixed because the bound on moves is measured for departures.
    #![proptest_config(ProptestConfig { cases: 120, rng_seed: RngSeed::Fixed(3), ..ProptestConfig::default() })]

    /// One event at a time. In the middle of its batches leaders end, and their successors begin
    /// with the assignments that are half written.
    #[test]
    fn each_event_moves_its_share_whoever_leads(
        (seed, size, clients, backends, events) in
            (any::<u64>(), 1..6_u32, 1..20_u32, 1..12_u32, prop::collection::vec(0..4_u8, 1..20)),
    ) {
        let mut fleet = Fleet::new(seed, size, 3);
        fleet.clients = (0..clients).map(|i| format!("client-{i}")).collect();
        fleet.backends = (0..backends).map(|i| (format!("10.0.0.{i}:80"), i % 2)).collect();
        let mut leader = fleet.leader();
        fleet.run(&mut leader);
        fleet.check();
        for (number, event) in (100..).zip(events) {
            let before = fleet.stored.clone();
            let (n, connections) = (fleet.backends.len(), fleet.wanted() * fleet.clients.len());
            match event {
                0 => {
                    fleet.clients.insert(format!("client-{number}"));
                }
                1 if fleet.clients.len() > 1 => {
                    let name = fleet.clients.iter().nth(number % fleet.clients.len()).cloned();
                    fleet.clients.remove(&name.expect("it is there"));
                }
                2 if n > 1 => {
                    let name = fleet.backends.keys().nth(number % n).cloned();
                    fleet.backends.remove(&name.expect("it is there"));
                }
                _ => {
                    fleet.backends.insert(format!("10.0.1.{number}:80"), number as u32 % 2);
                }
            }
            leader.set_view(&fleet.clients, &fleet.list());
            fleet.run(&mut leader);
            fleet.check();
            if event == 2 || event == 3 {
                // With n + 1 backends, one of them coming or going.
                let with = n.max(fleet.backends.len());
                let most = connections.max(fleet.wanted() * fleet.clients.len());
                // Each client may have to take one more while there are fewer backends than k.
                let filling = if with <= size as usize { fleet.clients.len() } else { 0 };
                let moved = fleet.moved(&before);
                prop_assert!(moved <= (most / with).max(filling) + 1, "{moved} of {most} with {with} backends");
            } else {
                let newcomers = if event == 0 { fleet.wanted() } else { 0 };
                let moved = fleet.moved(&before);
                prop_assert!(moved <= newcomers + fleet.wanted() + 1, "{moved} for a client");
            }
        }
    }

    /// Views that change while batches are written, then quiet.
    #[test]
    fn assignments_are_whole_after_quiet(seed in any::<u64>(), size in 1..6_u32, batch in 1..6_usize) {
        let mut fleet = Fleet::new(seed, size, batch);
        let mut leader = fleet.leader();
        for _ in 0..60 {
            match fleet.below(4) {
                0 => {
                    let name = format!("client-{}", fleet.below(15));
                    if !fleet.clients.remove(&name) {
                        fleet.clients.insert(name);
                    }
                }
                1 => {
                    let address = format!("10.0.0.{}:80", fleet.below(10));
                    if fleet.backends.remove(&address).is_none() {
                        let domain = fleet.below(2);
                        fleet.backends.insert(address, domain);
                    }
                }
                _ => {}
            }
            leader.set_view(&fleet.clients, &fleet.list());
            let steps = fleet.below(6);
            for _ in 0..steps {
                fleet.step(&mut leader);
            }
        }
        fleet.run(&mut leader);
        fleet.check();
    }
}

#[test]
fn equal_assignment_is_not_written() {
    let fleet = Fleet::filled();
    let mut leader = fleet.leader();
    assert_eq!(leader.poll(fleet.at()), None);
    assert_eq!((leader.unwritten(), leader.poll_timeout()), (0, None));
    leader.set_view(&fleet.clients, &fleet.list());
    assert_eq!(leader.poll(fleet.at()), None);
}

#[test]
fn added_backend_settles_before_another_is_removed() {
    let mut fleet = Fleet::filled();
    let mut leader = fleet.leader();
    fleet.backends.insert("10.0.9.9:80".to_owned(), 0);
    leader.set_view(&fleet.clients, &fleet.list());
    let unions = leader.poll(fleet.at()).expect("clients move");
    assert!(unions.iter().all(|write| fleet.size_of(write) == 4), "three and the new one: {unions:?}");
    assert_eq!(leader.poll(fleet.at()), None, "one batch at a time");
    fleet.apply(&unions);
    leader.on_written(fleet.at());
    assert_eq!(leader.poll(fleet.at()), None);
    let due = leader.poll_timeout().expect("it waits");
    assert_eq!(due, fleet.at() + Duration::from_secs(2));
    fleet.now += 1_999;
    assert_eq!(leader.poll(fleet.at()), None);
    fleet.now += 1;
    let last = leader.poll(fleet.at()).expect("it is time");
    assert_eq!(
        last.iter().map(AssignmentWrite::client).collect::<Vec<_>>(),
        unions.iter().map(AssignmentWrite::client).collect::<Vec<_>>()
    );
    assert!(last.iter().all(|write| fleet.size_of(write) == 3));
    fleet.apply(&last);
    leader.on_written(fleet.at());
    assert_eq!((leader.poll(fleet.at()), leader.unwritten(), leader.poll_timeout()), (None, 0, None));
}

#[test]
fn gone_backend_leaves_with_the_first_write() {
    let mut fleet = Fleet::filled();
    let mut leader = fleet.leader();
    let gone = fleet.backends.keys().next().cloned().expect("it is there");
    fleet.backends.remove(&gone);
    leader.set_view(&fleet.clients, &fleet.list());
    let writes = leader.poll(fleet.at()).expect("clients lost one");
    for write in &writes {
        assert!(matches!(write, AssignmentWrite::Put { backends, .. } if !backends.contains(&gone)), "{write:?}");
    }
}

#[test]
fn assignment_of_a_gone_client_is_deleted() {
    let mut fleet = Fleet::filled();
    let mut leader = fleet.leader();
    fleet.clients.remove("client-3");
    leader.set_view(&fleet.clients, &fleet.list());
    let deleted = AssignmentWrite::Delete { client: "client-3".to_owned() };
    assert!(leader.poll(fleet.at()).expect("a change").contains(&deleted));
    // A new leader finds it as well.
    assert!(fleet.leader().poll(fleet.at()).expect("a change").contains(&deleted));
}

#[test]
fn batch_of_unknown_end_is_planned_again_from_the_store() {
    let mut fleet = Fleet::filled();
    let mut leader = fleet.leader();
    fleet.clients.insert("client-new".to_owned());
    leader.set_view(&fleet.clients, &fleet.list());
    let batch = leader.poll(fleet.at()).expect("a change");
    let mut other = leader.clone();
    leader.set_written(fleet.stored.clone());
    assert_eq!(leader.poll(fleet.at()), Some(batch.clone()), "it was not written");
    fleet.apply(&batch);
    other.set_written(fleet.stored.clone());
    assert_eq!(other.poll(fleet.at()), None, "it was");
}

#[test]
fn assignments_that_somebody_else_wrote_are_written_anew() {
    let mut fleet = Fleet::filled();
    let mut leader = fleet.leader();
    fleet.run(&mut leader);
    let right = fleet.stored.clone();
    assert!(!leader.set_written(right.clone()), "as the leader knows them");
    assert_eq!(leader.poll(fleet.at()), None);
    let client = fleet.stored.keys().next().expect("a client").clone();
    fleet.stored.insert(client, BTreeSet::new());
    fleet.stored.insert("stranger".to_owned(), BTreeSet::new());
    assert!(leader.set_written(fleet.stored.clone()));
    fleet.run(&mut leader);
    assert_eq!(fleet.stored, right);
}

#[test]
fn other_size_is_written_to_all() {
    let mut fleet = Fleet::filled();
    let mut leader = fleet.leader();
    fleet.size = 4;
    leader.set_size(NonZeroU32::new(4).expect("not zero"));
    fleet.run(&mut leader);
    fleet.check();
}

/// Clients, backends and the assignments in the store.
struct Fleet {
    rng: Pcg64Mcg,
    now: u64,
    size: u32,
    max_batch: usize,
    clients: BTreeSet<String>,
    backends: BTreeMap<String, u32>,
    stored: BTreeMap<String, BTreeSet<String>>,
}

impl Fleet {
    fn new(seed: u64, size: u32, max_batch: usize) -> Self {
        let (clients, backends, stored) = (BTreeSet::new(), BTreeMap::new(), BTreeMap::new());
        Self { rng: Pcg64Mcg::seed_from_u64(seed), now: 0, size, max_batch, clients, backends, stored }
    }

    /// Ten clients with three of eight backends each.
    fn filled() -> Self {
        let mut fleet = Self::new(1, 3, 128);
        fleet.clients = (0..10).map(|i| format!("client-{i}")).collect();
        fleet.backends = (0..8).map(|i| (format!("10.0.0.{i}:80"), 0)).collect();
        let mut leader = fleet.leader();
        let first = leader.poll(fleet.at()).expect("all are new");
        fleet.apply(&first);
        fleet.check();
        fleet
    }

    fn at(&self) -> Timestamp {
        Timestamp::from_origin(Duration::from_millis(self.now))
    }

    fn below(&mut self, n: u32) -> u32 {
        self.rng.next_u32() % n
    }

    fn list(&self) -> Vec<ListedBackend> {
        let listed = |(address, domain): (&String, &u32)| ListedBackend {
            address: address.clone(),
            domain: *domain,
            weight: Weight::ONE,
        };
        self.backends.iter().map(listed).collect()
    }

    fn leader(&self) -> Assignments {
        let size = NonZeroU32::new(self.size).expect("a test's size is not zero");
        let config = AssignmentsConfig { max_batch: self.max_batch, ..AssignmentsConfig::new(size, 7) };
        Assignments::new(config, &self.clients, &self.list(), self.stored.clone())
    }

    /// A batch, with an end of any kind, or a while without one.
    fn step(&mut self, leader: &mut Assignments) {
        self.now += u64::from(self.below(1_500));
        let batch = leader.poll(self.at());
        let dice = self.below(8);
        if let Some(batch) = batch {
            assert!(batch.len() <= self.max_batch);
            if dice > 0 {
                self.apply(&batch);
            }
            match dice {
                // The end is unknown: it was written, or not.
                0 | 1 => {
                    leader.set_written(self.stored.clone());
                }
                // Another leads.
                2 | 3 => *leader = self.leader(),
                _ => leader.on_written(self.at()),
            }
        } else if dice == 0 {
            *leader = self.leader();
        }
    }

    /// Steps until nothing is left to write.
    fn run(&mut self, leader: &mut Assignments) {
        for _ in 0..5_000 {
            self.step(leader);
            if leader.poll(self.at()).is_none() && leader.unwritten() == 0 {
                return;
            }
            leader.set_written(self.stored.clone());
        }
        panic!("there is always more to write");
    }

    fn apply(&mut self, batch: &[AssignmentWrite]) {
        for write in batch {
            match write {
                AssignmentWrite::Put { client, backends } => {
                    let before = self.stored.insert(client.clone(), backends.clone()).unwrap_or_default();
                    assert_ne!(&before, backends, "a write changes something");
                    let live = |address: &&String| self.backends.contains_key(*address);
                    let removed = before.difference(backends).filter(live).count();
                    let added = backends.difference(&before).count();
                    assert!(removed == 0 || added == 0, "{client} loses {removed} as it gets {added}");
                }
                AssignmentWrite::Delete { client } => assert!(self.stored.remove(client).is_some()),
            }
        }
    }

    fn size_of(&self, write: &AssignmentWrite) -> usize {
        match write {
            AssignmentWrite::Put { backends, .. } => backends.len(),
            AssignmentWrite::Delete { .. } => 0,
        }
    }

    fn wanted(&self) -> usize {
        self.backends.len().min(self.size as usize)
    }

    /// Connections that clients did not have before.
    fn moved(&self, before: &BTreeMap<String, BTreeSet<String>>) -> usize {
        let none = BTreeSet::new();
        self.stored.iter().map(|(client, has)| has.difference(before.get(client).unwrap_or(&none)).count()).sum()
    }

    /// The assignments in the store are complete and even.
    fn check(&self) {
        // Without backends there is nothing to write.
        assert!(self.wanted() == 0 || self.stored.keys().eq(&self.clients), "{:?}", self.stored);
        for (client, has) in &self.stored {
            assert_eq!(has.len(), self.wanted(), "{client}");
            assert!(has.iter().all(|address| self.backends.contains_key(address)), "{client}");
        }
        let loads =
            self.backends.keys().map(|address| self.stored.values().filter(|has| has.contains(address)).count());
        let (least, most) = (loads.clone().min(), loads.max());
        assert!(most <= least.map(|least| least + 1), "{least:?} to {most:?}");
    }
}
