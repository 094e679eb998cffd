//! A request at a backend that ends early if it waits for its client while others wait for a slot.
//!
//! The cluster must be able to end it at any time, from another thread, and most of all while
//! nobody polls it. The task of a response does not poll it while its client does not read. So the
//! backend side of such a request (connection or stream, and the slot) is *parked* here between two
//! pieces of its body. The preempting thread takes it out and drops it. A request that is being
//! polled is woken instead, and finds out by itself.
//!
//! Only a request that is not over at once has one: most responses are whole when their head is passed on.

use std::any::Any;
use std::sync::Arc;
use std::task::{Poll, Waker};
use std::time::Duration;

use parking_lot::Mutex;
use plimsoll_core::Timestamp;
use plimsoll_core::slots::preempt::ClientDebt;

use crate::clock::Clock;

/// Time after the end of a request in which its slot is expected to come free.
const MAX_ENDING: Duration = Duration::from_secs(1);

/// The backend side of a request.
type Parked = Box<dyn Any + Send>;

/// A request that may have to end early.
pub(crate) struct Preemption {
    clock: Clock,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    debt: ClientDebt,
    ended_at: Option<Timestamp>,
    /// The task that has the request.
    task: Option<Waker>,
    parked: Option<Parked>,
}

impl Preemption {
    pub(crate) fn new(clock: Clock) -> Arc<Self> {
        Arc::new(Self { clock, state: Mutex::default() })
    }

    /// The client is waited for from now on.
    pub(crate) fn wait(&self) {
        self.state.lock().debt.begin_wait(self.clock.now());
    }

    /// The client has sent or taken `bytes`.
    pub(crate) fn moved(&self, bytes: u64) {
        let now = self.clock.now();
        let mut state = self.state.lock();
        state.debt.on_bytes(now, bytes);
        if state.parked.is_some() {
            // In the other direction it is still waited for.
            state.debt.begin_wait(now);
        }
    }

    /// Has the task woken should the request end.
    pub(crate) fn watch(&self, task: &Waker) {
        let mut state = self.state.lock();
        if state.task.as_ref().is_some_and(|known| known.will_wake(task)) {
            return;
        }
        let former = state.task.replace(task.clone());
        // Not under the lock: the last waker of a task may drop it.
        drop(state);
        drop(former);
    }

    /// Keeps the backend side of the request until [`Preemption::unpark`], while its client is
    /// waited for. It comes back at once if the request has ended.
    pub(crate) fn park(&self, parked: Parked) -> Result<(), Parked> {
        let now = self.clock.now();
        let mut state = self.state.lock();
        if state.ended_at.is_some() {
            return Err(parked);
        }
        state.parked = Some(parked);
        state.debt.begin_wait(now);
        Ok(())
    }

    /// Takes the parked part back; the client has taken `bytes` meanwhile. `None` if the request
    /// has ended.
    pub(crate) fn unpark(&self, bytes: u64) -> Option<Parked> {
        let now = self.clock.now();
        let mut state = self.state.lock();
        state.debt.on_bytes(now, bytes);
        state.parked.take()
    }

    /// Ready when the request was ended.
    pub(crate) async fn ended(self: Arc<Self>) {
        std::future::poll_fn(|cx| {
            self.watch(cx.waker());
            if self.is_ended() { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
    }

    /// The client's debt; `None` while it is not waited for.
    pub(crate) fn debt(&self, now: Timestamp) -> Option<Duration> {
        self.state.lock().debt.at(now)
    }

    /// Whether the request was ended.
    pub(crate) fn is_ended(&self) -> bool {
        self.state.lock().ended_at.is_some()
    }

    /// Whether it was ended so lately that its slot may come free any moment.
    pub(crate) fn is_ending(&self, now: Timestamp) -> bool {
        self.state.lock().ended_at.is_some_and(|at| now.since(at) < MAX_ENDING)
    }

    /// Ends the request. Not under the cluster's lock, which the end of an attempt takes.
    pub(crate) fn end(&self) {
        let mut state = self.state.lock();
        state.ended_at = Some(self.clock.now());
        let (parked, task) = (state.parked.take(), state.task.take());
        drop(state);
        drop(parked);
        if let Some(task) = task {
            task.wake();
        }
    }
}
