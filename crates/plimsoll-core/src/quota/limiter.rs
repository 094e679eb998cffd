//! All fleet limits at one task: an account for each customer that it serves, by name.
//!
//! ```text
//! limit of a customer = that of its name, else that of all others, else none
//! ```
//!
//! A [`Group`] of customers has an account too.
//!
//! The owner tells each task these limits at once, so a customer needs no message before it exceeds its
//! [`floor`](super::floor). A customer without a limit has no account.
//!
//! Names come from strangers, so their number is bounded. Customers whose name has no limit of its own
//! share [`MAX_OTHERS`] accounts. When all are taken, a further one shares an account with all requests
//! without a customer, and takes nothing from customers that have an account. So each customer and each group with a
//! limit of its own finds a place. Customers that lose theirs with new limits are strangers from then on: those beyond
//! the bound lose their accounts at once.

use alloc::borrow::Cow;
use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use core::time::Duration;

use hashbrown::HashTable;

use super::account::{Account, Refusal};
use super::{AccountRefusal, Accounts, Group};
use super::{
    Assignment, AssignmentError, CustomerId, Cut, FairShare, Fallback, FleetUse, Hello, Holder, Report, UNLIMITED,
};
use crate::rng::spread;
use crate::shedding::Label;
use crate::{Criticality, Timestamp};

/// The key of requests without a customer.
const NOBODY: u64 = 0;
/// The time in which an owner learns that there is none before it, and a second for the first rates.
const START: Duration = Duration::from_secs(6);
/// Accounts that are searched for an idle one at a time.
const SEARCHED: usize = 8;

/// The largest number of accounts at a task of customers whose name has no limit of its own.
pub const MAX_OTHERS: usize = 4_000;
/// The largest number of customers and groups with a limit of their own in the settings of a service.
pub const MAX_NAMED: usize = 4_000;
/// The same at a task: there may be some by operators too.
pub const MAX_LIMITS: usize = 4_096;

/// Each of them has a place, and so have all requests without a customer.
const _: () = assert!(MAX_OTHERS + MAX_LIMITS < Holder::MAX_CUSTOMERS);

/// The limit of a customer over all tasks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limit {
    /// In µCPU; [`UNLIMITED`]: none.
    pub limit: u64,
    /// The soft limit, in µCPU: its share while CPU is short. `None`: that of the task's settings.
    pub soft: Option<u64>,
    /// Refusals are only counted.
    pub is_dry_run: bool,
    /// The key of the customer's group in [`Limits::groups`].
    pub group: Option<u64>,
}

impl Limit {
    /// A limit that is enforced, in µCPU.
    #[must_use]
    pub const fn new(limit: u64) -> Self {
        Self { limit, soft: None, is_dry_run: false, group: None }
    }

    /// Whether a customer with this limit has an account, beside that of its group.
    const fn has_account(self) -> bool {
        self.limit < UNLIMITED || self.soft.is_some()
    }
}

/// The limits of a service: at most [`MAX_LIMITS`] of customers and groups.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    /// By the key of the customer's name.
    pub named: BTreeMap<u64, Limit>,
    /// Of each other customer; `None`: no limit.
    pub others: Option<Limit>,
    /// By the key of the group's name.
    pub groups: BTreeMap<u64, Group>,
}

impl Limits {
    /// The limit of a customer; `None`: no limit.
    #[must_use]
    pub fn of(&self, key: u64) -> Option<Limit> {
        self.named.get(&key).copied().or(self.others)
    }

    /// The limit of a customer or a group.
    fn limit(&self, key: u64, is_group: bool) -> Option<Limit> {
        if is_group { self.groups.get(&key).map(|group| group.limit) } else { self.of(key) }
    }

    /// Whether an account is that of a customer without a limit of its own, or of a group that is gone.
    fn is_other(&self, key: u64, is_group: bool) -> bool {
        let is_own = if is_group { self.groups.contains_key(&key) } else { self.named.contains_key(&key) };
        !is_own && (is_group || key != NOBODY)
    }
}

