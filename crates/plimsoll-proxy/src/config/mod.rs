//! The settings of the proxy: a TOML file, read and checked as a whole.
//!
//! ```text
//! text ──read──▶ RawConfig ──check──▶ Config ──resolve──▶ addresses
//!        each value by itself   all of them together   asks the network
//! ```
//!
//! Only [`Config::parse`] (or [`Config::load`], [`Config::simple`]) makes a [`Config`], so its
//! holder may rely on it: routes name clusters that exist, times fit each other, no two listeners
//! share an address. All problems of a file are reported at once, each with its path, place, reason
//! and help. The parts of a config have public fields for readers; they cannot be put back into a
//! config.

mod access_log;
mod address;
mod address_help;
mod admin_host;
mod answer;
mod backend_metrics;
mod check;
mod check_routes;
mod cluster;
mod conditions;
mod criticality;
mod customer;
mod customer_source;
mod degraded;
mod diff;
mod discovery;
mod dns_name;
mod eds;
mod etcd;
mod exact_path;
mod explain;
mod files;
mod forwarded;
mod hash;
mod header_rules;
mod health;
mod http2;
mod inbound;
mod kubernetes;
mod listener;
mod listener_probes;
mod load_reports;
mod mirror;
mod named;
mod path;
mod pressure;
mod priority;
mod probe_keys;
mod probes;
mod quota;
mod raw;
mod redirect;
mod resolve;
mod retry;
mod route;
mod simple;
mod spill;
mod split;
mod state_dir;
mod subset;
mod throttle;
mod tracing;
mod trouble;
mod unix_socket;
mod value;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::path::Path;
use std::sync::Arc;

pub use access_log::{AccessLog, LogFormat, LogPath};
pub use address::{Backend, BackendAddress};
pub use answer::Answer;
pub use backend_metrics::BackendMetrics;
pub use check::at_arguments;
pub use cluster::Cluster;
pub(crate) use conditions::MAX_TEXT;
pub use conditions::{Condition, Wanted};
pub use customer::{CustomerLimits, CustomerName};
pub use customer_source::CustomerSource;
pub(crate) use customer_source::{AddressName, HOST_KIND, KEY_KIND, PATH_KIND, client_network};
pub use degraded::{Degraded, StaleAnswers};
pub use diff::{Change, Difference};
pub use exact_path::ExactPath;
pub use explain::Explain;
pub use forwarded::{Forwarded, ProxyProtocol, TrustedProxy};
pub use hash::{HashKeys, KeySource, SameSite, Sticky};
pub use header_rules::HeaderRules;
pub use health::Health;
pub use http2::Http2;
pub use inbound::{Inbound, SpeedSetting};
pub use kubernetes::{Kubernetes, ObjectName, PortChoice, ServerAddress};
pub use listener::Listener;
pub use listener_probes::ListenerProbes;
pub use load_reports::{LoadReporting, Requested};
pub use mirror::Mirror;
pub use plimsoll_config::{ByteSize, ConfigError, Position, Problem};
pub use plimsoll_tls_config::{
    CertificateExpiry, CertificateFiles, ClientCertificate, ClientName, ClusterTls, FilePath, ListenerTls,
};
pub use pressure::MemoryLimit;
pub use priority::Priority;
pub use quota::Quota;
pub use raw::Drain;
pub use redirect::{Redirect, UrlScheme};
pub(crate) use resolve::{Names, Resolved};
pub use retry::Retry;
pub(crate) use route::RouteKey;
pub use route::{HostPattern, Leads, NamedRoute, PathPrefix, Route};
pub use simple::Simple;
pub use split::{Margins, SplitKey, SplitSide};
pub(crate) use subset::Coordinated;
pub use subset::{Identity, Subset};
pub use throttle::{Throttle, ThrottleKind};
pub use tracing::{CollectorUrl, Tracing};

