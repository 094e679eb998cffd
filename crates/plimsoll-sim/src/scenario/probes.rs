//! The settings of an experiment with probes in a scenario file, and the rules over several of them.
//!
//! The meaning and the default of each setting stand beside the code
//! ([`experiment::probes::plan`](crate::experiment::probes::plan)).

use std::time::Duration;

use plimsoll_config::{Checker, Flaw, SpanOrOff, Table, Variants, Visitor};

use super::budget::{self, MOST_CLIENTS, MOST_EVENTS, budget};
use super::fleet::within_reason;
use super::fleet_check::{gives_way, names, text};
use super::{Experiment, Kind, Settings};
use crate::experiment::probes::metric_names;
use crate::experiment::probes::plan::{Arm, Change, Link, Occurrence, Plan, Rule};

/// Shortest time of a setting that causes an event each time it passes.
const SHORTEST: Duration = Duration::from_millis(100);
/// Most pushes of a notice: those that a responder has.
const MOST_PUSHES: u32 = 9;

/// The settings of a plan, at the root of the file.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct ProbesFile(pub(super) Plan);

impl Table for ProbesFile {
    fn settings<V: Visitor>(&mut self, visitor: &mut V) {
        let plan = &mut self.0;
        visitor.value("duration", &mut plan.duration);
        visitor.value_as("warmup", &mut plan.warmup, SpanOrOff);
        visitor.value("sample_every", &mut plan.sample_every);
        visitor.value("clients", &mut plan.clients);
        visitor.value("backends", &mut plan.backends);
        visitor.value("inactive_after", &mut plan.inactive_after);
        visitor.optional("request_every", &mut plan.request_every);
        visitor.value("check_every", &mut plan.check_every);
        visitor.table("link", &mut plan.link);
        visitor.tables("changes", &mut plan.changes);
        visitor.tables("arms", &mut plan.arms);
    }
}

impl Table for Link {
    fn settings<V: Visitor>(&mut self, visitor: &mut V) {
        visitor.value("delay", &mut self.delay);
        visitor.value_as("jitter", &mut self.jitter, SpanOrOff);
        visitor.value("loss", &mut self.loss);
        visitor.value("duplicates", &mut self.duplicates);
    }
}

impl Table for Change {
    fn settings<V: Visitor>(&mut self, visitor: &mut V) {
        visitor.required("at", &mut self.at);
        visitor.required("event", &mut self.event);
    }
}

impl Table for Arm {
    fn settings<V: Visitor>(&mut self, visitor: &mut V) {
        visitor.required("name", &mut self.name);
        visitor.value("rule", &mut self.rule);
        visitor.optional("loss", &mut self.loss);
    }
}

impl Variants for Occurrence {
    const NOUN: &'static str = "a change";

    fn all() -> Vec<(&'static str, Self)> {
        [Self::LameDuck, Self::RESTART, Self::Block, Self::Open].map(|event| (event.name(), event)).into()
    }

    fn name(&self) -> &'static str {
        match self {
            Self::LameDuck => "lame-duck",
            Self::Restart { .. } => "restart",
            Self::Block => "block",
            Self::Open => "open",
        }
    }

    fn settings<V: Visitor>(&mut self, visitor: &mut V) {
        if let Self::Restart { down } = self {
            visitor.value("down", down);
        }
    }

    fn check(&self) -> Result<(), Flaw> {
        match self {
            Self::Restart { down } => within_reason("down", *down),
            Self::LameDuck | Self::Block | Self::Open => Ok(()),
        }
    }
}

impl Variants for Rule {
    const NOUN: &'static str = "a way to learn a state";

    fn all() -> Vec<(&'static str, Self)> {
        [Self::Notices, Self::PUSHED, Self::Polled, Self::Checks].map(|rule| (rule.name(), rule)).into()
    }

    fn name(&self) -> &'static str {
        match self {
            Self::Notices => "notices",
            Self::Pushed { .. } => "pushed",
            Self::Polled => "polled",
            Self::Checks => "checks",
        }
    }

    fn settings<V: Visitor>(&mut self, visitor: &mut V) {
        if let Self::Pushed { times } = self {
            visitor.value("times", times);
        }
    }

    fn check(&self) -> Result<(), Flaw> {
        match self {
            Self::Pushed { times } if times.get() > MOST_PUSHES => {
                Err(Flaw::new(format!("times ({times}) is out of range"), format!("write at most {MOST_PUSHES}")))
            }
            _ => Ok(()),
        }
    }
}

impl From<ProbesFile> for Experiment {
    fn from(file: ProbesFile) -> Self {
        Self::Probes(Box::new(file.0))
    }
}

impl Settings for ProbesFile {
    const KIND: Kind = Kind::Probes;

    fn check(&mut self, checker: &mut Checker<'_>) {
        let plan = &mut self.0;
        times(plan, checker);
        let pairs = f64::from(plan.clients.get()) * f64::from(plan.backends.get());
        budget(checker, "clients", "pairs of a client and a backend", pairs, MOST_CLIENTS);
        events(plan, pairs, checker);
        changes(plan, checker);
        if plan.arms.is_empty() {
            let help = "add [[arms]] with name = \"notices\" and rule = \"notices\"";
            checker.report("arms", "there is no arm", help);
        }
        names(checker, "arms", plan.arms.iter().map(|arm| &*arm.name));
    }

    fn metrics(&self) -> Vec<String> {
        metric_names(&self.0)
    }
}

fn times(plan: &mut Plan, checker: &mut Checker<'_>) {
    let duration = plan.duration;
    let Link { delay, jitter, .. } = plan.link;
    for (key, span) in [
        ("duration", duration),
        ("inactive_after", plan.inactive_after),
        ("link.delay", delay),
        ("link.jitter", jitter),
        ("check_every", plan.check_every),
    ] {
        if let Err(flaw) = within_reason(key, span) {
            checker.report(key, flaw.reason, flaw.help);
        }
    }
    for (key, span) in [("check_every", Some(plan.check_every)), ("request_every", plan.request_every)] {
        if let Some(span) = span.filter(|span| *span < SHORTEST) {
            let reason = format!("{} is too short", text(span));
            checker.report(key, reason, format!("write at least \"{}\"", text(SHORTEST)));
        }
    }
    gives_way(checker, "warmup", &mut plan.warmup, duration, 3);
    gives_way(checker, "sample_every", &mut plan.sample_every, duration, 60);
    budget::samples(checker, "sample_every", plan.sample_every, duration);
}

/// Checks, requests and queries of all pairs.
fn events(plan: &Plan, pairs: f64, checker: &mut Checker<'_>) {
    let per_second = |every: Option<Duration>| every.map_or(0.0, |every| every.as_secs_f64().recip());
    // A lame duck is asked once a second.
    let rate = per_second(Some(plan.check_every)) + per_second(plan.request_every) + 1.0;
    budget(checker, "duration", "events", pairs * rate * plan.duration.as_secs_f64(), MOST_EVENTS);
}

fn changes(plan: &Plan, checker: &mut Checker<'_>) {
    for (i, change) in plan.changes.iter().enumerate() {
        let path = format!("changes[{i}].at");
        if change.at >= plan.duration {
            let reason = format!("{} is beyond the end of the run ({})", text(change.at), text(plan.duration));
            checker.report(path, reason, "start it earlier, or raise duration");
        } else if plan.changes[..i].iter().any(|other| other.at > change.at) {
            let reason = format!("{} is before the previous change", text(change.at));
            checker.report(path, reason, "write changes in the order of their times");
        }
    }
}
