//! Requeuing: whether and when a failed batch request waits again, and its meaning for credit.
//!
//! | failure | requeued | counts as overload of backends |
//! |---|---|---|
//! | no backend to ask, or no connection | yes | yes |
//! | shed for certain (`overloaded`, `throttled`, ...) | if its body is kept | yes |
//! | broken connection; 502, 503 without reason | if idempotent, body kept, a few times | yes |
//! | told not to retry | no | yes |
//! | customer over its quota; deadline | no | no |
//!
//! # A request that always fails
//!
//! Some requests fail at every backend: those that crash the server, or those of a customer that a
//! backend sheds. A gate that serves the oldest first and takes each failure for a sign of overload
//! would send nothing else, ever more slowly, with all others behind. So
//!
//! - each request waits by itself before it is requeued, twice as long with each failure, at random
//!   from half to one and a half of that;
//! - while nothing is accepted, a requeued request waits behind all others
//!   ([`Gate::enter`](super::Gate::enter)), so that the next probe is another one;
//! - a failure that the failures of others do not explain is the request's own
//!   ([`History::is_suspect`]): from then on it says nothing of the backends.
//!
//! ```text
//! P = Π (r + 1) ÷ (a + r + 1)          over its further attempts
//! suspect: P < 1 ÷ 10, and a > 0 before its last attempt: if nothing is accepted, the service fails
//!
//! a, r: accepted and rejected attempts of all requests, between its last failure and its next attempt
//! ```
//!
//! Why not a number of attempts? When a service is down, each request fails often, and all of that
//! is the fault of the service. When half of the requests are rejected, one in eight fails three
//! times in a row.
//!
//! # When a request gives up
//!
//! A request that may have been served, or may have broken the connection, is not retried for as
//! long as its wait allows. A suspect with P below 1 ÷ 1000 gives up, and any request after
//! [`MAX_UNCERTAIN`] such failures. Its client gets the failure as the response.

use core::time::Duration;

use super::queue::Age;
use crate::retry::Repeat;
use crate::{Criticality, Random, Rejection, rng};

/// The number of uncertain failures at which a request gives up: failures after which it may have
/// been served. With the pauses between them they take some five seconds, enough for a service to
/// restart. And a request that breaks servers has broken no more than this many.
pub const MAX_UNCERTAIN: u32 = 8;
/// The chance of a request's failures, by the failures of others, below which credit ignores them.
/// That is far from certain. But until it were, each failure would cost all requests a rest. And if
/// a tenth of the rejections is ignored, the others still count.
const SUSPECT_CHANCE: f64 = 0.1;
/// The chance below which a suspect that may break servers gives up. A request that breaks none
/// loses its answer.
const GIVE_UP_CHANCE: f64 = 0.001;
/// The pause after the first failure: the same as the first rest of [`credit`](super::credit).
const PAUSE: Duration = Duration::from_millis(50);
/// The longest pause, before its random factor: the same as the longest rest, so that a single
/// waiting request notices the recovery of a service as soon.
const MAX_PAUSE: Duration = Duration::from_secs(2);
/// The longest pause of a suspect, which credit does not slow down.
const MAX_SUSPECT_PAUSE: Duration = Duration::from_secs(10);
/// The longest pushback that is obeyed. A longer one is shortened to it, since credit already
/// limits the rate of requests to a backend.
const MAX_PUSHBACK: Duration = Duration::from_secs(10);

/// The failure of an attempt at batch work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// Nothing was sent: there was no backend, or no connection to it.
    Unsent,
    /// The backend rejected the request for this reason, or this side did.
    Rejected(Rejection),
    /// The backend forbade a retry without a reason.
    ToldNot,
    /// The backend failed in a way that may soon be over, such as 503; it may have served the
    /// request.
    Unavailable,
    /// The connection broke before the answer; the backend may have served the request.
    Broken,
    /// No answer came in time.
    TimedOut,
    /// Every backend would fail as well.
    Final,
}

impl Failure {
    /// Whether it is a sign of overload, or of an unreachable service.
    #[must_use]
    pub const fn is_rejection(self) -> bool {
        match self {
            Self::Rejected(reason) => reason.row().batch.is_some(),
            _ => !matches!(self, Self::Final),
        }
    }

