//! The table of backends: one slot each, and the set of usable backends.
//!
//! The data that a policy reads on each pick ([`Candidate`]) lies apart from the rest, so that a
//! pick among ten thousand backends touches little memory. The usable set is a dense array, and
//! each member knows its index in it. Entering and leaving therefore take constant time; the order
//! has no meaning.

use alloc::vec::Vec;
use core::ops::Range;

use super::BalancerConfig;
use super::warming::Warming;
use crate::health::{Census, Health, Outlier, Scope, State};
use crate::pick::capability::{Capability, CapabilityEstimate};
use crate::pick::errors::{ErrorShare, penalty};
use crate::pick::rate_limits::{LimitedShare, LimitedShares};
use crate::pick::{Candidate, HashKey, View, WeightedConfig, feedback};
use crate::{BackendId, LoadReport, Timestamp, Weight};

const NOT_USABLE: u32 = u32::MAX;

/// The balancer's knowledge of one backend.
#[derive(Clone, Debug)]
pub(super) struct Member {
    pub(super) active: u32,
    /// A hash of its address or name, the same at all clients.
    pub(super) identity: u64,
    /// Index of its locality, nearest first.
    pub(super) locality: u32,
    pub(super) errors: ErrorShare,
    pub(super) limited: LimitedShare,
    /// Its progress in slow start.
    pub(super) warming: Warming,
    pub(super) requests: u64,
    pub(super) failures: u64,
    pub(super) health: Health,
    pub(super) outlier: Outlier,
    pub(super) capability: Capability,
    pub(super) report: Option<(Timestamp, LoadReport)>,
    /// The last begin or end of a request, or the time at which it was added.
    pub(super) last_used: Timestamp,
    /// The last response or passed check.
    pub(super) last_success: Option<Timestamp>,
    /// Probes found it idle for long: a pick must wake it.
    pub(super) is_inactive: bool,
    /// The wake-up that is scheduled.
    pub(super) scheduled: Option<Timestamp>,
    generation: u32,
    occupied: bool,
    /// State and reachability that the census counts it under.
    counted: (State, bool),
    usable_at: u32,
}

impl Member {
    fn new(now: Timestamp, identity: u64, generation: u32) -> Self {
        Self {
            active: 0,
            identity,
            locality: 0,
            errors: ErrorShare::default(),
            limited: LimitedShare::default(),
            warming: Warming::complete(),
            requests: 0,
            failures: 0,
            health: Health::new(now),
            outlier: Outlier::default(),
            capability: Capability::default(),
            report: None,
            last_used: now,
            last_success: None,
            is_inactive: false,
            scheduled: None,
            generation,
            occupied: true,
            counted: (State::Connecting, false),
            usable_at: NOT_USABLE,
        }
    }

    pub(super) fn is_healthy(&self) -> bool {
        self.health.state() == State::Healthy
    }

    /// Whether it has no recent failures or rate limits.
    pub(super) fn is_clean(&self) -> bool {
        self.errors.is_clean() && self.limited.is_clean()
    }

    /// The share of recent requests that count as failures for picks, in [0, 1].
    pub(super) fn failing(&self, now: Timestamp, limited: &LimitedShares) -> f32 {
        (self.errors.share(now) + self.limited.excess(now, limited)).min(1.0)
    }

    /// Active requests, plus recent failures as further ones: `unit` for each unit of their
    /// penalty.
    pub(super) fn load(&self, now: Timestamp, unit: u32, limited: &LimitedShares) -> u32 {
        if self.is_clean() {
            self.active
        } else {
            self.active.saturating_add(penalty(self.failing(now, limited)).saturating_mul(unit))
        }
    }
}

/// The inverse of a weight, as policies read it.
fn inverse(weight: Weight) -> f32 {
    weight.as_f64().recip() as f32
}

/// The backends by slot.
#[derive(Clone, Debug)]
pub(super) struct Members {
    slots: Vec<Member>,
    free: Vec<u32>,
    pub(super) candidates: Vec<Candidate>,
    /// Slots of usable backends, by locality: at least one list.
    pub(super) usable: Vec<Vec<u32>>,
    pub(super) census: Census,
    /// The backends that may be chosen; follows the census.
    pub(super) scope: Scope,
    least_inverse_weight: f32,
    /// Rate limits of all backends together, to compare one backend with the others.
    pub(super) limited: LimitedShares,
}

impl Default for Members {
    fn default() -> Self {
        Self {
            slots: Vec::new(),
            free: Vec::new(),
            candidates: Vec::new(),
            usable: Vec::from([Vec::new()]),
            census: Census::default(),
            scope: Scope::Healthy,
            least_inverse_weight: f32::INFINITY,
            limited: LimitedShares::default(),
        }
    }
}

