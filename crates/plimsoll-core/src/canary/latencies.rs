//! A histogram of latencies whose buckets are at most 3.2% wide.
//!
//! Each octave of nanoseconds has 32 buckets, from a microsecond to eighteen minutes: exponent and
//! leading bits of the number are the bucket. Quantiles are interpolated within a bucket.

use alloc::boxed::Box;
use alloc::vec;
use core::time::Duration;

/// Leading bits below the first one.
const BITS: u32 = 5;
/// The exponent of the first bucket: 1.02 µs.
const FIRST: u32 = 10;
/// Octaves.
const OCTAVES: u32 = 30;
const BUCKETS: usize = (OCTAVES << BITS) as usize;
/// All counts are halved at so many.
const MAX_COUNT: u32 = 1 << 31;

/// Counts by latency.
#[derive(Clone, Debug)]
pub(super) struct Latencies {
    counts: Box<[u32]>,
    count: u32,
}

impl Default for Latencies {
    fn default() -> Self {
        Self { counts: vec![0; BUCKETS].into(), count: 0 }
    }
}

impl Latencies {
    pub(super) fn record(&mut self, latency: Duration) {
        let nanos = u64::try_from(latency.as_nanos()).unwrap_or(u64::MAX);
        self.counts[bucket(nanos)] += 1;
        self.count += 1;
        if self.count == MAX_COUNT {
            self.counts.iter_mut().for_each(|count| *count /= 2);
            self.count = self.counts.iter().sum();
        }
    }

    pub(super) fn count(&self) -> u32 {
        self.count
    }

    /// The latency in seconds below which this share of the requests is; `None` without any.
    pub(super) fn quantile(&self, share: f64) -> Option<f64> {
        let mut left = share * f64::from(self.count);
        let mut last = None;
        for (i, count) in self.counts.iter().enumerate().filter(|(_, count)| **count > 0) {
            let [low, high] = [start(i), start(i + 1)];
            last = Some(high);
            if left <= f64::from(*count) {
                return Some(low + (high - low) * (left / f64::from(*count)));
            }
            left -= f64::from(*count);
        }
        last
    }

    /// The share of the requests above a latency in seconds.
    pub(super) fn share_above(&self, latency: f64) -> f64 {
        let place = bucket((latency * 1e9) as u64);
        let [low, high] = [start(place), start(place + 1)];
        let within = ((high - latency) / (high - low)).clamp(0.0, 1.0) * f64::from(self.counts[place]);
        let above: u64 = self.counts[place + 1..].iter().map(|count| u64::from(*count)).sum();
        (above as f64 + within) / f64::from(self.count.max(1))
    }
}

fn bucket(nanos: u64) -> usize {
    let nanos = nanos.max(1 << FIRST);
    let exponent = nanos.ilog2();
    let leading = (nanos >> (exponent - BITS)) as usize & ((1 << BITS) - 1);
    ((((exponent - FIRST) << BITS) as usize) + leading).min(BUCKETS - 1)
}

/// The least latency of a bucket, in seconds.
fn start(bucket: usize) -> f64 {
    start_nanos(bucket) as f64 / 1e9
}

fn start_nanos(bucket: usize) -> u64 {
    let (octave, leading) = (bucket >> BITS, bucket & ((1 << BITS) - 1));
    ((1 << BITS) + leading as u64) << (octave as u32 + FIRST - BITS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_within_a_bucket_of_the_exact_ones() {
        let mut latencies = Latencies::default();
        assert_eq!(latencies.quantile(0.5), None);
        (1..=10_000_u64).for_each(|micros| latencies.record(Duration::from_micros(micros * 10)));
        for share in [0.01, 0.5, 0.9, 0.99] {
            let (got, exact) = (latencies.quantile(share).unwrap(), share * 0.1);
            assert!((got / exact - 1.0).abs() < 0.016, "{share}: {got}");
            assert!((latencies.share_above(exact) - (1.0 - share)).abs() < 0.005, "{share}");
        }
    }

    #[test]
    fn extreme_latencies_stay_within_the_buckets() {
        let mut latencies = Latencies::default();
        for latency in [Duration::ZERO, Duration::MAX, Duration::from_nanos(1024)] {
            latencies.record(latency);
        }
        assert_eq!(latencies.count(), 3);
        assert!(latencies.quantile(0.1).unwrap() < 2e-6);
        assert!(latencies.quantile(1.0).unwrap() > 1000.0);
        assert!(latencies.share_above(1e9) <= 1.0 / 3.0 + 1e-9);
    }

    #[test]
    fn buckets_are_in_order_and_cover_all() {
        for i in 0..BUCKETS {
            assert_eq!((bucket(start_nanos(i)), bucket(start_nanos(i + 1) - 1)), (i, i));
            assert!(start(i + 1) / start(i) < 1.032);
        }
    }
}
