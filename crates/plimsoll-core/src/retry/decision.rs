//! Decision on the retry of a failed request: the rules of [`retry`](super), in their order.

use core::time::Duration;

use super::{Budget, MaxAttempts, Withdrawal, jitter};
use crate::throttle::{AttemptEvidence, Loss, Wait};
use crate::{Operation, Random, Timestamp};

/// Settings for the retries of a cluster's requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RetryConfig {
    /// Attempts of one request, the first included.
    pub max_attempts: MaxAttempts,
    /// The longest wait before the first retry; doubles with each further one.
    pub backoff_base: Duration,
    /// The longest wait before any retry; at least the base.
    pub backoff_max: Duration,
    /// The longest pushback that the client waits for. With a longer one it gives up and passes the
    /// answer to its caller.
    pub pushback_max: Duration,
}

impl RetryConfig {
    /// Some round trips within a datacenter; Envoy's, too.
    pub const DEFAULT_BACKOFF_BASE: Duration = Duration::from_millis(25);
    /// Ten times the base: a longer wait is the caller's decision.
    pub const DEFAULT_BACKOFF_MAX: Duration = Duration::from_millis(250);
    /// The shortest time that `Retry-After` can name. For a longer one the caller is the better
    /// place to wait: it may ask elsewhere, and holds nobody's memory but its own.
    pub const DEFAULT_PUSHBACK_MAX: Duration = Duration::from_secs(1);
    /// One attempt, so no retries.
    pub const OFF: Self = Self::of(MaxAttempts::ONE);

    const fn of(max_attempts: MaxAttempts) -> Self {
        Self {
            max_attempts,
            backoff_base: Self::DEFAULT_BACKOFF_BASE,
            backoff_max: Self::DEFAULT_BACKOFF_MAX,
            pushback_max: Self::DEFAULT_PUSHBACK_MAX,
        }
    }
}

impl Default for RetryConfig {
    fn default() -> Self {
        Self::of(MaxAttempts::DEFAULT)
    }
}

/// Failure of an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// The backend was overloaded or is a lame duck: it did not process the request.
    Shed(Advice),
    /// The backend accepted the request, but [throttled](crate::throttle) it toward an overloaded
    /// backend of its own: `throttled`.
    Throttled,
    /// The connection broke before the answer; the backend may have served the request.
    Broken,
    /// The attempt timed out; the backend may still be serving it.
    TimedOut,
    /// The attempt outlasted its share of the request's time, and is still out. It is abandoned only
    /// if another may be made.
    Overdue,
    /// The backend failed in a way that may be its own, such as 502. It may have served the
    /// request.
    Failed(Advice),
    /// The backend failed in a way that another would, too, such as 500.
    Final,
}

/// Advice on retries in an answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Advice {
    /// No advice.
    #[default]
    None,
    /// Retry at another backend, at once.
    Elsewhere,
    /// Retry after this time (`Retry-After`, pushback).
    After(Duration),
    /// Do not retry ("overloaded, don't retry"; negative pushback).
    Never,
}

/// Whether a request may be sent again after a backend may have seen it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Repeat {
    /// Idempotent, by its method or its caller's word, and its body, if any, is kept.
    Safe,
    /// Not idempotent, and its body is kept.
    Unsafe,
    /// Cannot be sent again: its body exceeded the replay limit, and part of it is gone.
    Impossible,
}

/// A failed attempt and its request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attempt {
    /// Number of attempts, this one included; from 1.
    pub number: u32,
    /// The failure of this attempt.
    pub failure: Failure,
    /// Whether the request may be sent again.
    pub repeat: Repeat,
    /// End of the caller's interest in the answer.
    pub deadline: Option<Timestamp>,
    /// The request's operation.
    pub operation: Operation,
    /// Expected duration of an attempt, such as the median latency of the cluster. A retry needs at
    /// least this time before the deadline. Zero if unknown.
    pub takes: Duration,
}

/// Decision on a retry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Verdict {
    /// Retry.
    Retry(RetryPlan),
    /// Give up; the caller gets an answer.
    GiveUp(GiveUp),
}

/// Time and place of a retry, which is withdrawn from the budget already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RetryPlan {
    /// Wait before the retry; zero for none.
    pub wait: Duration,
    /// Backends for the retry.
    pub at: RetryTarget,
}

/// Backends for a retry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RetryTarget {
    /// A backend without an earlier attempt of this request, if there is one.
    OtherBackend,
    /// Any backend, after a pushback: the one that sent it included.
    AnyBackend,
}

