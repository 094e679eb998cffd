//! A change of limits, which one task tries before all get it.
//!
//! ```text
//! trial    one task has the new limits, all others the last good ones
//! good     its stream lasts for 3 s, and a report came after 1 s   all tasks get them
//! bad      its stream ended, or it has not reported in 15 s        another task tries them
//! bad twice                                                        the last good limits stay
//! ```
//!
//! Limits that break a task, by an error of its code or of its operator, then reach two tasks and not the
//! whole fleet. Two trials, because a task may also end by chance. Without any task nothing can be tried,
//! and the limits are in force at once.

use core::time::Duration;

use super::TaskId;
use crate::Timestamp;

/// The shortest trial.
const TRIAL: Duration = Duration::from_secs(3);
/// A report that comes earlier may have been sent before the limits came.
const UNDER_WAY: Duration = Duration::from_secs(1);
/// A task that has not reported for so long hangs.
const LONGEST_TRIAL: Duration = Duration::from_secs(15);
/// Trials that a change gets.
const TRIALS: u32 = 2;

/// What is to be done with new limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RolloutStep {
    /// Nothing now.
    Wait,
    /// This task gets them.
    Try(TaskId),
    /// All get them.
    Apply,
    /// Nobody gets them, and those that tried get the last good ones back.
    Refuse,
}

/// The state of a change of limits: one task tries them for 3 s before all get them, and two bad trials refuse
/// them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Rollout {
    /// The limits in force are the last ones.
    #[default]
    Settled,
    /// A task is to try them.
    Waiting {
        /// Trials that were bad.
        failed: u32,
    },
    /// A task tries them.
    Trying {
        /// The task.
        task: TaskId,
        /// Since then.
        since: Timestamp,
        /// It has reported since.
        is_good: bool,
        /// Trials before that were bad.
        failed: u32,
    },
}

impl Rollout {
    /// There are new limits. Those that a task tries now are to end before.
    pub fn begin(&mut self) {
        *self = Self::Waiting { failed: 0 };
    }

    /// Whether no limits wait for a trial or its end.
    #[must_use]
    pub fn is_settled(&self) -> bool {
        *self == Self::Settled
    }

    /// A task reported.
    pub fn on_report(&mut self, now: Timestamp, by: TaskId) {
        if let Self::Trying { task, since, is_good, .. } = self
            && *task == by
            && now >= *since + UNDER_WAY
        {
            *is_good = true;
        }
    }

    /// The stream of a task ended.
    pub fn on_leave(&mut self, of: TaskId) {
        if let Self::Trying { task, failed, .. } = *self
            && task == of
        {
            *self = Self::Waiting { failed: failed + 1 };
        }
    }

    /// When to call [`handle_timeout`](Self::handle_timeout). `None`: not before a task joins or leaves.
    #[must_use]
    pub fn poll_timeout(&self, has_tasks: bool) -> Option<Timestamp> {
        match *self {
            Self::Settled => None,
            Self::Waiting { failed } => (has_tasks || failed == 0 || is_over(failed)).then_some(Timestamp::ZERO),
            Self::Trying { since, is_good: true, .. } => Some(since + TRIAL),
            Self::Trying { since, .. } => Some(since + LONGEST_TRIAL),
        }
    }

    /// The next step. `next` is a task that may try the limits, if there is one.
    pub fn handle_timeout(&mut self, now: Timestamp, next: Option<TaskId>) -> RolloutStep {
        if let Self::Trying { since, is_good, failed, .. } = *self {
            if is_good && now >= since + TRIAL {
                *self = Self::Settled;
                return RolloutStep::Apply;
            }
            if is_good || now < since + LONGEST_TRIAL {
                return RolloutStep::Wait;
            }
            *self = Self::Waiting { failed: failed + 1 };
        }
        let Self::Waiting { failed } = *self else { return RolloutStep::Wait };
        match next {
            _ if is_over(failed) => {
                *self = Self::Settled;
                RolloutStep::Refuse
            }
            Some(task) => {
                *self = Self::Trying { task, since: now, is_good: false, failed };
                RolloutStep::Try(task)
            }
            None if failed == 0 => {
                *self = Self::Settled;
                RolloutStep::Apply
            }
            None => RolloutStep::Wait,
        }
    }
}

