//! Tracks the request that runs on this thread.
//!
//! Sections may nest: a request's future may poll another request's, as a client in the same
//! process does. The outer section stops while the inner one runs. If neither request is charged,
//! no clock is read.

use std::cell::RefCell;
use std::sync::Arc;

use super::request::Request;
use super::thread::ThreadClock;

thread_local! {
    static THREAD: RefCell<Thread> = RefCell::new(Thread { clock: ThreadClock::new(), running: None });
}

struct Thread {
    clock: ThreadClock,
    running: Option<Running>,
}

/// The running request and its start, in ticks of the thread's clock. The start has no meaning if
/// the request is not charged.
struct Running {
    request: Arc<Request>,
    since: u64,
}

/// The request that runs on this thread.
pub(in crate::server) fn current() -> Option<Arc<Request>> {
    // At the end of a thread there is none any more.
    THREAD.try_with(|thread| Some(Arc::clone(&thread.borrow().running.as_ref()?.request))).ok().flatten()
}

/// Runs code of `request`, and charges it with the CPU that it uses.
pub(in crate::server) fn run<R>(request: &Arc<Request>, code: impl FnOnce() -> R) -> R {
    let mut handle = Some(Arc::clone(request));
    run_with(&mut handle, code)
}

/// As [`run`], and the handle is back when the code has returned: lending one costs less than
/// making one.
pub(super) fn run_with<R>(handle: &mut Option<Arc<Request>>, code: impl FnOnce() -> R) -> R {
    let Some(request) = handle.take() else { return code() };
    let mut section = Section::begin(request);
    let result = code();
    *handle = section.end();
    result
}

/// Ends with its scope when the code panics.
struct Section {
    outer: Option<Arc<Request>>,
    is_over: bool,
}

impl Section {
    fn begin(request: Arc<Request>) -> Self {
        let outer = THREAD.with_borrow_mut(|thread| thread.turn_to(Some(request)));
        Self { outer: charge(outer), is_over: false }
    }

    /// Returns the handle of the request.
    fn end(&mut self) -> Option<Arc<Request>> {
        self.is_over = true;
        let outer = self.outer.take();
        charge(THREAD.with_borrow_mut(|thread| thread.turn_to(outer)))
    }
}

impl Drop for Section {
    fn drop(&mut self) {
        if !self.is_over {
            self.end();
        }
    }
}

/// A request that stopped running, with its use in nanoseconds.
type Stopped = Option<(Arc<Request>, u64)>;

impl Thread {
    /// Stops the running request and starts `next`.
    fn turn_to(&mut self, next: Option<Arc<Request>>) -> Stopped {
        let ran = self.running.take();
        let of_ran = ran.as_ref().is_some_and(|ran| ran.request.is_timed());
        let of_next = next.as_ref().is_some_and(|next| next.is_timed());
        let now = if of_ran || of_next { self.clock.ticks() } else { 0 };
        let stopped = ran.map(|Running { request, since }| {
            let used = if of_ran { self.clock.end(since, now) } else { 0 };
            (request, used)
        });
        if of_next {
            self.clock.begin(now);
        }
        self.running = next.map(|request| Running { request, since: now });
        stopped
    }
}

/// Runs outside of the thread's own state, because a charge may run other code.
fn charge(stopped: Stopped) -> Option<Arc<Request>> {
    let (request, used) = stopped?;
    request.charge(used);
    Some(request)
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use plimsoll_core::Criticality;

    use super::*;
    use crate::server::context::RequestContext;

    #[test]
    fn a_request_that_nobody_charges_is_not_timed() {
        let request = Arc::new(Request::free(RequestContext::new(Criticality::Critical)));
        let is_current = run(&request, || {
            let begun = Instant::now();
            while begun.elapsed() < Duration::from_millis(1) {}
            current().is_some_and(|current| Arc::ptr_eq(&current, &request))
        });
        assert!(is_current && current().is_none());
        assert_eq!(request.used(), Duration::ZERO);
    }
}
