//! Time that processes stalled for lack of a resource, by the kernel's count (PSI).
//!
//! It is read of the control group where that is known, else of the machine. The total is read and
//! not the averages beside it (`avg10`): those cover at least ten seconds, so a reaction to them
//! would last ten seconds too long.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use super::{Groups, Owner};

/// Reads for how long some process has stood still.
#[derive(Debug)]
pub(super) struct StallReader {
    file: PathBuf,
}

impl StallReader {
    /// For want of this resource, `cpu` or `memory`; `None` where the kernel does not count it.
    pub(super) fn of(owner: Owner<'_>, resource: &str) -> Option<Self> {
        let own = Groups::of(owner).folders(resource).into_iter().next();
        let group = own.map(|folder| folder.join(format!("{resource}.pressure")));
        let machine = PathBuf::from(format!("/proc/pressure/{resource}"));
        let files = group.into_iter().chain([machine]);
        files.map(|file| Self { file }).find(|reader| reader.read().is_some())
    }

    /// For how long there was one at least, in all.
    pub(super) fn read(&self) -> Option<Duration> {
        total(&fs::read_to_string(&self.file).ok()?)
    }
}

fn total(pressure: &str) -> Option<Duration> {
    let some = pressure.lines().find_map(|line| line.strip_prefix("some "))?;
    Some(Duration::from_micros(some.split_once("total=")?.1.trim().parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_total_of_some_is_what_is_read() {
        let text =
            "some avg10=1.53 avg60=0.87 avg300=0.50 total=2500000\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=7\n";
        assert_eq!(total(text), Some(Duration::from_millis(2_500)));
        for junk in ["", "full avg10=0.00 total=7\n", "some avg10=0.00\n", "some total=much\n"] {
            assert_eq!(total(junk), None, "{junk:?}");
        }
    }

    #[test]
    fn where_the_kernel_counts_the_total_never_falls() {
        let Some(reader) = StallReader::of(Owner::ThisProcess, "cpu") else {
            assert!(fs::read_to_string("/proc/pressure/cpu").is_err(), "the machine says, and is not heard");
            return;
        };
        let first = reader.read().unwrap();
        assert!(reader.read().unwrap() >= first);
        assert!(StallReader::of(Owner::ThisProcess, "patience").is_none());
    }
}