/// Whether the change has had all of its trials.
fn is_over(failed: u32) -> bool {
    failed >= TRIALS
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: TaskId = TaskId(1);
    const TWO: TaskId = TaskId(2);

    fn ms(ms: u64) -> Timestamp {
        Timestamp::from_nanos(ms * 1_000_000)
    }

    fn begun() -> Rollout {
        let mut rollout = Rollout::default();
        rollout.begin();
        rollout
    }

    #[test]
    fn all_get_what_one_task_has_tried() {
        let mut rollout = begun();
        assert_eq!(rollout.handle_timeout(ms(100), Some(ONE)), RolloutStep::Try(ONE));
        rollout.on_report(ms(1_000), ONE);
        assert_eq!(rollout.handle_timeout(ms(3_100), None), RolloutStep::Wait, "it was sent before");
        rollout.on_report(ms(3_200), TWO);
        assert_eq!(rollout.handle_timeout(ms(3_200), None), RolloutStep::Wait, "another task reported");
        rollout.on_report(ms(3_300), ONE);
        assert_eq!(rollout.poll_timeout(true), Some(ms(3_100)));
        assert_eq!(rollout.handle_timeout(ms(3_300), None), RolloutStep::Apply);
        assert!(rollout.is_settled() && rollout.poll_timeout(true).is_none());
    }

    #[test]
    fn early_report_does_not_end_the_trial() {
        let mut rollout = begun();
        rollout.handle_timeout(ms(0), Some(ONE));
        rollout.on_report(ms(1_500), ONE);
        assert_eq!(rollout.handle_timeout(ms(2_999), None), RolloutStep::Wait);
        assert_eq!(rollout.handle_timeout(ms(3_000), None), RolloutStep::Apply);
    }

    #[test]
    fn limits_that_end_two_streams_are_refused() {
        let mut rollout = begun();
        rollout.handle_timeout(ms(0), Some(ONE));
        rollout.on_leave(TWO);
        assert_eq!(rollout.handle_timeout(ms(10), Some(TWO)), RolloutStep::Wait);
        rollout.on_leave(ONE);
        assert_eq!(rollout.handle_timeout(ms(20), None), RolloutStep::Wait);
        assert_eq!(rollout.poll_timeout(false), None, "until a task joins");
        assert_eq!(rollout.handle_timeout(ms(900), Some(TWO)), RolloutStep::Try(TWO));
        rollout.on_leave(TWO);
        assert_eq!(rollout.poll_timeout(false), Some(Timestamp::ZERO));
        assert_eq!(rollout.handle_timeout(ms(950), None), RolloutStep::Refuse);
        assert!(rollout.is_settled());
    }

    #[test]
    fn task_that_hangs_is_a_bad_trial() {
        let mut rollout = begun();
        rollout.handle_timeout(ms(0), Some(ONE));
        assert_eq!(rollout.poll_timeout(true), Some(ms(15_000)));
        assert_eq!(rollout.handle_timeout(ms(14_999), Some(TWO)), RolloutStep::Wait);
        assert_eq!(rollout.handle_timeout(ms(15_000), Some(TWO)), RolloutStep::Try(TWO));
        assert_eq!(rollout.handle_timeout(ms(30_000), Some(ONE)), RolloutStep::Refuse);
    }

    #[test]
    fn without_tasks_limits_are_in_force_at_once() {
        let mut rollout = begun();
        assert_eq!(rollout.poll_timeout(false), Some(Timestamp::ZERO));
        assert_eq!(rollout.handle_timeout(ms(0), None), RolloutStep::Apply);
    }
}
