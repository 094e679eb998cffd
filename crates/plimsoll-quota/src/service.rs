//! One service: the owner of its limits, and the tasks with their streams.
//!
//! A group is one more customer of the owner, by a name of its own kind.
//!
//! It maps names to the numbers of the owner, and puts messages into the queues of the streams, in the order
//! in which the owner makes them. A task that does not read its queue loses its stream.
//!
//! Names come from requests of strangers. The number of customers is bounded: one beyond [`MAX_CUSTOMERS`] that has no
//! limit of its own is unknown to the owner, and each task may use the floor of its limit. A customer without a limit of
//! its own is forgotten when no task knows it.
//!
//! One task tries new limits before all get them ([`Changes`]). Until then the last good ones are in force,
//! also for tasks that join.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use plimsoll_core::quota::{
    self, CustomerId, CustomerState, Owner, OwnerConfig, ReportError, RolloutStep, TaskId, Tenure, UNLIMITED,
};
use plimsoll_core::{Criticality, Timestamp};
use plimsoll_tls_config::ClientName;
use thiserror::Error;
use tokio::sync::mpsc;

use crate::changes::{Changes, Outcome};
use crate::config::{MIN_ENVOY_LEASE, ServiceConfig};
use crate::convert::{self, Invalid};
use crate::dictionary::{Dictionary, Known};
use crate::limits::{Change, Override, ServiceLimits};
use crate::message::{AssignmentEntry, FromOwner, Hello, Limits, Report, ToTask};
use crate::name::{Kind, Name};

/// Customers of a service: names come from strangers.
pub(crate) const MAX_CUSTOMERS: usize = 100_000;
/// Time for which a limit by an operator goes on when the limits after it break tasks.
const EXTENSION: Duration = Duration::from_secs(60);
/// Messages that wait for a task which does not read.
pub(crate) const MAX_QUEUE: usize = 64;

/// The queue of a stream.
pub(crate) type Queue = mpsc::Sender<ToTask>;

/// The reason why a stream ends.
#[derive(Clone, Debug, PartialEq, Error)]
pub(crate) enum StreamError {
    #[error(transparent)]
    Invalid(#[from] Invalid),
    #[error("report: {0}")]
    Report(#[from] ReportError),
    #[error("report.entries.id: {0} was never named on this stream")]
    Unnamed(u32),
    #[error("report.entries.id: {0} and its customer are there already")]
    Twice(u32),
    #[error("report.entries.id: {0} is one customer too many at a task")]
    TooMany(u32),
    #[error("another task has joined by the name of this one")]
    Replaced,
    #[error("the task does not read its stream: {MAX_QUEUE} messages wait")]
    Slow,
    #[error("the lease of the task is over")]
    Lease,
    #[error("the task knows an owner of epoch {0}, which is later than this one")]
    Outdated(u64),
}

/// The callers of a service: Envoys report less often.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Callers {
    Tasks,
    Envoys,
}

/// A stream of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct StreamId {
    pub(crate) task: TaskId,
    number: u64,
}

#[derive(Debug)]
struct Customer {
    name: Name,
    /// Streams that know it.
    streams: u32,
    is_free: bool,
}

#[derive(Debug)]
struct Stream {
    number: u64,
    queue: Queue,
    dictionary: Dictionary,
}

#[derive(Debug)]
struct Task {
    instance: Arc<str>,
    cpus: f64,
    stream: Option<Stream>,
}

/// A customer of a service or a group, for the API.
#[derive(Clone, Debug)]
pub(crate) struct CustomerView {
    pub(crate) name: Name,
    /// The group of a customer.
    pub(crate) group: Option<String>,
    pub(crate) state: CustomerState,
    pub(crate) soft: Option<u64>,
    pub(crate) is_dry_run: bool,
    pub(crate) by_operator: Option<Override>,
}

/// A task of a service, for the API.
#[derive(Clone, Debug)]
pub(crate) struct InstanceView<'a> {
    pub(crate) name: &'a str,
    pub(crate) cpus: f64,
    /// There is a stream.
    pub(crate) is_connected: bool,
    /// The most critical requests that it lacks CPU for.
    pub(crate) overloaded: Option<Criticality>,
}