/// Reason to give up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GiveUp {
    /// The limit of attempts was reached.
    Attempts(CallerAnswer),
    /// The answer forbade retries.
    Forbidden(CallerAnswer),
    /// The pushback exceeds [`RetryConfig::pushback_max`].
    TooLong(CallerAnswer),
    /// Other backends would fail as well.
    Final,
    /// A backend may have served the request, which must not be served twice.
    Unsafe(CallerAnswer),
    /// Part of the request's body is gone.
    Impossible(CallerAnswer),
    /// No answer could arrive before the deadline.
    Deadline(CallerAnswer),
    /// The retry budget is exhausted.
    Budget(CallerAnswer),
}

/// Answer to the caller after giving up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallerAnswer {
    /// The backend's answer.
    Answer,
    /// "Overloaded, don't retry" in place of the backend's answer. A retry of the caller would
    /// arrive here again, at a higher cost.
    DoNotRetry,
}

impl GiveUp {
    /// The reason's name in metrics and logs.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Attempts(_) => "attempts",
            Self::Forbidden(_) => "told-not",
            Self::TooLong(_) => "too-long",
            Self::Final => "final",
            Self::Unsafe(_) => "unsafe",
            Self::Impossible(_) => "impossible",
            Self::Deadline(_) => "deadline",
            Self::Budget(_) => "budget",
        }
    }

    /// The answer to the caller.
    #[must_use]
    pub const fn caller_answer(self) -> CallerAnswer {
        match self {
            Self::Final => CallerAnswer::Answer,
            Self::Attempts(caller_answer)
            | Self::Forbidden(caller_answer)
            | Self::TooLong(caller_answer)
            | Self::Unsafe(caller_answer)
            | Self::Impossible(caller_answer)
            | Self::Deadline(caller_answer)
            | Self::Budget(caller_answer) => caller_answer,
        }
    }
}

impl Failure {
    /// The answer to the caller if this failure is the last.
    #[must_use]
    pub const fn caller_answer(self) -> CallerAnswer {
        match self {
            // The wait is for the caller, which may have the time.
            Self::Shed(Advice::After(_)) | Self::Failed(_) | Self::Final | Self::Overdue => CallerAnswer::Answer,
            // The answer forbids retries already, and says more: a customer over its quota should
            // learn of it.
            Self::Shed(Advice::Never) | Self::Throttled => CallerAnswer::Answer,
            Self::Shed(_) | Self::Broken | Self::TimedOut => CallerAnswer::DoNotRetry,
        }
    }

    const fn advice(self) -> Advice {
        match self {
            Self::Shed(advice) | Self::Failed(advice) => advice,
            Self::Throttled => Advice::Never,
            // It has waited already.
            Self::Overdue => Advice::Elsewhere,
            Self::Broken | Self::TimedOut | Self::Final => Advice::None,
        }
    }

    /// The end of the attempt for a [`Throttle`](crate::throttle::Throttle). A timeout counts as
    /// one of the attempt's own that was used up. A broken connection has no evidence of silence:
    /// answers to others are unknown here.
    #[must_use]
    pub const fn evidence(self) -> AttemptEvidence {
        match self {
            Self::Throttled => AttemptEvidence::Throttled,
            Self::Failed(_) | Self::Final => AttemptEvidence::Answered,
            Self::Shed(_) => AttemptEvidence::Shed,
            Self::Broken => AttemptEvidence::Lost(Loss { silence: None, usual: None }),
            Self::TimedOut | Self::Overdue => AttemptEvidence::Unanswered(Wait {
                waited: Duration::MAX,
                usual: None,
                limit: Duration::MAX,
                silence: None,
            }),
        }
    }

    /// Whether a backend may have served the request.
    const fn may_be_done(self) -> bool {
        matches!(self, Self::Broken | Self::TimedOut | Self::Overdue | Self::Failed(_) | Self::Final)
    }
}

impl RetryConfig {
    /// Decides whether to retry a request after a failed attempt, and if so withdraws from the
    /// budget. Ask once for each failed attempt.
    pub fn decide(&self, now: Timestamp, attempt: &Attempt, budget: &mut Budget, rng: &mut impl Random) -> Verdict {
        match self.plan(now, attempt, budget, rng) {
            Ok((again, withdrawal)) => {
                withdrawal.spend();
                Verdict::Retry(again)
            }
            Err(why) => Verdict::GiveUp(why),
        }
    }

