//! The facts of the live page, as the program gives them.

use plimsoll::client::ClusterOverview;

use super::LivePage;
use crate::readiness::Readiness;
use crate::snapshot::{BatchSnapshot, InboundSnapshot};

/// The program that a live page shows.
pub trait LiveSource: Send + Sync + 'static {
    /// The memory of the page.
    fn page(&self) -> &LivePage;

    /// Whether new requests are welcome.
    fn readiness(&self) -> Readiness;

    /// All clusters as they are now, added up, and without rows. Called once a second.
    fn live(&self) -> LiveSnapshot;

    /// One cluster as it is now, with at most `rows` backends; `None` if there is no such cluster.
    fn live_cluster(&self, name: &str, rows: usize) -> Option<LiveClusterSnapshot>;
}

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
