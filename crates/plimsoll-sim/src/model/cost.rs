//! What a request costs: CPU time on a machine of speed 1.
//!
//! All forms but the normal one are named by their mean, so that another form at the same mean is the same work in
//! all. Costs in the wild are heavy-tailed; `bounded-pareto` with a ratio of 1000 is the spread that SRE ch. 20 gives
//! between the cheapest and the dearest query of one service.

use std::time::Duration;

use rand_core::Rng;
use rand_distr::{Distribution as _, Exp1, StandardNormal};

use crate::kernel::streams::unit;

/// A distribution of costs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Cost {
    /// Always the same.
    Fixed {
        /// This.
        mean: Duration,
    },
    /// Exponentially distributed.
    Exponential {
        /// The mean.
        mean: Duration,
    },
    /// The logarithm is normally distributed.
    LogNormal {
        /// The mean.
        mean: Duration,
        /// Standard deviation of the logarithm.
        sigma: f64,
    },
    /// Density in proportion to `x^(−shape − 1)` from the cheapest to the dearest.
    BoundedPareto {
        /// The mean.
        mean: Duration,
        /// The dearest over the cheapest, above 1.
        ratio: f64,
        /// Above zero; the smaller, the heavier the tail.
        shape: f64,
    },
    /// Normally distributed, with what is below zero drawn anew (the Prequal paper's, with `sigma` = `mu`).
    CutNormal {
        /// Mean before the cut; the mean of what is left is greater ([`Cost::mean`]).
        mu: Duration,
        /// Standard deviation before the cut, at most ten times `mu`.
        sigma: Duration,
    },
}

impl Cost {
    /// A heavy tail: at a ratio of 1000 the dearest tenth of the requests makes up two thirds of the work.
    pub const DEFAULT_SHAPE: f64 = 1.0;

    /// The mean.
    #[must_use]
    pub fn mean(&self) -> Duration {
        match *self {
            Self::Fixed { mean }
            | Self::Exponential { mean }
            | Self::LogNormal { mean, .. }
            | Self::BoundedPareto { mean, .. } => mean,
            Self::CutNormal { mu, sigma } => {
                if sigma.is_zero() {
                    return mu;
                }
                // E[X | X > 0] = μ + σ·φ(μ/σ)/Φ(μ/σ)
                let z = mu.as_secs_f64() / sigma.as_secs_f64();
                let density = (-z * z / 2.0).exp() / (2.0 * std::f64::consts::PI).sqrt();
                mu + sigma.mul_f64(density / normal_distribution(z))
            }
        }
    }

    /// Draws one, in CPU-seconds.
    pub(crate) fn sampler(&self) -> Sampler {
        match *self {
            Self::Fixed { mean } => Sampler::Fixed(mean.as_secs_f64()),
            Self::Exponential { mean } => Sampler::Exponential(mean.as_secs_f64()),
            Self::LogNormal { mean, sigma } => {
                // E[exp(m + σZ)] = exp(m + σ²/2)
                Sampler::LogNormal { scale: mean.as_secs_f64() * (-sigma * sigma / 2.0).exp(), sigma }
            }
            Self::BoundedPareto { mean, ratio, shape } => {
                // With the cheapest at 1, E = ∫ x dF = (1 − r^(1−a))/(1 − r^(−a)) · a/(a − 1), and ln r/(1 − 1/r) at
                // a = 1.
                let of_one = if (shape - 1.0).abs() < 1e-9 {
                    ratio.ln() / (1.0 - 1.0 / ratio)
                } else {
                    shape / (shape - 1.0) * (1.0 - ratio.powf(1.0 - shape)) / (1.0 - ratio.powf(-shape))
                };
                Sampler::BoundedPareto {
                    cheapest: mean.as_secs_f64() / of_one,
                    span: 1.0 - ratio.powf(-shape),
                    exponent: -1.0 / shape,
                }
            }
            Self::CutNormal { mu, sigma } => Sampler::CutNormal { mu: mu.as_secs_f64(), sigma: sigma.as_secs_f64() },
        }
    }
}

/// A distribution made ready for drawing; all in CPU-seconds.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Sampler {
    Fixed(f64),
    Exponential(f64),
    LogNormal { scale: f64, sigma: f64 },
    BoundedPareto { cheapest: f64, span: f64, exponent: f64 },
    CutNormal { mu: f64, sigma: f64 },
}

