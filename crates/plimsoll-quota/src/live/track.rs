//! The memory of one service: ten minutes of samples, and the state that changes are told by.

use std::collections::BTreeMap;
use std::time::Duration;

use plimsoll_admin::parts::{History, LiveChanges, NamedSeries, Series, significant};
use plimsoll_core::Timestamp;
use plimsoll_core::quota::CustomerState;

use super::survey::{CutMarks, MAX_NAMED, Named, Survey, Turned};
use super::view::Change;
use crate::changes::Outcome;
use crate::config::Unit;
use crate::hosted::Hosted;
use crate::limits::Override;
use crate::name::Name;
use crate::service::{Counts, Service};

/// Tasks that join, or are lost, within this time are one change: a roll-out is many of them.
const ROLL_OUT_S: f64 = 60.0;
/// The longest name in a change, in characters.
const MAX_NAME: usize = 40;
/// Limits for longer than this are told to the minute, and not to the second.
const LONG: Duration = Duration::from_secs(120);

/// One second of a service: sums over its customers with a limit, in its unit.
#[derive(Debug)]
pub(super) struct Sample {
    demand: f32,
    used: f32,
    limit: f32,
    customers_cut: f32,
}

impl Series for Sample {
    const ALL: &'static [NamedSeries<Self>] = &[
        ("demand", |of| of.demand),
        ("used", |of| of.used),
        ("limit", |of| of.limit),
        ("customers_cut", |of| of.customers_cut),
    ];
}

impl Sample {
    fn of(survey: &Survey) -> Self {
        let (sums, scale) = (survey.sums(), survey.unit.scale());
        let [demand, used, limit] = [sums.demand, sums.used, sums.limit].map(|of| (of as f64 / scale) as f32);
        Self { demand, used, limit, customers_cut: survey.cut as f32 }
    }
}

/// The memory of one service.
#[derive(Debug, Default)]
pub(super) struct Track {
    pub(super) history: History<Sample>,
    marks: CutMarks,
    seen: Option<Seen>,
    joined: Tally,
    lost: Tally,
}

/// The state of the last second.
#[derive(Debug)]
struct Seen {
    tasks: u32,
    is_unsure: bool,
    counts: Counts,
    overrides: BTreeMap<Name, Override>,
}

/// Tasks that joined or were lost since a moment.
#[derive(Clone, Copy, Debug, Default)]
struct Tally {
    since: f64,
    tasks: u32,
}

impl Tally {
    /// This many more at `at`.
    fn add(&mut self, at: f64, tasks: u32) -> Self {
        if at - self.since > ROLL_OUT_S {
            *self = Self { since: at, tasks: 0 };
        }
        self.tasks += tasks;
        *self
    }
}

impl Track {
    /// A customer is cut, or was within the last seconds.
    pub(super) fn is_cutting(&self) -> bool {
        self.marks.marked > 0
    }

    /// A second of the service of this name has ended.
    pub(super) fn tick(
        &mut self,
        at: f64,
        now: Timestamp,
        (name, hosted): (&str, &Hosted),
        changes: &mut LiveChanges<Change>,
    ) -> Survey {
        let (survey, turned) = Survey::tick(hosted, &mut self.marks);
        self.history.push(Sample::of(&survey));
        let teller = Teller { at, service: name, unit: survey.unit };
        let Some(before) = self.seen.take() else {
            // The state at the start is no change.
            self.seen = Some(Seen::new(&survey, hosted.lock().overrides().clone()));
            return survey;
        };
        let mut overrides = before.overrides;
        let ended = |of: &Counts| (of.applied, of.refused);
        if ended(&survey.counts) != ended(&before.counts) {
            let service = hosted.lock();
            teller.limits(now, &service, (&before.counts, &survey.counts), &overrides, changes);
            overrides.clone_from(service.overrides());
        }
        teller.cuts(&turned, changes);
        if survey.is_unsure != before.is_unsure {
            let text = if survey.is_unsure { "unsure of the rates that tasks hold" } else { "sure of all rates" };
            changes.add(teller.change("process", "server", text));
        }
        let [joined, lost] = [(survey.tasks, before.tasks), (before.tasks, survey.tasks)];
        for ((more, fewer), tally, verb) in [(joined, &mut self.joined, "joined"), (lost, &mut self.lost, "lost")] {
            if let Some(tasks @ 1..) = more.checked_sub(fewer) {
                teller.tasks(tally.add(at, tasks), verb, changes);
            }
        }
        self.seen = Some(Seen::new(&survey, overrides));
        survey
    }
}

