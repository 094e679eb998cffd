//! CPU time that the server has used.
//!
//! By default it is the process's CPU clock, which counts nanoseconds of all threads.
//! `/proc/self/stat` counts ticks of 10 ms, too coarse for a tenth of a second. A server with its
//! work elsewhere, such as in worker processes, brings a clock of its own.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// The CPU clock of a server.
#[derive(Clone, Default)]
pub(super) struct Clock(Option<Arc<dyn Fn() -> Duration + Send + Sync>>);

impl Clock {
    /// A clock of the server's own.
    pub(super) fn by(used: impl Fn() -> Duration + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(used)))
    }

    /// Whether the work runs on the threads of this process.
    pub(super) fn is_of_process(&self) -> bool {
        self.0.is_none()
    }

    /// CPU time used since the start.
    pub(super) fn used(&self) -> Duration {
        self.0.as_ref().map_or_else(used, |own| own())
    }
}

impl fmt::Debug for Clock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.is_of_process() { "process" } else { "own" })
    }
}

/// CPU time that the process has used since its start, all threads, user and system.
#[cfg(unix)]
fn used() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::new(u64::try_from(time.tv_sec).unwrap_or(0), u32::try_from(time.tv_nsec).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_is_seen_to_use_cpu() {
        let before = used();
        let mut number = 1_u64;
        while used() < before + Duration::from_millis(2) {
            number = std::hint::black_box(number.wrapping_mul(3));
        }
    }
}
