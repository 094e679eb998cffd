//! The CPU that customers get by their soft limits, with Poisson arrivals.
//!
//! Expectations are the weighted max-min of each task, computed by hand. Demand over share is
//!
//! ```text
//! u = D ÷ (q · N)            demand D at all tasks, soft limit q, N tasks
//! part = min(1, λ ÷ u)       of each customer's demand, with λ such that Σ part · d = CPU at each task
//! ```
//!
//! A core does 0.98 to 1 CPUs of requests, and 0.99 is expected. Customers below the mean u get up to 0.05 CPUs
//! above their part from the others, since chance hits these (see `RankedAdmission`).

use plimsoll_core::Criticality;
use plimsoll_core::quota::{Limit, MAX_OTHERS, UNLIMITED};

use crate::fleet::{Fleet, Load, STRANGERS, Served};

/// Within this the part of a customer is as expected. Spread of 20 seeds: a part has a mean within 0.03 of it, and a
/// standard deviation of at most 0.014. Each bound is at least 3.8 of these from the mean, which chance passes once in
/// 10,000 runs. Tests with more noise state bounds of their own.
const NEAR: f64 = 0.06;

#[track_caller]
fn assert_part(served: Served, expected: f64, customer: &str) {
    assert_close(served.part(), expected, NEAR, customer);
}

#[track_caller]
fn assert_close(part: f64, expected: f64, tolerance: f64, customer: &str) {
    assert!((part - expected).abs() < tolerance, "{customer}: {part:.3} is served, not {expected:.3}");
}

#[track_caller]
fn assert_loses_nothing(served: Served, customer: &str) {
    assert!(served.part() > 0.99, "{customer}: {:.3} is served, not all", served.part());
}

#[test]
fn critical_requests_are_not_cut_for_sheddable_load_elsewhere() {
    // Critical demand of 1 at one task and of 4 at four. So u is 1/4 and 1, and at the first task
    // λ ÷ (1/4) of the one and λ of the other are 0.99 if λ is 0.198.
    for sheddable_tasks in [0..4, 1..4] {
        let mut fleet = Fleet::new(1, 4, &[1.0, 1.0]);
        let sheddable = Load { criticality: Criticality::Sheddable, ..Load::new(1, sheddable_tasks, 2.0) };
        let loads = [Load::new(1, 0..1, 1.0), Load::new(2, 0..4, 1.0), sheddable];
        fleet.run(&loads, 8.0);
        let outcome = fleet.run(&loads, 20.0);
        assert_close(outcome.at(0, 0).part(), 0.79, 0.08, "one task");
        assert_part(outcome.at(1, 0), 0.198, "all tasks");
    }
}

#[test]
fn few_requests_are_cut_by_the_demand_of_the_fleet() {
    // One request a second of 35 ms from each customer at each task: 30 customers at all eight tasks, and 30 at each
    // pair of tasks. u is four times as high for the first, so 1.05 (λ ÷ 8 + λ ÷ 2) = 0.99 and λ = 1.51.
    let few = |customer, tasks, cpus| Load { cost: 0.035, ..Load::new(customer, tasks, cpus) };
    let mut fleet = Fleet::new(1, 8, &[1.0; 150]);
    let mut loads = vec![Load { customers: 1..31, ..few(1, 0..8, 1.05) }];
    for pair in 0..4 {
        let from = 31 + 30 * pair as u64;
        loads.push(Load { customers: from..from + 30, ..few(1, 2 * pair..2 * pair + 2, 1.05) });
    }
    fleet.run(&loads, 15.0);
    let outcome = fleet.run(&loads, 30.0);
    let at_two = (1..5).fold(Served::default(), |sum, load| sum + outcome.of(load));
    assert_part(outcome.of(0), 0.189, "at all tasks");
    // Two requests a second give a demand within 40%, and none above all is served.
    assert_close(at_two.part(), 0.754, 0.07, "at two tasks");
}

/// Eight requests a second of 35 ms from each customer, from 30 of them over eight tasks, and from four at each task
/// alone. A task has 1.05 + 1.12 CPUs of demand, and all have the same u. Returns the requests of both kinds.
fn alike(seconds: f64) -> [Served; 2] {
    let mut fleet = Fleet::new(1, 8, &[1.0; 62]);
    let mut loads = vec![Load { customers: 1..31, cost: 0.035, ..Load::new(1, 0..8, 1.05) }];
    for task in 0..8 {
        let from = 31 + 4 * task as u64;
        loads.push(Load { customers: from..from + 4, cost: 0.035, ..Load::new(1, task..task + 1, 1.12) });
    }
    fleet.run(&loads, 15.0);
    let outcome = fleet.run(&loads, seconds);
    [outcome.of(0), (1..9).fold(Served::default(), |sum, load| sum + outcome.of(load))]
}

