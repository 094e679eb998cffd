//! Spill: assigns each request to a locality (zone, datacenter), as a waterfall.
//!
//! The nearest locality is filled up to its headroom, the excess goes to the next, and so on.
//! Requests beyond the headroom of all are shed, the least critical first. Two simpler rules do
//! harm:
//!
//! - *By the share of healthy backends alone* (Envoy's priority levels). It spills nothing while
//!   all are healthy, at any load. When a datacenter is half lost, it sends half of the load on,
//!   with or without headroom, and the next one fails too.
//! - *By latency.* It spills requests only once they have waited.
//!
//! A locality's headroom follows from its *utilization*, which its backends report
//! ([`LoadReport`](crate::LoadReport)) for the load of all clients. Let u be the mean utilization
//! of its h healthy backends, s the rate that this client sends there, and e the utilization of one
//! backend by one request a second:
//!
//! ```text
//! room = s + (target − u) · h ÷ e        e = smallest u · h ÷ s of all localities
//! ```
//!
//! At the target, room equals the rate that is sent now, for any e. So e may be wrong by a factor
//! of two: it decides the speed and not the result. It is the smallest value, because other
//! clients' load makes u · h ÷ s exceed the cost of a request and never fall below it. Many clients
//! with this rule arrive at the target together, each with the rate that it sent. While no locality
//! shows a value, because nothing is sent or all is idle, e stays as it was. So a client that was
//! shut out by others' load returns when that load is gone.
//!
//! # Layout of requests
//!
//! The offered rate is a line: the most critical level at its beginning, then the next level. Rooms
//! are laid along it, the nearest first. A request stands at a random point of its level's section,
//! and goes to the locality with the room at that point. Beyond the last room it is shed. So the
//! structure itself gives the order of shedding, and the most critical work stays near.
//!
//! # Draining and hysteresis
//!
//! A locality with under 25% of its backends healthy is drained: most of its capacity is gone, and
//! the rest is likely to follow. It returns at 35%. If all would be drained, none is. Rooms are
//! smoothed (half-life 2 s, about the age of load reports) and stand still within 2% of the target.
//! They are kept per healthy backend, so that a lost backend takes its part with it at once.
//!
//! # Where it is weak
//!
//! - Without any report of utilization no room is known: the nearest locality that is not drained
//!   gets all requests.
//! - Reports come with answers. So a locality without requests reports nothing (unless out of band)
//!   and counts as empty. In the first seconds of a spill it may be fuller than that.
//! - A client that starts under a load that must spill measures too low a rate at first, so rooms
//!   lag. In its first seconds it may shed some of the least critical requests in spite of
//!   headroom.

mod place;

use alloc::vec::Vec;
use core::time::Duration;

use crate::{Criticality, Random, Ratio, Timestamp, decay, rng};
use place::LocalityState;
pub use place::{Locality, Standing};

/// Half-life of the offered and sent requests: about the age of load reports.
const HALF_LIFE: Duration = Duration::from_secs(2);
/// Rate in requests a second below which the cost of a request is unknown.
const MIN_RATE: f64 = 1.0;
/// Time in which the known cost of a request doubles. The known cost is the smallest one seen.
/// Others' load, which makes it look higher, comes and goes; but requests may have become more
/// expensive.
const COST_DOUBLES_IN: Duration = Duration::from_secs(30);
/// Smallest utilization that is not noise.
const MIN_UTILIZATION: f64 = 0.01;

/// Settings for the load of localities.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SpillConfig {
    /// Utilization up to which a locality is filled; above zero.
    pub target: Ratio,
    /// Share of healthy backends below which a locality is drained.
    pub drain_below: Ratio,
}

impl SpillConfig {
    /// The rest is for bursts, and for the seconds until a spill begins.
    pub const DEFAULT_TARGET: Ratio = Ratio::from_percent(80);
    /// A quarter.
    pub const DEFAULT_DRAIN_BELOW: Ratio = Ratio::from_percent(25);
}

impl Default for SpillConfig {
    fn default() -> Self {
        Self { target: Self::DEFAULT_TARGET, drain_below: Self::DEFAULT_DRAIN_BELOW }
    }
}

/// Destination of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Route {
    /// This locality, counted from the nearest.
    To(usize),
    /// None: no locality has headroom.
    Shed,
}

/// Assigns the requests of one client and one cluster to localities.
#[derive(Clone, Debug)]
pub struct Spill {
    config: SpillConfig,
    /// Nearest first.
    places: Vec<LocalityState>,
    /// Requests by [`Criticality::rank`], decaying.
    asked: [f64; Criticality::ALL.len()],
    /// Utilization of one backend by one request a second, used while no locality shows it.
    cost: Option<f64>,
    at: Timestamp,
    updated: Timestamp,
}

