//! The records under a prefix of the store, by the removals that are believed.
//!
//! A record that disappears while removals are not believed ([`RemovalTrust`]) stays as
//! **unconfirmed**. When trust returns, the records that are still missing are removed. A record
//! that comes back is simply present.
//!
//! ```text
//! present ──disappears, believed──▶ removed
//!    │  ▲                              ▲
//!    │  └──comes back──┐               │
//!    └─disappears─▶ unconfirmed ──trust returns
//! ```
//!
//! Rejected: to ignore removals that are not believed. A watch reports a removal once, so a process
//! would never learn of a real one.
//!
//! Each list, put and removal is a message of the store, and thus a contact. So no caller can judge
//! a removal before the gap that came before it.
//!
//! Where it is weak: the value of an unconfirmed record is its last one.

use alloc::collections::BTreeMap;
use alloc::collections::btree_map::Entry;

use super::trust::{RemovalTrust, TrustConfig};
use crate::Timestamp;

/// The state of a known record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Presence {
    /// The store has it.
    Present,
    /// It disappeared from the store while removals were not believed, or is from a saved list.
    Unconfirmed,
}

/// A record, and whether the store has it.
#[derive(Clone, Debug)]
struct Known<V> {
    value: V,
    presence: Presence,
}

/// The records under one prefix: those in the store and the unconfirmed ones.
#[derive(Clone, Debug)]
pub struct Members<K, V> {
    trust: RemovalTrust,
    records: BTreeMap<K, Known<V>>,
    unconfirmed: usize,
}

impl<K: Ord, V: PartialEq> Members<K, V> {
    /// No records, before the first contact.
    #[must_use]
    pub const fn new(config: TrustConfig) -> Self {
        Self { trust: RemovalTrust::new(config), records: BTreeMap::new(), unconfirmed: 0 }
    }

    /// Adds the records of a saved list as unconfirmed. A known record stays as it is.
    pub fn restore(&mut self, saved: impl IntoIterator<Item = (K, V)>) {
        for (key, value) in saved {
            if let Entry::Vacant(vacant) = self.records.entry(key) {
                vacant.insert(Known { value, presence: Presence::Unconfirmed });
                self.unconfirmed += 1;
            }
        }
    }

    /// The store sent a message without records, such as the progress of a watch.
    pub fn on_contact(&mut self, now: Timestamp) {
        self.trust.on_contact(now);
    }

    /// The store has these records and no others. Returns whether a key or value changed.
    pub fn set_list(&mut self, now: Timestamp, list: impl IntoIterator<Item = (K, V)>) -> bool {
        self.trust.on_contact(now);
        for known in self.records.values_mut() {
            known.presence = Presence::Unconfirmed;
        }
        self.unconfirmed = self.records.len();
        let mut changed = false;
        for (key, value) in list {
            changed |= self.insert(key, value);
        }
        self.remove_missing(now) || changed
    }

    /// The store has this record. Returns whether its value is new.
    pub fn put(&mut self, now: Timestamp, key: K, value: V) -> bool {
        self.trust.on_contact(now);
        self.insert(key, value)
    }

    /// The store no longer has this record. Returns whether it was removed here, too.
    pub fn remove(&mut self, now: Timestamp, key: &K) -> bool {
        self.trust.on_contact(now);
        if let Some(known) = self.records.get_mut(key)
            && known.presence == Presence::Present
        {
            known.presence = Presence::Unconfirmed;
            self.unconfirmed += 1;
        }
        self.remove_missing(now)
    }

    /// All records by key, the unconfirmed included.
    pub fn iter(&self) -> impl Iterator<Item = (&K, &V)> {
        self.records.iter().map(|(key, known)| (key, &known.value))
    }

    /// The value of a record.
    #[must_use]
    pub fn get(&self, key: &K) -> Option<&V> {
        self.records.get(key).map(|known| &known.value)
    }

