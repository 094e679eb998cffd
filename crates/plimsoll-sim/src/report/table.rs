//! The overview of a run: one row per phase and arm, with the few numbers that decide between arms.
//!
//! A run has up to some thousand metrics, named for programs. A person compares arms within a
//! phase, so rows of one phase stand together, each column has one unit, and all else is left to
//! the list of all metrics.

use std::time::Duration;

use super::page::short;
use super::units::unit;
use crate::experiment::windows::{Window, windows};
use crate::experiment::{fleet, probes, quota, spill, subset, tiers};
use crate::run::Summary;
use crate::scenario::{EXTREMES, Experiment, Scenario};

/// Rows of text under their headings.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Table {
    /// One for each column.
    pub headings: Vec<String>,
    /// How many of the first columns hold names; the others hold numbers.
    pub names: usize,
    /// A cell for each column.
    pub rows: Vec<Vec<String>>,
}

/// More localities or tiers than this have no columns in the overview: lines of a terminal are 80
/// characters wide.
const MAX_PARTS: usize = 3;

/// One column of numbers.
struct Column {
    heading: String,
    /// The last part of the metric's name.
    metric: String,
    shown: Shown,
}

/// How a number is shown.
#[derive(Clone, Copy)]
enum Shown {
    /// Milliseconds; from this many on, the request timed out.
    Latency(f64),
    /// A share as a percentage.
    Percent,
    /// A ratio or a rate, with two decimals below 100.
    Number,
    /// Seconds until the phase is back to normal; its whole length stands for never.
    Recovery,
}

impl Column {
    fn new(heading: &str, metric: impl Into<String>, shown: Shown) -> Self {
        Self { heading: heading.to_owned(), metric: metric.into(), shown }
    }
}

/// The overview of a scenario's run; `None` where arms or phases are no part of the experiment.
#[must_use]
pub fn overview(scenario: &Scenario, summary: &Summary) -> Option<Table> {
    match &scenario.experiment {
        Experiment::Fleet(plan) => {
            let arms = plan.arms.iter().map(|arm| &*arm.name).collect();
            Some(by_phase(summary, arms, &windows(&plan.phases, plan.warmup, plan.duration), &of_fleet(plan)))
        }
        Experiment::Shedding(plan) => {
            let arms = plan.arms.iter().map(|arm| &*arm.name).collect();
            Some(by_phase(summary, arms, &windows(&plan.phases, plan.warmup, plan.duration), &of_shedding()))
        }
        Experiment::Tiers(plan) => {
            let arms = plan.arms.iter().map(|arm| &*arm.name).collect();
            Some(by_phase(summary, arms, &windows(&plan.phases, plan.warmup, plan.duration), &of_tiers(plan)))
        }
        Experiment::Quota(plan) => {
            let arms = plan.arms.iter().map(|arm| &*arm.name).collect();
            Some(by_phase(summary, arms, &windows(&plan.phases, plan.warmup, plan.duration), &of_quota(plan)))
        }
        Experiment::Spill(plan) => {
            let arms = plan.arms.iter().map(|arm| &*arm.name).collect();
            Some(by_phase(summary, arms, &windows(&plan.phases, plan.warmup, plan.duration), &of_spill(plan)))
        }
        Experiment::Probes(plan) => {
            let arms = plan.arms.iter().map(|arm| &*arm.name).collect();
            Some(by_phase(summary, arms, &windows(&[], plan.warmup, plan.duration), &of_probes(plan)))
        }
        Experiment::Rollout(plan) => {
            let arms = plan.arms.iter().map(|arm| &*arm.name).collect();
            // One run is one window, however long.
            Some(by_phase(summary, arms, &windows(&[], Duration::ZERO, Duration::from_secs(1)), &of_rollout()))
        }
        Experiment::Subset(plan) => Some(of_subset(summary, plan)),
        Experiment::Worked(_) => None,
    }
}

fn of_fleet(plan: &fleet::Plan) -> Vec<Column> {
    let timeout = Shown::Latency(plan.requests.timeout.as_secs_f64() * 1e3);
    vec![
        Column::new("p50 (ms)", "p50", timeout),
        Column::new("p99 (ms)", "p99", timeout),
        Column::new("errors", "error_share", Shown::Percent),
        Column::new("CPU", "cpu", Shown::Percent),
        Column::new("CPU max/mean", "max_over_mean", Shown::Number),
    ]
}

