//! Tasks that join with rates: honest ones, and those that take what is not theirs.

use super::*;

const LIMIT: u64 = 1_000_000;

/// Ten tasks with twice the limit in sum, at the even part of it, beside others without demand.
fn honest(others: usize) -> Fleet {
    let mut fleet = Fleet::new(10 + others, LIMIT);
    (0..10).for_each(|at| fleet.connect(at));
    fleet.settle(20_000, offer);
    assert!(!fleet.owner.is_unsure());
    fleet
}

fn offer(fleet: &mut Fleet) {
    (0..10).for_each(|at| fleet.offer(at, 2_000.0));
}

/// The rates of the ten, as a part of the limit.
fn part(fleet: &mut Fleet) -> f64 {
    let rates = (0..10).map(|at| fleet.tasks[at].holder.account(CustomerId(0)).rate());
    rates.sum::<f64>() / LIMIT as f64
}

/// The lowest part in this time, in which one task joins each 3 s with all of the limit.
fn least(fleet: &mut Fleet, seconds: u64, has_one_name: bool, demand: Option<u64>) -> f64 {
    let mut former = None;
    let (mut task, mut number) = (None, 0);
    let (mut ticks, mut least) = (0, f64::INFINITY);
    fleet.settle(seconds * 1_000, |fleet| {
        offer(fleet);
        if ticks % 300 == 0 {
            task.into_iter().for_each(|task| fleet.owner.leave(task));
            let holds = [Hold { customer: fleet.customer, rate: LIMIT as u32 }].into();
            let hello = Hello { cpus: 1_000.0, tasks: Some(11), holds };
            task = Some(fleet.owner.join(fleet.now, &hello, former).expect("a known customer"));
            former = task.filter(|_| has_one_name);
            number = 0;
        }
        if let (Some(task), Some(demand), 0) = (task, demand, ticks % 100) {
            number += 1;
            let entry = |customer| ReportEntry {
                customer,
                demand: [0, demand, 0, 0],
                cost: 1_000,
                lacking: 0,
                unused: 0,
                used: 0,
            };
            let entries = [entry(fleet.customer)].into();
            let report = Report { number, entries, ..Report::default() };
            fleet.owner.report(fleet.now, task, &report).expect("in order");
        }
        ticks += 1;
        least = least.min(part(fleet));
        let held = fleet.owner.customer(fleet.customer).held;
        assert!(held <= granted(LIMIT), "{held}");
    });
    least
}

#[test]
fn false_holds_take_nothing_from_others() {
    for has_one_name in [true, false] {
        let mut fleet = honest(0);
        let before = part(&mut fleet);
        let least = least(&mut fleet, 70, has_one_name, None);
        // The floors of all names are 2% of the limit.
        assert!(before > 0.96 && least > 0.98 * before, "{has_one_name}: {least} of {before}");
    }
}

#[test]
fn task_that_joins_with_a_false_hold_gets_the_part_of_its_demand() {
    let mut fleet = honest(0);
    // As much as each of the others.
    let least = least(&mut fleet, 70, true, Some(200_000));
    assert!((0.96 * 10.0 / 11.0..0.97).contains(&least), "{least}");
}

#[test]
fn one_task_by_many_names_leaves_others_a_third_of_the_limit() {
    let mut fleet = honest(0);
    // As much as all others, of which half of the limit is the part.
    let least = least(&mut fleet, 130, false, Some(2_000_000));
    assert!(least > 1.0 / 3.0, "{least}");
}

#[test]
fn rate_is_not_kept_by_ending_each_stream_before_it_is_lowered() {
    let mut fleet = Fleet::new(11, LIMIT);
    fleet.connect(10);
    fleet.settle(20_000, |fleet| fleet.offer(10, 20_000.0));
    assert!(fleet.used() > 960_000, "one task has all of the limit");
    (0..10).for_each(|at| fleet.connect(at));
    let holds: Vec<Hold> = [Hold { customer: fleet.customer, rate: 970_000 }].into();
    fleet.disconnect(10);
    let (mut task, mut ticks) = (fleet.tasks[10].id.take().expect("it joined"), 0);
    fleet.settle(80_000, |fleet| {
        offer(fleet);
        if ticks % 200 == 0 {
            fleet.owner.leave(task);
            let hello = Hello { cpus: 1_000.0, tasks: Some(11), holds: holds.clone() };
            task = fleet.owner.join(fleet.now, &hello, Some(task)).expect("a known customer");
        }
        ticks += 1;
    });
    assert!(part(&mut fleet) > 0.96, "{}", part(&mut fleet));
}

#[test]
fn task_that_joins_again_counts_with_what_it_was_granted() {
    let mut fleet = honest(0);
    let held = |fleet: &Fleet| fleet.owner.customer(fleet.customer).held;
    let (before, rates) = (held(&fleet), part(&mut fleet));
    // An hour of lost streams.
    for _ in 0..60 {
        fleet.disconnect(3);
        fleet.settle(2_000, offer);
        assert_eq!(held(&fleet), before);
        fleet.connect(3);
        assert_eq!(held(&fleet), before, "its rate counts as before");
        fleet.settle(58_000, offer);
        assert!((part(&mut fleet) - rates).abs() < 0.02, "{}", part(&mut fleet));
    }
}

