//! For how long somebody who was asked has answered nobody.
//!
//! One caller may be in a hurry, and wait less than it takes to tell hanging from slow. So what callers wait in vain adds up from the last
//! answer on; times that overlap count once, and those in which nobody waits do not count. Short waits do not count either: were it a
//! matter of number, whoever leaves a request a millisecond could pile up any time.

use core::time::Duration;

use crate::Timestamp;

/// So many times what is usual tells something: few answers take longer, of somebody who is well.
pub(super) const TIMES: u32 = 3;
/// A wait tells nothing before this time.
const LEAST: Duration = Duration::from_millis(50);

/// What is known of somebody's silence.
#[derive(Clone, Copy, Debug, Default)]
pub struct Silence {
    answered_at: Option<Timestamp>,
    /// What was waited in vain since, and until when.
    in_vain: Duration,
    until: Option<Timestamp>,
    /// When the first request was sent of those that were lost since.
    lost_since: Option<Timestamp>,
}

impl Silence {
    /// Somebody got an answer.
    pub fn answered(&mut self, now: Timestamp) {
        *self = Self { answered_at: Some(now), ..Self::default() };
    }

    /// Nobody waits any longer for the answer to what was sent at `sent`, of which all was sent then; `usual` is what answers
    /// take as a rule. How long was waited in vain by now; `None` if this says nothing.
    pub fn unanswered(&mut self, now: Timestamp, sent: Timestamp, usual: Duration) -> Option<Duration> {
        let is_short = now.since(sent) < LEAST.max(usual.saturating_mul(TIMES));
        if is_short || self.answered_at.is_some_and(|answered| answered >= sent) {
            return None;
        }
        let from = self.until.map_or(sent, |until| until.max(sent));
        self.in_vain = self.in_vain.saturating_add(now.since(from));
        self.until = Some(now);
        Some(self.in_vain)
    }

    /// The request sent at `sent` is lost: no connection, or one that broke. Returns the duration
    /// of losses without an answer; `None` if any request was answered since `sent`.
    pub fn lost(&mut self, now: Timestamp, sent: Timestamp) -> Option<Duration> {
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
    fn what_was_waited_adds_up_once_for_all_until_there_is_an_answer() {
        let mut silence = Silence::default();
        for (sent, now, expected) in [
            (0, 100, Some(100)),
            (50, 150, Some(150)),
            (60, 150, Some(150)),
            // Nobody waits for an hour, and this is no sign of anything.
            (3_600_000, 3_600_100, Some(250)),
        ] {
            assert_eq!(silence.unanswered(at(now), at(sent), ms(5)), expected.map(ms), "{sent}");
        }
        silence.answered(at(3_600_150));
        assert_eq!(silence.unanswered(at(3_600_200), at(3_600_100), ms(5)), None, "it was answered since");
        assert_eq!(silence.unanswered(at(3_600_300), at(3_600_160), ms(5)), Some(ms(140)));
    }

    #[test]
    fn losses_last_from_the_first_until_there_is_an_answer() {
        let mut silence = Silence::default();
        silence.answered(at(100));
        for (sent, now, expected) in [
            (90, 110, None),
            // Nothing was asked for an hour, which is no silence.
            (3_600_000, 3_600_001, Some(1)),
            (3_600_400, 3_600_401, Some(401)),
            (3_600_200, 3_600_500, Some(500)),
        ] {
            assert_eq!(silence.lost(at(now), at(sent)), expected.map(ms), "{sent}");
        }
        silence.answered(at(3_600_510));
        assert_eq!(silence.lost(at(3_600_520), at(3_600_505)), None);
        assert_eq!(silence.lost(at(3_600_530), at(3_600_520)), Some(ms(10)));
    }

    #[test]
    fn short_waits_never_add_up() {
        let mut silence = Silence::default();
        for millis in 0..10_000 {
            assert_eq!(silence.unanswered(at(millis + 49), at(millis), ms(1)), None);
            assert_eq!(silence.unanswered(at(millis + 299), at(millis), ms(100)), None);
        }
    }
}
