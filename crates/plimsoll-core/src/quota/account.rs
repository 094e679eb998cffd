//! The account of one customer at one task: it decides on requests, and measures the demand.
//!
//! ```text
//! rate   = assigned rate + floor
//! depth  = max(w · rate, 3 c)           w = 0.5 s, or 0.1 s when the customer is cut; c: mean cost
//! admit  = level > 0                    not cut
//!        | level > −2 k · depth         k levels above the cut
//!        | chance, and level > reserve  at the cut
//! ```
//!
//! Below the cut nothing is admitted, and at it a part that is chosen at random, or by cohort. More than
//! the part passes while the level is high, so that the level binds and not the estimate of the demand.
//! Above the cut nearly all is admitted: over the fleet it fits into the limit. Its debt is [paid off](pay_off).
//!
//! ```text
//! low  = d·t + c/2 + 2 √(d·t·c)         t = 0.1 s: requests that may arrive before the answer to a report
//! ask  = credit up to low + c/2, or for 0.25 s of the demand of the moment above the rate
//! back = the overflow of the bucket of a small account: less than 16 c deep, near the limit
//! ```
//!
//! Where a task has few requests a second, its bucket is full at one moment and empty at the next. What
//! small accounts give back is lent to those that ask, so that the noise of all tasks is shared.
//!
//! An account without a limit admits everything: a task that never heard of a limit refuses nothing.

use core::time::Duration;

use super::rule::{LEVELS, Rule, cut, root};
use super::{AssignmentEntry, Bucket, CustomerId, Cut, FairShare, FleetUse, Hold, Limit, ReportEntry};
use super::{UNLIMITED, floor, granted, pay_off, soft};
use crate::{Criticality, Timestamp, decay};

/// Time after which half of the demand is forgotten.
const HALF_LIFE: Duration = Duration::from_secs(1);
/// The same for the demand of the moment.
const SHORT_HALF_LIFE: Duration = Duration::from_millis(100);
/// Seconds of the demand of the moment that a credit is to cover: a round trip, and the time until rates follow.
const AHEAD: f64 = 0.25;
/// More than the exact part passes the cut, so that the level decides.
const BRISK: f64 = 1.1;
/// Seconds of the rate that may be used at once.
pub(super) const DEPTH: f64 = 0.5;
/// The same when the customer is cut.
pub(super) const CUT_DEPTH: f64 = 0.1;
/// Requests that may be made at once in any case.
pub(super) const LEAST_REQUESTS: f64 = 3.0;
/// Part of the depth that requests at the cut leave to those above it.
const RESERVE: f64 = 0.3;
/// Depths of debt that requests above the cut may make, for each level above it.
const DEBT: f64 = 2.0;
/// Seconds until the answer to a report is there, and deviations of the demand in that time: a level that may be
/// used up until then is low.
const ROUND_TRIP: f64 = 0.1;
const LOW_DEVIATIONS: f64 = 2.0;
/// Requests beside it.
const LOW_REQUESTS: f64 = 0.5;
/// Requests above the low level that a credit is to cover.
const MORE_REQUESTS: f64 = 0.5;
/// An account whose depth is less than this many requests is small: its tasks share their unused rates.
const SMALL: f64 = 16.0;
/// Requests that are worth giving back.
const LEAST_UNUSED: f64 = 0.25;
/// Demand is reported when it changes by more than this part of itself.
const CHANGE: f64 = 0.05;
/// Time between two cuts without an owner.
const OWN_CUT_INTERVAL: Duration = Duration::from_millis(100);
/// Weight of a new cost in the mean.
const COST_WEIGHT: f64 = 0.05;
/// Shortest and longest time between two requests for a credit. It doubles while the answers do not help.
const ASK_INTERVAL: [Duration; 2] = [Duration::from_millis(20), Duration::from_secs(1)];

/// The reason why a request is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The whole fleet refuses requests of this criticality.
    Cut,
    /// This task has used its part of the limit.
    Spent,
}

