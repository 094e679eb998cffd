//! The connections of all clients and backends: the facts behind the decisions of the
//! [`Ledger`](super::Ledger). They are kept such that each of its questions is answered without a
//! search.
//!
//! Clients and backends have slots, which are reused. Backends are sorted by their number of
//! connections. A journal holds the net changes of the current event; a move there and back leaves
//! no entry.
//!
//! **Every order is by id or key**, never by slot or by time. So an answer depends on the clients,
//! the backends and their connections alone, and not on the events that led to them: a book that
//! was restored from the connections gives the same answers. The cost is an insertion into a sorted
//! list for each connection, 2 kB to move for a backend with 1,000 clients.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use core::mem;

use super::super::strata::{self, Kind};
use super::super::{Backend, rendezvous, seeds};
use super::Change;

/// A client.
#[derive(Clone, Debug)]
struct Client {
    id: u64,
    /// By key.
    backends: Vec<u32>,
}

/// A backend.
#[derive(Clone, Debug)]
struct BackendEntry {
    key: u64,
    /// By id.
    clients: Vec<u32>,
    kind: Kind,
}

/// A change of one connection.
#[derive(Clone, Copy, Debug)]
struct Entry {
    client: u32,
    /// Whether the event connected the two or disconnected them.
    is_connected: bool,
}

/// The connections.
#[derive(Clone, Debug, Default)]
pub(super) struct Book {
    seed: u64,
    clients: Vec<Client>,
    backends: Vec<BackendEntry>,
    free_clients: Vec<u32>,
    free_backends: Vec<u32>,
    /// The slot of each client, by its id.
    by_id: BTreeMap<u64, u32>,
    /// The slot of each backend, by its key.
    by_key: BTreeMap<u64, u32>,
    /// Connections, key and slot of each backend.
    levels: BTreeSet<(u32, u64, u32)>,
    /// Number of backends in each domain.
    domains: BTreeMap<u32, u32>,
    /// Number of backends of each size.
    sizes: BTreeMap<u16, u32>,
    /// Number of backends of each kind.
    kinds: BTreeMap<Kind, u32>,
    /// The changes of this event, by the key of the backend and the id of the client.
    journal: BTreeMap<(u64, u64), Entry>,
}

impl Book {
    pub(super) fn new(seed: u64) -> Self {
        Self { seed, ..Self::default() }
    }

    /// The slots of all clients, by id.
    pub(super) fn clients(&self) -> Vec<u32> {
        self.by_id.values().copied().collect()
    }

    /// Number of backends.
    pub(super) fn backends(&self) -> usize {
        self.by_key.len()
    }

    /// The slot of the client with this id.
    pub(super) fn client(&self, id: u64) -> Option<u32> {
        self.by_id.get(&id).copied()
    }

    /// The slot of the backend with this key.
    pub(super) fn backend(&self, key: u64) -> Option<u32> {
        self.by_key.get(&key).copied()
    }

    /// The id of a client.
    pub(super) fn id(&self, client: u32) -> u64 {
        self.clients[client as usize].id
    }

    /// The key of a backend.
    pub(super) fn key(&self, backend: u32) -> u64 {
        self.backends[backend as usize].key
    }

    /// The backends of a client.
    pub(super) fn backends_of(&self, client: u32) -> &[u32] {
        &self.clients[client as usize].backends
    }

    /// The clients of a backend.
    pub(super) fn clients_of(&self, backend: u32) -> &[u32] {
        &self.backends[backend as usize].clients
    }

    /// The kind of a backend.
    pub(super) fn kind(&self, backend: u32) -> Kind {
        self.backends[backend as usize].kind
    }

    /// Connections and slot of each backend, the least loaded first.
    pub(super) fn levels(&self) -> impl Iterator<Item = (u32, u32)> {
        self.levels.iter().map(|(level, _, backend)| (*level, *backend))
    }

    /// The least and the most loaded backend, if they are at least 2 connections apart.
    pub(super) fn imbalance(&self) -> Option<(u32, u32)> {
        let ((least, _, least_loaded), (most, _, most_loaded)) = (*self.levels.first()?, *self.levels.last()?);
        (most > least + 1).then_some((least_loaded, most_loaded))
    }

    /// The hash that decides among equals.
    pub(super) fn rank(&self, client: u32, backend: u32) -> u64 {
        rendezvous::rank(rendezvous::client_seed(self.seed, self.clients[client as usize].id), self.key(backend))
    }

    /// A number below `n`, which is not zero, that depends on the pair.
    pub(super) fn index_for_pair(&self, a: u32, b: u32, n: usize) -> usize {
        (seeds::mix(seeds::mix(self.seed, self.key(a)), self.key(b)) % n as u64) as usize
    }

    /// Number of backends of a kind.
    pub(super) fn count(&self, kind: Kind) -> u32 {
        self.kinds[&kind]
    }

    /// Numbers of a client's backends in the domain and of the size of `kind`, except `without`.
    fn alike(&self, client: u32, kind: Kind, without: Option<u32>) -> (u32, u32) {
        let kinds = self.backends_of(client).iter().filter(|b| Some(**b) != without).map(|b| self.kind(*b));
        kinds.fold((0, 0), |(domain, size), other| {
            (domain + u32::from(other.0 == kind.0), size + u32::from(other.1 == kind.1))
        })
    }