    /// Whether the backend may have served the request.
    const fn is_uncertain(self) -> bool {
        matches!(self, Self::Unavailable | Self::Broken)
    }
}

/// A failed attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchFailure {
    /// The failure.
    pub failure: Failure,
    /// Whether the request may be sent again.
    pub repeat: Repeat,
    /// The pushback of the backend, if there is one.
    pub after: Option<Duration>,
}

/// The reason for not requeuing a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GiveUpReason {
    /// The backend forbade a retry.
    ToldNot,
    /// A backend may have served it, and must not do so twice.
    Unsafe,
    /// Its body is not kept.
    Impossible,
    /// It keeps failing, and others do not.
    Attempts,
    /// It was not answered in time.
    TooLate,
    /// Every backend would fail as well.
    Final,
}

/// The history of a request at the gate, from its arrival on.
#[derive(Clone, Debug)]
pub struct History {
    criticality: Criticality,
    /// `None` before its arrival.
    pub(super) age: Option<Age>,
    failures: u32,
    uncertain: u32,
    last: Option<Failure>,
    /// The chance of all its failures but the first, if they are not its own fault.
    chance: f64,
    is_suspect: bool,
    /// Outcomes of all requests at its last failure.
    seen: Outcomes,
}

/// Accepted and rejected attempts so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Outcomes {
    pub(super) accepted: u64,
    pub(super) rejected: u64,
}

impl History {
    /// The history of a request that is about to arrive.
    #[must_use]
    pub fn new(criticality: Criticality) -> Self {
        let seen = Outcomes::default();
        Self { criticality, age: None, failures: 0, uncertain: 0, last: None, chance: 1.0, is_suspect: false, seen }
    }

    /// The criticality of the request.
    #[must_use]
    pub const fn criticality(&self) -> Criticality {
        self.criticality
    }

    /// Its position among requests of the same criticality; `None` before its arrival.
    #[must_use]
    pub const fn age(&self) -> Option<Age> {
        self.age
    }

    /// Whether its failures are its own fault: it fails too much more often than others.
    #[must_use]
    pub const fn is_suspect(&self) -> bool {
        self.is_suspect
    }

    /// The reason for its client when its wait is abandoned.
    #[must_use]
    pub const fn reason(&self) -> Rejection {
        match self.last {
            Some(Failure::Unsent) => Rejection::NoBackend,
            Some(Failure::Rejected(reason)) => match reason.row().batch {
                Some(reason) => reason,
                None => Rejection::Overloaded,
            },
            _ => Rejection::Overloaded,
        }
    }

    /// The request goes to a backend.
    pub(super) fn sent(&mut self, outcomes: Outcomes) {
        if self.failures == 0 {
            return;
        }
        let accepted = outcomes.accepted.saturating_sub(self.seen.accepted) as f64;
        let rejected = outcomes.rejected.saturating_sub(self.seen.rejected) as f64 + 1.0;
        self.chance *= rejected / (accepted + rejected);
        self.is_suspect = accepted > 0.0 && self.chance < SUSPECT_CHANCE;
    }

    /// The request has failed. Returns the pause before it is requeued.
    pub(super) fn fail(
        &mut self,
        outcomes: Outcomes,
        failed: &BatchFailure,
        rng: &mut impl Random,
    ) -> Result<Duration, GiveUpReason> {
        let BatchFailure { failure, repeat, after } = *failed;
        self.failures = self.failures.saturating_add(1);
        self.uncertain += u32::from(failure.is_uncertain());
        (self.last, self.seen) = (Some(failure), outcomes);
        match (failure, repeat) {
            (Failure::TimedOut, _) => return Err(GiveUpReason::TooLate),
            (Failure::Final, _) => return Err(GiveUpReason::Final),
            (Failure::ToldNot, _) => return Err(GiveUpReason::ToldNot),
            (Failure::Rejected(reason), _) if reason.row().batch.is_none() => return Err(GiveUpReason::ToldNot),
            (Failure::Unsent, _) => {}
            (_, Repeat::Impossible) => return Err(GiveUpReason::Impossible),
            (Failure::Unavailable | Failure::Broken, Repeat::Unsafe) => return Err(GiveUpReason::Unsafe),
            (Failure::Unavailable | Failure::Broken, Repeat::Safe)
                if self.is_suspect && self.chance < GIVE_UP_CHANCE || self.uncertain >= MAX_UNCERTAIN =>
            {
                return Err(GiveUpReason::Attempts);
            }
            _ => {}
        }
        let longest = if self.is_suspect() { MAX_SUSPECT_PAUSE } else { MAX_PAUSE };
        let pause = PAUSE.saturating_mul(1 << (self.failures - 1).min(16)).min(longest);
        Ok(after.unwrap_or_default().min(MAX_PUSHBACK) + pause.mul_f64(0.5 + rng::unit(rng)))
    }
}

