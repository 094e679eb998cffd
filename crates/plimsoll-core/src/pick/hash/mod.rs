//! `hash`: requests with equal keys go to the same backend, up to a bound on its load.
//!
//! Each backend has points on a ring ([`ring`]), 128 for each unit of weight, at hashes of its
//! identity. The *order* of a key is the backends at the points from the key's own hash on. The
//! request goes to the first one in that order that is usable and below its bound:
//!
//! ```text
//! active[i] + 1 ≤ ⌈c · m · p[i] / P⌉
//! m: active requests at the usable backends, this one included    p[i]: points of backend i
//! c: the bound, 1.25 by default                                   P: points of the usable backends
//! ```
//!
//! So no backend gets a request beyond c times its share, rounded up, however popular its keys are.
//! A request beyond it (the *overflow*) goes to the next backend of its own order. A hot key thus
//! spreads over few backends, always the same ones. At most a share 1/c of the points belongs to
//! backends at their bound. So a walk takes at most c/(c − 1) steps on average: five with 1.25.
//!
//! Only necessary moves happen. A backend that leaves moves its own keys and overflow. One that
//! joins takes keys only for itself. A backend that is unusable is passed over; it stays on the
//! ring, so its keys return with it. The position of a backend depends on its identity alone, so
//! all clients and all restarts agree.
//!
//! Recent failures count as active requests in the comparison, but not in `m`: a failing backend
//! is at its bound sooner, and the others are not allowed more. If only failing backends are below
//! their bound, the first of them in the order is chosen.
//!
//! A walk ends after [`MAX_STEPS`]. Then, and for a request without a key, the rule is
//! `least-loaded`. The least loaded backend is at most at the mean, so the bound holds there too.
//!
//! Why not rendezvous hashing? It compares all backends for each request. A table of its answers
//! has to be filled anew for each backend that comes, in proportion to its size. Maglev's table was
//! rejected because a removal also moves keys of other backends. Without the bound, points differ:
//! the standard deviation of a backend's share is 9% of it (1/√128).
//!
//! **Where it is weak.** Keys say nothing about cost: use `weighted` where backends need not know
//! their requests. With few concurrent requests the bound is near one request per backend. Two
//! requests of one key at the same time then use two backends. State that must not move needs the
//! bound off.
//!
//! Sources: Karger et al., *Consistent hashing and random trees* (STOC 1997); Mirrokni, Thorup and
//! Zadimoghaddam, *Consistent hashing with bounded loads* (SODA 2018).

mod key;
mod ring;

use alloc::vec::Vec;

use rand_core::Rng;

pub use self::key::HashKey;
use self::key::position;
use self::ring::Ring;
use super::least_loaded::LeastLoaded;
use super::{Candidate, Policy, View};

/// Points of a backend of weight 1. With twice as many, shares would differ by 6% instead of 9%,
/// for twice the memory: 20 bytes for each point.
const POINTS: f64 = 128.0;

/// Limit of points on the ring, 16,384 backends of weight 1, which bounds its memory to 40 MB. A
/// cluster of more weight has half as many points for each backend, and so on. Keys move when its
/// weight crosses that limit.
const MAX_POINTS: u64 = if cfg!(test) { 1 << 14 } else { 1 << 21 };

/// Points that a walk looks at. With the bound at 1.25, less than one walk in 10¹² ends here; where
/// moreover half of all backends are unusable, one in 10⁵.
const MAX_STEPS: usize = 128;

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
    /// Points by its weight alone; 0 for a free slot.
    units: u32,
    /// Points on the ring.
    points: u32,
    active: u32,
    /// Active requests plus the penalty for recent failures.
    load: u32,
    is_usable: bool,
}

/// The policy: the ring, and the loads of the backends on it.
#[derive(Clone, Debug)]
pub(crate) struct Hash {
    bound: Option<LoadBound>,
    ring: Ring,
    /// By slot.
    places: Vec<Place>,
    /// The sum of `units`.
    units: u64,
    /// Each backend has `units ÷ 2^halvings` points.
    halvings: u32,
    /// Active requests and points of the usable backends.
    active: u64,
    points: u64,
    /// The rule for requests without a key.
    fallback: LeastLoaded,
    /// The placement of the last choice.
    last: Placement,
}

