//! Probes of the policy `prequal`: paid for by requests, late or lost on the way.

use plimsoll_core::Ratio;
use plimsoll_core::pick::{PolicyKind, ProbeSource};

use super::{count, find, ms, policy, secs};
use crate::experiment::fleet::plan::{
    Antagonist, Arm, Arrivals, Clients, Cost, Interference, Plan, Rate, Reports, Requests, Usage,
};

/// 30 clients with 3 requests a second each, and 30 backends of which antagonists take up to nine
/// tenths: a client hears from a backend every ten seconds.
fn fleet(arm: Arm) -> Plan {
    let usage = Usage { low: Ratio::ZERO, high: Ratio::from_percent(90), jitter: Ratio::ZERO, holds: secs(1) };
    let mut plan = Plan {
        duration: secs(120),
        warmup: secs(20),
        clients: Clients { count: count(30), ..Clients::default() },
        arrivals: Arrivals::Open { rate: Rate::PerSecond(90.0) },
        cost: Cost::Exponential { mean: ms(100) },
        arms: vec![Arm { name: "arm".to_owned(), ..arm }],
        ..Plan::default()
    };
    plan.backends[0].count = count(30);
    plan.backends[0].antagonist = Antagonist::Some { usage, interference: Interference::Cores };
    plan
}

fn prequal(source: ProbeSource) -> Arm {
    let mut arm = policy(PolicyKind::Prequal);
    arm.balancer.prequal.source = source;
    arm
}

fn metric(plan: &Plan, name: &str) -> f64 {
    find(plan, 1).metrics[&format!("arm.{name}")]
}

#[test]
fn frugal_probes_shorten_the_tail_at_half_a_probe_per_request() {
    let (frugal, responses) = (fleet(prequal(ProbeSource::Frugal)), fleet(prequal(ProbeSource::Responses)));
    let probes = metric(&frugal, "probes_per_request");
    // Requests that arrived in the warm-up may end after it.
    assert!((0.4..0.501).contains(&probes), "{probes}");
    assert_eq!(metric(&responses, "probes_per_request"), 0.0);
    let (with, without) = (metric(&frugal, "p99"), metric(&responses, "p99"));
    assert!(with * 1.5 < without, "{with} ms with probes, {without} ms without");
}

/// Lost probes count as sent. An answer that comes too late, or that holds no load, is worth as
/// much as none.
#[test]
fn lost_late_and_empty_answers_are_worth_the_same() {
    let lost = |probe_loss| fleet(Arm { probe_loss, ..prequal(ProbeSource::Frugal) });
    let (none, half, all) = (lost(Ratio::ZERO), lost(Ratio::from_percent(50)), lost(Ratio::ONE));
    assert!((metric(&all, "probes_per_request") - 0.5).abs() < 0.01);
    let p99 = [&none, &half, &all].map(|plan| metric(plan, "p99"));
    assert!(p99[0] < p99[1] && p99[1] < p99[2], "{p99:?} by probes that are lost");

    let late = Plan { requests: Requests { probe_timeout: ms(0), ..Requests::default() }, ..none.clone() };
    let late = metric(&late, "p99");
    assert!(late > p99[1], "{late} ms with late answers, {p99:?}");
    let mut empty = none;
    empty.backends[0].reports = Reports::None;
    let mut silent = all;
    silent.backends[0].reports = Reports::None;
    assert_eq!(metric(&empty, "p99"), metric(&silent, "p99"));
}
