//! Figures about the probes of a cluster.

use crate::probe::{Path, SilenceCause};

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