fn of_rollout() -> Vec<Column> {
    vec![
        Column::new("right", "right_share", Shown::Percent),
        Column::new("requests", "requests", Shown::Number),
        Column::new("CPU", "cpu_difference", Shown::Percent),
        Column::new("errors", "errors_difference", Shown::Percent),
        Column::new("median", "latency_difference", Shown::Percent),
    ]
}

fn of_shedding() -> Vec<Column> {
    // Latencies are those of answers in time, so none is a time-out.
    let latency = Shown::Latency(f64::INFINITY);
    vec![
        Column::new("in time", "useful_share", Shown::Percent),
        Column::new("shed", "shed_share", Shown::Percent),
        Column::new("late", "late_share", Shown::Percent),
        Column::new("p50 (ms)", "p50", latency),
        Column::new("p99 (ms)", "p99", latency),
        Column::new("CPU", "cpu", Shown::Percent),
    ]
}

fn of_tiers(plan: &tiers::Plan) -> Vec<Column> {
    let mut columns = vec![Column::new("in time", "useful_share", Shown::Percent)];
    for tier in plan.tiers.iter().rev().take(MAX_PARTS).rev() {
        let metric = |name: &str| format!("{}.{name}", tier.name);
        columns.push(Column::new(&format!("{} load", tier.name), metric("sends_over_capacity"), Shown::Percent));
    }
    columns.push(Column::new("recovered (s)", "recovered_after", Shown::Recovery));
    columns
}

fn of_quota(plan: &quota::Plan) -> Vec<Column> {
    let refused = plan.sources.iter().take(MAX_PARTS).map(|source| {
        Column::new(&format!("{} refused", source.name), format!("{}.refused_share", source.name), Shown::Percent)
    });
    let used = plan.customers.iter().take(MAX_PARTS).map(|customer| {
        Column::new(&format!("{} used", customer.name), format!("{}.used_of_limit", customer.name), Shown::Percent)
    });
    refused.chain(used).collect()
}

fn of_probes(plan: &probes::Plan) -> Vec<Column> {
    let mut columns = vec![
        Column::new("datagrams/s", "datagrams_per_second", Shown::Number),
        Column::new("checks/s", "checks_per_second", Shown::Number),
        Column::new("inactive", "inactive_share", Shown::Percent),
        Column::new("wrong", "wrong_states", Shown::Number),
    ];
    if plan.has_lame_duck() {
        columns.push(Column::new("all know", "known_last", Shown::Latency(f64::INFINITY)));
    }
    columns
}

fn of_spill(plan: &spill::Plan) -> Vec<Column> {
    let mut columns = vec![
        Column::new("served", "served_share", Shown::Percent),
        Column::new("shed", "shed_share", Shown::Percent),
        Column::new("failed", "failed_share", Shown::Percent),
    ];
    for locality in plan.localities.iter().take(MAX_PARTS) {
        let metric = format!("{}.utilization", locality.name);
        columns.push(Column::new(&format!("{} load", locality.name), metric, Shown::Percent));
    }
    columns
}

/// Phases, or the whole run where there are none; in each all arms. The first window is the whole run.
fn by_phase(summary: &Summary, arms: Vec<&str>, windows: &[Window], columns: &[Column]) -> Table {
    let windows = if windows.len() > 1 { &windows[1..] } else { windows };
    let mut headings = vec!["arm".to_owned()];
    if windows[0].name.is_some() {
        headings.insert(0, "phase".to_owned());
    }
    let names = headings.len();
    headings.extend(columns.iter().map(|column| column.heading.clone()));
    let row = |window: &Window, arm: &str| {
        let (phase, prefix) = (window.name.as_deref(), window.prefix(arm));
        let length = window.to.saturating_sub(window.begins).as_secs_f64();
        let cell = |column: &Column| {
            let metric = format!("{prefix}.{}", column.metric);
            match (column.shown, summary.metrics.get(&metric)) {
                (Shown::Recovery, Some(after)) if *after >= length - 1e-6 => "never".to_owned(),
                _ => shown(summary, &metric, column.shown),
            }
        };
        phase.into_iter().chain([arm]).map(str::to_owned).chain(columns.iter().map(cell)).collect()
    };
    let rows = windows.iter().flat_map(|window| arms.iter().map(|arm| row(window, arm))).collect();
    Table { headings, names, rows }
}

