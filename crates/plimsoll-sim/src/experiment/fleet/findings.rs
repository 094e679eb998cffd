//! The results of a fleet: metrics by name, and [figures].

use plimsoll_core::spread::{self, Spread};

use super::figures;
use super::measure::{Ending, Sample, Tally};
use super::plan::{Arm, Plan};
use super::script::Script;
use crate::experiment::windows::windows;
use crate::findings::Findings;

/// Stands for an infinite ratio, when a backend got nothing.
const UNBOUNDED_RATIO: f64 = 1e6;

/// The measurements of one arm.
pub(super) struct Measured<'p> {
    pub(super) arm: &'p Arm,
    /// The whole run, then each phase.
    pub(super) tallies: Vec<Tally>,
    pub(super) samples: Vec<Sample>,
    /// The group of each backend.
    pub(super) groups: Vec<u32>,
    pub(super) events: u64,
}

/// The names of all metrics that the plan gives, in order.
#[must_use]
pub fn metric_names(plan: &Plan) -> Vec<String> {
    let windows = windows(&plan.phases, plan.warmup, plan.duration);
    let mut names = Vec::new();
    for arm in &plan.arms {
        let groups = group_names(plan, arm);
        for window in &windows {
            let prefix = window.prefix(&arm.name);
            names.extend(metrics(plan).map(|(name, _)| format!("{prefix}.{name}")));
            for group in &groups {
                names.extend(OF_GROUP.iter().map(|(name, _)| format!("{prefix}.{name}.{group}")));
            }
        }
        names.push(format!("{}.events", arm.name));
    }
    names
}

/// `None` where there is nothing to measure.
type Metric = fn(&Tally) -> Option<f64>;

const METRICS: [(&str, Metric); 22] = [
    ("requests", |tally| Some(tally.arrived as f64)),
    ("error_share", |tally| share(tally, Ending::Answered).map(|answered| 1.0 - answered)),
    ("timeout_share", |tally| share(tally, Ending::TimedOut)),
    ("failure_share", |tally| share(tally, Ending::Failed)),
    ("overloaded_share", |tally| share(tally, Ending::Overloaded)),
    ("no_backend_share", |tally| share(tally, Ending::NoBackend)),
    ("p50", |tally| quantile(tally, 0.5)),
    ("p90", |tally| quantile(tally, 0.9)),
    ("p99", |tally| quantile(tally, 0.99)),
    ("p99.9", |tally| quantile(tally, 0.999)),
    ("mean_latency", |tally| (!tally.latency.is_empty()).then(|| tally.latency.mean() / 1e3)),
    ("cpu", |tally| is_used(tally).then(|| mean(&loads(tally)))?),
    ("max_over_mean", |tally| Some(cpu_spread(tally)?.max_over_mean)),
    ("max_over_min", |tally| Some(cpu_spread(tally)?.max_over_min.min(UNBOUNDED_RATIO))),
    ("waste", |tally| Some(cpu_spread(tally)?.waste)),
    ("requests_max_over_mean", |tally| Some(received_spread(tally)?.max_over_mean)),
    ("requests_max_over_min", |tally| Some(received_spread(tally)?.max_over_min.min(UNBOUNDED_RATIO))),
    ("in_flight_p50", |tally| in_flight(tally, 0.5)),
    ("in_flight_p99", |tally| in_flight(tally, 0.99)),
    ("attempts_per_request", |tally| ratio(tally.offers as f64, tally.arrived as f64)),
    ("probes_per_request", |tally| ratio(tally.probes as f64, tally.arrived as f64)),
    ("answered_per_second", |tally| Some(share(tally, Ending::Answered)? * tally.arrived as f64 / tally.seconds)),
];

/// Metrics of plans whose requests have keys.
const OF_KEYS: [(&str, Metric); 3] = [
    ("peak_over_mean", |tally| (tally.keyed.peak > 0.0).then_some(tally.keyed.peak)),
    ("overflow_share", |tally| ratio(tally.keyed.overflow as f64, tally.keyed.picks as f64)),
    ("stray_share", |tally| ratio(tally.keyed.strays as f64, tally.keyed.picks as f64)),
];

/// The metrics of a plan but those of groups.
fn metrics(plan: &Plan) -> impl Iterator<Item = (&'static str, Metric)> {
    METRICS.into_iter().chain(OF_KEYS.into_iter().filter(|_| plan.requests.keys.is_some()))
}

/// Given the group of each backend, and a group.
type OfGroup = fn(&Tally, &[u32], u32) -> Option<f64>;

