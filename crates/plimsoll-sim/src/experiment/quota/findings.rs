//! The metrics of a quota experiment.

use super::customers_use::{joint, of_customer, of_entry, of_joint};
use super::measure::{Measure, Tally};
use super::messages::Messages;
use super::plan::{Plan, Rule};
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
            for source in &plan.sources {
                names.extend(OF_REQUESTS.iter().map(|(name, _)| format!("{prefix}.{}.{name}", source.name)));
            }
            for customer in &plan.customers {
                names.extend(
                    of_customer(customer, arm.rule).map(|(name, _)| format!("{prefix}.{}.{name}", customer.name)),
                );
            }
            for group in &plan.groups {
                names.extend(of_joint(arm.rule).map(|(name, _)| format!("{prefix}.{}.{name}", group.name)));
            }
            names.extend(of_messages(arm.rule).map(|(name, _)| format!("{prefix}.{name}")));
        }
        names.push(format!("{}.events", arm.name));
    }
    names
}

/// Puts metrics and figures together.
pub(super) fn findings(plan: &Plan, measured: &[Measured<'_>]) -> Findings {
    let mut findings = Findings::default();
    for of in measured {
        let Measure { course, requests, messages, .. } = &of.measure;
        for (at, window) in course.windows.iter().enumerate() {
            let prefix = window.prefix(&of.arm.name);
            for (source, tally) in plan.sources.iter().zip(&requests.by_window[at]) {
                for (name, metric) in OF_REQUESTS {
                    findings.metric(format!("{prefix}.{}.{name}", source.name), metric(tally));
                }
            }
            for (place, customer) in plan.customers.iter().enumerate() {
                let Some(group) = of_entry(&of.measure, at, window, place) else { continue };
                for (name, metric) in of_customer(customer, of.arm.rule) {
                    findings.metric(format!("{prefix}.{}.{name}", customer.name), metric(&group));
                }
            }
            for (place, group) in plan.groups.iter().enumerate() {
                let Some(of_group) = joint(&of.measure, at, window, place) else { continue };
                for (name, metric) in of_joint(of.arm.rule) {
                    findings.metric(format!("{prefix}.{}.{name}", group.name), metric(&of_group));
                }
            }
            let rate = f64::from(plan.tasks.get()) * window.seconds();
            let is_asked = requests.by_window[at].iter().any(|tally| tally.arrived > 0);
            for (name, metric) in of_messages(of.arm.rule).filter(|_| is_asked) {
                findings.metric(format!("{prefix}.{name}"), metric(&messages.by_window[at][0], rate));
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

/// Of messages, and the tasks times seconds of the window.
type OfMessages = fn(&Messages, f64) -> Option<f64>;

/// Metrics of messages.
const OF_MESSAGES: [(&str, OfMessages); 4] = [
    ("reports_per_task_second", |messages, rate| Some(messages.reports as f64 / rate)),
    ("assignments_per_task_second", |messages, rate| Some(messages.assignments as f64 / rate)),
    ("entries_per_report", |messages, _| ratio(messages.reported, messages.reports)),
    ("entries_per_assignment", |messages, _| ratio(messages.assigned, messages.assignments)),
];

fn of_messages(rule: Rule) -> impl Iterator<Item = (&'static str, OfMessages)> {
    OF_MESSAGES.into_iter().filter(move |_| has_messages(rule))
}

/// Whether tasks send messages that are counted.
pub(super) const fn has_messages(rule: Rule) -> bool {
    matches!(rule, Rule::Leases { .. } | Rule::Doorman { .. })
}
