//! The ring of points, as one table in the order of the ring.
//!
//! Each backend has points at pseudorandom positions in [0, 2⁶⁴). A walk from a key meets the points
//! at or after it, once around the ring.
//!
//! Positions are random, so the first bits of a position tell the place in a sorted table, up to a
//! few entries. A table with some empty entries makes that exact: it is a hash table with linear
//! probing, in which each run of entries is sorted. A point lies at or after its *home*, the entry
//! of its first bits, with no empty entry between. So a lookup reads one cache line, mostly, and
//! the walk goes on in the next entries. A new point shifts the rest of its run by one. The obvious
//! way, one sorted array with a binary search, was rejected. With ten thousand backends a lookup
//! reads twenty entries all over the memory, and each new backend moves megabytes while requests
//! wait. Lists by the first bits take a second read far away for each lookup, and a third for each
//! step.
//!
//! An entry has 8 bytes: 40 bits of the position and 24 of the slot. Another table is filled when
//! the points double or fall to a quarter, in constant time per point, and never in a lookup.

use alloc::vec::Vec;

/// Bits of an entry for the slot.
const SLOT_BITS: u32 = 24;
const SLOT_MASK: u64 = (1 << SLOT_BITS) - 1;
/// Number of slots that can have points. The last number is that of no slot, so no point is
/// `EMPTY`.
pub(super) const MAX_SLOTS: u32 = SLOT_MASK as u32;

/// An entry without a point. It is greater than each point.
const EMPTY: u64 = u64::MAX;

/// Homes of the smallest table, as a power of two.
const MIN_BITS: u32 = 8;

/// The points of some backends.
#[derive(Clone, Debug)]
pub(super) struct Ring {
    /// Points in ascending order, and empty entries: 2^`bits` homes, then the rest of the last run.
    table: Vec<u64>,
    bits: u32,
    len: usize,
}

impl Default for Ring {
    fn default() -> Self {
        Self { table: alloc::vec![EMPTY; 1 << MIN_BITS], bits: MIN_BITS, len: 0 }
    }
}

fn entry(position: u64, slot: u32) -> u64 {
    (position & !SLOT_MASK) | u64::from(slot)
}

/// The distance from `key` on to a point at this position, in the precision of the ring.
pub(super) fn distance(key: u64, position: u64) -> u64 {
    (position & !SLOT_MASK).wrapping_sub(key & !SLOT_MASK)
}