impl Spill {
    /// A waterfall over this number of `localities`, which sends all requests to the nearest until
    /// it knows more. Allocates once.
    #[must_use]
    pub fn new(now: Timestamp, config: SpillConfig, localities: usize) -> Self {
        Self {
            config,
            places: (0..localities).map(|_| LocalityState::default()).collect(),
            asked: [0.0; Criticality::ALL.len()],
            cost: None,
            at: now,
            updated: now,
        }
    }

    /// Replaces the settings.
    pub fn set_config(&mut self, config: SpillConfig) {
        self.config = config;
    }

    /// Replaces the localities, nearest first. Each is a former one, which keeps its state, or a
    /// new one. Allocates once.
    pub fn arrange(&mut self, former: &[Option<usize>]) {
        let place = |former: &Option<usize>| former.and_then(|i| self.places.get(i)).copied().unwrap_or_default();
        self.places = former.iter().map(place).collect();
    }

    /// The destination of a request. Ask once for each, and report the actual one to
    /// [`Spill::sent`].
    pub fn route(&mut self, now: Timestamp, criticality: Criticality, rng: &mut impl Random) -> Route {
        self.decay(now);
        let rank = criticality.rank();
        self.asked[rank] += 1.0;
        let above: f64 = self.asked[..rank].iter().sum();
        let mut point = decay::rate(above + rng::unit(rng) * self.asked[rank], HALF_LIFE);
        for (i, place) in self.places.iter().enumerate() {
            let room = place.room();
            if point < room {
                return Route::To(i);
            }
            point -= room;
        }
        if self.all_are_unhealthy() { Route::To(0) } else { Route::Shed }
    }

    /// Counts a request that went to this locality.
    pub fn sent(&mut self, now: Timestamp, locality: usize) {
        self.decay(now);
        self.places[locality].sent += 1.0;
    }

    /// Whether a locality has headroom beyond its present rate: for a request that found no backend
    /// in its own locality.
    #[must_use]
    pub fn has_headroom(&self, locality: usize) -> bool {
        let place = &self.places[locality];
        decay::rate(place.sent, HALF_LIFE) < place.room() || self.all_are_unhealthy()
    }

    fn all_are_unhealthy(&self) -> bool {
        self.places.iter().all(|place| place.healthy() == 0)
    }

    /// Updates the state of the localities, nearest first. Call it once a second, and when many
    /// backends have changed. Surplus entries have no effect.
    pub fn update(&mut self, now: Timestamp, localities: &[Locality]) {
        self.decay(now);
        for (place, locality) in self.places.iter_mut().zip(localities) {
            place.see(locality, self.config.drain_below);
        }
        let drains_all = self.places.iter().all(|place| place.drained || place.healthy() == 0);
        self.places.iter_mut().for_each(|place| place.spared = drains_all);
        let shown = self.shown_cost();
        let known = self.cost.map(|cost| cost / decay::remaining(now, self.updated, COST_DOUBLES_IN));
        self.cost = match shown {
            Some(shown) => Some(known.map_or(shown, |known| known.min(shown))),
            None => self.cost,
        };
        let cost = shown.or(self.cost);
        let left = decay::remaining(now, self.updated, HALF_LIFE);
        self.updated = self.updated.max(now);
        if let Some(cost) = cost {
            for place in &mut self.places {
                let sent = decay::rate(place.sent, HALF_LIFE);
                place.settle(sent, self.config.target.as_f64(), cost, left);
            }
        }
    }

    /// The state of each locality, nearest first. For display.
    pub fn standings(&self, now: Timestamp) -> impl Iterator<Item = Standing> + '_ {
        let left = decay::remaining(now, self.at, HALF_LIFE);
        self.places.iter().map(move |place| place.standing(decay::rate(place.sent * left, HALF_LIFE)))
    }

    /// Utilization of one backend by one request a second, if any locality shows it.
    fn shown_cost(&self) -> Option<f64> {
        let shown = self.places.iter().filter_map(|place| {
            let sent = decay::rate(place.sent, HALF_LIFE);
            let utilization = place.utilization.filter(|utilization| *utilization >= MIN_UTILIZATION)?;
            (sent >= MIN_RATE && place.healthy() > 0).then(|| utilization * f64::from(place.healthy()) / sent)
        });
        shown.reduce(f64::min)
    }

    fn decay(&mut self, now: Timestamp) {
        let left = decay::remaining(now, self.at, HALF_LIFE);
        self.at = self.at.max(now);
        self.asked.iter_mut().for_each(|asked| *asked *= left);
        self.places.iter_mut().for_each(|place| place.sent *= left);
    }
}

#[cfg(test)]
mod tests;