#[test]
fn customers_of_one_demand_are_cut_alike_at_one_task_and_at_all() {
    let [at_all, at_one] = alike(30.0);
    assert_close(at_all.part(), 0.456, 0.08, "at all tasks");
    assert_close(at_one.part(), 0.456, 0.08, "at one task");
}

#[test]
fn customer_at_one_task_is_cut_as_one_at_all_with_few_requests() {
    // As above, and longer: the difference has a standard deviation of 0.011 over 20 seeds.
    let [at_all, at_one] = alike(60.0);
    let [at_all, at_one] = [at_all.part(), at_one.part()];
    assert!((at_all - at_one).abs() < 0.05, "{at_all:.3} at all tasks, and {at_one:.3} at one");
}

/// Five bursts of six seconds at the first of four tasks, beside a steady demand of 1.5 CPUs at each. Returns the
/// requests in the last four seconds of bursts: of the burst, and of the steady customer there and at the others.
fn bursts(cpus: f64) -> [Served; 3] {
    let mut fleet = Fleet::new(1, 4, &[1.0, 1.0]);
    let loads = [Load::new(1, 0..4, 1.5), Load::new(2, 0..1, cpus)];
    fleet.run(&loads[..1], 8.0);
    let mut sums = [Served::default(); 3];
    for _ in 0..5 {
        fleet.run(&loads, 2.0);
        let outcome = fleet.run(&loads, 4.0);
        let elsewhere = (1..4).fold(Served::default(), |sum, task| sum + outcome.at(0, task));
        let both = [outcome.at(1, 0), outcome.at(0, 0), elsewhere];
        sums = core::array::from_fn(|at| sums[at] + both[at]);
        fleet.run(&loads[..1], 2.0);
        // The burst has left nothing behind.
        assert_close(fleet.run(&loads[..1], 6.0).at(0, 0).part(), 0.66, 0.1, "after the burst");
    }
    sums
}

#[test]
fn burst_at_one_task_has_its_share_of_the_fleet() {
    // u is 1/8 and 3/2: the burst fits, and the other one gets the rest.
    let [burst, steady, elsewhere] = bursts(0.5);
    assert_loses_nothing(burst, "burst");
    assert_part(steady, 0.327, "beside the burst");
    assert_part(elsewhere, 0.66, "elsewhere");
    // u is 3/4 and 3/2: 3 λ ÷ (3/4) + 1.5 λ ÷ (3/2) = 0.99 and λ = 0.198.
    let [burst, steady, elsewhere] = bursts(3.0);
    assert_part(burst, 0.264, "burst");
    assert_part(steady, 0.132, "beside the burst");
    assert_part(elsewhere, 0.66, "elsewhere");
}

#[test]
fn customer_that_comes_to_a_task_is_cut_by_its_use_of_the_others() {
    // The first customer has 1.5 CPUs of demand at three tasks and comes to the first one too: u is 6 and 3.2, all
    // over q · N. 1.5 λ ÷ 6 + 0.8 λ ÷ 3.2 = 0.99 and λ = 1.98.
    let [before, both] = [1..4, 0..4].map(|tasks| [Load::new(1, tasks, 1.5), Load::new(2, 0..4, 0.8)]);
    let mut fleet = Fleet::new(1, 4, &[1.0, 1.0]);
    let mut sums = [[Served::default(); 2]; 2];
    for _ in 0..8 {
        fleet.run(&before, 8.0);
        for (sum, seconds) in sums.iter_mut().zip([1.0, 4.0]) {
            let outcome = fleet.run(&both, seconds);
            *sum = [sum[0] + outcome.at(0, 0), sum[1] + outcome.at(1, 0)];
        }
    }
    let [[_, first_second], [new, beside]] = sums;
    // The task reports the customer after half a second in the mean, and knows nothing of it before.
    assert!(first_second.part() > 0.5 * 0.619, "in the first second: {:.3}", first_second.part());
    assert!(new.part() < 0.33 + NEAR, "the new one: {:.3}", new.part());
    assert!(beside.part() > 0.619 - NEAR, "the one beside it: {:.3}", beside.part());
}

#[test]
fn customers_with_a_few_expensive_requests_are_cut_as_others() {
    // u is 1, 1 and 1/4: at the first task λ + λ + 4 λ = 0.99.
    let mut fleet = Fleet::new(1, 4, &[1.0, 1.0, 1.0]);
    let skewed = |customer, tasks| Load { is_skewed: true, ..Load::new(customer, tasks, 1.0) };
    let loads = [skewed(1, 0..4), Load::new(2, 0..4, 1.0), skewed(3, 0..1)];
    fleet.run(&loads, 8.0);
    let outcome = fleet.run(&loads, 30.0);
    for (customer, name) in [(0, "skewed"), (1, "even")] {
        assert_part(outcome.at(customer, 0), 0.165, name);
        let elsewhere = (1..4).fold(Served::default(), |sum, task| sum + outcome.at(customer, task));
        assert_part(elsewhere, 0.495, name);
    }
    assert_part(outcome.of(2), 0.66, "at one task");
}