use bytes::Bytes;
pub use discovery::Discovery;
use discovery::SourceContext;
pub(crate) use discovery::{Followed, Origin};
pub use dns_name::{HostName, Resolver, ServiceName};
pub use eds::{Eds, EdsNode};
pub use etcd::FleetName;
pub(crate) use etcd::{Etcd, FleetMember};
use files::Files;
pub(crate) use path::{NormalPath, normalise};
use plimsoll::client::ClusterConfig;
use plimsoll_config::{Places, Read};
use plimsoll_fleet::Name;
use raw::RawConfig;
pub(crate) use trouble::Trouble;
pub use unix_socket::SocketMode;

/// A checked configuration.
#[derive(Clone, Debug)]
pub struct Config {
    raw: RawConfig,
    /// By place in the file.
    route_names: Vec<Arc<str>>,
    files: Files,
    source_name: String,
    places: Places,
}

/// Equal when they say the same, in any layout and from any file.
impl PartialEq for Config {
    fn eq(&self, other: &Self) -> bool {
        self.raw == other.raw
    }
}

impl Config {
    /// Reads and checks a file.
    ///
    /// # Errors
    /// That the file cannot be read, or all that is wrong with it.
    pub fn load(file: &Path) -> Result<Self, ConfigError> {
        let name = file.display().to_string();
        let folder = file.parent().unwrap_or(Path::new(""));
        Self::build(&name, folder, plimsoll_config::read(&plimsoll_config::load(file)?))
    }

    /// Reads and checks the text of a file; `source_name` is what messages call it. Other files
    /// that it names are looked for from the working directory.
    ///
    /// # Errors
    /// All that is wrong with it.
    pub fn parse(source_name: &str, text: &str) -> Result<Self, ConfigError> {
        Self::build(source_name, Path::new(""), plimsoll_config::read(text))
    }

    /// `folder` is where the paths in it begin.
    fn build(source_name: &str, folder: &Path, read: Read<RawConfig>) -> Result<Self, ConfigError> {
        let Read { root: mut raw, places, problems } = read;
        let problems = check::check(&mut raw, &places, problems);
        let (files, problems) = files::read(&raw, folder, &places, problems);
        if problems.is_empty() {
            let route_names = route::names(&raw.routes);
            Ok(Self { raw, route_names, files, source_name: source_name.to_owned(), places })
        } else {
            Err(ConfigError::new(source_name, problems))
        }
    }

    /// The names in the configuration that this machine does not know at the moment. They may be
    /// there when the proxy starts, so these are no errors.
    #[must_use]
    pub fn warnings(&self) -> Vec<Problem> {
        let clusters = self.raw.clusters.iter();
        let missing = clusters.filter_map(|(name, cluster)| {
            let (path, flaw) = cluster.inbound.as_ref()?.missing(&format!("clusters.{name}.inbound"))?;
            Some(Problem { position: self.places.find(&path), path, reason: flaw.reason, help: flaw.help })
        });
        let listeners = self.raw.listeners.iter().enumerate().filter_map(|(i, listener)| {
            let (path, folder) = (format!("listeners[{i}].address"), unix_socket::missing_folder(listener.address)?);
            let help = "make it before the start: RuntimeDirectory= in systemd, or mkdir".to_owned();
            let reason = format!("there is no folder {folder}");
            Some(Problem { position: self.places.find(&path), path, reason, help })
        });
        missing.chain(listeners).collect()
    }

    /// Where the setting at `path` stands, as the head of a message: `plimsoll.toml:2:11:
    /// listeners[0].address`, or `command line: --from[0]`.
    pub(crate) fn place_of(&self, path: &str) -> String {
        let position = self.places.find(path);
        let problem = Problem { path: path.to_owned(), position, reason: String::new(), help: String::new() };
        match position {
            Some(position) => format!("{}:{position}: {path}", self.source_name),
            None => format!("{}: {}", self.source_name, at_arguments(problem).path),
        }
    }

