//! The members of a cluster: all known backends, or this process's subset of them.
//!
//! [`plimsoll_core::subset`] draws the subset and replaces unusable members. This module translates
//! between endpoints and the numbers of the core.

use std::collections::{HashMap, HashSet};
use std::net::SocketAddr;

use plimsoll_core::health::State;
use plimsoll_core::subset::{Backend, Subset};

use crate::client::config::SubsetChoice;
use crate::discover::Endpoint;

/// The known endpoints, and the members among them.
#[derive(Default)]
pub(super) struct Membership {
    /// In the order of the source, each address once.
    known: Vec<Endpoint>,
    numbers: HashMap<SocketAddr, u32>,
    choice: Option<SubsetChoice>,
    /// The input of the draw: `known` in the core's terms. Empty without a choice.
    drawn_from: Vec<Backend>,
    /// The subset of `known`, by number. `None`: all of them are members.
    subset: Option<Subset>,
    /// Drained by hand. A backend that leaves the subset meanwhile is still drained when it returns.
    drained: HashSet<SocketAddr>,
}

impl Membership {
    /// Replaces the list of known endpoints. Of an address that is listed twice the first entry counts.
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

    /// Records that a backend was drained or undrained by hand. `false` if it is unknown.
    pub(super) fn set_drained(&mut self, address: SocketAddr, drained: bool) -> bool {
        let known = self.numbers.contains_key(&address);
        if known && drained {
            self.drained.insert(address);
        } else {
            self.drained.remove(&address);
        }
        known
    }

    /// Whether a backend was drained by hand.
    pub(super) fn is_drained(&self, address: SocketAddr) -> bool {
        self.drained.contains(&address)
    }

    /// Changes the choice of a subset; `None` for all backends.
    pub(super) fn set_choice(&mut self, choice: Option<SubsetChoice>) {
        if choice != self.choice {
            self.choice = choice;
            self.choose();
        }
    }

    /// The number of known backends, members or not.
    pub(super) fn known(&self) -> usize {
        self.known.len()
    }

    /// All known endpoints, in the order of the source.
    pub(super) fn endpoints(&self) -> Vec<Endpoint> {
        self.known.clone()
    }

    /// The members, in the order of the source.
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

    /// A member is in this state. Returns whether the members changed.
    pub(super) fn on_state(&mut self, address: SocketAddr, state: State) -> bool {
        let (Some(subset), Some(number)) = (&mut self.subset, self.numbers.get(&address)) else { return false };
        subset.on_state(*number, state)
    }

    /// Draws the subset anew. That loses the states of backends that are members no more, so it is
    /// done only for a new input.
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

/// The number of a backend's failure domain: its zone, or its locality if it names no zone.
///
/// It is a hash of the name. Numbers in order of appearance would change for all zones when another
/// backend comes first in the list, and every client would draw another subset.
fn domain_of(endpoint: &Endpoint) -> u32 {
    match (&endpoint.zone, &endpoint.locality) {
        (None, None) => 0,
        (Some(name), None) | (None, Some(name)) => Backend::key_of(name) as u32,
        // Zones of two localities may have the same name.
        (Some(zone), Some(locality)) => Backend::key_of(&format!("{locality}/{zone}")) as u32,
    }
}
