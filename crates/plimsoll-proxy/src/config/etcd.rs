//! The etcd of the fleet, and the services in its registry.

use std::path::Path;

use plimsoll_config::{Checker, Flaw, quoted, text, values};
use plimsoll_etcd::Client;
use plimsoll_etcd::settings::EtcdSettings;
use plimsoll_fleet::{MAX_NAME, Name, Registry};

/// A name in a key of etcd: of a service, or of a group of clients.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FleetName(pub(super) Name);

values! {
    FleetName: |v| fleet_name(text(v, "a name", "a name in quotes, such as \"web\"")?), |name| quoted(&name.0);
}

fn fleet_name(text: &str) -> Result<FleetName, Flaw> {
    let help = format!("use 1 to {MAX_NAME} visible ASCII characters without a slash");
    let flaw = |_| Flaw::new(format!("\"{text}\" is not a name in etcd"), help);
    Name::new(text).map(FleetName).map_err(flaw)
}

/// The etcd of the fleet: its settings, and one client for all of the proxy.
#[derive(Clone, Debug)]
pub(crate) struct Etcd {
    settings: EtcdSettings,
    client: Client,
}

/// The settings decide. Files that they name are read again by the client.
impl PartialEq for Etcd {
    fn eq(&self, other: &Self) -> bool {
        self.settings == other.settings
    }
}

impl Etcd {
    /// The client of these settings, in the table at `path`; `None` after a problem.
    pub(super) fn new(settings: &EtcdSettings, path: &str, folder: &Path, checker: &mut Checker<'_>) -> Option<Self> {
        settings.check(path, folder, checker);
        // A setting that makes no client was reported.
        settings.client(folder).ok().map(|client| Self { settings: settings.clone(), client })
    }

    /// The client.
    pub(crate) fn client(&self) -> &Client {
        &self.client
    }
}

/// This proxy among the clients of its group.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct FleetMember {
    pub(crate) etcd: Etcd,
    pub(crate) group: Name,
    pub(crate) id: Name,
}

/// A service in the registry.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Registered {
    pub(super) etcd: Etcd,
    pub(super) service: Name,
}

impl Eq for Registered {}

impl Registered {
    pub(crate) fn source(&self) -> Registry {
        Registry::new(self.etcd.client.clone(), &self.service)
    }
}
