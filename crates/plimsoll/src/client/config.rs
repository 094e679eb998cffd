//! What can be set of a cluster, each default with its reason.
//!
//! Every value may be changed while requests run ([`Cluster::set_config`](super::Cluster::set_config)):
//! requests that have begun finish under the values they began with.

use std::num::{NonZeroU32, NonZeroUsize};
use std::time::Duration;

use http::uri::{Authority, PathAndQuery, Scheme};
use plimsoll_core::BalancerConfig;
use plimsoll_core::retry::hedge::HedgeConfig;
use plimsoll_core::retry::{BudgetConfig, MaxAttempts, RetryConfig};
use plimsoll_core::subset::{self, Client, Lack, SubsetConfig};
use plimsoll_core::throttle::ThrottlePolicy;
use plimsoll_wire::proxy_protocol::Version as ProxyProtocol;

use super::localities::Localities;
use crate::tls::TlsConfig;

/// All that can be set of a cluster and of the clients that send to it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ClusterConfig {
    /// The machine: policy, flow control, health rules. [`Check::None`] switches its active checks off,
    /// every other check switches them on.
    pub balancer: BalancerConfig,
    /// How backends are checked.
    pub check: Check,
    /// Time for one check, connection included.
    pub check_timeout: CheckTimeout,
    /// How requests are sent and for how long they may take.
    pub requests: RequestConfig,
    /// Connections kept to each backend, for each client.
    pub pool: PoolConfig,
    /// Which of the backends this process connects to; `None`: all.
    pub subset: Option<SubsetChoice>,
    /// Where backends are, nearest first, so that requests go to the nearest that has room; `None`: all are equally near.
    pub localities: Option<Localities>,
    /// Whether requests are held back that would most likely be turned away.
    pub throttle: ThrottlePolicy,
    /// How requests that a backend did not serve are sent again.
    pub retry: RetryPolicy,
    /// TLS; `None`: plain connections. When it changes to other trust or other names, connections are opened anew, and those that are
    /// open close when their requests are over.
    pub tls: Option<TlsConfig>,
    /// The header of the PROXY protocol that connections begin with; `None`: none. A connection then serves the one client
    /// that its first request names by a [`ClientAddress`](super::ClientAddress) among its extensions.
    pub proxy_protocol: Option<ProxyProtocol>,
}

/// How this process takes a subset of a cluster's backends. All processes that send to the cluster should have the same
/// configuration, each with a client of its own, and see the backends in the same order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SubsetChoice {
    config: SubsetConfig,
    client: Client,
}

impl SubsetChoice {
    /// The subset of `client`.
    ///
    /// # Errors
    /// When the algorithm needs what `client` does not say, or a coordinator, of which this library knows none.
    pub fn new(config: SubsetConfig, client: Client) -> Result<Self, Lack> {
        subset::order(&config, client, &[])?;
        Ok(Self { config, client })
    }

    /// Algorithm, size and seed.
    #[must_use]
    pub fn config(&self) -> &SubsetConfig {
        &self.config
    }

    pub(super) fn order(&self, backends: &[subset::Backend]) -> Vec<u32> {
        subset::order(&self.config, self.client, backends).expect("what it needs was there when the choice was made")
    }
}

/// How a backend is asked whether it serves.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Check {
    /// It is not asked: one that accepts connections counts as healthy.
    #[default]
    None,
    /// A connection is opened and closed.
    Tcp,
    /// `GET path`, over HTTP/2 with [`Protocol::Http2`] and else over HTTP/1.1: 2xx passes, 503 says not serving, anything
    /// else fails. A load report in the answer is read, its lame-duck flag obeyed.
    Http {
        /// What to ask for.
        path: PathAndQuery,
        /// The `host` to send; without, the backend's own.
        host: Option<Authority>,
    },
    /// `grpc.health.v1.Health/Check` over HTTP/2.
    Grpc {
        /// The service to ask after; empty for the server as a whole.
        service: String,
    },
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

/// Which HTTP a backend is spoken to with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Protocol {
    /// HTTP/2 for gRPC requests, HTTP/1.1 for all others: what a mixed backend without TLS can be
    /// expected to understand.
    #[default]
    Auto,
    /// HTTP/1.1 for all.
    Http1,
    /// HTTP/2 with prior knowledge for all.
    Http2,
}

