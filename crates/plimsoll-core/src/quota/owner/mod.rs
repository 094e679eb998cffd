//! The owner of the limits of one service.
//!
//! ```text
//! granted to a task  ≤  pool − Σ held by the others        at any time
//! pool = granted(limit)
//!      | Σ of the rates that tasks report when they join    until a lease has passed since the start
//! ```
//!
//! A rate counts as held from its assignment until the task acknowledges a lower one, or until its
//! lease is over. So the sum of the rates in use is within the limit whatever becomes of a message.
//!
//! A new owner does not know the tasks that have not joined yet, and they may hold a part of the
//! limit. It distributes what the tasks that joined hold, which is as much as they used before. It is
//! sure of the rest when as many tasks of before have joined as they say that there were, or a lease
//! has passed; until then its leases are short. If no task holds anything in the first five seconds, the
//! service starts, and nobody does.
//!
//! A sure owner counts of the rates of a task that joins only those that it [granted](newcomer). It is unsure again if
//! all tasks were away for a lease, and one of them is back.
//!
//! Each report gets its answer at once, with the rates of its own customers. The rates of other tasks
//! change by a sweep over the customers whose [`Rule`](super::Rule) changed, each 100 ms. A demand that
//! changed is told in the answer to the next report of each task.
//!
//! Another owner may begin when the lease of this one is over: see [`Tenure`].
//!
//! Where it is weak: a task that crashes takes its rates with it until its lease is over, unless it
//! joins again by the same name.

mod believed;
mod customer;
mod newcomer;
mod task;
mod tenure;
mod told;

use alloc::collections::BTreeSet;
use alloc::vec::Vec;
use core::fmt;
use core::time::Duration;

use self::believed::{Believed, Claim};
use self::customer::Customer;
use self::newcomer::Rejoined;
use self::task::Task;
pub use self::tenure::Tenure;
use self::told::Told;
use super::rule::LEVELS;
use super::{Assignment, AssignmentEntry, CustomerId, Cut, Hello, Hold, Report, TaskId};
use crate::outlook::Outlook;
use crate::{Criticality, Timestamp};

/// If no task that joined in this time holds a rate, none did before.
const FIRST_START: Duration = Duration::from_secs(5);
/// Time between two searches for leases that are over.
const LEASE_INTERVAL: Duration = Duration::from_secs(1);

/// Settings of an [`Owner`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OwnerConfig {
    /// How long a task may use its rates after it sent a report.
    pub lease: Duration,
    /// The same while this owner does not know all tasks: those that never reach it use the even part soon.
    pub takeover_lease: Duration,
    /// Optimistic: a part of each limit is lent to tasks that ask for a credit.
    pub outlook: Outlook,
}

impl OwnerConfig {
    /// Shares that are a minute old are nearly as good as fresh ones, and better than none.
    pub const DEFAULT_LEASE: Duration = Duration::from_secs(60);
    /// Some reports of a task.
    pub const DEFAULT_TAKEOVER_LEASE: Duration = Duration::from_secs(5);
}

impl Default for OwnerConfig {
    fn default() -> Self {
        Self { lease: Self::DEFAULT_LEASE, takeover_lease: Self::DEFAULT_TAKEOVER_LEASE, outlook: Outlook::Optimistic }
    }
}

/// The reason why a report has no effect. The stream of the task is to be ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReportError {
    /// There is no such task, or its stream ended.
    Task,
    /// Reports are numbered 1, 2, 3 ...
    Number {
        /// The number of the next report.
        expected: u32,
        /// The number of this one.
        got: u32,
    },
    /// It acknowledges what was not sent, or less than before.
    Acknowledged {
        /// The last acknowledged number.
        least: u32,
        /// The last sent number.
        most: u32,
        /// The number in the report.
        got: u32,
    },
    /// An assignment of some time ago lowers a rate, and the task does not acknowledge it.
    Unacknowledged(u32),
    /// No such customer.
    Customer(CustomerId),
    /// A customer that is there twice.
    Twice(CustomerId),
}

