//! The CPU usage of a process and its descendants, from `/proc`.
//!
//! It is a sum over threads, because only threads tell how long they waited for a CPU. The counters
//! of a thread end with it, so the sum adds up their growth. The usage of a thread between its last
//! reading and its end is lost. A new thread counts from its start.
//!
//! Descendants are searched once a second, because each thread has a list of its own. Their usage
//! before they were found does not count: it would arrive as a burst.
//!
//! A reading that finds the same threads reads one open file for each and lists nothing. It happens
//! fifty times a second, on CPUs that may be full.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use plimsoll_core::admit::ProcessCounters;

/// Servers start their worker processes when they start, and replace them now and then.
const DESCENDANTS_EVERY: Duration = Duration::from_secs(1);

/// The files of threads that stay open, for a process with its descendants. Beyond it a file is
/// opened for each reading: a process with more threads can afford that.
pub const MAX_OPEN_FILES: usize = 256;

/// Three numbers of twenty digits, and blanks.
const MAX_LINE: usize = 64;

/// Nanoseconds that a thread ran, and waited for a CPU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Used {
    ran: u64,
    waited: u64,
}

/// A process and its descendants.
#[derive(Debug)]
pub(super) struct ProcessTree {
    proc: PathBuf,
    /// The root first.
    processes: Vec<Process>,
    total: Used,
    descendants_at: Instant,
}

#[derive(Debug)]
struct Process {
    number: u32,
    /// The folder of its threads.
    folder: PathBuf,
    threads: HashMap<u32, Thread>,
}

#[derive(Debug)]
struct Thread {
    /// `None` if too many are open.
    file: Option<File>,
    used: Used,
}

impl ProcessTree {
    /// The process with this id below `proc`; fails if there is none.
    pub(super) fn of(proc: &Path, root: u32) -> io::Result<Self> {
        let mut tree = Self {
            proc: proc.to_owned(),
            processes: vec![Process::of(proc, root, MAX_OPEN_FILES)?],
            total: Used::default(),
            descendants_at: Instant::now(),
        };
        tree.find_descendants();
        Ok(tree)
    }

    pub(super) fn root(&self) -> u32 {
        self.processes[0].number
    }

    /// The CPU usage since the first reading; fails once the process has ended.
    pub(super) fn look(&mut self) -> io::Result<ProcessCounters> {
        if self.descendants_at.elapsed() >= DESCENDANTS_EVERY {
            self.find_descendants();
        }
        let mut headroom = self.headroom();
        let total = &mut self.total;
        let (root, descendants) = self.processes.split_first_mut().expect("the root is never taken out");
        root.look(total, &mut headroom)?;
        let gone: Vec<u32> = descendants
            .iter_mut()
            .filter_map(|process| process.look(total, &mut headroom).is_err().then_some(process.number))
            .collect();
        if !gone.is_empty() {
            self.processes.retain(|process| !gone.contains(&process.number));
        }
        let seconds = |nanos| Duration::from_nanos(nanos).as_secs_f64();
        Ok(ProcessCounters { cpu: seconds(self.total.ran), waited: seconds(self.total.waited) })
    }

    /// The number of further files that may stay open.
    fn headroom(&self) -> usize {
        let threads = self.processes.iter().flat_map(|process| process.threads.values());
        MAX_OPEN_FILES.saturating_sub(threads.filter(|thread| thread.file.is_some()).count())
    }

    fn find_descendants(&mut self) {
        self.descendants_at = Instant::now();
        let mut next = 0;
        while let Some(process) = self.processes.get(next) {
            next += 1;
            for child in process.children() {
                // A child that has ended meanwhile adds nothing.
                if !self.processes.iter().any(|known| known.number == child)
                    && let Ok(child) = Process::of(&self.proc, child, self.headroom())
                {
                    self.processes.push(child);
                }
            }
        }
    }
}

impl Process {
    /// The process with this id, whose usage counts from now on. `headroom` of its files may stay
    /// open.
    fn of(proc: &Path, number: u32, mut headroom: usize) -> io::Result<Self> {
        let folder = proc.join(number.to_string()).join("task");
        let mut process = Self { number, folder, threads: HashMap::new() };
        process.look(&mut Used::default(), &mut headroom)?;
        Ok(process)
    }

