//! Random numbers: for a place in a list, and for times to wait.

use std::hash::{BuildHasher as _, RandomState};

use rand_core::SeedableRng as _;
use rand_pcg::Pcg64Mcg;

/// A generator with a seed of its own, so that the members of a fleet do not act alike.
#[must_use]
pub fn rng() -> Pcg64Mcg {
    Pcg64Mcg::seed_from_u64(RandomState::new().hash_one(std::process::id()))
}