/// How requests are sent and for how long they may take.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RequestConfig {
    /// Which HTTP.
    pub protocol: Protocol,
    /// From the call to the head of the response, queue and further attempts included; of a request whose body is on its way, from when some
    /// of that last moved.
    pub request_timeout: Duration,
    /// Longest time without any byte of a response's body while the reader waits for one, and of the request's if that is still on
    /// its way; [`Duration::MAX`] for any time. It is the backend's failure only where the response has a length, and the whole request
    /// was sent.
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
            body_idle_timeout: Self::DEFAULT_BODY_IDLE_TIMEOUT,
            connect_timeout: Self::DEFAULT_CONNECT_TIMEOUT,
            max_pending: Self::DEFAULT_MAX_PENDING,
            queue_timeout: Self::DEFAULT_QUEUE_TIMEOUT,
        }
    }
}

/// How requests are sent again that a backend did not serve.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RetryPolicy {
    /// How often and when. With one attempt all of it is off, and answers are passed on as they come.
    pub attempts: RetryConfig,
    /// How many retries and hedges all requests to the cluster together may have.
    pub budget: BudgetConfig,
    /// Bytes that are kept of the body of each request, so that it can be sent again; of a longer one nothing is, and its request is
    /// sent once. `None`: requests with a body are sent once.
    pub max_body: Option<NonZeroUsize>,
    /// When a request that is not answered yet is sent to a second backend as well, if its method is safe and it has no body. `None`, the
    /// default: never, since what both do is work, and only who runs them knows whether they have room for it.
    pub hedge: Option<HedgeConfig>,
}

impl RetryPolicy {
    /// Nearly every form and API call. A thousand and a half of them in flight are a hundred megabytes.
    pub const DEFAULT_MAX_BODY: NonZeroUsize = NonZeroUsize::new(64 * 1024).expect("not zero");
    /// Nothing is sent again.
    pub const OFF: Self = Self {
        attempts: RetryConfig {
            max_attempts: MaxAttempts::ONE,
            backoff_base: RetryConfig::DEFAULT_BACKOFF_BASE,
            backoff_max: RetryConfig::DEFAULT_BACKOFF_MAX,
        },
        budget: BudgetConfig { share: BudgetConfig::DEFAULT_SHARE, floor: BudgetConfig::DEFAULT_FLOOR },
        max_body: None,
        hedge: None,
    };

    /// Whether anything is ever sent again.
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

/// Connections kept to each backend. All counts are per client, which in the proxy is one per thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PoolConfig {
    /// Opened at start and when a backend is added, before any request needs them. A server of one connection per worker
    /// cannot serve another client meanwhile; with HTTP/2 there is one at most, which requests share.
    pub min_connections: usize,
    /// Idle HTTP/1 connections beyond which a connection that becomes idle is closed. With zero each connection carries
    /// one request.
    pub max_idle_connections: usize,
    /// A connection idle for this long is closed.
    pub inactive_after: Duration,
    /// Streams put on one HTTP/2 connection before a further one is opened; the peer's own limit counts
    /// where it is lower, and so does 4,096, for which a connection has windows.
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
    /// What most servers announce.
    pub const DEFAULT_MAX_STREAMS: NonZeroU32 = NonZeroU32::new(100).expect("not zero");
}

impl Default for PoolConfig {
    fn default() -> Self {
        Self {
            min_connections: Self::DEFAULT_MIN_CONNECTIONS,
            max_idle_connections: Self::DEFAULT_MAX_IDLE_CONNECTIONS,
            inactive_after: Self::DEFAULT_INACTIVE_AFTER,
            max_streams: Self::DEFAULT_MAX_STREAMS,
        }
    }
}

impl ClusterConfig {
    /// The scheme of the URIs that backends are asked for.
    pub(crate) fn scheme(&self) -> Scheme {
        if self.tls.is_some() { Scheme::HTTPS } else { Scheme::HTTP }
    }

    /// The machine's configuration, with its active checks as [`ClusterConfig::check`] says.
    pub(crate) fn machine(&self) -> BalancerConfig {
        let mut balancer = self.balancer;
        balancer.checks.active = self.check != Check::None;
        balancer
    }
}
