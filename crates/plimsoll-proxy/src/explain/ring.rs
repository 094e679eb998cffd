//! The latest of many: a ring of fixed size, for many writers and a reader now and then.
//!
//! A writer takes the next place and has it for itself, so that two wait for each other only when one of them has been overtaken by
//! a whole round. After the first round nothing is allocated: in a storm that would be one more wait for memory each time.

use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;

/// The latest of many.
#[derive(Debug)]
pub(super) struct Ring<T> {
    places: Box<[Mutex<Option<Box<T>>>]>,
    next: AtomicUsize,
}

impl<T: Clone> Ring<T> {
    pub(super) fn new(places: usize) -> Self {
        Self { places: (0..places).map(|_| Mutex::new(None)).collect(), next: AtomicUsize::new(0) }
    }

    pub(super) fn push(&self, value: T) {
        let place = self.next.fetch_add(1, Ordering::Relaxed) % self.places.len();
        match &mut *self.places[place].lock() {
            Some(earlier) => **earlier = value,
            empty => *empty = Some(Box::new(value)),
        }
    }

    pub(super) fn places(&self) -> usize {
        self.places.len()
    }

    /// All that are there, in no order.
    pub(super) fn all(&self) -> impl Iterator<Item = T> {
        self.places.iter().filter_map(|place| place.lock().as_deref().cloned())
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
        let mut all: Vec<i32> = ring.all().collect();
        all.sort_unstable();
        assert_eq!(all, [7, 8, 9]);
    }
}