    /// Whether a client with `size` backends has its share of the domain of `kind`, plus whether it
    /// has its share of the size: 0 to 2.
    pub(super) fn full(&self, client: u32, kind: Kind, size: usize) -> u8 {
        let has = self.alike(client, kind, None);
        let share = |of: u32| (size as u64 * u64::from(of)).div_ceil(self.backends() as u64);
        u8::from(u64::from(has.0) >= share(self.domains[&kind.0]))
            + u8::from(u64::from(has.1) >= share(self.sizes[&kind.1]))
    }

    /// Crowding of a client's subset with one more of `kind` in place of `without`. The sum of two
    /// shares: of the cluster's backends in the kind's domain, and of those of its size.
    pub(super) fn crowding(&self, client: u32, kind: Kind, without: Option<u32>) -> f64 {
        let has = self.alike(client, kind, without);
        f64::from(has.0 + 1) / f64::from(self.domains[&kind.0]) + f64::from(has.1 + 1) / f64::from(self.sizes[&kind.1])
    }

    /// The clients that this event connected to `backend`.
    pub(super) fn connected_clients(&self, backend: u32) -> impl Iterator<Item = u32> {
        self.journaled(backend, true)
    }

    /// The clients that this event disconnected from `backend`.
    pub(super) fn disconnected_clients(&self, backend: u32) -> impl Iterator<Item = u32> {
        self.journaled(backend, false)
    }

    fn journaled(&self, backend: u32, connected: bool) -> impl Iterator<Item = u32> {
        let key = self.key(backend);
        let of_backend = self.journal.range((key, 0)..=(key, u64::MAX));
        of_backend.filter(move |(_, entry)| entry.is_connected == connected).map(|(_, entry)| entry.client)
    }

    /// Whether this event has changed anything so far.
    pub(super) fn is_changed(&self) -> bool {
        !self.journal.is_empty()
    }

    /// Adds a client without backends.
    pub(super) fn add_client(&mut self, id: u64) -> u32 {
        let slot = settle(&mut self.clients, &mut self.free_clients, Client { id, backends: Vec::new() });
        self.by_id.insert(id, slot);
        slot
    }

    /// Removes a client with its connections, without an entry in the journal.
    pub(super) fn remove_client(&mut self, client: u32) {
        for backend in mem::take(&mut self.clients[client as usize].backends) {
            self.unlink(client, backend);
        }
        self.by_id.remove(&self.clients[client as usize].id);
        self.free_clients.push(client);
    }

    /// Adds a backend without clients.
    pub(super) fn add_backend(&mut self, backend: &Backend) -> u32 {
        let kind = strata::kind(backend);
        let entry = BackendEntry { key: backend.key, clients: Vec::new(), kind };
        let slot = settle(&mut self.backends, &mut self.free_backends, entry);
        self.count_in(kind);
        self.by_key.insert(backend.key, slot);
        self.levels.insert((0, backend.key, slot));
        slot
    }

    /// Removes a backend, and returns its clients.
    pub(super) fn remove_backend(&mut self, backend: u32) -> Vec<u32> {
        let clients = self.clients_of(backend).to_vec();
        for client in &clients {
            self.disconnect(*client, backend);
        }
        self.count_out(self.kind(backend));
        self.by_key.remove(&self.key(backend));
        self.levels.remove(&(0, self.key(backend), backend));
        self.free_backends.push(backend);
        clients
    }

    /// Sets the domain and size of a backend. Its connections stay.
    pub(super) fn set_kind(&mut self, backend: u32, kind: Kind) {
        self.count_out(self.kind(backend));
        self.backends[backend as usize].kind = kind;
        self.count_in(kind);
    }

    fn count_in(&mut self, kind: Kind) {
        *self.domains.entry(kind.0).or_default() += 1;
        *self.sizes.entry(kind.1).or_default() += 1;
        *self.kinds.entry(kind).or_default() += 1;
    }

    fn count_out(&mut self, kind: Kind) {
        decrement(&mut self.domains, kind.0);
        decrement(&mut self.sizes, kind.1);
        decrement(&mut self.kinds, kind);
    }

    /// Connects the two, which are not connected.
    pub(super) fn connect(&mut self, client: u32, backend: u32) {
        let at = self.position_of_backend(client, backend).unwrap_or_else(|at| at);
        self.clients[client as usize].backends.insert(at, backend);
        let at = self.position_of_client(backend, client).unwrap_or_else(|at| at);
        self.backends[backend as usize].clients.insert(at, client);
        self.sort_anew(backend, self.clients_of(backend).len() - 1, self.clients_of(backend).len());
        self.note(client, backend, true);
    }

    /// Disconnects the two, which are connected.
    pub(super) fn disconnect(&mut self, client: u32, backend: u32) {
        let at = self.position_of_backend(client, backend).expect("a connection is known at its client");
        self.clients[client as usize].backends.remove(at);
        self.unlink(client, backend);
        self.note(client, backend, false);
    }

