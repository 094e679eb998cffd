//! Each check of a built-in scenario says where its range comes from.

use plimsoll_sim::scenario::built_in;

/// The origins: a formula, the reproduced publication, an aim of this project or its users, or other seeds.
const ORIGINS: [&str; 3] = ["Derived: ", "Published: ", "Objective: "];

fn has_origin(why: &str) -> bool {
    let of_seeds = why.strip_prefix("Spread of ").and_then(|rest| rest.split_once(" seeds: "));
    let is_spread = of_seeds.is_some_and(|(count, _)| count.parse::<u32>().is_ok_and(|count| count >= 20));
    is_spread || ORIGINS.iter().any(|origin| why.starts_with(origin))
}

#[test]
fn every_check_of_a_built_in_scenario_states_its_origin() {
    let mut without = Vec::new();
    for scenario in built_in() {
        let checks = scenario.checks.iter().filter(|check| !has_origin(&check.why));
        without.extend(checks.map(|check| format!("{}: {}: {:?}", scenario.name, check.name(), check.why)));
    }
    assert!(without.is_empty(), "begin `why` with an origin (docs/scenarios.md):\n{}", without.join("\n"));
}

#[test]
fn origin_is_missing_where_a_range_is_fitted_to_few_runs() {
    assert!(has_origin("Derived: 1 ÷ 2.") && has_origin("Spread of 20 seeds: 3 to 4."));
    assert!(!has_origin("It is so.") && !has_origin("Spread of 3 seeds: 3 to 4."));
}
