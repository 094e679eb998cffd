//! The rate of a task from its demand and the sums over the fleet.
//!
//! ```text
//! D_r = Σ_i d_ir,  D = Σ_r D_r            demand of task i, criticality r
//! cut:     r* = the first level where the sum from the top passes L;   φ = (L − Σ above) ÷ D_r*
//! scarce:  rate_i = Σ above r* of d_ir + φ · d_ir*
//! tight:   rate_i = d_i · L ÷ D                                        0.98 L ≤ D ≤ L
//! plenty:  rate_i = d_i + min(3 √c, (L − D) ÷ (2 Σ √d_i)) · √d_i       D < 0.98 L
//! ```
//!
//! A level is refused only when all levels below it are, over the whole fleet. In plenty a task gets
//! three standard deviations of Poisson arrivals above its demand, as far as half of the unused part
//! allows. The rest is left for tasks whose demand rises. Each is O(1) for one task.

use crate::Criticality;

/// Number of criticalities.
pub(super) const LEVELS: usize = Criticality::ALL.len();
/// Demand above this part of the limit leaves nothing to spare.
const SCARCE: f64 = 0.98;
/// Part of the unused limit that tasks get above their demand.
const PADDED: f64 = 0.5;

/// Refusal by criticality, the same at all tasks: nothing below a level, and a part of it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Cut {
    /// The level that is admitted in part: an index of [`Criticality::ALL`].
    pub rank: usize,
    /// The part of it that is admitted, from 0 to 1.
    pub part: f32,
}

impl Cut {
    /// Nothing is refused.
    pub const NONE: Self = Self { rank: LEVELS - 1, part: 1.0 };
}

/// The way in which a limit is shared.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Rule {
    /// The demand exceeds the limit.
    Scarce(Cut),
    /// The demand is all of the limit: rates are the demand times this, at least 1.
    Tight(f64),
    /// The demand leaves a part of the limit: rates are the demand and this times its root.
    Plenty(f64),
}

/// The sums over the fleet for one customer.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Sums {
    /// Demand by criticality, the most critical first. µCPU.
    pub demand: [u64; LEVELS],
    /// The sum of the roots ([`u64::isqrt`]) of the tasks' demands.
    pub roots: u64,
}

impl Rule {
    /// Standard deviations of the demand over a second that rates have above it, where there is enough.
    pub(super) const DEVIATIONS: f64 = 3.0;

    /// The rule for a limit in µCPU and a mean cost in CPU-microseconds.
    #[must_use]
    pub fn new(limit: u64, sums: &Sums, cost: f64) -> Self {
        let total: u64 = sums.demand.iter().sum();
        if total > limit {
            return Self::Scarce(cut(limit, &sums.demand));
        }
        if total as f64 >= limit as f64 * SCARCE {
            return Self::Tight(limit as f64 / total.max(1) as f64);
        }
        let spare = (limit - total) as f64;
        // d in µCPU is d CPU-microseconds a second: the deviation over one second is √(d·c).
        Self::Plenty((Self::DEVIATIONS * root(cost)).min(spare * PADDED / sums.roots.max(1) as f64))
    }

    /// The rate of a task with this demand, in µCPU.
    #[must_use]
    pub fn rate(&self, demand: &[u64; LEVELS]) -> u64 {
        let all: u64 = demand.iter().sum();
        match *self {
            Self::Scarce(cut) => {
                let above: u64 = demand[..cut.rank].iter().sum();
                above + (demand[cut.rank] as f64 * f64::from(cut.part)) as u64
            }
            Self::Tight(factor) => (all as f64 * factor) as u64,
            Self::Plenty(factor) => all + (factor * all.isqrt() as f64) as u64,
        }
    }

    /// The criticalities that are refused.
    #[must_use]
    pub const fn cut(&self) -> Cut {
        match self {
            Self::Scarce(cut) => *cut,
            Self::Tight(_) | Self::Plenty(_) => Cut::NONE,
        }
    }
}

pub(super) fn cut(limit: u64, demand: &[u64; LEVELS]) -> Cut {
    let mut left = limit;
    for (rank, level) in demand.iter().enumerate() {
        if *level > left {
            return Cut { rank, part: (left as f64 / *level as f64) as f32 };
        }
        left -= level;
    }
    Cut::NONE
}

/// The root of a number, to a part in a thousand: there is no mathematics library here.
pub(super) fn root(value: f64) -> f64 {
    const SCALE: f64 = 1024.0;
    ((value * SCALE * SCALE) as u64).isqrt() as f64 / SCALE
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn level_is_cut_only_when_all_below_are() {
        for (limit, demand, rank, part) in [
            (100, [30, 30, 300, 300], 2, 40.0 / 300.0),
            (100, [300, 30, 300, 300], 0, 1.0 / 3.0),
            (100, [100, 0, 0, 1], 3, 0.0),
            (0, [1, 0, 0, 0], 0, 0.0),
            (660, [30, 30, 300, 300], 3, 1.0),
        ] {
            let cut = cut(limit, &demand);
            assert_eq!((cut.rank, cut.part), (rank, part as f32), "{limit} {demand:?}");
        }
    }

    proptest! {
        #[test]
        fn rates_of_all_tasks_are_within_the_limit_and_use_it(
            tasks in prop::collection::vec(prop::array::uniform4(0_u64..10_000_000), 1..50),
            limit in 0_u64..400_000_000,
            cost in 0.0..1e6,
        ) {
            let mut sums = Sums::default();
            for task in &tasks {
                sums.roots += task.iter().sum::<u64>().isqrt();
                sums.demand.iter_mut().zip(task).for_each(|(sum, level)| *sum += level);
            }
            let rule = Rule::new(limit, &sums, cost);
            let total: u64 = tasks.iter().map(|task| rule.rate(task)).sum();
            let demand: u64 = sums.demand.iter().sum();
            // A part is a number of 24 bits.
            prop_assert!(total as f64 <= limit as f64 + 1e-6 * demand as f64 + 1.0, "{total} of {limit}");
            let least = demand.min(limit);
            prop_assert!(total as f64 >= least as f64 * 0.999 - 4.0 * tasks.len() as f64, "{total} of {least}");
        }
    }
}
