//! Requests to the API over a fleet that stands still.

use std::time::{Duration, UNIX_EPOCH};

use axum::body::Body;
use http_body_util::BodyExt as _;
use parking_lot::Mutex;
use plimsoll::address::Address;
use plimsoll::client::{
    Cluster, ClusterConfig, DiscoveryView, HedgeCounts, Latencies, LocalityView, OverrideView, ProbeDrops, ProbesView,
    SourceFailure,
};
use plimsoll::discover::{Census, Freshness, MergeCounts, OverrideChange};
use plimsoll::probe::{ResponderCounts, ResponderView};
use plimsoll_core::admit::Quota;
use plimsoll_core::canary::{Finding, MetricReport, Report, Verdict};
use plimsoll_core::health::{Reason, State as Health};
use plimsoll_core::pick::HashPicks;
use plimsoll_core::probe::Path;
use plimsoll_core::shedding::{Decision, KeyedName, SheddingReport, SheddingReportConfig, Summary};
use plimsoll_core::signal::{Loads, Signal};
use plimsoll_core::spill::{Locality, Standing};
use plimsoll_core::{
    BackendSnapshot, Criticality, LoadReport, LocalitySnapshot, ProbeCensus, ProbeCounts, ProbeSnapshot, Ratio,
    Rejection, Speed, Timestamp,
};
use serde_json::{Value, json};
use tower::ServiceExt as _;

use super::*;
use crate::discovery::Unserved;
use crate::explain::{Explained, Explanation, Marks, Remembered};
use crate::fleet::{Missing, Obeyed, Refused};
use crate::live::{LiveClusterSnapshot, LivePage, LiveSnapshot, LiveSource};
use crate::snapshot::{
    BatchSnapshot, EtcdSnapshot, FleetSnapshot, InboundSnapshot, LastReloadSnapshot, ListenerSnapshot,
    PressureSnapshot, StaleSnapshot, TracesSnapshot,
};
use crate::split::{SideSnapshot, SplitSnapshot};
use crate::tap::{Tap, Tapped};

