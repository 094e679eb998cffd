//! Turns the names of backends into addresses to connect to.
//!
//! Apart from reading the file, because it asks the network: `check` must give the same answer on a
//! laptop as on the machine that the file is for. A name with several addresses stands for as many
//! backends, as headless services of Kubernetes mean it, in the order of these addresses: resolvers rotate them, and
//! proxies that number the same backends differently would take subsets that do not fit together.

use std::collections::BTreeMap;
use std::net::{SocketAddr, ToSocketAddrs};

use http::uri::Authority;
use plimsoll::discover::Endpoint;

use super::{Config, ConfigError, Problem};

impl Config {
    /// The backends of each cluster, by the cluster's name; one that has a host name is asked for by that name.
    /// Blocks while names are looked up.
    ///
    /// # Errors
    /// Every name that could not be looked up, each at its place in the file.
    pub fn resolve(&self) -> Result<BTreeMap<String, Vec<Endpoint>>, ConfigError> {
        self.resolve_with(|host, port| (host, port).to_socket_addrs().map(Iterator::collect))
    }

    fn resolve_with(
        &self,
        look_up: impl Fn(&str, u16) -> std::io::Result<Vec<SocketAddr>>,
    ) -> Result<BTreeMap<String, Vec<Endpoint>>, ConfigError> {
        let mut problems = Vec::new();
        let mut resolved = BTreeMap::new();
        for (name, cluster) in self.clusters() {
            let backends: &mut Vec<Endpoint> = resolved.entry(name.clone()).or_default();
            for (i, backend) in cluster.backends.iter().enumerate() {
                let address = &backend.address;
                // A backend that is named by its address is asked for by that anyway.
                let authority: Option<Authority> =
                    if address.socket_address().is_some() { None } else { address.to_string().parse().ok() };
                let found = match address.socket_address() {
                    Some(known) => Ok(vec![known]),
                    None => look_up(address.host(), address.port()),
                };
                let reason = match found {
                    Ok(mut found) if !found.is_empty() => {
                        found.sort_unstable();
                        for found in found {
                            // Two names of one machine would make it look like two.
                            if !backends.iter().any(|known| known.address == found) {
                                backends.push(Endpoint {
                                    address: found,
                                    weight: backend.weight,
                                    authority: authority.clone(),
                                    zone: backend.zone.as_deref().map(Into::into),
                                    locality: backend.locality.as_deref().map(Into::into),
                                });
                            }
                        }
                        continue;
                    }
                    Ok(_) => format!("\"{}\" has no address", address.host()),
                    Err(error) => format!("\"{}\" could not be looked up: {error}", address.host()),
                };
                let path = format!("clusters.{name}.backends[{i}]");
                let mend = "correct the name, or write the backend's IP address".to_owned();
                problems.push(Problem { position: self.places.find(&path), path, reason, mend });
            }
        }
        if problems.is_empty() { Ok(resolved) } else { Err(ConfigError::new(&self.source_name, problems)) }
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    const FILE: &str = "[[listeners]]\naddress = \":80\"\n[[routes]]\ncluster = \"a\"\n[clusters.a]\nbackends = [\"10.0.0.1:80\", \"pair:81\", \"alias:81\", \"gone:1\"]\n";

    #[test]
    fn a_name_is_as_many_backends_as_it_has_addresses_in_their_order_and_an_unknown_one_is_named() {
        let look_up = |host: &str, port| match host {
            "pair" => Ok(vec![SocketAddr::from(([10, 0, 0, 3], port)), SocketAddr::from(([10, 0, 0, 2], port))]),
            "alias" => Ok(vec![SocketAddr::from(([10, 0, 0, 3], port))]),
            _ => Err(io::Error::other("no such host")),
        };
        let config = Config::parse("test.toml", FILE).unwrap();
        let error = config.resolve_with(look_up).unwrap_err();
        assert_eq!(error.problems().len(), 1);
        assert!(error.to_string().starts_with("test.toml:6:51: clusters.a.backends[3]: \"gone\" could not"), "{error}");
        let config = Config::parse("test.toml", &FILE.replace(", \"gone:1\"", "")).unwrap();
        let resolved = config.resolve_with(look_up).unwrap();
        let addresses: Vec<_> = resolved["a"].iter().map(|backend| backend.address.to_string()).collect();
        assert_eq!(addresses, ["10.0.0.1:80", "10.0.0.2:81", "10.0.0.3:81"]);
    }
}
