//! The state of a cluster's probes, for logs, metrics and pages.

use plimsoll_core::{ProbeCensus, ProbeCounts};

use super::Cluster;
use super::machine::Machine;

/// Datagrams that the probers never saw.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProbeDrops {
    /// No datagram of the protocol, or from an address that is no backend.
    pub invalid: u64,
    /// An answer with a wrong or missing MAC, or an unknown key.
    pub unauthentic: u64,
    /// Queries that the system did not take.
    pub unsent: u64,
}

/// The probes of a cluster at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProbesView {
    /// Probed backends by their path.
    pub census: ProbeCensus,
    /// Counts since probes were switched on.
    pub counts: ProbeCounts,
    /// Datagrams that were dropped.
    pub drops: ProbeDrops,
}

impl Cluster {
    /// The probes of the cluster; `None` while they are off.
    #[must_use]
    pub fn probes(&self) -> Option<ProbesView> {
        self.0.machine.lock().probes()
    }
}

impl Machine {
    pub(super) fn probes(&self) -> Option<ProbesView> {
        let counts = self.balancer.probe_counts()?;
        Some(ProbesView { census: self.balancer.probe_census(), counts, drops: self.counts.probe_drops })
    }
}

impl ProbeDrops {
    pub(super) fn add(&mut self, other: Self) {
        self.invalid += other.invalid;
        self.unauthentic += other.unauthentic;
        self.unsent += other.unsent;
    }
}
