//! The proxy as the admin API wants to see it: copies what the proxy and its clusters know, computes nothing.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use plimsoll::client::{BackendView, Cluster, Latencies, LocalityView, NoRetryReason};
use plimsoll_admin::{
    AttemptCounts, BackendSnapshot, BatchSnapshot, ClusterSnapshot, Control, Explained, Fleet, FleetSnapshot,
    Histogram, InboundSnapshot, ListenerSnapshot, LocalitySnapshot, Missing, Pending, PressureSnapshot, ProcessView,
    Readiness, ReloadView, Reported, StaleSnapshot, Transition, UpgradeView, Wanted,
};
use plimsoll_core::health::State;
use plimsoll_core::{Criticality, Timestamp};
use plimsoll_proxy::{BatchListenerView, InboundView, PressureView, Proxy, StaleView};

use super::control::Controls;
use super::explain;

/// A running proxy.
pub(super) struct ProxyFleet {
    proxy: Arc<Proxy>,
    controls: Arc<Controls>,
    /// A backend has been healthy since the start.
    started: AtomicBool,
}

impl ProxyFleet {
    pub(super) fn new(proxy: Arc<Proxy>, controls: Arc<Controls>) -> Self {
        Self { proxy, controls, started: AtomicBool::new(false) }
    }

    /// Whether any backend has been healthy. It stays so when all fall ill later: a proxy that then took itself out of
    /// service, with all of its fellows, would turn a fault of the backends into one of the whole front.
    fn has_started(&self) -> bool {
        if !self.started.load(Ordering::Relaxed) {
            let healthy = self.proxy.clusters().iter().any(is_served);
            self.started.fetch_or(healthy, Ordering::Relaxed);
        }
        self.started.load(Ordering::Relaxed)
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

    fn switch(
        &self,
        cluster: &str,
        backend: SocketAddr,
        how: impl Fn(&Cluster, SocketAddr) -> bool,
    ) -> Result<(), Missing> {
        let cluster = self.proxy.cluster(cluster).ok_or(Missing::Cluster)?;
        how(&cluster, backend).then_some(()).ok_or(Missing::Backend)
    }
}

/// Whether a backend of the cluster is healthy.
fn is_served(cluster: &Cluster) -> bool {
    cluster.backends().iter().any(|view| view.snapshot.state == State::Healthy)
}

impl Fleet for ProxyFleet {
    fn is_called(&self, name: &str) -> bool {
        let machine = rustix::system::uname();
        machine.nodename().to_bytes().eq_ignore_ascii_case(name.as_bytes()) || self.proxy.config().is_admin_host(name)
    }

    fn readiness(&self) -> Readiness {
        if !self.proxy.is_ready() {
            Readiness::NotReady("draining")
        } else if self.has_started() {
            Readiness::Ready
        } else {
            Readiness::NotReady("starting")
        }
    }

    fn snapshot(&self) -> FleetSnapshot {
        FleetSnapshot {
            clusters: self.proxy.clusters().iter().map(|each| cluster(each, self.proxy.inbound(each.name()))).collect(),
            listeners: self
                .proxy
                .listeners()
                .into_iter()
                .map(|listener| ListenerSnapshot {
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
                })
                .collect(),
            reloads_taken: self.proxy.reloads().taken(),
            reloads_refused: self.proxy.reloads().refused(),
            access_log_dropped: self.proxy.access_log_dropped(),
            pressure: pressure(self.proxy.pressure()),
            stale_answers: stale_answers(self.proxy.stale_answers()),
        }
    }

    fn explain(&self, wanted: &Wanted) -> Explained {
        let localities = explain::Localities::of(&self.proxy.clusters());
        explain::explained(&self.proxy.explanations(), wanted, &localities)
    }

    fn drain(&self, cluster: &str, backend: SocketAddr) -> Result<(), Missing> {
        self.switch(cluster, backend, Cluster::drain)
    }

