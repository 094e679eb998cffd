//! One customer at the owner: the demand and the rate of each task, and what is left of the limit.
//!
//! ```text
//! Σ held ≤ granted(limit)          held: the highest rate that a task may be using
//! credit: fills with granted − Σ held and with what tasks give back,
//!         up to max(0.1 s of the limit, min(16 c, 0.5 s of the limit))
//! ```

use alloc::vec::Vec;
use core::time::Duration;

use super::super::coarse::Coarse;
use super::super::rule::{LEVELS, root};
use super::super::{AssignmentEntry, CustomerId, Cut, FleetUse, Rule, Sums, UNLIMITED, floor, granted};
use super::believed::{Claim, Scale};
use crate::{Criticality, Timestamp};

/// A rate is sent when it changes by more than this part of itself.
const HYSTERESIS: f64 = 0.05;
/// Seconds of the limit that are lent to tasks that ask for a credit.
const LENT: f64 = 0.1;
/// Requests that are lent where these are more, and the seconds of the limit that they may be.
const LENT_REQUESTS: f64 = 16.0;
const LENT_MOST: f64 = 0.5;
/// A change of the demand of all tasks that they are told if the customer has a soft limit, as a part of it, and in
/// standard deviations of the demand over a second: about as much as it changes by chance.
const TELL_CHANGE: f64 = 0.1;
const TELL_DEVIATIONS: f64 = 1.0;
/// Requests of a task count at this part of the mean cost at all other tasks, at least. Tasks of a service are alike, so
/// a far lower cost is an error or a lie, and would make any number of requests of its demand.
const LEAST_COST: f64 = 1.0 / 8.0;
/// Weight of a new mean cost.
const COST_WEIGHT: f64 = 1.0 / 16.0;
/// Time between two sweeps of a customer.
const SWEEP_INTERVAL: Duration = Duration::from_millis(100);
/// The same while a task waits for what others are to give up.
const STARVED_INTERVAL: Duration = Duration::from_millis(20);
/// Time between two sweeps for each task of the customer, so that sweeps take a bounded part of a core.
const SWEEP_PER_TASK: Duration = Duration::from_micros(50);

/// A full list of tasks grows by this number, or by this fraction of its length if that is more. A vector alone would
/// double.
const LEAST_MORE: usize = 4;
const MORE: usize = 16;

/// A task at a customer: 28 bytes, as there are ten millions.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entry {
    pub(super) task: u32,
    demand: [Coarse; LEVELS],
    used: Coarse,
    /// Requests in 1,000 s, refused ones included. Zero: not known.
    requests: Coarse,
    /// The highest rate that the task may be using, as far as it counts.
    pub(super) held: u32,
    /// The rate of the last assignment, or that the task said when it joined.
    pub(super) rate: u32,
    /// The number of that assignment.
    pub(super) number: u32,
}

impl Entry {
    pub(super) fn demand(&self) -> [u64; LEVELS] {
        self.demand.map(Coarse::get)
    }

    pub(super) fn all_demand(&self) -> u64 {
        self.demand().iter().sum()
    }

    /// The task joined with a rate that does not count, and was assigned none since.
    pub(super) fn is_uncounted(&self) -> bool {
        self.rate > self.held
    }

    pub(super) fn is_idle(&self) -> bool {
        self.held == 0 && self.demand == [Coarse::default(); LEVELS]
    }
}

/// See the [module](self).
#[derive(Clone, Debug)]
pub(super) struct Customer {
    pub(super) limit: u64,
    pub(super) entries: Vec<Entry>,
    sums: Sums,
    /// Σ of the costs of admitted requests a second.
    used: u64,
    /// Σ held.
    pub(super) held: u64,
    /// Σ of the rates that tasks held when they joined, since the owner began.
    pub(super) reported: u64,
    /// Σ of the rates that tasks took with them to another owner, as far as this one knows.
    pub(super) reserved: u64,
    /// The most that may be held, if the limit may be another owner's.
    pub(super) frozen: Option<u64>,
    /// Mean cost of a request by reports, in CPU-microseconds: tasks that lack something report more often.
    cost: f64,
    /// The last mean cost of a request over all tasks, in CPU-microseconds.
    mean: f64,
    credit: f64,
    credit_at: Timestamp,
    /// Tasks get credits.
    is_lending: bool,
    /// Tasks are to know the demand of all.
    has_soft_limit: bool,
    /// The demand that tasks are told, and the number of its change.
    told: [u64; LEVELS],
    pub(super) told_number: u64,
    /// The last answer that has an entry of it.
    pub(super) answered: u64,
    /// The rule of the last sweep.
    swept: Rule,
    swept_at: Timestamp,
    pub(super) is_dirty: bool,
    /// A task has less than the rule gives it.
    pub(super) is_starved: bool,
}

