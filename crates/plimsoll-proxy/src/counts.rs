//! Counters of one metric: a number for each value of its labels.
//!
//! The values are known beforehand, so a count is one relaxed addition in a fixed array. A metric
//! lists them in the order of [`Label::ALL`], those at zero too.

use std::marker::PhantomData;
use std::sync::atomic::{AtomicU64, Ordering};

/// A value that events are counted by, such as a reason.
pub(crate) trait Label: Copy + 'static {
    /// The label in metrics; a tuple where the metric has several labels.
    type Name;

    /// All values, in the order of the metric.
    const ALL: &'static [Self];

    /// The place of its count, below the number of values.
    fn index(self) -> usize;

    /// Whether the metric lists it at zero, too. A value that is not expected appears once counted.
    fn is_always_listed(self) -> bool {
        true
    }

    /// The label in metrics.
    fn name(self) -> Self::Name;
}

/// Numbers of events by label.
#[derive(Debug)]
pub(crate) struct Counts<L>(Box<[AtomicU64]>, PhantomData<L>);

impl<L: Label> Default for Counts<L> {
    fn default() -> Self {
        Self(L::ALL.iter().map(|_| AtomicU64::new(0)).collect(), PhantomData)
    }
}

impl<L: Label> Counts<L> {
    /// Counts one event.
    pub(crate) fn count(&self, label: L) {
        self.add(label, 1);
    }

    /// Counts `events` at once.
    pub(crate) fn add(&self, label: L, events: u64) {
        self.0[label.index()].fetch_add(events, Ordering::Relaxed);
    }

    /// Each label and its number of events.
    pub(crate) fn counts(&self) -> impl Iterator<Item = (L::Name, u64)> {
        let counts = L::ALL.iter().map(|label| (label, self.0[label.index()].load(Ordering::Relaxed)));
        counts
            .filter(|(label, count)| *count > 0 || label.is_always_listed())
            .map(|(label, count)| (label.name(), count))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::fmt::Debug;

    use super::*;
    use crate::connection::end_reason::EndReason;
    use crate::degrade::Substitute;
    use crate::listener::handshakes::{Failure, Session};
    use crate::listener::rejections::RejectReason;
    use crate::reason::Refusal;

    /// Counts the first label once, the second twice and so on.
    fn assert_each_label_has_its_own_count<L: Label<Name: Ord + Debug>>() {
        let counts = Counts::<L>::default();
        for (events, label) in (1..).zip(L::ALL) {
            (0..events).for_each(|_| counts.count(*label));
        }
        let numbers: Vec<u64> = counts.counts().map(|(_, count)| count).collect();
        assert_eq!(numbers, (1..=L::ALL.len() as u64).collect::<Vec<_>>());
        assert_eq!(counts.counts().map(|(name, _)| name).collect::<BTreeSet<_>>().len(), L::ALL.len());
    }

    #[test]
    fn each_label_has_a_count_and_a_name_of_its_own() {
        assert_each_label_has_its_own_count::<Refusal>();
        assert_each_label_has_its_own_count::<Substitute>();
        assert_each_label_has_its_own_count::<EndReason>();
        assert_each_label_has_its_own_count::<RejectReason>();
        assert_each_label_has_its_own_count::<Failure>();
        assert_each_label_has_its_own_count::<Session>();
    }

    #[test]
    fn several_events_are_counted_at_once() {
        let counts = Counts::<RejectReason>::default();
        counts.add(RejectReason::Descriptors, 3);
        assert_eq!(counts.counts().collect::<Vec<_>>(), [("memory", 0), ("descriptors", 3)]);
    }
}
