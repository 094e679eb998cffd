//! Counts of a gate's decisions.

use std::sync::atomic::{AtomicU64, Ordering};

use plimsoll_core::Rejection;

/// The reasons of a gate that sheds requests.
pub const REASONS: [Rejection; 4] =
    [Rejection::Overloaded, Rejection::OverloadedNoRetry, Rejection::Deadline, Rejection::Quota];

/// The position of a reason in [`REASONS`]; `None` for reasons that no gate has.
const fn index(reason: Rejection) -> Option<usize> {
    match reason {
        Rejection::Overloaded => Some(0),
        Rejection::OverloadedNoRetry => Some(1),
        Rejection::Deadline => Some(2),
        Rejection::Quota => Some(3),
        Rejection::Throttled | Rejection::LameDuck | Rejection::Saturated | Rejection::NoBackend => None,
    }
}

/// Counts admitted and shed requests. In a dry run a request may be both.
#[derive(Debug, Default)]
pub struct DecisionCounter {
    admitted: AtomicU64,
    /// In the order of [`REASONS`].
    shed: [AtomicU64; REASONS.len()],
}

/// Admitted and shed requests of one kind, such as a criticality or a customer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Decided {
    /// Admitted.
    pub admitted: u64,
    /// Shed because of overload.
    pub overloaded: u64,
    /// The same, with the advice not to retry elsewhere either.
    pub overloaded_no_retry: u64,
    /// Shed because no answer was possible before the deadline.
    pub deadline: u64,
    /// Shed because the customer was over its quota.
    pub quota: u64,
}

impl DecisionCounter {
    /// Counts one request. `shed` is the reason, if it was shed or would have been.
    pub fn count(&self, is_admitted: bool, shed: Option<Rejection>) {
        if is_admitted {
            self.admitted.fetch_add(1, Ordering::Relaxed);
        }
        if let Some(index) = shed.and_then(index) {
            self.shed[index].fetch_add(1, Ordering::Relaxed);
        }
    }

    /// The counts so far.
    #[must_use]
    pub fn read(&self) -> Decided {
        let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let [overloaded, overloaded_no_retry, deadline, quota] = self.shed.each_ref().map(read);
        Decided { admitted: read(&self.admitted), overloaded, overloaded_no_retry, deadline, quota }
    }
}

impl Decided {
    /// The counts by decision: `admitted`, then the names of [`REASONS`] in their order.
    #[must_use]
    pub fn by_name(&self) -> [(&'static str, u64); 1 + REASONS.len()] {
        let Self { admitted, overloaded, overloaded_no_retry, deadline, quota } = *self;
        let [a, b, c, d] = REASONS.map(Rejection::name);
        [("admitted", admitted), (a, overloaded), (b, overloaded_no_retry), (c, deadline), (d, quota)]
    }
}

#[cfg(test)]
mod tests {
    use plimsoll_core::Rejection;

    use super::*;

    #[test]
    fn every_reason_of_a_gate_has_a_count_of_its_own() {
        let counted = Rejection::ALL.map(|reason| {
            let counter = DecisionCounter::default();
            counter.count(false, Some(reason));
            counter.read().by_name().into_iter().find(|(_, count)| *count > 0).map(|(name, _)| name)
        });
        let expected = Rejection::ALL.map(|reason| REASONS.contains(&reason).then_some(reason.name()));
        assert_eq!(counted, expected);
    }

    #[test]
    fn request_shed_in_a_dry_run_counts_twice() {
        let counter = DecisionCounter::default();
        counter.count(true, None);
        counter.count(true, Some(Rejection::Quota));
        assert_eq!(counter.read(), Decided { admitted: 2, quota: 1, ..Decided::default() });
    }
}