/// The requests and the demand of one customer at one task.
#[derive(Clone, Debug)]
pub struct Account {
    /// In µCPU. `None`: not known.
    limit: Option<u64>,
    /// The soft limit, in µCPU.
    soft: Option<u64>,
    rate: u32,
    floor: f64,
    /// Demand up to this is not reported, in µCPU.
    unreported: f64,
    cut: Cut,
    /// Without an owner: when the cut is to be computed from the demand of this task.
    own_cut_at: Option<Timestamp>,
    bucket: Bucket,
    /// Decayed sums of costs by criticality.
    offered: [f64; LEVELS],
    offered_at: Timestamp,
    /// The same over a shorter time, of all criticalities.
    lately: f64,
    /// The same of admitted requests.
    used: f64,
    /// Mean cost, in CPU-microseconds.
    cost: f64,
    /// The demand that the owner knows. `None`: a new owner, which knows at most the rate.
    reported: Option<[u64; LEVELS]>,
    /// The use in the last regular report. A task asks just after a request, when its use seems higher than it is.
    reported_used: u64,
    asked_at: Timestamp,
    ask_interval: Duration,
    is_asked: bool,
    /// A request was refused since the last report.
    is_spent: bool,
    is_dry_run: bool,
    /// `None`: the owner did not say, or its lease is over.
    fleet: Option<FleetUse>,
    is_group_cut: bool,
}

impl Account {
    /// An account without a limit.
    #[must_use]
    pub fn new(now: Timestamp) -> Self {
        Self {
            limit: None,
            soft: None,
            rate: 0,
            floor: 0.0,
            unreported: 0.0,
            cut: Cut::NONE,
            own_cut_at: None,
            bucket: Bucket::full(now, 0.0, 0.0),
            offered: [0.0; LEVELS],
            offered_at: now,
            lately: 0.0,
            used: 0.0,
            cost: 0.0,
            reported: None,
            reported_used: 0,
            asked_at: Timestamp::ZERO,
            ask_interval: ASK_INTERVAL[0],
            is_asked: false,
            is_spent: false,
            is_dry_run: false,
            fleet: None,
            is_group_cut: false,
        }
    }

    /// A request of this expected cost, in CPU-microseconds. `draw` is a number below 1: random, or that of its
    /// cohort. An admitted request is to be [taken](Self::take).
    ///
    /// # Errors
    /// It is to be refused.
    pub fn ask(&mut self, now: Timestamp, criticality: Criticality, cost: f64, draw: f64) -> Result<(), Refusal> {
        self.offer(now, criticality, cost);
        self.decide(now, criticality, draw)
    }

    /// The same for a request whose cost is [charged](Self::charge) when it is known. A refused one counts as
    /// demand with the mean cost.
    ///
    /// # Errors
    /// It is to be refused.
    pub fn check(&mut self, now: Timestamp, criticality: Criticality, draw: f64) -> Result<(), Refusal> {
        let decided = self.decide(now, criticality, draw);
        if decided.is_err() {
            self.offer(now, criticality, self.cost);
        }
        decided
    }

    /// Charges the cost of a request that was served, at any level.
    pub fn charge(&mut self, now: Timestamp, criticality: Criticality, cost: f64) {
        self.offer(now, criticality, cost);
        self.bucket.level(now);
        self.take(cost);
    }

    /// Level and depth, in CPU-microseconds.
    pub fn level(&mut self, now: Timestamp) -> (f64, f64) {
        (self.bucket.level(now), self.depth())
    }

    fn decide(&mut self, now: Timestamp, criticality: Criticality, draw: f64) -> Result<(), Refusal> {
        match self.limit {
            None => return Ok(()),
            Some(0) => return Err(Refusal::Spent),
            Some(_) => {}
        }
        self.cut_alone(now);
        let (rank, depth, level) = (criticality.rank(), self.depth(), self.bucket.level(now));
        let is_cut = self.cut != Cut::NONE;
        if is_cut && rank >= self.cut.rank && (rank > self.cut.rank || draw >= self.part(level, depth)) {
            return Err(Refusal::Cut);
        }
        // What is above the cut fits into the limit over the fleet, so its debt is paid off by what is cut.
        let least = match self.cut.rank.checked_sub(rank) {
            Some(above) if is_cut && above > 0 => -DEBT * above as f64 * depth,
            _ if is_cut && self.offered[..rank].iter().sum::<f64>() > 0.0 => RESERVE * depth,
            _ => 0.0,
        };
        if level <= least {
            self.is_spent = true;
            return Err(Refusal::Spent);
        }
        Ok(())
    }

    /// The part that is admitted at the cut: all of it while the level is full, since what overflows is lost.
    fn part(&self, level: f64, depth: f64) -> f64 {
        let part = f64::from(self.cut.part);
        if self.is_group_cut { part } else { (part * BRISK).max(2.0 * level / depth - 1.0) }
    }

    /// Whether the customer's group is cut: the level is full then for its refusals, and is no reason to admit more.
    pub(super) fn set_group_cut(&mut self, is_cut: bool) {
        self.is_group_cut = is_cut;
    }

