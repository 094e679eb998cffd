//! Sources of the list of a cluster's backends.
//!
//! A source yields whole lists. Each list replaces the one before, and
//! [`Cluster::follow`](crate::client::Cluster::follow) derives the changes. Every real source (a
//! file, a DNS answer, an interrupted watch) gives whole lists, and a lost difference would be
//! wrong for ever.
//!
//! Two sources have one list: [`Fixed`] addresses, and names that [`resolve`] looks up, whose answer
//! is a fixed list too. A source that changes is a [`Discover`] that yields more than once, such as a
//! file or a DNS name (crate `plimsoll-discover`).

mod numbered;

use std::future::Future;
use std::net::SocketAddr;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;
use std::{fmt, io};

use http::uri::Authority;
pub use numbered::Numbered;
use plimsoll_core::discover::MergeConfig;
pub use plimsoll_core::discover::overrides::{
    MAX_OVERRIDES, OverrideChange, OverrideCommand, OverrideError, OverrideKind,
};
pub use plimsoll_core::discover::{Census, Freshness, MergeCounts, OnEmpty, Readiness};
use plimsoll_core::subset::Backend;
use plimsoll_core::{Speed, Weight};

use crate::address::{Address, UNIX};

/// One backend in the list of a source.
// A new field also belongs into saved lists (`plimsoll-proxy`) and the lines of `plimsoll check`.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Endpoint {
    /// The address that it listens at.
    pub address: Address,
    /// Its capacity relative to the other backends.
    pub weight: Weight,
    /// The host of requests that name none. `None`: the address, or `localhost` for a Unix socket.
    pub authority: Option<Authority>,
    /// Its failure domain: a zone or rack. Subsets are spread over zones.
    pub zone: Option<Arc<str>>,
    /// Its place for nearest-first routing, such as a datacenter. Has an effect where the cluster
    /// orders localities.
    pub locality: Option<Arc<str>>,
    /// Whether it may get requests.
    pub readiness: Readiness,
    /// Its own number among the backends, for subset algorithms that number them
    /// ([`plimsoll_core::subset::Numbering`]).
    pub ordinal: Option<u32>,
    /// The speed of its machine, relative to the reference core; `None` if the source states none.
    /// It is shown, and has no effect on balancing: see [`plimsoll_core::Speed`].
    pub speed: Option<Speed>,
}

impl Endpoint {
    /// A backend at `address` with default settings.
    #[must_use]
    pub fn new(address: impl Into<Address>) -> Self {
        Self {
            address: address.into(),
            weight: Weight::ONE,
            authority: None,
            zone: None,
            locality: None,
            readiness: Readiness::Ready,
            ordinal: None,
            speed: None,
        }
    }

    /// The same at another address.
    #[must_use]
    pub fn at(mut self, address: impl Into<Address>) -> Self {
        self.address = address.into();
        self
    }

    /// The same with another weight.
    #[must_use]
    pub fn weight(mut self, weight: Weight) -> Self {
        self.weight = weight;
        self
    }

    /// The same with a host for requests that name none.
    #[must_use]
    pub fn authority(mut self, authority: Authority) -> Self {
        self.authority = Some(authority);
        self
    }

    /// The same in a zone.
    #[must_use]
    pub fn zone(mut self, zone: impl Into<Arc<str>>) -> Self {
        self.zone = Some(zone.into());
        self
    }

    /// The same in a locality.
    #[must_use]
    pub fn locality(mut self, locality: impl Into<Arc<str>>) -> Self {
        self.locality = Some(locality.into());
        self
    }

    /// The number of its failure domain: of its zone, or of its locality if it names no zone.
    ///
    /// It is a hash of the name. Numbers in order of appearance would change for all zones when another
    /// backend comes first in the list, and every client would draw another subset.
    #[must_use]
    pub fn failure_domain(&self) -> u32 {
        let hash = |name: &str| Backend::key_of(name) as u32;
        match (&self.zone, &self.locality) {
            (None, None) => 0,
            (Some(name), None) | (None, Some(name)) => hash(name),
            // Zones of two localities may have the same name.
            (Some(zone), Some(locality)) => hash(&format!("{locality}/{zone}")),
        }
    }

    /// The same with an ordinal.
    #[must_use]
    pub fn ordinal(mut self, ordinal: u32) -> Self {
        self.ordinal = Some(ordinal);
        self
    }

