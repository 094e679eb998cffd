//! A task that only counts: a proxy that reports its requests every few seconds, takes token buckets,
//! and never says which assignment is in force. Envoy is one, by its rate limit quota service.
//!
//! ```text
//! demand       = (allowed + denied) · c ÷ time since the last report, by the clock of this side
//! new bucket   = the even part of the limit, until it is measured
//! tokens       = round(10 s · (rate + floor) ÷ c)      0: deny all
//! depth        = w · (rate + floor) ÷ c                w = 0.5 s, or 0.1 s when the customer is cut
//! acknowledged = all assignments sent a round trip before a report
//! ```
//!
//! A bucket that changes is full again, so its depth is spent once more: the depth is small while the
//! customer is cut. A bucket without requests is dropped. It comes back with its next request, and
//! then has the even part at once, and not the floor of idle tasks.
//!
//! Where it is weak: a proxy that reports but does not read for longer than a round trip uses more
//! than the owner believes, until its next report or the end of its lease.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;
use core::time::Duration;

use super::account::{CUT_DEPTH, DEPTH, LEAST_REQUESTS};
use super::rule::LEVELS;
use super::{Assignment, CustomerId, Cut, Report, ReportEntry, floor, granted};
use crate::{Criticality, Timestamp};

/// An assignment is in force after this time: a round trip over a continent.
const ROUND_TRIP: Duration = Duration::from_millis(250);
/// Demand is measured over no shorter time.
const WINDOW: Duration = Duration::from_secs(1);
/// A bucket without requests for this time is dropped.
const IDLE: Duration = Duration::from_secs(10);
/// The proxy's lease ends earlier by this time: it begins when the message arrives.
const SLACK: Duration = Duration::from_secs(2);
/// A shallow bucket overflows between two arrivals: a cut customer may make so many requests at once ...
const LEAST_CUT_REQUESTS: f64 = 4.0;
/// ... and no more than those of this time.
const LEAST_CUT_SECONDS: f64 = 0.25;
/// A bucket changes when its cost or its floor moves its tokens by more than this part.
const CHANGE: f64 = 0.05;
/// The largest demand of a customer, in rate units.
const MAX_DEMAND: f64 = (1_u64 << 40) as f64;

/// Requests of one customer since the last report.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Admitted requests.
    pub allowed: u64,
    /// Refused requests.
    pub denied: u64,
}

/// The limit of one customer, in the terms of the proxy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Allowance {
    /// Refuse all requests.
    DenyAll,
    /// Tokens flow in at an even rate.
    TokenBucket {
        /// Requests that may be made at once.
        depth: u32,
        /// Tokens in [`CountingTask::FILL_INTERVAL`].
        tokens: u32,
    },
}

#[derive(Clone, Debug)]
struct Entry {
    limit: u64,
    /// Of a request.
    cost: f64,
    usage: Usage,
    since: Timestamp,
    used_at: Timestamp,
    demand: u64,
    used: u64,
    is_known: bool,
    rate: u32,
    cut: Cut,
    /// The last allowance, with the rate and the cut that it follows from.
    given: Option<(u32, bool, Allowance)>,
}

/// A proxy that reports counts, takes token buckets, and acknowledges nothing.
#[derive(Clone, Debug)]
pub struct CountingTask {
    entries: BTreeMap<CustomerId, Entry>,
    due: Vec<CustomerId>,
    /// Assignments that are not in force for sure: the time, and the number.
    sent: VecDeque<(Timestamp, u32)>,
    acknowledged: u32,
    reported: u32,
    reported_at: Timestamp,
    lease: Duration,
    tasks: u32,
}

impl CountingTask {
    /// The largest number of customers.
    pub const MAX_CUSTOMERS: usize = 4_096;
    /// The time of the tokens in a [`Allowance`].
    pub const FILL_INTERVAL: Duration = Duration::from_secs(10);

