//! How requests wait while every backend is at its limit of active requests.
//!
//! Who gets the next place is decided by [`plimsoll_core::queue`], under the cluster's lock and by whoever frees the place:
//! a waiter is woken with its backend in its hands, counted as active there. One that goes away, or whose time is up,
//! with a backend in its hands gives it back, and it goes to the next. The number that may wait is bounded, and the
//! caller bounds the time.

use std::task::{Context, Poll, Waker};

use plimsoll_core::queue::{Hand, Ticket};
use plimsoll_core::{BackendId, Outcome, Timestamp};

use super::machine::{Done, Found, Machine, Report};
use super::{Ending, Shared};
use crate::client::config::RequestConfig;

/// How an attempt ends that was never made.
const GIVEN_BACK: Done =
    Done { outcome: Outcome::Cancelled, ending: Ending::Cancelled, latency: None, report: Report::None };

/// Why a wait ended without a backend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NoTurn {
    /// Too many wait already.
    Full,
    /// No backend is usable any more.
    NoBackend,
}

/// What a wait has come to.
type Turn = Result<(BackendId, RequestConfig), NoTurn>;

impl Shared {
    /// A backend for a request that has just arrived.
    pub(crate) fn pick(&self, now: Timestamp) -> Found {
        let mut machine = self.machine.lock();
        if !machine.queue.is_empty() {
            // Were there a place, who waits would have it.
            return Found::Wait(machine.config.requests);
        }
        machine.pick(now, &[])
    }

    /// A backend for a further attempt, preferably none of `tried`.
    pub(crate) fn pick_except(&self, now: Timestamp, tried: &[BackendId]) -> Found {
        let mut machine = self.machine.lock();
        machine.counts.further_attempts += 1;
        machine.pick(now, tried)
    }

    /// Waits for a turn, for as long as it is polled.
    pub(crate) async fn wait_turn(&self, tried: &[BackendId]) -> Turn {
        let mut wait = Wait { shared: self, tried, ticket: None };
        std::future::poll_fn(|cx| wait.poll(cx)).await
    }

    pub(crate) fn count_saturated(&self) {
        self.machine.lock().counts.saturated += 1;
    }
}

/// A request that waits. Its seat, and what is in its hands, are given back when this is dropped.
///
/// No waker is dropped under the lock: that may be the end of a task, with requests of its own.
struct Wait<'a> {
    shared: &'a Shared,
    tried: &'a [BackendId],
    ticket: Option<Ticket>,
}

impl Wait<'_> {
    fn poll(&mut self, cx: &Context<'_>) -> Poll<Turn> {
        let now = self.shared.now();
        let mut guard = self.shared.machine.lock();
        let machine = &mut *guard;
        let Some(ticket) = &self.ticket else { return self.begin(machine, now, cx) };
        match machine.queue.look(ticket) {
            (Hand::Empty, Some(waker)) if !waker.will_wake(cx.waker()) => {
                let former = std::mem::replace(waker, cx.waker().clone());
                drop(guard);
                drop(former);
                Poll::Pending
            }
            (Hand::Empty, _) => Poll::Pending,
            (Hand::Backend(id), _) if !machine.balancer.contains(id) => {
                // It was removed before this task ran: that is nobody's fault, and no reason to lose one's turn.
                self.begin(machine, now, cx)
            }
            (Hand::Backend(id), _) => {
                self.leave(machine);
                Poll::Ready(Ok((id, machine.config.requests)))
            }
            (Hand::NoBackend, _) => {
                self.leave(machine);
                Poll::Ready(Err(NoTurn::NoBackend))
            }
        }
    }

    /// Takes a seat, unless there is a place by now and nobody to have it first.
    fn begin(&mut self, machine: &mut Machine, now: Timestamp, cx: &Context<'_>) -> Poll<Turn> {
        let comes_again = self.ticket.is_some();
        if !comes_again {
            if machine.queue.len() >= machine.config.requests.max_pending {
                return Poll::Ready(Err(NoTurn::Full));
            }
            machine.counts.waited += 1;
        }
        if comes_again || machine.queue.is_empty() {
            let turn = match machine.pick(now, self.tried) {
                Found::Backend(id, requests) => Some(Ok((id, requests))),
                Found::NoBackend => Some(Err(NoTurn::NoBackend)),
                Found::Wait(_) => None,
            };
            if let Some(turn) = turn {
                self.leave(machine);
                return Poll::Ready(turn);
            }
        }
        match &self.ticket {
            Some(ticket) => machine.queue.rejoin(ticket, cx.waker().clone()),
            None => self.ticket = Some(machine.queue.join(self.tried.to_vec(), cx.waker().clone())),
        }
        Poll::Pending
    }

    /// Gives the seat back. Whoever was served has no waker there any more.
    fn leave(&mut self, machine: &mut Machine) -> Option<(Hand, Option<Waker>)> {
        Some(machine.queue.leave(self.ticket.take()?))
    }
}

impl Drop for Wait<'_> {
    fn drop(&mut self) {
        if self.ticket.is_none() {
            return;
        }
        let left = self.leave(&mut self.shared.machine.lock());
        if let Some((Hand::Backend(id), _)) = left {
            self.shared.finish(self.shared.now(), id, &GIVEN_BACK);
        }
    }
}

#[cfg(test)]
mod tests;
