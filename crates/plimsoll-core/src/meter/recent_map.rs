//! A map of fixed size from numbers to values. It forgets the keys that were not used for longest.
//!
//! It has sets of eight, like a cache. A number selects its set. When the set is full, its least
//! recently used entry is replaced. Frequent keys stay, however many others come by, and a lookup
//! costs eight comparisons. Why not a hash map: names of routes and customers come from outside,
//! and their number has no bound.

use alloc::boxed::Box;

use crate::rng::spread;

const WAYS: usize = 8;

#[derive(Clone, Copy, Debug, Default)]
struct Entry<V> {
    key: u64,
    /// The last use, counted in accesses; zero for a free entry.
    seen: u64,
    value: V,
}

/// A map of fixed size.
#[derive(Clone, Debug)]
pub(super) struct RecentMap<V> {
    sets: Box<[[Entry<V>; WAYS]]>,
    accesses: u64,
}

impl<V: Copy + Default> RecentMap<V> {
    /// Remembers about this many entries.
    pub(super) fn new(entries: usize) -> Self {
        let sets = entries.div_ceil(WAYS).next_power_of_two();
        Self { sets: alloc::vec![[Entry::default(); WAYS]; sets].into(), accesses: 0 }
    }

    /// The value of this key, if it is remembered.
    pub(super) fn get(&self, key: u64) -> Option<&V> {
        let set = &self.sets[self.set_of(key)];
        set.iter().find(|entry| entry.key == key && entry.seen > 0).map(|entry| &entry.value)
    }

    /// The value of this key for a change; a new one if it is not remembered.
    pub(super) fn entry(&mut self, key: u64) -> &mut V {
        self.accesses += 1;
        let seen = self.accesses;
        let set = self.set_of(key);
        let set = &mut self.sets[set];
        let known = set.iter().position(|entry| entry.key == key && entry.seen > 0);
        let at = known.unwrap_or_else(|| {
            let oldest = (1..WAYS).fold(0, |oldest, at| if set[at].seen < set[oldest].seen { at } else { oldest });
            set[oldest] = Entry { key, ..Entry::default() };
            oldest
        });
        set[at].seen = seen;
        &mut set[at].value
    }

    fn set_of(&self, key: u64) -> usize {
        spread(key) as usize & (self.sets.len() - 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frequent_key_stays_among_a_million_others() {
        let mut recent = RecentMap::<u32>::new(64);
        for stranger in 0..1_000_000_u64 {
            if stranger % 10 == 0 {
                *recent.entry(7) += 1;
            }
            *recent.entry(1_000 + stranger) += 1;
        }
        assert_eq!(recent.get(7), Some(&100_000));
        assert_eq!(recent.get(1_000), None);
        assert_eq!(recent.get(1_000_999), Some(&1));
    }

    #[test]
    fn key_of_0_is_unknown_until_it_is_entered() {
        let mut recent = RecentMap::<u32>::new(8);
        assert_eq!(recent.get(0), None);
        *recent.entry(0) = 5;
        assert_eq!(recent.get(0), Some(&5));
    }
}
