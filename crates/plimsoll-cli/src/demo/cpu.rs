//! CPU that a process has used, from `/proc/PID/stat`.
//!
//! What the balancer hears are the backends' own reports, so the demo must not measure by them: it
//! asks the kernel.

use std::fs;
use std::io;

/// CPU seconds that the process has used since its start, in user and kernel mode, all threads, in
/// steps of a clock tick (10 ms on Linux as it is usually built).
pub(crate) fn used(pid: u32) -> io::Result<f64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat"))?;
    let ticks = ticks(&stat).ok_or_else(|| io::Error::other(format!("/proc/{pid}/stat is not as proc(5) says")))?;
    Ok(ticks as f64 / rustix::param::clock_ticks_per_second() as f64)
}

/// `utime` and `stime` together: fields 14 and 15 of proc(5), counted from 1.
fn ticks(stat: &str) -> Option<u64> {
    // Field 2 is the name in parentheses, and may itself contain spaces and parentheses.
    let (_, after_name) = stat.rsplit_once(')')?;
    let mut fields = after_name.split_ascii_whitespace().skip(11);
    let (user, kernel) = (fields.next()?, fields.next()?);
    Some(user.parse::<u64>().ok()? + kernel.parse::<u64>().ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn user_and_kernel_time_are_found_behind_any_name() {
        let rest = "S 1 2 3 4 5 6 7 8 9 10 70 5 0 0 20 0 3 0 100";
        assert_eq!(ticks(&format!("42 (plimsoll) {rest}")), Some(75));
        assert_eq!(ticks(&format!("42 (a) b (c) {rest}")), Some(75));
        assert_eq!(ticks("42 (plimsoll) S 1 2"), None);
        assert_eq!(ticks(""), None);
    }

    #[test]
    fn this_process_can_be_measured() {
        assert!(used(std::process::id()).unwrap() >= 0.0);
        assert!(used(u32::MAX).is_err());
    }
}
