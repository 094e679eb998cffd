//! The latest of many: a ring of fixed size, for many writers and a reader now and then.
//!
//! A writer takes the next slot for itself, so that two wait for each other only when one of them
//! is overtaken by a whole round. After the first round nothing is allocated, except for slots that
//! a reader still holds: in a storm, waiting for memory would cost more.

//!
//! Each value has a number, so that a reader that follows the writers gets each value once, and knows
//! how many were overwritten before it came.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

/// The latest of many.
#[derive(Debug)]
pub(super) struct Ring<T> {
    places: Box<[Place<T>]>,
    next: AtomicU64,
}

/// A value with its number; `None` before the first round.
type Place<T> = Mutex<Option<(u64, Arc<T>)>>;

/// The values that followed a number.
#[derive(Debug)]
pub(super) struct Followed<T> {
    /// The values, in the order of their numbers.
    pub(super) values: Vec<Arc<T>>,
    /// The number to go on from.
    pub(super) next: u64,
    /// Values that were overwritten before they were read.
    pub(super) overwritten: u64,
}

impl<T> Ring<T> {
    pub(super) fn new(places: usize) -> Self {
        Self { places: (0..places).map(|_| Mutex::new(None)).collect(), next: AtomicU64::new(0) }
    }

    pub(super) fn push(&self, value: T) {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let mut place = self.place(number).lock();
        match place.as_mut() {
            // Overtaken by a whole round.
            Some((known, _)) if *known > number => return,
            Some((known, kept)) => {
                if let Some(earlier) = Arc::get_mut(kept) {
                    (*known, *earlier) = (number, value);
                    return;
                }
            }
            None => {}
        }
        *place = Some((number, Arc::new(value)));
    }

    pub(super) fn places(&self) -> usize {
        self.places.len()
    }

    /// All that are there, in no order.
    pub(super) fn all(&self) -> impl Iterator<Item = Arc<T>> {
        self.places.iter().filter_map(|place| place.lock().as_ref().map(|(_, value)| Arc::clone(value)))
    }

    /// The number of the next value.
    pub(super) fn next(&self) -> u64 {
        self.next.load(Ordering::Relaxed)
    }

    /// The values from the number `from` on.
    pub(super) fn follow(&self, from: u64) -> Followed<T> {
        let end = self.next();
        let first = from.max(end.saturating_sub(self.places.len() as u64));
        let mut followed = Followed { values: Vec::new(), next: end, overwritten: first - from };
        for number in first..end {
            match &*self.place(number).lock() {
                Some((known, value)) if *known == number => followed.values.push(Arc::clone(value)),
                Some((known, _)) if *known > number => followed.overwritten += 1,
                // Its writer has the number, and has yet to write.
                _ => {
                    followed.next = number;
                    break;
                }
            }
        }
        followed
    }

    fn place(&self, number: u64) -> &Place<T> {
        &self.places[(number % self.places.len() as u64) as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_latest_stay() {
        let ring = Ring::new(3);
        assert_eq!(ring.all().count(), 0);
        (0..10).for_each(|n| ring.push(n));
        let held: Vec<Arc<i32>> = ring.all().collect();
        (10..13).for_each(|n| ring.push(n));
        assert_eq!(held.iter().map(|value| **value).max(), Some(9), "what is being read does not change");
        let mut all: Vec<i32> = ring.all().map(|value| *value).collect();
        all.sort_unstable();
        assert_eq!(all, [10, 11, 12]);
    }

    #[test]
    fn follower_gets_each_value_once_and_the_count_of_the_overwritten() {
        let ring = Ring::new(4);
        let mut from = ring.next();
        let mut follow = |ring: &Ring<i32>| {
            let Followed { values, next, overwritten } = ring.follow(from);
            from = next;
            (values.iter().map(|value| **value).collect::<Vec<_>>(), overwritten)
        };
        assert_eq!(follow(&ring), (vec![], 0));
        (0..3).for_each(|n| ring.push(n));
        assert_eq!(follow(&ring), (vec![0, 1, 2], 0));
        (3..13).for_each(|n| ring.push(n));
        assert_eq!(follow(&ring), (vec![9, 10, 11, 12], 6));
        assert_eq!(follow(&ring), (vec![], 0));
    }

    #[test]
    fn value_that_is_still_being_written_comes_later() {
        let ring = Ring::new(4);
        ring.push(0);
        // A writer has taken its number, and was then interrupted.
        ring.next.fetch_add(1, Ordering::Relaxed);
        ring.push(2);
        let first = ring.follow(0);
        assert_eq!((first.values.len(), first.next, first.overwritten), (1, 1, 0));
        *ring.place(1).lock() = Some((1, Arc::new(1)));
        let rest = ring.follow(first.next);
        assert_eq!((rest.values, rest.next), (vec![Arc::new(1), Arc::new(2)], 3));
    }

    #[test]
    fn writer_that_was_overtaken_by_a_round_overwrites_nothing() {
        let ring = Ring::new(2);
        (0..4).for_each(|n| ring.push(n));
        ring.next.store(1, Ordering::Relaxed);
        ring.push(9);
        ring.next.store(4, Ordering::Relaxed);
        let values: Vec<i32> = ring.follow(2).values.iter().map(|value| **value).collect();
        assert_eq!(values, [2, 3]);
    }
}
