//! Messages between tasks and owners, counted.

use plimsoll_core::quota::Assignment;

/// Messages since the last look.
#[derive(Clone, Debug, Default)]
pub(super) struct Sent {
    /// Reports of tasks.
    pub(super) reports: u32,
    /// Assignments of owners.
    pub(super) assignments: u32,
    /// The customers of the entries of reports.
    pub(super) reported: Vec<u32>,
    /// The customers of the entries of assignments.
    pub(super) assigned: Vec<u32>,
}

impl Sent {
    /// A report about one customer.
    pub(super) fn report(&mut self, customer: u32) {
        self.reports += 1;
        self.reported.push(customer);
    }

    /// An assignment about one customer.
    pub(super) fn assignment(&mut self, customer: u32) {
        self.assignments += 1;
        self.assigned.push(customer);
    }

    /// An assignment of the core's owner.
    pub(super) fn answered(&mut self, assignment: &Assignment) {
        self.assignments += 1;
        self.assigned.extend(assignment.entries.iter().map(|entry| entry.customer.0));
    }

    pub(super) fn is_empty(&self) -> bool {
        self.reports == 0 && self.assignments == 0
    }
}

/// Messages of a window.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Messages {
    pub(super) reports: u64,
    pub(super) assignments: u64,
    pub(super) reported: u64,
    pub(super) assigned: u64,
}