    /// The draw of an admitted request for a further account. Only low ones pass the cut, so they are spread again.
    pub(super) fn next_draw(&mut self, now: Timestamp, criticality: Criticality, draw: f64) -> f64 {
        if self.is_dry_run || self.cut == Cut::NONE || criticality.rank() != self.cut.rank {
            return draw;
        }
        let (level, depth) = self.level(now);
        draw / self.part(level, depth).clamp(draw, 1.0).max(f64::MIN_POSITIVE)
    }

    /// Takes a cost from the level, or gives a negative one back.
    pub fn take(&mut self, cost: f64) {
        self.used = (self.used + cost).max(0.0);
        if self.limit.is_some() {
            self.bucket.take(cost);
        }
    }

    /// The limit over all tasks, in µCPU; `None` if it is not known.
    #[must_use]
    pub fn limit(&self) -> Option<u64> {
        self.limit
    }

    /// The rate that this task may use, the floor included. µCPU.
    #[must_use]
    pub fn rate(&self) -> f64 {
        f64::from(self.rate) + self.floor
    }

    /// The soft limit over all tasks, in µCPU.
    pub(super) fn soft(&self) -> Option<u64> {
        self.soft
    }

    /// Its share while CPU is short; `None` without a soft limit.
    pub(super) fn fair_share(
        &self,
        now: Timestamp,
        criticality: Criticality,
        tasks: u32,
        is_fleet_known: bool,
    ) -> Option<FairShare> {
        let rank = criticality.rank();
        let all = self.fleet.filter(|_| is_fleet_known).map(|fleet| fleet.demand[rank]);
        Some(soft::fair_share(self.soft?, self.demand(now)[rank], all, self.cost, tasks))
    }

    /// Refusal by criticality.
    #[must_use]
    pub fn cut(&self) -> Cut {
        self.cut
    }

    /// Demand by criticality, in µCPU.
    #[must_use]
    pub fn demand(&self, now: Timestamp) -> [u64; LEVELS] {
        let left = decay::remaining(now, self.offered_at, HALF_LIFE);
        self.offered.map(|offered| decay::rate(offered * left, HALF_LIFE) as u64)
    }

    /// Costs of admitted requests a second, in µCPU.
    #[must_use]
    pub fn used(&self, now: Timestamp) -> f64 {
        decay::rate(self.used * decay::remaining(now, self.offered_at, HALF_LIFE), HALF_LIFE)
    }

    /// Demand and use at all tasks; `None` if they are not known.
    #[must_use]
    pub fn fleet(&self) -> Option<FleetUse> {
        self.fleet
    }

    /// Whether refusals are only counted.
    #[must_use]
    pub fn is_dry_run(&self) -> bool {
        self.is_dry_run
    }

    /// Whether nothing is lost if it is removed: no recent requests, no rate, and the owner knows of none.
    #[must_use]
    pub fn is_idle(&self, now: Timestamp) -> bool {
        let demand: u64 = self.demand(now).iter().sum();
        let is_reported = self.reported.is_some_and(|reported| reported != [0; LEVELS]);
        self.rate == 0 && !self.is_asked && !is_reported && demand == 0
    }

    /// The limit by the rules of the owner, before it assigns a rate.
    pub(super) fn set_limit(&mut self, now: Timestamp, to: Limit, tasks: u32) {
        let Limit { limit, soft, is_dry_run, .. } = to;
        (self.soft, self.is_dry_run) = (soft, is_dry_run);
        self.set(now, limit, self.rate, tasks);
    }

    fn offer(&mut self, now: Timestamp, criticality: Criticality, cost: f64) {
        let left = decay::remaining(now, self.offered_at, HALF_LIFE);
        self.lately = self.lately * decay::remaining(now, self.offered_at, SHORT_HALF_LIFE) + cost;
        self.offered.iter_mut().for_each(|offered| *offered *= left);
        self.used *= left;
        self.offered_at = self.offered_at.max(now);
        self.offered[criticality.rank()] += cost;
        let weight = if self.cost > 0.0 { COST_WEIGHT } else { 1.0 };
        self.cost += weight * (cost - self.cost);
    }

    fn depth(&self) -> f64 {
        let seconds = if self.cut == Cut::NONE { DEPTH } else { CUT_DEPTH };
        (seconds * self.rate()).max(LEAST_REQUESTS * self.cost)
    }

