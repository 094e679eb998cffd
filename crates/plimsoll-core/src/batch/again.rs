//! What becomes of a batch request that failed: whether it goes back to where it waits, when, and what its failure says of the backends.
//!
//! | failure | goes back | says of backends that there is too much to do |
//! |---|---|---|
//! | nobody could be asked, or no connection be made | yes | yes |
//! | turned away for certain (`overloaded`, `throttled`, ...) | if its body is kept | yes |
//! | a connection that broke; 502 or 503 and no word why | if it is idempotent and its body is kept, a few times | yes |
//! | told not to come again | no | yes |
//! | a customer over its quota; a deadline | no | no |
//!
//! # One that always fails
//!
//! Some requests fail whoever is asked: those that crash what serves them, or of a customer whom a backend turns away. A gate that serves the
//! oldest first and takes each failure for a sign of overload would ask for nothing else, ever more slowly, with all others behind. So
//!
//! - each waits by itself before it goes back, twice as long with each failure, from half to one and a half of it at random;
//! - while nothing is accepted, one that comes back goes behind all that wait ([`Gate::enter`](super::Gate::enter)), so that the next probe is
//!   another;
//! - a failure that others' luck does not explain is its own ([`History::is_suspect`]): it says nothing of the backends any more.
//!
//! ```text
//! P = Π (r + 1) ÷ (a + r + 1)          over its further attempts
//! suspect: P < 1 ÷ 10, and a > 0 before the last of them: where nothing is accepted, all of it is the service's
//!
//! a, r: how many were accepted and rejected of all, between its last failure and its next attempt
//! ```
//!
//! Why not a number of attempts? When a service is down, each request fails often, and all of it is the service's; when half of what is sent
//! is rejected, one in eight fails three times in a row.
//!
//! # When it is given up
//!
//! What may have been carried out, or may be what broke the connection, is not tried for as long as there is time: not by a suspect whose P is
//! below 1 ÷ 1000, and not more than [`MOST_UNCERTAIN`] times by any. Its client gets to see how it failed.

use core::time::Duration;

use rand_core::Rng;

use super::queue::Age;
use crate::retry::Repeat;
use crate::{Criticality, rng};

/// Failures of one request after which it may have been carried out. With the pauses between them they take some five seconds, in which a
/// service restarts; and a request that breaks what serves it has broken no more than so many.
pub const MOST_UNCERTAIN: u32 = 8;
/// Credit does not hear of failures that others' luck makes less likely than this. That is far from certain; but until it were, each would cost
/// everybody a rest, and where a tenth of the rejections is not heard, the others still are.
const UNLIKELY: f64 = 0.1;
/// What may break what serves it is given up then: it costs a request that does not its answer.
const MOST_UNLIKELY: f64 = 0.001;
/// The pause after the first failure: as the first rest of [`credit`](super::credit).
const PAUSE: Duration = Duration::from_millis(50);
/// The longest pause, before chance: as the longest rest, so that one that waits alone notices as soon that a service is back.
const LONGEST_PAUSE: Duration = Duration::from_secs(2);
/// The same for a suspect, which credit does not slow down.
const LONGEST_OF_SUSPECTS: Duration = Duration::from_secs(10);
/// The longest time that a backend may name to come again after; a longer one is shortened to it, since credit keeps it from being
/// asked too often.
const LONGEST_AFTER: Duration = Duration::from_secs(10);

/// How an attempt at batch work failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// Nothing was sent: there was no backend, or no connection to it.
    Unsent,
    /// No backend had room; or the one that was asked found none behind it that has.
    Saturated,
    /// The backend found none behind it.
    NoneBehind,
    /// The backend did not look at it, having too much to do.
    Overloaded,
    /// The backend held it back from one behind it that has too much to do.
    Throttled,
    /// The backend is going away, and did not look at it.
    LameDuck,
    /// Its customer has used up what it may.
    Quota,
    /// The backend says that its time is over.
    Deadline,
    /// The backend says not to come again, and not why.
    ToldNot,
    /// The backend failed in a way that may be over soon, such as 503; it may have carried the request out.
    Unavailable,
    /// The connection broke with the answer outstanding; the backend may have carried the request out.
    Broken,
    /// No answer came in time.
    TimedOut,
    /// Others would fail as well.
    Final,
}