/// A fleet of one cluster `web` with four backends: healthy and loaded, a lame duck, healthy and half as loaded,
/// and one that says nothing.
pub(crate) fn fleet() -> Still {
    let addresses = ["127.0.0.1:1", "127.0.0.1:2", "127.0.0.1:3", "[::1]:4"].map(|it| it.parse::<Address>().unwrap());
    let mut view = Cluster::new("web", ClusterConfig::default(), addresses).view();
    view.summary.at = Timestamp::from_nanos(100_000_000_000);
    let states = [
        (Health::Healthy, Reason::CheckPassed, 0.8),
        (Health::LameDuck, Reason::Reported, 0.1),
        (Health::Healthy, Reason::CheckPassed, 0.4),
        (Health::Refusing, Reason::ConnectFailed, 0.0),
    ];
    for (backend, (state, reason, utilization)) in view.backends.iter_mut().zip(states) {
        let speed = Speed::new(1.5);
        let load = LoadReport { cpu_utilization: utilization, qps: 100.0, eps: 2.0, speed, ..LoadReport::default() };
        backend.locality =
            Some(if backend.backend.address().inet().unwrap().is_ipv4() { "near" } else { "far" }.into());
        backend.snapshot = BackendSnapshot {
            state,
            reason,
            since: Timestamp::from_nanos(98_500_000_000),
            active: 3,
            weight: 0.5,
            latency: Some(Duration::from_millis(4)),
            error_share: 0.25,
            report: (utilization > 0.0).then_some((Timestamp::from_nanos(99_000_000_000), load)),
            requests: 100,
            failures: 9,
            probe: Some(ProbeSnapshot { path: Path::Works, is_inactive: true }),
            ..backend.snapshot
        };
        let counts = &mut backend.counts;
        counts.responses = [0, 90, 0, 1, 8];
        counts.cancelled = 32;
        counts.connect_failed = 33;
        counts.broken = 34;
        counts.timed_out = 1;
        counts.reports = 99;
        counts.malformed_reports = 1;
        counts.connections_opened = 5;
        counts.connections_closed = 3;
        counts.connections_failed = 1;
    }
    view.summary.probes = Some(ProbesView {
        census: ProbeCensus { unknown: 1, works: 2, silent: [1, 0, 0, 0, 0], inactive: 1 },
        counts: ProbeCounts { queries: 20, answers: 15, notices: 2, doubted: 3, refused: 4, woken: 5 },
        drops: ProbeDrops { invalid: 6, unauthentic: 7, unsent: 8 },
    });
    view.summary.discovery = DiscoveryView {
        kind: "file",
        source: "/etc/plimsoll/web.json".into(),
        freshness: Freshness::Fresh,
        is_failing: true,
        last_error: Some(SourceFailure { error: "no such file".into(), at: Timestamp::from_nanos(97_500_000_000) }),
        fixed_error: Some(SourceFailure { error: "SERVFAIL".into(), at: Timestamp::from_nanos(99_000_000_000) }),
        is_ready: true,
        answered: Some(Timestamp::from_nanos(60_000_000_000)),
        backends: Census { ready: 2, held: 1, draining: 1, starting: 3 },
        counts: MergeCounts {
            added: 40,
            changed: 41,
            removed: 42,
            drained: 43,
            expired: 44,
            held: 45,
            errors: 46,
            empty: 47,
        },
    };
    view.summary.waiting = 24;
    let counts = &mut view.summary.counts;
    counts.waited = 25;
    counts.saturated = 26;
    counts.preempted = 27;
    counts.no_backend = 28;
    counts.further_attempts = 29;
    counts.replayed = 30;
    counts.throttled = [10, 11, 12, 13];
    counts.no_room = [13, 14, 15, 16];
    counts.retries = vec![("overloaded", "answered", 14)];
    counts.hedges = HedgeCounts { sent: 17, won: 18, denied: 19 };
    counts.given_up = std::array::from_fn(|at| 8 + at as u64);
    counts.panics = 31;
    counts.transitions = vec![(Health::LameDuck, Reason::Reported, 1)];
    counts.latency = Latencies {
        buckets: [0, 0, 0, 80, 0, 0, 10, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1],
        sum: Duration::from_secs(1),
        count: 91,
    };
    for ((_, share), percent) in view.summary.restraint.held.iter_mut().zip([0, 25, 50, 75]) {
        *share = Ratio::from_percent(percent);
    }
    view.summary.restraint.budget_used = Ratio::ONE;
    let locality = |name: &str, locality, standing, requests| LocalityView {
        name: name.into(),
        snapshot: LocalitySnapshot { locality, standing, requests },
    };
    view.summary.hash_picks = Some(HashPicks { unkeyed: 31, first: 32, moved: 33, overflow: 34 });
    view.summary.localities = vec![
        locality(
            "near",
            Locality { backends: 3, healthy: 2, utilization: Some(0.75) },
            Standing { room: Some(30.0), sent: 29.5, is_drained: false },
            60,
        ),
        locality(
            "far",
            Locality { backends: 1, healthy: 0, utilization: None },
            Standing { room: None, sent: 0.0, is_drained: true },
            0,
        ),
    ];
    let cluster = ClusterSnapshot {
        view,
        inbound: Some(InboundSnapshot {
            decisions: vec![(Criticality::Critical, "admitted", 12), (Criticality::Sheddable, "overloaded", 4)],
            customers: vec![("O\"Neil".into(), "quota", 22), ("other".into(), "admitted", 23)],
            cpus: Some(1.5),
            capacity: 2.0,
            speed: Speed::new(1.25).map(Into::into),
            loads: Loads {
                by_signal: [Some(0.75), Some(0.5), Some(1.25), None, None, None],
                binding: Some(Signal::Memory),
            },
            dry_run: false,
            shedding: Summary { enough: Some(1.5), ..throttled() },
        }),
    };
    let listener = ListenerSnapshot {
        name: "public".to_owned(),
        connections: 4,
        accepted: 40,
        waited: 6,
        turned_away: vec![("memory", 3)],
        failed_handshakes: vec![("tls", 2)],
        tls_handshakes: vec![("full", 30), ("resumed", 8)],
        waiting_handshakes: 12,
        certificates: vec![("a.example".to_owned(), UNIX_EPOCH + Duration::from_secs(1_800_000_000))],
        handshake_time: Duration::from_millis(1_500),
        ended: vec![("resets", 1)],
        stalled_streams: 5,
        refusals: vec![("no-route", 7)],
        degraded: vec![("stale", "overloaded", 9)],
        probes: Some(ResponderView {
            responder: ResponderCounts {
                answers: 101,
                dropped_source: 102,
                dropped_total: 103,
                leases_refused: 104,
                notices: 105,
                resends: 106,
                acknowledged: 107,
                abandoned: 108,
            },
            invalid: 109,
            unauthentic: 110,
            unsent: 111,
            leases: 112,
        }),
        batch: Some(BatchSnapshot {
            queued: vec![(Criticality::SheddablePlus, 17), (Criticality::Sheddable, 18)],
            active: 3,
            credit: 3.5,
            max_active: 16,
            connections: 5,
            utilization: Some(0.625),
            requeued: 19,
            turned_away: vec![("full", 20), ("timeout", 21)],
        }),
    };
    let snapshot = FleetSnapshot {
        clusters: vec![cluster],
        listeners: vec![listener],
        splits: vec![split()],
        mirrors: vec![MirrorSnapshot {
            route: "/search".to_owned(),
            cluster: "shadow".to_owned(),
            active: 2,
            requests: vec![("answered", 51), ("busy", 52)],
        }],
        last_reload: Some(LastReloadSnapshot {
            is_taken: false,
            at: UNIX_EPOCH + Duration::from_millis(1_700_000_000_500),
        }),
        access_log_dropped: 6,
        request_limits: vec![("acme".into(), "rate-limit", 24), ("other".into(), "admitted", 25)],
        etcd: Some(EtcdSnapshot {
            is_reachable: false,
            answers: 31,
            failures: 32,
            index: Some(3),
            ledgers: vec![("search".to_owned(), true)],
        }),
        traces: TracesSnapshot { spans: vec![("exported", 40), ("queue-full", 2)], limited: 3 },
        stale_answers: StaleSnapshot { entries: 11, bytes: 1_200 },
        pressure: PressureSnapshot {
            level: 1,
            max_memory_bytes: Some(1 << 30),
            open_descriptors: Some(70),
            max_descriptors: Some(1024),
        },
        ..FleetSnapshot::default()
    };
    Still {
        snapshot: Mutex::new(snapshot),
        readiness: Readiness::Ready,
        outside_subset: None,
        orders: Mutex::default(),
        obeyed: Obeyed { serving: 4, is_persistent: true, error: None },
        refusal: None,
        page: LivePage::default(),
        tapped: Arc::default(),
    }
}

/// A canary that needs more CPU.
fn split() -> SplitSnapshot {
    let side = |cluster: &str, weight, share, requests| SideSnapshot {
        cluster: cluster.to_owned(),
        weight,
        share,
        requests,
        failures: 4,
        fallbacks: 5,
        is_drained: false,
    };
    let metric = |main, canary, [difference, low, high]: [f64; 3], finding| MetricReport {
        main,
        canary,
        difference,
        low,
        high,
        finding,
    };
    let report = Report {
        since: Timestamp::ZERO,
        requests: [95_000, 5_000],
        failures: [95, 6],
        metrics: [
            metric(0.002, 0.0022, [0.1, 0.05, 0.15], Finding::Worse),
            metric(0.001, 0.0012, [0.0002, -0.002, 0.003], Finding::NoDifference),
            metric(0.01, 0.0101, [0.01, -0.05, 0.06], Finding::NoDifference),
            metric(0.1, 0.12, [0.2, -0.1, f64::INFINITY], Finding::Undecided { needed: 3_000 }),
        ],
        verdict: Verdict::Worse,
        reached_at: Some(80_000),
        needed: None,
    };
    SplitSnapshot {
        route: "/search".to_owned(),
        by: Some("cookie:session".to_owned()),
        since: UNIX_EPOCH + Duration::from_secs(1_700_000_000),
        sides: vec![side("web", 95.0, 0.95, 96_000), side("web-canary", 5.0, 0.05, 5_100)],
        comparisons: vec![report],
    }
}

