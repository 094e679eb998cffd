//! The proxy as the admin API wants to see it: copies what the proxy and its clusters know, computes nothing.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::SystemTime;

use plimsoll::client::Cluster;
use plimsoll_admin::{
    BackendFigures, BackendMetrics, BackendOrder, BatchSnapshot, ClusterScrape, ClusterSnapshot, Control, Declined,
    EtcdSnapshot, Explained, Fleet, FleetSnapshot, InboundSnapshot, LastReloadSnapshot, ListenerSnapshot,
    LiveClusterSnapshot, LivePage, LiveSnapshot, LiveSource, MirrorSnapshot, Missing, Obeyed, Pending,
    PressureSnapshot, ProcessView, Readiness, Refused, ReloadView, SideSnapshot, SplitSnapshot, StaleSnapshot, Tap,
    TracesSnapshot, Unserved, UpgradeView, Wanted,
};
use plimsoll_config::ReloadOutcome;
use plimsoll_proxy::config::Config;
use plimsoll_proxy::split::{SideView, SplitView};
use plimsoll_proxy::{
    BatchListenerView, EtcdView, InboundView, ListenerView, MirrorView, OverrideDone, OverrideOrder, OverrideRefused,
    PressureView, Proxy, Reloads, StaleView, TracesView,
};

use super::control::Controls;
use super::explain;

/// A running proxy.
pub(super) struct ProxyFleet {
    proxy: Arc<Proxy>,
    controls: Arc<Controls>,
    /// Each source has listed backends, or did not in time, and a backend has been healthy since.
    started: AtomicBool,
    page: LivePage,
}

impl ProxyFleet {
    pub(super) fn new(proxy: Arc<Proxy>, controls: Arc<Controls>) -> Self {
        Self { proxy, controls, started: AtomicBool::new(false), page: LivePage::default() }
    }

    /// Whether the lists of all clusters were awaited, and any backend has been healthy. A cluster without a backend does not
    /// delay it: its service may be down for days. It stays so when all backends fail later: a proxy that then took itself out
    /// of service, with all others of its kind, would turn a fault of the backends into one of the whole front.
    pub(super) fn has_started(&self) -> bool {
        if !self.started.load(Ordering::Relaxed) {
            let clusters = self.proxy.clusters();
            let has_started = clusters.iter().all(Cluster::is_listed) && clusters.iter().any(is_served);
            self.started.fetch_or(has_started, Ordering::Relaxed);
        }
        self.started.load(Ordering::Relaxed)
    }

    /// Everything as it is now, with this of each cluster and its gate.
    fn snapshot_with<C>(&self, cluster: impl Fn(&Cluster, Option<InboundSnapshot>) -> C) -> FleetSnapshot<C> {
        let config = self.proxy.config();
        FleetSnapshot {
            clusters: self
                .proxy
                .clusters()
                .iter()
                .map(|each| cluster(each, self.proxy.inbound(each.name()).map(inbound)))
                .collect(),
            listeners: self
                .proxy
                .listeners()
                .into_iter()
                .map(|listener| ListenerSnapshot {
                    certificates: certificates(&config, &listener.name),
                    name: listener.name,
                    connections: listener.connections,
                    accepted: listener.accepted,
                    waited: listener.waited,
                    turned_away: listener.turned_away,
                    failed_handshakes: listener.failed_handshakes,
                    tls_handshakes: listener.tls_handshakes,
                    waiting_handshakes: listener.waiting_handshakes,
                    handshake_time: listener.handshake_time,
                    ended: listener.ended,
                    stalled_streams: listener.stalled_streams,
                    refusals: listener.refusals,
                    degraded: listener.degraded,
                    batch: listener.batch.map(batch),
                    probes: listener.probes,
                })
                .collect(),
            splits: self.proxy.splits().into_iter().map(split).collect(),
            mirrors: self.proxy.mirrors().into_iter().map(mirror).collect(),
            reloads_taken: self.proxy.reloads().taken(),
            reloads_refused: self.proxy.reloads().refused(),
            last_reload: Some(last_reload(self.proxy.reloads())),
            access_log_dropped: self.proxy.access_log_dropped(),
            request_limits: self.proxy.request_limits(),
            etcd: self.proxy.etcd().map(etcd),
            traces: traces(self.proxy.traces()),
            pressure: pressure(self.proxy.pressure()),
            stale_answers: stale_answers(self.proxy.stale_answers()),
        }
    }

