//! A histogram of latencies whose buckets are at most 3.2% wide, with abandoned requests.
//!
//! Each octave of nanoseconds has 32 buckets, from a microsecond to eighteen minutes: exponent and
//! leading bits of the number are the bucket. Quantiles are interpolated within a bucket. A request
//! has a weight, so that the requests of one side can count as many as those of another.
//!
//! # Abandoned requests
//! The latency of a request that its client abandoned after a time t is unknown, and above t. Left
//! out, it would make a backend that hangs look quick; counted as t, too. It counts by the estimator
//! of Kaplan and Meier: of the requests still waiting at a latency, the share answered there is that
//! of the requests that were not abandoned before. If too few requests are answered, a quantile is
//! only known to be above the longest wait.
//!
//! Source: E. L. Kaplan and P. Meier, "Nonparametric estimation from incomplete observations" (1958).

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
/// A share of requests too small to count, above the rounding of sums.
const TINY: f64 = 1e-9;

/// Weights of requests by latency.
#[derive(Clone, Debug)]
pub(super) struct Latencies {
    answered: Box<[f64]>,
    /// By the time until their clients left.
    abandoned: Box<[f64]>,
}

/// A quantile in seconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Quantile {
    pub(super) seconds: f64,
    /// The true one is this, and not above this.
    pub(super) is_exact: bool,
}

impl Default for Latencies {
    fn default() -> Self {
        let empty = || vec![0.0; BUCKETS].into();
        Self { answered: empty(), abandoned: empty() }
    }
}

impl Latencies {
    pub(super) fn answered(&mut self, latency: Duration) {
        self.answered[bucket_of(latency)] += 1.0;
    }

    pub(super) fn abandoned(&mut self, after: Duration) {
        self.abandoned[bucket_of(after)] += 1.0;
    }

    /// Adds the requests of `other`, each with this weight.
    pub(super) fn add(&mut self, other: &Self, weight: f64) {
        let add = |to: &mut [f64], from: &[f64]| to.iter_mut().zip(from).for_each(|(to, from)| *to += weight * from);
        add(&mut self.answered, &other.answered);
        add(&mut self.abandoned, &other.abandoned);
    }

    pub(super) fn clear(&mut self) {
        self.answered.fill(0.0);
        self.abandoned.fill(0.0);
    }

    /// The weight of all requests.
    pub(super) fn count(&self) -> f64 {
        self.answered.iter().chain(&self.abandoned).sum()
    }

    /// The latency below which this share of the requests is; `None` without any.
    pub(super) fn quantile(&self, share: f64) -> Option<Quantile> {
        let (mut waiting, mut left) = (1.0, self.count());
        let mut last = None;
        for (i, (answered, abandoned)) in self.both() {
            let [low, high] = [start(i), start(i + 1)];
            let falls = waiting * answered / left;
            if answered > 0.0 && waiting - falls <= 1.0 - share + TINY {
                let within = ((waiting - (1.0 - share)) / falls).clamp(0.0, 1.0);
                return Some(Quantile { seconds: low + (high - low) * within, is_exact: true });
            }
            last = Some(low);
            (waiting, left) = (waiting - falls, left - answered - abandoned);
        }
        last.map(|seconds| Quantile { seconds, is_exact: false })
    }

    /// The share of the requests above a latency in seconds.
    pub(super) fn share_above(&self, latency: f64) -> f64 {
        let place = bucket((latency * 1e9) as u64);
        let (mut waiting, mut left) = (1.0, self.count());
        for (i, (answered, abandoned)) in self.both().take_while(|(i, _)| *i <= place) {
            let [low, high] = [start(i), start(i + 1)];
            let within = if i < place { 1.0 } else { ((latency - low) / (high - low)).clamp(0.0, 1.0) };
            waiting -= within * waiting * answered / left;
            left -= answered + abandoned;
        }
        waiting
    }

