//! The memory limit of a process and the memory used of it.
//!
//! The limit is that of the control group with the least headroom, of the process or above. Use is
//! the group's charge, less inactive file pages. The kernel reclaims those by itself before it
//! kills a process, and Kubernetes evicts by the same number. Where no group has a limit, it is the
//! machine's memory, less the memory that the kernel reports as available.
//!
//! The resident memory of the process would be wrong. Its limit is the group's, and socket buffers
//! and the page cache count against that limit too.

use std::fs;
use std::path::{Path, PathBuf};

use plimsoll_core::signal::Memory;

use super::{Groups, Owner};

/// The memory limit in bytes: of the control groups, else of the machine. `None` where the system
/// has none.
#[must_use]
pub fn memory_limit(owner: Owner<'_>) -> Option<u64> {
    let folders = Groups::of(owner).folders("memory");
    let machine = machine(&fs::read_to_string("/proc/meminfo").ok()?)?.limit;
    Some(limits(&folders).into_iter().map(|(_, limit)| limit).fold(machine, u64::min))
}

/// Reads how much memory is used.
#[derive(Debug)]
pub(super) struct MemoryReader {
    meminfo: PathBuf,
    /// The groups that may have a limit.
    folders: Vec<PathBuf>,
}

impl MemoryReader {
    pub(super) fn of(owner: Owner<'_>) -> Self {
        Self { meminfo: PathBuf::from("/proc/meminfo"), folders: Groups::of(owner).folders("memory") }
    }

    /// The use and limit with the least headroom; limits may change at any time. `None` where the
    /// system does not report it.
    pub(super) fn read(&self) -> Option<Memory> {
        let machine = machine(&fs::read_to_string(&self.meminfo).ok()?)?;
        // Version 1 reports a missing limit as a number larger than any machine's memory.
        let limited = limits(&self.folders).into_iter().filter(|(_, limit)| *limit < machine.limit);
        let groups = limited.filter_map(|(folder, limit)| Some(Memory { used: used(folder)?, limit }));
        Some(groups.max_by(|a, b| a.share().total_cmp(&b.share())).unwrap_or(machine))
    }
}

/// The groups that have a limit, each with the limit.
fn limits(folders: &[PathBuf]) -> Vec<(&Path, u64)> {
    // "max" is no number, and no limit.
    let limit = |folder: &Path| read(folder, ["memory.max", "memory.limit_in_bytes"])?.trim().parse().ok();
    folders.iter().filter_map(|folder| Some((folder.as_path(), limit(folder)?))).collect()
}

/// Bytes that a group has which nobody takes back from it.
fn used(folder: &Path) -> Option<u64> {
    let all: u64 = read(folder, ["memory.current", "memory.usage_in_bytes"])?.trim().parse().ok()?;
    let stat = fs::read_to_string(folder.join("memory.stat")).unwrap_or_default();
    // The old version counts those below it under another name.
    let inactive = |name: &str| stat.lines().find_map(|line| line.strip_prefix(name)?.trim().parse::<u64>().ok());
    let inactive = inactive("total_inactive_file ").or_else(|| inactive("inactive_file ")).unwrap_or(0);
    Some(all.saturating_sub(inactive))
}

/// The first of these files that is there.
fn read(folder: &Path, names: [&str; 2]) -> Option<String> {
    names.into_iter().find_map(|name| fs::read_to_string(folder.join(name)).ok())
}

fn machine(meminfo: &str) -> Option<Memory> {
    let bytes = |name: &str| {
        let line = meminfo.lines().find_map(|line| line.strip_prefix(name))?;
        Some(line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()? * 1024)
    };
    let limit = bytes("MemTotal:")?;
    // Kernels before 3.14 do not say.
    let available = bytes("MemAvailable:").or_else(|| bytes("MemFree:"))?;
    Some(Memory { used: limit.saturating_sub(available), limit })
}

#[cfg(test)]
mod tests {
    use plimsoll_testkit::tree::Tree;

    use super::*;

    const MEMINFO: &str = "MemTotal:        8140932 kB\nMemFree: 7 kB\nMemAvailable:   2035233 kB\n";

    /// The use and limit that are read for a process of these groups.
    fn memory(tree: &Tree, groups: &str) -> Option<(u64, u64)> {
        let folders = Groups::below(&tree.0, groups).folders("memory");
        let reader = MemoryReader { meminfo: tree.0.join("meminfo"), folders };
        reader.read().map(|memory| (memory.used, memory.limit))
    }

    #[test]
    fn the_group_with_least_left_counts_without_pages_that_nobody_asks_for() {
        let tree = Tree::new(&[
            ("meminfo", MEMINFO),
            ("a/memory.max", "1000\n"),
            ("a/memory.current", "900\n"),
            ("a/memory.stat", "anon 500\ninactive_file 300\nactive_file 100\n"),
            ("a/b/memory.max", "max\n"),
            ("a/b/memory.current", "800\n"),
            ("a/c/memory.max", "500\n"),
            ("a/c/memory.current", "400\n"),
            ("memory/d/memory.limit_in_bytes", "700\n"),
            ("memory/d/memory.usage_in_bytes", "600\n"),
            ("memory/d/memory.stat", "inactive_file 10\ntotal_inactive_file 50\n"),
            ("memory/memory.limit_in_bytes", "9223372036854771712\n"),
            ("memory/memory.usage_in_bytes", "5000\n"),
        ]);
        assert_eq!(memory(&tree, "0::/a/b\n"), Some((600, 1000)));
        assert_eq!(memory(&tree, "0::/a/c\n"), Some((400, 500)), "without memory.stat");
        assert_eq!(memory(&tree, "3:cpu:/a\n5:memory:/d\n"), Some((550, 700)));
        let machine = (6_105_699 * 1024, 8_140_932 * 1024);
        assert_eq!(memory(&tree, "5:memory:/elsewhere\n0::/\n"), Some(machine), "no group has a limit");
        tree.write("meminfo", "MemTotal: much");
        assert_eq!(memory(&tree, "0::/a/b\n"), None);
    }

    #[test]
    fn the_memory_of_this_process_is_known() {
        let Memory { used, limit } = MemoryReader::of(Owner::ThisProcess).read().unwrap();
        assert!(used > 100_000 && used < limit, "{used} of {limit}");
        let most = memory_limit(Owner::ThisProcess).unwrap();
        assert!(most >= 1 << 20 && most <= limit.max(most));
    }
}