#[tokio::test]
async fn splits_have_the_verdict_and_each_metric() {
    let body = get_json("/api/v1/splits").await;
    let comparison = &body["splits"][0]["comparisons"][0];
    assert_eq!(comparison["verdict"], json!("worse"));
    assert_eq!((&comparison["main"], &comparison["canary"]), (&json!("web"), &json!("web-canary")));
    let p99 = &comparison["metrics"][3];
    assert_eq!(
        (&p99["finding"], &p99["high"], &p99["needed_requests"]),
        (&json!("undecided"), &json!(null), &json!(3000))
    );
    assert_eq!(body["mirrors"][0]["requests"], json!({ "answered": 51, "busy": 52 }));
}

/// Half a minute in which four requests a second of half a CPU-second come, of which each fourth is turned away.
fn throttled() -> Summary {
    let second = |second: u64| Timestamp::from_nanos(second * 1_000_000_000);
    let mut shedding = SheddingReport::new(second(0), SheddingReportConfig::default());
    for n in 0..120 {
        let decision = Decision {
            criticality: Criticality::Sheddable,
            cost: 0.5,
            is_retry: n % 8 == 0,
            shed: (n % 4 == 0).then_some(Rejection::Overloaded),
            is_expired: false,
            customer: KeyedName { key: n % 2, name: &["ann", "bob"][(n % 2) as usize] },
            quota: Quota::hard(0.75).unwrap(),
            route: KeyedName { key: 1, name: &"GET /search" },
            capacity: 2.0,
        };
        shedding.on_decision(second(n / 4), &decision);
    }
    shedding.summary(second(30))
}

/// A fleet in which nothing happens but what is asked for.
pub(crate) struct Still {
    pub(crate) snapshot: Mutex<FleetSnapshot>,
    pub(crate) readiness: Readiness,
    /// A backend that its one cluster knows and is not connected to.
    pub(crate) outside_subset: Option<Address>,
    /// The orders that it obeyed. It shows the effect of drains only.
    pub(crate) orders: Mutex<Vec<BackendOrder>>,
    pub(crate) obeyed: Obeyed,
    pub(crate) refusal: Option<Refused>,
    pub(crate) page: LivePage,
    /// Requests that a tap has yet to tell.
    pub(crate) tapped: Arc<Mutex<Vec<Explanation>>>,
}

impl Still {
    fn set(&self, cluster: &str, address: Address, state: Health, reason: Reason) -> Result<(), Missing> {
        let mut snapshot = self.snapshot.lock();
        let cluster =
            snapshot.clusters.iter_mut().find(|known| *known.view.summary.name == *cluster).ok_or(Missing::Cluster)?;
        if self.outside_subset == Some(address) {
            return Ok(());
        }
        let backend = cluster
            .view
            .backends
            .iter_mut()
            .find(|known| known.backend.address() == address)
            .ok_or(Missing::Backend)?;
        (backend.snapshot.state, backend.snapshot.reason) = (state, reason);
        Ok(())
    }
}

struct StillTap(Arc<Mutex<Vec<Explanation>>>);

impl Tap for StillTap {
    fn look(&mut self, wanted: &Wanted) -> Tapped {
        let mut requests = std::mem::take(&mut *self.0.lock());
        requests.retain(|request| {
            let reasons = [request.reason, None, None];
            wanted.includes(&Marks { id: &request.id, outcome: request.outcome, reasons, ..Marks::default() })
        });
        let left_out = requests.len().saturating_sub(wanted.most());
        Tapped { requests: requests.split_off(left_out), left_out: left_out as u64, missed: 0 }
    }
}

impl LiveSource for Still {
    fn readiness(&self) -> Readiness {
        self.readiness
    }

    fn page(&self) -> &LivePage {
        &self.page
    }

    fn live(&self) -> LiveSnapshot {
        let snapshot = self.snapshot();
        let batch = |listener: ListenerSnapshot| Some((listener.name, listener.batch?));
        LiveSnapshot {
            clusters: snapshot.clusters.iter().map(|cluster| added_up(cluster, 0)).collect(),
            batch: snapshot.listeners.into_iter().filter_map(batch).collect(),
            reloads_taken: snapshot.reloads_taken,
            reloads_refused: snapshot.reloads_refused,
        }
    }

    fn live_cluster(&self, name: &str, rows: usize) -> Option<LiveClusterSnapshot> {
        let snapshot = self.snapshot();
        let cluster = snapshot.clusters.iter().find(|cluster| *cluster.view.summary.name == *name)?;
        Some(added_up(cluster, rows))
    }
}

impl Fleet for Still {
    fn is_called(&self, name: &str) -> bool {
        name == "proxy.internal"
    }

    fn unserved(&self) -> Vec<Unserved> {
        let clusters = self.snapshot.lock().clusters.clone();
        let unserved = clusters.iter().map(|cluster| &cluster.view.summary).filter(|cluster| cluster.known == 0);
        unserved.map(|cluster| Unserved::of(&cluster.name, &cluster.discovery)).collect()
    }

    fn snapshot(&self) -> FleetSnapshot {
        self.snapshot.lock().clone()
    }

    fn explain(&self, wanted: &Wanted) -> Explained {
        let refused = |id: &str, reason| Explanation {
            id: id.to_owned(),
            outcome: "refused",
            status: Some(503),
            reason: Some(reason),
            ..Explanation::default()
        };
        let mut requests = vec![refused("3", "overloaded"), refused("2", "no-route"), refused("1", "overloaded")];
        requests.retain(|request| {
            wanted.includes(&Marks {
                id: &request.id,
                outcome: request.outcome,
                reasons: [request.reason, None, None],
                ..Marks::default()
            })
        });
        requests.truncate(wanted.most());
        let remembered = [("refused", 3, Some(7.4)), ("failed", 0, None)];
        let remembered =
            remembered.map(|(outcome, requests, reaches_back_s)| Remembered { outcome, requests, reaches_back_s });
        Explained { requests, remembered: remembered.to_vec() }
    }

    fn tap(&self) -> Option<Box<dyn Tap>> {
        Some(Box::new(StillTap(Arc::clone(&self.tapped))))
    }

