//! The customers of one stream: the task's numbers, and those of the owner.

use std::collections::HashMap;

use plimsoll_core::quota::CustomerId;

/// Most customers that a task may have: those of its accounts, and some that it is about to drop.
const MAX_CUSTOMERS: usize = 2 * plimsoll_core::quota::Holder::MAX_CUSTOMERS;

/// See the [module](self).
#[derive(Debug, Default)]
pub(crate) struct Dictionary {
    known: HashMap<u32, CustomerId>,
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
        self.known.insert(id, customer);
        self.numbers.insert(customer, id);
        true
    }

    /// The owner's number.
    pub(crate) fn customer(&self, id: u32) -> Option<CustomerId> {
        self.known.get(&id).copied()
    }

    /// The task's number.
    pub(crate) fn id(&self, customer: CustomerId) -> Option<u32> {
        self.numbers.get(&customer).copied()
    }

    /// Removes a customer. Returns the owner's number.
    pub(crate) fn remove(&mut self, id: u32) -> Option<CustomerId> {
        let customer = self.known.remove(&id)?;
        self.numbers.remove(&customer);
        Some(customer)
    }

    /// All customers.
    pub(crate) fn iter(&self) -> impl Iterator<Item = CustomerId> {
        self.known.values().copied()
    }
}
