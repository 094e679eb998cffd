//! The most slots that one client may hold, where a number is set.
//!
//! [`Shares`](super::Shares) lets a client hold nearly all slots while nobody else needs them. Some
//! services want a fixed bound: each request pins a worker, or a client pays for a number of them.
//! Then a client at its limit waits for its own requests to end, and others pass by
//! ([`Queue::serve`](crate::queue::Queue::serve)).
//!
//! Counts are exact, other than those of `Shares`. There an estimate that is too high costs a client
//! some slots of many. Here it could leave an honest client none at all, because strangers hold
//! theirs. A holder with no slot has no entry, so memory is bounded by the slots in use.
//!
//! Nothing is counted without a limit. After a change from none, requests in flight do not count, and
//! their ends count for requests that came later: a client may exceed the limit until they have
//! ended.

use core::num::NonZeroU32;

use hashbrown::HashTable;

use super::Holder;

/// Slots in use by client, and their limit.
#[derive(Clone, Debug)]
pub struct ClientLimit {
    max: NonZeroU32,
    /// Clients with slots.
    held: HashTable<(Holder, u32)>,
}

impl ClientLimit {
    /// At most `max` slots of one client; none in use.
    #[must_use]
    pub fn new(max: NonZeroU32) -> Self {
        Self { max, held: HashTable::new() }
    }

    /// Changes the limit; slots in use still count.
    pub fn set(&mut self, max: NonZeroU32) {
        self.max = max;
    }

    /// Whether `client` may take one more slot.
    #[must_use]
    pub fn may_take(&self, client: Holder) -> bool {
        self.held(client) < self.max.get()
    }

    /// Slots of `client`.
    #[must_use]
    pub fn held(&self, client: Holder) -> u32 {
        self.held.find(client.hash(), |(holder, _)| *holder == client).map_or(0, |(_, held)| *held)
    }

    /// Counts a slot taken by `client`.
    pub fn take(&mut self, client: Holder) {
        let hash = |(holder, _): &(Holder, u32)| holder.hash();
        self.held.entry(client.hash(), |(holder, _)| *holder == client, hash).or_insert((client, 0)).get_mut().1 += 1;
    }

    /// Counts a slot given back by `client`.
    pub fn give_back(&mut self, client: Holder) {
        if let Ok(mut entry) = self.held.find_entry(client.hash(), |(holder, _)| *holder == client) {
            entry.get_mut().1 -= 1;
            if entry.get().1 == 0 {
                entry.remove();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limit(max: u32) -> ClientLimit {
        ClientLimit::new(NonZeroU32::new(max).unwrap())
    }

    #[test]
    fn client_takes_its_limit_and_no_more_until_it_gives_back() {
        let (mut limit, client) = (limit(2), Holder::new(1));
        for held in 0..2 {
            assert!(limit.may_take(client));
            assert_eq!(limit.held(client), held);
            limit.take(client);
        }
        assert!(!limit.may_take(client) && limit.may_take(Holder::new(2)));
        limit.give_back(client);
        assert!(limit.may_take(client));
    }

    #[test]
    fn clients_without_slots_take_no_memory() {
        let mut limit = limit(3);
        for client in 0..1_000 {
            limit.take(Holder::new(client));
            limit.give_back(Holder::new(client));
            limit.give_back(Holder::new(client));
        }
        assert!(limit.held.is_empty());
    }

    #[test]
    fn other_limit_counts_the_slots_in_use() {
        let (mut limit, client) = (limit(1), Holder::new(1));
        limit.take(client);
        limit.set(NonZeroU32::new(2).unwrap());
        assert!(limit.may_take(client));
        limit.take(client);
        limit.set(NonZeroU32::MIN);
        limit.give_back(client);
        assert!(!limit.may_take(client));
    }
}