/// Two customers ask for a CPU each at four tasks. The first has these limits, the second one a soft limit of 1.
fn beside(limit: Limit) -> [Served; 2] {
    let other = Limit { soft: Some(1_000_000), ..Limit::new(UNLIMITED) };
    let mut fleet = Fleet::with_limits(1, 4, &[limit, other], None);
    let loads = [Load::new(1, 0..4, 1.0), Load::new(2, 0..4, 1.0)];
    fleet.run(&loads, 8.0);
    let outcome = fleet.run(&loads, 15.0);
    [outcome.of(0), outcome.of(1)]
}

#[test]
fn hard_limit_in_a_dry_run_refuses_nothing_and_is_no_share() {
    // A tenth of the demand. Without a soft limit the share is that of the task's settings, which is 1.
    let dry_run = Limit { is_dry_run: true, ..Limit::new(400_000) };
    let [dry, other] = beside(dry_run);
    assert_part(dry, 0.495, "dry run");
    assert_part(other, 0.495, "other");
    // λ ÷ (1/3) + λ = 0.99 and λ = 0.2475.
    let [dry, other] = beside(Limit { soft: Some(3_000_000), ..dry_run });
    assert_close(dry.part(), 0.7425, 0.08, "dry run with a soft limit");
    assert_close(other.part(), 0.2475, 0.08, "beside it");
    // Without a dry run it refuses nine tenths.
    let [limited, _] = beside(Limit { is_dry_run: false, ..dry_run });
    assert_part(limited, 0.1, "limited");
}

#[test]
fn strangers_beyond_the_bound_have_the_share_of_one_together() {
    // Accounts for all strangers that a task has, with little demand each; 0.1 CPUs in sum.
    let accounts = STRANGERS.start..STRANGERS.start + MAX_OTHERS as u64;
    let light = Load { customers: accounts, is_in_turn: true, cost: 0.000_05, ..Load::new(1, 0..1, 0.1) };
    // A customer with a limit of its own asks for a CPU, and five more strangers for two together: u is 1 and 2.
    // λ + 2 λ ÷ 2 = 0.89.
    let beyond = Load { customers: STRANGERS.end - 5..STRANGERS.end, ..Load::new(1, 0..1, 2.0) };
    let soft = Limit { soft: Some(1_000_000), ..Limit::new(UNLIMITED) };
    let mut fleet = Fleet::with_limits(1, 1, &[soft], Some(soft));
    let loads = [light, Load::new(1, 0..1, 1.0), beyond];
    fleet.run(&loads[..1], 4.0);
    fleet.run(&loads, 6.0);
    let outcome = fleet.run(&loads, 12.0);
    assert_loses_nothing(outcome.of(0), "strangers with accounts");
    // At one task chance is not the mean of some tasks: the standard deviations are 0.027 and 0.012.
    assert_close(outcome.of(1).part(), 0.445, 0.12, "with a limit of its own");
    assert_close(outcome.of(2).part(), 0.2225, 0.06, "beyond the bound");
}

#[test]
fn flood_far_above_a_small_share_takes_nothing_from_the_others() {
    // u of the flood is 1,000. The others ask for 0.8 CPUs together.
    let mut fleet = Fleet::new(1, 4, &[0.001, 1.0, 3.0]);
    let loads = [Load::new(1, 0..4, 1.0), Load::new(2, 0..4, 0.2), Load::new(3, 0..4, 0.6)];
    fleet.run(&loads, 8.0);
    let outcome = fleet.run(&loads, 15.0);
    assert_loses_nothing(outcome.of(1), "a share of 1");
    assert_loses_nothing(outcome.of(2), "a share of 3");
    assert_part(outcome.of(0), 0.19, "the flood has the rest");
}

#[test]
fn flood_leaves_the_others_in_proportion() {
    // u is 100, 1 and 2/3: λ ÷ 1 + 2 λ ÷ (2/3) = 0.99 and λ = 0.2475.
    let mut fleet = Fleet::new(1, 4, &[0.01, 1.0, 3.0]);
    let loads = [Load::new(1, 0..4, 1.0), Load::new(2, 0..4, 1.0), Load::new(3, 0..4, 2.0)];
    fleet.run(&loads, 8.0);
    let outcome = fleet.run(&loads, 15.0);
    assert_part(outcome.of(0), 0.0025, "flood");
    assert_part(outcome.of(1), 0.2475, "a share of 1");
    assert_part(outcome.of(2), 0.371, "a share of 3");
}
