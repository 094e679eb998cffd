//! `ringsteady`: clients and backends at [van der Corput points](super::van_der_corput) on a
//! circle; a client takes the next backends clockwise.
//!
//! The points of each side are evenly apart in any number, so connections per backend are nearly
//! even. No point moves when another comes, so one more backend moves only the connections that it
//! gets. It is weak with few clients: their arcs leave backends out. Clients beside each other on
//! the circle have nearly the same subset, and a failed backend's load falls on the backends that
//! follow it.
//!
//! The seed turns the two sides against each other; the seed 0 does not.
//!
//! Source: ACM Queue 20(5), 2022.

use alloc::vec::Vec;

use super::{Backend, Sizes, seeds, strata, van_der_corput};

/// The order of the client numbered `index`.
pub(super) fn order(sizes: Sizes, seed: u64, index: u32, backends: &[Backend]) -> Vec<u32> {
    let at = van_der_corput::angle(index);
    strata::spread(sizes, seed, van_der_corput::companion(index), backends, |seed, members| {
        van_der_corput::walk(members.len(), at.wrapping_add(turn(seed)))
    })
}

/// The angle by which `seed` turns the clients' points.
pub(super) fn turn(seed: u64) -> van_der_corput::Angle {
    if seed == 0 { 0 } else { (seeds::mix(seed, 0) >> 32) as u32 }
}
