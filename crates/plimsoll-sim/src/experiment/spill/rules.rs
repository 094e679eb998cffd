//! The rules by which a client chooses a locality: the core's, and two for comparison.

use plimsoll_core::spill::{Locality, Route, Spill, SpillConfig};
use plimsoll_core::{Criticality, Timestamp};
use rand_pcg::Pcg64Mcg;

use super::plan::Rule;
use crate::kernel::streams::unit;

/// Envoy's overprovisioning factor: a level with 72% of its backends healthy still takes all.
const OVERPROVISIONED: f64 = 1.4;

/// The rule of one client.
pub(super) enum Chooser {
    Waterfall(Spill),
    /// The share of each locality, nearest first.
    Shares(Rule, Vec<f64>),
}

impl Chooser {
    pub(super) fn new(now: Timestamp, rule: Rule, localities: usize) -> Self {
        match rule {
            Rule::Waterfall { target, drain_below } => {
                Self::Waterfall(Spill::new(now, SpillConfig { target, drain_below }, localities))
            }
            Rule::Nearest | Rule::ByHealth => {
                let mut shares = vec![0.0; localities];
                shares[0] = 1.0;
                Self::Shares(rule, shares)
            }
        }
    }

    pub(super) fn update(&mut self, now: Timestamp, localities: &[Locality]) {
        match self {
            Self::Waterfall(spill) => spill.update(now, localities),
            Self::Shares(rule, shares) => {
                let mut left = 1.0;
                for (share, locality) in shares.iter_mut().zip(localities) {
                    let healthy = f64::from(locality.healthy) / f64::from(locality.backends);
                    let takes = match rule {
                        Rule::ByHealth => healthy * OVERPROVISIONED,
                        _ => f64::from(u8::from(locality.healthy > 0)),
                    };
                    *share = takes.min(left);
                    left -= *share;
                }
            }
        }
    }

    pub(super) fn route(&mut self, now: Timestamp, criticality: Criticality, rng: &mut Pcg64Mcg) -> Route {
        match self {
            Self::Waterfall(spill) => {
                let route = spill.route(now, criticality, rng);
                if let Route::To(locality) = route {
                    spill.sent(now, locality);
                }
                route
            }
            Self::Shares(_, shares) => {
                // The shares may not add up to 1. The remainder is spread in proportion to them.
                let mut point = unit(rng) * shares.iter().sum::<f64>();
                let place = shares.iter().position(|share| {
                    point -= share;
                    point < 0.0
                });
                Route::To(place.unwrap_or(0))
            }
        }
    }
}
