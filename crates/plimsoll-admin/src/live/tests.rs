//! The live page over a fleet that stands still, but for the counters that a test changes.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use axum::body::Body;
use axum::http::Request;
use axum::response::Response;
use http_body_util::BodyExt as _;
use plimsoll::client::{Cluster, ClusterConfig, Transition};
use plimsoll_core::health::{Reason, State as Health};
use plimsoll_core::shedding::Verdict;
use serde_json::Value;
use tower::ServiceExt as _;

use super::*;
use crate::api::router;
use crate::api::tests::{Still, fleet};
use crate::fleet::Fleet;

/// A fleet of one cluster `web`, with a second more at each call.
struct Clock<'f> {
    fleet: &'f Still,
    at: f64,
}

impl Clock<'_> {
    fn tick(&mut self, change: impl FnOnce(&mut crate::snapshot::ClusterSnapshot)) -> Live {
        self.at += 1.0;
        {
            let mut snapshot = self.fleet.snapshot.lock();
            let cluster = &mut snapshot.clusters[0];
            cluster.view.summary.at = cluster.view.summary.at + Duration::from_secs(1);
            change(cluster);
        }
        self.fleet.page.tick(self.fleet, self.at);
        self.fleet.page.live(self.fleet, None).unwrap()
    }
}

async fn get(fleet: Arc<dyn Fleet>, path: &str) -> Response {
    let request = Request::get(path).header("host", "localhost").body(Body::empty()).unwrap();
    router(fleet).oneshot(request).await.unwrap()
}

/// The events in the next part of a stream, by name.
async fn events(response: &mut Response) -> Vec<(String, Value)> {
    let part = response.body_mut().frame().await.expect("it goes on").unwrap().into_data().unwrap();
    let text = String::from_utf8(part.to_vec()).unwrap();
    let event = |event: &str| {
        let (name, data) = event.strip_prefix("event: ")?.split_once("\ndata: ").expect("one line of data");
        Some((name.to_owned(), serde_json::from_str(data).unwrap()))
    };
    text.split_terminator("\n\n").filter_map(event).collect()
}

#[test]
fn live_shows_rates_of_the_last_ten_seconds() {
    let fleet = fleet();
    let mut clock = Clock { fleet: &fleet, at: 1_000.0 };
    for _ in 0..20 {
        clock.tick(|cluster| {
            let critical = &mut cluster.inbound.as_mut().unwrap().shedding.total[1];
            critical.offered.requests += 40;
            critical.offered.cost += 2.0;
            critical.admitted.requests += 30;
            critical.admitted.cost += 1.5;
            critical.shed[0].requests += 10;
            critical.shed[0].cost += 0.5;
            cluster.view.summary.counts.throttled[3] += 5;
            cluster.view.summary.counts.hedges.sent += 2;
        });
    }
    let live = clock.tick(|_| {});
    let cluster = live.cluster.unwrap();
    let critical = &cluster.demand[1];
    // Nine of the last ten seconds had requests.
    assert_eq!((critical.criticality.as_str(), critical.offered_qps), ("critical", 36.0));
    assert_eq!((critical.offered_cpus, critical.admitted_cpus), (Some(1.8), Some(1.35)));
    assert_eq!(critical.shed["overloaded"], LiveShed { qps: 9.0, cpus: Some(0.45) });
    assert_eq!(cluster.traffic.throttled, BTreeMap::from([("sheddable".to_owned(), 4.5)]));
    assert_eq!(cluster.traffic.hedges_qps, 1.8);
    let sample = live.sample.unwrap();
    assert_eq!(sample.series["offered_qps.critical"], Some(0.0), "the last second had none");
    assert_eq!(sample.series["load_line_cpus"], Some(1.96));
}

#[test]
fn cluster_without_a_gate_counts_requests_and_no_cost() {
    let fleet = fleet();
    fleet.snapshot.lock().clusters[0].inbound = None;
    let mut clock = Clock { fleet: &fleet, at: 1_000.0 };
    for _ in 0..12 {
        clock.tick(|cluster| {
            cluster.view.summary.counts.offered[1] += 100;
            cluster.view.summary.counts.throttled[1] += 10;
            cluster.view.summary.counts.no_room[1] += 20;
        });
    }
    let live = fleet.page.live(&fleet, Some("web")).unwrap();
    assert_eq!(live.verdict, None);
    let cluster = live.cluster.unwrap();
    let critical = &cluster.demand[1];
    assert_eq!((critical.offered_qps, critical.admitted_qps, critical.shed_qps), (100.0, 70.0, 30.0));
    assert_eq!(critical.offered_cpus, None);
    assert_eq!(critical.shed["throttled"].qps, 10.0);
    assert_eq!(critical.shed["saturated"].qps, 20.0);
    assert!(cluster.gate.is_none() && cluster.customers.is_empty());
}

