//! The latest of many: a ring of fixed size, for many writers and a reader now and then.
//!
//! A writer takes the next slot for itself, so that two wait for each other only when one of them
//! is overtaken by a whole round. After the first round nothing is allocated, except for slots that
//! a reader still holds: in a storm, waiting for memory would cost more.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;

/// The latest of many.
#[derive(Debug)]
pub(super) struct Ring<T> {
    places: Box<[Mutex<Option<Arc<T>>>]>,
    next: AtomicUsize,
}

impl<T> Ring<T> {
    pub(super) fn new(places: usize) -> Self {
        Self { places: (0..places).map(|_| Mutex::new(None)).collect(), next: AtomicUsize::new(0) }
    }

    pub(super) fn push(&self, value: T) {
        let place = self.next.fetch_add(1, Ordering::Relaxed) % self.places.len();
        let mut place = self.places[place].lock();
        match place.as_mut().and_then(Arc::get_mut) {
            Some(earlier) => *earlier = value,
            None => *place = Some(Arc::new(value)),
        }
    }

    pub(super) fn places(&self) -> usize {
        self.places.len()
    }

    /// All that are there, in no order.
    pub(super) fn all(&self) -> impl Iterator<Item = Arc<T>> {
        self.places.iter().filter_map(|place| place.lock().clone())
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
}