/// Metrics of each group of backends: `METRIC.GROUP`. No phase may have such a name.
const OF_GROUP: [(&str, OfGroup); 3] = [("share", group_share), ("cpu", group_cpu), ("p99", group_p99)];

/// Whether this is the name of a metric of groups.
pub(crate) fn is_group_metric(name: &str) -> bool {
    OF_GROUP.iter().any(|(metric, _)| *metric == name)
}

/// Puts metrics and figures together.
pub(super) fn findings(plan: &Plan, measured: &[Measured<'_>]) -> Findings {
    let mut findings = Findings::default();
    let windows = windows(&plan.phases, plan.warmup, plan.duration);
    for of in measured {
        let names = group_names(plan, of.arm);
        for (window, tally) in windows.iter().zip(&of.tallies) {
            let prefix = window.prefix(&of.arm.name);
            for (name, metric) in metrics(plan) {
                findings.metric(format!("{prefix}.{name}"), metric(tally));
            }
            for (group, name) in (0_u32..).zip(&names) {
                for (metric, of_group) in OF_GROUP {
                    findings.metric(format!("{prefix}.{metric}.{name}"), of_group(tally, &of.groups, group));
                }
            }
        }
        findings.metric(format!("{}.events", of.arm.name), of.events as f64);
    }
    findings.figures = figures::figures(plan, measured);
    findings
}

pub(super) fn group_names(plan: &Plan, arm: &Arm) -> Vec<String> {
    Script::new(plan, arm).groups.iter().map(|group| group.name.clone()).collect()
}

pub(super) fn ratio(part: f64, whole: f64) -> Option<f64> {
    (whole > 0.0).then(|| part / whole)
}

fn mean(values: &[f64]) -> Option<f64> {
    ratio(values.iter().sum(), values.len() as f64)
}

/// Share of the requests sent that went to a group of backends.
pub(super) fn group_share(tally: &Tally, groups: &[u32], group: u32) -> Option<f64> {
    let all: u64 = tally.used.iter().map(|used| used.received).sum();
    let of_group = tally.used.iter().zip(groups).filter(|(_, its)| **its == group);
    let received: u64 = of_group.map(|(used, _)| used.received).sum();
    ratio(received as f64, all as f64)
}

/// CPU used over CPU provisioned, mean of the group's backends.
pub(super) fn group_cpu(tally: &Tally, groups: &[u32], group: u32) -> Option<f64> {
    let of_group = tally.used.iter().zip(groups).filter(|(_, its)| **its == group);
    let loads: Vec<f64> = of_group.filter_map(|(used, _)| used.load()).collect();
    is_used(tally).then(|| mean(&loads))?
}

/// 99th percentile of latency in ms, of requests with their last attempt at the group.
pub(super) fn group_p99(tally: &Tally, _: &[u32], group: u32) -> Option<f64> {
    let latency = tally.latency_by_group.get(group as usize).filter(|latency| !latency.is_empty())?;
    Some(latency.value_at_quantile(0.99).min(tally.longest) as f64 / 1e3)
}

/// Share of the requests with this ending.
pub(super) fn share(tally: &Tally, ending: Ending) -> Option<f64> {
    ratio(tally.ended[ending as usize] as f64, tally.arrived as f64)
}

/// Milliseconds. The largest recorded value bounds the rounding of the histogram.
pub(super) fn quantile(tally: &Tally, quantile: f64) -> Option<f64> {
    let micros = || tally.latency.value_at_quantile(quantile).min(tally.longest);
    (!tally.latency.is_empty()).then(|| micros() as f64 / 1e3)
}

/// Requests in flight at a backend.
pub(super) fn in_flight(tally: &Tally, quantile: f64) -> Option<f64> {
    (is_used(tally) && !tally.in_flight.is_empty()).then(|| tally.in_flight.value_at_quantile(quantile) as f64)
}

/// Whether there was any request or CPU usage. An idle fleet without requests means nothing.
fn is_used(tally: &Tally) -> bool {
    tally.arrived > 0 || loads(tally).iter().any(|load| *load > 0.0)
}

pub(super) fn loads(tally: &Tally) -> Vec<f64> {
    tally.used.iter().filter_map(|used| used.load()).collect()
}

fn cpu_spread(tally: &Tally) -> Option<Spread> {
    spread::of(loads(tally))
}

fn received_spread(tally: &Tally) -> Option<Spread> {
    let up = tally.used.iter().filter(|used| used.provided > 0.0);
    spread::of(up.map(|used| used.received as f64))
}
