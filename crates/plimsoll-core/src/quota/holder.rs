//! A task's side of the messages with the owner of limits: reports, leases, and the time without owner.
//!
//! ```text
//! lease of a rate = from the sending of the report that an assignment answers
//! no owner        = the rates of the lease; then min(last, granted ÷ N) for 2 s; then granted ÷ N
//! joined          = min(last, granted ÷ N) for a lease from then, if no answer came
//! ```
//!
//! No clock is shared: the owner's lease lasts from its receipt of the report, which is later. The
//! rates of the fallback are reported when the task joins again, as any other, so that the owner counts
//! them. An owner that a task joined may have granted the rest to others, for a lease, and may be lost before
//! it answers. So such a task waits that long before it uses more than it reported. A stream without an
//! answer for so long is over: its owner does not know the even part.

use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::fmt;
use core::time::Duration;

use super::overload::Overload;
use super::{Account, Assignment, AssignmentEntry, CustomerId, FairShare, Hello, Limit, Report};
use crate::{Criticality, Timestamp};

/// Time between two reports.
const INTERVAL: Duration = Duration::from_secs(1);
/// Time after the last assignment in which the demand at all tasks is known: some reports.
const FRESH: Duration = Duration::from_secs(5);
/// Regular reports without an answer after which an owner is silent. All of a pause of the task itself counts as one.
const MAX_SILENT: u32 = 3;
/// Time after the lease in which a task uses the lower one of its last rate and the even part: leases of
/// other tasks end later.
const CAUTION: Duration = Duration::from_secs(2);

/// The reason why an assignment has no effect. The stream is to be ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AssignmentError {
    /// There is no stream.
    Stream,
    /// Assignments are numbered 1, 2, 3 ...
    Number {
        /// The number of the next one.
        expected: u32,
        /// The number of this one.
        got: u32,
    },
    /// It answers a report that was not sent.
    Answer(u32),
    /// No such customer.
    Customer(CustomerId),
}

impl fmt::Display for AssignmentError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Stream => f.write_str("there is no stream"),
            Self::Number { expected, got } => write!(f, "assignment {got} where {expected} is due"),
            Self::Answer(number) => write!(f, "report {number} is answered, and was not sent"),
            Self::Customer(CustomerId(id)) => write!(f, "customer {id} is unknown on this stream"),
        }
    }
}

impl core::error::Error for AssignmentError {}

/// The origin of the rates that a task uses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Fallback {
    /// Assignments of the owner, within the lease.
    #[default]
    None,
    /// The lease is over: the lower of the last rate and the even one.
    Cautious,
    /// The even part of each limit.
    Even,
}

#[derive(Clone, Debug, Default)]
struct Stream {
    reported: u32,
    /// The number of the last assignment in force.
    assigned: u32,
    /// An assignment lowered a rate, and the owner does not know yet that it is in force.
    is_owing: bool,
    /// Regular reports since the last answer to a report.
    silent: u32,
    /// By the last assignment another owner may have begun.
    is_overdue: bool,
    /// Reports without an answer: number, and time of sending.
    unanswered: VecDeque<(u32, Timestamp)>,
}

/// Bits of a customer's number that are its place; the others count the customers that had the place.
const PLACE_BITS: u32 = 13;

/// The place of a customer, or a free place.
#[derive(Clone, Debug)]
struct Slot {
    /// The customer, or the next one.
    id: CustomerId,
    account: Option<Account>,
}

