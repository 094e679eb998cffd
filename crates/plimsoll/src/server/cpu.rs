//! How much CPU the process has used, and how much it may use.
//!
//! Used: the process's CPU clock, which counts nanoseconds of all threads (`/proc/self/stat` counts
//! ticks of 10 ms, too coarse for a tenth of a second). Available: the CPUs that the process may run
//! on, or the quota of its control group or of one above where that is less. A quota may be a
//! fraction, so this is not `available_parallelism`, which rounds it down.

use std::path::Path;
use std::time::Duration;

/// CPU time that the process has used since its start, all threads, user and system.
#[cfg(unix)]
pub(super) fn used() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::new(u64::try_from(time.tv_sec).unwrap_or(0), u32::try_from(time.tv_nsec).unwrap_or(0))
}

/// CPUs that the process may use, at least a hundredth of one.
pub(super) fn available() -> f64 {
    let quota = std::fs::read_to_string("/proc/self/cgroup")
        .ok()
        .and_then(|groups| quota(&groups, Path::new("/sys/fs/cgroup")));
    quota.map_or_else(runnable, |quota| quota.min(runnable())).max(0.01)
}

/// CPUs that the scheduler may put the process on.
fn runnable() -> f64 {
    #[cfg(target_os = "linux")]
    if let Ok(cpus) = rustix::thread::sched_getaffinity(None) {
        return f64::from(cpus.count());
    }
    std::thread::available_parallelism().map_or(1.0, |count| count.get() as f64)
}

/// The least quota, in CPUs, of the groups in `groups` (the text of `/proc/self/cgroup`) and of those
/// above them, under the mount point `root`. Both versions of control groups.
fn quota(groups: &str, root: &Path) -> Option<f64> {
    let mut least: Option<f64> = None;
    for line in groups.lines() {
        let mut parts = line.splitn(3, ':');
        let (Some(_), Some(controllers), Some(path)) = (parts.next(), parts.next(), parts.next()) else { continue };
        let hierarchy = match controllers {
            "" => root.to_path_buf(),
            _ if controllers.split(',').any(|name| name == "cpu") => root.join("cpu"),
            _ => continue,
        };
        let group = hierarchy.join(path.trim_start_matches('/'));
        for folder in group.ancestors().take_while(|folder| folder.starts_with(&hierarchy)) {
            if let Some(quota) = quota_of(folder) {
                least = Some(least.map_or(quota, |least| least.min(quota)));
            }
        }
    }
    least
}

/// The quota of one group: none when it has no limit or is not there.
fn quota_of(folder: &Path) -> Option<f64> {
    let read = |name: &str| std::fs::read_to_string(folder.join(name)).ok();
    let (quota, period) = match read("cpu.max") {
        Some(line) => line.trim().split_once(' ').map(|(quota, period)| (quota.to_owned(), period.to_owned()))?,
        None => (read("cpu.cfs_quota_us")?, read("cpu.cfs_period_us")?),
    };
    // "max" and "-1" are no limit: neither is a positive number.
    let quota: f64 = quota.trim().parse().ok().filter(|quota| *quota > 0.0)?;
    let period: f64 = period.trim().parse().ok().filter(|period| *period > 0.0)?;
    Some(quota / period)
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

    /// A folder tree that is removed at the end.
    struct Tree(PathBuf);

    impl Tree {
        fn new(name: &str, files: &[(&str, &str)]) -> Self {
            let root = std::env::temp_dir().join(format!("plimsoll-cpu-{name}-{}", std::process::id()));
            for (path, text) in files {
                let path = root.join(path);
                std::fs::create_dir_all(path.parent().unwrap()).unwrap();
                std::fs::write(path, text).unwrap();
            }
            Self(root)
        }
    }

    impl Drop for Tree {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn quota_is_the_least_on_the_way_up() {
        let tree = Tree::new(
            "v2",
            &[("a/cpu.max", "150000 100000\n"), ("a/b/cpu.max", "max 100000\n"), ("a/b/c/cpu.max", "200000 100000\n")],
        );
        assert_eq!(quota("0::/a/b/c\n", &tree.0), Some(1.5));
        assert_eq!(quota("0::/elsewhere\n", &tree.0), None);
    }

    #[test]
    fn old_control_groups_are_read_too() {
        let tree = Tree::new("v1", &[("cpu/d/cpu.cfs_quota_us", "50000\n"), ("cpu/d/cpu.cfs_period_us", "100000\n")]);
        assert_eq!(quota("9:memory:/d\n4:cpu,cpuacct:/d\njunk\n", &tree.0), Some(0.5));
        let free = Tree::new("v1free", &[("cpu/cpu.cfs_quota_us", "-1\n"), ("cpu/cpu.cfs_period_us", "100000\n")]);
        assert_eq!(quota("4:cpu:/\n", &free.0), None);
    }

    #[test]
    fn this_process_has_used_some_cpu_and_may_use_more() {
        let before = used();
        let mut x = 1_u64;
        while used() < before + Duration::from_millis(2) {
            x = std::hint::black_box(x.wrapping_mul(3));
        }
        assert!(available() > 0.0);
    }
}
