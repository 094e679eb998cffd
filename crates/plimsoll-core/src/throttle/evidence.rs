//! Maps the end of an attempt to an [`Outcome`] for throttles and for the credit of batch work. One
//! table serves all senders.
//!
//! | end of the attempt | outcome |
//! |---|---|
//! | answered, with 500 too: throttling does not help against that | accepted |
//! | overloaded in any of its forms, or answered by a lame duck | rejected |
//! | throttled by the backend toward its own backend: it has headroom itself | accepted |
//! | no connection or a broken one, in a long silence | rejected |
//! | the same while others were answered: no evidence about the cluster | unknown |
//! | connection refused: a restart is no overload, and needs no throttling after it | unknown |
//! | abandoned after a long wait | rejected |
//! | abandoned after a shorter wait: no evidence | unknown |
//! | taken back by this side, or not sent completely by the caller in time | unknown |
//!
//! # Losses
//!
//! A crashed process and a broken network break connections. So do a firewall that dislikes a
//! request and a handler that panics. Those two break every request for one URL, at any load, while
//! others are answered. So a loss counts only in *silence*: no request was answered since the first
//! of several losses began, for
//!
//! ```text
//! silence  ≥  max(500 ms, 3 · usual)
//! ```
//!
//! It delays the detection of an outage by half a second. One backend of several that breaks all of
//! its connections is a case for outlier ejection, which judges each backend by itself.
//!
//! # Long waits
//!
//! A backend that accepts connections and never answers rejects nothing. The only evidence is an
//! abandoned wait: the time was up, or the caller left. Both happen at healthy backends too: a
//! request had only a millisecond left, or a user clicked again. So the length of the wait decides:
//!
//! ```text
//! long  ⇔  waited ≥ limit ÷ 2,  or
//!          waited ≥ max(50 ms, 3 · usual) in a silence of max(500 ms, 3 · usual)
//! ```
//!
//! *Usual* is the usual latency of the cluster, and *limit* the time limit of its requests.
//!
//! - *Half of the limit* is long in any case. Else requests with a short limit would never count,
//!   since a queue uses up part of it.
//! - *A shorter wait* is the caller's choice, and must not throttle other callers: a user leaves a
//!   slow page, or sends half of a body and no more. So it counts only in *silence*: the request
//!   was sent completely, and no request was answered since. A hanging backend looks like that.
//!   Waits of several callers add up, see [`Silence`](super::Silence).
//! - *Three times the usual latency* tells a slow service from a hanging one. While it is unknown,
//!   only the limit counts.

use core::time::Duration;

use super::Outcome;
use super::silence::USUAL_FACTOR;

/// Shortest silence that counts as long.
const MIN_SILENCE: Duration = Duration::from_millis(500);
/// A wait of the limit divided by this is long.
const LIMIT_DIVISOR: u32 = 2;

/// Evidence about the cluster in the end of an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AttemptEvidence {
    /// The backend accepted the request and answered it, with any status.
    Answered,
    /// The backend was overloaded or is a lame duck.
    Shed,
    /// The backend has headroom, but throttled the request toward an overloaded backend of its own.
    Throttled,
    /// No connection could be made, or it broke.
    Lost(Loss),
    /// Connection refused: nothing listens at the address.
    ConnectRefused,
    /// Abandoned before an answer: the time was up, or the caller left.
    Unanswered(Wait),
    /// This side took the request back, or could not send all of it.
    Cancelled,
}

/// The circumstances of a lost request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Loss {
    /// Age of the first request lost since the last answer, counted from its sending. `None` if any
    /// request was answered since this request was sent.
    pub silence: Option<Duration>,
    /// Usual latency of the cluster; `None` if unknown.
    pub usual: Option<Duration>,
}