impl CustomerView {
    pub(crate) fn has_limit(&self) -> bool {
        self.state.limit < UNLIMITED
    }
}

/// Events since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) joined: u64,
    pub(crate) reports: u64,
    pub(crate) assignments: u64,
    /// Streams that ended for an error of the task.
    pub(crate) invalid: u64,
    /// Streams that ended because the task did not read.
    pub(crate) slow: u64,
    /// Streams of callers that may not report.
    pub(crate) denied: u64,
    /// Changes of limits that all tasks got.
    pub(crate) applied: u64,
    /// Changes of limits that broke the tasks which tried them.
    pub(crate) refused: u64,
    /// Changes of limits that all tasks got, with other settings of the file in them.
    pub(crate) reloaded: u64,
}

/// See the [module](self).
#[derive(Debug)]
pub(crate) struct Service {
    epoch: u64,
    owner: Owner,
    callers: Callers,
    /// Customers, beside those with a limit of their own.
    max_customers: usize,
    /// In force.
    limits: ServiceLimits,
    changes: Changes,
    /// Limits that were put in force, for those who follow.
    applied: Option<(Timestamp, ServiceLimits)>,
    by_name: HashMap<Name, CustomerId>,
    customers: Vec<Customer>,
    free: Vec<CustomerId>,
    /// Customers that no stream knows any more, and tasks may still hold.
    unknown: Vec<CustomerId>,
    tasks: HashMap<TaskId, Task>,
    by_instance: HashMap<Arc<str>, TaskId>,
    streams: u64,
    counts: Counts,
}

impl Service {
    /// A service without tasks. `epoch` is the number of its owner, above that of each earlier one.
    pub(crate) fn new(now: Timestamp, epoch: u64, config: ServiceConfig, callers: Callers) -> Self {
        let takeover_lease = match callers {
            Callers::Tasks => OwnerConfig::DEFAULT_TAKEOVER_LEASE,
            Callers::Envoys => MIN_ENVOY_LEASE,
        };
        let owner = OwnerConfig { lease: config.lease, takeover_lease, outlook: config.outlook };
        let mut service = Self {
            epoch,
            owner: Owner::new(now, owner),
            limits: ServiceLimits::new(config),
            callers,
            max_customers: MAX_CUSTOMERS,
            changes: Changes::default(),
            applied: None,
            by_name: HashMap::new(),
            customers: Vec::new(),
            free: Vec::new(),
            unknown: Vec::new(),
            tasks: HashMap::new(),
            by_instance: HashMap::new(),
            streams: 0,
            counts: Counts::default(),
        };
        service.add_named(now);
        service
    }

    /// Another owner may begin then.
    pub(crate) fn set_certain_until(&mut self, now: Timestamp, until: Timestamp) {
        self.owner.set_certain_until(now, until);
    }

    /// Whether another owner may have begun.
    pub(crate) fn is_overdue(&self) -> bool {
        self.owner.tenure() != Tenure::Certain
    }

    /// A task joins; messages to it go to `queue`, the limits first.
    pub(crate) fn join(&mut self, now: Timestamp, hello: &Hello, queue: Queue) -> Result<StreamId, StreamError> {
        let joined = self.try_join(now, hello, queue);
        self.counts.joined += u64::from(joined.is_ok());
        self.counts.invalid += u64::from(!matches!(joined, Ok(_) | Err(StreamError::Outdated(_))));
        joined
    }

