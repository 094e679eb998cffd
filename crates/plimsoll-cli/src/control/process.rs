//! A proxy's process, found by its pid file.
//!
//! A pid file may be stale, and its number may be another program's by now. So the process is opened first
//! (`pidfd_open`), then inspected, and signalled through the same handle: no other process can come in between.

use std::fs;
use std::io::{self, ErrorKind};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use crate::exit::Problem;

/// The name of the program.
const PROGRAM: &str = "plimsoll";
/// The command that serves.
const COMMAND: &str = "proxy";

/// A process that runs `plimsoll proxy`.
#[derive(Debug)]
pub(super) struct Process {
    pub(super) pid: u32,
    handle: OwnedFd,
    /// Its command line.
    pub(super) arguments: Vec<String>,
}

impl Process {
    /// The process that a pid file names.
    pub(super) fn named_in(file: &Path) -> Result<Self, Problem> {
        let place = file.display();
        let text = fs::read_to_string(file).map_err(|error| {
            let help = match error.kind() {
                ErrorKind::NotFound => "start the proxy with --pid-file, or name its admin address with --admin",
                _ => "name a file that this user may read",
            };
            Problem::NoProxy(format!("no pid file {place}: {error}\n  help: {help}"))
        })?;
        let Some(pid) = text.trim().parse().ok().filter(|pid| *pid > 0) else {
            return Err(Problem::NoProxy(format!(
                "{place} is no pid file: it does not hold a process id alone\n  help: name the file that \
                 `plimsoll proxy --pid-file` wrote"
            )));
        };
        let stale = |reason: String| {
            Problem::NoProxy(format!("stale pid file {place}: {reason}\n  help: remove it, and start the proxy"))
        };
        match Self::open(pid) {
            Ok(Ok(process)) => Ok(process),
            Ok(Err(other)) => Err(stale(format!("process {pid} is `{other}`, not `plimsoll proxy`"))),
            Err(error) if error.kind() == ErrorKind::NotFound => Err(stale(format!("no process {pid} runs"))),
            Err(error) => {
                Err(Problem::Failed(anyhow::Error::new(error).context(format!("cannot inspect process {pid}"))))
            }
        }
    }

    /// The process of this id, if that is a proxy.
    pub(super) fn with_id(pid: u32) -> Option<Self> {
        Self::open(pid.try_into().ok()?).ok()?.ok()
    }

    /// The process of this id; `Err` names another program.
    fn open(pid: i32) -> io::Result<Result<Self, String>> {
        let none = || io::Error::from(ErrorKind::NotFound);
        let id = Pid::from_raw(pid).ok_or_else(none)?;
        let handle = pidfd_open(id, PidfdFlags::empty()).map_err(|error| match error {
            rustix::io::Errno::SRCH => none(),
            other => other.into(),
        })?;
        let line = fs::read(format!("/proc/{pid}/cmdline"))?;
        let arguments: Vec<String> =
            line.split(|byte| *byte == 0).map(|part| String::from_utf8_lossy(part).into_owned()).collect();
        // Of an ended process that nobody has waited for, the line is empty.
        if line.is_empty() {
            return Err(none());
        }
        let name = fs::read_to_string(format!("/proc/{pid}/comm"))?.trim_end().to_owned();
        if !is_proxy(&name, &arguments) {
            return Ok(Err(name));
        }
        Ok(Ok(Self { pid: pid.cast_unsigned(), handle, arguments }))
    }

    /// The directory in which relative paths of its command line begin; `None` where this user may not see it.
    pub(super) fn directory(&self) -> Option<PathBuf> {
        fs::read_link(format!("/proc/{}/cwd", self.pid)).ok()
    }

    /// Sends it a signal.
    pub(super) fn signal(&self, signal: Signal) -> Result<(), Problem> {
        pidfd_send_signal(&self.handle, signal).map_err(|error| {
            let help = "help: run this command as the user of the proxy, or as root";
            Problem::Failed(anyhow::anyhow!("cannot signal process {}: {error}\n  {help}", self.pid))
        })
    }

    /// Waits until it ends, or for `patience`; whether it has ended.
    pub(super) fn ends_within(&self, patience: Duration) -> bool {
        let timeout = Timespec { tv_sec: patience.as_secs().cast_signed(), tv_nsec: patience.subsec_nanos().into() };
        let mut ends = [PollFd::new(&self.handle, PollFlags::IN)];
        poll(&mut ends, Some(&timeout)).is_ok_and(|ready| ready > 0)
    }
}

/// Whether a process of this name and command line is a proxy. A binary may be kept under a longer name.
fn is_proxy(name: &str, arguments: &[String]) -> bool {
    let program = arguments.first().map(Path::new).and_then(Path::file_name).and_then(|name| name.to_str());
    let is_plimsoll = name.starts_with(PROGRAM) || program.is_some_and(|program| program.starts_with(PROGRAM));
    is_plimsoll && arguments.get(1).is_some_and(|command| command == COMMAND)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_command_proxy_of_plimsoll_is_a_proxy() {
        let is_proxy = |name, line: &str| is_proxy(name, &line.split(' ').map(str::to_owned).collect::<Vec<_>>());
        assert!(is_proxy("plimsoll", "/usr/local/bin/plimsoll proxy -c a.toml"));
        assert!(is_proxy("plimsoll-0.2", "/opt/plimsoll-0.2 proxy"));
        for (name, line) in [
            ("plimsoll", "plimsoll load http://a/"),
            ("plimsoll", "plimsoll"),
            ("nginx", "nginx: proxy"),
            ("vim", "vim proxy"),
        ] {
            assert!(!is_proxy(name, line), "{line}");
        }
    }

    #[test]
    fn process_of_another_program_is_not_opened() {
        let pid = std::process::id().cast_signed();
        assert!(Process::open(pid).unwrap().is_err(), "a test is no proxy");
        assert_eq!(Process::open(i32::MAX).unwrap_err().kind(), ErrorKind::NotFound);
    }
}
