//! The demand that a task reports while requests above the cut are in debt.
//!
//! ```text
//! own      = Σ of the demand of this task above the cut
//! reported = demand · min(1 + debt ÷ (T · own), L ÷ (own + that of all other tasks))      T = 0.25 s
//! ```
//!
//! Over the fleet all requests above the cut fit into the limit, so a debt means that the rate is late. The measured
//! demand follows the real one in seconds. A rate of just that demand leaves the debt as it is, and the next burst
//! would be refused while tasks elsewhere admit less critical requests. So the task reports as much demand more as
//! pays the debt off. The owner takes that from what is cut. Together the tasks report no more than the limit, which
//! would move the cut up.
//!
//! A faster measure of the demand instead would be wrong by chance in either direction. Then the cut moves up and
//! down with it.
//!
//! Where it is weak: without a cut there is no debt. When the load of all criticalities rises at once, the owner knows
//! half a second later that it exceeds the limit. Until then all criticalities are refused alike.

/// Seconds in which a debt is paid off: the longest that bursts are late, by a round trip and the hysteresis of rates.
const TIME: f64 = 0.25;

/// Raises the demand above the cut by a debt in CPU-microseconds. `others` is that of all other tasks, and `limit` the
/// part of the limit that is granted, in µCPU.
pub(super) fn raise(demand: &mut [u64], debt: f64, others: u64, limit: u64) {
    let own: u64 = demand.iter().sum();
    if own == 0 {
        return;
    }
    let factor = (1.0 + debt / (TIME * own as f64)).min(limit as f64 / own.saturating_add(others) as f64);
    if factor > 1.0 {
        demand.iter_mut().for_each(|level| *level = (*level as f64 * factor) as u64);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debt_raises_the_demand_as_far_as_the_limit_of_all_tasks() {
        for (debt, others, limit, expected) in [
            (0.0, 0, 1_000_000, [10_000, 90_000]),
            (5_000.0, 0, 1_000_000, [12_000, 108_000]),
            (500_000.0, 100_000, 300_000, [15_000, 135_000]),
            (500_000.0, 300_000, 300_000, [10_000, 90_000]),
            (1e12, u64::MAX, 0, [10_000, 90_000]),
        ] {
            let mut demand = [10_000, 90_000];
            raise(&mut demand, debt, others, limit);
            assert_eq!(demand, expected, "{debt} {others} {limit}");
        }
        let mut none = [0; 2];
        raise(&mut none, 1e12, 0, u64::MAX);
        assert_eq!(none, [0; 2]);
    }
}
