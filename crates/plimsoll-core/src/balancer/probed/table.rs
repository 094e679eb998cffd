//! The probers of all backends, by slot, and their wake-ups.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use super::census::{ProbeCensus, ProbeCounts, ProbeSnapshot};
use crate::balancer::timers::Timers;
use crate::probe::{Action, Pace, Pacer, Prober, ProberConfig, Query};
use crate::{BackendId, Timestamp};

#[derive(Clone, Debug)]
pub(super) struct Entry {
    pub(super) id: BackendId,
    pub(super) prober: Prober,
    pub(super) scheduled: Option<Timestamp>,
}

/// The probers of all backends.
#[derive(Clone, Debug)]
pub(in crate::balancer) struct Probes {
    pub(super) config: ProberConfig,
    /// By slot.
    entries: Vec<Option<Entry>>,
    pub(super) timers: Timers,
    pub(super) pacer: Pacer,
    pub(super) queries: VecDeque<(BackendId, Query)>,
    pub(super) counts: ProbeCounts,
    pub(super) census: ProbeCensus,
    /// The actions of one event: kept for its memory.
    pub(super) actions: Vec<Action>,
}

impl Probes {
    pub(super) fn new(config: ProberConfig) -> Self {
        Self {
            config,
            entries: Vec::new(),
            timers: Timers::default(),
            pacer: Pacer::new(Pace::QUERIES),
            queries: VecDeque::new(),
            counts: ProbeCounts::default(),
            census: ProbeCensus::default(),
            actions: Vec::new(),
        }
    }

    pub(super) fn entry(&self, id: BackendId) -> Option<&Entry> {
        self.entries.get(id.slot())?.as_ref().filter(|entry| entry.id == id)
    }

    pub(super) fn entry_mut(&mut self, id: BackendId) -> Option<&mut Entry> {
        self.entries.get_mut(id.slot())?.as_mut().filter(|entry| entry.id == id)
    }

    pub(super) fn reschedule(&mut self, id: BackendId) {
        let Some(entry) = self.entry_mut(id) else { return };
        let at = entry.prober.poll_timeout();
        if let Some(at) = at.filter(|_| at != entry.scheduled) {
            entry.scheduled = Some(at);
            self.timers.push(at, id);
        }
        // Most queries are answered: an entry for the time-out of each would wake the client once more.
        let entries = &self.entries;
        self.timers.drop_outdated(|at, id| {
            let entry = entries.get(id.slot()).and_then(Option::as_ref).filter(|entry| entry.id == id);
            entry.is_none_or(|entry| entry.scheduled != Some(at))
        });
    }

    pub(in crate::balancer) fn poll_timeout(&self) -> Option<Timestamp> {
        self.timers.next().map(|at| at.max(self.pacer.ready_at(1)))
    }

    /// Begins to probe a backend.
    pub(super) fn insert(&mut self, id: BackendId, prober: Prober) {
        if self.entries.len() <= id.slot() {
            self.entries.resize_with(id.slot() + 1, || None);
        }
        self.census.count(ProbeSnapshot::of(&prober), true);
        self.entries[id.slot()] = Some(Entry { id, prober, scheduled: None });
        self.reschedule(id);
    }

    /// Ends the probes of a backend. Returns whether it was probed.
    pub(super) fn remove(&mut self, id: BackendId) -> bool {
        let Some(entry) = self.entry(id) else { return false };
        self.census.count(ProbeSnapshot::of(&entry.prober), false);
        self.entries[id.slot()] = None;
        true
    }

    /// The next backend whose prober has work at `now`, if the pace permits a query.
    pub(super) fn pop_due(&mut self, now: Timestamp) -> Option<BackendId> {
        while self.pacer.is_ready(now) {
            let id = self.timers.pop_due(now)?;
            // Others were rescheduled since, by an entry of their own.
            if let Some(entry) = self.entry_mut(id).filter(|entry| entry.scheduled.is_some_and(|at| at <= now)) {
                entry.scheduled = None;
                self.pacer.take(now, 1);
                return Some(id);
            }
        }
        None
    }

    /// Gives an event to a prober, and counts the backend under its new path.
    pub(super) fn tell<T>(&mut self, id: BackendId, event: impl FnOnce(&mut Prober) -> T) -> Option<T> {
        let prober = &mut self.entry_mut(id)?.prober;
        let before = ProbeSnapshot::of(prober);
        let result = event(prober);
        let after = ProbeSnapshot::of(prober);
        if before != after {
            self.census.count(before, false);
            self.census.count(after, true);
        }
        self.reschedule(id);
        Some(result)
    }
}
