//! The addresses of a host name, from the answers for its two families.
//!
//! | one family | the other | the answer |
//! |---|---|---|
//! | answers | answers | both |
//! | has addresses | fails | its addresses, and those that the other had before |
//! | has none | fails, had some before | those |
//! | has none | fails, never had any | an error |
//! | fails | fails | an error |
//!
//! So a server that cannot answer for AAAA does not break IPv4, and a family that fails for a while
//! loses no backend. A family that never had an address is not waited for long.

use std::collections::BTreeSet;
use std::future::Future;
use std::net::{IpAddr, SocketAddr};
use std::pin::pin;
use std::time::Duration;

use futures_util::future::{Either, select};
use hickory_proto::rr::{Name, RData, RecordType};
use http::uri::Authority;
use plimsoll::address::Address;
use plimsoll::discover::Endpoint;
use tokio::time::timeout;

use super::answer::{MAX_EMPTY_TTL, Records};
use super::schedule::Question;
use super::search::{candidates, records};
use super::servers::Ask;
use super::system::Local;
use super::{Failure, Found, MAX_ADDRESSES, NameError};

/// Time that a family without addresses may take longer than the other one.
const FAMILY_WAIT: Duration = Duration::from_secs(1);
/// Time for which addresses from `/etc/hosts` are valid.
const HOSTS_TTL: Duration = Duration::from_secs(5);
/// Time to the next question when a family that failed keeps its addresses.
const KEPT_TTL: Duration = Duration::from_secs(5);

/// A host name with a port.
#[derive(Debug)]
pub(super) struct Host {
    text: String,
    target: Target,
    port: u16,
    authority: Option<Authority>,
    known: Families,
}

#[derive(Debug)]
enum Target {
    Address(IpAddr),
    Name(Name),
}

/// The addresses of a name by the last proper answer of each family. `None`: there was none yet.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Families {
    pub(super) v4: Option<Vec<IpAddr>>,
    pub(super) v6: Option<Vec<IpAddr>>,
}

/// Addresses, and the time for which they are valid.
pub(super) type Addresses = (BTreeSet<IpAddr>, Duration);

impl Host {
    pub(super) fn parse(text: &str) -> Result<Self, NameError> {
        let expected = "host name or IP address with a port, such as web.internal:8080";
        let error = || NameError { name: text.to_owned(), expected };
        if let Ok(address) = text.parse::<SocketAddr>() {
            if address.port() == 0 {
                return Err(error());
            }
            let (target, port) = (Target::Address(address.ip()), address.port());
            return Ok(Self { text: text.to_owned(), target, port, authority: None, known: Families::default() });
        }
        let (host, port) = text.rsplit_once(':').ok_or_else(error)?;
        let port = port.parse().ok().filter(|port| *port > 0).ok_or_else(error)?;
        let name = parse_name(host).ok_or_else(error)?;
        // A dot at the end is for the resolver. Servers compare hosts as text.
        let authority = format!("{}:{port}", host.trim_end_matches('.')).parse().ok();
        Ok(Self { text: text.to_owned(), target: Target::Name(name), port, authority, known: Families::default() })
    }
}

impl Host {
    /// The same with the addresses of an earlier answer: a family that fails keeps its own.
    pub(super) fn knowing(self, known: &[Address]) -> Self {
        Self { known: Families::of(known.iter().filter_map(|address| address.ip())), ..self }
    }
}

/// A name of letters, digits, `-` and `_`. The `xn--` form is for all others.
pub(super) fn parse_name(text: &str) -> Option<Name> {
    let is_usual = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    // The resolvers of the system take digits and dots for an address. A wrong one is no name.
    let is_numeric = text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
    let name = Name::from_ascii(text).ok()?;
    (text.bytes().all(is_usual) && !is_numeric && !name.is_root() && text.len() <= 254).then_some(name)
}

impl Question for Host {
    fn name(&self) -> &str {
        &self.text
    }

    async fn ask(&mut self, ask: &impl Ask) -> Result<Found, Failure> {
        let name = match &self.target {
            Target::Address(address) => {
                let endpoints = vec![Endpoint::new(SocketAddr::new(*address, self.port))];
                return Ok(Found { endpoints, ttl: None });
            }
            Target::Name(name) => name,
        };
        let local = ask.local().await?;
        let own = local.own(&name.to_ascii());
        let (addresses, ttl) = if own.is_empty() {
            let (v4, v6) = search(ask, &local, name, &self.known).await;
            self.known.take(v4, v6)?
        } else {
            self.known = Families::of(own.iter().copied());
            (own.into_iter().collect(), HOSTS_TTL)
        };
        if addresses.len() > MAX_ADDRESSES {
            return Err(Failure::TooMany);
        }
        let endpoint = |address| {
            let mut endpoint = Endpoint::new(SocketAddr::new(address, self.port));
            endpoint.authority = self.authority.clone();
            endpoint
        };
        Ok(Found { endpoints: addresses.into_iter().map(endpoint).collect(), ttl: Some(ttl) })
    }
}

