//! The customers of one stream: the task's numbers, and those of the owner.
//!
//! A customer beyond the bound of the service has a number of the task only. It stays so until it gets a limit of its own,
//! or the task drops it or joins again: of names of strangers a hash is kept here, and nothing elsewhere.

use std::collections::HashMap;
use std::hash::{BuildHasher as _, BuildHasherDefault, DefaultHasher};

use plimsoll_core::quota::CustomerId;

use crate::name::{Kind, Name};

/// Most customers that a task may have: those of its accounts, and some that it is about to drop.
const MAX_CUSTOMERS: usize = 2 * plimsoll_core::quota::Holder::MAX_CUSTOMERS;

/// The meaning of a number of the task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Known {
    /// A customer or a group of the owner.
    Customer(CustomerId),
    /// One beyond the bound of the service, which the owner does not know, and the hash of its name.
    Beyond(Kind, u64),
}

/// See the [module](self).
#[derive(Debug, Default)]
pub(crate) struct Dictionary {
    known: HashMap<u32, Known>,
    numbers: HashMap<CustomerId, u32>,
    /// The task's numbers beyond the bound, by the hash of the name.
    beyond: HashMap<u64, u32>,
}

fn hash(name: &Name) -> u64 {
    BuildHasherDefault::<DefaultHasher>::default().hash_one(name)
}

impl Dictionary {
    pub(crate) fn is_full(&self) -> bool {
        self.known.len() >= MAX_CUSTOMERS
    }

    /// Adds a customer; `false` if the number or the customer is there already.
    pub(crate) fn add(&mut self, id: u32, customer: CustomerId) -> bool {
        if self.known.contains_key(&id) || self.numbers.contains_key(&customer) {
            return false;
        }
        self.known.insert(id, Known::Customer(customer));
        self.numbers.insert(customer, id);
        true
    }

    /// Adds a customer beyond the bound; `false` if the number is there already.
    pub(crate) fn add_beyond(&mut self, id: u32, name: &Name) -> bool {
        let is_new = !self.known.contains_key(&id);
        if is_new {
            let hash = hash(name);
            self.known.insert(id, Known::Beyond(name.kind, hash));
            self.beyond.insert(hash, id);
        }
        is_new
    }

    /// The owner knows a customer of this name now. Returns whether it was beyond the bound.
    pub(crate) fn find_place(&mut self, name: &Name, customer: CustomerId) -> bool {
        let Some(id) = self.beyond.remove(&hash(name)) else { return false };
        self.known.insert(id, Known::Customer(customer));
        self.numbers.insert(customer, id).is_none()
    }

    /// The customer with a number of the task.
    pub(crate) fn get(&self, id: u32) -> Option<Known> {
        self.known.get(&id).copied()
    }

    /// The task's number.
    pub(crate) fn id(&self, customer: CustomerId) -> Option<u32> {
        self.numbers.get(&customer).copied()
    }

    /// Removes a customer. Returns the owner's number, if it has one.
    pub(crate) fn remove(&mut self, id: u32) -> Option<CustomerId> {
        match self.known.remove(&id)? {
            Known::Customer(customer) => {
                self.numbers.remove(&customer);
                Some(customer)
            }
            Known::Beyond(_, hash) => {
                self.beyond.remove(&hash);
                None
            }
        }
    }

    /// All customers of the owner.
    pub(crate) fn iter(&self) -> impl Iterator<Item = CustomerId> {
        self.numbers.keys().copied()
    }
}
