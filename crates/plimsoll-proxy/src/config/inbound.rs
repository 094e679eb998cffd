//! The process behind a cluster that is protected from more than it can do.

use std::fs;
use std::net::SocketAddr;
use std::num::NonZeroU32;
use std::path::PathBuf;

use plimsoll_config::{Checker, DeValue, Flaw, Format, kind, number, quoted, table, text};
use plimsoll_core::admit::Outlook;
use plimsoll_core::signal::ResourceConfig;
use plimsoll_core::{Ratio, Speed};
use plimsoll_system::{MachineSpeed, WatchedProcess};

use super::address::Backend;

table! {
    /// The process that the backends of a cluster are.
    #[derive(Clone, Debug, PartialEq)]
    #[non_exhaustive]
    pub struct Inbound {
        /// The file that its number stands in. Of this and the two that follow exactly one is there.
        pub pid_file: Option<PathBuf> = None, optional_as(ABSOLUTE_PATH);
        /// The folder of its control group.
        pub cgroup: Option<PathBuf> = None, optional_as(ABSOLUTE_PATH);
        /// Its number.
        pub pid: Option<NonZeroU32> = None, optional;
        /// CPUs that it can use; as many as it may use if left out.
        pub cpus: Option<f64> = None, optional_as(CPUS);
        /// Speed of this machine; that of the reference core if left out.
        pub speed: Option<SpeedSetting> = None, optional_as(SPEED);
        /// The assumption about requests and load that are not known yet.
        pub outlook: Outlook = Outlook::default(), value;
        /// Limit of its memory; `None` ignores it.
        pub memory: Option<Ratio> = ResourceConfig::default().memory, switch;
        /// Limit of the share of time in which some task waits for a CPU; `None` ignores it.
        pub cpu_pressure: Option<Ratio> = None, switch;
        /// Limit of the share of time in which some task waits for memory; `None` ignores it.
        pub memory_pressure: Option<Ratio> = None, switch;
        /// Requests that would be shed are only counted.
        pub dry_run: bool = false, value;
    }
    NEEDS = "pid_file = \"/run/app.pid\"";
}

/// The origin of the machine's speed.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum SpeedSetting {
    /// This number.
    Known(Speed),
    /// A measurement at the start.
    Calibrate,
}

impl Inbound {
    /// Reports unless the process is named, and named once.
    pub(super) fn check(&self, path: &str, checker: &mut Checker<'_>) {
        for (name, most) in [("cpu_pressure", self.cpu_pressure), ("memory_pressure", self.memory_pressure)] {
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
        let addresses = backends.iter().filter_map(|backend| backend.address.known()?.inet());
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

    /// The speed of this machine; `None` without a setting. The first measurement blocks for some 50
    /// ms, later ones have its result.
    pub(crate) fn machine_speed(&self) -> Option<MachineSpeed> {
        self.speed.map(|speed| match speed {
            SpeedSetting::Known(speed) => speed.into(),
            SpeedSetting::Calibrate => MachineSpeed::calibrated(),
        })
    }

    /// The signals beside CPU.
    pub(crate) fn scarce(&self) -> ResourceConfig {
        ResourceConfig { memory: self.memory, cpu_pressure: self.cpu_pressure, memory_pressure: self.memory_pressure }
    }

    /// The process.
    pub(crate) fn process(&self) -> WatchedProcess {
        let by_file = self.pid_file.clone().map(WatchedProcess::PidFile);
        let by_group = self.cgroup.clone().map(WatchedProcess::Cgroup);
        by_file
            .or(by_group)
            .or(self.pid.map(WatchedProcess::Pid))
            .expect("that there is exactly one was checked with the file")
    }
}

/// A path that says the same wherever the proxy is started.
const ABSOLUTE_PATH: Format<PathBuf> = Format {
    read: |v| {
        let path = text(v, "a path", "a path in quotes, such as \"/run/app.pid\"")?;
        let flaw = || Flaw::new(format!("\"{path}\" is not an absolute path"), "write a path that begins with \"/\"");
        path.starts_with('/').then(|| path.into()).ok_or_else(flaw)
    },
    print: |path| quoted(path.display()),
};

/// A number of CPUs.
const CPUS: Format<f64> = Format {
    read: |v| number(v).filter(|cpus| are_cpus(*cpus)).ok_or_else(|| cpus_flaw(v)),
    print: |cpus| format!("{cpus:?}"),
};

/// The word for a measured speed.
const CALIBRATE: &str = "calibrate";

/// The speed of a machine.
const SPEED: Format<SpeedSetting> = Format {
    read: |v| {
        if v.as_str() == Some(CALIBRATE) {
            return Ok(SpeedSetting::Calibrate);
        }
        let speed = number(v).and_then(Speed::new).map(SpeedSetting::Known);
        speed.ok_or_else(|| {
            let (least, most) = (Speed::RANGE.start(), Speed::RANGE.end());
            let help = format!("write a number from {least} to {most} such as 1.5, or \"{CALIBRATE}\"");
            Flaw::new(format!("{} is not the speed of a machine", kind(v)), help)
        })
    },
    print: |speed| match speed {
        SpeedSetting::Known(speed) => format!("{:?}", speed.as_f64()),
        SpeedSetting::Calibrate => quoted(CALIBRATE),
    },
};

/// Smallest number of CPUs.
const MIN_CPUS: f64 = 0.01;

fn are_cpus(cpus: f64) -> bool {
    cpus >= MIN_CPUS && cpus.is_finite()
}

/// The flaw of a value that is no number of CPUs; `"2 cores"` and Kubernetes' `"500m"` are
/// recognized.
fn cpus_flaw(value: &DeValue<'_>) -> Flaw {
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
        are_cpus(cpus).then_some(cpus)
    });
    let help = match meant {
        Some(cpus) => format!("write {cpus}, without quotes and unit"),
        None => "write a number of at least 0.01, without quotes, such as 2 or 0.5".to_owned(),
    };
    Flaw::new(format!("{} is not a number of CPUs", kind(value)), help)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flaw(value: DeValue<'_>) -> (String, String) {
        let Flaw { reason, help } = cpus_flaw(&value);
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
