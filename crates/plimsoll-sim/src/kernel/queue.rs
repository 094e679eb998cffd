//! What happens next: events ordered by time, and at the same time by the order in which they were made.
//!
//! A binary heap for most, and *lanes* for events that always come the same time after they are made (time-outs,
//! messages on a network of constant delay): those are made in the order in which they come, so a first-in first-out
//! queue holds them, at constant cost. It matters for time-outs above all: of every request there is one in the queue
//! for seconds, nearly all to find nothing left to do, and a heap of half a million entries costs a cache miss at
//! each of its levels.
//!
//! An event is never taken back. Whoever made one that no longer holds recognises it when it comes.

use std::cmp::Ordering;
use std::collections::{BinaryHeap, VecDeque};

use plimsoll_core::Timestamp;

/// Names a lane of one queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Lane(usize);

/// Events of type `E` in the order in which they come.
#[derive(Clone, Debug)]
pub(crate) struct Queue<E> {
    heap: BinaryHeap<Entry<E>>,
    lanes: Vec<VecDeque<Entry<E>>>,
    sequence: u64,
}

#[derive(Clone, Copy, Debug)]
struct Entry<E> {
    at: Timestamp,
    sequence: u64,
    event: E,
}

impl<E> Entry<E> {
    fn key(&self) -> (Timestamp, u64) {
        (self.at, self.sequence)
    }
}

/// Reversed, because the heap of the standard library gives the greatest first.
impl<E> Ord for Entry<E> {
    fn cmp(&self, other: &Self) -> Ordering {
        other.key().cmp(&self.key())
    }
}

impl<E> PartialOrd for Entry<E> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<E> PartialEq for Entry<E> {
    fn eq(&self, other: &Self) -> bool {
        self.key() == other.key()
    }
}

impl<E> Eq for Entry<E> {}

impl<E: Copy> Default for Queue<E> {
    fn default() -> Self {
        Self { heap: BinaryHeap::new(), lanes: Vec::new(), sequence: 0 }
    }
}

impl<E: Copy> Queue<E> {
    /// Opens a lane, for events whose times never fall from one to the next.
    pub(crate) fn open_lane(&mut self) -> Lane {
        self.lanes.push(VecDeque::new());
        Lane(self.lanes.len() - 1)
    }

    /// Has `event` happen at `at`.
    pub(crate) fn push(&mut self, at: Timestamp, event: E) {
        self.sequence += 1;
        self.heap.push(Entry { at, sequence: self.sequence, event });
    }

    /// Has `event` happen at `at`, which is no earlier than any time pushed to this lane before.
    pub(crate) fn push_lane(&mut self, lane: Lane, at: Timestamp, event: E) {
        self.sequence += 1;
        let lane = &mut self.lanes[lane.0];
        debug_assert!(lane.back().is_none_or(|last| last.at <= at), "a lane is pushed to in the order of time");
        lane.push_back(Entry { at, sequence: self.sequence, event });
    }

    /// The next event and its time, if that is no later than `limit`.
    pub(crate) fn pop_until(&mut self, limit: Timestamp) -> Option<(Timestamp, E)> {
        let mut next = self.heap.peek().map(Entry::key);
        let mut from = None;
        for (number, lane) in self.lanes.iter().enumerate() {
            if let Some(head) = lane.front().map(Entry::key)
                && next.is_none_or(|key| head < key)
            {
                next = Some(head);
                from = Some(number);
            }
        }
        if next.is_none_or(|(at, _)| at > limit) {
            return None;
        }
        let entry = match from {
            Some(lane) => self.lanes[lane].pop_front(),
            None => self.heap.pop(),
        };
        entry.map(|entry| (entry.at, entry.event))
    }

    /// Events that are still to come.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.heap.len() + self.lanes.iter().map(VecDeque::len).sum::<usize>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::NEVER;
    use crate::kernel::streams::Streams;
    use rand_core::Rng as _;

    fn at(nanos: u64) -> Timestamp {
        Timestamp::from_nanos(nanos)
    }

    fn all<E: Copy>(mut queue: Queue<E>) -> Vec<(Timestamp, E)> {
        std::iter::from_fn(|| queue.pop_until(NEVER)).collect()
    }

    #[test]
    fn events_of_one_time_come_in_the_order_of_their_making_whatever_way_they_were_pushed() {
        let mut queue = Queue::default();
        let lane = queue.open_lane();
        queue.push(at(5), 0);
        queue.push_lane(lane, at(5), 1);
        queue.push(at(5), 2);
        queue.push_lane(lane, at(5), 3);
        queue.push(at(4), 4);
        assert_eq!(queue.pop_until(at(3)), None);
        let order: Vec<_> = all(queue).into_iter().map(|(_, event)| event).collect();
        assert_eq!(order, [4, 0, 1, 2, 3]);
    }

    #[test]
    fn order_is_that_of_a_stable_sort() {
        let mut rng = Streams::new(1).stream("queue", 0);
        let mut queue = Queue::default();
        let lanes = [queue.open_lane(), queue.open_lane()];
        let mut latest = [0; 2];
        let mut expected = Vec::new();
        for event in 0..10_000_u32 {
            let time = u64::from(rng.next_u32() % 1_000);
            let time = match event % 3 {
                2 => {
                    queue.push(at(time), event);
                    time
                }
                lane => {
                    let lane = lane as usize;
                    latest[lane] += time % 3;
                    queue.push_lane(lanes[lane], at(latest[lane]), event);
                    latest[lane]
                }
            };
            expected.push((at(time), event));
        }
        expected.sort_by_key(|(time, _)| *time);
        assert_eq!(queue.len(), expected.len());
        assert_eq!(all(queue), expected);
    }
}