    /// The assignment of the owner is in force. Returns whether the rate is lower than before.
    pub(super) fn assign(&mut self, now: Timestamp, entry: &AssignmentEntry, tasks: u32) -> bool {
        let AssignmentEntry { limit, rate, credit, cut, fleet, .. } = *entry;
        let helps = credit > 0 || f64::from(rate) > f64::from(self.rate) * (1.0 + CHANGE);
        if core::mem::take(&mut self.is_asked) && !helps {
            self.ask_interval = (2 * self.ask_interval).min(ASK_INTERVAL[1]);
        } else {
            self.ask_interval = ASK_INTERVAL[0];
        }
        let is_lower = rate < self.rate;
        (self.cut, self.own_cut_at, self.fleet) = (cut, None, fleet);
        self.set(now, limit, rate, tasks);
        self.bucket.add(now, f64::from(credit));
        is_lower
    }

    /// The number of tasks changed, and with it the floor.
    pub(super) fn set_tasks(&mut self, now: Timestamp, tasks: u32) {
        if let Some(limit) = self.limit {
            self.set(now, limit, self.rate, tasks);
        }
    }

    /// Without an owner: at most this part of the limit by the last rate, or exactly this part.
    pub(super) fn fall_back(&mut self, now: Timestamp, tasks: u32, is_exact: bool) {
        self.fleet = self.fleet.filter(|_| !is_exact);
        let Some(limit) = self.limit.filter(|limit| *limit < UNLIMITED) else { return };
        let even = (granted(limit) / u64::from(tasks.max(1))).min(u64::from(u32::MAX)) as u32;
        self.own_cut_at = Some(now);
        self.set(now, limit, if is_exact { even } else { self.rate.min(even) }, tasks);
    }

    /// Without an owner the least critical requests of this task are refused first.
    fn cut_alone(&mut self, now: Timestamp) {
        let Some(due) = self.own_cut_at.filter(|due| *due <= now) else { return };
        self.own_cut_at = Some(due.max(now) + OWN_CUT_INTERVAL);
        self.cut = cut(self.rate() as u64, &self.demand(now));
        let (rate, depth) = (self.rate(), self.depth());
        self.bucket.set(now, rate, depth);
    }

    fn set(&mut self, now: Timestamp, limit: u64, rate: u32, tasks: u32) {
        let is_new = self.limit.replace(limit).is_none();
        (self.rate, self.floor) = (rate, floor(limit, tasks) as f64);
        self.unreported = self.soft.map_or(self.floor, |soft| self.floor.min(floor(soft, tasks) as f64));
        let (rate, depth) = (self.rate(), self.depth());
        if is_new {
            self.bucket = Bucket::full(now, rate, depth);
        } else {
            self.bucket.set(now, rate, depth);
        }
    }

    pub(super) fn hold(&self, customer: CustomerId) -> Option<Hold> {
        (self.rate > 0).then_some(Hold { customer, rate: self.rate })
    }

    /// When it has something to ask for. `None`: nothing now.
    pub(super) fn ask_due(&mut self, now: Timestamp) -> Option<Timestamp> {
        (self.lacking(now) > 0.0 || self.is_new_to_owner()).then(|| self.next_ask())
    }

    /// An ask under way is not repeated, unless it is lost.
    fn next_ask(&self) -> Timestamp {
        self.asked_at + if self.is_asked { ASK_INTERVAL[1] } else { self.ask_interval }
    }

    fn is_new_to_owner(&self) -> bool {
        self.limit.is_none() && self.cost > 0.0
    }

    /// The credit to ask for, in CPU-microseconds. When the customer is cut, only small accounts get credits:
    /// others ask if the demand above the cut exceeds the rate.
    fn lacking(&mut self, now: Timestamp) -> f64 {
        if self.limit.is_none_or(|limit| limit == 0) {
            return 0.0;
        }
        let (level, depth) = (self.bucket.level(now), self.depth());
        if level >= depth && !self.is_spent {
            return 0.0;
        }
        let is_cut = self.cut != Cut::NONE;
        let low = if is_cut { LOW_REQUESTS * self.cost } else { self.low(now).min(depth) };
        if level >= low && !self.is_spent {
            return 0.0;
        }
        let enough = low + MORE_REQUESTS * self.cost;
        if !is_cut {
            let left = decay::remaining(now, self.offered_at, SHORT_HALF_LIFE);
            let more = decay::rate(self.lately * left, SHORT_HALF_LIFE) - self.rate();
            return enough.max(more * AHEAD) - level;
        }
        let demand = self.demand_with_debt(now);
        let is_above = self.is_short_above_the_cut(&demand);
        if self.is_small() { enough - level } else { f64::from(u8::from(is_above)) }
    }

