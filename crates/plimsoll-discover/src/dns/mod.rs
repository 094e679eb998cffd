//! DNS names as sources of backends: the addresses of a name ([`Dns`]) or of several ([`Names`]), and
//! the targets of a service ([`Srv`]).
//!
//! ```text
//! schedule   the time of a question      TTL, back-off
//! host, srv  the meaning of an answer    families, priorities, weights; kept addresses
//! names      several names in one list    those of a configuration
//! search     the name that is meant      search domains, aliases
//! answer     the meaning of a message    records, no records, or an error
//! servers    the way to a server         UDP, TCP, the next server
//! system     the rules of the machine    /etc/resolv.conf, /etc/hosts
//! ```
//!
//! The usual way is a resolver crate, which asks, follows the search list and caches. It was tried.
//! Its answer does not tell a name without records from a search list that a server broke off, one
//! failing server of two fails the question, and an SRV record behind an alias is not found. For a
//! source of backends these differences decide whether a cluster loses them. So the wire format is the
//! crate's (`hickory-proto`), and the decisions are here. There is no cache: each source asks when
//! its own answer expires, and a cache would only add to its age.
//!
//! - **An error is no answer**: time-out, SERVFAIL, REFUSED, a malformed or truncated message.
//! - **No records are an empty list**: the name does not exist, or has no address. The cluster's
//!   `on_empty` decides on it.
//! - **A part that fails keeps its addresses**: one of the two families, or one of the targets.
//! - A backend is removed when two answers in a row lack it.
//!
//! Where it is weak: only the name servers and `/etc/hosts` are asked, not other modules of NSS such
//! as mDNS or LDAP. A search domain with a wildcard answers for a name that lost its records; write
//! the name with a dot at its end.

mod answer;
mod host;
mod names;
mod schedule;
mod search;
mod servers;
mod srv;
mod system;

#[cfg(test)]
mod tests;

use std::io;
use std::net::SocketAddr;
use std::num::NonZeroU32;
use std::time::Duration;

use hickory_proto::op::ResponseCode;
use hickory_proto::rr::Name;
use plimsoll::discover::{Answer, Discover, Endpoint};

use self::host::Host;
pub use self::names::{Named, Names};
use self::schedule::Schedule;
use self::servers::Servers;
use self::srv::Service;

/// Most addresses of an answer. A UDP or TCP message has at most some 4,000.
const MAX_ADDRESSES: usize = 10_000;
/// Time for all questions of one answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);

/// The addresses of a name with a port, such as `web.internal:8080`. See the [module](self).
///
/// An IP address with a port is its own answer. IPv4 comes before IPv6.
#[derive(Debug)]
pub struct Dns(Schedule<Host, Servers>);

/// The targets of an SRV name, such as `_http._tcp.web.service.consul`. See the [module](self).
///
/// Of the priorities the lowest number with an address counts. The others are not a second choice of
/// the balancer, since it cannot see why a target of the first is missing. The weight of a target is
/// divided among its addresses.
#[derive(Debug)]
pub struct Srv(Schedule<Service, Servers>);

impl Dns {
    /// A source for `name`, a host name or IP address with a port, by the servers of the system.
    ///
    /// # Errors
    /// `name` is no host name with a port.
    pub fn new(name: &str) -> Result<Self, NameError> {
        Ok(Self(Schedule::new(Host::parse(name)?, Servers::System)))
    }

    /// The same, asked at the DNS server at this address: without search domains and `/etc/hosts`.
    #[must_use]
    pub fn at(self, server: SocketAddr) -> Self {
        Self(self.0.at(Servers::At(server)))
    }

    /// Asks once.
    ///
    /// # Errors
    /// There is no answer.
    pub async fn look_up(&mut self) -> Result<Found, DnsError> {
        self.0.ask().await
    }
}

impl Srv {
    /// A source for the SRV records at `name`, by the servers of the system.
    ///
    /// # Errors
    /// `name` is no name, or has a port.
    pub fn new(name: &str) -> Result<Self, NameError> {
        Ok(Self(Schedule::new(Service::parse(name)?, Servers::System)))
    }

    /// The same, asked at the DNS server at this address: without search domains.
    #[must_use]
    pub fn at(self, server: SocketAddr) -> Self {
        Self(self.0.at(Servers::At(server)))
    }

    /// Asks once.
    ///
    /// # Errors
    /// There is no answer.
    pub async fn look_up(&mut self) -> Result<Found, DnsError> {
        self.0.ask().await
    }
}

/// A part of an answer may be missing: large ones come in parts, and servers of one zone differ.
const CONFIRMATIONS: NonZeroU32 = NonZeroU32::new(2).expect("two is not zero");

impl Discover for Dns {
    async fn next(&mut self) -> Option<Answer> {
        self.0.next().await
    }

    fn confirmations(&self) -> NonZeroU32 {
        CONFIRMATIONS
    }

    fn kind(&self) -> &'static str {
        "dns"
    }

    fn description(&self) -> String {
        description(self.0.name(), self.0.servers())
    }
}

impl Discover for Srv {
    async fn next(&mut self) -> Option<Answer> {
        self.0.next().await
    }

    fn confirmations(&self) -> NonZeroU32 {
        CONFIRMATIONS
    }

    fn kind(&self) -> &'static str {
        "srv"
    }

    fn description(&self) -> String {
        description(self.0.name(), self.0.servers())
    }
}

/// A name, and its server if it is none of the system's.
fn description(name: &str, servers: &Servers) -> String {
    match servers {
        Servers::System => name.to_owned(),
        Servers::At(server) => format!("{name} at {server}"),
    }
}

/// The backends of an answer.
#[derive(Clone, Debug, PartialEq)]
pub struct Found {
    /// The backends, sorted by address.
    pub endpoints: Vec<Endpoint>,
    /// Time for which the answer is valid. `None`: it never changes.
    pub ttl: Option<Duration>,
}

/// A text that is no name to look up.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{name}` is no {expected}")]
pub struct NameError {
    name: String,
    expected: &'static str,
}

/// The reason why a name has no answer.
#[derive(Debug, thiserror::Error)]
#[error("{name}: {failure}")]
pub struct DnsError {
    name: String,
    failure: Failure,
}

impl DnsError {
    /// The reason without the name.
    #[must_use]
    pub fn reason(&self) -> String {
        self.failure.to_string()
    }
}

/// The reason why a question has no answer.
#[derive(Clone, Debug, thiserror::Error)]
enum Failure {
    #[error("no answer within {} s: check the name server", .0.as_secs())]
    Slow(Duration),
    #[error("the name server answered {0}")]
    Code(ResponseCode),
    #[error("the name server's answer is malformed: {0}")]
    Malformed(String),
    #[error("the name server's answer is truncated, over TCP as well")]
    Truncated,
    #[error("{server} cannot be asked: {cause}")]
    Unreachable { server: SocketAddr, cause: std::sync::Arc<io::Error> },
    #[error("{file} cannot be read: {cause}")]
    Unreadable { file: &'static str, cause: std::sync::Arc<io::Error> },
    #[error("has more aliases in a row than {0}, or they form a circle")]
    Aliases(usize),
    #[error("has more than {MAX_ADDRESSES} addresses")]
    TooMany,
    #[error("target {target}: {cause}")]
    Target { target: Name, cause: Box<Failure> },
}