impl Ring {
    /// Number of points.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    fn home(&self, entry: u64) -> usize {
        (entry >> (u64::BITS - self.bits)) as usize
    }

    /// The place of `entry`, or the one for it.
    fn find(&self, entry: u64) -> usize {
        let home = self.home(entry);
        home + self.table[home..].iter().take_while(|other| **other < entry).count()
    }

    /// Adds a point of the backend in `slot`, which is below [`MAX_SLOTS`].
    pub(super) fn insert(&mut self, position: u64, slot: u32) {
        if 4 * (self.len + 1) > 3 << self.bits {
            self.resize(self.bits + 1);
        }
        let mut carried = entry(position, slot);
        let mut at = self.find(carried);
        // The rest of the run moves by one.
        while carried != EMPTY {
            match self.table.get_mut(at) {
                Some(place) => carried = core::mem::replace(place, carried),
                None => self.table.push(core::mem::replace(&mut carried, EMPTY)),
            }
            at += 1;
        }
        self.len += 1;
    }

    /// Removes the point of `slot` at this position, if there is one.
    pub(super) fn remove(&mut self, position: u64, slot: u32) {
        let entry = entry(position, slot);
        let mut at = self.find(entry);
        if self.table.get(at) != Some(&entry) {
            return;
        }
        // The rest of the run returns by one, up to a point that is at its home.
        while let Some(next) = self.table.get(at + 1).copied().filter(|next| *next != EMPTY)
            && self.home(next) <= at
        {
            self.table[at] = next;
            at += 1;
        }
        self.table[at] = EMPTY;
        self.len -= 1;
        if self.bits > MIN_BITS && 8 * self.len < 1 << self.bits {
            self.resize(self.bits - 1);
        }
    }

    /// The slots of all points from `key` on, once around the ring, with their distances.
    pub(super) fn walk(&self, key: u64) -> impl Iterator<Item = (u64, u32)> {
        let mut at = self.find(key & !SLOT_MASK);
        (0..self.len).map(move |_| {
            // The points are as many as the steps, so the search ends.
            loop {
                let point = self.table.get(at).copied();
                at = if point.is_some() { at + 1 } else { 0 };
                if let Some(point) = point.filter(|point| *point != EMPTY) {
                    return (distance(key, point), (point & SLOT_MASK) as u32);
                }
            }
        })
    }

    /// Gives the table 2^`bits` homes.
    fn resize(&mut self, bits: u32) {
        let former = core::mem::replace(&mut self.table, alloc::vec![EMPTY; 1 << bits]);
        self.bits = bits;
        let mut free = 0;
        for point in former.into_iter().filter(|point| *point != EMPTY) {
            let at = self.home(point).max(free);
            if at == self.table.len() {
                self.table.push(EMPTY);
            }
            self.table[at] = point;
            free = at + 1;
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

    /// Points in order, each between its home and the end of its run.
    fn check(ring: &Ring) {
        let points: Vec<u64> = ring.table.iter().copied().filter(|point| *point != EMPTY).collect();
        assert_eq!(points.len(), ring.len);
        assert!(points.is_sorted());
        for (at, point) in ring.table.iter().enumerate().filter(|(_, point)| **point != EMPTY) {
            let home = ring.home(*point);
            assert!(home <= at && !ring.table[home..at].contains(&EMPTY), "{point:x} of {home} at {at}");
        }
    }

    proptest! {
        /// The reference is a sorted set. Few positions are possible, so that runs are long and
        /// positions tie; many of them are at the end of the table.
        #[test]
        fn walk_agrees_with_a_sorted_set(
            steps in prop::collection::vec((0_u64..64, 0_u32..12, prop::bool::weighted(0.8)), 1..900),
            from in prop::collection::vec(any::<u64>(), 4),
        ) {
            let (mut ring, mut set) = (Ring::default(), BTreeSet::new());
            for (position, slot, is_new) in steps {
                let position = position << 58 | u64::from(slot % 2) << 30;
                if is_new && set.insert((position, slot)) {
                    ring.insert(position, slot);
                } else if !is_new {
                    set.remove(&(position, slot));
                    ring.remove(position, slot);
                }
                prop_assert_eq!(ring.len(), set.len());
            }
            check(&ring);
            for from in from.into_iter().chain([0, 63 << 58, u64::MAX]) {
                let first = from & !SLOT_MASK;
                let order = set.range((first, 0)..).chain(set.range(..(first, 0)));
                let expected: Vec<(u64, u32)> =
                    order.map(|(position, slot)| (position.wrapping_sub(first), *slot)).collect();
                prop_assert_eq!(ring.walk(from).collect::<Vec<_>>(), expected);
            }
        }
    }

    #[test]
    fn table_grows_with_its_points_and_shrinks_when_they_leave() {
        let mut ring = Ring::default();
        let positions: Vec<u64> = (1..=3_000_u64).map(|i| i.wrapping_mul(0x9E37_79B9_7F4A_7C15)).collect();
        positions.iter().for_each(|position| ring.insert(*position, 1));
        check(&ring);
        assert!((4_096..4_200).contains(&ring.table.len()), "{}", ring.table.len());
        positions[100..].iter().for_each(|position| ring.remove(*position, 1));
        check(&ring);
        assert!(ring.table.len() <= 1_024 + 100, "{}", ring.table.len());
        positions[..100].iter().for_each(|position| ring.remove(*position, 1));
        assert_eq!((ring.len(), ring.walk(7).count()), (0, 0));
    }
}
