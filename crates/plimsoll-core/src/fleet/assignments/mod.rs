//! The leader's part of `ledger`: the assignments to write to the store, and their order.
//!
//! Any client may lead: the one that holds the leader key. It reads all assignments once, computes
//! with a [`Ledger`], and writes the differences. Each write compares the revision of the leader
//! key, so a leader that was replaced writes nothing more, and nobody else changes an assignment.
//! So the leader need not read its own writes back; now and then it looks for those of a stranger.
//!
//! **Adds before removes.** A client that gave up a backend before it is connected to the next one
//! would have fewer than k. With W written, D desired and n backends:
//!
//! ```text
//! W = D                          nothing
//! D ∪ (W ∩ live) = D             write D          nothing that is live is removed
//! D ⊄ W                          write D ∪ (W ∩ live), then wait for `settle`
//! D ⊂ W, waited for `settle`     write D
//! ```
//!
//! The waits are not in the store. A new leader that finds D ⊂ W waits anew, and computes D from W:
//! of a client with too many backends the ledger drops the most loaded, which are the old ones.
//!
//! A **batch** is a transaction of at most 128 operations, the store's limit, and one is in flight
//! at a time. The end of a batch may be unknown (no answer). Then the caller reads the assignments
//! again.
//!
//! **Names.** In the store clients and backends are strings, in the ledger numbers (`names`).
//!
//! Rejected: to write the final assignment at once and let clients overlap the two. A client would
//! need the time of its last assignment, and one that restarts in between would not overlap.
//! Rejected: all unions of the fleet before any final write. A client loses nothing by the order of
//! the others.
//!
//! Where it is weak:
//! - Between the phases a backend may have more connections than balance allows.
//! - A leader must know all backends that are live. Lead only while
//!   [`Members::believes_removals`](super::Members::believes_removals): in the first two lease
//!   times after an outage the list may be short, and a short list would be written.
//! - A change of each assignment takes two writes: 10,000 clients of one backend that leaves take
//!   79 batches twice.
//!
//! Source: etcd documentation, "max-txn-ops" (128 operations by default); SRE ch. 20 for subsets.

mod names;

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::String;
use alloc::vec::Vec;
use core::num::NonZeroU32;
use core::time::Duration;

use self::names::Names;
use crate::subset::Backend;
use crate::subset::ledger::{Change, Ledger, LedgerUpdate};
use crate::{Timestamp, Weight};

/// Settings of [`Assignments`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AssignmentsConfig {
    /// Backends of each client.
    pub size: NonZeroU32,
    /// Seed of all draws, the same for all that may lead.
    pub seed: u64,
    /// Time between the addition of a backend to an assignment and the removal of another.
    pub settle: Duration,
    /// Most operations of a batch.
    pub max_batch: usize,
}

impl AssignmentsConfig {
    /// A client learns of a write in milliseconds, and connects with TLS in less than a second.
    pub const DEFAULT_SETTLE: Duration = Duration::from_secs(2);
    /// The limit of etcd for one transaction.
    pub const DEFAULT_MAX_BATCH: usize = 128;

    /// With the default times.
    #[must_use]
    pub const fn new(size: NonZeroU32, seed: u64) -> Self {
        Self { size, seed, settle: Self::DEFAULT_SETTLE, max_batch: Self::DEFAULT_MAX_BATCH }
    }
}

/// A backend that may be assigned.
#[derive(Clone, Debug, PartialEq)]
pub struct ListedBackend {
    /// Its identity.
    pub address: String,
    /// Its failure domain.
    pub domain: u32,
    /// Its size relative to the other backends.
    pub weight: Weight,
}

/// One operation of a batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AssignmentWrite {
    /// Write the assignment of a client.
    Put {
        /// The client.
        client: String,
        /// The addresses of its backends, ascending.
        backends: BTreeSet<String>,
    },
    /// Delete the assignment of a client that is gone.
    Delete {
        /// The client.
        client: String,
    },
}

impl AssignmentWrite {
    /// The client of the assignment.
    #[must_use]
    pub fn client(&self) -> &str {
        match self {
            Self::Put { client, .. } | Self::Delete { client } => client,
        }
    }
}

