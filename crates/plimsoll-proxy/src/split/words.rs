//! Differences in words, for logs and for the command line.

use plimsoll_core::canary::{Finding, Metric, MetricReport, Report};

/// The difference of a metric and its interval: `CPU per request +10.2% (+7.1% to +13.4%)`. `None`
/// while there is no estimate.
#[must_use]
pub fn difference(metric: Metric, report: &MetricReport) -> Option<String> {
    if !report.is_known() {
        return None;
    }
    let unit = if metric.is_share() { " points" } else { "%" };
    let number = |value: f64| {
        if value.is_finite() { format!("{:+.1}{unit}", 100.0 * value) } else { "unknown".to_owned() }
    };
    let MetricReport { difference, low, high, .. } = *report;
    Some(format!("{} {} ({} to {})", metric.words(), number(difference), number(low), number(high)))
}

/// The metrics that decided: all that are worse or better; all metrics, if none is.
#[must_use]
pub fn worst(report: &Report) -> String {
    let all = || Metric::ALL.into_iter().zip(&report.metrics);
    let texts = |wanted: Option<Finding>| -> Vec<String> {
        let is_wanted = |(_, metric): &(Metric, &MetricReport)| wanted.is_none_or(|wanted| metric.finding == wanted);
        all().filter(is_wanted).filter_map(|(metric, report)| difference(metric, report)).collect()
    };
    let decided = [Finding::Worse, Finding::Better].map(|finding| texts(Some(finding)));
    let texts = decided.into_iter().find(|texts| !texts.is_empty()).unwrap_or_else(|| texts(None));
    texts.join(", ")
}
