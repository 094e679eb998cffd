//! Measures the load of a control group: its CPU usage over the CPUs that it may use.

use std::path::PathBuf;
use std::time::Duration;

use plimsoll_core::report::{DEFAULT_WINDOW, Reporter, Totals};
use plimsoll_core::signal::ResourceConfig;
use plimsoll_core::{LoadReport, Timestamp};
use plimsoll_system::{ProcessReader, WatchedProcess};
use tokio::time::Instant;

/// The load of a control group.
#[derive(Debug)]
pub(super) struct GroupLoad {
    reader: ProcessReader,
    origin: Instant,
    /// `None` until the group is found.
    reporter: Option<Reporter>,
}

impl GroupLoad {
    /// The load of the group at `folder`, whose CPUs are `cpus` or its quota. A group may appear
    /// later, with its process.
    ///
    /// # Errors
    /// The reason why a folder that exists cannot be read, for people.
    pub(super) fn new(folder: PathBuf, cpus: Option<f64>) -> Result<Self, String> {
        let watched = ResourceConfig { memory: None, cpu_pressure: None, memory_pressure: None };
        let exists = folder.exists();
        let mut load = Self {
            reader: ProcessReader::new(WatchedProcess::Cgroup(folder), cpus, watched),
            origin: Instant::now(),
            reporter: None,
        };
        match load.read() {
            Err(reason) if exists => return Err(reason),
            Err(reason) => tracing::warn!(reason, "load unknown until the control group exists"),
            Ok(_) => {}
        }
        Ok(load)
    }

    /// The load now; `None` before the second reading of a group, and while it is not there.
    pub(super) fn sample(&mut self) -> Option<LoadReport> {
        self.read().inspect_err(|reason| tracing::debug!(reason, "load unknown")).ok().flatten()
    }

    fn read(&mut self) -> Result<Option<LoadReport>, String> {
        let now = Timestamp::from_origin(self.origin.elapsed());
        let sample = self.reader.read().inspect_err(|_| self.reporter = None)?;
        let totals = Totals { cpu: Duration::from_secs_f64(sample.outside.cpu), ..Totals::default() };
        let Some(reporter) = self.reporter.as_mut().filter(|_| !sample.is_first) else {
            self.reporter = sample.cpus.map(|cpus| Reporter::new(now, DEFAULT_WINDOW, cpus, totals));
            return Ok(None);
        };
        if let Some(cpus) = sample.cpus {
            reporter.resize(cpus);
        }
        reporter.on_totals(now, totals);
        let measured = reporter.report(now, 0, false).load;
        // Nobody counts its requests.
        Ok(Some(LoadReport { qps: f64::NAN, eps: f64::NAN, in_flight: None, ..measured }))
    }
}