/// The next step for one client.
enum Plan {
    Done,
    WaitForTheAdded,
    Write(AssignmentWrite),
}

/// The assignments of a fleet, at its leader.
#[derive(Clone, Debug)]
pub struct Assignments {
    config: AssignmentsConfig,
    ledger: Ledger,
    clients: Names,
    backends: Names,
    /// The backends as the ledger knows them.
    listed: BTreeMap<String, (u32, Weight)>,
    /// The assignments in the store.
    written: BTreeMap<String, BTreeSet<String>>,
    /// Clients with an assignment in the store that may differ from the desired one.
    dirty: BTreeSet<String>,
    /// The end of `settle`, of clients that have added backends.
    settling: BTreeMap<String, Timestamp>,
    in_flight: Option<Vec<AssignmentWrite>>,
}

impl Assignments {
    /// At the begin of a leadership: the clients and backends, and the assignments in the store,
    /// read after the leader key was won. Imperfect assignments are repaired.
    #[must_use]
    pub fn new(
        config: AssignmentsConfig,
        clients: &BTreeSet<String>,
        backends: &[ListedBackend],
        written: BTreeMap<String, BTreeSet<String>>,
    ) -> Self {
        let (mut client_names, mut backend_names) = (Names::default(), Names::default());
        let listed: BTreeMap<String, (u32, Weight)> =
            backends.iter().map(|backend| (backend.address.clone(), (backend.domain, backend.weight))).collect();
        let known: Vec<Backend> = listed
            .iter()
            .map(|(address, (domain, weight))| Backend {
                key: backend_names.add(address),
                domain: *domain,
                weight: *weight,
            })
            .collect();
        let keys = |client: &String| {
            let addresses = written.get(client).into_iter().flatten();
            addresses.filter_map(|address| backend_names.number(address)).collect()
        };
        let assignments: Vec<(u64, Vec<u64>)> =
            clients.iter().map(|client| (client_names.add(client), keys(client))).collect();
        let mut new = Self {
            ledger: Ledger::restore(config.size, config.seed, &known, assignments),
            config,
            clients: client_names,
            backends: backend_names,
            listed,
            written: BTreeMap::new(),
            dirty: BTreeSet::new(),
            settling: BTreeMap::new(),
            in_flight: None,
        };
        new.set_written(written);
        new
    }

    /// The clients and backends of now: all differences to the last view are one event.
    pub fn set_view(&mut self, clients: &BTreeSet<String>, backends: &[ListedBackend]) {
        let gone_clients: Vec<String> = self.clients.names().filter(|name| !clients.contains(*name)).cloned().collect();
        let new_clients: Vec<String> =
            clients.iter().filter(|name| self.clients.number(name).is_none()).cloned().collect();
        let listed: BTreeMap<String, (u32, Weight)> =
            backends.iter().map(|backend| (backend.address.clone(), (backend.domain, backend.weight))).collect();
        let gone_backends: Vec<u64> = self
            .listed
            .keys()
            .filter(|address| !listed.contains_key(*address))
            .filter_map(|address| self.backends.remove(address))
            .collect();
        let mut new_backends = Vec::new();
        for (address, properties) in &listed {
            if self.listed.get(address) != Some(properties) {
                let (key, (domain, weight)) = (self.backends.add(address), *properties);
                new_backends.push(Backend { key, domain, weight });
            }
        }
        let update = LedgerUpdate {
            gone_clients: &gone_clients.iter().filter_map(|name| self.clients.remove(name)).collect::<Vec<u64>>(),
            gone_backends: &gone_backends,
            new_backends: &new_backends,
            new_clients: &new_clients.iter().map(|name| self.clients.add(name)).collect::<Vec<u64>>(),
        };
        let changes = self.ledger.update(&update);
        self.listed = listed;
        self.mark(&changes);
        self.dirty.extend(gone_clients.into_iter().chain(new_clients));
    }

    /// Another size of the assignments.
    pub fn set_size(&mut self, size: NonZeroU32) {
        let changes = self.ledger.set_size(size);
        self.config.size = size;
        self.mark(&changes);
    }

