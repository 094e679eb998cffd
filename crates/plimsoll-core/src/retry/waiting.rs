//! Bounds the requests that wait before a retry, and the memory that they hold.
//!
//! A request that waits holds its connection, its head and the kept part of its body. Nothing else
//! bounds such waits: the request is at no backend, and in no queue. A backend that answers all
//! requests with `Retry-After: 1` would fill the memory of its clients with a second of requests.
//! So a cluster has [`Waiting::PLACES`] places. A request takes one place for each begun
//! [`Waiting::PLACE_BYTES`] of its kept body, and at least one.
//!
//! One client must not take all of them. A *dynamic threshold* bounds each holder, as for slots
//! ([`slots`](crate::slots)): a request may wait while
//!
//! ```text
//! held + wanted <= reserve * free          free: the places that are free with this request
//! ```
//!
//! The first request of a holder has no other rule, but for one place: with a large body it would
//! take all places alone. One greedy client stops at half of the places, `n` of them at `n / (n + 1)` together. Work (a route
//! or an endpoint) has a higher bound, since all clients of a failing endpoint wait for the same one.
//!
//! A request without a place is answered at once with its last failure. That is also the better
//! answer: with so much waiting, most retries would find the budget exhausted.

use crate::slots::{Holders, Shares};

/// Multiple of the free places that one client may hold: half of all places are left to others.
const CLIENT_RESERVE: u32 = 1;

/// The same for one kind of work: a fifth is left to others.
const WORK_RESERVE: u32 = 4;

/// Places of one waiting request; [`Waiting::give_back`] takes them.
#[derive(Debug, PartialEq, Eq)]
#[must_use]
pub struct Places(u32);

/// The requests of a cluster that wait before a retry. Needs no memory before the first one.
#[derive(Clone, Debug, Default)]
pub struct Waiting {
    holders: Option<(Shares, Shares)>,
    used: u32,
}

impl Waiting {
    /// Places for waiting requests of a cluster: as many as may wait for a backend by default.
    pub const PLACES: u32 = 1024;

    /// Bytes of kept body in one place. All places are 16 MiB together.
    pub const PLACE_BYTES: usize = 16 * 1024;

    /// Takes places for a request with this many kept bytes; `None` if it may not wait.
    pub fn take(&mut self, holders: Holders, bytes: usize) -> Option<Places> {
        let wanted = u32::try_from(bytes.div_ceil(Self::PLACE_BYTES)).unwrap_or(u32::MAX).max(1);
        let free = (Self::PLACES - self.used).checked_sub(wanted)?;
        let (clients, works) =
            self.holders.get_or_insert_with(|| (Shares::new(CLIENT_RESERVE), Shares::new(WORK_RESERVE)));
        let has_share = |held: u32, reserve: u32| held + wanted <= (free * reserve).max(1);
        let may_wait = has_share(clients.held(holders.client), CLIENT_RESERVE)
            && has_share(works.held(holders.work), WORK_RESERVE);
        may_wait.then(|| {
            self.used += wanted;
            for _ in 0..wanted {
                clients.take(holders.client);
                works.take(holders.work);
            }
            Places(wanted)
        })
    }

    /// The request of these holders waits no longer.
    pub fn give_back(&mut self, holders: Holders, Places(places): Places) {
        self.used = self.used.saturating_sub(places);
        let Some((clients, works)) = &mut self.holders else { return };
        for _ in 0..places {
            clients.give_back(holders.client);
            works.give_back(holders.work);
        }
    }

    /// Places in use.
    #[must_use]
    pub fn used(&self) -> u32 {
        self.used
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use super::*;
    use crate::slots::Holder;

    const KIB: usize = 1024;

    fn of(client: u64, work: u64) -> Holders {
        // An odd multiplier spreads small numbers over all bits.
        let holder = |number: u64| Holder::new(number.wrapping_mul(0x9E37_79B9_7F4A_7C15));
        Holders { client: holder(client), work: holder(work) }
    }

    /// Requests of these holders that may wait together.
    fn fill(waiting: &mut Waiting, holders: Holders, bytes: usize) -> Vec<Places> {
        core::iter::from_fn(|| waiting.take(holders, bytes)).collect()
    }

    #[test]
    fn single_client_fills_half_and_the_next_ones_find_places() {
        let mut waiting = Waiting::default();
        assert_eq!(fill(&mut waiting, of(1, 1), 0).len(), 512);
        assert_eq!(fill(&mut waiting, of(2, 2), 0).len(), 256);
        assert_eq!(fill(&mut waiting, of(3, 3), 0).len(), 128);
        assert_eq!(waiting.used(), 896);
    }

    #[test]
    fn work_of_many_clients_leaves_places_to_other_work() {
        let mut waiting = Waiting::default();
        let taken = (0..2_000).filter_map(|client| waiting.take(of(client, 9), 0)).count();
        assert_eq!(taken, 819, "four fifths");
        assert!(waiting.take(of(5_000, 8), 0).is_some());
    }

    #[test]
    fn bytes_take_places_and_all_of_them_are_bounded() {
        let mut waiting = Waiting::default();
        assert_eq!(waiting.take(of(1, 1), 1), Some(Places(1)));
        assert_eq!(waiting.take(of(1, 1), 16 * KIB), Some(Places(1)));
        assert_eq!(waiting.take(of(1, 1), 16 * KIB + 1), Some(Places(2)));
        assert_eq!(fill(&mut Waiting::default(), of(1, 1), 64 * KIB).len(), 128);
        let mut waiting = Waiting::default();
        let bytes: usize = (0..10_000).filter_map(|n| waiting.take(of(n, n), 64 * KIB)).map(|_| 64 * KIB).sum();
        assert_eq!(bytes, 16 * KIB * KIB - 64 * KIB, "the last ones are for small requests");
        assert_eq!((0..5).filter_map(|n| waiting.take(of(20_000 + n, 20_000 + n), 0)).count(), 4);
        assert_eq!(waiting.take(of(30_000, 30_000), 0), None, "no place is free");
        assert_eq!(Waiting::default().take(of(1, 1), usize::MAX), None);
    }

    #[test]
    fn first_request_of_a_client_leaves_half_of_the_places() {
        for mib in [9, 15, 16] {
            assert_eq!(Waiting::default().take(of(1, 1), mib * KIB * KIB), None, "{mib} MiB of 16");
        }
        let mut waiting = Waiting::default();
        assert_eq!(waiting.take(of(1, 1), 8 * KIB * KIB), Some(Places(512)));
        assert_eq!(waiting.take(of(1, 2), 0), None, "its share is used up");
        assert_eq!(fill(&mut waiting, of(2, 2), 0).len(), 256, "as if it had many small ones");
        assert_eq!(waiting.take(of(3, 3), 3 * KIB * KIB), None);
        assert_eq!(waiting.take(of(3, 3), 2 * KIB * KIB), Some(Places(128)));
    }

    #[test]
    fn place_is_free_again_when_its_request_waits_no_longer() {
        let mut waiting = Waiting::default();
        let taken = fill(&mut waiting, of(1, 1), 40 * KIB);
        taken.into_iter().for_each(|places| waiting.give_back(of(1, 1), places));
        assert_eq!(waiting.used(), 0);
        assert_eq!(fill(&mut waiting, of(1, 1), 0).len(), 512);
    }
}