/// A request at its limit.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LimitedRequest<'a> {
    /// The key of the customer: always the same for one name, and seldom for two. 0: no customer.
    pub customer: u64,
    /// The name of the customer.
    pub name: &'a [u8],
    /// Its criticality.
    pub criticality: Criticality,
    /// The expected cost, in CPU-microseconds of the reference core.
    pub cost: f64,
    /// A number below 1: random, or that of its cohort.
    pub draw: f64,
}

/// A refusal by a fleet limit.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Refused {
    /// The reason.
    pub refusal: Refusal,
    /// The refusal is only counted.
    pub is_dry_run: bool,
    /// The standing at this task of the customer, or of its group.
    pub standing: FleetStanding,
    /// The group whose limit refuses; `None`: the customer's own limit does.
    pub group: Option<Label>,
}

impl Refused {
    /// Seconds to do one second's demand at this task, so that retries do not return all at once.
    pub(crate) fn wait(&self) -> f64 {
        let FleetStanding { rate, demand, .. } = self.standing;
        (demand / rate.max(1.0)).max(1.0)
    }
}

/// A customer's fleet limit, and the part of it that this task may use.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FleetStanding {
    /// The limit over all tasks, in µCPU; [`UNLIMITED`]: none.
    pub limit: u64,
    /// The soft limit over all tasks, in µCPU.
    pub soft: Option<u64>,
    /// The rate that this task may use, in µCPU.
    pub rate: f64,
    /// Demand at this task, in µCPU.
    pub demand: f64,
    /// Demand and use at all tasks; `None` if they are not known.
    pub fleet: Option<FleetUse>,
    /// Refusal by criticality, the same at all tasks.
    pub cut: Cut,
    /// The origin of the rate.
    pub fallback: Fallback,
}

/// The charge of an admitted request.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FleetCharge {
    accounts: Accounts,
    /// CPU-microseconds.
    pub(crate) taken: f64,
}

/// A message to the owner, with the names of customers that it mentions for the first time on its stream.
#[derive(Clone, Debug, PartialEq)]
pub struct Introduced<M> {
    /// The message.
    pub message: M,
    /// In the order in which the message mentions them.
    pub names: Vec<Introduction>,
    /// The numbers in the message that are those of groups, in the same order.
    pub groups: Vec<CustomerId>,
}

/// The name of a number in messages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Introduction {
    /// The number.
    pub customer: CustomerId,
    /// The name.
    pub name: Box<[u8]>,
}

/// The customer at a place of the holder.
#[derive(Clone, Debug)]
struct Known {
    id: CustomerId,
    key: u64,
    /// It is a group, or a customer.
    is_group: bool,
    /// The key of the customer's group.
    group: Option<u64>,
    name: Box<[u8]>,
    /// The owner of this stream knows the name.
    is_introduced: bool,
}

/// All fleet limits at one task.
#[derive(Clone, Debug)]
pub struct Limiter {
    holder: Holder,
    limits: Limits,
    begun: Timestamp,
    /// The number of the last owner.
    epoch: u64,
    /// Indices of `known`, by key.
    index: HashTable<usize>,
    known: Vec<Option<Known>>,
    /// Customers without a limit of their own, and groups that are gone.
    others: usize,
    /// Accounts that new limits removed on this stream: assignments to them may be under way.
    removed: BTreeSet<CustomerId>,
    hand: usize,
    /// When the next report is due, as far as the shell knows.
    planned: Timestamp,
    is_hurried: bool,
}

impl Limiter {
    /// A task that has not heard of any limit. It refuses nothing.
    #[must_use]
    pub fn new(now: Timestamp) -> Self {
        Self {
            holder: Holder::new(now),
            limits: Limits::default(),
            begun: now,
            epoch: 0,
            index: HashTable::new(),
            known: Vec::new(),
            others: 0,
            removed: BTreeSet::new(),
            hand: 0,
            planned: now,
            is_hurried: false,
        }
    }

