//! A ratio of sums over batches, and an interval around it that holds at all times together.
//!
//! The variance of the ratio is the greatest of several, because each alone may be too small:
//! - *Batches alone and merged*, by 2 and by 4. A disturbance of one side that lasts for k batches
//!   counts as k events in single batches and as one in merged ones. With few merged batches their
//!   variance is rough, and the greatest of three is a little too large: a verdict takes a seventh
//!   more requests.
//! - *At the ratio and at equality.* At the ratio d, the residual of a batch is y − d·x. If a few
//!   batches have a huge x, then d is near zero, and so are all residuals of the others. At equality,
//!   the residual is y − x. The difference per request is taken out of it, as it is no noise: the rest is
//!   y − x − n·Σ(y − x) ÷ Σn.

use super::{FALSE_ALARM, MAX_BATCHES, MERGERS, MIN_BATCHES, Metric};

/// The sums of one metric in a batch: the difference or the cost of the canary (y), the cost or
/// the number to divide it by (x), and the number of the canary's requests (n).
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Pair {
    pub(super) y: f64,
    pub(super) x: f64,
    pub(super) n: f64,
}

impl Pair {
    fn add(self, other: Self) -> Self {
        Self { y: self.y + other.y, x: self.x + other.x, n: self.n + other.n }
    }

    fn sum(pairs: &[Self]) -> Self {
        pairs.iter().fold(Self::default(), |sum, pair| sum.add(*pair))
    }
}

/// The sums of all metrics.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Batch {
    pub(super) pairs: [Pair; 5],
}

impl Batch {
    pub(super) fn add(&mut self, other: &Self) {
        for (pair, other) in self.pairs.iter_mut().zip(&other.pairs) {
            *pair = pair.add(*other);
        }
    }
}

/// A ratio, and half the width of its interval.
#[derive(Clone, Copy, Debug)]
pub(super) struct Interval {
    pub(super) ratio: f64,
    pub(super) width: f64,
    /// The sums that it comes from.
    pub(super) sums: Pair,
}

impl Interval {
    /// The ratio of the sums of y and x; `None` with too few batches, or without finite sums.
    ///
    /// `equal` is the ratio of equal versions, `floor` the least variance, and `margin` the
    /// difference at which the interval is narrowest.
    pub(super) fn of(pairs: impl Iterator<Item = Pair>, equal: f64, floor: f64, margin: f64) -> Option<Self> {
        let (mut batches, mut count) = ([Pair::default(); MAX_BATCHES], 0);
        for (batch, pair) in batches.iter_mut().zip(pairs) {
            (*batch, count) = (pair, count + 1);
        }
        if count < MIN_BATCHES {
            return None;
        }
        let sums = Pair::sum(&batches[..count]);
        let ratio = sums.y / sums.x;
        let (mut variance, mut merged) = (floor, count);
        for _ in 0..=MERGERS {
            variance = variance.max(variance_of(&batches[..merged], ratio, equal));
            // An odd last batch has no partner.
            merged /= 2;
            (0..merged).for_each(|i| batches[i] = batches[2 * i].add(batches[2 * i + 1]));
        }
        let width = width(variance, margin, (count - 1) as f64);
        (ratio.is_finite() && width.is_finite()).then_some(Self { ratio, width, sums })
    }

    pub(super) fn bounds(self) -> [f64; 2] {
        [self.ratio - self.width, self.ratio + self.width]
    }
}

/// The variance of the ratio, by these batches.
fn variance_of(batches: &[Pair], ratio: f64, equal: f64) -> f64 {
    let (sums, count) = (Pair::sum(batches), batches.len() as f64);
    let each = (sums.y - equal * sums.x) / sums.n;
    let squares =
        |residual: &dyn Fn(&Pair) -> f64| -> f64 { batches.iter().map(|pair| residual(pair) * residual(pair)).sum() };
    let at_ratio = squares(&|pair| pair.y - ratio * pair.x);
    let at_equality = squares(&|pair| pair.y - equal * pair.x - each * pair.n);
    at_ratio.max(at_equality) / (sums.x * sums.x) * count / (count - 1.0)
}

