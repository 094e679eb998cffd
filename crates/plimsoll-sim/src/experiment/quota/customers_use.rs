//! The metrics of a customer, or of some customers with one limit.

use std::ops::Range;

use super::findings::has_messages;
use super::measure::{Held, Measure, Tally, Use};
use super::plan::{Customer, Rule};
use crate::experiment::counts::ratio;
use crate::experiment::windows::Window;

/// One of `[[customers]]` in a window: each of its customers.
pub(super) struct CustomersUse {
    /// In seconds.
    window: f64,
    /// In CPUs.
    limit: f64,
    cpu: Vec<Use>,
    held: Vec<Held>,
    /// The highest use over a span, in CPUs.
    highest: Vec<Option<f64>>,
    entries: u64,
}

impl CustomersUse {
    /// CPU-microseconds within a window over the limit of so many customers.
    fn of_limit(&self, cpu: f64, customers: usize) -> Option<f64> {
        (customers > 0).then(|| cpu / 1e6 / self.window / (self.limit * customers as f64))
    }

    /// Customers that offer more than their limit, or the others.
    fn over(&self, is_over: bool) -> impl Iterator<Item = &Use> {
        let limit = self.limit * self.window * 1e6;
        self.cpu.iter().filter(move |cpu| (cpu.offered > limit) == is_over)
    }
}

/// The customers of a place in `[[customers]]` in a window. `None` if none of them has requests.
pub(super) fn of_entry(measure: &Measure, at: usize, window: &Window, place: usize) -> Option<CustomersUse> {
    of(measure, at, window, measure.customers.at(place))
}

/// The group of a place in `[[groups]]`, as one customer.
pub(super) fn joint(measure: &Measure, at: usize, window: &Window, place: usize) -> Option<CustomersUse> {
    let number = measure.customers.group(place);
    of(measure, at, window, number..number + 1)
}

fn of(measure: &Measure, at: usize, window: &Window, customers: Range<usize>) -> Option<CustomersUse> {
    let cpu = &measure.cpu.by_window[at][customers.clone()];
    cpu.iter().any(|cpu| cpu.offered > 0.0).then(|| CustomersUse {
        window: window.seconds(),
        limit: measure.customers.limit(customers.start),
        cpu: cpu.to_vec(),
        held: measure.held.by_window[at][customers.clone()].to_vec(),
        highest: customers.clone().map(|customer| measure.highest(window, customer)).collect(),
        entries: measure.entries.by_window[at][customers].iter().sum(),
    })
}

pub(super) type OfUse = fn(&CustomersUse) -> Option<f64>;

/// Metrics of a customer, over its limit; of some customers: over the sum of their limits, and the highest of any.
const OF_CUSTOMER: [(&str, OfUse); 6] = [
    ("offered_of_limit", |group| {
        let offered = group.cpu.iter().map(|cpu| cpu.offered).sum();
        group.of_limit(offered, group.cpu.len())
    }),
    ("used_of_limit", |group| {
        let used = group.cpu.iter().map(|cpu| cpu.used).sum();
        group.of_limit(used, group.cpu.len())
    }),
    ("used_of_limit_max", |group| {
        let highest = group.highest.iter().flatten().copied().reduce(f64::max);
        highest.map(|highest| highest / group.limit)
    }),
    ("held_of_limit", |group| {
        let sums = group.held.iter().fold((0.0, 0), |sums, held| (sums.0 + held.sum, sums.1 + held.samples));
        (sums.1 > 0).then(|| sums.0 / sums.1 as f64)
    }),
    ("held_of_limit_max", |group| {
        group.held.iter().filter(|held| held.samples > 0).map(|held| held.max).reduce(f64::max)
    }),
    ("held_over_limit_share", |group| {
        let sums = group.held.iter().fold((0, 0), |sums, held| (sums.0 + held.over, sums.1 + held.samples));
        ratio(sums.0, sums.1)
    }),
];

/// Metrics of some customers.
const OF_CUSTOMERS: [(&str, OfUse); 2] = [
    ("refused_below_limit", |group| {
        let add = |sum: Tally, cpu: &Use| Tally {
            arrived: sum.arrived + cpu.tally.arrived,
            refused: sum.refused + cpu.tally.refused,
        };
        let tally = group.over(false).fold(Tally::default(), add);
        ratio(tally.refused, tally.arrived)
    }),
    ("used_of_limit_when_over", |group| {
        group.of_limit(group.over(true).map(|cpu| cpu.used).sum(), group.over(true).count())
    }),
];

/// The metric of a customer that is in messages.
const OF_ENTRIES: [(&str, OfUse); 1] = [("entries_per_second", |group| Some(group.entries as f64 / group.window))];

pub(super) fn of_customer(customer: &Customer, rule: Rule) -> impl Iterator<Item = (&'static str, OfUse)> {
    let of_some = OF_CUSTOMERS.into_iter().filter(|_| customer.count.get() > 1);
    let of_entries = OF_ENTRIES.into_iter().filter(move |_| has_messages(rule));
    OF_CUSTOMER.into_iter().chain(of_some).chain(of_entries)
}

/// Metrics of one of `[[groups]]`: those of its rates only where it is enforced.
pub(super) fn of_joint(rule: Rule) -> impl Iterator<Item = (&'static str, OfUse)> {
    let (use_of_limit, rates) = OF_CUSTOMER.split_at(3);
    let rates = rates.iter().chain(&OF_ENTRIES).filter(move |_| rule.has_groups());
    use_of_limit.iter().chain(rates).copied()
}