    /// Decides on a request. Returns the accounts to [take](Self::take) from, none without a limit, and the refusal.
    /// Only a refusal of a dry run leaves accounts to take from.
    #[must_use]
    pub fn ask(&mut self, now: Timestamp, request: &LimitedRequest<'_>) -> (Accounts, Option<Refused>) {
        let &LimitedRequest { customer, name, criticality, cost, draw } = request;
        let accounts = self.accounts(now, customer, name);
        let (admitted, refusal) = self.holder.ask(now, accounts, criticality, cost, draw);
        accounts.iter().for_each(|account| self.hurry(now, account));
        let refused = refusal.map(|AccountRefusal { refusal, by, is_group, is_dry_run }| {
            let group = if is_group { self.label(by) } else { None };
            Refused { refusal, is_dry_run, standing: self.standing_of(now, by), group }
        });
        (admitted, refused)
    }

    /// The accounts of a customer's requests. Those that are missing are added.
    fn accounts(&mut self, now: Timestamp, key: u64, name: &[u8]) -> Accounts {
        let customer = self.enter_account(now, key, name);
        let group = match customer {
            Some(id) => self.known[id.place()].as_ref().and_then(|known| known.group),
            None => self.limits.of(key).and_then(|limit| limit.group),
        };
        let group = group.and_then(|key| self.find(key, true).or_else(|| self.enter_group(now, key)));
        Accounts { customer, group }
    }

    /// The share of a customer while CPU is short, for a request of this criticality; `None` without a soft limit over
    /// the fleet. `accounts` are those of its request: a stranger beyond the bound has the share of the account that
    /// strangers share.
    pub fn fair_share(
        &mut self,
        now: Timestamp,
        customer: u64,
        accounts: Accounts,
        criticality: Criticality,
    ) -> Option<FairShare> {
        let id = accounts.customer.or_else(|| self.find(customer, false))?;
        self.holder.fair_share(now, id, criticality)
    }

    /// The account of a customer; `None` without a limit.
    pub fn enter_account(&mut self, now: Timestamp, customer: u64, name: &[u8]) -> Option<CustomerId> {
        self.find(customer, false).or_else(|| self.enter(now, customer, name))
    }

    /// The account of a customer that was entered.
    pub fn account(&mut self, customer: CustomerId) -> &mut Account {
        self.holder.account(customer)
    }

    /// Charges a request that is admitted with its expected cost, in CPU-microseconds. `None` without a limit.
    pub fn take(&mut self, accounts: Accounts, cost: f64) -> Option<FleetCharge> {
        self.holder.take(accounts, cost);
        (!accounts.is_empty()).then_some(FleetCharge { accounts, taken: cost })
    }

    /// A request has used this many CPU-microseconds, or will.
    pub fn correct(&mut self, charge: &mut FleetCharge, used: f64) {
        self.holder.take(charge.accounts, used - charge.taken);
        charge.taken = used;
    }

    /// A decision about this customer was made: a report may be due.
    pub fn hurry(&mut self, now: Timestamp, customer: CustomerId) {
        if let Some(due) = self.holder.account(customer).ask_due(now)
            && due < self.planned
        {
            (self.planned, self.is_hurried) = (due, true);
        }
    }

    /// Whether a report is due earlier than [`poll_timeout`](Self::poll_timeout) said.
    pub fn take_hurry(&mut self) -> bool {
        core::mem::take(&mut self.is_hurried)
    }

    /// A new stream to an owner, of a task that may use these CPUs. Returns its first message.
    pub fn connect(&mut self, now: Timestamp, cpus: f64) -> Introduced<Hello> {
        self.known.iter_mut().flatten().for_each(|known| known.is_introduced = false);
        self.removed.clear();
        let message = self.holder.connect(now, cpus);
        let customers: Vec<_> = message.holds.iter().map(|hold| hold.customer).collect();
        introduce(&mut self.known, &customers, message)
    }

    /// Whether the owner of this epoch may assign rates. One before the last is too late, as long as a lease
    /// lasts: afterwards the task uses the even part, as it would without any owner.
    pub fn accept_epoch(&mut self, epoch: u64) -> bool {
        let is_late = epoch < self.epoch && self.holder.fallback() != Fallback::Even;
        if !is_late {
            self.epoch = epoch;
        }
        !is_late
    }