    /// The configuration as TOML, with every default written out. Parses to an equal configuration.
    #[must_use]
    pub fn print(&self) -> String {
        plimsoll_config::print(&self.raw)
    }

    /// How many threads serve; the number of cores unless the file says otherwise.
    #[must_use]
    pub fn threads(&self) -> NonZeroUsize {
        self.raw.threads
    }

    /// Has as many threads serve as do already: their number is for a restart to change.
    pub(crate) fn keep_threads(&mut self, threads: NonZeroUsize) {
        self.raw.threads = threads;
    }

    /// The admin address in a file, also in one with problems elsewhere; `None` if it is off or the
    /// file cannot be read.
    #[must_use]
    pub fn admin_in(file: &Path) -> Option<SocketAddr> {
        let text = plimsoll_config::load(file).ok()?;
        plimsoll_config::read::<RawConfig>(&text).root.admin.listen
    }

    /// Where the admin API listens; `None` when it is off.
    #[must_use]
    pub fn admin(&self) -> Option<SocketAddr> {
        self.raw.admin.listen
    }

    /// The metrics of single backends.
    #[must_use]
    pub fn backend_metrics(&self) -> BackendMetrics {
        self.raw.admin.backend_metrics
    }

    /// Whether the admin API may be asked for under this name; in lower case and without a port.
    #[must_use]
    pub fn is_admin_host(&self, name: &str) -> bool {
        self.raw.admin.hosts.iter().any(|host| host.includes(name))
    }

    /// Whether there is a line for each request, and where.
    #[must_use]
    pub fn access_log(&self) -> &AccessLog {
        &self.raw.access_log
    }

    /// The record of requests for `plimsoll explain`.
    #[must_use]
    pub fn explain(&self) -> &Explain {
        &self.raw.explain
    }

    /// The most memory that the proxy may use; `None` for any.
    #[must_use]
    pub fn max_memory(&self) -> Option<MemoryLimit> {
        self.raw.max_memory
    }

    /// The limits of stored responses; `None` if no route uses them.
    #[must_use]
    pub fn stale_answers(&self) -> Option<StaleAnswers> {
        let is_stale = |route: &Route| route.degraded.as_ref().is_some_and(|degraded| degraded.max_stale.is_some());
        self.raw.routes.iter().any(is_stale).then_some(self.raw.stale_answers)
    }

    /// The body of an answer that is one of this configuration's; `None` if nothing is said of it.
    pub(crate) fn body(&self, answer: &Answer) -> Option<Bytes> {
        let from_file = answer.file.as_ref().and_then(|file| self.files.bodies.get(file).cloned());
        from_file.or_else(|| answer.body.clone().map(Bytes::from))
    }

    /// The limits of customers that have a table of their own, by name.
    #[must_use]
    pub fn customers(&self) -> &BTreeMap<String, CustomerLimits> {
        &self.raw.customers
    }

    /// The limits of each other customer.
    #[must_use]
    pub fn other_customers(&self) -> &CustomerLimits {
        &self.raw.other_customers
    }

    /// The etcd of the fleet.
    pub(crate) fn etcd(&self) -> Option<&Etcd> {
        self.files.etcd.as_ref()
    }

    /// This proxy in its group; `None` without one.
    pub(crate) fn fleet_member(&self) -> Option<FleetMember> {
        let (etcd, identity) = (self.files.etcd.clone()?, &self.raw.client);
        let group = identity.group.as_ref()?.0.clone();
        let id = Name::new(identity.name()).expect("it was checked with the group");
        Some(FleetMember { etcd, group, id })
    }

    /// The part of the group in the subset of a cluster; `None` if it has none.
    pub(crate) fn coordinated(&self, cluster: &str) -> Option<Coordinated> {
        let settings = self.raw.clusters.get(cluster)?;
        settings.subset.coordinated(cluster, &self.raw.client, settings.is_numbered())
    }

    /// TLS with the quota server.
    pub(crate) fn quota_tls(&self) -> Option<&plimsoll::tls::TlsConfig> {
        self.files.quota.as_ref()
    }

