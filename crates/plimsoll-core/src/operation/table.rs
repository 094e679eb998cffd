//! A bounded memory of operations.
//!
//! It holds 64 keys at most, so that no caller can make a client remember more by ever new paths.
//! While nothing fails it is empty and costs nothing: only trouble adds a key. If it is full, a new
//! entry replaces the lightest one, so that a single failure does not displace a constant one.
//!
//! A search looks at one key after another, in eight cache lines. A hash map would be slower at
//! this size, and would need a hasher.

use alloc::vec::Vec;

/// Largest number of operations. If more endpoints than this are in trouble at once, the cluster
/// is.
const MAX_KEYS: usize = 64;

/// State of operations, by key.
#[derive(Clone, Debug)]
pub(crate) struct Table<T> {
    keys: Vec<u64>,
    values: Vec<T>,
}

impl<T> Table<T> {
    pub(crate) const fn new() -> Self {
        Self { keys: Vec::new(), values: Vec::new() }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    pub(crate) fn get_mut(&mut self, key: u64) -> Option<&mut T> {
        let at = self.keys.iter().position(|known| *known == key)?;
        self.values.get_mut(at)
    }

    /// The value of `key`, which is `new` if there was none. In a full table, `new` replaces the
    /// value with the smallest `weight`.
    pub(crate) fn get_or_insert(&mut self, key: u64, weight: impl Fn(&T) -> f64, new: impl FnOnce() -> T) -> &mut T {
        let found = self.keys.iter().position(|known| *known == key);
        let at = found.unwrap_or_else(|| self.insert(key, weight, new()));
        &mut self.values[at]
    }

    pub(crate) fn remove(&mut self, key: u64) {
        if let Some(at) = self.keys.iter().position(|known| *known == key) {
            self.keys.swap_remove(at);
            self.values.swap_remove(at);
        }
    }

    fn insert(&mut self, key: u64, weight: impl Fn(&T) -> f64, new: T) -> usize {
        let at = self.keys.len();
        if at < MAX_KEYS {
            self.keys.push(key);
            self.values.push(new);
            return at;
        }
        let weights = self.values.iter().map(weight).enumerate();
        let lightest = weights.min_by(|(_, one), (_, other)| one.total_cmp(other)).map_or(0, |(at, _)| at);
        (self.keys[lightest], self.values[lightest]) = (key, new);
        lightest
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn full_table_forgets_the_lightest() {
        let mut table = Table::new();
        for key in 0..MAX_KEYS as u64 {
            table.get_or_insert(key, |value| *value, || key as f64 + 1.0);
        }
        *table.get_mut(0).expect("it was added") = 100.0;
        // The first weighed 1 and now weighs 100. The second weighed 2, and the first newcomer
        // replaces it.
        for key in 1_000..2_000 {
            table.get_or_insert(key, |value| *value, || 1.5);
        }
        assert_eq!(table.keys.len(), MAX_KEYS);
        assert_eq!([0, 1, 2, 1_000, 1_999].map(|key| table.get_mut(key).is_some()), [true, false, true, false, true]);
        table.remove(0);
        assert!(table.get_mut(0).is_none() && table.keys.len() == table.values.len());
    }
}
