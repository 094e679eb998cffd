//! The demand of each customer: CPU-seconds a second, decayed, in bounded memory.
//!
//! A table of fixed size, in sets of eight. The number of a customer selects its set. When the set
//! is full, the customer with the least demand in it is forgotten. The heavy customers, which
//! matter under overload, stay. The light ones, of which there may be millions, return as new,
//! which they nearly are. A lookup costs eight comparisons for any number of customers. Why not a
//! hash map: it must be swept, and it grows at the very moment when there is no time for it.

use alloc::boxed::Box;
use core::time::Duration;

use crate::rng::spread;
use crate::{Timestamp, decay};

/// A mean over about three seconds. It is long enough to tell apart customers that send a few
/// requests a second, and short enough that a customer that stops is no longer shed for its past.
const HALF_LIFE: Duration = Duration::from_secs(2);
const WAYS: usize = 8;

#[derive(Clone, Copy, Debug, Default)]
struct Entry {
    customer: u64,
    /// CPU-seconds, decayed; zero for a free entry.
    asked: f64,
    at: Timestamp,
}

impl Entry {
    fn asked(&self, now: Timestamp) -> f64 {
        if self.asked == 0.0 { 0.0 } else { self.asked * decay::remaining(now, self.at, HALF_LIFE) }
    }
}

/// The demand of customers.
#[derive(Clone, Debug)]
pub(super) struct Usage {
    sets: Box<[[Entry; WAYS]]>,
}

impl Usage {
    /// Remembers at least this many customers, if their numbers spread evenly.
    pub(super) fn new(customers: usize) -> Self {
        let sets = customers.div_ceil(WAYS).next_power_of_two();
        Self { sets: alloc::vec![[Entry::default(); WAYS]; sets].into() }
    }

    /// Adds a request of `cost` CPU-seconds. Returns the customer's demand in CPU-seconds a second.
    pub(super) fn on_request(&mut self, now: Timestamp, customer: u64, cost: f64) -> f64 {
        let entry = self.entry(now, customer);
        if entry.customer != customer {
            *entry = Entry { customer, asked: 0.0, at: now };
        }
        entry.asked = entry.asked(now) + cost;
        entry.at = entry.at.max(now);
        decay::rate(entry.asked, HALF_LIFE)
    }

    /// The customer's entry, or the one to replace.
    fn entry(&mut self, now: Timestamp, customer: u64) -> &mut Entry {
        let set = spread(customer) as usize & (self.sets.len() - 1);
        let set = &mut self.sets[set];
        let known = set.iter().position(|entry| entry.customer == customer && entry.asked > 0.0);
        let at = known.unwrap_or_else(|| least(set, now));
        &mut set[at]
    }
}

/// The entry with the least demand.
fn least(set: &[Entry; WAYS], now: Timestamp) -> usize {
    let asked = set.each_ref().map(|entry| entry.asked(now));
    (1..WAYS).fold(0, |least, at| if asked[at] < asked[least] { at } else { least })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(ms: u64) -> Timestamp {
        Timestamp::from_nanos(ms * 1_000_000)
    }

    #[test]
    fn demand_is_known_after_seconds_and_forgotten_again() {
        let mut usage = Usage::new(8);
        let last = (0..20_000).step_by(10).map(|at| usage.on_request(ms(at), 7, 0.004)).last();
        assert!((last.expect("some") - 0.4).abs() < 0.004, "{last:?}");
        assert!(usage.on_request(ms(40_000), 7, 0.0) < 0.001);
    }

    #[test]
    fn heavy_customers_are_remembered_among_a_million_light_ones() {
        let mut usage = Usage::new(1_024);
        let mut rate = 0.0;
        for at in 0..1_000_000_u64 {
            let now = Timestamp::from_nanos(at * 20_000);
            usage.on_request(now, 1_000 + at, 0.001);
            if at % 50 == 0 {
                rate = usage.on_request(now, at / 50 % 10, 0.001);
            }
        }
        // Ten customers share a thousand requests of 1 ms a second.
        assert!((rate - 0.1).abs() < 0.005, "{rate}");
    }

    #[test]
    fn full_set_forgets_the_customer_that_asked_for_least() {
        let mut usage = Usage::new(WAYS);
        for (customer, cost) in (1..).zip([0.5, 0.4, 0.3, 0.1, 0.2, 0.6, 0.7, 0.8]) {
            usage.on_request(ms(0), customer, cost);
        }
        usage.on_request(ms(0), 9, 1.0);
        let known = |customer| usage.sets[0].iter().any(|entry| entry.customer == customer);
        let forgotten: alloc::vec::Vec<u64> = (1..=9).filter(|customer| !known(*customer)).collect();
        assert_eq!(forgotten, [4]);
    }
}
