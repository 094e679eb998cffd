//! Localities in cases that are small enough to compute by hand.

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::time::Duration;

use super::plan::{Arm, Phase, Plan, Rule, Site, Source};
use super::{metric_names, run};

/// Two localities of ten backends, each of 100 a second, and 600 requests a second.
fn plan() -> Plan {
    let site = |name: &str| Site {
        name: name.to_owned(),
        backends: NonZeroU32::new(10).unwrap(),
        capacity: 100.0,
        ..Site::default()
    };
    let arm = |(name, rule): (&str, Rule)| Arm { name: name.to_owned(), rule };
    Plan {
        duration: Duration::from_secs(60),
        warmup: Duration::from_secs(20),
        sources: vec![Source { name: "users".to_owned(), rate: 600.0, ..Source::default() }],
        localities: vec![site("near"), site("far")],
        arms: [("waterfall", Rule::WATERFALL), ("nearest", Rule::Nearest), ("by-health", Rule::ByHealth)]
            .map(arm)
            .into(),
        ..Plan::default()
    }
}

fn found(plan: &Plan) -> BTreeMap<String, f64> {
    run(plan, 1, &mut |_| ()).metrics
}

fn near(got: f64, want: f64, within: f64, what: &str) {
    assert!((got - want).abs() <= within, "{what}: {got} for {want}");
}

#[test]
fn metric_names_lists_exactly_the_metrics_of_a_run() {
    let mut plan = plan();
    plan.phases = vec![Phase { name: "all".to_owned(), ..Phase::default() }];
    let mut announced = metric_names(&plan);
    announced.sort_unstable();
    assert_eq!(found(&plan).into_keys().collect::<Vec<_>>(), announced);
}

#[test]
fn load_below_capacity_stays_in_the_nearest_under_every_rule() {
    let metrics = found(&plan());
    for arm in ["waterfall", "nearest", "by-health"] {
        assert_eq!(metrics[&format!("{arm}.near.share")], 1.0, "{arm}");
        near(metrics[&format!("{arm}.near.utilization")], 0.6, 0.02, arm);
        assert!(metrics[&format!("{arm}.served_share")] > 0.999, "{arm}");
    }
}

#[test]
fn load_beyond_the_nearest_goes_to_the_next_or_fails() {
    let mut plan = plan();
    plan.sources[0].rate = 1_250.0;
    let metrics = found(&plan);
    near(metrics["waterfall.near.utilization"], 0.8, 0.03, "near");
    near(metrics["waterfall.far.utilization"], 0.45, 0.03, "far");
    assert!(metrics["waterfall.failed_share"] < 0.001);
    near(metrics["nearest.failed_share"], 0.2, 0.03, "what is too much");
}

#[test]
fn load_of_others_counts_as_utilization() {
    let mut plan = plan();
    plan.localities[1].others = 500.0;
    plan.sources[0].rate = 1_400.0;
    let metrics = found(&plan);
    near(metrics["waterfall.near.utilization"], 0.8, 0.03, "near");
    near(metrics["waterfall.far.utilization"], 0.8, 0.03, "far");
    // 800 and 300 of 1,400.
    near(metrics["waterfall.shed_share"], 0.214, 0.03, "shed");
}

#[test]
fn by_health_ignores_utilization() {
    let mut plan = plan();
    plan.phases = vec![Phase { name: "lost".to_owned(), ..Phase::default() }];
    plan.localities[0].healthy = vec![4];
    let metrics = found(&plan);
    near(metrics["by-health.lost.near.share"], 0.56, 0.01, "1.4 · 4 of 10");
    assert_eq!(metrics["nearest.lost.near.share"], 1.0);
    // 320 of 600.
    near(metrics["waterfall.lost.near.share"], 0.533, 0.03, "80% of what is left");
}
