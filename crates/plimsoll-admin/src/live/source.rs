//! The facts of the live page, as the program gives them.

use plimsoll::client::ClusterOverview;

use crate::snapshot::{BatchSnapshot, InboundSnapshot};

/// A fleet at one moment, added up.
#[derive(Clone, Debug, Default)]
pub struct LiveSnapshot {
    /// Its clusters, by name.
    pub clusters: Vec<LiveClusterSnapshot>,
    /// Gates of listeners for batch work, by listener.
    pub batch: Vec<(String, BatchSnapshot)>,
    /// Configurations that came into force after the first.
    pub reloads_taken: u64,
    /// Configurations that were refused.
    pub reloads_refused: u64,
}

/// A cluster at one moment, added up.
#[derive(Clone, Debug)]
pub struct LiveClusterSnapshot {
    /// The cluster.
    pub overview: ClusterOverview,
    /// Its gate; `None` if it has none.
    pub inbound: Option<InboundSnapshot>,
}
