//! How many CPUs a process may use that is not ours: those that the scheduler may put it on, or the quota of its control groups where that
//! is less. A quota may be a fraction.

use std::fs;
use std::path::{Path, PathBuf};

use crate::cgroup;

/// No process has less, or nothing would ever be let in.
pub(super) const LEAST: f64 = 0.01;

/// CPUs that the process of this number may use, by what `proc` says.
pub(super) fn of_process(proc: &Path, pid: u32) -> f64 {
    let groups = fs::read_to_string(proc.join(pid.to_string()).join("cgroup")).unwrap_or_default();
    let folders = cgroup::folders(Path::new(cgroup::ROOT), &groups, "cpu");
    within(&folders, scheduled_on(i32::try_from(pid).ok().and_then(rustix::process::Pid::from_raw)))
}

/// CPUs that the group with this folder may use. On which of them its processes may be put is up to each of these.
pub(super) fn of_group(folder: &Path) -> f64 {
    within(&cgroup::with_those_above(Path::new(cgroup::ROOT), folder), scheduled_on(None))
}

fn within(folders: &[PathBuf], cpus: f64) -> f64 {
    folders.iter().filter_map(|folder| quota(folder)).fold(cpus, f64::min).max(LEAST)
}

/// CPUs that the scheduler may put a process on; `None` for this one.
fn scheduled_on(pid: Option<rustix::process::Pid>) -> f64 {
    #[cfg(target_os = "linux")]
    if let Ok(cpus) = rustix::thread::sched_getaffinity(pid) {
        return f64::from(cpus.count());
    }
    let _ = pid;
    std::thread::available_parallelism().map_or(1.0, |count| count.get() as f64)
}

/// The quota of one group, in CPUs: none when it has no limit or is not there.
fn quota(folder: &Path) -> Option<f64> {
    let read = |name: &str| fs::read_to_string(folder.join(name)).ok();
    let (quota, period) = match read("cpu.max") {
        Some(line) => line.trim().split_once(' ').map(|(quota, period)| (quota.to_owned(), period.to_owned()))?,
        None => (read("cpu.cfs_quota_us")?, read("cpu.cfs_period_us")?),
    };
    // "max" and "-1" are no limit: neither is a number above zero.
    let above_zero = |text: &str| text.trim().parse::<f64>().ok().filter(|number| *number > 0.0);
    Some(above_zero(&quota)? / above_zero(&period)?)
}

#[cfg(test)]
mod tests {
    use super::super::tests::Tree;
    use super::*;

    #[test]
    fn the_least_quota_of_the_groups_above_holds_in_both_versions() {
        let tree = Tree::new(&[
            ("a/cpu.max", "150000 100000\n"),
            ("a/b/cpu.max", "max 100000\n"),
            ("cpu/c/cpu.cfs_quota_us", "50000\n"),
            ("cpu/c/cpu.cfs_period_us", "100000\n"),
            ("cpu/cpu.cfs_quota_us", "-1\n"),
            ("cpu/cpu.cfs_period_us", "100000\n"),
        ]);
        let cpus = |groups: &str| within(&cgroup::folders(&tree.0, groups, "cpu"), 8.0);
        assert_eq!(cpus("0::/a/b\n"), 1.5);
        assert_eq!(cpus("0::/elsewhere\n"), 8.0);
        assert_eq!(cpus("9:memory:/c\n4:cpu,cpuacct:/c\njunk\n"), 0.5);
        assert_eq!(cpus("4:cpu:/\n"), 8.0);
    }

    #[test]
    fn this_process_may_use_some() {
        assert!(of_process(Path::new("/proc"), std::process::id()) >= LEAST);
    }
}
