//! Whose code is running on this thread.
//!
//! Sections may lie within each other: a request's future may poll another request's, as a client in the same process does. The
//! outer one then stands still while the inner one runs.

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

/// Whose code runs, and since when, in ticks of the thread's clock.
struct Running {
    request: Arc<Request>,
    since: u64,
}

/// The request whose code is running on this thread.
pub(in crate::server) fn current() -> Option<Arc<Request>> {
    // At the end of a thread there is none any more.
    THREAD.try_with(|thread| Some(Arc::clone(&thread.borrow().running.as_ref()?.request))).ok().flatten()
}

/// Runs code of `request`, and charges it with the CPU that it uses.
pub(in crate::server) fn run<R>(request: &Arc<Request>, code: impl FnOnce() -> R) -> R {
    let mut handle = Some(Arc::clone(request));
    run_with(&mut handle, code)
}

/// As [`run`], and the handle is back when the code has returned: lending one costs less than making one.
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
        let outer = THREAD.with_borrow_mut(|thread| {
            let now = thread.clock.ticks();
            let outer = thread.stop(now);
            thread.start(request, now);
            outer
        });
        Self { outer: charge(outer), is_over: false }
    }

    /// Returns whose it was.
    fn end(&mut self) -> Option<Arc<Request>> {
        self.is_over = true;
        let outer = self.outer.take();
        let ended = THREAD.with_borrow_mut(|thread| {
            let now = thread.clock.ticks();
            let ended = thread.stop(now);
            if let Some(outer) = outer {
                thread.start(outer, now);
            }
            ended
        });
        charge(ended)
    }
}

impl Drop for Section {
    fn drop(&mut self) {
        if !self.is_over {
            self.end();
        }
    }
}

/// Whose section it was, and what it used, in nanoseconds.
type Stopped = Option<(Arc<Request>, u64)>;

impl Thread {
    fn start(&mut self, request: Arc<Request>, now: u64) {
        self.clock.begin(now);
        self.running = Some(Running { request, since: now });
    }

    fn stop(&mut self, now: u64) -> Stopped {
        let Running { request, since } = self.running.take()?;
        let used = self.clock.end(since, now);
        Some((request, used))
    }
}

/// Outside of the thread's own state, for what follows from it may run code of others.
fn charge(stopped: Stopped) -> Option<Arc<Request>> {
    let (request, used) = stopped?;
    request.charge(used);
    Some(request)
}
