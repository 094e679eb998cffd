//! The demand that is believed of one task.
//!
//! ```text
//! most          = 4 · CPUs      of one customer or group
//! Σ of them all ≤ 2 · most      a request counts for its customer and for its group
//! ```
//!
//! Requests that are refused are demand too, so an honest task that is flooded exceeds its CPUs. Above a bound its
//! demand still counts, in proportion: by criticality above the first one, and by customer above the second one. There
//! all of its demand counts for a half, a quarter and so on. Halves of all but small numbers are exact in those that the
//! owner keeps, so the demand doubles again without reports when the flood is over.
//!
//! A rate that [counts](super::newcomer) when a task joins is believed up to `most`: it cannot use more than its CPUs,
//! whatever it holds. A limit that was lowered is no bound, since the task may not have heard of it. As *demand* such a
//! rate counts within the limit, and within the second bound.

use alloc::vec::Vec;

use super::super::rule::LEVELS;
use super::super::{Hold, Report, UNLIMITED, granted};
use super::Owner;

/// Demand of a task for one customer, over its CPUs.
const MOST_DEMAND: u64 = 4;
/// The same over all customers and groups, over that for one.
const MOST_OF_ALL: u64 = 2;
/// Part of the bound that stays free when demand is doubled.
const BAND: u64 = 16;
/// µCPU of one CPU.
const CPU: u64 = 1_000_000;

/// See the [module](self).
#[derive(Clone, Copy, Debug)]
pub(super) struct Believed {
    /// Of one customer, in µCPU.
    most: u64,
    /// Σ over all customers, in µCPU.
    sum: u64,
    /// How often all demand is halved.
    halves: u32,
}

/// A rate that a task says it holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Claim {
    /// The rate that it may be using, in µCPU.
    pub(super) held: u32,
    /// The demand until it reports, in µCPU.
    pub(super) demand: u64,
}

impl Claim {
    /// A task that holds nothing.
    pub(super) const NONE: Self = Self { held: 0, demand: 0 };
}

impl Believed {
    /// A task with these CPUs, without demand.
    pub(super) fn new(cpus: f64) -> Self {
        Self { most: (cpus.clamp(0.001, 1e6) * (MOST_DEMAND * CPU) as f64) as u64, sum: 0, halves: 0 }
    }

    fn most_of_all(&self) -> u64 {
        MOST_OF_ALL * self.most
    }

    /// The holds of a task that joins, with the limits of their customers.
    pub(super) fn claims(&self, holds: &[(Hold, u64)]) -> Vec<Claim> {
        let claim = |&(Hold { rate, .. }, limit): &(Hold, u64)| {
            let held = u64::from(rate).min(self.most);
            // Without a limit a rate has no meaning.
            let demand = if limit < UNLIMITED { held.min(granted(limit)) } else { 0 };
            Claim { held: held as u32, demand }
        };
        let mut claims: Vec<Claim> = holds.iter().map(claim).collect();
        let total: u64 = claims.iter().map(|claim| claim.demand).sum();
        if total > self.most_of_all() {
            claims.iter_mut().for_each(|claim| claim.demand = part(claim.demand, self.most_of_all(), total));
        }
        claims
    }

    /// The demand for one customer, from what the task reports.
    pub(super) fn demand(&self, reported: [u64; LEVELS]) -> [u64; LEVELS] {
        let total = reported.iter().fold(0_u64, |sum, demand| sum.saturating_add(*demand));
        let demand = if total > self.most { reported.map(|demand| part(demand, self.most, total)) } else { reported };
        demand.map(|demand| demand >> self.halves)
    }

    /// The use of one customer in µCPU, from what the task reports.
    pub(super) fn used(&self, reported: u64) -> u64 {
        reported.min(self.most)
    }

    /// The demand for a customer is another one.
    pub(super) fn replace(&mut self, before: u64, now: u64) {
        self.sum = self.sum + now - before;
    }