impl Customer {
    pub(super) fn new(now: Timestamp, limit: u64, is_lending: bool) -> Self {
        Self {
            limit,
            entries: Vec::new(),
            sums: Sums::default(),
            used: 0,
            held: 0,
            reported: 0,
            reserved: 0,
            frozen: None,
            cost: 0.0,
            mean: 0.0,
            credit: 0.0,
            credit_at: now,
            is_lending,
            has_soft_limit: false,
            told: [0; LEVELS],
            told_number: 0,
            answered: 0,
            swept: Rule::Plenty(0.0),
            swept_at: now,
            is_dirty: false,
            is_starved: false,
        }
    }

    /// Adds a task that uses a rate. `is_new`: its rate was not reported to this owner before. Returns its place.
    pub(super) fn add(&mut self, now: Timestamp, task: u32, claim: Claim, is_new: bool) -> usize {
        let Claim { held, demand: claimed } = claim;
        self.fill_credit(now);
        self.held += u64::from(held);
        self.reported += if is_new { u64::from(held) } else { 0 };
        let (used, requests) = (Coarse::default(), Coarse::default());
        if self.entries.len() == self.entries.capacity() {
            self.entries.reserve_exact(LEAST_MORE.max(self.entries.len() / MORE));
        }
        self.entries.push(Entry { task, demand: Default::default(), used, requests, held, rate: held, number: 0 });
        let (place, mut demand) = (self.entries.len() - 1, [0; LEVELS]);
        demand[Criticality::default().rank()] = claimed;
        self.set_demand(place, demand);
        place
    }

    /// Removes the task at this place; the last one takes the place.
    pub(super) fn remove(&mut self, now: Timestamp, place: usize) {
        self.set_demand(place, [0; LEVELS]);
        self.set_used(place, 0);
        self.set_held(now, place, 0);
        self.entries.swap_remove(place);
    }

    /// The task's demand is this, it uses this much of it, and its requests cost this much. Returns its demand before
    /// and now.
    pub(super) fn on_demand(&mut self, place: usize, demand: [u64; LEVELS], used: u64, cost: u32) -> (u64, u64) {
        let (before, all) = self.set_demand(place, demand);
        self.set_used(place, used);
        self.entries[place].requests = Coarse::new((1_000 * all).checked_div(u64::from(cost)).unwrap_or(0));
        let cost = f64::from(cost);
        let weight = if self.cost > 0.0 { COST_WEIGHT } else { 1.0 };
        self.cost += weight * (cost - self.cost);
        (before, all)
    }

    /// The task's demand counts for another part of itself, and so do its requests. Returns it before and now.
    pub(super) fn scale(&mut self, place: usize, scale: Scale) -> (u64, u64) {
        let Entry { requests, .. } = self.entries[place];
        self.entries[place].requests = Coarse::new(scale.of(requests.get()));
        self.set_demand(place, self.entries[place].demand().map(|demand| scale.of(demand)))
    }

    /// Of the task's demand only as much counts as it holds, the most critical first. Returns it before and now.
    pub(super) fn keep_held_demand(&mut self, place: usize) -> (u64, u64) {
        let entry = &mut self.entries[place];
        let (all, mut left) = (entry.all_demand(), u64::from(entry.held));
        if all <= left {
            return (all, all);
        }
        entry.requests = Coarse::new((u128::from(entry.requests.get()) * u128::from(left) / u128::from(all)) as u64);
        let kept = entry.demand().map(|level| {
            let kept = level.min(left);
            left -= kept;
            kept
        });
        self.set_demand(place, kept)
    }

