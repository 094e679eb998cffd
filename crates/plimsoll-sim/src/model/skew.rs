//! How unequal clients are.

use rand_distr::{Distribution as _, StandardNormal};
use rand_pcg::Pcg64Mcg;

/// How a quantity is spread over clients.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Skew {
    /// All alike.
    #[default]
    Even,
    /// The i-th of them, counted from one, in proportion to `i^(−exponent)`.
    Zipf {
        /// Above zero; 1 is the classic.
        exponent: f64,
    },
    /// The logarithm is normally distributed, drawn for each client.
    LogNormal {
        /// Its standard deviation, above zero.
        sigma: f64,
    },
}

impl Skew {
    /// One factor for each of `count` clients, of mean 1. `rng` is drawn from for each client in turn.
    pub(crate) fn factors(&self, count: usize, rng: &mut Pcg64Mcg) -> Vec<f64> {
        let mut factors: Vec<f64> = match *self {
            Self::Even => vec![1.0; count],
            Self::Zipf { exponent } => (1..=count).map(|rank| (rank as f64).powf(-exponent)).collect(),
            Self::LogNormal { sigma } => (0..count)
                .map(|_| {
                    let z: f64 = StandardNormal.sample(rng);
                    (sigma * z).exp()
                })
                .collect(),
        };
        let mean = factors.iter().sum::<f64>() / count as f64;
        factors.iter_mut().for_each(|factor| *factor /= mean);
        factors
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::streams::Streams;

    #[test]
    fn factors_have_mean_one_whatever_the_skew() {
        for skew in [Skew::Even, Skew::Zipf { exponent: 1.0 }, Skew::LogNormal { sigma: 1.0 }] {
            let factors = skew.factors(100, &mut Streams::new(1).stream("rates", 0));
            assert!((factors.iter().sum::<f64>() / 100.0 - 1.0).abs() < 1e-12, "{skew:?}");
            assert!(factors.iter().all(|factor| *factor > 0.0));
        }
    }

    #[test]
    fn zipf_falls_by_rank() {
        let factors = Skew::Zipf { exponent: 1.0 }.factors(4, &mut Streams::new(1).stream("rates", 0));
        assert!((factors[0] / factors[3] - 4.0).abs() < 1e-12);
    }
}
