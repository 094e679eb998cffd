//! Which of a cluster's backends this proxy connects to, and which of the fleet's proxies it is.

use std::num::NonZeroU32;

use plimsoll::client::SubsetChoice;
use plimsoll_config::table;
use plimsoll_core::subset::{Algorithm, Backend, Client, SubsetConfig};

use super::etcd::FleetName;

table! {
    /// This proxy's identity among the clients of its backends.
    #[derive(Clone, Debug, PartialEq, Eq)]
    #[non_exhaustive]
    pub struct Identity {
        /// Its number: 0, 1, 2 ... without gaps.
        pub index: Option<u32> = None, optional;
        /// How many there are.
        pub count: Option<NonZeroU32> = None, optional;
        /// Its name, unlike the others'; the host's name if left out.
        pub id: Option<String> = None, optional;
        /// The proxies that share indices and ledgers in etcd.
        pub group: Option<FleetName> = None, optional;
    }
}

impl Identity {
    /// This proxy, in the core's terms. Asks the host for its name where nothing else is known.
    fn client(&self) -> Client {
        let id = match (&self.id, self.index) {
            (None, Some(index)) => u64::from(index),
            _ => Backend::key_of(&self.name()),
        };
        Client { id, index: self.index }
    }

    /// The name of this proxy: the host's unless the file has another.
    pub(super) fn name(&self) -> String {
        let host = || rustix::system::uname().nodename().to_string_lossy().into_owned();
        self.id.clone().unwrap_or_else(host)
    }
}

table! {
    /// A cluster's subset.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    #[non_exhaustive]
    pub struct Subset {
        /// Backends that are connected to; `None`: all.
        pub size: Option<NonZeroU32> = None, switch;
        /// The algorithm; the one that the proxy's identity allows if left out.
        pub algorithm: Option<Algorithm> = None, optional;
    }
    OFF = "size = \"off\"";
}

impl Subset {
    /// The algorithm, which depends on whether the proxy and the backends have fixed numbers.
    pub(super) fn algorithm(&self, identity: &Identity, is_numbered: bool) -> Algorithm {
        let best = match (&identity.group, identity.index) {
            (Some(_), None) => Algorithm::Ledger,
            (_, Some(_)) if is_numbered => Algorithm::Rocksteadier,
            _ => Algorithm::Rendezvous,
        };
        self.algorithm.unwrap_or(best)
    }

    /// The library's setting for the cluster of this name; `None`: connect to all.
    pub(super) fn choice(&self, cluster: &str, identity: &Identity, is_numbered: bool) -> Option<SubsetChoice> {
        let config = SubsetConfig {
            algorithm: self.algorithm(identity, is_numbered),
            size: self.size?,
            // Clusters of the same machines must not all leave out the same ones.
            seed: Backend::key_of(cluster),
        };
        if self.is_coordinated(identity, is_numbered) {
            return Some(SubsetChoice::coordinated(config, identity.client()));
        }
        Some(SubsetChoice::new(config, identity.client()).expect("what the algorithm needs was checked with the file"))
    }

    /// Whether the group of this proxy decides on the subset, or gives the index for it.
    fn is_coordinated(&self, identity: &Identity, is_numbered: bool) -> bool {
        let algorithm = self.algorithm(identity, is_numbered);
        let needs_index = algorithm.needs_client_index() && identity.index.is_none();
        identity.group.is_some() && (algorithm == Algorithm::Ledger || needs_index)
    }

    /// The part of the group in the subset of the cluster of this name; `None` without one.
    pub(super) fn coordinated(&self, cluster: &str, identity: &Identity, is_numbered: bool) -> Option<Coordinated> {
        let size = self.size.filter(|_| self.is_coordinated(identity, is_numbered))?;
        Some(Coordinated {
            algorithm: self.algorithm(identity, is_numbered),
            cluster: cluster.to_owned(),
            size,
            seed: Backend::key_of(cluster),
        })
    }
}

/// The subset of a cluster that depends on the proxy's group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Coordinated {
    pub(crate) algorithm: Algorithm,
    pub(crate) cluster: String,
    pub(crate) size: NonZeroU32,
    pub(crate) seed: u64,
}
