//! What a scenario found, as JSON: `{scenario, seeds, metrics, checks}`.
//!
//! The same run gives the same bytes: metrics are in the order of their names, and numbers are written with the
//! fewest digits that read back as the same number.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::run::Summary;

#[derive(Serialize)]
struct Root<'s> {
    scenario: &'s str,
    seeds: &'s [u64],
    metrics: &'s BTreeMap<String, f64>,
    checks: Vec<Check>,
}

/// A range that is open at one end has `null` there.
#[derive(Serialize)]
struct Check {
    name: String,
    got: f64,
    low: Option<f64>,
    high: Option<f64>,
    ok: bool,
}

/// The summary as JSON, with a newline at its end.
#[must_use]
pub fn json(summary: &Summary) -> String {
    let checks = summary.checks.iter().map(|checked| Check {
        name: checked.check.name(),
        got: checked.got,
        low: checked.check.low,
        high: checked.check.high,
        ok: checked.is_ok(),
    });
    let root = Root {
        scenario: &summary.scenario,
        seeds: &summary.seeds,
        metrics: &summary.metrics,
        checks: checks.collect(),
    };
    let mut text = serde_json::to_string_pretty(&root).expect("all numbers are finite and all keys are text");
    text.push('\n');
    text
}
