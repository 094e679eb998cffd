//! The queue of requests that wait while every backend is at its limit of active requests.
//!
//! First come, first served: a request that arrives while others wait goes to the end even if a
//! backend has just become free, because otherwise those who wait could starve. Only the one at the
//! head of the queue looks for a backend; it is woken by each request that finishes and by each backend
//! that becomes usable, and when it has one the next takes its place and looks at once. The number
//! that may wait is bounded, and the caller bounds the time.

use plimsoll_core::{BackendId, Timestamp};
use tokio::sync::{Mutex, Notify};

use super::Shared;
use super::machine::Found;
use crate::client::config::RequestConfig;

/// Why a wait ended without a backend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NoTurn {
    /// Too many wait already.
    Full,
    /// No backend is usable any more.
    NoBackend,
}

/// Requests that wait, in order.
#[derive(Default)]
pub(super) struct Waiters {
    /// Held by the head of the queue. tokio's mutex is given on in the order in which it was asked for.
    head: Mutex<()>,
    /// Wakes the head. A call while there is none counts for the next.
    look: Notify,
}

impl Waiters {
    pub(super) fn wake(&self) {
        self.look.notify_one();
    }
}

impl Shared {
    /// A backend for a request that has just arrived.
    pub(crate) fn pick(&self, now: Timestamp) -> Found {
        let mut machine = self.machine.lock();
        if machine.waiting > 0 {
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
    pub(crate) async fn wait_turn(&self, tried: &[BackendId]) -> Result<(BackendId, RequestConfig), NoTurn> {
        let _place = Place::take(self).ok_or(NoTurn::Full)?;
        let _head = self.waiters.head.lock().await;
        loop {
            match self.machine.lock().pick(self.now(), tried) {
                Found::Backend(id, requests) => return Ok((id, requests)),
                Found::NoBackend => return Err(NoTurn::NoBackend),
                Found::Wait(..) => {}
            }
            self.waiters.look.notified().await;
        }
    }

    pub(crate) fn count_saturated(&self) {
        self.machine.lock().counts.saturated += 1;
    }
}

/// A place in the queue, given back when dropped.
struct Place<'a>(&'a Shared);

impl<'a> Place<'a> {
    fn take(shared: &'a Shared) -> Option<Self> {
        let mut machine = shared.machine.lock();
        if machine.waiting >= machine.config.requests.max_pending {
            return None;
        }
        machine.waiting += 1;
        machine.counts.waited += 1;
        drop(machine);
        Some(Self(shared))
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.0.machine.lock().waiting -= 1;
    }
}