    /// As [`decide`](Self::decide), with a token for the withdrawn retry. Refund it if the retry is
    /// not sent.
    ///
    /// # Errors
    /// The reason to give up.
    pub fn plan(
        &self,
        now: Timestamp,
        attempt: &Attempt,
        budget: &mut Budget,
        rng: &mut impl Random,
    ) -> Result<(RetryPlan, Withdrawal), GiveUp> {
        let again = self.allow(now, attempt, rng)?;
        let withdrawal = budget.withdraw(now, attempt.operation);
        withdrawal.map(|it| (again, it)).ok_or(GiveUp::Budget(attempt.failure.caller_answer()))
    }

    /// All rules except the budget's.
    fn allow(&self, now: Timestamp, attempt: &Attempt, rng: &mut impl Random) -> Result<RetryPlan, GiveUp> {
        let Attempt { number, failure, repeat, deadline, takes, operation: _ } = *attempt;
        let caller_answer = failure.caller_answer();
        let advice = failure.advice();
        match (failure, advice) {
            (Failure::Final, _) => return Err(GiveUp::Final),
            (_, Advice::Never) => return Err(GiveUp::Forbidden(caller_answer)),
            (_, Advice::After(wait)) if wait > self.pushback_max => return Err(GiveUp::TooLong(caller_answer)),
            _ => {}
        }
        match repeat {
            Repeat::Impossible => return Err(GiveUp::Impossible(caller_answer)),
            Repeat::Unsafe if failure.may_be_done() => return Err(GiveUp::Unsafe(caller_answer)),
            Repeat::Safe | Repeat::Unsafe => {}
        }
        if number >= u32::from(self.max_attempts.get()) {
            return Err(GiveUp::Attempts(caller_answer));
        }
        let ceiling = jitter::ceiling(self.backoff_base, self.backoff_max, number);
        let again = match advice {
            Advice::Elsewhere => RetryPlan { wait: Duration::ZERO, at: RetryTarget::OtherBackend },
            Advice::After(wait) => RetryPlan { wait: wait + jitter::within(ceiling, rng), at: RetryTarget::AnyBackend },
            Advice::None | Advice::Never => {
                RetryPlan { wait: jitter::within(ceiling, rng), at: RetryTarget::OtherBackend }
            }
        };
        if deadline.is_some_and(|deadline| now + again.wait + takes >= deadline) {
            return Err(GiveUp::Deadline(caller_answer));
        }
        Ok(again)
    }
}

#[cfg(test)]
mod tests {
    use rand_core::SeedableRng as _;
    use rand_pcg::Pcg64Mcg;

    use super::*;
    use crate::Ratio;
    use crate::retry::BudgetConfig;

    const RICH: BudgetConfig = BudgetConfig { share: Ratio::ONE, floor: u32::MAX };
    const OVERLOADED: Failure = Failure::Shed(Advice::Elsewhere);

    fn secs(secs: u64) -> Timestamp {
        Timestamp::from_origin(Duration::from_secs(secs))
    }

    fn attempt(failure: Failure) -> Attempt {
        Attempt {
            number: 1,
            failure,
            repeat: Repeat::Safe,
            deadline: None,
            operation: Operation::UNKNOWN,
            takes: Duration::ZERO,
        }
    }

    fn decide(attempt: &Attempt, config: BudgetConfig) -> (Verdict, Budget) {
        let mut budget = Budget::new(secs(0), config);
        let mut rng = Pcg64Mcg::seed_from_u64(1);
        (RetryConfig::default().decide(secs(0), attempt, &mut budget, &mut rng), budget)
    }

    fn why(attempt: &Attempt) -> Option<GiveUp> {
        let (verdict, budget) = decide(attempt, RICH);
        match verdict {
            Verdict::Retry(_) => {
                assert!(budget.used(secs(0)).as_f64() > 0.0);
                None
            }
            Verdict::GiveUp(why) => {
                assert_eq!(budget.used(secs(0)), Ratio::ZERO, "nothing is taken in vain");
                Some(why)
            }
        }
    }

