//! Counts decisions of a gate by customer, for the customers that the configuration names.
//!
//! Clients choose the names of customers, and each label value of a metric costs memory here and in
//! Prometheus. So only a customer that the file names has counters of its own: in a
//! `[customers.NAME]` table, or in `customers` of a route. All other requests share one set,
//! [`OTHER`], requests without a customer included. The number of counters is bounded by the file,
//! whatever clients send.
//!
//! Counters survive a reload: a customer that stays keeps its counts. One that is removed counts as
//! other from then on.

use std::sync::Arc;

use arc_swap::ArcSwap;
use plimsoll::server::admission::DecisionCounter;
use plimsoll_core::Rejection;

use crate::config::{Config, CustomerName};

/// The customer that all others count as; a customer of this name is one of them.
const OTHER: &str = "other";

/// Decisions by customer.
#[derive(Debug, Default)]
pub(super) struct Customers {
    /// Sorted by number.
    named: ArcSwap<Vec<(u64, Arc<Counts>)>>,
    other: DecisionCounter,
}

/// Decisions about one customer's requests.
#[derive(Debug)]
struct Counts {
    name: Box<str>,
    decisions: DecisionCounter,
}

/// The customers that the file names, sorted.
pub(crate) fn names(config: &Config) -> Vec<&str> {
    let of_routes = config.routes().iter().flat_map(|route| &route.customers).map(CustomerName::as_str);
    let mut names: Vec<&str> = config.customers().keys().map(String::as_str).chain(of_routes).collect();
    names.sort_unstable();
    names.dedup();
    names
}

impl Customers {
    /// Gives these customers counters of their own, and keeps the counts of those that have some.
    pub(super) fn set_names(&self, names: &[&str], number_of: impl Fn(&[u8]) -> u64) {
        let known = self.named.load();
        let counts = |name: &str| {
            let counts = known.iter().find(|(_, counts)| *counts.name == *name);
            counts.map_or_else(
                || Arc::new(Counts { name: name.into(), decisions: DecisionCounter::default() }),
                |(_, counts)| Arc::clone(counts),
            )
        };
        let named = names.iter().filter(|name| **name != OTHER);
        let mut named: Vec<_> = named.map(|name| (number_of(name.as_bytes()), counts(name))).collect();
        named.sort_by_key(|(number, _)| *number);
        self.named.store(Arc::new(named));
    }

    /// A request of the customer with this number was admitted, shed for a reason, or both in a dry
    /// run.
    pub(super) fn count(&self, customer: u64, is_admitted: bool, shed: Option<Rejection>) {
        let named = self.named.load();
        let found = named.binary_search_by_key(&customer, |(number, _)| *number);
        let decisions = found.map_or(&self.other, |place| &named[place].1.decisions);
        decisions.count(is_admitted, shed);
    }

    /// The counts by customer and decision: customers by name, then the others.
    pub(super) fn counts(&self) -> Vec<(Box<str>, &'static str, u64)> {
        let named = self.named.load();
        let mut all: Vec<_> = named.iter().map(|(_, counts)| (&*counts.name, &counts.decisions)).collect();
        all.sort_by_key(|(name, _)| *name);
        all.push((OTHER, &self.other));
        let by_decision = all.into_iter().flat_map(|(name, decisions)| {
            decisions.read().by_name().map(move |(decision, count)| (Box::from(name), decision, count))
        });
        by_decision.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn number_of(name: &[u8]) -> u64 {
        name.iter().fold(7, |number, byte| number * 31 + u64::from(*byte))
    }

    fn counted(customers: &Customers) -> Vec<(String, &'static str, u64)> {
        let counts = customers.counts().into_iter().filter(|(_, _, count)| *count > 0);
        counts.map(|(name, decision, count)| (name.into(), decision, count)).collect()
    }

    #[test]
    fn customers_of_the_file_are_counted_and_all_others_as_one() {
        let customers = Customers::default();
        customers.set_names(&["acme", "other", "shop"], number_of);
        customers.count(number_of(b"acme"), true, None);
        customers.count(number_of(b"acme"), false, Some(Rejection::Quota));
        customers.count(number_of(b"shop"), true, Some(Rejection::Overloaded));
        for stranger in 0..1_000_u32 {
            customers.count(number_of(&stranger.to_be_bytes()), true, None);
        }
        customers.count(number_of(b"other"), true, None);
        let acme = [("acme".to_owned(), "admitted", 1), ("acme".to_owned(), "quota", 1)];
        let shop = [("shop".to_owned(), "admitted", 1), ("shop".to_owned(), "overloaded", 1)];
        let other = [("other".to_owned(), "admitted", 1_001)];
        assert_eq!(counted(&customers), [&acme[..], &shop, &other].concat());
        assert_eq!(customers.counts().len(), 3 * (1 + Rejection::GATE.len()), "no series for a stranger");
    }

    #[test]
    fn customer_counts_survive_a_reload() {
        let customers = Customers::default();
        customers.set_names(&["acme", "shop"], number_of);
        customers.count(number_of(b"acme"), true, None);
        customers.set_names(&["acme", "bank"], number_of);
        customers.count(number_of(b"acme"), true, None);
        customers.count(number_of(b"shop"), true, None);
        assert_eq!(counted(&customers), [("acme".to_owned(), "admitted", 2), ("other".to_owned(), "admitted", 1)]);
    }
}