type Family = Result<Records, Failure>;

/// The answers about the first name of the search list that exists.
async fn search(ask: &impl Ask, local: &Local, name: &Name, known: &Families) -> (Family, Family) {
    let candidates = candidates(name, local);
    let (last, others) = candidates.split_last().expect("the name itself is one");
    for candidate in others {
        let (v4, v6) = both(ask, local, candidate, known).await;
        let has_none = |family: &Family| family.as_ref().is_ok_and(|found| found.data.is_empty());
        if !has_none(&v4) || !has_none(&v6) {
            return (v4, v6);
        }
    }
    both(ask, local, last, known).await
}

/// The answers about exactly this name.
async fn both(ask: &impl Ask, local: &Local, name: &Name, known: &Families) -> (Family, Family) {
    let v4 = pin!(records(ask, local, name, RecordType::A));
    let v6 = pin!(records(ask, local, name, RecordType::AAAA));
    let (v4, v6) = match select(v4, v6).await {
        Either::Left((v4, v6)) => {
            let v6 = other(v6, &v4, known.v6.as_deref()).await;
            (v4, v6)
        }
        Either::Right((v6, v4)) => {
            let v4 = other(v4, &v6, known.v4.as_deref()).await;
            (v4, v6)
        }
    };
    // One family suffices to know that the name does not exist, unless the other had addresses.
    match (&v4, &v6) {
        (Ok(found), Err(_)) if found.is_unknown && is_none(known.v6.as_deref()) => (v4.clone(), v4),
        (Err(_), Ok(found)) if found.is_unknown && is_none(known.v4.as_deref()) => (v6.clone(), v6),
        _ => (v4, v6),
    }
}

/// Whether a family had no addresses.
fn is_none(known: Option<&[IpAddr]>) -> bool {
    known.is_none_or(<[_]>::is_empty)
}

/// The answer of a family after that of the other one.
async fn other(family: impl Future<Output = Family>, first: &Family, known: Option<&[IpAddr]>) -> Family {
    let says_all = first.as_ref().is_ok_and(|found| found.is_unknown || !found.data.is_empty());
    if !(says_all && is_none(known)) {
        return family.await;
    }
    timeout(FAMILY_WAIT, family).await.unwrap_or(Err(Failure::Slow(FAMILY_WAIT)))
}

/// The answers about exactly this name, with the kept addresses of a family that fails.
pub(super) async fn addresses(
    ask: &impl Ask,
    local: &Local,
    name: &Name,
    known: &mut Families,
) -> Result<Addresses, Failure> {
    let (v4, v6) = both(ask, local, name, known).await;
    known.take(v4, v6)
}

impl Families {
    /// These addresses, as if a server had listed them.
    pub(super) fn of(addresses: impl Iterator<Item = IpAddr>) -> Self {
        let (v4, v6) = addresses.partition(IpAddr::is_ipv4);
        Self { v4: Some(v4), v6: Some(v6) }
    }

    /// Takes the answers of both families. Returns the addresses that count.
    fn take(&mut self, v4: Family, v6: Family) -> Result<Addresses, Failure> {
        let (found, ttl) = match (v4, v6) {
            (Err(failure), Err(_)) => return Err(failure),
            (Ok(v4), Ok(v6)) => {
                // An empty family says nothing about the time for which the other is valid.
                let ttl = match (v4.data.is_empty(), v6.data.is_empty()) {
                    (false, true) => v4.ttl,
                    (true, false) => v6.ttl,
                    _ => v4.ttl.min(v6.ttl),
                };
                (Self { v4: Some(addresses_of(&v4)), v6: Some(addresses_of(&v6)) }, ttl)
            }
            (Ok(v4), Err(failure)) => {
                let found = Self { v4: Some(addresses_of(&v4)), v6: self.v6.take() };
                let ttl = found.ttl(&v4, found.v6.as_deref(), failure)?;
                (found, ttl)
            }
            (Err(failure), Ok(v6)) => {
                let found = Self { v4: self.v4.take(), v6: Some(addresses_of(&v6)) };
                let ttl = found.ttl(&v6, found.v4.as_deref(), failure)?;
                (found, ttl)
            }
        };
        *self = found;
        Ok((self.v4.iter().chain(&self.v6).flatten().copied().collect(), ttl))
    }

    /// Time for which `found` is valid beside the `kept` addresses of a family with `failure`.
    fn ttl(&self, found: &Records, kept: Option<&[IpAddr]>, failure: Failure) -> Result<Duration, Failure> {
        match (found.data.is_empty(), is_none(kept)) {
            (true, true) => Err(failure),
            (false, true) => Ok(found.ttl),
            (_, false) => Ok(found.ttl.min(KEPT_TTL).min(MAX_EMPTY_TTL)),
        }
    }
}

/// The addresses in records.
pub(super) fn addresses_of(records: &Records) -> Vec<IpAddr> {
    records.data.iter().filter_map(RData::ip_addr).collect()
}