    /// Returns the sums before and now.
    fn set_demand(&mut self, place: usize, demand: [u64; LEVELS]) -> (u64, u64) {
        let entry = &mut self.entries[place];
        let before = entry.demand();
        entry.demand = demand.map(Coarse::new);
        let after = entry.demand();
        for ((sum, before), after) in self.sums.demand.iter_mut().zip(before).zip(after) {
            *sum = *sum - before + after;
        }
        let (before, after) = (before.iter().sum::<u64>(), after.iter().sum::<u64>());
        self.sums.roots = self.sums.roots - before.isqrt() + after.isqrt();
        (before, after)
    }

    fn set_used(&mut self, place: usize, used: u64) {
        let used = Coarse::new(used);
        let before = core::mem::replace(&mut self.entries[place].used, used);
        self.used = self.used - before.get() + used.get();
    }

    fn set_held(&mut self, now: Timestamp, place: usize, held: u32) {
        self.fill_credit(now);
        let entry = &mut self.entries[place];
        self.held = self.held - u64::from(entry.held) + u64::from(held);
        entry.held = held;
    }

    pub(super) fn rule(&self) -> Rule {
        Rule::new(granted(self.limit), &self.sums, self.cost)
    }

    /// The entry of an assignment to a task.
    pub(super) fn entry(&self, customer: CustomerId, rate: u32, credit: u32, cut: Cut) -> AssignmentEntry {
        let fleet = Some(FleetUse { demand: self.demand(), used: self.used });
        AssignmentEntry { customer, limit: self.limit, rate, credit, cut, fleet }
    }

    /// The sum of the rates that may be granted.
    pub(super) fn pool(&self, is_unsure: bool) -> u64 {
        let most = granted(self.limit).saturating_sub(self.reserved).min(self.frozen.unwrap_or(u64::MAX));
        if is_unsure { most.min(self.reported) } else { most }
    }

    /// Grants the task at this place its rate by the rule, as far as `pool` has it. Returns whether the
    /// rate changed enough to be sent.
    pub(super) fn grant(&mut self, now: Timestamp, place: usize, rule: &Rule, pool: u64) -> bool {
        let entry = self.entries[place];
        let wanted = if self.limit < UNLIMITED { rule.rate(&entry.demand()) } else { 0 };
        let free = pool.saturating_sub(self.held - u64::from(entry.held));
        let rate = wanted.min(free).min(u64::from(u32::MAX)) as u32;
        self.is_starved |= u64::from(rate) < wanted;
        let is_small = f64::from(rate.abs_diff(entry.rate)) <= f64::from(entry.rate) * HYSTERESIS;
        if is_small && (rate > 0 || entry.rate == 0) && !entry.is_uncounted() {
            return false;
        }
        self.entries[place].rate = rate;
        if rate > entry.held {
            self.set_held(now, place, rate);
        }
        true
    }

    /// The task at this place uses the last assigned rate and no other.
    pub(super) fn release(&mut self, now: Timestamp, place: usize) {
        let rate = self.entries[place].rate;
        self.set_held(now, place, rate);
    }

    /// Takes up to `lacking` CPU-microseconds from the credits.
    pub(super) fn take_credit(&mut self, now: Timestamp, lacking: u32, pool: u64) -> u32 {
        self.fill_credit(now);
        if self.frozen.is_some() || pool < granted(self.limit).saturating_sub(self.reserved) {
            // Tasks of another owner may be using the rest.
            return 0;
        }
        let credit = f64::from(lacking).min(self.credit);
        self.credit -= credit;
        credit as u32
    }

    /// The task at this place could not use a part of its rate in the last `elapsed`.
    pub(super) fn give_back(&mut self, now: Timestamp, place: usize, unused: u32, elapsed: Duration, tasks: u32) {
        self.fill_credit(now);
        let rate = u64::from(self.entries[place].held) + floor(self.limit, tasks);
        self.add_credit(f64::from(unused).min(rate as f64 * elapsed.as_secs_f64()));
    }

    fn add_credit(&mut self, gained: f64) {
        let limit = self.limit as f64;
        let depth = (LENT * limit).max((LENT_REQUESTS * self.cost).min(LENT_MOST * limit));
        self.credit = if self.is_lending { (self.credit + gained).min(depth) } else { 0.0 };
    }

