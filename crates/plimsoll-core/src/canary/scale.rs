//! The cap on the cost of one request, which no single request may set.
//!
//! A cost counts up to [`CAP`] times the mean of all costs before its slot. Without a mean there is
//! no cap, and a single absurd cost would decide the comparison. So the first costs count nowhere:
//! they only fill a histogram of powers of two, until a slot ends with [`SLOT_REQUESTS`] of them. The
//! first mean comes from this histogram, with the greatest 1 in [`TRIMMED`] lowered to the greatest
//! of the others. The cap stays the same during a slot, so it treats both sides alike.
//!
//! Where it is weak: absurd costs in more than 1 of [`TRIMMED`] requests are the scale.

use super::{CAP, SLOT_REQUESTS, Sum};

/// The greatest 1 in so many first costs do not set the scale: 2 of 64, the least first slot.
const TRIMMED: u64 = 32;
/// Powers of two, from 2⁻⁴⁰ (a picosecond) to 2²⁴ (half a year).
const OCTAVES: usize = 64;
const LEAST: i64 = -40;

/// The cap on costs of one kind.
#[derive(Clone, Debug)]
pub(super) struct Cap {
    /// `None` until the scale is known.
    limit: Option<f64>,
    /// The costs before there is a limit, by powers of two.
    first: [u32; OCTAVES],
}

impl Cap {
    pub(super) const UNKNOWN: Self = Self { limit: None, first: [0; OCTAVES] };

    /// The part of a cost that counts; `None` while the scale is unknown.
    pub(super) fn counted(&mut self, cost: f64) -> Option<f64> {
        if self.limit.is_none() && cost > 0.0 {
            let octave = &mut self.first[octave(cost)];
            *octave = octave.saturating_add(1);
        }
        self.limit.map(|limit| cost.min(limit))
    }

    /// Fixes the cap for the next slot. `counted` are the counted costs of both sides.
    pub(super) fn renew(&mut self, counted: Sum) {
        let mean = counted.mean().filter(|mean| *mean > 0.0);
        let mean = mean.or_else(|| if self.limit.is_none() { self.first_mean() } else { None });
        if let Some(mean) = mean {
            self.limit = Some(CAP * mean);
        }
    }

    /// The trimmed mean of the first costs, to a factor of 1.5.
    fn first_mean(&self) -> Option<f64> {
        let count: u64 = self.first.iter().map(|count| u64::from(*count)).sum();
        if count < SLOT_REQUESTS {
            return None;
        }
        let (mut sum, mut above) = (0.0, count / TRIMMED);
        let mut lowered = above;
        for (i, in_octave) in self.first.iter().enumerate().rev() {
            let cut = u64::from(*in_octave).min(above);
            above -= cut;
            if u64::from(*in_octave) > cut {
                let counted = u64::from(*in_octave) - cut + core::mem::take(&mut lowered);
                sum += 1.5 * libm::exp2((i as i64 + LEAST) as f64) * counted as f64;
            }
        }
        Some(sum / count as f64)
    }
}

/// The place of a positive cost in the histogram.
fn octave(cost: f64) -> usize {
    let exponent = (cost.to_bits() >> 52) as i64 - 1023;
    (exponent - LEAST).clamp(0, OCTAVES as i64 - 1) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    fn first(costs: impl IntoIterator<Item = f64>) -> Cap {
        let mut cap = Cap::UNKNOWN;
        assert!(costs.into_iter().all(|cost| cap.counted(cost).is_none()));
        cap.renew(Sum::default());
        cap
    }

    #[test]
    fn absurd_first_costs_do_not_set_the_cap() {
        let costs = (0..64).map(|i| match i {
            3 => 1e12,
            9 => f64::MAX,
            i => 0.001 * f64::from(1 + i % 3),
        });
        let limit = first(costs).limit.unwrap();
        assert!((0.5..2.0).contains(&(limit / (CAP * 0.002))), "{limit}");
    }

    #[test]
    fn first_mean_keeps_rare_expensive_requests_within_the_cap() {
        // One in ten costs 100 times as much: 10.9 on average.
        let mut cap = first((0..1000).map(|i| if i % 10 == 0 { 100.0 } else { 1.0 }));
        assert_eq!(cap.counted(100.0), Some(100.0));
        assert!(cap.counted(1e9).unwrap() < 64.0 * 16.5);
    }

    #[test]
    fn cap_needs_costs_and_follows_the_mean_of_counted_ones() {
        assert_eq!(first((0..31).map(|_| 1.0)).limit, None);
        assert_eq!(first((0..1000).map(|_| 0.0)).limit, None, "zero is no scale");
        let mut cap = first((0..64).map(|_| 1.0));
        cap.renew(Sum { count: 10, sum: 5.0 });
        assert_eq!(cap.counted(1e300), Some(32.0));
        assert_eq!([octave(f64::MIN_POSITIVE), octave(1.0), octave(f64::MAX)], [0, 40, 63]);
    }
}