    /// Adds the growth of its threads to `total`; fails if it has ended or may not be read.
    fn look(&mut self, total: &mut Used, headroom: &mut usize) -> io::Result<()> {
        // Two more than there are threads; one in a file system that does not count them.
        let links = fs::metadata(&self.folder)?.nlink();
        let folder = &self.folder;
        let mut failed = None;
        self.threads.retain(|number, thread| match thread.grow(folder, *number, total) {
            Ok(is_there) => is_there,
            Err(error) => {
                failed = Some(error);
                true
            }
        });
        if let Some(error) = failed {
            return Err(error);
        }
        if links != self.threads.len() as u64 + 2 {
            self.list(total, headroom)?;
        }
        // Without a thread the process has ended, and waits for its parent.
        if self.threads.is_empty() { Err(io::ErrorKind::NotFound.into()) } else { Ok(()) }
    }

    /// Finds new threads, and forgets those that have ended.
    fn list(&mut self, total: &mut Used, headroom: &mut usize) -> io::Result<()> {
        let mut before = std::mem::take(&mut self.threads);
        for entry in fs::read_dir(&self.folder)? {
            let Some(number) = entry?.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
            if let Some(thread) = before.remove(&number) {
                self.threads.insert(number, thread);
                continue;
            }
            // A file that cannot stay open is opened for each reading.
            let file = if *headroom > 0 { open(&self.folder, number).ok() } else { None };
            *headroom -= usize::from(file.is_some());
            let mut thread = Thread { file, used: Used::default() };
            if thread.grow(&self.folder, number, total)? {
                self.threads.insert(number, thread);
            }
        }
        Ok(())
    }

    fn children(&self) -> Vec<u32> {
        let Ok(threads) = fs::read_dir(&self.folder) else { return Vec::new() };
        let lists = threads.flatten().filter_map(|thread| fs::read_to_string(thread.path().join("children")).ok());
        lists.flat_map(|list| list.split_whitespace().filter_map(|pid| pid.parse().ok()).collect::<Vec<_>>()).collect()
    }
}

impl Thread {
    /// Adds the growth of the thread to `total`. Returns whether the thread still exists.
    fn grow(&mut self, folder: &Path, number: u32, total: &mut Used) -> io::Result<bool> {
        let mut text = [0; MAX_LINE];
        let read = match &self.file {
            Some(file) => file.read_at(&mut text, 0),
            None => open(folder, number).and_then(|file| file.read_at(&mut text, 0)),
        };
        let Some(len) = unless_ended(read)? else { return Ok(false) };
        let Some(now) = std::str::from_utf8(&text[..len]).ok().and_then(parse) else { return Ok(false) };
        // A reused id belongs to another thread.
        let before = if now.ran < self.used.ran { Used::default() } else { self.used };
        total.ran += now.ran - before.ran;
        total.waited += now.waited.saturating_sub(before.waited);
        self.used = now;
        Ok(true)
    }
}

fn open(folder: &Path, thread: u32) -> io::Result<File> {
    File::open(folder.join(thread.to_string()).join("schedstat"))
}

/// `None` if the thread has just ended.
fn unless_ended<T>(result: io::Result<T>) -> io::Result<Option<T>> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(error) if error.kind() == io::ErrorKind::NotFound || error.raw_os_error() == Some(ESRCH) => Ok(None),
        Err(error) => Err(error),
    }
}

/// The error of a read from a thread that ends meanwhile.
const ESRCH: i32 = rustix::io::Errno::SRCH.raw_os_error();

/// Parses `schedstat`: nanoseconds run, nanoseconds waited, and the number of runs.
fn parse(schedstat: &str) -> Option<Used> {
    let mut numbers = schedstat.split_whitespace().map(|number| number.parse().ok());
    Some(Used { ran: numbers.next()??, waited: numbers.next()?? })
}

#[cfg(test)]
mod tests {
    use plimsoll_testkit::tree::Tree as Folders;

    use super::*;

    const MS: u64 = 1_000_000;

    /// Sets the usage of a thread, in milliseconds.
    fn set(proc: &Folders, process: u32, thread: u32, ran: u64, waited: u64) {
        proc.write(&format!("{process}/task/{thread}/schedstat"), &format!("{} {} 7\n", ran * MS, waited * MS));
    }

    fn look(tree: &mut ProcessTree) -> (u64, u64) {
        let ProcessCounters { cpu, waited } = tree.look().unwrap();
        ((cpu * 1e3).round() as u64, (waited * 1e3).round() as u64)
    }