    pub(super) fn fill_credit(&mut self, now: Timestamp) {
        let free = granted(self.limit).saturating_sub(self.held + self.reserved) as f64;
        let gained = free * now.since(self.credit_at).as_secs_f64();
        self.add_credit(gained);
        self.credit_at = self.credit_at.max(now);
    }

    /// Whether the rates of other tasks are to change for this rule.
    pub(super) fn needs_sweep(&self, rule: &Rule) -> bool {
        if self.limit >= UNLIMITED {
            return false;
        }
        let differs = |now: f64, before: f64| (now - before).abs() > HYSTERESIS * before.abs().min(now.abs());
        match (*rule, self.swept) {
            (Rule::Scarce(now), Rule::Scarce(before)) => {
                now.rank != before.rank || differs(f64::from(now.part), f64::from(before.part))
            }
            (Rule::Tight(now), Rule::Tight(before)) => differs(now, before),
            (Rule::Plenty(now), Rule::Plenty(before)) => differs(now, before),
            _ => true,
        }
    }

    /// Whether tasks are to be told the demand from now on: it is another, and counts while they lack CPU.
    pub(super) fn take_other_demand(&mut self) -> bool {
        if !self.has_soft_limit {
            return false;
        }
        let demand = self.demand();
        let told = self.told.iter().sum::<u64>() as f64;
        // A task may report any cost: a change by half is told in any case.
        let by_chance = (TELL_DEVIATIONS * root(told * self.cost)).min(told / 2.0);
        let least = (TELL_CHANGE * told).max(by_chance);
        let change: u64 = demand.iter().zip(self.told).map(|(now, before)| now.abs_diff(before)).sum();
        let is_other = change as f64 > least;
        if is_other {
            self.told = demand;
        }
        is_other
    }

    /// Tasks are to know the demand of the customer at all tasks, or not. Returns whether that is a change.
    pub(super) fn set_soft_limit(&mut self, has_soft_limit: bool) -> bool {
        let is_new = core::mem::replace(&mut self.has_soft_limit, has_soft_limit) != has_soft_limit;
        if is_new {
            self.told = [0; LEVELS];
        }
        is_new
    }

    /// The time of the next sweep.
    pub(super) fn sweep_due(&self) -> Timestamp {
        let least = if self.is_starved { STARVED_INTERVAL } else { SWEEP_INTERVAL };
        self.swept_at + least.max(SWEEP_PER_TASK * self.entries.len() as u32)
    }

    pub(super) fn on_sweep(&mut self, now: Timestamp, rule: Rule) {
        (self.swept, self.swept_at, self.is_dirty, self.is_starved) = (rule, now, false, false);
    }

    /// Whether other criticalities are refused than at the last sweep.
    pub(super) fn is_other_cut(&self, rule: &Rule) -> bool {
        let (now, before) = (rule.cut(), self.swept.cut());
        now.rank != before.rank || (now == Cut::NONE) != (before == Cut::NONE)
    }

    pub(super) fn demand(&self) -> [u64; LEVELS] {
        self.sums.demand
    }

    pub(super) fn used(&self) -> u64 {
        self.used
    }

    /// The mean cost of a request over all tasks, in CPU-microseconds; the last one while there are none. Takes time
    /// in proportion to the tasks.
    pub(super) fn mean_cost(&mut self) -> f64 {
        let known = || self.entries.iter().map(|entry| (entry.all_demand(), entry.requests.get()));
        let known = || known().filter(|(_, requests)| *requests > 0);
        let (demand, requests) = known().fold((0, 0), |(demand, sum), (of, requests)| (demand + of, sum + requests));
        // By what the others say, and not by what counts of it: else one bound would raise the next.
        let counted = known().map(|(of, own)| {
            let others = (demand - of) as f64 / (requests - own).max(1) as f64;
            if requests == own { own as f64 } else { (own as f64).min(of as f64 / (LEAST_COST * others).max(1e-9)) }
        });
        let counted: f64 = counted.sum();
        if counted > 0.0 {
            self.mean = 1_000.0 * demand as f64 / counted;
        }
        self.mean
    }

    pub(super) fn cut(&self) -> Cut {
        self.rule().cut()
    }
}
