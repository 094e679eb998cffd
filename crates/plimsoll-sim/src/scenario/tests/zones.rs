//! Zones of groups, events for a zone, and sweeps over the size of a group.

use std::num::NonZeroUsize;

use super::*;
use crate::run::run;

/// Two zones, one of which is lost half way; two thirds of the capacity of both are needed.
const ZONE_LOST: &str = r#"
name = "zone-lost"
kind = "fleet"
seeds = [1]
duration = "20s"
warmup = "1s"
arrivals = { kind = "rate", per_second = 400 }
cost = { kind = "fixed", mean = "10ms" }
timeline = [
    { kind = "conduct", at = "4s", conduct = "down", zone = "b" },
    { kind = "conduct", at = "8s", conduct = "serve", zone = "b" },
]
[requests]
timeout = "1s"
[[backends]]
count = 6
zones = ["a", "b"]
[[phases]]
name = "both"
at = "0s"
[[phases]]
name = "lost"
at = "4s"
[[phases]]
name = "restored"
at = "8s"
settle = "6s"
[[arms]]
name = "least-loaded"
policy = "least-loaded"
[[checks]]
metric = "least-loaded.both.p99"
high = 1000
why = "half of the machines' time is free"
"#;

fn metrics(text: &str) -> std::collections::BTreeMap<String, f64> {
    let scenario = Scenario::parse("test.toml", text).unwrap_or_else(|error| panic!("{error}"));
    run(&scenario, NonZeroUsize::MIN, &|_| {}).unwrap_or_else(|error| panic!("{error}")).metrics
}

/// With both zones 6 cores serve 4 cores' worth of work; with one of them 3 cores cannot.
#[test]
fn zone_that_is_lost_takes_its_half_of_the_capacity_until_it_is_restored() {
    let found = metrics(ZONE_LOST);
    let errors = |phase: &str| found[&format!("least-loaded.{phase}.error_share")];
    // Of 1,600 requests in 4 s at most 1,200 find a core. The requests in progress in the zone are
    // lost with it.
    assert!(errors("both") < 0.02 && errors("lost") > 0.1, "{} and {}", errors("both"), errors("lost"));
    assert!(errors("restored") < 0.001, "{}", errors("restored"));
}

#[test]
fn sweep_runs_each_arm_with_each_size_of_the_group() {
    let swept = ZONE_LOST
        .replace("count = 6\n", "")
        .replace("[[checks]]", "[sweep]\ncount = [6, 10]\n[[checks]]")
        .replace("least-loaded.both", "least-loaded-6.both");
    let found = metrics(&swept);
    let (small, large) = (metrics(ZONE_LOST), metrics(&ZONE_LOST.replace("count = 6", "count = 10")));
    for (metric, value) in &found {
        let (single, metric) = match metric.strip_prefix("least-loaded-6.") {
            Some(rest) => (&small, rest),
            None => (&large, metric.strip_prefix("least-loaded-10.").expect("the other arm")),
        };
        assert_eq!(*value, single[&format!("least-loaded.{metric}")], "{metric}");
    }
    assert_eq!(found.len(), 2 * small.len());
    assert!(found["least-loaded-10.lost.error_share"] < found["least-loaded-6.lost.error_share"] / 2.0);
}

#[test]
fn figures_of_a_sweep_are_curves_over_the_size_named_by_phase() {
    let text = ZONE_LOST
        .replace("count = 6\n", "")
        .replace("[[checks]]", "[sweep]\ncount = [6, 8, 10]\n[[checks]]")
        .replace("least-loaded.both", "least-loaded-6.both");
    let findings = fleet::run(&plan(&text), 1, &mut |_| ());
    let figure = findings.figures.iter().find(|figure| figure.id == "errors-by-count-lost").expect("for each phase");
    let share = |size: u32| 100.0 * findings.metrics[&format!("least-loaded-{size}.lost.error_share")];
    assert_eq!(figure.series.len(), 1);
    assert_eq!(figure.series[0].name, "least-loaded");
    assert_eq!(figure.series[0].points, [6, 8, 10].map(|size| (f64::from(size), share(size))));
}
