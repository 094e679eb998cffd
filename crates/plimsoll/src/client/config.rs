//! The settings of a cluster; each default states its reason.
//!
//! Settings with a place in [`ClusterConfig`] are changed there. [`Ping`] and [`ProbeConfig`] have
//! none while they are off, so they have a constructor and setters.
//!
//! Every value may be changed while requests run ([`Cluster::set_config`](super::Cluster::set_config)):
//! requests that have begun finish under the values they began with.

use std::num::{NonZeroU32, NonZeroUsize};
use std::time::Duration;

use http::uri::{Authority, PathAndQuery, Scheme};
use plimsoll_core::BalancerConfig;
#[cfg(feature = "probes")]
use plimsoll_core::probe::{Instance, KeySource, ProberConfig};
use plimsoll_core::retry::hedge::HedgeConfig;
use plimsoll_core::retry::{BudgetConfig, MaxAttempts, RetryConfig};
use plimsoll_core::subset::{self, Client, MissingInput, Numbering, Subset, SubsetConfig};
use plimsoll_core::throttle::ThrottlePolicy;
use plimsoll_wire::proxy_protocol::Version as ProxyProtocol;

use super::load_reports::LoadReports;
use super::localities::Localities;
#[cfg(feature = "probes")]
use crate::probe::ProbeKeys;
use crate::tls::{Alpn, TlsConfig};

/// The settings of a cluster and its clients.
///
/// Begin with the defaults, and change what differs:
///
/// ```
/// use std::time::Duration;
///
/// use plimsoll::client::{ClusterConfig, Ping, PolicyKind};
///
/// let mut config = ClusterConfig::default();
/// config.balancer.policy = PolicyKind::Prequal;
/// config.requests.request_timeout = Duration::from_secs(2);
/// config.pool.ping = Some(Ping::every(Duration::from_secs(30)));
/// ```
///
/// Structs of settings have no literals outside of their crate, so that they can grow:
///
/// ```compile_fail,E0639
/// use plimsoll::client::ClusterConfig;
///
/// let config = ClusterConfig { max_active_requests_per_client: None, ..ClusterConfig::default() };
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct ClusterConfig {
    /// The machine: policy, flow control, health rules. [`Check::None`] switches its active checks off,
    /// every other check switches them on.
    #[doc(alias("EWMA", "P2C", "least request", "outlier detection", "power of two choices", "round robin"))]
    pub balancer: BalancerConfig,
    /// The active health check.
    pub check: Check,
    /// Time for one check, connection included.
    pub check_timeout: CheckTimeout,
    /// The protocol and time limits of requests.
    pub requests: RequestConfig,
    /// Requests in flight of one client at all backends together; `None`, the default: no limit.
    ///
    /// Further ones wait for the client's own to end, at most [`RequestConfig::queue_timeout`], and
    /// those of other clients pass by. [`RequestOptions::on_behalf_of`](super::RequestOptions::on_behalf_of) names the
    /// client; requests that name none are one client together.
    #[doc(alias = "bulkhead")]
    pub max_active_requests_per_client: Option<NonZeroU32>,
    /// Connections kept to each backend, for each client.
    pub pool: PoolConfig,
    /// The subset of backends that this process connects to; `None`: all.
    #[doc(alias = "subsetting")]
    pub subset: Option<SubsetChoice>,
    /// The order of localities, nearest first. Requests go to the nearest with headroom; `None`:
    /// all are equally near.
    #[doc(alias = "zone aware routing")]
    pub localities: Option<Localities>,
    /// Client-side throttling of requests that would most likely be shed.
    #[doc(alias("adaptive throttling", "circuit breaker"))]
    pub throttle: ThrottlePolicy,
    /// The retries of requests that a backend did not serve.
    pub retry: RetryPolicy,
    /// TLS to backends; `None`: plain connections.
    ///
    /// A change of trust or names opens new connections. The old ones close after their requests.
    #[cfg(feature = "tls")]
    pub tls: Option<TlsConfig>,
    /// The PROXY protocol header at the start of connections; `None`: none.
    ///
    /// A connection then serves only the client of its first request, named by a
    /// [`ClientAddress`](super::ClientAddress) in the extensions.
    pub proxy_protocol: Option<ProxyProtocol>,
    /// Probes of the backends by UDP; `None`: none.
    #[cfg(feature = "probes")]
    pub probes: Option<ProbeConfig>,
    /// The load reports of the backends. By default they come unasked, with the usual utilization.
    pub load_reports: LoadReports,
}

