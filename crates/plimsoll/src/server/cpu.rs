//! How much CPU the process has used.
//!
//! The process's CPU clock, which counts nanoseconds of all threads (`/proc/self/stat` counts ticks of 10 ms, too coarse for a tenth
//! of a second).

use std::time::Duration;

/// CPU time that the process has used since its start, all threads, user and system.
#[cfg(unix)]
pub(super) fn used() -> Duration {
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
