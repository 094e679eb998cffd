//! What the proxy is told to do: a TOML file, read and checked as a whole.
//!
//! ```text
//! text ──read──▶ RawConfig ──check──▶ Config ──resolve──▶ addresses
//!        each value by itself   all of them together   asks the network
//! ```
//!
//! A [`Config`] can only be had by [`Config::parse`] (or [`Config::load`], [`Config::simple`]), so whoever holds one
//! may rely on it: routes name clusters that exist, times fit each other, no two listeners share an address.
//! Whatever is wrong with a file is reported at once, each problem with its path, place, reason and mend. The parts
//! of a config have public fields to be read; they cannot be put back into a config.

mod address;
mod check;
mod cluster;
mod health;
mod listener;
mod raw;
mod resolve;
mod route;
mod simple;
mod subset;
mod value;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::path::Path;

pub use address::{Backend, BackendAddress};
pub use cluster::Cluster;
pub use health::Health;
pub use listener::Listener;
pub use plimsoll_config::{ByteSize, ConfigError, Position, Problem};
pub use raw::Drain;
pub use route::{HostPattern, PathPrefix, Route};
pub use simple::Simple;
pub use subset::{Identity, Subset};

use plimsoll::client::ClusterConfig;
use plimsoll_config::{Places, Read};
use raw::RawConfig;

/// A checked configuration.
#[derive(Clone, Debug)]
pub struct Config {
    raw: RawConfig,
    source_name: String,
    places: Places,
}

/// Equal when they say the same, wherever and in whatever layout it is written.
impl PartialEq for Config {
    fn eq(&self, other: &Self) -> bool {
        self.raw == other.raw
    }
}

impl Config {
    /// Reads and checks a file.
    ///
    /// # Errors
    /// That the file cannot be read, or all that is wrong with it.
    pub fn load(file: &Path) -> Result<Self, ConfigError> {
        let name = file.display().to_string();
        Self::parse(&name, &plimsoll_config::load(file)?)
    }

    /// Reads and checks the text of a file; `source_name` is what messages call it.
    ///
    /// # Errors
    /// All that is wrong with it.
    pub fn parse(source_name: &str, text: &str) -> Result<Self, ConfigError> {
        Self::build(source_name, plimsoll_config::read(text))
    }

    fn build(source_name: &str, read: Read<RawConfig>) -> Result<Self, ConfigError> {
        let Read { root: mut raw, places, problems } = read;
        let problems = check::check(&mut raw, &places, problems);
        if problems.is_empty() {
            Ok(Self { raw, source_name: source_name.to_owned(), places })
        } else {
            Err(ConfigError::new(source_name, problems))
        }
    }

    /// The configuration as TOML, with every default written out. Parses to an equal configuration.
    #[must_use]
    pub fn print(&self) -> String {
        plimsoll_config::print(&self.raw)
    }

    /// How many threads serve; the number of cores unless the file says otherwise.
    #[must_use]
    pub fn threads(&self) -> NonZeroUsize {
        self.raw.threads
    }

    /// Where the admin API listens; `None` when it is off.
    #[must_use]
    pub fn admin(&self) -> Option<SocketAddr> {
        self.raw.admin.listen
    }

    /// How the proxy ends.
    #[must_use]
    pub fn drain(&self) -> &Drain {
        &self.raw.drain
    }

    /// Where requests come in; at least one.
    #[must_use]
    pub fn listeners(&self) -> &[Listener] {
        &self.raw.listeners
    }

    /// The routes, in the order of the file; at least one.
    #[must_use]
    pub fn routes(&self) -> &[Route] {
        &self.raw.routes
    }

    /// The routes for requests that come in at the listener of this name, in the order of the file.
    pub fn routes_of<'a>(&'a self, listener: &'a str) -> impl Iterator<Item = &'a Route> {
        self.raw.routes.iter().filter(move |route| route.applies_to(listener))
    }

    /// How the library's client is to serve the cluster of this name.
    ///
    /// # Panics
    /// When there is no such cluster.
    #[must_use]
    pub fn client(&self, cluster: &str) -> ClusterConfig {
        self.raw.clusters[cluster].client(cluster, &self.raw.client)
    }

    /// The clusters, by name; at least one.
    #[must_use]
    pub fn clusters(&self) -> &BTreeMap<String, Cluster> {
        &self.raw.clusters
    }
}

#[cfg(test)]
mod tests;
