//! A model of the store: revisions, leases, and transactions that compare.

use std::collections::BTreeMap;

use plimsoll_core::fleet::{Expect, NumberOperation, NumberRecord, OwnRecord};

/// One key of a change, with its new value.
#[derive(Clone, Debug)]
pub(crate) enum Entry {
    Number(u32, Option<NumberRecord>),
    Member(String, Option<u64>),
}

/// The store. Times are milliseconds.
#[derive(Default)]
pub(crate) struct Store {
    /// The changes of each revision: the first is revision 1.
    pub(crate) log: Vec<Vec<Entry>>,
    pub(crate) numbers: BTreeMap<u32, NumberRecord>,
    /// Instance, and end of the lease.
    pub(crate) members: BTreeMap<String, (u64, u64)>,
}

pub(crate) const LEASE_MS: u64 = 10_000;

impl Store {
    pub(crate) fn revision(&self) -> u64 {
        self.log.len() as u64
    }

    /// Writes the member's key with a new lease. Returns the revision.
    pub(crate) fn register(&mut self, now: u64, id: &str, instance: u64) -> u64 {
        self.members.insert(id.to_owned(), (instance, now + LEASE_MS));
        self.log.push(vec![Entry::Member(id.to_owned(), Some(instance))]);
        self.revision()
    }

    /// Returns whether there is such a lease.
    pub(crate) fn renew(&mut self, now: u64, id: &str, instance: u64) -> bool {
        match self.members.get_mut(id) {
            Some((holder, end)) if *holder == instance => {
                *end = now + LEASE_MS;
                true
            }
            _ => false,
        }
    }

    pub(crate) fn expire(&mut self, now: u64) {
        let expired: Vec<String> =
            self.members.iter().filter(|(_, (_, end))| *end <= now).map(|(id, _)| id.clone()).collect();
        for id in expired {
            self.members.remove(&id);
            self.log.push(vec![Entry::Member(id, None)]);
        }
    }

    /// Makes the transaction of an operation. Returns whether its comparisons hold.
    pub(crate) fn commit(&mut self, id: &str, instance: u64, operation: &NumberOperation) -> bool {
        if self.members.get(id).map(|(instance, _)| *instance) != Some(instance) {
            return false;
        }
        let revision = self.revision() + 1;
        let own = NumberRecord { id: id.to_owned(), mod_revision: revision };
        let changes = match operation {
            NumberOperation::Claim { number, expect } if self.meets(*number, expect) => vec![(*number, Some(own))],
            NumberOperation::Move { from, to, expect } if self.meets(*to, expect) && self.has(*from) => {
                vec![(*to, Some(own)), (from.number, None)]
            }
            NumberOperation::Delete { number, id, mod_revision }
                if self.meets(*number, &Expect::Dead { id: id.clone(), mod_revision: *mod_revision }) =>
            {
                vec![(*number, None)]
            }
            NumberOperation::Release(surplus) if self.has(*surplus) => vec![(surplus.number, None)],
            _ => return false,
        };
        for (number, record) in &changes {
            match record {
                Some(record) => self.numbers.insert(*number, record.clone()),
                None => self.numbers.remove(number),
            };
        }
        self.log.push(changes.into_iter().map(|(number, record)| Entry::Number(number, record)).collect());
        true
    }

    /// Whether a number is the member's.
    pub(crate) fn holds(&self, id: &str) -> bool {
        self.numbers.values().any(|record| record.id == id)
    }

    fn has(&self, own: OwnRecord) -> bool {
        self.numbers.get(&own.number).is_some_and(|record| record.mod_revision == own.mod_revision)
    }

    /// A transaction compares revisions, and that the key of the named holder is absent.
    fn meets(&self, number: u32, expect: &Expect) -> bool {
        let revision = self.numbers.get(&number).map_or(0, |record| record.mod_revision);
        match expect {
            Expect::Absent => revision == 0,
            Expect::Dead { id, mod_revision } => revision == *mod_revision && !self.members.contains_key(id),
        }
    }
}
