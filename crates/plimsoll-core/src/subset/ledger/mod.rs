//! `ledger`: assignments with memory, for clusters that have a coordinator.
//!
//! A client that computes its own subset must trade balance for churn: it cannot know the
//! connections of other clients. A coordinator can. The ledger holds the existing connections.
//! After each event it changes no more of them than keeps these two statements true:
//!
//! - every client has min(k, n) backends;
//! - connections of any two backends differ by at most 1.
//!
//! A new client takes the least loaded backends. When a backend leaves, its clients each take the
//! least loaded one that they do not have. Then, while the most loaded backend u has at least 2
//! more than the least loaded v, one client moves from u to v. Such a client always exists: u has
//! more clients than v, so some client of u is none of v's. And such moves are needed: a backend
//! with too many or too few has to lose or gain. So with one more backend ⌊C·k/(n+1)⌋ connections
//! move, the least that balance allows. Clients that got new backends in the same event hand them
//! on to each other first, which adds no change. The remaining excess is one connection in a
//! thousand departures of a backend. A smaller k can move one connection more for every hundred
//! that it ends.
//!
//! Among equally good choices it prefers the one that keeps the client's part of each failure
//! domain and size of machine at the cluster's. After that, the least hash of client and backend
//! wins, so that subsets are diverse. Balance comes first: if the least loaded backends are all in
//! one domain, so are the client's new ones.
//!
//! It is a state machine like the others. Its state is the clients, the backends and the
//! assignments, and nothing else: no order of past events. So a coordinator that is replaced by
//! another loses nothing, and the next one ([`Ledger::restore`]) gives the assignments that the
//! first would have given.
//!
//! Several changes seen at once are **one event** ([`Ledger::update`]). A backend that is replaced
//! hands its clients to its successor, which is half of the moves of a departure and an arrival.
//!
//! A client that comes or goes costs
//! O(n). A backend costs about 3 µs per connection that moves: with 10,000 clients of 50 backends
//! some 10 ms, and up to 50 ms with failure domains. Another size costs as much as adding all
//! clients anew.

mod book;

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use core::num::NonZeroU32;
use core::slice;

use book::Book;

use super::strata::{self, Kind};
use super::{Backend, Sizes, rendezvous};

/// The changes of one client's subset after an event. Keys name the backends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// The client's id.
    pub client: u64,
    /// Keys that left its subset.
    pub removed: Vec<u64>,
    /// Keys that joined its subset.
    pub added: Vec<u64>,
}

/// Changes that are made as one event. Unknown ids and keys that go, and known clients that come,
/// have no effect.
#[derive(Clone, Copy, Debug, Default)]
pub struct LedgerUpdate<'a> {
    /// Ids of clients that left.
    pub gone_clients: &'a [u64],
    /// Keys of backends that left.
    pub gone_backends: &'a [u64],
    /// Backends that came, or whose domain or weight changed.
    pub new_backends: &'a [Backend],
    /// Ids of clients that came.
    pub new_clients: &'a [u64],
}

/// Number of clients among which the one to move is chosen. Enough that one of them suits as to
/// domains; few enough that a move costs the same with any number of clients.
const MAX_MOVE_CANDIDATES: usize = 16;

/// Backends of one kind with equally few connections.
struct Candidates {
    kind: Kind,
    /// Their number.
    count: u32,
    /// Backends with their ranks, the first choice last: as many as can be needed.
    ranked: Vec<(u64, u32)>,
}

/// A coordinator's assignments. Each event returns the changes of clients, by client id.
#[derive(Clone, Debug)]
pub struct Ledger {
    book: Book,
    size: NonZeroU32,
    seed: u64,
}

impl Ledger {
    /// A ledger without clients and backends, for subsets of `size` backends.
    #[must_use]
    pub fn new(size: NonZeroU32, seed: u64) -> Self {
        Self { book: Book::new(seed), size, seed }
    }

