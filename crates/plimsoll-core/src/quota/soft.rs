//! Soft limits over a fleet: the share of a customer at a task while CPU is short.
//!
//! ```text
//! share = q · N · d ÷ D     soft limit q, N tasks, demand d at this task and D at all
//! ```
//!
//! A task cuts the customers with the highest demand over their share (see
//! [`RankedAdmission`](crate::admit::RankedAdmission)). With this share that is D ÷ (q · N) at each task: a
//! customer is cut by its demand on the fleet, however few tasks serve it. A soft limit binds nothing while a
//! task has CPU left, so the capacity of the fleet need not be known.
//!
//! The share at a mean task is q: it compares with the share of customers whose soft limit is a setting of the task.

use super::FleetUse;

/// The smallest share: a task has had no request of the customer for long.
const LEAST: f64 = 1e-6;

/// The share at a task, in CPUs, of a customer with this soft limit and demand. µCPU.
pub(super) fn share(soft: u64, demand: u64, fleet: Option<FleetUse>, tasks: u32) -> f64 {
    let at_mean_task = soft as f64 * 1e-6;
    // The sum of reports is older than the demand of this task.
    let of_demand = match fleet {
        Some(fleet) if demand > 0 => demand as f64 / fleet.demand.max(demand) as f64 * f64::from(tasks),
        _ => 1.0,
    };
    (at_mean_task * of_demand).max(LEAST)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fleet(demand: u64) -> Option<FleetUse> {
        Some(FleetUse { demand, used: 0 })
    }

    #[test]
    fn demand_over_the_share_is_the_same_at_all_tasks() {
        for (soft, demands) in [(2_000_000, [400_000, 1_600_000]), (100_000, [1, 50])] {
            let total = fleet(demands.iter().sum());
            let [one, other] = demands.map(|demand| demand as f64 / share(soft, demand, total, 100));
            assert!((one / other - 1.0).abs() < 1e-9, "{one} {other}");
        }
    }

    #[test]
    fn customer_at_few_tasks_has_the_share_of_one_at_many() {
        // All of it at one of ten tasks, and a tenth of it.
        assert_eq!(share(1_000_000, 500_000, fleet(500_000), 10), 10.0);
        assert_eq!(share(1_000_000, 50_000, fleet(500_000), 10), 1.0);
    }

    #[test]
    fn share_is_the_soft_limit_while_the_fleet_is_unknown() {
        assert_eq!(share(2_000_000, 500_000, None, 10), 2.0);
        assert_eq!(share(2_000_000, 0, fleet(500_000), 10), 2.0);
    }

    #[test]
    fn task_that_knows_more_than_the_owner_counts_as_all() {
        assert_eq!(share(1_000_000, 500_000, fleet(0), 4), 4.0);
        assert_eq!(share(0, 500_000, fleet(0), 4), LEAST);
    }
}