    fn override_backend(&self, order: BackendOrder) -> Result<Obeyed, Refused> {
        if let Some(refusal) = &self.refusal {
            return Err(refusal.clone());
        }
        let (state, reason) = match order.command {
            OverrideCommand::Patch { is_drained: Some(false), .. } => (Health::Connecting, Reason::Undrained),
            _ => (Health::LameDuck, Reason::Drained),
        };
        let is_put = matches!(order.command, OverrideCommand::Put(_));
        match self.set(&order.cluster, order.backend, state, reason) {
            Err(Missing::Backend) if is_put => {}
            outcome => outcome.map_err(Refused::Missing)?,
        }
        self.orders.lock().push(order);
        Ok(self.obeyed.clone())
    }
}

/// The cluster as its overview would be. It has the backends of the view as rows, and no distribution: that
/// is computed from a balancer.
fn added_up(cluster: &ClusterSnapshot, rows: usize) -> LiveClusterSnapshot {
    let view = &cluster.view;
    let addresses = view.backends.iter().map(|backend| backend.backend.address());
    let mut overview = Cluster::new(&view.summary.name, ClusterConfig::default(), addresses).overview(0);
    overview.at = view.summary.at;
    overview.counts = view.summary.counts.clone();
    overview.restraint = view.summary.restraint;
    overview.waiting = view.summary.waiting;
    overview.rows = view.backends.iter().take(rows).cloned().collect();
    LiveClusterSnapshot { overview, inbound: cluster.inbound.clone() }
}

struct Answer {
    status: u16,
    allow: Option<String>,
    content_type: String,
    text: String,
}

impl Answer {
    fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_else(|error| panic!("{error}: {}", self.text))
    }
}

async fn send(fleet: &Arc<dyn Fleet>, method: &str, path: &str, headers: &[(&str, &str)]) -> Answer {
    let mut request = Request::builder().method(method).uri(path);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let response = router(Arc::clone(fleet)).oneshot(request.body(Body::empty()).unwrap()).await.unwrap();
    let header = |name: &str| response.headers().get(name).map(|value| value.to_str().unwrap().to_owned());
    let (status, allow, content_type) =
        (response.status().as_u16(), header("allow"), header("content-type").unwrap_or_default());
    let mut body = response.into_body();
    // A stream has no end: its first part is enough.
    let body = match content_type.as_str() {
        "text/event-stream" => body.frame().await.unwrap().unwrap().into_data().unwrap(),
        _ => body.collect().await.unwrap().to_bytes(),
    };
    Answer { status, allow, content_type, text: String::from_utf8(body.to_vec()).unwrap() }
}

async fn get_json(path: &str) -> Value {
    let fleet: Arc<dyn Fleet> = Arc::new(fleet());
    let answer = send(&fleet, "GET", path, &[]).await;
    assert_eq!(answer.status, 200, "{}", answer.text);
    answer.json()
}

#[tokio::test]
async fn backends_are_filtered_sorted_and_cut() {
    let addresses = async |query: &str| {
        let answer = get_json(&format!("/api/v1/clusters/web/backends{query}")).await;
        let backends = answer["backends"].as_array().unwrap().iter();
        let addresses: Vec<String> = backends.map(|each| each["address"].as_str().unwrap().to_owned()).collect();
        (answer["matching"].as_u64().unwrap(), addresses.join(" "))
    };
    let all = "127.0.0.1:1 127.0.0.1:2 127.0.0.1:3 [::1]:4";
    assert_eq!(addresses("").await, (4, all.to_owned()));
    assert_eq!(addresses("?state=unhealthy").await, (2, "127.0.0.1:2 [::1]:4".to_owned()));
    assert_eq!(addresses("?state=lame-duck").await, (1, "127.0.0.1:2".to_owned()));
    let sorted = "127.0.0.1:1 127.0.0.1:3 127.0.0.1:2 [::1]:4";
    assert_eq!(addresses("?sort=utilization").await, (4, sorted.to_owned()), "the unknown one last");
    assert_eq!(addresses("?sort=utilization&limit=1&offset=1").await, (4, "127.0.0.1:3".to_owned()));
    let fleet: Arc<dyn Fleet> = Arc::new(fleet());
    for query in ["?state=well", "?sort=colour", "?limit=-1", "?limt=3"] {
        let answer = send(&fleet, "GET", &format!("/api/v1/clusters/web/backends{query}"), &[]).await;
        assert_eq!(answer.status, 400, "{query}");
        assert!(answer.text.contains("limit=20"), "{}", answer.text);
    }
}

#[tokio::test]
async fn a_cluster_shows_its_states_and_the_spread_of_its_healthy_backends() {
    let clusters = get_json("/api/v1/clusters").await;
    let cluster = get_json("/api/v1/clusters/web").await;
    assert_eq!(clusters, json!({ "clusters": [cluster] }));
    assert_eq!(
        cluster["backends"],
        json!({ "total": 4, "connecting": 0, "healthy": 2, "lame-duck": 1, "refusing": 1, "ejected": 0 })
    );
    assert_eq!(cluster["policy"], "weighted");
    // Of 0.8 and 0.4: the lame duck and the one that refuses do not count.
    let near = |got: &serde_json::Value, want: f64| (got.as_f64().unwrap() - want).abs() < 1e-9;
    let spread = &cluster["spread"];
    assert!(near(&spread["max_over_mean"], 0.8 / 0.6) && near(&spread["max_over_min"], 2.0), "{spread}");
    assert!(near(&cluster["waste"], 0.4), "{}", cluster["waste"]);
}

#[tokio::test]
async fn cluster_shows_its_source_with_changes_by_hand_apart() {
    let still = fleet();
    let backend: Address = "127.0.0.1:9".parse().unwrap();
    let by_hand = |change| OverrideView { address: backend, change, remaining: None };
    still.snapshot.lock().clusters[0].view.summary.overrides =
        vec![by_hand(OverrideChange::Added(backend.into())), by_hand(OverrideChange::Drained)];
    let fleet: Arc<dyn Fleet> = Arc::new(still);
    let cluster = send(&fleet, "GET", "/api/v1/clusters/web", &[]).await.json();
    let discovery = json!({
        "kind": "file", "source": "/etc/plimsoll/web.json", "state": "failing", "stale": false, "answer_age_s": 40.0,
        "last_error": { "error": "no such file", "age_s": 2.5 },
        "static_error": { "error": "SERVFAIL", "age_s": 1.0 },
        "backends": { "known": 7, "ready": 2, "held": 1, "draining": 1, "starting": 3 },
        "changes": { "added": 40, "changed": 41, "removed": 42, "drained": 43, "held": 45, "expired": 44 },
        "errors": 46, "empty_lists": 47, "overrides": { "added": 1, "removed": 0, "weight": 0, "drained": 1 }
    });
    assert_eq!(cluster["discovery"], discovery);
}

