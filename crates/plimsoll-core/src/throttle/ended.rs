//! What a throttle, or the credit of batch work, makes of how an attempt ended: [`Outcome`], decided here for all who send.
//!
//! | the attempt | outcome |
//! |---|---|
//! | was answered, with 500 too: no throttle mends that | accepted |
//! | was turned away: "overloaded" in any of its forms, or by a lame duck | rejected |
//! | was held back by the backend from one behind it: the backend has room | accepted |
//! | found no connection, or one that broke, in a long silence | rejected |
//! | the same, while others were answered: that says nothing of the cluster | unknown |
//! | found nobody listening: a restart is no overload, and after one nothing is to be held back | unknown |
//! | was not waited for any longer, and the wait was long | rejected |
//! | the same, and it was not: that says nothing | unknown |
//! | was taken back for a reason of this side, or its caller did not send the rest of it in time | unknown |
//!
//! # A loss
//!
//! A crashed process and a broken network leave broken connections behind. So do a firewall that
//! dislikes a request, and a handler that panics. Those break every request for one URL, at any
//! load, and others are answered meanwhile. So a loss counts in *silence* only: when no request was
//! answered since the first of several losses began, for
//!
//! ```text
//! silence  ≥  max(500 ms, 3 · usual)
//! ```
//!
//! An outage is found out half a second later for it. One backend of several that breaks all of its connections is for outlier
//! ejection to find, which looks at each by itself.
//!
//! # A long wait
//!
//! A backend that accepts connections and never answers turns nobody away. All that is seen of it is that this side stopped waiting: the
//! time was up, or whoever had asked went away. Either happens at healthy backends too, to a request of which only a
//! millisecond was left, or whose user clicked again. So it counts by how long was waited:
//!
//! ```text
//! long  ⇔  waited ≥ limit ÷ 2,  or  waited ≥ max(50 ms, 3 · usual) in a silence of max(500 ms, 3 · usual)
//! ```
//!
//! with the latency that is usual at the cluster, and the limit that is set for its requests. Half of what is set is long in any case: else
//! nothing that runs into a short limit, some of which went by in a queue, would ever count. What is shorter is the choice of whoever
//! asked, and must not be able to hold others back: a user who leaves a slow page, or who sends half of a body and no more. So it counts
//! in *silence* only, when all of the request was sent and nobody else has been answered since: that is what hanging looks like. What several
//! waited before they left adds up, see [`Silence`](super::Silence). Three times what is usual keeps slow services apart from hanging
//! ones; where it is not known yet, nothing but the limit is long.

use core::time::Duration;

use super::Outcome;
use super::silence::TIMES;

/// A silence is not long before this time.
const LEAST: Duration = Duration::from_millis(500);
/// Above this part of the limit any wait is long.
const OF_LIMIT: u32 = 2;

/// How an attempt ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// The backend took it on, whatever it made of it.
    Answered,
    /// The backend has too much to do, or is going away.
    TurnedAway,
    /// The backend has room, and held the request back from one behind it that has not.
    HeldBack,
    /// No connection could be made, or it broke.
    Lost(Loss),
    /// Nothing listens there.
    Refused,
    /// There was no answer yet when this side stopped waiting: the time was up, or whoever had asked went away.
    Unanswered(Wait),
    /// This side took it back, or could not send it, all of it or the rest.
    TakenBack,
}

/// The circumstances of a lost request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Loss {
    /// Age of the first request lost since the last answer, counted from its sending. `None` if any
    /// request was answered since this request was sent.
    pub silence: Option<Duration>,
    /// Usual latency of the cluster; `None` if that is not known.
    pub usual: Option<Duration>,
}

/// For how long an answer was waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wait {
    /// For so long.
    pub waited: Duration,
    /// Answers of this cluster take about this long; `None` if that is not known.
    pub usual: Option<Duration>,
    /// An answer is waited for no longer than this, if whoever asked has the time.
    pub limit: Duration,
    /// What was waited in vain since the last answer to anybody, this time included; `None` if somebody was answered since this request was
    /// sent, or not all of it was, or it waited for too short a time to say anything.
    pub silence: Option<Duration>,
}

