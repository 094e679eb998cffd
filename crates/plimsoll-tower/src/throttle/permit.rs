//! The throttle of a client, shared by its tasks, and the permit of a sent request.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use plimsoll_core::retry::Failure;
use plimsoll_core::throttle::{self, AttemptEvidence, Loss, SentRequest, Silence, ThrottlePolicy, Wait};
use plimsoll_core::{Criticality, Operation, Ratio, Rejection, Timestamp};
use rand_pcg::Pcg64Mcg;

use super::tally::Tallies;
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
    tallies: Tallies,
    state: Mutex<State>,
}

struct State {
    throttle: throttle::Throttle,
    silence: Silence,
    rng: Pcg64Mcg,
    /// The accepts of each tally that the machine has heard of.
    heard: [u64; Criticality::ALL.len()],
    /// When it heard of the last ones.
    heard_at: Timestamp,
}

impl Shared {
    /// The machine, after it has heard of all accepts so far. A change may begin or end a quiet time:
    /// call [`State::on_asked`] or [`State::on_ended`] after it.
    fn lock(&self, now: Timestamp) -> MutexGuard<'_, State> {
        let mut state = lock(&self.state);
        let before = std::mem::replace(&mut state.heard_at, now);
        for criticality in Criticality::ALL {
            let accepts = self.tallies.accepts(criticality);
            let heard = std::mem::replace(&mut state.heard[criticality.rank()], accepts);
            let new = u32::try_from(accepts.wrapping_sub(heard)).unwrap_or(u32::MAX);
            if new > 0 {
                // After an idle time, they are as old as the quiet time.
                let at = self.tallies.until(criticality).map_or(now, |until| until.min(now));
                state.throttle.on_quiet_accepts(at, criticality, new);
                // No later than the answers: a permit itself knows of answers since it began.
                state.silence.on_answer(before);
            }
        }
        state
    }
}

impl State {
    /// Begins or ends quiet times, after a request asked.
    fn on_asked(&self, now: Timestamp, tallies: &Tallies) {
        for criticality in Criticality::ALL {
            tallies.set_until(criticality, self.throttle.quiet_until(now, criticality));
        }
    }

    /// Begins or ends quiet times, after the end of a request. It prolongs none: the machine is to
    /// see a request now and then.
    fn on_ended(&self, now: Timestamp, tallies: &Tallies) {
        for criticality in Criticality::ALL {
            let until = self.throttle.quiet_until(now, criticality);
            tallies.set_until(criticality, until.map(|until| tallies.until(criticality).unwrap_or(until)));
        }
    }
}

/// A request as the machine sees it.
enum Sent {
    /// The machine decided on it.
    Asked(SentRequest),
    /// It was sent in a quiet time.
    Unasked(Criticality, Operation),
}

impl Sent {
    fn criticality(&self) -> Criticality {
        match self {
            Self::Asked(sent) => sent.criticality(),
            Self::Unasked(criticality, _) => *criticality,
        }
    }
}

/// A sent request. Its end is to be reported: see [`Report::end`].
///
/// If it is dropped instead, the caller abandoned the request. That is no evidence, unless it had
/// waited for half of its timeout.
#[must_use = "the throttle learns from ends: call `Report::end`, also after an error"]
pub struct Permit {
    shared: Arc<Shared>,
    /// `None` once the end is reported.
    sent: Option<Sent>,
    at: Timestamp,
    timeout: Option<Duration>,
    /// The accepts in quiet times before it was sent.
    accepts: u64,
}

impl Throttle {
    /// A throttle without history, which sends everything.
    #[must_use]
    pub fn new(policy: ThrottlePolicy) -> Self {
        Self::with_generator(policy, random::generator())
    }

    pub(super) fn with_generator(policy: ThrottlePolicy, rng: Pcg64Mcg) -> Self {
        let clock = Clock::start();
        let now = clock.now();
        let throttle = throttle::Throttle::new(now, policy);
        let state = State { throttle, silence: Silence::default(), rng, heard: Default::default(), heard_at: now };
        Self { shared: Arc::new(Shared { clock, tallies: Tallies::default(), state: Mutex::new(state) }) }
    }

    /// Decides on a request.
    ///
    /// # Errors
    /// The request is throttled: it must not be sent.
    pub fn begin(&self, facts: &RequestFacts) -> Result<Permit, Rejected> {
        let shared = &self.shared;
        let now = shared.clock.now();
        let sent = if shared.tallies.is_quiet(now, facts.criticality) {
            Sent::Unasked(facts.criticality, facts.operation)
        } else {
            let mut state = shared.lock(now);
            let State { throttle, rng, .. } = &mut *state;
            let begun = throttle.begin(now, facts.criticality, facts.operation, rng);
            state.on_asked(now, &shared.tallies);
            Sent::Asked(begun.map_err(|_| Rejected::new(Rejection::Throttled))?)
        };
        let accepts = shared.tallies.sum();
        Ok(Permit { shared: Arc::clone(shared), sent: Some(sent), at: now, timeout: facts.timeout, accepts })
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
        let tallies = &self.shared.tallies;
        if end.is_some_and(End::is_accepted) && tallies.accept(sent.criticality()) {
            return;
        }
        let now = self.shared.clock.now();
        let mut state = self.shared.lock(now);
        let State { throttle, silence, .. } = &mut *state;
        if end.is_some_and(End::is_answer) {
            silence.on_answer(now);
        }
        let evidence = match end {
            Some(End::Served | End::RateLimited(_) | End::Failed | End::Unavailable(_)) => AttemptEvidence::Answered,
            Some(End::Overloaded(_) | End::Busy(_)) => AttemptEvidence::Shed,
            Some(End::Throttled) => AttemptEvidence::Throttled,
            Some(End::ConnectRefused) => AttemptEvidence::ConnectRefused,
            Some(End::ConnectFailed | End::Broken) => {
                let is_silent = tallies.sum() == self.accepts;
                let silence = if is_silent { silence.on_loss(now, self.at) } else { None };
                AttemptEvidence::Lost(Loss { silence, usual: None })
            }
            // The service behind decided that the wait was too long.
            Some(End::TimedOut) => Failure::TimedOut.evidence(),
            Some(End::Rejected(_) | End::Cancelled) => AttemptEvidence::Cancelled,
            Some(End::TooLate) | None => self.wait(now).map_or(AttemptEvidence::Cancelled, AttemptEvidence::Unanswered),
        };
        match sent {
            Sent::Asked(sent) => throttle.end(now, sent, evidence.outcome()),
            Sent::Unasked(criticality, operation) => {
                throttle.on_outcome_of(now, criticality, operation, evidence.outcome());
            }
        }
        state.on_ended(now, tallies);
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
        f.debug_struct("Permit").field("at", &self.at).finish_non_exhaustive()
    }
}
