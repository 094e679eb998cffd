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

use super::FleetUse;
use crate::Criticality;

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

/// The share of a customer with this soft limit, and its demand at this task by criticality. µCPU.
pub(super) fn fair_share(
    soft: u64,
    own: impl FnOnce() -> u64,
    fleet: Option<FleetUse>,
    criticality: Criticality,
    tasks: u32,
) -> FairShare {
    let share = (soft as f64 * MICRO).max(LEAST);
    // The sum of reports is older than the demand of this task.
    let all = fleet.map(|fleet| fleet.demand[criticality.rank()].max(own()));
    FairShare { share, demand: all.map(|all| all as f64 * MICRO / f64::from(tasks.max(1))) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CRITICAL: Criticality = Criticality::Critical;

    fn of(soft: u64, own: u64, critical: u64, tasks: u32) -> f64 {
        let fleet = FleetUse { demand: [0, critical, 9_000_000, 0], used: 0 };
        let FairShare { share, demand } = fair_share(soft, || own, Some(fleet), CRITICAL, tasks);
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
    }

    #[test]
    fn demand_is_that_of_the_task_while_the_fleet_is_unknown() {
        let unknown = |soft| fair_share(soft, || 1, None, CRITICAL, 10);
        assert_eq!(unknown(2_000_000), FairShare { share: 2.0, demand: None });
        assert_eq!(unknown(0), FairShare { share: LEAST, demand: None });
    }
}