impl Failure {
    /// Whether it says that there is too much to do, or nobody to do it.
    #[must_use]
    pub const fn is_rejection(self) -> bool {
        !matches!(self, Self::Quota | Self::Deadline | Self::Final)
    }

    /// Whether the backend may have carried the request out.
    const fn is_uncertain(self) -> bool {
        matches!(self, Self::Unavailable | Self::Broken)
    }
}

/// An attempt that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Failed {
    /// How.
    pub failure: Failure,
    /// Whether its request may be sent again.
    pub repeat: Repeat,
    /// When to come again, if the backend says so.
    pub after: Option<Duration>,
}

/// Why a request does not go back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GiveUp {
    /// The backend said not to come again.
    ToldNot,
    /// A backend may have carried it out, and must not do so twice.
    Unsafe,
    /// Its body is gone.
    Impossible,
    /// It fails again and again, and others do not.
    Attempts,
    /// It was not answered in time.
    TooLate,
    /// Others would fail as well.
    Final,
}

/// Why nobody took a request for as long as it could wait, as its client is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// Backends have too much to do, or credit did not reach so far.
    Overloaded,
    /// Backends hold it back from others behind them.
    Throttled,
    /// The backend is going away.
    LameDuck,
    /// No backend has room.
    Saturated,
    /// No backend can be asked.
    NoBackend,
}

/// What is known of a request at the gate, from when it comes.
#[derive(Clone, Debug)]
pub struct History {
    criticality: Criticality,
    /// `None` until it comes.
    pub(super) age: Option<Age>,
    failures: u32,
    uncertain: u32,
    last: Option<Failure>,
    /// Of all its failures but the first, were they none of its own.
    chance: f64,
    is_suspect: bool,
    /// What had become of all others when it failed last.
    seen: Outcomes,
}

/// How many were accepted so far, and how many rejected.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Outcomes {
    pub(super) accepted: u64,
    pub(super) rejected: u64,
}

impl History {
    /// Of a request that is about to come.
    #[must_use]
    pub fn new(criticality: Criticality) -> Self {
        let seen = Outcomes::default();
        Self { criticality, age: None, failures: 0, uncertain: 0, last: None, chance: 1.0, is_suspect: false, seen }
    }

    /// How important the request is.
    #[must_use]
    pub const fn criticality(&self) -> Criticality {
        self.criticality
    }

    /// By when it goes among others of its criticality; `None` until it comes.
    #[must_use]
    pub const fn age(&self) -> Option<Age> {
        self.age
    }

    /// Whether it fails so often where others do not that it is not the backends' fault.
    #[must_use]
    pub const fn is_suspect(&self) -> bool {
        self.is_suspect
    }

    /// What its client is told if it has waited for as long as it may.
    #[must_use]
    pub const fn told(&self) -> Reason {
        match self.last {
            Some(Failure::Unsent | Failure::NoneBehind) => Reason::NoBackend,
            Some(Failure::Saturated) => Reason::Saturated,
            Some(Failure::Throttled) => Reason::Throttled,
            Some(Failure::LameDuck) => Reason::LameDuck,
            _ => Reason::Overloaded,
        }
    }

    /// It goes to a backend.
    pub(super) fn sent(&mut self, outcomes: Outcomes) {
        if self.failures == 0 {
            return;
        }
        let accepted = outcomes.accepted.saturating_sub(self.seen.accepted) as f64;
        let rejected = outcomes.rejected.saturating_sub(self.seen.rejected) as f64 + 1.0;
        self.chance *= rejected / (accepted + rejected);
        self.is_suspect = accepted > 0.0 && self.chance < UNLIKELY;
    }

