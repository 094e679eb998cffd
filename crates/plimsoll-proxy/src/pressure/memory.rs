//! What this process uses of memory, and what it may use.
//!
//! Use is resident memory (`/proc/self/statm`): a control group's own count has the page cache in it, which
//! the kernel takes back by itself. The kernel's buffers of sockets are in neither; the share of the limit that is left
//! over by default is for them.

use std::fs::{self, File};
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use crate::cgroup;

/// Reads how much is in use.
#[derive(Debug)]
pub(super) struct Gauge {
    statm: Option<File>,
    page_size: u64,
}

impl Gauge {
    /// Opens what is read from then on: when descriptors are short it must not need another.
    pub(super) fn open() -> Self {
        Self { statm: File::open("/proc/self/statm").ok(), page_size: rustix::param::page_size() as u64 }
    }

    /// Bytes of memory in use; `None` where the system does not say.
    pub(super) fn resident_bytes(&self) -> Option<u64> {
        let mut text = [0; 128];
        let length = self.statm.as_ref()?.read_at(&mut text, 0).ok()?;
        let pages = std::str::from_utf8(&text[..length]).ok()?.split(' ').nth(1)?;
        Some(pages.parse::<u64>().ok()? * self.page_size)
    }
}

/// Bytes that this process can have: the least limit of its control groups, else all that the machine has.
pub(super) fn total_bytes() -> Option<u64> {
    let limits = control_group_limit(Path::new(cgroup::ROOT), &fs::read_to_string("/proc/self/cgroup").ok()?);
    let machine = machine_bytes(&fs::read_to_string("/proc/meminfo").ok()?)?;
    Some(limits.map_or(machine, |limit| limit.min(machine)))
}

fn machine_bytes(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    Some(line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()? * 1024)
}

/// The least memory limit of the group that `groups` (as `/proc/self/cgroup`) names below `root`, and of all above it.
fn control_group_limit(root: &Path, groups: &str) -> Option<u64> {
    let files = ["memory.max", "memory.limit_in_bytes"];
    let folders = cgroup::folders(root, groups, "memory");
    let limits = folders.iter().flat_map(|folder| files.map(|file| fs::read_to_string(folder.join(file))));
    // "max" is no number, and no limit.
    limits.filter_map(|limit| limit.ok()?.trim().parse().ok()).min()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_uses_less_than_it_can_have() {
        let (used, total) = (Gauge::open().resident_bytes().unwrap(), total_bytes().unwrap());
        assert!(used > 100_000 && used < total, "{used} of {total}");
    }

    #[test]
    fn the_least_limit_of_the_groups_above_holds() {
        let root = std::env::temp_dir().join(format!("plimsoll-groups-{}", std::process::id()));
        fs::create_dir_all(root.join("a/b")).unwrap();
        fs::create_dir_all(root.join("memory/c")).unwrap();
        fs::write(root.join("a/memory.max"), "1000\n").unwrap();
        fs::write(root.join("a/b/memory.max"), "max\n").unwrap();
        fs::write(root.join("memory/memory.limit_in_bytes"), "700\n").unwrap();
        assert_eq!(control_group_limit(&root, "0::/a/b\n"), Some(1000));
        assert_eq!(control_group_limit(&root, "3:cpu:/a\n5:memory:/c\n"), Some(700));
        assert_eq!(control_group_limit(&root, "0::/elsewhere\n"), None);
        fs::remove_dir_all(&root).unwrap();
    }

    #[test]
    fn the_memory_of_the_machine_is_read() {
        assert_eq!(machine_bytes("MemFree: 1 kB\nMemTotal:        8140932 kB\n"), Some(8_140_932 * 1024));
        assert_eq!(machine_bytes("MemTotal: much"), None);
    }
}