    /// The assignments in the store, read after a batch with an unknown outcome, or to find the
    /// writes of a stranger. There is no batch in flight any more. Returns whether they differ from
    /// the known ones.
    pub fn set_written(&mut self, written: BTreeMap<String, BTreeSet<String>>) -> bool {
        self.dirty.extend(self.clients.names().cloned());
        self.dirty.extend(written.keys().cloned());
        self.in_flight = None;
        let differs = self.written != written;
        self.written = written;
        differs
    }

    /// The next batch, if there is one and none is in flight.
    pub fn poll(&mut self, now: Timestamp) -> Option<Vec<AssignmentWrite>> {
        if self.in_flight.is_some() {
            return None;
        }
        let settled = self.settling.iter().filter(|(_, due)| now >= **due);
        self.dirty.extend(settled.map(|(client, _)| client.clone()));
        let mut batch = Vec::new();
        while batch.len() < self.config.max_batch.max(1)
            && let Some(client) = self.dirty.pop_first()
        {
            match self.plan(now, &client) {
                Plan::Done => {
                    self.settling.remove(&client);
                }
                Plan::WaitForTheAdded => {
                    self.settling.entry(client).or_insert(now + self.config.settle);
                }
                Plan::Write(write) => batch.push(write),
            }
        }
        if batch.is_empty() {
            return None;
        }
        Some(self.in_flight.insert(batch).clone())
    }

    /// The batch in flight is in the store.
    pub fn on_written(&mut self, now: Timestamp) {
        for write in self.in_flight.take().into_iter().flatten() {
            self.dirty.insert(write.client().into());
            match write {
                AssignmentWrite::Put { client, backends } => {
                    self.settling.insert(client.clone(), now + self.config.settle);
                    self.written.insert(client, backends);
                }
                AssignmentWrite::Delete { client } => {
                    self.written.remove(&client);
                }
            }
        }
    }

    /// The time at which [`poll`](Self::poll) may have a batch without another call. To be polled
    /// after each of these as well.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Timestamp> {
        if self.in_flight.is_some() { None } else { self.settling.values().min().copied() }
    }

    /// The assignment of a client as it is to be, by address; `None` for an unknown client.
    #[must_use]
    pub fn assignment(&self, client: &str) -> Option<BTreeSet<String>> {
        let keys = self.ledger.assignment(self.clients.number(client)?)?;
        Some(keys.into_iter().filter_map(|key| self.backends.name(key)).cloned().collect())
    }

    /// Number of clients with an assignment that is not known to be in the store.
    #[must_use]
    pub fn unwritten(&self) -> usize {
        let in_flight = self.in_flight.iter().flatten().map(AssignmentWrite::client);
        let all = self.dirty.iter().chain(self.settling.keys()).map(String::as_str).chain(in_flight);
        all.collect::<BTreeSet<&str>>().len()
    }

    fn mark(&mut self, changes: &[Change]) {
        self.dirty.extend(changes.iter().filter_map(|change| self.clients.name(change.client)).cloned());
    }

    fn plan(&self, now: Timestamp, client: &str) -> Plan {
        let written = self.written.get(client);
        let Some(desired) = self.assignment(client) else {
            return match written {
                Some(_) => Plan::Write(AssignmentWrite::Delete { client: client.into() }),
                None => Plan::Done,
            };
        };
        let put = |backends| Plan::Write(AssignmentWrite::Put { client: client.into(), backends });
        let Some(written) = written else { return if desired.is_empty() { Plan::Done } else { put(desired) } };
        if *written == desired {
            return Plan::Done;
        }
        let live = written.iter().filter(|address| self.listed.contains_key(*address));
        let both: BTreeSet<String> = live.chain(&desired).cloned().collect();
        if both == desired {
            put(desired)
        } else if !desired.is_subset(written) {
            put(both)
        } else if self.settling.get(client).is_some_and(|due| now >= *due) {
            put(desired)
        } else {
            Plan::WaitForTheAdded
        }
    }
}
