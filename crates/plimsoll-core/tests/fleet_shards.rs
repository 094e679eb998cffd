//! Owners of shards over a model of the store, with late views, deaths, outages and servers that do
//! nothing.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::time::Duration;

use plimsoll_core::Timestamp;
use plimsoll_core::fleet::{SHARDS, ShardOperation, Shards};
use proptest::prelude::*;
use rand_core::{Rng, SeedableRng as _};
use rand_pcg::Pcg64Mcg;

proptest! {
    #![proptest_config(ProptestConfig { cases: 100, ..ProptestConfig::default() })]

    /// Servers come and go under late views. After quiet all shards are owned, none above the fair
    /// share, and nothing moves any more.
    #[test]
    fn shards_settle_after_any_arrivals_and_deaths(seed in any::<u64>(), events in prop::collection::vec(0..3_u8, 1..12)) {
        let mut fleet = Fleet::new(seed, 1);
        for event in events {
            match event {
                0 if fleet.servers.len() > 1 => {
                    let at = fleet.below(fleet.servers.len() as u32) as usize;
                    let name = fleet.servers.keys().nth(at).cloned().expect("it is there");
                    fleet.kill(&name);
                }
                1 => fleet.start(),
                _ => {}
            }
            let steps = fleet.below(60);
            fleet.run(steps);
        }
        fleet.run(800);
        fleet.check_settled();
    }

    /// After the loss of one of n servers its shards move, and no others.
    #[test]
    fn loss_of_a_server_moves_its_shards_alone(seed in any::<u64>(), n in 2..12_u32, gone in 0..12_u32) {
        let mut fleet = Fleet::settled(seed, n);
        let before = fleet.records.clone();
        let name = fleet.servers.keys().nth((gone % n) as usize).cloned().expect("it is there");
        fleet.kill(&name);
        let begin = fleet.now;
        while fleet.records.len() < SHARDS as usize {
            fleet.run(1);
            prop_assert!(fleet.now - begin <= 1_000, "{} after a second", fleet.records.len());
        }
        fleet.run(800);
        fleet.check_settled();
        for (shard, owner) in before {
            prop_assert!(owner == name || fleet.records[&shard] == owner, "{shard} moved from {owner}");
        }
    }

    /// A new server gets the shards that the others have above their fair share.
    #[test]
    fn arrival_moves_the_excess_alone(seed in any::<u64>(), n in 1..12_u32) {
        let mut fleet = Fleet::settled(seed, n);
        let before = fleet.records.clone();
        let fair = SHARDS.div_ceil(n + 1);
        let excess: u32 = fleet.counts().values().map(|count| count.saturating_sub(fair)).sum();
        fleet.start();
        fleet.run(800);
        fleet.check_settled();
        let moved = before.iter().filter(|(shard, owner)| fleet.records[*shard] != **owner).count();
        prop_assert_eq!(moved as u32, excess);
    }
}

/// The store loses all leases; the servers are known all the time, as unconfirmed.
#[test]
fn outage_of_all_leases_moves_no_shard() {
    // Owners by arrivals and a death, other than the first choices.
    let mut fleet = Fleet::settled(3, 3);
    for _ in 0..2 {
        fleet.start();
        fleet.run(800);
    }
    let dead = fleet.servers.keys().next().cloned().expect("it is there");
    fleet.kill(&dead);
    fleet.run(800);
    fleet.check_settled();
    let before = fleet.records.clone();
    fleet.records.clear();
    fleet.run(60);
    assert_eq!(fleet.records, before);
}

/// One of four is alive and never acts.
#[test]
fn idle_server_leaves_no_shard_without_owner_for_long() {
    let mut fleet = Fleet::settled(9, 4);
    let idle = fleet.servers.keys().next().cloned().expect("it is there");
    fleet.idle = Some(idle.clone());
    // Its records are gone, and it claims none.
    fleet.records.retain(|_, owner| *owner != idle);
    let mut longest = 0;
    let (begin, mut whole) = (fleet.now, fleet.now);
    while fleet.now < begin + 600_000 {
        fleet.run(1);
        if fleet.records.len() == SHARDS as usize {
            whole = fleet.now;
        }
        longest = longest.max(fleet.now - whole);
    }
    assert!((2_000..=9_000).contains(&longest), "{longest} ms without an owner");
    // At most one useless release a minute from each of the others.
    assert!(fleet.releases <= 33, "{} releases in ten minutes", fleet.releases);
}