impl fmt::Display for ReportError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Task => f.write_str("the task has not joined"),
            Self::Number { expected, got } => write!(f, "report {got} where {expected} is due"),
            Self::Acknowledged { least, most, got } => {
                write!(f, "assignment {got} is acknowledged, and those from {least} to {most} were sent")
            }
            Self::Unacknowledged(number) => {
                write!(f, "assignment {number} lowers a rate, and was not acknowledged for 10 s")
            }
            Self::Customer(CustomerId(id)) => write!(f, "customer {id} is unknown on this stream"),
            Self::Twice(CustomerId(id)) => write!(f, "customer {id} is there twice"),
        }
    }
}

impl core::error::Error for ReportError {}

/// The state of a customer at its owner.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CustomerState {
    /// Its limit, in µCPU.
    pub limit: u64,
    /// Its demand by criticality, in µCPU.
    pub demand: [u64; LEVELS],
    /// Costs of its admitted requests a second, in µCPU.
    pub used: u64,
    /// The rates that tasks may be using, in sum. µCPU.
    pub held: u64,
    /// Tasks with demand or a rate.
    pub tasks: usize,
    /// Refusal by criticality.
    pub cut: Cut,
}

/// The owner of the limits of one service.
#[derive(Clone, Debug)]
pub struct Owner {
    config: OwnerConfig,
    customers: Vec<Customer>,
    /// By number; `None`: free.
    tasks: Vec<Option<Task>>,
    joined: u32,
    /// Those that lack CPU for requests of each criticality, or for more critical ones.
    overloaded: [u32; LEVELS],
    dirty: Vec<u32>,
    told: Told,
    /// The number of the last report of any task.
    answers: u64,
    /// Tasks with unsent assignments.
    ready: Vec<u32>,
    /// Until then other tasks may hold rates that this owner does not know.
    unsure_until: Option<Timestamp>,
    /// Tasks of before that have joined, and the number of all of them.
    returned: u32,
    expected: u32,
    /// When a start is known to be the first one, unless a task holds something.
    first_start: Option<Timestamp>,
    leases_at: Timestamp,
    /// The end of its own lease. `None`: there is no other owner ever.
    certain_until: Option<Timestamp>,
    tenure: Tenure,
}

impl Owner {
    /// An owner that knows no task yet.
    #[must_use]
    pub fn new(now: Timestamp, config: OwnerConfig) -> Self {
        Self {
            config,
            customers: Vec::new(),
            tasks: Vec::new(),
            joined: 0,
            overloaded: [0; LEVELS],
            dirty: Vec::new(),
            told: Told::default(),
            answers: 0,
            ready: Vec::new(),
            unsure_until: Some(now + config.lease),
            returned: 0,
            expected: 0,
            first_start: None,
            leases_at: now + LEASE_INTERVAL,
            certain_until: None,
            tenure: Tenure::Certain,
        }
    }

    /// Adds a customer with a limit in µCPU.
    pub fn add_customer(&mut self, now: Timestamp, limit: u64) -> CustomerId {
        let is_lending = self.config.outlook == Outlook::Optimistic;
        self.customers.push(Customer::new(now, limit, is_lending));
        CustomerId(self.customers.len() as u32 - 1)
    }

    /// Changes a limit. Rates follow with the next sweep.
    ///
    /// # Panics
    /// The customer was not added.
    pub fn set_limit(&mut self, customer: CustomerId, limit: u64) {
        if core::mem::replace(&mut self.customers[customer.0 as usize].limit, limit) != limit {
            self.mark(customer.0);
        }
    }

    /// Whether tasks are to know the demand of the customer at all tasks: it has a soft limit.
    ///
    /// # Panics
    /// The customer was not added.
    pub fn set_soft_limit(&mut self, customer: CustomerId, has_soft_limit: bool) {
        if self.customers[customer.0 as usize].set_soft_limit(has_soft_limit) {
            self.mark(customer.0);
        }
    }

