//! The endpoints of a service, from all of its slices.
//!
//! ```text
//! port      of each slice: by name, by number, or its only one; a slice without it is skipped
//! family    a pod with an IPv4 address counts by that; without one, by its IPv6 address
//! twice     of an address in several slices the best word counts: ready, draining, starting
//! ```
//!
//! A slice has 100 endpoints as a rule, so a service of 101 pods has two. A source that took the last
//! slice for the list would lose 100 pods when the second comes. While endpoints move from one slice
//! to another, both may have them, or the old one may still have a former state.
//!
//! A pod in a dual-stack cluster is in two slices, by either address. Both would be two backends and
//! twice the requests for one pod. To use one family only, as kube-proxy does, loses the pods that
//! have no address of it while a cluster moves to dual stack; so the choice is made for each pod. An
//! IPv6 endpoint without a pod, made by hand, counts if no endpoint has an IPv4 address.

use std::collections::btree_map::{BTreeMap, Entry};
use std::collections::{BTreeSet, HashSet};
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;
use std::sync::Arc;

use plimsoll::discover::{Endpoint, Readiness};

/// Most endpoints of a service.
pub(super) const MAX_ENDPOINTS: usize = 100_000;
/// Port names in a message.
const SHOWN_PORTS: usize = 10;
/// Most memory that the slices of a service take, in bytes. 100,000 endpoints take some 12 MiB.
pub(super) const MAX_SIZE: usize = 64 * 1024 * 1024;

/// An EndpointSlice: a part of the endpoints of a service.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Slice {
    pub(super) name: String,
    pub(super) family: Family,
    /// Its TCP ports.
    pub(super) ports: Vec<Port>,
    pub(super) endpoints: Vec<SliceEndpoint>,
    /// Its endpoints, with those that have no IP address.
    pub(super) count: usize,
    /// Its memory, in bytes.
    pub(super) size: usize,
}

impl Slice {
    /// The memory of its parts, those of `zones` once each.
    pub(super) fn measure(&mut self, zones: &[Arc<str>]) {
        let ports: usize = self.ports.iter().map(|port| size_of::<Port>() + port.name.len()).sum();
        let target = |endpoint: &SliceEndpoint| endpoint.target.as_ref().map_or(0, |target| target.len());
        let endpoints: usize = self.endpoints.iter().map(|e| size_of::<SliceEndpoint>() + target(e)).sum();
        let zones: usize = zones.iter().map(|zone| zone.len()).sum();
        self.size = size_of::<Self>() + self.name.len() + ports + endpoints + zones;
    }
}

/// The type of the addresses of a slice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Family {
    Ipv4,
    Ipv6,
    /// Names, or a type of later versions of the API.
    Other,
}

impl Family {
    pub(super) fn has(self, address: IpAddr) -> bool {
        match self {
            Self::Ipv4 => address.is_ipv4(),
            Self::Ipv6 => address.is_ipv6(),
            Self::Other => false,
        }
    }
}

/// A TCP port of the endpoints of a slice.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Port {
    /// Empty for the only port of a service, which needs no name.
    pub(super) name: String,
    pub(super) number: u16,
}

/// An endpoint of a slice.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct SliceEndpoint {
    pub(super) address: IpAddr,
    pub(super) zone: Option<Arc<str>>,
    pub(super) readiness: Readiness,
    /// The pod behind it, by its UID, or by its name without one.
    pub(super) target: Option<Box<str>>,
}

/// The port of a service to send requests to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ServicePort {
    /// The only one that the service has.
    #[default]
    Only,
    /// By its name in the service.
    Named(String),
    /// By its number at the pods (`targetPort`). The service's own number is not in its slices.
    Number(u16),
}

/// A text that is neither the name nor the number of a port.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is no port of a service: use its name, such as http, or a number from 1 to 65535")]
pub struct NoServicePort(String);

impl FromStr for ServicePort {
    type Err = NoServicePort;

