//! DNS names as sources of backends, as the file writes them.

use std::net::{IpAddr, SocketAddr};

use plimsoll_config::{Flaw, quoted, text, values};
use plimsoll_discover::dns::{Dns, Srv};

/// A host name with a port, whose addresses are backends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostName(String);

/// A name with SRV records, whose targets are backends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServiceName(String);

/// The address of a DNS server, with port 53 where none is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Resolver(pub(crate) SocketAddr);

impl HostName {
    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }
}

impl ServiceName {
    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }
}

fn host(text: &str) -> Result<HostName, Flaw> {
    if Srv::new(text).is_ok() && text.starts_with('_') {
        return Err(Flaw::new("is the name of a service", format!("write srv = \"{text}\"")));
    }
    if Srv::new(text).is_ok() {
        return Err(Flaw::new("has no port", format!("write \"{text}:8080\", with the port of the backends")));
    }
    let help = "write a host name with a port, such as \"web.internal:8080\"";
    let parsed = Dns::new(text).map_err(|_| Flaw::new(format!("\"{text}\" is no host name with a port"), help));
    parsed.map(|_| HostName(text.to_owned()))
}

fn service(text: &str) -> Result<ServiceName, Flaw> {
    if Dns::new(text).is_ok() {
        let help = format!("write dns = \"{text}\", or the name without a port: SRV records have the ports");
        return Err(Flaw::new("has a port", help));
    }
    let help = "write a name with SRV records, such as \"_http._tcp.web.service.consul\"";
    let parsed = Srv::new(text).map_err(|_| Flaw::new(format!("\"{text}\" is no name of a service"), help));
    parsed.map(|_| ServiceName(text.to_owned()))
}

fn resolver(text: &str) -> Result<Resolver, Flaw> {
    let alone = text.parse::<IpAddr>().map(|ip| SocketAddr::new(ip, 53));
    let help = "write the IP address of a DNS server, such as \"127.0.0.1:8600\"";
    let address = alone.or_else(|_| text.parse()).ok().filter(|address: &SocketAddr| address.port() > 0);
    address.map(Resolver).ok_or_else(|| Flaw::new(format!("\"{text}\" is no IP address"), help))
}

values! {
    HostName: |v| host(text(v, "a name", "a name with a port in quotes, such as \"web.internal:8080\"")?), |name| quoted(&name.0);
    ServiceName: |v| service(text(v, "a name", "a name in quotes, such as \"_http._tcp.web.service.consul\"")?), |name| quoted(&name.0);
    Resolver: |v| resolver(text(v, "an address", "an address in quotes, such as \"127.0.0.1:8600\"")?), |resolver| quoted(resolver.0);
}
