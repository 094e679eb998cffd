//! The backends that answer for one another, and how they are spoken to.
//!
//! Read straight into the settings of the library's client. The meaning of each setting, its
//! default and the reason for it stand beside the code that acts by it (`plimsoll::client`,
//! `plimsoll_core`); here is only its name.

use std::num::NonZeroU32;
use std::time::Duration;

use plimsoll::client::{CheckTimeout, ClusterConfig, Ping, PoolConfig, Protocol, RequestConfig};
use plimsoll_config::{Choice, Effect, Flaw, Format, Table, Visitor, choice, kind, quoted};
use plimsoll_core::BalancerConfig;
use plimsoll_core::pick::{PrequalConfig, ProbeSource};
use plimsoll_core::spill::SpillConfig;
use plimsoll_tls_config::ClusterTls;
use plimsoll_wire::proxy_protocol::Version;

use super::address::Backend;
use super::discovery::Discovery;
use super::dns_name::Resolver;
use super::hash::{HashKeys, HashTable};
use super::health::{Health, HealthTable};
use super::inbound::Inbound;
use super::load_reports::LoadReporting;
use super::probes::Probes;
use super::retry::Retry;
use super::subset::{Identity, Subset};
use super::throttle::Throttle;

const PROTOCOLS: Choice<Protocol> = Choice {
    noun: "a protocol",
    names: &[("auto", Protocol::Auto), ("http1", Protocol::Http1), ("http2", Protocol::Http2)],
};

/// The versions of the PROXY protocol that connections can begin with.
const PROXY_HEADER: Choice<Version> =
    Choice { noun: "a version of the PROXY protocol", names: &[("v1", Version::V1), ("v2", Version::V2)] };

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

const PROTOCOL: Format<Protocol> = Format {
    read: |v| match v.as_str().and_then(others_protocol) {
        Some(help) => Err(Flaw::new(format!("{} is not a protocol", kind(v)), help)),
        None => choice(v, PROTOCOLS.noun, PROTOCOLS.names),
    },
    print: |protocol| quoted(PROTOCOLS.name(protocol)),
};

/// A set of backends that answer the same requests.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Cluster {
    /// The backends that are members always, each address once; at least one without `discovery`.
    pub backends: Vec<Backend>,
    /// The DNS server to ask for names among `backends`. `None`: those of the system.
    pub resolver: Option<Resolver>,
    /// The source of backends that change.
    pub discovery: Option<Discovery>,
    /// The localities that they are in, nearest first; none where all are equally near.
    pub localities: Vec<String>,
    /// How requests are sent, and for how long they may take.
    pub requests: RequestConfig,
    /// Requests in flight of one client at all backends together; `None` for any number.
    pub max_active_requests_per_client: Option<NonZeroU32>,
    /// Connections kept to each backend, for each thread.
    pub pool: PoolConfig,
    /// When a silent HTTP/2 connection with requests is asked whether its backend is there; `None`: never.
    pub ping_interval: Option<Duration>,
    /// Time for the answer; `None`: the default.
    pub ping_timeout: Option<Duration>,
    /// How the machine balances: its policy, health rules and limits.
    pub balancer: BalancerConfig,
    /// The keys of requests under the policy `hash`.
    pub hash_keys: HashKeys,
    /// How backends are checked.
    pub health: Health,
    /// The load reports of the backends.
    pub load_reports: LoadReporting,
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
    pub proxy_protocol: Option<Version>,
    /// Probes of the backends by UDP; `None`: none.
    pub probes: Option<Probes>,
    /// The process that is protected from more than it can do; `None`: none is.
    pub inbound: Option<Inbound>,
}

impl Cluster {
    /// The configuration for the library's client, which calls the cluster `name` and is `identity`
    /// among its clients.
    pub(super) fn client(&self, name: &str, identity: &Identity) -> ClusterConfig {
        let mut config = ClusterConfig::default();
        config.balancer = self.balancer;
        config.check = self.health.check();
        config.check_timeout = CheckTimeout(self.health.timeout);
        config.requests = self.requests;
        config.requests.attempt_timeout = self.retry.attempt_timeout.unwrap_or(Duration::MAX);
        config.max_active_requests_per_client = self.max_active_requests_per_client;
        config.pool = self.pool;
        config.pool.ping = self.ping();
        config.localities = self.localities();
        config.throttle = self.throttle.policy();
        config.retry = self.retry.policy();
        config.subset = self.subset.choice(name, identity, self.is_numbered());
        config.proxy_protocol = self.proxy_protocol;
        config.load_reports = self.load_reports.client();
        // `tls` and `probes` are made of files, which are read with the configuration.
        config
    }

    /// The PINGs on its connections.
    fn ping(&self) -> Option<Ping> {
        let timeout = self.ping_timeout.unwrap_or(Ping::DEFAULT_TIMEOUT);
        self.ping_interval.map(|interval| Ping::every(interval).timeout(timeout))
    }

    /// Whether each backend keeps its number: in a fixed list, or by its ordinal.
    pub(super) fn is_numbered(&self) -> bool {
        self.discovery.as_ref().is_none_or(|discovery| discovery.ordinals)
    }
}

const NEXT_REQUEST: Effect = Effect::Applied("from the next request on; health states and connections stay");
const NEW_CONNECTIONS: Effect = Effect::Applied("for new connections to backends");
const BUSY_STAY: Effect = Effect::Applied("for connections to backends; busy ones stay");
const LOADS_STAY: Effect = Effect::Applied("from the next request on; the load of remaining localities stays known");
const POLICY_LEARNS: Effect =
    Effect::Applied("from the next request on; the policy learns from the start, health states and connections stay");
