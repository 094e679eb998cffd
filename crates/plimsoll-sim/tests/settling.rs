//! What `weighted` has evened out stays even: corrections do not answer to what was before them.
#![allow(clippy::unwrap_used, reason = "a test may fail by it")]

use std::num::NonZeroUsize;

use plimsoll_sim::run::run;
use plimsoll_sim::scenario::Scenario;

/// Machines of speeds 1:1:2:4 under round robin, whose utilizations are 4:4:2:1, until weights come into force.
const SWITCH: &str = r#"
name = "switch"
kind = "fleet"
duration = "80s"
warmup = "off"
arrivals = { kind = "load", of_capacity = 0.3 }
cost = { kind = "fixed", mean = "2ms" }
[clients]
count = 2
[[backends]]
name = "slow"
count = 2
[[backends]]
name = "faster"
count = 1
speed = 2
[[backends]]
name = "fastest"
count = 1
speed = 4
[[phases]]
name = "before"
at = "0s"
[[phases]]
name = "soon"
at = "30s"
settle = "3s"
[[phases]]
name = "later"
at = "42s"
[[phases]]
name = "at-last"
at = "60s"
[[arms]]
name = "switched"
policy = "round-robin"
switches = [{ at = "30s", policy = "weighted" }]
[[checks]]
metric = "switched.before.max_over_mean"
low = 1.3
why = "equal requests are not equal load"
"#;

#[test]
fn a_switch_to_weighted_is_even_at_once_and_stays_so() {
    let scenario = Scenario::parse("switch.toml", SWITCH).unwrap_or_else(|error| panic!("{error}"));
    for seed in [1, 2, 3] {
        let summary = run(&scenario.clone().with_seeds(vec![seed]), NonZeroUsize::MIN, &|_| {}).unwrap();
        assert!(summary.is_ok(), "{:?}", summary.checks);
        for phase in ["soon", "later", "at-last"] {
            let spread = summary.metrics[&format!("switched.{phase}.max_over_mean")];
            assert!(spread <= 1.05, "seed {seed}, {phase}: {spread}");
        }
    }
}
