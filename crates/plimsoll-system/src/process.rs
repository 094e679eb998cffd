//! Reads the CPU usage and scarce resources of another process.

use std::fmt;
use std::fs;
use std::io;
use std::num::NonZeroU32;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use plimsoll_core::admit::ProcessCounters;
use plimsoll_core::signal::{Readings, ResourceConfig, ResourceWatch};

use super::process_tree::ProcessTree;
use super::{Owner, ScarceReader, cpus};

/// A restarted process writes its file anew, and operators change quotas.
const CHECK_EVERY: Duration = Duration::from_secs(1);

/// The identity of another process, by one of three names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WatchedProcess {
    /// The file that holds its process id.
    PidFile(PathBuf),
    /// The folder of its control group, with all processes in it.
    Cgroup(PathBuf),
    /// Its process id.
    Pid(NonZeroU32),
}

impl fmt::Display for WatchedProcess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::PidFile(path) | Self::Cgroup(path) => write!(f, "{}", path.display()),
            Self::Pid(pid) => write!(f, "{pid}"),
        }
    }
}

/// One reading of a process.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ProcessSample {
    /// The CPU time that its threads used, and waited for.
    pub outside: ProcessCounters,
    /// Whether this is the first reading of this process.
    pub is_first: bool,
    /// The CPUs that it may use, if they were read.
    pub cpus: Option<f64>,
    /// The scarce resources beside CPU, if they were read.
    pub readings: Option<Readings>,
}

/// Reads a process, which may be restarted meanwhile.
#[derive(Debug)]
pub struct ProcessReader {
    proc: PathBuf,
    process: WatchedProcess,
    /// The CPUs that it may use, if they are set.
    cpus: Option<f64>,
    tree: Option<ProcessTree>,
    /// Whether the last reading found the group.
    is_group_seen: bool,
    check_at: Instant,
    watched: ResourceConfig,
    /// `None` until the process is found.
    scarce: Option<ScarceReader>,
    scarce_at: Instant,
}

impl ProcessReader {
    /// A reader of `process` with the CPUs that it may use, if they are set, and the signals in
    /// `watched`.
    #[must_use]
    pub fn new(process: WatchedProcess, cpus: Option<f64>, watched: ResourceConfig) -> Self {
        Self {
            proc: PathBuf::from("/proc"),
            process,
            cpus,
            tree: None,
            is_group_seen: false,
            check_at: Instant::now(),
            watched,
            scarce: None,
            scarce_at: Instant::now(),
        }
    }

    /// Reads the process.
    ///
    /// # Errors
    /// The reason why it cannot be read, for people.
    pub fn read(&mut self) -> Result<ProcessSample, String> {
        let is_due = self.check_at.elapsed() >= CHECK_EVERY;
        if is_due {
            self.check_at = Instant::now();
        }
        match self.process.clone() {
            WatchedProcess::Cgroup(folder) => {
                let seen = group(&folder);
                let is_first = !std::mem::replace(&mut self.is_group_seen, seen.is_ok());
                let outside = seen?;
                let cpus = (is_first || is_due).then(|| self.cpus.unwrap_or_else(|| cpus(Owner::Group(&folder))));
                let readings = self.readings(Owner::Group(&folder), is_first);
                Ok(ProcessSample { outside, is_first, cpus, readings })
            }
            WatchedProcess::Pid(pid) => self.read_process(pid.get(), is_due),
            WatchedProcess::PidFile(file) => match &self.tree {
                Some(tree) if !is_due => self.read_process(tree.root(), false),
                _ => {
                    let pid = pid_in(&file).inspect_err(|_| self.tree = None)?;
                    self.read_process(pid, is_due)
                }
            },
        }
    }

    fn read_process(&mut self, pid: u32, is_due: bool) -> Result<ProcessSample, String> {
        let known = self.tree.take().filter(|tree| tree.root() == pid);
        let is_first = known.is_none();
        let unseen = |error: io::Error| format!("process {pid} cannot be read: {error}");
        let mut tree = match known {
            Some(tree) => tree,
            None => ProcessTree::of(&self.proc, pid).map_err(unseen)?,
        };
        let outside = tree.look().map_err(unseen)?;
        self.tree = Some(tree);
        let folder = self.proc.join(pid.to_string());
        let owner = Owner::Process { folder: &folder, pid };
        let cpus = (is_first || is_due).then(|| self.cpus.unwrap_or_else(|| cpus(owner)));
        Ok(ProcessSample { outside, is_first, cpus, readings: self.readings(owner, is_first) })
    }

    /// Reads the scarce resources, if it is time. A process just found may be in other groups.
    fn readings(&mut self, owner: Owner<'_>, is_first: bool) -> Option<Readings> {
        if !self.watched.is_any() || !is_first && self.scarce_at.elapsed() < ResourceWatch::LOOK_EVERY {
            return None;
        }
        self.scarce_at = Instant::now();
        if is_first {
            self.scarce = None;
        }
        Some(self.scarce.get_or_insert_with(|| ScarceReader::of(owner, &self.watched)).read())
    }
}