    fn from_str(text: &str) -> Result<Self, NoServicePort> {
        let no = || NoServicePort(text.chars().take(60).collect());
        if !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit()) {
            return text.parse().ok().filter(|port| *port > 0).map(Self::Number).ok_or_else(no);
        }
        if super::is_label(text) { Ok(Self::Named(text.to_owned())) } else { Err(no()) }
    }
}

impl fmt::Display for ServicePort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Only => f.write_str("only one"),
            Self::Named(name) => write!(f, "named {name}"),
            Self::Number(number) => write!(f, "{number}"),
        }
    }
}

/// The reason why the slices of a service are no list of backends.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum SliceError {
    /// No slice has the port.
    #[error("no port {port}: its pods have {existing}; help: set port to one of these")]
    NoPort { port: ServicePort, existing: String },
    /// The service has several ports, and none was chosen.
    #[error("several ports: {existing}; help: set port to the name of one")]
    SeveralPorts { existing: String },
    /// All slices have names in place of addresses.
    #[error("its EndpointSlices have names and no addresses; help: look the names up, with dns in place of kubernetes")]
    Names,
    /// The list is too long.
    #[error("more than {MAX_ENDPOINTS} endpoints")]
    TooMany,
    /// Few endpoints, with long texts or many ports.
    #[error("its EndpointSlices take more than {} MiB", MAX_SIZE / 1024 / 1024)]
    TooLarge,
}

/// The backends of a service.
pub(super) fn endpoints<'a>(
    slices: impl Iterator<Item = &'a Slice> + Clone,
    port: &ServicePort,
) -> Result<Vec<Endpoint>, SliceError> {
    let slices = slices.filter(|slice| slice.count > 0);
    if slices.clone().map(|slice| slice.count).sum::<usize>() > MAX_ENDPOINTS {
        return Err(SliceError::TooMany);
    }
    let with_addresses = slices.clone().filter(|slice| slice.family != Family::Other);
    if slices.clone().next().is_some() && with_addresses.clone().next().is_none() {
        return Err(SliceError::Names);
    }
    if *port == ServicePort::Only {
        let names: BTreeSet<&str> =
            with_addresses.clone().flat_map(|slice| &slice.ports).map(|port| &*port.name).collect();
        if names.len() > 1 {
            return Err(SliceError::SeveralPorts { existing: existing(with_addresses) });
        }
    }
    let chosen: Vec<(u16, &Slice)> =
        with_addresses.clone().filter_map(|slice| Some((number(&slice.ports, port)?, slice))).collect();
    if chosen.is_empty() && with_addresses.clone().next().is_some() {
        return Err(SliceError::NoPort { port: port.clone(), existing: existing(with_addresses) });
    }
    Ok(merged(&chosen))
}

fn number(ports: &[Port], wanted: &ServicePort) -> Option<u16> {
    let port = match wanted {
        ServicePort::Only => ports.first(),
        ServicePort::Named(name) => ports.iter().find(|port| port.name == *name),
        ServicePort::Number(number) => ports.iter().find(|port| port.number == *number),
    };
    port.map(|port| port.number)
}

/// The ports of slices, for a message.
fn existing<'a>(slices: impl Iterator<Item = &'a Slice>) -> String {
    let ports: BTreeSet<&Port> = slices.flat_map(|slice| &slice.ports).collect();
    let shown = |port: &&Port| match &*port.name {
        "" => port.number.to_string(),
        name => format!("{name} ({})", port.number),
    };
    let mut texts: Vec<String> = ports.iter().take(SHOWN_PORTS).map(shown).collect();
    if ports.len() > SHOWN_PORTS {
        texts.push("...".to_owned());
    }
    if texts.is_empty() { "no TCP port".to_owned() } else { texts.join(", ") }
}