    /// How often all demand is to be halved, if it grows by this much.
    pub(super) fn excess(&self, more: u64) -> u32 {
        let sum = self.sum.saturating_add(more);
        (0..u64::BITS).find(|halves| sum >> halves <= self.most_of_all()).unwrap_or(u64::BITS - 1)
    }

    /// How often all demand may be doubled again. A part of the bound stays free, so that it is not halved soon.
    pub(super) fn slack(&self) -> u32 {
        let most = self.most_of_all() - self.most_of_all() / BAND;
        let fits = |doubled: &u32| u128::from(self.sum) << doubled <= u128::from(most);
        (0..=self.halves).rev().find(fits).unwrap_or(0)
    }

    /// All demand was scaled.
    pub(super) fn on_scale(&mut self, scale: Scale) {
        self.halves = match scale {
            Scale::Halve(times) => self.halves + times,
            Scale::Double(times) => self.halves - times,
        };
    }
}

/// A change of all demand of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Scale {
    Halve(u32),
    Double(u32),
}

impl Scale {
    pub(super) fn of(self, value: u64) -> u64 {
        match self {
            Self::Halve(times) => value >> times,
            Self::Double(times) => value << times,
        }
    }
}

impl Owner {
    /// Makes room for the demand in a report, within the bound over all customers of its task.
    pub(super) fn bound_demand(&mut self, id: u32, report: &Report) {
        let Some(task) = self.tasks[id as usize].as_ref() else { return };
        let believed = &task.believed;
        let most = report.entries.iter().flat_map(|entry| entry.demand).fold(0, u64::saturating_add);
        if believed.excess(most) == 0 {
            return;
        }
        let reported: u64 = report.entries.iter().flat_map(|entry| believed.demand(entry.demand)).sum();
        if believed.excess(reported) == 0 {
            return;
        }
        let mut next = 0;
        let mut before = |customer: u32| {
            let place = task.place_near(customer, &mut next)?;
            Some(self.customers[customer as usize].entries[place].all_demand())
        };
        let replaced: u64 = report.entries.iter().filter_map(|entry| before(entry.customer.0)).sum();
        let halves = believed.excess(reported.saturating_sub(replaced));
        if halves > 0 {
            self.scale(id, Scale::Halve(halves));
        }
    }

    /// Doubles the demand of a task whose flood is over.
    pub(super) fn relax_demand(&mut self, id: u32) {
        let task = self.tasks[id as usize].as_ref().filter(|task| task.is_connected);
        let slack = task.map_or(0, |task| task.believed.slack());
        if slack > 0 {
            self.scale(id, Scale::Double(slack));
        }
    }

    /// All demand of a task counts for another part of itself.
    fn scale(&mut self, id: u32, scale: Scale) {
        let Some(task) = self.tasks[id as usize].as_mut() else { return };
        task.believed.on_scale(scale);
        let places: Vec<(u32, u32)> = task.customers().collect();
        for (customer, place) in &places {
            let (before, all) = self.customers[*customer as usize].scale(*place as usize, scale);
            task.believed.replace(before, all);
        }
        places.into_iter().for_each(|(customer, _)| self.mark(customer));
    }
}

fn part(of: u64, most: u64, total: u64) -> u64 {
    (u128::from(of) * u128::from(most) / u128::from(total)) as u64
}

#[cfg(test)]
mod tests {
    extern crate std;

    use std::vec;

    use proptest::prelude::*;

    use super::super::super::coarse::Coarse;
    use super::super::super::{CustomerId, OwnerConfig, ReportEntry, TaskId};
    use super::super::{Hello, ReportError};
    use super::*;
    use crate::Timestamp;

    const MOST: u64 = 4_000_000;

    fn at(ms: u64) -> Timestamp {
        Timestamp::from_nanos(ms * 1_000_000)
    }

    /// The demand of one customer, of requests of 1 ms.
    fn entry(customer: CustomerId, demand: u64) -> ReportEntry {
        ReportEntry { customer, demand: [0, demand, 0, 0], cost: 1_000, lacking: 0, unused: 0, used: 0 }
    }

