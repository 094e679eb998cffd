//! Random numbers: for a place in a list, and for times to wait.

use rand_core::SeedableRng as _;
use rand_pcg::Pcg64Mcg;

/// Clients of one fleet do not act alike.
pub(crate) fn rng() -> Pcg64Mcg {
    use std::hash::{BuildHasher as _, RandomState};
    Pcg64Mcg::seed_from_u64(RandomState::new().hash_one(std::process::id()))
}
