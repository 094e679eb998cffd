//! Accepted requests in quiet times, counted without a lock.
//!
//! While nothing is rejected, the throttle decides nothing and only counts
//! ([`quiet_until`](plimsoll_core::throttle::Throttle::quiet_until)). Its lock and a second reading
//! of the clock would take half of the layer's time. So an accepted request adds one to a tally, and
//! the next holder of the lock reports the sum to the machine.

use std::sync::atomic::{AtomicU64, Ordering};

use plimsoll_core::{Criticality, Timestamp};

/// The tallies by [`Criticality::rank`], in one cache line.
///
/// All accesses are relaxed: each number is whole by itself. A request that reads an outdated one
/// is as if it had come a moment earlier.
#[derive(Default)]
#[repr(align(64))]
pub(super) struct Tallies([Tally; Criticality::ALL.len()]);

#[derive(Default)]
struct Tally {
    /// Nanoseconds until which a request need not ask; zero if each must.
    until: AtomicU64,
    /// All accepts so far. It wraps after centuries.
    accepts: AtomicU64,
}

impl Tallies {
    fn of(&self, criticality: Criticality) -> &Tally {
        &self.0[criticality.rank()]
    }

    /// Whether a request may be sent without asking.
    pub(super) fn is_quiet(&self, now: Timestamp, criticality: Criticality) -> bool {
        now.as_nanos() < self.of(criticality).until.load(Ordering::Relaxed)
    }

    /// Counts an accepted request; `false` if the machine must hear of it at once.
    pub(super) fn accept(&self, criticality: Criticality) -> bool {
        let tally = self.of(criticality);
        let is_quiet = tally.until.load(Ordering::Relaxed) != 0;
        if is_quiet {
            tally.accepts.fetch_add(1, Ordering::Relaxed);
        }
        is_quiet
    }

    /// All accepts so far, which changes with each.
    pub(super) fn sum(&self) -> u64 {
        self.0.iter().map(|tally| tally.accepts.load(Ordering::Relaxed)).fold(0, u64::wrapping_add)
    }

    pub(super) fn accepts(&self, criticality: Criticality) -> u64 {
        self.of(criticality).accepts.load(Ordering::Relaxed)
    }

    /// The end of the quiet time, if there is one.
    pub(super) fn until(&self, criticality: Criticality) -> Option<Timestamp> {
        let until = self.of(criticality).until.load(Ordering::Relaxed);
        (until > 0).then(|| Timestamp::from_nanos(until))
    }

    pub(super) fn set_until(&self, criticality: Criticality, until: Option<Timestamp>) {
        self.of(criticality).until.store(until.map_or(0, Timestamp::as_nanos), Ordering::Relaxed);
    }
}
