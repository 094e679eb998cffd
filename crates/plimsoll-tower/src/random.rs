//! Generators of random numbers for the machines.

use std::hash::{BuildHasher as _, RandomState};

use rand_pcg::Pcg64Mcg;

/// A generator with a seed of the standard library, whose maps have random keys: two clients must
/// not draw alike.
pub(crate) fn generator() -> Pcg64Mcg {
    let half = |number: u8| u128::from(RandomState::new().hash_one(number));
    Pcg64Mcg::new(half(0) << 64 | half(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn generators_draw_different_numbers() {
        assert_ne!(generator(), generator());
    }
}
