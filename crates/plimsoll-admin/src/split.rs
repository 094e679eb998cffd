//! Splits of routes over clusters, and mirrors: the verdict on each canary, and the fate of copies.

use std::time::{SystemTime, UNIX_EPOCH};

use plimsoll_core::canary::{Metric, MetricReport, Report};
use serde::Serialize;

/// The split of one route.
#[derive(Clone, Debug)]
pub struct SplitSnapshot {
    /// The route, with its listeners if it names some.
    pub route: String,
    /// The fact that keeps users on one side; `None` for nothing.
    pub by: Option<String>,
    /// The beginning of the comparison.
    pub since: SystemTime,
    /// The main version, then the others.
    pub sides: Vec<SideSnapshot>,
    /// The comparison of each side but the first with the first one.
    pub comparisons: Vec<Report>,
}

/// One side of a split.
#[derive(Clone, Debug, Serialize)]
pub struct SideSnapshot {
    /// Its cluster.
    pub cluster: String,
    /// Its weight.
    pub weight: f64,
    /// Its share of the requests, in [0, 1].
    pub share: f64,
    /// Requests that it has finished since the process began.
    pub requests: u64,
    /// Failed requests among them.
    pub failures: u64,
    /// Requests of this side that another one served, because it had no backend for them.
    pub fallbacks: u64,
    /// An operator drained all its backends: the comparison waits.
    #[serde(rename = "drained")]
    pub is_drained: bool,
}

/// The mirror of one route.
#[derive(Clone, Debug, Serialize)]
pub struct MirrorSnapshot {
    /// The route, with its listeners if it names some.
    pub route: String,
    /// The cluster that gets the copies.
    pub cluster: String,
    /// Copies in flight.
    pub active: u32,
    /// Copied requests, and those that were not copied, by result.
    #[serde(serialize_with = "crate::split::as_map")]
    pub requests: Vec<(&'static str, u64)>,
}

fn as_map<S: serde::Serializer>(counts: &[(&'static str, u64)], to: S) -> Result<S::Ok, S::Error> {
    to.collect_map(counts.iter().copied())
}

/// A split as the API has it.
#[derive(Serialize)]
pub(crate) struct SplitView<'s> {
    route: &'s str,
    by: Option<&'s str>,
    /// The beginning of the comparison, in seconds of Unix time.
    since: f64,
    sides: &'s [SideSnapshot],
    comparisons: Vec<ComparisonView<'s>>,
}

/// The comparison of one canary with the main version.
#[derive(Serialize)]
struct ComparisonView<'s> {
    main: &'s str,
    canary: &'s str,
    verdict: &'static str,
    /// Requests of both sides when the verdict was reached.
    reached_at_requests: Option<u64>,
    /// Estimate of the requests of the canary that an undecided verdict still needs.
    needed_requests: Option<u64>,
    main_requests: u64,
    canary_requests: u64,
    metrics: Vec<MetricView>,
}

/// One metric of both sides; `null` while it is unknown.
#[derive(Serialize)]
struct MetricView {
    metric: &'static str,
    finding: &'static str,
    main: Option<f64>,
    canary: Option<f64>,
    difference: Option<f64>,
    low: Option<f64>,
    high: Option<f64>,
    needed_requests: Option<u64>,
}

impl<'s> SplitView<'s> {
    pub(crate) fn of(split: &'s SplitSnapshot) -> Self {
        let canaries = split.sides.iter().skip(1).zip(&split.comparisons);
        let main = split.sides.first().map_or("", |side| side.cluster.as_str());
        Self {
            route: &split.route,
            by: split.by.as_deref(),
            since: split.since.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64(),
            sides: &split.sides,
            comparisons: canaries.map(|(side, report)| ComparisonView::of(main, &side.cluster, report)).collect(),
        }
    }
}

impl<'s> ComparisonView<'s> {
    fn of(main: &'s str, canary: &'s str, report: &Report) -> Self {
        let [main_requests, canary_requests] = report.requests;
        Self {
            main,
            canary,
            verdict: report.verdict.name(),
            reached_at_requests: report.reached_at,
            needed_requests: report.needed,
            main_requests,
            canary_requests,
            metrics: Metric::ALL
                .into_iter()
                .zip(&report.metrics)
                .map(|(metric, it)| MetricView::of(metric, it))
                .collect(),
        }
    }
}

impl MetricView {
    fn of(metric: Metric, report: &MetricReport) -> Self {
        let known = |value: f64| value.is_finite().then_some(value);
        Self {
            metric: metric.name(),
            finding: report.finding.name(),
            main: known(report.main),
            canary: known(report.canary),
            difference: known(report.difference),
            low: known(report.low),
            high: known(report.high),
            needed_requests: report.finding.needed(),
        }
    }
}
