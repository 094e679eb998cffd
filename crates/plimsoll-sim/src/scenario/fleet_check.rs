//! Rules over the settings of a fleet's plan: known and unique names, times within the run.

use std::collections::BTreeSet;
use std::time::Duration;

use plimsoll_config::{Checker, check_balancer, help_for_name};
use plimsoll_core::Ratio;
use plimsoll_core::subset::Algorithm;

use super::budget::{self, MOST_CLIENTS, MOST_EVENTS, MOST_PAIRS, MOST_PARTIES, MOST_POWER, budget};
use super::fleet::{FleetFile, LONGEST, within_reason};
use super::{Experiment, Kind, Settings, sweep_check};
use crate::experiment::fleet;
use crate::experiment::fleet::plan::Antagonist;
use crate::experiment::fleet::plan::{
    Arm, Arrivals, BackendGroup, Change, Interference, Phase, Plan, Rate, Selection, Speed,
};

impl From<FleetFile> for Experiment {
    fn from(file: FleetFile) -> Self {
        Self::Fleet(Box::new(file.plan))
    }
}

/// Most backends in all. A larger number is more likely a typing error than a fleet.
pub(super) const MOST_BACKENDS: u64 = 1_000_000;
impl Settings for FleetFile {
    const KIND: Kind = Kind::Fleet;

    fn check(&mut self, checker: &mut Checker<'_>) {
        times(&mut self.plan, checker);
        let sweep = sweep_check::sweep(self, checker);
        let smallest = sweep_check::sized(&self.plan, sweep.as_ref(), |sizes| sizes.first());
        let largest = sweep_check::sized(&self.plan, sweep.as_ref(), |sizes| sizes.last());
        backends(&smallest, checker);
        clients(&smallest, checker);
        phases(&smallest, checker);
        timeline(&smallest, &self.timeline_places, checker);
        budgets(&largest, &self.timeline_places, checker);
        arms(&mut self.plan, checker);
        sweep_check::expand(&mut self.plan, sweep);
    }

    fn metrics(&self) -> Vec<String> {
        if total(groups(&self.plan)) > MOST_BACKENDS { Vec::new() } else { fleet::metric_names(&self.plan) }
    }
}

/// All groups of backends, later ones included.
fn groups(plan: &Plan) -> impl Iterator<Item = &BackendGroup> {
    let added = plan.timeline.iter().filter_map(|happening| match &happening.change {
        Change::AddBackends { group } => Some(group),
        _ => None,
    });
    plan.backends.iter().chain(added)
}

/// The number of backends in these groups.
fn total<'p>(groups: impl Iterator<Item = &'p BackendGroup>) -> u64 {
    groups.map(|group| u64::from(group.count.get())).sum()
}

/// Reports a name that cannot be part of a metric's name.
pub(super) fn metric_name(checker: &mut Checker<'_>, path: &str, name: &str) {
    if name.is_empty() || name.contains(|c: char| c == '.' || c.is_whitespace() || c.is_control()) {
        let mend = "use a short word without \".\" and spaces; metrics are named after it";
        checker.report(path, format!("\"{name}\" cannot be part of a metric's name"), mend);
    }
}

/// Reports a name at `path` that is one of `others`.
pub(super) fn unique<'n>(checker: &mut Checker<'_>, path: &str, name: &str, mut others: impl Iterator<Item = &'n str>) {
    if others.any(|other| other == name) {
        checker.report(path, format!("the name \"{name}\" is taken"), "give each a name of its own");
    }
}

/// Reports names in a list of tables that cannot be part of a metric's name, or that are taken.
pub(super) fn names<'n>(checker: &mut Checker<'_>, list: &str, names: impl Iterator<Item = &'n str>) {
    let names: Vec<&str> = names.collect();
    for (i, name) in names.iter().enumerate() {
        let path = format!("{list}[{i}].name");
        metric_name(checker, &path, name);
        unique(checker, &path, name, names[..i].iter().copied());
    }
}

/// Reports a list with neither one number for each phase nor none.
pub(super) fn one_for_each_phase(checker: &mut Checker<'_>, path: &str, given: usize, phases: usize) {
    if given != 0 && given != phases && checker.is_readable("phases") {
        let help = format!("write one number for each phase ({phases}), or remove it");
        checker.report(path, format!("has {given} numbers for {phases} phases"), help);
    }
}

pub(super) fn text(duration: Duration) -> String {
    humantime::format_duration(duration).to_string()
}