/// The endpoints of slices with their port, each once and in the order of their addresses: an order
/// of slices would move all backends when a slice comes or goes.
fn merged(slices: &[(u16, &Slice)]) -> Vec<Endpoint> {
    let ipv4 = || slices.iter().filter(|(_, slice)| slice.family == Family::Ipv4);
    let has_ipv4 = ipv4().any(|(_, slice)| !slice.endpoints.is_empty());
    let pods: HashSet<&str> =
        ipv4().flat_map(|(_, slice)| &slice.endpoints).filter_map(|endpoint| endpoint.target.as_deref()).collect();
    let counts = |family: Family, endpoint: &SliceEndpoint| match (family, &endpoint.target) {
        (Family::Ipv6, Some(target)) => !pods.contains(&**target),
        (Family::Ipv6, None) => !has_ipv4,
        _ => true,
    };
    let mut found = BTreeMap::new();
    for (port, slice) in slices {
        for endpoint in slice.endpoints.iter().filter(|endpoint| counts(slice.family, endpoint)) {
            let address = SocketAddr::new(endpoint.address, *port);
            let mut new = Endpoint::new(address).readiness(endpoint.readiness);
            new.zone = endpoint.zone.clone();
            match found.entry(address) {
                Entry::Vacant(entry) => {
                    entry.insert(new);
                }
                Entry::Occupied(mut entry) if rank(new.readiness) < rank(entry.get().readiness) => {
                    entry.insert(new);
                }
                Entry::Occupied(_) => {}
            }
        }
    }
    found.into_values().collect()
}

