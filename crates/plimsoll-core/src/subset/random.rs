//! `random`: each client shuffles the backends for itself and takes the first.
//!
//! The SRE book's negative example, here to compare with: connections per backend are binomial, so with mean μ = C·k/n the
//! least and most loaded of 300 are about 3·√(μ(1 − k/n)) off. Of 300 clients, 300 backends and subsets of 30 a backend has
//! 15 to 45. Good diversity; a backend more or less moves about half of the connections, since the shuffle is another.

use alloc::vec::Vec;
use core::num::NonZeroU32;

use super::{Backend, seeds, strata};
use crate::rng;

/// The order of `client`: of its shuffle of `backends`.
pub(super) fn order(size: NonZeroU32, seed: u64, client: u64, backends: &[Backend]) -> Vec<u32> {
    let phase = seeds::mix(seed, client) as u32;
    strata::spread(size, seed, phase, backends, |seed, members| walk(seed, client, members.len()))
}

/// Numbers below `n`, shuffled. Fisher and Yates's shuffle, done as far as it is asked for.
fn walk(seed: u64, client: u64, n: usize) -> impl Iterator<Item = u32> + use<> {
    let mut generator = seeds::generator(seed, client);
    let mut numbers: Vec<u32> = (0..n as u32).collect();
    (0..n).map(move |i| {
        numbers.swap(i, i + rng::below(&mut generator, n - i));
        numbers[i]
    })
}