    fn added_up(&self, cluster: &Cluster, rows: usize) -> LiveClusterSnapshot {
        let inbound = self.proxy.inbound(cluster.name()).map(inbound);
        LiveClusterSnapshot { overview: cluster.overview(rows), inbound }
    }

    /// The clusters in which a backend is healthy now.
    pub(super) fn healthy_clusters(&self) -> Vec<String> {
        self.proxy
            .clusters()
            .iter()
            .filter(|cluster| is_served(cluster))
            .map(|cluster| cluster.name().to_owned())
            .collect()
    }

    /// A cluster of this proxy, of those named, in which no backend is healthy now.
    pub(super) fn without_healthy<'n>(&self, names: &'n [String]) -> Option<&'n str> {
        let is_unserved = |name: &&String| self.proxy.cluster(name).is_some_and(|cluster| !is_served(&cluster));
        names.iter().find(is_unserved).map(String::as_str)
    }
}

fn split(split: SplitView) -> SplitSnapshot {
    let side = |side: SideView| SideSnapshot {
        cluster: side.cluster,
        weight: side.weight,
        share: side.share,
        requests: side.requests,
        failures: side.failures,
        fallbacks: side.fallbacks,
        is_drained: side.is_drained,
    };
    SplitSnapshot {
        route: split.route,
        by: split.by,
        since: split.since,
        sides: split.sides.into_iter().map(side).collect(),
        comparisons: split.comparisons,
    }
}

fn mirror(mirror: MirrorView) -> MirrorSnapshot {
    MirrorSnapshot { route: mirror.route, cluster: mirror.cluster, active: mirror.active, requests: mirror.requests }
}

/// Whether a backend of the cluster is healthy.
fn is_served(cluster: &Cluster) -> bool {
    cluster.healthy() > 0
}

impl LiveSource for ProxyFleet {
    fn readiness(&self) -> Readiness {
        if !self.proxy.is_ready() {
            Readiness::NotReady("draining")
        } else if self.proxy.is_open() && self.has_started() {
            Readiness::Ready
        } else {
            Readiness::NotReady("starting")
        }
    }

    fn page(&self) -> &LivePage {
        &self.page
    }

    fn live(&self) -> LiveSnapshot {
        let batch = |listener: ListenerView| Some((listener.name, batch(listener.batch?)));
        LiveSnapshot {
            clusters: self.proxy.clusters().iter().map(|each| self.added_up(each, 0)).collect(),
            batch: self.proxy.listeners().into_iter().filter_map(batch).collect(),
            reloads_taken: self.proxy.reloads().taken(),
            reloads_refused: self.proxy.reloads().refused(),
        }
    }

    fn live_cluster(&self, name: &str, rows: usize) -> Option<LiveClusterSnapshot> {
        self.proxy.cluster(name).map(|cluster| self.added_up(&cluster, rows))
    }
}

impl Fleet for ProxyFleet {
    fn is_called(&self, name: &str) -> bool {
        let machine = rustix::system::uname();
        machine.nodename().to_bytes().eq_ignore_ascii_case(name.as_bytes()) || self.proxy.config().is_admin_host(name)
    }

    fn unserved(&self) -> Vec<Unserved> {
        let clusters = self.proxy.clusters();
        let unserved = clusters.iter().filter(|cluster| cluster.known() == 0);
        unserved.map(|cluster| Unserved::of(cluster.name(), &cluster.discovery())).collect()
    }

    fn snapshot(&self) -> FleetSnapshot {
        self.snapshot_with(|cluster, inbound| ClusterSnapshot { view: cluster.view(), inbound })
    }

    fn scrape(&self, metrics: BackendMetrics) -> FleetSnapshot<ClusterScrape> {
        self.snapshot_with(|cluster, inbound| {
            let mut backends = BackendFigures::new(metrics);
            let summary = cluster.view_in_parts(|part| backends.add(part));
            ClusterScrape { summary, backends, inbound }
        })
    }

