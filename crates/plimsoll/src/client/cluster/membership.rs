//! Which of the backends that are known the cluster connects to: all, or this process's subset.
//!
//! Whom to take, and who replaces one that is of no use, is decided by [`plimsoll_core::subset`]; here endpoints are put in
//! its terms, and its members back in theirs.

use std::collections::{HashMap, HashSet};
use std::net::SocketAddr;

use plimsoll_core::health::State;
use plimsoll_core::subset::{Backend, Subset};

use crate::client::config::SubsetChoice;
use crate::discover::Endpoint;

/// The endpoints that are known, and those to connect to.
#[derive(Default)]
pub(super) struct Membership {
    /// In the order of their source, no address twice.
    known: Vec<Endpoint>,
    numbers: HashMap<SocketAddr, u32>,
    choice: Option<SubsetChoice>,
    /// `known` as the choice sees it; empty without one.
    drawn_from: Vec<Backend>,
    /// Of `known`, by number; `None`: all of them are members.
    subset: Option<Subset>,
    /// Taken out by hand. Whoever leaves the subset meanwhile must not come back as if nothing had been said.
    drained: HashSet<SocketAddr>,
}

impl Membership {
    /// Knows these from now on, whatever was known before. An address that is there twice counts once.
    pub(super) fn replace(&mut self, endpoints: Vec<Endpoint>) {
        self.known.clear();
        self.numbers.clear();
        for endpoint in endpoints {
            let number = self.known.len() as u32;
            if *self.numbers.entry(endpoint.address).or_insert(number) == number {
                self.known.push(endpoint);
            }
        }
        self.drained.retain(|address| self.numbers.contains_key(address));
        if self.choice.is_some() && self.candidates() != self.drawn_from {
            self.choose();
        }
    }

    /// Remembers that a backend was taken out by hand, or given back. `false` when it is not known.
    pub(super) fn set_drained(&mut self, address: SocketAddr, drained: bool) -> bool {
        let known = self.numbers.contains_key(&address);
        if known && drained {
            self.drained.insert(address);
        } else {
            self.drained.remove(&address);
        }
        known
    }

    /// Whether a backend was taken out by hand.
    pub(super) fn is_drained(&self, address: SocketAddr) -> bool {
        self.drained.contains(&address)
    }

    /// Takes a subset, or all, from now on.
    pub(super) fn set_choice(&mut self, choice: Option<SubsetChoice>) {
        if choice != self.choice {
            self.choice = choice;
            self.choose();
        }
    }

    /// All that are known; not all need be members.
    pub(super) fn known(&self) -> usize {
        self.known.len()
    }

    /// The members, in the order of their source.
    pub(super) fn members(&self) -> Vec<Endpoint> {
        match &self.subset {
            None => self.known.clone(),
            Some(subset) => {
                let mut numbers = subset.members().to_vec();
                numbers.sort_unstable();
                numbers.into_iter().map(|number| self.known[number as usize].clone()).collect()
            }
        }
    }

    /// A member is in this state. Returns whether there are other members now.
    pub(super) fn on_state(&mut self, address: SocketAddr, state: State) -> bool {
        let (Some(subset), Some(number)) = (&mut self.subset, self.numbers.get(&address)) else { return false };
        subset.on_state(*number, state)
    }

    /// Draws the subset anew. One that was drawn remembers more of its backends' states than its members tell.
    fn choose(&mut self) {
        self.drawn_from = if self.choice.is_some() { self.candidates() } else { Vec::new() };
        let subset = |choice: SubsetChoice| Subset::new(choice.order(&self.drawn_from), choice.config().size);
        self.subset = self.choice.map(subset);
    }

    fn candidates(&self) -> Vec<Backend> {
        let candidate = |endpoint: &Endpoint| Backend {
            key: Backend::key_of(&endpoint.address.to_string()),
            domain: domain_of(endpoint),
            weight: endpoint.weight,
        };
        self.known.iter().map(candidate).collect()
    }
}

/// The number of a backend's zone, or of its locality if nothing is said of a zone: so that a subset has some of each. Made from the
/// name, and not in the order in which zones are met, or one backend that comes first in a new list would number all of them
/// anew, and every client would turn to others.
fn domain_of(endpoint: &Endpoint) -> u32 {
    match (&endpoint.zone, &endpoint.locality) {
        (None, None) => 0,
        (Some(name), None) | (None, Some(name)) => Backend::key_of(name) as u32,
        // Zones of two localities may have the same name.
        (Some(zone), Some(locality)) => Backend::key_of(&format!("{locality}/{zone}")) as u32,
    }
}
