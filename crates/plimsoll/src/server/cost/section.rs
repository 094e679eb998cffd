//! Whose code is running on this thread.
//!
//! Sections may lie within each other: a request's future may poll another request's, as a client in the same process does. The
//! outer one then stands still while the inner one runs.

use std::cell::RefCell;
use std::sync::Arc;
use std::time::Duration;

use quanta::Instant;

use super::request::Request;
use super::thread::ThreadClock;

thread_local! {
    static THREAD: RefCell<Thread> = RefCell::new(Thread { clock: ThreadClock::new(), running: None });
}

struct Thread {
    clock: ThreadClock,
    /// Whose code runs, and since when.
    running: Option<(Arc<Request>, Instant)>,
}

/// The request whose code is running on this thread.
pub(in crate::server) fn current() -> Option<Arc<Request>> {
    // At the end of a thread there is none any more.
    THREAD.try_with(|thread| Some(Arc::clone(&thread.borrow().running.as_ref()?.0))).ok().flatten()
}

/// Runs code of `request`, and charges it with the CPU that it uses.
pub(in crate::server) fn run<R>(request: &Arc<Request>, code: impl FnOnce() -> R) -> R {
    let _section = Section::begin(Arc::clone(request));
    code()
}

/// Ends with its scope, also when the code panics.
struct Section {
    outer: Option<Arc<Request>>,
}

impl Section {
    fn begin(request: Arc<Request>) -> Self {
        let now = Instant::now();
        let outer = THREAD.with_borrow_mut(|thread| {
            let outer = thread.stop(now);
            thread.start(request, now);
            outer
        });
        Self { outer: charge(outer) }
    }
}

impl Drop for Section {
    fn drop(&mut self) {
        let now = Instant::now();
        let ended = THREAD.with_borrow_mut(|thread| {
            let ended = thread.stop(now);
            if let Some(outer) = self.outer.take() {
                thread.start(outer, now);
            }
            ended
        });
        charge(ended);
    }
}

type Stopped = Option<(Arc<Request>, Duration)>;

impl Thread {
    fn start(&mut self, request: Arc<Request>, now: Instant) {
        self.clock.begin(now);
        self.running = Some((request, now));
    }

    fn stop(&mut self, now: Instant) -> Stopped {
        let (request, begun) = self.running.take()?;
        let used = self.clock.end(begun, now);
        Some((request, used))
    }
}

/// Outside of the thread's own state, for what follows from it may run code of others.
fn charge(stopped: Stopped) -> Option<Arc<Request>> {
    let (request, used) = stopped?;
    request.charge(used);
    Some(request)
}
