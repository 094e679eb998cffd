//! The machine that does the work of requests: real cores, or emulated ones.

use std::time::Duration;

use super::cores::Cores;
use super::emulated::Emulated;

/// Spends CPU, or the time that spending it would take.
pub(crate) enum Machine {
    /// Threads that use CPU.
    Real(Cores),
    /// Cores that are only computed.
    Emulated(Emulated),
}

impl Machine {
    /// Returns when a core has spent `cost` on this call.
    pub(crate) async fn spend(&self, cost: Duration) {
        match self {
            Self::Real(cores) => cores.spend(cost).await,
            Self::Emulated(cores) => cores.spend(cost).await,
        }
    }
}
