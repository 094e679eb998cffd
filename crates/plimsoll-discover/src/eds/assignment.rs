//! The endpoints in a `ClusterLoadAssignment`. `levels` makes backends of them.
//!
//! One wrong entry rejects the whole resource, as in Envoy: the control plane is to see its fault, and the
//! last good list stays. A list without the wrong entries would be a loss of backends that nobody stated.
//!
//! EDS has addresses and no names. Unix sockets and Envoy's internal listeners are no backends of this proxy.

use std::collections::HashSet;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use bytes::Bytes;
use http::uri::Authority;
use plimsoll::discover::Endpoint;
use prost::{DecodeError, Message as _};

use super::levels::{self, Entry, Group, Health, LocalityFrom};
use super::message::{Address, AssignmentHead, EndpointMessage, LbEndpoint, LocalityHead, UInt32};
use super::repeated::{Malformed, Repeated};

/// Most endpoints of a service.
pub(super) const MAX_ENDPOINTS: usize = 100_000;
/// The longest region, zone and host name, in bytes.
const MAX_TEXT: usize = 256;
/// The highest priority number of the protocol.
const MAX_PRIORITY: u32 = 128;
/// The list of a service.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Assignment {
    pub(super) endpoints: Vec<Endpoint>,
    /// It has shares of requests to drop, which have no effect.
    pub(super) has_drops: bool,
}

/// The reason why a resource is no list of backends.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum AssignmentError {
    #[error("it is no ClusterLoadAssignment: {0}")]
    Malformed(#[from] Malformed),
    #[error("it has more than {MAX_ENDPOINTS} endpoints")]
    TooMany,
    #[error("endpoints[{locality}]: {problem}")]
    Locality { locality: usize, problem: LocalityProblem },
    #[error("endpoints[{locality}].lb_endpoints[{endpoint}]: {problem}")]
    Endpoint { locality: usize, endpoint: usize, problem: EndpointProblem },
}