    /// Makes another customer of an idle one, with this limit. Its number is used for it.
    ///
    /// # Panics
    /// A task has demand for it, or a rate.
    pub fn reuse(&mut self, now: Timestamp, customer: CustomerId, limit: u64) {
        assert!(self.customers[customer.0 as usize].entries.is_empty(), "the customer is idle");
        let CustomerId(at) = self.add_customer(now, limit);
        let new = self.customers.swap_remove(at as usize);
        let former = core::mem::replace(&mut self.customers[customer.0 as usize], new);
        self.customers[customer.0 as usize].is_dirty = former.is_dirty;
        self.told.remove(former.told_number);
    }

    /// A task joins. `former` is the same task before its stream ended: it uses no other rates than those
    /// in `hello`. An owner that [knows all tasks](Self::is_unsure) counts of these what it granted.
    ///
    /// # Errors
    /// A customer is unknown, or there twice. The task has not joined.
    pub fn join(&mut self, now: Timestamp, hello: &Hello, former: Option<TaskId>) -> Result<TaskId, ReportError> {
        let Hello { cpus, tasks, holds } = hello;
        let mut seen = BTreeSet::new();
        for Hold { customer, .. } in holds {
            if customer.0 as usize >= self.customers.len() {
                return Err(ReportError::Customer(*customer));
            }
            if !seen.insert(*customer) {
                return Err(ReportError::Twice(*customer));
            }
        }
        if self.joined == 0 && tasks.is_some() && !self.is_unsure() {
            self.begin_takeover(now);
        }
        let before = former.and_then(|former| self.tasks.get(former.0 as usize)?.as_ref());
        let rejoined = before.map(|before| Rejoined::new(now, before));
        let counted = self.counted(holds, former, rejoined);
        if let Some(former) = former {
            self.forget(now, former.0);
        }
        let believed = Believed::new(*cpus);
        let limits = counted.into_iter().map(|hold| (hold, self.customers[hold.customer.0 as usize].limit));
        let claims = believed.claims(&limits.collect::<Vec<_>>());
        let mut task = Task::new(now, believed, now + self.config.lease);
        task.rejoined = rejoined;
        let id = self.tasks.iter().position(Option::is_none).unwrap_or(self.tasks.len()) as u32;
        let is_unsure = self.is_unsure();
        for (Hold { customer, rate }, claim) in holds.iter().zip(claims) {
            let of = &mut self.customers[customer.0 as usize];
            let place = of.add(now, id, claim, former.is_none());
            if !is_unsure {
                of.entries[place].rate = *rate;
            }
            task.believed.replace(0, of.entries[place].all_demand());
            task.set_place(customer.0, place);
            self.mark(customer.0);
        }
        if self.tasks.len() == id as usize {
            self.tasks.push(None);
        }
        self.tasks[id as usize] = Some(task);
        self.joined += 1;
        if self.unsure_until.is_some() {
            self.on_joined_unsure(now, tasks.filter(|_| former.is_none()));
        }
        Ok(TaskId(id))
    }

    /// The stream of a task ended. What it holds stays reserved until the end of its lease, or until it
    /// joins again.
    pub fn leave(&mut self, task: TaskId) {
        if let Some(Some(of)) = self.tasks.get_mut(task.0 as usize) {
            of.is_connected = false;
            self.keep_held_demand(task.0);
        }
        self.set_overloaded(task.0, None);
    }

    /// A task without a stream is granted nothing more, so no more of its demand counts than it holds.
    fn keep_held_demand(&mut self, id: u32) {
        let Some(task) = self.tasks[id as usize].as_mut() else { return };
        let mut lowered = Vec::new();
        for (customer, place) in task.customers().collect::<Vec<_>>() {
            let (before, all) = self.customers[customer as usize].keep_held_demand(place as usize);
            task.believed.replace(before, all);
            if all < before {
                lowered.push(customer);
            }
        }
        lowered.into_iter().for_each(|customer| self.mark(customer));
    }