    /// Whether there is a stream: see [`Holder::is_connected`].
    #[must_use]
    pub fn is_connected(&self) -> bool {
        self.holder.is_connected()
    }

    /// Whether the task is to look for another owner beside the stream: see [`Holder::is_doubtful`].
    #[must_use]
    pub fn is_doubtful(&self) -> bool {
        self.holder.is_doubtful()
    }

    /// Tasks of the service by the last word of an owner; 1 before the first.
    #[must_use]
    pub fn tasks(&self) -> u32 {
        self.holder.tasks()
    }

    /// The number of the last owner that was accepted; 0 before the first.
    #[must_use]
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    /// The stream ended.
    pub fn disconnect(&mut self) {
        self.holder.disconnect();
    }

    /// The origin of the rates.
    #[must_use]
    pub fn fallback(&self) -> Fallback {
        self.holder.fallback()
    }

    /// Whether rates are not known yet, after a start. An account for all requests of a service refuses nothing then:
    /// no other task would serve them.
    #[must_use]
    pub fn is_starting(&self, now: Timestamp) -> bool {
        now.since(self.begun) < START
    }

    /// A request came, and is shed for lack of CPU or not.
    pub fn on_request(&mut self, now: Timestamp, criticality: Criticality, is_shed: bool) {
        self.holder.on_request(now, criticality, is_shed);
    }

    /// The most critical requests that most tasks lack CPU for.
    #[must_use]
    pub fn fleet_overload(&self) -> Option<Criticality> {
        self.holder.fleet_overload()
    }

    /// The limits, as the owner says, and the number of tasks.
    pub fn set_limits(&mut self, now: Timestamp, tasks: u32, limits: Limits) {
        self.holder.set_tasks(now, tasks);
        self.limits = limits;
        for known in self.known.iter().flatten() {
            let limit = self.limits.limit(known.key, known.is_group).unwrap_or(Limit::new(UNLIMITED));
            self.holder.set_limit(now, known.id, limit);
        }
        let limits = &self.limits;
        for known in self.known.iter_mut().flatten() {
            known.group = limits.limit(known.key, known.is_group).and_then(|limit| limit.group);
        }
        let others = (0..self.known.len())
            .filter(|at| self.known[*at].as_ref().is_some_and(|known| limits.is_other(known.key, known.is_group)));
        let others: Vec<usize> = others.collect();
        self.others = others.len();
        for at in others.into_iter().skip(MAX_OTHERS) {
            self.removed.extend(self.known[at].as_ref().map(|known| known.id));
            self.remove(at);
        }
    }

    /// The limits.
    #[must_use]
    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    /// When to call [`poll`](Self::poll). `None`: with the next stream.
    pub fn poll_timeout(&mut self, now: Timestamp) -> Option<Timestamp> {
        let due = self.holder.poll_timeout(now);
        (self.planned, self.is_hurried) = (due.unwrap_or(now), false);
        due
    }

    /// When to call [`end_lease`](Self::end_lease). [`poll`](Self::poll) does too.
    #[must_use]
    pub fn lease_timeout(&self) -> Option<Timestamp> {
        self.holder.lease_timeout()
    }

    /// Ends a lease that is over.
    pub fn end_lease(&mut self, now: Timestamp) {
        self.holder.end_lease(now);
    }

    /// Ends a lease that is over, and returns the report that is due.
    pub fn poll(&mut self, now: Timestamp) -> Option<Introduced<Report>> {
        for _ in 0..SEARCHED {
            self.remove_if_idle(now);
        }
        let message = self.holder.poll(now)?;
        let customers: Vec<_> = message.entries.iter().map(|entry| entry.customer).collect();
        Some(introduce(&mut self.known, &customers, message))
    }

