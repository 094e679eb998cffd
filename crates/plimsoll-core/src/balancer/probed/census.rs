//! Figures about the probes of a cluster.

use crate::probe::{Path, Prober, SilenceCause};

/// Counts of a cluster's probes since they were switched on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProbeCounts {
    /// Queries, acknowledgements not included.
    pub queries: u64,
    /// Answers in time.
    pub answers: u64,
    /// Believed notices.
    pub notices: u64,
    /// Answers and notices that changed nothing: late, repeated or forged.
    pub doubted: u64,
    /// Queries to a closed UDP port.
    pub refused: u64,
    /// Requests that went to an inactive backend.
    pub woken: u64,
}

/// The probes of one backend, for people and for metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProbeSnapshot {
    /// Whether datagrams get through.
    pub path: Path,
    /// Whether connections are closed and checks are stopped until the next request.
    pub is_inactive: bool,
}

/// Backends by the state of their probes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProbeCensus {
    /// Not known yet whether datagrams get through.
    pub unknown: usize,
    /// Queries are answered.
    pub works: usize,
    /// Probes are of no use, in the order of [`SilenceCause::ALL`].
    pub silent: [usize; SilenceCause::ALL.len()],
    /// Inactive ones, counted under their path as well.
    pub inactive: usize,
}

impl ProbeSnapshot {
    pub(super) fn of(prober: &Prober) -> Self {
        Self { path: prober.path(), is_inactive: prober.is_inactive() }
    }
}

impl ProbeCensus {
    /// Counts a backend, or takes it out.
    pub(super) fn count(&mut self, probe: ProbeSnapshot, is_added: bool) {
        let path = match probe.path {
            Path::Unknown => &mut self.unknown,
            Path::Works => &mut self.works,
            Path::Silent(cause) => &mut self.silent[cause as usize],
        };
        step(path, is_added);
        if probe.is_inactive {
            step(&mut self.inactive, is_added);
        }
    }
}

fn step(count: &mut usize, is_added: bool) {
    *count = if is_added { *count + 1 } else { count.saturating_sub(1) };
}