#[test]
fn servers_with_one_view_never_collide() {
    let mut fleet = Fleet::new(1, 7);
    fleet.max_delay = 0;
    fleet.run(1);
    assert_eq!((fleet.records.len(), fleet.lost), (SHARDS as usize, 0));
    assert!(fleet.counts().values().all(|count| *count <= 10), "{:?}", fleet.counts());
}

#[test]
fn late_views_cost_few_lost_claims() {
    let (mut claims, mut lost) = (0, 0);
    for seed in 0..20 {
        let mut fleet = Fleet::settled(seed, 6);
        (fleet.claims, fleet.lost) = (0, 0);
        let name = fleet.servers.keys().next().cloned().expect("it is there");
        fleet.kill(&name);
        fleet.run(100);
        claims += fleet.claims;
        lost += fleet.lost;
    }
    println!("{lost} of {claims} claims lost after a death");
    assert!(lost * 10 <= claims, "{lost} of {claims}");
}

/// The first choice has two seconds, then the second.
#[test]
fn overdue_shard_goes_to_the_next_in_turn() {
    let servers: BTreeSet<String> = ["a", "b"].map(str::to_owned).into();
    let at = |millis| Timestamp::from_origin(Duration::from_millis(millis));
    let owner = |shard| if shard <= 32 { "a" } else { "b" };
    let records: BTreeMap<u32, String> = (1..SHARDS).map(|shard| (shard, owner(shard).to_owned())).collect();
    let mut machine = Shards::new("a".to_owned());
    assert_eq!(machine.decide(at(500), &servers, &records), [], "it has its fair share");
    assert_eq!(machine.poll_timeout(), Some(at(2_500)));
    assert_eq!(machine.decide(at(2_499), &servers, &records), []);
    assert_eq!(machine.decide(at(2_500), &servers, &records), [ShardOperation::Claim(0)]);
    assert_eq!(machine.poll_timeout(), Some(at(4_500)));
    let mut other = Shards::new("b".to_owned());
    assert_eq!(other.decide(at(500), &servers, &records), [ShardOperation::Claim(0)]);
}

#[test]
fn server_releases_only_after_the_others_are_settled() {
    let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<BTreeSet<_>>();
    let at = |seconds| Timestamp::from_origin(Duration::from_secs(seconds));
    let records: BTreeMap<u32, String> = (0..SHARDS).map(|shard| (shard, "a".to_owned())).collect();
    let mut machine = Shards::new("a".to_owned());
    assert_eq!((machine.decide(at(5), &names(&["a"]), &records), machine.poll_timeout()), (vec![], None));
    assert_eq!(machine.decide(at(20), &names(&["a", "b"]), &records), []);
    assert_eq!(machine.poll_timeout(), Some(at(30)));
    assert_eq!(machine.decide(at(29), &names(&["a", "b", "c"]), &records), []);
    assert_eq!(machine.decide(at(38), &names(&["a", "b", "c"]), &records), []);
    let released = machine.decide(at(39), &names(&["a", "b", "c"]), &records);
    assert!(matches!(released[..], [ShardOperation::Release(_)]), "{released:?}");
    assert_eq!(machine.decide(at(39), &names(&["a", "b", "c"]), &records), released, "the same view, the same answer");
    assert_eq!(machine.decide(at(39), &names(&["b", "c"]), &records), [], "without its own key");
}

/// Servers and records of the store.
type View = (BTreeSet<String>, BTreeMap<u32, String>);

/// A server, and the step of its view.
struct Server {
    machine: Shards,
    seen: usize,
    /// The first step that shows its last operations.
    awaits: usize,
    /// The view of its last decision.
    decided: Option<Rc<View>>,
}

/// Servers around one store. Times are milliseconds, in steps of 50.
struct Fleet {
    rng: Pcg64Mcg,
    now: u64,
    servers: BTreeMap<String, Server>,
    records: BTreeMap<u32, String>,
    /// The store at each step, for late views.
    history: Vec<Rc<View>>,
    max_delay: u32,
    idle: Option<String>,
    started: u32,
    claims: u32,
    lost: u32,
    releases: u32,
    last_move: u64,
}

