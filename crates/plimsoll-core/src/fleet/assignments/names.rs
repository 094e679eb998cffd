//! Numbers for strings: the ledger knows clients and backends by numbers.
//!
//! The number of a name is its hash. Two names with one hash are not told apart by a ledger, and
//! one of them would get no assignment. With 10,000 names of 64 bits the chance is 3·10⁻¹²; but
//! names come from strangers, and XXH64 is no defence against one who looks for a collision. So a
//! name with a taken number gets the next one of a fixed row.
//!
//! A new leader may then number the two names the other way round. Assignments are restored by
//! name, so this changes the order among equals of one client and moves nothing.

use alloc::collections::BTreeMap;
use alloc::string::String;

use crate::rng;
use crate::subset::Backend;

/// The names in use, and their numbers.
#[derive(Clone, Debug)]
pub(super) struct Names {
    hash: fn(&str) -> u64,
    by_name: BTreeMap<String, u64>,
    by_number: BTreeMap<u64, String>,
}

impl Default for Names {
    fn default() -> Self {
        Self { hash: Backend::key_of, by_name: BTreeMap::new(), by_number: BTreeMap::new() }
    }
}

impl Names {
    /// The number of a name, which is new or known.
    pub(super) fn add(&mut self, name: &str) -> u64 {
        if let Some(number) = self.number(name) {
            return number;
        }
        let mut number = (self.hash)(name);
        while self.by_number.contains_key(&number) {
            number = rng::spread(number.wrapping_add(1));
        }
        self.by_name.insert(name.into(), number);
        self.by_number.insert(number, name.into());
        number
    }

    /// Removes a name. Returns its number.
    pub(super) fn remove(&mut self, name: &str) -> Option<u64> {
        let number = self.by_name.remove(name)?;
        self.by_number.remove(&number);
        Some(number)
    }

    /// All names, ascending.
    pub(super) fn names(&self) -> impl Iterator<Item = &String> {
        self.by_name.keys()
    }

    /// The number of a name.
    pub(super) fn number(&self, name: &str) -> Option<u64> {
        self.by_name.get(name).copied()
    }

    /// The name with this number.
    pub(super) fn name(&self, number: u64) -> Option<&String> {
        self.by_number.get(&number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn number_is_the_hash_of_the_name() {
        let mut names = Names::default();
        assert_eq!(names.add("10.0.0.1:80"), Backend::key_of("10.0.0.1:80"));
        assert_eq!(names.remove("10.0.0.1:80"), Some(Backend::key_of("10.0.0.1:80")));
        assert_eq!((names.number("10.0.0.1:80"), names.names().next()), (None, None));
    }

    #[test]
    fn names_of_one_hash_have_numbers_of_their_own() {
        let mut names = Names { hash: |name| name.len() as u64, ..Names::default() };
        let numbers = ["a", "b", "c"].map(|name| names.add(name));
        assert!(numbers[0] != numbers[1] && numbers[1] != numbers[2] && numbers[0] != numbers[2]);
        assert_eq!(["a", "b", "c"].map(|name| names.add(name)), numbers);
        assert_eq!(numbers.map(|number| names.name(number).expect("known").as_str()), ["a", "b", "c"]);
        names.remove("b");
        assert_eq!((names.name(numbers[1]), names.number("c")), (None, Some(numbers[2])));
    }
}
