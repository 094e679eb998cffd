//! This process's use of memory.
//!
//! Use is resident memory (`/proc/self/statm`): a control group's own count has the page cache in
//! it, which the kernel takes back by itself. The kernel's buffers of sockets are in neither; the
//! share of the limit that is left over by default is for them.

use std::fs::File;
use std::os::unix::fs::FileExt as _;

/// Reads how much is in use.
#[derive(Debug)]
pub(super) struct Gauge {
    statm: Option<File>,
    page_size: u64,
}

impl Gauge {
    /// Opens the file that is read from then on: when descriptors are short it must not need
    /// another.
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

#[cfg(test)]
mod tests {
    use plimsoll_system::{Owner, memory_limit};

    use super::*;

    #[test]
    fn this_process_uses_less_than_it_can_have() {
        let (used, total) = (Gauge::open().resident_bytes().unwrap(), memory_limit(Owner::ThisProcess).unwrap());
        assert!(used > 100_000 && used < total, "{used} of {total}");
    }
}
