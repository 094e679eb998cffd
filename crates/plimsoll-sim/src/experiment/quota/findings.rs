//! The metrics of a quota experiment.

use super::measure::{Cpu, Measure, Tally};
use super::plan::Plan;
use super::{Measured, figures};
use crate::experiment::counts::ratio;
use crate::experiment::windows::{Window, windows};
use crate::findings::Findings;

/// The names of all metrics that the plan gives.
#[must_use]
pub fn metric_names(plan: &Plan) -> Vec<String> {
    let mut names = Vec::new();
    for arm in &plan.arms {
        for window in windows(&plan.phases, plan.warmup, plan.duration) {
            let prefix = window.prefix(&arm.name);
            for source in &plan.sources {
                names.extend(OF_REQUESTS.iter().map(|(name, _)| format!("{prefix}.{}.{name}", source.name)));
            }
            for customer in &plan.customers {
                names.extend(OF_CUSTOMER.iter().map(|name| format!("{prefix}.{}.{name}", customer.name)));
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
        let Measure { course, requests, cpu, .. } = &of.measure;
        for (at, window) in course.windows.iter().enumerate() {
            let prefix = window.prefix(&of.arm.name);
            for (source, tally) in plan.sources.iter().zip(&requests.by_window[at]) {
                for (name, metric) in OF_REQUESTS {
                    findings.metric(format!("{prefix}.{}.{name}", source.name), metric(tally));
                }
            }
            for (i, customer) in plan.customers.iter().enumerate() {
                let metrics = of_customer(&of.measure, window, i, cpu.by_window[at][i], customer.limit);
                for (name, metric) in OF_CUSTOMER.iter().zip(metrics) {
                    findings.metric(format!("{prefix}.{}.{name}", customer.name), metric);
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

/// Metrics of the requests of one source.
const OF_REQUESTS: [(&str, OfRequests); 2] =
    [("requests", |tally| Some(tally.arrived as f64)), ("refused_share", |tally| ratio(tally.refused, tally.arrived))];

/// Metrics of a customer, over its limit.
const OF_CUSTOMER: [&str; 3] = ["offered_of_limit", "used_of_limit", "used_of_limit_max"];

fn of_customer(measure: &Measure, window: &Window, customer: usize, cpu: Cpu, limit: f64) -> [Option<f64>; 3] {
    let is_asked = cpu.offered > 0.0;
    let over = |cpu: f64| is_asked.then(|| cpu / 1e6 / window.seconds() / limit);
    let highest = measure.highest(window, customer).filter(|_| is_asked);
    [over(cpu.offered), over(cpu.used), highest.map(|highest| highest / limit)]
}