    fn undrain(&self, cluster: &str, backend: SocketAddr) -> Result<(), Missing> {
        self.switch(cluster, backend, Cluster::undrain)
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

fn cluster(cluster: &Cluster, inbound: Option<InboundView>) -> ClusterSnapshot {
    let now = cluster.now();
    let (counts, restraint) = (cluster.counts(), cluster.restraint());
    let localities: Vec<_> = cluster.localities().iter().map(locality).collect();
    ClusterSnapshot {
        name: cluster.name().to_owned(),
        policy: cluster.config().balancer.policy,
        backends: cluster.backends().iter().map(|view| backend(view, now)).collect(),
        known: cluster.known(),
        waiting: cluster.waiting(),
        no_room: match localities.is_empty() {
            true => Vec::new(),
            false => Criticality::ALL.into_iter().zip(counts.no_room).collect(),
        },
        localities,
        waited: counts.waited,
        saturated: counts.saturated,
        preempted: counts.preempted,
        no_backend: counts.no_backend,
        further_attempts: counts.further_attempts,
        replayed: counts.replayed,
        throttled: Criticality::ALL.into_iter().zip(counts.throttled).collect(),
        held: restraint.held.map(|(criticality, share)| (criticality, share.as_f64())).into(),
        given_up: NoRetryReason::ALL.into_iter().map(NoRetryReason::name).zip(counts.given_up).collect(),
        retries: counts.retries,
        hedges: counts.hedges.sent,
        hedges_won: counts.hedges.won,
        hedges_denied: counts.hedges.denied,
        retry_budget_used: restraint.budget_used.as_f64(),
        panics: counts.panics,
        latency: histogram(&counts.latency),
        transitions: counts.transitions.iter().map(|&(to, reason, count)| Transition { to, reason, count }).collect(),
        inbound: inbound.map(|InboundView { decisions, customers, cpus, capacity, loads, dry_run, shedding }| {
            InboundSnapshot { decisions, customers, cpus, capacity, loads, dry_run, shedding: Some(shedding) }
        }),
    }
}

fn locality(view: &LocalityView) -> LocalitySnapshot {
    let LocalityView { name, snapshot } = view;
    LocalitySnapshot {
        name: name.to_string(),
        backends: snapshot.locality.backends,
        healthy: snapshot.locality.healthy,
        utilization: snapshot.locality.utilization,
        room: snapshot.standing.room,
        rate: snapshot.standing.sent,
        is_drained: snapshot.standing.is_drained,
        requests: snapshot.requests,
    }
}

fn backend(view: &BackendView, now: Timestamp) -> BackendSnapshot {
    let BackendView { backend, locality, snapshot, counts } = view;
    BackendSnapshot {
        address: backend.address(),
        locality: locality.as_ref().map(ToString::to_string),
        state: snapshot.state,
        reason: snapshot.reason,
        since: now.since(snapshot.since),
        in_flight: snapshot.active,
        weight: snapshot.weight,
        latency: snapshot.latency,
        error_share: snapshot.error_share,
        report: snapshot.report.map(|(at, load)| Reported { age: now.since(at), load }),
        requests: snapshot.requests,
        failures: snapshot.failures,
        attempts: AttemptCounts {
            responses: counts.responses,
            cancelled: counts.cancelled,
            connect_failed: counts.connect_failed,
            broken: counts.broken,
            timed_out: counts.timed_out,
        },
        reports: counts.reports,
        malformed_reports: counts.malformed_reports,
        connections: counts.connections_open(),
        connections_opened: counts.connections_opened,
        connections_failed: counts.connections_failed,
    }
}

fn histogram(latencies: &Latencies) -> Histogram {
    let bounds = Latencies::BOUNDS.into_iter().chain([f64::INFINITY]);
    Histogram { buckets: bounds.zip(latencies.buckets).collect(), sum: latencies.sum, count: latencies.count }
}
