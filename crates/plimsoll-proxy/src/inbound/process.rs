//! What a process and its descendants use of CPU, from `/proc`.
//!
//! Sums over its threads, for only these say how long they waited for a CPU. A thread that ends takes its sum with it, so what is
//! kept is how much each has grown; of a thread that ends between two looks, what it used since the first is lost. New threads count from
//! their beginning. Descendants are looked for once a second, since each thread has a list of its own; what they used before they
//! were found is not counted, so that no second's worth of CPU comes at once.

use std::collections::HashMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use plimsoll_core::admit::Outside;

/// Servers start processes that serve when they start themselves, and replace them now and then.
const DESCENDANTS_EVERY: Duration = Duration::from_secs(1);

/// Nanoseconds that a thread ran, and waited to run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Used {
    ran: u64,
    waited: u64,
}

/// A process and its descendants.
#[derive(Debug)]
pub(super) struct Tree {
    proc: PathBuf,
    root: u32,
    /// The root first.
    processes: Vec<u32>,
    threads: HashMap<u32, Used>,
    total: Used,
    descendants_at: Instant,
}

impl Tree {
    /// The process of this number, by what `proc` says; fails if there is none.
    pub(super) fn of(proc: &Path, root: u32) -> io::Result<Self> {
        let mut tree = Self {
            proc: proc.to_owned(),
            root,
            processes: Vec::new(),
            threads: HashMap::new(),
            total: Used::default(),
            descendants_at: Instant::now(),
        };
        tree.add(root)?;
        tree.find_descendants();
        Ok(tree)
    }

    pub(super) fn root(&self) -> u32 {
        self.root
    }

    /// What they have used since the first look; fails once the process is gone.
    pub(super) fn look(&mut self) -> io::Result<Outside> {
        if self.descendants_at.elapsed() >= DESCENDANTS_EVERY {
            self.find_descendants();
        }
        let mut threads = HashMap::with_capacity(self.threads.len());
        let mut gone = Vec::new();
        for &process in &self.processes {
            match self.threads_of(process) {
                Ok(found) => threads.extend(found),
                Err(error) if process == self.root => return Err(error),
                Err(_) => gone.push(process),
            }
        }
        self.processes.retain(|process| !gone.contains(process));
        for (thread, now) in &threads {
            let before = self.threads.get(thread).copied().unwrap_or_default();
            // A number that was given out again is another thread.
            let before = if now.ran < before.ran { Used::default() } else { before };
            self.total.ran += now.ran - before.ran;
            self.total.waited += now.waited.saturating_sub(before.waited);
        }
        self.threads = threads;
        let seconds = |nanos| Duration::from_nanos(nanos).as_secs_f64();
        Ok(Outside { cpu: seconds(self.total.ran), waited: seconds(self.total.waited) })
    }

    /// Counts what a process uses from now on.
    fn add(&mut self, process: u32) -> io::Result<()> {
        self.threads.extend(self.threads_of(process)?);
        self.processes.push(process);
        Ok(())
    }

    fn find_descendants(&mut self) {
        self.descendants_at = Instant::now();
        let mut next = 0;
        while let Some(&process) = self.processes.get(next) {
            next += 1;
            for child in self.children_of(process) {
                if !self.processes.contains(&child) {
                    // One that has ended by now has nothing to be added.
                    let _ = self.add(child);
                }
            }
        }
    }

    fn children_of(&self, process: u32) -> Vec<u32> {
        let Ok(threads) = fs::read_dir(self.threads_folder(process)) else { return Vec::new() };
        let lists = threads.flatten().filter_map(|thread| fs::read_to_string(thread.path().join("children")).ok());
        lists.flat_map(|list| list.split_whitespace().filter_map(|pid| pid.parse().ok()).collect::<Vec<_>>()).collect()
    }

    /// The threads of a process; fails if it has ended, or may not be looked at.
    fn threads_of(&self, process: u32) -> io::Result<Vec<(u32, Used)>> {
        let mut threads = Vec::new();
        for folder in fs::read_dir(self.threads_folder(process))? {
            let folder = folder?;
            let Some(thread) = folder.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
            match fs::read_to_string(folder.path().join("schedstat")) {
                Ok(text) => threads.extend(parse(&text).map(|used| (thread, used))),
                // It has just ended.
                Err(error)
                    if matches!(error.kind(), io::ErrorKind::NotFound) || error.raw_os_error() == Some(ESRCH) => {}
                Err(error) => return Err(error),
            }
        }
        // A process always has one, unless it is dead and nobody has asked yet how it ended.
        if threads.is_empty() { Err(io::ErrorKind::NotFound.into()) } else { Ok(threads) }
    }