    fn unlink(&mut self, client: u32, backend: u32) {
        let at = self.position_of_client(backend, client).expect("a connection is known at its backend");
        self.backends[backend as usize].clients.remove(at);
        self.sort_anew(backend, self.clients_of(backend).len() + 1, self.clients_of(backend).len());
    }

    /// Sorts a backend anew, with another number of connections.
    fn sort_anew(&mut self, backend: u32, before: usize, after: usize) {
        let key = self.key(backend);
        self.levels.remove(&(before as u32, key, backend));
        self.levels.insert((after as u32, key, backend));
    }

    /// The position of a backend among those of a client, by key.
    fn position_of_backend(&self, client: u32, backend: u32) -> Result<usize, usize> {
        self.backends_of(client).binary_search_by_key(&self.key(backend), |other| self.key(*other))
    }

    /// The position of a client among those of a backend, by id.
    fn position_of_client(&self, backend: u32, client: u32) -> Result<usize, usize> {
        self.clients_of(backend).binary_search_by_key(&self.id(client), |other| self.id(*other))
    }

    fn note(&mut self, client: u32, backend: u32, is_connected: bool) {
        let key = (self.key(backend), self.id(client));
        // An earlier entry can only be the opposite, and the two cancel.
        if self.journal.remove(&key).is_none() {
            self.journal.insert(key, Entry { client, is_connected });
        }
    }

    /// Ends the event: returns the changes of each client, by id.
    pub(super) fn close(&mut self) -> Vec<Change> {
        let mut changes: BTreeMap<u64, Change> = BTreeMap::new();
        for ((backend, client), entry) in mem::take(&mut self.journal) {
            let change =
                changes.entry(client).or_insert_with(|| Change { client, removed: Vec::new(), added: Vec::new() });
            if entry.is_connected { &mut change.added } else { &mut change.removed }.push(backend);
        }
        changes.into_values().collect()
    }
}

/// Puts `item` in a free slot, or a new one.
fn settle<T>(slots: &mut Vec<T>, free: &mut Vec<u32>, item: T) -> u32 {
    match free.pop() {
        Some(slot) => {
            slots[slot as usize] = item;
            slot
        }
        None => {
            slots.push(item);
            (slots.len() - 1) as u32
        }
    }
}

fn decrement<K: Ord>(counts: &mut BTreeMap<K, u32>, key: K) {
    let count = counts.get_mut(&key).expect("every backend is counted");
    *count -= 1;
    if *count == 0 {
        counts.remove(&key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Weight;

    /// Four backends of domain 1 and two of domain 2; one of these is twice as large.
    fn book() -> (Book, Vec<u32>) {
        let mut book = Book::new(7);
        let large = Weight::new(2.0).expect("positive");
        let fleet =
            [(1, Weight::ONE), (1, Weight::ONE), (1, Weight::ONE), (1, Weight::ONE), (2, Weight::ONE), (2, large)];
        let slots = fleet
            .into_iter()
            .zip(100..)
            .map(|((domain, weight), key)| book.add_backend(&Backend { key, domain, weight }))
            .collect();
        (book, slots)
    }

    #[test]
    fn crowding_is_the_share_of_domain_and_size_with_one_more() {
        let (mut book, slots) = book();
        let client = book.add_client(1);
        let (small, large) = (book.kind(slots[0]), book.kind(slots[5]));
        book.connect(client, slots[0]);
        book.connect(client, slots[4]);
        // Two of four of the domain and three of five of the size; without the first, one less of
        // both.
        assert_eq!(book.crowding(client, small, None), 2.0 / 4.0 + 3.0 / 5.0);
        assert_eq!(book.crowding(client, small, Some(slots[0])), 1.0 / 4.0 + 2.0 / 5.0);
        assert_eq!(book.crowding(client, large, None), 2.0 / 2.0 + 1.0);
    }

    #[test]
    fn removed_backend_counts_for_neither_domain_nor_size() {
        let (mut book, slots) = book();
        let kind = book.kind(slots[0]);
        assert_eq!(book.count(kind), 4);
        book.remove_backend(slots[3]);
        book.remove_backend(slots[2]);
        let client = book.add_client(1);
        assert_eq!(book.count(kind), 2);
        assert_eq!(book.crowding(client, kind, None), 1.0 / 2.0 + 1.0 / 3.0);
    }

    #[test]
    fn connection_made_and_ended_in_one_event_changes_nothing() {
        let (mut book, slots) = book();
        let client = book.add_client(1);
        assert!(!book.is_changed());
        book.connect(client, slots[1]);
        assert!(book.is_changed());
        book.disconnect(client, slots[1]);
        assert!(!book.is_changed());
    }

    #[test]
    fn indexes_of_pairs_cover_their_range() {
        let (book, slots) = book();
        let pairs = slots.iter().flat_map(|a| slots.iter().map(move |b| (*a, *b)));
        let places: alloc::collections::BTreeSet<_> = pairs.map(|(a, b)| book.index_for_pair(a, b, 5)).collect();
        assert_eq!(places, (0..5).collect());
    }
}
