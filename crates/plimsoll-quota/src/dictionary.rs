//! The customers of one stream: the task's numbers, and those of the owner.
//!
//! A customer beyond the bound of the service has a number of the task only. It stays so until the task drops it or
//! joins again: names of strangers are kept nowhere.

use std::collections::HashMap;

use plimsoll_core::quota::CustomerId;

use crate::name::Kind;

/// Most customers that a task may have: those of its accounts, and some that it is about to drop.
const MAX_CUSTOMERS: usize = 2 * plimsoll_core::quota::Holder::MAX_CUSTOMERS;

/// The meaning of a number of the task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Known {
    /// A customer or a group of the owner.
    Customer(CustomerId),
    /// One beyond the bound of the service, which the owner does not know.
    Beyond(Kind),
}

/// See the [module](self).
#[derive(Debug, Default)]
pub(crate) struct Dictionary {
    known: HashMap<u32, Known>,
    numbers: HashMap<CustomerId, u32>,
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
    pub(crate) fn add_beyond(&mut self, id: u32, kind: Kind) -> bool {
        let is_new = !self.known.contains_key(&id);
        if is_new {
            self.known.insert(id, Known::Beyond(kind));
        }
        is_new
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
        let Known::Customer(customer) = self.known.remove(&id)? else { return None };
        self.numbers.remove(&customer);
        Some(customer)
    }

    /// All customers of the owner.
    pub(crate) fn iter(&self) -> impl Iterator<Item = CustomerId> {
        self.numbers.keys().copied()
    }
}