    fn try_join(&mut self, now: Timestamp, hello: &Hello, queue: Queue) -> Result<StreamId, StreamError> {
        convert::check_hello(hello)?;
        // Of a server without etcd, or of an etcd that was begun anew, it may be higher.
        if hello.epoch > self.epoch && self.is_overdue() {
            return Err(StreamError::Outdated(hello.epoch));
        }
        let mut dictionary = Dictionary::default();
        let mut holds = Vec::with_capacity(hello.holds.len() + hello.groups.len());
        let customers = hello.holds.iter().map(|hold| (Kind::Customer, hold));
        for (kind, hold) in customers.chain(hello.groups.iter().map(|hold| (Kind::Group, hold))) {
            let name = Name::new(kind, &hold.name);
            let customer = self.customer(now, &name);
            if !introduce(&mut dictionary, hold.id, &name, customer) {
                // The customers that were added are known to no stream, and are forgotten.
                return Err(StreamError::Twice(hold.id));
            }
            holds.extend(customer.map(|customer| quota::Hold { customer, rate: hold.rate }));
        }
        let former = self.by_instance.remove(&*hello.instance);
        if let Some(former) = former {
            self.end_stream(former);
            self.tasks.remove(&former);
        }
        let message = quota::Hello { cpus: hello.cpus, tasks: hello.tasks, holds };
        let task = self.owner.join(now, &message, former)?;
        self.streams += 1;
        dictionary.iter().for_each(|customer| self.customers[customer.0 as usize].streams += 1);
        let limits = FromOwner::Limits(self.limits.message(self.epoch, self.owner.fleet()));
        // The queue is new.
        let _ = queue.try_send(ToTask { message: Some(limits) });
        let instance: Arc<str> = hello.instance.as_str().into();
        self.by_instance.insert(Arc::clone(&instance), task);
        let stream = Some(Stream { number: self.streams, queue, dictionary });
        self.tasks.insert(task, Task { instance, cpus: hello.cpus, stream });
        Ok(StreamId { task, number: self.streams })
    }

    /// A report on a stream. Its answer goes to the queue of the stream.
    pub(crate) fn report(&mut self, now: Timestamp, id: StreamId, report: &Report) -> Result<(), StreamError> {
        self.counts.reports += 1;
        let answered = self.try_report(now, id, report);
        match &answered {
            Ok(()) => {}
            Err(StreamError::Slow) => self.counts.slow += 1,
            Err(StreamError::Replaced | StreamError::Lease) => {}
            Err(_) => self.counts.invalid += 1,
        }
        answered
    }

    fn try_report(&mut self, now: Timestamp, id: StreamId, report: &Report) -> Result<(), StreamError> {
        let mut stream = self.take_stream(id)?;
        let answer = self.answer(now, id.task, &mut stream.dictionary, report);
        let sent = answer.and_then(|(answer, beyond)| {
            let mut message = convert::assignment(self.epoch, &answer, |customer| stream.dictionary.id(customer));
            message.entries.extend(beyond);
            self.counts.assignments += 1;
            let message = ToTask { message: Some(FromOwner::Assignment(message)) };
            stream.queue.try_send(message).map_err(|_| StreamError::Slow)
        });
        if let Some(task) = self.tasks.get_mut(&id.task) {
            task.stream = Some(stream);
        }
        sent
    }

    fn take_stream(&mut self, id: StreamId) -> Result<Stream, StreamError> {
        let task = self.tasks.get_mut(&id.task).ok_or(StreamError::Lease)?;
        task.stream.take_if(|stream| stream.number == id.number).ok_or(StreamError::Replaced)
    }

