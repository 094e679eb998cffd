//! The limits on customers' requests, shared by all threads and listeners.
//!
//! The core decides ([`plimsoll_core::request_limit`]). Buckets are spread over [`SHARDS`] parts with
//! a lock each, by the customer's hash, so that threads seldom meet. A decision takes a hash, a look
//! at the clock and a lock that is free: about a tenth of a microsecond. A proxy without
//! `requests_per_second` pays nothing.
//!
//! Requests of a listener that knows customers, without a name of their own, are one customer.

use std::hash::{BuildHasher as _, RandomState};
use std::sync::atomic::{AtomicBool, Ordering};

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use plimsoll_core::request_limit::{Counts, Over, RequestLimits as Buckets};
use plimsoll_core::{Rejection, Timestamp};
use tokio::time::Instant;

use crate::config::Config;

/// Parts of the buckets; a power of two. Two of eight threads meet in one once in some 200 cases,
/// and then for 20 ns.
const SHARDS: usize = 64;

/// Customers without a table that are remembered: 1 MiB, from the first such request on.
const CUSTOMERS: usize = 65_536;

/// The customer that all others count as.
const OTHER: &str = "other";

/// The limits on requests.
pub(crate) struct RequestLimits {
    shards: Box<[Mutex<Buckets>]>,
    key: RandomState,
    origin: Instant,
    is_on: AtomicBool,
    /// The customers with a table and a limit, by hash.
    names: ArcSwap<Vec<(u64, Box<str>)>>,
}

impl Default for RequestLimits {
    fn default() -> Self {
        Self {
            shards: (0..SHARDS).map(|_| Mutex::new(Buckets::new(CUSTOMERS / SHARDS))).collect(),
            key: RandomState::new(),
            origin: Instant::now(),
            is_on: AtomicBool::new(false),
            names: ArcSwap::default(),
        }
    }
}

impl RequestLimits {
    /// Puts the limits of this configuration in force.
    pub(crate) fn configure(&self, config: &Config) {
        let now = self.now();
        let named: Vec<_> = (config.customers().iter())
            .map(|(name, limits)| (self.hash(Some(name.as_bytes())), name, limits.request_limit()))
            .collect();
        let others = config.other_customers().request_limit();
        for (at, shard) in self.shards.iter().enumerate() {
            let own = named.iter().filter(|(hash, ..)| shard_of(*hash) == at);
            shard.lock().set(now, own.map(|(hash, _, limit)| (*hash, *limit)), others);
        }
        let limited = named.iter().filter(|(_, _, limit)| limit.is_some());
        self.is_on.store(others.is_some() || limited.clone().next().is_some(), Ordering::Relaxed);
        self.names.store(std::sync::Arc::new(limited.map(|(hash, name, _)| (*hash, name.as_str().into())).collect()));
    }

    /// Whether any customer has a limit.
    pub(crate) fn is_on(&self) -> bool {
        self.is_on.load(Ordering::Relaxed)
    }

    /// Takes one request of `customer`, or of the requests without a name.
    pub(crate) fn take(&self, customer: Option<&[u8]>) -> Result<(), Over> {
        let (hash, now) = (self.hash(customer), self.now());
        self.shards[shard_of(hash)].lock().take(now, hash)
    }

    /// Decisions by customer with a table, and of all others: the name, the decision, the number. In
    /// a dry run a request over the limit counts as both.
    pub(crate) fn counts(&self) -> Vec<(Box<str>, &'static str, u64)> {
        if !self.is_on() {
            return Vec::new();
        }
        let names = self.names.load();
        let (mut counts, mut others) = (Vec::new(), Counts::default());
        for shard in &self.shards {
            let shard = shard.lock();
            others.admitted += shard.others().admitted;
            others.over += shard.others().over;
            counts.extend(shard.named().filter_map(|(hash, counts)| {
                let (_, name) = names.iter().find(|(known, _)| *known == hash)?;
                Some((name.clone(), counts))
            }));
        }
        counts.retain(|(name, _)| **name != *OTHER);
        counts.sort_by(|(a, _), (b, _)| a.cmp(b));
        counts.push((OTHER.into(), others));
        let by_decision = |(name, Counts { admitted, over }): (Box<str>, Counts)| {
            [(name.clone(), "admitted", admitted), (name, Rejection::RateLimit.name(), over)]
        };
        counts.into_iter().flat_map(by_decision).collect()
    }

