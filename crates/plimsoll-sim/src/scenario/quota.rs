//! The settings of a quota experiment in a scenario file, and the rules over several of them.
//!
//! The meaning and the default of each setting stand beside the code
//! ([`experiment::quota::plan`](crate::experiment::quota::plan)).

use std::time::Duration;

use plimsoll_config::{Checker, Flaw, SpanOrOff, Table, Variants, Visitor};

use super::budget::{self, MOST_EVENTS, MOST_PARTIES, budget};
use super::fleet::within_reason;
use super::fleet_check::{gives_way, names, one_for_each_phase, phase_times};
use super::shedding::CRITICALITY;
use super::{Experiment, Kind, Settings};
use crate::experiment::quota::metric_names;
use crate::experiment::quota::plan::{Arm, Customer, Outage, Plan, Rule, Source, Spread};

/// The settings of a plan, at the root of the file.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct QuotaFile(pub(super) Plan);

impl Table for QuotaFile {
    fn settings<V: Visitor>(&mut self, visitor: &mut V) {
        let plan = &mut self.0;
        visitor.value("duration", &mut plan.duration);
        visitor.value_as("warmup", &mut plan.warmup, SpanOrOff);
        visitor.value("sample_every", &mut plan.sample_every);
        visitor.value("span", &mut plan.span);
        visitor.value("tasks", &mut plan.tasks);
        visitor.value_as("delay", &mut plan.delay, SpanOrOff);
        visitor.value_as("reconnect", &mut plan.reconnect, SpanOrOff);
        visitor.tables("customers", &mut plan.customers);
        visitor.tables("sources", &mut plan.sources);
        visitor.tables("phases", &mut plan.phases);
        visitor.tables("outages", &mut plan.outages);
        visitor.tables("arms", &mut plan.arms);
    }
}

impl Table for Customer {
    fn settings<V: Visitor>(&mut self, visitor: &mut V) {
        visitor.required("name", &mut self.name);
        visitor.required("limit", &mut self.limit);
    }
}

impl Table for Source {
    fn settings<V: Visitor>(&mut self, visitor: &mut V) {
        visitor.required("name", &mut self.name);
        visitor.required("customer", &mut self.customer);
        visitor.value_as("criticality", &mut self.criticality, CRITICALITY);
        visitor.required("rate", &mut self.rate);
        visitor.value("cost", &mut self.cost);
        visitor.value("loads", &mut self.loads);
        visitor.value("spread", &mut self.spread);
    }
}

impl Table for Outage {
    fn settings<V: Visitor>(&mut self, visitor: &mut V) {
        visitor.required("at", &mut self.at);
        visitor.required("lasts", &mut self.lasts);
    }
}

impl Table for Arm {
    fn settings<V: Visitor>(&mut self, visitor: &mut V) {
        visitor.required("name", &mut self.name);
        visitor.value("rule", &mut self.rule);
    }
}

impl Variants for Spread {
    const NOUN: &'static str = "a choice of tasks";

    fn all() -> Vec<(&'static str, Self)> {
        [Self::Even, Self::BURSTS, Self::MOVING, Self::Uneven].map(|spread| (spread.name(), spread)).into()
    }

    fn name(&self) -> &'static str {
        match self {
            Self::Even => "even",
            Self::Bursts { .. } => "bursts",
            Self::Moving { .. } => "moving",
            Self::Uneven => "uneven",
        }
    }

    fn settings<V: Visitor>(&mut self, visitor: &mut V) {
        match self {
            Self::Even | Self::Uneven => {}
            Self::Bursts { requests, over } => {
                visitor.value("requests", requests);
                visitor.value("over", over);
            }
            Self::Moving { tasks, every } => {
                visitor.value("tasks", tasks);
                visitor.value("every", every);
            }
        }
    }

    fn check(&self) -> Result<(), Flaw> {
        match self {
            Self::Even | Self::Uneven => Ok(()),
            Self::Bursts { requests, over } => {
                within_reason("over", *over)?;
                if f64::from(requests.get()) > MOST_PARTIES {
                    return Err(Flaw::new("requests is too large", "write at most 10000 requests for each burst"));
                }
                Ok(())
            }
            Self::Moving { every, .. } => within_reason("every", *every),
        }
    }
}

impl Variants for Rule {
    const NOUN: &'static str = "a rule for limits";

    fn all() -> Vec<(&'static str, Self)> {
        [Self::LEASES, Self::Even, Self::WEIGHTS].map(|rule| (rule.name(), rule)).into()
    }

