//! The unit of each metric.
//!
//! A metric's name says its unit only to readers who know the documentation. Lists for people
//! therefore carry the unit in a column; JSON does not, so that programs read plain numbers. A test
//! looks up every metric of every scenario that comes with the binary.

use crate::scenario::EXTREMES;

/// Metrics by the last part of their names, with their units.
const UNITS: [(&str, &[&str]); 17] = [
    (
        "ms",
        &[
            "p50",
            "p90",
            "p99",
            "known_p50",
            "known_p99",
            "known_last",
            "probing_p99",
            "probing_last",
            "mean_latency",
            "delay_max",
            "settled_after",
        ],
    ),
    ("s", &["last", "recovered_after", "resumed_after"]),
    ("CPU-s", &["most_in_a_second"]),
    (
        "1/s",
        &[
            "answered_per_second",
            "useful_per_second",
            "shed_per_second",
            "late_per_second",
            "sends_per_client",
            "reports_per_task_second",
            "assignments_per_task_second",
            "entries_per_second",
            "datagrams_per_second",
            "checks_per_second",
        ],
    ),
    ("per message", &["entries_per_report", "entries_per_assignment"]),
    (
        "share",
        &[
            "error_share",
            "timeout_share",
            "failure_share",
            "overloaded_share",
            "no_backend_share",
            "useful_share",
            "shed_share",
            "late_share",
            "cancelled_share",
            "hopeless_share",
            "requests_shed_share",
            "rejected_share",
            "held_share",
            "served_share",
            "failed_share",
            "refused_share",
            "refused_below_limit",
            "held_over_limit_share",
            "even_share",
            "share",
            "cpu",
            "least_busy",
            "goodput",
            "utilization",
            "utilization_max",
            "utilization_min",
            "diversity",
            "takers",
            "churn_add_backend",
            "churn_remove_backend",
            "churn_add_client",
            "churn_remove_client",
            "published_least_rank",
            "published_most_rank",
            "inactive_share",
            "probing_share",
            "overflow_share",
            "stray_share",
            "right_share",
            "cpu_difference",
            "errors_difference",
            "latency_difference",
        ],
    ),
    (
        "ratio",
        &[
            "max_over_mean",
            "peak_over_mean",
            "max_over_min",
            "requests_max_over_mean",
            "requests_max_over_min",
            "sends_over_capacity",
            "accepted_over_capacity",
            "least_over_mean",
            "most_over_mean",
            "offered_of_limit",
            "used_of_limit",
            "used_of_limit_max",
            "used_of_limit_when_over",
            "held_of_limit",
            "held_of_limit_max",
            "replaced_most_over_mean",
            "unreplaced_most_over_mean",
        ],
    ),
    ("requests", &["requests", "in_flight_p50", "in_flight_p99", "in_progress_max", "idle_picked"]),
    ("tasks", &["tasks"]),
    ("connections", &["least", "most", "spread", "excess_add_backend", "excess_remove_backend"]),
    ("backends", &["waste", "without", "twice", "backends", "whole"]),
    ("per request", &["attempts_per_request", "probes_per_request"]),
    ("events", &["events"]),
    ("probes", &["probes"]),
    ("datagrams", &["burst"]),
    ("per client", &["notices_per_client"]),
    ("states", &["wrong_states", "silenced"]),
];

/// Quantiles over the draws of a subset experiment, as parts of metric names.
const OF_DRAWS: [&str; 3] = ["_p5", "_p50", "_p95"];

/// The unit of a metric, by its name; empty for a metric that is not known.
#[must_use]
pub fn unit(metric: &str) -> &'static str {
    let metric = EXTREMES.iter().find_map(|end| metric.strip_suffix(end)).unwrap_or(metric);
    if metric.ends_with(".p99.9") {
        return "ms";
    }
    // Of a group of backends, whose name comes last.
    if metric.contains(".share.") || metric.contains(".cpu.") {
        return "share";
    }
    if metric.contains(".p99.") {
        return "ms";
    }
    if metric.starts_with("throttle.") {
        return "probability";
    }
    if metric.ends_with(".requests_per_task") {
        return "per task";
    }
    let last = metric.rsplit('.').next().unwrap_or(metric);
    let find = |name: &str| UNITS.iter().find(|(_, names)| names.contains(&name)).map(|(unit, _)| *unit);
    let of_draws = || OF_DRAWS.iter().find_map(|end| find(last.strip_suffix(end)?));
    find(last).or_else(of_draws).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::built_in;

    #[test]
    fn every_metric_of_the_shipped_scenarios_has_a_unit() {
        let mut seen = 0;
        for scenario in built_in() {
            for metric in scenario.experiment.metrics() {
                assert_ne!(unit(&metric), "", "{}: {metric}", scenario.name);
                seen += 1;
            }
        }
        assert!(seen > 1_000, "only {seen} metrics looked up");
    }

    #[test]
    fn unit_of_an_extreme_is_that_of_its_metric() {
        assert_eq!(unit("weighted.zone-lost.p99.9.max"), "ms");
        assert_eq!(unit("weighted.share.zone-a.min"), "share");
        assert_eq!(unit("weighted.peak.cpu.zone-a.max"), "share");
        assert_eq!(unit("weighted.peak.p99.zone-a"), "ms");
        assert_eq!(unit("random.300x300x30.least_over_mean_p5"), "ratio");
        assert_eq!(unit("weighted.unheard-of"), "");
    }
}
