//! The demand of customers at all tasks, as tasks were last told.
//!
//! ```text
//! demand of a customer is another ──▶ number 7: the customer
//! report of a task that was told up to 5 ──▶ its answer has the customers of 6, 7 ... beside its own
//! ```
//!
//! Tasks report each second, so news of a demand cause no messages of their own.

use alloc::collections::BTreeMap;

/// Customers whose demand changed, in the order of their last change.
#[derive(Clone, Debug, Default)]
pub(super) struct Told {
    last: u64,
    by_number: BTreeMap<u64, u32>,
}

impl Told {
    /// The demand of a customer changed, for the first time since the change of this number. Returns the new number.
    pub(super) fn add(&mut self, customer: u32, before: u64) -> u64 {
        self.by_number.remove(&before);
        self.last += 1;
        self.by_number.insert(self.last, customer);
        self.last
    }

    /// The customer is another one now.
    pub(super) fn remove(&mut self, number: u64) {
        self.by_number.remove(&number);
    }

    /// The number of the last change.
    pub(super) fn last(&self) -> u64 {
        self.last
    }

    /// The customers that changed after the change of this number.
    pub(super) fn since(&self, number: u64) -> impl Iterator<Item = u32> {
        self.by_number.range(number + 1..).map(|(_, customer)| *customer)
    }
}

#[cfg(test)]
mod tests {
    extern crate std;

    use std::vec::Vec;

    use super::*;

    #[test]
    fn task_is_told_each_customer_once_and_only_later_changes() {
        let mut told = Told::default();
        let first = told.add(7, 0);
        told.add(8, 0);
        let seen = told.last();
        let again = told.add(7, first);
        assert_eq!(told.since(0).collect::<Vec<_>>(), [8, 7]);
        assert_eq!(told.since(seen).collect::<Vec<_>>(), [7]);
        told.remove(again);
        assert_eq!(told.since(0).collect::<Vec<_>>(), [8]);
        assert_eq!(told.since(told.last()).count(), 0);
    }
}
