//! Files of the kinds `tiers` and `spill`.

use std::time::Duration;

use plimsoll_core::Ratio;

use super::*;
use crate::experiment::tiers::plan::Server;
use crate::experiment::{spill, tiers};

/// The metrics that a section of the documentation lists.
pub(super) fn documented(section: &str) -> BTreeSet<String> {
    let documentation = fs::read_to_string(folder("docs/scenarios.md")).unwrap();
    let (_, section) = documentation.split_once(section).unwrap();
    let section = section.split("\n# ").next().unwrap();
    section.lines().filter_map(|line| Some(line.strip_prefix("| `")?.split('`').next()?.to_owned())).collect()
}

/// Those of the arm `a` and the whole run, without those of sources.
fn of_the_whole(names: &[String], kind: &str, serves: &str) -> BTreeSet<String> {
    let of_arm = names.iter().filter_map(|name| name.strip_prefix("a."));
    let plain = of_arm.filter_map(|name| match name.strip_prefix(&format!("{serves}.")) {
        Some(metric) => Some(format!("{kind}.{metric}")),
        None => (!name.contains('.')).then(|| name.to_owned()),
    });
    plain.collect()
}

#[test]
fn every_metric_of_tiers_and_of_localities_is_in_the_documentation() {
    let Experiment::Tiers(plan) = experiment(TIERS) else { panic!("of another kind") };
    assert_eq!(documented("## Metrics of tiers"), of_the_whole(&tiers::metric_names(&plan), "TIER", "backend"));
    let Experiment::Spill(plan) = experiment(SPILL) else { panic!("of another kind") };
    assert_eq!(documented("## Metrics of spill"), of_the_whole(&spill::metric_names(&plan), "LOCALITY", "near"));
}

#[test]
fn files_of_tiers_and_of_spill_are_read_whole_and_read_back_the_same() {
    reads_back::<TiersFile>("tiers", TIERS);
    reads_back::<SpillFile>("spill", SPILL);
    let Experiment::Tiers(plan) = experiment(TIERS) else { panic!("of another kind") };
    let (arm, tier) = (&plan.arms[0], &plan.tiers[0]);
    assert_eq!((arm.throttle, arm.load), (Holding::Adaptive { k: 1.5, window: Duration::from_secs(60) }, 2.0));
    assert_eq!(arm.retries, Retries::Budgeted { attempts: 2, share: Ratio::from_percent(20) });
    assert_eq!((tier.tasks.get(), tier.server, tier.errors), (4, Server::Queue, Ratio::from_percent(1)));
    let Experiment::Spill(plan) = experiment(SPILL) else { panic!("of another kind") };
    assert_eq!((plan.localities[0].healthy.as_slice(), plan.localities[1].others), (&[3][..], 40.0));
}

#[test]
fn every_problem_of_a_file_of_tiers_is_told() {
    let bad = TIERS
        .replace("name = \"flood\"", "name = \"users\"")
        .replace("name = \"front\"", "name = \"users\"")
        .replace("k = 1.5", "k = 0.5")
        .replace("strength = [0.5]", "strength = [1, 2]")
        .replace("capacity = 50\n", "capacity = 0\n")
        .replace("attempts = 8", "attempts = 0")
        .replace("load = 2", "load = 0")
        .replace("rate = 100", "rate = 0");
    assert_eq!(
        problems(&bad.replace("a.flood", "a.users")),
        [
            "sources[0].rate: a rate of 0 sends nothing",
            "tiers[0].name: \"users\" is the name of a source",
            "tiers[1].capacity: nothing is ever served",
            "tiers[1].strength: has 2 numbers for 1 phases",
            "phases[0].name: \"users\" is the name of a source or in tiers",
            "arms[0].throttle: k (0.5) is out of range",
            "arms[0].load: a load of 0 sends nothing",
            "arms[1].retries: attempts (0) is out of range",
        ]
    );
    assert_eq!(
        problems("name = \"a\"\nkind = \"tiers\"\n"),
        ["sources: there is no source of requests", "tiers: there is no tier", "arms: there is no arm",]
    );
}

#[test]
fn every_problem_of_a_file_of_spill_is_told() {
    let bad = SPILL
        .replace("healthy = [3]", "healthy = [30]")
        .replace("capacity = 70", "capacity = 0")
        .replace("report_every = \"2s\"", "report_every = \"1us\"")
        .replace("target = 0.7", "target = 0");
    assert_eq!(
        problems(&bad),
        [
            "report_every: 1us fits into the run (10s) 10000000 times",
            "localities[0].healthy: 30 is more than all backends (4)",
            "localities[1].capacity: nothing is ever served",
            "arms[0].rule: target is 0, so nothing would be served",
        ]
    );
    let unequal = SPILL.replace("healthy = [3]", "healthy = [3, 3]");
    assert_eq!(problems(&unequal), ["localities[0].healthy: has 2 numbers for 1 phases"]);
    assert_eq!(
        problems("name = \"a\"\nkind = \"spill\"\n"),
        ["sources: there is no source of requests", "localities: there is no locality", "arms: there is no arm",]
    );
}

fn experiment(text: &str) -> Experiment {
    Scenario::parse("test.toml", text).unwrap_or_else(|error| panic!("{error}")).experiment
}

/// A file of the kind `tiers` that uses most of what there is.
const TIERS: &str = r#"
name = "tiers"
kind = "tiers"
duration = "10s"
warmup = "off"
sample_every = "500ms"
clients = 7
timeout = "200ms"
patience = "2s"

[[sources]]
name = "users"
criticality = "critical-plus"
rate = 100

[[tiers]]
name = "front"
tasks = 4
capacity = 500
server = "queue"
errors = 0.01
latency = "1ms"

[[tiers]]
name = "backend"
capacity = 50
strength = [0.5]
server = "ranked"

[[phases]]
name = "flood"
at = "5s"
settle = "1s"
load = 3

[[arms]]
name = "a"
throttle = { kind = "adaptive", k = 1.5, window = "1m" }
retries = { kind = "budgeted", attempts = 2, share = 0.2 }
load = 2

[[arms]]
name = "b"
throttle = "admission-control"
retries = { kind = "naive", attempts = 8 }
clients = 3
server = "limited"

[[checks]]
metric = "a.flood.users.useful_share.min"
low = 0
why = "it is a share"
"#;

/// The same for `spill`.
const SPILL: &str = r#"
name = "spill"
kind = "spill"
duration = "10s"
warmup = "off"
sample_every = "500ms"
clients = 2
report_every = "2s"
report_age = "off"

[[sources]]
name = "users"
rate = 100

[[localities]]
name = "near"
backends = 4
capacity = 50
healthy = [3]

[[localities]]
name = "far"
capacity = 70
others = 40

[[phases]]
name = "lost"
at = "5s"

[[arms]]
name = "a"
rule = { kind = "waterfall", target = 0.7, drain_below = 0.5 }

[[arms]]
name = "b"
rule = "by-health"

[[checks]]
metric = "a.lost.near.share"
low = 0
why = "it is a share"
"#;