#[test]
fn lower_rate_that_was_lost_with_its_stream_still_counts_as_held() {
    let mut fleet = Fleet::new(2, LIMIT);
    (0..2).for_each(|at| fleet.connect(at));
    fleet.settle(20_000, |fleet| fleet.offer(0, 20_000.0));
    // The other one asks for as much. All assignments to the first one are lost.
    for _ in 0..50 {
        fleet.pass(10);
        (0..2).for_each(|at| fleet.offer(at, 20_000.0));
        fleet.tasks[0].messages.retain(|message| matches!(message, Message::Report(..)));
        while !fleet.tasks[1].messages.is_empty() {
            fleet.deliver(1, 0, false);
        }
    }
    fleet.disconnect(0);
    fleet.tasks[0].messages.clear();
    let used = fleet.used();
    fleet.connect(0);
    let held = fleet.owner.customer(fleet.customer).held;
    assert!(used > 960_000 && (used..=granted(LIMIT)).contains(&held), "{used} used, {held} held");
    fleet.settle(6_000, |fleet| (0..2).for_each(|at| fleet.offer(at, 20_000.0)));
    let rate = fleet.tasks[1].holder.account(CustomerId(0)).rate();
    assert!((450_000.0..530_000.0).contains(&rate), "{rate}");
}

#[test]
fn task_that_was_cut_off_beyond_its_lease_lowers_others_to_their_part_only() {
    let mut fleet = honest(1);
    let all = |fleet: &mut Fleet| {
        offer(fleet);
        fleet.offer(10, 2_000.0);
    };
    fleet.connect(10);
    fleet.settle(20_000, all);
    // Others have its part when the lease is over. It uses the even part then, beside them.
    fleet.disconnect(10);
    fleet.settle(70_000, all);
    assert_eq!(fleet.tasks[10].holder.fallback(), Fallback::Even);
    let over = fleet.used();
    assert!(part(&mut fleet) > 0.96 && over > granted(LIMIT), "{over}");
    fleet.connect(10);
    let mut least = f64::INFINITY;
    fleet.settle(10, all);
    assert!(fleet.used() <= fleet.owner.customer(fleet.customer).held, "its first report is answered");
    fleet.settle(2_000, |fleet| {
        all(fleet);
        least = least.min(part(fleet));
    });
    let rate = fleet.tasks[10].holder.account(CustomerId(0)).rate();
    assert!(least > 0.96 * 10.0 / 11.0 && rate > 0.96 * 1e6 / 11.0, "{least} of the others, {rate}");
}

#[test]
fn rate_without_demand_that_does_not_count_ends_with_the_first_answer() {
    let mut fleet = honest(0);
    let other = fleet.owner.add_customer(fleet.now, LIMIT);
    let holds = [Hold { customer: other, rate: 300_000 }, Hold { customer: fleet.customer, rate: 5 }].into();
    let hello = Hello { cpus: 1.0, tasks: Some(11), holds };
    let task = fleet.owner.join(fleet.now, &hello, None).expect("known customers");
    fleet.settle(500, offer);
    let answer = fleet.owner.report(fleet.now, task, &Report { number: 1, ..Report::default() }).expect("in order");
    let mut rates: Vec<_> = answer.entries.iter().map(|entry| (entry.customer, entry.rate)).collect();
    rates.sort_unstable();
    assert_eq!(rates, [(fleet.customer, 0), (other, 0)]);
    assert_eq!(fleet.owner.customer(other).tasks, 0, "nothing of it is left");
    let answer = fleet.owner.report(fleet.now, task, &Report { number: 2, acknowledged: 1, ..Report::default() });
    assert_eq!(answer.expect("in order").entries, []);
}

#[test]
fn owner_that_lost_all_tasks_learns_from_them_what_they_hold() {
    let mut fleet = honest(0);
    (0..10).for_each(|at| fleet.disconnect(at));
    fleet.settle(70_000, offer);
    assert_eq!((fleet.owner.tasks(), fleet.tasks[0].holder.fallback()), (0, Fallback::Even));
    for at in 0..10 {
        fleet.tasks[at].id = None;
        fleet.tasks[at].messages.clear();
    }
    for at in 0..10 {
        assert_eq!(fleet.owner.is_unsure(), at > 0);
        fleet.connect(at);
        fleet.settle(300, offer);
        assert!(fleet.used() <= granted(LIMIT), "{at}: {}", fleet.used());
    }
    assert!(!fleet.owner.is_unsure());
    fleet.settle(2_000, offer);
    assert!(part(&mut fleet) > 0.96, "{}", part(&mut fleet));
}

#[test]
fn demand_of_a_lost_task_counts_as_far_as_it_holds_a_rate() {
    let mut fleet = Fleet::new(2, LIMIT);
    (0..2).for_each(|at| fleet.connect(at));
    fleet.settle(20_000, |fleet| {
        fleet.offer(0, 30_000.0);
        fleet.offer(1, 10_000.0);
    });
    let sum = |fleet: &Fleet| fleet.owner.customer(fleet.customer).demand.iter().sum::<u64>();
    assert!((3_800_000..4_200_000).contains(&sum(&fleet)), "{}", sum(&fleet));
    fleet.disconnect(0);
    // It held three quarters of the limit.
    assert!((1_600_000..1_850_000).contains(&sum(&fleet)), "{}", sum(&fleet));
    let cost = fleet.owner.mean_cost(fleet.customer);
    assert!((10_000.0..32_000.0).contains(&cost), "{cost}");
    fleet.settle(2_000, |fleet| fleet.offer(1, 10_000.0));
    assert!((1_600_000..1_850_000).contains(&sum(&fleet)), "{}", sum(&fleet));
}
