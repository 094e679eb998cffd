//! The metrics of a spill experiment.

use super::measure::{Got, Measure, Tally};
use super::plan::Plan;
use super::{Measured, figures};
use crate::experiment::counts::ratio;
use crate::experiment::windows::windows;
use crate::findings::Findings;

/// The names of all metrics that the plan gives.
#[must_use]
pub fn metric_names(plan: &Plan) -> Vec<String> {
    let mut names = Vec::new();
    for arm in &plan.arms {
        for window in windows(&plan.phases, plan.warmup, plan.duration) {
            let prefix = window.prefix(&arm.name);
            names.extend(OF_REQUESTS.iter().map(|(name, _)| format!("{prefix}.{name}")));
            for source in &plan.sources {
                names.extend(OF_REQUESTS.iter().map(|(name, _)| format!("{prefix}.{}.{name}", source.name)));
            }
            for site in &plan.localities {
                names.extend(OF_LOCALITY.iter().map(|(name, _)| format!("{prefix}.{}.{name}", site.name)));
            }
        }
        names.push(format!("{}.events", arm.name));
    }
    names
}

/// Puts metrics and figures together.
pub(super) fn findings(plan: &Plan, measured: &[Measured<'_>]) -> Findings {
    let mut findings = Findings::default();
    for of in measured {
        let Measure { course, requests, .. } = &of.measure;
        for (window, tallies) in course.windows.iter().zip(&requests.by_window) {
            let prefix = window.prefix(&of.arm.name);
            let all = tallies.iter().fold(Tally::default(), |sum, tally| Tally {
                arrived: sum.arrived + tally.arrived,
                shed: sum.shed + tally.shed,
                failed: sum.failed + tally.failed,
            });
            for (name, metric) in OF_REQUESTS {
                findings.metric(format!("{prefix}.{name}"), metric(&all));
                for (source, tally) in plan.sources.iter().zip(tallies) {
                    findings.metric(format!("{prefix}.{}.{name}", source.name), metric(tally));
                }
            }
            let samples = of.measure.within(window);
            for (i, site) in plan.localities.iter().enumerate() {
                for (name, metric) in OF_LOCALITY {
                    findings.metric(format!("{prefix}.{}.{name}", site.name), metric(samples, i));
                }
            }
        }
        findings.metric(format!("{}.events", of.arm.name), of.events as f64);
    }
    findings.figures = figures::figures(plan, measured);
    findings
}

// `None` where there is nothing to measure.
type OfRequests = fn(&Tally) -> Option<f64>;
type OfLocality = fn(&[Vec<Got>], usize) -> Option<f64>;

/// Metrics of the requests of one source, or of all.
const OF_REQUESTS: [(&str, OfRequests); 4] = [
    ("requests", |tally| Some(tally.arrived as f64)),
    ("served_share", |tally| ratio(tally.arrived - tally.shed - tally.failed, tally.arrived)),
    ("shed_share", |tally| ratio(tally.shed, tally.arrived)),
    ("failed_share", |tally| ratio(tally.failed, tally.arrived)),
];

/// Metrics of one locality.
const OF_LOCALITY: [(&str, OfLocality); 4] = [
    ("share", |samples, place| {
        let sent = samples.iter().map(|sample| sample[place].sent).sum::<u64>();
        ratio(sent, samples.iter().flatten().map(|got| got.sent).sum())
    }),
    ("utilization", |samples, place| Some(loads(samples, place)?.sum::<f64>() / samples.len() as f64)),
    ("utilization_max", |samples, place| loads(samples, place)?.reduce(f64::max)),
    ("utilization_min", |samples, place| loads(samples, place)?.reduce(f64::min)),
];

/// `None` where no requests are sent: an idle locality then means nothing.
fn loads(samples: &[Vec<Got>], place: usize) -> Option<impl Iterator<Item = f64>> {
    let is_used = samples.iter().flatten().any(|got| got.load > 0.0);
    is_used.then(|| samples.iter().map(move |sample| sample[place].load))
}
