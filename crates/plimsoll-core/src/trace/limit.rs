//! The rate of recorded requests: a total, and the part of it that one client may take.
//!
//! A request that is recorded costs some microseconds and half a kilobyte. A client
//! with all of its requests recorded could slow the proxy, and leave nothing for the traces of others. So both
//! the total and each client have a token bucket: a rate, and one second of it at once.
//!
//! Clients are counted in a table of fixed size, by their keyed hash. Two clients of one row share
//! its rate, which only records fewer of their requests: with 1,000 active clients, 62% share. A map
//! of clients would have to be bounded and evicted, and an attacker with many addresses chooses
//! the moment.

use alloc::boxed::Box;
use core::num::NonZeroU32;

use crate::Timestamp;
use crate::gcra::Due;
use crate::slots::Holder;

/// Rows of the table: 8 KiB.
const ROWS: usize = 1024;

/// The rates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RateLimits {
    /// Recorded requests a second, of all clients together.
    pub total: NonZeroU32,
    /// The same of one client.
    pub per_client: NonZeroU32,
}

/// Bounds the rate of recorded requests.
#[derive(Clone, Debug)]
pub struct RateLimit {
    total: Due,
    clients: Box<[Due; ROWS]>,
}

impl Default for RateLimit {
    fn default() -> Self {
        Self { total: Due::default(), clients: Box::new([Due::default(); ROWS]) }
    }
}

impl RateLimit {
    /// Whether one more request of `client` may be recorded at `now`. Takes from both buckets, or
    /// from none.
    pub fn admit(&mut self, now: Timestamp, client: Holder, limits: RateLimits) -> bool {
        let row = &mut self.clients[client.hash() as usize % ROWS];
        let (Some(total), Some(of_client)) = (self.total.after(now, limits.total), row.after(now, limits.per_client))
        else {
            return false;
        };
        (self.total, *row) = (total, of_client);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: RateLimits =
        RateLimits { total: NonZeroU32::new(100).unwrap(), per_client: NonZeroU32::new(10).unwrap() };

    /// Requests of `clients` clients that are recorded over ten seconds, at 1,000 a second.
    fn recorded(limit: &mut RateLimit, clients: u64) -> u32 {
        (0..10_000)
            .map(|i| u32::from(limit.admit(Timestamp::from_nanos(i * 1_000_000), Holder::new(i % clients), LIMITS)))
            .sum()
    }

    #[test]
    fn one_client_gets_its_own_rate_and_all_together_get_the_total() {
        // The second that a full bucket holds, and the rate until the last request, at 9.999 s.
        assert_eq!(recorded(&mut RateLimit::default(), 1), 109);
        assert_eq!(recorded(&mut RateLimit::default(), 500), 1_099);
    }

    #[test]
    fn greedy_client_leaves_the_total_to_others() {
        let mut limit = RateLimit::default();
        let now = Timestamp::ZERO;
        let greedy = (0..1_000).filter(|_| limit.admit(now, Holder::new(7), LIMITS)).count();
        assert_eq!(greedy, 10);
        assert!(limit.admit(now, Holder::new(8), LIMITS));
    }

    #[test]
    fn refused_request_of_a_client_takes_nothing_of_the_total() {
        let mut limit = RateLimit::default();
        for _ in 0..1_000 {
            limit.admit(Timestamp::ZERO, Holder::new(7), LIMITS);
        }
        let others = (0..1_000).filter(|i| limit.admit(Timestamp::ZERO, Holder::new(8 + i), LIMITS)).count();
        assert_eq!(others, 90);
    }
}
