//! The life of the proxy: serving, lame duck, closing, closed.
//!
//! As a lame duck it still serves what arrives and tells every client to go: not ready on the admin
//! port, GOAWAY on HTTP/2, `Connection: close` on HTTP/1. It does not close idle HTTP/1 connections
//! yet, because a client may be writing a request to one at that very moment. Closing comes when
//! nothing is in flight any more, or when the time for it is over: listeners first, then
//! connections, each as soon as it has nothing to answer. An answer may have no end, so a little
//! later it is closed: what is left is cut off.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Waker;
use std::time::Duration;

use parking_lot::Mutex;
use slab::Slab;
use tokio::sync::watch;

/// Where in its life the proxy, or one of its listeners, is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Phase {
    /// Serves and wants more.
    Serving,
    /// Serves, and asks clients to go elsewhere.
    LameDuck,
    /// Takes no connections, ends those that it has when nothing is in flight on them.
    Closing,
    /// Cuts off the rest.
    Closed,
}

/// Time for requests in flight when connections begin to be closed, even if the time to drain is
/// over: a response may have left its backend and still be on its way to its client.
pub(crate) const CLOSE_GRACE: Duration = Duration::from_secs(1);

/// How long a connection that has just been accepted gets for its first request when its listener
/// closes: a client sends it with the end of the handshake, and cannot know whether one that met a
/// close was served.
pub(crate) const FIRST_REQUEST_GRACE: Duration = Duration::from_millis(100);

/// Publishes the phase. A phase never goes back.
#[derive(Clone, Debug)]
pub(crate) struct Life {
    phases: watch::Sender<Phase>,
    /// Whether it has left the first phase, for a check with each request.
    is_leaving: Arc<AtomicBool>,
    /// Tasks that each new phase wakes.
    tasks: Arc<Mutex<Slab<Waker>>>,
}

impl Life {
    pub(crate) fn new() -> Self {
        Self { phases: watch::Sender::new(Phase::Serving), is_leaving: Arc::default(), tasks: Arc::default() }
    }

    pub(crate) fn advance(&self, to: Phase) {
        if to > Phase::Serving {
            self.is_leaving.store(true, Ordering::Release);
        }
        let is_new = self.phases.send_if_modified(|phase| {
            let later = to > *phase;
            *phase = to.max(*phase);
            later
        });
        if is_new {
            let tasks: Vec<Waker> = self.tasks.lock().iter().map(|(_, task)| task.clone()).collect();
            tasks.iter().for_each(Waker::wake_by_ref);
        }
    }

    pub(crate) fn phase(&self) -> Phase {
        *self.phases.borrow()
    }

    /// Whether it is not serving any more: the cheap question.
    pub(crate) fn is_leaving(&self) -> bool {
        self.is_leaving.load(Ordering::Acquire)
    }

    pub(crate) fn watch(&self) -> watch::Receiver<Phase> {
        self.phases.subscribe()
    }

    /// Wakes `task` at each new phase. The phase must be looked at after this.
    ///
    /// For tasks that are many: it takes less memory and time than a [`watch`](Self::watch).
    pub(crate) fn wake(&self, task: &Waker) -> PhaseWaker {
        let key = self.tasks.lock().insert(task.clone());
        PhaseWaker { tasks: Arc::clone(&self.tasks), key }
    }
}

/// Wakes a task at each new phase, until this is dropped.
#[derive(Debug)]
pub(crate) struct PhaseWaker {
    tasks: Arc<Mutex<Slab<Waker>>>,
    key: usize,
}

impl Drop for PhaseWaker {
    fn drop(&mut self) {
        self.tasks.lock().remove(self.key);
    }
}

/// Waits for the phase `least`, or a later one.
pub(crate) async fn reached(phases: &mut watch::Receiver<Phase>, least: Phase) {
    // An error means that it is gone altogether.
    let _ = phases.wait_for(|phase| *phase >= least).await;
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;
    use std::task::Wake;

    use super::*;

    #[derive(Default)]
    struct Count(AtomicUsize);

    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn new_phase_wakes_the_tasks_that_are_left() {
        let (life, stays, goes) = (Life::new(), Arc::<Count>::default(), Arc::<Count>::default());
        let _stays = life.wake(&Waker::from(Arc::clone(&stays)));
        drop(life.wake(&Waker::from(Arc::clone(&goes))));
        for (to, woken) in [(Phase::LameDuck, 1), (Phase::LameDuck, 1), (Phase::Closing, 2), (Phase::Serving, 2)] {
            life.advance(to);
            assert_eq!(stays.0.load(Ordering::Relaxed), woken, "{to:?}");
        }
        assert_eq!(goes.0.load(Ordering::Relaxed), 0);
        assert_eq!(Arc::strong_count(&goes), 1, "its waker is gone with it");
    }
}
