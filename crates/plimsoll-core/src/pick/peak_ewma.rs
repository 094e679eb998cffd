//! `peak-ewma`: of two distinct backends at random, the one with the lower latency × (load + 1) ÷ weight.
//!
//! Latency sees what the count of active requests cannot: a backend that is slow for other clients' sake.
//! The estimate jumps up with a slow answer and comes down slowly ([`latency`](super::latency)), so that a stall is
//! noticed with the first request that meets it (Finagle's `peakEwma`).
//!
//! A failure counts in the load and never lowers the latency, so an instant error does not look like a fast backend.

use rand_core::Rng;

use super::{Candidate, Policy, View, two_distinct};
use crate::Timestamp;

/// Latency taken for a backend that has requests but has not answered any: longer than any real one, so
/// that a second request does not go where the first may hang.
const UNKNOWN_BUSY_S: f64 = 1e6;

#[derive(Clone, Debug)]
pub(crate) struct PeakEwmaPolicy;

impl Policy for PeakEwmaPolicy {
    fn choose(&mut self, view: &View<'_>, rng: &mut impl Rng) -> u32 {
        let (a, b) = two_distinct(view.usable, rng);
        let cost = |slot: u32| cost(view.now, &view.candidates[slot as usize]);
        if cost(b) < cost(a) { b } else { a }
    }
}

fn cost(now: Timestamp, candidate: &Candidate) -> f64 {
    let latency_s = match candidate.latency.seconds(now) {
        Some(seconds) => seconds,
        None if candidate.load > 0 => UNKNOWN_BUSY_S,
        None => 0.0,
    };
    latency_s * f64::from(candidate.load + 1) * f64::from(candidate.inverse_weight)
}
