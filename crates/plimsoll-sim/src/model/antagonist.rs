//! Antagonists: who else uses a backend's machine, and what that does to the backend.
//!
//! How much of the machine they use is constant for a while and then another value: around a level that
//! each machine draws once, because some machines are crowded for hours, it varies from second to second. What it does
//! differs by how machines are shared, hence [`Interference`].

use std::time::Duration;

use plimsoll_core::Ratio;
use rand_distr::{Distribution as _, Exp1};
use rand_pcg::Pcg64Mcg;

use crate::kernel::streams::unit;

/// Who else uses a machine.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Antagonist {
    /// Nobody.
    #[default]
    None,
    /// Somebody.
    Some {
        /// How much.
        usage: Usage,
        /// What that does to the backend.
        interference: Interference,
    },
}

/// How much of a machine others use, as a share of it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Usage {
    /// The least level that a machine may draw.
    pub low: Ratio,
    /// The greatest, at least `low`; all between are equally likely.
    pub high: Ratio,
    /// How far usage strays from its machine's level, either way, all values equally likely, held within [0, 1].
    pub jitter: Ratio,
    /// Mean time, exponentially distributed and above zero, for which a usage holds.
    pub holds: Duration,
}

/// What the usage of others does to a backend.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Interference {
    /// They take that share of its cores away: fewer requests run at once, each as fast as ever.
    Cores,
    /// They slow its cores by that share, through caches and memory: each request costs more CPU time.
    Speed,
    /// The backend has its cores for certain, and on top whatever the others leave idle of a machine of so many cores:
    /// `max(cores, machine · (1 − usage))` (the test bed of the Prequal paper). What is certain is CPU time, not what gets
    /// done in it: others share the caches, the memory and the halves of cores, so speed is `1 − slowdown · usage`.
    Allocation {
        /// Cores of the whole machine, at least those of the backend.
        machine: f64,
        /// Part of the speed that is lost on a machine of which others use all.
        slowdown: Ratio,
    },
}

/// What a backend has of its machine.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Supply {
    /// Cores that it may use.
    pub(crate) cores: f64,
    /// Part of their speed that is left.
    pub(crate) speed: f64,
    /// Cores of its own that others use.
    pub(crate) taken: f64,
}

/// The neighbours of one backend.
#[derive(Clone, Debug)]
pub(crate) struct Neighbours {
    antagonist: Antagonist,
    level: f64,
    rng: Pcg64Mcg,
}

impl Neighbours {
    /// Draws the level of the machine.
    pub(crate) fn new(antagonist: Antagonist, mut rng: Pcg64Mcg) -> Self {
        let level = match antagonist {
            Antagonist::None => 0.0,
            Antagonist::Some { usage: Usage { low, high, .. }, .. } => {
                low.as_f64() + (high.as_f64() - low.as_f64()) * unit(&mut rng)
            }
        };
        Self { antagonist, level, rng }
    }

    /// What a backend provisioned with `cores` has from now on, and for how long; `None`: for ever.
    pub(crate) fn next(&mut self, cores: f64) -> (Supply, Option<Duration>) {
        let Antagonist::Some { usage, interference } = self.antagonist else {
            return (Supply { cores, speed: 1.0, taken: 0.0 }, None);
        };
        let stray = usage.jitter.as_f64() * (2.0 * unit(&mut self.rng) - 1.0);
        let used = (self.level + stray).clamp(0.0, 1.0);
        let holds: f64 = Exp1.sample(&mut self.rng);
        let supply = match interference {
            Interference::Cores => Supply { cores: cores * (1.0 - used), speed: 1.0, taken: cores * used },
            Interference::Speed => Supply { cores, speed: 1.0 - used, taken: 0.0 },
            Interference::Allocation { machine, slowdown } => {
                let speed = 1.0 - slowdown.as_f64() * used;
                Supply { cores: cores.max(machine * (1.0 - used)), speed, taken: 0.0 }
            }
        };
        let varies = usage.jitter > Ratio::ZERO;
        (supply, varies.then(|| usage.holds.mul_f64(holds)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::streams::Streams;

    fn percent(percent: u8) -> Ratio {
        Ratio::from_percent(percent)
    }

    fn draws(usage: Usage, interference: Interference, machine: u64) -> Vec<Supply> {
        let rng = Streams::new(1).stream("antagonists", machine);
        let mut neighbours = Neighbours::new(Antagonist::Some { usage, interference }, rng);
        (0..1000).map(|_| neighbours.next(2.0).0).collect()
    }

    #[test]
    fn usage_strays_from_the_level_of_its_machine_and_no_further() {
        let usage = Usage { low: percent(30), high: percent(60), jitter: percent(10), holds: Duration::from_secs(1) };
        for machine in 0..20 {
            let taken: Vec<f64> =
                draws(usage, Interference::Cores, machine).iter().map(|supply| supply.taken / 2.0).collect();
            let (low, high) = taken.iter().fold((1.0_f64, 0.0_f64), |(low, high), x| (low.min(*x), high.max(*x)));
            assert!(low >= 0.2 && high <= 0.7 && high - low <= 0.2 && high - low > 0.19, "{machine}: {low}..{high}");
        }
    }

    #[test]
    fn an_allocation_is_certain_and_what_is_idle_comes_on_top() {
        let usage = Usage { low: percent(50), high: percent(50), jitter: percent(50), holds: Duration::from_secs(1) };
        let cores = draws(usage, Interference::Allocation { machine: 10.0, slowdown: percent(0) }, 0);
        assert!(cores.iter().all(|supply| (2.0..=10.0).contains(&supply.cores) && supply.speed == 1.0));
        // Usage is above 80% in a fifth of the draws: n = 1000, five standard deviations are 63.
        let certain = cores.iter().filter(|supply| supply.cores == 2.0).count();
        assert!(certain.abs_diff(200) < 63, "{certain}");
    }

    #[test]
    fn an_allocation_is_slower_the_more_of_its_machine_others_use() {
        for (used, cores, speed) in [(0, 10.0, 1.0), (50, 5.0, 0.8), (90, 2.0, 0.64), (100, 2.0, 0.6)] {
            let used = percent(used);
            let usage = Usage { low: used, high: used, jitter: percent(0), holds: Duration::from_secs(1) };
            let supply = draws(usage, Interference::Allocation { machine: 10.0, slowdown: percent(40) }, 0)[0];
            assert!((supply.cores - cores).abs() < 1e-9 && (supply.speed - speed).abs() < 1e-9, "{used:?}: {supply:?}");
        }
    }

    #[test]
    fn usage_without_jitter_never_changes() {
        let usage = Usage { low: percent(10), high: percent(10), jitter: percent(0), holds: Duration::from_secs(1) };
        let rng = Streams::new(1).stream("antagonists", 0);
        let mut neighbours = Neighbours::new(Antagonist::Some { usage, interference: Interference::Speed }, rng);
        let (supply, holds) = neighbours.next(1.0);
        assert_eq!((supply.cores, supply.speed, supply.taken, holds), (1.0, 0.9, 0.0, None));
    }
}
