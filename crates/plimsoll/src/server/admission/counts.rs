//! Counts of a gate's decisions.

use std::sync::atomic::{AtomicU64, Ordering};

use plimsoll_core::Rejection;

/// Counts admitted and shed requests. In a dry run a request may be both.
#[derive(Debug, Default)]
pub struct DecisionCounter {
    admitted: AtomicU64,
    /// In the order of [`Rejection::ALL`].
    shed: [AtomicU64; Rejection::COUNT],
}

/// Admitted and shed requests of one kind, such as a criticality or a customer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DecisionCounts {
    /// Admitted.
    pub admitted: u64,
    /// Shed, in the order of [`Rejection::ALL`].
    pub shed: [u64; Rejection::COUNT],
}

impl DecisionCounter {
    /// Counts one request. `shed` is the reason, if it was shed or would have been.
    pub fn count(&self, is_admitted: bool, shed: Option<Rejection>) {
        if is_admitted {
            self.admitted.fetch_add(1, Ordering::Relaxed);
        }
        if let Some(reason) = shed {
            self.shed[reason as usize].fetch_add(1, Ordering::Relaxed);
        }
    }

    /// The counts so far.
    #[must_use]
    pub fn read(&self) -> DecisionCounts {
        let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
        DecisionCounts { admitted: read(&self.admitted), shed: self.shed.each_ref().map(read) }
    }
}

impl DecisionCounts {
    /// Requests shed for this reason.
    #[must_use]
    pub const fn shed_for(&self, reason: Rejection) -> u64 {
        self.shed[reason as usize]
    }

    /// The counts by decision: `admitted`, then the names of [`Rejection::GATE`] in their order. Any
    /// other reason follows if it has a count.
    pub fn by_name(self) -> impl Iterator<Item = (&'static str, u64)> {
        let others =
            Rejection::ALL.into_iter().filter(move |reason| reason.row().gate.is_none() && self.shed_for(*reason) > 0);
        let shed = Rejection::GATE.iter().copied().chain(others);
        let shed = shed.map(move |reason| (reason.name(), self.shed_for(reason)));
        std::iter::once(("admitted", self.admitted)).chain(shed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_reason_has_a_count_of_its_own() {
        for reason in Rejection::ALL {
            let counter = DecisionCounter::default();
            counter.count(false, Some(reason));
            let counted = counter.read().by_name().filter(|(_, count)| *count > 0);
            assert_eq!(counted.collect::<Vec<_>>(), [(reason.name(), 1)]);
        }
    }

    #[test]
    fn names_are_those_of_a_gate_while_nothing_else_is_counted() {
        let names = DecisionCounts::default().by_name().map(|(name, _)| name);
        assert_eq!(names.collect::<Vec<_>>(), ["admitted", "overloaded", "overloaded-no-retry", "deadline", "quota"]);
    }

    #[test]
    fn request_shed_in_a_dry_run_counts_twice() {
        let counter = DecisionCounter::default();
        counter.count(true, None);
        counter.count(true, Some(Rejection::Quota));
        let counts = counter.read();
        assert_eq!((counts.admitted, counts.shed_for(Rejection::Quota), counts.shed.iter().sum()), (2, 1, 1));
    }
}