    fn backend_metrics(&self) -> BackendMetrics {
        match self.proxy.config().backend_metrics() {
            plimsoll_proxy::config::BackendMetrics::All => BackendMetrics::All,
            plimsoll_proxy::config::BackendMetrics::Aggregate => BackendMetrics::Aggregate,
        }
    }

    fn explain(&self, wanted: &Wanted) -> Explained {
        let context = explain::Context::of(&self.proxy);
        explain::explained(&self.proxy.explanations(), wanted, &context)
    }

    fn tap(&self) -> Option<Box<dyn Tap>> {
        let tap = self.proxy.tap();
        tap.is_on().then(|| Box::new(explain::ProxyTap::new(&self.proxy, tap)) as _)
    }

    fn override_backend(&self, order: BackendOrder) -> Result<Obeyed, Refused> {
        let BackendOrder { cluster, backend, command, lasts, caller } = order;
        let order = OverrideOrder { cluster, backend, command, lasts, caller };
        match self.proxy.override_backend(&order) {
            Ok(OverrideDone { serving, is_persistent, error }) => Ok(Obeyed { serving, is_persistent, error }),
            Err(OverrideRefused::NoCluster) => Err(Refused::Missing(Missing::Cluster)),
            Err(OverrideRefused::NoBackend) => Err(Refused::Missing(Missing::Backend)),
            Err(OverrideRefused::TooMany) => Err(Refused::TooMany),
            Err(OverrideRefused::HandingOver) => Err(Refused::Declined(Declined {
                error: "a successor of this process starts, and would not learn of the change".to_owned(),
                help: "send it again: the successor answers within seconds".to_owned(),
            })),
        }
    }

    fn control(&self) -> Option<&dyn Control> {
        Some(self)
    }
}

impl Control for ProxyFleet {
    fn status(&self) -> ProcessView {
        self.controls.view(match self.readiness() {
            Readiness::Ready => "ready",
            Readiness::NotReady(reason) => reason,
        })
    }

    fn reload(&self) -> Pending<ReloadView> {
        self.controls.reload()
    }

    fn upgrade(&self) -> Pending<UpgradeView> {
        self.controls.upgrade()
    }

    fn drain(&self) {
        self.controls.drain();
    }
}

fn batch(view: BatchListenerView) -> BatchSnapshot {
    let BatchListenerView { gate: view, connections } = view;
    BatchSnapshot {
        connections,
        queued: view.queued.into(),
        active: view.active,
        credit: view.credit,
        max_active: view.max_active,
        utilization: view.utilization,
        requeued: view.counts.requeued,
        turned_away: vec![("full", view.counts.full), ("timeout", view.timed_out)],
    }
}

fn last_reload(reloads: &Reloads) -> LastReloadSnapshot {
    let (outcome, at) = reloads.last();
    LastReloadSnapshot { is_taken: outcome == ReloadOutcome::Taken, at }
}

fn certificates(config: &Config, listener: &str) -> Vec<(String, SystemTime)> {
    config.certificate_expiries(listener).iter().map(|each| (each.name.clone(), each.not_after)).collect()
}

fn etcd(view: EtcdView) -> EtcdSnapshot {
    let EtcdView { is_reachable, answers, failures, index, ledgers, .. } = view;
    EtcdSnapshot { is_reachable, answers, failures, index, ledgers }
}

fn traces(view: TracesView) -> TracesSnapshot {
    let TracesView { exported, dropped, limited } = view;
    TracesSnapshot { spans: [("exported", exported)].into_iter().chain(dropped).collect(), limited }
}

fn stale_answers(view: StaleView) -> StaleSnapshot {
    StaleSnapshot { entries: view.entries, bytes: view.bytes }
}

fn pressure(view: PressureView) -> PressureSnapshot {
    PressureSnapshot {
        level: view.level,
        max_memory_bytes: view.max_bytes,
        open_descriptors: view.open_descriptors,
        max_descriptors: view.max_descriptors,
    }
}

fn inbound(view: InboundView) -> InboundSnapshot {
    let InboundView { decisions, customers, cpus, capacity, speed, loads, dry_run, shedding } = view;
    InboundSnapshot { decisions, customers, cpus, capacity, speed, loads, dry_run, shedding }
}
