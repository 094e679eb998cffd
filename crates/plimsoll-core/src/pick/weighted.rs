//! `weighted`: requests in proportion to each backend's reported capability.
//!
//! Weighted round robin (SRE ch. 20; gRFC A58) on [capability](super::capability), interleaved by
//! the [stride scheduler](super::stride). It balances utilization and not requests, so unequal
//! machines and unequal requests even out. It also responds to the load of all clients together.
//!
//! Weights are computed about once a second ([`Weighted::update`]), in O(n). A backend of unknown
//! capability has the mean of the known ones, times its configured weight. Each weight is held
//! within
//!
//! ```text
//! [0.01 · mean, 10 · median]        the mean of capped values, the median of serving backends
//! ```
//!
//! so that one wild report neither takes its backend out of use nor gives it everything. It may
//! give the backend ten times its share, for the few seconds until later reports replace it. Why
//! the median for the upper bound? A wrong report moves the mean at will, and bounds by the mean
//! would leave each honest backend a hundredth of that. The median leaves out backends that fail
//! most of their requests. Otherwise, where most backends fail, the few that serve would look like
//! wrong reports. Values above the bound are not remembered either ([`Weighted::update`] returns
//! the bound).
//!
//! Rates that this client [counts](super::counted) are a part of those that backends report, so the
//! two do not compare. Where a cluster has both kinds of backends, those without rates have their
//! proportions among themselves, and together the mean of the others.
//!
//! The policy is `least-loaded` while fewer than two capabilities are known, while all are zero, or
//! while their sum is not finite.

use alloc::vec::Vec;

use super::capability::{CapabilityEstimate, RateSource};
use super::least_loaded::LeastLoaded;
use super::stride::{ScaledWeight, Stride};
use super::{Candidate, Policy, View};
use crate::Random;
use crate::median;

/// Bounds of a weight, the lower relative to the mean and the upper to the median. In gRPC's static
/// stride scheduler both are relative to the mean.
const BOUNDS: (f64, f64) = (0.01, 10.0);

#[derive(Clone, Debug, Default)]
pub(crate) struct Weighted {
    /// By slot; valid for the backends of the last update.
    weights: Vec<ScaledWeight>,
    /// Buffer for the median.
    known: Vec<f64>,
    /// Weight of a backend added since the last update; `None` in the fallback.
    mean: Option<ScaledWeight>,
    stride: Stride,
    /// In use while too few capabilities are known.
    fallback: LeastLoaded,
}

/// The weights of the backends with one source of rates.
struct Bounds {
    count: u32,
    mean: f64,
    most: f64,
}

impl Bounds {
    fn hold(&self, weight: f64) -> f64 {
        weight.min(self.most).max(BOUNDS.0 * self.mean)
    }
}

impl Weighted {
    /// Computes the weights from capabilities by slot: `None` for an unknown one or a free slot.
    /// `configured` is the configured weight, by slot. `usable` and `candidates` fill the fallback
    /// when it comes into use. Returns the upper bound of a credible capability, if it is known.
    pub(crate) fn update(
        &mut self,
        capabilities: impl Iterator<Item = Option<CapabilityEstimate>> + Clone,
        configured: impl Fn(usize) -> f64,
        usable: &[u32],
        candidates: &[Candidate],
    ) -> Option<f64> {
        let of = |source| capabilities.clone().flatten().filter(move |known| known.source == source);
        let [reported, counted] = [RateSource::Reported, RateSource::Counted].map(|source| self.bounds(of(source)));
        let count = [&reported, &counted].into_iter().flatten().map(|bounds| bounds.count).sum::<u32>();
        let Some(base) = reported.as_ref().or(counted.as_ref()).filter(|_| count >= 2) else {
            if self.mean.take().is_some() {
                self.fallback = LeastLoaded::default();
                for &slot in usable {
                    self.fallback.on_usable(slot, &candidates[slot as usize]);
                }
            }
            return None;
        };
        let weight_of = |(slot, known): (usize, Option<CapabilityEstimate>)| {
            let own = known.and_then(|known| match known.source {
                RateSource::Reported => reported.as_ref().map(|bounds| bounds.hold(known.weight)),
                RateSource::Counted => counted.as_ref().map(|bounds| {
                    let mean = bounds.mean * configured(slot);
                    let weight = known.weight + known.prior * mean;
                    let weight = if known.is_pinned { weight.min(mean) } else { weight };
                    bounds.hold(weight) * (base.mean / bounds.mean)
                }),
            });
            own.unwrap_or_else(|| base.hold(base.mean * configured(slot)))
        };
        let mean = base.mean;
        let heaviest = capabilities.clone().enumerate().map(weight_of).fold(mean, f64::max);
        self.weights.clear();
        self.weights.extend(capabilities.enumerate().map(weight_of).map(|weight| ScaledWeight::new(weight, heaviest)));
        self.mean = Some(ScaledWeight::new(mean, heaviest));
        reported.map(|bounds| bounds.most)
    }