    /// The owner assigns rates.
    ///
    /// # Errors
    /// The assignment has no effect. The stream is to be ended.
    pub fn assign(&mut self, now: Timestamp, assignment: &Assignment) -> Result<(), AssignmentError> {
        let mut assignment = Cow::Borrowed(assignment);
        if assignment.entries.iter().any(|entry| self.removed.contains(&entry.customer)) {
            assignment.to_mut().entries.retain(|entry| !self.removed.contains(&entry.customer));
        }
        self.holder.assign(now, &assignment)
    }

    /// The standing of a customer; `None` without an account.
    #[must_use]
    pub fn standing(&mut self, now: Timestamp, customer: u64) -> Option<FleetStanding> {
        self.find(customer, false).map(|id| self.standing_of(now, id))
    }

    /// The standing of a customer's group, and its name; `None` without an account.
    #[must_use]
    pub fn group_standing(&mut self, now: Timestamp, customer: u64) -> Option<(Label, FleetStanding)> {
        let group = self.find(self.limits.of(customer)?.group?, true)?;
        Some((self.label(group)?, self.standing_of(now, group)))
    }

    fn label(&self, id: CustomerId) -> Option<Label> {
        self.known[id.place()].as_ref().map(|known| Label::of(known.name.escape_ascii()))
    }

    fn standing_of(&mut self, now: Timestamp, id: CustomerId) -> FleetStanding {
        let fallback = self.holder.fallback();
        let account = self.holder.account(id);
        FleetStanding {
            limit: account.limit().unwrap_or(UNLIMITED),
            soft: account.soft(),
            rate: account.rate(),
            demand: account.demand(now).iter().sum::<u64>() as f64,
            fleet: account.fleet(),
            cut: account.cut(),
            fallback,
        }
    }

    /// Accounts of customers and groups.
    #[must_use]
    pub fn customers(&self) -> usize {
        self.index.len()
    }

    fn find(&self, key: u64, is_group: bool) -> Option<CustomerId> {
        let is_it =
            |at: &usize| self.known[*at].as_ref().is_some_and(|known| (known.key, known.is_group) == (key, is_group));
        let at = self.index.find(spread(key), is_it)?;
        self.known[*at].as_ref().map(|known| known.id)
    }

    /// An account for a customer that has none; `None` without a limit.
    fn enter(&mut self, now: Timestamp, key: u64, name: &[u8]) -> Option<CustomerId> {
        let limit = self.limits.of(key).filter(|limit| limit.has_account())?;
        let is_other = self.limits.is_other(key, false);
        if is_other && self.others >= MAX_OTHERS {
            for _ in 0..SEARCHED {
                self.remove_if_idle(now);
            }
            if self.others >= MAX_OTHERS {
                return self.find(NOBODY, false).or_else(|| self.enter(now, NOBODY, b""));
            }
        }
        let name = if key == NOBODY { &[] } else { name };
        let id = self.add(now, key, false, name, limit)?;
        self.others += usize::from(is_other);
        Some(id)
    }

    /// An account for a group that has none; `None` if there is no such group.
    fn enter_group(&mut self, now: Timestamp, key: u64) -> Option<CustomerId> {
        let Group { name, limit } = self.limits.groups.get(&key)?.clone();
        self.add(now, key, true, &name, limit)
    }

    fn add(&mut self, now: Timestamp, key: u64, is_group: bool, name: &[u8], limit: Limit) -> Option<CustomerId> {
        if self.index.len() >= Holder::MAX_CUSTOMERS {
            // More limits than there may be. They have no account.
            return None;
        }
        let id = self.holder.add(now);
        self.holder.set_limit(now, id, limit);
        let known = Some(Known { id, key, is_group, group: limit.group, name: name.into(), is_introduced: false });
        let at = id.place();
        if at == self.known.len() {
            self.known.push(known);
        } else {
            self.known[at] = known;
        }
        let keys = &self.known;
        self.index.insert_unique(spread(key), at, |at| spread(keys[*at].as_ref().map_or(NOBODY, |known| known.key)));
        Some(id)
    }

