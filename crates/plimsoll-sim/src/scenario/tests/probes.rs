//! Files of the kind `probes`.

use super::*;
use crate::experiment::probes;

const PROBES: &str = r#"
name = "probes"
kind = "probes"
duration = "100s"
warmup = "20s"
sample_every = "500ms"
clients = 3
backends = 4
inactive_after = "10s"
request_every = "1m"
check_every = "5s"

[link]
delay = "500us"
jitter = "1ms"
loss = "1%"
duplicates = "2%"

[[changes]]
at = "40s"
event = "lame-duck"

[[changes]]
at = "60s"
event = { kind = "restart", down = "1s" }

[[arms]]
name = "a"

[[arms]]
name = "b"
rule = { kind = "pushed", times = 3 }
loss = "5%"

[[checks]]
metric = "a.known_last"
high = 100
why = "none"
"#;

#[test]
fn file_of_probes_is_read_whole_and_reads_back_the_same() {
    reads_back::<ProbesFile>("probes", PROBES);
    let Experiment::Probes(plan) = experiment(PROBES) else { panic!("of another kind") };
    assert_eq!((plan.clients.get(), plan.backends.get(), plan.changes.len()), (3, 4, 2));
    assert_eq!(plan.arms[1].loss, Some(plimsoll_core::Ratio::from_percent(5)));
}

#[test]
fn every_metric_of_probes_is_in_the_documentation() {
    let Experiment::Probes(plan) = experiment(PROBES) else { panic!("of another kind") };
    let of_arm: BTreeSet<String> =
        probes::metric_names(&plan).iter().filter_map(|name| Some(name.strip_prefix("a.")?.to_owned())).collect();
    assert_eq!(tiers::documented("## Metrics of probes"), of_arm);
}

#[test]
fn every_problem_of_a_file_of_probes_is_told() {
    let bad = PROBES
        .replace("clients = 3", "clients = 30000")
        .replace("check_every = \"5s\"", "check_every = \"5ms\"")
        .replace("at = \"60s\"", "at = \"30s\"")
        .replace("times = 3", "times = 30");
    assert_eq!(
        problems(&bad),
        [
            "duration: one run would have about 2412200000 events",
            "clients: one run would have about 120000 pairs of a client and a backend",
            "check_every: 5ms is too short",
            "changes[1].at: 30s is before the previous change",
            "arms[1].rule: times (30) is out of range",
        ]
    );
    let late = PROBES.replace("at = \"60s\"", "at = \"100s\"");
    assert_eq!(problems(&late), ["changes[1].at: 1m 40s is beyond the end of the run (1m 40s)"]);
    assert_eq!(problems("name = \"a\"\nkind = \"probes\"\n"), ["arms: there is no arm"]);
}

fn experiment(text: &str) -> Experiment {
    Scenario::parse("test.toml", text).unwrap_or_else(|error| panic!("{error}")).experiment
}
