//! `random`: any usable backend, in proportion to its configured weight.
//!
//! The baseline that every other policy must beat. A backend is drawn uniformly, and kept with
//! probability weight ÷ heaviest weight. With equal weights the first draw is kept.

use super::{Policy, View};
use crate::rng;

/// Draws after which one is kept at any weight, so that a pick is bounded. With weights within a
/// factor of four, at least one draw in four is kept, and the cut-off distorts less than one
/// percent.
const DRAWS: u32 = 16;

#[derive(Clone, Debug)]
pub(crate) struct Random;

impl Policy for Random {
    fn choose(&mut self, view: &View<'_>, rng: &mut impl crate::Random) -> u32 {
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
