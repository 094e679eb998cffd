//! Whether etcd answers: one log line when it is lost, one when it is back.

use std::sync::atomic::{AtomicU64, Ordering};

use http::uri::Authority;
use parking_lot::Mutex;
use tokio::time::Instant;

/// Whether etcd answers, and counts since the start.
#[derive(Debug)]
pub struct Reach {
    endpoints: String,
    state: Mutex<State>,
    answers: AtomicU64,
    failures: AtomicU64,
}

#[derive(Debug)]
struct State {
    is_lost: bool,
    /// When it answered last, or the start.
    answered: Instant,
}

impl Reach {
    pub(crate) fn new(endpoints: &[Authority]) -> Self {
        let endpoints = endpoints.iter().map(Authority::as_str).collect::<Vec<_>>().join(",");
        let state = Mutex::new(State { is_lost: false, answered: Instant::now() });
        Self { endpoints, state, answers: AtomicU64::new(0), failures: AtomicU64::new(0) }
    }

    /// Whether the last request had an answer. True before the first one.
    #[must_use]
    pub fn is_reachable(&self) -> bool {
        !self.state.lock().is_lost
    }

    /// Answers to requests, messages of watches and renewals of leases.
    #[must_use]
    pub fn answers(&self) -> u64 {
        self.answers.load(Ordering::Relaxed)
    }

    /// Requests without an answer of any endpoint, and watches and renewals that broke.
    #[must_use]
    pub fn failures(&self) -> u64 {
        self.failures.load(Ordering::Relaxed)
    }

    pub(crate) fn answered(&self) {
        self.answers.fetch_add(1, Ordering::Relaxed);
        let now = Instant::now();
        let mut state = self.state.lock();
        let before = std::mem::replace(&mut state.answered, now);
        if std::mem::take(&mut state.is_lost) {
            let seconds = now.duration_since(before).as_secs_f64();
            tracing::info!(endpoints = self.endpoints, seconds, "etcd reachable again");
        }
    }

    pub(crate) fn lost(&self, error: &str) {
        self.failures.fetch_add(1, Ordering::Relaxed);
        if !std::mem::replace(&mut self.state.lock().is_lost, true) {
            tracing::warn!(endpoints = self.endpoints, error, "etcd unreachable: members, numbers and limits stay");
        }
    }

    /// A stream broke. The next request tells whether etcd is lost.
    pub(crate) fn broke(&self) {
        self.failures.fetch_add(1, Ordering::Relaxed);
    }
}