/// The bound at one moment, for all backends.
#[derive(Clone, Copy)]
struct Limit {
    /// `c · m`, in thousandths. `None`: no bound.
    allowed: Option<u64>,
    /// `P`, in thousandths.
    points: u64,
}

impl Limit {
    /// Whether a backend with so many points and this load may have one more request.
    ///
    /// `load + 1 ≤ ⌈x⌉` is `load < x` for whole loads.
    fn admits(self, load: u32, points: u32) -> bool {
        self.allowed
            .is_none_or(|allowed| u128::from(load) * u128::from(self.points) < u128::from(allowed) * u128::from(points))
    }
}

impl Hash {
    pub(crate) fn new(config: HashConfig) -> Self {
        Self {
            bound: config.bound,
            ring: Ring::default(),
            places: Vec::new(),
            units: 0,
            halvings: 0,
            active: 0,
            points: 0,
            fallback: LeastLoaded::default(),
            last: Placement::default(),
        }
    }

    pub(crate) fn set_config(&mut self, config: HashConfig) {
        self.bound = config.bound;
    }

    /// Puts a backend on the ring, or changes its weight.
    pub(crate) fn join(&mut self, slot: u32, identity: u64, weight: f64) {
        if self.places.len() <= slot as usize {
            self.places.resize(slot as usize + 1, Place::default());
        }
        let place = self.places[slot as usize];
        if place.units > 0 && place.identity != identity {
            self.leave(slot);
        }
        let units = (weight * POINTS + 0.5).max(1.0) as u32;
        let place = &mut self.places[slot as usize];
        place.identity = identity;
        self.units = self.units - u64::from(place.units) + u64::from(units);
        place.units = units;
        self.settle(slot);
    }

    /// Takes a backend from the ring, if it is on it.
    pub(crate) fn leave(&mut self, slot: u32) {
        let Some(place) = self.places.get_mut(slot as usize).filter(|place| place.units > 0) else { return };
        self.units -= u64::from(core::mem::take(&mut place.units));
        self.on_unusable(slot);
        self.settle(slot);
        self.places[slot as usize] = Place::default();
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
        let found = self.find(key, &is_tried).map(|(slot, _)| slot).or_else(|| {
            let usable = |slot: &u32| self.places[*slot as usize].is_usable && !is_tried(*slot);
            self.walk(key).find(usable)
        })?;
        self.last = Placement::Overflow;
        Some(found)
    }

    fn walk(&self, key: HashKey) -> impl Iterator<Item = u32> {
        self.ring.walk(key.as_u64()).take(MAX_STEPS)
    }

    /// Brings the number of points on the ring in line with weights, after a change at `slot`.
    fn settle(&mut self, slot: u32) {
        let mut halvings = 0;
        while self.units >> halvings > MAX_POINTS {
            halvings += 1;
        }
        if halvings == self.halvings {
            self.set_points(slot);
        } else {
            self.halvings = halvings;
            (0..self.places.len() as u32).for_each(|slot| self.set_points(slot));
        }
    }

    /// Adds or removes the last points of a backend. The first ones stay, so a change of its weight
    /// moves only keys to it or from it.
    fn set_points(&mut self, slot: u32) {
        let Place { identity, units, points, is_usable, .. } = self.places[slot as usize];
        let wanted = units.div_ceil(1 << self.halvings);
        (points..wanted).for_each(|index| self.ring.insert(position(identity, index), slot));
        (wanted..points).for_each(|index| self.ring.remove(position(identity, index), slot));
        self.places[slot as usize].points = wanted;
        if is_usable {
            self.points = self.points - u64::from(points) + u64::from(wanted);
        }
    }

    fn limit(&self) -> Limit {
        let allowed = self.bound.map(|bound| u64::from(bound.thousandths) * (self.active + 1));
        Limit { allowed, points: 1000 * self.points }
    }

