//! Tests of the experiment: the same requests in all arms, and the spread of requests over tasks.

use std::num::NonZeroU32;
use std::time::Duration;

use plimsoll_core::quota::OwnerConfig;
use plimsoll_core::{Ratio, Timestamp};

use super::customers::Customers;
use super::leases::Fleet;
use super::plan::{Accidents, Arm, Customer, Group, Plan, Rule, Source, Spread};
use super::rules::Request;
use super::traffic::Traffic;
use super::{metric_names, run};
use crate::model::arena::Arena;

fn plan(spread: Spread) -> Plan {
    let arm = |rule: Rule, name: &str| Arm { name: name.to_owned(), rule };
    Plan {
        duration: Duration::from_secs(40),
        tasks: NonZeroU32::new(10).expect("not zero"),
        customers: vec![Customer { name: "acme".to_owned(), limit: 0.5, ..Customer::default() }],
        sources: vec![Source {
            name: "users".to_owned(),
            customer: "acme".to_owned(),
            rate: 100.0,
            spread,
            ..Source::default()
        }],
        arms: vec![
            arm(Rule::LEASES, "leases"),
            arm(Rule::Even, "even"),
            arm(Rule::WEIGHTS, "weights"),
            arm(Rule::DOORMAN, "doorman"),
        ],
        ..Plan::default()
    }
}

#[test]
fn arms_have_the_same_requests_and_all_metrics() {
    let mut plan = plan(Spread::BURSTS);
    let drifting = Source { name: "drifting".to_owned(), spread: Spread::DRIFTING, ..plan.sources[0].clone() };
    plan.sources.push(drifting);
    let every = Some(Duration::from_secs(5));
    plan.accidents = Accidents { every, spikes: 2, losses: 1, elections: 1, ..Accidents::default() };
    plan.accidents.longest = Duration::from_secs(5);
    let findings = run(&plan, 1, &mut |_| {});
    let of = |metric: &str| findings.metrics[metric];
    assert_eq!(of("leases.users.requests"), of("even.users.requests"));
    assert_eq!(of("leases.acme.offered_of_limit"), of("weights.acme.offered_of_limit"));
    assert_eq!(of("leases.drifting.requests"), of("doorman.drifting.requests"));
    assert!(of("leases.drifting.requests") > 1.5 * of("leases.users.requests"), "spikes add to it");
    assert_eq!((of("even.acme.held_of_limit"), of("even.acme.held_over_limit_share")), (1.0, 0.0));
    let mut announced = metric_names(&plan);
    announced.sort_unstable();
    assert_eq!(findings.metrics.into_keys().collect::<Vec<_>>(), announced);
}

#[test]
fn spread_decides_on_the_tasks() {
    let counts = |spread: Spread| {
        let plan = plan(spread);
        let mut traffic = Traffic::new(&plan, &Customers::new(&plan), 0, &Arena::<()>::new(1, plan.duration));
        let mut counts = [0; 10];
        for second in 0..1_000 {
            let (task, delays) = traffic.arrive(Timestamp::from_origin(Duration::from_millis(second)));
            counts[task] += delays.len();
        }
        (traffic.rate(), counts)
    };
    let (rate, even) = counts(Spread::Even);
    assert!(rate == 100.0 && even.iter().all(|count| (60..140).contains(count)), "{even:?}");
    let (rate, bursts) = counts(Spread::BURSTS);
    assert!(rate == 5.0 && bursts.iter().sum::<usize>() == 20_000, "{bursts:?}");
    let tasks = NonZeroU32::new(3).expect("not zero");
    let (_, moving) = counts(Spread::Moving { tasks, every: Duration::from_secs(20) });
    assert_eq!(moving.iter().filter(|count| **count > 0).count(), 3, "{moving:?}");
    let (_, uneven) = counts(Spread::Uneven);
    assert!(uneven[0] > 280 && uneven[0] > 5 * uneven[9], "{uneven:?}");
}

#[test]
fn demand_of_drifting_tasks_follows_their_rates() {
    let plan = plan(Spread::Drifting { every: Duration::from_secs(10), by: Ratio::ONE });
    let mut traffic = Traffic::new(&plan, &Customers::new(&plan), 0, &Arena::<()>::new(1, plan.duration));
    let demand = |traffic: &Traffic<'_>| (0..10).map(|task| traffic.demand(task, 0)).collect::<Vec<f64>>();
    // 100 requests of 10 ms in sum.
    assert_eq!((demand(&traffic), traffic.load()), (vec![1e5; 10], 1.0));
    traffic.drift(Ratio::ONE);
    let drifted = demand(&traffic);
    assert!(drifted.iter().all(|demand| (0.0..2e5).contains(demand) && *demand != 1e5), "{drifted:?}");
    assert!((drifted.iter().sum::<f64>() / 1e6 - traffic.load()).abs() < 1e-9);
    traffic.spike(3, 900.0);
    assert!((traffic.demand(3, 0) - drifted[3] - 9e6).abs() < 1.0);
    let of_spike = (0..1_000).filter(|_| traffic.arrive(Timestamp::ZERO).0 == 3).count();
    assert!(of_spike > 850, "{of_spike} of 1000");
}