fn rank(readiness: Readiness) -> u8 {
    match readiness {
        Readiness::Ready => 0,
        Readiness::Draining => 1,
        Readiness::Starting => 2,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slice(name: &str, ports: &[(&str, u16)], endpoints: &[(&str, Readiness)]) -> Slice {
        let endpoints: Vec<SliceEndpoint> = endpoints
            .iter()
            .map(|(address, readiness)| SliceEndpoint {
                address: address.parse().unwrap(),
                zone: None,
                readiness: *readiness,
                target: None,
            })
            .collect();
        let is_ipv6 = endpoints.first().is_some_and(|endpoint| endpoint.address.is_ipv6());
        Slice {
            name: name.to_owned(),
            family: if is_ipv6 { Family::Ipv6 } else { Family::Ipv4 },
            ports: ports.iter().map(|(name, number)| Port { name: (*name).to_owned(), number: *number }).collect(),
            count: endpoints.len(),
            endpoints,
            size: 0,
        }
    }

    /// With the pod behind each endpoint.
    fn of_pods(mut slice: Slice, pods: &[&str]) -> Slice {
        for (endpoint, pod) in slice.endpoints.iter_mut().zip(pods) {
            endpoint.target = Some((*pod).into());
        }
        slice
    }

    fn list(slices: &[Slice], port: &str) -> Result<Vec<(String, Readiness)>, String> {
        let port = if port.is_empty() { ServicePort::Only } else { port.parse().unwrap() };
        let list = endpoints(slices.iter(), &port).map_err(|error| error.to_string())?;
        Ok(list.into_iter().map(|endpoint| (endpoint.address.to_string(), endpoint.readiness)).collect())
    }

    const HTTP: &[(&str, u16)] = &[("http", 80)];
    use Readiness::{Draining, Ready, Starting};

    #[test]
    fn all_slices_are_one_list_in_the_order_of_addresses() {
        let slices = [slice("b", HTTP, &[("10.0.0.1", Ready)]), slice("a", HTTP, &[("10.0.0.2", Ready)])];
        let expected = vec![("10.0.0.1:80".to_owned(), Ready), ("10.0.0.2:80".to_owned(), Ready)];
        assert_eq!(list(&slices, ""), Ok(expected));
        assert_eq!(list(&[], "http"), Ok(vec![]));
        // The empty slice of a service without pods has no ports.
        assert_eq!(list(&[slice("a", &[], &[])], "http"), Ok(vec![]));
    }

    #[test]
    fn best_word_on_an_endpoint_in_two_slices_counts() {
        for (one, other, best) in [(Ready, Draining, Ready), (Draining, Starting, Draining), (Starting, Ready, Ready)] {
            let mut slices = [slice("a", HTTP, &[("10.0.0.1", one)]), slice("b", HTTP, &[("10.0.0.1", other)])];
            for _ in 0..2 {
                assert_eq!(list(&slices, "http"), Ok(vec![("10.0.0.1:80".to_owned(), best)]));
                slices.reverse();
            }
        }
    }

    #[test]
    fn port_is_chosen_by_name_number_or_as_the_only_one() {
        // A named target port may be another number at other pods.
        let slices = [
            slice("a", &[("http", 80), ("admin", 90)], &[("10.0.0.1", Ready)]),
            slice("b", &[("http", 8080)], &[("10.0.0.2", Ready)]),
        ];
        let addresses =
            |port| list(&slices, port).map(|list| list.into_iter().map(|(address, _)| address).collect::<Vec<_>>());
        assert_eq!(addresses("http"), Ok(vec!["10.0.0.1:80".to_owned(), "10.0.0.2:8080".to_owned()]));
        assert_eq!(addresses("8080"), Ok(vec!["10.0.0.2:8080".to_owned()]));
        assert_eq!(addresses("admin"), Ok(vec!["10.0.0.1:90".to_owned()]));
        let all = "admin (90), http (80), http (8080)";
        assert_eq!(
            addresses("grpc"),
            Err(format!("no port named grpc: its pods have {all}; help: set port to one of these"))
        );
        assert_eq!(addresses(""), Err(format!("several ports: {all}; help: set port to the name of one")));
        assert_eq!(list(&slices[1..], ""), Ok(vec![("10.0.0.2:8080".to_owned(), Ready)]));
        let without = slice("a", &[], &[("10.0.0.1", Ready)]);
        assert!(list(&[without], "").unwrap_err().contains("its pods have no TCP port"));
    }

    #[test]
    fn pod_of_two_families_counts_once() {
        let ipv4 = of_pods(slice("4", HTTP, &[("10.0.0.1", Ready)]), &["p1"]);
        let ipv6 = of_pods(slice("6", HTTP, &[("fd00::1", Ready), ("fd00::2", Ready)]), &["p1", "p2"]);
        let by_hand = slice("h", HTTP, &[("fd00::3", Ready)]);
        let addresses = |slices: &[Slice]| -> Vec<String> {
            list(slices, "http").unwrap().into_iter().map(|(address, _)| address).collect()
        };
        // A pod with an IPv6 address alone is not lost while the cluster moves to both.
        assert_eq!(addresses(&[ipv6.clone(), ipv4.clone(), by_hand.clone()]), ["10.0.0.1:80", "[fd00::2]:80"]);
        assert_eq!(addresses(&[ipv6, by_hand]), ["[fd00::1]:80", "[fd00::2]:80", "[fd00::3]:80"]);
    }

    #[test]
    fn names_are_an_error_only_if_there_is_nothing_else() {
        let mut fqdn = slice("f", HTTP, &[]);
        (fqdn.family, fqdn.count) = (Family::Other, 2);
        assert!(list(std::slice::from_ref(&fqdn), "").unwrap_err().contains("names and no addresses"));
        let slices = [fqdn, slice("a", HTTP, &[("10.0.0.1", Ready)])];
        assert_eq!(list(&slices, "").map(|list| list.len()), Ok(1));
    }

    #[test]
    fn too_many_endpoints_are_an_error() {
        let mut many = slice("a", HTTP, &[("10.0.0.1", Ready)]);
        many.count = MAX_ENDPOINTS + 1;
        assert_eq!(list(&[many], ""), Err("more than 100000 endpoints".to_owned()));
    }

    #[test]
    fn port_is_read_from_a_name_or_a_number() {
        assert_eq!("http".parse(), Ok(ServicePort::Named("http".into())));
        assert_eq!("8080".parse(), Ok(ServicePort::Number(8080)));
        for wrong in ["", "0", "65536", "a b", "Http", "-", "h\n"] {
            let error = wrong.parse::<ServicePort>().unwrap_err();
            assert!(error.to_string().contains("use its name"), "{error}");
        }
    }
}