    /// Removes the next account if it is idle.
    fn remove_if_idle(&mut self, now: Timestamp) {
        self.hand = if self.hand + 1 < self.known.len() { self.hand + 1 } else { 0 };
        let Some(Some(known)) = self.known.get(self.hand) else { return };
        let id = known.id;
        if self.holder.account(id).is_idle(now) {
            self.remove(self.hand);
        }
    }

    /// Removes the account at this place.
    fn remove(&mut self, at: usize) {
        let Some(Known { id, key, is_group, .. }) = self.known[at].take() else { return };
        if let Ok(entry) = self.index.find_entry(spread(key), |known| *known == at) {
            entry.remove();
        }
        self.holder.remove(id);
        self.others -= usize::from(self.limits.is_other(key, is_group));
    }
}

/// A message about these customers, with the names of those that the owner has not heard of.
fn introduce<M>(known: &mut [Option<Known>], customers: &[CustomerId], message: M) -> Introduced<M> {
    let mut introduced = Introduced { message, names: Vec::new(), groups: Vec::new() };
    for &customer in customers {
        let known = known[customer.place()].as_mut().filter(|known| known.id == customer);
        let Some(known) = known else { continue };
        if !core::mem::replace(&mut known.is_introduced, true) {
            introduced.names.push(Introduction { customer, name: known.name.clone() });
        }
        if known.is_group {
            introduced.groups.push(customer);
        }
    }
    introduced
}

#[cfg(test)]
mod tests {
    extern crate std;

    use std::format;

    use super::super::AssignmentEntry;
    use super::*;

    const T0: Timestamp = Timestamp::ZERO;

