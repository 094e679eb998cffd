//! The wake-ups of all backends.
//!
//! A heap of wake-ups, the earliest first; equal times come in the order of asking. A rescheduled
//! backend gets a further entry, and its outdated entry is skipped when it comes up. This is
//! cheaper than a heap with removal, since most backends have one future check and keep it.

use alloc::collections::BinaryHeap;
use core::cmp::Reverse;

use crate::{BackendId, Timestamp};

#[derive(Clone, Debug, Default)]
pub(super) struct Timers {
    heap: BinaryHeap<Reverse<(Timestamp, u64, BackendId)>>,
    sequence: u64,
}

impl Timers {
    pub(super) fn push(&mut self, at: Timestamp, id: BackendId) {
        self.sequence += 1;
        self.heap.push(Reverse((at, self.sequence, id)));
    }

    pub(super) fn next(&self) -> Option<Timestamp> {
        self.heap.peek().map(|Reverse((at, ..))| *at)
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.heap.len()
    }

    /// The earliest entry.
    pub(super) fn first(&self) -> Option<(Timestamp, BackendId)> {
        self.heap.peek().map(|Reverse((at, _, id))| (*at, *id))
    }

    /// Removes the earliest entry.
    pub(super) fn drop_first(&mut self) {
        self.heap.pop();
    }

    pub(super) fn pop_due(&mut self, now: Timestamp) -> Option<BackendId> {
        if self.next()? > now {
            return None;
        }
        self.heap.pop().map(|Reverse((.., id))| id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_times_come_up_in_the_order_of_asking() {
        let mut timers = Timers::default();
        let ids = [2, 0, 1].map(|slot| BackendId::new(slot, 0));
        ids.iter().for_each(|id| timers.push(Timestamp::from_nanos(7), *id));
        let due = core::array::from_fn(|_| timers.pop_due(Timestamp::from_nanos(7)).expect("due"));
        assert_eq!(due, ids);
    }
}
