//! Random numbers of this process: tasks and servers of one fleet do not act alike.

use rand_core::{Rng as _, SeedableRng as _};
use rand_pcg::Pcg64Mcg;

/// A number from 0 to 1. Tasks of one service do not return alike.
pub(crate) fn draw() -> f64 {
    f64::from(rng().next_u32()) / f64::from(u32::MAX)
}

pub(crate) fn rng() -> Pcg64Mcg {
    use std::hash::{BuildHasher as _, RandomState};
    Pcg64Mcg::seed_from_u64(RandomState::new().hash_one(std::process::id()))
}
