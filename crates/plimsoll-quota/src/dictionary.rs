//! The customers of one stream: the task's numbers, and those of the owner.

use std::collections::HashMap;

use plimsoll_core::quota::CustomerId;

/// Most customers that a task may have: those of its accounts, and some that it is about to drop.
const MAX_CUSTOMERS: usize = 2 * plimsoll_core::quota::Holder::MAX_CUSTOMERS;

/// Both numbers of a customer, and its use at the task in µCPU.
#[derive(Clone, Copy, Debug)]
struct Known {
    customer: CustomerId,
    used: u64,
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
        self.known.insert(id, Known { customer, used: 0 });
        self.numbers.insert(customer, id);
        true
    }

    /// The owner's number.
    pub(crate) fn customer(&self, id: u32) -> Option<CustomerId> {
        self.known.get(&id).map(|known| known.customer)
    }

    /// The task's number.
    pub(crate) fn id(&self, customer: CustomerId) -> Option<u32> {
        self.numbers.get(&customer).copied()
    }

    /// Replaces the use of a customer, and returns the one before.
    pub(crate) fn set_used(&mut self, id: u32, used: u64) -> u64 {
        self.known.get_mut(&id).map_or(0, |known| std::mem::replace(&mut known.used, used))
    }

    /// Removes a customer. Returns the owner's number and its use.
    pub(crate) fn remove(&mut self, id: u32) -> Option<(CustomerId, u64)> {
        let known = self.known.remove(&id)?;
        self.numbers.remove(&known.customer);
        Some((known.customer, known.used))
    }

    /// All customers with their use.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (CustomerId, u64)> {
        self.known.values().map(|known| (known.customer, known.used))
    }
}
