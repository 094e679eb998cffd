//! A configuration as read: each value is valid by itself; combinations are not checked yet.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::num::NonZeroUsize;
use std::thread;
use std::time::Duration;

use plimsoll_config::{SpanOrOff, Table, Visitor};

use super::access_log::AccessLog;
use super::admin_host::AdminHost;
use super::cluster::Cluster;
use super::customer::CustomerLimits;
use super::degraded::StaleAnswers;
use super::explain::Explain;
use super::listener::Listener;
use super::pressure::MemoryLimit;
use super::route::Route;
use super::subset::Identity;
use super::value::ListenAddress;

/// Loopback: metrics and the switches of the fleet are for this machine unless the file says
/// otherwise.
const DEFAULT_ADMIN: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 9900);
/// Kubernetes' grace period: the starter of the proxy will wait no longer.
const DEFAULT_DRAIN_TIMEOUT: Duration = Duration::from_secs(30);
/// Time for pollers of `/readyz`, each second or faster, to see the end.
const DEFAULT_DRAIN_ANNOUNCE: Duration = Duration::from_secs(1);

/// The root of the file.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct RawConfig {
    pub(super) threads: NonZeroUsize,
    pub(super) max_memory: Option<MemoryLimit>,
    pub(super) admin: Admin,
    pub(super) access_log: AccessLog,
    pub(super) explain: Explain,
    pub(super) drain: Drain,
    pub(super) stale_answers: StaleAnswers,
    pub(super) client: Identity,
    pub(super) listeners: Vec<Listener>,
    pub(super) routes: Vec<Route>,
    pub(super) clusters: BTreeMap<String, Cluster>,
    pub(super) other_customers: CustomerLimits,
    pub(super) customers: BTreeMap<String, CustomerLimits>,
}

impl Default for RawConfig {
    fn default() -> Self {
        Self {
            // One thread for each core: requests stay on their thread, and more threads would only
            // take turns.
            threads: thread::available_parallelism().unwrap_or(NonZeroUsize::MIN),
            max_memory: Some(MemoryLimit::default()),
            admin: Admin::default(),
            access_log: AccessLog::default(),
            explain: Explain::default(),
            drain: Drain::default(),
            stale_answers: StaleAnswers::default(),
            client: Identity::default(),
            listeners: Vec::new(),
            routes: Vec::new(),
            clusters: BTreeMap::new(),
            other_customers: CustomerLimits::default(),
            customers: BTreeMap::new(),
        }
    }
}

impl Table for RawConfig {
    const EXAMPLE: &'static str = "[[listeners]]\naddress = \":8080\"\n[[routes]]\ncluster = \"web\"\n[clusters.web]\n\
                                   backends = [\"10.0.0.1:8080\", \"10.0.0.2:8080\"]";

    fn settings<V: Visitor>(&mut self, visitor: &mut V) {
        visitor.value("threads", &mut self.threads);
        visitor.switch("max_memory", &mut self.max_memory);
        visitor.table("admin", &mut self.admin);
        visitor.table("access_log", &mut self.access_log);
        visitor.table("explain", &mut self.explain);
        visitor.table("drain", &mut self.drain);
        visitor.table("stale_answers", &mut self.stale_answers);
        visitor.table("client", &mut self.client);
        visitor.tables("listeners", &mut self.listeners);
        visitor.tables("routes", &mut self.routes);
        visitor.named("clusters", &mut self.clusters);
        visitor.table("other_customers", &mut self.other_customers);
        visitor.named("customers", &mut self.customers);
    }
}

/// The admin API and metrics.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Admin {
    /// Where they listen; `None` when off.
    pub(super) listen: Option<SocketAddr>,
    /// The names under which they may be asked for, beside addresses and that of the machine.
    pub(super) hosts: Vec<AdminHost>,
}

impl Default for Admin {
    fn default() -> Self {
        Self { listen: Some(DEFAULT_ADMIN), hosts: Vec::new() }
    }
}

impl Table for Admin {
    const OFF: &'static str = "listen = \"off\"";

    fn settings<V: Visitor>(&mut self, visitor: &mut V) {
        let mut listen = self.listen.map(ListenAddress);
        visitor.switch("listen", &mut listen);
        self.listen = listen.map(|address| address.0);
        visitor.value("hosts", &mut self.hosts);
    }
}

/// How the proxy ends.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Drain {
    /// Time for which it announces its end and still accepts connections; zero for none.
    pub announce: Duration,
    /// Time after which it ends although requests are in flight.
    pub timeout: Duration,
}

impl Default for Drain {
    fn default() -> Self {
        Self { announce: DEFAULT_DRAIN_ANNOUNCE, timeout: DEFAULT_DRAIN_TIMEOUT }
    }
}

impl Table for Drain {
    fn settings<V: Visitor>(&mut self, visitor: &mut V) {
        visitor.value_as("announce", &mut self.announce, SpanOrOff);
        visitor.value("timeout", &mut self.timeout);
    }
}
