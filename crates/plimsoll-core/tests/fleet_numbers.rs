//! Numbers of members over a model of the store, with late views, lost answers, crashes, partitions
//! and outages.

#[path = "fleet_numbers/store.rs"]
mod store;
#[path = "fleet_numbers/task.rs"]
mod task;

use std::collections::{BTreeMap, BTreeSet};

use plimsoll_core::fleet::{Holes, NumbersConfig};
use proptest::prelude::*;
use rand_core::{Rng, SeedableRng as _};
use rand_pcg::Pcg64Mcg;

use self::store::Store;
use self::task::Task;

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, ..ProptestConfig::default() })]

    /// Five minutes of faults, then quiet.
    #[test]
    fn numbers_are_unique_and_whole_after_any_faults(seed in any::<u64>(), tasks in 1..8_u32, closed in any::<bool>()) {
        let holes = if closed { Holes::Closed } else { Holes::Kept };
        let mut fleet = Fleet::new(seed, holes);
        for _ in 0..tasks {
            fleet.start();
        }
        for _ in 0..600 {
            fleet.faulty_step();
            fleet.check();
        }
        fleet.calm();
        for _ in 0..500 {
            fleet.step();
            fleet.check();
        }
        fleet.check_whole();
    }
}

/// With the highest, a low and a middle member gone, for good.
#[test]
fn departure_moves_one_other_client_at_most() {
    for (gone, moved) in [(0, 1), (10, 1), (19, 0)] {
        let mut fleet = Fleet::settled(20, Holes::Closed);
        let before = fleet.numbers();
        let id = before.iter().find(|(_, number)| **number == gone).map(|(id, _)| id.clone()).expect("it is there");
        fleet.kill(&id);
        for _ in 0..600 {
            fleet.step();
        }
        fleet.check_whole();
        let after = fleet.numbers();
        assert_eq!(after.iter().filter(|(id, number)| before[*id] != **number).count(), moved, "without {gone}");
    }
}

/// All leases end in an outage of two minutes; each member finds its own number again.
#[test]
fn outage_of_all_leases_changes_no_number() {
    let mut fleet = Fleet::settled(20, Holes::Closed);
    let before = fleet.numbers();
    fleet.is_up = false;
    for _ in 0..600 {
        fleet.step();
    }
    fleet.is_up = true;
    for _ in 0..600 {
        fleet.step();
    }
    assert_eq!(fleet.numbers(), before);
}

/// 1,000 clients register within a second. Each view is 20 to 120 ms late, and a client looks every
/// 50 to 150 ms.
#[test]
fn thousand_clients_that_start_at_once_need_few_transactions() {
    let mut rng = Pcg64Mcg::seed_from_u64(11);
    let mut store = Store::default();
    let config = NumbersConfig::new(Holes::Closed);
    let mut waiting: BTreeMap<(u64, usize), Task> = BTreeMap::new();
    for i in 0..1_000 {
        let id = format!("{:08x}-client", rng.next_u32());
        waiting.insert((u64::from(rng.next_u32()) % 1_000, i), Task::new(id, 1, config));
    }
    // The revision of the store after each visit, for late views.
    let mut revisions = vec![(0, 0)];
    let mut transactions = vec![];
    while let Some(((now, i), mut task)) = waiting.pop_first() {
        // The decision of the last visit arrives at the store now.
        task.commit(now, &mut store, true, &mut rng);
        task.renew(now, &mut store);
        let late = 20 + u64::from(rng.next_u32()) % 100;
        let (_, upto) = revisions[revisions.partition_point(|(time, _)| time + late <= now).max(1) - 1];
        task.watch(now, &store, upto);
        revisions.push((now, store.revision()));
        if task.transactions > 0 && store.holds(&task.id) {
            transactions.push(task.transactions);
            continue;
        }
        task.decide(now);
        waiting.insert((now + 50 + u64::from(rng.next_u32()) % 100, i), task);
        assert!(now < 60_000, "{} have no number after a minute", waiting.len());
    }
    let (sum, worst, end) = (transactions.iter().sum::<u32>(), transactions.iter().max(), revisions.last());
    println!("{sum} transactions for 1,000 clients, {worst:?} for one, time and revision {end:?}");
    assert!(sum < 2_000, "{sum} transactions");
    assert_eq!(store.numbers.keys().copied().collect::<Vec<_>>(), (0..1_000).collect::<Vec<_>>());
}

/// Tasks around one store.
struct Fleet {
    rng: Pcg64Mcg,
    now: u64,
    store: Store,
    is_up: bool,
    config: NumbersConfig,
    tasks: Vec<Task>,
    /// Tasks without a path to the store.
    cut_off: BTreeSet<String>,
    /// Time of the crash, and the numbers then, by id.
    crashed: BTreeMap<String, (u64, Vec<u32>)>,
    started: u64,
}

impl Fleet {
    fn new(seed: u64, holes: Holes) -> Self {
        Self {
            rng: Pcg64Mcg::seed_from_u64(seed),
            now: 0,
            store: Store::default(),
            is_up: true,
            config: NumbersConfig::new(holes),
            tasks: vec![],
            cut_off: BTreeSet::new(),
            crashed: BTreeMap::new(),
            started: 0,
        }
    }