#[tokio::test]
async fn a_cluster_shows_its_localities_nearest_first() {
    let cluster = get_json("/api/v1/clusters/web").await;
    let far = json!({
        "name": "far", "backends": 1, "healthy": 0, "utilization": null, "room_qps": null, "sent_qps": 0.0, "drained": true,
        "requests": 0
    });
    let near = json!({
        "name": "near", "backends": 3, "healthy": 2, "utilization": 0.75, "room_qps": 30.0, "sent_qps": 29.5,
        "drained": false, "requests": 60
    });
    assert_eq!(cluster["localities"], json!([near, far]));
}

#[tokio::test]
async fn backends_show_state_load_and_counts() {
    let answer = get_json("/api/v1/clusters/web/backends").await;
    assert_eq!(answer["cluster"], "web");
    assert_eq!(
        answer["backends"][0],
        json!({
            "address": "127.0.0.1:1", "locality": "near", "state": "healthy", "reason": "check-passed", "since_s": 1.5, "in_flight": 3,
            "weight": 0.5, "qps": 100.0, "eps": 2.0, "utilization": 0.8, "report_age_s": 1.0, "speed": 1.5,
            "latency_ms": 4.0, "error_share": 0.25, "requests": 100, "failures": 9, "connections": 2,
            "probe": {"path": "works", "inactive": true}, "overrides": []
        })
    );
    assert_eq!(answer["backends"][3]["qps"], Value::Null, "what a backend does not report is not zero");
}

#[tokio::test]
async fn drain_and_undrain_answer_with_the_backend_as_it_is_then() {
    let fleet: Arc<dyn Fleet> = Arc::new(fleet());
    for (address, shown) in [("127.0.0.1:1", "127.0.0.1:1"), ("[::1]:4", "[::1]:4"), ("%5B::1%5D:4", "[::1]:4")] {
        let path = format!("/api/v1/clusters/web/backends/{address}/drain");
        let answer = send(&fleet, "POST", &path, &[]).await;
        assert_eq!((answer.status, &answer.json()["address"]), (200, &json!(shown)), "{}", answer.text);
        assert_eq!((&answer.json()["state"], &answer.json()["reason"]), (&json!("lame-duck"), &json!("drained")));
    }
    let answer = send(&fleet, "POST", "/api/v1/clusters/web/backends/127.0.0.1:1/undrain", &[]).await;
    assert_eq!(answer.json()["reason"], "undrained");
}

#[tokio::test]
async fn a_backend_outside_the_subset_is_drained_and_the_answer_says_that_it_is_outside() {
    let mut still = Still { outside_subset: Some("127.0.0.1:5".parse().unwrap()), ..fleet() };
    still.snapshot.get_mut().clusters[0].view.summary.known = 5;
    let fleet: Arc<dyn Fleet> = Arc::new(still);
    for (deed, reason, follows) in
        [("drain", "drained", "and none if it joins"), ("undrain", "undrained", "but requests if it joins")]
    {
        let path = format!("/api/v1/clusters/web/backends/127.0.0.1:5/{deed}");
        let answer = send(&fleet, "POST", &path, &[]).await;
        assert_eq!(answer.status, 200, "{}", answer.text);
        let json = answer.json();
        let said = [&json["address"], &json["state"], &json["reason"]];
        assert_eq!(said, [&json!("127.0.0.1:5"), &json!("outside-subset"), &json!(reason)]);
        assert!(json["meaning"].as_str().unwrap().contains(follows), "{json}");
    }
    assert_eq!(send(&fleet, "POST", "/api/v1/clusters/web/backends/127.0.0.1:9/drain", &[]).await.status, 404);
}

#[tokio::test]
async fn what_is_not_there_is_404_and_says_what_is() {
    let fleet: Arc<dyn Fleet> = Arc::new(fleet());
    for (method, path, help) in [
        ("GET", "/api/v1/clusters/wbe", "use one of: web"),
        ("GET", "/api/v1/clusters/wbe/backends", "use one of: web"),
        ("POST", "/api/v1/clusters/wbe/backends/127.0.0.1:1/drain", "use one of: web"),
        ("POST", "/api/v1/clusters/web/backends/127.0.0.1:9/drain", "use one of: 127.0.0.1:1, "),
        ("POST", "/api/v1/clusters/web/backends/nonsense/undrain", "use one of: 127.0.0.1:1, "),
        ("GET", "/api/v1/explain/9", "remembered: 3 refused (back to 7 s ago); "),
        ("GET", "/nowhere", "GET / lists all pages"),
    ] {
        let answer = send(&fleet, method, path, &[]).await;
        assert_eq!((answer.status, answer.content_type.as_str()), (404, "application/json"), "{path}");
        let json = answer.json();
        assert!(json["error"].is_string() && json["help"].as_str().unwrap().starts_with(help), "{path}: {json}");
        assert_eq!(json["help"], json["mend"], "its earlier name");
    }
}