/// Probes of backends by UDP.
///
/// A backend without a request for [`PoolConfig::inactive_after`] then has no connection and no
/// check: queries and the backend's notices keep this client informed.
#[derive(Clone, Debug, PartialEq)]
#[cfg(feature = "probes")]
#[non_exhaustive]
pub struct ProbeConfig {
    /// Mean time between two queries of a backend.
    pub interval: Duration,
    /// The keys of the fleet, which sign datagrams.
    ///
    /// `None`: backends hand out keys in answers to HTTP and gRPC checks
    /// ([`hand_out_keys`](crate::probe::hand_out_keys)). One that hands out none is probed at loopback
    /// alone.
    pub keys: Option<ProbeKeys>,
}

#[cfg(feature = "probes")]
impl ProbeConfig {
    /// Mean time between two queries: as rare as a lame duck that ends unnoticed permits.
    pub const DEFAULT_INTERVAL: Duration = ProberConfig::DEFAULT_INTERVAL;
    /// Queries that fit into the time of a notice lease: two in a row may be lost.
    const QUERIES_PER_LEASE: u32 = 3;

    /// The same with another mean time between two queries of a backend.
    #[must_use]
    pub fn interval(mut self, interval: Duration) -> Self {
        self.interval = interval;
        self
    }

    /// The same with the keys of a fleet.
    #[must_use]
    pub fn keys(mut self, keys: ProbeKeys) -> Self {
        self.keys = Some(keys);
        self
    }

    /// The keys in force.
    pub(crate) fn keys_in_force(&self) -> ProbeKeys {
        self.keys.clone().unwrap_or_else(ProbeKeys::keyless)
    }

    /// Whether checks request keys.
    pub(crate) fn requests_keys(&self, check: &Check) -> bool {
        self.keys.is_none() && check.can_bring_keys()
    }

    /// The machine's configuration for this client.
    pub(crate) fn prober(&self, instance: Instance, pool: &PoolConfig, check: &Check) -> ProberConfig {
        let lease = self.interval.saturating_mul(Self::QUERIES_PER_LEASE).as_secs();
        ProberConfig {
            instance,
            interval: self.interval,
            lease_s: u16::try_from(lease).unwrap_or(u16::MAX).max(1),
            inactive_after: Some(pool.inactive_after),
            keys: if self.requests_keys(check) { KeySource::Checks } else { KeySource::Fixed },
        }
    }
}

#[cfg(feature = "probes")]
impl Default for ProbeConfig {
    fn default() -> Self {
        Self { interval: Self::DEFAULT_INTERVAL, keys: None }
    }
}

/// The subset of a cluster's backends for this process.
///
/// All processes that send to the cluster should have the same configuration, each with a client
/// number of its own, and see the backends in the same order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SubsetChoice {
    config: SubsetConfig,
    client: Client,
}

impl SubsetChoice {
    /// The subset of `client`.
    ///
    /// # Errors
    /// If the algorithm needs a fact that `client` lacks, or a coordinator: see [`Self::coordinated`].
    pub fn new(config: SubsetConfig, client: Client) -> Result<Self, MissingInput> {
        subset::order(&config, client, &[])?;
        Ok(Self { config, client })
    }

    /// Algorithm, size and seed.
    #[must_use]
    pub fn config(&self) -> &SubsetConfig {
        &self.config
    }

    /// The same of a client with a coordinator, which states what the algorithm needs later
    /// ([`Cluster::coordinate`](crate::client::Cluster::coordinate)). Until then the order is that of
    /// `rendezvous`, by the id of the client.
    #[must_use]
    pub fn coordinated(config: SubsetConfig, client: Client) -> Self {
        Self { config, client }
    }

