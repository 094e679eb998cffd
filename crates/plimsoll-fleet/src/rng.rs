//! Random numbers of this process.

use std::hash::{BuildHasher as _, RandomState};

use rand_core::SeedableRng as _;
use rand_pcg::Pcg64Mcg;

/// Members of one fleet do not act alike.
pub(crate) fn rng() -> Pcg64Mcg {
    Pcg64Mcg::seed_from_u64(RandomState::new().hash_one(std::process::id()))
}
