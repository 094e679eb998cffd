//! Laws that hold in any world: what is sent adds up, queues are as long as theory says, arms meet the same world, and a run
//! is a function of its file and seed.
//!
//! Seeds are fixed and the generators portable, so nothing here fails by chance; where a tolerance allows for chance, it is
//! said how much there is.
#![allow(clippy::unwrap_used, reason = "a test may fail by it")]

use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::sync::Mutex;

use plimsoll_core::pick::PolicyKind;
use plimsoll_sim::report::{Origin, Section, json, page, svg};
use plimsoll_sim::run::{Summary, run};
use plimsoll_sim::scenario::Scenario;

/// Unequal machines and clients, some loss, something that goes wrong: all parts of the world at once.
const EVENTFUL: &str = r#"
duration = "12s"
warmup = "2s"
arrivals = { kind = "load", of_capacity = 0.7 }
cost = { kind = "bounded-pareto", mean = "10ms", ratio = 1000 }
timeline = [
    { kind = "conduct", at = "4s", conduct = "fail-fast", group = "some", count = 1 },
    { kind = "restart", at = "6s", group = "others", count = 1, lame_duck = "1s", down = "1s" },
]
[clients]
count = 6
rates = { kind = "zipf" }
[requests]
timeout = "500ms"
[network]
delay = "1ms"
jitter = "1ms"
loss = 0.01
[[backends]]
name = "some"
count = 4
speed = { low = 0.6, high = 1.4 }
queue = 3
concurrency = 2
[[backends]]
name = "others"
count = 6
antagonist = { kind = "cores", low = 0, high = 0.2, jitter = 0.1 }
"#;

#[test]
fn every_request_ends_in_exactly_one_way_and_every_offer_goes_to_some_group() {
    let metrics = found(EVENTFUL, &PolicyKind::ALL.map(PolicyKind::name), "", 3).metrics;
    for policy in PolicyKind::ALL {
        let metric = |name: &str| metrics[&format!("{policy}.{name}")];
        let ways = ["timeout_share", "failure_share", "overloaded_share", "no_backend_share"].map(metric);
        assert!((ways.iter().sum::<f64>() - metric("error_share")).abs() < 1e-9, "{policy}: {ways:?}");
        assert!(ways[..2].iter().all(|share| *share > 0.0), "{policy}: the world is eventful, {ways:?}");
        let answered = metric("answered_per_second") * 10.0;
        let ended = metric("requests") * (1.0 - metric("error_share"));
        assert!((answered - ended).abs() < 1e-6 * ended, "{policy}: {answered} answered, {ended} by the shares");
        assert!((metric("share.some") + metric("share.others") - 1.0).abs() < 1e-9, "{policy}");
        let quantiles = ["p50", "p90", "p99", "p99.9"].map(metric);
        assert!(quantiles.is_sorted() && quantiles[3] <= 500.5, "{policy}: {quantiles:?} ms with a time-out of 500 ms");
    }
}

/// Common random numbers: an arm meets the same world whatever it is called, and whoever else is compared.
#[test]
fn arms_meet_the_same_world() {
    let policies = ["weighted", "random", "prequal"];
    let together = found(EVENTFUL, &["random", "weighted", "p2c", "prequal"], "", 4).metrics;
    for policy in policies {
        let alone = found(EVENTFUL, &[policy], "", 4).metrics;
        assert_eq!(of_arm(&together, policy), of_arm(&alone, policy), "{policy}");
        let twice = "[[arms]]\nname = \"again\"\npolicy = \"POLICY\"\n".replace("POLICY", policy);
        let metrics = found(EVENTFUL, &[policy], &twice, 4).metrics;
        assert_eq!(of_arm(&metrics, "again"), of_arm(&metrics, policy), "{policy}");
    }
    let arrived = |policy: &str| together[&format!("{policy}.requests")];
    assert!(["weighted", "p2c", "prequal"].iter().all(|policy| arrived(policy) == arrived("random")));
}

/// M/M/1 and M/D/1 under processor sharing have the same mean, S/(1 − ρ), as every distribution of costs has. With 30,000
/// requests at half load its standard error is about 2%, at 0.8 about 5%; three of these are allowed for.
#[test]
fn time_at_a_shared_processor_is_that_of_queueing_theory() {
    for (cost, load, tolerance) in [("exponential", 0.5, 0.06), ("fixed", 0.5, 0.06), ("exponential", 0.8, 0.15)] {
        let world = format!(
            "duration = \"10m\"\nwarmup = \"10s\"\narrivals = {{ kind = \"load\", of_capacity = {load} }}\n\
             cost = {{ kind = \"{cost}\", mean = \"10ms\" }}\n[clients]\ncount = 1\n[network]\ndelay = \"500us\"\n\
             [[arms]]\nname = \"only\"\npolicy = \"random\"\nmax_active_requests = 10000\n[[backends]]\ncount = 1\n"
        );
        let metrics = found(&world, &[], "", 1).metrics;
        let expected = 10.0 / (1.0 - load) + 2.0 * 0.5;
        let got = metrics["only.mean_latency"];
        assert!((got / expected - 1.0).abs() < tolerance, "{cost} at {load}: {got} ms, by theory {expected} ms");
        let rate = metrics["only.answered_per_second"] / (load / 0.01);
        assert!((rate - 1.0).abs() < 0.03, "{cost} at {load}: {rate} of the offered rate");
        assert!((metrics["only.cpu"] - load).abs() < 0.04, "{cost}: CPU {} at load {load}", metrics["only.cpu"]);
    }
}

