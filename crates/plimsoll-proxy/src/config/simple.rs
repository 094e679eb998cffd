//! A configuration without a file: `--from` where to listen, `--to` the backends.

use std::num::NonZeroUsize;
use std::path::Path;

use plimsoll::client::Protocol;
use plimsoll_config::{Flaw, OFF, Places, Read};
use plimsoll_core::classify::Trust;
use plimsoll_core::pick::PolicyKind;

use super::address::{Backend, BackendAddress};
use super::check::at_arguments;
use super::cluster::Cluster;
use super::hash::HashKeys;
use super::listener::Listener;
use super::raw::RawConfig;
use super::route::Route;
use super::value::{listen_address, listener_address};
use super::{Config, ConfigError, Problem};

/// The name of the one cluster of a configuration without a file.
pub(super) const CLUSTER: &str = "default";

/// The settings of the command line; all others have their defaults.
#[derive(Clone, Debug, Default)]
pub struct Simple {
    /// Addresses to listen at, as given.
    pub from: Vec<String>,
    /// Addresses of backends, as given.
    pub to: Vec<String>,
    /// The policy, if given.
    pub policy: Option<PolicyKind>,
    /// The protocol of the backends, if given.
    pub protocol: Option<Protocol>,
    /// Where the admin API listens, if given: an address, or `off`.
    pub admin: Option<String>,
    /// How far clients are believed that say how critical their requests are, if given.
    pub trust_criticality: Option<Trust>,
    /// Other processes may listen at the addresses.
    pub share_port: bool,
    /// Threads, if given.
    pub threads: Option<NonZeroUsize>,
}

impl Config {
    /// The configuration that `--from` and `--to` stand for: one cluster called `default`, and one
    /// route to it.
    ///
    /// # Errors
    /// All that is wrong with the addresses, at once, each at its argument.
    pub fn simple(simple: &Simple) -> Result<Self, ConfigError> {
        let mut problems = Vec::new();
        let mut raw = RawConfig::default();
        let mut cluster = Cluster::default();
        for (i, from) in simple.from.iter().enumerate() {
            let address = take(&mut problems, format!("listeners[{i}]"), listener_address(from));
            raw.listeners.extend(address.map(|address| {
                let mut listener = Listener::new(address);
                listener.trust_criticality = simple.trust_criticality;
                listener.share_port = simple.share_port;
                listener
            }));
        }
        for (i, to) in simple.to.iter().enumerate() {
            let address = take(&mut problems, format!("clusters.default.backends[{i}]"), BackendAddress::parse(to));
            cluster.backends.extend(address.map(Backend::new));
        }
        match simple.admin.as_deref() {
            Some(OFF) => raw.admin.listen = None,
            Some(admin) => {
                raw.admin.listen = take(&mut problems, "--admin".to_owned(), listen_address(admin)).or(raw.admin.listen)
            }
            None => {}
        }
        raw.threads = simple.threads.unwrap_or(raw.threads);
        cluster.requests.protocol = simple.protocol.unwrap_or(cluster.requests.protocol);
        cluster.balancer.policy = simple.policy.unwrap_or(cluster.balancer.policy);
        if cluster.balancer.policy == PolicyKind::Hash {
            cluster.hash_keys = HashKeys::by_address();
        }
        raw.routes.push(Route { cluster: Some(CLUSTER.to_owned()), ..Route::default() });
        raw.clusters.insert(CLUSTER.to_owned(), cluster);
        Self::build("command line", Path::new(""), Read { root: raw, places: Places::default(), problems }).map_err(
            |error| ConfigError::new("command line", error.problems().iter().cloned().map(at_arguments).collect()),
        )
    }
}

/// The value, or its flaw as a problem at `path`.
fn take<T>(problems: &mut Vec<Problem>, path: String, value: Result<T, Flaw>) -> Option<T> {
    value.map_err(|Flaw { reason, help }| problems.push(Problem { path, position: None, reason, help })).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn simple(from: &[&str], to: &[&str]) -> Result<Config, ConfigError> {
        let own = |texts: &[&str]| texts.iter().map(ToString::to_string).collect();
        Config::simple(&Simple { from: own(from), to: own(to), ..Simple::default() })
    }

    #[test]
    fn two_addresses_make_a_configuration_that_prints_and_parses_alike() {
        let config = simple(&[":8080"], &["10.0.0.1:80", "10.0.0.2:80"]).unwrap();
        assert_eq!(config.clusters()[CLUSTER].backends.len(), 2);
        assert_eq!(Config::parse("printed", &config.print()).unwrap(), config);
    }

    #[test]
    fn all_bad_arguments_are_named_at_once() {
        let error = simple(&["8080", "127.0.0.1:9900"], &["10.0.0.1", "a:80", "a:80"]).unwrap_err();
        let paths: Vec<_> = error.problems().iter().map(|problem| problem.path.as_str()).collect();
        assert_eq!(paths, ["--from[0]", "--to[0]", "--from[0]", "--to[1]"], "{error}");
    }

    #[test]
    fn nothing_to_balance_over_is_a_problem() {
        let text = simple(&[], &[]).unwrap_err().to_string();
        assert!(text.contains("--from: there is no listener") && text.contains("--to: there is no backend"), "{text}");
    }

    #[test]
    fn help_names_arguments() {
        for (from, to, expected) in [
            (&[][..], &["10.0.0.1:80"][..], "help: add --from :8080"),
            (&[":80"], &[], "help: add --to 10.0.0.1:8080"),
            (&["8080"], &["10.0.0.1:80"], "\":8080\" for all addresses"),
            (&[":80", ":80"], &["10.0.0.1:80"], "--from[1]: 0.0.0.0:80 is taken by --from[0]"),
            (&[":80"], &["a:80", "a:80"], "--to[1]: a:80 is --to[0] already"),
            (&[":80"], &["a:80", "a:80"], "use a config (-c FILE), and give backends[0] a weight"),
            (&[":9900"], &["a:80"], "choose another port here or for --admin"),
        ] {
            let text = simple(from, to).unwrap_err().to_string();
            assert!(text.contains(expected) && !text.contains("listeners"), "{from:?} {to:?}: {text}");
        }
    }
}
