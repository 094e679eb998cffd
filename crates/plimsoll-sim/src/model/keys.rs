//! The keys of requests, and the moves of keys between backends.
//!
//! All arms of a plan draw the same keys in the same order.

use plimsoll_core::pick::HashKey;
use rand_pcg::Pcg64Mcg;

use crate::kernel::streams::unit;

/// Least mean of active requests for the peak. With fewer, whole requests are coarse.
pub(crate) const LEAST_MEAN: f64 = 20.0;

/// The keys of a run.
#[derive(Clone, Debug)]
pub(crate) struct Keys {
    rng: Pcg64Mcg,
    /// The share of the keys up to each one.
    cumulative: Vec<f64>,
    /// The backend of each key's last pick, and `known` then.
    homes: Vec<Option<(u32, u32)>>,
    /// One more than the highest number of a picked backend. A later number joined later.
    known: u32,
}

impl Keys {
    /// Keys with these popularities, of mean 1.
    pub(crate) fn new(popularity: &[f64], rng: Pcg64Mcg) -> Self {
        let total: f64 = popularity.iter().sum();
        let mut sum = 0.0;
        let cumulative = popularity.iter().map(|each| {
            sum += each / total;
            sum
        });
        Self { rng, cumulative: cumulative.collect(), homes: vec![None; popularity.len()], known: 0 }
    }

    /// The number of the next request's key.
    pub(crate) fn draw(&mut self) -> u32 {
        let at = unit(&mut self.rng);
        let found = self.cumulative.partition_point(|sum| *sum < at);
        found.min(self.cumulative.len() - 1) as u32
    }

    /// The key with this number, as the balancer gets it.
    pub(crate) fn key(number: u32) -> HashKey {
        HashKey::of(&number.to_le_bytes())
    }

    /// A request of this key went to `backend`. Returns whether the key moved although its former
    /// backend `is_member` still and this one was in use then.
    pub(crate) fn went_to(&mut self, number: u32, backend: u32, is_member: impl FnOnce(u32) -> bool) -> bool {
        self.known = self.known.max(backend + 1);
        let former = self.homes[number as usize].replace((backend, self.known));
        former.is_some_and(|(former, known)| former != backend && backend < known && is_member(former))
    }
}

/// The counts of picks with a key.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct KeyCounts {
    pub(crate) picks: u64,
    /// Picks past a backend at its bound, or one that fails.
    pub(crate) overflow: u64,
    /// Other picks of a key that moved without need.
    pub(crate) strays: u64,
    /// Largest ratio of a picked backend's active requests to the mean.
    pub(crate) peak: f64,
}

impl KeyCounts {
    pub(crate) fn add(&mut self, other: &Self) {
        self.picks += other.picks;
        self.overflow += other.overflow;
        self.strays += other.strays;
        self.peak = self.peak.max(other.peak);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::streams::Streams;

    /// Seed 3, 30,000 draws. The deviation of the first key's count is 82: six deviations, 2e-9.
    #[test]
    fn keys_are_drawn_by_popularity() {
        let mut keys = Keys::new(&[2.0, 1.0, 1.0], Streams::new(3).stream("keys", 0));
        let mut counts = [0; 3];
        (0..30_000).for_each(|_| counts[keys.draw() as usize] += 1);
        assert!((14_500..15_500).contains(&counts[0]) && counts[2] > 6_900, "{counts:?}");
    }

    #[test]
    fn move_is_a_stray_unless_the_former_backend_left_or_the_new_one_joined() {
        let mut keys = Keys::new(&[1.0], Streams::new(3).stream("keys", 0));
        assert!(!keys.went_to(0, 2, |_| true), "the first pick");
        assert!(!keys.went_to(0, 2, |_| true), "no move");
        assert!(keys.went_to(0, 1, |_| true));
        assert!(!keys.went_to(0, 0, |former| former != 1), "its backend left");
        assert!(!keys.went_to(0, 3, |_| true), "a new one joined");
        assert!(keys.went_to(0, 0, |_| true));
    }
}