    /// `tasks` members with the first numbers, and with trust.
    fn settled(tasks: u32, holes: Holes) -> Self {
        let mut fleet = Self::new(5, holes);
        for _ in 0..tasks {
            fleet.start();
        }
        for _ in 0..200 {
            fleet.step();
        }
        fleet.check_whole();
        fleet
    }

    fn below(&mut self, n: u32) -> u32 {
        self.rng.next_u32() % n
    }

    /// Starts a task with a new id.
    fn start(&mut self) {
        self.started += 1;
        let id = format!("task-{:06x}-{}", self.rng.next_u32() % 0x100_0000, self.started);
        self.tasks.push(Task::new(id, self.started, self.config));
    }

    fn kill(&mut self, id: &str) {
        let at = self.tasks.iter().position(|task| task.id == id).expect("it runs");
        let mut task = self.tasks.remove(at);
        if self.is_up && self.below(2) == 0 {
            // Its last transaction arrives after its end.
            task.commit(self.now, &mut self.store, false, &mut self.rng);
        }
        self.crashed.insert(task.id.clone(), (self.now, self.numbers_of(&task.id)));
        self.cut_off.remove(&task.id);
    }

    /// Starts a task with the id of a crashed one. It finds its number, within a minute.
    fn restart(&mut self, id: &str) {
        let (crashed, numbers) = self.crashed.remove(id).expect("it crashed");
        if self.now - crashed < 60_000 {
            assert_eq!(self.numbers_of(id), numbers, "{id} is back after {} ms", self.now - crashed);
        }
        self.started += 1;
        self.tasks.push(Task::new(id.to_owned(), self.started, self.config));
    }

    fn numbers_of(&self, id: &str) -> Vec<u32> {
        self.store.numbers.iter().filter(|(_, record)| record.id == id).map(|(number, _)| *number).collect()
    }

    /// Half a second, with some fault.
    fn faulty_step(&mut self) {
        match self.below(60) {
            0 => self.start(),
            1 | 2 if self.tasks.len() > 1 => {
                let at = self.below(self.tasks.len() as u32) as usize;
                let id = self.tasks[at].id.clone();
                self.kill(&id);
            }
            3..=5 if !self.crashed.is_empty() => {
                let at = self.below(self.crashed.len() as u32) as usize;
                let id = self.crashed.keys().nth(at).expect("it is there").clone();
                self.restart(&id);
            }
            6 => {
                let at = self.below(self.tasks.len() as u32) as usize;
                self.cut_off.insert(self.tasks[at].id.clone());
            }
            7 | 8 => {
                self.cut_off.pop_first();
            }
            9 => self.is_up = self.below(2) == 0,
            10 => self.is_up = true,
            _ => {}
        }
        self.step();
    }

    /// Half a second. Each task that reaches the store renews, sees some of the changes, and
    /// decides.
    fn step(&mut self) {
        let begin = self.now;
        if self.is_up {
            self.store.expire(self.now);
        }
        for i in 0..self.tasks.len() {
            self.now = begin + 500 * i as u64 / self.tasks.len() as u64;
            let is_cut_off = !self.is_up || self.cut_off.contains(&self.tasks[i].id);
            let (dice, late) = (self.below(12), self.below(6));
            let task = &mut self.tasks[i];
            if is_cut_off {
                if dice == 0 {
                    task.lose(self.now, &mut self.rng);
                }
            } else {
                match dice {
                    0 => task.lose(self.now, &mut self.rng),
                    1 => task.commit(self.now, &mut self.store, false, &mut self.rng),
                    2 => {}
                    _ => task.commit(self.now, &mut self.store, true, &mut self.rng),
                }
                task.renew(self.now, &mut self.store);
                let upto = self.store.revision().saturating_sub(late.saturating_sub(2).into());
                task.watch(self.now, &self.store, upto);
                if dice == 3 {
                    task.resync(self.now, &self.store);
                }
            }
            task.decide(self.now);
        }
        self.now = begin + 500;
    }

    /// No faults from now on.
    fn calm(&mut self) {
        self.is_up = true;
        self.cut_off.clear();
    }

    fn numbers(&self) -> BTreeMap<String, u32> {
        self.tasks.iter().map(|task| (task.id.clone(), task.held(self.now).expect("it has one"))).collect()
    }

    /// No two members rely on one number.
    fn check(&self) {
        let mut holders = BTreeMap::new();
        for task in &self.tasks {
            if let Some(number) = task.held(self.now)
                && let Some(other) = holders.insert(number, &task.id)
            {
                panic!("{other} and {} both hold {number} at {} ms", task.id, self.now);
            }
        }
    }

    /// Every member has a number; of clients, these are the lowest.
    fn check_whole(&self) {
        let held: BTreeSet<u32> = self.numbers().into_values().collect();
        assert_eq!(held.len(), self.tasks.len());
        if self.config.holes == Holes::Closed {
            let kept: Vec<u32> = self.store.numbers.keys().copied().collect();
            assert_eq!(kept, (0..self.tasks.len() as u32).collect::<Vec<_>>());
        }
    }
}
