//! The wait of requests while every backend is at its limit of active requests.
//!
//! [`plimsoll_core::queue`] decides on the next place, under the cluster's lock. The request that
//! frees the place wakes the waiter with its backend in hand, counted as active there. A waiter
//! that leaves, or runs out of time, with a backend in hand passes it on. The number of waiters is
//! bounded, and the caller bounds the time.

use std::task::{Context, Poll, Waker};

use plimsoll_core::queue::{SeatState, Ticket, Wanted};
use plimsoll_core::{BackendId, Timestamp, throttle};

use super::Shared;
use super::machine::{Done, Found, Kind, Machine, News, Report, Taken};
use crate::client::attempt_end::AttemptEnd;
use crate::client::config::RequestConfig;

/// How an attempt ends that was never made, of a request of this kind.
fn given_back(kind: Kind) -> Done {
    let taken = Some(Taken { kind, outcome: throttle::Outcome::Unknown });
    let end = AttemptEnd::Withdrawn;
    let (outcome, answered) = (end.row().outcome, None);
    Done { kind, outcome, end, answered, latency: None, report: Report::None, taken, preemptible: None }
}

/// Why a wait ended without a backend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NoTurn {
    /// Too many wait already.
    Full,
    /// No backend is usable any more.
    NoBackend,
}

/// The result of a wait.
type Turn = Result<(BackendId, RequestConfig), NoTurn>;

impl Shared {
    /// A backend for a request that has just arrived.
    pub(crate) fn pick(&self, now: Timestamp, kind: Kind) -> Found {
        let criticality = kind.criticality;
        let mut machine = self.machine.lock();
        machine.budget.on_request(now, kind.operation);
        machine.counts.offered[criticality.rank()] += 1;
        let found = machine.begin(now, kind, &[]);
        match found {
            Found::Held(_) => machine.counts.throttled[criticality.rank()] += 1,
            Found::NoRoom => machine.counts.no_room[criticality.rank()] += 1,
            _ => {}
        }
        found
    }

    /// A backend for batch work, which goes by credit: the throttle is not asked, and the request
    /// adds nothing to the retry budget.
    pub(crate) fn pick_batch(&self, now: Timestamp, kind: Kind) -> Found {
        let mut machine = self.machine.lock();
        machine.slots.on_arrival(now, kind.holders());
        match machine.route(now, kind.criticality) {
            Some(at) => machine.pick(now, at, kind, &[]),
            None => Found::NoRoom,
        }
    }

    /// A backend for a further attempt after one that sent nothing, preferably none of `tried`.
    pub(crate) fn pick_except(&self, now: Timestamp, kind: Kind, tried: &[BackendId]) -> Found {
        let mut machine = self.machine.lock();
        machine.counts.further_attempts += 1;
        machine.begin(now, kind, tried)
    }

    /// Waits for a turn in the queue of this locality, while it is polled. The throttle has
    /// admitted the request.
    pub(crate) async fn wait_turn(&self, kind: Kind, at: usize, tried: &[BackendId]) -> Turn {
        let mut wait = Wait { shared: self, kind, at, tried, ticket: None };
        std::future::poll_fn(|cx| wait.poll(cx)).await
    }

    pub(crate) fn count_saturated(&self) {
        self.machine.lock().counts.saturated += 1;
    }
}

/// A waiting request. Dropped, it returns its seat and the backend in its hand.
///
/// No waker is dropped under the lock: that may be the end of a task, with requests of its own.
struct Wait<'a> {
    shared: &'a Shared,
    kind: Kind,
    /// The locality of its first choice.
    at: usize,
    tried: &'a [BackendId],
    ticket: Option<Ticket>,
}

