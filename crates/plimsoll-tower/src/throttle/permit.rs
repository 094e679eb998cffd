//! The throttle of a client, shared by its tasks, and the permit of a sent request.

use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use plimsoll_core::retry::Failure;
use plimsoll_core::throttle::{self, AttemptEvidence, Loss, SentRequest, Silence, ThrottlePolicy, Wait};
use plimsoll_core::{Criticality, Ratio, Rejection, Timestamp};
use rand_pcg::Pcg64Mcg;

use crate::clock::Clock;
use crate::lock::lock;
use crate::{End, Rejected, Report, RequestFacts, random};

/// The throttle of one client toward one cluster. Clones share it.
#[derive(Clone)]
pub struct Throttle {
    shared: Arc<Shared>,
}

struct Shared {
    clock: Clock,
    state: Mutex<State>,
}

struct State {
    throttle: throttle::Throttle,
    silence: Silence,
    rng: Pcg64Mcg,
}

/// A sent request. Its end is to be reported: see [`Report::end`].
///
/// If it is dropped instead, the caller abandoned the request. That is no evidence, unless it had
/// waited for half of its timeout.
#[must_use = "the throttle learns from ends: call `Report::end`, also after an error"]
pub struct Permit {
    shared: Arc<Shared>,
    /// `None` once the end is reported.
    sent: Option<SentRequest>,
    at: Timestamp,
    timeout: Option<Duration>,
}

impl Throttle {
    /// A throttle without history, which sends everything.
    #[must_use]
    pub fn new(policy: ThrottlePolicy) -> Self {
        let clock = Clock::start();
        let throttle = throttle::Throttle::new(clock.now(), policy);
        let state = State { throttle, silence: Silence::default(), rng: random::generator() };
        Self { shared: Arc::new(Shared { clock, state: Mutex::new(state) }) }
    }

    /// Decides on a request.
    ///
    /// # Errors
    /// The request is throttled: it must not be sent.
    pub fn begin(&self, facts: &RequestFacts) -> Result<Permit, Rejected> {
        let now = self.shared.clock.now();
        let begun = {
            let State { throttle, rng, .. } = &mut *lock(&self.shared.state);
            throttle.begin(now, facts.criticality, facts.operation, rng)
        };
        match begun {
            Ok(sent) => {
                Ok(Permit { shared: Arc::clone(&self.shared), sent: Some(sent), at: now, timeout: facts.timeout })
            }
            Err(_) => Err(Rejected::new(Rejection::Throttled)),
        }
    }

    /// The throttled share of requests of this criticality, for display.
    #[must_use]
    pub fn throttled_share(&self, criticality: Criticality) -> Ratio {
        let now = self.shared.clock.now();
        lock(&self.shared.state).throttle.throttled_share(now, criticality)
    }
}

impl Default for Throttle {
    fn default() -> Self {
        Self::new(ThrottlePolicy::default())
    }
}

impl Permit {
    /// Reports the end of the request.
    pub fn end(mut self, end: End) {
        self.settle(Some(end));
    }

    /// Reports the end; `None` if the caller abandoned the request.
    fn settle(&mut self, end: Option<End>) {
        let Some(sent) = self.sent.take() else { return };
        let now = self.shared.clock.now();
        let State { throttle, silence, .. } = &mut *lock(&self.shared.state);
        if end.is_some_and(End::is_answer) {
            silence.on_answer(now);
        }
        let evidence = match end {
            Some(End::Served | End::RateLimited | End::Failed | End::Unavailable(_)) => AttemptEvidence::Answered,
            Some(End::Overloaded(_)) => AttemptEvidence::Shed,
            Some(End::Throttled) => AttemptEvidence::Throttled,
            Some(End::ConnectRefused) => AttemptEvidence::ConnectRefused,
            Some(End::ConnectFailed | End::Broken) => {
                AttemptEvidence::Lost(Loss { silence: silence.on_loss(now, self.at), usual: None })
            }
            // The service behind decided that the wait was too long.
            Some(End::TimedOut) => Failure::TimedOut.evidence(),
            Some(End::Rejected(_) | End::Cancelled) => AttemptEvidence::Cancelled,
            Some(End::TooLate) | None => self.wait(now).map_or(AttemptEvidence::Cancelled, AttemptEvidence::Unanswered),
        };
        throttle.end(now, sent, evidence.outcome());
    }

    /// The wait until now, relative to the timeout of the request.
    fn wait(&self, now: Timestamp) -> Option<Wait> {
        self.timeout.map(|limit| Wait { waited: now.since(self.at), usual: None, limit, silence: None })
    }
}

impl Report for Permit {
    fn end(self, end: End) {
        Self::end(self, end);
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.settle(None);
    }
}

impl fmt::Debug for Throttle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Throttle").field("policy", &lock(&self.shared.state).throttle.policy()).finish_non_exhaustive()
    }
}

impl fmt::Debug for Permit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Permit").field("sent", &self.sent).field("at", &self.at).finish_non_exhaustive()
    }
}
