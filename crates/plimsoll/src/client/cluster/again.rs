//! Whether a request is sent again, and where: asked under the cluster's lock, where the budget is.

use std::time::Duration;

use plimsoll_core::retry::{Attempt, CallerAnswer, Failure, GiveUp, Places, Repeat, RetryPlan, RetryTarget, Verdict};
use plimsoll_core::throttle::{Loss, Wait};
use plimsoll_core::{BackendId, Completion, Criticality, Outcome, Ratio, Timestamp};

use super::Shared;
use super::machine::{Found, Kind, Machine};
use crate::client::failed_attempt::NoRetryReason;

/// A request that a backend may have seen and did not serve.
pub(crate) struct Ask<'a> {
    pub(crate) kind: Kind,
    /// Backends that did not serve it.
    pub(crate) tried: &'a [BackendId],
    /// How often it was sent.
    pub(crate) attempts: u32,
    /// How the last one failed.
    pub(crate) failure: Failure,
    pub(crate) is_idempotent: bool,
    /// The sent part of its body can be sent again.
    pub(crate) is_whole: bool,
    /// Bytes kept of its body.
    pub(crate) kept: usize,
    /// After this nobody wants its answer.
    pub(crate) deadline: Timestamp,
}

/// It is sent again.
pub(crate) enum Grant {
    /// At once, to this backend, where it counts as active.
    At(BackendId),
    /// After this time, to any. It holds these places until then.
    After(Duration, Places),
}

/// A retry, taken from the budget. Dropped before it is made (no backend was found, or the caller
/// left), it returns to the budget.
pub(crate) struct Retry<'a> {
    cluster: &'a Shared,
    kind: Kind,
    /// The places that its request waits in.
    places: Option<Places>,
    /// Why it is made.
    reason: &'static str,
    /// The advice for the caller if it is not made.
    caller_answer: CallerAnswer,
    is_made: bool,
}

impl Retry<'_> {
    /// An attempt begins that is this one.
    pub(crate) fn made(&mut self) {
        self.is_made = true;
        if let Some(places) = self.places.take() {
            self.cluster.machine.lock().waiting.give_back(self.kind.holders(), places);
        }
    }

    /// Its request waits in these places, until it is made or dropped.
    pub(crate) fn waits_in(&mut self, places: Places) {
        self.places = Some(places);
    }

    /// It has ended so.
    pub(crate) fn ended(self, outcome: &'static str) {
        self.cluster.machine.lock().counts.retried(self.reason, outcome);
    }

    /// It is not made after all.
    pub(crate) fn denied(self, why: NoRetryReason) -> Denial {
        Denial { why, caller_answer: self.caller_answer }
    }
}

impl Drop for Retry<'_> {
    fn drop(&mut self) {
        if !self.is_made {
            let mut machine = self.cluster.machine.lock();
            machine.budget.give_back(self.kind.operation);
            if let Some(places) = self.places.take() {
                machine.waiting.give_back(self.kind.holders(), places);
            }
        }
    }
}

/// It is not sent again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Denial {
    pub(crate) why: NoRetryReason,
    /// The advice for the caller.
    pub(crate) caller_answer: CallerAnswer,
}

impl Denial {
    /// The result is passed on unchanged.
    pub(crate) fn as_it_is(why: NoRetryReason) -> Self {
        Self { why, caller_answer: CallerAnswer::Answer }
    }
}

/// The client's throttling and its use of the retry budget.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Restraint {
    /// The share of the requests of each criticality that is not sent.
    pub held: [(Criticality, Ratio); Criticality::ALL.len()],
    /// How much of the budget for retries is used up.
    pub budget_used: Ratio,
}

/// From when on an answer was waited for.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Since {
    /// All of the request was sent by then.
    Sent(Timestamp),
    /// Its backend was picked then, and not all of it was sent.
    Picked(Timestamp),
}

/// An answer that did not come.
pub(crate) struct Unanswered {
    pub(crate) of_backend: Wait,
    pub(crate) of_all: Wait,
}

impl Shared {
    /// Whether the request is sent again, for `reason`.
    pub(crate) fn again(
        &self,
        now: Timestamp,
        reason: &'static str,
        ask: &Ask<'_>,
    ) -> Result<(Retry<'_>, Grant), Denial> {
        let (caller_answer, grant) = self.machine.lock().again(now, ask)?;
        Ok((Retry { cluster: self, kind: ask.kind, places: None, reason, caller_answer, is_made: false }, grant))
    }

    /// A backend for a retry after a wait: preferably none of `tried`, but one of them rather than
    /// none.
    pub(crate) fn pick_again(&self, now: Timestamp, kind: Kind, tried: &[BackendId]) -> Found {
        self.machine.lock().begin(now, kind, tried)
    }

    /// The unanswered wait for `id`, as the backend's watch and the cluster's watch see it. Call it
    /// once for each such request. `limit` is the longest time that the answer may take.
    pub(crate) fn unanswered(&self, id: BackendId, since: Since, limit: Duration) -> Unanswered {
        let now = self.now();
        let mut machine = self.machine.lock();
        let (waited, [of_backend, of_all]) = match since {
            Since::Sent(sent) => (now.since(sent), machine.unanswered(now, id, sent)),
            Since::Picked(picked) => (now.since(picked), [None; 2]),
        };
        let wait = |silence| Wait { waited, usual: machine.usual.latency(), limit, silence };
        Unanswered { of_backend: wait(of_backend), of_all: wait(of_all) }
    }

