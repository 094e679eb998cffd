//! `weighted`: requests in proportion to what each backend reports that it can do.
//!
//! Weighted round robin (SRE ch. 20; gRFC A58) on [capability](super::capability), interleaved by the
//! [stride scheduler](super::stride). Balances utilization, not requests, so unequal machines and unequal requests even
//! out, and one client is steered by what all clients together do to a backend.
//!
//! Weights are computed anew about once a second ([`Weighted::update`]), O(n). A backend whose capability is not known
//! counts as the mean of those that are, times its configured weight. Each weight is held within
//! [0.01, 10] × mean: one wild report must not take its backend off the net, nor give it all (though it may, until the
//! report is replaced, give it ten times its share). While fewer than two are known there is
//! nothing to weigh, and the policy is `least-loaded`.

use alloc::vec::Vec;

use rand_core::Rng;

use super::least_loaded::LeastLoaded;
use super::stride::{ScaledWeight, Stride};
use super::{Candidate, Policy, View};

/// Bounds of a weight relative to the mean (gRPC's static stride scheduler).
const BOUNDS: (f64, f64) = (0.01, 10.0);

#[derive(Clone, Debug, Default)]
pub(crate) struct Weighted {
    /// By slot; meaningful for those that were there at the last update.
    weights: Vec<ScaledWeight>,
    /// Of a backend that came since.
    mean: Option<ScaledWeight>,
    stride: Stride,
    /// In use while too little is known.
    fallback: LeastLoaded,
}

impl Weighted {
    /// Takes the capabilities in, by slot: `None` where it is not known or there is no backend. `configured` is the weight from
    /// the configuration, by slot. `view` is rebuilt into the fallback when it comes into use.
    pub(crate) fn update(
        &mut self,
        capabilities: impl Iterator<Item = Option<f64>> + Clone,
        configured: impl Fn(usize) -> f64,
        usable: &[u32],
        candidates: &[Candidate],
    ) {
        let (mut known, mut sum) = (0_u32, 0.0);
        for capability in capabilities.clone().flatten() {
            known += 1;
            sum += capability;
        }
        if known < 2 || sum <= 0.0 {
            if self.mean.take().is_some() {
                self.fallback = LeastLoaded::default();
                for &slot in usable {
                    self.fallback.on_usable(slot, &candidates[slot as usize]);
                }
            }
            return;
        }
        let mean = sum / f64::from(known);
        let bounded = |weight: f64| weight.clamp(BOUNDS.0 * mean, BOUNDS.1 * mean);
        let weight_of =
            |(slot, capability): (usize, Option<f64>)| bounded(capability.unwrap_or_else(|| mean * configured(slot)));
        let heaviest = capabilities.clone().enumerate().map(weight_of).fold(mean, f64::max);
        self.weights.clear();
        self.weights.extend(capabilities.enumerate().map(weight_of).map(|weight| ScaledWeight::new(weight, heaviest)));
        self.mean = Some(ScaledWeight::new(mean, heaviest));
    }

    /// Makes room for `slots` backends, so that updates do not allocate.
    pub(crate) fn reserve(&mut self, slots: usize) {
        self.weights.reserve(slots.saturating_sub(self.weights.len()));
    }

    /// A backend is new in its slot: what its predecessor could do says nothing.
    pub(crate) fn forget(&mut self, slot: usize) {
        if let (Some(weight), Some(mean)) = (self.weights.get_mut(slot), self.mean) {
            *weight = mean;
        }
    }

    /// The weight of a backend relative to the mean; `None` while the policy falls back.
    pub(crate) fn relative(&self, slot: usize) -> Option<f64> {
        let mean = self.mean?;
        Some(self.weights.get(slot).unwrap_or(&mean).as_f64() / mean.as_f64())
    }
}

impl Policy for Weighted {
    fn choose(&mut self, view: &View<'_>, rng: &mut impl Rng) -> u32 {
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
