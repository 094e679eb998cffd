//! Two mistakes in the wiring of a lifecycle. Each is logged once.
//!
//! - **Never ready.** Requests arrive, but `ready` was never called. Every load report asks clients
//!   to send their requests elsewhere, so the server gets too little traffic and nothing fails.
//! - **Unawaited drain.** The signal was caught, but neither `serve` nor `shutdown` is awaited. The
//!   server is a lame duck for ever, and only SIGKILL ends the process.
//!
//! Both rules wait, because a warm-up takes time and code may begin to await the drain after the
//! signal. The never-ready rule runs with each request while the server starts. It takes no lock.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::time::Instant;

/// Time between the first request and the warning. It is longer than most warm-ups.
const READY_WITHIN: Duration = Duration::from_secs(30);

/// Time between the first signal and the warning. It is longer than the pause that some services
/// make before they stop, and shorter than the 30 s after which Kubernetes kills the process.
pub(super) const AWAITED_WITHIN: Duration = Duration::from_secs(15);

/// The facts about how a lifecycle is used.
#[derive(Debug, Default)]
pub(super) struct Neglect {
    /// The first request that came before `ready`.
    first_request: OnceLock<Instant>,
    never_ready_logged: AtomicBool,
    /// Some task awaited the drain, or watches the phase and may end the process by itself.
    is_awaited: AtomicBool,
    unawaited_logged: AtomicBool,
}

impl Neglect {
    /// A request came, and the server was not ready yet.
    pub(super) fn on_request_while_starting(&self, now: Instant) {
        let first = *self.first_request.get_or_init(|| now);
        if is_never_ready(first, now) && !self.never_ready_logged.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                help = "call Lifecycle::ready after the warm-up, or create the lifecycle with Lifecycle::serving",
                "server is used, but was never ready: its load reports ask clients to send elsewhere",
            );
        }
    }

    /// A task awaits the drain.
    pub(super) fn on_awaited(&self) {
        self.is_awaited.store(true, Ordering::Relaxed);
    }

    /// The server should end, and had enough time to begin to await it.
    pub(super) fn on_end_due(&self) {
        if !self.is_awaited.load(Ordering::Relaxed) && !self.unawaited_logged.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                help = "pass Lifecycle::shutdown to axum's with_graceful_shutdown or tonic's serve_with_shutdown, \
                    or use plimsoll::server::serve",
                "process will not end: no task awaits the drain",
            );
        }
    }
}

fn is_never_ready(first_request: Instant, now: Instant) -> bool {
    now.saturating_duration_since(first_request) >= READY_WITHIN
}
