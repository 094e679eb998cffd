//! What the admin API asks of the program that it is part of.

use std::fmt;
use std::net::SocketAddr;

use crate::control::Control;
use crate::explain::{Explained, Wanted};
use crate::snapshot::FleetSnapshot;

/// Clusters of backends, as seen and switched from outside.
pub trait Fleet: Send + Sync + 'static {
    /// Whether the API may be asked for under this name of a host, in lower case and without a port. Addresses and `localhost`
    /// always do, and are not asked about. A name that others could make lead here must not.
    fn is_called(&self, name: &str) -> bool;

    /// Whether new requests are welcome.
    fn readiness(&self) -> Readiness;

    /// Everything as it is now. Called once per request to the API; may take locks for as long as a
    /// copy takes.
    fn snapshot(&self) -> FleetSnapshot;

    /// The latest requests of which something is remembered, the latest first: as many as are wanted, of those that are.
    fn explain(&self, wanted: &Wanted) -> Explained;

    /// Gives a backend no new requests from now on.
    ///
    /// # Errors
    /// When there is no such cluster or backend.
    fn drain(&self, cluster: &str, backend: SocketAddr) -> Result<(), Missing>;

    /// Takes a backend back after [`Fleet::drain`].
    ///
    /// # Errors
    /// When there is no such cluster or backend.
    fn undrain(&self, cluster: &str, backend: SocketAddr) -> Result<(), Missing>;

    /// The process, if it takes commands.
    fn control(&self) -> Option<&dyn Control> {
        None
    }
}

/// Whether new requests are welcome.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Readiness {
    /// They are.
    Ready,
    /// They are not, for this reason: `"draining"`, `"starting"`.
    NotReady(&'static str),
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
