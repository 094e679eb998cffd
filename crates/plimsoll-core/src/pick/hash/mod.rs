//! `hash`: requests with equal keys go to the same backend, up to a bound on its load.
//!
//! Each backend has 128 points on a ring ([`ring`]), at hashes of its identity. The *order* of a key
//! is that of the weighted distances to the backends:
//!
//! ```text
//! s[i] = d[i] ÷ w[i]      d: distance from the key's own hash to the next point of backend i
//!                         w: configured weight
//! ```
//!
//! The request goes to the first one in that order that is usable and below its bound:
//!
//! ```text
//! active[i] + 1 ≤ ⌈c · m · w[i] / W⌉
//! m: active requests at the usable backends, this one included
//! c: the bound, 1.25 by default                                   W: weight of the usable backends
//! ```
//!
//! So no backend gets a request beyond c times its share, rounded up, however popular its keys are.
//! A request beyond it (the *overflow*) goes to the next backend of its own order. A hot key thus
//! spreads over few backends, always the same ones. At most a share 1/c of the weight belongs to
//! backends at their bound. So a walk takes at most c/(c − 1) steps on average: five with 1.25.
//!
//! **Why distances, and not points in proportion to weights?** Distances are nearly exponential, so
//! the least of them belongs to backend i in `w[i] ÷ Σw` of the cases. Only the proportion of two
//! weights counts: a cluster of weight 1000 each is one of weight 1 each. Points in proportion need
//! a scale, and a scale that follows the weights moves the keys of all backends when it changes. A
//! change of weight here moves keys to one backend or from it, and no point.
//!
//! A walk from the key ends when no further point can have a lesser s: at distance `s · w` for the
//! greatest weight w. That is the next point where weights are equal. Where they differ, backends
//! have a ring for each *class* of weights, four times as wide as the one below. That bounds walks,
//! and has no effect on choices.
//!
//! Only necessary moves happen. A backend that leaves moves its own keys and overflow. One that
//! joins takes keys only for itself. A backend that is unusable is passed over; it stays on the
//! ring, so its keys return with it. The position of a backend depends on its identity alone, so
//! all clients and all restarts agree.
//!
//! Where nearly all backends are unusable, walks are long. After [`MAX_STEPS`] without a choice the
//! distances of the usable ones are computed from their identities instead, if that is less work.
//! The choice is the same.
//!
//! Recent failures count as active requests in the comparison, but not in `m`: a failing backend
//! is at its bound sooner, and the others are not allowed more. If only failing backends are below
//! their bound, the first of them in the order is chosen.
//!
//! For a request without a key the rule is `least-loaded`.
//!
//! Why not rendezvous hashing? It compares all backends for each request. A table of its answers
//! has to be filled anew for each backend that comes, in proportion to its size. Maglev's table was
//! rejected because a removal also moves keys of other backends. Without the bound, shares differ:
//! the standard deviation is 9% of a share (1/√128), at any weight. Beyond 4,096 backends there are
//! 32 points for each, and it is 18%. A cluster that grows past this number moves most of its keys,
//! once.
//!
//! **Where it is weak.** Keys say nothing about cost: use `weighted` where backends need not know
//! their requests. With few concurrent requests the bound is near one request per backend. Two
//! requests of one key at the same time then use two backends. State that must not move needs the
//! bound off.
//!
//! Sources: Karger et al., *Consistent hashing and random trees* (STOC 1997); Schindelhauer and
//! Schomaker, *Weighted distributed hash tables* (SPAA 2005), for the distances; Mirrokni, Thorup and
//! Zadimoghaddam, *Consistent hashing with bounded loads* (SODA 2018).

mod key;
mod ring;

use alloc::vec::Vec;

pub use self::key::HashKey;
use self::key::position;
use self::ring::{MAX_SLOTS, Ring};
use super::least_loaded::LeastLoaded;
use super::{Candidate, Policy, View};
use crate::Random;

/// Points of a backend, as a power of two: 128. With twice as many, shares would differ by 6%
/// instead of 9%, for twice the memory: 11 to 21 bytes for each point.
const POINTS_LOG: u32 = 7;

/// The same in a crowd: 32. The table of ten thousand backends then has 4 MB instead of 16, and a
/// lookup mostly hits a cache. Shares differ by 18% before the bound.
const CROWD_POINTS_LOG: u32 = 5;

