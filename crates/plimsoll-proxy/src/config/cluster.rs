//! The backends that answer for one another, and how they are spoken to.
//!
//! Read straight into the settings of the library's client. The meaning of each setting, its
//! default and the reason for it stand beside the code that acts by it (`plimsoll::client`,
//! `plimsoll_core`); here is only its name.

use plimsoll::client::{CheckTimeout, ClusterConfig, PoolConfig, Protocol, RequestConfig};
use plimsoll_config::{Flaw, Table, Visitor, choice, kind, quoted, values};
use plimsoll_core::BalancerConfig;
use plimsoll_core::pick::PrequalConfig;
use plimsoll_core::spill::SpillConfig;
use plimsoll_wire::proxy_protocol::Version;

use super::address::Backend;
use super::health::{Health, HealthTable};
use super::inbound::Inbound;
use super::retry::Retry;
use super::spill::SpillTable;
use super::subset::{Identity, Subset};
use super::throttle::Throttle;
use super::tls::ClusterTls;

/// The protocols, by their names in the file.
pub(super) const PROTOCOLS: [(&str, Protocol); 3] =
    [("auto", Protocol::Auto), ("http1", Protocol::Http1), ("http2", Protocol::Http2)];

/// A protocol, as the file writes it.
struct ProtocolName(Protocol);

/// The versions of the PROXY protocol, by their names in the file.
const PROXY_HEADERS: [(&str, Version); 2] = [("v1", Version::V1), ("v2", Version::V2)];

/// The version of the PROXY protocol that connections begin with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProxyHeader(pub Version);

/// Help for a protocol by a name of other programs.
fn others_protocol(name: &str) -> Option<&'static str> {
    match name.to_ascii_lowercase().as_str() {
        "h2" | "h2c" | "http/2" | "http2.0" | "grpc" => Some("write \"http2\""),
        "http" | "http/1" | "http/1.1" | "http1.1" | "h1" => {
            Some("write \"http1\", or \"auto\" for HTTP/2 where the backend has it")
        }
        "https" | "tls" | "ssl" | "h2s" => Some("write \"auto\", and add [clusters.NAME.tls] for TLS"),
        "tcp" | "udp" | "http3" | "h3" | "http/3" | "quic" | "fastcgi" | "ajp" => {
            Some("write \"auto\": Plimsoll proxies HTTP/1.1 and HTTP/2 only")
        }
        _ => None,
    }
}

values! {
    ProxyHeader: |v| choice(v, "a version of the PROXY protocol", &PROXY_HEADERS).map(Self), |header| {
        let named = PROXY_HEADERS.into_iter().find(|(_, known)| *known == header.0);
        quoted(named.expect("all are listed").0)
    };
    ProtocolName: |v| match v.as_str().and_then(others_protocol) {
        Some(help) => Err(Flaw::new(format!("{} is not a protocol", kind(v)), help)),
        None => choice(v, "a protocol", &PROTOCOLS).map(Self),
    }, |protocol| {
        let named = PROTOCOLS.into_iter().find(|(_, known)| *known == protocol.0);
        quoted(named.expect("all are listed").0)
    };
}

/// A set of backends that answer the same requests.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Cluster {
    /// The backends, at least one, each address once.
    pub backends: Vec<Backend>,
    /// The localities that they are in, nearest first; none where all are equally near.
    pub localities: Vec<String>,
    /// How requests are sent, and for how long they may take.
    pub requests: RequestConfig,
    /// Connections kept to each backend, for each thread.
    pub pool: PoolConfig,
    /// How the machine balances: its policy, health rules and limits.
    pub balancer: BalancerConfig,
    /// How backends are checked.
    pub health: Health,
    /// Whether requests are throttled that would most likely be shed.
    pub throttle: Throttle,
    /// How requests are sent again that a backend did not serve.
    pub retry: Retry,
    /// How full localities get.
    pub spill: SpillConfig,
    /// Which of the backends are connected to.
    pub subset: Subset,
    /// TLS; `None` for plain connections.
    pub tls: Option<ClusterTls>,
    /// Whether connections begin with a header of the PROXY protocol, and which.
    pub proxy_protocol: Option<ProxyHeader>,
    /// The process that is protected from more than it can do; `None`: none is.
    pub inbound: Option<Inbound>,
}

impl Cluster {
    /// The configuration for the library's client, which calls the cluster `name` and is `identity`
    /// among its clients.
    pub(super) fn client(&self, name: &str, identity: &Identity) -> ClusterConfig {
        ClusterConfig {
            balancer: self.balancer,
            check: self.health.check(),
            check_timeout: CheckTimeout(self.health.timeout),
            requests: self.requests,
            pool: self.pool,
            localities: self.localities(),
            throttle: self.throttle.policy(),
            retry: self.retry.policy(),
            subset: self.subset.choice(name, identity),
            proxy_protocol: self.proxy_protocol.map(|header| header.0),
            // Made of files, which are read with the configuration.
            tls: None,
        }
    }
}

impl Table for Cluster {
    fn settings<V: Visitor>(&mut self, visitor: &mut V) {
        visitor.required("backends", &mut self.backends);
        visitor.value("localities", &mut self.localities);
        visitor.value("policy", &mut self.balancer.policy);
        let mut protocol = ProtocolName(self.requests.protocol);
        visitor.value("protocol", &mut protocol);
        self.requests.protocol = protocol.0;
        visitor.value("max_active_requests", &mut self.balancer.max_active_requests);
        visitor.value("connect_timeout", &mut self.requests.connect_timeout);
        visitor.value("request_timeout", &mut self.requests.request_timeout);
        visitor.value("body_idle_timeout", &mut self.requests.body_idle_timeout);
        visitor.value("max_pending", &mut self.requests.max_pending);
        visitor.value("queue_timeout", &mut self.requests.queue_timeout);
        visitor.value("min_connections", &mut self.pool.min_connections);
        visitor.value("max_idle_connections", &mut self.pool.max_idle_connections);
        visitor.value("inactive_after", &mut self.pool.inactive_after);
        visitor.value("max_streams", &mut self.pool.max_streams);
        visitor.switch("proxy_protocol", &mut self.proxy_protocol);
        visitor.value("panic_threshold", &mut self.balancer.panic_threshold);
        visitor.optional_table("tls", &mut self.tls);
        visitor.optional_table("inbound", &mut self.inbound);
        visitor.table("throttle", &mut self.throttle);
        visitor.table("retry", &mut self.retry);
        visitor.table("spill", &mut SpillTable(&mut self.spill));
        visitor.table("subset", &mut self.subset);
        visitor.table("health", &mut HealthTable { health: &mut self.health, checks: &mut self.balancer.checks });
        visitor.table("outlier", &mut self.balancer.outlier);
        visitor.table("slow_start", &mut self.balancer.slow_start);
        visitor.table("weighted", &mut self.balancer.weighted);
        visitor.table("prequal", &mut PrequalTable(&mut self.balancer.prequal));
        visitor.table("backoff", &mut self.balancer.backoff);
    }
}

/// The settings of `prequal` that matter while backends are not probed, but known by their
/// responses.
struct PrequalTable<'c>(&'c mut PrequalConfig);

impl Table for PrequalTable<'_> {
    fn settings<V: Visitor>(&mut self, visitor: &mut V) {
        visitor.value("probes_per_pick", &mut self.0.probes_per_pick);
        visitor.value("max_age", &mut self.0.max_age);
        visitor.value("hot_quantile", &mut self.0.hot_quantile);
    }
}
