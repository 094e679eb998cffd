//! A task's side of the messages with the owner of limits: reports, leases, and the time without owner.
//!
//! ```text
//! lease of a rate = from the sending of the report that an assignment answers
//! no owner        = the rates of the lease; then min(last, granted ÷ N) for 2 s; then granted ÷ N
//! ```
//!
//! No clock is shared: the owner's lease lasts from its receipt of the report, which is later. The
//! rates of the fallback are reported when the task joins again, as any other, so that the owner counts
//! them. So a stream that brings no answer for so long is over: its owner does not know the even part.

use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::fmt;
use core::time::Duration;

use super::{Account, Assignment, CustomerId, Hello, Report};
use crate::Timestamp;

/// Time between two reports.
const INTERVAL: Duration = Duration::from_secs(1);
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
    /// An assignment changed rates, and the owner does not know yet that it is in force.
    is_owing: bool,
    /// Reports without an answer: number, and time of sending.
    unanswered: VecDeque<(u32, Timestamp)>,
}

/// A task of the service. Its customers are numbered in the order of [`Holder::add`].
#[derive(Clone, Debug)]
pub struct Holder {
    accounts: Vec<Account>,
    stream: Option<Stream>,
    /// Tasks of the service by the last assignment.
    tasks: u32,
    /// The end of the lease. `None`: it never had one.
    until: Option<Timestamp>,
    fallback: Fallback,
    regular: Timestamp,
}

impl Holder {
    /// A task without customers.
    #[must_use]
    pub fn new(now: Timestamp) -> Self {
        Self { accounts: Vec::new(), stream: None, tasks: 1, until: None, fallback: Fallback::None, regular: now }
    }

    /// Adds a customer, whose limit is not known yet.
    pub fn add(&mut self, now: Timestamp) -> CustomerId {
        self.accounts.push(Account::new(now));
        CustomerId(self.accounts.len() as u32 - 1)
    }

    /// The account of a customer.
    ///
    /// # Panics
    /// The customer was not added.
    pub fn account(&mut self, customer: CustomerId) -> &mut Account {
        &mut self.accounts[customer.0 as usize]
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
        self.accounts.iter_mut().for_each(Account::on_connect);
        let holds = self.accounts.iter().zip(0..).filter_map(|(account, at)| account.hold(CustomerId(at)));
        Hello { cpus, tasks: self.until.map(|_| self.tasks), holds: holds.collect() }
    }

    /// Whether there is a stream. One without an answer until the fallback to the even part is over.
    #[must_use]
    pub fn is_connected(&self) -> bool {
        self.stream.is_some()
    }

    /// The stream ended.
    pub fn disconnect(&mut self) {
        self.stream = None;
    }

    /// When to call [`Holder::poll`], unless a request is refused before. `None`: with the next stream.
    pub fn poll_timeout(&mut self, now: Timestamp) -> Option<Timestamp> {
        let report = self.stream.as_ref().map(|stream| stream.is_owing).map(|is_owing| {
            let asks = self.accounts.iter_mut().filter_map(|account| account.ask_due(now));
            asks.fold(if is_owing { now } else { self.regular }, Timestamp::min)
        });
        let lease = match self.fallback {
            Fallback::None => self.until,
            Fallback::Cautious => self.until.map(|until| until + CAUTION),
            Fallback::Even => None,
        };
        [report, lease].into_iter().flatten().min()
    }

    /// Ends a lease that is over, and returns the report that is due.
    pub fn poll(&mut self, now: Timestamp) -> Option<Report> {
        self.end_lease(now);
        let stream = self.stream.as_mut()?;
        let is_regular = now >= self.regular;
        let accounts = self.accounts.iter_mut().zip(0..);
        let entries: Vec<_> =
            accounts.filter_map(|(account, at)| account.report(now, CustomerId(at), is_regular)).collect();
        if !is_regular && entries.is_empty() && !stream.is_owing {
            return None;
        }
        if is_regular {
            self.regular = now + INTERVAL;
        }
        stream.reported += 1;
        stream.is_owing = false;
        stream.unanswered.push_back((stream.reported, now));
        Some(Report { number: stream.reported, acknowledged: stream.assigned, entries })
    }

    /// The owner assigns rates.
    ///
    /// # Errors
    /// The assignment has no effect.
    pub fn assign(&mut self, now: Timestamp, assignment: &Assignment) -> Result<(), AssignmentError> {
        let stream = self.stream.as_mut().ok_or(AssignmentError::Stream)?;
        let Assignment { number, answers, lease, tasks, entries } = assignment;
        let expected = stream.assigned + 1;
        if *number != expected {
            return Err(AssignmentError::Number { expected, got: *number });
        }
        if *answers > stream.reported {
            return Err(AssignmentError::Answer(*answers));
        }
        if let Some(entry) = entries.iter().find(|entry| entry.customer.0 as usize >= self.accounts.len()) {
            return Err(AssignmentError::Customer(entry.customer));
        }
        stream.assigned = *number;
        let answered = stream.unanswered.partition_point(|(number, _)| number <= answers);
        if let Some((_, sent)) = stream.unanswered.drain(..answered).next_back() {
            self.until = Some(sent + *lease);
            self.fallback = Fallback::None;
        }
        if core::mem::replace(&mut self.tasks, (*tasks).max(1)) != self.tasks {
            self.accounts.iter_mut().for_each(|account| account.set_tasks(now, self.tasks));
        }
        for entry in entries {
            self.accounts[entry.customer.0 as usize].assign(now, entry, self.tasks);
        }
        // A lower rate is free for others when the owner hears of it.
        stream.is_owing |= !entries.is_empty();
        Ok(())
    }

    fn end_lease(&mut self, now: Timestamp) {
        let Some(until) = self.until else { return };
        let next = match self.fallback {
            Fallback::None if now >= until => Fallback::Cautious,
            Fallback::Cautious if now >= until + CAUTION => Fallback::Even,
            _ => return,
        };
        self.fallback = next;
        if next == Fallback::Even {
            self.stream = None;
        }
        let tasks = self.tasks;
        self.accounts.iter_mut().for_each(|account| account.fall_back(now, tasks, next == Fallback::Even));
    }
}
