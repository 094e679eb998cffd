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

/// Wake-ups are at multiples of this time: queries of thousands of backends share them. A query is
/// late by as much, and checks resume after 3.3 s of silence.
const GRID_NANOS: u64 = 100_000_000;

impl Entry {
    fn wake_at(&self) -> Option<Timestamp> {
        let at = self.prober.poll_timeout()?.as_nanos();
        Some(Timestamp::from_nanos(at.div_ceil(GRID_NANOS).saturating_mul(GRID_NANOS)))
    }
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

    /// Sees to it that the prober wakes up in time.
    pub(super) fn reschedule(&mut self, id: BackendId) {
        let Some(entry) = self.entry_mut(id) else { return };
        // A later time needs no entry now: the present one is moved when it comes first.
        if let Some(at) = entry.wake_at()
            && entry.scheduled.is_none_or(|scheduled| at < scheduled)
        {
            entry.scheduled = Some(at);
            self.timers.push(at, id);
        }
        self.settle();
    }

    /// Moves the earliest entries to the present times of their probers. Most queries are answered,
    /// and an entry for the time-out of each would wake the client once more.
    fn settle(&mut self) {
        while let Some((at, id)) = self.timers.first() {
            let entry = self.entry_mut(id).filter(|entry| entry.scheduled == Some(at));
            let next = match entry {
                None => None,
                Some(entry) => {
                    let next = entry.wake_at();
                    if next.is_some_and(|next| next <= at) {
                        return;
                    }
                    entry.scheduled = next;
                    next
                }
            };
            self.timers.drop_first();
            if let Some(next) = next {
                self.timers.push(next, id);
            }
        }
    }

    pub(in crate::balancer) fn poll_timeout(&self) -> Option<Timestamp> {
        self.timers.next().map(|at| at.max(self.pacer.ready_at(1)))
    }

    #[cfg(test)]
    pub(super) fn wake_ups(&self) -> usize {
        self.timers.len()
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
        self.settle();
        if !self.pacer.is_ready(now) {
            return None;
        }
        let id = self.timers.pop_due(now)?;
        self.entry_mut(id)?.scheduled = None;
        self.pacer.take(now, 1);
        Some(id)
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
