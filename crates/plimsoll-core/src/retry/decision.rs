//! Whether a request that failed is tried again: the rules of [`retry`](super), in their order.

use core::time::Duration;

use rand_core::Rng;

use super::{Budget, MaxAttempts, jitter};
use crate::throttle::{Ended, Loss, Wait};
use crate::{Operation, Timestamp};

/// How requests of a cluster are tried again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RetryConfig {
    /// Attempts of one request, the first included.
    pub max_attempts: MaxAttempts,
    /// The longest wait before the first retry; doubles with each further one.
    pub backoff_base: Duration,
    /// The longest wait of all; at least the base.
    pub backoff_max: Duration,
}

impl RetryConfig {
    /// Some round trips within a datacenter; Envoy's, too.
    pub const DEFAULT_BACKOFF_BASE: Duration = Duration::from_millis(25);
    /// Ten times that: what takes longer is for whoever waits to decide.
    pub const DEFAULT_BACKOFF_MAX: Duration = Duration::from_millis(250);
    /// A wait that the other end names and that is longer is not waited for: the request is given up, and its caller told.
    pub const LONGEST_PUSHBACK: Duration = Duration::from_secs(10);
}

impl Default for RetryConfig {
    fn default() -> Self {
        Self {
            max_attempts: MaxAttempts::DEFAULT,
            backoff_base: Self::DEFAULT_BACKOFF_BASE,
            backoff_max: Self::DEFAULT_BACKOFF_MAX,
        }
    }
}

/// How an attempt failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// The backend answered that it has too much to do, or is going away: it did not look at the request.
    TurnedAway(Advice),
    /// The backend took it on, and held it back ([`throttle`](crate::throttle)) from one behind it that has too much to do: `throttled`.
    HeldBack,
    /// The connection broke with the answer outstanding; the backend may have done what was asked.
    Broken,
    /// No answer came within the time of an attempt; the backend may still be at it.
    TimedOut,
    /// The backend answered with a failure that may be its own, such as 502: it may have done what was asked.
    Failed(Advice),
    /// The backend answered with a failure that another would answer with, too, such as 500.
    Final,
}

/// What the answer says of trying again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Advice {
    /// Nothing.
    #[default]
    None,
    /// At another backend, at once.
    Elsewhere,
    /// Not before this time has passed (`Retry-After`, pushback).
    After(Duration),
    /// Not at all ("overloaded, don't retry"; negative pushback).
    Never,
}

/// Whether a request may be sent again after a backend may have seen it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Repeat {
    /// It is idempotent, by its method or because its caller says so, and its body, if it has one, is kept.
    Safe,
    /// It is not idempotent, and its body is kept.
    Unsafe,
    /// It cannot be sent again: its body was longer than what is kept, and some of it is gone.
    Impossible,
}

/// An attempt that failed, and what is known of its request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attempt {
    /// Attempts so far, this one included; from 1.
    pub number: u32,
    /// How it failed.
    pub failure: Failure,
    /// Whether its request may be sent again.
    pub repeat: Repeat,
    /// After this nobody wants the answer.
    pub deadline: Option<Timestamp>,
    /// The operation it asks for.
    pub operation: Operation,
    /// How long an attempt takes: the least that has to be left for another one to be of use, such as the median latency of the
    /// cluster. Zero where that is not known.
    pub takes: Duration,
}

/// Whether a request is tried again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Verdict {
    /// It is.
    Again(Again),
    /// It is not; its caller gets an answer.
    GiveUp(GiveUp),
}

/// When and where a request is tried again. It was taken from the budget.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Again {
    /// After so long; zero for at once.
    pub wait: Duration,
    /// Where.
    pub at: Where,
}

/// Where a request is tried again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Where {
    /// At a backend that it was not at yet, while there is one.
    Elsewhere,
    /// At any, after a wait that was named: the one that named it among them.
    Anywhere,
}

/// Why a request is not tried again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GiveUp {
    /// It had as many attempts as it may have.
    Attempts(Tells),
    /// The other end said not to.
    ToldNot(Tells),
    /// The other end named a wait that is longer than [`RetryConfig::LONGEST_PUSHBACK`].
    TooLong(Tells),
    /// Others would fail as well.
    Final,
    /// A backend may have done what was asked, and must not do it twice.
    Unsafe(Tells),
    /// Its body is gone.
    Impossible(Tells),
    /// It could not be answered before its deadline.
    Deadline(Tells),
    /// The client has sent as many retries as it can afford.
    Budget(Tells),
}

/// What the caller of one who gives up is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tells {
    /// What the backend answered.
    Answer,
    /// In place of what the backend answered: overloaded, don't retry. The caller's retry would only come back here, having cost more.
    DoNotRetry,
}

