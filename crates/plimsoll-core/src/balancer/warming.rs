//! Progress of one backend in slow start, and its turns among the picks of its locality.
//!
//! Turns are counted in picks of the locality (without localities, of the cluster): one in `n ÷
//! share` with n backends. They do not depend on how the policy finds the backend.

use crate::Timestamp;
use crate::health::SlowStartConfig;

/// Turns that a backend in slow start can save up. Enough that a policy which reaches it at random
/// intervals wastes none; too few for a burst.
const TURNS: u64 = 3;

/// Progress of a backend in slow start.
#[derive(Clone, Copy, Debug)]
pub(super) struct Warming {
    /// Start of slow start; `None` when it is over or never began.
    since: Option<Timestamp>,
    /// Number of the pick that will use up its turns.
    turn_at: u64,
}

impl Warming {
    /// No slow start: the backend has its whole share.
    pub(super) const fn complete() -> Self {
        Self { since: None, turn_at: 0 }
    }

    /// Begins slow start now, at pick number `picks`.
    pub(super) const fn begin(now: Timestamp, picks: u64) -> Self {
        Self { since: Some(now), turn_at: picks }
    }

    /// The share relative to the other backends, in (0, 1].
    pub(super) fn share(&self, now: Timestamp, config: &SlowStartConfig) -> f64 {
        self.since.map_or(1.0, |since| config.share(now, since))
    }

    /// Restarts turns in the picks of another locality, which has had `picks`.
    pub(super) const fn restart_turns(&mut self, picks: u64) {
        self.turn_at = picks;
    }

    /// Takes a turn if one is due: one in `every` picks is its own, and `picks` have passed.
    pub(super) fn take_turn(&mut self, picks: u64, every: u64) -> bool {
        let has_turn = self.turn_at <= picks + (TURNS - 1) * every;
        if has_turn {
            self.turn_at = self.turn_at.max(picks) + every;
        }
        has_turn
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slow_start_saves_three_turns_then_takes_one_per_interval() {
        const EVERY: u64 = 10;
        let mut warming = Warming::begin(Timestamp::ZERO, 1_000);
        let mut taken_at = |picks| (0..5).filter(|_| warming.take_turn(picks, EVERY)).count();
        assert_eq!(taken_at(1_000), 3);
        assert_eq!([1_009, 1_010, 1_019, 1_020].map(&mut taken_at), [0, 1, 0, 1]);
        assert_eq!(taken_at(5_000), 3, "no more are saved up however long it waits");
    }

    #[test]
    fn turns_count_in_the_picks_of_its_present_locality() {
        let mut warming = Warming::begin(Timestamp::ZERO, 1_000);
        warming.restart_turns(5);
        assert!((0..3).all(|_| warming.take_turn(5, 10)) && !warming.take_turn(5, 10));
    }
}
