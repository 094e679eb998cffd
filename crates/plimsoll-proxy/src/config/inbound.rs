//! The process behind a cluster that is protected from more than it can do.

use std::fs;
use std::net::SocketAddr;
use std::num::NonZeroU32;
use std::path::{Path, PathBuf};

use plimsoll::system::WatchedProcess;
use plimsoll_config::{Checker, DeValue, Flaw, Table, Visitor, kind, number, quoted, text, values};
use plimsoll_core::Ratio;
use plimsoll_core::admit::Outlook;
use plimsoll_core::signal::ResourceConfig;

use super::address::Backend;

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
    /// The assumption about requests and load that are not known yet.
    pub outlook: Outlook,
    /// The signals beside CPU.
    pub scarce: ResourceConfig,
    /// Requests that would be shed are only counted.
    pub dry_run: bool,
}

impl Inbound {
    /// Reports unless the process is named, and named once.
    pub(super) fn check(&self, path: &str, checker: &mut Checker<'_>) {
        let ResourceConfig { cpu_pressure, memory_pressure, .. } = self.scarce;
        for (name, most) in [("cpu_pressure", cpu_pressure), ("memory_pressure", memory_pressure)] {
            if most == Some(Ratio::ZERO) {
                let help = "write a share above 0 such as \"20%\", or \"off\"";
                checker.report(format!("{path}.{name}"), "would shed every request", help);
            }
        }
        let settings =
            [("pid_file", self.pid_file.is_some()), ("cgroup", self.cgroup.is_some()), ("pid", self.pid.is_some())];
        let named: Vec<_> = settings.into_iter().filter(|(_, is_there)| *is_there).map(|(name, _)| name).collect();
        match named[..] {
            // An unreadable one was reported already.
            [] if checker.is_readable(path) => {
                let help = "add pid_file = \"/run/app.pid\", or cgroup or pid";
                checker.report(path, "names no process", help);
            }
            [] | [_] => {}
            [first, second, ..] => {
                let reason = format!("the process is named by {first} already");
                checker.report(format!("{path}.{second}"), reason, "remove one of them");
            }
        }
    }

    /// Reports a backend on another machine: neither a number nor its file can name a process
    /// there. One in a container may have an address of its own; its control group names it.
    pub(super) fn check_backends(&self, path: &str, backends: &[Backend], checker: &mut Checker<'_>) {
        if self.cgroup.is_some() {
            return;
        }
        let is_elsewhere = |address: &SocketAddr| !address.ip().is_loopback() && !address.ip().is_unspecified();
        let addresses = backends.iter().filter_map(|backend| backend.address.socket_address());
        let Some((k, elsewhere)) = addresses.enumerate().find(|(_, address)| is_elsewhere(address)) else { return };
        let reason = format!("protects a process of this machine, but backends[{k}] is at {}", elsewhere.ip());
        let help = format!(
            "write \"127.0.0.1:{}\" for a process beside the proxy, or name a container by cgroup, or remove this table",
            elsewhere.port()
        );
        checker.report(path, reason, help);
    }

    /// The parts of `path`, which stands here, that this machine does not have at the moment.
    pub(super) fn missing(&self, path: &str) -> Option<(String, Flaw)> {
        let later = "start the process first, or correct the path; until it is found, no request is shed";
        match self.process() {
            WatchedProcess::PidFile(file) => {
                let setting = format!("{path}.pid_file");
                match fs::read_to_string(&file) {
                    Ok(text) if text.trim().parse::<NonZeroU32>().is_ok() => None,
                    Ok(_) => {
                        let reason = format!("{} does not hold a process id", file.display());
                        Some((setting, Flaw::new(reason, "write only the process id to the file")))
                    }
                    Err(error) => {
                        let reason = format!("{} cannot be read: {error}", file.display());
                        Some((setting, Flaw::new(reason, later)))
                    }
                }
            }
            WatchedProcess::Cgroup(folder) => {
                let file = folder.join("cpu.stat");
                let error = fs::metadata(&file).err()?;
                let reason = format!("{} cannot be read: {error}", file.display());
                let help = "start the process first, or correct the path; it needs control groups of version 2";
                Some((format!("{path}.cgroup"), Flaw::new(reason, help)))
            }
            WatchedProcess::Pid(pid) => {
                fs::metadata(format!("/proc/{pid}")).err()?;
                let help = "write pid_file = \"/run/app.pid\": a restarted process is found by it";
                Some((format!("{path}.pid"), Flaw::new(format!("there is no process {pid}"), help)))
            }
        }
    }