    fn hash(&self, customer: Option<&[u8]>) -> u64 {
        self.key.hash_one(customer)
    }

    fn now(&self) -> Timestamp {
        Timestamp::from_origin(self.origin.elapsed())
    }
}

/// The part of the buckets of a customer with this hash. The core's table uses other bits.
fn shard_of(hash: u64) -> usize {
    (hash >> 32) as usize % SHARDS
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limits(customers: &str) -> RequestLimits {
        let limits = RequestLimits::default();
        limits.configure(&config(customers));
        limits
    }

    fn config(customers: &str) -> Config {
        let text = format!(
            "[[listeners]]\naddress = \"127.0.0.1:1\"\ncustomer = [{{ header = \"x-customer\" }}, \"address\"]\n\
             max_headers = 100\n[[routes]]\ncluster = \"a\"\n[clusters.a]\nbackends = [\"127.0.0.1:80\"]\n\
             max_active_requests_per_client = 5\n{customers}"
        );
        Config::parse("test", &text).unwrap_or_else(|error| panic!("{error}"))
    }

    fn passed(limits: &RequestLimits, customer: Option<&str>, requests: usize) -> usize {
        (0..requests).filter(|_| limits.take(customer.map(str::as_bytes)).is_ok()).count()
    }

    #[tokio::test(start_paused = true)]
    async fn each_customer_has_its_own_bucket_on_all_threads_together() {
        let limits = limits("[customers.acme]\nrequests_per_second = 5\n[other_customers]\nrequests_per_second = 2\n");
        let all = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..4).map(|_| scope.spawn(|| passed(&limits, Some("acme"), 10))).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).sum::<usize>()
        });
        // The threads have clocks that go on: 40 decisions take no fifth of a second.
        assert_eq!(all, 5);
        let others = [Some("10.0.0.1"), Some("10.0.0.2"), None];
        assert_eq!(others.map(|name| passed(&limits, name, 10)), [2, 2, 2]);
        let counts = limits.counts();
        let counts: Vec<_> = counts.iter().map(|(name, decision, count)| (&**name, *decision, *count)).collect();
        let expected = [
            ("acme", "admitted", 5),
            ("acme", "rate-limit", 35),
            ("other", "admitted", 6),
            ("other", "rate-limit", 24),
        ];
        assert_eq!(counts, expected);
    }

    #[tokio::test(start_paused = true)]
    async fn buckets_and_counts_survive_a_reload() {
        let text = "[customers.acme]\nrequests_per_second = 5\n[other_customers]\nrequests_per_second = 2\n";
        let limits = limits(text);
        assert_eq!((passed(&limits, Some("acme"), 9), passed(&limits, Some("b"), 9)), (5, 2));
        limits.configure(&config(text));
        assert_eq!((passed(&limits, Some("acme"), 9), passed(&limits, Some("b"), 9)), (0, 0));
        limits.configure(&config("[customers.acme]\nrequests_per_second = 500\nburst = 500\n"));
        assert_eq!(
            (passed(&limits, Some("acme"), 9), passed(&limits, Some("b"), 9)),
            (0, 9),
            "an empty bucket stays so"
        );
        tokio::time::advance(std::time::Duration::from_millis(10)).await;
        assert_eq!(passed(&limits, Some("acme"), 9), 5, "at the new rate");
        assert_eq!(limits.counts()[0], ("acme".into(), "admitted", 10));
        limits.configure(&config(""));
        assert!(!limits.is_on() && limits.counts().is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn dry_run_counts_and_rejects_nothing() {
        let limits = limits("[other_customers]\nrequests_per_second = 1\ndry_run = true\n");
        let over = (0..10).filter_map(|_| limits.take(None).err()).collect::<Vec<_>>();
        assert!(over.len() == 9 && over.iter().all(|over| over.shed().is_none()));
    }
}
