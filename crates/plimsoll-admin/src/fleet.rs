//! What the admin API asks of the program that it is part of.

use std::fmt;
use std::net::SocketAddr;
use std::time::Duration;

use plimsoll::address::Address;
use plimsoll::discover::{Endpoint, OverrideCommand};

use crate::control::{Control, Declined};
use crate::discovery::Unserved;
use crate::explain::{Explained, Wanted};
use crate::live::LiveSource;
use crate::metrics::figures::{BackendFigures, BackendMetrics, ClusterScrape};
use crate::snapshot::{ClusterSnapshot, FleetSnapshot};
use crate::tap::Tap;

/// Clusters of backends, as seen and switched from outside.
pub trait Fleet: LiveSource {
    /// Whether the API may be asked for under this name of a host, in lower case and without a port. Addresses and `localhost`
    /// always do, and are not asked about. A name that others could make lead here must not.
    fn is_called(&self, name: &str) -> bool;

    /// The clusters without a backend: a warning beside the readiness.
    fn unserved(&self) -> Vec<Unserved>;

    /// Everything as it is now. Called once per request to the API; may take locks for as long as a
    /// copy takes.
    fn snapshot(&self) -> FleetSnapshot;

    /// Everything that metrics show as it is now. Backends are many, so a fleet of more than a few reads them in
    /// parts ([`Cluster::view_in_parts`](plimsoll::client::Cluster::view_in_parts)).
    fn scrape(&self, metrics: BackendMetrics) -> FleetSnapshot<ClusterScrape> {
        self.snapshot().map(|ClusterSnapshot { view, inbound }| {
            let mut backends = BackendFigures::new(metrics);
            backends.add(&view.backends);
            ClusterScrape { summary: view.summary, backends, inbound }
        })
    }

    /// The metrics of single backends.
    fn backend_metrics(&self) -> BackendMetrics {
        BackendMetrics::All
    }

    /// The latest requests of which something is remembered, the latest first: as many as are wanted, of those that are.
    fn explain(&self, wanted: &Wanted) -> Explained;

    /// A reader of requests as they are remembered; `None` if none are.
    fn tap(&self) -> Option<Box<dyn Tap>> {
        None
    }

    /// Obeys an operator's word on one backend. It may write a file, so it may take a while.
    ///
    /// # Errors
    /// When there is no such cluster or backend, and for the other reasons of [`Refused`].
    fn override_backend(&self, order: BackendOrder) -> Result<Obeyed, Refused>;

    /// The process, if it takes commands.
    fn control(&self) -> Option<&dyn Control> {
        None
    }
}

/// An operator's word on one backend.
#[derive(Clone, Debug, PartialEq)]
pub struct BackendOrder {
    /// The name of the cluster.
    pub cluster: String,
    /// The address of the backend.
    pub backend: Address,
    /// The change.
    pub command: OverrideCommand<Endpoint>,
    /// Its duration. `None`: until it is revoked.
    pub lasts: Option<Duration>,
    /// The client, for the log.
    pub caller: Option<SocketAddr>,
}

/// The outcome of an order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Obeyed {
    /// Backends of the cluster that are left: not removed, and not drained by hand.
    pub serving: usize,
    /// Whether the change outlives the process.
    pub is_persistent: bool,
    /// The reason why it could not be saved.
    pub error: Option<String>,
}

/// An order without effect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refused {
    /// The cluster or the backend is unknown.
    Missing(Missing),
    /// The cluster has as many overrides as it may have.
    TooMany,
    /// For another reason.
    Declined(Declined),
}

/// What was asked for and is not there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Missing {
    /// No cluster has this name.
    Cluster,
    /// The cluster has no backend of this address.
    Backend,
}

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Cluster => "there is no such cluster",
            Self::Backend => "there is no such backend in the cluster",
        })
    }
}

impl std::error::Error for Missing {}