/// A task of the service. Its customers are numbered from 0 in the order of [`Holder::add`]. The number
/// of a removed one does not return soon: an assignment to it may be under way.
///
/// The messages are the caller's to carry. Here the owner is in the same process:
///
/// ```
/// use plimsoll_core::quota::{Holder, Owner, OwnerConfig};
/// use plimsoll_core::{Criticality, Random, Timestamp};
///
/// let mut rng = rand_pcg::Pcg64Mcg::new(1);
/// let mut owner = Owner::new(Timestamp::ZERO, OwnerConfig::default());
/// let alice = owner.add_customer(Timestamp::ZERO, 1_000_000); // one CPU in the whole fleet
/// let mut task = Holder::new(Timestamp::ZERO);
/// assert_eq!(task.add(Timestamp::ZERO), alice);
/// let id = owner.join(Timestamp::ZERO, &task.connect(Timestamp::ZERO, 4.0), None)?;
/// let mut admitted = 0;
/// for millis in 0..20_000 {
///     let now = Timestamp::from_nanos(millis * 1_000_000);
///     // Three CPUs' worth of requests.
///     let draw = f64::from(rng.next_u32()) / 2_f64.powi(32);
///     if task.account(alice).ask(now, Criticality::Critical, 3_000.0, draw).is_ok() {
///         task.account(alice).take(3_000.0);
///         admitted += 1;
///     }
///     if let Some(report) = task.poll(now) {
///         task.assign(now, &owner.report(now, id, &report)?).expect("in order");
///     }
///     owner.handle_timeout(now);
///     while let Some((_, assignment)) = owner.poll_assignment() {
///         task.assign(now, &assignment).expect("in order");
///     }
/// }
/// assert!((4_500..7_000).contains(&admitted), "{admitted} of 20,000: a third, less at first");
/// # Ok::<(), plimsoll_core::quota::ReportError>(())
/// ```
#[derive(Clone, Debug)]
pub struct Holder {
    slots: Vec<Slot>,
    free: Vec<u32>,
    /// Removed customers that the owner has not been told of.
    dropped: Vec<CustomerId>,
    stream: Option<Stream>,
    /// Tasks of the service by the last assignment.
    tasks: u32,
    /// The end of the lease. `None`: it never had one.
    until: Option<Timestamp>,
    /// The longest lease.
    lease: Duration,
    /// When the last assignment came.
    answered: Timestamp,
    /// When it first joined an owner without an answer since.
    joined: Option<Timestamp>,
    fallback: Fallback,
    regular: Timestamp,
    overload: Overload,
    /// The most critical requests that most tasks lack CPU for, by the owner's last word.
    fleet_overload: Option<Criticality>,
}

impl Holder {
    /// The largest number of customers at a task.
    pub const MAX_CUSTOMERS: usize = 1 << PLACE_BITS;

    /// A task without customers.
    #[must_use]
    pub fn new(now: Timestamp) -> Self {
        Self {
            slots: Vec::new(),
            free: Vec::new(),
            dropped: Vec::new(),
            stream: None,
            tasks: 1,
            until: None,
            lease: Duration::ZERO,
            answered: now,
            joined: None,
            fallback: Fallback::None,
            regular: now,
            overload: Overload::default(),
            fleet_overload: None,
        }
    }

    /// Adds a customer, whose limit is not known yet.
    ///
    /// # Panics
    /// There are [`Holder::MAX_CUSTOMERS`].
    pub fn add(&mut self, now: Timestamp) -> CustomerId {
        let account = Some(Account::new(now));
        if let Some(place) = self.free.pop() {
            let slot = &mut self.slots[place as usize];
            slot.account = account;
            return slot.id;
        }
        assert!(self.slots.len() < Self::MAX_CUSTOMERS, "at most {} customers", Self::MAX_CUSTOMERS);
        let id = CustomerId(self.slots.len() as u32);
        self.slots.push(Slot { id, account });
        id
    }

    /// Removes a customer. A rate that it has is given up: the owner hears of it with the next report.
    pub fn remove(&mut self, customer: CustomerId) {
        let place = customer.place();
        let Some(slot) = self.slots.get_mut(place).filter(|slot| slot.id == customer && slot.account.is_some()) else {
            return;
        };
        slot.account = None;
        slot.id = CustomerId(customer.0.wrapping_add(1 << PLACE_BITS));
        self.free.push(place as u32);
        if self.stream.is_some() {
            self.dropped.push(customer);
        }
    }

    /// The account of a customer.
    ///
    /// # Panics
    /// The customer was not added, or was removed.
    pub fn account(&mut self, customer: CustomerId) -> &mut Account {
        self.get(customer).expect("the customer was added")
    }

    /// The account of a customer; `None` if it was removed.
    pub(super) fn get(&mut self, customer: CustomerId) -> Option<&mut Account> {
        self.slots.get_mut(customer.place()).filter(|slot| slot.id == customer)?.account.as_mut()
    }