    /// A task reports. Returns the answer, which must be sent to it before any later assignment.
    ///
    /// # Errors
    /// The report has no effect.
    pub fn report(&mut self, now: Timestamp, id: TaskId, report: &Report) -> Result<Assignment, ReportError> {
        let task = self.tasks.get_mut(id.0 as usize).and_then(Option::as_mut);
        let task = task.filter(|task| task.is_connected).ok_or(ReportError::Task)?;
        task.check(now, report, self.customers.len())?;
        self.set_tenure(now);
        let task = self.tasks[id.0 as usize].as_mut().expect("a task that reports has joined");
        task.reported = report.number;
        task.until = now + self.config.lease;
        let number = task.next_number();
        let lowered = task.acknowledge(now, report.acknowledged);
        let gives_back = report.entries.iter().any(|entry| entry.unused > 0);
        let elapsed = if gives_back { task.give_back(now) } else { Duration::ZERO };
        for customer in lowered {
            self.release(now, id.0, customer, report.acknowledged);
        }
        self.set_overloaded(id.0, report.overloaded);
        for CustomerId(customer) in &report.dropped {
            let place = self.tasks[id.0 as usize].as_ref().and_then(|task| task.place(*customer));
            if let Some(place) = place {
                self.remove(now, id.0, *customer, place);
                self.mark(*customer);
            }
        }
        self.bound_demand(id.0, report);
        let tasks = self.fleet();
        self.answers += 1;
        let mut entries = Vec::with_capacity(report.entries.len());
        let mut next = 0;
        for entry in &report.entries {
            let task = self.tasks[id.0 as usize].as_mut().expect("a task that reports has joined");
            let of = &mut self.customers[entry.customer.0 as usize];
            let place = task.place_near(entry.customer.0, &mut next).unwrap_or_else(|| {
                let place = of.add(now, id.0, Claim::NONE, true);
                task.set_place(entry.customer.0, place);
                place
            });
            let (demand, used) = (task.believed.demand(entry.demand), task.believed.used(entry.used));
            let (before, all) = of.on_demand(place, demand, used, entry.cost);
            task.believed.replace(before, all);
            let (rule, pool) = (of.rule(), of.pool(self.unsure_until.is_some()));
            let is_changed = of.grant(now, place, &rule, pool);
            if entry.unused > 0 {
                of.give_back(now, place, entry.unused, elapsed, tasks);
            }
            let credit = of.take_credit(now, entry.lacking, pool);
            let is_new = of.entries[place].number == 0;
            let (customer, cut) = (entry.customer, rule.cut());
            if is_changed || is_new || task.unsent.contains(&customer.0) {
                of.answered = self.answers;
                entries.push(assign(task, of, number, customer, place, cut, credit));
            } else if credit > 0 || entry.lacking > 0 {
                // The same rate as before, so what is acknowledged stays so.
                of.answered = self.answers;
                entries.push(of.entry(customer, of.entries[place].rate, credit, cut));
            }
            if of.take_other_demand() {
                if of.entries.len() > 1 {
                    of.told_number = self.told.add(customer.0, of.told_number);
                } else if of.answered != self.answers {
                    // No other task has the customer.
                    of.answered = self.answers;
                    entries.push(of.entry(customer, of.entries[place].rate, 0, cut));
                }
            }
            let (is_idle, is_due) = (of.entries[place].is_idle(), of.is_starved || of.needs_sweep(&rule));
            if is_due {
                self.mark(entry.customer.0);
            }
            if is_idle {
                self.remove(now, id.0, entry.customer.0, place);
            }
        }
        if report.number == 1 {
            self.assign_uncounted(now, id.0, number, &mut entries);
        }
        self.tell(id.0, &mut entries);
        Ok(self.assignment(id.0, number, entries))
    }

    /// Adds the customers of a task whose demand changed, and that the answer does not have.
    fn tell(&mut self, id: u32, entries: &mut Vec<AssignmentEntry>) {
        let Some(task) = self.tasks[id as usize].as_mut() else { return };
        let before = core::mem::replace(&mut task.told, self.told.last());
        let mut tell = |customer: u32, place: usize| {
            let of = &self.customers[customer as usize];
            if of.answered != self.answers && !task.unsent.contains(&customer) {
                entries.push(of.entry(CustomerId(customer), of.entries[place].rate, 0, of.cut()));
            }
        };
        // By the changes or by the customers of the task: whichever are fewer.
        if self.told.last() - before <= task.customers().len() as u64 {
            let changed = self.told.since(before).filter_map(|customer| Some((customer, task.place(customer)?)));
            changed.for_each(|(customer, place)| tell(customer, place));
        } else {
            let of_task = task.customers().map(|(customer, place)| (customer, place as usize));
            let changed = of_task.filter(|(customer, _)| self.customers[*customer as usize].told_number > before);
            changed.for_each(|(customer, place)| tell(customer, place));
        }
    }

