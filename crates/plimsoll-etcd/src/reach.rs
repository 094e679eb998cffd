//! Whether etcd answers: one log line when it is lost, one when it is back.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use http::uri::Authority;
use parking_lot::Mutex;
use tokio::time::Instant;

/// Time of streams that break one after the other, without any answer, after which etcd is lost. One
/// that moves to another endpoint needs less.
const PATIENCE: Duration = Duration::from_secs(5);

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
    /// When the first stream broke since then.
    broken: Option<Instant>,
}

impl Reach {
    pub(crate) fn new(endpoints: &[Authority]) -> Self {
        let endpoints = endpoints.iter().map(Authority::as_str).collect::<Vec<_>>().join(",");
        let state = Mutex::new(State { is_lost: false, answered: Instant::now(), broken: None });
        Self { endpoints, state, answers: AtomicU64::new(0), failures: AtomicU64::new(0) }
    }

    /// False after a request that no endpoint answered, if none answered another one since it began, and
    /// after streams that broke for 5 s. True before the first request.
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
        let before = std::mem::replace(&mut *state, State { is_lost: false, answered: now, broken: None });
        if before.is_lost {
            let seconds = now.duration_since(before.answered).as_secs_f64();
            tracing::info!(endpoints = self.endpoints, seconds, "etcd reachable again");
        }
    }

    /// No endpoint answered a request that began then. If another one had an answer since, etcd is there.
    pub(crate) fn lost(&self, began: Instant, error: &str) {
        self.failures.fetch_add(1, Ordering::Relaxed);
        let mut state = self.state.lock();
        if state.answered <= began {
            self.set_lost(&mut state, error);
        }
    }

    /// A stream broke. The next one may begin at another endpoint.
    pub(crate) fn broke(&self, error: &str) {
        self.failures.fetch_add(1, Ordering::Relaxed);
        let mut state = self.state.lock();
        if state.broken.get_or_insert_with(Instant::now).elapsed() >= PATIENCE {
            self.set_lost(&mut state, error);
        }
    }

    fn set_lost(&self, state: &mut State, error: &str) {
        if !std::mem::replace(&mut state.is_lost, true) {
            tracing::warn!(endpoints = self.endpoints, error, "etcd unreachable: members, numbers and limits stay");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn request_without_an_answer_means_that_etcd_is_lost_unless_another_had_one() {
        let reach = Reach::new(&[]);
        reach.lost(Instant::now(), "refused");
        assert!(!reach.is_reachable(), "there was no answer yet");
        let began = Instant::now();
        tokio::time::advance(Duration::from_secs(3)).await;
        reach.answered();
        reach.lost(began, "no answer within 3 s");
        assert!(reach.is_reachable(), "it was sent before the one that was answered");
        reach.lost(Instant::now(), "refused");
        assert!(!reach.is_reachable());
    }

    #[tokio::test(start_paused = true)]
    async fn streams_that_break_for_long_mean_that_etcd_is_lost() {
        let reach = Reach::new(&[]);
        for _ in 0..100 {
            reach.broke("no leader");
        }
        assert!(reach.is_reachable(), "many streams of one connection");
        tokio::time::advance(PATIENCE).await;
        reach.answered();
        reach.broke("no leader");
        assert!(reach.is_reachable(), "an answer in between");
        tokio::time::advance(PATIENCE).await;
        reach.broke("no leader");
        assert!(!reach.is_reachable());
        reach.answered();
        assert!(reach.is_reachable());
    }
}
