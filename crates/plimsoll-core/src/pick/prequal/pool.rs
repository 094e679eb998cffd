//! The pool of recent probe answers from a few backends.
//!
//! An answer is used until it is too old, has reached its number of uses, or gives way to a newer
//! one. Each use counts one request more at its backend, so that a run of picks between two probes
//! does not all go to one backend. A backend has at most one answer in the pool: a newer answer
//! makes the older one useless.

use alloc::vec::Vec;
use core::time::Duration;

use crate::Timestamp;

/// One answer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Entry {
    pub(super) slot: u32,
    /// Requests in flight at the backend, of all clients, plus those sent there since because of
    /// this answer.
    pub(super) in_flight: u32,
    /// The backend's estimate for one more request, in seconds; 0 if it has none.
    pub(super) latency_s: f32,
    pub(super) at: Timestamp,
    pub(super) uses_left: u32,
}

/// The answers in order of arrival: the oldest first.
#[derive(Clone, Debug)]
pub(super) struct Pool {
    capacity: usize,
    entries: Vec<Entry>,
}

impl Pool {
    pub(super) fn new(capacity: usize) -> Self {
        Self { capacity, entries: Vec::new() }
    }

    /// Reserves memory for the answers of `backends`, so that inserting them does not allocate.
    pub(super) fn reserve(&mut self, backends: usize) {
        self.entries.reserve(backends.min(self.capacity).saturating_sub(self.entries.len()));
    }

    pub(super) fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// Adds an answer. It replaces an earlier one of the same backend or, if the pool is full, the
    /// oldest.
    pub(super) fn insert(&mut self, entry: Entry) {
        match self.entries.iter().position(|known| known.slot == entry.slot) {
            Some(same) => self.remove(same),
            None if self.entries.len() == self.capacity => self.remove(0),
            None => {}
        }
        self.entries.push(entry);
    }

    /// Drops answers of age `max_age` or more.
    pub(super) fn expire(&mut self, now: Timestamp, max_age: Duration) {
        let expired = self.entries.iter().take_while(|entry| now.since(entry.at) >= max_age).count();
        if expired > 0 {
            self.entries.drain(..expired);
        }
    }

    /// Drops the answer of a backend that is no longer usable.
    pub(super) fn forget(&mut self, slot: u32) {
        self.entries.retain(|entry| entry.slot != slot);
    }

    /// Drops the answer at `index`; 0 is the oldest.
    pub(super) fn remove(&mut self, index: usize) {
        self.entries.remove(index);
    }

    /// Counts a use of the answer at `index`, which has decided a pick.
    pub(super) fn use_up(&mut self, index: usize) {
        let entry = &mut self.entries[index];
        entry.in_flight = entry.in_flight.saturating_add(1);
        entry.uses_left = entry.uses_left.saturating_sub(1);
        if entry.uses_left == 0 {
            self.remove(index);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Pool {
        /// Number of answers that need no allocation.
        pub(in super::super) fn allocated(&self) -> usize {
            self.entries.capacity()
        }
    }

    fn entry(slot: u32, at_ms: u64) -> Entry {
        let at = Timestamp::from_origin(Duration::from_millis(at_ms));
        Entry { slot, in_flight: 0, latency_s: 0.0, at, uses_left: 2 }
    }

    #[test]
    fn a_newer_answer_replaces_that_of_its_backend_or_the_oldest() {
        let mut pool = Pool::new(2);
        pool.insert(entry(1, 1));
        pool.insert(entry(2, 2));
        pool.insert(entry(1, 3));
        assert_eq!(pool.entries(), [entry(2, 2), entry(1, 3)]);
        pool.insert(entry(3, 4));
        assert_eq!(pool.entries(), [entry(1, 3), entry(3, 4)]);
    }

    #[test]
    fn answer_counts_its_uses_and_leaves_when_used_up() {
        let mut pool = Pool::new(2);
        pool.insert(entry(1, 1));
        pool.use_up(0);
        assert_eq!(pool.entries()[0].in_flight, 1);
        pool.use_up(0);
        assert!(pool.entries().is_empty());
    }

    #[test]
    fn requests_in_flight_saturate_at_their_maximum() {
        let mut pool = Pool::new(1);
        pool.insert(Entry { in_flight: u32::MAX, ..entry(1, 1) });
        pool.use_up(0);
        assert_eq!(pool.entries()[0].in_flight, u32::MAX);
    }

    #[test]
    fn an_answer_expires() {
        let mut pool = Pool::new(2);
        pool.insert(entry(1, 0));
        pool.insert(entry(2, 1));
        pool.expire(Timestamp::from_origin(Duration::from_secs(1)), Duration::from_secs(1));
        assert_eq!(pool.entries(), [entry(2, 1)]);
    }

    #[test]
    fn the_answer_of_one_backend_alone_is_forgotten() {
        let mut pool = Pool::new(3);
        (1..=3).for_each(|slot| pool.insert(entry(slot, 0)));
        pool.forget(2);
        assert_eq!(pool.entries(), [entry(1, 0), entry(3, 0)]);
    }
}
