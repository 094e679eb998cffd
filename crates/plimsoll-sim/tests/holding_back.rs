//! The promises of clients that hold back, each kept over several seeds, and each broken by clients that do not.
//!
//! Seeds are fixed and the generators portable, so nothing here fails by chance.
#![allow(clippy::unwrap_used, reason = "a test may fail by it")]

use std::collections::BTreeMap;
use std::num::NonZeroUsize;

use plimsoll_sim::run::run;
use plimsoll_sim::scenario::Scenario;

/// Other seeds than the scenarios' own.
const SEEDS: [u64; 3] = [11, 12, 13];

/// What an arm's metrics, by name, are to keep to.
type Promise<'p> = &'p dyn Fn(&dyn Fn(&str) -> f64) -> bool;

/// Promises that `good` keeps with every seed, and `bad` with none.
#[track_caller]
fn promise(text: &str, good: &str, bad: &str, promises: &[Promise<'_>]) {
    for seed in SEEDS {
        let metrics = found(text, seed);
        for (number, is_kept) in promises.iter().enumerate() {
            let kept = |arm: &str| is_kept(&|metric| metrics[&format!("{arm}.{metric}")]);
            assert!(kept(good), "seed {seed}: {good} breaks promise {number}: {:#?}", of(&metrics, good));
            assert!(!kept(bad), "seed {seed}: {bad} keeps promise {number}, too");
        }
    }
}

#[test]
fn an_outage_is_over_when_it_is_over() {
    let text = built_in("metastable").replace("duration = \"300s\"", "duration = \"100s\"");
    let heals: Promise<'_> = &|metric| metric("after.recovered_after") <= 10.0;
    promise(&text, "paced-280", "naive-280", &[heals]);
    promise(&text, "paced-280", "budgeted-280", &[heals]);
}

#[test]
fn retries_do_not_multiply_from_layer_to_layer() {
    let text =
        built_in("retry-stack").replace("rate = 200", "rate = 40").replace("duration = \"60s\"", "duration = \"30s\"");
    let is_little: Promise<'_> = &|metric| metric("failed.backend.attempts_per_request") <= 1.3;
    promise(&text, "budgeted", "naive", &[is_little]);
    promise(&text, "budgeted", "unbudgeted", &[is_little]);
}

#[test]
fn the_most_critical_is_served_through_a_flood_and_all_is_well_soon_after() {
    // A flood of twelve seconds, not of thirty.
    let text = built_in("three-tiers").replace("at = \"60s\"", "at = \"42s\"").replace("\"90s\"", "\"54s\"");
    promise(
        &text,
        "plimsoll",
        "naive",
        &[
            &|metric| metric("flood.critical-plus.useful_share") >= 0.99,
            &|metric| metric("flood.backend.attempts_per_request") <= 1.2,
            &|metric| metric("after.recovered_after") <= 5.0,
        ],
    );
}

#[test]
fn clients_stop_within_seconds_of_an_outage_and_are_back_within_seconds_of_its_end() {
    let text =
        built_in("throttle-outage").replace("rate = 1000", "rate = 200").replace("capacity = 2000", "capacity = 400");
    let text = text.replace("duration = \"1800s\"", "duration = \"330s\"");
    promise(
        &text,
        "paced-100",
        "adaptive-100",
        &[&|metric| metric("failing.sends_per_client") < 2.0, &|metric| metric("after.recovered_after") <= 6.0],
    );
}

#[test]
fn no_locality_is_sent_more_than_it_can_take() {
    let text = built_in("spill-waterfall");
    promise(&text, "waterfall", "by-health", &[&|metric| metric("mostly-lost.failed_share") < 0.01]);
    let spills: Promise<'_> = &|metric| metric("spills.failed_share") < 0.01;
    let by_criticality: Promise<'_> = &|metric| {
        let [users, batch] = ["users", "batch"].map(|source| metric(&format!("mostly-lost.{source}.served_share")));
        users > 0.7 && batch < 0.1
    };
    promise(&text, "waterfall", "nearest", &[spills, by_criticality]);
}

fn built_in(name: &str) -> String {
    let file = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../../scenarios/{name}.toml"));
    std::fs::read_to_string(file).unwrap()
}

fn found(text: &str, seed: u64) -> BTreeMap<String, f64> {
    let scenario = Scenario::parse("t.toml", text).unwrap_or_else(|error| panic!("{error}"));
    run(&scenario.with_seeds(vec![seed]), NonZeroUsize::MIN, &|_| {}).unwrap().metrics
}

fn of(metrics: &BTreeMap<String, f64>, arm: &str) -> BTreeMap<String, f64> {
    metrics
        .iter()
        .filter(|(name, _)| name.starts_with(&format!("{arm}.")))
        .map(|(name, of)| (name.clone(), *of))
        .collect()
}