impl From<DecodeError> for AssignmentError {
    fn from(error: DecodeError) -> Self {
        Self::Malformed(error.into())
    }
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum LocalityProblem {
    #[error("load_balancing_weight is 0; help: leave it out, or state at least 1")]
    ZeroWeight,
    #[error("priority is {0}, and the highest is {MAX_PRIORITY}")]
    Priority(u32),
    #[error("its endpoints are not in lb_endpoints; help: LEDS and load_balancer_endpoints are not supported")]
    Elsewhere,
    #[error("its {0} has more than {MAX_TEXT} bytes")]
    TooLong(&'static str),
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum EndpointProblem {
    #[error("load_balancing_weight is 0; help: leave it out, or state at least 1")]
    ZeroWeight,
    #[error("it has no socket_address; help: state an IP address in endpoint.address.socket_address")]
    NoAddress,
    #[error("its address is a {0}; help: only a socket_address is supported")]
    Kind(&'static str),
    #[error("`{0}` is no IP address; help: names are for DNS, state the address itself")]
    Name(String),
    #[error("port {0} is no port; help: state port_value, from 1 to 65535")]
    Port(u32),
    #[error("`{0}` is no port number; help: state port_value in place of named_port")]
    NamedPort(String),
    #[error("`{0}` is no hostname")]
    Hostname(String),
}

/// The backends of a `ClusterLoadAssignment`, in the order of their addresses.
pub(super) fn read(assignment: Bytes, from: LocalityFrom) -> Result<Assignment, AssignmentError> {
    let head = AssignmentHead::decode(assignment.clone())?;
    let (groups, entries) = entries(assignment, from)?;
    let has_drops = head.policy.is_some_and(|policy| policy.drop_overloads.is_some());
    Ok(Assignment { endpoints: levels::endpoints(&groups, &entries, from), has_drops })
}

/// All endpoints, each address once: the first entry counts, as in Envoy.
fn entries(assignment: Bytes, from: LocalityFrom) -> Result<(Vec<Group>, Vec<Entry>), AssignmentError> {
    let (mut groups, mut entries, mut seen) = (Vec::new(), Vec::<Entry>::new(), HashSet::new());
    let mut count = 0;
    for (locality, message) in Repeated::new(assignment, AssignmentHead::LOCALITIES).enumerate() {
        let message = message?;
        let head = LocalityHead::decode(message.clone())?;
        let mut group = group(head, from).map_err(|problem| AssignmentError::Locality { locality, problem })?;
        for (endpoint, message) in Repeated::new(message, LocalityHead::ENDPOINTS).enumerate() {
            count += 1;
            if count > MAX_ENDPOINTS {
                return Err(AssignmentError::TooMany);
            }
            let entry = entry(LbEndpoint::decode(message?)?, groups.len());
            let entry = entry.map_err(|problem| AssignmentError::Endpoint { locality, endpoint, problem })?;
            if seen.insert(entry.address) {
                group.sum += f64::from(entry.weight);
                entries.push(entry);
            }
        }
        // One without endpoints has no share.
        if group.sum > 0.0 {
            groups.push(group);
        }
    }
    Ok((groups, entries))
}

fn group(head: LocalityHead, from: LocalityFrom) -> Result<Group, LocalityProblem> {
    if head.leds_cluster_locality_config.is_some() || head.load_balancer_endpoints.is_some() {
        return Err(LocalityProblem::Elsewhere);
    }
    let priority = head.priority;
    if priority > MAX_PRIORITY {
        return Err(LocalityProblem::Priority(priority));
    }
    let weight = stated(head.load_balancing_weight).ok_or(LocalityProblem::ZeroWeight)?;
    let locality = head.locality.unwrap_or_default();
    let [region, zone] = [(locality.region, "region"), (locality.zone, "zone")].map(|(text, name)| match &*text {
        "" => Ok(None),
        long if long.len() > MAX_TEXT => Err(LocalityProblem::TooLong(name)),
        text => Ok(Some(Arc::from(text))),
    });
    let (region, zone) = (region?, zone?);
    let locality = match from {
        LocalityFrom::Region => region,
        LocalityFrom::Zone => zone.clone(),
        LocalityFrom::Priority => Some(priority.to_string().into()),
    };
    Ok(Group { priority, weight, sum: 0.0, zone, locality })
}

/// `None`: it is zero.
#[expect(clippy::option_option, reason = "a weight may be absent, and a stated one wrong")]
fn stated(weight: Option<UInt32>) -> Option<Option<u32>> {
    match weight {
        None => Some(None),
        Some(UInt32 { value: 0 }) => None,
        Some(UInt32 { value }) => Some(Some(value)),
    }
}

fn entry(message: LbEndpoint, group: usize) -> Result<Entry, EndpointProblem> {
    let EndpointMessage { address, hostname } = message.endpoint.ok_or(EndpointProblem::NoAddress)?;
    let address = socket_address(address.unwrap_or_default())?;
    let weight = stated(message.load_balancing_weight).ok_or(EndpointProblem::ZeroWeight)?.unwrap_or(1);
    let authority = match &*hostname {
        "" => None,
        long if long.len() > MAX_TEXT => return Err(EndpointProblem::Hostname(short(long))),
        name => {
            let authority = name.parse().ok().filter(|authority: &Authority| !authority.as_str().contains('@'));
            Some(authority.ok_or_else(|| EndpointProblem::Hostname(short(name)))?)
        }
    };
    Ok(Entry { address, authority, weight, health: Health::of(message.health_status), group })
}

fn socket_address(address: Address) -> Result<SocketAddr, EndpointProblem> {
    if address.pipe.is_some() {
        return Err(EndpointProblem::Kind("pipe"));
    }
    if address.envoy_internal_address.is_some() {
        return Err(EndpointProblem::Kind("envoy_internal_address"));
    }
    let address = address.socket_address.ok_or(EndpointProblem::NoAddress)?;
    let ip: IpAddr = address.address.parse().map_err(|_| EndpointProblem::Name(short(&address.address)))?;
    if !address.named_port.is_empty() {
        return Err(EndpointProblem::NamedPort(short(&address.named_port)));
    }
    let port = u16::try_from(address.port_value).ok().filter(|port| *port > 0);
    Ok(SocketAddr::new(ip, port.ok_or(EndpointProblem::Port(address.port_value))?))
}

/// A text of the control plane for a message.
pub(super) fn short(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { '?' } else { c }).take(60).collect()
}

#[cfg(test)]
mod tests {
    use super::super::message::{Empty, Locality, Pipe, Policy};
    use super::super::tests::build::{self, Localities, assignment, endpoint, locality};
    use super::*;

    const A: &str = "10.0.0.1:80";
    const B: &str = "10.0.0.2:80";

    fn read_from(endpoints: Vec<Localities>, from: LocalityFrom) -> Result<Assignment, AssignmentError> {
        read(build::any(&assignment("web", endpoints)).value, from)
    }

    fn list(endpoints: Vec<Localities>) -> Vec<Endpoint> {
        read_from(endpoints, LocalityFrom::default()).unwrap().endpoints
    }

    fn error(endpoints: Vec<Localities>) -> String {
        read_from(endpoints, LocalityFrom::default()).unwrap_err().to_string()
    }

    #[test]
    fn endpoints_are_sorted_and_have_their_zone_and_region() {
        let mut first = locality("b", &[B, "[::1]:80"]);
        first.lb_endpoints[0].endpoint.as_mut().unwrap().hostname = "b.internal".to_owned();
        // Text of an address has no brackets.
        first.lb_endpoints[1] = {
            let mut six = endpoint("::1:80");
            six.health_status = 1;
            six
        };
        let found = list(vec![first, locality("", &[A])]);
        let expected = [
            Endpoint::new(A.parse::<SocketAddr>().unwrap()),
            Endpoint::new(B.parse::<SocketAddr>().unwrap())
                .zone("b")
                .locality("east")
                .authority("b.internal".parse().unwrap()),
            Endpoint::new("[::1]:80".parse::<SocketAddr>().unwrap()).zone("b").locality("east"),
        ];
        assert_eq!(found, expected);
        let place = |from| read_from(vec![locality("b", &[A])], from).unwrap().endpoints[0].locality.clone();
        assert_eq!(place(LocalityFrom::Zone).as_deref(), Some("b"));
        assert_eq!(place(LocalityFrom::Priority).as_deref(), Some("0"));
        assert_eq!(list(vec![]), []);
    }

    #[test]
    fn wrong_entries_are_errors_that_name_the_place_and_the_fix() {
        let socket = |address: &str, port| {
            let mut wrong = endpoint("1.1.1.1:1");
            let socket = wrong.endpoint.as_mut().unwrap().address.as_mut().unwrap().socket_address.as_mut().unwrap();
            (socket.address, socket.port_value) = (address.to_owned(), port);
            wrong
        };
        let address = |address| {
            let endpoint = EndpointMessage { address: Some(address), hostname: String::new() };
            LbEndpoint { endpoint: Some(endpoint), ..LbEndpoint::default() }
        };
        let mut named = socket("10.0.0.2", 0);
        let of_named = named.endpoint.as_mut().unwrap().address.as_mut().unwrap().socket_address.as_mut().unwrap();
        of_named.named_port = "http".to_owned();
        let mut hostname = socket("10.0.0.2", 1);
        hostname.endpoint.as_mut().unwrap().hostname = "a b".to_owned();
        let zero = LbEndpoint { load_balancing_weight: Some(UInt32 { value: 0 }), ..endpoint(B) };
        for (wrong, text) in [
            (socket("web.internal", 80), "`web.internal` is no IP address; help: names are for DNS"),
            (socket("", 80), "`` is no IP address"),
            (socket("10.0.0.2\n", 80), "`10.0.0.2?` is no IP address"),
            (socket("10.0.0.2", 0), "port 0 is no port; help: state port_value, from 1"),
            (socket("10.0.0.2", 65536), "port 65536 is no port"),
            (named, "`http` is no port number; help: state port_value"),
            (hostname, "`a b` is no hostname"),
            (zero, "load_balancing_weight is 0; help: leave it out"),
            (LbEndpoint::default(), "it has no socket_address; help: state an IP address"),
            (address(Address::default()), "it has no socket_address"),
            (
                address(Address { pipe: Some(Pipe { path: "/run/web".to_owned() }), ..Address::default() }),
                "a pipe; help",
            ),
            (
                address(Address { envoy_internal_address: Some(Empty {}), ..Address::default() }),
                "is a envoy_internal_address",
            ),
        ] {
            let mut second = locality("", &[A]);
            second.lb_endpoints.push(wrong);
            let error = error(vec![locality("", &[]), second]);
            assert!(error.starts_with("endpoints[1].lb_endpoints[1]: ") && error.contains(text), "{error}");
        }
        let long = Locality { zone: "z".repeat(257), ..Locality::default() };
        for (wrong, text) in [
            (
                Localities { load_balancing_weight: Some(UInt32 { value: 0 }), ..locality("", &[A]) },
                "weight is 0; help",
            ),
            (Localities { priority: 129, ..locality("", &[A]) }, "priority is 129, and the highest is 128"),
            (Localities { leds_cluster_locality_config: Some(Empty {}), ..locality("", &[]) }, "LEDS"),
            (Localities { locality: Some(long), ..locality("", &[A]) }, "its zone has more than 256 bytes"),
        ] {
            let error = error(vec![locality("", &[B]), wrong]);
            assert!(error.starts_with("endpoints[1]: ") && error.contains(text), "{error}");
        }
    }

    #[test]
    fn too_many_endpoints_are_an_error_before_they_take_memory() {
        let many = Localities { lb_endpoints: vec![endpoint(A); MAX_ENDPOINTS], ..Localities::default() };
        assert_eq!(list(vec![many.clone()]).len(), 1);
        let error = error(vec![many, locality("", &[B])]);
        assert_eq!(error, "it has more than 100000 endpoints");
    }

    #[test]
    fn shares_to_drop_are_noticed() {
        let mut drops = assignment("web", vec![locality("", &[A])]);
        for (policy, has_drops) in
            [(Policy { drop_overloads: None }, false), (Policy { drop_overloads: Some(Empty {}) }, true)]
        {
            drops.policy = Some(policy);
            assert_eq!(read(build::any(&drops).value, LocalityFrom::Region).unwrap().has_drops, has_drops);
        }
    }
}
