//! The scenarios that come with the binary, so that it can run them wherever it is.

use super::Scenario;

/// The scenarios, each by its name and the text of its file.
macro_rules! files {
    ($($name:literal),* $(,)?) => {
        &[$(($name, include_str!(concat!("../../scenarios/", $name, ".toml")))),*]
    };
}

/// All that there are, in the order in which they are listed and reported: groups together, and what explains others
/// first.
const FILES: &[(&str, &str)] = files![
    "two-speeds",
    "policy-spread",
    "policy-switch",
    "policy-restarts",
    "policy-in-flight",
    "local-rates",
    "inference-servers",
    "hash-bounded",
    "flow-control",
    "unhealthy",
    "sinkhole",
    "sinkhole-unseen",
    "sinkhole-reported",
    "sinkhole-two",
    "prequal-ramp",
    "prequal-rules",
    "prequal-probe-rate",
    "prequal-q-rif",
    "prequal-linear",
    "prequal-live",
    "prequal-live-small",
    "cre-figure",
    "cre-fairness",
    "customer-limits",
    "ranked-10x",
    "step-1-4x",
    "hopeless",
    "prefetch-spike",
    "cre-casestudy",
    "dagor-m",
    "criticality-decay",
    "throttle-overload",
    "throttle-outage",
    "throttle-k",
    "throttle-errors",
    "retry-amplification",
    "retry-stack",
    "metastable",
    "three-tiers",
    "spill-waterfall",
    "quota-bursty",
    "quota-moving",
    "quota-few-requests",
    "quota-3x",
    "quota-order",
    "quota-soft",
    "quota-soft-sparse",
    "quota-group",
    "quota-failover",
    "quota-herd",
    "quota-poison",
    "quota-sre-table",
    "quota-scale",
    "doorman-5",
    "doorman-7",
    "subset-small",
    "subset-deterministic",
    "subset-random-30",
    "subset-random-10",
    "subset-random-75",
    "subset-grid",
    "subset-reference",
    "subset-failures",
    "deploy-by-discovery",
    "source-fails-at-peak",
    "lame-duck-notice",
    "inactive-10000",
    "udp-blocked",
    "canary-verdict",
    "worked-examples",
    "what-if-zone-count",
    "what-if-zone-loss",
    "what-if-deploy",
];

/// The scenarios that come with the binary.
#[must_use]
pub fn built_in() -> Vec<Scenario> {
    let parse = |(name, text): &(&str, &str)| Scenario::parse(name, text).expect("a test parses every one of them");
    FILES.iter().map(parse).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::fs;
    use std::path::Path;

    use super::*;

    #[test]
    fn every_file_of_the_folder_comes_with_the_binary_under_its_name() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scenarios");
        let files = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
        let files = files.filter(|file| file.extension().is_some_and(|extension| extension == "toml"));
        let there: BTreeSet<String> =
            files.map(|file| file.file_stem().unwrap().to_str().unwrap().to_owned()).collect();
        let listed: BTreeSet<String> = FILES.iter().map(|(name, _)| (*name).to_owned()).collect();
        assert_eq!(listed, there, "list each file of scenarios/ in {}", file!());
        for (name, text) in FILES {
            match Scenario::parse(&format!("scenarios/{name}.toml"), text) {
                Ok(scenario) => assert_eq!(scenario.name, *name),
                Err(error) => panic!("{error}"),
            }
        }
    }

    #[test]
    fn every_built_in_scenario_has_checks() {
        for scenario in built_in() {
            assert!(!scenario.checks.is_empty(), "{} shows nothing", scenario.name);
        }
    }

    #[test]
    fn groups_stand_together_and_each_scenario_says_where_it_comes_from() {
        let scenarios = built_in();
        let mut groups: Vec<&str> = scenarios.iter().map(|scenario| scenario.group.as_str()).collect();
        groups.dedup();
        let distinct: BTreeSet<&str> = groups.iter().copied().collect();
        assert_eq!(distinct.len(), groups.len(), "a group is torn apart: {groups:?}");
        for scenario in scenarios {
            assert!(!scenario.source.is_empty() && !scenario.says.is_empty(), "{} has no source", scenario.name);
        }
    }
}