    /// The subset of these backends, by number, with the coordinator's word on it.
    pub(super) fn subset(&self, backends: &Numbering, index: Option<u32>, assigned: &[u32]) -> Subset {
        let client = Client { index: self.client.index.or(index), ..self.client };
        let (order, size) = subset::order_coordinated(&self.config, client, backends, assigned);
        Subset::new(order, size)
    }
}

/// The active health check of a backend.
#[derive(Clone, Debug, Default, PartialEq)]
#[doc(alias = "health check")]
#[non_exhaustive]
pub enum Check {
    /// No check: a backend that accepts connections counts as healthy.
    #[default]
    None,
    /// A connection is opened and closed.
    Tcp,
    /// `GET path`, over HTTP/2 with [`Protocol::Http2`] and else over HTTP/1.1: 2xx passes, 503 says not serving, anything
    /// else fails. A load report in the answer is read, its lame-duck flag obeyed.
    Http {
        /// The path of the request.
        path: PathAndQuery,
        /// The `host` to send; without, the backend's own.
        host: Option<Authority>,
    },
    /// `grpc.health.v1.Health/Check` over HTTP/2.
    #[cfg(all(feature = "grpc", feature = "http2"))]
    Grpc {
        /// The service to ask after; empty for the server as a whole.
        service: String,
    },
}

impl Check {
    /// Whether an answer to this check can bring a key for probes.
    #[must_use]
    pub fn can_bring_keys(&self) -> bool {
        match self {
            Self::None | Self::Tcp => false,
            Self::Http { .. } => true,
            #[cfg(all(feature = "grpc", feature = "http2"))]
            Self::Grpc { .. } => true,
        }
    }
}

/// Time for one check, connection included.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct CheckTimeout(pub Duration);

impl CheckTimeout {
    /// A fifth of the default interval: a backend too busy to answer a check within two seconds is too
    /// busy for requests.
    pub const DEFAULT: Duration = Duration::from_secs(2);
}

impl Default for CheckTimeout {
    fn default() -> Self {
        Self(Self::DEFAULT)
    }
}

/// The HTTP version for a backend.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Protocol {
    /// HTTP/2 for gRPC requests, HTTP/1.1 for all others, as a mixed backend without TLS is likely
    /// to understand. Without the feature `http2`, HTTP/1.1 for all.
    #[default]
    Auto,
    /// HTTP/1.1 for all.
    Http1,
    /// HTTP/2 with prior knowledge for all.
    #[cfg(feature = "http2")]
    Http2,
}

impl Protocol {
    /// The version for a request.
    #[cfg_attr(not(feature = "http2"), expect(unused_variables, reason = "there is one version"))]
    pub(crate) fn version(self, is_grpc: bool) -> Version {
        match self {
            #[cfg(feature = "http2")]
            Self::Http2 => Version::Http2,
            #[cfg(feature = "http2")]
            Self::Auto if is_grpc => Version::Http2,
            Self::Auto | Self::Http1 => Version::Http1,
        }
    }
}

impl Version {
    /// The protocol to negotiate.
    pub(crate) fn alpn(self) -> Alpn {
        match self {
            Self::Http1 => Alpn::Http1,
            #[cfg(feature = "http2")]
            Self::Http2 => Alpn::Http2,
        }
    }
}

/// Which HTTP a connection speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Version {
    Http1,
    #[cfg(feature = "http2")]
    Http2,
}

/// The protocol and time limits of requests.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct RequestConfig {
    /// The HTTP version.
    pub protocol: Protocol,
    /// Time from the call to the response head, with the queue and all attempts.
    ///
    /// While the request body is moving, it counts from its last progress.
    pub request_timeout: Duration,
    /// Time of one attempt from its request to its response head: after this another backend gets
    /// the request, if it may be retried. [`Duration::MAX`] for no limit.
    ///
    /// An attempt that cannot be replaced goes on: an early end would gain nothing.
    pub attempt_timeout: Duration,
    /// Longest pause of a response body, and of a request body that is still on its way;
    /// [`Duration::MAX`] for no limit.
    ///
    /// It is a failure of the backend only if the response has a length and the whole request was
    /// sent.
    pub body_idle_timeout: Duration,
    /// Time to open one connection.
    pub connect_timeout: Duration,
    /// Requests that may wait while all backends are at their limit of active requests.
    pub max_pending: usize,
    /// Longest such wait; the request's own time may end it earlier.
    pub queue_timeout: Duration,
}