    /// The bounds of weights of one source; `None` if they say nothing.
    fn bounds(&mut self, known: impl Iterator<Item = CapabilityEstimate> + Clone) -> Option<Bounds> {
        self.known.clear();
        let serving = known.clone().filter(|known| known.serves && !known.is_pinned);
        self.known.extend(serving.map(|known| known.weight));
        if self.known.is_empty() {
            let moving = known.clone().filter(|known| known.weight > 0.0 && !known.is_pinned);
            self.known.extend(moving.map(|known| known.weight));
        }
        let most = BOUNDS.1 * median::lower(&mut self.known)?;
        let (mut count, mut sum, mut own) = (0_u32, 0.0, 0.0);
        for known in known {
            count += 1;
            if !known.is_pinned {
                sum += known.weight.min(most);
                own += 1.0 - known.prior;
            }
        }
        let mean = sum / own;
        (mean.is_finite() && mean > 0.0).then_some(Bounds { count, mean, most })
    }

    /// Reserves memory for `slots` backends, so that updates do not allocate.
    pub(crate) fn reserve(&mut self, slots: usize) {
        self.weights.reserve(slots.saturating_sub(self.weights.len()));
        self.known.reserve(slots.saturating_sub(self.known.len()));
    }

    /// Resets the weight of a slot with a new backend: its predecessor's capability is no evidence.
    pub(crate) fn forget(&mut self, slot: usize) {
        if let (Some(weight), Some(mean)) = (self.weights.get_mut(slot), self.mean) {
            *weight = mean;
        }
    }

    /// The weight of a slot: the mean if it was added since the update, all equal without one.
    pub(crate) fn scaled(&self, slot: usize) -> ScaledWeight {
        let weight = self.mean.map(|mean| self.weights.get(slot).copied().unwrap_or(mean));
        weight.unwrap_or(ScaledWeight::MAX)
    }

    /// The weight of a backend relative to the mean; `None` while the policy falls back.
    pub(crate) fn relative(&self, slot: usize) -> Option<f64> {
        let mean = self.mean?;
        Some(self.weights.get(slot).unwrap_or(&mean).as_f64() / mean.as_f64())
    }
}

impl Policy for Weighted {
    fn choose(&mut self, view: &View<'_>, rng: &mut impl Random) -> u32 {
        let Some(mean) = self.mean else { return self.fallback.choose(view, rng) };
        let weights = &self.weights;
        let index =
            self.stride.next(view.usable.len(), rng, |i| weights.get(view.usable[i] as usize).copied().unwrap_or(mean));
        view.usable[index]
    }

    fn on_usable(&mut self, slot: u32, candidate: &Candidate) {
        if self.mean.is_none() {
            self.fallback.on_usable(slot, candidate);
        }
    }

    fn on_unusable(&mut self, slot: u32) {
        if self.mean.is_none() {
            self.fallback.on_unusable(slot);
        }
    }

