//! The messages between the tasks of a service and the owner of its limits.
//!
//! Rates are in µCPU (reference CPU-microseconds a second), costs and credits in CPU-microseconds.
//! A stream carries the messages of one task in order. Each side counts its own: a gap is an error,
//! which ends the stream, and the task joins again with the rates that it holds.

use alloc::vec::Vec;
use core::time::Duration;

use super::Cut;
use super::rule::LEVELS;
use crate::Criticality;

/// The number of a customer at its owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CustomerId(pub u32);

/// The number of a task at the owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TaskId(pub u32);

/// A rate that a task uses already when it joins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hold {
    /// The customer.
    pub customer: CustomerId,
    /// The rate, in µCPU.
    pub rate: u32,
}

/// The first message of a task on a stream.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Hello {
    /// CPUs that it may use.
    pub cpus: f64,
    /// Tasks of the service by its last assignment. `None`: it never had one.
    pub tasks: Option<u32>,
    /// The rates that it uses already, each customer once.
    pub holds: Vec<Hold>,
}

/// A task's word to the owner, each second and when it is short.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Report {
    /// 1, 2, 3 ... on each stream.
    pub number: u32,
    /// The number of the last assignment that is in force at the task.
    pub acknowledged: u32,
    /// The customers whose demand changed, or that lack something; each once.
    pub entries: Vec<ReportEntry>,
    /// Customers that the task has removed, and uses no rate of. Their numbers are not used again on this stream.
    pub dropped: Vec<CustomerId>,
    /// The most critical requests that the task lacks CPU for; `None`: it has enough.
    pub overloaded: Option<Criticality>,
}

/// The demand of one customer at a task.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ReportEntry {
    /// The customer.
    pub customer: CustomerId,
    /// Demand by criticality, the most critical first, that of refused requests included. µCPU.
    pub demand: [u64; LEVELS],
    /// The mean cost of a request, in CPU-microseconds.
    pub cost: u32,
    /// CPU-microseconds that are lacking at once. Zero if the rate suffices.
    pub lacking: u32,
    /// CPU-microseconds of its rate that the task could not use and gives back.
    pub unused: u32,
    /// Costs of admitted requests a second, in µCPU.
    pub used: u64,
}

/// The owner's word to a task.
#[derive(Clone, Debug, PartialEq)]
pub struct Assignment {
    /// 1, 2, 3 ... on each stream.
    pub number: u32,
    /// The last report that the owner got from the task. The lease lasts from its sending.
    pub answers: u32,
    /// The time for which the task may use the rates of all assignments.
    pub lease: Duration,
    /// Tasks of the service, at least 1.
    pub tasks: u32,
    /// The most critical requests that more than half of the tasks lack CPU for.
    pub overloaded: Option<Criticality>,
    /// Another owner may have begun: the task is to look for one.
    pub is_overdue: bool,
    /// Customers whose assignment changed.
    pub entries: Vec<AssignmentEntry>,
}

/// The part of one customer's limit that a task may use.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AssignmentEntry {
    /// The customer.
    pub customer: CustomerId,
    /// Its limit over all tasks, in µCPU.
    pub limit: u64,
    /// The rate of the task, in µCPU; beside the [floor](super::floor).
    pub rate: u32,
    /// CPU-microseconds to use once.
    pub credit: u32,
    /// Refusal by criticality.
    pub cut: Cut,
    /// The customer at all tasks. `None`: not known.
    pub fleet: Option<FleetUse>,
}

/// A customer at all tasks, as they last reported.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FleetUse {
    /// Demand by criticality, the most critical first. µCPU.
    pub demand: [u64; LEVELS],
    /// Costs of admitted requests a second, in µCPU.
    pub used: u64,
}

impl FleetUse {
    /// Demand of all criticalities, in µCPU.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.demand.iter().sum()
    }
}