    /// The process.
    pub(crate) fn process(&self) -> WatchedProcess {
        let path = |path: &AbsolutePath| path.0.clone();
        let by_file = self.pid_file.as_ref().map(path).map(WatchedProcess::PidFile);
        let by_group = self.cgroup.as_ref().map(path).map(WatchedProcess::Cgroup);
        by_file
            .or(by_group)
            .or(self.pid.map(WatchedProcess::Pid))
            .expect("that there is exactly one was checked with the file")
    }
}

impl Table for Inbound {
    const NEEDS: &'static str = "pid_file = \"/run/app.pid\"";

    fn settings<V: Visitor>(&mut self, visitor: &mut V) {
        visitor.optional("pid_file", &mut self.pid_file);
        visitor.optional("cgroup", &mut self.cgroup);
        visitor.optional("pid", &mut self.pid);
        visitor.optional("cpus", &mut self.cpus);
        visitor.value("outlook", &mut self.outlook);
        let ResourceConfig { memory, cpu_pressure, memory_pressure } = &mut self.scarce;
        visitor.switch("memory", memory);
        visitor.switch("cpu_pressure", cpu_pressure);
        visitor.switch("memory_pressure", memory_pressure);
        visitor.value("dry_run", &mut self.dry_run);
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
            Err(Flaw::new(format!("\"{path}\" is not an absolute path"), "write a path that begins with \"/\""))
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

    /// The flaw of a value that is no number of CPUs; `"2 cores"` and Kubernetes' `"500m"` are
    /// recognized.
    fn flaw(value: &DeValue<'_>) -> Flaw {
        let digits = |text: &str| text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
        let meant = value.as_str().map(str::trim).and_then(|text| {
            let (number, unit) = text.split_at(digits(text));
            let number: f64 = number.parse().ok()?;
            let cpus = match unit.trim().to_ascii_lowercase().as_str() {
                "" | "core" | "cores" | "cpu" | "cpus" | "vcpu" | "vcpus" => number,
                "m" => number / 1000.0,
                "%" => number / 100.0,
                _ => return None,
            };
            Self::new(cpus)
        });
        let help = match meant {
            Some(Self(cpus)) => format!("write {cpus}, without quotes and unit"),
            None => "write a number of at least 0.01, without quotes, such as 2 or 0.5".to_owned(),
        };
        Flaw::new(format!("{} is not a number of CPUs", kind(value)), help)
    }
}

values! {
    AbsolutePath: |v| Self::parse(text(v, "a path", "a path in quotes, such as \"/run/app.pid\"")?), |path| quoted(path.0.display());
    Cpus: |v| number(v).and_then(Self::new).ok_or_else(|| Self::flaw(v)), |cpus| format!("{:?}", cpus.0);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flaw(value: DeValue<'_>) -> (String, String) {
        let Flaw { reason, help } = Cpus::flaw(&value);
        (reason, help)
    }

    #[test]
    fn cpus_with_a_unit_are_named_and_answered_with_the_number() {
        for (text, cpus) in [("2 cores", "2"), ("500m", "0.5"), ("1.5", "1.5"), ("4 vCPU", "4"), ("50%", "0.5")] {
            let (reason, help) = flaw(DeValue::String(text.into()));
            assert_eq!(reason, format!("\"{text}\" is not a number of CPUs"));
            assert_eq!(help, format!("write {cpus}, without quotes and unit"));
        }
        for text in ["many", "2 sockets", "0m", "-1", ""] {
            assert!(flaw(DeValue::String(text.into())).1.starts_with("write a number of at least 0.01"), "{text}");
        }
    }
}