const RECONNECTED: Effect =
    Effect::Applied("new connections are opened; requests in flight finish on the old ones, which then close");
const COSTS_LEARNED: Effect = Effect::Applied("from the next request on; request costs are learned from the start");
const OUTCOMES_FORGOTTEN: Effect =
    Effect::Applied("from the next request on; past outcomes are forgotten, so nothing is throttled at first");
const BUDGET_FULL: Effect = Effect::Applied("from the next request on; another budget starts full");
const NEXT_REPORTS: Effect =
    Effect::Applied("within seconds, with the next load reports; health states and connections stay");
const SUBSET_CHOSEN: Effect = Effect::Applied("the subset is chosen again; removed backends finish their requests");
const NAMES_ASKED: Effect = Effect::Applied(
    "names of backends are looked up there, now and when their TTL ends; known backends keep their state",
);
const PROBES_BEGIN: Effect = Effect::Applied("at once; health states stay");
const NEXT_CHECK: Effect = Effect::Applied("from the next check on; health states stay");
const KEYS_MOVE: Effect = Effect::Applied("from the next request on; another key moves clients to other backends");
const PREQUAL_LEARNS: Effect = Effect::Applied("from the next request on; policy prequal learns from the start");

impl Table for Cluster {
    fn settings<V: Visitor>(&mut self, visitor: &mut V) {
        let Self { requests, pool, balancer, max_active_requests_per_client, .. } = self;
        visitor.value(("backends", Effect::Another), &mut self.backends);
        visitor.optional(("resolver", NAMES_ASKED), &mut self.resolver);
        visitor.value(("localities", LOADS_STAY), &mut self.localities);
        visitor.value(("policy", POLICY_LEARNS), &mut balancer.policy);
        visitor.value_as(("protocol", NEW_CONNECTIONS), &mut requests.protocol, PROTOCOL);
        visitor.value(("max_active_requests", NEXT_REQUEST), &mut balancer.max_active_requests);
        visitor.switch(("max_active_requests_per_client", NEXT_REQUEST), max_active_requests_per_client);
        visitor.value(("connect_timeout", NEXT_REQUEST), &mut requests.connect_timeout);
        visitor.value(("request_timeout", NEXT_REQUEST), &mut requests.request_timeout);
        visitor.value(("body_idle_timeout", NEXT_REQUEST), &mut requests.body_idle_timeout);
        visitor.value(("max_pending", NEXT_REQUEST), &mut requests.max_pending);
        visitor.value(("queue_timeout", NEXT_REQUEST), &mut requests.queue_timeout);
        visitor.value(("min_connections", BUSY_STAY), &mut pool.min_connections);
        visitor.value(("max_idle_connections", BUSY_STAY), &mut pool.max_idle_connections);
        visitor.value(("inactive_after", BUSY_STAY), &mut pool.inactive_after);
        visitor.value(("max_streams", BUSY_STAY), &mut pool.max_streams);
        visitor.switch(("ping_interval", NEW_CONNECTIONS), &mut self.ping_interval);
        visitor.optional(("ping_timeout", NEW_CONNECTIONS), &mut self.ping_timeout);
        visitor.switch_as(("proxy_protocol", NEW_CONNECTIONS), &mut self.proxy_protocol, PROXY_HEADER);
        visitor.value(("panic_threshold", NEXT_REQUEST), &mut balancer.panic_threshold);
        visitor.optional_table("discovery", &mut self.discovery);
        visitor.optional_table(("tls", RECONNECTED), &mut self.tls);
        visitor.optional_table(("probes", PROBES_BEGIN), &mut self.probes);
        visitor.optional_table(("inbound", COSTS_LEARNED), &mut self.inbound);
        visitor.table(("throttle", OUTCOMES_FORGOTTEN), &mut self.throttle);
        visitor.table(("retry", BUDGET_FULL), &mut self.retry);
        visitor.table(("spill", NEXT_REPORTS), &mut self.spill);
        visitor.table(("subset", SUBSET_CHOSEN), &mut self.subset);
        let mut health = HealthTable { health: &mut self.health, checks: &mut balancer.checks };
        visitor.table(("health", NEXT_CHECK), &mut health);
        visitor.table(("load_reports", NEXT_REQUEST), &mut self.load_reports);
        visitor.table(("outlier", NEXT_REQUEST), &mut balancer.outlier);
        visitor.table(("slow_start", NEXT_REQUEST), &mut balancer.slow_start);
        visitor.table(("weighted", NEXT_REQUEST), &mut balancer.weighted);
        visitor.table(("prequal", PREQUAL_LEARNS), &mut PrequalTable(&mut balancer.prequal));
        let mut hash = HashTable { hash: &mut balancer.hash, keys: &mut self.hash_keys };
        visitor.table(("hash", KEYS_MOVE), &mut hash);
        visitor.table(("backoff", NEXT_REQUEST), &mut balancer.backoff);
    }
}

/// The source of the load that `prequal` compares.
const LOAD_SOURCE: Choice<ProbeSource> = Choice {
    noun: "a source of load",
    names: &[("responses", ProbeSource::Responses), ("probes", ProbeSource::Frugal)],
};

/// The settings of `prequal` that matter without the pool of the paper.
struct PrequalTable<'c>(&'c mut PrequalConfig);

impl Table for PrequalTable<'_> {
    fn settings<V: Visitor>(&mut self, visitor: &mut V) {
        visitor.value_as("source", &mut self.0.source, LOAD_SOURCE);
        visitor.value("probes_per_pick", &mut self.0.probes_per_pick);
        visitor.value("max_age", &mut self.0.max_age);
        visitor.value("hot_quantile", &mut self.0.hot_quantile);
    }
}