impl GiveUp {
    /// Its name in metrics and logs.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Attempts(_) => "attempts",
            Self::ToldNot(_) => "told-not",
            Self::TooLong(_) => "too-long",
            Self::Final => "final",
            Self::Unsafe(_) => "unsafe",
            Self::Impossible(_) => "impossible",
            Self::Deadline(_) => "deadline",
            Self::Budget(_) => "budget",
        }
    }

    /// What the caller is told.
    #[must_use]
    pub const fn tells(self) -> Tells {
        match self {
            Self::Final => Tells::Answer,
            Self::Attempts(tells)
            | Self::ToldNot(tells)
            | Self::TooLong(tells)
            | Self::Unsafe(tells)
            | Self::Impossible(tells)
            | Self::Deadline(tells)
            | Self::Budget(tells) => tells,
        }
    }
}

impl Failure {
    /// What a caller is told if this is the end.
    #[must_use]
    pub const fn tells(self) -> Tells {
        match self {
            // The wait is for the caller, who may have the time.
            Self::TurnedAway(Advice::After(_)) | Self::Failed(_) | Self::Final => Tells::Answer,
            // It says so already, and says more: a customer over its quota is to know that it is.
            Self::TurnedAway(Advice::Never) | Self::HeldBack => Tells::Answer,
            Self::TurnedAway(_) | Self::Broken | Self::TimedOut => Tells::DoNotRetry,
        }
    }

    const fn advice(self) -> Advice {
        match self {
            Self::TurnedAway(advice) | Self::Failed(advice) => advice,
            Self::HeldBack => Advice::Never,
            Self::Broken | Self::TimedOut | Self::Final => Advice::None,
        }
    }

    /// How it ended for a [`Throttle`](crate::throttle::Throttle), if an attempt has a time-out of its own and was given all of that.
    /// Of a connection that broke it is not known here whether anybody else was answered.
    #[must_use]
    pub const fn ended(self) -> Ended {
        match self {
            Self::HeldBack => Ended::HeldBack,
            Self::Failed(_) | Self::Final => Ended::Answered,
            Self::TurnedAway(_) => Ended::TurnedAway,
            Self::Broken => Ended::Lost(Loss { silence: None, usual: None }),
            Self::TimedOut => {
                Ended::Unanswered(Wait { waited: Duration::MAX, usual: None, limit: Duration::MAX, silence: None })
            }
        }
    }

    /// Whether a backend may have done what was asked.
    const fn may_be_done(self) -> bool {
        matches!(self, Self::Broken | Self::TimedOut | Self::Failed(_) | Self::Final)
    }
}

impl RetryConfig {
    /// Whether a request of which an attempt has failed is tried again; takes it from the budget if so. Ask once for each attempt that failed.
    pub fn decide(&self, now: Timestamp, attempt: &Attempt, budget: &mut Budget, rng: &mut impl Rng) -> Verdict {
        match self.allow(now, attempt, rng) {
            Ok(again) if budget.take(now, attempt.operation) => Verdict::Again(again),
            Ok(_) => Verdict::GiveUp(GiveUp::Budget(attempt.failure.tells())),
            Err(why) => Verdict::GiveUp(why),
        }
    }