impl Seen {
    fn new(survey: &Survey, overrides: BTreeMap<Name, Override>) -> Self {
        Self { tasks: survey.tasks, is_unsure: survey.is_unsure, counts: survey.counts, overrides }
    }
}

/// Puts the changes of a second into words.
struct Teller<'s> {
    at: f64,
    service: &'s str,
    unit: Unit,
}

impl Teller<'_> {
    fn change(&self, kind: &'static str, subject: &str, text: impl Into<String>) -> Change {
        Change { at: self.at, kind, service: short(self.service), subject: short(subject), text: text.into() }
    }

    fn cuts(&self, turned: &Turned, changes: &mut LiveChanges<Change>) {
        let began = |state: &CustomerState| {
            let demand = self.rate(state.demand.iter().sum());
            format!("cut: demand {demand}, limit {} {}", self.rate(state.limit), self.unit_name())
        };
        self.named(&turned.ended, "not cut any more", |_| "not cut any more".to_owned(), changes);
        self.named(&turned.began, "cut", began, changes);
    }

    /// A change for each customer, or one for all of them if they are many.
    fn named(
        &self,
        of: &Named,
        text: &str,
        text_of_one: impl Fn(&CustomerState) -> String,
        changes: &mut LiveChanges<Change>,
    ) {
        if of.count > MAX_NAMED {
            return changes.add(self.change("cut", &format!("{} customers", of.count), text));
        }
        for (name, state) in &of.first {
            changes.add(self.change("cut", &name.shown(), text_of_one(state)));
        }
    }

    /// Limits that came into force between two counts, and those that were refused.
    fn limits(
        &self,
        now: Timestamp,
        service: &Service,
        (before, after): (&Counts, &Counts),
        overrides: &BTreeMap<Name, Override>,
        changes: &mut LiveChanges<Change>,
    ) {
        for name in overrides.keys().filter(|name| !service.overrides().contains_key(name)) {
            changes.add(self.change("override", &name.shown(), "limit of the operator ended"));
        }
        for (name, to) in service.overrides().iter().filter(|(name, to)| overrides.get(name) != Some(to)) {
            let (limit, lasts) = (self.rate(to.limit), lasts(to.until.since(now)));
            let text = format!("limit {limit} {} for {lasts}", self.unit_name());
            changes.add(self.change("override", &name.shown(), text));
        }
        if after.reloaded > before.reloaded {
            changes.add(self.change("reload", "limits of the file", "in force"));
        }
        if after.refused > before.refused {
            let tasks = match service.changes().last_outcome() {
                Some(Outcome::Refused(tasks)) => tasks.join(", "),
                _ => "tasks".to_owned(),
            };
            changes.add(self.change("reload", "new limits", format!("refused: {} lost their streams", short(&tasks))));
        }
    }

    fn tasks(&self, Tally { since, tasks }: Tally, verb: &str, changes: &mut LiveChanges<Change>) {
        let noun = if tasks == 1 { "task" } else { "tasks" };
        let change = Change { at: since, ..self.change("tasks", &format!("{tasks} {noun}"), verb) };
        let (service, text) = (change.service.clone(), change.text.clone());
        let is_same = |known: &Change| {
            known.kind == "tasks" && known.at == since && known.service == service && known.text == text
        };
        changes.update(change, is_same);
    }

    fn rate(&self, rate: u64) -> f64 {
        significant(rate as f64 / self.unit.scale())
    }

    const fn unit_name(&self) -> &'static str {
        match self.unit {
            Unit::Cpus => "CPUs",
            Unit::Requests => "requests/s",
        }
    }
}

/// A name of bounded length: names of customers come from strangers.
fn short(name: &str) -> String {
    match name.char_indices().nth(MAX_NAME) {
        None => name.to_owned(),
        Some((end, _)) => format!("{}…", &name[..end]),
    }
}

fn lasts(time: Duration) -> String {
    let step = if time > LONG { 60.0 } else { 1.0 };
    let rounded = Duration::from_secs(((time.as_secs_f64() / step).round() * step) as u64);
    humantime::format_duration(rounded).to_string()
}
