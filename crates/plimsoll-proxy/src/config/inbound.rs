//! The process behind a cluster that is protected from more than it can do.

use std::fmt;
use std::num::NonZeroU32;
use std::path::{Path, PathBuf};

use plimsoll_config::{Checker, Flaw, Table, Visitor, number, quoted, text, values};
use plimsoll_core::Ratio;
use plimsoll_core::admit::Outlook;
use plimsoll_core::signal::ScarceConfig;

/// The process that the backends of a cluster are.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Inbound {
    /// The file that its number stands in. Of this and the two that follow exactly one is there.
    pub pid_file: Option<AbsolutePath>,
    /// The folder of its control group.
    pub cgroup: Option<AbsolutePath>,
    /// Its number.
    pub pid: Option<NonZeroU32>,
    /// CPUs that it can use; as many as it may use if left out.
    pub cpus: Option<Cpus>,
    /// What is expected of requests and of a load that nobody knows yet.
    pub outlook: Outlook,
    /// What is watched of it beside CPU.
    pub scarce: ScarceConfig,
    /// It is only counted who would be turned away.
    pub dry_run: bool,
}

/// Which process it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum InboundProcess {
    /// The one whose number is in this file.
    PidFile(PathBuf),
    /// All in the control group with this folder.
    Cgroup(PathBuf),
    /// The one of this number.
    Pid(NonZeroU32),
}

impl Inbound {
    /// Reports unless the process is named, and named once.
    pub(super) fn check(&self, path: &str, checker: &mut Checker<'_>) {
        let ScarceConfig { cpu_pressure, memory_pressure, .. } = self.scarce;
        for (name, most) in [("cpu_pressure", cpu_pressure), ("memory_pressure", memory_pressure)] {
            if most == Some(Ratio::ZERO) {
                let help = "write a share above 0 such as \"20%\", or \"off\"";
                checker.report(format!("{path}.{name}"), "nobody ever waits for so little", help);
            }
        }
        let settings =
            [("pid_file", self.pid_file.is_some()), ("cgroup", self.cgroup.is_some()), ("pid", self.pid.is_some())];
        let named: Vec<_> = settings.into_iter().filter(|(_, is_there)| *is_there).map(|(name, _)| name).collect();
        match named[..] {
            // One that cannot be read was told as such.
            [] if checker.is_readable(path) => {
                let help = "add pid_file = \"/run/app.pid\", or cgroup or pid, which name it too";
                checker.report(path, "names no process", help);
            }
            [] | [_] => {}
            [first, second, ..] => {
                let reason = format!("the process is named by {first} already");
                checker.report(format!("{path}.{second}"), reason, "remove one of them");
            }
        }
    }

    /// The process.
    pub(crate) fn process(&self) -> InboundProcess {
        let path = |path: &AbsolutePath| path.0.clone();
        let by_file = self.pid_file.as_ref().map(path).map(InboundProcess::PidFile);
        let by_group = self.cgroup.as_ref().map(path).map(InboundProcess::Cgroup);
        by_file
            .or(by_group)
            .or(self.pid.map(InboundProcess::Pid))
            .expect("that there is exactly one was checked with the file")
    }
}

impl Table for Inbound {
    fn settings<V: Visitor>(&mut self, visitor: &mut V) {
        visitor.optional("pid_file", &mut self.pid_file);
        visitor.optional("cgroup", &mut self.cgroup);
        visitor.optional("pid", &mut self.pid);
        visitor.optional("cpus", &mut self.cpus);
        visitor.value("outlook", &mut self.outlook);
        let ScarceConfig { memory, cpu_pressure, memory_pressure } = &mut self.scarce;
        visitor.switch("memory", memory);
        visitor.switch("cpu_pressure", cpu_pressure);
        visitor.switch("memory_pressure", memory_pressure);
        visitor.value("dry_run", &mut self.dry_run);
    }
}

impl fmt::Display for InboundProcess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::PidFile(path) | Self::Cgroup(path) => write!(f, "{}", path.display()),
            Self::Pid(pid) => write!(f, "{pid}"),
        }
    }
}

/// A path that says the same wherever the proxy is started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AbsolutePath(PathBuf);

impl AbsolutePath {
    /// The path.
    #[must_use]
    pub fn as_path(&self) -> &Path {
        &self.0
    }

    fn parse(path: &str) -> Result<Self, Flaw> {
        if path.starts_with('/') {
            Ok(Self(path.into()))
        } else {
            Err(Flaw::new(format!("\"{path}\" is no absolute path"), "write a path that begins with \"/\""))
        }
    }
}

/// A number of CPUs, at least a hundredth of one.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Cpus(f64);

impl Cpus {
    const LEAST: f64 = 0.01;

    /// The number.
    #[must_use]
    pub fn get(self) -> f64 {
        self.0
    }

    fn new(cpus: f64) -> Option<Self> {
        (cpus >= Self::LEAST && cpus.is_finite()).then_some(Self(cpus))
    }
}

values! {
    AbsolutePath: |v| Self::parse(text(v, "a path", "a path in quotes, such as \"/run/app.pid\"")?), |path| quoted(path.0.display());
    Cpus: |v| {
        let help = "write a number of at least 0.01, without quotes, such as 2 or 0.5";
        number(v).and_then(Self::new).ok_or_else(|| Flaw::new("is not a number of CPUs", help))
    }, |cpus| format!("{:?}", cpus.0);
}