    /// All rules but that of the budget.
    fn allow(&self, now: Timestamp, attempt: &Attempt, rng: &mut impl Rng) -> Result<Again, GiveUp> {
        let Attempt { number, failure, repeat, deadline, takes, operation: _ } = *attempt;
        let tells = failure.tells();
        let advice = failure.advice();
        match (failure, advice) {
            (Failure::Final, _) => return Err(GiveUp::Final),
            (_, Advice::Never) => return Err(GiveUp::ToldNot(tells)),
            (_, Advice::After(wait)) if wait > Self::LONGEST_PUSHBACK => return Err(GiveUp::TooLong(tells)),
            _ => {}
        }
        match repeat {
            Repeat::Impossible => return Err(GiveUp::Impossible(tells)),
            Repeat::Unsafe if failure.may_be_done() => return Err(GiveUp::Unsafe(tells)),
            Repeat::Safe | Repeat::Unsafe => {}
        }
        if number >= u32::from(self.max_attempts.get()) {
            return Err(GiveUp::Attempts(tells));
        }
        let ceiling = jitter::ceiling(self.backoff_base, self.backoff_max, number);
        let again = match advice {
            Advice::Elsewhere => Again { wait: Duration::ZERO, at: Where::Elsewhere },
            Advice::After(wait) => Again { wait: wait + jitter::within(ceiling, rng), at: Where::Anywhere },
            Advice::None | Advice::Never => Again { wait: jitter::within(ceiling, rng), at: Where::Elsewhere },
        };
        if deadline.is_some_and(|deadline| now + again.wait + takes >= deadline) {
            return Err(GiveUp::Deadline(tells));
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
    const OVERLOADED: Failure = Failure::TurnedAway(Advice::Elsewhere);

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
            Verdict::Again(_) => {
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
    fn each_rule_gives_up_for_its_reason_and_tells_the_caller() {
        use Tells::{Answer, DoNotRetry};
        let of = attempt(OVERLOADED);
        let minute = Duration::from_secs(60);
        for (attempt, expected) in [
            (of, None),
            (Attempt { number: 2, ..of }, None),
            (Attempt { number: 3, ..of }, Some(GiveUp::Attempts(DoNotRetry))),
            (attempt(Failure::TurnedAway(Advice::Never)), Some(GiveUp::ToldNot(Answer))),
            (attempt(Failure::TurnedAway(Advice::After(minute))), Some(GiveUp::TooLong(Answer))),
            (attempt(Failure::TurnedAway(Advice::After(Duration::from_secs(1)))), None),
            (attempt(Failure::HeldBack), Some(GiveUp::ToldNot(Answer))),
            (attempt(Failure::Final), Some(GiveUp::Final)),
            (attempt(Failure::Failed(Advice::Never)), Some(GiveUp::ToldNot(Answer))),
            (attempt(Failure::Broken), None),
            (Attempt { repeat: Repeat::Unsafe, ..attempt(Failure::Broken) }, Some(GiveUp::Unsafe(DoNotRetry))),
            (
                Attempt { repeat: Repeat::Unsafe, ..attempt(Failure::Failed(Advice::None)) },
                Some(GiveUp::Unsafe(Answer)),
            ),
            // What was turned away was not done.
            (Attempt { repeat: Repeat::Unsafe, ..of }, None),
            (Attempt { repeat: Repeat::Impossible, ..of }, Some(GiveUp::Impossible(DoNotRetry))),
            (Attempt { deadline: Some(secs(1)), ..of }, None),
            (
                Attempt { deadline: Some(secs(1)), takes: Duration::from_secs(1), ..of },
                Some(GiveUp::Deadline(DoNotRetry)),
            ),
            (
                Attempt {
                    deadline: Some(secs(1)),
                    ..attempt(Failure::TurnedAway(Advice::After(Duration::from_secs(1))))
                },
                Some(GiveUp::Deadline(Answer)),
            ),
        ] {
            assert_eq!(why(&attempt), expected, "{attempt:?}");
        }
    }

    #[test]
    fn without_budget_it_is_given_up_and_nobody_above_tries_again() {
        let (verdict, _) = decide(&attempt(OVERLOADED), BudgetConfig { share: Ratio::ZERO, floor: 0 });
        assert_eq!(verdict, Verdict::GiveUp(GiveUp::Budget(Tells::DoNotRetry)));
    }

    #[test]
    fn elsewhere_is_at_once_and_a_named_wait_is_waited() {
        let Verdict::Again(again) = decide(&attempt(OVERLOADED), RICH).0 else { panic!("given up") };
        assert_eq!(again, Again { wait: Duration::ZERO, at: Where::Elsewhere });
        let named = Duration::from_secs(2);
        let (verdict, _) = decide(&attempt(Failure::TurnedAway(Advice::After(named))), RICH);
        let Verdict::Again(again) = verdict else { panic!("given up") };
        assert_eq!(again.at, Where::Anywhere);
        assert!((named..named + RetryConfig::DEFAULT_BACKOFF_BASE).contains(&again.wait), "{again:?}");
    }

    /// Seed 3, n = 1,000 waits, uniform in [0, 25 ms): mean 12.5 ± 0.23; five standard errors, false alarm 6e-7.
    #[test]
    fn waits_are_spread_over_all_of_the_backoff() {
        let (mut rng, mut budget) = (Pcg64Mcg::seed_from_u64(3), Budget::new(secs(0), RICH));
        let mut waits = [Duration::ZERO; 1_000];
        for wait in &mut waits {
            let verdict = RetryConfig::default().decide(secs(0), &attempt(Failure::TimedOut), &mut budget, &mut rng);
            let Verdict::Again(again) = verdict else { panic!("given up") };
            *wait = again.wait;
        }
        let mean = waits.iter().sum::<Duration>().as_secs_f64();
        assert!((mean - 12.5).abs() < 1.15, "{mean} ms");
        assert!(waits.iter().all(|wait| *wait < RetryConfig::DEFAULT_BACKOFF_BASE));
        assert!(waits.iter().any(|wait| *wait < Duration::from_millis(1)));
    }

    #[test]
    fn longest_named_wait_is_still_waited_for() {
        let after = |wait| why(&attempt(Failure::TurnedAway(Advice::After(wait))));
        assert_eq!(after(RetryConfig::LONGEST_PUSHBACK), None);
        let longer = RetryConfig::LONGEST_PUSHBACK + Duration::from_nanos(1);
        assert_eq!(after(longer), Some(GiveUp::TooLong(Tells::Answer)));
    }
}