    /// It has failed. Returns after which pause it goes back.
    pub(super) fn fail(&mut self, outcomes: Outcomes, failed: &Failed, rng: &mut impl Rng) -> Result<Duration, GiveUp> {
        let Failed { failure, repeat, after } = *failed;
        self.failures = self.failures.saturating_add(1);
        self.uncertain += u32::from(failure.is_uncertain());
        (self.last, self.seen) = (Some(failure), outcomes);
        match (failure, repeat) {
            (Failure::TimedOut, _) => return Err(GiveUp::TooLate),
            (Failure::Final, _) => return Err(GiveUp::Final),
            (Failure::Quota | Failure::Deadline | Failure::ToldNot, _) => return Err(GiveUp::ToldNot),
            (Failure::Unsent, _) => {}
            (_, Repeat::Impossible) => return Err(GiveUp::Impossible),
            (Failure::Unavailable | Failure::Broken, Repeat::Unsafe) => return Err(GiveUp::Unsafe),
            (Failure::Unavailable | Failure::Broken, Repeat::Safe)
                if self.is_suspect && self.chance < MOST_UNLIKELY || self.uncertain >= MOST_UNCERTAIN =>
            {
                return Err(GiveUp::Attempts);
            }
            _ => {}
        }
        let longest = if self.is_suspect() { LONGEST_OF_SUSPECTS } else { LONGEST_PAUSE };
        let pause = PAUSE.saturating_mul(1 << (self.failures - 1).min(16)).min(longest);
        Ok(after.unwrap_or_default().min(LONGEST_AFTER) + pause.mul_f64(0.5 + rng::unit(rng)))
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

    fn failed(failure: Failure, repeat: Repeat) -> Failed {
        Failed { failure, repeat, after: None }
    }

    #[test]
    fn what_goes_back_is_what_may_be_sent_again() {
        use Failure::{
            Broken, Deadline, Final, LameDuck, NoneBehind, Overloaded, Quota, Saturated, Throttled, TimedOut, ToldNot,
            Unavailable, Unsent,
        };
        use Repeat::{Impossible, Safe, Unsafe};
        for (failures, repeat, expected) in [
            (&[Unsent][..], Impossible, None),
            (&[Unsent, Overloaded, Throttled, LameDuck, Saturated, NoneBehind], Unsafe, None),
            (&[Unavailable, Broken], Safe, None),
            (&[Unavailable, Broken], Unsafe, Some(GiveUp::Unsafe)),
            (&[Unavailable, Broken, Overloaded], Impossible, Some(GiveUp::Impossible)),
            (&[Quota, Deadline, ToldNot], Safe, Some(GiveUp::ToldNot)),
            (&[TimedOut], Safe, Some(GiveUp::TooLate)),
            (&[Final], Safe, Some(GiveUp::Final)),
        ] {
            for failure in failures {
                let next = history().fail(Outcomes::default(), &failed(*failure, repeat), &mut rng());
                assert_eq!(next.err(), expected, "{failure:?} {repeat:?}");
            }
        }
    }

    #[test]
    fn who_is_told_not_to_come_again_was_rejected_all_the_same() {
        assert!(Failure::ToldNot.is_rejection() && Failure::Overloaded.is_rejection());
        assert!(!Failure::Quota.is_rejection() && !Failure::Deadline.is_rejection());
    }

    #[test]
    fn pauses_double_up_to_two_seconds_after_what_the_backend_names() {
        let (mut history, mut rng) = (history(), rng());
        let turned_away = failed(Failure::Overloaded, Repeat::Unsafe);
        for mean in [50, 100, 200, 400, 800, 1_600, 2_000, 2_000] {
            let pause = history.fail(Outcomes::default(), &turned_away, &mut rng).unwrap().as_millis();
            assert!((mean / 2..=mean * 3 / 2).contains(&pause), "{pause} ms, not about {mean}");
        }
        let after = Some(Duration::from_secs(60));
        let named = history.fail(Outcomes::default(), &Failed { after, ..turned_away }, &mut rng).unwrap();
        assert!((11_000..=13_000).contains(&named.as_millis()), "{named:?}");
    }

    #[test]
    fn one_that_fails_where_others_do_not_is_suspect_and_soon_given_up() {
        let (mut history, mut rng, mut outcomes) = (history(), rng(), Outcomes::default());
        for attempt in 1.. {
            history.sent(outcomes);
            match history.fail(outcomes, &failed(Failure::Broken, Repeat::Safe), &mut rng) {
                Ok(_) => outcomes.accepted += 20,
                Err(why) => {
                    // 1/21 · 1/21 · 1/21.
                    assert_eq!((attempt, why), (4, GiveUp::Attempts));
                    return;
                }
            }
        }
    }

    #[test]
    fn where_nothing_is_accepted_nobody_is_suspect_and_what_is_uncertain_ends_all_the_same() {
        let (mut history, mut rng, mut outcomes) = (history(), rng(), Outcomes { accepted: 9_000, rejected: 0 });
        for attempt in 1..=MOST_UNCERTAIN {
            history.sent(outcomes);
            assert!(!history.is_suspect());
            let next = history.fail(outcomes, &failed(Failure::Unavailable, Repeat::Safe), &mut rng);
            assert_eq!(next.is_err(), attempt == MOST_UNCERTAIN);
            outcomes.rejected += 3;
        }
    }

    #[test]
    fn a_suspect_is_none_any_more_when_the_service_goes_down() {
        let (mut history, mut rng, mut outcomes) = (history(), rng(), Outcomes::default());
        let turned_away = failed(Failure::Overloaded, Repeat::Safe);
        for _ in 0..9 {
            history.sent(outcomes);
            assert!(history.fail(outcomes, &turned_away, &mut rng).is_ok(), "it was not looked at, and waits on");
            outcomes.accepted += 100;
        }
        assert!(history.is_suspect());
        let pause = history.fail(outcomes, &turned_away, &mut rng).unwrap();
        assert!((5..=15).contains(&pause.as_secs()), "{pause:?}");
        outcomes.rejected += 1;
        history.sent(outcomes);
        assert!(!history.is_suspect());
    }

    #[test]
    fn who_waited_in_vain_is_told_why_nobody_took_it_last() {
        let mut history = history();
        assert_eq!(history.told(), Reason::Overloaded);
        for (failure, told) in [
            (Failure::Unsent, Reason::NoBackend),
            (Failure::Saturated, Reason::Saturated),
            (Failure::Throttled, Reason::Throttled),
            (Failure::LameDuck, Reason::LameDuck),
            (Failure::Overloaded, Reason::Overloaded),
            (Failure::Broken, Reason::Overloaded),
        ] {
            let _ = history.fail(Outcomes::default(), &failed(failure, Repeat::Safe), &mut rng());
            assert_eq!(history.told(), told, "{failure:?}");
        }
    }

    /// A failed request, after `accepted` and `rejected` others.
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
        for (accepted, expected) in [(999, None), (1_000, Some(GiveUp::Attempts))] {
            let mut history = after(accepted, 0);
            let broken = failed(Failure::Broken, Repeat::Safe);
            let next = history.fail(Outcomes { accepted, rejected: 0 }, &broken, &mut rng());
            assert_eq!(next.err(), expected, "{accepted}");
        }
    }

    #[test]
    fn rejections_do_not_count_as_uncertain_failures() {
        let (mut history, mut rng) = (history(), rng());
        for _ in 0..2 * MOST_UNCERTAIN {
            let turned_away = failed(Failure::Overloaded, Repeat::Safe);
            assert!(history.fail(Outcomes::default(), &turned_away, &mut rng).is_ok());
        }
        assert!(history.fail(Outcomes::default(), &failed(Failure::Broken, Repeat::Safe), &mut rng).is_ok());
    }
}