    fn name(&self) -> &'static str {
        match self {
            Self::Leases { .. } => "leases",
            Self::Even => "even",
            Self::Weights { .. } => "weights",
        }
    }

    fn settings<V: Visitor>(&mut self, visitor: &mut V) {
        match self {
            Self::Leases { outlook, lease } => {
                visitor.value("outlook", outlook);
                visitor.value("lease", lease);
            }
            Self::Even => {}
            Self::Weights { every } => visitor.value("every", every),
        }
    }

    fn check(&self) -> Result<(), Flaw> {
        let (key, span) = match self {
            Self::Leases { lease, .. } => ("lease", *lease),
            Self::Weights { every } => ("every", *every),
            Self::Even => return Ok(()),
        };
        if span < Duration::from_millis(100) {
            let reason = format!("{key} is shorter than a message takes");
            return Err(Flaw::new(reason, "write at least \"100ms\""));
        }
        within_reason(key, span)
    }
}

impl From<QuotaFile> for Experiment {
    fn from(file: QuotaFile) -> Self {
        Self::Quota(Box::new(file.0))
    }
}

impl Settings for QuotaFile {
    const KIND: Kind = Kind::Quota;

    fn check(&mut self, checker: &mut Checker<'_>) {
        let plan = &mut self.0;
        times(plan, checker);
        phase_times(&plan.phases, plan.duration, plan.warmup, checker);
        budget(checker, "tasks", "tasks", f64::from(plan.tasks.get()), MOST_PARTIES);
        customers(plan, checker);
        sources(plan, checker);
        if plan.arms.is_empty() {
            let mend = "add [[arms]] with name = \"leases\" and rule = \"leases\"";
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
    let spans = [("duration", duration), ("delay", plan.delay), ("reconnect", plan.reconnect)];
    for (key, span) in spans {
        if let Err(flaw) = within_reason(key, span) {
            checker.report(key, flaw.reason, flaw.help);
        }
    }
    gives_way(checker, "warmup", &mut plan.warmup, duration, 3);
    gives_way(checker, "sample_every", &mut plan.sample_every, duration, 60);
    gives_way(checker, "span", &mut plan.span, duration, 6);
    budget::samples(checker, "sample_every", plan.sample_every, duration);
    for (i, Outage { at, lasts }) in plan.outages.iter().enumerate() {
        let before = i.checked_sub(1).map(|i| plan.outages[i].at + plan.outages[i].lasts);
        for (key, span) in [("at", *at), ("lasts", *lasts)] {
            if let Err(flaw) = within_reason(key, span) {
                checker.report(format!("outages[{i}].{key}"), flaw.reason, flaw.help);
            }
        }
        if before.is_some_and(|before| *at <= before) {
            checker.report(format!("outages[{i}].at"), "the outage before lasts until then", "write a later time");
        }
    }
}

fn customers(plan: &Plan, checker: &mut Checker<'_>) {
    if plan.customers.is_empty() {
        checker.report("customers", "there is no customer", "add [[customers]] with name = \"acme\" and limit = 1");
    }
    names(checker, "customers", plan.customers.iter().map(|customer| &*customer.name));
    for (i, Customer { limit, .. }) in plan.customers.iter().enumerate() {
        if !(1e-3..=1e6).contains(limit) {
            let path = format!("customers[{i}].limit");
            checker.report(path, format!("{limit} is no limit"), "write a number of CPUs from 0.001 to 1000000");
        }
    }
}

fn sources(plan: &Plan, checker: &mut Checker<'_>) {
    if plan.sources.is_empty() {
        let mend = "add [[sources]] with name = \"users\", customer = \"acme\" and rate = 100";
        checker.report("sources", "there is no source of requests", mend);
    }
    let customers = plan.customers.iter().map(|customer| &*customer.name);
    names(checker, "sources", plan.sources.iter().map(|source| &*source.name).chain(customers));
    for (i, Source { customer, rate, cost, loads, .. }) in plan.sources.iter().enumerate() {
        let path = |key: &str| format!("sources[{i}].{key}");
        if !plan.customers.iter().any(|known| known.name == *customer) {
            let mend = "write the name of one of [[customers]]";
            checker.report(path("customer"), format!("there is no customer \"{customer}\""), mend);
        }
        if !(*rate > 0.0 && rate.is_finite()) {
            checker.report(path("rate"), "nothing ever arrives", "write a number above 0, in requests per second");
        }
        if let Err(flaw) = within_reason("cost", *cost) {
            checker.report(path("cost"), flaw.reason, flaw.help);
        }
        one_for_each_phase(checker, &path("loads"), loads.len(), plan.phases.len());
        if loads.iter().any(|load| !(0.0..=1e6).contains(load)) {
            checker.report(path("loads"), "a load is out of range", "write numbers from 0 to 1000000");
        }
        let highest = plan.phases.iter().enumerate().map(|(at, phase)| phase.load * loads.get(at).unwrap_or(&1.0));
        let requests = rate * highest.fold(1.0, f64::max) * plan.duration.as_secs_f64();
        budget(checker, path("rate"), "requests", requests, MOST_EVENTS);
    }
}