    struct Fleet {
        owner: Owner,
        customers: Vec<CustomerId>,
    }

    impl Fleet {
        /// Customers with this limit.
        fn new(customers: usize, limit: u64) -> Self {
            let mut owner = Owner::new(at(0), OwnerConfig::default());
            let customers = (0..customers).map(|_| owner.add_customer(at(0), limit)).collect();
            Self { owner, customers }
        }

        /// A task of one CPU that holds these rates.
        fn join(&mut self, rates: &[u32]) -> TaskId {
            let holds = self.customers.iter().zip(rates);
            let holds = holds.map(|(customer, rate)| Hold { customer: *customer, rate: *rate }).collect();
            self.owner.join(at(0), &Hello { cpus: 1.0, tasks: None, holds }, None).expect("known customers")
        }

        fn report(&mut self, task: TaskId, number: u32, entries: Vec<ReportEntry>) -> Result<(), ReportError> {
            let report = Report { number, entries, ..Report::default() };
            self.owner.report(at(6_000), task, &report).map(drop)
        }

        fn demand(&self, customer: usize) -> u64 {
            self.owner.customer(self.customers[customer]).demand.iter().sum()
        }

        fn all_demand(&self) -> u64 {
            (0..self.customers.len()).map(|customer| self.demand(customer)).sum()
        }
    }

    #[test]
    fn holds_are_believed_up_to_what_the_cpus_of_the_task_can_use() {
        let mut fleet = Fleet::new(10, 3_000_000);
        fleet.join(&[u32::MAX; 10]);
        let state = fleet.owner.customer(fleet.customers[0]);
        assert_eq!((state.held, fleet.demand(0)), (MOST, 800_000 - 800_000 % 512), "a tenth of twice the most");
        let mut fleet = Fleet::new(1, 3_000_000);
        fleet.join(&[u32::MAX]);
        assert!((2_938_000..=granted(3_000_000)).contains(&fleet.demand(0)), "{}", fleet.demand(0));
    }

    #[test]
    fn hold_above_a_limit_that_was_lowered_is_held_and_is_no_demand() {
        let mut fleet = Fleet::new(2, 100_000);
        fleet.owner.set_limit(fleet.customers[1], UNLIMITED);
        fleet.join(&[980_000, 980_000]);
        let held = [0, 1].map(|at| fleet.owner.customer(fleet.customers[at]).held);
        assert_eq!((held, fleet.demand(1)), ([980_000; 2], 0));
        assert!((97_900..=98_000).contains(&fleet.demand(0)), "{}", fleet.demand(0));
    }

    #[test]
    fn demand_of_a_task_is_bounded_over_all_its_customers() {
        for is_at_once in [true, false] {
            let mut fleet = Fleet::new(1_000, 1_000_000);
            let task = fleet.join(&[]);
            let entries: Vec<_> = fleet.customers.iter().map(|customer| entry(*customer, u64::MAX)).collect();
            if is_at_once {
                fleet.report(task, 1, entries).expect("a good report");
            } else {
                for (number, entry) in (1..).zip(entries) {
                    fleet.report(task, number, vec![entry]).expect("a good report");
                    assert!(fleet.all_demand() <= 2 * MOST, "{}", fleet.all_demand());
                }
            }
            let demands: Vec<u64> = (0..1_000).map(|at| fleet.demand(at)).collect();
            assert!(demands.iter().all(|demand| *demand == demands[0]), "{is_at_once}: {demands:?}");
            assert!((MOST..=2 * MOST).contains(&fleet.all_demand()), "{is_at_once}: {}", fleet.all_demand());
        }
    }

