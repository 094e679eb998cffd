//! Addresses of backends: `10.0.0.1:8080`, `[fd00::1]:8080`, `web.internal:8080`.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use plimsoll_config::{
    DeTable, DeValue, Effect, Flaw, Reading, Spanned, Value, kind, number, quoted, table, text, values,
};
use plimsoll_core::{Speed, Weight};
use plimsoll_tls_config::is_host_name;

use super::address_help::{self, looks_like_ipv4};

/// Where a backend listens: an IP address or a host name, and a port.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BackendAddress {
    host: String,
    port: u16,
}

impl BackendAddress {
    /// The host: a name in lower case, or an IP address (IPv6 without brackets).
    #[must_use]
    pub fn host(&self) -> &str {
        &self.host
    }

    /// The port, above zero.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The address to connect to, when the host is an IP address; a name has to be resolved first.
    #[must_use]
    pub fn socket_address(&self) -> Option<SocketAddr> {
        self.host.parse::<IpAddr>().ok().map(|ip| SocketAddr::new(ip, self.port))
    }

    pub(super) fn parse(address: &str) -> Result<Self, Flaw> {
        Self::read_text(address).ok_or_else(|| address_help::flaw(address))
    }

    /// The address that `text` is; `None` if it is none.
    pub(super) fn read_text(text: &str) -> Option<Self> {
        let (host, port) = text.rsplit_once(':')?;
        let port = port.parse::<u16>().ok().filter(|port| *port > 0)?;
        let bracketed = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
        let host = match bracketed {
            Some(ip) => ip.parse::<Ipv6Addr>().ok()?.to_string(),
            // Digits and dots that are no address would be looked up as a name, and fail in an
            // unexpected place.
            None if is_host_name(host) && (!looks_like_ipv4(host) || host.parse::<IpAddr>().is_ok()) => {
                host.to_ascii_lowercase()
            }
            None => return None,
        };
        Some(Self { host, port })
    }
}

/// As it is written in the file.
impl fmt::Display for BackendAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.host.contains(':') {
            write!(f, "[{}]:{}", self.host, self.port)
        } else {
            write!(f, "{}:{}", self.host, self.port)
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
        pub address: BackendAddress = BackendAddress { host: String::new(), port: 0 }, required, Effect::Another;
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
        for address in ["10.0.0.1:8080", "[fd00::1]:80", "web.internal:9", "localhost:65535", "my_svc:80"] {
            assert_eq!(BackendAddress::parse(address).unwrap().to_string(), address);
        }
        assert_eq!(BackendAddress::parse("[fd00::1]:80").unwrap().socket_address(), "[fd00::1]:80".parse().ok());
        assert_eq!(BackendAddress::parse("Web:80").unwrap().host(), "web");
        assert_eq!(BackendAddress::parse("web:80").unwrap().socket_address(), None);
    }
}
