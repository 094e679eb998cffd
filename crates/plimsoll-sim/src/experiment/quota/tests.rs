//! Tests of the experiment: the same requests in all arms, and the spread of requests over tasks.

use std::num::NonZeroU32;
use std::time::Duration;

use plimsoll_core::Timestamp;
use plimsoll_core::quota::OwnerConfig;

use super::leases::Fleet;
use super::plan::{Arm, Customer, Plan, Rule, Source, Spread};
use super::rules::Request;
use super::traffic::Traffic;
use super::{metric_names, run};
use crate::model::arena::Arena;

fn plan(spread: Spread) -> Plan {
    let arm = |rule: Rule, name: &str| Arm { name: name.to_owned(), rule };
    Plan {
        duration: Duration::from_secs(40),
        tasks: NonZeroU32::new(10).expect("not zero"),
        customers: vec![Customer { name: "acme".to_owned(), limit: 0.5 }],
        sources: vec![Source {
            name: "users".to_owned(),
            customer: "acme".to_owned(),
            rate: 100.0,
            spread,
            ..Source::default()
        }],
        arms: vec![arm(Rule::LEASES, "leases"), arm(Rule::Even, "even"), arm(Rule::WEIGHTS, "weights")],
        ..Plan::default()
    }
}

#[test]
fn arms_have_the_same_requests_and_all_metrics() {
    let plan = plan(Spread::BURSTS);
    let findings = run(&plan, 1, &mut |_| {});
    let of = |metric: &str| findings.metrics[metric];
    assert_eq!(of("leases.users.requests"), of("even.users.requests"));
    assert_eq!(of("leases.acme.offered_of_limit"), of("weights.acme.offered_of_limit"));
    let mut announced = metric_names(&plan);
    announced.sort_unstable();
    assert_eq!(findings.metrics.into_keys().collect::<Vec<_>>(), announced);
}

#[test]
fn spread_decides_on_the_tasks() {
    let counts = |spread: Spread| {
        let plan = plan(spread);
        let mut traffic = Traffic::new(&plan, 0, &Arena::<()>::new(1, plan.duration));
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
fn task_without_an_owner_refuses_nothing_until_it_knows_a_limit() {
    let plan = plan(Spread::Even);
    let mut fleet = Fleet::new(Timestamp::ZERO, &plan, OwnerConfig::default());
    fleet.lose();
    let request = Request { customer: 0, task: 0, criticality: plan.sources[0].criticality, cost: 1e6, draw: 0.5 };
    for second in 0..60 {
        assert!(fleet.ask(Timestamp::from_origin(Duration::from_secs(second)), &request));
    }
}