impl RequestConfig {
    /// Longer than any request that a person waits for.
    pub const DEFAULT_REQUEST_TIMEOUT: Duration = Duration::from_secs(60);
    /// As nginx's `proxy_read_timeout`: an answer that stalls this long does not come.
    pub const DEFAULT_BODY_IDLE_TIMEOUT: Duration = Duration::from_secs(60);
    /// A hundred times a round trip within a datacenter, and room for one lost SYN on top (1 s) is
    /// left to the next attempt, elsewhere.
    pub const DEFAULT_CONNECT_TIMEOUT: Duration = Duration::from_secs(1);
    /// Ten backends' worth of active requests. More would only wait longer than their clients do.
    pub const DEFAULT_MAX_PENDING: usize = 1024;
    /// A burst is over by then, or it is no burst.
    pub const DEFAULT_QUEUE_TIMEOUT: Duration = Duration::from_secs(5);
}

impl Default for RequestConfig {
    fn default() -> Self {
        Self {
            protocol: Protocol::default(),
            request_timeout: Self::DEFAULT_REQUEST_TIMEOUT,
            attempt_timeout: Duration::MAX,
            body_idle_timeout: Self::DEFAULT_BODY_IDLE_TIMEOUT,
            connect_timeout: Self::DEFAULT_CONNECT_TIMEOUT,
            max_pending: Self::DEFAULT_MAX_PENDING,
            queue_timeout: Self::DEFAULT_QUEUE_TIMEOUT,
        }
    }
}

/// The retries of requests that a backend did not serve.
#[derive(Clone, Copy, Debug, PartialEq)]
#[doc(alias = "retry budget")]
#[non_exhaustive]
pub struct RetryPolicy {
    /// The number and timing of attempts. With one attempt, retries are off and answers are passed
    /// on unchanged.
    pub attempts: RetryConfig,
    /// The budget for retries and hedges of all requests to the cluster.
    pub budget: BudgetConfig,
    /// Bytes of a request body that are kept for a retry. A request with a longer body is sent
    /// once. `None`: so is every request with a body.
    pub max_body: Option<NonZeroUsize>,
    /// The time until an unanswered request goes to a second backend too, if its method is safe and
    /// it has no body.
    ///
    /// `None`, the default: never, because both backends do the work.
    #[doc(alias("backup request", "hedging", "speculative retry"))]
    pub hedge: Option<HedgeConfig>,
}

impl RetryPolicy {
    /// Nearly every form and API call. A thousand and a half of them in flight are a hundred megabytes.
    pub const DEFAULT_MAX_BODY: NonZeroUsize = NonZeroUsize::new(64 * 1024).expect("not zero");
    /// No retries.
    pub const OFF: Self = Self {
        attempts: RetryConfig::OFF,
        budget: BudgetConfig { share: BudgetConfig::DEFAULT_SHARE, floor: BudgetConfig::DEFAULT_FLOOR },
        max_body: None,
        hedge: None,
    };

    /// Whether any request may be retried.
    #[must_use]
    pub fn is_on(&self) -> bool {
        self.attempts.max_attempts > MaxAttempts::ONE
    }

    /// Whether any request is ever sent while an attempt of it is out: that is a further attempt, too.
    pub(super) fn hedges(&self) -> bool {
        self.hedge.is_some() && self.is_on()
    }

    /// Bytes that are kept of a body; zero for none.
    pub(super) fn kept(&self) -> usize {
        self.max_body.filter(|_| self.is_on()).map_or(0, NonZeroUsize::get)
    }
}

impl Default for RetryPolicy {
    fn default() -> Self {
        let (attempts, budget) = (RetryConfig::default(), BudgetConfig::default());
        Self { attempts, budget, max_body: Some(Self::DEFAULT_MAX_BODY), hedge: None }
    }
}

