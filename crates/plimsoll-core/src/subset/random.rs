//! `random`: each client shuffles the backends for itself and takes the first.
//!
//! The SRE book's negative example, here for comparison. Connections per backend are binomial. With
//! mean μ = C·k/n the least and the most loaded of 300 are about 3·√(μ(1 − k/n)) off. With 300
//! clients, 300 backends and subsets of 30, a backend has 15 to 45. Diversity is good. A backend
//! more or less changes the shuffle, and moves about half of the connections.

use alloc::vec::Vec;

use super::{Backend, Sizes, seeds, strata};
use crate::rng;

/// The order of `client`, from its shuffle of `backends`.
pub(super) fn order(sizes: Sizes, seed: u64, client: u64, backends: &[Backend]) -> Vec<u32> {
    let phase = seeds::mix(seed, client) as u32;
    strata::spread(sizes, seed, phase, backends, |seed, members| walk(seed, client, members.len()))
}

/// Numbers below `n`, shuffled lazily by Fisher and Yates's algorithm.
fn walk(seed: u64, client: u64, n: usize) -> impl Iterator<Item = u32> + use<> {
    let mut generator = seeds::generator(seed, client);
    let mut numbers: Vec<u32> = (0..n as u32).collect();
    (0..n).map(move |i| {
        numbers.swap(i, i + rng::below(&mut generator, n - i));
        numbers[i]
    })
}
