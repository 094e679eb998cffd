//! Answers of proxies, for tests.

use std::collections::BTreeMap;

use plimsoll_admin::{
    Live, LiveBackend, LiveBackends, LiveBatch, LiveChange, LiveCluster, LiveClusterRow, LiveCustomer, LiveDemand,
    LiveFleetLimit, LiveGate, LiveProcess, LiveSample, LiveShed, LiveTraffic, LiveVerdict,
};
use plimsoll_core::Criticality;

pub(crate) const AT: f64 = 1_764_326_400.0;

fn shed(reason: &str, qps: f64, cpus: Option<f64>) -> BTreeMap<String, LiveShed> {
    if qps > 0.0 { BTreeMap::from([(reason.to_owned(), LiveShed { qps, cpus })]) } else { BTreeMap::new() }
}

/// Requests at 10 ms of CPU each: offered and admitted requests a second of each criticality.
fn demand(requests: [(f64, f64); 4], reason: &str, has_gate: bool) -> Vec<LiveDemand> {
    let cpus = |qps: f64| has_gate.then_some((qps / 100.0 * 1e4).round() / 1e4);
    let each = |(criticality, (offered, admitted)): (Criticality, (f64, f64))| LiveDemand {
        criticality: criticality.name().to_owned(),
        offered_qps: offered,
        offered_cpus: cpus(offered),
        admitted_qps: admitted,
        admitted_cpus: cpus(admitted),
        shed_qps: offered - admitted,
        shed_cpus: cpus(offered - admitted),
        shed: shed(reason, offered - admitted, cpus(offered - admitted)),
    };
    Criticality::ALL.into_iter().zip(requests).map(each).collect()
}

fn backend(number: usize, state: &str, reason: &str, load: f64) -> LiveBackend {
    LiveBackend {
        address: format!("10.0.0.{number}:80"),
        state: state.to_owned(),
        reason: reason.to_owned(),
        since_s: 3_600.0,
        load: Some(load),
        in_flight: (load * 12.0) as u32,
        qps: Some(120.0 * load),
        latency_ms: Some(4.2),
        ..LiveBackend::default()
    }
}

fn backends(rows: Vec<LiveBackend>) -> LiveBackends {
    let count = |state: &str| rows.iter().filter(|row| row.state == state).count() as u32;
    let states = ["connecting", "healthy", "lame-duck", "refusing", "ejected"];
    LiveBackends {
        total: rows.len() as u32,
        known: rows.len(),
        by_state: states.map(|state| (state.to_owned(), count(state))).into(),
        measure: "utilization".to_owned(),
        max: Some(0.97),
        mean: Some(0.69),
        max_over_mean: Some(1.41),
        waste: Some(11.6),
        is_complete: true,
        rows,
        ..LiveBackends::default()
    }
}

fn live(cluster: LiveCluster) -> Live {
    let gate = cluster.gate.as_ref();
    let sample = |of: &LiveDemand| {
        let name = &of.criticality;
        [
            (format!("offered_cpus.{name}"), of.offered_cpus.map(|cpus| cpus as f32)),
            (format!("admitted_cpus.{name}"), of.admitted_cpus.map(|cpus| cpus as f32)),
            (format!("offered_qps.{name}"), Some(of.offered_qps as f32)),
            (format!("admitted_qps.{name}"), Some(of.admitted_qps as f32)),
        ]
    };
    let mut series: BTreeMap<String, Option<f32>> = cluster.demand.iter().flat_map(sample).collect();
    series.insert("load_line_cpus".to_owned(), gate.map(|gate| gate.load_line_cpus as f32));
    Live {
        at: AT,
        process: LiveProcess {
            kind: "proxy".to_owned(),
            name: "edge-3".to_owned(),
            version: "0.1.0".to_owned(),
            state: "ready".to_owned(),
            uptime_s: Some(259_200.0),
        },
        verdict: gate.map(|gate| LiveVerdict {
            cluster: cluster.name.clone(),
            verdict: gate.verdict.clone(),
            meaning: gate.meaning.clone(),
            for_s: gate.verdict_for_s,
            proxy: None,
        }),
        clusters: vec![LiveClusterRow {
            name: cluster.name.clone(),
            verdict: gate.map(|gate| gate.verdict.clone()),
            healthy: cluster.backends.by_state["healthy"],
            backends: cluster.backends.total,
            requests_qps: 812.0,
        }],
        clusters_left_off: 0,
        cluster: Some(cluster),
        batch: Vec::new(),
        changes: Vec::new(),
        sample: Some(LiveSample { at: AT, series }),
    }
}

fn gate(verdict: &str, meaning: &str, used: f64) -> LiveGate {
    LiveGate {
        verdict: verdict.to_owned(),
        meaning: meaning.to_owned(),
        verdict_for_s: 120.0,
        proxy: None,
        throttled_for_s: None,
        dry_run: false,
        capacity_cpus: 8.0,
        load_line_cpus: 7.84,
        used_cpus: Some(used),
        enough_cpus: None,
        binding_signal: None,
        signals: BTreeMap::from([("cpu".to_owned(), used / 8.0)]),
    }
}

