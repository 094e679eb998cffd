//! The etcd of the fleet, and the part of this proxy in it.

use super::Metric;
use super::text::Kind;

/// The table. Without an etcd in the configuration there are no lines.
pub(super) static ETCD: &[Metric] = &[
    Metric {
        name: "etcd_reachable",
        kind: Kind::Gauge,
        labels: &[],
        help: "1 while etcd answers; 0: lists, subsets and limits stay as they are",
        fill: |s, out| out.gauge(&[], s.snapshot.etcd.as_ref().map(|etcd| f64::from(u8::from(etcd.is_reachable)))),
    },
    Metric {
        name: "etcd_answers_total",
        kind: Kind::Counter,
        labels: &[],
        help: "Answers of etcd to requests, renewals and watches",
        fill: |s, out| s.snapshot.etcd.iter().for_each(|etcd| out.count(&[], etcd.answers)),
    },
    Metric {
        name: "etcd_failures_total",
        kind: Kind::Counter,
        labels: &[],
        help: "Requests to etcd without an answer, and broken watches and renewals",
        fill: |s, out| s.snapshot.etcd.iter().for_each(|etcd| out.count(&[], etcd.failures)),
    },
    Metric {
        name: "client_index",
        kind: Kind::Gauge,
        labels: &[],
        help: "Index of this proxy among those of its group, if it takes one",
        fill: |s, out| out.gauge(&[], s.snapshot.etcd.as_ref().and_then(|etcd| etcd.index).map(f64::from)),
    },
    Metric {
        name: "ledger_leader",
        kind: Kind::Gauge,
        labels: &["cluster"],
        help: "1 if this proxy leads the ledger that assigns the subsets of a cluster",
        fill: |s, out| {
            for (cluster, is_leader) in s.snapshot.etcd.iter().flat_map(|etcd| &etcd.ledgers) {
                out.gauge(&[cluster], f64::from(u8::from(*is_leader)));
            }
        },
    },
];