/// More backends than this are a crowd.
const CROWD: usize = if cfg!(test) { 64 } else { 4_096 };

/// Fewer backends than this are none any more. Between the two the points stay as they are: a
/// backend that comes and goes must not move the keys of all.
const CROWD_END: usize = CROWD / 5 * 4;

/// Points that a walk looks at before it is compared with the other way. With the bound at 1.25,
/// less than one walk in 10¹² is as long; where moreover half of all backends are unusable, one in
/// 10⁵.
const MAX_STEPS: usize = 128;

/// Points that a walk looks at in any case. Only walks for a backend that there may not be are so
/// long, those of further attempts.
const MAX_WALK: usize = 1 << 15;

/// Bits of a weight after the point.
const WEIGHT_BITS: u32 = 20;

/// The bound on a backend's active requests, as a multiple of its share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LoadBound {
    thousandths: u16,
}

impl LoadBound {
    /// The bound of the worked example of the paper. A lower one moves more keys; a higher one lets
    /// loads differ more. It is also the example of HAProxy's `hash-balance-factor`.
    pub const DEFAULT: Self = Self { thousandths: 1250 };
    /// The range of bounds. A lower one makes nearly every backend full, so that walks are long.
    pub const RANGE: core::ops::RangeInclusive<f64> = 1.05..=10.0;

    /// `times` the share; `None` outside [`LoadBound::RANGE`].
    #[must_use]
    pub fn new(times: f64) -> Option<Self> {
        Self::RANGE.contains(&times).then_some(Self { thousandths: (times * 1000.0 + 0.5) as u16 })
    }

    /// The bound as a multiple.
    #[must_use]
    pub fn as_f64(self) -> f64 {
        f64::from(self.thousandths) / 1000.0
    }
}

/// The settings of the policy `hash`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct HashConfig {
    /// The bound on loads; `None`: a key has the same backend at any load.
    pub bound: Option<LoadBound>,
}

impl Default for HashConfig {
    fn default() -> Self {
        Self { bound: Some(LoadBound::DEFAULT) }
    }
}

/// The place of a request's backend in the order of its key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Placement {
    /// The request has no key.
    #[default]
    Unkeyed,
    /// The first.
    First,
    /// Not the first: all before it are unusable.
    Moved,
    /// Not the first: one before it is at its bound, fails, is in slow start, or was tried.
    Overflow,
}

/// Picks under the policy `hash`, by the place of the backend in the order of the key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HashPicks {
    /// Requests without a key, which went to a least loaded backend.
    pub unkeyed: u64,
    /// Requests that went to the first backend of their order.
    pub first: u64,
    /// Requests that went past unusable backends: those that are unhealthy, draining or at their
    /// limit of active requests.
    pub moved: u64,
    /// Requests that went past a backend at its bound, or one that fails, is in slow start or was
    /// tried.
    pub overflow: u64,
}

impl HashPicks {
    pub(crate) fn count(&mut self, placement: Placement) {
        *match placement {
            Placement::Unkeyed => &mut self.unkeyed,
            Placement::First => &mut self.first,
            Placement::Moved => &mut self.moved,
            Placement::Overflow => &mut self.overflow,
        } += 1;
    }
}

/// A backend on the ring.
#[derive(Clone, Copy, Debug, Default)]
struct Place {
    identity: u64,
    /// In 2^-`WEIGHT_BITS`; 0 for a free slot.
    weight: u64,
    /// 1 ÷ `weight`.
    inverse: f64,
    active: u32,
    /// Active requests plus the penalty for recent failures.
    load: u32,
    is_usable: bool,
}

/// Backends of similar weights.
#[derive(Clone, Debug)]
struct Class {
    /// Weights from 4^`number` up to four times as much.
    number: u32,
    ring: Ring,
    /// The greatest weight, and the number of its backends.
    heaviest: (u64, u32),
}

impl Class {
    fn of(weight: u64) -> u32 {
        weight.ilog2() / 2
    }
}