    #[test]
    fn rule_gives_up_with_its_reason_and_answer() {
        use CallerAnswer::{Answer, DoNotRetry};
        let of = attempt(OVERLOADED);
        let minute = Duration::from_secs(60);
        for (attempt, expected) in [
            (of, None),
            (Attempt { number: 2, ..of }, None),
            (Attempt { number: 3, ..of }, Some(GiveUp::Attempts(DoNotRetry))),
            (attempt(Failure::Shed(Advice::Never)), Some(GiveUp::Forbidden(Answer))),
            (attempt(Failure::Shed(Advice::After(minute))), Some(GiveUp::TooLong(Answer))),
            (attempt(Failure::Shed(Advice::After(Duration::from_secs(1)))), None),
            (attempt(Failure::Throttled), Some(GiveUp::Forbidden(Answer))),
            (attempt(Failure::Final), Some(GiveUp::Final)),
            (attempt(Failure::Failed(Advice::Never)), Some(GiveUp::Forbidden(Answer))),
            (attempt(Failure::Broken), None),
            (Attempt { repeat: Repeat::Unsafe, ..attempt(Failure::Broken) }, Some(GiveUp::Unsafe(DoNotRetry))),
            // It may still be served where it is.
            (attempt(Failure::Overdue), None),
            (Attempt { repeat: Repeat::Unsafe, ..attempt(Failure::Overdue) }, Some(GiveUp::Unsafe(Answer))),
            (Attempt { number: 3, ..attempt(Failure::Overdue) }, Some(GiveUp::Attempts(Answer))),
            (
                Attempt { repeat: Repeat::Unsafe, ..attempt(Failure::Failed(Advice::None)) },
                Some(GiveUp::Unsafe(Answer)),
            ),
            // A rejected request was not served.
            (Attempt { repeat: Repeat::Unsafe, ..of }, None),
            (Attempt { repeat: Repeat::Impossible, ..of }, Some(GiveUp::Impossible(DoNotRetry))),
            (Attempt { deadline: Some(secs(1)), ..of }, None),
            (
                Attempt { deadline: Some(secs(1)), takes: Duration::from_secs(1), ..of },
                Some(GiveUp::Deadline(DoNotRetry)),
            ),
            (
                Attempt { deadline: Some(secs(1)), ..attempt(Failure::Shed(Advice::After(Duration::from_secs(1)))) },
                Some(GiveUp::Deadline(Answer)),
            ),
        ] {
            assert_eq!(why(&attempt), expected, "{attempt:?}");
        }
    }

    #[test]
    fn caller_is_told_not_to_retry_when_the_budget_is_exhausted() {
        let (verdict, _) = decide(&attempt(OVERLOADED), BudgetConfig { share: Ratio::ZERO, floor: 0 });
        assert_eq!(verdict, Verdict::GiveUp(GiveUp::Budget(CallerAnswer::DoNotRetry)));
    }

    #[test]
    fn retry_elsewhere_is_immediate_and_pushback_is_obeyed() {
        let Verdict::Retry(again) = decide(&attempt(OVERLOADED), RICH).0 else { panic!("given up") };
        assert_eq!(again, RetryPlan { wait: Duration::ZERO, at: RetryTarget::OtherBackend });
        let Verdict::Retry(of_overdue) = decide(&attempt(Failure::Overdue), RICH).0 else { panic!("given up") };
        assert_eq!(of_overdue, again, "it has waited already");
        let named = Duration::from_millis(700);
        let (verdict, _) = decide(&attempt(Failure::Shed(Advice::After(named))), RICH);
        let Verdict::Retry(again) = verdict else { panic!("given up") };
        assert_eq!(again.at, RetryTarget::AnyBackend);
        assert!((named..named + RetryConfig::DEFAULT_BACKOFF_BASE).contains(&again.wait), "{again:?}");
    }

    /// Seed 3, n = 1,000 waits, uniform in [0, 25 ms): mean 12.5 ± 0.23; five standard errors,
    /// false alarm 6e-7.
    #[test]
    fn waits_are_spread_over_all_of_the_backoff() {
        let (mut rng, mut budget) = (Pcg64Mcg::seed_from_u64(3), Budget::new(secs(0), RICH));
        let mut waits = [Duration::ZERO; 1_000];
        for wait in &mut waits {
            let verdict = RetryConfig::default().decide(secs(0), &attempt(Failure::TimedOut), &mut budget, &mut rng);
            let Verdict::Retry(again) = verdict else { panic!("given up") };
            *wait = again.wait;
        }
        let mean = waits.iter().sum::<Duration>().as_secs_f64();
        assert!((mean - 12.5).abs() < 1.15, "{mean} ms");
        assert!(waits.iter().all(|wait| *wait < RetryConfig::DEFAULT_BACKOFF_BASE));
        assert!(waits.iter().any(|wait| *wait < Duration::from_millis(1)));
    }

    #[test]
    fn maximum_pushback_is_obeyed() {
        let after = |wait| why(&attempt(Failure::Shed(Advice::After(wait))));
        assert_eq!(after(RetryConfig::DEFAULT_PUSHBACK_MAX), None);
        let longer = RetryConfig::DEFAULT_PUSHBACK_MAX + Duration::from_nanos(1);
        assert_eq!(after(longer), Some(GiveUp::TooLong(CallerAnswer::Answer)));
    }
}