    /// All customers.
    pub(super) fn customers(&mut self) -> impl Iterator<Item = (CustomerId, &mut Account)> {
        self.slots.iter_mut().filter_map(|slot| Some((slot.id, slot.account.as_mut()?)))
    }

    /// The limits of a customer, before the owner assigns a rate.
    ///
    /// # Panics
    /// The customer was not added, or was removed.
    pub fn set_limit(&mut self, now: Timestamp, customer: CustomerId, limit: Limit) {
        let tasks = self.tasks;
        self.account(customer).set_limit(now, limit, tasks);
    }

    /// The share of a customer while CPU is short, for a request of this criticality; `None` without a soft limit. With an
    /// owner that is silent for some seconds, its demand is that at this task.
    ///
    /// # Panics
    /// The customer was not added, or was removed.
    pub fn fair_share(&mut self, now: Timestamp, customer: CustomerId, criticality: Criticality) -> Option<FairShare> {
        let (tasks, is_known) = (self.tasks, now < self.answered + FRESH);
        self.account(customer).fair_share(now, criticality, tasks, is_known)
    }

    /// The owner says how many tasks there are.
    pub(super) fn set_tasks(&mut self, now: Timestamp, tasks: u32) {
        let tasks = tasks.max(1);
        if core::mem::replace(&mut self.tasks, tasks) != tasks {
            self.customers().for_each(|(_, account)| account.set_tasks(now, tasks));
        }
    }

    /// Tasks of the service by the last assignment.
    #[must_use]
    pub fn tasks(&self) -> u32 {
        self.tasks
    }

    /// A request came, and is shed for lack of CPU or not.
    pub fn on_request(&mut self, now: Timestamp, criticality: Criticality, is_shed: bool) {
        self.overload.on_request(now, criticality, is_shed);
    }

    /// The most critical requests that most tasks lack CPU for: these and less critical ones are not served elsewhere
    /// either.
    #[must_use]
    pub fn fleet_overload(&self) -> Option<Criticality> {
        self.fleet_overload
    }

    /// The origin of its rates.
    #[must_use]
    pub fn fallback(&self) -> Fallback {
        self.fallback
    }

    /// A new stream to an owner, of a task that may use these CPUs. Returns its first message.
    pub fn connect(&mut self, now: Timestamp, cpus: f64) -> Hello {
        self.stream = Some(Stream::default());
        self.regular = now;
        self.dropped.clear();
        self.customers().for_each(|(_, account)| account.on_connect());
        let tasks = self.until.map(|_| self.tasks);
        // The first one: attempts that fail do not put the even part off for ever.
        self.joined.get_or_insert(now);
        Hello { cpus, tasks, holds: self.customers().filter_map(|(id, account)| account.hold(id)).collect() }
    }

    /// Whether there is a stream. One without an answer until the fallback to the even part is over.
    #[must_use]
    pub fn is_connected(&self) -> bool {
        self.stream.is_some()
    }

    /// Whether the task is to look for another owner beside the stream: the one that it has leaves reports of two to three
    /// seconds unanswered, or says that another one may have begun.
    #[must_use]
    pub fn is_doubtful(&self) -> bool {
        self.stream.as_ref().is_some_and(|stream| stream.silent >= MAX_SILENT || stream.is_overdue)
    }

    /// The stream ended.
    pub fn disconnect(&mut self) {
        (self.stream, self.fleet_overload) = (None, None);
    }

    /// When to call [`Holder::poll`], unless a request is refused before. `None`: with the next stream.
    pub fn poll_timeout(&mut self, now: Timestamp) -> Option<Timestamp> {
        let report = self.stream.as_ref().map(|stream| stream.is_owing).map(|is_owing| {
            let accounts = self.slots.iter_mut().filter_map(|slot| slot.account.as_mut());
            let asks = accounts.filter_map(|account| account.ask_due(now));
            asks.fold(if is_owing { now } else { self.regular }, Timestamp::min)
        });
        [report, self.lease_timeout()].into_iter().flatten().min()
    }

    /// When to call [`Holder::end_lease`]. [`Holder::poll`] does too.
    #[must_use]
    pub fn lease_timeout(&self) -> Option<Timestamp> {
        match self.fallback {
            Fallback::None => self.until,
            Fallback::Cautious => self.caution_ends(),
            Fallback::Even => None,
        }
    }