    /// Also returns the assignments of customers that the owner does not know.
    fn answer(
        &mut self,
        now: Timestamp,
        task: TaskId,
        dictionary: &mut Dictionary,
        report: &Report,
    ) -> Result<(quota::Assignment, Vec<AssignmentEntry>), StreamError> {
        let &Report { epoch, number, acknowledged, ref entries, ref groups, ref dropped, overloaded } = report;
        if epoch != self.epoch {
            return Err(Invalid::Epoch { expected: self.epoch, got: epoch }.into());
        }
        // A task that drops a customer may have it again by another number, and one that counts drops it with a last entry.
        let reported: HashSet<u32> = entries.iter().chain(groups).map(|entry| entry.id).collect();
        let is_over = |id: &&u32| !reported.contains(id);
        let over: Vec<CustomerId> = dropped.iter().filter(is_over).filter_map(|id| dictionary.remove(*id)).collect();
        over.iter().for_each(|customer| self.leave_customer(*customer));
        let customers = entries.iter().map(|entry| (Kind::Customer, entry));
        for (kind, entry) in customers.chain(groups.iter().map(|entry| (Kind::Group, entry))) {
            let Some(name) = &entry.name else { continue };
            convert::check_report_name(kind, name)?;
            if dictionary.is_full() {
                return Err(StreamError::TooMany(entry.id));
            }
            let name = Name::new(kind, name);
            let customer = self.customer(now, &name);
            if !introduce(dictionary, entry.id, &name, customer) {
                return Err(StreamError::Twice(entry.id));
            }
            if let Some(customer) = customer {
                self.customers[customer.0 as usize].streams += 1;
            }
        }
        let mut seen = HashSet::with_capacity(reported.len());
        let (mut converted, mut beyond) = (Vec::with_capacity(reported.len()), Vec::new());
        for entry in entries.iter().chain(groups) {
            let known = dictionary.get(entry.id).ok_or(StreamError::Unnamed(entry.id))?;
            if !seen.insert(entry.id) {
                return Err(StreamError::Twice(entry.id));
            }
            let of = convert::report_entry(entry)?;
            match known {
                Known::Customer(customer) => converted.push(quota::ReportEntry { customer, ..of }),
                Known::Beyond(kind, _) => beyond.push((entry.id, kind)),
            }
        }
        let overloaded = overloaded.map(|rank| convert::criticality("report.overloaded", rank)).transpose()?;
        let message = quota::Report { number, acknowledged, entries: converted, dropped: over, overloaded };
        let answer = self.owner.report(now, task, &message)?;
        self.changes.rollout.on_report(now, task);
        for id in dropped {
            if let Some(customer) = dictionary.remove(*id) {
                self.leave_customer(customer);
            }
        }
        // Not even a rate that it holds from another server: nobody counts it here.
        let nothing = |(id, kind)| AssignmentEntry { id, limit: self.limits.of_strangers(kind), ..Default::default() };
        Ok((answer, beyond.into_iter().map(nothing).collect()))
    }

    /// A stream ended.
    pub(crate) fn leave(&mut self, id: StreamId) {
        if self.tasks.get(&id.task).and_then(|task| task.stream.as_ref()).is_some_and(|of| of.number == id.number) {
            self.end_stream(id.task);
        }
    }

    /// When to call [`handle_timeout`](Self::handle_timeout).
    pub(crate) fn poll_timeout(&self) -> Timestamp {
        let has_tasks = self.tasks.values().any(|task| task.stream.is_some());
        let end = self.limits.next_end().filter(|_| !self.changes.is_expiring());
        let others = [end, self.changes.rollout.poll_timeout(has_tasks)];
        others.into_iter().flatten().fold(self.owner.poll_timeout(), Timestamp::min)
    }

    /// Ends leases and changes of limits that are over, and sends the assignments that are due.
    pub(crate) fn handle_timeout(&mut self, now: Timestamp) {
        if !self.changes.is_expiring() && self.limits.next_end().is_some_and(|end| end <= now) {
            self.changes.add(Change::Expiry(now));
        }
        self.roll_out(now);
        self.owner.handle_timeout(now);
        self.forget_tasks();
        self.forget_customers();
        while let Some((task, assignment)) = self.owner.poll_assignment() {
            let stream = self.tasks.get_mut(&task).and_then(|task| task.stream.as_mut());
            let Some(stream) = stream else { continue };
            let message = convert::assignment(self.epoch, &assignment, |customer| stream.dictionary.id(customer));
            self.counts.assignments += 1;
            if stream.queue.try_send(ToTask { message: Some(FromOwner::Assignment(message)) }).is_err() {
                self.counts.slow += 1;
                self.end_stream(task);
            }
        }
    }

    /// Changes the limits, after a trial. Returns the number of the change.
    pub(crate) fn change(&mut self, now: Timestamp, change: Change) -> u64 {
        if let Change::Config(config) = &change {
            // A right that is taken ends at once.
            self.set_reporters(&config.reporters);
        }
        let number = self.changes.add(change);
        self.roll_out(now);
        number
    }

    /// Takes other names in certificates of tasks, at once.
    pub(crate) fn set_reporters(&mut self, reporters: &[ClientName]) {
        self.limits.set_reporters(reporters.to_vec());
        self.changes.set_reporters(reporters);
    }

    /// Takes the limits that the tasks of another owner have tried.
    pub(crate) fn follow(&mut self, now: Timestamp, other: &ServiceLimits) {
        self.limits.follow(other);
        self.apply_limits(now);
    }

    /// Limits that were put in force since the last call, and when.
    pub(crate) fn take_applied(&mut self) -> Option<(Timestamp, ServiceLimits)> {
        self.applied.take()
    }