/// Rows of the file, in each all algorithms.
fn of_subset(summary: &Summary, plan: &subset::Plan) -> Table {
    let columns = [
        Column::new("least/mean", "least_over_mean", Shown::Number),
        Column::new("most/mean", "most_over_mean", Shown::Number),
        Column::new("unused", "without", Shown::Number),
        Column::new("moved", "churn_add_backend", Shown::Percent),
    ];
    let rows = plan.rows.iter().flat_map(|fleet| {
        plan.arms.iter().map(|arm| {
            let cell = |column: &Column| {
                shown(summary, &format!("{}.{}.{}", arm.name, fleet.name(), column.metric), column.shown)
            };
            [fleet.name(), arm.name.clone()].into_iter().chain(columns.iter().map(cell)).collect()
        })
    });
    let headings = ["fleet", "arm"].map(str::to_owned).into_iter();
    Table {
        headings: headings.chain(columns.iter().map(|column| column.heading.clone())).collect(),
        names: 2,
        rows: rows.collect(),
    }
}

/// Whether a metric is the least or greatest value of another one over several seeds.
fn is_extreme(summary: &Summary, name: &str) -> bool {
    let plain = EXTREMES.iter().find_map(|end| name.strip_suffix(end));
    summary.seeds.len() > 1 && plain.is_some_and(|plain| summary.metrics.contains_key(plain))
}

/// The overview with a line below each row: the lowest and the highest value over several seeds. A line without a
/// difference is left out.
#[must_use]
pub fn overview_with_spread(scenario: &Scenario, summary: &Summary) -> Option<Table> {
    let mut means = overview(scenario, summary)?;
    if summary.seeds.len() == 1 {
        return Some(means);
    }
    let [least, greatest] = EXTREMES.map(|end| overview(scenario, &of_extreme(summary, end)));
    let (least, greatest) = (least?.rows, greatest?.rows);
    let rows = std::mem::take(&mut means.rows);
    for ((row, least), greatest) in rows.into_iter().zip(least).zip(greatest) {
        let spread = |column: usize| {
            let (low, high) = (&least[column], &greatest[column]);
            let is_name = column < means.names;
            // One "%" is enough: lines of a terminal are 80 characters wide.
            let low = if high.ends_with('%') { low.trim_end_matches('%') } else { low };
            if is_name || low == high.trim_end_matches('%') { String::new() } else { format!("{low}-{high}") }
        };
        let mut line: Vec<String> = (0..row.len()).map(spread).collect();
        means.rows.push(row);
        if line.iter().any(|cell| !cell.is_empty()) {
            line[means.names - 1] = SPREAD.to_owned();
            means.rows.push(line);
        }
    }
    Some(means)
}

/// Names the line of the lowest and highest values.
pub(super) const SPREAD: &str = "  min-max";

/// The summary with the lowest, or the highest, value of each metric in place of its mean.
fn of_extreme(summary: &Summary, end: &str) -> Summary {
    let mut of_extreme = summary.clone();
    for (name, value) in &mut of_extreme.metrics {
        if let Some(extreme) = summary.metrics.get(&format!("{name}{end}")) {
            *value = *extreme;
        }
    }
    of_extreme
}

fn table<const N: usize>(headings: [&str; N], rows: Vec<Vec<String>>) -> Table {
    Table { headings: headings.map(str::to_owned).to_vec(), names: N, rows }
}

/// Every metric with its unit; of several seeds with the least and the greatest value beside the mean.
#[must_use]
pub fn all_metrics(summary: &Summary) -> Table {
    let value = |name: &str| summary.metrics.get(name).copied().map(short).unwrap_or_default();
    let names = summary.metrics.keys().filter(|name| !is_extreme(summary, name));
    if summary.seeds.len() == 1 {
        let rows = names.map(|name| vec![name.clone(), value(name), unit(name).to_owned()]);
        return table(["metric", "value", "unit"], rows.collect());
    }
    let rows = names.map(|name| {
        let [least, greatest] = EXTREMES.map(|end| value(&format!("{name}{end}")));
        vec![name.clone(), value(name), least, greatest, unit(name).to_owned()]
    });
    table(["metric", "mean", "min", "max", "unit"], rows.collect())
}

