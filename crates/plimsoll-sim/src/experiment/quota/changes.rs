//! Changes of limits, by the core's [`Rollout`] or at all tasks at once, and tasks that crash when they get them.

use plimsoll_core::Timestamp;
use plimsoll_core::quota::{CustomerId, Rollout, RolloutStep, TaskId};

use super::customers::Customers;
use super::leases::{Fleet, Step};

/// The change that is tried, and the last one in force.
#[derive(Debug, Default)]
pub(super) struct Changes {
    rollout: Rollout,
    /// The change that a task tries.
    next: Option<usize>,
    tried: Vec<u32>,
    /// The last change in force.
    in_force: Option<usize>,
    /// The next step that is due.
    due: Option<Timestamp>,
}

impl Changes {
    pub(super) fn on_report(&mut self, now: Timestamp, by: TaskId) {
        self.rollout.on_report(now, by);
    }

    pub(super) fn on_leave(&mut self, of: TaskId) {
        self.rollout.on_leave(of);
    }

    /// The change that a task gets when it joins.
    pub(super) fn in_force(&self) -> Option<usize> {
        self.in_force
    }
}

impl Fleet<'_> {
    /// A change of a limit, of this number in the plan.
    pub(super) fn change(&mut self, now: Timestamp, number: usize) {
        if self.has_trial {
            (self.changes.next, self.changes.tried) = (Some(number), Vec::new());
            self.changes.rollout.begin();
            self.roll_out(now);
        } else {
            self.apply(now, number);
        }
    }

    /// Takes the steps of a change that are due.
    pub(super) fn roll_out(&mut self, now: Timestamp) {
        if self.changes.rollout.is_settled() {
            return;
        }
        loop {
            let next = self.next_to_try();
            match (self.changes.rollout.handle_timeout(now, next.map(|(id, _)| id)), self.changes.next, next) {
                (RolloutStep::Try(_), Some(number), Some((_, at))) => {
                    self.changes.tried.push(at);
                    self.due.push((now + self.plan.delay, Step::Limits(at, number as u32)));
                }
                (RolloutStep::Apply, Some(number), _) => {
                    self.changes.next = None;
                    self.apply(now, number);
                }
                (RolloutStep::Refuse, ..) => self.changes.next = None,
                _ => break,
            }
        }
        let due = self.changes.rollout.poll_timeout(self.next_to_try().is_some());
        if let Some(due) = due.filter(|due| *due > now && self.changes.due != Some(*due)) {
            self.changes.due = Some(due);
            self.due.push((due, Step::RollOut));
        }
    }

    /// A task that is to try a change: preferably one that has not.
    fn next_to_try(&self) -> Option<(TaskId, u32)> {
        let joined = (0..).zip(&self.tasks).filter_map(|(at, task)| Some((task.id?, at)));
        joined.min_by_key(|(id, at)| (self.changes.tried.contains(at), *id))
    }

    fn apply(&mut self, now: Timestamp, number: usize) {
        let change = &self.plan.changes[number];
        self.changes.in_force = Some(number);
        for customer in Customers::new(self.plan).named(self.plan, &change.customer) {
            self.limits[customer] = change.limit;
            if let Some(owner) = &mut self.owner {
                owner.set_limit(CustomerId(customer as u32), (change.limit * 1e6) as u64);
            }
        }
        let joined = (0..).zip(&self.tasks).filter(|(_, task)| task.id.is_some());
        let at = now + self.plan.delay;
        self.due.extend(joined.map(|(task, _)| (at, Step::Limits(task, number as u32))));
        self.wake_owner(now);
    }

    /// A task gets the limits of a change. It crashes of those that break it.
    pub(super) fn on_limits(&mut self, now: Timestamp, at: u32, number: u32) {
        if self.plan.changes[number as usize].breaks && self.tasks[at as usize].id.is_some() {
            self.crash(now, at);
            self.roll_out(now);
        }
    }
}