    fn request(customer: u64, name: &[u8]) -> LimitedRequest<'_> {
        LimitedRequest { customer, name, criticality: Criticality::Critical, cost: 1_000.0, draw: 0.5 }
    }

    fn limiter(named: &[(u64, u64)], others: Option<u64>) -> Limiter {
        let named = named.iter().map(|(key, limit)| (*key, Limit::new(*limit))).collect();
        let others = others.map(Limit::new);
        let mut limiter = Limiter::new(T0);
        limiter.set_limits(T0, 1, Limits { named, others, ..Limits::default() });
        limiter
    }

    fn assignment(number: u32, entries: Vec<AssignmentEntry>) -> Assignment {
        let lease = Duration::from_secs(60);
        Assignment { number, answers: 1, lease, tasks: 1, overloaded: None, is_overdue: false, entries }
    }

    /// Requests of 1 ms each, until one is refused or there were `most`.
    fn admitted(limiter: &mut Limiter, now: Timestamp, customer: u64, most: usize) -> usize {
        let name = format!("c{customer}");
        (0..most)
            .take_while(|_| match limiter.ask(now, &request(customer, name.as_bytes())) {
                (accounts, None) => limiter.take(accounts, 1_000.0).is_none_or(|charge| charge.taken > 0.0),
                (_, Some(_)) => false,
            })
            .count()
    }

    #[test]
    fn task_refuses_nothing_before_it_hears_of_limits() {
        let mut limiter = Limiter::new(T0);
        assert_eq!(admitted(&mut limiter, T0, 7, 10_000), 10_000);
        assert_eq!(limiter.customers(), 0);
    }

    #[test]
    fn customer_has_the_limit_of_its_name_else_that_of_others() {
        let mut limiter = limiter(&[(1, 10_000_000), (2, 0)], Some(1_000_000));
        // Half a second of the floor, 2% of the limit, and at least three requests.
        assert_eq!([1, 2, 3].map(|customer| admitted(&mut limiter, T0, customer, 1_000)), [100, 0, 10]);
        assert_eq!(limiter.standing(T0, 3).map(|standing| standing.limit), Some(1_000_000));
        let mut limiter = super::tests::limiter(&[(1, 10_000_000)], None);
        assert_eq!(admitted(&mut limiter, T0, 3, 1_000), 1_000);
    }

    #[test]
    fn report_introduces_each_customer_once_on_a_stream() {
        let mut limiter = limiter(&[(1, 10_000_000)], None);
        let hello = limiter.connect(T0, 1.0);
        assert_eq!((hello.message.holds.len(), hello.names.len()), (0, 0));
        assert!(limiter.poll(T0).is_some_and(|report| report.names.is_empty()));
        assert_eq!(limiter.poll_timeout(T0), Some(T0 + Duration::from_secs(1)));
        admitted(&mut limiter, T0, 1, 1_000);
        assert!(limiter.take_hurry());
        let report = limiter.poll(T0 + Duration::from_millis(20)).expect("the customer lacks a credit");
        let name = b"c1"[..].into();
        assert_eq!(report.names, [Introduction { customer: CustomerId(0), name }]);
        let later = T0 + Duration::from_secs(2);
        admitted(&mut limiter, later, 1, 1_000);
        assert_eq!(limiter.poll(later).map(|report| (report.names.len(), report.message.entries.len())), Some((0, 1)));
        limiter.connect(later, 1.0);
        let soon = later + Duration::from_millis(20);
        admitted(&mut limiter, soon, 1, 1_000);
        let report = limiter.poll(soon).expect("the first report of a stream");
        assert_eq!((report.message.number, report.names.len()), (1, 1));
    }

    #[test]
    fn strangers_beyond_the_bound_share_an_account_and_others_keep_theirs() {
        let mut limiter = limiter(&[(1, 10_000_000)], Some(1_000_000));
        for stranger in 0..MAX_OTHERS as u64 {
            assert!(admitted(&mut limiter, T0, 100 + stranger, 1) == 1);
        }
        let shared: usize = (0..100).map(|stranger| admitted(&mut limiter, T0, 10_000 + stranger, 1)).sum();
        assert_eq!((shared, limiter.customers()), (10, MAX_OTHERS + 1));
        assert_eq!(admitted(&mut limiter, T0, 1, 1_000), 100);
        // They are idle a minute later, and make room.
        let later = T0 + Duration::from_secs(60);
        assert_eq!(admitted(&mut limiter, later, 10_500, 1_000), 10);
        assert!(limiter.customers() < MAX_OTHERS);
    }

    /// Limits of as many customers as groups, each in its own, and of all others.
    fn full_limits(first: u64) -> Limits {
        let keys = first..first + MAX_LIMITS as u64 / 2;
        let group = |key: u64| Group { name: key.to_be_bytes()[..].into(), limit: Limit::new(1_000_000) };
        Limits {
            named: keys.clone().map(|key| (key, Limit { group: Some(key), ..Limit::new(1_000_000) })).collect(),
            others: Some(Limit::new(1_000_000)),
            groups: keys.map(|key| (key, group(key))).collect(),
        }
    }

    #[test]
    fn each_limit_finds_a_place_beside_as_many_strangers_as_there_are() {
        let mut limiter = Limiter::new(T0);
        limiter.connect(T0, 1.0);
        // Other limits take the place of all of them, while each account is in use.
        for first in [1, 10_000, 20_000, 1] {
            limiter.set_limits(T0, 1, full_limits(first));
            let strangers = 100_000 * first..100_000 * first + 2 * MAX_OTHERS as u64;
            for key in strangers.chain(first..first + MAX_LIMITS as u64 / 2) {
                let (accounts, refused) = limiter.ask(T0, &request(key, &key.to_be_bytes()));
                let is_stranger = key >= 100_000;
                assert!(accounts.customer.is_some() || is_stranger && refused.is_some(), "{key}: {refused:?}");
                assert_eq!(accounts.group.is_some(), !is_stranger, "{key}");
            }
            assert_eq!(limiter.customers(), MAX_OTHERS + MAX_LIMITS + 1);
        }
    }

    #[test]
    fn assignment_to_an_account_that_lost_its_place_is_in_order() {
        let mut limiter = Limiter::new(T0);
        limiter.connect(T0, 1.0);
        limiter.set_limits(T0, 1, full_limits(1));
        for key in 1..=MAX_LIMITS as u64 / 2 {
            let _ = limiter.ask(T0, &request(key, &key.to_be_bytes()));
        }
        limiter.poll(T0 + Duration::from_millis(20)).expect("a regular report");
        let others = Some(Limit::new(1_000_000));
        limiter.set_limits(T0, 1, Limits { others, ..Limits::default() });
        let entries = (0..MAX_LIMITS as u32).map(|id| AssignmentEntry {
            customer: CustomerId(id),
            limit: 1_000_000,
            rate: 5,
            credit: 0,
            cut: Cut::NONE,
            fleet: None,
        });
        let assignment = assignment(1, entries.collect());
        assert_eq!(limiter.assign(T0, &assignment), Ok(()));
        let report = limiter.poll(T0 + Duration::from_secs(2)).expect("a regular report").message;
        assert_eq!(report.dropped.len(), MAX_LIMITS - MAX_OTHERS);
        assert!(report.entries.iter().all(|entry| !report.dropped.contains(&entry.customer)));
    }

    #[test]
    fn stranger_beyond_the_bound_has_the_share_of_strangers() {
        let mut limiter = limiter(&[], None);
        let others = Limit { soft: Some(10_000), ..Limit::new(UNLIMITED) };
        limiter.set_limits(T0, 1, Limits { others: Some(others), ..Limits::default() });
        for stranger in 0..=MAX_OTHERS as u64 {
            let key = 100 + stranger;
            let (accounts, refused) = limiter.ask(T0, &request(key, &key.to_be_bytes()));
            assert!(refused.is_none() && accounts.customer.is_some());
            let share = limiter.fair_share(T0, key, accounts, Criticality::Critical);
            assert_eq!(share, Some(FairShare { share: 0.01, demand: None }), "{stranger}");
        }
    }

    #[test]
    fn removed_customer_is_dropped_and_its_number_not_used_again() {
        let mut limiter = limiter(&[(1, 10_000_000)], None);
        limiter.connect(T0, 1.0);
        admitted(&mut limiter, T0, 1, 1);
        let at = |seconds| T0 + Duration::from_secs(seconds);
        let reports: Vec<Report> = (1..60).filter_map(|second| Some(limiter.poll(at(second))?.message)).collect();
        let dropped: Vec<CustomerId> = reports.iter().flat_map(|report| report.dropped.clone()).collect();
        assert_eq!((dropped, limiter.customers()), ([CustomerId(0)].into(), 0));
        admitted(&mut limiter, at(60), 1, 1_000);
        let report = limiter.poll(at(60) + Duration::from_millis(20)).expect("the customer lacks a credit");
        assert_ne!(report.names[0].customer, CustomerId(0));
        // Nothing for the removed one is in order; a rate is not.
        let entry = AssignmentEntry {
            customer: CustomerId(0),
            limit: 1,
            rate: 0,
            credit: 0,
            cut: Cut::NONE,
            fleet: Some(FleetUse::default()),
        };
        assert_eq!(limiter.assign(at(61), &assignment(1, [entry].into())), Ok(()));
        let with_rate = AssignmentEntry { rate: 1, ..entry };
        let error = AssignmentError::Customer(CustomerId(0));
        assert_eq!(limiter.assign(at(61), &assignment(2, [with_rate].into())), Err(error));
    }

    #[test]
    fn dry_run_marks_refusals_before_any_rate_is_assigned() {
        let mut limiter = Limiter::new(T0);
        let none = Limit { is_dry_run: true, ..Limit::new(0) };
        limiter.set_limits(T0, 1, Limits { named: [(1, none)].into(), ..Limits::default() });
        let (_, refused) = limiter.ask(T0, &request(1, b"acme"));
        let refused = refused.expect("the limit is zero");
        assert!(refused.is_dry_run && refused.refusal == Refusal::Spent);
    }

    #[test]
    fn customer_that_loses_its_limit_is_no_longer_refused() {
        let mut limiter = limiter(&[(1, 1_000_000)], None);
        assert_eq!(admitted(&mut limiter, T0, 1, 1_000), 10);
        limiter.set_limits(T0, 1, Limits::default());
        assert_eq!(admitted(&mut limiter, T0 + Duration::from_secs(1), 1, 1_000), 1_000);
    }
}
