//! Worlds that run: by the formulas of queues, and through failures.

mod discovery;
mod formulas;
mod mishaps;
mod probes;

use std::num::NonZeroU32;
use std::time::Duration;

use plimsoll_core::pick::PolicyKind;
use plimsoll_core::{BalancerConfig, Timestamp};

use super::World;
use crate::experiment::fleet::plan::{
    Arm, Arrivals, BackendGroup, Change, Clients, Cost, Happening, Network, Phase, Plan, Rate, Selection,
};
use crate::experiment::fleet::{metric_names, run};
use crate::findings::Findings;
use crate::model::arena;

fn count(count: u32) -> NonZeroU32 {
    NonZeroU32::new(count).expect("tests count from one")
}

fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

fn policy(policy: PolicyKind) -> Arm {
    Arm { name: policy.name().to_owned(), balancer: BalancerConfig::new(policy), ..Arm::default() }
}

/// One client and some backends of one core, without delay and without effective flow control.
fn plain(backends: u32, load: f64, cost: Cost) -> Plan {
    let mut arm = Arm { name: "arm".to_owned(), ..policy(PolicyKind::RoundRobin) };
    arm.balancer.max_active_requests = count(1_000_000);
    Plan {
        clients: Clients { count: count(1), ..Clients::default() },
        arrivals: Arrivals::Open { rate: Rate::OfCapacity(load) },
        cost,
        network: Network { delay: Duration::ZERO, ..Network::default() },
        backends: vec![BackendGroup { count: count(backends), ..BackendGroup::default() }],
        arms: vec![arm],
        ..Plan::default()
    }
}

fn happening(at: Duration, change: Change) -> Happening {
    Happening { at, change }
}

fn first(count_of: u32) -> Selection {
    Selection { count: Some(count(count_of)), ..Selection::default() }
}

fn find(plan: &Plan, seed: u64) -> Findings {
    run(plan, seed, &mut |_| ())
}

/// A world at its end, with all its requests accounted for.
fn ran(plan: &Plan, seed: u64) -> World<'_> {
    let mut world = World::new(plan, &plan.arms[0], seed);
    arena::run(&mut world, &mut |_| ());
    assert_eq!(world.open, 0, "somebody waits for ever");
    let held = world.requests.len();
    let at_backends: usize = world.backends.iter().map(|backend| backend.in_flight() as usize).sum();
    assert!(held >= at_backends, "{at_backends} at backends, {held} in memory");
    world
}

/// The same until a time. Later effects at backends are not awaited.
fn until(plan: &Plan, seed: u64, at: Duration) -> World<'_> {
    let mut world = World::new(plan, &plan.arms[0], seed);
    arena::run_until(&mut world, Timestamp::from_origin(at));
    world
}

#[test]
fn findings_depend_on_the_seed_alone() {
    let plan = Plan { duration: secs(30), arms: PolicyKind::ALL.map(policy).to_vec(), ..Plan::default() };
    let findings = find(&plan, 1);
    assert_eq!(findings, find(&plan, 1));
    assert_ne!(findings.metrics["weighted.p50"], find(&plan, 2).metrics["weighted.p50"]);
}

#[test]
fn arms_have_the_same_requests() {
    let plan = Plan { duration: secs(30), arms: PolicyKind::ALL.map(policy).to_vec(), ..Plan::default() };
    let findings = find(&plan, 1);
    for kind in PolicyKind::ALL {
        assert_eq!(findings.metrics[&format!("{kind}.requests")], findings.metrics["weighted.requests"], "{kind}");
    }
}

#[test]
fn metric_names_lists_the_metrics_of_a_run() {
    let mut plan = Plan { duration: secs(30), ..Plan::default() };
    plan.phases = ["a", "b"]
        .map(|name| Phase {
            name: name.to_owned(),
            at: if name == "a" { secs(0) } else { secs(25) },
            ..Default::default()
        })
        .to_vec();
    let group = BackendGroup { name: "later".to_owned(), ..BackendGroup::default() };
    plan.timeline = vec![happening(secs(22), Change::AddBackends { group })];
    let findings = find(&plan, 1);
    let mut names = metric_names(&plan);
    names.sort();
    assert_eq!(findings.metrics.keys().cloned().collect::<Vec<_>>(), names);
    assert!(findings.metrics.values().all(|value| value.is_finite()), "{:?}", findings.metrics);
}

#[test]
fn phases_and_the_rest_add_up_to_the_whole_run() {
    let mut plan = Plan { duration: secs(40), warmup: secs(10), ..Plan::default() };
    let phase = |name: &str, at, load| Phase { name: name.to_owned(), at: secs(at), settle: secs(2), load };
    plan.phases = vec![phase("low", 0, 0.5), phase("high", 20, 1.5)];
    let metrics = find(&plan, 3).metrics;
    let (low, high) = (metrics["weighted.low.requests"], metrics["weighted.high.requests"]);
    // 600 requests a second at load 1; seed 3, Poisson counts of 3,000 and 16,200: five standard
    // deviations.
    assert!((low - 3_000.0).abs() < 274.0 && (high - 16_200.0).abs() < 636.0, "{low} {high}");
    let between = metrics["weighted.requests"] - low - high;
    assert!((between - 1_800.0).abs() < 213.0, "two seconds of settling at 900 a second: {between}");
}