fn times(plan: &mut Plan, checker: &mut Checker<'_>) {
    let duration = plan.duration;
    if let Err(flaw) = within_reason("the run", duration) {
        checker.report("duration", flaw.reason, flaw.help);
    }
    overhead(plan.overhead, checker);
    // Defaults shrink in proportion to the run.
    gives_way(checker, "warmup", &mut plan.warmup, duration, 3);
    gives_way(checker, "sample_every", &mut plan.sample_every, duration, 60);
    budget::samples(checker, "sample_every", plan.sample_every, duration);
}

/// Reports an overhead that is longer than any run.
pub(super) fn overhead(overhead: Duration, checker: &mut Checker<'_>) {
    if let Err(flaw) = within_reason("overhead", overhead) {
        checker.report("overhead", flaw.reason, flaw.help);
    }
}

/// Reports too many events, or too many things with a state of their own.
fn budgets(plan: &Plan, places: &[usize], checker: &mut Checker<'_>) {
    let added = |change: &Change| match change {
        Change::AddClients { count } => f64::from(count.get()),
        _ => 0.0,
    };
    let clients = f64::from(plan.clients.count.get());
    let all: f64 = clients + plan.timeline.iter().map(|happening| added(&happening.change)).sum::<f64>();
    let most = plan.timeline.iter().map(|happening| added(&happening.change)).fold(0.0, f64::max);
    let place = plan.timeline.iter().position(|happening| most > 0.0 && added(&happening.change) == most);
    // The setting with the largest part of them.
    let path = place
        .filter(|_| most > clients)
        .map_or("clients.count".to_owned(), |i| format!("timeline[{}].count", places[i]));
    budget(checker, &path, "clients", all, MOST_CLIENTS);
    let backends = total(groups(plan)) as f64;
    let is_reasonable = all <= MOST_CLIENTS && total(groups(plan)) <= MOST_BACKENDS;
    if is_reasonable {
        budget(checker, &path, "pairs of a client and a backend", all * backends, MOST_PAIRS);
    }
    for (i, arm) in plan.arms.iter().enumerate() {
        if let Some(discovery) = &arm.discovery
            && is_reasonable
        {
            let path = format!("arms[{i}].discovery");
            budget::repeats(checker, &path, discovery.every, plan.duration, all * backends, MOST_EVENTS);
        }
        let checks = &arm.balancer.checks;
        if checks.active && is_reasonable {
            let path = format!("arms[{i}].checks.interval");
            budget::repeats(checker, &path, checks.interval, plan.duration, all * backends, MOST_EVENTS);
        }
    }
    for (i, group) in plan.backends.iter().enumerate() {
        let path = format!("backends[{i}].antagonist.holds");
        neighbours(&group.antagonist, f64::from(group.count.get()), &path, plan.duration, checker);
    }
    for (place, happening) in places.iter().zip(&plan.timeline) {
        let path = format!("timeline[{place}].antagonist.holds");
        match &happening.change {
            Change::AddBackends { group } => {
                neighbours(&group.antagonist, f64::from(group.count.get()), &path, plan.duration, checker);
            }
            Change::Antagonist { antagonist, .. } => neighbours(antagonist, backends, &path, plan.duration, checker),
            _ => {}
        }
    }
    arrivals(plan, checker);
}

/// Reports neighbours that change their usage too often.
fn neighbours(antagonist: &Antagonist, backends: f64, path: &str, duration: Duration, checker: &mut Checker<'_>) {
    if let Antagonist::Some { usage, .. } = antagonist
        && usage.jitter > Ratio::ZERO
    {
        budget::repeats(checker, path, usage.holds, duration, backends, MOST_EVENTS);
    }
}

