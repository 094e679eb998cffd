//! A running quantile of the last small whole numbers, in constant time.
//!
//! Counts by value, the samples in a ring, and a pointer at the quantile that moves as samples come
//! and go. Requests in flight change by ones, so the pointer moves little. A sorted window was
//! rejected: each sample would move half of it.

use alloc::vec;
use alloc::vec::Vec;

use crate::Ratio;

/// Number of samples that count: those of some forty picks at three probes each. The threshold
/// follows a change of load within a fraction of a second.
const WINDOW: usize = 128;
/// Largest distinct value; higher ones count as this one. A backend with this many in flight is hot
/// by any threshold.
const MAX_VALUE: u16 = 1023;

/// The running quantile.
#[derive(Clone, Debug)]
pub(super) struct RunningQuantile {
    quantile: f64,
    ring: Vec<u16>,
    oldest: usize,
    counts: Vec<u16>,
    at: u16,
    /// Samples below `at`.
    below: u16,
}

impl RunningQuantile {
    pub(super) fn new(quantile: Ratio) -> Self {
        Self {
            quantile: quantile.as_f64(),
            ring: Vec::with_capacity(WINDOW),
            oldest: 0,
            counts: vec![0; usize::from(MAX_VALUE) + 1],
            at: 0,
            below: 0,
        }
    }

    /// Adds a sample; the oldest leaves when the window is full.
    pub(super) fn insert(&mut self, value: u32) {
        let value = value.min(u32::from(MAX_VALUE)) as u16;
        if self.ring.len() < WINDOW {
            self.ring.push(value);
        } else {
            let gone = core::mem::replace(&mut self.ring[self.oldest], value);
            self.oldest = (self.oldest + 1) % WINDOW;
            self.counts[usize::from(gone)] -= 1;
            self.below -= u16::from(gone < self.at);
        }
        self.counts[usize::from(value)] += 1;
        self.below += u16::from(value < self.at);
        self.settle();
    }

    /// The least value that a share of at least `quantile` of the samples does not exceed; 0
    /// without samples.
    pub(super) fn value(&self) -> u32 {
        u32::from(self.at)
    }

    fn settle(&mut self) {
        let share = self.quantile * self.ring.len() as f64;
        // Rounded up; `f64::ceil` is not in core.
        let rank = ((share as u16) + u16::from(share > f64::from(share as u16))).max(1);
        while self.below >= rank {
            self.at -= 1;
            self.below -= self.counts[usize::from(self.at)];
        }
        while self.below + self.counts[usize::from(self.at)] < rank {
            self.below += self.counts[usize::from(self.at)];
            self.at += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use std::vec::Vec;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn is_the_quantile_of_the_sorted_window(
            percent in 0_u8..=100,
            samples in prop::collection::vec(prop_oneof![0_u32..8, 0_u32..2000], 1..400),
        ) {
            let quantile = Ratio::from_percent(percent);
            let mut running = RunningQuantile::new(quantile);
            for (i, sample) in samples.iter().enumerate() {
                running.insert(*sample);
                let mut window: Vec<u32> =
                    samples[(i + 1).saturating_sub(WINDOW)..=i].iter().map(|v| (*v).min(u32::from(MAX_VALUE))).collect();
                window.sort_unstable();
                let rank = std::primitive::f64::ceil(quantile.as_f64() * window.len() as f64).max(1.0) as usize;
                prop_assert_eq!(running.value(), window[rank - 1]);
            }
        }
    }
}