    /// The state of a record; `None` if it is unknown or removed.
    #[must_use]
    pub fn presence(&self, key: &K) -> Option<Presence> {
        self.records.get(key).map(|known| known.presence)
    }

    /// Number of records.
    #[must_use]
    pub fn len(&self) -> usize {
        self.records.len()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.records.is_empty()
    }

    /// Number of unconfirmed records.
    #[must_use]
    pub const fn unconfirmed(&self) -> usize {
        self.unconfirmed
    }

    /// Whether the store sent a message lately.
    #[must_use]
    pub fn is_in_contact(&self, now: Timestamp) -> bool {
        self.trust.is_in_contact(now)
    }

    /// Whether a record that disappears now is removed at once.
    #[must_use]
    pub fn believes_removals(&self, now: Timestamp) -> bool {
        self.trust.believes_removals(now)
    }

    /// The next time at which [`handle_timeout`](Self::handle_timeout) has work.
    #[must_use]
    pub const fn poll_timeout(&self) -> Option<Timestamp> {
        self.trust.poll_timeout()
    }

    /// Removes the unconfirmed records, if trust has returned. Returns whether there were any.
    pub fn handle_timeout(&mut self, now: Timestamp) -> bool {
        self.trust.handle_timeout(now);
        self.remove_missing(now)
    }

    fn insert(&mut self, key: K, value: V) -> bool {
        match self.records.entry(key) {
            Entry::Vacant(vacant) => {
                vacant.insert(Known { value, presence: Presence::Present });
                true
            }
            Entry::Occupied(occupied) => {
                let known = occupied.into_mut();
                self.unconfirmed -= usize::from(known.presence == Presence::Unconfirmed);
                known.presence = Presence::Present;
                let changed = known.value != value;
                known.value = value;
                changed
            }
        }
    }