/// Reports too many requests.
fn arrivals(plan: &Plan, checker: &mut Checker<'_>) {
    let capacity = |group: &BackendGroup| {
        let speed = match group.speed {
            Speed::Fixed(speed) => speed,
            Speed::Uniform { low, high } => f64::midpoint(low, high),
        };
        f64::from(group.count.get()) * group.cores * speed
    };
    // A number that is too high by itself is reported already, and all that follows from it would
    // be.
    let is_reasonable = |group: &BackendGroup| capacity(group) <= MOST_POWER * f64::from(group.count.get());
    let is_counted = plan.duration <= LONGEST && total(groups(plan)) <= MOST_BACKENDS;
    if !is_counted || !plan.backends.iter().all(is_reasonable) {
        return;
    }
    let served = plan.backends.iter().map(capacity).sum::<f64>() / (plan.cost.mean() + plan.overhead).as_secs_f64();
    let (key, rate) = match plan.arrivals {
        Arrivals::Open { rate: Rate::PerSecond(rate) } => ("arrivals.per_second", rate),
        Arrivals::Open { rate: Rate::OfCapacity(part) } => ("arrivals.of_capacity", part * served),
        Arrivals::Closed { users, think } => {
            budget(checker, "arrivals.count", "users", f64::from(users.get()), MOST_PARTIES);
            let round = think + plan.cost.mean() + plan.overhead + plan.network.delay * 2;
            ("arrivals.count", (f64::from(users.get()) / round.as_secs_f64()).min(served))
        }
    };
    let expected = rate * plan.duration.as_secs_f64();
    if checker.is_set(key) {
        budget(checker, key, "requests", expected, MOST_EVENTS);
    } else if expected > MOST_EVENTS {
        // The load is the default, so the fleet is too fast for it.
        let key = if checker.is_set("cost") { "cost" } else { "backends" };
        let reason = format!("at this load, one run would have about {} requests", budget::number(expected));
        let mend =
            format!("raise cost, or set arrivals; at most {} requests are possible", budget::number(MOST_EVENTS));
        checker.report(key, reason, mend);
    }
    if expected <= MOST_EVENTS {
        budget::phases(checker, &plan.phases, plan.duration, rate);
    }
}

/// Reports a span that is not shorter than the run. A default becomes one part in `parts` of the
/// run instead.
pub(super) fn gives_way(checker: &mut Checker<'_>, key: &str, span: &mut Duration, duration: Duration, parts: u32) {
    if *span < duration {
        return;
    }
    if checker.is_set(key) {
        let reason = format!("{} is not shorter than the run ({})", text(*span), text(duration));
        checker.report(key, reason, "shorten it, or raise duration");
    } else {
        *span = duration / parts;
    }
}

fn backends(plan: &Plan, checker: &mut Checker<'_>) {
    if plan.backends.is_empty() {
        checker.report("backends", "there is no backend", "add [[backends]] with count = 10");
    }
    let all = total(groups(plan));
    if all > MOST_BACKENDS {
        let mend = format!("lower a count; at most {MOST_BACKENDS} are possible");
        checker.report("backends", format!("there are {all} backends in all"), mend);
    }
    for (i, group) in plan.backends.iter().enumerate() {
        let path = format!("backends[{i}]");
        unique(
            checker,
            &format!("{path}.name"),
            &group.name,
            plan.backends[..i].iter().map(|other| other.name.as_str()),
        );
        backend(group, &path, checker);
    }
}

fn backend(group: &BackendGroup, path: &str, checker: &mut Checker<'_>) {
    metric_name(checker, &format!("{path}.name"), &group.name);
    zones(group, path, checker);
    if group.cores <= 0.0 {
        let mend = "write a number above 0; 0.1 is a tenth of a core";
        checker.report(format!("{path}.cores"), "a backend without CPU answers nothing", mend);
    }
    budget(checker, format!("{path}.cores"), "cores", group.cores, MOST_POWER);
    let speed = format!("{path}.speed");
    let (Speed::Fixed(fastest) | Speed::Uniform { high: fastest, .. }) = group.speed;
    budget(checker, &speed, "times the speed of an ordinary machine", fastest, MOST_POWER);
    match group.speed {
        Speed::Fixed(speed_of_all) if speed_of_all <= 0.0 => {
            checker.report(speed, "a machine without speed answers nothing", "write a number above 0");
        }
        Speed::Uniform { low, .. } if low <= 0.0 => {
            checker.report(format!("{speed}.low"), "a machine without speed answers nothing", "write a number above 0");
        }
        Speed::Uniform { low, high } if low > high => {
            checker.report(format!("{speed}.low"), format!("{low} is above high ({high})"), "swap the two");
        }
        Speed::Fixed(_) | Speed::Uniform { .. } => {}
    }
    if let Antagonist::Some { interference: Interference::Allocation { machine, .. }, .. } = group.antagonist
        && machine < group.cores
    {
        let reason = format!("{machine} is less than the backend's own cores ({})", group.cores);
        checker.report(format!("{path}.antagonist.machine"), reason, "write the cores of the whole machine");
    }
}

/// Reports zones with the same name, and empty zones.
fn zones(group: &BackendGroup, path: &str, checker: &mut Checker<'_>) {
    let zones = &group.zones;
    for (i, zone) in zones.iter().enumerate() {
        let path = format!("{path}.zones[{i}]");
        if zone.trim().is_empty() {
            checker.report(path, "the name of a zone is empty", "write a name, such as \"a\"");
        } else {
            unique(checker, &path, zone, zones[..i].iter().map(String::as_str));
        }
    }
    let count = group.count.get() as usize;
    if zones.len() > count {
        let reason = format!("{} zones for {count} backends leave a zone empty", zones.len());
        checker.report(format!("{path}.zones"), reason, "remove a zone, or raise count");
    }
    if !zones.is_empty() && checker.is_set(&format!("{path}.domains")) {
        let reason = "has no effect where there are zones, which are failure domains";
        checker.report(format!("{path}.domains"), reason, "remove it, or remove zones");
    }
}

