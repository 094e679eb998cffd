//! A future that is a part of a request.
//!
//! Each poll is a section of the request. In between, the future is either runnable, from its wake
//! to its next poll, or waits for something else than CPU; a waker of our own sees the difference.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use parking_lot::Mutex;
use pin_project_lite::pin_project;

use super::request::Request;
use super::section;

/// It waits for something else than CPU.
const WAITING: u8 = 0;
/// It could run.
const RUNNABLE: u8 = 1;
/// It runs.
const RUNNING: u8 = 2;
/// It runs, and was woken meanwhile, so that it could run again at once.
const WOKEN: u8 = 3;
/// It has ended, or was dropped.
const ENDED: u8 = 4;

pin_project! {
    /// A future that charges its CPU to a request.
    pub(in crate::server) struct Metered<F> {
        #[pin]
        inner: F,
        task: Task,
    }
}

/// Ends with the future.
struct Task {
    state: Arc<State>,
    waker: Waker,
    /// Lent to the thread that polls it. None where that panicked.
    request: Option<Arc<Request>>,
    /// The waker of the last poll, as `State::outer`, without a lock.
    outer: Waker,
}

#[derive(Debug)]
struct State {
    request: Arc<Request>,
    state: AtomicU8,
    /// The waker of the future's poller.
    outer: Mutex<Waker>,
}

impl<F> Metered<F> {
    /// A future that could run from now on.
    pub(in crate::server) fn new(request: Arc<Request>, inner: F) -> Self {
        request.on_runnable();
        let outer = Waker::noop().clone();
        let lent = Some(Arc::clone(&request));
        let state = Arc::new(State { request, state: AtomicU8::new(RUNNABLE), outer: Mutex::new(outer.clone()) });
        Self { inner, task: Task { waker: Waker::from(Arc::clone(&state)), state, request: lent, outer } }
    }
}

impl<F: Future> Future for Metered<F> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        let this = self.project();
        let Task { state, waker, request, outer } = this.task;
        if !outer.will_wake(cx.waker()) {
            outer.clone_from(cx.waker());
            state.outer.lock().clone_from(cx.waker());
        }
        state.begin();
        let polled = section::run_with(request, || this.inner.poll(&mut Context::from_waker(waker)));
        state.end(polled.is_ready());
        polled
    }
}

impl State {
    fn begin(&self) {
        // As mostly: a wake leaves it so, and nobody else changes it.
        if self.state.load(Ordering::Acquire) == RUNNABLE {
            self.state.store(RUNNING, Ordering::Release);
            return;
        }
        // Polled for a reason of the caller's own, such as another branch of a `select!`.
        if self.state.swap(RUNNING, Ordering::AcqRel) == WAITING {
            self.request.on_runnable();
        }
    }

    fn end(&self, is_ready: bool) {
        let next = if is_ready { ENDED } else { WAITING };
        let woken = self.state.compare_exchange(RUNNING, next, Ordering::AcqRel, Ordering::Acquire).is_err();
        if woken && !is_ready {
            self.state.store(RUNNABLE, Ordering::Release);
            return;
        }
        if woken {
            self.state.store(ENDED, Ordering::Release);
        }
        self.request.on_waiting();
    }
}

impl Wake for State {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        let change = |state| match state {
            WAITING => Some(RUNNABLE),
            RUNNING => Some(WOKEN),
            _ => None,
        };
        if self.state.fetch_update(Ordering::AcqRel, Ordering::Acquire, change) == Ok(WAITING) {
            self.request.on_runnable();
        }
        let outer = self.outer.lock().clone();
        outer.wake();
    }
}

impl Drop for Task {
    fn drop(&mut self) {
        if matches!(self.state.state.swap(ENDED, Ordering::AcqRel), RUNNABLE | RUNNING | WOKEN) {
            self.state.request.on_waiting();
        }
    }
}