    /// The first usable backend below its bound, in the order of `key` and without those to skip.
    fn find(&self, key: HashKey, skip: impl Fn(u32) -> bool) -> Option<(u32, Placement)> {
        let limit = self.limit();
        let mut placement = Placement::First;
        // Below its bound but for its failures.
        let mut failing = None;
        for slot in self.walk(key) {
            let place = &self.places[slot as usize];
            if !place.is_usable {
                if placement == Placement::First {
                    placement = Placement::Moved;
                }
                continue;
            }
            if !skip(slot) {
                if limit.admits(place.load, place.points) {
                    return Some((slot, placement));
                }
                if failing.is_none() && limit.admits(place.active, place.points) {
                    failing = Some((slot, placement));
                }
            }
            placement = Placement::Overflow;
        }
        failing
    }

    /// The least loaded backend; for a request with a key, one below its bound.
    fn choose_least_loaded(&mut self, view: &View<'_>, rng: &mut impl Rng) -> u32 {
        let slot = self.fallback.choose(view, rng);
        if view.key.is_none() {
            return slot;
        }
        let limit = self.limit();
        let is_below = |slot: &u32| {
            let place = &self.places[*slot as usize];
            limit.admits(place.active, place.points)
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
    fn choose(&mut self, view: &View<'_>, rng: &mut impl Rng) -> u32 {
        let found = view.key.and_then(|key| self.find(key, |_| false));
        let (slot, placement) = found.unwrap_or_else(|| {
            let placement = if view.key.is_some() { Placement::Overflow } else { Placement::Unkeyed };
            (self.choose_least_loaded(view, rng), placement)
        });
        self.last = placement;
        slot
    }

    fn alternative(&mut self, view: &View<'_>, passed: &[u32], rng: &mut impl Rng) -> u32 {
        let Some(key) = view.key else { return super::p2c::other_than(passed[0], view, rng) };
        self.find(key, |slot| passed.contains(&slot)).map_or(passed[0], |(other, _)| other)
    }

    fn on_replaced(&mut self) {
        if self.last != Placement::Unkeyed {
            self.last = Placement::Overflow;
        }
    }

    fn on_usable(&mut self, slot: u32, candidate: &Candidate) {
        self.fallback.on_usable(slot, candidate);
        let Some(place) = self.places.get_mut(slot as usize) else { return };
        place.load = candidate.load;
        if !core::mem::replace(&mut place.is_usable, true) {
            self.active += u64::from(place.active);
            self.points += u64::from(place.points);
        }
    }

    fn on_unusable(&mut self, slot: u32) {
        self.fallback.on_unusable(slot);
        let Some(place) = self.places.get_mut(slot as usize) else { return };
        if core::mem::replace(&mut place.is_usable, false) {
            self.active -= u64::from(place.active);
            self.points -= u64::from(place.points);
        }
    }

    fn on_load(&mut self, slot: u32, candidate: &Candidate) {
        self.fallback.on_load(slot, candidate);
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

    /// Points of each backend, and the order of one key.
    fn state(hash: &Hash) -> (Vec<u32>, Vec<u32>) {
        let points = hash.places.iter().map(|place| place.points).collect();
        (points, hash.ring.walk(1 << 60).take(1_000).collect())
    }

    #[test]
    fn points_are_halved_while_weight_exceeds_the_limit() {
        // 16 have 2¹⁴ points together, the limit in tests.
        let mut hash = joined(0..17, 8.0);
        assert_eq!(state(&hash).0, [512; 17]);
        hash.join(17, 17, 1.5);
        assert_eq!(hash.places[17].points, 96, "in proportion");
        hash.leave(17);
        hash.leave(16);
        let (mut points, order) = state(&hash);
        assert_eq!(points.split_off(16), [0, 0]);
        assert_eq!((points, order), state(&joined(0..16, 8.0)), "the same as if it had never been there");
        assert_eq!(hash.ring.len(), 16 * 1024);
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
