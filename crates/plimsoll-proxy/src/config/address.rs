//! Addresses of backends: `10.0.0.1:8080`, `[fd00::1]:8080`, `web.internal:8080`.

use std::fmt;
use std::net::{IpAddr, SocketAddr};

use plimsoll_config::{DeValue, Flaw, Reading, Spanned, Table, Value, Visitor, kind, quoted, text, values};
use plimsoll_core::Weight;

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
        let flaw = |reason: String| {
            Flaw::new(
                reason,
                "write host and port, such as \"10.0.0.1:8080\", \"[fd00::1]:8080\" or \"web.internal:8080\"",
            )
        };
        if let Some((scheme, rest)) = address.split_once("://") {
            let rest = rest.trim_end_matches('/');
            return Err(match scheme {
                "https" | "wss" => Flaw::new(
                    format!("\"{address}\" is a URL, not an address"),
                    format!("write \"{rest}\", and add [clusters.NAME.tls] for TLS"),
                ),
                _ => Flaw::new(
                    format!("\"{address}\" is a URL, not an address"),
                    format!("write \"{rest}\"; the cluster's protocol says how it is spoken to"),
                ),
            });
        }
        let Some((host, port)) = address.rsplit_once(':') else {
            return Err(Flaw::new(
                format!("\"{address}\" has no port"),
                format!("write \"{address}:8080\", with the backend's port"),
            ));
        };
        let port = port
            .parse::<u16>()
            .ok()
            .filter(|port| *port > 0)
            .ok_or_else(|| flaw(format!("\"{port}\" is not a port (1 to 65535)")))?;
        let bracketed = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
        let host = match bracketed {
            Some(ip) => ip
                .parse::<std::net::Ipv6Addr>()
                .map(|ip| ip.to_string())
                .map_err(|_| flaw(format!("\"{ip}\" is not an IPv6 address")))?,
            None if is_host_name(host) => host.to_ascii_lowercase(),
            None => return Err(flaw(format!("\"{host}\" is not a host"))),
        };
        // An address such as 10.0.0.256 would be looked up as a name, and fail where nobody expects it.
        if bracketed.is_none()
            && host.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.')
            && host.parse::<IpAddr>().is_err()
        {
            return Err(flaw(format!("\"{host}\" is not an IPv4 address")));
        }
        Ok(Self { host, port })
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

/// Whether `name` can be a host name: labels of letters, digits, `-` and `_`, 253 characters at most.
pub(super) fn is_host_name(name: &str) -> bool {
    let label_is_good = |label: &str| {
        !label.is_empty()
            && label.len() <= 63
            && !label.starts_with('-')
            && !label.ends_with('-')
            && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_')
    };
    name.len() <= 253 && name.split('.').all(label_is_good)
}

values! {
    BackendAddress: |v| BackendAddress::parse(text(v, "an address", "host and port in quotes, such as \"10.0.0.1:8080\"")?), |address| quoted(address);
}

/// One backend of a cluster. In the file either its address alone or `{ address = "...", weight = 2, zone = "a" }`.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Backend {
    /// Where it listens.
    pub address: BackendAddress,
    /// How much it is meant to take relative to its fellows.
    pub weight: Weight,
    /// What fails together with it: its zone or rack.
    pub zone: Option<String>,
    /// Which of the cluster's localities it is in.
    pub locality: Option<String>,
}

impl Backend {
    pub(super) fn new(address: BackendAddress) -> Self {
        Self { address, weight: Weight::ONE, zone: None, locality: None }
    }
}

impl Default for Backend {
    /// A place to read into; the address is required in the file.
    fn default() -> Self {
        Self::new(BackendAddress { host: String::new(), port: 0 })
    }
}

impl Table for Backend {
    fn settings<V: Visitor>(&mut self, visitor: &mut V) {
        visitor.required("address", &mut self.address);
        visitor.value("weight", &mut self.weight);
        visitor.optional("zone", &mut self.zone);
        visitor.optional("locality", &mut self.locality);
    }
}

impl Value for Backend {
    fn read(value: &Spanned<DeValue<'_>>, reading: &mut Reading<'_>) -> Option<Self> {
        match value.get_ref() {
            DeValue::String(_) => BackendAddress::read(value, reading).map(Self::new),
            DeValue::Table(table) => {
                let mut backend = Self::default();
                reading.fill(table, &mut backend);
                Some(backend)
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

    #[test]
    fn what_is_no_address_says_what_to_write() {
        let reasons = [
            ("http://10.0.0.1:80/", "is a URL"),
            ("https://a:443", "is a URL"),
            ("10.0.0.1", "has no port"),
            ("a:0", "is not a port"),
            ("a:b", "is not a port"),
            ("fd00::1:80", "is not a host"),
            ("[zz]:80", "is not an IPv6 address"),
            ("10.0.0.256:80", "is not an IPv4 address"),
            ("a b:80", "is not a host"),
            (":80", "is not a host"),
        ];
        for (address, reason) in reasons {
            let flaw = BackendAddress::parse(address).unwrap_err();
            assert!(flaw.reason.contains(reason), "{address}: {}", flaw.reason);
        }
    }
}