    /// A ledger with these clients, backends and assignments, each by id and key.
    ///
    /// An imperfect state is repaired with few changes: an unknown backend is dropped, a client
    /// with too many loses its most loaded ones, one with too few gets the least loaded, and
    /// balance is restored. Compare [`assignment`](Self::assignment) for the changes. Assignments
    /// of a client that occurs twice are united.
    #[must_use]
    pub fn restore(
        size: NonZeroU32,
        seed: u64,
        backends: &[Backend],
        assignments: impl IntoIterator<Item = (u64, Vec<u64>)>,
    ) -> Self {
        let mut ledger = Self::new(size, seed);
        for backend in backends {
            ledger.add_or_change(backend);
        }
        for (id, keys) in assignments {
            let client = ledger.book.client(id).unwrap_or_else(|| ledger.book.add_client(id));
            for backend in keys.iter().filter_map(|key| ledger.book.backend(*key)).collect::<Vec<u32>>() {
                if !ledger.book.backends_of(client).contains(&backend) {
                    ledger.book.connect(client, backend);
                }
            }
        }
        // The state is no change; the repairs are.
        ledger.book.close();
        ledger.resize();
        ledger.settle();
        ledger
    }

    /// Adds a client. A client that is already there changes nothing.
    pub fn add_client(&mut self, id: u64) -> Vec<Change> {
        self.update(&LedgerUpdate { new_clients: &[id], ..LedgerUpdate::default() })
    }

    /// Removes a client. The changes are those of other clients, not its own.
    pub fn remove_client(&mut self, id: u64) -> Vec<Change> {
        self.update(&LedgerUpdate { gone_clients: &[id], ..LedgerUpdate::default() })
    }

    /// Adds a backend. A key that is already there gets the domain and weight, and nothing moves.
    pub fn add_backend(&mut self, backend: &Backend) -> Vec<Change> {
        self.update(&LedgerUpdate { new_backends: slice::from_ref(backend), ..LedgerUpdate::default() })
    }

    /// Removes the backend with this key.
    pub fn remove_backend(&mut self, key: u64) -> Vec<Change> {
        self.update(&LedgerUpdate { gone_backends: &[key], ..LedgerUpdate::default() })
    }

    /// Makes several changes as one event: balance is restored once.
    pub fn update(&mut self, update: &LedgerUpdate<'_>) -> Vec<Change> {
        let wanted = self.wanted();
        for id in update.gone_clients {
            if let Some(client) = self.book.client(*id) {
                self.book.remove_client(client);
            }
        }
        // By id: those that lost a backend, then the new ones.
        let (mut lacking, mut new) = (BTreeSet::new(), BTreeSet::new());
        for key in update.gone_backends {
            if let Some(backend) = self.book.backend(*key) {
                let clients = self.book.remove_backend(backend);
                lacking.extend(clients.into_iter().map(|client| (self.book.id(client), client)));
            }
        }
        for backend in update.new_backends {
            self.add_or_change(backend);
        }
        for id in update.new_clients {
            if self.book.client(*id).is_none() {
                new.insert((*id, self.book.add_client(*id)));
            }
        }
        if self.wanted() == wanted {
            for (_, client) in lacking.into_iter().chain(new) {
                self.fill(client);
            }
        } else {
            self.resize();
        }
        self.settle()
    }

    fn add_or_change(&mut self, backend: &Backend) {
        match self.book.backend(backend.key) {
            Some(known) => self.book.set_kind(known, strata::kind(backend)),
            None => {
                self.book.add_backend(backend);
            }
        }
    }

    /// Sets the size of each client's subset.
    pub fn set_size(&mut self, size: NonZeroU32) -> Vec<Change> {
        self.size = size;
        self.resize();
        self.settle()
    }

    /// The backends of a client, as ascending keys; `None` for an unknown client.
    #[must_use]
    pub fn assignment(&self, client: u64) -> Option<Vec<u64>> {
        let client = self.book.client(client)?;
        Some(self.book.backends_of(client).iter().map(|backend| self.book.key(*backend)).collect())
    }

