//! A configuration as read: each value is valid by itself; combinations are not checked yet.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::thread;
use std::time::Duration;

use plimsoll_config::{Effect, List, SpanOrOff, table};

use plimsoll_etcd::settings::EtcdSettings;

use super::access_log::AccessLog;
use super::admin_host::ADMIN_HOST;
use super::backend_metrics::{BACKEND_METRICS, BackendMetrics};
use super::cluster::Cluster;
use super::customer::CustomerLimits;
use super::degraded::StaleAnswers;
use super::explain::Explain;
use super::listener::Listener;
use super::pressure::MemoryLimit;
use super::quota::Quota;
use super::route::{HostPattern, Route};
use super::state_dir;
use super::subset::Identity;
use super::tracing::Tracing;
use super::value::LISTEN_ADDRESS;

/// Loopback: metrics and the switches of the fleet are for this machine unless the file says
/// otherwise.
const DEFAULT_ADMIN: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 9900);
/// Kubernetes' grace period: the starter of the proxy will wait no longer.
const DEFAULT_DRAIN_TIMEOUT: Duration = Duration::from_secs(30);
/// Time for pollers of `/readyz`, each second or faster, to see the end.
const DEFAULT_DRAIN_ANNOUNCE: Duration = Duration::from_secs(1);

const CUSTOMER_LIMITS: Effect =
    Effect::Applied("from the next request on; past use still counts, and learned costs stay");

table! {
    /// The root of the file.
    #[derive(Clone, Debug, PartialEq)]
    pub(super) struct RawConfig {
        // One thread for each core: requests stay on their thread, and more threads would only take
        // turns.
        pub(super) threads: NonZeroUsize = thread::available_parallelism().unwrap_or(NonZeroUsize::MIN), value,
            Effect::Restart("needs a restart (`plimsoll upgrade` does it without loss)");
        pub(super) max_memory: Option<MemoryLimit> = Some(MemoryLimit::default()), switch, Effect::Applied("at once");
        // Off by default: nothing is written to a disk that the operator did not name.
        pub(super) state_dir: Option<PathBuf> = None, switch_as(state_dir::FOLDER),
            Effect::Applied("at once; all state is saved in the new folder, and stays in the old one");
        pub(super) admin: Admin = Admin::default(), table;
        pub(super) access_log: AccessLog = AccessLog::default(), table, Effect::Applied("from the next line on");
        pub(super) explain: Explain = Explain::default(), table;
        pub(super) tracing: Option<Tracing> = None, optional_table, Effect::Applied("from the next request on");
        pub(super) drain: Drain = Drain::default(), table, Effect::Applied("for the next drain");
        pub(super) stale_answers: StaleAnswers = StaleAnswers::default(), table,
            Effect::Applied("at once; the least recently used answers are dropped to fit");
        pub(super) client: Identity = Identity::default(), table,
            Effect::Applied("subsets are chosen again; removed backends finish their requests");
        pub(super) listeners: Vec<Listener> = Vec::new(), tables;
        pub(super) routes: Vec<Route> = Vec::new(), tables;
        pub(super) clusters: BTreeMap<String, Cluster> = BTreeMap::new(), named;
        pub(super) quota: Option<Quota> = None, optional_table,
            Effect::Applied("gates with inbound join the quota server, or leave it and have no limits over a fleet");
        pub(super) etcd: Option<EtcdSettings> = None, optional_table,
            Effect::Applied("sources in etcd are followed anew; known backends keep their state");
        pub(super) other_customers: CustomerLimits = CustomerLimits::default(), table, CUSTOMER_LIMITS;
        pub(super) customers: BTreeMap<String, CustomerLimits> = BTreeMap::new(), named, CUSTOMER_LIMITS;
    }
    EXAMPLE = "[[listeners]]\naddress = \":8080\"\n[[routes]]\ncluster = \"web\"\n[clusters.web]\n\
               backends = [\"10.0.0.1:8080\", \"10.0.0.2:8080\"]";
}

table! {
    /// The admin API and metrics.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub(super) struct Admin {
        /// Where they listen; `None` when off.
        pub(super) listen: Option<SocketAddr> = Some(DEFAULT_ADMIN), switch_as(LISTEN_ADDRESS),
            Effect::Applied("the admin API moves; point scrapers at the new address");
        /// The names under which they may be asked for, beside addresses and that of the machine.
        pub(super) hosts: Vec<HostPattern> = Vec::new(), value_as(List(ADMIN_HOST)),
            Effect::Applied("from the next request to the admin API on");
        /// The metrics of single backends.
        pub(super) backend_metrics: BackendMetrics = BackendMetrics::All, value_as(BACKEND_METRICS),
            Effect::Applied("from the next scrape on");
    }
    OFF = "listen = \"off\"";
}

table! {
    /// How the proxy ends.
    #[derive(Clone, Debug, PartialEq, Eq)]
    #[non_exhaustive]
    pub struct Drain {
        /// Time for which it announces its end and still accepts connections; zero for none.
        pub announce: Duration = DEFAULT_DRAIN_ANNOUNCE, value_as(SpanOrOff);
        /// Time after which it ends although requests are in flight.
        pub timeout: Duration = DEFAULT_DRAIN_TIMEOUT, value;
    }
}
