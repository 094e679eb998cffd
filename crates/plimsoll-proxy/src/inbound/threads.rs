//! Which threads of a control group have no rest.
//!
//! What a group uses it says itself, but not by which of its threads. They are read at both ends of a window and not in between, as
//! [`Tree`](super::process::Tree) does: a group is named in place of a process because of its many threads, or because they live
//! shortly, and one that is full was there all the while. Threads that this process may not see, such as those of another
//! container, are not full.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use plimsoll_core::admit::Narrow;

use super::process::asked_for;

/// The threads of a control group and of those below it, by windows.
#[derive(Debug)]
pub(super) struct Threads {
    proc: PathBuf,
    group: PathBuf,
    window_at: Instant,
    /// For how long each ran and waited for a CPU until then, by its number.
    asked_for: HashMap<u32, Duration>,
}

impl Threads {
    /// Those of the group in this folder, by what `proc` says; the first window begins.
    pub(super) fn of(proc: &Path, group: &Path) -> Self {
        let mut threads = Self {
            proc: proc.to_owned(),
            group: group.to_owned(),
            window_at: Instant::now(),
            asked_for: HashMap::new(),
        };
        threads.asked_for = threads.read();
        threads
    }

    /// How many had no rest, each time that a window is over.
    pub(super) fn full(&mut self) -> Option<u32> {
        let gone = self.window_at.elapsed();
        if gone < Narrow::WINDOW {
            return None;
        }
        self.window_at = Instant::now();
        let now = self.read();
        let before = std::mem::replace(&mut self.asked_for, now);
        let enough = gone.mul_f64(Narrow::FULL);
        let is_full = |(number, now): (&u32, &Duration)| {
            before.get(number).is_some_and(|before| now.saturating_sub(*before) >= enough)
        };
        Some(self.asked_for.iter().filter(|thread| is_full(*thread)).count() as u32)
    }

    /// Has the window be over.
    #[cfg(test)]
    pub(super) fn end_window(&mut self) {
        self.window_at -= Narrow::WINDOW;
    }

    fn read(&self) -> HashMap<u32, Duration> {
        let asked_for = |number: u32| {
            let schedstat = fs::read_to_string(self.proc.join(number.to_string()).join("schedstat")).ok()?;
            Some((number, asked_for(&schedstat)?))
        };
        numbers(&self.group).into_iter().filter_map(asked_for).collect()
    }
}

/// The numbers of the threads of a group and of those below it.
fn numbers(group: &Path) -> Vec<u32> {
    let (mut numbers, mut left) = (Vec::new(), vec![group.to_owned()]);
    while let Some(folder) = left.pop() {
        let list = fs::read_to_string(folder.join("cgroup.threads")).unwrap_or_default();
        numbers.extend(list.lines().filter_map(|number| number.trim().parse::<u32>().ok()));
        let entries = fs::read_dir(&folder).into_iter().flatten().flatten();
        left.extend(
            entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir())).map(|entry| entry.path()),
        );
    }
    numbers
}

#[cfg(test)]
mod tests {
    use super::super::tests::Tree as Folders;
    use super::*;

    /// Sets what a thread has used, in milliseconds.
    fn set(proc: &Folders, thread: u32, ran: u64, waited: u64) {
        proc.write(&format!("{thread}/schedstat"), &format!("{} {} 7\n", ran * 1_000_000, waited * 1_000_000));
    }

    #[test]
    fn threads_of_a_group_and_those_below_that_had_no_rest_are_counted_by_windows() {
        let folders = Folders::new(&[("g/cgroup.threads", "10\n11\n0\n99\n"), ("g/below/cgroup.threads", "20\n")]);
        [10, 11, 20].into_iter().for_each(|thread| set(&folders, thread, 70_000, 0));
        let mut threads = Threads::of(&folders.0, &folders.0.join("g"));
        let window = |threads: &mut Threads| {
            assert_eq!(threads.full(), None, "the window is not over");
            threads.end_window();
            threads.full()
        };
        set(&folders, 10, 79_500, 400);
        set(&folders, 11, 78_000, 100);
        set(&folders, 20, 75_000, 4_900);
        folders.write("g/cgroup.threads", "10\n11\n12\n");
        set(&folders, 12, 90_000, 0);
        assert_eq!(window(&mut threads), Some(2), "one rested, and one has come");
        assert_eq!(window(&mut threads), Some(0), "and that is over");
    }

    #[test]
    fn of_a_group_whose_threads_cannot_be_seen_none_is_full() {
        let folders = Folders::new(&[("g/cpu.stat", "usage_usec 1\n")]);
        let mut threads = Threads::of(&folders.0, &folders.0.join("g"));
        threads.end_window();
        assert_eq!(threads.full(), Some(0));
    }
}