    /// When to call [`handle_timeout`](Self::handle_timeout).
    #[must_use]
    pub fn poll_timeout(&self) -> Timestamp {
        let sweeps = self.dirty.iter().map(|customer| self.customers[*customer as usize].sweep_due());
        let others = [self.unsure_until, self.first_start, self.tenure_timeout()].into_iter().flatten();
        sweeps.chain(others).fold(self.leases_at, Timestamp::min)
    }

    /// Changes rates that are due, and ends leases. Then [`poll_assignment`](Self::poll_assignment).
    pub fn handle_timeout(&mut self, now: Timestamp) {
        self.set_tenure(now);
        self.end_takeover(now);
        if now >= self.leases_at {
            self.leases_at = now + LEASE_INTERVAL;
            for id in 0..self.tasks.len() as u32 {
                if self.tasks[id as usize].as_ref().is_some_and(|task| task.until <= now) {
                    self.reserve(now, id);
                    self.forget(now, id);
                }
                self.relax_demand(id);
            }
        }
        let mut dirty = core::mem::take(&mut self.dirty);
        dirty.retain(|customer| {
            let is_due = self.customers[*customer as usize].sweep_due() <= now;
            if is_due {
                self.sweep(now, *customer);
            }
            !is_due
        });
        self.dirty.append(&mut dirty);
    }

    /// The next assignment that follows from a sweep, and its task.
    pub fn poll_assignment(&mut self) -> Option<(TaskId, Assignment)> {
        loop {
            let id = self.ready.pop()?;
            let Some(task) = self.tasks[id as usize].as_mut() else { continue };
            let (unsent, untold) = (core::mem::take(&mut task.unsent), core::mem::take(&mut task.untold));
            if !task.is_connected || (unsent.is_empty() && untold.is_empty()) {
                continue;
            }
            let number = task.next_number();
            let mut entries: Vec<_> =
                unsent.into_iter().map(|customer| self.assign(number, id, CustomerId(customer))).collect();
            entries.extend(untold.into_iter().filter_map(|customer| self.same_rate(id, CustomerId(customer))));
            return Some((TaskId(id), self.assignment(id, number, entries)));
        }
    }

    /// Whether tasks may hold rates that this owner does not know.
    #[must_use]
    pub fn is_unsure(&self) -> bool {
        self.unsure_until.is_some()
    }

    /// Tasks that have joined and whose lease lasts.
    #[must_use]
    pub fn tasks(&self) -> u32 {
        self.joined
    }

    /// Those that lack CPU for some requests, by their last reports.
    #[must_use]
    pub fn overloaded(&self) -> u32 {
        self.overloaded[LEVELS - 1]
    }

    /// The most critical requests that a task lacks CPU for.
    #[must_use]
    pub fn overload(&self, task: TaskId) -> Option<Criticality> {
        self.tasks.get(task.0 as usize)?.as_ref()?.overloaded
    }

    /// The same for more than half of the tasks.
    fn fleet_overload(&self) -> Option<Criticality> {
        let most = |criticality: &Criticality| 2 * self.overloaded[criticality.rank()] > self.fleet();
        Criticality::ALL.into_iter().find(most)
    }

    /// Tasks that share the floors: those that joined, and while tasks of before are not back, these too.
    #[must_use]
    pub fn fleet(&self) -> u32 {
        let expected = if self.is_unsure() { self.expected } else { 0 };
        self.joined.max(expected).max(1)
    }