impl Sampler {
    /// CPU-seconds of one request.
    pub(crate) fn draw(&self, rng: &mut impl Rng) -> f64 {
        match *self {
            Self::Fixed(seconds) => seconds,
            Self::Exponential(mean) => {
                let unit: f64 = Exp1.sample(rng);
                unit * mean
            }
            Self::LogNormal { scale, sigma } => {
                let z: f64 = StandardNormal.sample(rng);
                scale * (sigma * z).exp()
            }
            // The inverse of F(x) = (1 − x^−a)/(1 − r^−a).
            Self::BoundedPareto { cheapest, span, exponent } => {
                let x = 1.0 - span * unit(rng);
                cheapest * if exponent == -1.0 { x.recip() } else { x.powf(exponent) }
            }
            Self::CutNormal { mu, sigma } => loop {
                let z: f64 = StandardNormal.sample(rng);
                let seconds = mu + sigma * z;
                if seconds >= 0.0 {
                    return seconds;
                }
            },
        }
    }
}

/// Φ(z) for z ≥ 0 by Simpson's rule on its density, exact to 10⁻⁹ in the range that matters.
fn normal_distribution(z: f64) -> f64 {
    const STEPS: usize = 200;
    let z = z.min(8.0);
    let density = |x: f64| (-x * x / 2.0).exp();
    let h = z / STEPS as f64;
    let inner: f64 = (1..STEPS).map(|i| density(i as f64 * h) * if i % 2 == 1 { 4.0 } else { 2.0 }).sum();
    0.5 + (density(0.0) + inner + density(z)) * h / 3.0 / (2.0 * std::f64::consts::PI).sqrt()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::streams::Streams;

    const MEAN: Duration = Duration::from_millis(10);

    fn draws(cost: Cost, n: usize) -> Vec<f64> {
        let (sampler, mut rng) = (cost.sampler(), Streams::new(11).stream("costs", 0));
        (0..n).map(|_| sampler.draw(&mut rng)).collect()
    }

    /// Seed 11, n = 400,000. Coefficients of variation: exponential 1, lognormal with sigma 1 √(e − 1) = 1.31,
    /// bounded Pareto with shape 1 and ratio 1000 √(1000 / ln² 1000) = 4.6, with shape 1.5 about 3.2, cut normal
    /// 0.62. Each bound is four standard errors, C/√n: false alarm 6e-5.
    #[test]
    fn the_mean_is_the_one_named() {
        const N: usize = 400_000;
        for (cost, variation) in [
            (Cost::Fixed { mean: MEAN }, 0.0),
            (Cost::Exponential { mean: MEAN }, 1.0),
            (Cost::LogNormal { mean: MEAN, sigma: 1.0 }, 1.31),
            (Cost::BoundedPareto { mean: MEAN, ratio: 1000.0, shape: 1.0 }, 4.6),
            (Cost::BoundedPareto { mean: MEAN, ratio: 1000.0, shape: 1.5 }, 3.2),
            (Cost::CutNormal { mu: MEAN, sigma: MEAN }, 0.62),
            (Cost::CutNormal { mu: MEAN, sigma: MEAN * 3 }, 0.71),
        ] {
            let mean = draws(cost, N).iter().sum::<f64>() / N as f64;
            let off = mean / cost.mean().as_secs_f64() - 1.0;
            assert!(off.abs() <= 4.0 * variation / (N as f64).sqrt() + 1e-9, "{cost:?}: {mean}");
        }
    }

    #[test]
    fn the_mean_of_a_cut_normal_is_that_of_the_formula() {
        let mean = |sigma| Cost::CutNormal { mu: MEAN, sigma }.mean().as_secs_f64() / MEAN.as_secs_f64();
        assert!((mean(MEAN) - 1.287_6).abs() < 1e-4, "{}", mean(MEAN));
        assert_eq!(mean(Duration::ZERO), 1.0);
    }

    #[test]
    fn the_dearest_is_the_ratio_times_the_cheapest() {
        for shape in [1.0, 1.5] {
            let costs = draws(Cost::BoundedPareto { mean: MEAN, ratio: 1000.0, shape }, 400_000);
            let (low, high) = costs.iter().fold((f64::INFINITY, 0.0_f64), |(low, high), x| (low.min(*x), high.max(*x)));
            assert!((900.0..=1000.001).contains(&(high / low)), "{shape}: {low}..{high}");
        }
    }
}