/// The policy: the rings, and the loads of the backends on them.
#[derive(Clone, Debug)]
pub(crate) struct Hash {
    bound: Option<LoadBound>,
    /// Those with backends, the heaviest first.
    classes: Vec<Class>,
    /// By slot.
    places: Vec<Place>,
    /// Number of backends.
    count: usize,
    /// Each backend has 2^`points_log` points.
    points_log: u32,
    /// Active requests and weight of the usable backends.
    active: u64,
    weight: u64,
    /// The rule for requests without a key. It is kept from the first such request on: most clusters
    /// have none, and its upkeep would be a third of a pick.
    fallback: Option<LeastLoaded>,
    /// The placement of the last choice.
    last: Placement,
}

/// The bound at one moment, for all backends.
#[derive(Clone, Copy)]
struct Limit {
    /// `c · m`, in thousandths. `None`: no bound.
    allowed: Option<u64>,
    /// `W`, in thousandths: below 2⁶⁴ for all slots of the greatest weight.
    weight: u64,
}

impl Limit {
    const NONE: Self = Self { allowed: None, weight: 0 };

    /// Whether a backend with this weight and load may have one more request.
    ///
    /// `load + 1 ≤ ⌈x⌉` is `load < x` for whole loads.
    fn admits(self, load: u32, weight: u64) -> bool {
        self.allowed
            .is_none_or(|allowed| u128::from(load) * u128::from(self.weight) < u128::from(allowed) * u128::from(weight))
    }
}

/// A backend at its weighted distance from a key.
#[derive(Clone, Copy, PartialEq, PartialOrd)]
struct Neighbour {
    score: f64,
    /// Decides between equal distances, so that the order of arrival does not.
    identity: u64,
    slot: u32,
}

impl Neighbour {
    fn new(slot: u32, distance: u64, place: &Place) -> Self {
        Self { score: distance as f64 * place.inverse, identity: place.identity, slot }
    }
}

/// The nearest backends of a key, as far as a search has come.
struct Search {
    limit: Limit,
    /// Usable and below its bound.
    fitting: Option<Neighbour>,
    /// Below its bound but for its failures.
    failing: Option<Neighbour>,
    /// Usable, and at its bound or to be skipped.
    passed: f64,
    unusable: f64,
}

impl Search {
    fn new(limit: Limit) -> Self {
        Self { limit, fitting: None, failing: None, passed: f64::INFINITY, unusable: f64::INFINITY }
    }

    fn meet(&mut self, slot: u32, distance: u64, place: &Place, skip: &impl Fn(u32) -> bool) {
        let met = Neighbour::new(slot, distance, place);
        let nearest = if !place.is_usable {
            self.unusable = self.unusable.min(met.score);
            return;
        } else if skip(slot) || !self.limit.admits(place.active, place.weight) {
            self.passed = self.passed.min(met.score);
            return;
        } else if self.limit.admits(place.load, place.weight) {
            &mut self.fitting
        } else {
            &mut self.failing
        };
        if nearest.is_none_or(|nearest| met < nearest) {
            *nearest = Some(met);
        }
    }

    fn result(&self) -> Option<(u32, Placement)> {
        let Neighbour { score, slot, .. } = self.fitting.or(self.failing)?;
        let placement = if self.passed < score || self.failing.is_some_and(|failing| failing.score < score) {
            Placement::Overflow
        } else if self.unusable < score {
            Placement::Moved
        } else {
            Placement::First
        };
        Some((slot, placement))
    }
}

impl Hash {
    pub(crate) fn new(config: HashConfig) -> Self {
        Self {
            bound: config.bound,
            classes: Vec::new(),
            places: Vec::new(),
            count: 0,
            points_log: POINTS_LOG,
            active: 0,
            weight: 0,
            fallback: None,
            last: Placement::default(),
        }
    }

    pub(crate) fn set_config(&mut self, config: HashConfig) {
        self.bound = config.bound;
    }

    /// Puts a backend on the ring, or changes its weight.
    pub(crate) fn join(&mut self, slot: u32, identity: u64, weight: f64) {
        if slot >= MAX_SLOTS {
            return;
        }
        if self.places.len() <= slot as usize {
            self.places.resize(slot as usize + 1, Place::default());
        }
        if self.places[slot as usize].identity != identity {
            self.leave(slot);
        }
        let weight = ((weight * f64::from(1 << WEIGHT_BITS) + 0.5) as u64).max(1);
        match self.places[slot as usize].weight {
            0 => self.count += 1,
            former if Class::of(former) == Class::of(weight) => return self.set_weight(slot, weight),
            _ => self.clear_points(slot),
        }
        self.places[slot as usize].identity = identity;
        self.set_weight(slot, weight);
        self.set_points(slot);
        self.settle();
    }

