//! A task at the owner: its lease, its messages, and the customers that it has.

use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::time::Duration;

use super::super::bucket::LONGEST_UNUSED;
use super::super::{CustomerId, Report};
use super::ReportError;
use super::believed::Believed;
use super::newcomer::Rejoined;
use crate::{Criticality, Timestamp};

/// The longest time in which a task may report without an acknowledgement of a lower rate: it owes one at once. Else it
/// would hold what is not its own for ever.
pub(super) const LONGEST_OWED: Duration = Duration::from_secs(10);

/// See the [module](self).
#[derive(Clone, Debug)]
pub(super) struct Task {
    /// By ascending customer: the customer, and the task's place there. Eight bytes each, as there are
    /// ten millions.
    places: Vec<(u32, u32)>,
    pub(super) believed: Believed,
    /// The number of its last report.
    pub(super) reported: u32,
    /// The number of the last assignment to it.
    assigned: u32,
    acknowledged: u32,
    /// Customers whose rate was lowered by an assignment that is not acknowledged, in the order of these.
    lowered: VecDeque<u32>,
    /// Those assignments: their number, and the number of these customers.
    lowering: VecDeque<(u32, usize)>,
    /// The first of them that a report did not acknowledge, and when that was.
    owed: Option<(u32, Timestamp)>,
    /// Customers whose rate is to be sent.
    pub(super) unsent: Vec<u32>,
    /// Customers that are to be sent at the same rate.
    pub(super) untold: Vec<u32>,
    /// The number of the last change of a demand that it was told.
    pub(super) told: u64,
    /// The end of its lease.
    pub(super) until: Timestamp,
    /// When it last gave a part of a rate back.
    gave_back_at: Timestamp,
    /// `false` when its stream ended; its rates are reserved until the end of the lease.
    pub(super) is_connected: bool,
    /// It was there before, and may use rates of an earlier stream.
    pub(super) rejoined: Option<Rejoined>,
    /// The most critical requests that it lacks CPU for.
    pub(super) overloaded: Option<Criticality>,
}

impl Task {
    pub(super) fn new(now: Timestamp, believed: Believed, until: Timestamp) -> Self {
        Self {
            places: Vec::new(),
            believed,
            reported: 0,
            assigned: 0,
            acknowledged: 0,
            lowered: VecDeque::new(),
            lowering: VecDeque::new(),
            owed: None,
            unsent: Vec::new(),
            untold: Vec::new(),
            told: 0,
            until,
            gave_back_at: now,
            is_connected: true,
            rejoined: None,
            overloaded: None,
        }
    }

    /// Whether a report may be taken. Nothing of one that may not has an effect.
    pub(super) fn check(&self, now: Timestamp, report: &Report, customers: usize) -> Result<(), ReportError> {
        let expected = self.reported + 1;
        if report.number != expected {
            return Err(ReportError::Number { expected, got: report.number });
        }
        if !(self.acknowledged..=self.assigned).contains(&report.acknowledged) {
            let (least, most, got) = (self.acknowledged, self.assigned, report.acknowledged);
            return Err(ReportError::Acknowledged { least, most, got });
        }
        if let Some((owed, since)) = self.owed
            && report.acknowledged < owed
            && now > since + LONGEST_OWED
        {
            return Err(ReportError::Unacknowledged(owed));
        }
        let unknown = report.entries.iter().find(|entry| entry.customer.0 as usize >= customers);
        unknown.map_or(Ok(()), |entry| Err(ReportError::Customer(entry.customer)))
    }

    /// The task gives parts of its rates back. Returns the time in which they came together.
    pub(super) fn give_back(&mut self, now: Timestamp) -> Duration {
        now.since(core::mem::replace(&mut self.gave_back_at, now)).min(LONGEST_UNUSED)
    }

    pub(super) fn customers(&self) -> impl ExactSizeIterator<Item = (u32, u32)> {
        self.places.iter().copied()
    }

    pub(super) fn place(&self, customer: u32) -> Option<usize> {
        let at = self.places.binary_search_by_key(&customer, |(known, _)| *known).ok()?;
        Some(self.places[at].1 as usize)
    }

    /// The same for the customers of a report, which are mostly in the order of the one before: `next` is where the
    /// customer may be, and then where the next one may be.
    pub(super) fn place_near(&self, customer: u32, next: &mut usize) -> Option<usize> {
        let found = self.places.get(*next).filter(|(known, _)| *known == customer);
        if let Some((_, place)) = found {
            *next += 1;
            return Some(*place as usize);
        }
        let at = self.places.binary_search_by_key(&customer, |(known, _)| *known).ok()?;
        *next = at + 1;
        Some(self.places[at].1 as usize)
    }

    /// The task is at this place of the customer now.
    pub(super) fn set_place(&mut self, customer: u32, place: usize) {
        match self.places.binary_search_by_key(&customer, |(known, _)| *known) {
            Ok(at) => self.places[at].1 = place as u32,
            Err(at) => self.places.insert(at, (customer, place as u32)),
        }
    }

    pub(super) fn forget(&mut self, customer: u32) {
        if let Ok(at) = self.places.binary_search_by_key(&customer, |(known, _)| *known) {
            self.places.remove(at);
        }
    }

    /// The number of the next assignment.
    pub(super) fn next_number(&mut self) -> u32 {
        self.assigned += 1;
        self.assigned
    }

    /// An assignment lowers a rate.
    pub(super) fn on_lower(&mut self, number: u32, customer: CustomerId) {
        self.lowered.push_back(customer.0);
        match self.lowering.back_mut() {
            Some((last, customers)) if *last == number => *customers += 1,
            _ => self.lowering.push_back((number, 1)),
        }
    }

    /// The task says that the assignments up to this number are in force. Returns the customers that
    /// they lowered.
    pub(super) fn acknowledge(&mut self, now: Timestamp, number: u32) -> Vec<u32> {
        self.acknowledged = number;
        let upto = self.lowering.partition_point(|(lowering, _)| *lowering <= number);
        let customers: usize = self.lowering.drain(..upto).map(|(_, customers)| customers).sum();
        let owed = self.lowering.front().map(|(lowering, _)| *lowering);
        if owed != self.owed.map(|(owed, _)| owed) {
            self.owed = owed.map(|owed| (owed, now));
        }
        if owed.is_none() {
            self.rejoined.take_if(|rejoined| rejoined.is_over(now));
        }
        self.lowered.drain(..customers).collect()
    }
}
