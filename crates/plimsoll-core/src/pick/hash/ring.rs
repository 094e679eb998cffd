//! The ring of points, as a hash table of short sorted lists.
//!
//! Each backend has points at pseudorandom positions in [0, 2⁶⁴). The order of a key begins at the
//! first point at or after it, and goes on from point to point.
//!
//! The circle is cut into equal buckets, at least one for each point. A bucket lists its points in
//! order. Positions are random, so a lookup reads about two entries with any number of points. A
//! new point enters one short list. The obvious way, one sorted array with a binary search, was
//! rejected. With ten thousand backends a lookup reads twenty entries all over the memory, and each
//! new backend moves megabytes while requests wait.
//!
//! Only a growth of the table touches all points. It happens when a backend is added, in amortised
//! constant time per point, and never in a lookup.

use alloc::vec::Vec;

const NIL: u32 = u32::MAX;

/// Buckets of the smallest table.
const MIN_BUCKETS: usize = 64;

#[derive(Clone, Copy, Debug)]
struct Point {
    position: u64,
    slot: u32,
    /// The next point of the bucket, or of the list of free entries.
    next: u32,
}

/// The points of all backends.
#[derive(Clone, Debug)]
pub(super) struct Ring {
    /// The first point of each bucket, or `NIL`. Their number is a power of two.
    buckets: Vec<u32>,
    points: Vec<Point>,
    /// First of the free entries of `points`.
    free: u32,
    len: usize,
}

impl Default for Ring {
    fn default() -> Self {
        Self { buckets: alloc::vec![NIL; MIN_BUCKETS], points: Vec::new(), free: NIL, len: 0 }
    }
}

impl Ring {
    /// Number of points.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.len
    }

    fn bucket_of(&self, position: u64) -> usize {
        (position >> (u64::BITS - self.buckets.len().trailing_zeros())) as usize
    }

    /// Adds a point of the backend in `slot`.
    pub(super) fn insert(&mut self, position: u64, slot: u32) {
        if self.len == self.buckets.len() {
            self.grow();
        }
        let point = Point { position, slot, next: NIL };
        let index = match self.points.get_mut(self.free as usize) {
            Some(free) => {
                let index = core::mem::replace(&mut self.free, free.next);
                *free = point;
                index
            }
            None => {
                self.points.push(point);
                self.points.len() as u32 - 1
            }
        };
        self.link(index);
        self.len += 1;
    }

    /// Removes the point of `slot` at this position, if there is one.
    pub(super) fn remove(&mut self, position: u64, slot: u32) {
        let bucket = self.bucket_of(position);
        let (mut previous, mut index) = (NIL, self.buckets[bucket]);
        while let Some(point) = self.points.get(index as usize).copied() {
            if point.position == position && point.slot == slot {
                match self.points.get_mut(previous as usize) {
                    Some(previous) => previous.next = point.next,
                    None => self.buckets[bucket] = point.next,
                }
                self.points[index as usize].next = core::mem::replace(&mut self.free, index);
                self.len -= 1;
                return;
            }
            (previous, index) = (index, point.next);
        }
    }

    /// The slots of all points from `from` on, once around the ring.
    pub(super) fn walk(&self, from: u64) -> impl Iterator<Item = u32> {
        let mut bucket = self.bucket_of(from);
        let mut index = self.buckets[bucket];
        while let Some(point) = self.points.get(index as usize)
            && point.position < from
        {
            index = point.next;
        }
        (0..self.len).map(move |_| {
            // The points are as many as the steps, so the search ends.
            while index == NIL {
                bucket = (bucket + 1) & (self.buckets.len() - 1);
                index = self.buckets[bucket];
            }
            let point = self.points[index as usize];
            index = point.next;
            point.slot
        })
    }

    /// Puts a point into the list of its bucket.
    fn link(&mut self, index: u32) {
        let Point { position, slot, .. } = self.points[index as usize];
        let bucket = self.bucket_of(position);
        let (mut previous, mut next) = (NIL, self.buckets[bucket]);
        while let Some(point) = self.points.get(next as usize)
            && (point.position, point.slot) < (position, slot)
        {
            (previous, next) = (next, point.next);
        }
        self.points[index as usize].next = next;
        match self.points.get_mut(previous as usize) {
            Some(previous) => previous.next = index,
            None => self.buckets[bucket] = index,
        }
    }

    /// Doubles the number of buckets.
    fn grow(&mut self) {
        let former = core::mem::take(&mut self.buckets);
        self.buckets = alloc::vec![NIL; 2 * former.len()];
        for mut index in former {
            while let Some(point) = self.points.get(index as usize) {
                let next = point.next;
                self.link(index);
                index = next;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use std::collections::BTreeSet;
    use std::vec::Vec;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// The reference is a sorted set. Positions are multiples of 2⁵⁹, so that buckets share
        /// points and positions tie.
        #[test]
        fn walk_agrees_with_a_sorted_set(
            steps in prop::collection::vec((0_u64..32, 0_u32..6, prop::bool::weighted(0.7)), 1..400),
            from in prop::collection::vec(any::<u64>(), 4),
        ) {
            let (mut ring, mut set) = (Ring::default(), BTreeSet::new());
            for (position, slot, is_new) in steps {
                let position = position << 59 | u64::from(slot % 2) << 20;
                if is_new && set.insert((position, slot)) {
                    ring.insert(position, slot);
                } else if !is_new {
                    set.remove(&(position, slot));
                    ring.remove(position, slot);
                }
                prop_assert_eq!(ring.len(), set.len());
            }
            for from in from.into_iter().chain([0, u64::MAX]) {
                let expected: Vec<u32> = set.range((from, 0)..).chain(set.range(..(from, 0))).map(|(_, slot)| *slot).collect();
                prop_assert_eq!(ring.walk(from).collect::<Vec<_>>(), expected);
            }
        }
    }

    #[test]
    fn entries_of_removed_points_are_used_again() {
        let mut ring = Ring::default();
        for round in 0..50_u64 {
            (0..100).for_each(|i| ring.insert((round * 100 + i) << 50, 0));
            (0..100).for_each(|i| ring.remove((round * 100 + i) << 50, 0));
        }
        assert_eq!((ring.len(), ring.points.len()), (0, 100));
    }
}
