//! Files of the kind `shedding`.

use super::*;
use crate::experiment::shedding;
use crate::experiment::shedding::plan::Cohorts;

#[test]
fn every_metric_of_a_server_is_in_the_documentation() {
    let documentation = fs::read_to_string(folder("docs/scenarios.md")).unwrap();
    let (_, section) = documentation.split_once("## Metrics of shedding").unwrap();
    let section = section.split("\n# ").next().unwrap();
    let documented = section.lines().filter_map(|line| line.strip_prefix("| `")?.split('`').next());
    let documented: BTreeSet<String> = documented.map(str::to_owned).collect();
    let names = shedding::metric_names(&plan(SHEDDING));
    let of_the_whole = names.iter().filter_map(|name| name.strip_prefix("a.").filter(|metric| !metric.contains('.')));
    assert_eq!(documented, of_the_whole.map(str::to_owned).collect());
}

#[test]
fn a_shedding_file_is_read_whole_and_reads_back_the_same() {
    reads_back::<SheddingFile>("shedding", SHEDDING);
    let plan = self::plan(SHEDDING);
    let (users, jobs, arm) = (&plan.sources[0], &plan.sources[1], &plan.arms[0]);
    assert_eq!((users.customers.get(), users.calls.get(), users.load.as_slice()), (3, 2, &[3.0][..]));
    assert_eq!((users.quota().share.as_f64(), users.quota().most, jobs.most), (2.0, Some(1.5), None));
    assert_eq!((jobs.retries, jobs.wait.as_secs(), jobs.patience.unwrap().as_secs()), (5, 2, 60));
    assert_eq!(
        (arm.cohorts, arm.cores, arm.schedule.unwrap().full_until.as_millis()),
        (Cohorts::Unseen, Some(3.0), 100)
    );
    assert_eq!((plan.concurrency.unwrap().get(), arm.concurrency.unwrap().get()), (8, 4));
    assert_eq!(plan.overhead.as_micros(), 30);
    let found: Vec<String> = shedding::run(&plan, 1, &mut |_| {}).metrics.into_keys().collect();
    let mut announced = shedding::metric_names(&plan);
    announced.sort_unstable();
    assert_eq!(found, announced);
}

#[test]
fn defaults_of_a_shedding_file_give_way_to_a_short_run() {
    let text = "name = \"short\"\nkind = \"shedding\"\nduration = \"900us\"\n\
                [[sources]]\nname = \"s\"\nrate = 10\n[[arms]]\nname = \"a\"\n\
                [[checks]]\nmetric = \"a.goodput\"\nlow = 0\nwhy = \"it is a share\"\n";
    let plan = self::plan(text);
    assert_eq!((plan.warmup.as_micros(), plan.sample_every.as_micros(), plan.tick.as_nanos()), (300, 15, 900));
}

/// All problems of a file at once, each in its place.
#[test]
fn every_problem_of_a_shedding_file_is_told() {
    let bad = SHEDDING
        .replace("cores = 2.0", "cores = 0")
        .replace("tick = \"2ms\"", "tick = \"1ns\"")
        .replace("\"critical-plus\"", "\"kritical\"")
        .replace("load = [3]", "load = [3, 4]")
        .replace("rate = 100\n", "rate = 0\n")
        .replace("retries = 5\n", "")
        .replace("name = \"spike\"", "name = \"jobs\"")
        .replace("load_line = 0.9", "load_line = 0")
        .replace("cancelled_after = \"200ms\"", "cancelled_after = \"20ms\"")
        .replace("soft = 5", "soft = 50")
        .replace("a.spike.users", "a.jobs.users");
    assert_eq!(
        problems(&bad),
        [
            "tick: 1ns fits into the run (10s) 10000000000 times",
            "cores: a server without CPU answers nothing",
            "sources[0].criticality: \"kritical\" is not a criticality",
            "sources[0].load: has 2 numbers for 1 phases",
            "sources[1].rate: a rate of 0 sends nothing",
            "sources[1].wait: has no effect without retries",
            "phases[0].name: \"jobs\" is the name of a source",
            "arms[0].shedder: load_line is 0, so nothing would be admitted",
            "arms[0].schedule: cancelled_after comes before full_until (100ms)",
            "arms[1].shedder: soft (50) is not below hard (40)",
        ]
    );
    let gloomy = SHEDDING.replace("pessimistic", "gloomy");
    assert_eq!(problems(&gloomy), ["arms[0].shedder.outlook: \"gloomy\" is not an outlook"]);
    let empty = "name = \"a\"\nkind = \"shedding\"\n";
    assert_eq!(problems(empty), ["sources: there is no source of requests", "arms: there is no arm"]);
}

/// A file of the kind `shedding` that uses most of what there is.
const SHEDDING: &str = r#"
name = "shedding"
kind = "shedding"
duration = "10s"
warmup = "off"
tick = "2ms"
sample_every = "500ms"
cores = 2.0
concurrency = 8
cost = { kind = "lognormal", mean = "4ms", sigma = 1.0 }
overhead = "30us"
rejection = "20us"
patience = "300ms"
abandoned = "dropped"
tells_deadline = true
target_delay = "20ms"

[[sources]]
name = "users"
criticality = "critical-plus"
customer = 7
customers = 3
share = 2
most = 1.5
rate = 200
load = [3]
age = "50ms"
calls = 2

[[sources]]
name = "jobs"
criticality = "sheddable"
rate = 100
cost = { kind = "fixed", mean = "10ms" }
patience = "1m"
retries = 5
wait = "2s"

[[phases]]
name = "spike"
at = "5s"
settle = "1s"
load = 2

[[arms]]
name = "a"
shedder = { kind = "ranked", load_line = 0.9, target_delay = "10ms", outlook = "pessimistic" }
cores = 3.0
concurrency = 4
cohorts = "unseen"
schedule = { full_until = "100ms", then = "sheddable-plus", cancelled_after = "200ms" }

[[arms]]
name = "b"
shedder = { kind = "procrustean", soft = 5, hard = 40 }

[[checks]]
metric = "a.spike.users.useful_share.min"
low = 0
why = "it is a share"
"#;

fn plan(text: &str) -> SheddingPlan {
    match Scenario::parse("test.toml", text).unwrap_or_else(|error| panic!("{error}")).experiment {
        Experiment::Shedding(plan) => *plan,
        other => panic!("{other:?}"),
    }
}