    /// A task without customers, one of `tasks`.
    #[must_use]
    pub fn new(now: Timestamp, tasks: u32, lease: Duration) -> Self {
        Self {
            entries: BTreeMap::new(),
            due: Vec::new(),
            sent: VecDeque::new(),
            acknowledged: 0,
            reported: 0,
            reported_at: now,
            lease,
            tasks: tasks.max(1),
        }
    }

    /// The owner says how many tasks there are.
    pub fn set_tasks(&mut self, tasks: u32) {
        self.tasks = tasks.max(1);
    }

    /// A customer that uses this rate already.
    pub fn hold(&mut self, now: Timestamp, customer: CustomerId, rate: u32, limit: u64, cost: f64) {
        let demand = u64::from(rate);
        self.entries.insert(customer, Entry { rate, ..Entry::new(now, limit, cost, demand) });
    }

    /// The proxy reports a customer with this limit. `cost` is that of a request, above zero.
    pub fn count(&mut self, now: Timestamp, customer: CustomerId, usage: Usage, limit: u64, cost: f64) {
        let even = granted(limit) / u64::from(self.tasks);
        let entry = self.entries.entry(customer).or_insert_with(|| Entry::new(now, limit, cost, even));
        entry.count(now, usage);
        (entry.limit, entry.cost) = (limit, cost);
        self.due.push(customer);
    }

    /// The report of the customers that were counted since the last one. Those that it drops are to be
    /// forgotten by the proxy.
    pub fn report(&mut self, now: Timestamp) -> Report {
        while let Some((_, number)) = self.sent.pop_front_if(|(at, _)| *at + ROUND_TRIP <= now) {
            self.acknowledged = number;
        }
        let mut due = core::mem::take(&mut self.due);
        due.sort_unstable();
        due.dedup();
        let (mut entries, mut dropped) = (Vec::with_capacity(due.len()), Vec::new());
        for customer in due {
            let Some(entry) = self.entries.get_mut(&customer) else { continue };
            entries.push(entry.report(customer));
            if entry.demand == 0 && now.since(entry.used_at) >= IDLE {
                self.entries.remove(&customer);
                dropped.push(customer);
            }
        }
        self.reported += 1;
        self.reported_at = now;
        Report { number: self.reported, acknowledged: self.acknowledged, entries, dropped, overloaded: None }
    }

    /// The owner assigns rates, and the shell sends them to the proxy now. Returns the customers whose
    /// allowance may be another one.
    pub fn assign(&mut self, now: Timestamp, assignment: &Assignment) -> Vec<CustomerId> {
        self.tasks = assignment.tasks.max(1);
        self.lease = assignment.lease;
        self.sent.push_back((now, assignment.number));
        let mut changed = Vec::with_capacity(assignment.entries.len());
        for of in &assignment.entries {
            if let Some(entry) = self.entries.get_mut(&of.customer) {
                (entry.rate, entry.limit, entry.cut) = (of.rate, of.limit, of.cut);
                changed.push(of.customer);
            }
        }
        changed
    }

    /// The limit of a customer for the proxy; `None` if there is no such customer.
    pub fn allowance(&mut self, customer: CustomerId) -> Option<Allowance> {
        let tasks = self.tasks;
        Some(self.entries.get_mut(&customer)?.allowance(tasks))
    }

    /// Whole seconds for which the proxy may use an allowance that is sent to it now.
    #[must_use]
    pub fn time_to_live(&self, now: Timestamp) -> u64 {
        self.lease.saturating_sub(now.since(self.reported_at) + SLACK).as_secs().max(1)
    }

    /// Customers.
    #[must_use]
    pub fn customers(&self) -> usize {
        self.entries.len()
    }
}

impl Entry {
    fn new(now: Timestamp, limit: u64, cost: f64, demand: u64) -> Self {
        Self {
            limit,
            cost,
            usage: Usage::default(),
            since: now,
            used_at: now,
            demand,
            used: 0,
            is_known: false,
            rate: 0,
            cut: Cut::NONE,
            given: None,
        }
    }

