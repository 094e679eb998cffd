//! Who holds the slots of a cluster, so that one client or one route cannot take them from all others.
//!
//! A slot is the right of one request to be at a backend: `max_active_requests` of them at each
//! ([`Balancer`](crate::Balancer)). Three decisions share them out:
//!
//! - [`Shares`]: may this holder take one more slot, or is the rest kept for others?
//! - [`Queue`](crate::queue::Queue): which of the waiting requests gets the next free slot?
//! - [`preempt`]: which request ends early when a slot is wanted and its holder only waits for its client?
//!
//! The shell names the holders of each request ([`Holders`]); this module never learns an address or a name.

pub mod preempt;
mod shares;

pub use shares::{RESERVE, Shares};

use crate::Timestamp;

/// Somebody who holds slots: a client address, a customer, a route. Equal values are the same holder.
///
/// The value is a hash with a key of the process, so that no client can choose with whom it shares a counter.
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
    /// On whose behalf the request is made: an address, a certificate or a customer.
    pub client: Holder,
    /// Which work it asks for: a route or an endpoint.
    pub work: Holder,
}

/// The slots of a cluster by each kind of holder. A request takes one only if each of its holders may.
#[derive(Clone, Debug, Default)]
pub struct Slots {
    clients: Shares,
    works: Shares,
}

impl Slots {
    /// A request of these holders has arrived. Call it for each, whether it then takes a slot or not.
    pub fn on_arrival(&mut self, now: Timestamp, holders: Holders) {
        self.clients.on_arrival(now, holders.client);
        self.works.on_arrival(now, holders.work);
    }

    /// Whether a request of these holders may take one of `capacity` slots.
    #[must_use]
    pub fn may_take(&self, now: Timestamp, holders: Holders, capacity: u32) -> bool {
        self.clients.may_take(now, holders.client, capacity) && self.works.may_take(now, holders.work, capacity)
    }

    /// A request of these holders has taken a slot. [`Slots::give_back`] must follow.
    pub fn take(&mut self, holders: Holders) {
        self.clients.take(holders.client);
        self.works.take(holders.work);
    }

    /// A request of these holders has given its slot back.
    pub fn give_back(&mut self, holders: Holders) {
        self.clients.give_back(holders.client);
        self.works.give_back(holders.work);
    }

    /// Slots of this client, or a few more.
    #[must_use]
    pub fn held_by_client(&self, holders: Holders) -> u32 {
        self.clients.held(holders.client)
    }
}