    /// Takes a backend from the ring, if it is on it.
    pub(crate) fn leave(&mut self, slot: u32) {
        if self.places.get(slot as usize).is_none_or(|place| place.weight == 0) {
            return;
        }
        self.on_unusable(slot);
        self.clear_points(slot);
        self.places[slot as usize] = Place::default();
        self.count -= 1;
        self.settle();
    }

    /// Takes the count of active requests of a backend.
    pub(crate) fn on_active(&mut self, slot: u32, active: u32) {
        let Some(place) = self.places.get_mut(slot as usize) else { return };
        if place.is_usable {
            self.active = self.active - u64::from(place.active) + u64::from(active);
        }
        place.active = active;
    }

    /// The placement of the last choice.
    pub(crate) fn last_placement(&self) -> Placement {
        self.last
    }

    /// The next backend of a further attempt, in the order of the request's key and without those
    /// that were tried. If all others are at their bound, the first usable one of them. `None` if
    /// the request has no key, or the order has no other usable backend.
    pub(crate) fn choose_untried(&mut self, view: &View<'_>, is_tried: impl Fn(u32) -> bool) -> Option<u32> {
        let key = view.key?;
        let find = |limit| self.find(view, key, limit, &is_tried);
        let (slot, _) = find(self.limit()).or_else(|| find(Limit::NONE))?;
        self.last = Placement::Overflow;
        Some(slot)
    }

    /// The first backend in the order of a key, and whether it is usable.
    pub(crate) fn home(&self, key: HashKey) -> Option<(u32, bool)> {
        let mut first: Option<Neighbour> = None;
        for class in &self.classes {
            let least = (class.heaviest.0 as f64).recip();
            for (distance, slot) in class.ring.walk(key.as_u64()) {
                if first.is_some_and(|first| distance as f64 * least > first.score) {
                    break;
                }
                let met = Neighbour::new(slot, distance, &self.places[slot as usize]);
                if first.is_none_or(|first| met < first) {
                    first = Some(met);
                }
            }
        }
        first.map(|first| (first.slot, self.places[first.slot as usize].is_usable))
    }

    fn limit(&self) -> Limit {
        let allowed = self.bound.map(|bound| u64::from(bound.thousandths) * (self.active + 1));
        Limit { allowed, weight: 1000 * self.weight }
    }

    /// The first usable backend below its bound, in the order of `key` and without those to skip.
    fn find(
        &self,
        view: &View<'_>,
        key: HashKey,
        limit: Limit,
        skip: &impl Fn(u32) -> bool,
    ) -> Option<(u32, Placement)> {
        let (key, mut search, mut steps) = (key.as_u64(), Search::new(limit), 0);
        for class in &self.classes {
            let least = (class.heaviest.0 as f64).recip();
            for (distance, slot) in class.ring.walk(key) {
                steps += 1;
                let found = search.fitting.or(search.failing.filter(|_| steps > MAX_STEPS));
                // Further points of this class have at least this score.
                if found.is_some_and(|found| distance as f64 * least > found.score) || steps > MAX_WALK {
                    break;
                }
                if steps > MAX_STEPS && found.is_none() && self.are_few(view.usable.len()) {
                    for &slot in view.usable {
                        self.meet_directly(&mut search, key, slot, skip);
                    }
                    return search.result();
                }
                search.meet(slot, distance, &self.places[slot as usize], skip);
            }
        }
        search.result()
    }

    /// Whether the points of so many usable backends are fewer than the points to the next one of
    /// them.
    fn are_few(&self, usable: usize) -> bool {
        (usable * usable) << self.points_log <= self.count
    }

    /// Meets a backend that a walk would meet later.
    fn meet_directly(&self, search: &mut Search, key: u64, slot: u32, skip: &impl Fn(u32) -> bool) {
        let Some(place) = self.places.get(slot as usize).filter(|place| place.weight > 0) else { return };
        let distances = self.positions(place.identity).map(|position| ring::distance(key, position));
        if let Some(distance) = distances.min() {
            search.meet(slot, distance, place, skip);
        }
    }

    /// The positions of the points of a backend.
    fn positions(&self, identity: u64) -> impl Iterator<Item = u64> + use<> {
        (0..1 << self.points_log).map(move |index| position(identity, index))
    }

