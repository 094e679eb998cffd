//! The number of CPUs that the server may use, which changes when the quota of its control group
//! does.
//!
//! A configured number is final. Otherwise the system's number is read once a second, by the first
//! thread that asks for it while it serves a request. Without requests nothing needs it.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use plimsoll_core::Timestamp;
use plimsoll_system::{CpuReader, MIN_CPUS, Owner};

use crate::clock::Clock;

/// Interval of the reads. Quotas are changed by hand or by an autoscaler, and both take longer.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// CPUs that the server may use.
#[derive(Debug)]
pub(super) struct Available {
    clock: Clock,
    /// None where the owner says how many.
    reader: Option<CpuReader>,
    /// The bits of how many at the last look.
    cpus: AtomicU64,
    look_at: AtomicU64,
}

impl Available {
    /// The configured number of CPUs, else the system's.
    pub(super) fn new(said: Option<f64>) -> Self {
        match said {
            Some(cpus) => Self::with(None, cpus.max(MIN_CPUS)),
            None => Self::by(CpuReader::of(Owner::ThisProcess)),
        }
    }

    pub(super) fn by(reader: CpuReader) -> Self {
        let cpus = reader.read();
        Self::with(Some(reader), cpus)
    }

    fn with(reader: Option<CpuReader>, cpus: f64) -> Self {
        let look_at = reader.as_ref().map_or(u64::MAX, |_| (Timestamp::ZERO + LOOK_EVERY).as_nanos());
        Self { clock: Clock::start(), reader, cpus: AtomicU64::new(cpus.to_bits()), look_at: AtomicU64::new(look_at) }
    }

    /// The clock for its timestamps.
    pub(super) fn clock(&self) -> Clock {
        self.clock
    }

    /// How many there were at the last look.
    pub(super) fn cpus(&self) -> f64 {
        f64::from_bits(self.cpus.load(Ordering::Relaxed))
    }

    /// Looks, if it is time; some files are read then, so not under a lock that others wait for.
    pub(super) fn look(&self, now: Timestamp) {
        let due = self.look_at.load(Ordering::Relaxed);
        let Some(reader) = self.reader.as_ref().filter(|_| now.as_nanos() >= due) else { return };
        let next = (now + LOOK_EVERY).as_nanos();
        // One of all threads does.
        if self.look_at.compare_exchange(due, next, Ordering::Relaxed, Ordering::Relaxed).is_ok() {
            self.cpus.store(reader.read().to_bits(), Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use plimsoll_testkit::tree::Tree;

    use super::*;

    #[test]
    fn a_quota_that_is_changed_in_place_is_seen_within_a_second_and_what_the_owner_says_stands() {
        let tree = Tree::new(&[("cpu.max", "100000 100000\n")]);
        let at = |millis| Timestamp::ZERO + Duration::from_millis(millis);
        let available = Available::by(CpuReader::within(vec![tree.0.clone()], 8.0));
        tree.write("cpu.max", "250000 100000\n");
        available.look(at(999));
        assert_eq!(available.cpus(), 1.0);
        available.look(at(1_000));
        assert_eq!(available.cpus(), 2.5);
        tree.write("cpu.max", "50000 100000\n");
        available.look(at(1_999));
        assert_eq!(available.cpus(), 2.5);
        available.look(at(5_000));
        assert_eq!(available.cpus(), 0.5);

        let said = Available::new(Some(3.0));
        said.look(at(60_000));
        assert_eq!(said.cpus(), 3.0);
    }
}