    #[test]
    fn flooded_task_is_heard_in_proportion_and_in_full_when_the_flood_is_over() {
        let mut fleet = Fleet::new(12, 1_000_000);
        let task = fleet.join(&[]);
        let mut entries = vec![entry(fleet.customers[0], 400_000), entry(fleet.customers[1], 200_000)];
        entries.extend(fleet.customers[2..].iter().map(|customer| entry(*customer, 3_000_000)));
        fleet.report(task, 1, entries).expect("a good report");
        let near = |demand: u64, expected: u64| demand.abs_diff(expected) <= expected / 500;
        assert!(near(fleet.demand(0), 100_000) && near(fleet.demand(1), 50_000), "30 of 8 CPUs: a quarter");
        let over = fleet.customers[2..].iter().map(|customer| entry(*customer, 0)).collect();
        fleet.report(task, 2, over).expect("a good report");
        fleet.owner.handle_timeout(at(7_000));
        assert!(near(fleet.demand(0), 400_000) && near(fleet.demand(1), 200_000), "without another report");
    }

    #[test]
    fn one_task_of_expensive_requests_moves_the_mean_cost_by_less_than_twice() {
        let mut fleet = Fleet::new(1, 20_000_000);
        let customer = fleet.customers[0];
        for number in 1..=50 {
            for task in 0..11 {
                let task = if number == 1 { fleet.join(&[]) } else { TaskId(task) };
                let of = if task.0 == 0 { (4_000_000, 1_000_000) } else { (30_000, 1_000) };
                let entry = ReportEntry { cost: of.1, ..entry(customer, of.0) };
                fleet.report(task, number, vec![entry]).expect("a good report");
            }
        }
        // 4.3 CPUs for 304 requests a second.
        let cost = fleet.owner.mean_cost(customer);
        assert!((14_000.0..28_000.0).contains(&cost), "{cost}");
    }

    #[test]
    fn cost_without_sense_at_one_task_moves_the_mean_cost_little() {
        let mut fleet = Fleet::new(1, 20_000_000);
        let customer = fleet.customers[0];
        let tasks: Vec<TaskId> = (0..11).map(|_| fleet.join(&[])).collect();
        for number in 1..=50 {
            for task in &tasks[1..] {
                fleet.report(*task, number, vec![entry(customer, 1_000_000)]).expect("a good report");
            }
            let lie = ReportEntry { cost: 1, ..entry(customer, MOST) };
            fleet.report(tasks[0], number, vec![lie]).expect("a good report");
        }
        let cost = fleet.owner.mean_cost(customer);
        assert!((300.0..1_000.0).contains(&cost), "{cost}");
    }

    proptest! {
        /// The sum that the owner keeps is that of its entries, whatever is reported and dropped.
        #[test]
        fn believed_demand_is_within_the_bound_and_exact_below_it(
            reports in prop::collection::vec(
                prop::collection::vec((0_usize..40, prop_oneof![0_u64..50_000, 0..u64::MAX]), 0..20),
                1..40,
            ),
        ) {
            let mut fleet = Fleet::new(40, 1_000_000);
            let task = fleet.join(&[300_000; 40]);
            for (number, report) in (1..).zip(reports) {
                let report: std::collections::BTreeMap<usize, u64> = report.into_iter().collect();
                let entries = report.iter().map(|(at, demand)| entry(fleet.customers[*at], *demand)).collect();
                fleet.report(task, number, entries).expect("a good report");
                let believed = fleet.owner.tasks[task.0 as usize].as_ref().expect("it joined").believed;
                prop_assert_eq!(fleet.all_demand(), believed.sum);
                prop_assert!(believed.sum <= 2 * MOST, "{}", believed.sum);
            }
            // A report of all, and a second later nothing is halved unless it has to be.
            let number = fleet.owner.tasks[task.0 as usize].as_ref().expect("it joined").reported + 1;
            let all = |fleet: &Fleet| fleet.customers.iter().map(|customer| entry(*customer, 20_000)).collect();
            fleet.report(task, number, all(&fleet)).expect("a good report");
            fleet.owner.handle_timeout(at(7_000));
            fleet.report(task, number + 1, all(&fleet)).expect("a good report");
            prop_assert_eq!(fleet.demand(7), Coarse::new(20_000).get());
        }
    }
}