/// Its counters begin anew. Rates over both would be zero or absurd.
#[test]
fn rates_begin_anew_when_a_gate_comes_with_a_reload() {
    let fleet = fleet();
    let gate = fleet.snapshot.lock().clusters[0].inbound.take();
    let mut clock = Clock { fleet: &fleet, at: 1_000.0 };
    for _ in 0..12 {
        clock.tick(|cluster| cluster.view.summary.counts.offered[3] += 1_000);
    }
    fleet.snapshot.lock().clusters[0].inbound = gate;
    clock.tick(|_| {});
    let live = clock.tick(|cluster| {
        cluster.inbound.as_mut().unwrap().shedding.total[3].offered.requests += 50;
    });
    assert_eq!(live.cluster.unwrap().demand[3].offered_qps, 50.0);
}

#[test]
fn changes_name_verdicts_backends_and_reloads_once() {
    let fleet = fleet();
    let mut clock = Clock { fleet: &fleet, at: 1_000.0 };
    let first = clock.tick(|_| {});
    assert_eq!(first.changes, [], "the state at the start is no change");
    clock.tick(|cluster| cluster.inbound.as_mut().unwrap().shedding.verdict = Verdict::UsersAffected);
    fleet.snapshot.lock().reloads_taken += 1;
    clock.tick(|cluster| cluster.view.summary.counts.transitions.push((Health::Ejected, Reason::SuccessRate, 400)));
    let live = clock.tick(|_| {});
    let told: Vec<_> =
        live.changes.iter().map(|of| (of.kind.as_str(), of.subject.as_str(), of.text.as_str())).collect();
    assert_eq!(
        told,
        [
            ("backend", "400 backends", "ejected: success-rate"),
            ("reload", "configuration", "in force"),
            ("verdict", "users-affected", "was as-intended"),
        ]
    );
}

#[test]
fn few_backends_that_change_are_named_at_their_time() {
    let backends: [SocketAddr; 2] = ["10.0.0.1:80", "10.0.0.2:80"].map(|address| address.parse().unwrap());
    let cluster = Cluster::new("web", ClusterConfig::default(), backends);
    let mut overview = cluster.overview(2);
    overview.at = overview.at + Duration::from_secs(100);
    let mut seen = changes::Seen::default();
    let snapshot = |overview| LiveClusterSnapshot { overview, inbound: None };
    seen.look(50.0, &snapshot(overview.clone()));
    overview.counts.transitions.push((Health::Refusing, Reason::ConnectFailed, 1));
    overview.transitions.push(Transition {
        at: overview.at,
        backend: overview.rows[1].backend.clone(),
        to: Health::Refusing,
        reason: Reason::ConnectFailed,
    });
    overview.at = overview.at + Duration::from_millis(500);
    let changes = seen.look(51.0, &snapshot(overview.clone()));
    assert_eq!((changes[0].subject.as_str(), changes[0].at), ("10.0.0.2:80", 50.5));
    assert_eq!(changes.len(), 1);
    assert_eq!(seen.look(52.0, &snapshot(overview)), [], "told once");
}

#[test]
fn quantiles_are_within_their_bucket() {
    let fleet = fleet();
    let mut clock = Clock { fleet: &fleet, at: 1_000.0 };
    clock.tick(|_| {});
    let live = clock.tick(|cluster| {
        // 90 up to 1 ms, 10 up to 1 s.
        cluster.view.summary.counts.latency.buckets[3] += 90;
        cluster.view.summary.counts.latency.buckets[12] += 10;
    });
    let traffic = live.cluster.unwrap().traffic;
    let (p50, p99) = (traffic.p50_ms.unwrap(), traffic.p99_ms.unwrap());
    assert!((0.5..=1.0).contains(&p50) && (500.0..=1_000.0).contains(&p99), "{p50} {p99}");
}

#[test]
fn history_keeps_ten_minutes() {
    let fleet = fleet();
    let mut clock = Clock { fleet: &fleet, at: 1_000.0 };
    for _ in 0..=MAX_SAMPLES + 5 {
        clock.tick(|cluster| cluster.view.summary.waiting += 1);
    }
    let first = fleet.page.first(&fleet, None).unwrap();
    let text = String::from_utf8(first.to_vec()).unwrap();
    let history = text.lines().find_map(|line| line.strip_prefix("data: ")).unwrap();
    let history: Value = serde_json::from_str(history).unwrap();
    assert_eq!((history["samples"].as_u64(), history["begin"].as_f64()), (Some(600), Some(clock.at - 599.0)));
    let waiting = history["series"]["waiting"].as_array().unwrap();
    assert_eq!((waiting.len(), waiting[599].as_f64()), (600, Some(24.0 + 606.0)));
    assert!(text.len() < 200_000, "{} bytes", text.len());
}

