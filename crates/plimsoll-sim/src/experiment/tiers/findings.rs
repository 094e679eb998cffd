//! The metrics of an experiment with tiers.

use super::measure::{Measure, Sent, Tally};
use super::plan::{Plan, Tier};
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
            names.extend(OF_ALL.iter().map(|(name, _)| format!("{prefix}.{name}")));
            names.extend(OF_REQUESTS.iter().map(|(name, _)| format!("{prefix}.{name}")));
            for source in &plan.sources {
                names.extend(OF_REQUESTS.iter().map(|(name, _)| format!("{prefix}.{}.{name}", source.name)));
            }
            for tier in &plan.tiers {
                names.extend(OF_TIER.iter().map(|(name, _)| format!("{prefix}.{}.{name}", tier.name)));
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
        let Measure { course, requests, sent } = &of.measure;
        let (tallies, sent) = (&requests.by_window, &sent.by_window);
        for (i, window) in course.windows.iter().enumerate() {
            let prefix = window.prefix(&of.arm.name);
            let all = sum(&tallies[i]);
            let whole = Whole { of, window, first: &sent[i][0] };
            for (name, metric) in OF_ALL {
                findings.metric(format!("{prefix}.{name}"), metric(&whole));
            }
            for (name, metric) in OF_REQUESTS {
                findings.metric(format!("{prefix}.{name}"), metric(&all, window.seconds()));
                for (source, tally) in plan.sources.iter().zip(&tallies[i]) {
                    findings.metric(format!("{prefix}.{}.{name}", source.name), metric(tally, window.seconds()));
                }
            }
            for (tier, sent) in plan.tiers.iter().zip(&sent[i]) {
                // The whole run has no strength of a phase.
                let capacity = capacity(tier, i.checked_sub(1)) * window.seconds();
                for (name, metric) in OF_TIER {
                    findings.metric(format!("{prefix}.{}.{name}", tier.name), metric(sent, all.arrived, capacity));
                }
            }
        }
        findings.metric(format!("{}.events", of.arm.name), of.events as f64);
    }
    findings.figures = figures::figures(plan, measured);
    findings
}

/// Requests per second that a tier can serve in a phase. At a strength of 0, those that it can
/// serve at a strength of 1: a ratio to nothing would say nothing.
pub(super) fn capacity(tier: &Tier, phase: Option<usize>) -> f64 {
    let strength = phase.and_then(|phase| tier.strength.get(phase)).copied().unwrap_or(1.0);
    tier.capacity * if strength > 0.0 { strength } else { 1.0 }
}

pub(super) fn sum(tallies: &[Tally]) -> Tally {
    tallies.iter().fold(Tally::default(), |sum, tally| Tally {
        arrived: sum.arrived + tally.arrived,
        useful: sum.useful + tally.useful,
    })
}

/// Whether there was any request. A tier without users measures nothing.
fn any(sent: &Sent, arrived: u64) -> bool {
    arrived > 0 || sent.asked > 0
}

/// One part of the run.
struct Whole<'m> {
    of: &'m Measured<'m>,
    window: &'m Window,
    /// The attempts at the first tier.
    first: &'m Sent,
}

// `None` where there is nothing to measure.
type OfAll = fn(&Whole<'_>) -> Option<f64>;
type OfRequests = fn(&Tally, f64) -> Option<f64>;
type OfTier = fn(&Sent, u64, f64) -> Option<f64>;

/// Metrics of a whole window.
const OF_ALL: [(&str, OfAll); 2] = [
    ("sends_per_client", |of| {
        (of.first.asked > 0).then(|| of.first.sent() as f64 / of.window.seconds() / of.of.clients)
    }),
    ("recovered_after", |of| of.of.measure.recovered_after(of.window)),
];

/// Metrics of the requests of one source, or of all, given the length of the window in seconds.
const OF_REQUESTS: [(&str, OfRequests); 3] = [
    ("requests", |tally, _| Some(tally.arrived as f64)),
    ("useful_share", |tally, _| ratio(tally.useful, tally.arrived)),
    ("useful_per_second", |tally, seconds| (tally.arrived > 0).then(|| tally.useful as f64 / seconds)),
];

/// Metrics of the attempts at one tier, given the number of requests that arrived and the number
/// that it could have served.
const OF_TIER: [(&str, OfTier); 5] = [
    ("sends_over_capacity", |sent, arrived, capacity| any(sent, arrived).then(|| sent.sent() as f64 / capacity)),
    ("accepted_over_capacity", |sent, arrived, capacity| {
        any(sent, arrived).then(|| (sent.sent() - sent.rejected) as f64 / capacity)
    }),
    ("attempts_per_request", |sent, arrived, _| ratio(sent.sent(), arrived)),
    ("rejected_share", |sent, _, _| ratio(sent.rejected, sent.sent())),
    ("held_share", |sent, _, _| ratio(sent.held, sent.asked)),
];
