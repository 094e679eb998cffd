//! `round-robin`: each usable backend in turn.
//!
//! Equal in requests, not in work. With unequal requests or machines, the SRE book (ch. 20) saw up
//! to a factor of two between the most and the least loaded backend. With configured weights the
//! turns are in proportion to them, without bursts ([`stride`](super::stride)).

use super::stride::{ScaledWeight, Stride};
use super::{Policy, View};
use crate::Random;

#[derive(Clone, Debug, Default)]
pub(crate) struct RoundRobin {
    stride: Stride,
}

impl Policy for RoundRobin {
    fn choose(&mut self, view: &View<'_>, rng: &mut impl Random) -> u32 {
        let heaviest = f64::from(view.least_inverse_weight).recip();
        let index = self.stride.next(view.usable.len(), rng, |i| {
            let inverse = view.candidates[view.usable[i] as usize].inverse_weight;
            if inverse <= view.least_inverse_weight {
                ScaledWeight::MAX
            } else {
                ScaledWeight::new(f64::from(inverse).recip(), heaviest)
            }
        });
        view.usable[index]
    }
}
