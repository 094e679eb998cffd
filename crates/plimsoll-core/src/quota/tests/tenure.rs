//! An owner that is cut off from etcd and not from its tasks, and the one that follows.

use std::vec;

use super::*;

const LIMIT: u64 = 1_000_000;
const LEASE: Duration = OwnerConfig::DEFAULT_LEASE;

/// A fleet, and the owner of the tasks that left it.
#[derive(Clone)]
struct Split {
    old: Fleet,
    /// From the end of the old owner's own lease on.
    new: Option<Fleet>,
    /// The tasks that joined the new owner.
    moved: Vec<bool>,
}

impl Split {
    /// Tasks with this offer each 10 ms; the owner's own lease ends now.
    fn new(offers: &[f64]) -> Self {
        let mut old = Fleet::new(offers.len(), LIMIT);
        (0..offers.len()).for_each(|at| old.connect(at));
        old.settle(20_000, |fleet| offer(fleet, offers));
        let now = old.now;
        old.owner.set_certain_until(now, now);
        Self { old, new: None, moved: vec![false; offers.len()] }
    }

    fn begin(&mut self) {
        let mut new = Fleet::new(0, LIMIT);
        new.now = self.old.now;
        new.owner = Owner::new(new.now, OwnerConfig::default());
        new.customer = new.owner.add_customer(new.now, LIMIT);
        self.new = Some(new);
    }

    /// The task goes to the new owner. The old one may not notice.
    fn move_on(&mut self, at: usize, is_noticed: bool) {
        if core::mem::replace(&mut self.moved[at], true) {
            return;
        }
        if is_noticed {
            self.old.disconnect(at);
        }
        let mut task = self.old.tasks[at].clone();
        task.holder.disconnect();
        (task.id, task.rejoined) = (None, None);
        task.messages.clear();
        let absent = Task { holder: Holder::new(self.old.now), generation: task.generation + 1, ..task.clone() };
        self.old.tasks[at] = absent;
        let new = self.new.as_mut().expect("it has begun");
        new.tasks.push(task);
        new.connect(new.tasks.len() - 1);
    }

    fn settle(&mut self, ms: u64, offers: &[f64]) {
        for _ in 0..ms / 10 {
            let moved = self.moved.clone();
            let stayed = |fleet: &mut Fleet| {
                (0..offers.len()).filter(|at| !moved[*at]).for_each(|at| fleet.offer(at, offers[at]));
            };
            step(&mut self.old, stayed);
            if let Some(new) = &mut self.new {
                step(new, |fleet| (0..fleet.tasks.len()).for_each(|at| fleet.offer(at, offers[at])));
            }
        }
    }

    fn used(&mut self) -> u64 {
        let moved = self.moved.clone();
        let stayed = self.old.tasks.iter_mut().zip(moved).filter(|(_, moved)| !moved).map(|(task, _)| rate(task));
        stayed.sum::<u64>() + self.new.as_mut().map_or(0, Fleet::used)
    }
}

fn rate(task: &mut super::Task) -> u64 {
    task.holder.account(CustomerId(0)).hold(CustomerId(0)).map_or(0, |hold| u64::from(hold.rate))
}

fn offer(fleet: &mut Fleet, offers: &[f64]) {
    offers.iter().enumerate().for_each(|(at, cost)| fleet.offer(at, *cost));
}

fn step(fleet: &mut Fleet, act: impl FnOnce(&mut Fleet)) {
    fleet.pass(10);
    act(fleet);
    for at in 0..fleet.tasks.len() {
        while !fleet.tasks[at].messages.is_empty() {
            fleet.deliver(at, 0, false);
        }
    }
}

#[test]
fn overdue_owner_goes_on_and_tells_its_tasks() {
    let mut split = Split::new(&[2_000.0; 4]);
    assert_eq!(split.old.owner.tenure(), Tenure::Overdue);
    // Demand rises to four fifths of the limit while etcd is lost, and nobody else begins.
    split.settle(20_000, &[2_000.0; 4]);
    assert!(split.old.tasks.iter().all(|task| task.holder.is_doubtful()));
    let before = split.used();
    split.settle(10_000, &[2_000.0, 2_000.0, 2_000.0, 3_500.0]);
    assert!(before > 700_000 && split.used() > 930_000, "{before}, {}", split.used());
    let now = split.old.now;
    split.old.owner.set_certain_until(now, now + LEASE);
    split.settle(2_000, &[2_000.0; 4]);
    assert!(split.old.tasks.iter().all(|task| !task.holder.is_doubtful()));
}

