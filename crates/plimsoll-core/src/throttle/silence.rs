//! Duration of a backend's or cluster's silence: the time without an answer to any request.
//!
//! One caller may be in a hurry, and wait too briefly to tell hanging from slow. So abandoned waits
//! add up from the last answer on. Overlapping waits count once, and time without a wait does not
//! count. Short waits do not count either: else a caller that leaves its requests after a
//! millisecond could add up any time.

use core::time::Duration;

use crate::Timestamp;

/// Multiple of the usual latency that is evidence: a healthy backend seldom takes longer.
pub(super) const USUAL_FACTOR: u32 = 3;
/// Shortest wait that is evidence.
const MIN_WAIT: Duration = Duration::from_millis(50);

/// Abandoned waits and lost requests since the last answer.
#[derive(Clone, Copy, Debug, Default)]
pub struct Silence {
    answered_at: Option<Timestamp>,
    /// Sum of abandoned waits since the last answer, and the end of the latest.
    abandoned: Duration,
    until: Option<Timestamp>,
    /// Sending time of the first request lost since the last answer.
    lost_since: Option<Timestamp>,
}

impl Silence {
    /// Notes an answer to any request.
    pub fn on_answer(&mut self, now: Timestamp) {
        *self = Self { answered_at: Some(now), ..Self::default() };
    }

    /// Notes an abandoned wait for a request that was sent completely at `sent`. `usual` is the
    /// usual latency. Returns the sum of abandoned waits; `None` if this one is no evidence.
    pub fn on_abandoned(&mut self, now: Timestamp, sent: Timestamp, usual: Duration) -> Option<Duration> {
        let is_short = now.since(sent) < MIN_WAIT.max(usual.saturating_mul(USUAL_FACTOR));
        if is_short || self.answered_at.is_some_and(|answered| answered >= sent) {
            return None;
        }
        let from = self.until.map_or(sent, |until| until.max(sent));
        self.abandoned = self.abandoned.saturating_add(now.since(from));
        self.until = Some(now);
        Some(self.abandoned)
    }

    /// Notes that the request sent at `sent` is lost: no connection, or a broken one. Returns the
    /// duration of losses without an answer; `None` if any request was answered since `sent`.
    pub fn on_loss(&mut self, now: Timestamp, sent: Timestamp) -> Option<Duration> {
        if self.answered_at.is_some_and(|answered| answered >= sent) {
            return None;
        }
        let since = self.lost_since.map_or(sent, |since| since.min(sent));
        self.lost_since = Some(since);
        Some(now.since(since))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    fn at(millis: u64) -> Timestamp {
        Timestamp::from_origin(ms(millis))
    }

    #[test]
    fn overlapping_waits_count_once_until_an_answer() {
        let mut silence = Silence::default();
        for (sent, now, expected) in [
            (0, 100, Some(100)),
            (50, 150, Some(150)),
            (60, 150, Some(150)),
            // Nobody waits for an hour, so the hour does not count.
            (3_600_000, 3_600_100, Some(250)),
        ] {
            assert_eq!(silence.on_abandoned(at(now), at(sent), ms(5)), expected.map(ms), "{sent}");
        }
        silence.on_answer(at(3_600_150));
        assert_eq!(silence.on_abandoned(at(3_600_200), at(3_600_100), ms(5)), None, "it was answered since");
        assert_eq!(silence.on_abandoned(at(3_600_300), at(3_600_160), ms(5)), Some(ms(140)));
    }

    #[test]
    fn losses_last_from_the_first_until_there_is_an_answer() {
        let mut silence = Silence::default();
        silence.on_answer(at(100));
        for (sent, now, expected) in [
            (90, 110, None),
            // No request was sent for an hour, so the hour is no silence.
            (3_600_000, 3_600_001, Some(1)),
            (3_600_400, 3_600_401, Some(401)),
            (3_600_200, 3_600_500, Some(500)),
        ] {
            assert_eq!(silence.on_loss(at(now), at(sent)), expected.map(ms), "{sent}");
        }
        silence.on_answer(at(3_600_510));
        assert_eq!(silence.on_loss(at(3_600_520), at(3_600_505)), None);
        assert_eq!(silence.on_loss(at(3_600_530), at(3_600_520)), Some(ms(10)));
    }

    #[test]
    fn short_waits_never_add_up() {
        let mut silence = Silence::default();
        for millis in 0..10_000 {
            assert_eq!(silence.on_abandoned(at(millis + 49), at(millis), ms(1)), None);
            assert_eq!(silence.on_abandoned(at(millis + 299), at(millis), ms(100)), None);
        }
    }
}