/// A dash where nothing was there to be measured.
fn shown(summary: &Summary, metric: &str, how: Shown) -> String {
    let Some(value) = summary.metrics.get(metric).copied() else { return "-".to_owned() };
    match how {
        Shown::Latency(timeout) if value >= timeout => "timeout".to_owned(),
        Shown::Latency(_) if value >= 100.0 => format!("{value:.0}"),
        Shown::Latency(_) => format!("{value:.1}"),
        Shown::Percent => percent(value),
        Shown::Number | Shown::Recovery if value.abs() >= 100.0 => format!("{value:.0}"),
        Shown::Number | Shown::Recovery => format!("{value:.2}"),
    }
}

/// A share in percent. A small share is told apart from none, and a few failures from no success.
fn percent(share: f64) -> String {
    match share {
        0.0 => "0%".to_owned(),
        1.0 => "100%".to_owned(),
        _ if share.abs() < 1e-4 => "<0.01%".to_owned(),
        _ if share.abs() < 0.01 => format!("{:.2}%", 100.0 * share),
        _ if share > 0.9995 && share < 1.0 => ">99.9%".to_owned(),
        _ => format!("{:.1}%", 100.0 * share),
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroUsize;

    use super::*;
    use crate::run::run;

    const TWO_PHASES: &str = r#"
name = "mine"
kind = "fleet"
duration = "9s"
warmup = "off"
[requests]
timeout = "100ms"
[[backends]]
count = 2
[[phases]]
name = "calm"
at = "0s"
load = 0.5
[[phases]]
name = "flood"
at = "3s"
load = 4
[[arms]]
name = "a"
policy = "least-loaded"
[[arms]]
name = "b"
policy = "round-robin"
[[checks]]
metric = "a.p99"
low = 0
why = "a number"
"#;

    fn of(text: &str) -> (Table, Summary) {
        let scenario = Scenario::parse("mine.toml", text).unwrap_or_else(|error| panic!("{error}"));
        let summary = run(&scenario, NonZeroUsize::MIN, &|_| {}).unwrap();
        (overview(&scenario, &summary).expect("a fleet has arms"), summary)
    }

    #[test]
    fn overview_has_a_row_for_each_phase_and_arm() {
        let (table, summary) = of(TWO_PHASES);
        let units = ["phase", "arm", "p50 (ms)", "p99 (ms)", "errors", "CPU", "CPU max/mean"];
        assert_eq!(table.headings, units);
        let names: Vec<&[String]> = table.rows.iter().map(|row| &row[..table.names]).collect();
        assert_eq!(names, [["calm", "a"], ["calm", "b"], ["flood", "a"], ["flood", "b"]]);
        assert_eq!(table.rows[0][2], format!("{:.1}", summary.metrics["a.calm.p50"]));
        assert_eq!(table.rows[2][3], "timeout", "of four times the capacity more than one in a hundred is lost");
        assert_eq!(table.rows[3][4], percent(summary.metrics["b.flood.error_share"]));
    }

    const OUTAGE: &str = r#"
name = "outage"
kind = "tiers"
duration = "20s"
warmup = "off"
[[sources]]
name = "users"
rate = 100
[[tiers]]
name = "backend"
capacity = 200
strength = [1, 0]
[[phases]]
name = "before"
at = "0s"
[[phases]]
name = "failed"
at = "10s"
[[arms]]
name = "a"
[[checks]]
metric = "a.requests"
low = 0
why = "a number"
"#;

    #[test]
    fn phase_that_fails_to_its_end_never_recovers() {
        let (table, summary) = of(OUTAGE);
        assert_eq!(table.headings[4], "recovered (s)");
        assert_eq!(table.rows.iter().map(|row| &*row[4]).collect::<Vec<_>>(), ["0.00", "never"]);
        assert_eq!(summary.metrics["a.failed.recovered_after"], 10.0, "the metric stays a number");
    }

    #[test]
    fn overview_of_a_run_without_phases_has_a_row_for_each_arm() {
        let (start, rest) = TWO_PHASES.split_once("[[phases]]").unwrap();
        let (_, arms) = rest.split_once("[[arms]]").unwrap();
        let (table, _) = of(&format!("{start}[[arms]]{arms}"));
        assert_eq!((table.headings[0].as_str(), table.names, table.rows.len()), ("arm", 1, 2));
    }

    #[test]
    fn small_shares_differ_from_none_and_large_ones_from_all() {
        let texts = [0.0, 3e-6, 0.0042, 0.12345, 0.9999, 1.0, 1.5].map(percent);
        assert_eq!(texts, ["0%", "<0.01%", "0.42%", "12.3%", ">99.9%", "100%", "150.0%"]);
    }
}