impl Wait<'_> {
    fn poll(&mut self, cx: &Context<'_>) -> Poll<Turn> {
        let now = self.shared.now();
        let mut guard = self.shared.machine.lock();
        let machine = &mut *guard;
        let Some(ticket) = &self.ticket else {
            let mut news = News::default();
            let turn = self.begin(machine, now, cx, &mut news);
            let is_first = turn.is_pending() && machine.waiting() == 1;
            drop(guard);
            self.shared.publish(news);
            if is_first {
                // From now on it has to look for requests to end.
                self.shared.driver.notify_one();
            }
            return turn;
        };
        match machine.queues[self.at].look(ticket) {
            (SeatState::Empty, Some(waker)) if !waker.will_wake(cx.waker()) => {
                let former = std::mem::replace(waker, cx.waker().clone());
                drop(guard);
                drop(former);
                Poll::Pending
            }
            (SeatState::Empty, _) => Poll::Pending,
            (SeatState::Backend(id), _) if !machine.balancer.contains(id) => {
                // The backend was removed before this task ran: no reason for the request to lose
                // its turn.
                machine.slots.give_back(self.kind.holders());
                let mut news = machine.news(now);
                let turn = self.begin(machine, now, cx, &mut news);
                drop(guard);
                self.shared.publish(news);
                self.shared.driver.notify_one();
                turn
            }
            (SeatState::Backend(id), _) => {
                self.leave(machine);
                Poll::Ready(Ok((id, machine.config.requests)))
            }
            (SeatState::NoBackend, _) => {
                self.leave(machine);
                machine.not_sent(now, self.kind);
                Poll::Ready(Err(NoTurn::NoBackend))
            }
            (SeatState::Displaced, _) => {
                self.leave(machine);
                machine.not_sent(now, self.kind);
                Poll::Ready(Err(NoTurn::Full))
            }
        }
    }

    /// Takes a seat, unless there is a place by now and nobody to have it first.
    fn begin(&mut self, machine: &mut Machine, now: Timestamp, cx: &Context<'_>, news: &mut News) -> Poll<Turn> {
        let comes_again = self.ticket.is_some();
        if !comes_again {
            if machine.waiting() >= machine.config.requests.max_pending {
                news.served.0 = machine.queues[self.at].displace(self.kind.holders());
            }
            if machine.waiting() >= machine.config.requests.max_pending {
                machine.not_sent(now, self.kind);
                return Poll::Ready(Err(NoTurn::Full));
            }
            machine.counts.waited += 1;
        }
        if comes_again || !machine.is_behind(now, self.at, self.kind.holders()) {
            let turn = match machine.pick(now, self.at, self.kind, self.tried) {
                Found::Backend(id, requests) => Some(Ok((id, requests))),
                Found::NoBackend => Some(Err(NoTurn::NoBackend)),
                Found::Wait(..) | Found::Held(_) | Found::NoRoom => None,
            };
            if let Some(turn) = turn {
                if turn.is_err() {
                    machine.not_sent(now, self.kind);
                }
                self.leave(machine);
                return Poll::Ready(turn);
            }
        }
        match &self.ticket {
            Some(ticket) => machine.queues[self.at].rejoin(ticket, cx.waker().clone()),
            None => {
                let (holders, call) = (self.kind.holders(), cx.waker().clone());
                let wanted = Wanted { tried: self.tried.to_vec(), key: self.kind.key };
                self.ticket = Some(machine.queues[self.at].join(holders, wanted, call));
            }
        }
        machine.preempt(now, news);
        Poll::Pending
    }

    /// Returns the seat. A served request has no waker there any more.
    fn leave(&mut self, machine: &mut Machine) -> Option<(SeatState, Option<Waker>)> {
        Some(machine.queues[self.at].leave(self.ticket.take()?))
    }
}

impl Drop for Wait<'_> {
    fn drop(&mut self) {
        if self.ticket.is_none() {
            return;
        }
        let now = self.shared.now();
        let mut machine = self.shared.machine.lock();
        let left = self.leave(&mut machine);
        let served = if let Some((SeatState::Backend(id), _)) = left { Some(id) } else { None };
        if served.is_none() {
            machine.not_sent(now, self.kind);
        }
        drop(machine);
        drop(left);
        if let Some(id) = served {
            self.shared.finish(now, id, &given_back(self.kind));
        }
    }
}

#[cfg(test)]
mod tests;