    /// The state of a customer.
    ///
    /// # Panics
    /// The customer was not added.
    #[must_use]
    pub fn customer(&self, id: CustomerId) -> CustomerState {
        let customer = &self.customers[id.0 as usize];
        CustomerState {
            limit: customer.limit,
            demand: customer.demand(),
            used: customer.used(),
            held: customer.held,
            tasks: customer.entries.len(),
            cut: customer.cut(),
        }
    }

    /// The mean cost of a customer's requests over all tasks, in CPU-microseconds. Zero: not known.
    ///
    /// # Panics
    /// The customer was not added.
    pub fn mean_cost(&mut self, id: CustomerId) -> f64 {
        self.customers[id.0 as usize].mean_cost()
    }

    /// Whether the lease of a task lasts.
    #[must_use]
    pub fn is_joined(&self, task: TaskId) -> bool {
        self.tasks.get(task.0 as usize).is_some_and(Option::is_some)
    }

    /// The tasks of a customer: demand and the highest rate that the task may be using, in µCPU.
    ///
    /// # Panics
    /// The customer was not added.
    pub fn holders(&self, id: CustomerId) -> impl Iterator<Item = (TaskId, u64, u32)> {
        let entries = self.customers[id.0 as usize].entries.iter();
        entries.map(|entry| (TaskId(entry.task), entry.demand().iter().sum(), entry.held))
    }

    fn on_joined_unsure(&mut self, now: Timestamp, tasks: Option<u32>) {
        if self.joined == 1 {
            self.first_start = Some(now + FIRST_START);
        }
        if let Some(tasks) = tasks {
            self.returned += 1;
            self.expected = self.expected.max(tasks);
            if self.returned >= self.expected {
                self.unsure_until = Some(now);
            }
        }
    }

    fn end_takeover(&mut self, now: Timestamp) {
        let Some(until) = self.unsure_until else { return };
        let is_decided = self.first_start.take_if(|due| *due <= now).is_some();
        let is_first = is_decided && self.customers.iter().all(|customer| customer.reported == 0);
        if is_first || now >= until {
            (self.unsure_until, self.first_start) = (None, None);
            (0..self.customers.len() as u32).for_each(|customer| self.mark(customer));
        }
    }

    fn sweep(&mut self, now: Timestamp, id: u32) {
        let unsure = self.unsure_until.is_some();
        let customer = &mut self.customers[id as usize];
        let (rule, pool) = (customer.rule(), customer.pool(unsure));
        let is_other_cut = customer.is_other_cut(&rule);
        if customer.take_other_demand() {
            customer.told_number = self.told.add(id, customer.told_number);
        }
        customer.on_sweep(now, rule);
        for place in 0..customer.entries.len() {
            let (task, is_uncounted) = (customer.entries[place].task, customer.entries[place].is_uncounted());
            let Some(of) = self.tasks[task as usize].as_mut().filter(|task| task.is_connected) else { continue };
            if is_uncounted && of.reported == 0 {
                // Its demand comes with its first report.
                continue;
            }
            let is_granted = customer.grant(now, place, &rule, pool);
            if is_granted || is_other_cut {
                if of.unsent.is_empty() && of.untold.is_empty() {
                    self.ready.push(task);
                }
                if is_granted { of.unsent.push(id) } else { of.untold.push(id) }
            }
        }
        if customer.is_starved && customer.held < pool {
            self.mark(id);
        }
    }

    /// The task acknowledged the assignments up to this number, which lowered its rate.
    fn release(&mut self, now: Timestamp, id: u32, customer: u32, acknowledged: u32) {
        let Some(place) = self.tasks[id as usize].as_ref().and_then(|task| task.place(customer)) else { return };
        let of = &mut self.customers[customer as usize];
        // A later assignment is under way, with an acknowledgement of its own.
        if of.entries[place].number > acknowledged {
            return;
        }
        // A sweep has changed the rate since, and it is not sent yet.
        if self.tasks[id as usize].as_ref().is_some_and(|task| task.unsent.contains(&customer)) {
            return;
        }
        of.release(now, place);
        if of.is_starved {
            self.mark(customer);
        }
        self.drop_idle(now, id, customer);
    }

