//! The settings of rollouts in a scenario file.
//!
//! The meaning and the default of each setting stand beside the code
//! ([`experiment::rollout::plan`](crate::experiment::rollout::plan)).

use plimsoll_config::{Checker, Table, Visitor, choice, quoted, values};

use super::budget::{MOST_EVENTS, budget};
use super::fleet_check::names;
use super::{Experiment, Kind, Settings};
use crate::experiment::rollout::metric_names;
use crate::experiment::rollout::plan::{Arm, Expected, Plan};

/// Factors of a canary over the main version, and of other numbers that multiply.
const FACTORS: std::ops::RangeInclusive<f64> = 0.01..=100.0;
/// Greatest ratio of costs.
const MOST_COST_RATIO: f64 = 1e6;
/// Highest rate: a request for each nanosecond.
const MOST_RATE: f64 = 1e9;

/// The settings of a plan, at the root of the file.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct RolloutFile(Plan);

impl From<RolloutFile> for Experiment {
    fn from(file: RolloutFile) -> Self {
        Self::Rollout(Box::new(file.0))
    }
}

impl Table for RolloutFile {
    fn settings<V: Visitor>(&mut self, visitor: &mut V) {
        let plan = &mut self.0;
        visitor.value("rate", &mut plan.rate);
        visitor.value("share", &mut plan.share);
        visitor.value("errors", &mut plan.errors);
        visitor.value("cost_ratio", &mut plan.cost_ratio);
        visitor.value("latency", &mut plan.latency);
        visitor.value("swing", &mut plan.swing);
        visitor.value("disturbance", &mut plan.disturbance);
        visitor.value("max_requests", &mut plan.max_requests);
        visitor.tables("arms", &mut plan.arms);
    }
}

impl Table for Arm {
    fn settings<V: Visitor>(&mut self, visitor: &mut V) {
        visitor.required("name", &mut self.name);
        visitor.value("cpu", &mut self.cpu);
        visitor.value("more_errors", &mut self.more_errors);
        visitor.value("latency", &mut self.latency);
        visitor.value("disturbed_for", &mut self.disturbed_for);
        visitor.required("expects", &mut self.expects);
    }
}

values! {
    Expected: |v| choice(v, "a verdict", &Expected::ALL), |expected| {
        quoted(Expected::ALL.into_iter().find(|(_, known)| known == expected).expect("all are listed").0)
    };
}

impl Settings for RolloutFile {
    const KIND: Kind = Kind::Rollout;

    fn check(&mut self, checker: &mut Checker<'_>) {
        let plan = &self.0;
        within(checker, "rate", plan.rate, 1.0, MOST_RATE);
        within(checker, "cost_ratio", plan.cost_ratio, 1.0, MOST_COST_RATIO);
        within(checker, "swing", plan.swing, 1.0, *FACTORS.end());
        within(checker, "disturbance", plan.disturbance, *FACTORS.start(), *FACTORS.end());
        if plan.share.as_f64() <= 0.0 || plan.share.as_f64() >= 1.0 {
            let reason = format!("with a share of {}, one side gets no requests", plan.share);
            checker.report("share", reason, "write a share between 0 and 1, such as \"10%\"");
        }
        budget(checker, "max_requests", "requests", f64::from(plan.max_requests.get()), MOST_EVENTS);
        if plan.arms.is_empty() {
            let help = "add [[arms]] with name = \"equal\" and expects = \"no-difference\"";
            checker.report("arms", "there is no arm", help);
        }
        names(checker, "arms", plan.arms.iter().map(|arm| &*arm.name));
        for (i, arm) in plan.arms.iter().enumerate() {
            within(checker, &format!("arms[{i}].cpu"), arm.cpu, *FACTORS.start(), *FACTORS.end());
            within(checker, &format!("arms[{i}].latency"), arm.latency, *FACTORS.start(), *FACTORS.end());
            if arm.disturbed_for.is_zero() || arm.disturbed_for.subsec_nanos() > 0 {
                let reason = "disturbances begin and end with a second";
                let path = format!("arms[{i}].disturbed_for");
                checker.report(&path, reason, "write whole seconds, such as \"20s\"");
            }
        }
    }

    fn metrics(&self) -> Vec<String> {
        metric_names(&self.0)
    }
}

/// Reports a number that is not within its bounds.
fn within(checker: &mut Checker<'_>, path: &str, value: f64, low: f64, high: f64) {
    if !(low..=high).contains(&value) {
        checker.report(path, format!("{value} is out of range"), format!("write a number from {low} to {high}"));
    }
}
