//! Until when a holder may rely on its lease, by its own clock.
//!
//! The store counts the time of a lease from the moment at which it handles the renewal. The holder
//! cannot see that moment; it lies between the sending of the renewal and its answer. So the holder
//! counts from the **sending** of the last renewal that was answered:
//!
//! ```text
//! expires = sent + TTL · (1 − 1%)      of all answered renewals, the latest
//! ```
//!
//! No clocks are compared, only rates: clocks of machines differ by less than 0.1%, so 1% covers
//! them with a margin. Rejected: to count from the answer. An answer that was delayed by 5 s would
//! let the holder believe for 5 s in a lease that another may hold.
//!
//! `could_have_expired` is a warning and no proof: the store may have renewed a lease whose answer
//! was lost. So a cautious holder stops early and none stops late.
//!
//! Where it is weak: a process that is stopped between its look at the clock and its action acts
//! late. Only a comparison in the store ("the key still has my revision") excludes that.
//!
//! Source: etcd documentation, "Lease API" (a lease expires no earlier than its TTL after the last
//! renewal; the store may grant another TTL than requested, so the answer's counts).

use core::time::Duration;

use crate::Timestamp;

/// The part of a lease's time that is left out, for clocks of different rates: one hundredth.
const CLOCK_MARGIN: u32 = 100;
/// Renewals in the time of a lease: two may be lost before it expires.
const RENEWALS: u32 = 3;

/// The last answered renewal.
#[derive(Clone, Copy, Debug)]
struct Renewal {
    sent: Timestamp,
    ttl: Duration,
}

impl Renewal {
    fn expires(&self) -> Timestamp {
        self.sent + (self.ttl - self.ttl / CLOCK_MARGIN)
    }
}

/// A lease as its holder sees it.
#[derive(Clone, Copy, Debug, Default)]
pub struct HeldLease {
    last: Option<Renewal>,
}

impl HeldLease {
    /// No lease yet.
    #[must_use]
    pub const fn new() -> Self {
        Self { last: None }
    }

    /// The store granted or renewed the lease for `ttl`, in answer to a request sent at `sent`.
    /// Answers may come in any order.
    pub fn on_answer(&mut self, sent: Timestamp, ttl: Duration) {
        let renewal = Renewal { sent, ttl };
        if self.last.is_none_or(|last| last.expires() < renewal.expires()) {
            self.last = Some(renewal);
        }
    }

    /// The store answered that there is no such lease.
    pub fn on_lost(&mut self) {
        self.last = None;
    }

    /// The time until which the lease is alive for certain; `None` without a lease.
    #[must_use]
    pub fn expires(&self) -> Option<Timestamp> {
        self.last.map(|last| last.expires())
    }

    /// Whether the store could have ended the lease by `now`.
    #[must_use]
    pub fn could_have_expired(&self, now: Timestamp) -> bool {
        self.expires().is_none_or(|expires| now >= expires)
    }

    /// The time of the next renewal: a third of the lease after the last one. `None` without a
    /// lease.
    #[must_use]
    pub fn renew_at(&self) -> Option<Timestamp> {
        self.last.map(|last| last.sent + last.ttl / RENEWALS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Timestamp {
        Timestamp::from_origin(Duration::from_millis(millis))
    }

    const TTL: Duration = Duration::from_secs(10);

    #[test]
    fn lease_lasts_from_the_sending_of_the_answered_renewal() {
        let mut lease = HeldLease::new();
        assert!(lease.could_have_expired(at(0)) && lease.renew_at().is_none());
        lease.on_answer(at(1_000), TTL);
        assert!(!lease.could_have_expired(at(10_899)));
        assert!(lease.could_have_expired(at(10_900)));
        assert_eq!(lease.renew_at(), Some(at(1_000) + TTL / 3));
    }

    #[test]
    fn late_answer_to_an_early_renewal_shortens_nothing() {
        let mut lease = HeldLease::new();
        lease.on_answer(at(4_000), TTL);
        lease.on_answer(at(1_000), TTL);
        assert_eq!(lease.expires(), Some(at(13_900)));
        lease.on_answer(at(7_000), TTL);
        assert_eq!(lease.expires(), Some(at(16_900)));
    }

    #[test]
    fn lost_lease_is_over_until_the_next_grant() {
        let mut lease = HeldLease::new();
        lease.on_answer(at(0), TTL);
        lease.on_lost();
        assert!(lease.could_have_expired(at(1)) && lease.expires().is_none());
        lease.on_answer(at(2_000), TTL);
        assert!(!lease.could_have_expired(at(2_001)));
    }

    #[test]
    fn zero_ttl_is_no_lease() {
        let mut lease = HeldLease::new();
        lease.on_answer(at(5), Duration::ZERO);
        assert!(lease.could_have_expired(at(5)));
    }
}