    /// The same on a machine of this speed.
    #[must_use]
    pub fn speed(mut self, speed: Speed) -> Self {
        self.speed = Some(speed);
        self
    }

    /// The same in another state.
    #[must_use]
    pub fn readiness(mut self, readiness: Readiness) -> Self {
        self.readiness = readiness;
        self
    }
}

impl<A: Into<Address>> From<A> for Endpoint {
    fn from(address: A) -> Self {
        Self::new(address)
    }
}

/// The answer of a source: a whole list, or the reason why there is none this time.
pub type Answer = Result<Vec<Endpoint>, SourceError>;

/// The reason why a source has no list. An error is not an empty list: the backends stay as they
/// are.
pub type SourceError = Box<dyn std::error::Error + Send + Sync>;

/// An error that has a line in the log already: that of a store that many sources share. Their
/// clusters count it and log nothing.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
pub struct LoggedError(#[from] pub SourceError);

/// A source of backends, for [`Cluster::follow`](crate::client::Cluster::follow).
///
/// ```
/// use plimsoll::client::{Cluster, ClusterConfig};
/// use plimsoll::discover::{Answer, Discover, Endpoint};
/// use tokio::sync::mpsc;
///
/// struct Registry(mpsc::Receiver<Vec<Endpoint>>);
///
/// impl Discover for Registry {
///     async fn next(&mut self) -> Option<Answer> {
///         self.0.recv().await.map(Ok)
///     }
/// }
///
/// let (lists, receiver) = mpsc::channel(1);
/// let cluster = Cluster::new("search", ClusterConfig::default(), [] as [Endpoint; 0]);
/// cluster.follow(Registry(receiver));
/// # drop(lists);
/// ```
#[doc(alias("name resolution", "service discovery"))]
pub trait Discover: Send {
    /// The next answer, when it differs from the last. `None` when there will be no other.
    ///
    /// A source decides itself on the time between its attempts. After errors it is asked again 100 ms
    /// after it was last asked, growing to a second, give or take a fifth, until it gives a list.
    fn next(&mut self) -> impl Future<Output = Option<Answer>> + Send;

    /// Lists in a row that a backend must be missing from before it is removed. Two for a source
    /// whose answers may be incomplete; such a source yields each answer.
    fn confirmations(&self) -> NonZeroU32 {
        NonZeroU32::MIN
    }

    /// The kind of source, one word for logs and metrics: `static`, `file`, `dns`.
    fn kind(&self) -> &'static str {
        "custom"
    }

    /// The source in a few words, for logs and pages, such as the path of a file. Empty where the kind
    /// says all.
    fn description(&self) -> String {
        String::new()
    }
}

/// How a cluster follows a source, see
/// [`Cluster::follow_with`](crate::client::Cluster::follow_with).
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct FollowConfig<F = Fixed> {
    /// How long missing backends stay after the sudden loss of more than half of them. Zero: not at
    /// all.
    pub hold: Duration,
    /// The meaning of an empty list.
    pub on_empty: OnEmpty,
    /// Backends that are members whatever the source lists: a source of their own. Its first list comes
    /// into force at once.
    pub fixed: F,
    /// The last list of an earlier process
    /// ([`Cluster::listed`](crate::client::Cluster::listed)). It comes into force if the source fails,
    /// or does not answer for half a second.
    pub saved: Vec<Endpoint>,
}

impl<F> FollowConfig<F> {
    /// The same beside other members, which may come from a source too.
    #[must_use]
    pub fn fixed<G>(self, fixed: G) -> FollowConfig<G> {
        let Self { hold, on_empty, saved, .. } = self;
        FollowConfig { hold, on_empty, fixed, saved }
    }
}

impl Default for FollowConfig {
    fn default() -> Self {
        let MergeConfig { hold, on_empty, .. } = MergeConfig::default();
        Self { hold, on_empty, fixed: Fixed::new([] as [Endpoint; 0]), saved: Vec::new() }
    }
}

/// A list that never changes.
#[derive(Clone, Debug)]
pub struct Fixed {
    list: Option<Vec<Endpoint>>,
    problem: Option<String>,
}

impl Fixed {
    /// A source that yields these backends once.
    pub fn new(endpoints: impl IntoIterator<Item = impl Into<Endpoint>>) -> Self {
        Self { list: Some(endpoints.into_iter().map(Into::into).collect()), problem: None }
    }

