//! The balancer, as the requests in flight share it.

use std::fmt;
use std::sync::{Arc, Mutex};
use std::task::Waker;

use plimsoll_core::{BackendId, Balancer, Completion, Operation, Outcome, Timestamp};
use rand_pcg::Pcg64Mcg;

use crate::clock::Clock;
use crate::lock::lock;
use crate::{End, Report};

pub(super) struct Shared {
    pub(super) clock: Clock,
    pub(super) state: Mutex<State>,
}

pub(super) struct State {
    pub(super) balancer: Balancer,
    pub(super) rng: Pcg64Mcg,
    /// The task that waits for a backend: an end may free one.
    pub(super) waiter: Option<Waker>,
}

/// A request at a backend, until its end is reported.
#[must_use = "the balancer learns from ends: call `Report::end`, also after an error"]
pub struct InFlight {
    pub(super) shared: Arc<Shared>,
    pub(super) backend: BackendId,
    pub(super) operation: Operation,
    pub(super) at: Timestamp,
    pub(super) is_ended: bool,
}

impl InFlight {
    fn settle(&mut self, end: End) {
        if std::mem::replace(&mut self.is_ended, true) {
            return;
        }
        let now = self.shared.clock.now();
        let latency = end.is_answer().then(|| now.since(self.at));
        self.shared.finish(now, self.backend, self.operation, Completion { outcome: end.outcome(), latency });
    }
}

impl Shared {
    /// Ends a request, and wakes the task that waits for a backend.
    pub(super) fn finish(&self, now: Timestamp, backend: BackendId, operation: Operation, completion: Completion) {
        let waiter = {
            let State { balancer, waiter, .. } = &mut *lock(&self.state);
            balancer.finish_for(now, backend, operation, completion, &mut ());
            waiter.take()
        };
        if let Some(waiter) = waiter {
            waiter.wake();
        }
    }
}

/// A pick that is not used.
pub(super) const UNUSED: Completion = Completion { outcome: Outcome::Cancelled, latency: None };

impl Report for InFlight {
    fn end(mut self, end: End) {
        self.settle(end);
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        self.settle(End::Cancelled);
    }
}

impl fmt::Debug for InFlight {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InFlight").field("backend", &self.backend).field("at", &self.at).finish_non_exhaustive()
    }
}