/// One of ten fails at once, ejection off: nobody sends it more than its share. `random` sends it its share, which over the
/// some 9,000 requests of a run is 0.1 with a standard deviation of 0.003.
#[test]
fn no_policy_is_drawn_to_a_backend_that_fails_at_once() {
    let world = r#"
duration = "20s"
warmup = "5s"
arrivals = { kind = "users", count = 30, think = "20ms" }
[clients]
count = 3
[[backends]]
name = "failing"
count = 1
conduct = "fail-fast"
reports = "hides-failures"
[[backends]]
name = "good"
count = 9
"#;
    let off = "outlier = { consecutive_failures = \"off\", success_rate_stdev = \"off\" }\n";
    let arms = PolicyKind::ALL.map(|policy| format!("[[arms]]\nname = \"{policy}\"\npolicy = \"{policy}\"\n{off}"));
    for seed in [1, 2] {
        let metrics = found(world, &[], &arms.concat(), seed).metrics;
        for policy in PolicyKind::ALL {
            let share = metrics[&format!("{policy}.share.failing")];
            assert!(share <= 0.112, "{policy}, seed {seed}: {share} of the requests go to the one that fails");
            assert!(metrics[&format!("{policy}.requests")] > 3_000.0);
        }
    }
}

#[test]
fn a_run_is_a_function_of_file_and_seed_whatever_the_threads() {
    let text = scenario(EVENTFUL, &["weighted", "prequal", "random"], "");
    let scenario = Scenario::parse("t.toml", &text).unwrap().with_seeds(vec![3, 1, 2, 9, 4]);
    let outputs = [1, 2, 5, 2].map(|threads| {
        let progress = Mutex::new(Vec::new());
        let summary = run(&scenario, NonZeroUsize::new(threads).unwrap(), &|part| progress.lock().unwrap().push(part));
        let progress = progress.into_inner().unwrap();
        assert!(progress.iter().all(|part| (0.0..=1.0).contains(part)), "{threads} threads");
        let summary = summary.unwrap();
        let figures: String = summary.figures.iter().map(svg).collect();
        let page = page(&[Section { scenario: &scenario, summary: &summary, origin: Origin::Own, command: "" }]);
        (json(&summary), figures, page)
    });
    assert!(outputs.iter().all(|output| *output == outputs[0]));
    // A seed gives the same alone as among others; and the mean is that of the seeds.
    let alone: Vec<f64> = [3, 1, 2, 9, 4]
        .map(|seed| found(EVENTFUL, &["weighted", "prequal", "random"], "", seed).metrics["weighted.mean_latency"])
        .to_vec();
    let all = run(&scenario, NonZeroUsize::MIN, &|_| {}).unwrap().metrics;
    assert!((all["weighted.mean_latency"] - alone.iter().sum::<f64>() / 5.0).abs() < 1e-9);
    assert_eq!(all["weighted.mean_latency.min"], alone.iter().copied().fold(f64::INFINITY, f64::min));
    assert_eq!(all["weighted.mean_latency.max"], alone.iter().copied().fold(0.0, f64::max));
    assert!(alone.iter().any(|mean| *mean != alone[0]), "seeds differ");
}

fn scenario(world: &str, policies: &[&str], further: &str) -> String {
    let arms: String =
        policies.iter().map(|policy| format!("[[arms]]\nname = \"{policy}\"\npolicy = \"{policy}\"\n")).collect();
    let arm = policies.first().copied().map_or_else(|| first_arm(world, further), str::to_owned);
    let check = format!("[[checks]]\nmetric = \"{arm}.requests\"\nlow = 1\nwhy = \"there are some\"\n");
    format!("name = \"t\"\nkind = \"fleet\"\n{world}{arms}{further}{check}")
}

fn first_arm(world: &str, further: &str) -> String {
    let text = format!("{world}{further}");
    let (_, arm) = text.split_once("[[arms]]\nname = \"").expect("there is an arm");
    arm.split('"').next().unwrap().to_owned()
}

fn found(world: &str, policies: &[&str], further: &str, seed: u64) -> Summary {
    let text = scenario(world, policies, further);
    let scenario = Scenario::parse("t.toml", &text).unwrap_or_else(|error| panic!("{error}\n{text}"));
    run(&scenario.with_seeds(vec![seed]), NonZeroUsize::MIN, &|_| {}).unwrap()
}

fn of_arm(metrics: &BTreeMap<String, f64>, arm: &str) -> BTreeMap<String, f64> {
    let of =
        metrics.iter().filter_map(|(name, value)| Some((name.strip_prefix(&format!("{arm}."))?.to_owned(), *value)));
    let of: BTreeMap<String, f64> = of.collect();
    assert!(of.len() > 10, "{arm} has metrics");
    of
}
