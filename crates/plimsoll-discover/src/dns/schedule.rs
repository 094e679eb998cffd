//! Asks again and again: when an answer expires, and after errors with back-off.

use std::collections::BTreeSet;
use std::future::Future;
use std::hash::{BuildHasher as _, RandomState};
use std::time::Duration;

use plimsoll::address::Address;
use plimsoll::discover::Answer;
use plimsoll_core::discover::{Refresh, RefreshConfig};
use rand_core::{Rng as _, SeedableRng as _};
use rand_pcg::Pcg64Mcg;
use tokio::time::{Instant, sleep_until, timeout};

use super::servers::Ask;
use super::{ANSWER_TIMEOUT, DnsError, Failure, Found};

/// Longest time to the first question about a name with known addresses.
const FIRST_WAIT: Duration = Duration::from_secs(1);

/// A thing to ask DNS servers about.
pub(super) trait Question: Send + Sync {
    /// The name as the user wrote it.
    fn name(&self) -> &str;

    /// Asks once. Earlier answers stand in for parts that fail.
    fn ask(&mut self, ask: &impl Ask) -> impl Future<Output = Result<Found, Failure>> + Send;
}

/// A question that is asked again and again.
#[derive(Debug)]
pub(super) struct Schedule<Q, A> {
    question: Q,
    ask: A,
    refresh: Refresh,
    rng: Pcg64Mcg,
    /// When it is asked next. `None`: at once.
    due: Option<Instant>,
    /// The last answer never changes.
    is_over: bool,
    /// The addresses of the last answer.
    last: BTreeSet<Address>,
}

impl<Q: Question, A: Ask> Schedule<Q, A> {
    pub(super) fn new(question: Q, ask: A) -> Self {
        let rng = Pcg64Mcg::seed_from_u64(RandomState::new().hash_one(question.name()));
        let refresh = Refresh::new(RefreshConfig::default());
        Self { question, ask, refresh, rng, due: None, is_over: false, last: BTreeSet::new() }
    }

    pub(super) fn at(self, ask: A) -> Self {
        Self { ask, ..self }
    }

    /// The same where these addresses are known from elsewhere. The first question follows within a
    /// second, at random, since many names may be known at once.
    pub(super) fn after(mut self, known: &[Address]) -> Self {
        self.last = known.iter().copied().collect();
        let part = f64::from(self.rng.next_u32()) / f64::from(u32::MAX);
        self.due = Some(Instant::now() + FIRST_WAIT.mul_f64(part));
        self
    }

    /// The name as the user wrote it.
    pub(super) fn name(&self) -> &str {
        self.question.name()
    }

    /// The servers that it asks.
    pub(super) fn servers(&self) -> &A {
        &self.ask
    }

    /// Asks now.
    pub(super) async fn ask(&mut self) -> Result<Found, DnsError> {
        let answer = timeout(ANSWER_TIMEOUT, self.question.ask(&self.ask)).await;
        let answer = answer.unwrap_or(Err(Failure::Slow(ANSWER_TIMEOUT)));
        answer.map_err(|failure| DnsError { name: self.question.name().to_owned(), failure })
    }

    /// Asks when the last answer is over; `None` if it never is.
    pub(super) async fn next(&mut self) -> Option<Answer> {
        if self.is_over {
            return None;
        }
        if let Some(due) = self.due {
            sleep_until(due).await;
        }
        let answer = self.ask().await;
        let wait = match &answer {
            Ok(Found { endpoints, ttl }) => {
                let addresses = endpoints.iter().map(|endpoint| endpoint.address).collect();
                let lacks_some = !self.last.is_subset(&addresses);
                self.last = addresses;
                self.is_over = ttl.is_none();
                self.refresh.on_answer(ttl.unwrap_or_default(), lacks_some)
            }
            Err(_) => self.refresh.on_error(&mut self.rng),
        };
        self.due = Some(Instant::now() + wait);
        Some(answer.map(|found| found.endpoints).map_err(Into::into))
    }
}