/// PINGs that ask whether the peer of an HTTP/2 connection still reads.
///
/// Off by default: the kernel finds a lost connection, and PINGs may cost it. gRPC servers close
/// connections with more than one PING in five minutes without data, unless they permit more
/// (`GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS`, `KeepaliveEnforcementPolicy`). A PING finds
/// in addition a process that hangs, and a backend that is lost behind another proxy; and it keeps
/// quiet streams alive in a middlebox.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[doc(alias = "keepalive")]
#[non_exhaustive]
pub struct Ping {
    /// A connection with requests is asked after this time without a frame from its peer.
    pub interval: Duration,
    /// Without an answer in this time the connection ends. Its idempotent requests are retried.
    pub timeout: Duration,
}

impl Ping {
    /// The default of gRPC clients: longer than a pause of a process that goes on.
    pub const DEFAULT_TIMEOUT: Duration = Duration::from_secs(20);

    /// PINGs after this time without a frame from the peer, with the default time to answer.
    #[must_use]
    pub fn every(interval: Duration) -> Self {
        Self { interval, timeout: Self::DEFAULT_TIMEOUT }
    }

    /// The same with another time to answer.
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }
}

/// Connections kept to each backend. All counts are per client, which in the proxy is one per thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PoolConfig {
    /// Opened at start and when a backend is added, before any request needs them. A server of one connection per worker
    /// cannot serve another client meanwhile; with HTTP/2 there is one at most, which requests share.
    pub min_connections: usize,
    /// Idle HTTP/1 connections beyond which a connection that becomes idle is closed. With zero each connection carries
    /// one request.
    pub max_idle_connections: usize,
    /// A connection idle for this long is closed.
    pub inactive_after: Duration,
    /// PINGs on HTTP/2 connections with requests in flight; `None`: none.
    pub ping: Option<Ping>,
    /// Streams put on one HTTP/2 connection before a further one is opened. A lower limit of the
    /// peer has precedence, as does 4,096, the number of streams that a connection has windows for.
    pub max_streams: NonZeroU32,
}

impl PoolConfig {
    /// None: a silent connection occupies a worker of servers that serve one connection at a time, for as long as their
    /// own timeout. The first request then waits for a connection to open, a round trip.
    pub const DEFAULT_MIN_CONNECTIONS: usize = 0;
    /// As many as may be in use at once by the default limit of active requests: a steady load at the
    /// limit never has to open one.
    pub const DEFAULT_MAX_IDLE_CONNECTIONS: usize = 100;
    /// Below the 60 s to 75 s after which common servers and middleboxes close theirs, because a
    /// connection that both ends close at once may lose a request.
    pub const DEFAULT_INACTIVE_AFTER: Duration = Duration::from_secs(50);
    /// The number that most servers announce.
    pub const DEFAULT_MAX_STREAMS: NonZeroU32 = NonZeroU32::new(100).expect("not zero");
}

impl Default for PoolConfig {
    fn default() -> Self {
        Self {
            min_connections: Self::DEFAULT_MIN_CONNECTIONS,
            max_idle_connections: Self::DEFAULT_MAX_IDLE_CONNECTIONS,
            inactive_after: Self::DEFAULT_INACTIVE_AFTER,
            ping: None,
            max_streams: Self::DEFAULT_MAX_STREAMS,
        }
    }
}

impl ClusterConfig {
    /// The scheme of the URIs that backends are asked for.
    pub(crate) fn scheme(&self) -> Scheme {
        if self.tls().is_some() { Scheme::HTTPS } else { Scheme::HTTP }
    }

    /// The TLS to backends; none without the feature.
    pub(crate) fn tls(&self) -> Option<&TlsConfig> {
        #[cfg(feature = "tls")]
        return self.tls.as_ref();
        #[cfg(not(feature = "tls"))]
        None
    }

    /// The machine's configuration, with its active checks as [`ClusterConfig::check`] says.
    pub(crate) fn machine(&self) -> BalancerConfig {
        let mut balancer = self.balancer;
        balancer.checks.active = self.check != Check::None;
        balancer
    }
}
