//! Tiers in cases that are small enough to compute by hand.

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::time::Duration;

use plimsoll_core::Ratio;

use super::plan::{Arm, Holding, Phase, Plan, Retries, Server, Source, Tier};
use super::{metric_names, run};
use crate::findings::{Figure, Findings};

fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

fn tier(name: &str, capacity: f64) -> Tier {
    Tier { name: name.to_owned(), capacity, ..Tier::default() }
}

fn arm(name: &str, retries: Retries) -> Arm {
    Arm { name: name.to_owned(), retries, ..Arm::default() }
}

/// A hundred requests per second to one tier with twice that capacity.
fn plan() -> Plan {
    Plan {
        duration: secs(20),
        warmup: Duration::ZERO,
        sources: vec![Source { name: "users".to_owned(), rate: 100.0, ..Source::default() }],
        tiers: vec![tier("backend", 200.0)],
        arms: vec![arm("a", Retries::None)],
        ..Plan::default()
    }
}

fn found(plan: &Plan) -> BTreeMap<String, f64> {
    run(plan, 1, &mut |_| ()).metrics
}

/// A plan with one phase, in which tiers have these strengths.
fn with_strengths(mut plan: Plan, strengths: &[f64]) -> Plan {
    plan.phases = vec![Phase { name: "all".to_owned(), ..Phase::default() }];
    for (tier, strength) in plan.tiers.iter_mut().zip(strengths) {
        tier.strength = vec![*strength];
    }
    plan
}

#[test]
fn metric_names_lists_exactly_the_metrics_of_a_run() {
    let mut plan = with_strengths(plan(), &[0.5]);
    plan.tiers.push(tier("deeper", 50.0));
    plan.arms.push(Arm { throttle: Holding::AdmissionControl, ..arm("b", Retries::Naive { attempts: 2 }) });
    let mut announced = metric_names(&plan);
    announced.sort_unstable();
    assert_eq!(found(&plan).into_keys().collect::<Vec<_>>(), announced);
}

#[test]
fn tier_below_its_capacity_serves_all_requests() {
    let metrics = found(&plan());
    // Arrivals within the last hundredth of a second are still in flight.
    assert!(metrics["a.useful_share"] > 0.995, "{}", metrics["a.useful_share"]);
    assert_eq!((metrics["a.backend.attempts_per_request"], metrics["a.backend.rejected_share"]), (1.0, 0.0));
    assert_eq!(metrics["a.backend.held_share"], 0.0);
}

#[test]
fn limited_and_ranked_tiers_serve_at_their_rate_under_overload() {
    for (server, low, high) in [(Server::Limited, 0.97, 1.03), (Server::Ranked, 0.93, 1.02)] {
        let mut plan = plan();
        plan.sources[0].rate = 800.0;
        plan.arms[0].server = Some(server);
        let accepted = found(&plan)["a.backend.accepted_over_capacity"];
        assert!((low..=high).contains(&accepted), "{server:?}: {accepted}");
    }
}

/// At 1.2 times the capacity a queue grows by 40 per second. It reaches the time-out of a second at
/// 5 s, and later requests are late.
#[test]
fn queue_serves_abandoned_requests() {
    let mut plan = plan();
    plan.sources[0].rate = 240.0;
    plan.tiers[0].server = Server::Queue;
    let share = found(&plan)["a.useful_share"];
    assert!((0.2..0.32).contains(&share), "{share}");
    // A server with a gate drops them, and knows before.
    plan.tiers[0].server = Server::Ranked;
    let share = found(&plan)["a.useful_share"];
    assert!(share > 0.75, "{share}");
}

#[test]
fn retries_multiply_by_tier_unless_callers_are_told_not_to_retry() {
    let mut plan = plan();
    plan.sources[0].rate = 20.0;
    plan.tiers = vec![tier("front", 1e6), tier("backend", 200.0)];
    plan.timeout = secs(30);
    plan.patience = secs(30);
    let share = Ratio::ONE;
    plan.arms = vec![
        arm("naive", Retries::Naive { attempts: 3 }),
        arm("polite", Retries::Budgeted { attempts: 3, share }),
        arm("none", Retries::None),
    ];
    let metrics = found(&with_strengths(plan, &[1.0, 0.0]));
    let attempts = |arm: &str, tier: &str| metrics[&format!("{arm}.{tier}.attempts_per_request")];
    assert!((8.8..=9.0).contains(&attempts("naive", "backend")), "{}", attempts("naive", "backend"));
    assert!((2.9..=3.0).contains(&attempts("naive", "front")));
    assert!((1.9..=2.05).contains(&attempts("polite", "backend")), "{}", attempts("polite", "backend"));
    assert!((1.0..1.01).contains(&attempts("polite", "front")), "{}", attempts("polite", "front"));
    assert_eq!(attempts("none", "backend"), 1.0);
}