    /// The entry of an assignment that follows from a sweep, and is sent now.
    fn assign(&mut self, number: u32, id: u32, customer: CustomerId) -> AssignmentEntry {
        let task = self.tasks[id as usize].as_mut().expect("an assignment is for a task that has joined");
        let of = &mut self.customers[customer.0 as usize];
        let cut = of.cut();
        match task.place(customer.0) {
            Some(place) => assign(task, of, number, customer, place, cut, 0),
            None => of.entry(customer, 0, 0, cut),
        }
    }

    /// The entry of an assignment that changes the cut and not the rate: nothing is to be acknowledged again.
    fn same_rate(&self, id: u32, customer: CustomerId) -> Option<AssignmentEntry> {
        let place = self.tasks[id as usize].as_ref()?.place(customer.0)?;
        let of = &self.customers[customer.0 as usize];
        Some(of.entry(customer, of.entries[place].rate, 0, of.cut()))
    }

    fn assignment(&self, id: u32, number: u32, entries: Vec<AssignmentEntry>) -> Assignment {
        let answers = self.tasks[id as usize].as_ref().map_or(0, |task| task.reported);
        let OwnerConfig { lease, takeover_lease, .. } = self.config;
        let lease = if self.is_unsure() { lease.min(takeover_lease) } else { lease };
        let (tasks, overloaded, is_overdue) = (self.fleet(), self.fleet_overload(), self.tenure != Tenure::Certain);
        Assignment { number, answers, lease, tasks, overloaded, is_overdue, entries }
    }

    fn drop_idle(&mut self, now: Timestamp, id: u32, customer: u32) {
        let Some(place) = self.tasks[id as usize].as_ref().and_then(|task| task.place(customer)) else { return };
        if self.customers[customer as usize].entries[place].is_idle() {
            self.remove(now, id, customer, place);
        }
    }

    fn remove(&mut self, now: Timestamp, id: u32, customer: u32, place: usize) {
        let of = &mut self.customers[customer as usize];
        let demand = of.entries[place].all_demand();
        of.remove(now, place);
        let moved = of.entries.get(place).map(|entry| entry.task);
        if let Some(task) = self.tasks[id as usize].as_mut() {
            task.believed.replace(demand, 0);
            task.forget(customer);
        }
        if let Some(task) = moved.and_then(|moved| self.tasks[moved as usize].as_mut()) {
            task.set_place(customer, place);
        }
    }

    /// A task is gone, and uses nothing.
    fn forget(&mut self, now: Timestamp, id: u32) {
        let Some(task) = self.tasks.get(id as usize).and_then(Option::as_ref) else { return };
        let places: Vec<(u32, u32)> = task.customers().collect();
        for (customer, place) in places {
            self.remove(now, id, customer, place as usize);
            self.mark(customer);
        }
        self.set_overloaded(id, None);
        self.tasks[id as usize] = None;
        self.joined -= 1;
    }

    fn set_overloaded(&mut self, id: u32, overloaded: Option<Criticality>) {
        let Some(Some(task)) = self.tasks.get_mut(id as usize) else { return };
        let before = core::mem::replace(&mut task.overloaded, overloaded);
        for (rank, tasks) in self.overloaded.iter_mut().enumerate() {
            let lacks = |from: Option<Criticality>| u32::from(from.is_some_and(|from| rank >= from.rank()));
            *tasks = *tasks + lacks(overloaded) - lacks(before);
        }
    }

    fn mark(&mut self, customer: u32) {
        if !core::mem::replace(&mut self.customers[customer as usize].is_dirty, true) {
            self.dirty.push(customer);
        }
    }
}

/// The entry of an assignment with this number, which is sent now.
fn assign(
    task: &mut Task,
    of: &mut Customer,
    number: u32,
    customer: CustomerId,
    place: usize,
    cut: Cut,
    credit: u32,
) -> AssignmentEntry {
    let entry = &mut of.entries[place];
    entry.number = number;
    let rate = entry.rate;
    if rate < entry.held {
        task.on_lower(number, customer);
    }
    of.entry(customer, rate, credit, cut)
}
