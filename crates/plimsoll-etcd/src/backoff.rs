//! The time before something is done again after an error.

use std::time::Duration;

use rand_core::Rng as _;
use rand_pcg::Pcg64Mcg;

use crate::rng::rng;

/// The first time. It doubles up to the last one.
const FIRST: Duration = Duration::from_millis(100);
/// The last one: etcd that is back is found so soon.
const MAX: Duration = Duration::from_secs(2);
/// The last one after a refusal, which only a person ends: a right that is missing, a prefix that is
/// too large.
const MAX_REFUSED: Duration = Duration::from_secs(15);

/// Times that double, each half to one and a half of it: clients that lost one endpoint together do
/// not reach the next one together.
#[derive(Debug)]
pub struct Backoff {
    next: Duration,
    rng: Pcg64Mcg,
}

impl Default for Backoff {
    fn default() -> Self {
        Self::new()
    }
}

impl Backoff {
    /// Before the first error.
    #[must_use]
    pub fn new() -> Self {
        Self { next: FIRST, rng: rng() }
    }

    /// After a success.
    pub fn reset(&mut self) {
        self.next = FIRST;
    }

    /// Waits, longer after each error.
    pub async fn wait(&mut self) {
        self.wait_up_to(MAX).await;
    }

    /// Waits after an answer of etcd that will be the same next time.
    pub async fn wait_after_refusal(&mut self) {
        self.wait_up_to(MAX_REFUSED).await;
    }

    async fn wait_up_to(&mut self, max: Duration) {
        let next = self.next.min(max);
        let wait = next.mul_f64(0.5 + f64::from(self.rng.next_u32()) / f64::from(u32::MAX));
        self.next = 2 * next;
        tokio::time::sleep(wait).await;
    }
}
