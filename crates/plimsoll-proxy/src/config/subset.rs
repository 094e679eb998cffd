//! Which of a cluster's backends this proxy connects to, and which of the fleet's proxies it is.

use std::num::NonZeroU32;

use plimsoll::client::SubsetChoice;
use plimsoll_config::table;
use plimsoll_core::subset::{Algorithm, Backend, Client, SubsetConfig};

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
    }
}

impl Identity {
    /// This proxy, in the core's terms. Asks the host for its name where nothing else is known.
    fn client(&self) -> Client {
        let id = match (&self.id, self.index) {
            (Some(id), _) => Backend::key_of(id),
            (None, Some(index)) => u64::from(index),
            (None, None) => Backend::key_of(&rustix::system::uname().nodename().to_string_lossy()),
        };
        Client { id, index: self.index }
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
        let best =
            if identity.index.is_some() && is_numbered { Algorithm::Rocksteadier } else { Algorithm::Rendezvous };
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
        Some(SubsetChoice::new(config, identity.client()).expect("what the algorithm needs was checked with the file"))
    }
}