#[test]
fn customers_of_a_group_get_requests_by_skew() {
    let mut plan = plan(Spread::Even);
    plan.customers[0].count = NonZeroU32::new(4).expect("not zero");
    plan.customers.insert(0, Customer { name: "other".to_owned(), limit: 2.0, ..Customer::default() });
    plan.sources[0].skew = 1.0;
    let customers = Customers::new(&plan);
    assert_eq!((&*customers.limits, customers.at(1)), (&[2.0, 0.5, 0.5, 0.5, 0.5][..], 1..5));
    let mut traffic = Traffic::new(&plan, &customers, 0, &Arena::<()>::new(1, plan.duration));
    let mut counts = [0_u32; 5];
    (0..2_500).for_each(|_| counts[traffic.customer()] += 1);
    // 1200, 600, 400 and 300 are expected; seed 1, five standard deviations.
    let expected = [0, 1_200, 600, 400, 300];
    assert!(counts.iter().zip(expected).all(|(count, mean)| count.abs_diff(mean) <= 130), "{counts:?}");
    assert!((traffic.demand(0, 2) / traffic.demand(0, 1) - 0.5).abs() < 1e-9 && traffic.demand(0, 0) == 0.0);
}

#[test]
fn metrics_of_a_group_are_of_customers_below_and_above_their_limits() {
    let mut plan = plan(Spread::Even);
    plan.customers[0].count = NonZeroU32::new(4).expect("not zero");
    (plan.customers[0].limit, plan.sources[0].skew) = (0.3, 1.0);
    plan.arms.truncate(1);
    let findings = run(&plan, 1, &mut |_| {});
    let of = |metric: &str| findings.metrics[&format!("leases.acme.{metric}")];
    // The first of the four offers 0.48 CPUs; the others 0.24 and less.
    assert!(of("used_of_limit_when_over") > 0.9 && of("refused_below_limit") < 0.02, "{:?}", findings.metrics);
    assert!(of("used_of_limit_max") > 0.9 && of("used_of_limit") < 0.75 && of("entries_per_second") > 0.0);
    assert!(findings.metrics["leases.reports_per_task_second"] >= 1.0, "leases are renewed each second");
}

#[test]
fn group_holds_its_limit_only_where_the_arm_enforces_it() {
    let mut plan = plan(Spread::Uneven);
    plan.customers[0].group = Some("free".to_owned());
    plan.groups = vec![Group { name: "free".to_owned(), limit: 0.25 }];
    plan.arms = [("on", true), ("off", false)]
        .map(|(name, groups)| {
            let Rule::Leases { outlook, lease, trial, .. } = Rule::LEASES else { unreachable!("the rule is leases") };
            Arm { name: name.to_owned(), rule: Rule::Leases { outlook, lease, trial, groups } }
        })
        .into();
    let findings = run(&plan, 1, &mut |_| {});
    let of = |metric: &str| findings.metrics[metric];
    assert_eq!((of("on.free.offered_of_limit"), of("off.free.offered_of_limit")), {
        let offered = 2.0 * of("on.acme.offered_of_limit");
        (offered, offered)
    });
    assert!((0.95..1.03).contains(&of("on.free.used_of_limit")) && of("on.free.held_of_limit_max") < 1.000_001);
    assert!(of("off.free.used_of_limit") > 1.9, "{:?}", findings.metrics);
    let mut announced = metric_names(&plan);
    announced.sort_unstable();
    assert_eq!(findings.metrics.into_keys().collect::<Vec<_>>(), announced);
}

#[test]
fn doorman_gives_out_a_limit_and_more_of_it_after_spikes() {
    let mut plan = plan(Spread::Drifting { every: Duration::from_secs(1_000), by: Ratio::ONE });
    (plan.duration, plan.warmup) = (Duration::from_secs(400), Duration::from_secs(150));
    plan.tasks = NonZeroU32::new(45).expect("not zero");
    plan.arms = vec![Arm { name: "doorman".to_owned(), rule: Rule::DOORMAN }];
    let calm = run(&plan, 1, &mut |_| {}).metrics;
    assert!(calm["doorman.acme.held_of_limit"] > 0.99 && calm["doorman.acme.held_of_limit_max"] < 1.000_001);
    assert!(calm["doorman.acme.used_of_limit"] > 0.9, "{calm:?}");
    plan.accidents = Accidents { every: Some(Duration::from_secs(10)), spikes: 1, ..Accidents::default() };
    let spiked = run(&plan, 1, &mut |_| {}).metrics;
    assert!(spiked["doorman.acme.held_over_limit_share"] > 0.0, "{spiked:?}");
}

#[test]
fn task_without_an_owner_refuses_nothing_until_it_knows_a_limit() {
    let plan = plan(Spread::Even);
    let mut fleet = Fleet::new(Timestamp::ZERO, &plan, OwnerConfig::default(), true, true);
    fleet.lose();
    let request = Request { customer: 0, task: 0, criticality: plan.sources[0].criticality, cost: 1e6, draw: 0.5 };
    for second in 0..60 {
        assert!(fleet.ask(Timestamp::from_origin(Duration::from_secs(second)), &request, |_, _| true));
    }
}