    /// The order of preference, as from [`order`](super::order): the client's assignment, then
    /// others by `rendezvous` as replacements. Given as numbers of `backends`; an assigned backend
    /// that is not among them is left out. `None` for an unknown client.
    #[must_use]
    pub fn order(&self, client: u64, backends: &[Backend]) -> Option<Vec<u32>> {
        let mut assigned = self.assignment(client)?;
        assigned.sort_unstable();
        let is_assigned = |number: &u32| assigned.binary_search(&backends[*number as usize].key).is_ok();
        let n = backends.len();
        let sizes = Sizes::new(self.size, n, 0);
        let mut order: Vec<u32> = (0..n as u32).filter(is_assigned).collect();
        let others = rendezvous::order(sizes, self.seed, client, backends);
        order.extend(others.into_iter().filter(|number| !is_assigned(number)));
        order.truncate(sizes.order);
        Some(order)
    }

    /// Number of backends in each client's subset.
    fn wanted(&self) -> usize {
        self.book.backends().min(self.size.get() as usize)
    }

    /// Brings each client to the number of backends that it is to have.
    fn resize(&mut self) {
        let clients = self.book.clients();
        for client in &clients {
            while self.book.backends_of(*client).len() > self.wanted() {
                let most_loaded = self.most_loaded_of(*client);
                self.book.disconnect(*client, most_loaded);
            }
        }
        for client in clients {
            self.fill(client);
        }
    }

    /// The backend that a client loses first.
    fn most_loaded_of(&self, client: u32) -> u32 {
        let crowding = |backend: u32| self.book.crowding(client, self.book.kind(backend), Some(backend));
        let of = self.book.backends_of(client).iter().copied();
        of.max_by(|a, b| {
            let (full_a, full_b) = (self.book.clients_of(*a).len(), self.book.clients_of(*b).len());
            full_a
                .cmp(&full_b)
                .then_with(|| crowding(*a).total_cmp(&crowding(*b)))
                .then_with(|| self.book.rank(client, *a).cmp(&self.book.rank(client, *b)))
        })
        .expect("a client that has too many has some")
    }

    /// Connects a client to the least loaded backends that it does not have, until its subset is
    /// complete.
    fn fill(&mut self, client: u32) {
        loop {
            let missing = self.wanted().saturating_sub(self.book.backends_of(client).len());
            if missing == 0 {
                return;
            }
            let mut candidates = self.least_loaded(client, missing);
            for _ in 0..missing {
                let Some(i) = self.choose(client, &candidates) else { break };
                let (_, backend) = candidates[i].ranked.pop().expect("only a kind with backends left is chosen");
                candidates[i].count -= 1;
                self.book.connect(client, backend);
            }
        }
    }

    /// The position of the kind of the client's next backend. A kind with its share already comes
    /// last; among the others, the one with the greatest part left wins, so that the rest stays a
    /// fair sample.
    fn choose(&self, client: u32, candidates: &[Candidates]) -> Option<usize> {
        let left = (0..candidates.len()).filter(|i| !candidates[*i].ranked.is_empty());
        let full = |i: usize| self.book.full(client, candidates[i].kind, self.wanted());
        // a/b > c/d as a·d > c·b, in whole numbers.
        let part = |a: usize, b: usize| {
            let product = |a: &Candidates, b: &Candidates| u64::from(a.count) * u64::from(self.book.count(b.kind));
            product(&candidates[a], &candidates[b]).cmp(&product(&candidates[b], &candidates[a]))
        };
        left.max_by(|a, b| full(*b).cmp(&full(*a)).then_with(|| part(*a, *b)))
    }

    /// The backends with the fewest connections that `client` does not have, by kind.
    fn least_loaded(&self, client: u32, missing: usize) -> Vec<Candidates> {
        let has = self.book.backends_of(client);
        let mut others = self.book.levels().filter(|(_, backend)| !has.contains(backend)).peekable();
        let least = others.peek().map(|(level, _)| *level);
        let mut kinds: BTreeMap<Kind, Vec<(u64, u32)>> = BTreeMap::new();
        for (_, backend) in others.take_while(|(level, _)| Some(*level) == least) {
            kinds.entry(self.book.kind(backend)).or_default().push((self.book.rank(client, backend), backend));
        }
        let candidates = kinds.into_iter().map(|(kind, mut ranked)| {
            let count = ranked.len() as u32;
            if ranked.len() > missing {
                ranked.select_nth_unstable(missing);
                ranked.truncate(missing);
            }
            ranked.sort_unstable_by(|a, b| b.cmp(a));
            Candidates { kind, count, ranked }
        });
        candidates.collect()
    }

