//! `random`: any usable backend, in proportion to its configured weight.
//!
//! The baseline that every other policy must beat. A backend is drawn uniformly and kept with probability
//! weight ÷ heaviest; with equal weights the first draw is kept.

use rand_core::Rng;

use super::{Policy, View};
use crate::rng;

/// Draws before one is kept whatever its weight, so that a pick is bounded. With weights within a factor of
/// four the heaviest is drawn at least once in four, and what this cut-off distorts is below one percent.
const DRAWS: u32 = 16;

#[derive(Clone, Debug)]
pub(crate) struct Random;

impl Policy for Random {
    fn choose(&mut self, view: &View<'_>, rng: &mut impl Rng) -> u32 {
        let mut slot = view.usable[rng::below(rng, view.usable.len())];
        for _ in 1..DRAWS {
            // weight / heaviest = lightest inverse / own inverse
            let keep = f64::from(view.least_inverse_weight / view.candidates[slot as usize].inverse_weight);
            if keep >= 1.0 || rng::unit(rng) < keep {
                break;
            }
            slot = view.usable[rng::below(rng, view.usable.len())];
        }
        slot
    }
}
