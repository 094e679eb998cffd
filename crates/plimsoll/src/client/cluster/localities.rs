//! A cluster's localities: the members of each, and the route of a request.
//! [`plimsoll_core::spill`] decides, within the balancer.

use std::sync::Arc;

use plimsoll_core::spill::{Route, SpillConfig};
use plimsoll_core::{Criticality, LocalitySnapshot, Timestamp};

use super::Cluster;
use super::machine::Machine;
use crate::client::localities::Localities;

/// The current state of a locality.
#[derive(Clone, Debug, PartialEq)]
pub struct LocalityView {
    /// Its name.
    pub name: Arc<str>,
    /// The machine's view.
    pub snapshot: LocalitySnapshot,
}

impl Cluster {
    /// The current state of every locality, nearest first. Empty where the cluster has none.
    #[must_use]
    pub fn localities(&self) -> Vec<LocalityView> {
        let now = self.0.now();
        self.0.machine.lock().localities(now)
    }
}

impl Machine {
    /// The current state of every locality, nearest first.
    pub(super) fn localities(&self, now: Timestamp) -> Vec<LocalityView> {
        let snapshots = self.balancer.localities(now);
        let names = self.config.localities.iter().flat_map(|localities| localities.order());
        names.zip(snapshots).map(|(name, snapshot)| LocalityView { name: name.clone(), snapshot }).collect()
    }

    /// Where an attempt goes; `None` if nobody has room for it.
    pub(super) fn route(&mut self, now: Timestamp, criticality: Criticality) -> Option<usize> {
        match self.balancer.route(now, criticality, &mut self.rng) {
            Route::To(at) => Some(at),
            Route::Shed => None,
        }
    }

    /// Has these localities from now on, in place of `former`. Those that stay keep their state;
    /// backends follow with [`Machine::reconcile`].
    pub(super) fn set_localities(
        &mut self,
        now: Timestamp,
        localities: Option<&Localities>,
        former: Option<&Localities>,
    ) {
        if localities == former {
            return;
        }
        let known = former.map_or(&[][..], Localities::order);
        let wanted = localities.map_or(&[][..], Localities::order);
        let places: Vec<_> = wanted.iter().map(|name| known.iter().position(|known| known == name)).collect();
        let spill = localities.map_or_else(SpillConfig::default, Localities::spill);
        self.balancer.set_localities(now, &places, spill);
        // A waiting request has a seat in one of them: there are never fewer.
        if self.queues.len() < places.len() {
            self.queues.resize_with(places.len(), Default::default);
        }
    }

    /// The name of the locality in this place.
    pub(super) fn locality_name(&self, place: usize) -> Option<Arc<str>> {
        self.config.localities.as_ref().and_then(|localities| localities.order().get(place).cloned())
    }

    /// Requests that wait.
    pub(super) fn waiting(&self) -> usize {
        self.queues.iter().map(|queue| queue.len()).sum()
    }
}
