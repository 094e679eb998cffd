//! The backends heard from last: the choice of `prequal` with frugal live probes.
//!
//! A client that sends rarely to each backend has no recent report of most of them. A pick that
//! draws three of all backends then mostly meets an unknown one, and has nothing to compare. So
//! here a pick draws among the [`MAX_HEARD`] backends with the latest reports. These come in
//! responses to this client, and in answers to probes. By responses alone a client would hear only
//! from backends that it chose, and keep choosing these. Probes bring in others: at most one for
//! two picks, to backends without a recent report ([`FrugalProbes`]).
//!
//! A backend that does not answer its probe, as behind a firewall, would never come in. When it is
//! drawn to be probed again, every second time it gets the request too. Of n backends one is drawn
//! at most twice in n picks, so its even share is the most that it gets this way.
//!
//! With fewer than two reports the choice is that of load reports in responses.

use alloc::vec::Vec;
use core::time::Duration;

use super::notes::Notes;
use super::{MIN_ANSWERS, Prequal};
use crate::pick::View;
use crate::probe::FrugalProbes;
use crate::{Random, Timestamp, rng};

/// Backends to draw from: more would be older. In the scenario `prequal-live` at 70% load, p99
/// rises by a third with 8, and by 70% with 16.
const MAX_HEARD: usize = 4;
/// Probes that a caller may leave unpolled. One pick requests one at most.
const MAX_PENDING: usize = 4;

/// The backends heard from last, and those to probe.
#[derive(Clone, Debug, Default)]
pub(super) struct Heard {
    /// Slots with the latest reports, the newest last.
    slots: Vec<u32>,
    probes: FrugalProbes,
    /// Slots to probe, not polled yet.
    pending: Vec<u32>,
    /// Time of the last probe by slot, until a report comes.
    unanswered: Vec<Option<Timestamp>>,
}

impl Heard {
    /// Reserves memory for `slot`, so that picks and reports do not allocate.
    pub(super) fn reserve(&mut self, slot: u32) {
        self.slots.reserve(MAX_HEARD.saturating_sub(self.slots.len()));
        self.pending.reserve(MAX_PENDING.saturating_sub(self.pending.len()));
        if self.unanswered.len() <= slot as usize {
            self.unanswered.resize(slot as usize + 1, None);
        }
    }

    /// Drops what concerns a backend that is no longer usable.
    pub(super) fn forget(&mut self, slot: u32) {
        self.slots.retain(|known| *known != slot);
        self.pending.retain(|known| *known != slot);
        if let Some(unanswered) = self.unanswered.get_mut(slot as usize) {
            *unanswered = None;
        }
    }

    /// Makes a usable backend the one heard from last.
    pub(super) fn on_report(&mut self, slot: u32) {
        if let Some(unanswered) = self.unanswered.get_mut(slot as usize) {
            *unanswered = None;
        }
        self.slots.retain(|known| *known != slot);
        if self.slots.len() == MAX_HEARD {
            self.slots.remove(0);
        }
        self.slots.push(slot);
    }

    /// A backend to probe.
    pub(super) fn poll_probe(&mut self) -> Option<u32> {
        self.pending.pop()
    }

    /// Requests a probe, if there is need. Returns the backend if it did not answer the last one
    /// and shall get the request too.
    fn on_pick(&mut self, view: &View<'_>, notes: &Notes, max_age: Duration, rng: &mut impl Random) -> Option<u32> {
        let is_due = |index: &usize| {
            let slot = view.usable[*index];
            let asked = self.unanswered[slot as usize];
            asked.is_none_or(|at| view.now.since(at) >= max_age) && !notes.is_recent(view.now, slot, max_age)
        };
        let slot = view.usable[self.probes.on_pick(view.usable.len(), is_due, rng)?];
        if self.pending.len() < MAX_PENDING {
            self.pending.push(slot);
        }
        let is_silent = self.unanswered[slot as usize].replace(view.now).is_some();
        (is_silent && rng::below(rng, 2) == 0).then_some(slot)
    }

    /// Drops backends without a recent report.
    fn expire(&mut self, now: Timestamp, notes: &Notes, max_age: Duration) {
        let expired = self.slots.iter().take_while(|slot| !notes.is_recent(now, **slot, max_age)).count();
        if expired > 0 {
            self.slots.drain(..expired);
        }
    }
}

impl Prequal {
    /// Picks among the backends heard from last, and requests a probe. `None` if there are too few
    /// to compare.
    pub(super) fn choose_heard(&mut self, view: &View<'_>, rng: &mut impl Random) -> Option<u32> {
        let max_age = self.config.max_age;
        if let Some(silent) = self.heard.on_pick(view, &self.notes, max_age, rng) {
            return Some(silent);
        }
        self.heard.expire(view.now, &self.notes, max_age);
        let heard = self.heard.slots.as_slice();
        if heard.len() < MIN_ANSWERS {
            return None;
        }
        let entry = |slot: u32| self.notes.entry(view.now, slot, &view.candidates[slot as usize], max_age);
        let threshold = self.threshold.value();
        let from = rng::below(rng, heard.len());
        let first = entry(heard[from])?;
        let mut best = (self.config.rule.score(&first, view, threshold), first.slot);
        // Not all of them: every client that heard from an idle backend would send to it.
        let draws = (self.config.probes_per_pick as usize).clamp(MIN_ANSWERS, heard.len());
        let (before, after) = heard.split_at(from);
        for slot in after[1..].iter().chain(before).take(draws - 1) {
            let score = self.config.rule.score(&entry(*slot)?, view, threshold);
            best = if score < best.0 { (score, *slot) } else { best };
        }
        self.sample(view, first.slot, first.in_flight);
        Some(best.1)
    }
}