    fn count(&mut self, now: Timestamp, Usage { allowed, denied }: Usage) {
        if !core::mem::replace(&mut self.is_known, true) {
            // Its time is not known: the proxy was there before this stream, or just has begun.
            return;
        }
        self.usage.allowed = self.usage.allowed.saturating_add(allowed);
        self.usage.denied = self.usage.denied.saturating_add(denied);
        if self.usage != Usage::default() {
            self.used_at = now;
        }
        let elapsed = now.since(self.since);
        if elapsed < WINDOW {
            return;
        }
        let rate = |count: u64| (count as f64 * self.cost / elapsed.as_secs_f64()).min(MAX_DEMAND) as u64;
        self.used = rate(self.usage.allowed);
        self.demand = rate(self.usage.allowed.saturating_add(self.usage.denied));
        (self.usage, self.since) = (Usage::default(), now);
    }

    fn report(&self, customer: CustomerId) -> ReportEntry {
        let mut demand = [0; LEVELS];
        demand[Criticality::default().rank()] = self.demand;
        ReportEntry { customer, demand, cost: self.cost as u32, lacking: 0, unused: 0, used: self.used }
    }

    fn allowance(&mut self, tasks: u32) -> Allowance {
        let is_cut = self.cut != Cut::NONE;
        let next = self.fresh(tasks, is_cut);
        if let Some((rate, was_cut, given)) = self.given
            && (rate, was_cut) == (self.rate, is_cut)
            && is_near(given, next)
        {
            return given;
        }
        self.given = Some((self.rate, is_cut, next));
        next
    }

    fn fresh(&self, tasks: u32, is_cut: bool) -> Allowance {
        if self.limit == 0 {
            return Allowance::DenyAll;
        }
        let requests = (f64::from(self.rate) + floor(self.limit, tasks) as f64) / self.cost.max(1.0);
        // A cast stops at the largest number.
        let tokens = (requests * CountingTask::FILL_INTERVAL.as_secs_f64() + 0.5) as u32;
        if tokens == 0 {
            return Allowance::DenyAll;
        }
        let depth = if is_cut {
            let least = (LEAST_CUT_SECONDS * requests).clamp(1.0, LEAST_CUT_REQUESTS);
            (CUT_DEPTH * requests).max(least)
        } else {
            (DEPTH * requests).max(LEAST_REQUESTS)
        };
        Allowance::TokenBucket { depth: (depth + 0.5) as u32, tokens }
    }
}

fn is_near(before: Allowance, now: Allowance) -> bool {
    match (before, now) {
        (Allowance::TokenBucket { tokens: before, .. }, Allowance::TokenBucket { tokens: now, .. }) => {
            f64::from(now.abs_diff(before)) <= f64::from(before) * CHANGE
        }
        _ => before == now,
    }
}

#[cfg(test)]
mod tests {
    use super::super::{AssignmentEntry, FleetUse};
    use super::*;

    const LEASE: Duration = Duration::from_secs(60);
    const REQUEST: f64 = 1_000.0;
    const ACME: CustomerId = CustomerId(0);

    fn at(ms: u64) -> Timestamp {
        Timestamp::from_nanos(ms * 1_000_000)
    }

    fn counted(task: &mut CountingTask, now: Timestamp, allowed: u64, denied: u64) -> Report {
        task.count(now, ACME, Usage { allowed, denied }, 100_000, REQUEST);
        task.report(now)
    }

    fn assignment(number: u32, rate: u32, cut: Cut) -> Assignment {
        let entry =
            AssignmentEntry { customer: ACME, limit: 100_000, rate, credit: 0, cut, fleet: Some(FleetUse::default()) };
        Assignment {
            number,
            answers: number,
            lease: LEASE,
            tasks: 2,
            overloaded: None,
            is_overdue: false,
            entries: [entry].into(),
        }
    }

    fn demand(report: &Report) -> u64 {
        report.entries.iter().flat_map(|entry| entry.demand).sum()
    }

