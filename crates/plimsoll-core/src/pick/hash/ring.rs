//! The ring of points, as a hash table of short sorted lists.
//!
//! Each backend has points at pseudorandom positions in [0, 2⁶⁴). The order of a key begins at the
//! first point at or after it, and goes on from point to point.
//!
//! The circle is cut into equal buckets, at least one for two points. A bucket lists its points in
//! order. Positions are random, so a lookup reads about two entries with any number of points. A
//! new point enters one short list. Most points lie in memory in the order of the ring (*packed*),
//! so that a walk reads few cache lines. The obvious way, one sorted array with a binary search, was
//! rejected. With ten thousand backends a lookup reads twenty entries all over the memory, and each
//! new backend moves megabytes while requests wait.
//!
//! Growing and packing touch all points. They happen when a backend is added, in amortised constant
//! time per point, and never in a lookup.

use alloc::vec::Vec;

const NIL: u32 = u32::MAX;

/// Buckets of the smallest table.
const MIN_BUCKETS: usize = 64;
/// Most points per bucket, on average.
const MAX_LOAD: usize = 2;
/// Part of the points that need not be packed: one in so many.
const UNPACKED: usize = 4;

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
    /// Points that were added since all were packed.
    unpacked: usize,
}

impl Default for Ring {
    fn default() -> Self {
        Self { buckets: alloc::vec![NIL; MIN_BUCKETS], points: Vec::new(), free: NIL, len: 0, unpacked: 0 }
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
        let is_full = self.len == MAX_LOAD * self.buckets.len();
        if is_full || UNPACKED * self.unpacked > self.len.max(MIN_BUCKETS) {
            self.pack(if is_full { 2 * self.buckets.len() } else { self.buckets.len() });
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
        self.unpacked += 1;
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

    /// Puts the points into the order of the ring, in this number of buckets.
    fn pack(&mut self, buckets: usize) {
        let mut packed: Vec<Point> = Vec::with_capacity(self.len);
        for mut index in core::mem::replace(&mut self.buckets, alloc::vec![NIL; buckets]) {
            while let Some(point) = self.points.get(index as usize) {
                packed.push(Point { next: NIL, ..*point });
                index = point.next;
            }
        }
        let mut last = None;
        for index in 0..packed.len() {
            let bucket = self.bucket_of(packed[index].position);
            match last {
                Some(last) if last == bucket => packed[index - 1].next = index as u32,
                _ => self.buckets[bucket] = index as u32,
            }
            last = Some(bucket);
        }
        (self.points, self.free, self.unpacked) = (packed, NIL, 0);
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
        /// The reference is a sorted set. Few positions are possible, so that buckets share
        /// points and positions tie.
        #[test]
        fn walk_agrees_with_a_sorted_set(
            steps in prop::collection::vec((0_u64..64, 0_u32..12, prop::bool::weighted(0.8)), 1..600),
            from in prop::collection::vec(any::<u64>(), 4),
        ) {
            let (mut ring, mut set) = (Ring::default(), BTreeSet::new());
            for (position, slot, is_new) in steps {
                let position = position << 58 | u64::from(slot % 2) << 20;
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
        assert_eq!(ring.len(), 0);
        assert!(ring.points.len() <= 100, "{}", ring.points.len());
    }
}
