//! A ratio of sums over batches, and an interval around it that holds at all times together.

use super::{FALSE_ALARM, MIN_BATCHES, Metric};

/// The sums of one metric in a batch: the difference or the cost of the canary (y), and the cost or
/// the number to divide it by (x).
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Pair {
    pub(super) y: f64,
    pub(super) x: f64,
}

/// The sums of all metrics.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Batch {
    pub(super) pairs: [Pair; 5],
}

/// A ratio, and half the width of its interval.
#[derive(Clone, Copy, Debug)]
pub(super) struct Interval {
    pub(super) ratio: f64,
    pub(super) width: f64,
}

impl Interval {
    /// The ratio of the sums of y and x; `None` with too few batches. `floor` is the least variance
    /// that is believed, `margin` the difference at which the interval is to be narrowest.
    pub(super) fn of<I: Iterator<Item = Pair>>(pairs: impl Fn() -> I, floor: f64, margin: f64) -> Option<Self> {
        let (mut y, mut x, mut count) = (0.0, 0.0, 0_usize);
        for pair in pairs() {
            (y, x, count) = (y + pair.y, x + pair.x, count + 1);
        }
        if count < MIN_BATCHES {
            return None;
        }
        let (ratio, count) = (y / x, count as f64);
        let squares: f64 = pairs().map(|pair| (pair.y - ratio * pair.x) * (pair.y - ratio * pair.x)).sum();
        let variance = (squares / (x * x) * count / (count - 1.0)).max(floor);
        Some(Self { ratio, width: width(variance, margin, count - 1.0) })
    }

    pub(super) fn bounds(self) -> [f64; 2] {
        [self.ratio - self.width, self.ratio + self.width]
    }
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

    #[test]
    fn interval_needs_enough_batches_and_finds_the_ratio() {
        let pairs = |count: usize| {
            move || (0..count).map(|i| Pair { y: 1.1 * (1.0 + (i % 2) as f64), x: 1.0 + (i % 2) as f64 })
        };
        assert!(Interval::of(pairs(MIN_BATCHES - 1), 0.0, 0.05).is_none());
        let exact = Interval::of(pairs(MIN_BATCHES), 0.0, 0.05).unwrap();
        assert!((exact.ratio - 1.1).abs() < 1e-9 && exact.width < 1e-6, "{exact:?}");
        let floored = Interval::of(pairs(MIN_BATCHES), 1e-4, 0.05).unwrap();
        assert!(floored.width > 0.03, "{floored:?}");
    }
}