    /// Restores balance, and ends the event.
    fn settle(&mut self) -> Vec<Change> {
        // Without a change in this event there is none to redirect.
        let changed = self.book.is_changed();
        while let Some((least_loaded, most_loaded)) = self.book.imbalance() {
            if changed && self.hand_on() {
                continue;
            }
            let back = if changed { self.returning_client(most_loaded, least_loaded) } else { None };
            let client = back.unwrap_or_else(|| self.client_to_move(most_loaded, least_loaded));
            self.book.disconnect(client, most_loaded);
            self.book.connect(client, least_loaded);
        }
        self.book.close()
    }

    /// Evens out by one without a further change. Along a chain of backends, each hands on a client
    /// that this event gave it. Returns whether there was such a chain.
    fn hand_on(&mut self) -> bool {
        let Some((most, _)) = self.book.levels().last() else { return false };
        // Breadth first, from the most loaded to any backend that has 2 less. Each entry: the
        // backend, and the client that comes to it with its origin.
        let (most_loaded, mut unreached): (Vec<_>, Vec<_>) = self.book.levels().partition(|(level, _)| *level == most);
        let mut reached: Vec<(u32, Option<(u32, usize)>)> = most_loaded.into_iter().map(|(_, b)| (b, None)).collect();
        let mut at = 0;
        while let Some((from, _)) = reached.get(at).copied() {
            for client in self.book.connected_clients(from) {
                let has = self.book.backends_of(client);
                unreached.retain(|(_, backend)| {
                    let new = !has.contains(backend);
                    if new {
                        reached.push((*backend, Some((client, at))));
                    }
                    !new
                });
            }
            at += 1;
        }
        let fewer = |(to, _): &(u32, _)| self.book.clients_of(*to).len() + 2 <= most as usize;
        let Some(mut to) = reached.iter().position(fewer) else { return false };
        while let (backend, Some((client, from))) = reached[to] {
            self.book.disconnect(client, reached[from].0);
            self.book.connect(client, backend);
            to = from;
        }
        true
    }

    /// A client that left `least_loaded` in this event, and can leave `most_loaded` instead.
    fn returning_client(&self, most_loaded: u32, least_loaded: u32) -> Option<u32> {
        let can = |client: &u32| self.book.backends_of(*client).contains(&most_loaded);
        self.book.disconnected_clients(least_loaded).find(can)
    }

    /// The client that moves from `most_loaded` to `least_loaded`, which has fewer: the one that
    /// crowds its domains least.
    fn client_to_move(&self, most_loaded: u32, least_loaded: u32) -> u32 {
        let can = |client: &u32| !self.book.backends_of(*client).contains(&least_loaded);
        let clients = self.book.clients_of(most_loaded);
        let (from, to) = (self.book.kind(most_loaded), self.book.kind(least_loaded));
        let (before, after) = clients.split_at(self.book.index_for_pair(most_loaded, least_loaded, clients.len()));
        let mut candidates = after.iter().chain(before).copied().filter(can);
        if from == to {
            return candidates.next().expect("of more clients not all are among the fewer");
        }
        let cost = |client: u32| {
            self.book.crowding(client, to, Some(most_loaded)) - self.book.crowding(client, from, Some(most_loaded))
        };
        candidates
            .take(MAX_MOVE_CANDIDATES)
            .map(|client| (cost(client), client))
            .min_by(|(a, _), (b, _)| a.total_cmp(b))
            .map(|(_, client)| client)
            .expect("of more clients not all are among the fewer")
    }
}