/// The CPU usage of a control group (version 2), and the time for which some process waited for
/// a CPU.
fn group(folder: &Path) -> Result<ProcessCounters, String> {
    let file = folder.join("cpu.stat");
    let stat = fs::read_to_string(&file).map_err(|error| format!("{} cannot be read: {error}", file.display()))?;
    let cpu = stat.lines().find_map(|line| micros(line.strip_prefix("usage_usec ")?));
    let cpu = cpu.ok_or_else(|| format!("{} has no usage_usec: not a control group of version 2", file.display()))?;
    // Missing if the kernel does not count pressure.
    let pressure = fs::read_to_string(folder.join("cpu.pressure")).unwrap_or_default();
    let some = pressure.lines().find_map(|line| line.strip_prefix("some ")?.split_once("total="));
    let waited = some.and_then(|(_, total)| micros(total)).unwrap_or(0.0);
    Ok(ProcessCounters { cpu, waited })
}

/// In seconds.
fn micros(text: &str) -> Option<f64> {
    Some(Duration::from_micros(text.trim().parse().ok()?).as_secs_f64())
}

fn pid_in(file: &Path) -> Result<u32, String> {
    let text = fs::read_to_string(file).map_err(|error| format!("{} cannot be read: {error}", file.display()))?;
    let pid = text.trim().parse().ok().filter(|pid| *pid > 0);
    pid.ok_or_else(|| format!("{} does not hold a process id", file.display()))
}

#[cfg(test)]
mod tests {
    use plimsoll_testkit::tree::Tree as Folders;

    use super::*;

    fn reader(folders: &Folders, process: WatchedProcess) -> ProcessReader {
        let (now, watched) = (Instant::now(), ResourceConfig { memory: None, ..ResourceConfig::default() });
        ProcessReader {
            proc: folders.0.clone(),
            process,
            cpus: Some(2.0),
            tree: None,
            is_group_seen: false,
            check_at: now,
            watched,
            scarce: None,
            scarce_at: now,
        }
    }

    #[test]
    fn restarted_process_is_found_by_its_pid_file() {
        let folders = Folders::new(&[("10/task/10/schedstat", "5 0 1"), ("pid", "10\n")]);
        let mut reader = reader(&folders, WatchedProcess::PidFile(folders.0.join("pid")));
        let first =
            ProcessSample { outside: ProcessCounters::default(), is_first: true, cpus: Some(2.0), readings: None };
        assert_eq!(reader.read(), Ok(first));
        assert_eq!(reader.read(), Ok(ProcessSample { is_first: false, cpus: None, ..first }));
        fs::remove_dir_all(folders.0.join("10")).unwrap();
        assert!(reader.read().unwrap_err().starts_with("process 10 cannot be read: "));
        folders.write("pid", "");
        assert!(reader.read().unwrap_err().ends_with("does not hold a process id"));
        folders.write("11/task/11/schedstat", "900 0 1");
        folders.write("pid", "11");
        assert_eq!(reader.read(), Ok(first));
    }

    #[test]
    fn scarce_resources_are_read_rarely_and_anew_for_another_process() {
        let folders = Folders::new(&[("10/task/10/schedstat", "5 0 1"), ("pid", "10\n")]);
        let mut reader = reader(&folders, WatchedProcess::PidFile(folders.0.join("pid")));
        reader.watched = ResourceConfig::default();
        let first = reader.read().unwrap().readings.expect("at the first look");
        assert!(first.memory.is_some_and(|memory| memory.limit > 0) && first.cpu_stalled.is_none(), "{first:?}");
        assert_eq!(reader.read().unwrap().readings, None, "just looked at");
        reader.scarce_at -= ResourceWatch::LOOK_EVERY;
        assert!(reader.read().unwrap().readings.is_some());
        folders.write("11/task/11/schedstat", "900 0 1");
        folders.write("pid", "11");
        reader.check_at -= CHECK_EVERY;
        let other = reader.read().unwrap();
        assert!(other.is_first && other.readings.is_some());
    }

    #[test]
    fn control_group_reports_cpu_used_and_waited_for() {
        let folders = Folders::new(&[("g/cpu.stat", "usage_usec 2500000\nuser_usec 1\n")]);
        let mut reader = reader(&folders, WatchedProcess::Cgroup(folders.0.join("g")));
        let outside = ProcessCounters { cpu: 2.5, waited: 0.0 };
        let first = ProcessSample { outside, is_first: true, cpus: Some(2.0), readings: None };
        assert_eq!(reader.read(), Ok(first));
        folders
            .write("g/cpu.pressure", "some avg10=0.00 avg60=0.00 avg300=0.00 total=300000\nfull avg10=0.00 total=7\n");
        let outside = ProcessCounters { cpu: 2.5, waited: 0.3 };
        assert_eq!(reader.read(), Ok(ProcessSample { outside, is_first: false, cpus: None, readings: None }));
        folders.write("g/cpu.stat", "nr_periods 0\n");
        assert!(reader.read().unwrap_err().contains("has no usage_usec"));
        folders.write("g/cpu.stat", "usage_usec 2500000\n");
        assert_eq!(reader.read(), Ok(ProcessSample { outside, ..first }), "another process may be in it");
    }
}
