//! Spill: which locality (zone, datacenter) a request goes to, as a waterfall.
//!
//! The nearest locality is filled up to what it can take, what is left goes to the next, and so on; what nobody can take is shed, the
//! least critical first. Two rules that look simpler do harm. To go by the share of healthy backends alone (Envoy's priority levels)
//! spills nothing while all are healthy, however full, and when a datacenter is half lost sends half of its load on, whether there is room
//! or not: the next one falls, too. To go by latency sends requests away only once they have waited.
//!
//! What a locality can take is known by its *utilization*, which its backends report ([`LoadReport`](crate::LoadReport)), whoever loads
//! it. With the mean utilization u of its h healthy backends, the rate s at which this client sends there, and what one request a second
//! uses of one backend, e:
//!
//! ```text
//! room = s + (target − u) · h ÷ e        e = the least u · h ÷ s that any locality shows
//! ```
//!
//! At the target, room is what is sent now, whatever e is: so e need be right within a factor of two only, and it decides how fast, not
//! where to. The least, because others' load makes u · h ÷ s look dearer than a request is, and never cheaper. Many clients that do
//! the same arrive at the target together, each with what it sent. While no locality shows any, because nothing is sent or all is idle, e is
//! what it was: who was shut out by others' load comes back when that is gone.
//!
//! # How requests are laid out
//!
//! All that is asked for, a second, is a line: the most critical at its beginning, then the next level. Rooms are laid along it, nearest
//! first. A request stands at a random point of its level's part, and goes to whose room that is in; beyond the last, it is shed. So
//! the order of shedding is in the structure, and the most critical work stays near.
//!
//! # Draining and hysteresis
//!
//! A locality with under 25% of its backends healthy gets nothing: most of what it did is gone, and what is left of it is likely to
//! follow. It comes back at 35%. If that leaves nobody, no locality is drained. Rooms are smoothed (half-life 2 s, about the age of
//! what reports say) and stand still within 2% of the target; they are per healthy backend, so that one that dies takes its part along at
//! once.
//!
//! # Where it is weak
//!
//! Without reports of utilization from anybody nothing is known of room: the nearest that is not drained gets all. Reports come with
//! answers, so a locality that gets nothing says nothing (unless it reports out of band), and is taken to be empty; the first seconds of
//! a spill may find it fuller than that. And a client that begins under a load that has to spill takes rates for less than they are at first, so
//! rooms lag behind: in its first seconds it may shed some of the least critical although there is room.

mod place;

use alloc::vec::Vec;
use core::time::Duration;

use rand_core::Rng;

use crate::{Criticality, Ratio, Timestamp, decay, rng};
use place::Place;
pub use place::{Locality, Standing};

/// Half of what was asked for and sent is forgotten in this time: as old as what reports say is, about.
const HALF_LIFE: Duration = Duration::from_secs(2);
/// Below this rate, in requests a second, what a request costs is not known.
const LEAST_RATE: f64 = 1.0;
/// What a request costs is the least that it was seen to, and that doubles in this time: others' load, which makes it look dearer, comes and
/// goes, and requests may have become so.
const COST_DOUBLES_IN: Duration = Duration::from_secs(30);
/// Below this utilization it is noise.
const LEAST_UTILIZATION: f64 = 0.01;

/// How full localities get.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SpillConfig {
    /// Utilization up to which a locality is filled; above zero.
    pub target: Ratio,
    /// It gets nothing with a lesser share of its backends healthy.
    pub drain_below: Ratio,
}

impl SpillConfig {
    /// What is left is for bursts, and for the seconds that a spill takes to begin.
    pub const DEFAULT_TARGET: Ratio = Ratio::from_percent(80);
    /// A quarter.
    pub const DEFAULT_DRAIN_BELOW: Ratio = Ratio::from_percent(25);
}

impl Default for SpillConfig {
    fn default() -> Self {
        Self { target: Self::DEFAULT_TARGET, drain_below: Self::DEFAULT_DRAIN_BELOW }
    }
}

/// Where a request goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Route {
    /// To this locality, counted from the nearest.
    To(usize),
    /// Nowhere: nobody has room for it.
    Shed,
}

/// Decides to which locality requests go: of one client and one cluster.
#[derive(Clone, Debug)]
pub struct Spill {
    config: SpillConfig,
    /// Nearest first.
    places: Vec<Place>,
    /// Requests by [`Criticality::rank`], decaying.
    asked: [f64; Criticality::ALL.len()],
    /// What one request a second uses of one backend, for when no locality shows it.
    cost: Option<f64>,
    at: Timestamp,
    updated: Timestamp,
}

impl Spill {
    /// One that knows nothing of so many `localities` yet, and sends all to the nearest. Allocates, once.
    #[must_use]
    pub fn new(now: Timestamp, config: SpillConfig, localities: usize) -> Self {
        Self {
            config,
            places: (0..localities).map(|_| Place::default()).collect(),
            asked: [0.0; Criticality::ALL.len()],
            cost: None,
            at: now,
            updated: now,
        }
    }

    /// Other settings from now on.
    pub fn set_config(&mut self, config: SpillConfig) {
        self.config = config;
    }

    /// Other localities from now on, nearest first: each is one of those that there were, which keeps what is known of it, or a new one.
    /// Allocates, once.
    pub fn arrange(&mut self, former: &[Option<usize>]) {
        let place = |former: &Option<usize>| former.and_then(|i| self.places.get(i)).copied().unwrap_or_default();
        self.places = former.iter().map(place).collect();
    }

    /// Where a request goes. Ask once for each, and tell [`Spill::sent`] where it went.
    pub fn route(&mut self, now: Timestamp, criticality: Criticality, rng: &mut impl Rng) -> Route {
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
        if self.nobody_is_healthy() { Route::To(0) } else { Route::Shed }
    }

    /// A request went to this locality, of those that there are.
    pub fn sent(&mut self, now: Timestamp, locality: usize) {
        self.decay(now);
        self.places[locality].sent += 1.0;
    }

    /// Whether a locality can take more than it is sent: a request that found nobody in the one where it was to go.
    #[must_use]
    pub fn takes_more(&self, locality: usize) -> bool {
        let place = &self.places[locality];
        decay::rate(place.sent, HALF_LIFE) < place.room() || self.nobody_is_healthy()
    }

    fn nobody_is_healthy(&self) -> bool {
        self.places.iter().all(|place| place.healthy() == 0)
    }

    /// Takes in how localities are, nearest first; once a second, and when many backends have changed. Further ones than there are count for
    /// nothing.
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

    /// How each locality stands, nearest first. For those who look.
    pub fn standings(&self, now: Timestamp) -> impl Iterator<Item = Standing> + '_ {
        let left = decay::remaining(now, self.at, HALF_LIFE);
        self.places.iter().map(move |place| place.standing(decay::rate(place.sent * left, HALF_LIFE)))
    }

    /// What one request a second uses of one backend, if any locality shows it.
    fn shown_cost(&self) -> Option<f64> {
        let shown = self.places.iter().filter_map(|place| {
            let sent = decay::rate(place.sent, HALF_LIFE);
            let utilization = place.utilization.filter(|utilization| *utilization >= LEAST_UTILIZATION)?;
            (sent >= LEAST_RATE && place.healthy() > 0).then(|| utilization * f64::from(place.healthy()) / sent)
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