    /// The buckets that are not empty.
    fn both(&self) -> impl Iterator<Item = (usize, (f64, f64))> {
        let both = self.answered.iter().copied().zip(self.abandoned.iter().copied());
        both.enumerate().filter(|(_, (answered, abandoned))| answered + abandoned > 0.0)
    }
}

fn bucket_of(latency: Duration) -> usize {
    bucket(u64::try_from(latency.as_nanos()).unwrap_or(u64::MAX))
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

    fn seconds(latencies: &Latencies, share: f64) -> f64 {
        let quantile = latencies.quantile(share).unwrap();
        assert!(quantile.is_exact, "{quantile:?}");
        quantile.seconds
    }

    #[test]
    fn quantiles_are_within_a_bucket_of_the_exact_ones() {
        let mut latencies = Latencies::default();
        assert_eq!(latencies.quantile(0.5), None);
        (1..=10_000_u64).for_each(|micros| latencies.answered(Duration::from_micros(micros * 10)));
        for share in [0.01, 0.5, 0.9, 0.99] {
            let (got, exact) = (seconds(&latencies, share), share * 0.1);
            assert!((got / exact - 1.0).abs() < 0.016, "{share}: {got}");
            assert!((latencies.share_above(exact) - (1.0 - share)).abs() < 0.005, "{share}");
        }
    }

    #[test]
    fn extreme_latencies_stay_within_the_buckets() {
        let mut latencies = Latencies::default();
        for latency in [Duration::ZERO, Duration::MAX, Duration::from_nanos(1024)] {
            latencies.answered(latency);
        }
        assert_eq!(latencies.count(), 3.0);
        assert!(seconds(&latencies, 0.1) < 2e-6);
        assert!(seconds(&latencies, 1.0) > 1000.0);
        assert!(latencies.share_above(1e9) <= 1.0 / 3.0 + 1e-9);
    }

    #[test]
    fn early_abandonment_by_chance_changes_no_quantile() {
        let (mut whole, mut cut) = (Latencies::default(), Latencies::default());
        for i in 0..30_000_u64 {
            // Both uniform: the wait of a client has nothing to do with the latency.
            let (latency, patience) =
                (Duration::from_micros(i * 7919 % 30_000), Duration::from_micros(i * 104_729 % 60_000));
            whole.answered(latency);
            if patience < latency { cut.abandoned(patience) } else { cut.answered(latency) }
        }
        for share in [0.1, 0.5, 0.9] {
            let (cut, whole) = (seconds(&cut, share), seconds(&whole, share));
            assert!((cut / whole - 1.0).abs() < 0.04, "{share}: {cut} {whole}");
        }
        assert!((cut.share_above(0.015) - 0.5).abs() < 0.02);
    }

    #[test]
    fn quantile_of_a_hanging_server_is_only_known_to_be_long() {
        let mut latencies = Latencies::default();
        (0..60).for_each(|_| latencies.abandoned(Duration::from_secs(1)));
        (0..40).for_each(|_| latencies.answered(Duration::from_millis(1)));
        let median = latencies.quantile(0.5).unwrap();
        assert!(!median.is_exact && (0.96..=1.0).contains(&median.seconds), "{median:?}");
        assert!((seconds(&latencies, 0.3) - 0.001).abs() < 1e-4);
    }

    #[test]
    fn weights_change_the_mixture() {
        let mut all = Latencies::default();
        for (millis, weight) in [(1, 3.0), (100, 1.0)] {
            let mut one = Latencies::default();
            (0..100).for_each(|_| one.answered(Duration::from_millis(millis)));
            all.add(&one, weight);
            one.clear();
            assert_eq!(one.count(), 0.0);
        }
        assert!((all.share_above(0.01) - 0.25).abs() < 1e-6 && all.count() == 400.0);
    }

    #[test]
    fn buckets_are_in_order_and_cover_all() {
        for i in 0..BUCKETS {
            assert_eq!((bucket(start_nanos(i)), bucket(start_nanos(i + 1) - 1)), (i, i));
            assert!(start(i + 1) / start(i) < 1.032);
        }
    }
}