/// The circumstances of an abandoned wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wait {
    /// Length of the wait.
    pub waited: Duration,
    /// Usual latency of the cluster; `None` if unknown.
    pub usual: Option<Duration>,
    /// Time limit of the wait, for a caller without an earlier deadline.
    pub limit: Duration,
    /// Abandoned waits since the last answer to any request, added up with this one. `None` if any
    /// request was answered since this request was sent, if it was not sent completely, or if the
    /// wait was too short to count.
    pub silence: Option<Duration>,
}

impl AttemptEvidence {
    /// The outcome to report to [`Throttle::on_outcome`](super::Throttle::on_outcome).
    #[must_use]
    pub fn outcome(self) -> Outcome {
        match self {
            // If the second were a rejection, each layer would throttle toward the next. After an
            // overload, a request would then have to be a probe in all layers at once.
            Self::Answered | Self::Throttled => Outcome::Accepted,
            Self::Shed => Outcome::Rejected,
            Self::Lost(loss) if loss.is_in_silence() => Outcome::Rejected,
            Self::Unanswered(wait) if wait.is_long() => Outcome::Rejected,
            Self::Lost(_) | Self::Unanswered(_) | Self::ConnectRefused | Self::Cancelled => Outcome::Unknown,
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
    silence >= MIN_SILENCE.max(usual.saturating_mul(USUAL_FACTOR))
}

impl Wait {
    /// Whether the wait was long enough to blame the backend.
    #[must_use]
    pub fn is_long(&self) -> bool {
        let in_silence = |usual| self.silence.is_some_and(|silence| is_long(silence, usual));
        self.waited >= self.limit / LIMIT_DIVISOR || self.usual.is_some_and(in_silence)
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
        AttemptEvidence::Unanswered(Wait { waited: ms(waited), usual: usual.map(ms), limit, silence }).outcome()
    }

    fn lost(silence: Option<u64>, usual: Option<u64>) -> AttemptEvidence {
        AttemptEvidence::Lost(Loss { silence: silence.map(ms), usual: usual.map(ms) })
    }

    #[test]
    fn abandoned_wait_is_a_rejection_when_it_was_long() {
        use Outcome::{Rejected, Unknown};
        for (waited, usual, limit, expected) in [
            (0, None, MINUTE, Unknown),
            (499, Some(10), MINUTE, Unknown),
            (500, Some(10), MINUTE, Rejected),
            // The request may always be slow.
            (29_999, None, MINUTE, Unknown),
            (30_000, None, MINUTE, Rejected),
            // A user of a slow service leaves.
            (2_000, Some(1_000), MINUTE, Unknown),
            (3_000, Some(1_000), MINUTE, Rejected),
            // A millisecond was left.
            (1, Some(1), MINUTE, Unknown),
            // Half of the limit, however short the limit and however slow the service.
            (99, Some(1), ms(200), Unknown),
            (100, Some(1), ms(200), Rejected),
            (30_000, Some(20_000), MINUTE, Rejected),
        ] {
            assert_eq!(unanswered(waited, usual, limit), expected, "{waited} of {limit:?}, usually {usual:?}");
        }
    }

    /// Callers that often leave a slow page cause no throttling.
    #[test]
    fn only_the_limit_is_long_while_others_are_answered() {
        let ended = |waited| {
            AttemptEvidence::Unanswered(Wait { waited: ms(waited), usual: Some(ms(5)), limit: MINUTE, silence: None })
        };
        assert_eq!(ended(29_999).outcome(), Outcome::Unknown);
        assert_eq!(ended(30_000).outcome(), Outcome::Rejected);
    }

    #[test]
    fn attempt_is_rejected_only_by_evidence_of_overload() {
        for (ended, expected) in [
            (AttemptEvidence::Answered, Outcome::Accepted),
            (AttemptEvidence::Throttled, Outcome::Accepted),
            (AttemptEvidence::Shed, Outcome::Rejected),
            (lost(None, Some(5)), Outcome::Unknown),
            (lost(Some(499), Some(5)), Outcome::Unknown),
            (lost(Some(500), Some(5)), Outcome::Rejected),
            (lost(Some(2_999), Some(1_000)), Outcome::Unknown),
            (lost(Some(3_000), Some(1_000)), Outcome::Rejected),
            // A client that has just started, before a cluster that is down.
            (lost(Some(500), None), Outcome::Rejected),
            (AttemptEvidence::ConnectRefused, Outcome::Unknown),
            (AttemptEvidence::Cancelled, Outcome::Unknown),
        ] {
            assert_eq!(ended.outcome(), expected, "{ended:?}");
        }
    }

    /// Requests sent in each second. A hundred requests a second are each lost after a millisecond,
    /// while others are answered at the given interval.
    fn sent_while_losing(answered_every_ms: Option<u64>) -> [u32; 10] {
        let mut rng = Pcg64Mcg::seed_from_u64(7);
        let at = |millis| Timestamp::from_origin(ms(millis));
        let mut throttle = Throttle::new(at(0), ThrottlePolicy::Paced { k: Multiple::DEFAULT });
        let (mut sent, mut silence) = ([0; 10], Silence::default());
        for now in (0..10_000).step_by(10) {
            if answered_every_ms.is_some_and(|every| now % every == 0) {
                silence.on_answer(at(now));
                throttle.on_outcome(at(now), Criticality::Critical, Outcome::Accepted);
            }
            if let Verdict::Send(_) = throttle.ask(at(now), Criticality::Critical, &mut rng) {
                sent[(now / 1_000) as usize] += 1;
                let loss = Loss { silence: silence.on_loss(at(now + 1), at(now)), usual: Some(ms(5)) };
                throttle.on_outcome(at(now + 1), Criticality::Critical, AttemptEvidence::Lost(loss).outcome());
            }
        }
        sent
    }

    /// Seed 7. A URL with dropped requests, at twenty times the load of the others, causes no
    /// throttling. A cluster that drops all is detected within three seconds.
    #[test]
    fn losses_throttle_when_no_request_is_answered() {
        assert_eq!(sent_while_losing(Some(200)), [100; 10]);
        let sent = sent_while_losing(None);
        assert!(sent[3..].iter().all(|sent| *sent <= 3), "{sent:?}");
    }

    /// Requests sent in each second, of a hundred offered, to a backend that has never answered.
    /// Callers leave after `patience`.
    fn sent_while_hanging(patience: Duration) -> [u32; 10] {
        let mut rng = Pcg64Mcg::seed_from_u64(7);
        let policy = ThrottlePolicy::Paced { k: Multiple::DEFAULT };
        let at = |millis| Timestamp::from_origin(ms(millis));
        let mut throttle = Throttle::new(at(0), policy);
        let (mut out, mut sent, mut silence) = (VecDeque::new(), [0; 10], Silence::default());
        let usual = ms(5);
        for now in (0..10_000).step_by(10) {
            while let Some(since) = out.pop_front_if(|since| now - *since >= patience.as_millis() as u64) {
                let silence = silence.on_abandoned(at(now), at(since), usual);
                let wait = Wait { waited: ms(now - since), usual: Some(usual), limit: MINUTE, silence };
                throttle.on_outcome(at(now), Criticality::Critical, AttemptEvidence::Unanswered(wait).outcome());
            }
            if let Verdict::Send(_) = throttle.ask(at(now), Criticality::Critical, &mut rng) {
                sent[(now / 1_000) as usize] += 1;
                out.push_back(now);
            }
        }
        sent
    }

    /// Seed 7. Five seconds after the backend begins to hang, the client sends fewer than two
    /// requests a second. Callers that leave at once are no evidence.
    #[test]
    fn hanging_backend_is_throttled_when_callers_leave_early() {
        for patience in [1_000, 400, 50] {
            let sent = sent_while_hanging(ms(patience));
            assert!(sent[5..].iter().sum::<u32>() < 10, "{patience} ms: {sent:?}");
        }
        assert_eq!(sent_while_hanging(ms(40)), [100; 10]);
    }
}