    /// Ends a lease that is over, and returns the report that is due.
    pub fn poll(&mut self, now: Timestamp) -> Option<Report> {
        self.end_lease(now);
        let stream = self.stream.as_mut()?;
        let is_regular = now >= self.regular;
        let accounts = self.slots.iter_mut().filter_map(|slot| Some((slot.id, slot.account.as_mut()?)));
        let entries: Vec<_> = accounts.filter_map(|(id, account)| account.report(now, id, is_regular)).collect();
        if !is_regular && entries.is_empty() && !stream.is_owing {
            return None;
        }
        if is_regular {
            self.regular = now + INTERVAL;
            stream.silent += 1;
        }
        stream.reported += 1;
        stream.is_owing = false;
        stream.unanswered.push_back((stream.reported, now));
        let dropped = core::mem::take(&mut self.dropped);
        let overloaded = self.overload.level(now);
        Some(Report { number: stream.reported, acknowledged: stream.assigned, entries, dropped, overloaded })
    }

    /// The owner assigns rates.
    ///
    /// # Errors
    /// The assignment has no effect.
    pub fn assign(&mut self, now: Timestamp, assignment: &Assignment) -> Result<(), AssignmentError> {
        let stream = self.stream.as_mut().ok_or(AssignmentError::Stream)?;
        let Assignment { number, answers, lease, tasks, overloaded, is_overdue, entries } = assignment;
        let expected = stream.assigned + 1;
        if *number != expected {
            return Err(AssignmentError::Number { expected, got: *number });
        }
        if *answers > stream.reported {
            return Err(AssignmentError::Answer(*answers));
        }
        let slots = &self.slots;
        if let Some(entry) = entries.iter().find(|entry| !is_known(slots, entry)) {
            return Err(AssignmentError::Customer(entry.customer));
        }
        (stream.assigned, stream.is_overdue) = (*number, *is_overdue);
        self.answered = now;
        let answered = stream.unanswered.partition_point(|(number, _)| number <= answers);
        if let Some((_, sent)) = stream.unanswered.drain(..answered).next_back() {
            stream.silent = 0;
            // An owner that does not know all tasks gives short ones; another one may give others a long one.
            (self.until, self.lease) = (Some(sent + *lease), self.lease.max(*lease));
            (self.joined, self.fallback) = (None, Fallback::None);
        }
        self.set_tasks(now, *tasks);
        let tasks = self.tasks;
        self.fleet_overload = *overloaded;
        let mut is_lower = false;
        for entry in entries {
            if let Some(account) = self.get(entry.customer) {
                is_lower |= account.assign(now, entry, tasks);
            }
        }
        // A lower rate is free for others when the owner hears of it.
        if let Some(stream) = &mut self.stream {
            stream.is_owing |= is_lower;
        }
        Ok(())
    }

    /// The time until which others may use what this task did not report.
    fn caution_ends(&self) -> Option<Timestamp> {
        let after_lease = self.until? + CAUTION;
        Some(self.joined.map_or(after_lease, |joined| after_lease.max(joined + self.lease + CAUTION)))
    }

    /// Ends a lease that is over.
    pub fn end_lease(&mut self, now: Timestamp) {
        let Some(until) = self.until else { return };
        let next = match self.fallback {
            Fallback::None if now >= until => Fallback::Cautious,
            Fallback::Cautious if self.caution_ends().is_some_and(|end| now >= end) => Fallback::Even,
            _ => return,
        };
        (self.fallback, self.fleet_overload) = (next, None);
        if next == Fallback::Even {
            self.stream = None;
        }
        let tasks = self.tasks;
        self.customers().for_each(|(_, account)| account.fall_back(now, tasks, next == Fallback::Even));
    }
}

impl CustomerId {
    /// The place of a customer at its task.
    pub(super) const fn place(self) -> usize {
        (self.0 & ((1 << PLACE_BITS) - 1)) as usize
    }
}

/// Whether the customer of an assignment is there, or was removed and gets nothing.
fn is_known(slots: &[Slot], entry: &AssignmentEntry) -> bool {
    let Some(slot) = slots.get(entry.customer.place()) else { return false };
    (slot.id == entry.customer && slot.account.is_some()) || (entry.rate == 0 && entry.credit == 0)
}
