//! How long an owner is the only one of its service.
//!
//! An owner has its service by a lease of its own, in etcd. Another one may begin when that lease can have expired.
//!
//! ```text
//! certain   now < until                    this owner has all of the limit
//! overdue   until ≤ now < until + lease    another one may distribute the rates that tasks bring it
//! frozen    until + lease ≤ now            another one may have all of the limit
//! ```
//!
//! A new owner distributes the rates of the tasks that joined it, until all have or a lease has passed. That lease
//! begins after `until`. So an overdue owner goes on as before, but keeps the rates of tasks that are away: they may be
//! in use at the other owner. The sum over both is within the limit then. A frozen owner grants no more in sum than it
//! did, and lends nothing.
//!
//! Why not freeze at once: while etcd is lost no other owner begins, and a customer whose demand rises would be refused
//! below its limit.
//!
//! Where it is weak: a task that is new to an overdue owner is not known to the tasks that left, and the other owner
//! does not wait for it. If it stays, its rates come on top. So do those of all tasks that stay at a frozen owner while
//! another one is there: twice the limit at worst.

use core::time::Duration;

use super::Owner;
use super::customer::Customer;
use crate::Timestamp;

/// Whether an owner is the only one of its service, by a lease of its own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Tenure {
    /// No other owner can have begun.
    #[default]
    Certain,
    /// Another one may have, and does not know all tasks.
    Overdue,
    /// Another one may have, and may know all tasks that it waits for.
    Frozen,
}

impl Tenure {
    /// The end of the tenure that follows, by the end of the owner's own lease and the lease of tasks.
    fn end(self, until: Timestamp, lease: Duration) -> Option<Timestamp> {
        match self {
            Self::Certain => Some(until),
            Self::Overdue => Some(until + lease),
            Self::Frozen => None,
        }
    }
}

impl Owner {
    /// This owner is the only one until then, by a lease of its own that was renewed. Without a call it is for ever.
    pub fn set_certain_until(&mut self, now: Timestamp, until: Timestamp) {
        self.certain_until = Some(until);
        self.set_tenure(now);
    }

    /// Whether another owner may have begun.
    #[must_use]
    pub fn tenure(&self) -> Tenure {
        self.tenure
    }

    /// When the tenure is another one.
    pub(super) fn tenure_timeout(&self) -> Option<Timestamp> {
        self.tenure.end(self.certain_until?, self.config.lease)
    }

    /// Looks at the clock.
    pub(super) fn set_tenure(&mut self, now: Timestamp) {
        let Some(until) = self.certain_until else { return };
        let tenure = match until {
            until if now < until => Tenure::Certain,
            until if now < until + self.config.lease => Tenure::Overdue,
            _ => Tenure::Frozen,
        };
        if core::mem::replace(&mut self.tenure, tenure) == tenure {
            return;
        }
        self.customers.iter_mut().for_each(|customer| customer.set_tenure(now, tenure));
        (0..self.customers.len() as u32).for_each(|customer| self.mark(customer));
    }

    /// The lease of a task is over. While another owner may have it, its rates stay reserved.
    pub(super) fn reserve(&mut self, now: Timestamp, id: u32) {
        if self.tenure == Tenure::Certain {
            return;
        }
        let Some(task) = self.tasks.get(id as usize).and_then(Option::as_ref) else { return };
        for (customer, place) in task.customers() {
            self.customers[customer as usize].reserve(now, place as usize);
        }
    }
}

impl Customer {
    fn set_tenure(&mut self, now: Timestamp, tenure: Tenure) {
        self.fill_credit(now);
        match tenure {
            Tenure::Certain => (self.reserved, self.frozen) = (0, None),
            Tenure::Overdue => self.frozen = None,
            Tenure::Frozen => self.frozen = Some(self.held),
        }
    }

    fn reserve(&mut self, now: Timestamp, place: usize) {
        self.fill_credit(now);
        let held = u64::from(self.entries[place].held);
        self.reserved += held;
        self.frozen = self.frozen.map(|frozen| frozen.saturating_sub(held));
    }
}