impl Fleet {
    fn new(seed: u64, servers: u32) -> Self {
        let mut fleet = Self {
            rng: Pcg64Mcg::seed_from_u64(seed),
            now: 0,
            servers: BTreeMap::new(),
            records: BTreeMap::new(),
            history: vec![],
            max_delay: 3,
            idle: None,
            started: 0,
            claims: 0,
            lost: 0,
            releases: 0,
            last_move: 0,
        };
        for _ in 0..servers {
            fleet.start();
        }
        fleet
    }

    fn settled(seed: u64, servers: u32) -> Self {
        let mut fleet = Self::new(seed, servers);
        fleet.run(800);
        fleet.check_settled();
        fleet
    }

    fn below(&mut self, n: u32) -> u32 {
        self.rng.next_u32() % n
    }

    fn start(&mut self) {
        self.started += 1;
        let name = format!("{:04x}-{}", self.rng.next_u32() % 0x1_0000, self.started);
        let seen = self.history.len();
        self.servers.insert(name.clone(), Server { machine: Shards::new(name), seen, awaits: seen, decided: None });
    }

    /// The server's key and its records go with its lease.
    fn kill(&mut self, name: &str) {
        self.servers.remove(name);
        self.records.retain(|_, owner| owner != name);
    }

    fn run(&mut self, steps: u32) {
        for _ in 0..steps {
            self.now += 50;
            let same = |view: &&Rc<View>| view.0.iter().eq(self.servers.keys()) && view.1 == self.records;
            let view = self.history.last().filter(same).cloned();
            let new = || Rc::new((self.servers.keys().cloned().collect(), self.records.clone()));
            self.history.push(view.unwrap_or_else(new));
            for name in self.servers.keys().cloned().collect::<Vec<_>>() {
                if Some(&name) != self.idle.as_ref() {
                    self.act(&name);
                }
            }
        }
    }

    fn act(&mut self, name: &str) {
        let late = self.below(self.max_delay + 1) as usize;
        let newest = self.history.len() - 1;
        let server = self.servers.get_mut(name).expect("it runs");
        server.seen = newest.saturating_sub(late).max(server.seen);
        if server.seen < server.awaits {
            return;
        }
        let view = &self.history[server.seen];
        let at = Timestamp::from_origin(Duration::from_millis(self.now));
        let is_due = server.machine.poll_timeout().is_some_and(|due| at >= due);
        if !is_due && server.decided.as_ref().is_some_and(|last| Rc::ptr_eq(last, view)) {
            return;
        }
        server.decided = Some(view.clone());
        let (servers, records) = &**view;
        let operations = server.machine.decide(at, servers, records);
        if !operations.is_empty() {
            server.awaits = newest + 1;
            // A lost claim may leave the view as it is.
            server.decided = None;
        }
        for operation in operations {
            match operation {
                ShardOperation::Claim(shard) => {
                    self.claims += 1;
                    self.last_move = self.now;
                    match self.records.entry(shard) {
                        Entry::Occupied(_) => self.lost += 1,
                        Entry::Vacant(vacant) => {
                            vacant.insert(name.to_owned());
                        }
                    }
                }
                ShardOperation::Release(shard) => {
                    if self.records.get(&shard).is_some_and(|owner| owner == name) {
                        self.records.remove(&shard);
                        self.releases += 1;
                        self.last_move = self.now;
                    }
                }
            }
        }
    }

    fn counts(&self) -> BTreeMap<&str, u32> {
        let count = |name: &String| self.records.values().filter(|owner| *owner == name).count() as u32;
        self.servers.keys().map(|name| (name.as_str(), count(name))).collect()
    }

    /// All owned, none above the fair share, and no move for ten seconds.
    fn check_settled(&self) {
        let fair = SHARDS.div_ceil(self.servers.len() as u32);
        assert_eq!(self.records.len(), SHARDS as usize);
        assert!(self.counts().values().all(|count| *count <= fair), "{:?}", self.counts());
        assert!(self.now - self.last_move >= 10_000, "moved at {} of {}", self.last_move, self.now);
    }
}
