//! Rules over the settings of a quota experiment: known names, times within the run, a run that has an end.

use plimsoll_config::Checker;
use plimsoll_core::quota::Holder;

use super::budget::{self, MOST_EVENTS, MOST_PAIRS, MOST_PARTIES, budget};
use super::fleet::within_reason;
use super::fleet_check::{gives_way, names, one_for_each_phase, phase_times};
use super::quota::QuotaFile;
use super::{Kind, Settings};
use crate::experiment::quota::metric_names;
use crate::experiment::quota::plan::{Accidents, Change, Customer, Group, Outage, Plan, Source, Spread};

/// The weight of a kind of accident.
const MOST_WEIGHT: u32 = 1_000_000;
/// Each has an account at each task, beside those of customers.
const MOST_GROUPS: f64 = 1_000.0;
/// At 20, the second customer gets a millionth of the first one's requests.
const MOST_SKEW: f64 = 20.0;

impl Settings for QuotaFile {
    const KIND: Kind = Kind::Quota;

    fn check(&mut self, checker: &mut Checker<'_>) {
        let plan = &mut self.0;
        times(plan, checker);
        phase_times(&plan.phases, plan.duration, plan.warmup, checker);
        if let Some(cpus) = plan.cpus {
            limit_at(checker, "cpus".to_owned(), cpus);
        }
        budget(checker, "tasks", "tasks", f64::from(plan.tasks.get()), MOST_PARTIES);
        customers(plan, checker);
        groups(plan, checker);
        sources(plan, checker);
        changes(plan, checker);
        accidents(plan, checker);
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

fn limit_at(checker: &mut Checker<'_>, path: String, limit: f64) {
    if !(1e-3..=1e6).contains(&limit) {
        checker.report(path, format!("{limit} is no limit"), "write a number of CPUs from 0.001 to 1000000");
    }
}

fn changes(plan: &Plan, checker: &mut Checker<'_>) {
    if let Err(flaw) = within_reason("restart", plan.restart) {
        checker.report("restart", flaw.reason, flaw.help);
    }
    for (i, Change { at, customer, limit, .. }) in plan.changes.iter().enumerate() {
        let path = |key: &str| format!("changes[{i}].{key}");
        if *at >= plan.duration {
            checker.report(path("at"), "the run is over by then", "write an earlier time, or a longer duration");
        }
        if !plan.customers.iter().any(|known| known.name == *customer) {
            let mend = "write the name of one of [[customers]]";
            checker.report(path("customer"), format!("there is no customer \"{customer}\""), mend);
        }
        limit_at(checker, path("limit"), *limit);
    }
}

fn customers(plan: &Plan, checker: &mut Checker<'_>) {
    if plan.customers.is_empty() {
        checker.report("customers", "there is no customer", "add [[customers]] with name = \"acme\" and limit = 1");
    }
    names(checker, "customers", plan.customers.iter().map(|customer| &*customer.name));
    for (i, Customer { limit, soft_limit, .. }) in plan.customers.iter().enumerate() {
        limit_at(checker, format!("customers[{i}].limit"), *limit);
        let Some(soft) = soft_limit else { continue };
        let path = format!("customers[{i}].soft_limit");
        limit_at(checker, path.clone(), *soft);
        if plan.cpus.is_none() {
            let mend = "add cpus, the CPUs of each task, or remove it";
            checker.report(path, "has no effect while tasks have enough CPU", mend);
        }
    }
    let count = |customer: &Customer| f64::from(customer.count.get());
    for (i, customer) in plan.customers.iter().enumerate() {
        budget(checker, format!("customers[{i}].count"), "customers", count(customer), Holder::MAX_CUSTOMERS as f64);
    }
    let all = plan.customers.iter().map(count).sum::<f64>() + plan.groups.len() as f64;
    if all <= Holder::MAX_CUSTOMERS as f64 {
        let pairs = all * f64::from(plan.tasks.get());
        budget(checker, "customers", "pairs of a task and a customer", pairs, MOST_PAIRS);
        let samples = plan.duration.as_secs_f64() / plan.sample_every.as_secs_f64();
        budget(checker, "customers", "samples of a customer", all * samples, MOST_PAIRS);
    } else {
        budget(checker, "customers", "customers", all, Holder::MAX_CUSTOMERS as f64);
    }
}

fn groups(plan: &Plan, checker: &mut Checker<'_>) {
    names(checker, "groups", plan.groups.iter().map(|group| &*group.name));
    budget(checker, "groups", "groups", plan.groups.len() as f64, MOST_GROUPS);
    for (i, Group { name, limit }) in plan.groups.iter().enumerate() {
        limit_at(checker, format!("groups[{i}].limit"), *limit);
        if !plan.customers.iter().any(|customer| customer.group.as_ref() == Some(name)) {
            let mend = format!("write group = \"{name}\" at one of [[customers]]");
            checker.report(format!("groups[{i}]"), "no customer is in it", mend);
        }
    }
    for (i, Customer { group, .. }) in plan.customers.iter().enumerate() {
        if let Some(group) = group.as_ref().filter(|group| !plan.groups.iter().any(|known| known.name == **group)) {
            let mend = "write the name of one of [[groups]]";
            checker.report(format!("customers[{i}].group"), format!("there is no group \"{group}\""), mend);
        }
    }
}

fn accidents(plan: &Plan, checker: &mut Checker<'_>) {
    let Accidents { every, spikes, spike, losses, longest, elections } = plan.accidents;
    let Some(every) = every else {
        if spikes > 0 || losses > 0 || elections > 0 {
            let help = "write the time between two accidents, such as every = \"1m\"";
            checker.report("accidents", "every is missing", help);
        }
        return;
    };
    budget::repeats(checker, "accidents.every", every, plan.duration, 1.0, MOST_EVENTS);
    let is_drifting = |source: &Source| matches!(source.spread, Spread::Drifting { .. });
    if spikes.max(losses).max(elections) > MOST_WEIGHT {
        checker.report("accidents", "a weight is too large", format!("write numbers up to {MOST_WEIGHT}"));
    } else if spikes + losses + elections == 0 {
        let help = "write spikes, losses or elections, such as spikes = 1";
        checker.report("accidents", "there is no kind of accident", help);
    }
    if spikes > 0 && !plan.sources.iter().any(is_drifting) {
        let help = "write spread = \"drifting\" at a source: its tasks have demand of their own";
        checker.report("accidents.spikes", "no task can have a spike", help);
    }
    if !(spike > 0.0 && spike <= 1e6) {
        let help = "write a number above 0 and up to 1000000, in requests per second";
        checker.report("accidents.spike", format!("{spike} is no spike"), help);
    }
    if losses > 0 && longest > every {
        let help = "shorten it to at most every, so that an owner is back before it is lost again";
        checker.report("accidents.longest", "it is longer than the time between two accidents", help);
    }
    if losses + elections > 0 && !plan.outages.is_empty() {
        let help = "leave out outages, or losses and elections of [accidents]";
        checker.report("outages", "accidents lose the owner too", help);
    }
}

fn sources(plan: &Plan, checker: &mut Checker<'_>) {
    if plan.sources.is_empty() {
        let mend = "add [[sources]] with name = \"users\", customer = \"acme\" and rate = 100";
        checker.report("sources", "there is no source of requests", mend);
    }
    let customers = plan.customers.iter().map(|customer| &*customer.name);
    let groups = plan.groups.iter().map(|group| &*group.name);
    names(checker, "sources", plan.sources.iter().map(|source| &*source.name).chain(customers).chain(groups));
    for (i, Source { customer, rate, cost, loads, spread, skew, .. }) in plan.sources.iter().enumerate() {
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
        let load = highest.fold(1.0, f64::max);
        let requests = rate * load * plan.duration.as_secs_f64();
        budget(checker, path("rate"), "requests", requests, MOST_EVENTS);
        if let Spread::Drifting { every, .. } = spread {
            let tasks = f64::from(plan.tasks.get());
            budget::repeats(checker, &path("spread.every"), *every, plan.duration, tasks, MOST_EVENTS);
            budget(checker, "accidents.spike", "requests", load * spiked(plan), MOST_EVENTS);
        }
        if *skew > MOST_SKEW {
            let help = format!("write a number from 0 to {MOST_SKEW}");
            checker.report(path("skew"), "the first customer gets everything", help);
        }
    }
}

/// Requests of spikes that last until the end of the run, at a load of 1.
fn spiked(plan: &Plan) -> f64 {
    let Accidents { every: Some(every), spikes, spike, losses, elections, .. } = plan.accidents else { return 0.0 };
    let kinds = f64::from(spikes) + f64::from(losses) + f64::from(elections);
    if kinds == 0.0 {
        return 0.0;
    }
    let (run, every) = (plan.duration.as_secs_f64(), every.as_secs_f64());
    f64::from(spikes) / kinds * spike * run * (run / every) / 2.0
}