fn clients(plan: &Plan, checker: &mut Checker<'_>) {
    let Arrivals::Closed { users, .. } = plan.arrivals else { return };
    if users < plan.clients.count {
        let reason = format!("{users} users are fewer than clients ({})", plan.clients.count);
        checker.report("arrivals.count", reason, "raise it, or lower clients.count");
    }
}

fn phases(plan: &Plan, checker: &mut Checker<'_>) {
    phase_times(&plan.phases, plan.duration, plan.warmup, checker);
    for (i, phase) in plan.phases.iter().enumerate() {
        let path = format!("phases[{i}]");
        // It would be taken for a metric of groups.
        if fleet::is_group_metric(&phase.name) {
            let reason = format!("\"{}\" is part of the names of metrics", phase.name);
            checker.report(format!("{path}.name"), reason, "give it another name");
        }
        if phase.load != 1.0 && matches!(plan.arrivals, Arrivals::Closed { .. }) {
            let reason = "has no effect in a closed loop of users";
            checker.report(format!("{path}.load"), reason, "remove it, or write arrivals of kind \"load\" or \"rate\"");
        }
    }
}

/// Reports phases with the same name, and phases that do not follow each other within the run.
pub(super) fn phase_times(phases: &[Phase], duration: Duration, warmup: Duration, checker: &mut Checker<'_>) {
    names(checker, "phases", phases.iter().map(|phase| &*phase.name));
    for (i, phase) in phases.iter().enumerate() {
        let path = format!("phases[{i}]");
        if phase.at >= duration {
            let reason = format!("{} is beyond the end of the run ({})", text(phase.at), text(duration));
            checker.report(format!("{path}.at"), reason, "start it earlier, or raise duration");
        } else if phases[..i].iter().any(|other| other.at >= phase.at) {
            let reason = format!("{} is not after the previous phase", text(phase.at));
            checker.report(format!("{path}.at"), reason, "write phases in the order of their start times");
        } else {
            let end = phases.get(i + 1).map_or(duration, |next| next.at);
            if phase.settle >= end.saturating_sub(phase.at) && end > phase.at {
                let reason = format!("{} covers the whole phase, which ends at {}", text(phase.settle), text(end));
                checker.report(format!("{path}.settle"), reason, "shorten it, or lengthen the phase");
            } else if end <= warmup && end > phase.at {
                let reason = format!("ends at {}, within the warm-up ({})", text(end), text(warmup));
                checker.report(&path, reason, "lower warmup, or lengthen the phase");
            }
        }
    }
}

fn timeline(plan: &Plan, places: &[usize], checker: &mut Checker<'_>) {
    // Changes are checked in the order in which they happen, against the groups present at that
    // time.
    let mut order: Vec<usize> = (0..plan.timeline.len()).collect();
    order.sort_by_key(|i| plan.timeline[*i].at);
    let mut clients = plan.clients.count.get();
    let mut source_until = Duration::ZERO;
    let mut known: Vec<&BackendGroup> = plan.backends.iter().collect();
    for i in order {
        let happening = &plan.timeline[i];
        let path = format!("timeline[{}]", places[i]);
        if happening.at >= plan.duration {
            let reason = format!("{} is beyond the end of the run ({})", text(happening.at), text(plan.duration));
            checker.report(format!("{path}.at"), reason, "move it to an earlier time, or raise duration");
        }
        match &happening.change {
            Change::Conduct { backends, .. }
            | Change::Restart { backends, .. }
            | Change::Antagonist { backends, .. }
            | Change::Speed { backends, .. }
            | Change::RemoveBackends { backends } => selection(backends, &known, &path, checker),
            Change::AddBackends { group } => {
                unique(checker, &format!("{path}.name"), &group.name, known.iter().map(|other| other.name.as_str()));
                backend(group, &path, checker);
                known.push(group);
            }
            Change::Source { .. } if plan.arms.iter().all(|arm| arm.discovery.is_none()) => {
                let help = "add discovery = { every = \"5s\" } to an arm, or remove the event";
                checker.report(&path, "has no effect: no arm has discovery", help);
            }
            Change::Source { lasts, .. } => {
                if happening.at < source_until {
                    let reason = format!("begins before the last state of the source ends ({})", text(source_until));
                    checker.report(format!("{path}.at"), reason, "move it to a later time, or shorten the other");
                }
                source_until = happening.at + *lasts;
            }
            Change::AddClients { count } => clients = clients.saturating_add(count.get()),
            Change::RemoveClients { count } if count.get() >= clients => {
                let reason = format!("{count} clients would leave none of {clients}");
                checker.report(format!("{path}.count"), reason, "leave at least one client");
            }
            Change::RemoveClients { count } => clients -= count.get(),
        }
    }
}

