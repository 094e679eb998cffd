//! The resources that a process may use, and its usage: for this process or another one.
//!
//! A server reads its own. The proxy reads those of the process that it protects. All of it comes
//! from `/proc` and from the control groups, in either version. A missing file is `None` or no limit,
//! so that the same code runs without control groups. The speed of the machine is configured or
//! measured ([`MachineSpeed`]).

mod calibration;
mod cpus;
mod groups;
mod memory;
mod process;
mod process_tree;
mod scarce;
mod speed;
mod stalls;

use std::path::Path;

pub use calibration::Calibration;
pub use cpus::{CpuReader, MIN_CPUS, cpus};
pub use memory::memory_limit;
pub use process::{ProcessReader, ProcessSample, WatchedProcess};
pub use process_tree::MAX_OPEN_FILES;
pub use scarce::ScarceReader;
pub use speed::MachineSpeed;

use groups::Groups;

/// The owner of the resources.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Owner<'a> {
    /// This process.
    ThisProcess,
    /// The process of this number.
    Process {
        /// The folder that tells of it, such as `/proc/4711`.
        folder: &'a Path,
        /// Its number.
        pid: u32,
    },
    /// All processes in the control group of this folder.
    Group(&'a Path),
}

impl Owner<'_> {
    /// A file that tells of the process; none of a group's.
    fn read(self, name: &str) -> Option<String> {
        let folder = match self {
            Self::ThisProcess => Path::new("/proc/self"),
            Self::Process { folder, .. } => folder,
            Self::Group(_) => return None,
        };
        std::fs::read_to_string(folder.join(name)).ok()
    }
}

/// Runs the example of the README as a test of the documentation.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
mod readme {}

#[cfg(not(target_os = "linux"))]
compile_error!(
    "plimsoll-system needs Linux; help: use plimsoll-core or plimsoll-tower, or one of the other portable crates (docs/crates.md)"
);
