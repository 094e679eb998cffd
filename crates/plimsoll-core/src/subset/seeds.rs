//! Portable randomness: hashes and draws on which clients of different machines and versions must
//! agree.
//!
//! Everything here is a function of its arguments, specified outside this crate (XXH64, PCG). A
//! client built next year shuffles like one that runs today. Any change here moves connections all
//! over a fleet.

use rand_core::Rng;
use rand_pcg::Pcg64Mcg;
use twox_hash::XxHash64;

use crate::{Random, rng};

/// A generator with a fixed stream.
pub(super) struct Generator(Pcg64Mcg);

impl Random for Generator {
    fn next_u64(&mut self) -> u64 {
        Rng::next_u64(&mut self.0)
    }

    fn next_u32(&mut self) -> u32 {
        Rng::next_u32(&mut self.0)
    }
}

/// A hash of `bytes` under `seed`.
pub(super) fn hash(seed: u64, bytes: &[u8]) -> u64 {
    XxHash64::oneshot(seed, bytes)
}

/// A hash of `value` under `seed`.
pub(super) fn mix(seed: u64, value: u64) -> u64 {
    hash(seed, &value.to_le_bytes())
}

/// The random generator number `number` under `seed`.
pub(super) fn generator(seed: u64, number: u64) -> Generator {
    // Sets the state itself: its library may change how it expands a shorter seed.
    let high = mix(seed, number);
    let low = mix(high, number);
    Generator(Pcg64Mcg::new(u128::from(high) << 64 | u128::from(low)))
}

/// Puts `items` in random order, all orders equally likely.
pub(super) fn shuffle<T>(items: &mut [T], generator: &mut Generator) {
    for i in (1..items.len()).rev() {
        items.swap(i, rng::below(generator, i + 1));
    }
}
