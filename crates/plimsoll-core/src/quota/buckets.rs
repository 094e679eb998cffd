//! Token buckets whose limit the caller states with each request, by key.
//!
//! Keys come from strangers, so their number is bounded. When all buckets are taken, those that were idle for
//! long make room: they are full by then, or nearly. Further keys share one bucket, and take nothing from
//! those that have one.

use alloc::collections::BTreeMap;
use core::time::Duration;

use super::Bucket;
use crate::Timestamp;

/// A bucket that was not used for this time may be replaced.
const IDLE: Duration = Duration::from_secs(600);
/// Time between two searches for such buckets.
const SEARCH_INTERVAL: Duration = Duration::from_secs(1);
/// The key of the bucket that further keys share.
const SHARED: u64 = 0;

/// A request at a bucket.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum BucketRequest {
    /// It has this cost, and is admitted if the level suffices.
    Take(f64),
    /// It has had this cost, and is charged at any level.
    Charge(f64),
    /// Its cost is charged later: it is admitted while the level is above zero.
    Check,
}

/// The answer of a bucket.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BucketAnswer {
    /// Whether the request is admitted.
    pub is_admitted: bool,
    /// The level after it; below zero in debt.
    pub level: f64,
}

/// Buckets by key.
#[derive(Clone, Debug)]
pub struct Buckets {
    most: usize,
    /// With the time of the last request.
    buckets: BTreeMap<u64, (Bucket, Timestamp)>,
    search_at: Timestamp,
}

impl Buckets {
    /// At most this many buckets, and the shared one.
    #[must_use]
    pub fn new(most: usize) -> Self {
        Self { most, buckets: BTreeMap::new(), search_at: Timestamp::ZERO }
    }

    /// A request at the bucket of `key`, which is not 0. `rate` and `depth` are those of its limit: another limit than
    /// before holds at once, and adds nothing to the level.
    pub fn ask(&mut self, now: Timestamp, key: u64, rate: f64, depth: f64, request: BucketRequest) -> BucketAnswer {
        let key = self.key(now, key);
        let (bucket, used) = self.buckets.entry(key).or_insert_with(|| (Bucket::full(now, rate, depth), now));
        bucket.set(now, rate, depth);
        *used = now;
        let level = bucket.level(now);
        let (is_admitted, cost) = match request {
            BucketRequest::Take(cost) => (level >= cost, cost),
            BucketRequest::Charge(cost) => (true, cost),
            BucketRequest::Check => (level > 0.0, 0.0),
        };
        if is_admitted {
            bucket.take(cost);
        }
        BucketAnswer { is_admitted, level: bucket.level(now) }
    }

    /// The number of buckets.
    #[must_use]
    pub fn count(&self) -> usize {
        self.buckets.len()
    }

    /// The key of the bucket that this key has.
    fn key(&mut self, now: Timestamp, key: u64) -> u64 {
        if self.buckets.len() < self.most || self.buckets.contains_key(&key) {
            return key;
        }
        if now >= self.search_at {
            self.search_at = now + SEARCH_INTERVAL;
            self.buckets.retain(|_, (_, used)| now.since(*used) < IDLE);
        }
        if self.buckets.len() < self.most { key } else { SHARED }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RATE: f64 = 10.0;
    const DEPTH: f64 = 5.0;

    fn at(seconds: u64) -> Timestamp {
        Timestamp::ZERO + Duration::from_secs(seconds)
    }

    fn is_admitted(buckets: &mut Buckets, now: Timestamp, key: u64, request: BucketRequest) -> bool {
        buckets.ask(now, key, RATE, DEPTH, request).is_admitted
    }

    #[test]
    fn requests_are_admitted_charged_and_checked() {
        let mut buckets = Buckets::new(1);
        assert!(is_admitted(&mut buckets, at(0), 1, BucketRequest::Take(5.0)));
        assert!(!is_admitted(&mut buckets, at(0), 1, BucketRequest::Take(0.1)));
        assert!(!is_admitted(&mut buckets, at(0), 1, BucketRequest::Check));
        let charged = buckets.ask(at(0), 1, RATE, DEPTH, BucketRequest::Charge(15.0));
        assert_eq!(charged, BucketAnswer { is_admitted: true, level: -15.0 });
        assert!(!is_admitted(&mut buckets, at(1), 1, BucketRequest::Check));
        assert!(is_admitted(&mut buckets, at(2), 1, BucketRequest::Check));
    }

    #[test]
    fn further_keys_share_one_bucket_and_others_keep_theirs() {
        let mut buckets = Buckets::new(2);
        let all = BucketRequest::Take(DEPTH);
        assert!([1, 2, 3].into_iter().all(|key| is_admitted(&mut buckets, at(0), key, all)));
        // The third has the shared one, and so has the fourth.
        assert!(!is_admitted(&mut buckets, at(0), 4, all));
        assert!([1, 2].into_iter().all(|key| is_admitted(&mut buckets, at(1), key, all)), "a second later");
        assert_eq!(buckets.count(), 3);
    }

    #[test]
    fn idle_buckets_make_room() {
        let mut buckets = Buckets::new(2);
        (1..4).for_each(|key| assert!(is_admitted(&mut buckets, at(0), key, BucketRequest::Check)));
        (4..6).for_each(|key| assert!(is_admitted(&mut buckets, at(601), key, BucketRequest::Take(DEPTH))));
        assert!(!is_admitted(&mut buckets, at(601), 4, BucketRequest::Check), "it has a bucket of its own");
        assert_eq!(buckets.count(), 2);
    }
}
