//! `p2c`: of two distinct backends at random, the one with the lower load.
//!
//! Two choices suffice to make the longest queue O(log log n) where one choice makes it O(log n / log log n)
//! (Mitzenmacher 2001), and unlike least-loaded, many clients with the same stale view do not all run to
//! the same backend. A tie goes to the first drawn, which is either with equal probability.

use rand_core::Rng;

use super::{Policy, View, two_distinct};

#[derive(Clone, Debug)]
pub(crate) struct P2c;

impl Policy for P2c {
    fn choose(&mut self, view: &View<'_>, rng: &mut impl Rng) -> u32 {
        let (a, b) = two_distinct(view.usable, rng);
        emptier(view, a, b)
    }
}

/// The rule among those who are not `chosen`; `chosen` itself when there is nobody else.
pub(crate) fn other_than(chosen: u32, view: &View<'_>, rng: &mut impl Rng) -> u32 {
    match two_distinct(view.usable, rng) {
        (a, b) if a == chosen => b,
        (a, b) if b == chosen => a,
        (a, b) => emptier(view, a, b),
    }
}

fn emptier(view: &View<'_>, a: u32, b: u32) -> u32 {
    // One more than the load, as it would be with this request: else weights would not count when idle.
    let full = |slot: u32| {
        let candidate = &view.candidates[slot as usize];
        (candidate.load + 1) as f32 * candidate.inverse_weight
    };
    if full(b) < full(a) { b } else { a }
}