    fn on_load(&mut self, slot: u32, candidate: &Candidate) {
        if self.mean.is_none() {
            self.fallback.on_load(slot, candidate);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn updated(known: &[Option<CapabilityEstimate>], configured: f64) -> Weighted {
        let mut weighted = Weighted::default();
        weighted.update(known.iter().copied(), |_| configured, &[], &[]);
        weighted
    }

    fn known(weight: f64, serves: bool) -> Option<CapabilityEstimate> {
        Some(CapabilityEstimate { weight, prior: 0.0, serves, is_pinned: false, source: RateSource::Reported })
    }

    #[test]
    fn new_backend_in_a_slot_has_the_mean_weight() {
        let mut weighted = updated(&[known(1.0, true), known(3.0, true)], 1.0);
        assert_eq!([weighted.relative(0), weighted.relative(1)], [Some(0.5), Some(1.5)]);
        weighted.forget(1);
        assert_eq!([weighted.relative(0), weighted.relative(1)], [Some(0.5), Some(1.0)]);
    }

    #[test]
    fn backend_without_a_report_has_the_mean_by_its_configured_weight() {
        let weighted = updated(&[known(1.0, true), known(3.0, true), None], 2.5);
        assert_eq!(weighted.relative(2), Some(2.5));
    }

    #[test]
    fn unknown_backend_with_a_large_weight_has_ten_times_the_median_at_most() {
        for known in [known(1.0, true), counted(1.0, 0.0)] {
            let weighted = updated(&[known, known, None], 100.0);
            assert!((relative(&weighted, 2) / 10.0 - 1.0).abs() < 0.01);
        }
    }

    fn counted(weight: f64, prior: f64) -> Option<CapabilityEstimate> {
        Some(CapabilityEstimate { weight, prior, serves: true, is_pinned: false, source: RateSource::Counted })
    }

    fn relative(weighted: &Weighted, slot: usize) -> f64 {
        weighted.relative(slot).expect("there are weights")
    }

    #[test]
    fn counted_weight_is_drawn_to_the_mean_by_its_prior() {
        // Two backends at utilizations of 0.05 and 0.45 with φ = 0.05: ten requests to each.
        let weighted = updated(&[counted(10.0 / 0.1, 0.5), counted(10.0 / 0.5, 0.1)], 2.0);
        let mean = (100.0 + 20.0) / (0.5 + 0.9);
        for (slot, weight) in [(0, 100.0 + 0.5 * 2.0 * mean), (1, 20.0 + 0.1 * 2.0 * mean)] {
            assert!((relative(&weighted, slot) * mean / weight - 1.0).abs() < 0.01, "{slot}");
        }
    }

    #[test]
    fn counted_backends_have_the_mean_of_those_that_report_rates() {
        let both = [known(1_000.0, true), known(3_000.0, true), counted(1.0, 0.0), counted(2.0, 0.0), None];
        let weighted = updated(&both, 1.0);
        for (slot, expected) in [(0, 0.5), (1, 1.5), (2, 1.0 / 1.5), (3, 2.0 / 1.5), (4, 1.0)] {
            assert!((relative(&weighted, slot) / expected - 1.0).abs() < 0.01, "{slot}");
        }
    }

    fn pinned(weight: f64, prior: f64) -> Option<CapabilityEstimate> {
        counted(weight, prior).map(|known| CapabilityEstimate { is_pinned: true, ..known })
    }

    #[test]
    fn pinned_backend_has_the_mean_at_most() {
        let weighted = updated(&[pinned(50.0, 0.1), counted(5.0, 0.1), counted(5.0, 0.1)], 1.0);
        for slot in 0..3 {
            assert!((relative(&weighted, slot) - 1.0).abs() < 0.02, "{slot}");
        }
        let silent = updated(&[pinned(5.0, 0.1), pinned(5.0, 0.1)], 1.0);
        assert_eq!(silent.relative(0), None, "no measurement at all");
    }

    /// Two backends at a utilization of 0.5, and a third that is full at any load. Each round
    /// distributes 100 requests by the weights of the last. The third is at rest where
    /// w = 0.05·C̄ ÷ (1 + 0.05 − 0.5).
    #[test]
    fn pinned_full_backend_loses_requests_round_by_round() {
        let (mut shares, mut before) = ([1.0 / 3.0; 3], f64::INFINITY);
        for _ in 0..20 {
            let of = |share: f64, u: f64| counted(100.0 * share / (u + 0.05), 0.05 / (u + 0.05));
            let full = of(shares[2], 1.0).map(|known| CapabilityEstimate { is_pinned: true, ..known });
            let weighted = updated(&[of(shares[0], 0.5), of(shares[1], 0.5), full], 1.0);
            let weights = [0, 1, 2].map(|slot| relative(&weighted, slot));
            shares = weights.map(|weight| weight / weights.iter().sum::<f64>());
            assert!(shares[2] < before + 1e-3, "{shares:?}");
            before = shares[2];
        }
        assert!((shares[2] / shares[0] / (0.05 / 0.55) - 1.0).abs() < 0.05, "{shares:?}");
    }

    #[test]
    fn idle_backends_are_weighed_by_those_that_report_anything() {
        let idle = [known(0.0, false), known(0.0, false), known(2.0, false), known(4.0, false)];
        let weighted = updated(&idle, 1.0);
        // The mean is 1.5, and the least weight a hundredth of it.
        for (slot, relative) in [(0, 0.01), (2, 2.0 / 1.5), (3, 4.0 / 1.5)] {
            let found = weighted.relative(slot).expect("reports are known");
            assert!((found / relative - 1.0).abs() < 0.05, "{slot}: {found}");
        }
    }
}