/// Everything is admitted.
pub(crate) fn fine() -> Live {
    live(LiveCluster {
        name: "web".to_owned(),
        policy: "weighted".to_owned(),
        gate: Some(gate("fine", "no requests are shed", 3.2)),
        demand: demand([(100.0, 100.0), (200.0, 200.0), (0.0, 0.0), (20.0, 20.0)], "", true),
        backends: backends((1..=4).map(|i| backend(i, "healthy", "check-passed", 0.1 * i as f64)).collect()),
        customers: Vec::new(),
        traffic: LiveTraffic {
            requests_qps: 320.0,
            in_flight: 12,
            p50_ms: Some(2.1),
            p99_ms: Some(12.0),
            ..LiveTraffic::default()
        },
    })
}

/// A third is shed, some of it critical.
pub(crate) fn overload() -> Live {
    let named = |pairs: &[(&str, f64)]| pairs.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect();
    let mut rows: Vec<_> =
        (1..=38).map(|i| backend(i, "healthy", "check-passed", 0.97 - 0.01 * (i as f64 - 1.0))).collect();
    rows.push(backend(39, "lame-duck", "drained", 0.1));
    rows.push(LiveBackend { error_share: 0.8, ..backend(40, "ejected", "success-rate", 0.0) });
    let meaning = "users are affected: critical requests are lost; 11.40 CPUs would have been enough, there are 8.00";
    let customer = |name: &str, offered: f64, used: f64, hard: Option<f64>| LiveCustomer {
        name: name.to_owned(),
        offered_qps: offered * 100.0,
        offered_cpus: offered,
        used_cpus: used,
        shed_qps: (offered - used) * 100.0,
        shed_cpus: offered - used,
        shed: named(if offered > used { &[("quota", 330.0)] } else { &[] }),
        soft_limit_cpus: 2.0,
        hard_limit_cpus: hard,
        fleet: LiveFleetLimit::default(),
    };
    let mut acme = customer("acme", 6.2, 2.9, Some(4.0));
    acme.fleet = LiveFleetLimit {
        fleet_limit_cpus: Some(20.0),
        fleet_used_cpus: Some(18.0),
        fleet_cut: Some("sheddable".to_owned()),
        ..LiveFleetLimit::default()
    };
    let mut gate = gate("users-affected", meaning, 7.9);
    (gate.enough_cpus, gate.binding_signal) = (Some(11.4), Some("cpu".to_owned()));
    let mut live = live(LiveCluster {
        name: "web".to_owned(),
        policy: "weighted".to_owned(),
        gate: Some(gate),
        demand: demand([(100.0, 100.0), (640.0, 600.0), (200.0, 90.0), (200.0, 0.0)], "overloaded", true),
        backends: backends(rows),
        customers: vec![acme, customer("initech", 3.0, 3.0, None), customer("hooli", 2.2, 2.0, Some(8.0))],
        traffic: LiveTraffic {
            requests_qps: 1_140.0,
            failures_qps: 1.0,
            throttled: named(&[("sheddable", 12.0)]),
            held: named(&[("sheddable", 0.4)]),
            retries_qps: 3.0,
            retries_denied: named(&[("budget", 2.0)]),
            retry_budget_used: 0.3,
            hedges_qps: 1.0,
            hedges_won_qps: 0.5,
            unserved: named(&[("saturated", 1.0)]),
            waiting: 3,
            in_flight: 120,
            p50_ms: Some(2.1),
            p99_ms: Some(12.0),
        },
    });
    live.batch = vec![LiveBatch {
        listener: "batch".to_owned(),
        queued: 120,
        active: 8,
        credit: 8.5,
        max_active: 64,
        utilization: Some(0.62),
    }];
    let change = |ago: f64, kind: &str, subject: &str, text: &str| LiveChange {
        at: AT - ago,
        kind: kind.to_owned(),
        cluster: Some("web".to_owned()),
        subject: subject.to_owned(),
        text: text.to_owned(),
        proxies: Vec::new(),
    };
    live.changes = vec![
        change(10.0, "backend", "10.0.0.40:80", "ejected: success-rate"),
        change(120.0, "verdict", "users-affected", "was fine"),
        change(4_000.0, "backend", "10.0.0.39:80", "lame-duck: drained"),
    ];
    let mut other = live.clusters[0].clone();
    (other.name, other.verdict) = ("api".to_owned(), None);
    live.clusters.push(other);
    live
}

/// A cluster without a gate.
pub(crate) fn no_gate() -> Live {
    let rows = vec![
        backend(1, "healthy", "check-passed", 0.5),
        backend(2, "healthy", "check-passed", 0.4),
        backend(3, "refusing", "connect-failed", 0.0),
    ];
    live(LiveCluster {
        name: "web".to_owned(),
        policy: "round-robin".to_owned(),
        gate: None,
        demand: demand([(0.0, 0.0), (812.0, 800.0), (0.0, 0.0), (0.0, 0.0)], "saturated", false),
        backends: LiveBackends { measure: "in-flight".to_owned(), max: Some(6.0), mean: Some(5.0), ..backends(rows) },
        customers: Vec::new(),
        traffic: LiveTraffic { requests_qps: 812.0, ..LiveTraffic::default() },
    })
}

/// Ten thousand backends. Forty are listed.
pub(crate) fn many() -> Live {
    let mut live = overload();
    let backends = &mut live.cluster.as_mut().unwrap().backends;
    (backends.total, backends.known, backends.is_complete, backends.left_off) = (10_000, 10_000, false, 480);
    backends.by_state.extend([("healthy".to_owned(), 9_500), ("ejected".to_owned(), 500)]);
    live
}
