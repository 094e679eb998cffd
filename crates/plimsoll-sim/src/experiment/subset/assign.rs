//! Asks the core who connects to whom, for a whole fleet at a time.

use std::collections::BTreeMap;
use std::num::NonZeroU32;

use plimsoll_core::Weight;
use plimsoll_core::subset::ledger::Ledger;
use plimsoll_core::subset::{Algorithm, Backend, Client, SubsetConfig, order};

use super::{Arm, Row};
use crate::kernel::streams::Streams;

/// A fleet whose clients have their subsets.
#[derive(Clone)]
pub(super) struct Assigned {
    config: SubsetConfig,
    distinct_clients: Option<NonZeroU32>,
    clients: u32,
    backends: Vec<Backend>,
    /// What `ledger` remembers.
    ledger: Option<Ledger>,
}

impl Assigned {
    pub(super) fn new(arm: &Arm, row: &Row, seed: u64) -> Self {
        let mut fleet = Self {
            config: SubsetConfig { algorithm: arm.algorithm, size: row.size, seed },
            distinct_clients: arm.distinct_clients,
            clients: 0,
            backends: Vec::new(),
            ledger: (arm.algorithm == Algorithm::Ledger).then(|| Ledger::new(row.size, seed)),
        };
        fleet.resize(row.clients.get(), row.backends.get());
        fleet
    }

    /// Adds or removes the last ones, backends first.
    pub(super) fn resize(&mut self, clients: u32, backends: u32) {
        while self.backends.len() < backends as usize {
            // Keys are those of addresses: they do not depend on the seed of the run.
            let key = Streams::new(0).number("backend", self.backends.len() as u64);
            let backend = Backend { key, domain: 0, weight: Weight::ONE };
            if let Some(ledger) = &mut self.ledger {
                ledger.add_backend(&backend);
            }
            self.backends.push(backend);
        }
        while self.backends.len() > backends as usize {
            let gone = self.backends.pop().expect("there is one too many");
            if let Some(ledger) = &mut self.ledger {
                ledger.remove_backend(gone.key);
            }
        }
        if let Some(ledger) = &mut self.ledger {
            (self.clients..clients).for_each(|client| drop(ledger.add_client(u64::from(client))));
            (clients..self.clients).for_each(|client| drop(ledger.remove_client(u64::from(client))));
        }
        self.clients = clients;
    }

    pub(super) fn backends(&self) -> usize {
        self.backends.len()
    }

    /// Each client's order of preference, whose head is its subset.
    pub(super) fn orders(&self) -> Vec<Vec<u32>> {
        (0..self.clients).map(|client| self.order(client)).collect()
    }

    /// Each client's subset, which takes less time to find than its whole order.
    pub(super) fn subsets(&self) -> Vec<Vec<u32>> {
        let Some(ledger) = &self.ledger else { return self.orders() };
        let numbers: BTreeMap<u64, u32> = self.backends.iter().map(|backend| backend.key).zip(0..).collect();
        let subset = |client| ledger.assignment(u64::from(client)).expect("every client was added");
        (0..self.clients).map(|client| subset(client).iter().map(|key| numbers[key]).collect()).collect()
    }

    fn order(&self, client: u32) -> Vec<u32> {
        if let Some(ledger) = &self.ledger {
            return ledger.order(u64::from(client), &self.backends).expect("every client was added");
        }
        let number = self.distinct_clients.map_or(client, |distinct| client % distinct);
        order(&self.config, Client::numbered(number), &self.backends).expect("numbered, and not the ledger")
    }
}
