//! Outlier ejection in an overload: it must not take out the machines that are needed most.

use std::num::NonZeroUsize;

use plimsoll_sim::run::run;
use plimsoll_sim::scenario::Scenario;

/// Twelve machines in three zones at 60% CPU lose a zone, and the others are at 90%.
const WORLD: &str = r#"
name = "t"
kind = "fleet"
duration = "45s"
warmup = "off"
arrivals = { kind = "rate", per_second = 1440 }
cost = { kind = "lognormal", mean = "20ms", sigma = 1.0 }
timeline = [{ kind = "conduct", at = "12s", conduct = "down", group = "zone-c" }]

[clients]
count = 3

[requests]
timeout = "1s"

[[backends]]
name = "zones-a-and-b"
count = 8
cores = 4
speed = { low = 0.8, high = 1.2 }
antagonist = { kind = "cores", low = 0, high = 0.1, jitter = 0.05, holds = "2s" }

[[backends]]
name = "zone-c"
count = 4
cores = 4

[[phases]]
name = "all"
at = "0s"

[[phases]]
name = "lost"
at = "12s"

[[arms]]
name = "default"
policy = "weighted"
retries = { kind = "budgeted" }

[[arms]]
name = "no-ejection"
policy = "weighted"
retries = { kind = "budgeted" }
outlier = { consecutive_failures = "off", success_rate_stdev = "off" }

[[checks]]
metric = "default.requests"
low = 1
why = "there are some"
"#;

/// All of it follows from the seed: no false alarm is possible.
#[test]
fn ejection_adds_no_errors_when_a_zone_is_lost_at_90_percent() {
    let scenario = Scenario::parse("t.toml", WORLD).unwrap().with_seeds(vec![1, 4]);
    let metrics = run(&scenario, NonZeroUsize::new(2).unwrap(), &|_| {}).unwrap().metrics;
    let (with, without) = (metrics["default.lost.error_share"], metrics["no-ejection.lost.error_share"]);
    assert!((0.001..0.01).contains(&without), "an overload of some requests, not of all: {without}");
    assert!(with <= 1.05 * without, "{with} of the requests fail with ejection, {without} without");
}