    fn threads_folder(&self, process: u32) -> PathBuf {
        self.proc.join(process.to_string()).join("task")
    }
}

/// What reading from a thread that ends meanwhile fails with.
const ESRCH: i32 = rustix::io::Errno::SRCH.raw_os_error();

/// `schedstat`: nanoseconds run, nanoseconds waited, and how often.
fn parse(schedstat: &str) -> Option<Used> {
    let mut numbers = schedstat.split_whitespace().map(|number| number.parse().ok());
    Some(Used { ran: numbers.next()??, waited: numbers.next()?? })
}

#[cfg(test)]
mod tests {
    use super::super::tests::Tree as Folders;
    use super::*;

    const MS: u64 = 1_000_000;

    /// Sets what a thread has used, in milliseconds.
    fn set(proc: &Folders, process: u32, thread: u32, ran: u64, waited: u64) {
        proc.write(&format!("{process}/task/{thread}/schedstat"), &format!("{} {} 7\n", ran * MS, waited * MS));
    }

    fn look(tree: &mut Tree) -> (u64, u64) {
        let Outside { cpu, waited } = tree.look().unwrap();
        ((cpu * 1e3).round() as u64, (waited * 1e3).round() as u64)
    }

    #[test]
    fn what_all_threads_and_descendants_use_from_the_first_look_on_is_counted() {
        let proc = Folders::new(&[]);
        set(&proc, 10, 10, 500, 50);
        set(&proc, 20, 20, 100, 0);
        set(&proc, 30, 30, 100, 0);
        proc.write("10/task/10/children", "20 ");
        proc.write("20/task/20/children", "30 99 ");
        let mut tree = Tree::of(&proc.0, 10).unwrap();
        assert_eq!(look(&mut tree), (0, 0));
        set(&proc, 10, 10, 510, 53);
        set(&proc, 30, 30, 105, 0);
        assert_eq!(look(&mut tree), (15, 3));
        set(&proc, 10, 11, 4, 0);
        assert_eq!(look(&mut tree), (19, 3), "a thread that came");
    }

    #[test]
    fn what_was_counted_stays_when_a_thread_or_a_descendant_ends() {
        let proc = Folders::new(&[]);
        set(&proc, 10, 10, 0, 0);
        set(&proc, 10, 11, 0, 0);
        set(&proc, 20, 20, 0, 0);
        proc.write("10/task/10/children", "20");
        let mut tree = Tree::of(&proc.0, 10).unwrap();
        set(&proc, 10, 11, 8, 2);
        set(&proc, 20, 20, 4, 0);
        assert_eq!(look(&mut tree), (12, 2));
        fs::remove_dir_all(proc.0.join("10/task/11")).unwrap();
        fs::remove_dir_all(proc.0.join("20")).unwrap();
        assert_eq!(look(&mut tree), (12, 2));
        set(&proc, 10, 11, 3, 0);
        assert_eq!(look(&mut tree), (15, 2), "the number of a thread, given out again");
    }

    #[test]
    fn a_process_that_is_gone_is_told_as_such() {
        let proc = Folders::new(&[]);
        assert!(Tree::of(&proc.0, 10).is_err());
        set(&proc, 10, 10, 0, 0);
        let mut tree = Tree::of(&proc.0, 10).unwrap();
        fs::remove_dir_all(proc.0.join("10")).unwrap();
        assert!(tree.look().is_err());
    }

    #[test]
    fn this_process_is_seen_to_use_cpu() {
        let mut tree = Tree::of(Path::new("/proc"), std::process::id()).unwrap();
        let begun = Instant::now();
        let mut number = 1_u64;
        // What a thread uses is written down when the kernel's clock ticks, or when it is off the CPU.
        while tree.look().unwrap().cpu < 0.005 {
            (0..10_000).for_each(|_| number = std::hint::black_box(number.wrapping_mul(3)));
            assert!(begun.elapsed() < Duration::from_secs(30), "nothing is seen of it");
        }
    }
}