    /// The level that may be used up before a credit arrives.
    fn low(&self, now: Timestamp) -> f64 {
        let demand: u64 = self.demand(now).iter().sum();
        let soon = demand as f64 * ROUND_TRIP;
        soon + LOW_REQUESTS * self.cost + LOW_DEVIATIONS * root(soon * self.cost)
    }

    fn is_small(&self) -> bool {
        self.depth() < SMALL * self.cost
    }

    /// Whether the rate has less than the full padding above the demand: the fleet is near the limit.
    fn is_rate_short(&self) -> bool {
        let known: u64 = self.reported.iter().flatten().sum();
        let padded = known as f64 + Rule::DEVIATIONS * root(known as f64 * self.cost);
        self.rate > 0 && f64::from(self.rate) < padded * (1.0 - CHANGE)
    }

    fn is_short_above_the_cut(&self, demand: &[u64; LEVELS]) -> bool {
        let above: u64 = demand[..self.cut.rank].iter().sum();
        above as f64 > self.rate() * (1.0 + CHANGE)
    }

    /// The demand to report: more than is measured while requests above the cut are in debt.
    fn demand_with_debt(&mut self, now: Timestamp) -> [u64; LEVELS] {
        let (mut demand, depth, debt) = (self.demand(now), self.depth(), -self.bucket.level(now));
        if self.cut == Cut::NONE || debt <= 0.0 {
            return demand;
        }
        let (Some(limit), Some(fleet)) = (self.limit, self.fleet) else { return demand };
        let rank = self.cut.rank;
        let above = |levels: &[u64; LEVELS]| levels[..rank].iter().sum::<u64>();
        let others = above(&fleet.demand).saturating_sub(self.reported.as_ref().map_or(0, above));
        let debt = debt.min(DEBT * rank as f64 * depth);
        pay_off::raise(&mut demand[..rank], debt, others, granted(limit));
        demand
    }

    /// The entry of a report. `is_regular`: the report of each second, which has changes of demand too.
    pub(super) fn report(&mut self, now: Timestamp, customer: CustomerId, is_regular: bool) -> Option<ReportEntry> {
        let mut demand = self.demand_with_debt(now);
        if demand.iter().sum::<u64>() as f64 <= self.unreported {
            demand = [0; LEVELS];
        }
        if is_regular && self.rate == 0 && demand == [0; LEVELS] {
            self.forget_fleet(now);
        }
        let is_due = self.next_ask() <= now;
        let lacking = if is_due { self.lacking(now) } else { 0.0 };
        let is_asking = lacking > 0.0 || (self.is_new_to_owner() && is_due);
        let is_changed = is_regular && self.is_changed(&demand);
        let unused = if is_regular && self.is_small() && self.is_rate_short() {
            self.bucket.take_unused(now, LEAST_UNUSED * self.cost)
        } else {
            0.0
        };
        if !is_asking && !is_changed && unused == 0.0 {
            return None;
        }
        if is_asking || is_changed {
            (self.asked_at, self.is_asked, self.is_spent) = (now, is_asking, false);
        }
        // A task asks just after a request, when its demand seems higher than it is. The part of the cut would fall.
        if !is_regular
            && self.cut != Cut::NONE
            && !self.is_short_above_the_cut(&demand)
            && let Some(reported) = self.reported
        {
            demand = reported;
        }
        self.reported = Some(demand);
        if is_regular {
            self.reported_used = self.used(now) as u64;
        }
        Some(ReportEntry {
            customer,
            demand,
            cost: self.cost as u32,
            lacking: lacking as u32,
            unused: unused as u32,
            used: self.reported_used,
        })
    }

    /// The owner does not know the customer at this task, and says nothing more: its last word is no longer true.
    fn forget_fleet(&mut self, now: Timestamp) {
        self.fleet = None;
        if self.own_cut_at.is_none() && self.cut != Cut::NONE {
            self.cut = Cut::NONE;
            let (rate, depth) = (self.rate(), self.depth());
            self.bucket.set(now, rate, depth);
        }
    }

    /// The owner of a new stream knows nothing of the demand.
    pub(super) fn on_connect(&mut self) {
        (self.reported, self.ask_interval, self.is_asked) = (None, ASK_INTERVAL[0], false);
        self.bucket.forget_unused();
    }

    fn is_changed(&self, demand: &[u64; LEVELS]) -> bool {
        let Some(known) = &self.reported else { return self.rate > 0 || demand.iter().sum::<u64>() > 0 };
        let change: u64 = demand.iter().zip(known).map(|(now, before)| now.abs_diff(*before)).sum();
        change as f64 > known.iter().sum::<u64>() as f64 * CHANGE
    }
}
