//! Where the control groups of a process are, whichever version of them the system has.

use std::path::{Path, PathBuf};

/// Where the system has them.
pub(crate) const ROOT: &str = "/sys/fs/cgroup";

/// The folders that may limit what `controller` hands out to a process: of its group, and of all groups above it, below `root`. `groups` is
/// the text of its `/proc/PID/cgroup`. Within a container the folder of its own group may not exist; what its root says holds then.
pub(crate) fn folders(root: &Path, groups: &str, controller: &str) -> Vec<PathBuf> {
    groups.lines().flat_map(|line| folders_of(root, line, controller)).collect()
}

fn folders_of(root: &Path, line: &str, controller: &str) -> Vec<PathBuf> {
    let mut parts = line.splitn(3, ':').skip(1);
    let (Some(controllers), Some(path)) = (parts.next(), parts.next()) else { return Vec::new() };
    let base = match controllers {
        "" => root.to_path_buf(),
        _ if controllers.split(',').any(|name| name == controller) => root.join(controller),
        _ => return Vec::new(),
    };
    with_those_above(&base, &base.join(path.trim_start_matches('/')))
}

/// The folder of a group, and those of all above it up to `base`.
pub(crate) fn with_those_above(base: &Path, group: &Path) -> Vec<PathBuf> {
    group.ancestors().take_while(|folder| folder.starts_with(base)).map(Path::to_path_buf).collect()
}