    /// The class of these weights, which is made if there is none.
    fn class(&mut self, weight: u64) -> &mut Class {
        let number = Class::of(weight);
        let at = self.classes.partition_point(|class| class.number > number);
        if self.classes.get(at).is_none_or(|class| class.number != number) {
            self.classes.insert(at, Class { number, ring: Ring::default(), heaviest: (0, 0) });
        }
        &mut self.classes[at]
    }

    /// Changes the weight of a backend: from none, to none, or within a class.
    fn set_weight(&mut self, slot: u32, weight: u64) {
        let place = &mut self.places[slot as usize];
        let former = core::mem::replace(&mut place.weight, weight);
        place.inverse = (weight as f64).recip();
        if place.is_usable {
            self.weight = self.weight - former + weight;
        }
        if former > 0 {
            self.forget_weight(former);
        }
        if weight > 0 {
            let (heaviest, count) = &mut self.class(weight).heaviest;
            if weight > *heaviest {
                (*heaviest, *count) = (weight, 0);
            }
            *count += u32::from(weight == *heaviest);
        }
    }

    /// Subtracts a backend of this weight from its class. The places have no such backend any more.
    fn forget_weight(&mut self, weight: u64) {
        let (heaviest, count) = &mut self.class(weight).heaviest;
        *count -= u32::from(weight == *heaviest);
        if *count == 0 {
            let number = Class::of(weight);
            let others = self.places.iter().map(|place| place.weight).filter(|w| *w > 0 && Class::of(*w) == number);
            let heaviest = others.clone().max().unwrap_or(0);
            let count = others.filter(|weight| *weight == heaviest).count() as u32;
            self.class(weight).heaviest = (heaviest, count);
        }
    }

    /// Puts the points of a backend on the ring of its class.
    fn set_points(&mut self, slot: u32) {
        let Place { identity, weight, .. } = self.places[slot as usize];
        let positions = self.positions(identity);
        let ring = &mut self.class(weight).ring;
        positions.for_each(|position| ring.insert(position, slot));
    }

    /// Takes the points and the weight of a backend from its class.
    fn clear_points(&mut self, slot: u32) {
        let Place { identity, weight, .. } = self.places[slot as usize];
        let positions = self.positions(identity);
        let ring = &mut self.class(weight).ring;
        positions.for_each(|position| ring.remove(position, slot));
        self.set_weight(slot, 0);
        self.classes.retain(|class| class.ring.len() > 0);
    }

    /// Brings the points of all backends in line with their number.
    fn settle(&mut self) {
        let points_log = match self.count {
            0..CROWD_END => POINTS_LOG,
            CROWD_END..=CROWD => return,
            _ => CROWD_POINTS_LOG,
        };
        if core::mem::replace(&mut self.points_log, points_log) != points_log {
            self.classes.iter_mut().for_each(|class| class.ring = Ring::default());
            for slot in 0..self.places.len() as u32 {
                if self.places[slot as usize].weight > 0 {
                    self.set_points(slot);
                }
            }
        }
    }

    /// The least loaded backend; for a request with a key, one below its bound.
    fn choose_least_loaded(&mut self, view: &View<'_>, rng: &mut impl Random) -> u32 {
        let fallback = self.fallback.get_or_insert_with(|| {
            let mut fallback = LeastLoaded::default();
            view.usable.iter().for_each(|&slot| fallback.on_usable(slot, &view.candidates[slot as usize]));
            fallback
        });
        let slot = fallback.choose(view, rng);
        if view.key.is_none() {
            return slot;
        }
        let limit = self.limit();
        let is_below = |slot: &u32| {
            let place = self.places.get(*slot as usize);
            place.is_some_and(|place| limit.admits(place.active, place.weight))
        };
        if is_below(&slot) {
            return slot;
        }
        // Loads are compared in whole units of weight, so a heavier backend may have been below the
        // mean. A scan is affordable: this is rare beyond measure.
        view.usable.iter().copied().find(is_below).unwrap_or(slot)
    }
}

impl Policy for Hash {
    fn choose(&mut self, view: &View<'_>, rng: &mut impl Random) -> u32 {
        let found = view.key.and_then(|key| self.find(view, key, self.limit(), &|_| false));
        let (slot, placement) = found.unwrap_or_else(|| {
            let placement = if view.key.is_some() { Placement::Overflow } else { Placement::Unkeyed };
            (self.choose_least_loaded(view, rng), placement)
        });
        self.last = placement;
        slot
    }

