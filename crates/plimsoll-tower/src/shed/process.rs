//! The CPU clock of this process.

use std::time::Duration;

use plimsoll_core::Timestamp;

/// The time between two readings, which take some 300 ns.
const READ_EVERY: Duration = Duration::from_millis(10);

/// Reads the CPU usage of this process now and then.
pub(super) struct ProcessCpu {
    read_at: Timestamp,
}

impl ProcessCpu {
    /// `None` where there is no such clock, or without the feature `process-cpu`.
    pub(super) fn start() -> Option<Self> {
        cfg!(all(unix, feature = "process-cpu")).then_some(Self { read_at: Timestamp::ZERO })
    }

    /// CPU-seconds since the start of the process, if the next reading is due.
    pub(super) fn sample(&mut self, now: Timestamp) -> Option<f64> {
        (now >= self.read_at).then(|| {
            self.read_at = now + READ_EVERY;
            self.used()
        })
    }

    /// CPU-seconds of all threads since the start of the process.
    #[cfg(all(unix, feature = "process-cpu"))]
    pub(super) fn used(&self) -> f64 {
        let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
        time.tv_sec as f64 + time.tv_nsec as f64 * 1e-9
    }

    #[cfg(not(all(unix, feature = "process-cpu")))]
    pub(super) fn used(&self) -> f64 {
        0.0
    }
}
