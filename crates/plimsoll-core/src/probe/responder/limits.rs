//! The queries that a responder accepts: a rate for each source, and one for the process.
//!
//! A source is an IPv4 address or an IPv6 /64, since one host may use any address of its /64.
//! Sources are counted in a table of fixed size, by their keyed hash. Two sources of one row share
//! its rate, which is far above the need of both. A map of sources would grow with spoofed
//! addresses.
//!
//! The limits count queries with a valid MAC, so only the holder of a key can use them up.

use alloc::boxed::Box;
use core::net::IpAddr;
use core::num::NonZeroU32;

use twox_hash::XxHash64;

use crate::Timestamp;
use crate::gcra::Due;

/// Rows of the table: 32 KiB. Of 4,096 others, a flooding source slows one on average.
const ROWS: usize = 4096;

/// The queries per second that a responder accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueryLimits {
    /// From one source: an IPv4 address or an IPv6 /64.
    pub per_source: NonZeroU32,
    /// From all sources together.
    pub total: NonZeroU32,
}

impl QueryLimits {
    /// A hundred clients behind one address, with two queries a second each.
    pub const DEFAULT_PER_SOURCE: NonZeroU32 = NonZeroU32::new(200).expect("not zero");
    /// A fifth of a core.
    pub const DEFAULT_TOTAL: NonZeroU32 = NonZeroU32::new(50_000).expect("not zero");
}

impl Default for QueryLimits {
    fn default() -> Self {
        Self { per_source: Self::DEFAULT_PER_SOURCE, total: Self::DEFAULT_TOTAL }
    }
}

/// The limit that a query exceeded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ExceededLimit {
    /// That of its source.
    Source,
    /// That of the process.
    Total,
}

/// Counts queries.
#[derive(Clone, Debug)]
pub(super) struct QueryRates {
    limits: QueryLimits,
    hash_seed: u64,
    sources: Box<[Due]>,
    total: Due,
}

impl QueryRates {
    pub(super) fn new(limits: QueryLimits, hash_seed: u64) -> Self {
        Self { limits, hash_seed, sources: alloc::vec![Due::default(); ROWS].into(), total: Due::default() }
    }

    /// Takes one query from both rates, or from none.
    pub(super) fn take(&mut self, now: Timestamp, source: IpAddr) -> Result<(), ExceededLimit> {
        let row = self.row(source);
        let source = self.sources[row].after(now, self.limits.per_source).ok_or(ExceededLimit::Source)?;
        let total = self.total.after(now, self.limits.total).ok_or(ExceededLimit::Total)?;
        (self.sources[row], self.total) = (source, total);
        Ok(())
    }

    /// Whether more than half of the burst of the process is used up.
    pub(super) fn is_pressed(&self, now: Timestamp) -> bool {
        self.total.wait(now).as_nanos() > 500_000_000
    }

    fn row(&self, source: IpAddr) -> usize {
        let hash = match source.to_canonical() {
            IpAddr::V4(address) => XxHash64::oneshot(self.hash_seed, &address.octets()),
            IpAddr::V6(address) => XxHash64::oneshot(self.hash_seed, &address.octets()[..8]),
        };
        hash as usize % ROWS
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    /// Queries accepted of 10,000 within a second.
    fn accepted(rates: &mut QueryRates, source: impl Fn(u64) -> IpAddr) -> usize {
        (0..10_000).filter(|i| rates.take(Timestamp::from_nanos(i * 100_000), source(*i)).is_ok()).count()
    }

    #[test]
    fn source_gets_its_rate_and_a_burst_of_one_second() {
        let mut rates = QueryRates::new(QueryLimits::default(), 1);
        assert_eq!(accepted(&mut rates, |_| address("192.0.2.1")), 399);
        assert_eq!(rates.take(Timestamp::from_nanos(999_900_000), address("192.0.2.1")), Err(ExceededLimit::Source));
        assert_eq!(rates.take(Timestamp::from_nanos(999_900_000), address("192.0.2.2")), Ok(()));
    }

    #[test]
    fn addresses_of_one_ipv6_network_are_one_source() {
        let mut rates = QueryRates::new(QueryLimits::default(), 1);
        assert_eq!(accepted(&mut rates, |i| address(&std::format!("2001:db8::{:x}:{i:x}", i * 5))), 399);
        let mut rates = QueryRates::new(QueryLimits::default(), 1);
        let networks = accepted(&mut rates, |i| address(&std::format!("2001:db8:{i:x}::1")));
        assert_eq!(networks, 10_000);
    }

    #[test]
    fn mapped_address_is_the_same_source_as_the_plain_one() {
        let mut rates = QueryRates::new(QueryLimits::default(), 1);
        assert_eq!(accepted(&mut rates, |_| address("192.0.2.1")), 399);
        let late = Timestamp::from_nanos(999_900_000);
        assert_eq!(rates.take(late, address("::ffff:192.0.2.1")), Err(ExceededLimit::Source));
    }

    #[test]
    fn all_sources_together_get_the_total() {
        let limits = QueryLimits { total: NonZeroU32::new(1_000).unwrap(), ..QueryLimits::default() };
        let mut rates = QueryRates::new(limits, 1);
        assert!(!rates.is_pressed(Timestamp::ZERO));
        let source = |i: u64| IpAddr::from((i as u32).to_be_bytes());
        assert_eq!(accepted(&mut rates, source), 1_999);
        let late = Timestamp::from_nanos(999_900_000);
        assert!(rates.is_pressed(late));
        assert_eq!(rates.take(late, address("192.0.2.7")), Err(ExceededLimit::Total));
    }

    extern crate std;
}