#[tokio::test]
async fn shedding_report_has_its_verdict_and_enough_cpus() {
    let fleet: Arc<dyn Fleet> = Arc::new(fleet());
    let json = send(&fleet, "GET", "/api/v1/throttling", &[]).await.json();
    let cluster = &json["clusters"][0];
    assert_eq!((&cluster["cluster"], &cluster["verdict"]), (&json!("web"), &json!("as-intended")), "{json}");
    assert!(cluster["meaning"].as_str().unwrap().starts_with("working as intended: "));
    assert_eq!(cluster["binding_signal"], json!("memory"));
    assert_eq!(cluster["signals"], json!({ "cpu": 0.75, "load-average": 0.5, "memory": 1.25 }));
    assert_eq!((&cluster["throttled_for_s"], &cluster["capacity_cpus"]), (&json!(30.0), &json!(2.0)));
    let minute = &cluster["windows"][0]["by_criticality"]["sheddable"];
    assert_eq!(minute["offered"], json!({ "requests": 120, "qps": 4.0, "cpus": 2.0 }));
    assert_eq!((&minute["shed"]["overloaded"]["qps"], &minute["retried"]["requests"]), (&json!(1.0), &json!(15)));
    assert_eq!(cluster["windows"][0]["user_visible_share"], 0.0);
    assert_eq!(cluster["enough_cpus"], 1.5);
    assert_eq!(
        (&cluster["customers"][0]["name"], &cluster["routes"][0]["name"]),
        (&json!("ann"), &json!("GET /search"))
    );
}

/// Eleven seconds after a calm hour, at three times the capacity of two CPUs.
fn incident() -> Summary {
    let second = |second: u64| Timestamp::from_nanos(second * 1_000_000_000);
    let mut shedding = SheddingReport::new(second(0), SheddingReportConfig::default());
    for n in 0..3_600 + 11 * 12 {
        let incident = n >= 3_600;
        let at = if incident { 3_600 + (n - 3_600) / 12 } else { n };
        let decision = Decision {
            criticality: Criticality::Critical,
            cost: 0.5,
            is_retry: false,
            shed: (incident && n % 3 > 0).then_some(Rejection::Overloaded),
            is_expired: false,
            customer: KeyedName { key: 1, name: &"ann" },
            quota: Quota::hard(0.75).unwrap(),
            route: KeyedName { key: 1, name: &"GET /search" },
            capacity: 2.0,
        };
        shedding.on_decision(second(at), &decision);
    }
    shedding.summary(second(3_611))
}

#[tokio::test]
async fn enough_cpus_is_null_and_its_metric_absent_early_in_an_incident() {
    let still = fleet();
    still.snapshot.lock().clusters[0].inbound.as_mut().unwrap().shedding = incident();
    let fleet: Arc<dyn Fleet> = Arc::new(still);
    let json = send(&fleet, "GET", "/api/v1/throttling", &[]).await.json();
    let cluster = &json["clusters"][0];
    assert_eq!((&cluster["verdict"], &cluster["enough_cpus"]), (&json!("users-affected"), &Value::Null));
    let meaning = cluster["meaning"].as_str().unwrap();
    assert!(meaning.ends_with("; how many CPUs would have been enough is not known yet"), "{meaning}");
    let metrics = send(&fleet, "GET", "/metrics", &[]).await.text;
    assert!(metrics.contains("plimsoll_inbound_capacity_cpus{") && !metrics.contains("plimsoll_inbound_enough_cpus{"));
}

#[tokio::test]
async fn customers_are_reported_with_reasons_limits_and_use() {
    let json = get_json("/api/v1/throttling").await;
    let cluster = &json["clusters"][0];
    let [ann, bob] = [&cluster["customers"][0], &cluster["customers"][1]];
    let near = |value: &Value, is: f64| (value.as_f64().unwrap() / is - 1.0).abs() < 0.05;
    // Each asks for two requests a second of half a CPU-second; one of ann's two is shed.
    assert_eq!(
        (&ann["name"], &ann["hard_limit_cpus"], &ann["soft_limit_cpus"]),
        (&json!("ann"), &json!(0.75), &json!(0.75))
    );
    assert!(near(&ann["cpus"], 1.0) && near(&ann["used_cpus"], 0.5) && near(&ann["shed"]["overloaded"], 1.0), "{ann}");
    assert_eq!((&bob["name"], &bob["shed"]), (&json!("bob"), &json!({})));
    assert!(cluster["routes"][0].get("hard_limit_cpus").is_none(), "{cluster}");
}

#[tokio::test]
async fn a_shedding_report_has_one_window_unless_all_are_asked_for() {
    let windows = async |query: &str| {
        let json = get_json(&format!("/api/v1/throttling{query}")).await;
        let windows = json["clusters"][0]["windows"].as_array().unwrap().clone();
        windows.iter().map(|window| window["of_s"].as_u64().unwrap()).collect::<Vec<_>>()
    };
    assert_eq!(windows("").await, [60]);
    for (query, shown) in [("1m", vec![60]), ("10m", vec![600]), ("1h", vec![3_600]), ("all", vec![60, 600, 3_600])] {
        assert_eq!(windows(&format!("?window={query}")).await, shown, "{query}");
    }
    let fleet: Arc<dyn Fleet> = Arc::new(fleet());
    for query in ["?window=2m", "?windows=1m"] {
        let answer = send(&fleet, "GET", &format!("/api/v1/throttling{query}"), &[]).await;
        assert_eq!(answer.status, 400, "{query}");
        assert!(answer.json()["help"].as_str().unwrap().contains("?window=1m, 10m, 1h or all"), "{}", answer.text);
    }
}

#[tokio::test]
async fn numbers_of_a_shedding_report_have_three_digits() {
    let still = fleet();
    still.snapshot.lock().clusters[0].inbound.as_mut().unwrap().cpus = Some(0.123_456_789);
    let fleet: Arc<dyn Fleet> = Arc::new(still);
    let text = send(&fleet, "GET", "/api/v1/throttling?window=all", &[]).await.text;
    assert!(text.contains("\"used_cpus\": 0.123,"), "{text}");
    for number in text.split(|c: char| !(c.is_ascii_digit() || c == '.')).filter(|number| number.contains('.')) {
        let digits = number.trim_start_matches(['0', '.']).replace('.', "");
        assert!(digits.trim_end_matches('0').len() <= 3 || number.ends_with(".0"), "{number} in {text}");
    }
}

