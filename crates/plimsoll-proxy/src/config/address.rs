//! Addresses of backends: `10.0.0.1:8080`, `[fd00::1]:8080`, `web.internal:8080`,
//! `unix:/run/app.sock`.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use plimsoll::address::Address;

use plimsoll_config::{
    DeTable, DeValue, Effect, Flaw, Reading, Spanned, Value, kind, number, quoted, table, text, values,
};
use plimsoll_core::{Speed, Weight};
use plimsoll_tls_config::is_host_name;

use super::address_help::{self, looks_like_ipv4};
use super::unix_socket;

/// Where a backend listens: an IP address or a host name, and a port; or a Unix socket.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BackendAddress(Place);

#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Place {
    Known(Address),
    /// A name in lower case, and a port.
    Name(String, u16),
}

impl BackendAddress {
    /// The place of an address in a table that does not name one yet.
    const UNSPECIFIED: Self = Self(Place::Name(String::new(), 0));

    /// The host name, and the port above zero; `None` for an address that needs no look-up.
    #[must_use]
    pub fn name(&self) -> Option<(&str, u16)> {
        match &self.0 {
            Place::Known(_) => None,
            Place::Name(host, port) => Some((host, *port)),
        }
    }

    /// The address to connect to; `None` for a name, which has to be resolved first.
    #[must_use]
    pub fn known(&self) -> Option<Address> {
        match self.0 {
            Place::Known(address) => Some(address),
            Place::Name(..) => None,
        }
    }

    /// Whether a table names it.
    pub(super) fn is_set(&self) -> bool {
        *self != Self::UNSPECIFIED
    }

    pub(super) fn parse(address: &str) -> Result<Self, Flaw> {
        if unix_socket::is_meant(address) {
            return unix_socket::read(address).map(|address| Self(Place::Known(address)));
        }
        Self::parse_inet(address)
    }

    /// The same where a Unix socket cannot be.
    pub(super) fn parse_inet(address: &str) -> Result<Self, Flaw> {
        Self::read_text(address).ok_or_else(|| address_help::flaw(address))
    }

    /// The host with a port that `text` is; `None` if it is none.
    pub(super) fn read_text(text: &str) -> Option<Self> {
        let (host, port) = text.rsplit_once(':')?;
        let port = port.parse::<u16>().ok().filter(|port| *port > 0)?;
        let bracketed = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
        if let Some(ip) = bracketed {
            let ip: Ipv6Addr = ip.parse().ok()?;
            return Some(Self(Place::Known(SocketAddr::new(ip.into(), port).into())));
        }
        if !is_host_name(host) {
            return None;
        }
        match host.parse::<IpAddr>() {
            Ok(ip) => Some(Self(Place::Known(SocketAddr::new(ip, port).into()))),
            // Digits and dots that are no address would be looked up as a name, and fail in an
            // unexpected place.
            Err(_) if looks_like_ipv4(host) => None,
            Err(_) => Some(Self(Place::Name(host.to_ascii_lowercase(), port))),
        }
    }
}

/// As it is written in the file.
impl fmt::Display for BackendAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Place::Known(address) => address.fmt(f),
            Place::Name(host, port) => write!(f, "{host}:{port}"),
        }
    }
}

values! {
    BackendAddress: |v| BackendAddress::parse(text(v, "an address", "host and port in quotes, such as \"10.0.0.1:8080\"")?), |address| quoted(address);
}

table! {
    /// One backend of a cluster. In the file either its address alone or `{ address = "...", weight =
    /// 2, zone = "a" }`.
    #[derive(Clone, Debug, PartialEq)]
    #[non_exhaustive]
    pub struct Backend {
        /// Where it listens.
        pub address: BackendAddress = BackendAddress::UNSPECIFIED, required, Effect::Another;
        /// How much it is meant to take relative to its fellows.
        pub weight: Weight = Weight::ONE, value, STATE_STAYS;
        /// Its failure domain: its zone or rack.
        pub zone: Option<String> = None, optional, Effect::Applied("subsets may change; nothing else");
        /// Which of the cluster's localities it is in.
        pub locality: Option<String> = None, optional, STATE_STAYS;
        /// The speed of its machine, which is shown.
        pub speed: Option<Speed> = None, optional, Effect::Applied("shown from then on; nothing else");
    }
}

const STATE_STAYS: Effect = Effect::Applied("from the next request on; its state and connections stay");

impl Backend {
    pub(super) fn new(address: BackendAddress) -> Self {
        Self { address, ..Self::default() }
    }
}

/// Whether a backend is written `{ host = "...", port = 80 }`.
fn says_its_port_apart(table: &DeTable<'_>) -> bool {
    table.contains_key("port") && ["address", "host", "ip"].iter().any(|key| table.contains_key(*key))
}

impl Value for Backend {
    fn read(value: &Spanned<DeValue<'_>>, reading: &mut Reading<'_>) -> Option<Self> {
        match value.get_ref() {
            DeValue::String(_) => BackendAddress::read(value, reading).map(Self::new),
            DeValue::Table(table) if says_its_port_apart(table) => {
                let port = table.get("port").and_then(|port| number(port.get_ref()));
                let host = ["address", "host", "ip"].iter().find_map(|key| table.get(*key)?.get_ref().as_str());
                let example = format!("{}:{}", host.unwrap_or("10.0.0.1"), port.unwrap_or(8080.0));
                let help = format!("write {{ address = \"{example}\" }}");
                reading.problem("host and port are one setting: address", help);
                None
            }
            DeValue::Table(table) => {
                let mut backend = Self::default();
                reading.fill(table, &mut backend);
                Some(backend)
            }
            DeValue::Integer(port) => {
                let flaw = address_help::flaw(port.as_str());
                reading.problem(format!("expected a backend, found the number {port}"), flaw.help);
                None
            }
            other => {
                let help = "write \"10.0.0.1:8080\" or { address = \"10.0.0.1:8080\", weight = 2 }";
                reading.problem(format!("expected a backend, found {}", kind(other)), help);
                None
            }
        }
    }

    fn print(&self) -> String {
        let mut settings = vec![format!("address = {}", self.address.print())];
        if self.weight != Weight::ONE {
            settings.push(format!("weight = {}", self.weight.print()));
        }
        if let Some(zone) = &self.zone {
            settings.push(format!("zone = {}", quoted(zone)));
        }
        if let Some(locality) = &self.locality {
            settings.push(format!("locality = {}", quoted(locality)));
        }
        if let Some(speed) = &self.speed {
            settings.push(format!("speed = {}", speed.print()));
        }
        if settings.len() == 1 { self.address.print() } else { format!("{{ {} }}", settings.join(", ")) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_and_printed_alike() {
        for address in [
            "10.0.0.1:8080",
            "[fd00::1]:80",
            "web.internal:9",
            "localhost:65535",
            "my_svc:80",
            "unix:/run/a.sock",
            "unix:@a",
        ] {
            assert_eq!(BackendAddress::parse(address).unwrap().to_string(), address);
        }
        assert_eq!(BackendAddress::parse("[fd00::1]:80").unwrap().known(), "[fd00::1]:80".parse().ok());
        assert_eq!(BackendAddress::parse("Web:80").unwrap().name(), Some(("web", 80)));
        assert_eq!(BackendAddress::parse("web:80").unwrap().known(), None);
        assert_eq!(BackendAddress::parse("unix:/run/a.sock").unwrap().name(), None);
        assert!(BackendAddress::parse_inet("unix:/run/a.sock").is_err());
    }
}
