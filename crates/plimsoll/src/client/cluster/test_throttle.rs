//! A throttle that a test states, in place of one that learned from answers.

use plimsoll_core::throttle::ThrottledShare;
use plimsoll_core::{Criticality, Ratio};
use rand_core::{Rng as _, SeedableRng as _};
use rand_pcg::Pcg64Mcg;

use super::Cluster;
use super::machine::Machine;

/// Throttled shares by the rank of the criticality.
pub(super) type TestThrottle = [Ratio; Criticality::ALL.len()];
/// Nothing.
pub(super) const NONE: TestThrottle = [Ratio::ZERO; Criticality::ALL.len()];

impl Cluster {
    pub(crate) fn throttle_in_test(&self, criticality: Criticality, share: Ratio) {
        self.0.machine.lock().test_throttle[criticality.rank()] = share;
    }

    /// Draws from this seed from now on.
    pub(crate) fn set_seed(&self, seed: u64) {
        self.0.machine.lock().rng = Pcg64Mcg::seed_from_u64(seed);
    }
}

impl Machine {
    /// Whether a request is throttled by the word of a test.
    pub(super) fn test_hold(&mut self, criticality: Criticality) -> Option<ThrottledShare> {
        let share = self.test_throttle[criticality.rank()];
        // Without a word of a test the sequence of draws stays as it is.
        let is_held = share > Ratio::ZERO && f64::from(self.rng.next_u32()) < share.as_f64() * 2_f64.powi(32);
        is_held.then_some(ThrottledShare { share })
    }
}