#[tokio::test]
async fn the_index_lists_every_page_as_text_and_as_json() {
    let fleet: Arc<dyn Fleet> = Arc::new(fleet());
    let text = send(&fleet, "GET", "/", &[("accept", "*/*")]).await;
    assert_eq!((text.status, text.content_type.as_str()), (200, "text/plain; charset=utf-8"));
    for page in &PAGES {
        assert!(text.text.lines().any(|line| line.contains(&format!(" {} ", page.path()))), "{}", text.text);
    }
    assert!(text.text.lines().all(|line| line.len() <= 140) && text.text.ends_with('\n'), "{}", text.text);
    let browser = send(&fleet, "GET", "/", &[("accept", "text/html,application/xhtml+xml;q=0.9,*/*;q=0.8")]).await;
    assert_eq!(browser.status, 307, "to the live page");
    let json = send(&fleet, "GET", "/", &[("accept", "application/json")]).await.json();
    let pages = json["pages"].as_array().unwrap();
    assert_eq!(pages.len(), PAGES.len());
    for page in pages {
        let path = page["path"].as_str().unwrap().replace("{name}", "web").replace("{address}", "127.0.0.1:1");
        let path = path.replace("{id}", "1");
        let method = page["method"].as_str().unwrap();
        let answer = send(&fleet, method, &path, &[]).await;
        // This fleet is no process that takes commands, and this client is a stranger.
        let is_command = path.starts_with("/api/v1/process") || ["PUT", "PATCH", "DELETE"].contains(&method);
        assert!(answer.status == 200 || is_command && answer.status < 405, "{page}: {}", answer.text);
        assert!(!page["summary"].as_str().unwrap().is_empty());
    }
}

#[tokio::test]
async fn json_ends_with_a_newline_and_is_indented_for_people() {
    let fleet: Arc<dyn Fleet> = Arc::new(fleet());
    for path in [
        "/api/v1/clusters",
        "/api/v1/clusters/web",
        "/api/v1/clusters/web/backends",
        "/api/v1/batch",
        "/api/v1/throttling",
        "/api/v1/explain",
        "/api/v1/explain/1",
        "/nowhere",
    ] {
        let people = send(&fleet, "GET", path, &[("accept", "*/*")]).await;
        assert!(people.text.ends_with("}\n") && people.text.lines().count() > 2, "{path}: {}", people.text);
        let program = send(&fleet, "GET", path, &[("accept", "application/json")]).await;
        assert_eq!(program.json(), people.json(), "{path}");
        let lines = if people.status == 200 { 1 } else { people.text.lines().count() };
        assert!(program.text.ends_with("}\n") && program.text.lines().count() == lines, "{path}: {}", program.text);
    }
}

