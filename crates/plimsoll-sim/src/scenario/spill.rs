//! The settings of a spill experiment in a scenario file, and the rules over several of them.
//!
//! The meaning and the default of each setting stand beside the code
//! ([`experiment::spill::plan`](crate::experiment::spill::plan)).

use plimsoll_config::{Checker, Flaw, SpanOrOff, Table, Variants, Visitor};

use super::budget::{self, MOST_PARTIES, budget};
use super::fleet::within_reason;
use super::fleet_check::{gives_way, names, one_for_each_phase, phase_times};
use super::tiers_check;
use super::{Experiment, Kind, Settings};
use crate::experiment::spill::metric_names;
use crate::experiment::spill::plan::{Arm, Plan, Rule, Site};

/// The settings of a plan, at the root of the file.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct SpillFile(pub(super) Plan);

impl Table for SpillFile {
    fn settings<V: Visitor>(&mut self, visitor: &mut V) {
        let plan = &mut self.0;
        visitor.value("duration", &mut plan.duration);
        visitor.value_as("warmup", &mut plan.warmup, SpanOrOff);
        visitor.value("sample_every", &mut plan.sample_every);
        visitor.value("clients", &mut plan.clients);
        visitor.value("report_every", &mut plan.report_every);
        visitor.value_as("report_age", &mut plan.report_age, SpanOrOff);
        visitor.tables("sources", &mut plan.sources);
        visitor.tables("localities", &mut plan.localities);
        visitor.tables("phases", &mut plan.phases);
        visitor.tables("arms", &mut plan.arms);
    }
}

impl Table for Site {
    fn settings<V: Visitor>(&mut self, visitor: &mut V) {
        visitor.required("name", &mut self.name);
        visitor.value("backends", &mut self.backends);
        visitor.required("capacity", &mut self.capacity);
        visitor.value("healthy", &mut self.healthy);
        visitor.value("others", &mut self.others);
    }
}

impl Table for Arm {
    fn settings<V: Visitor>(&mut self, visitor: &mut V) {
        visitor.required("name", &mut self.name);
        visitor.value("rule", &mut self.rule);
    }
}

impl Variants for Rule {
    const NOUN: &'static str = "a rule for localities";

    fn all() -> Vec<(&'static str, Self)> {
        [Self::WATERFALL, Self::Nearest, Self::ByHealth].map(|rule| (rule.name(), rule)).into()
    }

    fn name(&self) -> &'static str {
        match self {
            Self::Waterfall { .. } => "waterfall",
            Self::Nearest => "nearest",
            Self::ByHealth => "by-health",
        }
    }

    fn settings<V: Visitor>(&mut self, visitor: &mut V) {
        if let Self::Waterfall { target, drain_below } = self {
            visitor.value("target", target);
            visitor.value("drain_below", drain_below);
        }
    }

    fn check(&self) -> Result<(), Flaw> {
        match self {
            Self::Waterfall { target, .. } if target.as_f64() <= 0.0 => {
                Err(Flaw::new("target is 0, so nothing would be served", "write a share above 0, such as \"80%\""))
            }
            _ => Ok(()),
        }
    }
}

impl From<SpillFile> for Experiment {
    fn from(file: SpillFile) -> Self {
        Self::Spill(Box::new(file.0))
    }
}

impl Settings for SpillFile {
    const KIND: Kind = Kind::Spill;

    fn check(&mut self, checker: &mut Checker<'_>) {
        let plan = &mut self.0;
        times(plan, checker);
        phase_times(&plan.phases, plan.duration, plan.warmup, checker);
        tiers_check::sources(&plan.sources, &plan.phases, plan.duration, 1.0, checker);
        budget(checker, "clients", "clients", f64::from(plan.clients.get()), MOST_PARTIES);
        localities(plan, checker);
        let localities = plan.localities.iter().map(|site| site.name.as_str());
        tiers_check::names_of_parts(
            &plan.sources,
            "localities",
            &localities.collect::<Vec<_>>(),
            &plan.phases,
            checker,
        );
        if plan.arms.is_empty() {
            let mend = "add [[arms]] with name = \"waterfall\" and rule = \"waterfall\"";
            checker.report("arms", "there is no arm", mend);
        }
        names(checker, "arms", plan.arms.iter().map(|arm| &*arm.name));
    }

    fn metrics(&self) -> Vec<String> {
        metric_names(&self.0)
    }
}

fn times(plan: &mut Plan, checker: &mut Checker<'_>) {
    let duration = plan.duration;
    for (key, span) in [("duration", duration), ("report_age", plan.report_age)] {
        if let Err(flaw) = within_reason(key, span) {
            checker.report(key, flaw.reason, flaw.help);
        }
    }
    gives_way(checker, "warmup", &mut plan.warmup, duration, 3);
    gives_way(checker, "sample_every", &mut plan.sample_every, duration, 60);
    gives_way(checker, "report_every", &mut plan.report_every, duration, 60);
    budget::samples(checker, "sample_every", plan.sample_every, duration);
    budget::samples(checker, "report_every", plan.report_every, duration);
}

fn localities(plan: &Plan, checker: &mut Checker<'_>) {
    if plan.localities.is_empty() {
        let mend = "add [[localities]] with name = \"near\" and capacity = 100";
        checker.report("localities", "there is no locality", mend);
    }
    names(checker, "localities", plan.localities.iter().map(|site| &*site.name));
    for (i, site) in plan.localities.iter().enumerate() {
        let Site { backends, capacity, healthy, .. } = site;
        let path = |key: &str| format!("localities[{i}].{key}");
        if *capacity <= 0.0 {
            checker.report(
                path("capacity"),
                "nothing is ever served",
                "write a number above 0, in requests per second",
            );
        }
        one_for_each_phase(checker, &path("healthy"), healthy.len(), plan.phases.len());
        if let Some(more) = healthy.iter().find(|healthy| **healthy > backends.get()) {
            let reason = format!("{more} is more than all backends ({backends})");
            checker.report(path("healthy"), reason, "write a smaller number, or raise backends");
        }
    }
}