    /// The changes that are under way, and their ends.
    pub(crate) fn changes(&self) -> &Changes {
        &self.changes
    }

    /// Limits by operators, those included that are to be tried.
    pub(crate) fn overridden(&self) -> usize {
        let mut names = self.changes.overridden();
        names.extend(self.limits.overridden());
        names.len()
    }

    /// Limits by operators that are in force.
    pub(crate) fn overrides(&self) -> &BTreeMap<Name, Override> {
        self.limits.overrides()
    }

    /// Whether an operator changed the limit of a customer or a group, or is about to.
    pub(crate) fn is_overridden(&self, name: &Name) -> bool {
        self.limits.override_of(name).is_some() || self.changes.overridden().contains(name)
    }

    /// The number of its owner.
    pub(crate) fn epoch(&self) -> u64 {
        self.epoch
    }

    pub(crate) fn config(&self) -> &ServiceConfig {
        self.limits.config()
    }

    /// The limit of a customer in rate units, and whether refusals are only counted; `None`: no limit.
    pub(crate) fn limit(&self, name: &[u8]) -> Option<(u64, bool)> {
        let name = Name::customer(name);
        let limit = self.limits.of(&name).filter(|limit| *limit < UNLIMITED)?;
        Some((limit, self.limits.is_dry_run(&name)))
    }

    /// The mean cost of a customer's requests, by the tasks.
    pub(crate) fn mean_cost(&mut self, name: &[u8]) -> Option<f64> {
        let cost = self.owner.mean_cost(*self.by_name.get(&Name::customer(name))?);
        (cost >= 1.0).then_some(cost)
    }

    /// Tasks whose lease lasts.
    pub(crate) fn tasks(&self) -> u32 {
        self.owner.tasks()
    }

    /// Those that lack CPU.
    pub(crate) fn overloaded(&self) -> u32 {
        self.owner.overloaded()
    }

    /// Whether tasks may hold rates that this owner does not know.
    pub(crate) fn is_unsure(&self) -> bool {
        self.owner.is_unsure()
    }

    /// A stream was refused: its caller may not report.
    pub(crate) fn count_denied(&mut self) {
        self.counts.denied += 1;
    }

    pub(crate) fn counts(&self) -> Counts {
        self.counts
    }

    /// The customers or groups with the highest demand, the first first. Those without demand and limit are left out.
    pub(crate) fn heaviest(&self, kind: Kind, most: usize) -> Vec<CustomerView> {
        let demand = |view: &CustomerView| view.state.demand.iter().sum::<u64>();
        let mut customers: Vec<CustomerView> =
            self.customers(kind).filter(|view| view.has_limit() || view.state.tasks > 0).collect();
        customers.sort_by(|one, other| demand(other).cmp(&demand(one)).then_with(|| one.name.cmp(&other.name)));
        customers.truncate(most);
        customers
    }

    /// All customers or groups with a limit or with demand.
    pub(crate) fn customers(&self, kind: Kind) -> impl Iterator<Item = CustomerView> {
        let known = self.customers.iter().zip(0..);
        let known = known.filter(move |(customer, _)| !customer.is_free && customer.name.kind == kind);
        known.map(|(customer, at)| self.view(customer, CustomerId(at)))
    }

    /// Numbers of customers and groups, free ones included.
    pub(crate) fn places(&self) -> usize {
        self.customers.len()
    }

    /// The customers and groups with these numbers; `None`: the number is free. Costs less than their views.
    pub(crate) fn states(
        &self,
        places: Range<usize>,
    ) -> impl Iterator<Item = (CustomerId, Option<(&Name, CustomerState)>)> {
        let known = self.customers.iter().zip(0..).skip(places.start).take(places.len());
        known.map(|(customer, at)| {
            let id = CustomerId(at);
            (id, (!customer.is_free).then(|| (&customer.name, self.owner.customer(id))))
        })
    }

    /// A customer or a group by its number; `None`: the number is free.
    pub(crate) fn at(&self, id: CustomerId) -> Option<CustomerView> {
        let customer = self.customers.get(id.0 as usize).filter(|customer| !customer.is_free)?;
        Some(self.view(customer, id))
    }