/// Reports a selection of nothing, or of more backends than there are.
fn selection(selection: &Selection, known: &[&BackendGroup], path: &str, checker: &mut Checker<'_>) {
    let Selection { group, zone, first, count } = selection;
    if let Some(name) = group
        && !known.iter().any(|group| group.name == *name)
    {
        let mend = help_for_name(name, known.iter().map(|group| group.name.as_str()));
        checker.report(format!("{path}.group"), format!("no group is named \"{name}\" at this time"), mend);
        return;
    }
    let selected = || known.iter().filter(|one| group.as_ref().is_none_or(|name| one.name == *name));
    let there: u64 = match zone {
        None => total(selected().copied()),
        Some(zone) => {
            let in_zone = |group: &&BackendGroup| {
                (0..group.count.get()).filter(|place| group.zone(*place) == Some(zone.as_str())).count() as u64
            };
            // Counted one by one, so only if the fleet has a permitted size.
            if total(selected().copied()) > MOST_BACKENDS {
                return;
            }
            selected().copied().map(|group| in_zone(&group)).sum()
        }
    };
    if let (Some(zone), 0) = (zone, there) {
        report_zone(zone, group.as_deref(), selected().copied(), path, checker);
        return;
    }
    let end = u64::from(*first) + count.map_or(1, |count| u64::from(count.get()));
    if there > 0 && end > there {
        let key = if count.is_some() { "count" } else { "first" };
        let reason = format!("selects backend {end} of {there}");
        checker.report(format!("{path}.{key}"), reason, "lower first or count");
    }
}

/// Reports a zone without a backend of the selected groups.
fn report_zone<'p>(
    zone: &str,
    group: Option<&str>,
    selected: impl Iterator<Item = &'p BackendGroup>,
    path: &str,
    checker: &mut Checker<'_>,
) {
    let zones: BTreeSet<&str> =
        selected.flat_map(|group| group.zones.iter().map(String::as_str)).filter(|zone| !zone.is_empty()).collect();
    let mend = if zones.is_empty() {
        "give a group zones, such as zones = [\"a\", \"b\", \"c\"] in [[backends]]".to_owned()
    } else {
        help_for_name(zone, zones.iter().copied())
    };
    let of = group.map(|name| format!(" of group \"{name}\"")).unwrap_or_default();
    checker.report(format!("{path}.zone"), format!("no backend{of} is in zone \"{zone}\" at this time"), mend);
}

fn arms(plan: &mut Plan, checker: &mut Checker<'_>) {
    if plan.arms.is_empty() {
        let mend = "add [[arms]] with name = \"weighted\" and policy = \"weighted\"";
        checker.report("arms", "there is no arm", mend);
    }
    names(checker, "arms", plan.arms.iter().map(|arm| &*arm.name));
    let duration = plan.duration;
    for (i, arm) in plan.arms.iter_mut().enumerate() {
        let path = format!("arms[{i}]");
        check_balancer(checker, &path, &mut arm.balancer);
        discovery(arm, &path, checker);
        let Arm { switches, .. } = arm;
        for (k, switch) in switches.iter().enumerate() {
            if switch.at >= duration {
                let reason = format!("{} is beyond the end of the run ({})", text(switch.at), text(duration));
                checker.report(format!("{path}.switches[{k}].at"), reason, "switch earlier, or raise duration");
            }
        }
    }
}

/// Reports discovery that a subset cannot follow, and a hold that no run can have.
fn discovery(arm: &Arm, path: &str, checker: &mut Checker<'_>) {
    let Some(discovery) = &arm.discovery else { return };
    let path = format!("{path}.discovery");
    if let Err(flaw) = within_reason("hold", discovery.merge.hold) {
        checker.report(format!("{path}.hold"), flaw.reason, flaw.help);
    }
    if arm.subset.is_some_and(|subset| subset.algorithm == Algorithm::Ledger) {
        let reason = "has no effect with a ledger, which assigns backends itself";
        checker.report(path, reason, "remove it, or choose another algorithm of subsets");
    }
}