    /// The same list, which is not all: `problem` is the reason, such as a name without an address. It
    /// follows the list as an error.
    #[must_use]
    pub fn incomplete(mut self, problem: impl Into<String>) -> Self {
        self.problem = Some(problem.into());
        self
    }
}

impl Discover for Fixed {
    async fn next(&mut self) -> Option<Answer> {
        let problem = || Some(Err(self.problem.take()?.into()));
        self.list.take().map(Ok).or_else(problem)
    }

    fn kind(&self) -> &'static str {
        "static"
    }
}

/// A name that cannot be resolved.
#[derive(Debug)]
pub struct ResolveError {
    /// The name as given.
    pub name: String,
    /// The resolver's error. `None` for an empty answer.
    pub cause: Option<io::Error>,
}

impl fmt::Display for ResolveError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.cause {
            Some(cause) => write!(f, "cannot resolve {}: {cause}", self.name),
            None => write!(f, "{} resolves to no address", self.name),
        }
    }
}

impl std::error::Error for ResolveError {}

/// Resolves `host:port` names once, with the system's resolver; `unix:/path` stays as it is.
///
/// A name with several addresses is several backends. They are sorted by address within a name,
/// because resolvers rotate them and the order must not look like a change.
///
/// # Errors
///
/// If any name cannot be resolved: a cluster that silently lacks half of its backends is worse than
/// a start that fails.
pub async fn resolve(names: impl IntoIterator<Item = impl AsRef<str>>) -> Result<Vec<Endpoint>, ResolveError> {
    let mut endpoints: Vec<Endpoint> = Vec::new();
    for name in names {
        let name = name.as_ref();
        let error = |cause| ResolveError { name: name.to_owned(), cause };
        if name.starts_with(UNIX) {
            let address = name.parse::<Address>();
            let address = address.map_err(|cause| error(Some(io::Error::new(io::ErrorKind::InvalidInput, cause))))?;
            endpoints.push(Endpoint::new(address));
            continue;
        }
        let mut addresses: Vec<SocketAddr> =
            tokio::net::lookup_host(name).await.map_err(|cause| error(Some(cause)))?.collect();
        if addresses.is_empty() {
            return Err(error(None));
        }
        addresses.sort_unstable();
        addresses.dedup();
        let is_address = name.parse::<SocketAddr>().is_ok();
        let authority = if is_address { None } else { name.parse().ok() };
        let endpoint = |address| Endpoint { authority: authority.clone(), ..Endpoint::new(address) };
        endpoints.extend(addresses.into_iter().map(endpoint));
    }
    Ok(endpoints)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn addresses_resolve_to_themselves() {
        let endpoints = resolve(["127.0.0.1:80", "[::1]:81"]).await.unwrap();
        assert_eq!(endpoints[0], Endpoint::new("127.0.0.1:80".parse::<Address>().unwrap()));
        assert_eq!(endpoints[1].address, "[::1]:81".parse().unwrap());
        let unix = resolve(["unix:/run/a.sock"]).await.unwrap();
        assert_eq!(unix[0].address.to_string(), "unix:/run/a.sock");
        let error = resolve(["unix:a.sock"]).await.unwrap_err();
        assert!(error.to_string().contains("unix:a.sock: the path of a Unix socket must be absolute"), "{error}");
    }

    #[tokio::test]
    async fn a_name_without_a_port_is_an_error_that_names_it() {
        let error = resolve(["localhost"]).await.unwrap_err();
        assert!(error.to_string().contains("localhost"), "{error}");
    }

    #[tokio::test]
    async fn a_fixed_list_is_given_once() {
        let mut fixed = Fixed::new(["127.0.0.1:80".parse::<Address>().unwrap()]);
        assert_eq!(fixed.next().await.map(|list| list.unwrap().len()), Some(1));
        assert!(fixed.next().await.is_none());
        let mut incomplete = Fixed::new([] as [Endpoint; 0]).incomplete("no address of web");
        assert_eq!(incomplete.next().await.map(|list| list.unwrap().len()), Some(0));
        assert_eq!(incomplete.next().await.unwrap().unwrap_err().to_string(), "no address of web");
        assert!(incomplete.next().await.is_none());
    }
}