#[test]
fn frozen_owner_moves_rates_and_grants_no_more_in_sum() {
    let offers = [4_000.0, 1_000.0];
    let mut split = Split::new(&offers);
    split.settle(60_000, &offers);
    assert_eq!(split.old.owner.tenure(), Tenure::Frozen);
    let before = split.used();
    split.settle(10_000, &[10_000.0, 1_000.0]);
    assert!(before < 700_000 && split.used() <= before, "{before}, {}", split.used());
    split.settle(10_000, &[500.0, 10_000.0]);
    let second = rate(&mut split.old.tasks[1]);
    assert!(second * 10 > before * 8 && split.used() <= before, "{second} of {before}");
    // The same lease goes on.
    let now = split.old.now;
    split.old.owner.set_certain_until(now, now + LEASE);
    split.settle(5_000, &[10_000.0, 10_000.0]);
    assert!(split.used() > 960_000, "{}", split.used());
}

#[test]
fn overdue_owner_keeps_the_rates_of_tasks_that_left_for_another_one() {
    let offers = [9_000.0; 4];
    let mut split = Split::new(&offers);
    split.settle(2_000, &offers);
    split.begin();
    split.move_on(0, true);
    split.move_on(1, true);
    // The other two stay there for another reason.
    split.settle(59_000, &offers);
    assert!(split.used() <= granted(LIMIT), "{}", split.used());
    // Leases of the first two end at the old owner.
    split.settle(4_000, &offers);
    let state = split.old.owner.customer(split.old.customer);
    assert!(state.held < 520_000, "half of the limit is reserved: {}", state.held);
}

#[test]
fn rate_of_a_task_that_lost_its_stream_earlier_stays_reserved_too() {
    let offers = [9_000.0, 9_000.0];
    let mut split = Split::new(&offers);
    let now = split.old.now;
    split.old.owner.set_certain_until(now, now + Duration::from_secs(30));
    split.old.disconnect(0);
    split.settle(31_000, &offers);
    assert_eq!(split.old.owner.tenure(), Tenure::Overdue);
    split.begin();
    split.move_on(0, false);
    // Its lease ends at the old owner before the new one can know all tasks.
    split.settle(40_000, &offers);
    assert!((900_000..=granted(LIMIT)).contains(&split.used()), "{}", split.used());
}

#[test]
fn new_owner_is_sure_when_all_have_left_the_old_one_and_nothing_is_lost() {
    let offers = [16_000.0, 2_000.0, 1_000.0, 1_000.0];
    let mut split = Split::new(&offers);
    split.settle(1_000, &offers);
    split.begin();
    let mut least = u64::MAX;
    for at in 0..4 {
        split.move_on(at, at % 2 == 0);
        for _ in 0..30 {
            split.settle(10, &offers);
            let used = split.used();
            assert!(used <= granted(LIMIT), "{at}: {used}");
            least = least.min(used);
        }
    }
    assert!(!split.new.as_ref().is_some_and(|new| new.owner.is_unsure()), "all are back");
    assert!(least > 900_000, "no pause: {least}");
    split.settle(2_000, &offers);
    assert!((960_000..=granted(LIMIT)).contains(&split.used()), "{}", split.used());
}

/// A step of a random history.
#[derive(Clone, Copy, Debug)]
enum Step {
    Settle(u64),
    Offer(usize, f64),
    Move(usize, bool),
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// As long as the new owner does not know all tasks, the rates at both are within the limit in sum.
    #[test]
    fn rates_at_both_owners_are_within_the_limit(
        steps in prop::collection::vec(prop_oneof![
            (10_u64..4_000).prop_map(Step::Settle),
            (0_usize..4, 0.0..20_000.0).prop_map(|(at, cost)| Step::Offer(at, cost)),
            (0_usize..4, any::<bool>()).prop_map(|(at, is_noticed)| Step::Move(at, is_noticed)),
        ], 1..40),
    ) {
        let mut offers = [5_000.0, 1_000.0, 3_000.0, 500.0];
        let mut split = Split::new(&offers);
        split.settle(1_000, &offers);
        split.begin();
        for each in steps {
            match each {
                Step::Settle(ms) => split.settle(ms, &offers),
                Step::Offer(at, cost) => offers[at] = cost,
                Step::Move(at, is_noticed) => split.move_on(at, is_noticed),
            }
            let is_unsure = split.new.as_ref().is_some_and(|new| new.owner.is_unsure());
            if !is_unsure && split.moved.contains(&false) {
                break;
            }
            let used = split.used();
            prop_assert!(used <= granted(LIMIT), "{used}");
        }
    }
}