impl Ended {
    /// What [`Throttle::on_outcome`](super::Throttle::on_outcome) is told of it.
    #[must_use]
    pub fn outcome(self) -> Outcome {
        match self {
            // Were the second a rejection, each layer would hold back from the next, and after an overload a request would have to be a
            // probe in all of them at once.
            Self::Answered | Self::HeldBack => Outcome::Accepted,
            Self::TurnedAway => Outcome::Rejected,
            Self::Lost(loss) if loss.is_in_silence() => Outcome::Rejected,
            Self::Unanswered(wait) if wait.is_long() => Outcome::Rejected,
            Self::Lost(_) | Self::Unanswered(_) | Self::Refused | Self::TakenBack => Outcome::Unknown,
        }
    }
}

impl Loss {
    /// Whether the silence is long enough to mean that the cluster is unreachable, and not one URL.
    #[must_use]
    pub fn is_in_silence(&self) -> bool {
        self.silence.is_some_and(|silence| is_long(silence, self.usual.unwrap_or_default()))
    }
}

/// Whether a silence is long, given the usual latency.
fn is_long(silence: Duration, usual: Duration) -> bool {
    silence >= LEAST.max(usual.saturating_mul(TIMES))
}

impl Wait {
    /// Whether this side waited for so long that it is the other's fault.
    #[must_use]
    pub fn is_long(&self) -> bool {
        let in_silence = |usual| self.silence.is_some_and(|silence| is_long(silence, usual));
        self.waited >= self.limit / OF_LIMIT || self.usual.is_some_and(in_silence)
    }
}

#[cfg(test)]
mod tests {
    use alloc::collections::VecDeque;

    use rand_core::SeedableRng as _;
    use rand_pcg::Pcg64Mcg;

    use super::*;
    use crate::throttle::{Multiple, Silence, Throttle, ThrottlePolicy, Verdict};
    use crate::{Criticality, Timestamp};

    const fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    const MINUTE: Duration = Duration::from_secs(60);

    fn unanswered(waited: u64, usual: Option<u64>, limit: Duration) -> Outcome {
        let silence = Some(ms(waited));
        Ended::Unanswered(Wait { waited: ms(waited), usual: usual.map(ms), limit, silence }).outcome()
    }

    fn lost(silence: Option<u64>, usual: Option<u64>) -> Ended {
        Ended::Lost(Loss { silence: silence.map(ms), usual: usual.map(ms) })
    }

    #[test]
    fn what_had_no_answer_counts_if_the_wait_was_long() {
        use Outcome::{Rejected, Unknown};
        for (waited, usual, limit, expected) in [
            (0, None, MINUTE, Unknown),
            (499, Some(10), MINUTE, Unknown),
            (500, Some(10), MINUTE, Rejected),
            // It may be one that is always slow.
            (29_999, None, MINUTE, Unknown),
            (30_000, None, MINUTE, Rejected),
            // A user of a slow service who has had enough.
            (2_000, Some(1_000), MINUTE, Unknown),
            (3_000, Some(1_000), MINUTE, Rejected),
            // A millisecond was left.
            (1, Some(1), MINUTE, Unknown),
            // Half of the time that is set, however short, and however slow it usually is.
            (99, Some(1), ms(200), Unknown),
            (100, Some(1), ms(200), Rejected),
            (30_000, Some(20_000), MINUTE, Rejected),
        ] {
            assert_eq!(unanswered(waited, usual, limit), expected, "{waited} of {limit:?}, usually {usual:?}");
        }
    }

    /// Whoever asks for a slow page and leaves, as often as he likes, holds nobody back.
    #[test]
    fn while_others_are_answered_only_the_limit_is_long() {
        let ended =
            |waited| Ended::Unanswered(Wait { waited: ms(waited), usual: Some(ms(5)), limit: MINUTE, silence: None });
        assert_eq!(ended(29_999).outcome(), Outcome::Unknown);
        assert_eq!(ended(30_000).outcome(), Outcome::Rejected);
    }