#[tokio::test]
async fn requests_are_explained_by_id_or_by_what_they_have_in_common() {
    let fleet: Arc<dyn Fleet> = Arc::new(fleet());
    let ids = |query: &'static str| {
        let fleet = Arc::clone(&fleet);
        async move {
            let json = send(&fleet, "GET", &format!("/api/v1/explain{query}"), &[]).await.json();
            let requests = json["requests"].as_array().unwrap_or_else(|| panic!("{json}")).clone();
            requests.iter().map(|request| request["id"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
        }
    };
    assert_eq!(ids("").await, ["3", "2", "1"]);
    assert_eq!(ids("?reason=overloaded").await, ["3", "1"]);
    assert_eq!(ids("?last=1").await, ["3"]);
    assert_eq!(ids("/2").await, ["2"]);
    for query in ["?reasons=overloaded", "?last=many"] {
        let answer = send(&fleet, "GET", &format!("/api/v1/explain{query}"), &[]).await;
        assert_eq!(answer.status, 400, "{query}");
        assert!(answer.json()["mend"].as_str().unwrap().starts_with("filter by outcome"));
    }
    assert_eq!(ids("?last=1000").await, ["3", "2", "1"]);
    let answer = send(&fleet, "GET", "/api/v1/explain?last=1001", &[]).await;
    assert_eq!(answer.status, 400);
    assert!(answer.json()["error"].as_str().unwrap().ends_with("is above the limit of 1000"), "{}", answer.text);
}

#[tokio::test]
async fn a_wrong_method_is_405_and_says_which_are_right() {
    let fleet: Arc<dyn Fleet> = Arc::new(fleet());
    for (method, path, allow) in [
        ("POST", "/api/v1/clusters", "GET"),
        ("GET", "/api/v1/clusters/web/backends/127.0.0.1:1/drain", "POST"),
        ("DELETE", "/metrics", "GET"),
    ] {
        let answer = send(&fleet, method, path, &[]).await;
        assert_eq!(answer.status, 405, "{path}");
        assert!(answer.allow.as_deref().is_some_and(|methods| methods.contains(allow)), "{path}: {:?}", answer.allow);
        assert!(answer.json()["help"].is_string());
    }
}

#[tokio::test]
async fn a_page_of_another_origin_cannot_drain() {
    let fleet: Arc<dyn Fleet> = Arc::new(fleet());
    let path = "/api/v1/clusters/web/backends/127.0.0.1:1/drain";
    let host = ("host", "127.0.0.1:9900");
    let foreign = send(&fleet, "POST", path, &[host, ("origin", "https://evil.example")]).await;
    assert_eq!(foreign.status, 403);
    assert_eq!(send(&fleet, "POST", path, &[host, ("origin", "null")]).await.status, 403);
    for site in ["cross-site", "same-site"] {
        assert_eq!(send(&fleet, "POST", path, &[host, ("sec-fetch-site", site)]).await.status, 403, "{site}");
    }
    assert_eq!(fleet.snapshot().clusters[0].view.backends[0].snapshot.state, Health::Healthy);
    assert_eq!(send(&fleet, "POST", path, &[host, ("origin", "http://127.0.0.1:9900")]).await.status, 200);
}

#[tokio::test]
async fn a_page_whose_name_was_made_to_lead_here_can_neither_read_nor_drain() {
    let fleet: Arc<dyn Fleet> = Arc::new(fleet());
    let rebound = [("host", "evil.example:9900"), ("origin", "http://evil.example:9900")];
    for (method, path) in [
        ("GET", "/api/v1/clusters"),
        ("GET", "/metrics"),
        ("GET", "/nowhere"),
        ("POST", "/api/v1/clusters/web/backends/127.0.0.1:1/drain"),
    ] {
        let answer = send(&fleet, method, path, &rebound).await;
        assert_eq!(answer.status, 403, "{method} {path}");
        assert!(answer.json()["help"].as_str().unwrap().contains("hosts in [admin]"), "{}", answer.text);
    }
    assert_eq!(fleet.snapshot().clusters[0].view.backends[0].snapshot.state, Health::Healthy);
    assert_eq!(send(&fleet, "GET", "/readyz", &rebound).await.status, 200, "probes ask by any name");
    for host in ["127.0.0.1:9900", "[::1]:9900", "localhost:9900", "proxy.internal:9900"] {
        assert_eq!(send(&fleet, "GET", "/metrics", &[("host", host)]).await.status, 200, "{host}");
    }
}

#[tokio::test]
async fn ready_and_healthy_are_different_questions() {
    let ending: Arc<dyn Fleet> = Arc::new(Still { readiness: Readiness::NotReady("draining"), ..fleet() });
    let ready = send(&ending, "GET", "/readyz", &[]).await;
    assert_eq!((ready.status, ready.text.as_str()), (503, "draining\n"));
    assert_eq!(send(&ending, "GET", "/healthz", &[]).await.status, 200);
    let serving: Arc<dyn Fleet> = Arc::new(fleet());
    assert_eq!(send(&serving, "GET", "/readyz", &[]).await.status, 200);
}

#[tokio::test]
async fn cluster_without_backend_is_a_warning_beside_the_readiness() {
    let still = fleet();
    still.snapshot.lock().clusters[0].view.summary.known = 0;
    let body = async |still: &Arc<Still>, headers: &[(&str, &str)]| {
        let fleet: Arc<dyn Fleet> = Arc::<Still>::clone(still);
        let answer = send(&fleet, "GET", "/readyz", headers).await;
        assert_eq!(answer.status, 200, "{}", answer.text);
        answer.text
    };
    let still = Arc::new(still);
    assert_eq!(body(&still, &[]).await, "ready\nwarning: cluster \"web\" has no backend: no such file\n");
    // Its name was made to lead here.
    assert_eq!(body(&still, &[("host", "evil.example:9900")]).await, "ready\n");
    let set =
        |change: &dyn Fn(&mut DiscoveryView)| change(&mut still.snapshot.lock().clusters[0].view.summary.discovery);
    set(&|view| (view.is_failing, view.backends) = (false, Census::default()));
    let file = "file /etc/plimsoll/web.json";
    let reason = async || {
        let text = body(&still, &[]).await;
        text.trim_start_matches("ready\nwarning: cluster \"web\" has no backend: ").trim_end().to_owned()
    };
    assert_eq!(reason().await, "SERVFAIL", "of a static name");
    set(&|view| view.fixed_error = None);
    assert_eq!(reason().await, format!("{file} lists none"));
    set(&|view| view.backends.draining = 1);
    assert_eq!(reason().await, format!("{file} lists none that is ready"));
    set(&|view| view.backends.ready = 1);
    assert_eq!(reason().await, "all are removed by hand");
    set(&|view| (view.freshness, view.is_ready) = (Freshness::Waiting, false));
    assert_eq!(reason().await, format!("no answer of {file} yet"));
    let clusters = vec![still.snapshot.lock().clusters[0].clone(); 23];
    still.snapshot.lock().clusters = clusters;
    let text = body(&still, &[]).await;
    assert!(text.lines().count() == 22 && text.ends_with("\nwarning: 3 more clusters have no backend\n"), "{text}");
}

#[tokio::test]
async fn metrics_have_the_media_type_of_their_format() {
    let fleet: Arc<dyn Fleet> = Arc::new(fleet());
    let answer = send(&fleet, "GET", "/metrics", &[]).await;
    assert_eq!(answer.content_type, OPEN_METRICS);
    assert!(answer.text.ends_with("# EOF\n"));
}

/// Facts of the process that runs the test.
const OF_THIS_PROCESS: [&str; 3] =
    ["plimsoll_build_info{", "plimsoll_process_cpu_seconds_total ", "plimsoll_process_resident_memory_bytes "];

/// `golden.txt` has the bytes of every page that shows the fleet. After an intended change, run this
/// test with `PLIMSOLL_BLESS=1` to write it anew. A metric that is not in it yet may have any value.
#[tokio::test]
async fn pages_of_a_recorded_fleet_match_their_golden() {
    let fleet: Arc<dyn Fleet> = Arc::new(fleet());
    let mut pages = String::new();
    for path in [
        "/api/v1/clusters",
        "/api/v1/clusters/web",
        "/api/v1/clusters/web/backends",
        "/api/v1/batch",
        "/api/v1/throttling?window=all",
        "/api/v1/explain",
        "/nowhere",
        "/api/v1/clusters/nowhere",
        "/metrics",
    ] {
        let answer = send(&fleet, "GET", path, &[]).await;
        let lines = answer.text.lines().filter(|line| !OF_THIS_PROCESS.iter().any(|fact| line.starts_with(fact)));
        pages.extend([format!("GET {path}: {} {}\n", answer.status, answer.content_type)]);
        lines.for_each(|line| pages.extend([line, "\n"]));
    }
    for deed in ["drain", "undrain"] {
        let path = format!("/api/v1/clusters/web/backends/127.0.0.1:1/{deed}");
        let answer = send(&fleet, "POST", &path, &[]).await;
        pages.extend([format!("POST {path}: {}\n{}", answer.status, answer.text)]);
    }
    let file = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("src/api/golden.txt");
    if std::env::var_os("PLIMSOLL_BLESS").is_some() {
        std::fs::write(&file, &pages).unwrap();
    }
    let golden = std::fs::read_to_string(&file).unwrap();
    let pages = without_new_metrics(&pages, &golden);
    for (number, (page, golden)) in pages.lines().zip(golden.lines()).enumerate() {
        assert_eq!(page, golden, "line {} of {}", number + 1, file.display());
    }
    assert_eq!(pages.len(), golden.len(), "{pages}");
}

/// `pages` without the metrics that have no line in `golden`.
fn without_new_metrics(pages: &str, golden: &str) -> String {
    let mut is_kept = true;
    let mut kept = String::new();
    for line in pages.lines() {
        if let Some(name) = line.strip_prefix("# HELP ").and_then(|rest| rest.split(' ').next()) {
            is_kept = golden.contains(&format!("# HELP {name} "));
        } else if line == "# EOF" {
            is_kept = true;
        }
        if is_kept {
            kept.extend([line, "\n"]);
        }
    }
    kept
}