impl Members {
    /// Adds a backend; without an `identity`, the number of its slot serves.
    pub(super) fn add(&mut self, now: Timestamp, weight: Weight, identity: Option<u64>) -> BackendId {
        let inverse_weight = inverse(weight);
        let candidate = Candidate { load: 0, inverse_weight, latency: Default::default() };
        let slot = match self.free.pop() {
            Some(slot) => {
                let generation = self.slots[slot as usize].generation.wrapping_add(1);
                self.slots[slot as usize] = Member::new(now, identity.unwrap_or(slot.into()), generation);
                self.candidates[slot as usize] = candidate;
                slot
            }
            None => {
                self.slots.push(Member::new(now, identity.unwrap_or(self.slots.len() as u64), 0));
                self.candidates.push(candidate);
                self.reserve();
                (self.slots.len() - 1) as u32
            }
        };
        self.least_inverse_weight = self.least_inverse_weight.min(inverse_weight);
        self.census.connecting += 1;
        self.id_at(slot)
    }

    /// Reserves each locality's list for all backends, so that no pick allocates.
    pub(super) fn reserve(&mut self) {
        let slots = self.slots.len();
        self.usable.iter_mut().for_each(|usable| usable.reserve(slots - usable.len()));
    }

    /// The locality of the backend in `slot`.
    pub(super) fn locality(&self, slot: u32) -> usize {
        self.slots[slot as usize].locality as usize
    }

    /// Removes a member that is no longer usable.
    pub(super) fn remove(&mut self, id: BackendId) {
        let member = &mut self.slots[id.slot()];
        member.occupied = false;
        self.limited = self.limited.without(&member.limited);
        let (state, unreachable) = member.counted;
        *self.census.count_of(state, unreachable) -= 1;
        self.free.push(id.slot() as u32);
        self.find_heaviest();
    }

    /// Changes the weight of a backend. Returns whether it was another one.
    pub(super) fn set_weight(&mut self, slot: u32, weight: Weight) -> bool {
        let inverse_weight = inverse(weight);
        let former = core::mem::replace(&mut self.candidates[slot as usize].inverse_weight, inverse_weight);
        if inverse_weight < self.least_inverse_weight {
            self.least_inverse_weight = inverse_weight;
        } else if former <= self.least_inverse_weight {
            self.find_heaviest();
        }
        former != inverse_weight
    }

    /// Finds the least inverse weight, that of the heaviest backend.
    fn find_heaviest(&mut self) {
        let inverse_weights = self.iter().map(|(id, _)| self.candidates[id.slot()].inverse_weight);
        self.least_inverse_weight = inverse_weights.fold(f32::INFINITY, f32::min);
    }

    pub(super) fn get(&self, id: BackendId) -> Option<&Member> {
        self.slots.get(id.slot()).filter(|member| member.occupied && member.generation == id.generation())
    }

    pub(super) fn get_mut(&mut self, id: BackendId) -> Option<&mut Member> {
        self.slots.get_mut(id.slot()).filter(|member| member.occupied && member.generation == id.generation())
    }

    pub(super) fn at(&self, slot: u32) -> &Member {
        &self.slots[slot as usize]
    }

    pub(super) fn at_mut(&mut self, slot: u32) -> &mut Member {
        &mut self.slots[slot as usize]
    }