    #[test]
    fn only_what_says_that_there_is_too_much_to_do_is_held_back_for() {
        for (ended, expected) in [
            (Ended::Answered, Outcome::Accepted),
            (Ended::HeldBack, Outcome::Accepted),
            (Ended::TurnedAway, Outcome::Rejected),
            (lost(None, Some(5)), Outcome::Unknown),
            (lost(Some(499), Some(5)), Outcome::Unknown),
            (lost(Some(500), Some(5)), Outcome::Rejected),
            (lost(Some(2_999), Some(1_000)), Outcome::Unknown),
            (lost(Some(3_000), Some(1_000)), Outcome::Rejected),
            // A client that has just started, before a cluster that is down.
            (lost(Some(500), None), Outcome::Rejected),
            (Ended::Refused, Outcome::Unknown),
            (Ended::TakenBack, Outcome::Unknown),
        ] {
            assert_eq!(ended.outcome(), expected, "{ended:?}");
        }
    }

    /// A hundred requests a second are each lost after a millisecond, while others are answered at
    /// the given interval. Requests sent in each second.
    fn sent_while_losing(answered_every_ms: Option<u64>) -> [u32; 10] {
        let mut rng = Pcg64Mcg::seed_from_u64(7);
        let at = |millis| Timestamp::from_origin(ms(millis));
        let mut throttle = Throttle::new(at(0), ThrottlePolicy::Paced { k: Multiple::DEFAULT });
        let (mut sent, mut silence) = ([0; 10], Silence::default());
        for now in (0..10_000).step_by(10) {
            if answered_every_ms.is_some_and(|every| now % every == 0) {
                silence.answered(at(now));
                throttle.on_outcome(at(now), Criticality::Critical, Outcome::Accepted);
            }
            if let Verdict::Send(_) = throttle.ask(at(now), Criticality::Critical, &mut rng) {
                sent[(now / 1_000) as usize] += 1;
                let loss = Loss { silence: silence.lost(at(now + 1), at(now)), usual: Some(ms(5)) };
                throttle.on_outcome(at(now + 1), Criticality::Critical, Ended::Lost(loss).outcome());
            }
        }
        sent
    }

    /// Seed 7. A URL with dropped requests, at twenty times the load of the others, causes no
    /// throttling. A cluster that drops all is detected within three seconds.
    #[test]
    fn losses_are_believed_when_nobody_is_answered() {
        assert_eq!(sent_while_losing(Some(200)), [100; 10]);
        let sent = sent_while_losing(None);
        assert!(sent[3..].iter().all(|sent| *sent <= 3), "{sent:?}");
    }

    /// Requests sent in each second to a backend that has never answered, a hundred of them asked for, by callers with this patience.
    fn sent_while_hanging(patience: Duration) -> [u32; 10] {
        let mut rng = Pcg64Mcg::seed_from_u64(7);
        let policy = ThrottlePolicy::Paced { k: Multiple::DEFAULT };
        let at = |millis| Timestamp::from_origin(ms(millis));
        let mut throttle = Throttle::new(at(0), policy);
        let (mut out, mut sent, mut silence) = (VecDeque::new(), [0; 10], Silence::default());
        let usual = ms(5);
        for now in (0..10_000).step_by(10) {
            while let Some(since) = out.pop_front_if(|since| now - *since >= patience.as_millis() as u64) {
                let silence = silence.unanswered(at(now), at(since), usual);
                let wait = Wait { waited: ms(now - since), usual: Some(usual), limit: MINUTE, silence };
                throttle.on_outcome(at(now), Criticality::Critical, Ended::Unanswered(wait).outcome());
            }
            if let Verdict::Send(_) = throttle.ask(at(now), Criticality::Critical, &mut rng) {
                sent[(now / 1_000) as usize] += 1;
                out.push_back(now);
            }
        }
        sent
    }

    /// Seed 7; fewer than two a second are sent five seconds after it has begun to hang. Callers who leave at once say nothing.
    #[test]
    fn a_backend_that_hangs_is_found_out_though_its_callers_leave_first() {
        for patience in [1_000, 400, 50] {
            let sent = sent_while_hanging(ms(patience));
            assert!(sent[5..].iter().sum::<u32>() < 10, "{patience} ms: {sent:?}");
        }
        assert_eq!(sent_while_hanging(ms(40)), [100; 10]);
    }
}