#[cfg(test)]
mod tests {
    use rand_core::SeedableRng as _;
    use rand_pcg::Pcg64Mcg;

    use super::*;

    fn rng() -> Pcg64Mcg {
        Pcg64Mcg::seed_from_u64(1)
    }

    fn history() -> History {
        History::new(Criticality::Sheddable)
    }

    fn failed(failure: Failure, repeat: Repeat) -> BatchFailure {
        BatchFailure { failure, repeat, after: None }
    }

    #[test]
    fn failed_request_is_requeued_only_if_it_may_be_sent_again() {
        use Failure::{Broken, Final, Rejected, TimedOut, ToldNot, Unavailable, Unsent};
        use Rejection::{Deadline, LameDuck, NoBackend, Overloaded, OverloadedNoRetry, Quota, Saturated, Throttled};
        use Repeat::{Impossible, Safe, Unsafe};
        for (failures, repeat, expected) in [
            (&[Unsent][..], Impossible, None),
            (&[Overloaded, OverloadedNoRetry, Throttled, LameDuck, Saturated, NoBackend].map(Rejected), Unsafe, None),
            (&[Unsent], Unsafe, None),
            (&[Unavailable, Broken], Safe, None),
            (&[Unavailable, Broken], Unsafe, Some(GiveUpReason::Unsafe)),
            (&[Unavailable, Broken, Rejected(Overloaded)], Impossible, Some(GiveUpReason::Impossible)),
            (&[Rejected(Quota), Rejected(Deadline), ToldNot], Safe, Some(GiveUpReason::ToldNot)),
            (&[TimedOut], Safe, Some(GiveUpReason::TooLate)),
            (&[Final], Safe, Some(GiveUpReason::Final)),
        ] {
            for failure in failures {
                let next = history().fail(Outcomes::default(), &failed(*failure, repeat), &mut rng());
                assert_eq!(next.err(), expected, "{failure:?} {repeat:?}");
            }
        }
    }

    #[test]
    fn failure_that_forbids_a_retry_is_a_rejection() {
        assert!(Failure::ToldNot.is_rejection() && Failure::Rejected(Rejection::Overloaded).is_rejection());
        assert!(
            !Failure::Rejected(Rejection::Quota).is_rejection()
                && !Failure::Rejected(Rejection::Deadline).is_rejection()
        );
    }

    #[test]
    fn pauses_double_up_to_two_seconds_after_what_the_backend_names() {
        let (mut history, mut rng) = (history(), rng());
        let overloaded = failed(Failure::Rejected(Rejection::Overloaded), Repeat::Unsafe);
        for mean in [50, 100, 200, 400, 800, 1_600, 2_000, 2_000] {
            let pause = history.fail(Outcomes::default(), &overloaded, &mut rng).unwrap().as_millis();
            assert!((mean / 2..=mean * 3 / 2).contains(&pause), "{pause} ms, not about {mean}");
        }
        let after = Some(Duration::from_secs(60));
        let named = history.fail(Outcomes::default(), &BatchFailure { after, ..overloaded }, &mut rng).unwrap();
        assert!((11_000..=13_000).contains(&named.as_millis()), "{named:?}");
    }

    #[test]
    fn request_that_fails_alone_is_suspect_and_soon_gives_up() {
        let (mut history, mut rng, mut outcomes) = (history(), rng(), Outcomes::default());
        for attempt in 1.. {
            history.sent(outcomes);
            match history.fail(outcomes, &failed(Failure::Broken, Repeat::Safe), &mut rng) {
                Ok(_) => outcomes.accepted += 20,
                Err(why) => {
                    // 1/21 · 1/21 · 1/21.
                    assert_eq!((attempt, why), (4, GiveUpReason::Attempts));
                    return;
                }
            }
        }
    }

