//! The metrics of an experiment with probes.

use super::measure::{Knowledge, Measure};
use super::plan::Plan;
use super::{Measured, figures};
use crate::findings::Findings;

type Metric = (&'static str, fn(&Plan, &Measure) -> Option<f64>);

const ALWAYS: [Metric; 9] = [
    ("probes", |_, measure| Some(measure.queries as f64)),
    ("wrong_states", |_, measure| Some(measure.wrong as f64)),
    ("silenced", |_, measure| Some(measure.silenced as f64)),
    ("inactive_share", |_, measure| mean(&measure.inactive)),
    ("datagrams_per_second", |plan, measure| per_second(plan, measure.datagrams)),
    ("checks_per_second", |plan, measure| per_second(plan, measure.checks)),
    ("notices_per_client", |plan, measure| Some(measure.notices as f64 / pairs(plan))),
    ("burst", |_, measure| Some(measure.burst.into())),
    ("resumed_after", |_, measure| measure.resumed.map(|time| time.as_secs_f64())),
];

/// Those of plans with a lame duck. They are missing if a client never knew, so that no check holds.
const OF_LAME_DUCKS: [Metric; 6] = [
    ("known_p50", |_, measure| millis(&measure.probing.with(&measure.others), 0.5)),
    ("known_p99", |_, measure| millis(&measure.probing.with(&measure.others), 0.99)),
    ("known_last", |_, measure| millis(&measure.probing.with(&measure.others), 1.0)),
    ("probing_p99", |_, measure| millis(&measure.probing, 0.99)),
    ("probing_last", |_, measure| millis(&measure.probing, 1.0)),
    ("probing_share", |plan, measure| Some(measure.probing.clients() / pairs(plan))),
];

/// The names of all metrics that the plan gives.
#[must_use]
pub fn metric_names(plan: &Plan) -> Vec<String> {
    let of_arm = |arm: &str| -> Vec<String> {
        let names = metrics(plan).map(|(name, _)| *name).chain(["events"]);
        names.map(|name| format!("{arm}.{name}")).collect()
    };
    plan.arms.iter().flat_map(|arm| of_arm(&arm.name)).collect()
}

/// Puts metrics and figures together.
pub(super) fn findings(plan: &Plan, measured: &[Measured<'_>]) -> Findings {
    let mut findings = Findings::default();
    for of in measured {
        for (name, metric) in metrics(plan) {
            findings.metric(format!("{}.{name}", of.arm.name), metric(plan, &of.measure));
        }
        findings.metric(format!("{}.events", of.arm.name), of.events as f64);
    }
    findings.figures = figures::figures(plan, measured);
    findings
}

fn metrics(plan: &Plan) -> impl Iterator<Item = &'static Metric> + use<> {
    let of_lame_ducks = if plan.has_lame_duck() { &OF_LAME_DUCKS[..] } else { &[] };
    ALWAYS.iter().chain(of_lame_ducks)
}

fn pairs(plan: &Plan) -> f64 {
    f64::from(plan.clients.get()) * f64::from(plan.backends.get())
}

fn per_second(plan: &Plan, count: u64) -> Option<f64> {
    Some(count as f64 / (plan.duration - plan.warmup).as_secs_f64())
}

fn mean(values: &[f64]) -> Option<f64> {
    (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
}

fn millis(of: &Knowledge, share: f64) -> Option<f64> {
    of.quantile(share).map(|time| time.as_secs_f64() * 1e3)
}
