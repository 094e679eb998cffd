//! Static stride scheduling: choices in proportion to weights, without bursts, in constant time.
//!
//! The scheduler of gRPC's `weighted_round_robin`. Weights are scaled to whole numbers `w`, with
//! the greatest at M = 65535. It walks the backends round by round. In round g it chooses backend
//! i, of n, if
//!
//! ```text
//! (w[i]·g + i·⌊M/2⌋) mod M ≥ M − w[i]
//! ```
//!
//! that is, `w[i]` times in M rounds, evenly apart. The offset `i·⌊M/2⌋` keeps neighbours of equal
//! weight out of step. The heaviest is chosen in each round, so a choice takes at most `max/mean`
//! steps per backend on average. A heap of deadlines (earliest deadline first) was rejected: it
//! takes O(log n) per choice, and changed weights make its past choices wrong. Weighted random was
//! rejected: it makes bursts, which queue.

use crate::{Random, rng};

/// The scale: the weight of the heaviest backend.
const MAX: u64 = 65_535;
const OFFSET: u64 = MAX / 2;

/// A scaled weight. At least one, unless another one is the maximum: else the walk might never end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ScaledWeight(u16);

impl ScaledWeight {
    /// The weight of the heaviest backend.
    pub(crate) const MAX: Self = Self(u16::MAX);
    /// Never chosen.
    pub(crate) const NONE: Self = Self(0);

    /// Scales `weight` so that `heaviest` is the maximum.
    pub(crate) fn new(weight: f64, heaviest: f64) -> Self {
        Self(((weight / heaviest * MAX as f64) as u16).max(1))
    }

    pub(crate) fn as_f64(self) -> f64 {
        f64::from(self.0)
    }
}

/// The position in the walk.
#[derive(Clone, Debug, Default)]
pub(crate) struct Stride {
    /// `None` before the first choice.
    index: Option<usize>,
    round: u64,
}

impl Stride {
    /// The index of the next backend, below `n`, which must not be zero; `weight(i)` is the weight
    /// of the i-th.
    ///
    /// If the heaviest backend was just removed, a round may pass without a choice. After M rounds
    /// each weight has had its turn, so the walk ends.
    ///
    /// The first choice is anywhere in the walk: a thousand clients that start together must not
    /// all begin with the same backend and stay in step.
    pub(crate) fn next(&mut self, n: usize, rng: &mut impl Random, weight: impl Fn(usize) -> ScaledWeight) -> usize {
        if self.index.is_none() {
            self.round = rng::below(rng, MAX as usize) as u64;
        }
        let mut index = self.index.unwrap_or_else(|| rng::below(rng, n));
        loop {
            index += 1;
            if index >= n {
                index = 0;
                self.round += 1;
            }
            self.index = Some(index);
            let w = u64::from(weight(index).0);
            if w == MAX {
                return index;
            }
            let phase = (w * (self.round & 0xffff_ffff) + index as u64 * OFFSET) % MAX;
            if phase >= MAX - w {
                return index;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use std::vec;
    use std::vec::Vec;

    use proptest::prelude::*;
    use rand_core::SeedableRng;

    use super::*;

    fn sequence(weights: &[f64], picks: usize) -> Vec<usize> {
        let heaviest = weights.iter().copied().fold(0.0, f64::max);
        let scaled: Vec<_> = weights.iter().map(|w| ScaledWeight::new(*w, heaviest)).collect();
        let mut rng = rand_pcg::Pcg64Mcg::seed_from_u64(9);
        let mut stride = Stride::default();
        (0..picks).map(|_| stride.next(scaled.len(), &mut rng, |i| scaled[i])).collect()
    }

    #[test]
    fn equal_weights_are_plain_round_robin() {
        let picks = sequence(&[3.0; 3], 6);
        assert!(picks.windows(2).all(|pair| pair[1] == (pair[0] + 1) % 3), "{picks:?}");
    }

    #[test]
    fn the_heaviest_is_never_chosen_in_a_burst() {
        let picks = sequence(&[1.0, 1.0, 2.0], 400);
        assert!(picks.windows(3).all(|w| !(w[0] == w[1] && w[1] == w[2])), "{picks:?}");
    }

    #[test]
    fn neighbours_of_equal_weight_are_out_of_step() {
        let picks = sequence(&[2.0, 1.0, 1.0], 400);
        assert!(picks.windows(2).all(|pair| pair[0] != pair[1]), "{picks:?}");
    }

    #[test]
    fn the_least_weight_that_there_is_has_one_turn_in_all_rounds() {
        let rounds = MAX as usize;
        let picks = sequence(&[1.0, 1e-9, 1e-9, 1e-9], rounds + 3);
        let counts = [0, 1, 2, 3].map(|index| picks.iter().filter(|pick| **pick == index).count());
        assert_eq!(counts, [rounds, 1, 1, 1]);
    }

    proptest! {
        /// Over N choices each backend gets its share of them. The tolerance is two choices, for
        /// rounding and the phase at the start, and two per mille for the scale.
        #[test]
        fn choices_are_in_proportion(weights in prop::collection::vec(0.1_f64..10.0, 1..20)) {
            let picks = 20_000;
            let mut counts = vec![0_u32; weights.len()];
            for i in sequence(&weights, picks) {
                counts[i] += 1;
            }
            let total: f64 = weights.iter().sum();
            for (weight, count) in weights.iter().zip(&counts) {
                let want = weight / total * picks as f64;
                prop_assert!((f64::from(*count) - want).abs() <= 2.0 + 0.002 * want, "{count} for {want}");
            }
        }
    }
}