    fn remove_missing(&mut self, now: Timestamp) -> bool {
        if self.unconfirmed == 0 || !self.trust.believes_removals(now) {
            return false;
        }
        self.unconfirmed = 0;
        self.records.retain(|_, known| known.presence == Presence::Present);
        true
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec;
    use alloc::vec::Vec;
    use core::time::Duration;

    use proptest::prelude::*;

    use super::*;

    fn at(seconds: u64) -> Timestamp {
        Timestamp::from_origin(Duration::from_secs(seconds))
    }

    fn keys(members: &Members<u8, u8>) -> Vec<u8> {
        members.iter().map(|(key, _)| *key).collect()
    }

    /// Two records, with a contact every three seconds until 30 s.
    fn pair() -> Members<u8, u8> {
        let mut members = Members::new(TrustConfig::default());
        assert!(members.set_list(at(0), [(1, 10), (2, 20)]));
        for second in (3..=30).step_by(3) {
            members.on_contact(at(second));
        }
        members
    }

    #[test]
    fn removal_in_contact_is_believed_at_once() {
        let mut members = pair();
        assert!(members.remove(at(31), &1));
        assert_eq!((keys(&members), members.unconfirmed()), (vec![2], 0));
        assert!(!members.remove(at(31), &1), "it is gone already");
    }

    /// The outage of the design: all leases expire, and the list after it is empty.
    #[test]
    fn records_lost_in_an_outage_stay_until_two_leases_later() {
        let mut members = pair();
        assert!(!members.set_list(at(150), []));
        assert_eq!((members.len(), members.unconfirmed()), (2, 2));
        assert_eq!(members.presence(&1), Some(Presence::Unconfirmed));
        assert!(!members.put(at(152), 1, 10), "back with its value, nothing changed");
        for second in (153..=168).step_by(5) {
            members.on_contact(at(second));
        }
        assert!(!members.handle_timeout(at(169)));
        assert_eq!(members.poll_timeout(), Some(at(170)));
        assert!(members.handle_timeout(at(170)));
        assert_eq!(keys(&members), [1]);
        assert_eq!(members.presence(&1), Some(Presence::Present));
    }

    #[test]
    fn removal_is_judged_after_the_contact_that_brings_it() {
        let mut members = pair();
        assert!(!members.remove(at(60), &1));
        assert_eq!(members.presence(&1), Some(Presence::Unconfirmed));
    }

    #[test]
    fn saved_records_stay_unconfirmed_until_the_store_answers() {
        let mut members = pair();
        members.restore([(2, 99), (3, 30)]);
        assert_eq!((members.get(&2), members.presence(&2)), (Some(&20), Some(Presence::Present)));
        let mut fresh = Members::new(TrustConfig::default());
        fresh.restore([(1, 10), (2, 20)]);
        assert!(!fresh.handle_timeout(at(100)), "the store has not answered");
        assert!(fresh.set_list(at(100), [(2, 20), (3, 30)]), "one is new");
        assert_eq!((keys(&fresh), fresh.unconfirmed()), (vec![1, 2, 3], 1));
        for second in (103..=118).step_by(5) {
            fresh.on_contact(at(second));
        }
        assert!(fresh.handle_timeout(at(120)));
        assert_eq!(keys(&fresh), [2, 3]);
    }

    #[test]
    fn new_value_is_a_change_and_an_equal_one_is_none() {
        let mut members = pair();
        assert!(!members.put(at(31), 1, 10));
        assert!(members.put(at(31), 1, 11));
        assert!(!members.set_list(at(32), [(2, 20), (1, 11)]));
        assert!(members.set_list(at(32), [(2, 21), (1, 11)]));
        assert!(members.set_list(at(32), [(1, 11)]));
    }

    proptest! {
        /// Against the rule said again: a record is known while the store has it, or it disappeared
        /// and no moment of trust came since.
        #[test]
        fn members_are_those_of_the_rule(
            steps in prop::collection::vec((0..9_u64, 0..4_u8, prop::collection::vec(0..6_u8, 0..6)), 1..80),
        ) {
            let mut members: Members<u8, ()> = Members::new(TrustConfig::default());
            let mut present: Vec<u8> = Vec::new();
            let mut missing: Vec<u8> = Vec::new();
            let (mut now, mut last, mut until) = (0, None, 0);
            for (wait, kind, list) in steps {
                now += wait;
                // Without records, a put is no message.
                let is_message = kind == 0 || kind == 2 || kind == 1 && !list.is_empty();
                if is_message {
                    if last.is_none_or(|last| now - last > 5) {
                        until = now + 20;
                    }
                    last = Some(now);
                }
                match kind {
                    0 => {
                        missing.extend(present.iter().copied());
                        present = list.clone();
                        members.set_list(at(now), list.into_iter().map(|key| (key, ())));
                    }
                    1 => for key in list {
                        present.push(key);
                        members.put(at(now), key, ());
                    }
                    2 => {
                        members.on_contact(at(now));
                        for key in list {
                            if present.contains(&key) {
                                missing.push(key);
                            }
                            present.retain(|other| *other != key);
                            members.remove(at(now), &key);
                        }
                    }
                    _ => {}
                }
                members.handle_timeout(at(now));
                missing.retain(|key| !present.contains(key));
                if last.is_some_and(|last| now - last <= 5) && now >= until {
                    missing.clear();
                }
                let mut expected: Vec<u8> = present.iter().chain(&missing).copied().collect();
                expected.sort_unstable();
                expected.dedup();
                prop_assert_eq!(keys_of(&members), expected);
                let unconfirmed = members.iter().filter(|(key, ())| members.presence(key) == Some(Presence::Unconfirmed));
                prop_assert_eq!(members.unconfirmed(), unconfirmed.count());
            }
        }
    }

    fn keys_of(members: &Members<u8, ()>) -> Vec<u8> {
        members.iter().map(|(key, ())| *key).collect()
    }
}