    /// The loss of a request sent at `sent`, as seen across all backends. Call it once per lost
    /// request.
    #[cold]
    pub(crate) fn lost(&self, sent: Timestamp) -> Loss {
        let now = self.now();
        let mut machine = self.machine.lock();
        Loss { silence: machine.lost(now, sent), usual: machine.usual.latency() }
    }

    /// A request that was to be sent was not, in the end.
    pub(crate) fn not_sent(&self, now: Timestamp, kind: Kind) {
        self.machine.lock().not_sent(now, kind);
    }

    /// Counts a failed request that is not retried.
    pub(crate) fn count_given_up(&self, given_up: NoRetryReason) {
        self.machine.lock().counts.given_up[given_up as usize] += 1;
    }
}

impl Machine {
    pub(super) fn restraint(&self, now: Timestamp) -> Restraint {
        let held = Criticality::ALL.map(|criticality| (criticality, self.throttle.throttled_share(now, criticality)));
        Restraint { held, budget_used: self.budget.used(now) }
    }

    /// The place and time of a retry, and the advice for the caller should it not be made.
    fn again(&mut self, now: Timestamp, ask: &Ask<'_>) -> Result<(CallerAnswer, Grant), Denial> {
        let is_layer = self.is_layer();
        let told = |caller_answer| if is_layer { caller_answer } else { CallerAnswer::Answer };
        let caller_answer = told(ask.failure.caller_answer());
        let attempt = Attempt {
            number: ask.attempts,
            failure: ask.failure,
            repeat: match (ask.is_whole, ask.is_idempotent) {
                (false, _) => Repeat::Impossible,
                (true, true) => Repeat::Safe,
                (true, false) => Repeat::Unsafe,
            },
            deadline: Some(ask.deadline),
            operation: ask.kind.operation,
            takes: self.usual.latency().unwrap_or_default(),
        };
        let policy = self.config.retry.attempts;
        match policy.decide(now, &attempt, &mut self.budget, &mut self.rng) {
            Verdict::GiveUp(why) => Err(Denial { why: given_up(why), caller_answer: told(why.caller_answer()) }),
            Verdict::Retry(RetryPlan { wait: Duration::ZERO, at: RetryTarget::OtherBackend }) => self
                .at_once(now, ask.kind, ask.tried)
                .map(|id| (caller_answer, Grant::At(id)))
                .map_err(|why| Denial { why, caller_answer }),
            Verdict::Retry(RetryPlan { wait, .. }) => match self.waiting.take(ask.kind.holders(), ask.kept) {
                Some(places) => Ok((caller_answer, Grant::After(wait, places))),
                None => {
                    self.budget.give_back(ask.kind.operation);
                    Err(Denial { why: NoRetryReason::TooManyWait, caller_answer })
                }
            },
        }
    }

    /// Whether this client is the layer that retries. With one backend it is not, and neither is a
    /// client that makes no second attempts: the layer above can ask other backends.
    fn is_layer(&self) -> bool {
        self.known() > 1 && self.config.retry.is_on()
    }

    /// A backend with headroom that the request was not at. It does not queue for one. Without one,
    /// the retry returns to the budget.
    pub(super) fn at_once(
        &mut self,
        now: Timestamp,
        kind: Kind,
        tried: &[BackendId],
    ) -> Result<BackendId, NoRetryReason> {
        let refused = match self.begin(now, kind, tried) {
            Found::Backend(id, _) if !tried.contains(&id) => return Ok(id),
            Found::Backend(id, _) => {
                let completion = Completion { outcome: Outcome::Cancelled, latency: None };
                self.slots.give_back(kind.holders());
                self.balancer.finish(now, id, completion, &mut ());
                self.not_sent(now, kind);
                NoRetryReason::NoOther
            }
            Found::Wait(..) => {
                self.not_sent(now, kind);
                NoRetryReason::NoOther
            }
            Found::NoBackend | Found::NoRoom => NoRetryReason::NoOther,
            Found::Held(_) => NoRetryReason::HeldBack,
        };
        self.budget.give_back(kind.operation);
        Err(refused)
    }
}

const fn given_up(why: GiveUp) -> NoRetryReason {
    match why {
        GiveUp::Attempts(_) => NoRetryReason::TooMany,
        GiveUp::Forbidden(_) => NoRetryReason::ToldNotTo,
        GiveUp::TooLong(_) => NoRetryReason::TooLong,
        GiveUp::Final => NoRetryReason::Final,
        GiveUp::Unsafe(_) => NoRetryReason::MayBeSeen,
        GiveUp::Impossible(_) => NoRetryReason::BodyIsGone,
        GiveUp::Deadline(_) => NoRetryReason::TooLate,
        GiveUp::Budget(_) => NoRetryReason::NoBudget,
    }
}
