//! Whether a failure is evidence against its backend: not if other backends fail the same
//! operation.
//!
//! A broken endpoint fails at every backend. Its failures come in rows, and would eject one backend
//! after another although each serves all other endpoints well. So each operation that failed
//! lately keeps its last outcomes at two different backends, and
//!
//! ```text
//! a failure counts against its backend  ⇔  the same operation last succeeded at another backend
//! ```
//!
//! It also counts if the operation is unknown or fails for the first time. Why the last outcome,
//! and not shares over a time? A single answer of another backend tells a broken backend from the
//! others, at any rate of requests. Shares would have to be kept for each pair of operation and
//! backend.
//!
//! If the endpoint is not known at any other backend, its group decides: of a thousand paths below
//! `/reports`, none may be requested twice.
//!
//! # Where it is weak
//!
//! An endpoint that fails at random looks healthy now and then, if it last succeeded elsewhere.
//! Suppose that one backend gets an operation several times before any other backend, and fails it.
//! It is then ejected that many failures later. And if two of three backends are broken, each hides
//! half of the other's failures.

use crate::operation::Table;
use crate::{BackendId, Operation};

/// Outcomes of requests for one operation.
#[derive(Clone, Copy, Debug)]
struct Fault {
    /// Its last outcomes at two different backends, the latest first.
    last: [Option<Seen>; 2],
    /// Failures so far. The entry with the fewest is evicted first.
    failures: f64,
}

#[derive(Clone, Copy, Debug)]
struct Seen {
    backend: BackendId,
    is_failure: bool,
}

impl Fault {
    const NEW: Self = Self { last: [None; 2], failures: 0.0 };

    fn record(&mut self, backend: BackendId, is_failure: bool) {
        if self.last[0].is_none_or(|latest| latest.backend != backend) {
            self.last[1] = self.last[0];
        }
        self.last[0] = Some(Seen { backend, is_failure });
        self.failures += f64::from(u8::from(is_failure));
    }

    /// Whether the operation last failed at another backend; `None` if it was at no other.
    fn fails_elsewhere(&self, backend: BackendId) -> Option<bool> {
        self.last.iter().flatten().find(|seen| seen.backend != backend).map(|seen| seen.is_failure)
    }
}

/// The operations that failed lately.
#[derive(Clone, Debug)]
pub(crate) struct SharedFaults(Table<Fault>);

impl Default for SharedFaults {
    fn default() -> Self {
        Self(Table::new())
    }
}

impl SharedFaults {
    /// Records a success of `operation` at `backend`.
    pub(crate) fn on_success(&mut self, operation: Operation, backend: BackendId) {
        if self.0.is_empty() {
            return;
        }
        for key in operation.keys() {
            if let Some(fault) = self.0.get_mut(key) {
                fault.record(backend, false);
            }
        }
    }

    /// Records a failure of `operation` at `backend`. Returns whether it counts against the
    /// backend.
    pub(crate) fn on_failure(&mut self, operation: Operation, backend: BackendId) -> bool {
        let (mut elsewhere, mut is_first) = (None, true);
        for key in operation.keys() {
            let fault = self.0.get_or_insert(key, |fault| fault.failures, || Fault::NEW);
            elsewhere = elsewhere.or(fault.fails_elsewhere(backend));
            is_first &= fault.failures == 0.0;
            fault.record(backend, true);
        }
        elsewhere.map_or(is_first, |fails| !fails)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BACKENDS: [BackendId; 3] = [BackendId::new(0, 0), BackendId::new(1, 0), BackendId::new(2, 0)];

    #[test]
    fn failure_counts_once_the_operation_succeeds_at_another_backend() {
        let [one, two, three] = BACKENDS;
        let operation = Operation::new(1, 1);
        let mut faults = SharedFaults::default();
        assert!(faults.on_failure(operation, one), "it is the first");
        assert!(!faults.on_failure(operation, one), "nothing is known of it elsewhere");
        faults.on_success(operation, two);
        assert!(faults.on_failure(operation, one) && faults.on_failure(operation, one));
        assert!(!faults.on_failure(operation, two), "it fails at the other, too");
        assert!(!faults.on_failure(operation, one));
        faults.on_success(operation, three);
        assert!(faults.on_failure(operation, one));
    }

    #[test]
    fn endpoint_that_was_at_no_other_backend_goes_by_its_group() {
        let [one, two, _] = BACKENDS;
        let mut faults = SharedFaults::default();
        for path in 0..1_000 {
            let backend = if path % 2 == 0 { one } else { two };
            assert_eq!(faults.on_failure(Operation::new(path, 7), backend), path == 0, "{path}");
        }
    }

    #[test]
    fn failures_of_an_unknown_operation_always_count() {
        assert!(SharedFaults::default().on_failure(Operation::UNKNOWN, BACKENDS[0]));
    }
}
