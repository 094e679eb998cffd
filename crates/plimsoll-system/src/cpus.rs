//! The number of CPUs that a process may use: its scheduler affinity, or a lower quota of its
//! control groups.
//!
//! A quota may be a fraction, so this is not `available_parallelism`, which rounds it down. Both
//! versions of control groups count. The affinity of a group is unknown, for it is up to each
//! process in it; the caller's affinity stands in.

use std::fs;
use std::path::{Path, PathBuf};

use super::{Groups, Owner};

/// The lower bound of any CPU limit. With fewer no request would be admitted.
pub const MIN_CPUS: f64 = 0.01;

/// The CPUs that a process may use, at least [`MIN_CPUS`].
#[must_use]
pub fn cpus(owner: Owner<'_>) -> f64 {
    CpuReader::of(owner).read()
}

/// Reads how many CPUs a process may use.
#[derive(Debug)]
pub struct CpuReader {
    /// Those that the scheduler may put it on.
    scheduled: f64,
    /// The groups that may have a quota.
    folders: Vec<PathBuf>,
}

impl CpuReader {
    /// A reader of the process or group in `owner`. Control groups and affinity are found now and
    /// not again: the system answers for the calling thread, and another thread may be bound to a
    /// CPU of its own.
    #[must_use]
    pub fn of(owner: Owner<'_>) -> Self {
        let pid = match owner {
            Owner::Process { pid, .. } => i32::try_from(pid).ok().and_then(rustix::process::Pid::from_raw),
            Owner::ThisProcess | Owner::Group(_) => None,
        };
        Self { scheduled: scheduled_on(pid), folders: Groups::of(owner).folders("cpu") }
    }

    /// CPUs that it may use now, at least [`MIN_CPUS`]; quotas may change at any time. Some files
    /// are read, which takes tens of microseconds.
    #[must_use]
    pub fn read(&self) -> f64 {
        self.folders.iter().filter_map(|folder| quota(folder)).fold(self.scheduled, f64::min).max(MIN_CPUS)
    }

    /// A reader of the quotas in these folders of control groups, for a process that may be put on
    /// `scheduled` CPUs.
    #[must_use]
    pub fn within(folders: Vec<PathBuf>, scheduled: f64) -> Self {
        Self { scheduled, folders }
    }
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
    use plimsoll_testkit::tree::Tree;

    use super::*;

    #[test]
    fn the_least_quota_of_the_groups_above_holds_in_both_versions() {
        let tree = Tree::new(&[
            ("a/cpu.max", "150000 100000\n"),
            ("a/b/cpu.max", "max 100000\n"),
            ("a/b/c/cpu.max", "200000 100000\n"),
            ("cpu/c/cpu.cfs_quota_us", "50000\n"),
            ("cpu/c/cpu.cfs_period_us", "100000\n"),
            ("cpu/cpu.cfs_quota_us", "-1\n"),
            ("cpu/cpu.cfs_period_us", "100000\n"),
        ]);
        let reader = |groups: &str| CpuReader::within(Groups::below(&tree.0, groups).folders("cpu"), 8.0);
        let cpus = |groups: &str| reader(groups).read();
        assert_eq!(cpus("0::/a/b\n"), 1.5);
        assert_eq!(cpus("0::/a/b/c\n"), 1.5);
        assert_eq!(cpus("0::/elsewhere\n"), 8.0);
        assert_eq!(cpus("9:memory:/c\n4:cpu,cpuacct:/c\njunk\n"), 0.5);
        assert_eq!(cpus("4:cpu:/\n"), 8.0);

        let kept = reader("0::/a/b\n");
        assert_eq!(kept.read(), 1.5);
        tree.write("a/cpu.max", "300000 100000\n");
        assert_eq!(kept.read(), 3.0, "raised in place");
        tree.write("a/cpu.max", "max 100000\n");
        assert_eq!(kept.read(), 8.0);
    }

    #[test]
    fn this_process_may_use_some_whichever_way_it_is_asked_about() {
        let pid = std::process::id();
        let folder = format!("/proc/{pid}");
        let own = cpus(Owner::ThisProcess);
        assert!(own >= MIN_CPUS);
        assert_eq!(cpus(Owner::Process { folder: Path::new(&folder), pid }), own);
        assert!(cpus(Owner::Group(Path::new("/sys/fs/cgroup/there-is-none"))) >= own);
    }
}
