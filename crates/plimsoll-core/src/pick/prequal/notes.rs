//! Notes of each backend's last load report: the basis of `prequal` without live probes.
//!
//! A note is the last load report with requests in flight. To its count the policy adds the
//! requests that this client has sent since, less those that ended. A note that is too old counts
//! for nothing. The client's own count of active requests is no substitute, since it is a part of
//! all clients' requests there. Nor is the client's own latency a substitute for the backend's: it
//! comes late, and without the number in flight.

use alloc::vec::Vec;
use core::time::Duration;

use super::ProbeAnswer;
use super::pool::Entry;
use crate::Timestamp;
use crate::pick::Candidate;

#[derive(Clone, Copy, Debug)]
struct Note {
    at: Timestamp,
    in_flight: u32,
    /// This client's own load at the time.
    load: u32,
    latency_s: f32,
}

/// The notes, by slot.
#[derive(Clone, Debug, Default)]
pub(crate) struct Notes {
    notes: Vec<Option<Note>>,
}

impl Notes {
    /// Reserves memory for `slot`, so that reports do not allocate.
    pub(super) fn reserve(&mut self, slot: u32) {
        if self.notes.len() <= slot as usize {
            self.notes.resize(slot as usize + 1, None);
        }
    }

    /// Drops the note of a slot that now has another backend.
    pub(crate) fn forget(&mut self, slot: u32) {
        if let Some(note) = self.notes.get_mut(slot as usize) {
            *note = None;
        }
    }

    /// Notes a load report that came while this client had `load` there.
    pub(crate) fn on_report(&mut self, now: Timestamp, slot: u32, answer: ProbeAnswer, load: u32) {
        if let Some(note) = self.notes.get_mut(slot as usize) {
            let latency_s = answer.latency.map_or(0.0, |latency| latency.as_secs_f32());
            *note = Some(Note { at: now, in_flight: answer.in_flight, load, latency_s });
        }
    }

    /// Whether the backend in `slot` has a note younger than `max_age`.
    pub(super) fn is_recent(&self, now: Timestamp, slot: u32, max_age: Duration) -> bool {
        self.recent(now, slot, max_age).is_some()
    }

    fn recent(&self, now: Timestamp, slot: u32, max_age: Duration) -> Option<&Note> {
        self.notes.get(slot as usize)?.as_ref().filter(|note| now.since(note.at) < max_age)
    }

    /// The estimated probe answer of the backend in `slot`; `None` without a note younger than
    /// `max_age`.
    pub(super) fn entry(&self, now: Timestamp, slot: u32, candidate: &Candidate, max_age: Duration) -> Option<Entry> {
        let note = self.recent(now, slot, max_age)?;
        let in_flight = note.in_flight.saturating_add(candidate.load).saturating_sub(note.load);
        Some(Entry { slot, in_flight, latency_s: note.latency_s, at: now, uses_left: 1 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn note_counts_until_it_is_too_old_or_another_backend_has_its_slot() {
        let max_age = Duration::from_secs(1);
        let candidate = Candidate { load: 5, inverse_weight: 1.0, latency: Default::default() };
        let mut notes = Notes::default();
        notes.reserve(1);
        notes.on_report(Timestamp::ZERO, 1, ProbeAnswer { in_flight: 10, latency: None }, 2);
        let in_flight = |notes: &Notes, ms| {
            let now = Timestamp::from_origin(Duration::from_millis(ms));
            notes.entry(now, 1, &candidate, max_age).map(|entry| entry.in_flight)
        };
        assert_eq!([999, 1_000].map(|ms| in_flight(&notes, ms)), [Some(13), None]);
        notes.forget(1);
        assert_eq!(in_flight(&notes, 0), None);
    }
}