    pub(super) fn id_at(&self, slot: u32) -> BackendId {
        BackendId::new(slot, self.slots[slot as usize].generation)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (BackendId, &Member)> + Clone {
        self.slots
            .iter()
            .enumerate()
            .filter(|(_, member)| member.occupied)
            .map(|(slot, member)| (BackendId::new(slot as u32, member.generation), member))
    }

    /// The backends in a range of slots, which may reach beyond the last one.
    pub(super) fn iter_in(&self, slots: Range<usize>) -> impl Iterator<Item = (BackendId, &Member)> {
        let (begin, end) = (slots.start.min(self.slots.len()), slots.end.min(self.slots.len()));
        let slots = self.slots[begin..end.max(begin)].iter().zip(begin..);
        slots
            .filter(|(member, _)| member.occupied)
            .map(|(member, slot)| (BackendId::new(slot as u32, member.generation), member))
    }

    pub(super) fn healthy(&self) -> impl Iterator<Item = (BackendId, &Member)> + Clone {
        self.iter().filter(|(_, member)| member.is_healthy())
    }

    /// The healthy backends except the one in `slot`.
    pub(super) fn healthy_peers(&self, slot: u32) -> impl Iterator<Item = &Member> + Clone {
        self.healthy().filter(move |(id, _)| id.slot() != slot as usize).map(|(_, member)| member)
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Member> {
        self.slots.iter_mut().filter(|member| member.occupied)
    }

    /// Records an answer of a backend.
    pub(super) fn record_answer(&mut self, now: Timestamp, slot: u32, is_limited: bool) {
        let limited = &mut self.slots[slot as usize].limited;
        let others = self.limited.without(limited);
        limited.on_answer(now, is_limited);
        self.limited = others.with(limited);
    }

    /// Forgives a backend its faded penalties. True if none is left.
    pub(super) fn forgive(&mut self, now: Timestamp, slot: u32) -> bool {
        let member = &mut self.slots[slot as usize];
        let others = self.limited.without(&member.limited);
        let (errors, limited) = (member.errors.forgive(now), member.limited.forgive(now));
        self.limited = others.with(&member.limited);
        errors && limited
    }

    /// Number of slots ever in use.
    pub(super) fn slots(&self) -> usize {
        self.slots.len()
    }

    pub(super) fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The member in `slot`, if the slot is occupied.
    pub(super) fn occupant(&self, slot: u32) -> Option<&Member> {
        Some(&self.slots[slot as usize]).filter(|member| member.occupied)
    }

    pub(super) fn is_usable(&self, slot: u32) -> bool {
        self.slots[slot as usize].usable_at != NOT_USABLE
    }

    /// Whether state and panic threshold let `slot` be chosen.
    pub(super) fn is_in_scope(&self, slot: u32) -> bool {
        let (state, unreachable) = self.slots[slot as usize].counted;
        crate::health::eligible(self.scope, state, unreachable)
    }

    /// The input of a locality's policy at `now`.
    pub(super) fn view(&self, now: Timestamp, locality: usize, key: Option<HashKey>) -> View<'_> {
        View {
            now,
            usable: &self.usable[locality],
            candidates: &self.candidates,
            least_inverse_weight: self.least_inverse_weight,
            key,
        }
    }

    /// The known capabilities of a locality's backends, by slot.
    pub(super) fn capabilities(
        &self,
        now: Timestamp,
        locality: usize,
        config: &WeightedConfig,
    ) -> impl Iterator<Item = Option<CapabilityEstimate>> + Clone {
        self.slots.iter().enumerate().map(move |(slot, member)| {
            // A backend that may not be chosen says nothing about the weights of the others.
            let counts = member.occupied && member.locality as usize == locality && self.is_in_scope(slot as u32);
            counts.then(|| member.capability.weight(now, config)).flatten()
        })
    }

    /// Caps the capabilities of a locality's backends at `most`.
    pub(super) fn cap_capabilities(&mut self, locality: usize, most: f64) {
        for member in self.slots.iter_mut().filter(|member| member.locality as usize == locality) {
            member.capability.cap(most);
        }
    }

    /// Corrects weights for the time since `last`, by each backend's utilization relative to its
    /// locality's. Only backends that may be chosen and get their full share count. `last` is
    /// `None` when weights have just come into force.
    pub(super) fn feed_back(&mut self, now: Timestamp, last: Option<Timestamp>, config: &BalancerConfig) {
        let BalancerConfig { weighted, slow_start, .. } = config;
        let counts = |members: &Self, slot: usize| {
            let member = &members.slots[slot];
            let has_its_share =
                member.occupied && members.is_in_scope(slot as u32) && member.warming.share(now, slow_start) >= 1.0;
            has_its_share && member.capability.known(now, weighted).is_some()
        };
        for slot in 0..self.slots.len() {
            let has_its_share = counts(self, slot);
            let feedback = &mut self.slots[slot].capability.feedback;
            if last.is_none() {
                feedback.settle(now, false, weighted.smoothing);
            }
            feedback.settle(now, has_its_share, weighted.smoothing);
        }
        for locality in 0..self.usable.len() {
            let of_it = |member: &&Member| member.locality as usize == locality;
            let measured =
                self.slots.iter().filter(of_it).filter_map(|member| member.capability.feedback.measured(now));
            let mean = feedback::mean(measured);
            for slot in 0..self.slots.len() {
                if self.locality(slot as u32) == locality && counts(self, slot) {
                    self.slots[slot].capability.feedback.correct(now, last.unwrap_or(now), mean, weighted.feedback);
                }
            }
        }
    }

    /// Adds `slot` to the usable set or removes it; returns whether the set changed.
    pub(super) fn set_usable(&mut self, slot: u32, usable: bool) -> bool {
        let Member { usable_at: place, locality, .. } = self.slots[slot as usize];
        if usable == (place != NOT_USABLE) {
            return false;
        }
        let list = &mut self.usable[locality as usize];
        if usable {
            self.slots[slot as usize].usable_at = list.len() as u32;
            list.push(slot);
        } else {
            list.swap_remove(place as usize);
            if let Some(&moved) = list.get(place as usize) {
                self.slots[moved as usize].usable_at = place;
            }
            self.slots[slot as usize].usable_at = NOT_USABLE;
        }
        true
    }

    /// Counts a backend under its present state.
    pub(super) fn recount(&mut self, id: BackendId) {
        let member = &mut self.slots[id.slot()];
        let (state, unreachable) = member.counted;
        *self.census.count_of(state, unreachable) -= 1;
        member.counted = (member.health.state(), member.health.unreachable());
        let (state, unreachable) = member.counted;
        *self.census.count_of(state, unreachable) += 1;
    }
}
