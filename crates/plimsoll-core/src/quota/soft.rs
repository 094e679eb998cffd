//! Soft limits over a fleet: the share of a customer at a task while CPU is short.
//!
//! ```text
//! demand ÷ share = (D ÷ N) ÷ q     soft limit q, N tasks, demand D at all of them, of one criticality
//! ```
//!
//! A task cuts the customers with the highest demand over their share (see
//! [`RankedAdmission`](crate::admit::RankedAdmission)). With the demand at a mean task that is the same at each task: a
//! customer is cut by its demand on the fleet, however few tasks serve it, and however few its requests are at one. A
//! soft limit binds nothing while a task has CPU left, so the capacity of the fleet need not be known.
//!
//! The share at a mean task is q: it compares with the share of customers whose soft limit is a setting of the task.

use super::rule::{Rule, root};

/// The smallest share, for a soft limit of 0. CPUs.
const LEAST: f64 = 1e-6;
/// CPUs of a µCPU.
const MICRO: f64 = 1e-6;

/// A customer beside others while CPU is short.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FairShare {
    /// Its share at a mean task, in CPUs.
    pub share: f64,
    /// Its demand there at the criticality of the request, in CPUs. `None`: the task knows its own only.
    pub demand: Option<f64>,
}

/// The share of a customer with this soft limit, and its demand of a criticality at this task and at all, if that is
/// known. µCPU; `cost` is the mean cost of a request, in CPU-microseconds.
pub(super) fn fair_share(soft: u64, own: u64, all: Option<u64>, cost: f64, tasks: u32) -> FairShare {
    let share = (soft as f64 * MICRO).max(LEAST);
    // The sum of reports is older than the demand of this task: it has more for chance, or since then.
    let all = all.map(|all| {
        let by_chance = Rule::DEVIATIONS * root(own as f64 * cost);
        if all == 0 || own as f64 > all as f64 + by_chance { own } else { all }
    });
    FairShare { share, demand: all.map(|all| all as f64 * MICRO / f64::from(tasks.max(1))) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Demand over the share, with requests of a millisecond.
    fn of(soft: u64, own: u64, all: u64, tasks: u32) -> f64 {
        let FairShare { share, demand } = fair_share(soft, own, Some(all), 1_000.0, tasks);
        demand.expect("known") / share
    }

    #[test]
    fn demand_over_the_share_is_the_same_at_all_tasks() {
        assert_eq!(of(1_000_000, 1, 50_000_000, 100), 0.5);
        assert_eq!(of(1_000_000, 40_000_000, 50_000_000, 100), 0.5);
        assert_eq!(of(2_000_000, 1, 50_000_000, 100), 0.25);
    }

    #[test]
    fn task_that_knows_more_than_the_owner_counts_as_all() {
        assert_eq!(of(1_000_000, 6_000_000, 0, 4), 1.5);
        assert_eq!(of(1_000_000, 6_000_000, 2_000_000, 4), 1.5);
        // A hundred requests a second differ by thirty.
        assert_eq!(of(1_000_000, 100_000, 80_000, 4), 0.02);
    }

    #[test]
    fn demand_is_that_of_the_task_while_the_fleet_is_unknown() {
        let unknown = |soft| fair_share(soft, 1, None, 1_000.0, 10);
        assert_eq!(unknown(2_000_000), FairShare { share: 2.0, demand: None });
        assert_eq!(unknown(0), FairShare { share: LEAST, demand: None });
    }
}