/// Half the width of the interval, from a variance with these degrees of freedom.
fn width(variance: f64, margin: f64, freedom: f64) -> f64 {
    let alpha = FALSE_ALARM / Metric::ALL.len() as f64;
    let prior = margin * margin;
    let square = (1.0 + variance / prior) * libm::log((1.0 + prior / variance) / (alpha * alpha));
    // The first term of Student's quantile over the normal one.
    let wider = 1.0 + (square + 1.0) / (4.0 * freedom);
    if variance > 0.0 { libm::sqrt(variance * square) * wider } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn width_is_three_and_a_half_errors_where_it_decides() {
        // The narrowest in standard errors over all variances.
        let narrowest = (1..200)
            .map(|i| f64::from(i) / 200.0)
            .map(|error| width(error * error, 1.0, 1e9) / error)
            .fold(f64::INFINITY, f64::min);
        assert!((3.45..3.55).contains(&narrowest), "{narrowest}");
        let error = 1.0 / 3.5;
        assert!((width(error * error, 1.0, 1e9) - 1.0).abs() < 0.03);
    }

    #[test]
    fn few_batches_and_little_evidence_widen_the_interval() {
        let error = |freedom| width(0.01, 1.0, freedom) / 0.1;
        assert!(error(31.0) > 1.08 * error(1e9));
        assert!(width(1.0, 0.1, 63.0) > 10.0, "more than ten standard errors far from the margin");
    }

    fn of(pairs: impl Iterator<Item = Pair>, floor: f64) -> Option<Interval> {
        Interval::of(pairs, 1.0, floor, 0.05)
    }

    #[test]
    fn interval_needs_enough_batches_and_finds_the_ratio() {
        let pairs = |count: usize| {
            (0..count).map(|i| Pair {
                y: 1.1 * (1.0 + (i % 2) as f64),
                x: 1.0 + (i % 2) as f64,
                n: 1.0 + (i % 2) as f64,
            })
        };
        assert!(of(pairs(MIN_BATCHES - 1), 0.0).is_none());
        let exact = of(pairs(MIN_BATCHES), 0.0).unwrap();
        assert!((exact.ratio - 1.1).abs() < 1e-9 && exact.width < 1e-6, "{exact:?}");
        let floored = of(pairs(MIN_BATCHES), 1e-4).unwrap();
        assert!(floored.width > 0.03, "{floored:?}");
    }

    #[test]
    fn one_wild_batch_of_either_side_decides_nothing() {
        for wild in [1e3, 1e6, 1e12] {
            let main = of((0..40).map(|i| Pair { y: 1.0, x: if i == 7 { wild } else { 1.0 }, n: 1.0 }), 0.0).unwrap();
            assert!(main.ratio + main.width > 1.0, "{wild}: {main:?}");
            let canary = of((0..40).map(|i| Pair { y: if i == 7 { wild } else { 1.0 }, x: 1.0, n: 1.0 }), 0.0).unwrap();
            assert!(canary.ratio - canary.width < 1.0, "{wild}: {canary:?}");
        }
    }

    #[test]
    fn disturbance_of_neighbouring_batches_counts_as_few_events() {
        // Twelve of sixty batches: by themselves, 3.9 standard errors.
        let seen = of((0..60).map(|i| Pair { y: if (20..32).contains(&i) { 1.5 } else { 1.0 }, x: 1.0, n: 1.0 }), 0.0);
        let Interval { ratio, width, .. } = seen.unwrap();
        assert!((ratio - 1.1).abs() < 1e-9 && width > 0.15, "{ratio} {width}");
        let spread = of((0..60).map(|i| Pair { y: if i % 5 == 0 { 1.5 } else { 1.0 }, x: 1.0, n: 1.0 }), 0.0).unwrap();
        assert!(spread.width < 0.12, "{spread:?}");
    }

    #[test]
    fn sums_that_are_not_finite_give_no_interval() {
        assert!(of((0..40).map(|_| Pair { y: f64::MAX, x: f64::MAX, n: 1.0 }), 0.0).is_none());
        assert!(of((0..40).map(|_| Pair { y: 0.0, x: 0.0, n: 1.0 }), 0.0).is_none());
    }
}