    fn alternative(&mut self, view: &View<'_>, passed: &[u32], rng: &mut impl Random) -> u32 {
        let Some(key) = view.key else { return super::p2c::other_than(passed[0], view, rng) };
        let skip = |slot| passed.contains(&slot);
        self.find(view, key, self.limit(), &skip).map_or(passed[0], |(other, _)| other)
    }

    fn on_replaced(&mut self) {
        if self.last != Placement::Unkeyed {
            self.last = Placement::Overflow;
        }
    }

    fn on_usable(&mut self, slot: u32, candidate: &Candidate) {
        if let Some(fallback) = &mut self.fallback {
            fallback.on_usable(slot, candidate);
        }
        let Some(place) = self.places.get_mut(slot as usize) else { return };
        place.load = candidate.load;
        if !core::mem::replace(&mut place.is_usable, true) {
            self.active += u64::from(place.active);
            self.weight += place.weight;
        }
    }

    fn on_unusable(&mut self, slot: u32) {
        if let Some(fallback) = &mut self.fallback {
            fallback.on_unusable(slot);
        }
        let Some(place) = self.places.get_mut(slot as usize) else { return };
        if core::mem::replace(&mut place.is_usable, false) {
            self.active -= u64::from(place.active);
            self.weight -= place.weight;
        }
    }

    fn on_load(&mut self, slot: u32, candidate: &Candidate) {
        if let Some(fallback) = &mut self.fallback {
            fallback.on_load(slot, candidate);
        }
        if let Some(place) = self.places.get_mut(slot as usize) {
            place.load = candidate.load;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn joined(backends: impl Iterator<Item = u32>, weight: f64) -> Hash {
        let mut hash = Hash::new(HashConfig::default());
        backends.for_each(|slot| hash.join(slot, u64::from(slot), weight));
        hash
    }

    fn points(hash: &Hash) -> usize {
        hash.classes.iter().map(|class| class.ring.len()).sum()
    }

    /// The slots at the points of all classes.
    fn orders(hash: &Hash) -> Vec<Vec<(u64, u32)>> {
        hash.classes.iter().map(|class| class.ring.walk(1 << 60).collect()).collect()
    }

    #[test]
    fn weights_add_no_points_and_leave_no_trace() {
        let mut hash = joined(0..10, 1000.0);
        assert_eq!(points(&hash), 1_280);
        for (weight, classes) in [(0.001, 2), (999.0, 1), (4.0, 2), (1000.0, 1)] {
            hash.join(3, 3, weight);
            assert_eq!((points(&hash), hash.classes.len()), (1_280, classes), "{weight}");
        }
        let fresh = joined(0..10, 1000.0);
        assert_eq!((orders(&hash), hash.classes[0].heaviest), (orders(&fresh), fresh.classes[0].heaviest));
        hash.join(3, 33, 1000.0);
        (0..10).for_each(|slot| hash.leave(slot));
        assert_eq!((points(&hash), hash.classes.len(), hash.count, hash.weight), (0, 0, 0, 0));
    }

    #[test]
    fn points_are_fewer_in_a_crowd_until_it_is_clearly_smaller() {
        let mut hash = joined(0..64, 1.0);
        assert_eq!(points(&hash), 64 * 128);
        hash.join(64, 64, 1.0);
        assert_eq!(points(&hash), 65 * 32);
        (48..65).for_each(|slot| hash.leave(slot));
        assert_eq!(points(&hash), 48 * 32, "one that comes and goes moves no keys of others");
        hash.leave(47);
        assert_eq!(orders(&hash), orders(&joined(0..47, 1.0)), "as if the crowd had never been there");
        assert_eq!(points(&joined(0..300, 1.0)), 300 * 32);
    }

    #[test]
    fn bounds_outside_their_range_cannot_be_built() {
        for junk in [0.0, 1.0, 1.049, 10.1, f64::NAN] {
            assert_eq!(LoadBound::new(junk), None);
        }
        assert_eq!(LoadBound::new(1.25), Some(LoadBound::DEFAULT));
        assert!((LoadBound::new(1.1).expect("in range").as_f64() - 1.1).abs() < 1e-9);
    }
}
