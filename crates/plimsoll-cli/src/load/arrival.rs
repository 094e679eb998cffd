//! When the requests of an open loop are meant to be sent.
//!
//! Uniform: the k-th at `k / rate`, computed from k and not by adding gaps, so that rounding never
//! sums up to a wrong rate. Poisson: gaps drawn from an exponential distribution with mean `1 / rate`,
//! summed in seconds as `f64`, whose error over a day is far below a nanosecond per arrival.

use std::time::Duration;

use rand_core::SeedableRng;
use rand_distr::{Distribution, Exp};
use rand_pcg::Pcg64Mcg;

use super::plan::Arrival;

/// The arrivals of an open loop, counted from its start. Never ends.
#[derive(Clone, Debug)]
pub(crate) enum Arrivals {
    /// Evenly spaced.
    Uniform {
        /// Arrivals a second.
        rate: f64,
        /// Arrivals until now.
        count: u64,
    },
    /// Independent of each other.
    Poisson {
        /// Of the gap, in seconds.
        gap: Exp<f64>,
        /// Source of the gaps.
        rng: Pcg64Mcg,
        /// The last arrival, in seconds.
        at: f64,
    },
}

impl Arrivals {
    /// `rate` in arrivals a second, greater than zero. The same seed gives the same arrivals.
    pub(crate) fn new(arrival: Arrival, rate: f64, seed: u64) -> Self {
        match arrival {
            Arrival::Uniform => Self::Uniform { rate, count: 0 },
            Arrival::Poisson => Self::Poisson {
                gap: Exp::new(rate).expect("a rate greater than zero has gaps"),
                rng: Pcg64Mcg::seed_from_u64(seed),
                at: 0.0,
            },
        }
    }

    /// The next arrival, as time since the start.
    pub(crate) fn next(&mut self) -> Duration {
        let seconds = match self {
            Self::Uniform { rate, count } => {
                let at = *count as f64 / *rate;
                *count += 1;
                at
            }
            Self::Poisson { gap, rng, at } => {
                *at += gap.sample(rng);
                *at
            }
        };
        // Only a rate near zero can reach a time that no Duration holds; it then never comes.
        Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uniform_arrivals_do_not_drift() {
        let mut arrivals = Arrivals::new(Arrival::Uniform, 3.0, 1);
        let last = (0..3_000_001).map(|_| arrivals.next()).last().unwrap();
        assert_eq!(last, Duration::from_secs(1_000_000));
    }

    /// Seed 7, n = 100,000 gaps at 1,000/s. The mean of n exponential gaps lies within 4 standard
    /// errors (4/sqrt(n) = 1.26%) but for a false-alarm probability of 6e-5; the squared coefficient
    /// of variation has a standard error of sqrt(8/n) = 0.9%, so 4 of them (3.6%), likewise 6e-5.
    #[test]
    fn poisson_gaps_have_the_mean_and_the_variance_of_an_exponential() {
        const N: usize = 100_000;
        let mut arrivals = Arrivals::new(Arrival::Poisson, 1_000.0, 7);
        let mut last = 0.0;
        let gaps: Vec<f64> = (0..N)
            .map(|_| {
                let at = arrivals.next().as_secs_f64();
                let gap = at - last;
                last = at;
                gap
            })
            .collect();
        let mean = gaps.iter().sum::<f64>() / N as f64;
        let variance = gaps.iter().map(|gap| (gap - mean).powi(2)).sum::<f64>() / N as f64;
        assert!((mean / 0.001 - 1.0).abs() < 0.0126, "mean {mean}");
        assert!((variance / (mean * mean) - 1.0).abs() < 0.036, "variance {variance}");
    }

    /// Seed 3, n = 10,000 windows of one mean gap: the count of arrivals is Poisson(1), so a window is
    /// empty with probability 1/e; 4 standard errors are 1.93%, false-alarm probability 6e-5.
    #[test]
    fn poisson_counts_are_empty_as_often_as_they_should_be() {
        const N: usize = 10_000;
        let mut arrivals = Arrivals::new(Arrival::Poisson, 1.0, 3);
        let mut counts = vec![0_u32; N];
        while let Some(count) = counts.get_mut(arrivals.next().as_secs() as usize) {
            *count += 1;
        }
        let empty = counts.iter().filter(|count| **count == 0).count() as f64 / N as f64;
        assert!((empty - (-1.0_f64).exp()).abs() < 0.0193, "{empty}");
    }

    #[test]
    fn the_same_seed_gives_the_same_arrivals() {
        let take = |seed| {
            let mut arrivals = Arrivals::new(Arrival::Poisson, 10.0, seed);
            (0..100).map(|_| arrivals.next()).collect::<Vec<_>>()
        };
        assert_eq!(take(5), take(5));
        assert_ne!(take(5), take(6));
    }
}