    #[test]
    fn demand_is_measured_by_the_own_clock_after_the_even_part() {
        let mut task = CountingTask::new(at(0), 2, LEASE);
        assert_eq!(demand(&counted(&mut task, at(0), 1, 0)), 49_000);
        // Too short to measure.
        assert_eq!(demand(&counted(&mut task, at(200), 50, 0)), 49_000);
        assert_eq!(demand(&counted(&mut task, at(5_000), 50, 100)), 40_000);
        assert_eq!(demand(&counted(&mut task, at(10_000), 10, 0)), 2_000);
        // Absurd counts, twice at one time.
        assert_eq!(demand(&counted(&mut task, at(10_000), u64::MAX, u64::MAX)), 2_000);
        assert_eq!(demand(&counted(&mut task, at(15_000), u64::MAX, u64::MAX)), 1 << 40);
    }

    #[test]
    fn assignment_counts_as_acknowledged_a_round_trip_later() {
        let mut task = CountingTask::new(at(0), 2, LEASE);
        assert_eq!(counted(&mut task, at(0), 1, 0).acknowledged, 0);
        assert_eq!(task.assign(at(0), &assignment(1, 49_000, Cut::NONE)), [ACME]);
        task.assign(at(4_900), &assignment(2, 20_000, Cut::NONE));
        assert_eq!(counted(&mut task, at(5_000), 1, 0).acknowledged, 1);
        assert_eq!(counted(&mut task, at(10_000), 1, 0).acknowledged, 2);
    }

    #[test]
    fn rate_and_floor_become_a_token_bucket_of_ten_seconds() {
        let mut task = CountingTask::new(at(0), 2, LEASE);
        counted(&mut task, at(0), 1, 0);
        for (number, rate, cut, expected) in [
            // The floor is 1 request a second.
            (1, 49_000, Cut::NONE, Allowance::TokenBucket { depth: 25, tokens: 500 }),
            (2, 49_000, Cut { rank: 1, part: 0.5 }, Allowance::TokenBucket { depth: 5, tokens: 500 }),
            (3, 0, Cut::NONE, Allowance::TokenBucket { depth: 3, tokens: 10 }),
        ] {
            task.assign(at(0), &assignment(number, rate, cut));
            assert_eq!(task.allowance(ACME), Some(expected));
        }
        assert_eq!(task.allowance(CustomerId(7)), None);
        let mut none = assignment(4, 0, Cut::NONE);
        none.entries[0].limit = 0;
        task.assign(at(0), &none);
        assert_eq!(task.allowance(ACME), Some(Allowance::DenyAll));
    }

    #[test]
    fn bucket_stays_while_only_the_cost_drifts() {
        let mut task = CountingTask::new(at(0), 2, LEASE);
        counted(&mut task, at(0), 1, 0);
        task.assign(at(0), &assignment(1, 49_000, Cut::NONE));
        let first = task.allowance(ACME);
        task.count(at(5_000), ACME, Usage::default(), 100_000, 1.03 * REQUEST);
        assert_eq!(task.allowance(ACME), first);
        task.count(at(5_000), ACME, Usage::default(), 100_000, 2.0 * REQUEST);
        assert_eq!(task.allowance(ACME), Some(Allowance::TokenBucket { depth: 13, tokens: 250 }));
    }

    #[test]
    fn idle_customer_is_dropped_and_returns_with_the_even_part() {
        let mut task = CountingTask::new(at(0), 2, LEASE);
        counted(&mut task, at(0), 1, 0);
        assert_eq!(counted(&mut task, at(5_000), 0, 0).dropped, []);
        let last = counted(&mut task, at(10_000), 0, 0);
        assert_eq!((demand(&last), &*last.dropped, task.customers()), (0, &[ACME][..], 0));
        assert_eq!(demand(&counted(&mut task, at(11_000), 1, 0)), 49_000);
    }

    #[test]
    fn proxy_uses_a_rate_no_longer_than_the_lease_of_the_report() {
        let mut task = CountingTask::new(at(0), 2, LEASE);
        counted(&mut task, at(5_000), 1, 0);
        assert_eq!([at(5_000), at(9_500), at(80_000)].map(|at| task.time_to_live(at)), [58, 53, 1]);
    }
}
