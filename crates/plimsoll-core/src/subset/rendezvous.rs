//! `rendezvous`: the backends with the least hashes of backend and client together.
//!
//! ```text
//! rank of backend b for client c = XXH64(key of b, seed of c)
//! ```
//!
//! It needs no numbering of clients and no common list. A backend's rank does not depend on the
//! other backends, so one that comes or goes moves only its own connections, the least possible.
//! Balance is that of random draws. A ring of hashes (consistent hashing) was rejected: its gaps
//! make balance worse still, or it needs hundreds of points per backend.
//!
//! Source: gRFC A68, as `random_subsetting`.

use alloc::vec::Vec;

use super::{Backend, Sizes, seeds, strata};

/// The seed of a client's ranks.
pub(super) fn client_seed(seed: u64, client: u64) -> u64 {
    seeds::mix(seed, client)
}

/// The rank of the backend with this key.
pub(super) fn rank(client_seed: u64, key: u64) -> u64 {
    seeds::mix(client_seed, key)
}

/// The order of `client`.
pub(super) fn order(sizes: Sizes, seed: u64, client: u64, backends: &[Backend]) -> Vec<u32> {
    let client = client_seed(seed, client);
    // One seed for all strata: a backend's rank does not depend on its stratum.
    strata::spread(sizes, seed, client as u32, backends, |_, members| {
        let ranks = members.iter().map(|number| rank(client, backends[*number as usize].key));
        walk(ranks.collect(), sizes.order)
    })
}

/// The positions of `ranks`, the least first. It sorts lazily: `step` at first, then twice as far
/// each time. A few of thousands cost little more than their hashes.
pub(super) fn walk(ranks: Vec<u64>, step: usize) -> impl Iterator<Item = u32> {
    let mut ranks: Vec<(u64, u32)> = ranks.into_iter().zip(0..).collect();
    let n = ranks.len();
    let mut sorted = 0;
    (0..n).map(move |i| {
        if i == sorted {
            let (from, upto) = (sorted, (2 * sorted).max(step).max(1).min(n));
            if upto < n {
                ranks[from..].select_nth_unstable(upto - from);
            }
            ranks[from..upto].sort_unstable();
            sorted = upto;
        }
        ranks[i].1
    })
}
