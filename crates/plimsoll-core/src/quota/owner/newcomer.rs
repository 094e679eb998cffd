//! The rates that count as held when a task joins.
//!
//! ```text
//! unsure owner:  the stated rate, within the CPUs of the task
//! sure owner:    min(stated rate, rate that this owner granted the task)     0 for a new task
//!                0 if its streams end for 10 s without an acknowledgement
//! ```
//!
//! A sure owner granted all rates in force, so it knows them. A task that states a higher one was cut off for longer
//! than its lease, or has an error, or lies. If that rate counted, all others would be lowered for it: one task could
//! take every limit from them, and for ever by joining again and again. Nor would it keep the limit. Others use less
//! when they have the assignments of the next sweep, and the task uses less when it has the answer to its first
//! report, which is no later. So others keep their rates. The task gets a rate by its demand, as far as one is free.
//!
//! Where it is weak: until the task has that answer, for a round trip, its rate beyond the grant exceeds the limit.
//!
//! A task may lose its stream before a lower rate arrives. It joins again with the higher rate, which counts. After
//! 10 s it counts no more: else a task could keep a rate by ending each stream before it acknowledges.

use alloc::vec::Vec;
use core::time::Duration;

use super::super::{AssignmentEntry, CustomerId, Hold, TaskId};
use super::task::{LONGEST_OWED, Task};
use super::{Owner, assign};
use crate::Timestamp;

/// By this time after a task has joined, sweeps have lowered its rates where they are too high.
const SWEPT: Duration = Duration::from_secs(1);

/// The streams of a task since it joined again.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rejoined {
    /// The first of them.
    since: Timestamp,
    /// The last one.
    last: Timestamp,
}

impl Rejoined {
    /// The task was there before, and joins.
    pub(super) fn new(now: Timestamp, former: &Task) -> Self {
        Self { since: former.rejoined.map_or(now, |before| before.since), last: now }
    }

    /// Whether the rates that the task was granted before count.
    fn has_holds(&self) -> bool {
        self.last <= self.since + LONGEST_OWED
    }

    /// Whether a task that owes no acknowledgement uses only rates of its last stream.
    pub(super) fn is_over(&self, now: Timestamp) -> bool {
        now > self.last + SWEPT
    }
}

impl Owner {
    /// The holds of a task that joins, as far as they count.
    pub(super) fn counted(&self, holds: &[Hold], former: Option<TaskId>, rejoined: Option<Rejoined>) -> Vec<Hold> {
        if self.is_unsure() {
            return holds.to_vec();
        }
        let former = former.filter(|_| rejoined.is_some_and(|rejoined| rejoined.has_holds()));
        let former = former.and_then(|former| self.tasks.get(former.0 as usize)?.as_ref());
        let mut next = 0;
        let mut granted = |customer: CustomerId| {
            let place = former?.place_near(customer.0, &mut next)?;
            Some(self.customers[customer.0 as usize].entries[place].held)
        };
        let counted = |&Hold { customer, rate }| Hold { customer, rate: rate.min(granted(customer).unwrap_or(0)) };
        holds.iter().map(counted).collect()
    }

    /// A task joins an owner that has no other, and had an assignment of some owner. Others may hold rates of it.
    pub(super) fn begin_takeover(&mut self, now: Timestamp) {
        self.unsure_until = Some(now + self.config.lease);
        (self.returned, self.expected) = (0, 0);
        self.customers.iter_mut().for_each(|customer| customer.reported = 0);
    }

    /// Adds assignments for rates that do not count and are not in the first report of the task: it uses them until then.
    pub(super) fn assign_uncounted(
        &mut self,
        now: Timestamp,
        id: u32,
        number: u32,
        entries: &mut Vec<AssignmentEntry>,
    ) {
        let Some(task) = self.tasks[id as usize].as_ref() else { return };
        let is_uncounted =
            |(customer, place): &(u32, u32)| self.customers[*customer as usize].entries[*place as usize].is_uncounted();
        let uncounted: Vec<(u32, u32)> = task.customers().filter(is_uncounted).collect();
        for (customer, place) in uncounted {
            let Some(task) = self.tasks[id as usize].as_mut() else { return };
            let of = &mut self.customers[customer as usize];
            let (rule, pool, place) = (of.rule(), of.pool(self.unsure_until.is_some()), place as usize);
            of.grant(now, place, &rule, pool);
            of.answered = self.answers;
            entries.push(assign(task, of, number, CustomerId(customer), place, rule.cut(), 0));
            if of.entries[place].is_idle() {
                self.remove(now, id, customer, place);
            }
        }
    }
}
