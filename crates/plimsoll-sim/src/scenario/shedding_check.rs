//! Rules over the settings of a shedding plan: unique names, times within the run, rates and cores
//! above zero.

use std::time::Duration;

use plimsoll_config::Checker;

use super::budget::{self, MOST_EVENTS, MOST_POWER, budget};
use super::fleet::within_reason;
use super::fleet_check::{gives_way, names, one_for_each_phase, overhead, phase_times, text};
use super::shedding::SheddingFile;
use super::{Experiment, Kind, Settings};
use crate::experiment::shedding::metric_names;
use crate::experiment::shedding::plan::{Arm, Plan, Source};

/// Most readings of the server. Each is kept until the end of the run.
const MOST_READINGS: f64 = 2e7;
/// Most retries of a request at the same instant.
const MOST_AT_ONCE: u32 = 100;

impl From<SheddingFile> for Experiment {
    fn from(file: SheddingFile) -> Self {
        Self::Shedding(Box::new(file.0))
    }
}

impl Settings for SheddingFile {
    const KIND: Kind = Kind::Shedding;

    fn check(&mut self, checker: &mut Checker<'_>) {
        let plan = &mut self.0;
        times(plan, checker);
        cores(checker, "cores", plan.cores);
        phase_times(&plan.phases, plan.duration, plan.warmup, checker);
        sources(plan, checker);
        phase_names(plan, checker);
        arms(&plan.arms, checker);
    }

    fn metrics(&self) -> Vec<String> {
        metric_names(&self.0)
    }
}

fn times(plan: &mut Plan, checker: &mut Checker<'_>) {
    let duration = plan.duration;
    if let Err(flaw) = within_reason("the run", duration) {
        checker.report("duration", flaw.reason, flaw.help);
    }
    overhead(plan.overhead, checker);
    gives_way(checker, "warmup", &mut plan.warmup, duration, 3);
    gives_way(checker, "sample_every", &mut plan.sample_every, duration, 60);
    gives_way(checker, "tick", &mut plan.tick, duration, 1_000);
    budget::samples(checker, "sample_every", plan.sample_every, duration);
    budget::repeats(checker, "tick", plan.tick, duration, 1.0, MOST_READINGS);
    span(checker, "patience", "patience", plan.patience);
}

/// Reports a span that is longer than any run.
fn span(checker: &mut Checker<'_>, path: &str, what: &str, span: Duration) {
    if let Err(flaw) = within_reason(what, span) {
        checker.report(path, flaw.reason, flaw.help);
    }
}

fn cores(checker: &mut Checker<'_>, path: &str, cores: f64) {
    if cores <= 0.0 {
        checker.report(
            path,
            "a server without CPU answers nothing",
            "write a number above 0; 0.1 is a tenth of a core",
        );
    }
    budget(checker, path, "cores", cores, MOST_POWER);
}

fn sources(plan: &Plan, checker: &mut Checker<'_>) {
    if plan.sources.is_empty() {
        let mend = "add [[sources]] with name = \"users\" and rate = 100";
        checker.report("sources", "there is no source of requests", mend);
    }
    names(checker, "sources", plan.sources.iter().map(|source| &*source.name));
    for (i, source) in plan.sources.iter().enumerate() {
        let Source { rate, load, patience, age, wait, .. } = source;
        let path = |key: &str| format!("sources[{i}].{key}");
        if *rate <= 0.0 {
            checker.report(path("rate"), "a rate of 0 sends nothing", "write a number above 0, in tasks per second");
        }
        one_for_each_phase(checker, &path("load"), load.len(), plan.phases.len());
        for (key, long) in [("patience", patience.unwrap_or_default()), ("age", *age), ("wait", *wait)] {
            span(checker, &path(key), key, long);
        }
        requests(plan, source, &path, checker);
        if source.retries == 0 && !wait.is_zero() {
            let mend = "remove it, or write retries = 3";
            checker.report(path("wait"), "has no effect without retries", mend);
        }
    }
}

/// Reports too many requests of a source: by its rate, by the requests of a task, or by retries.
fn requests(plan: &Plan, source: &Source, path: &dyn Fn(&str) -> String, checker: &mut Checker<'_>) {
    let Source { rate, load, calls, retries, wait, patience, .. } = source;
    let steady = rate * plan.duration.as_secs_f64();
    if steady > MOST_EVENTS {
        budget(checker, path("rate"), "tasks", steady, MOST_EVENTS);
        return;
    }
    if !budget::phases(checker, &plan.phases, plan.duration, *rate) {
        return;
    }
    let mut tasks = steady;
    for (i, phase) in plan.phases.iter().enumerate() {
        let end = plan.phases.get(i + 1).map_or(plan.duration, |next| next.at);
        tasks += rate * phase.load * load.get(i).unwrap_or(&1.0) * end.saturating_sub(phase.at).as_secs_f64();
    }
    if !budget::fits(tasks, MOST_EVENTS) {
        budget(checker, path("load"), "tasks", tasks, MOST_EVENTS);
        return;
    }
    let calls = tasks * f64::from(calls.get());
    if calls > MOST_EVENTS {
        budget(checker, path("calls"), "requests", calls, MOST_EVENTS);
        return;
    }
    if wait.is_zero() {
        if *retries > MOST_AT_ONCE {
            let reason = format!("a shed request would be retried {retries} times in the same instant");
            checker.report(
                path("retries"),
                reason,
                format!("write wait = \"100ms\", or at most {MOST_AT_ONCE} retries"),
            );
        }
        return;
    }
    // A wait may be half as long as the mean.
    let longest = plan.duration.min(patience.unwrap_or(plan.patience)).as_secs_f64();
    let again = f64::from(*retries).min(2.0 * longest / wait.as_secs_f64());
    budget(checker, path("retries"), "requests", calls * (1.0 + again), MOST_EVENTS);
}

/// Reports a name that a phase and a source share: metrics have it in the same place.
fn phase_names(plan: &Plan, checker: &mut Checker<'_>) {
    for (i, phase) in plan.phases.iter().enumerate() {
        if plan.sources.iter().any(|source| source.name == phase.name) {
            let reason = format!("\"{}\" is the name of a source", phase.name);
            checker.report(format!("phases[{i}].name"), reason, "give one of them another name");
        }
    }
}

fn arms(arms: &[Arm], checker: &mut Checker<'_>) {
    if arms.is_empty() {
        let mend = "add [[arms]] with name = \"ranked\" and shedder = \"ranked\"";
        checker.report("arms", "there is no arm", mend);
    }
    names(checker, "arms", arms.iter().map(|arm| &*arm.name));
    for (i, arm) in arms.iter().enumerate() {
        let path = format!("arms[{i}]");
        if let Some(own) = arm.cores {
            cores(checker, &format!("{path}.cores"), own);
        }
        if let Some(schedule) = arm.schedule
            && schedule.cancelled_after.is_some_and(|after| after < schedule.full_until)
        {
            let reason = format!("cancelled_after comes before full_until ({})", text(schedule.full_until));
            checker.report(format!("{path}.schedule"), reason, "swap the two");
        }
    }
}
