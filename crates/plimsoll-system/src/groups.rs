//! Where the control groups of a process are, whichever version of them the system has.

use std::path::{Path, PathBuf};

use super::Owner;

/// Where the system has them.
const ROOT: &str = "/sys/fs/cgroup";

/// The control groups that limit a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Groups {
    root: PathBuf,
    kind: Kind,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Kind {
    /// From the text of `/proc/PID/cgroup`; empty where there are no groups.
    Text(String),
    /// The folder of the group itself.
    Folder(PathBuf),
}

impl Groups {
    /// The groups that limit `owner`.
    pub(super) fn of(owner: Owner<'_>) -> Self {
        let kind = match owner {
            Owner::Group(folder) => Kind::Folder(folder.to_owned()),
            _ => Kind::Text(owner.read("cgroup").unwrap_or_default()),
        };
        Self { root: PathBuf::from(ROOT), kind }
    }

    /// The folders that may limit `controller`: of the group and of all groups above it, innermost
    /// first. Within a container the folder of a process's own group may not exist; the limits at
    /// the root hold then.
    pub(super) fn folders(&self, controller: &str) -> Vec<PathBuf> {
        match &self.kind {
            Kind::Text(text) => text.lines().flat_map(|line| folders_of(&self.root, line, controller)).collect(),
            // Of a group that is mounted elsewhere, such as in a container, the root is unknown.
            Kind::Folder(folder) if !folder.starts_with(&self.root) => vec![folder.clone()],
            Kind::Folder(folder) => with_those_above(&self.root, folder),
        }
    }

    #[cfg(test)]
    pub(super) fn below(root: &Path, text: &str) -> Self {
        Self { root: root.to_owned(), kind: Kind::Text(text.to_owned()) }
    }
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
fn with_those_above(base: &Path, group: &Path) -> Vec<PathBuf> {
    group.ancestors().take_while(|folder| folder.starts_with(base)).map(Path::to_path_buf).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_of_either_version_are_found_up_to_the_root() {
        let groups = Groups::below(Path::new("/g"), "9:memory:/c\n4:cpu,cpuacct:/d\njunk\n0::/a/b\n");
        assert_eq!(groups.folders("cpu"), ["/g/cpu/d", "/g/cpu", "/g/a/b", "/g/a", "/g"].map(PathBuf::from));
        assert_eq!(groups.folders("memory"), ["/g/memory/c", "/g/memory", "/g/a/b", "/g/a", "/g"].map(PathBuf::from));
        assert!(Groups::below(Path::new("/g"), "").folders("cpu").is_empty());
        let app = Groups::of(Owner::Group(Path::new("/sys/fs/cgroup/app.slice/app")));
        let above = ["/sys/fs/cgroup/app.slice/app", "/sys/fs/cgroup/app.slice", "/sys/fs/cgroup"];
        assert_eq!(app.folders("memory"), above.map(PathBuf::from));
        let elsewhere = Groups::of(Owner::Group(Path::new("/host/cgroup/app")));
        assert_eq!(elsewhere.folders("cpu"), [PathBuf::from("/host/cgroup/app")]);
    }
}