    /// A customer or a group by name.
    pub(crate) fn named(&self, name: &Name) -> Option<CustomerView> {
        let id = *self.by_name.get(name)?;
        Some(self.view(&self.customers[id.0 as usize], id))
    }

    /// The tasks that have demand of a customer or a group, or hold a rate: name, demand and rate in µCPU.
    pub(crate) fn holders(&self, name: &Name) -> Vec<(Arc<str>, u64, u32)> {
        let Some(id) = self.by_name.get(name) else { return Vec::new() };
        let holders = self.owner.holders(*id);
        holders
            .filter_map(|(task, demand, held)| Some((Arc::clone(&self.tasks.get(&task)?.instance), demand, held)))
            .collect()
    }

    /// The tasks.
    pub(crate) fn instances(&self) -> impl Iterator<Item = InstanceView<'_>> {
        self.tasks.iter().map(|(id, task)| InstanceView {
            name: &task.instance,
            cpus: task.cpus,
            is_connected: task.stream.is_some(),
            overloaded: self.owner.overload(*id),
        })
    }

    fn view(&self, customer: &Customer, id: CustomerId) -> CustomerView {
        let name = &customer.name;
        CustomerView {
            name: name.clone(),
            state: self.owner.customer(id),
            soft: self.limits.soft(name),
            group: self.limits.group_of(name).map(str::to_owned),
            is_dry_run: self.limits.is_dry_run(name),
            by_operator: self.limits.override_of(name),
        }
    }

    /// The owner's number of a customer or a group, which is added if it is new; `None` beyond the bound.
    fn customer(&mut self, now: Timestamp, name: &Name) -> Option<CustomerId> {
        if let Some(known) = self.by_name.get(name) {
            return Some(*known);
        }
        if self.by_name.len() >= self.max_customers && !self.limits.is_named(name) && !name.bytes.is_empty() {
            return None;
        }
        let (limit, has_soft_limit) = (self.limits.at_owner(name), self.has_soft_limit(name));
        let customer = Customer { name: name.clone(), streams: 0, is_free: false };
        let id = match self.free.pop() {
            Some(id) => {
                self.owner.reuse(now, id, limit);
                self.customers[id.0 as usize] = customer;
                id
            }
            None => {
                self.customers.push(customer);
                self.owner.add_customer(now, limit)
            }
        };
        self.owner.set_soft_limit(id, has_soft_limit);
        self.by_name.insert(name.clone(), id);
        self.unknown.push(id);
        Some(id)
    }

    /// Envoys have no CPU to share.
    fn has_soft_limit(&self, name: &Name) -> bool {
        self.callers == Callers::Tasks && self.limits.soft(name).is_some()
    }

    fn add_named(&mut self, now: Timestamp) {
        for name in self.limits.names() {
            let is_new = !self.by_name.contains_key(&name);
            let Some(customer) = self.customer(now, &name).filter(|_| is_new) else { continue };
            let streams = self.tasks.values_mut().filter_map(|task| task.stream.as_mut());
            let finds = streams.filter_map(|stream| stream.dictionary.find_place(&name, customer).then_some(()));
            self.customers[customer.0 as usize].streams += finds.count() as u32;
        }
    }

    /// Takes the steps of changes of limits that are due.
    fn roll_out(&mut self, now: Timestamp) {
        while let Some(next) = self.changes.next(&self.limits) {
            // Envoys get token buckets of this server: they have nothing to try.
            if self.callers == Callers::Envoys || next.is_same_for_tasks(&self.limits) {
                self.apply(now);
                continue;
            }
            let message = next.message(self.epoch, self.owner.fleet());
            let task = self.next_to_try();
            match self.changes.rollout.handle_timeout(now, task) {
                RolloutStep::Wait => return,
                RolloutStep::Try(task) => self.try_at(task, message),
                RolloutStep::Apply => self.apply(now),
                RolloutStep::Refuse => {
                    let tried = std::mem::take(&mut self.changes.tried);
                    self.changes.end(Outcome::Refused(tried));
                    self.counts.refused += 1;
                    self.limits.extend_overrides(now, now + EXTENSION);
                    // A task that hung has the new ones.
                    self.apply_limits(now);
                }
            }
        }
    }

    fn apply(&mut self, now: Timestamp) {
        let Some(limits) = self.changes.end(Outcome::Applied) else { return };
        self.applied = Some((now, limits.clone()));
        self.counts.applied += 1;
        self.counts.reloaded += u64::from(*self.limits.config() != *limits.config());
        self.limits = limits;
        self.apply_limits(now);
    }

    fn try_at(&mut self, task: TaskId, limits: Limits) {
        let of = self.tasks.get(&task).and_then(|task| Some((&task.instance, task.stream.as_ref()?)));
        let Some((instance, stream)) = of else { return };
        self.changes.tried.push(Arc::clone(instance));
        if stream.queue.try_send(ToTask { message: Some(FromOwner::Limits(limits)) }).is_err() {
            self.counts.slow += 1;
            self.end_stream(task);
        }
    }

    /// A task with a stream that is to try new limits: preferably one that has not.
    fn next_to_try(&self) -> Option<TaskId> {
        let tried = &self.changes.tried;
        let streams = self.tasks.iter().filter(|(_, task)| task.stream.is_some());
        streams.min_by_key(|(id, task)| (tried.contains(&task.instance), **id)).map(|(id, _)| *id)
    }

    /// Hands the limits to the owner and to all tasks.
    fn apply_limits(&mut self, now: Timestamp) {
        self.add_named(now);
        for (customer, at) in self.customers.iter().zip(0..) {
            if !customer.is_free {
                if customer.streams == 0 {
                    // It may have had a limit of its own until now.
                    self.unknown.push(CustomerId(at));
                }
                self.owner.set_limit(CustomerId(at), self.limits.at_owner(&customer.name));
                self.owner.set_soft_limit(CustomerId(at), self.has_soft_limit(&customer.name));
            }
        }
        let message = self.limits.message(self.epoch, self.owner.fleet());
        let message = ToTask { message: Some(FromOwner::Limits(message)) };
        let streams = self.tasks.iter().filter_map(|(id, task)| Some((*id, task.stream.as_ref()?)));
        let slow: Vec<TaskId> =
            streams.filter(|(_, stream)| stream.queue.try_send(message.clone()).is_err()).map(|(id, _)| id).collect();
        for task in slow {
            self.counts.slow += 1;
            self.end_stream(task);
        }
    }

    fn end_stream(&mut self, id: TaskId) {
        let Some(stream) = self.tasks.get_mut(&id).and_then(|task| task.stream.take()) else { return };
        for customer in stream.dictionary.iter() {
            self.leave_customer(customer);
        }
        self.owner.leave(id);
        self.changes.rollout.on_leave(id);
    }

    /// A stream knows a customer no more.
    fn leave_customer(&mut self, id: CustomerId) {
        let customer = &mut self.customers[id.0 as usize];
        customer.streams = customer.streams.saturating_sub(1);
        if customer.streams == 0 {
            self.unknown.push(id);
        }
    }

    /// Removes the tasks whose lease is over.
    fn forget_tasks(&mut self) {
        let owner = &self.owner;
        let over: Vec<TaskId> = self.tasks.keys().copied().filter(|task| !owner.is_joined(*task)).collect();
        for id in over {
            self.end_stream(id);
            if let Some(task) = self.tasks.remove(&id) {
                self.by_instance.remove(&task.instance);
            }
        }
    }

    /// Removes the customers that no task knows or holds, unless they have a limit of their own.
    fn forget_customers(&mut self) {
        let unknown = std::mem::take(&mut self.unknown);
        for id in unknown {
            let customer = &mut self.customers[id.0 as usize];
            if customer.is_free || customer.streams > 0 || self.limits.is_named(&customer.name) {
                continue;
            }
            if self.owner.customer(id).tasks > 0 {
                self.unknown.push(id);
                continue;
            }
            customer.is_free = true;
            self.by_name.remove(&customer.name);
            self.free.push(id);
        }
    }
}

/// A stream names a customer, which has this number at the owner; `None`: it is beyond the bound. `false` if it is there
/// already.
fn introduce(dictionary: &mut Dictionary, id: u32, name: &Name, customer: Option<CustomerId>) -> bool {
    match customer {
        Some(customer) => dictionary.add(id, customer),
        None => dictionary.add_beyond(id, name),
    }
}

#[cfg(test)]
mod tests;
