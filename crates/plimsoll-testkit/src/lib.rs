//! Code shared by several test suites; never a dependency of shipped code.
//!
//! - [`fleet`]: backends with queues, in virtual time, driven by real balancers.
//! - [`model`]: the state rules in their plainest form, to compare a balancer with.
//! - [`stats`]: asserts on counts from a random source, with a stated chance of a false alarm.
//! - [`events`]: an observer that records events and checks them.
//! - [`ports`]: ports that no other test gets.
//! - [`tree`]: folders with files, removed at the end.

pub mod events;
pub mod fleet;
pub mod model;
pub mod ports;
pub mod stats;
pub mod tree;

/// A generator whose stream never changes between versions, so that a seed in a test's output
/// replays it.
#[must_use]
pub fn seeded(seed: u64) -> rand_pcg::Pcg64Mcg {
    use rand_core::SeedableRng;
    rand_pcg::Pcg64Mcg::seed_from_u64(seed)
}
