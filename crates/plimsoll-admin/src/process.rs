//! What this process takes of its machine.

use std::fs;

/// CPU time used since the start, all threads, user and system, in seconds.
pub(crate) fn cpu_seconds() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

/// Memory held now, in bytes; `None` where there is no `/proc`.
pub(crate) fn resident_bytes() -> Option<u64> {
    let pages: u64 = fs::read_to_string("/proc/self/statm").ok()?.split(' ').nth(1)?.parse().ok()?;
    Some(pages * rustix::param::page_size() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_takes_something() {
        assert!(cpu_seconds() > 0.0);
        assert!(resident_bytes().is_none_or(|bytes| bytes > 100_000));
    }
}
