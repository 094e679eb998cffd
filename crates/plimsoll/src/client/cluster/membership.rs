//! The members of a cluster: all known backends, or this process's subset of them.
//!
//! [`plimsoll_core::subset`] draws the subset and replaces unusable members. This module translates
//! between endpoints and the numbers of the core.

use crate::address::Address;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use plimsoll_core::health::State;
use plimsoll_core::subset::{Backend, Numbering, Subset};

use crate::client::config::SubsetChoice;
use crate::discover::Endpoint;

/// The known endpoints, and the members among them.
#[derive(Default)]
pub(super) struct Membership {
    /// In the order of the source, each address once.
    known: Vec<Known>,
    /// The places of `known` by address.
    places: HashMap<Address, usize>,
    choice: Option<SubsetChoice>,
    /// The coordinator's word on the subset.
    coordination: Coordination,
    /// The input of the draw: `known` in the core's terms. Empty without a choice.
    drawn_from: Numbering,
    /// The subset of `known`, by number. `None`: all of them are members.
    subset: Option<Subset>,
    /// Known backends that are drained by hand, in the subset or not.
    drained: HashSet<Address>,
}

/// A coordinator's word on the subset of this process.
///
/// Each part stays in force until another one replaces it. So a coordinator that is lost changes
/// nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Coordination {
    /// The number of this client, for algorithms that need one. `None`: the one of
    /// [`ClusterConfig::subset`](crate::client::ClusterConfig::subset).
    pub index: Option<u32>,
    /// The backends that `ledger` assigned; unknown addresses have no effect. `None`: not yet.
    pub assigned: Option<Arc<[Address]>>,
}

/// A known endpoint.
struct Known {
    endpoint: Arc<Endpoint>,
    /// The same in the core's terms. A list of thousands has few changes, and the texts of all
    /// addresses would cost more than the rest of the step.
    candidate: Backend,
}

impl Membership {
    /// Replaces the list of known endpoints, and those of them that are drained by hand. Returns the
    /// known ones whose drain begins or ends. Of an address that is listed twice the first entry counts.
    pub(super) fn replace(&mut self, endpoints: Vec<Arc<Endpoint>>, drained: HashSet<Address>) -> Vec<Address> {
        let (former, places) = (std::mem::take(&mut self.known), std::mem::take(&mut self.places));
        for endpoint in endpoints {
            let place = self.known.len();
            if *self.places.entry(endpoint.address).or_insert(place) == place {
                let same = places.get(&endpoint.address).map(|place| &former[*place]);
                let same = same.filter(|known| known.endpoint == endpoint);
                let candidate = same.map_or_else(|| candidate(&endpoint), |known| known.candidate);
                self.known.push(Known { endpoint, candidate });
            }
        }
        let changed = self.drained.symmetric_difference(&drained).copied();
        let changed = changed.filter(|address| self.places.contains_key(address)).collect();
        self.drained = drained;
        if self.choice.is_some() {
            let numbering = self.numbered();
            // In an ordinal, another address is the same backend to the draw, and has a state of its own.
            let is_same = |(old, new): (&Known, &Known)| old.endpoint.address == new.endpoint.address;
            let is_moved = former.len() != self.known.len() || !former.iter().zip(&self.known).all(is_same);
            if is_moved || numbering != self.drawn_from {
                self.draw(numbering);
            }
        }
        changed
    }

    /// Whether a backend was drained by hand.
    pub(super) fn is_drained(&self, address: Address) -> bool {
        self.drained.contains(&address)
    }

    /// Changes the choice of a subset; `None` for all backends.
    pub(super) fn set_choice(&mut self, choice: Option<SubsetChoice>) {
        if choice != self.choice {
            self.choice = choice;
            self.draw(if choice.is_some() { self.numbered() } else { Numbering::default() });
        }
    }

    /// Takes the word of a coordinator.
    pub(super) fn coordinate(&mut self, word: Coordination) {
        if word != self.coordination {
            self.coordination = word;
            let numbering = self.drawn_from.clone();
            self.draw(numbering);
        }
    }

    /// The coordinator's last word.
    pub(super) fn coordination(&self) -> &Coordination {
        &self.coordination
    }

    /// The number of known backends, members or not.
    pub(super) fn known(&self) -> usize {
        self.known.len()
    }

    /// The number of known backends that are drained by hand.
    pub(super) fn drained(&self) -> usize {
        self.drained.len()
    }

    /// The members, in the order of the source.
    pub(super) fn members(&self) -> Vec<Arc<Endpoint>> {
        match &self.subset {
            None => self.known.iter().map(|known| Arc::clone(&known.endpoint)).collect(),
            Some(subset) => {
                let places = subset.members().iter().filter_map(|number| self.drawn_from.place_of(*number));
                let mut places: Vec<usize> = places.collect();
                places.sort_unstable();
                places.into_iter().map(|place| Arc::clone(&self.known[place].endpoint)).collect()
            }
        }
    }

    /// A member is in this state. Returns whether the members changed.
    pub(super) fn on_state(&mut self, address: Address, state: State) -> bool {
        let (Some(subset), Some(place)) = (&mut self.subset, self.places.get(&address)) else { return false };
        self.drawn_from.number_of(*place).is_some_and(|number| subset.on_state(number, state))
    }

    /// Draws the subset anew. That loses the states of backends that are members no more, so it is
    /// done only for a new input.
    fn draw(&mut self, numbering: Numbering) {
        let Coordination { index, assigned } = &self.coordination;
        let number_of = |address| numbering.number_of(*self.places.get(address)?);
        let assigned: Vec<u32> = assigned.iter().flat_map(|assigned| assigned.iter()).filter_map(number_of).collect();
        self.subset = self.choice.map(|choice| choice.subset(&numbering, *index, &assigned));
        self.drawn_from = numbering;
    }

    /// The known backends in the core's terms. Vacant ordinals stay those of the last draw.
    fn numbered(&self) -> Numbering {
        let mut numbering = self.drawn_from.clone();
        numbering.replace(self.known.iter().map(|known| (known.endpoint.ordinal, known.candidate)));
        numbering
    }
}

fn candidate(endpoint: &Endpoint) -> Backend {
    let key = Backend::key_of(&endpoint.address.to_string());
    Backend { key, domain: endpoint.failure_domain(), weight: endpoint.weight }
}
