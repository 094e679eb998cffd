//! Fair shares of a cluster's slots, so that one client or one route cannot take them from all
//! others.
//!
//! A slot is the right of one request to be at a backend: `max_active_requests` of them at each
//! ([`Balancer`](crate::Balancer)). Four decisions share them out:
//!
//! - [`Shares`]: may this holder take one more slot, or is the rest kept for others?
//! - [`ClientLimit`]: has this client as many slots as one may have?
//! - [`Queue`](crate::queue::Queue): which of the waiting requests gets the next free slot?
//! - [`preempt`]: which request ends early when a slot is wanted and its holder only waits for its
//!   client?
//!
//! The shell names the holders of each request ([`Holders`]); this module never learns an address
//! or a name.

mod limit;
pub mod preempt;
mod shares;

use alloc::boxed::Box;
use core::num::NonZeroU32;

pub use limit::ClientLimit;
pub use shares::Shares;

use crate::Timestamp;

/// A party that holds slots: a client address, a customer, a route. Equal values are the same
/// holder.
///
/// The value is a hash with a key of the process, so that no client can choose to share another's
/// counter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Holder(u64);

impl Holder {
    /// The holder with this keyed hash.
    #[must_use]
    pub const fn new(hash: u64) -> Self {
        Self(hash)
    }

    /// Its hash.
    #[must_use]
    pub const fn hash(self) -> u64 {
        self.0
    }
}

/// The holders of one request. Each is bounded on its own; unknown ones are all the same holder.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Holders {
    /// The client that the request is made for: an address, a certificate or a customer.
    pub client: Holder,
    /// Which work it asks for: a route or an endpoint.
    pub work: Holder,
}

/// Multiple of the free slots that one client may hold: a ninth of the slots stays free of a single
/// greedy client, 22 of the 200 of two backends with default limits.
pub const CLIENT_RESERVE: u32 = 8;

/// The same for one kind of work. It is higher, since the work that one greedy client requests must
/// stay open to others.
pub const WORK_RESERVE: u32 = 32;

/// A cluster's slots by each kind of holder. A request takes one only if each of its holders may.
#[derive(Clone, Debug)]
pub struct Slots {
    clients: Shares,
    works: Shares,
    in_use: u32,
    /// `None`: no client has a limit.
    limit: Option<Box<ClientLimit>>,
}

impl Default for Slots {
    fn default() -> Self {
        Self { clients: Shares::new(CLIENT_RESERVE), works: Shares::new(WORK_RESERVE), in_use: 0, limit: None }
    }
}

impl Slots {
    /// Limits the slots of each client; `None` is no limit.
    pub fn limit_clients(&mut self, max: Option<NonZeroU32>) {
        match (max, &mut self.limit) {
            (None, limit) => *limit = None,
            (Some(max), Some(limit)) => limit.set(max),
            (Some(max), limit) => *limit = Some(Box::new(ClientLimit::new(max))),
        }
    }

    /// Whether the client of these holders has as many slots as a client may have.
    #[must_use]
    pub fn is_at_limit(&self, holders: Holders) -> bool {
        self.limit.as_ref().is_some_and(|limit| !limit.may_take(holders.client))
    }

    /// Counts an arriving request of these holders. Call it for each, whether it then takes a slot
    /// or not.
    pub fn on_arrival(&mut self, now: Timestamp, holders: Holders) {
        self.clients.on_arrival(now, holders.client);
        self.works.on_arrival(now, holders.work);
    }

    /// Whether a request of these holders may take a slot when this many are free.
    #[must_use]
    pub fn may_take(&self, now: Timestamp, holders: Holders, free: u32) -> bool {
        self.clients.may_take(now, holders.client, free)
            && self.works.may_take(now, holders.work, free)
            && !self.is_at_limit(holders)
    }

    /// Slots in use, including those at backends that get no new requests.
    #[must_use]
    pub fn in_use(&self) -> u32 {
        self.in_use
    }

    /// Counts a slot taken by a request of these holders. [`Slots::give_back`] must follow.
    pub fn take(&mut self, holders: Holders) {
        self.in_use += 1;
        self.clients.take(holders.client);
        self.works.take(holders.work);
        if let Some(limit) = &mut self.limit {
            limit.take(holders.client);
        }
    }

    /// Counts a slot given back by a request of these holders.
    pub fn give_back(&mut self, holders: Holders) {
        self.in_use = self.in_use.saturating_sub(1);
        self.clients.give_back(holders.client);
        self.works.give_back(holders.work);
        if let Some(limit) = &mut self.limit {
            limit.give_back(holders.client);
        }
    }

    /// Slots of this client, or a few more.
    #[must_use]
    pub fn held_by_client(&self, holders: Holders) -> u32 {
        self.clients.held(holders.client)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_of_a_greedy_client_stays_open_to_others() {
        let (now, mut slots) = (Timestamp::ZERO, Slots::default());
        let of = |client: u64| Holders { client: Holder::new(client << 32 | client), work: Holder::new(7) };
        (1..=2).for_each(|client| slots.on_arrival(now, of(client)));
        slots.on_arrival(now, Holders { work: Holder::new(8), ..of(1) });
        let mut free = 200;
        while slots.may_take(now, of(1), free) {
            slots.take(of(1));
            free -= 1;
        }
        assert_eq!((free, slots.in_use()), (22, 178));
        assert!(slots.may_take(now, of(2), free));
    }

    #[test]
    fn client_at_its_limit_takes_no_slot_and_others_do() {
        let (now, mut slots) = (Timestamp::ZERO, Slots::default());
        slots.limit_clients(NonZeroU32::new(3));
        let of = |client: u64| Holders { client: Holder::new(client), work: Holder::new(7) };
        while slots.may_take(now, of(1), 200) {
            slots.take(of(1));
        }
        assert_eq!((slots.in_use(), slots.is_at_limit(of(1)), slots.is_at_limit(of(2))), (3, true, false));
        assert!(slots.may_take(now, of(2), 1));
        slots.give_back(of(1));
        assert!(slots.may_take(now, of(1), 200));
        slots.limit_clients(None);
        (0..10).for_each(|_| slots.take(of(1)));
        assert!(slots.may_take(now, of(1), 200));
    }

    #[test]
    fn slot_given_back_is_free_for_its_client_and_its_work() {
        let mut slots = Slots::default();
        let holders = Holders { client: Holder::new(1), work: Holder::new(2) };
        (0..3).for_each(|_| slots.take(holders));
        assert_eq!((slots.held_by_client(holders), slots.works.held(holders.work), slots.in_use()), (3, 3, 3));
        slots.give_back(holders);
        assert_eq!((slots.held_by_client(holders), slots.works.held(holders.work), slots.in_use()), (2, 2, 2));
    }
}