    #[test]
    fn cpu_of_threads_and_descendants_counts_from_the_first_reading() {
        let proc = Folders::new(&[]);
        set(&proc, 10, 10, 500, 50);
        set(&proc, 20, 20, 100, 0);
        set(&proc, 30, 30, 100, 0);
        proc.write("10/task/10/children", "20 ");
        proc.write("20/task/20/children", "30 99 ");
        let mut tree = ProcessTree::of(&proc.0, 10).unwrap();
        assert_eq!(look(&mut tree), (0, 0));
        set(&proc, 10, 10, 510, 53);
        set(&proc, 30, 30, 105, 0);
        assert_eq!(look(&mut tree), (15, 3));
        set(&proc, 10, 11, 4, 0);
        assert_eq!(look(&mut tree), (19, 3), "a thread that came");
    }

    #[test]
    fn counted_cpu_stays_when_a_thread_or_descendant_ends() {
        let proc = Folders::new(&[]);
        set(&proc, 10, 10, 0, 0);
        set(&proc, 10, 11, 0, 0);
        set(&proc, 20, 20, 0, 0);
        proc.write("10/task/10/children", "20");
        let mut tree = ProcessTree::of(&proc.0, 10).unwrap();
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
    fn thread_that_replaces_another_is_found() {
        let work = || {
            let begun = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
            let mut number = 1_u64;
            while rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime).tv_nsec - begun.tv_nsec < 50_000_000
            {
                (0..10_000).for_each(|_| number = std::hint::black_box(number.wrapping_mul(3)));
            }
        };
        // Works at once, and stays until it may end.
        let start = move || {
            let (go, told) = std::sync::mpsc::channel::<()>();
            let (done, is_done) = std::sync::mpsc::channel();
            let thread = std::thread::spawn(move || {
                work();
                done.send(()).unwrap();
                told.recv().unwrap();
            });
            is_done.recv().unwrap();
            (go, thread)
        };
        let (go, first) = start();
        let mut tree = ProcessTree::of(Path::new("/proc"), std::process::id()).unwrap();
        let before = tree.look().unwrap().cpu;
        go.send(()).unwrap();
        first.join().unwrap();
        let (go, second) = start();
        let grown = tree.look().unwrap().cpu - before;
        assert!(grown > 0.03, "{grown}");
        go.send(()).unwrap();
        second.join().unwrap();
    }

    #[test]
    fn files_beyond_the_limit_are_opened_for_each_reading() {
        let proc = Folders::new(&[]);
        let threads = MAX_OPEN_FILES as u32 + 10;
        (0..threads).for_each(|thread| set(&proc, 10, thread, 1, 0));
        let mut tree = ProcessTree::of(&proc.0, 10).unwrap();
        (0..threads).for_each(|thread| set(&proc, 10, thread, 3, 1));
        assert_eq!(look(&mut tree), (u64::from(threads) * 2, u64::from(threads)));
        assert_eq!(tree.headroom(), 0);
        fs::remove_dir_all(proc.0.join("10/task/0")).unwrap();
        set(&proc, 10, threads, 0, 0);
        look(&mut tree);
        assert!(tree.headroom() <= 1, "{}", tree.headroom());
    }

    #[test]
    fn reading_fails_when_the_process_has_ended() {
        let proc = Folders::new(&[]);
        assert!(ProcessTree::of(&proc.0, 10).is_err());
        set(&proc, 10, 10, 0, 0);
        let mut tree = ProcessTree::of(&proc.0, 10).unwrap();
        fs::remove_dir_all(proc.0.join("10")).unwrap();
        assert!(tree.look().is_err());
    }

    #[test]
    fn this_process_is_seen_to_use_cpu() {
        let mut tree = ProcessTree::of(Path::new("/proc"), std::process::id()).unwrap();
        let begun = Instant::now();
        let mut number = 1_u64;
        // The kernel updates the usage of a thread at its clock tick, or when the thread leaves the
        // CPU.
        while tree.look().unwrap().cpu < 0.005 {
            (0..10_000).for_each(|_| number = std::hint::black_box(number.wrapping_mul(3)));
            assert!(begun.elapsed() < Duration::from_secs(30), "nothing is seen of it");
        }
    }
}
