//! What several test suites share. Never a dependency of anything that ships.
//!
//! - [`fleet`]: backends with queues, in virtual time, driven by real balancers.
//! - [`model`]: the state rules again, as plainly as they can be put, to compare a balancer with.
//! - [`stats`]: asserts on counts that came from a random source, with the chance of a false alarm stated.
//! - [`events`]: an observer that remembers and checks what it saw.
//! - [`ports`]: ports that no other test gets.

pub mod events;
pub mod fleet;
pub mod model;
pub mod ports;
pub mod stats;

/// A generator whose stream never changes between versions, so that a seed in a test's output replays it.
#[must_use]
pub fn seeded(seed: u64) -> rand_pcg::Pcg64Mcg {
    use rand_core::SeedableRng;
    rand_pcg::Pcg64Mcg::seed_from_u64(seed)
}
