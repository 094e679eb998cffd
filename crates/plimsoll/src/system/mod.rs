//! What the system lets a process use, and what it uses: this process, or one that is not ours.
//!
//! For a server that looks at itself ([`server`](crate::server)), and for whoever protects another process from outside, as the
//! proxy does. All of it is read from `/proc` and from the control groups, in either version; what is not there is `None`, or
//! counts as no limit, so that the same code runs where there are none.

mod cpus;
mod groups;
mod memory;
mod scarce;
mod stalls;

use std::path::Path;

pub(crate) use cpus::CpuReader;
pub use cpus::{LEAST_CPUS, cpus};
pub use memory::memory_limit;
pub use scarce::ScarceReader;

use groups::Groups;

/// Whose resources are asked about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Whose<'a> {
    /// Those of this process.
    Own,
    /// Those of the process of this number.
    Process {
        /// The folder that tells of it, such as `/proc/4711`.
        folder: &'a Path,
        /// Its number.
        pid: u32,
    },
    /// Those of all processes in the control group with this folder.
    Group(&'a Path),
}

impl Whose<'_> {
    /// A file that tells of the process; none of a group's.
    fn read(self, name: &str) -> Option<String> {
        let folder = match self {
            Self::Own => Path::new("/proc/self"),
            Self::Process { folder, .. } => folder,
            Self::Group(_) => return None,
        };
        std::fs::read_to_string(folder.join(name)).ok()
    }
}

#[cfg(test)]
pub(crate) mod tests {
    //! Folders for those who look at a system.

    use std::fs;
    use std::path::PathBuf;
    use std::sync::atomic::{AtomicUsize, Ordering};

    /// A folder tree that is removed at the end.
    pub(crate) struct Tree(pub(crate) PathBuf);

    impl Tree {
        pub(crate) fn new(files: &[(&str, &str)]) -> Self {
            static NUMBER: AtomicUsize = AtomicUsize::new(0);
            let number = NUMBER.fetch_add(1, Ordering::Relaxed);
            let tree = Self(std::env::temp_dir().join(format!("plimsoll-system-{}-{number}", std::process::id())));
            fs::create_dir_all(&tree.0).unwrap();
            files.iter().for_each(|(path, text)| tree.write(path, text));
            tree
        }

        pub(crate) fn write(&self, path: &str, text: &str) {
            let path = self.0.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
    }

    impl Drop for Tree {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }
}