    #[test]
    fn no_request_is_suspect_while_nothing_is_accepted() {
        let (mut history, mut rng, mut outcomes) = (history(), rng(), Outcomes { accepted: 9_000, rejected: 0 });
        for attempt in 1..=MAX_UNCERTAIN {
            history.sent(outcomes);
            assert!(!history.is_suspect());
            let next = history.fail(outcomes, &failed(Failure::Unavailable, Repeat::Safe), &mut rng);
            assert_eq!(next.is_err(), attempt == MAX_UNCERTAIN);
            outcomes.rejected += 3;
        }
    }

    #[test]
    fn suspect_is_cleared_when_the_service_goes_down() {
        let (mut history, mut rng, mut outcomes) = (history(), rng(), Outcomes::default());
        let overloaded = failed(Failure::Rejected(Rejection::Overloaded), Repeat::Safe);
        for _ in 0..9 {
            history.sent(outcomes);
            assert!(history.fail(outcomes, &overloaded, &mut rng).is_ok(), "it was not looked at, and waits on");
            outcomes.accepted += 100;
        }
        assert!(history.is_suspect());
        let pause = history.fail(outcomes, &overloaded, &mut rng).unwrap();
        assert!((5..=15).contains(&pause.as_secs()), "{pause:?}");
        outcomes.rejected += 1;
        history.sent(outcomes);
        assert!(!history.is_suspect());
    }

    #[test]
    fn abandoned_request_gets_the_reason_of_its_last_failure() {
        let mut history = history();
        assert_eq!(history.reason(), Rejection::Overloaded);
        for (failure, told) in [
            (Failure::Unsent, Rejection::NoBackend),
            (Failure::Rejected(Rejection::NoBackend), Rejection::NoBackend),
            (Failure::Rejected(Rejection::Saturated), Rejection::Saturated),
            (Failure::Rejected(Rejection::Throttled), Rejection::Throttled),
            (Failure::Rejected(Rejection::LameDuck), Rejection::LameDuck),
            (Failure::Rejected(Rejection::Overloaded), Rejection::Overloaded),
            (Failure::Rejected(Rejection::OverloadedNoRetry), Rejection::Overloaded),
            (Failure::Broken, Rejection::Overloaded),
        ] {
            let _ = history.fail(Outcomes::default(), &failed(failure, Repeat::Safe), &mut rng());
            assert_eq!(history.reason(), told, "{failure:?}");
        }
    }

    /// A failed request, after `accepted` and `rejected` attempts of others.
    fn after(accepted: u64, rejected: u64) -> History {
        let mut history = history();
        let _ = history.fail(Outcomes::default(), &failed(Failure::Broken, Repeat::Safe), &mut rng());
        history.sent(Outcomes { accepted, rejected });
        history
    }

    #[test]
    fn request_is_suspect_when_nine_in_ten_of_the_others_are_accepted() {
        for (accepted, rejected, is_suspect) in
            [(0, 0, false), (1, 0, false), (9, 0, false), (10, 0, true), (19, 1, true), (18, 1, false)]
        {
            assert_eq!(after(accepted, rejected).is_suspect(), is_suspect, "{accepted}, {rejected}");
        }
    }

    #[test]
    fn suspect_gives_up_when_one_in_a_thousand_would_fail_so() {
        for (accepted, expected) in [(999, None), (1_000, Some(GiveUpReason::Attempts))] {
            let mut history = after(accepted, 0);
            let broken = failed(Failure::Broken, Repeat::Safe);
            let next = history.fail(Outcomes { accepted, rejected: 0 }, &broken, &mut rng());
            assert_eq!(next.err(), expected, "{accepted}");
        }
    }

    #[test]
    fn rejections_do_not_count_as_uncertain_failures() {
        let (mut history, mut rng) = (history(), rng());
        for _ in 0..2 * MAX_UNCERTAIN {
            let overloaded = failed(Failure::Rejected(Rejection::Overloaded), Repeat::Safe);
            assert!(history.fail(Outcomes::default(), &overloaded, &mut rng).is_ok());
        }
        assert!(history.fail(Outcomes::default(), &failed(Failure::Broken, Repeat::Safe), &mut rng).is_ok());
    }
}