#[test]
fn retries_hide_random_failures() {
    let mut plan = plan();
    plan.tiers[0].tasks = NonZeroU32::new(4).unwrap();
    plan.tiers[0].errors = Ratio::from_percent(20);
    plan.arms = vec![arm("once", Retries::None), arm("again", Retries::Naive { attempts: 3 })];
    let metrics = found(&plan);
    // 0.2 and 0.2³, of 2,000.
    assert!((metrics["once.useful_share"] - 0.8).abs() < 0.04, "{}", metrics["once.useful_share"]);
    assert!((metrics["again.useful_share"] - 0.992).abs() < 0.012, "{}", metrics["again.useful_share"]);
}

#[test]
fn outage_ends_when_strength_returns() {
    let mut plan = plan();
    plan.tiers[0].strength = vec![1.0, 0.0, 1.0];
    let phase = |(name, at): (&str, u64)| Phase { name: name.to_owned(), at: secs(at), ..Phase::default() };
    plan.phases = [("before", 0), ("out", 5), ("after", 10)].map(phase).into();
    for server in [Server::Limited, Server::Queue] {
        plan.tiers[0].server = server;
        let metrics = found(&plan);
        assert!(metrics["a.before.useful_share"] > 0.99, "{server:?}");
        assert!(metrics["a.out.useful_share"] < 0.25, "{server:?}: {}", metrics["a.out.useful_share"]);
        assert!(metrics["a.out.recovered_after"] == 5.0, "{server:?}");
        // 500 are waiting in the queue, and shrink by 100 a second to the 200 of a second.
        let expected = if server == Server::Queue { 3.0..=5.0 } else { 0.0..=0.0 };
        assert!(
            expected.contains(&metrics["a.after.recovered_after"]),
            "{server:?}: {}",
            metrics["a.after.recovered_after"]
        );
    }
}

#[test]
fn arms_have_the_same_requests() {
    let mut plan = plan();
    plan.arms = vec![arm("a", Retries::None), arm("b", Retries::Naive { attempts: 3 })];
    plan.arms[1].throttle = Holding::PACED;
    plan.tiers[0].strength = Vec::new();
    plan.tiers[0].capacity = 30.0;
    let metrics = found(&plan);
    assert_eq!(metrics["a.requests"], metrics["b.requests"]);
    plan.arms[1].load = 2.0;
    assert!((found(&plan)["b.requests"] / metrics["a.requests"] - 2.0).abs() < 0.1);
}

fn figure<'f>(findings: &'f Findings, id: &str) -> &'f Figure {
    findings.figures.iter().find(|figure| figure.id == id).expect("every plan gives it")
}

#[test]
fn curve_over_time_has_few_points_of_the_same_mean() {
    let plan = Plan { sample_every: Duration::from_millis(100), ..plan() };
    let findings = run(&plan, 1, &mut |_| ());
    let points = &figure(&findings, "useful-over-time").series[0].points;
    assert_eq!((points.len(), points[0].0, points[99].0), (100, 0.2, 20.0));
    let mean = points.iter().map(|(_, rate)| rate).sum::<f64>() / 100.0;
    assert!((mean - findings.metrics["a.useful_per_second"]).abs() < 1.0, "{mean}");
}

#[test]
fn axis_names_the_smallest_value_when_a_point_has_it() {
    let unit = |rate| {
        let mut plan = plan();
        plan.sources[0].rate = rate;
        figure(&run(&plan, 1, &mut |_| ()), "sent-over-time").y.unit.clone()
    };
    assert_eq!([&*unit(100.0), &*unit(0.1)], ["1/s", "1/s; 0.01 or less at 0.01"]);
}

#[test]
fn axis_shows_the_overload_when_phases_are_named_by_it() {
    let axis = |names: [&str; 2]| {
        let phase = |(i, name): (u64, &str)| Phase { at: secs(10 * i), name: name.to_owned(), ..Phase::default() };
        let mut plan = plan();
        plan.phases = (0..).zip(names).map(phase).collect();
        plan.tiers[0].strength = vec![0.25, 0.1];
        let axis = figure(&run(&plan, 1, &mut |_| ()), "sends-by-phase").x.clone();
        (axis.label, axis.names)
    };
    let multiples = "demand, in multiples of the capacity";
    assert_eq!(axis(["2x", "5x"]), (multiples.to_owned(), vec!["2×".to_owned(), "5×".to_owned()]));
    assert_eq!(axis(["2x", "50x"]).0, "phase", "a name that is no multiple");
}
