//! Rules over the settings of a plan with tiers: unique names, times within the run, rates above
//! zero.

use std::time::Duration;

use plimsoll_config::Checker;

use super::budget::{self, MOST_CLIENTS, MOST_EVENTS, budget};
use super::fleet::{LONGEST, within_reason};
use super::fleet_check::{gives_way, names, one_for_each_phase, phase_times};
use super::tiers::TiersFile;
use super::{Experiment, Kind, Settings};
use crate::experiment::tiers::metric_names;
use crate::experiment::tiers::plan::{Arm, Phase, Plan, Retries, Source, Tier};

impl From<TiersFile> for Experiment {
    fn from(file: TiersFile) -> Self {
        Self::Tiers(Box::new(file.0))
    }
}

impl Settings for TiersFile {
    const KIND: Kind = Kind::Tiers;

    fn check(&mut self, checker: &mut Checker<'_>) {
        let plan = &mut self.0;
        times(plan, checker);
        phase_times(&plan.phases, plan.duration, plan.warmup, checker);
        let good = sources(&plan.sources, &plan.phases, plan.duration, attempts(plan), checker);
        tiers(plan, checker);
        let tiers = plan.tiers.iter().map(|tier| tier.name.as_str());
        names_of_parts(&plan.sources, "tiers", &tiers.collect::<Vec<_>>(), &plan.phases, checker);
        arms(plan, good, checker);
        parties(plan, checker);
    }

    fn metrics(&self) -> Vec<String> {
        // Metrics of tiers refer to the first one, so there are none without tiers.
        if self.0.tiers.is_empty() { Vec::new() } else { metric_names(&self.0) }
    }
}

fn times(plan: &mut Plan, checker: &mut Checker<'_>) {
    let duration = plan.duration;
    for (key, span) in [("duration", duration), ("timeout", plan.timeout), ("patience", plan.patience)] {
        if let Err(flaw) = within_reason(key, span) {
            checker.report(key, flaw.reason, flaw.help);
        }
    }
    gives_way(checker, "warmup", &mut plan.warmup, duration, 3);
    gives_way(checker, "sample_every", &mut plan.sample_every, duration, 60);
    budget::samples(checker, "sample_every", plan.sample_every, duration);
}

/// Attempts of one request in all tiers, if all fail and every retry is sent.
fn attempts(plan: &Plan) -> f64 {
    let most = |arm: &Arm| match arm.retries {
        Retries::None => 1.0,
        Retries::Naive { attempts } => f64::from(attempts),
        // A budget admits few retries.
        Retries::Budgeted { share, .. } => 1.0 + share.as_f64(),
    };
    let each = plan.arms.iter().map(most).fold(1.0, f64::max);
    (1..=plan.tiers.len()).map(|depth| each.powi(depth as i32)).sum::<f64>().max(1.0)
}

/// Reports too many clients or tasks, each with a state of its own.
fn parties(plan: &Plan, checker: &mut Checker<'_>) {
    budget(checker, "clients", "clients", f64::from(plan.clients.get()), MOST_CLIENTS);
    for (i, arm) in plan.arms.iter().enumerate() {
        let clients = arm.clients.map_or(0.0, |clients| f64::from(clients.get()));
        budget(checker, format!("arms[{i}].clients"), "clients", clients, MOST_CLIENTS);
    }
    for (i, tier) in plan.tiers.iter().enumerate() {
        budget(checker, format!("tiers[{i}].tasks"), "tasks", f64::from(tier.tasks.get()), MOST_CLIENTS);
    }
}

/// Reports sources with the same name, and rates that are zero or too high, given the `events` of
/// one request. Returns whether the rates are good.
pub(super) fn sources(
    sources: &[Source],
    phases: &[Phase],
    duration: Duration,
    events: f64,
    checker: &mut Checker<'_>,
) -> bool {
    let mut total = 0.0;
    let mut good = true;
    if sources.is_empty() {
        let mend = "add [[sources]] with name = \"users\" and rate = 100";
        checker.report("sources", "there is no source of requests", mend);
    }
    names(checker, "sources", sources.iter().map(|source| &*source.name));
    for (i, source) in sources.iter().enumerate() {
        let path = |key: &str| format!("sources[{i}].{key}");
        if source.rate <= 0.0 {
            checker.report(path("rate"), "a rate of 0 sends nothing", "write a number above 0, in requests per second");
        }
        let expected = source.rate * events * duration.min(LONGEST).as_secs_f64();
        budget(checker, path("rate"), "attempts", expected, MOST_EVENTS);
        good &= expected <= MOST_EVENTS;
        total += source.rate * events;
    }
    good && budget::phases(checker, phases, duration, total)
}

fn tiers(plan: &Plan, checker: &mut Checker<'_>) {
    if plan.tiers.is_empty() {
        let mend = "add [[tiers]] with name = \"backend\" and capacity = 100";
        checker.report("tiers", "there is no tier", mend);
    }
    names(checker, "tiers", plan.tiers.iter().map(|tier| &*tier.name));
    for (i, tier) in plan.tiers.iter().enumerate() {
        let Tier { capacity, strength, .. } = tier;
        let path = |key: &str| format!("tiers[{i}].{key}");
        if *capacity <= 0.0 {
            let mend = "write a number above 0, in requests per second; for an outage, write strength = [0]";
            checker.report(path("capacity"), "nothing is ever served", mend);
        }
        one_for_each_phase(checker, &path("strength"), strength.len(), plan.phases.len());
    }
}

/// Reports a name that two of phases, sources and servers share (`kind`, such as "tiers"): metrics
/// have it in the same place.
pub(super) fn names_of_parts(
    sources: &[Source],
    kind: &str,
    serve: &[&str],
    phases: &[Phase],
    checker: &mut Checker<'_>,
) {
    let is_source = |name: &str| sources.iter().any(|source| source.name == name);
    let mend = "give one of them another name";
    for (i, name) in serve.iter().enumerate().filter(|(_, name)| is_source(name)) {
        checker.report(format!("{kind}[{i}].name"), format!("\"{name}\" is the name of a source"), mend);
    }
    for (i, phase) in phases.iter().enumerate() {
        if is_source(&phase.name) || serve.contains(&phase.name.as_str()) {
            let reason = format!("\"{}\" is the name of a source or in {kind}", phase.name);
            checker.report(format!("phases[{i}].name"), reason, mend);
        }
    }
}

fn arms(plan: &Plan, good_rates: bool, checker: &mut Checker<'_>) {
    let arms = &plan.arms;
    let rate = plan.sources.iter().map(|source| source.rate).sum::<f64>() * attempts(plan);
    let load = plan.phases.iter().map(|phase| phase.load).fold(1.0, f64::max);
    if arms.is_empty() {
        let mend = "add [[arms]] with name = \"paced\" and throttle = \"paced\"";
        checker.report("arms", "there is no arm", mend);
    }
    names(checker, "arms", arms.iter().map(|arm| &*arm.name));
    for (i, arm) in arms.iter().enumerate() {
        let path = |key: &str| format!("arms[{i}].{key}");
        if arm.load <= 0.0 {
            checker.report(path("load"), "a load of 0 sends nothing", "write a number above 0, or remove it");
        }
        if good_rates {
            let expected = rate * load * arm.load * plan.duration.as_secs_f64();
            budget(checker, path("load"), "attempts", expected, MOST_EVENTS);
        }
    }
}
