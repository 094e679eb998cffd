//! `peak-ewma`: of two distinct backends at random, the one with the lower latency × (load + 1) ÷
//! weight.
//!
//! Latency shows a backend that other clients slow down; the count of active requests does not. The
//! estimate jumps up with a slow answer and falls slowly ([`latency`](super::latency)). So the
//! first request that meets a stall reveals it (Finagle's `peakEwma`).
//!
//! A failure counts in the load and never lowers the latency, so an instant error does not look
//! like a fast backend.

use super::{Candidate, Policy, View, two_distinct};
use crate::{Random, Timestamp};

/// Assumed latency of a backend that has requests but no answer yet. It is longer than any real
/// one, so that no second request follows a first that may hang.
const UNKNOWN_BUSY_S: f64 = 1e6;

#[derive(Clone, Debug)]
pub(crate) struct PeakEwmaPolicy;

impl Policy for PeakEwmaPolicy {
    fn choose(&mut self, view: &View<'_>, rng: &mut impl Random) -> u32 {
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
