//! When changes of a list take effect.
//!
//! A deployment changes a list many times a second, and each change costs a walk over all backends
//! and a draw of the subset. So changes gather until none came for [`QUIET`], at most for [`MAX`]. A
//! backend that drains is about to go: its change waits for [`QUIET`] only.
//!
//! ```text
//! due = min(last change + 200 ms, first change + 2 s, first drain + 200 ms, end of a hold)
//! ```

use core::time::Duration;

use crate::Timestamp;

/// Lists of one deployment step are written within this time.
pub(super) const QUIET: Duration = Duration::from_millis(200);
/// Longest time until a change takes effect, however many follow it.
pub(super) const MAX: Duration = Duration::from_secs(2);

/// Changes that are not in effect yet.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Gather {
    due: Option<Timestamp>,
    latest: Option<Timestamp>,
}

impl Gather {
    /// A change came.
    pub(super) fn on_change(&mut self, now: Timestamp, is_urgent: bool) {
        let latest = *self.latest.get_or_insert(now + MAX);
        let latest = if is_urgent { latest.min(now + QUIET) } else { latest };
        self.latest = Some(latest);
        self.due = Some(latest.min(now + QUIET));
    }

    /// The changes take effect at once.
    pub(super) fn hurry(&mut self, now: Timestamp) {
        self.due = Some(now);
    }

    /// The time at which the changes take effect; `None` without any.
    pub(super) fn due(&self) -> Option<Timestamp> {
        self.due
    }

    /// Whether the changes take effect now. After that there are none.
    pub(super) fn take(&mut self, now: Timestamp) -> bool {
        let is_due = self.due.is_some_and(|due| due <= now);
        if is_due {
            *self = Self::default();
        }
        is_due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Timestamp {
        Timestamp::from_origin(Duration::from_millis(ms))
    }

    #[test]
    fn change_takes_effect_when_no_other_came_for_200_ms() {
        let mut gather = Gather::default();
        assert_eq!(gather.due(), None);
        gather.on_change(at(0), false);
        gather.on_change(at(150), false);
        assert!(!gather.take(at(349)));
        assert!(gather.take(at(350)));
        assert_eq!(gather.due(), None);
        assert!(!gather.take(at(9_000)));
    }

    #[test]
    fn changes_without_a_pause_take_effect_after_2_s() {
        let mut gather = Gather::default();
        (0..20).for_each(|i| gather.on_change(at(100 * i), false));
        assert_eq!(gather.due(), Some(at(2_000)));
        gather.on_change(at(1_950), false);
        assert_eq!(gather.due(), Some(at(2_000)));
    }

    #[test]
    fn drain_takes_effect_after_200_ms_whatever_else_changes() {
        let mut gather = Gather::default();
        gather.on_change(at(0), false);
        gather.on_change(at(100), true);
        gather.on_change(at(250), false);
        assert_eq!(gather.due(), Some(at(300)));
        assert!(gather.take(at(300)));
        // The next change waits for its own time.
        gather.on_change(at(310), false);
        gather.on_change(at(480), false);
        assert_eq!(gather.due(), Some(at(680)));
    }

    #[test]
    fn first_list_takes_effect_at_once() {
        let mut gather = Gather::default();
        gather.on_change(at(5), false);
        gather.hurry(at(5));
        assert!(gather.take(at(5)));
    }
}