#[tokio::test]
async fn stream_begins_with_history_and_goes_on_each_second() {
    let fleet: Arc<Still> = Arc::new(fleet());
    fleet.page.tick(&*fleet, 1.0);
    let mut response = get(Arc::clone(&fleet) as _, "/api/v1/live/stream?cluster=web").await;
    assert_eq!(response.headers()["content-type"], "text/event-stream");
    let names: Vec<String> = events(&mut response).await.into_iter().map(|(name, _)| name).collect();
    assert_eq!(names, ["history", "live"]);
    fleet.page.tick(&*fleet, 2.0);
    let [(name, live)] = &events(&mut response).await[..] else { panic!("one event") };
    assert_eq!((name.as_str(), live["at"].as_f64()), ("live", Some(2.0)));
    // A slow reader gets the latest event only.
    fleet.page.tick(&*fleet, 3.0);
    fleet.page.tick(&*fleet, 4.0);
    assert_eq!(events(&mut response).await[0].1["at"].as_f64(), Some(4.0));
    // The cluster is removed by a reload.
    fleet.snapshot.lock().clusters.clear();
    fleet.page.tick(&*fleet, 5.0);
    assert!(response.body_mut().frame().await.is_none(), "it ends");
}

#[tokio::test]
async fn viewers_are_bounded_and_make_room_when_they_leave() {
    let fleet: Arc<Still> = Arc::new(fleet());
    let mut open = Vec::new();
    for _ in 0..MAX_VIEWERS {
        let response = get(Arc::clone(&fleet) as _, "/api/v1/live/stream").await;
        assert_eq!(response.status(), 200);
        open.push(response);
    }
    let refused = get(Arc::clone(&fleet) as _, "/api/v1/live/stream").await;
    assert_eq!(refused.status(), 503);
    open.pop();
    assert_eq!(get(Arc::clone(&fleet) as _, "/api/v1/live/stream").await.status(), 200);
    drop(open);
    fleet.page.tick(&*fleet, 1.0);
    assert_eq!(fleet.page.viewers.subjects(), []);
}

#[tokio::test]
async fn unknown_clusters_and_parameters_are_errors_that_help() {
    for (path, status, help) in [
        ("/api/v1/live?cluster=none", 404, "GET /api/v1/clusters lists them"),
        ("/api/v1/live/stream?cluster=none", 404, "GET /api/v1/clusters lists them"),
        ("/api/v1/live?clutser=web", 400, "?cluster=web"),
    ] {
        let response = get(Arc::new(fleet()), path).await;
        assert_eq!(response.status(), status, "{path}");
        let body = response.into_body().collect().await.unwrap().to_bytes();
        let text = String::from_utf8(body.to_vec()).unwrap();
        assert!(text.contains(help), "{path}: {text}");
    }
}

#[test]
fn answer_can_be_read_again() {
    let fleet = fleet();
    let mut clock = Clock { fleet: &fleet, at: 1_000.0 };
    clock.tick(|_| {});
    let live = Live { at: 1_000.5, ..clock.tick(|_| {}) };
    let read: Live = serde_json::from_str(&serde_json::to_string(&live).unwrap()).unwrap();
    assert_eq!(read, live);
}

/// Names of twenty bytes, and everything that an answer can have at most.
#[test]
fn answer_has_twenty_kilobytes_at_most() {
    let many: Vec<SocketAddr> =
        (0..10_000_u32).map(|i| SocketAddr::from(([10, 100, (i >> 8) as u8 | 128, i as u8 | 128], 65_000))).collect();
    let fleet = fleet();
    {
        let mut snapshot = fleet.snapshot.lock();
        let template = snapshot.clusters[0].clone();
        snapshot.clusters = (0..MAX_CLUSTERS_TESTED)
            .map(|i| {
                let mut cluster = template.clone();
                cluster.view.summary.name = format!("cluster-of-twenty-{i:02}").into();
                cluster
            })
            .collect();
        let mut largest = Cluster::new("cluster-of-twenty-00", ClusterConfig::default(), many).view();
        largest.summary.counts = template.view.summary.counts.clone();
        for backend in &mut largest.backends {
            let report = template.view.backends[0].snapshot.report;
            backend.snapshot = plimsoll_core::BackendSnapshot { report, ..backend.snapshot.clone() };
        }
        snapshot.clusters[0].view = largest;
        let gate = snapshot.clusters[0].inbound.as_mut().unwrap();
        let share = gate.shedding.customers[0];
        gate.shedding.customers = vec![share; 10];
    }
    let mut clock = Clock { fleet: &fleet, at: 1.7e9 };
    for round in 0..20 {
        clock.tick(|cluster| {
            let total = &mut cluster.inbound.as_mut().unwrap().shedding.total;
            for class in total.iter_mut() {
                class.offered.requests += 1_234;
                class.offered.cost += 1.234;
                for shed in &mut class.shed {
                    shed.requests += 123;
                    shed.cost += 0.123;
                }
            }
            cluster.view.summary.counts.given_up.iter_mut().for_each(|count| *count += 123);
            cluster.inbound.as_mut().unwrap().shedding.verdict = Verdict::ALL[round % 4];
        });
    }
    let live = fleet.page.live(&fleet, Some("cluster-of-twenty-00")).unwrap();
    let cluster = live.cluster.as_ref().unwrap();
    assert_eq!((cluster.backends.rows.len(), live.changes.len(), live.clusters.len()), (40, 19, 40));
    let bytes = serde_json::to_string(&live).unwrap().len();
    assert!(bytes <= 20 << 10, "{bytes} bytes");
}

/// More than the list has.
const MAX_CLUSTERS_TESTED: usize = 50;