    /// The quota server; `None`: limits are for this proxy alone.
    #[must_use]
    pub fn quota(&self) -> Option<&Quota> {
        self.raw.quota.as_ref()
    }

    /// TLS with the collector of traces.
    pub(crate) fn tracing_tls(&self) -> Option<&plimsoll::tls::TlsConfig> {
        self.files.tracing.as_ref()
    }

    /// Traces; `None`: no request is recorded.
    #[must_use]
    pub fn tracing(&self) -> Option<&Tracing> {
        self.raw.tracing.as_ref()
    }

    /// How the proxy ends.
    #[must_use]
    pub fn drain(&self) -> &Drain {
        &self.raw.drain
    }

    /// Where requests come in; at least one.
    #[must_use]
    pub fn listeners(&self) -> &[Listener] {
        &self.raw.listeners
    }

    /// The routes, in the order of the file; at least one.
    #[must_use]
    pub fn routes(&self) -> &[Route] {
        &self.raw.routes
    }

    /// The routes with their names, in the order of the file.
    pub fn named_routes(&self) -> impl Iterator<Item = NamedRoute<'_>> {
        self.route_names.iter().zip(&self.raw.routes).map(|(name, route)| NamedRoute { name, route })
    }

    /// The routes for requests that come in at the listener of this name, in the order of the file.
    pub fn routes_of<'a>(&'a self, listener: &'a str) -> impl Iterator<Item = NamedRoute<'a>> {
        self.named_routes().filter(move |route| route.applies_to(listener))
    }

    /// How the library's client is to serve the cluster of this name.
    ///
    /// # Panics
    /// When there is no such cluster.
    #[must_use]
    pub fn client(&self, cluster: &str) -> ClusterConfig {
        let tls = self.files.clusters.get(cluster).cloned();
        let keys = self.files.cluster_probe_keys.get(cluster).cloned();
        let probes = self.raw.clusters[cluster].probes.as_ref().map(|probes| probes.client(keys));
        let mut config = self.raw.clusters[cluster].client(cluster, &self.raw.client);
        config.tls = tls;
        config.probes = probes;
        config
    }

    /// The source of the backends of this cluster; `None` if they are those of the file.
    pub(crate) fn followed(&self, cluster: &str) -> Option<Followed> {
        let discovery = self.raw.clusters.get(cluster)?.discovery.as_ref()?;
        let (tls, etcd) = (self.files.discovery.get(cluster), self.files.etcd.as_ref());
        discovery.followed(SourceContext { folder: &self.files.folder, tls, etcd })
    }

    /// The DNS server to ask for names among the backends of a cluster. `None`: those of the system.
    pub(crate) fn resolver(&self, cluster: &str) -> Option<SocketAddr> {
        self.raw.clusters.get(cluster)?.resolver.map(|resolver| resolver.0)
    }

    /// The certificates, keys and rules of TLS at the listener of this name; `None` if it has no
    /// TLS.
    pub(crate) fn server_tls(&self, listener: &str) -> Option<&Arc<plimsoll::tls::TlsMaterial>> {
        self.files.listeners.get(listener)
    }

    /// The keys of probes at the listener of this name; `None` if it answers none.
    pub(crate) fn probe_keys(&self, listener: &str) -> Option<&plimsoll::probe::Keyring> {
        self.files.listener_probe_keys.get(listener)
    }

    /// The ends of the certificates that the listener of this name shows; none without TLS.
    #[must_use]
    pub fn certificate_expiries(&self, listener: &str) -> &[CertificateExpiry] {
        self.files.expiries.get(listener).map_or(&[], |expiries| expiries)
    }

    /// The clusters, by name; at least one.
    #[must_use]
    pub fn clusters(&self) -> &BTreeMap<String, Cluster> {
        &self.raw.clusters
    }
}

#[cfg(test)]
mod every_setting;
#[cfg(test)]
mod tests;
