//! Probes of backends by UDP.

use plimsoll::client::ProbesView;
use plimsoll_core::probe::SilenceCause;

use super::text::Kind;
use super::{Metric, Scrape};

const CLUSTER: &[&str] = &["cluster"];

/// A metric of each cluster with probes.
fn probes(scrape: &Scrape, mut each: impl FnMut(&str, &ProbesView)) {
    for cluster in &scrape.snapshot.clusters {
        cluster.summary.probes.iter().for_each(|probes| each(&cluster.summary.name, probes));
    }
}

/// The table.
pub(super) static PROBES: &[Metric] = &[
    Metric {
        name: "probe_backends",
        kind: Kind::Gauge,
        labels: &["cluster", "path"],
        help: "Backends probed by UDP, by the path of datagrams: unknown, works, or the reason for which probes are of no use",
        fill: |s, out| {
            probes(s, |cluster, probes| {
                let census = &probes.census;
                out.gauge(&[cluster, "unknown"], census.unknown as f64);
                out.gauge(&[cluster, "works"], census.works as f64);
                for (cause, count) in SilenceCause::ALL.into_iter().zip(census.silent) {
                    out.gauge(&[cluster, cause.name()], count as f64);
                }
            });
        },
    },
    Metric {
        name: "probe_inactive_backends",
        kind: Kind::Gauge,
        labels: CLUSTER,
        help: "Backends without connections and checks, because they get no requests and probes work",
        fill: |s, out| probes(s, |cluster, probes| out.gauge(&[cluster], probes.census.inactive as f64)),
    },
    Metric {
        name: "probe_woken_total",
        kind: Kind::Counter,
        labels: CLUSTER,
        help: "Requests that went to an inactive backend, and mostly waited for a connection",
        fill: |s, out| probes(s, |cluster, probes| out.count(&[cluster], probes.counts.woken)),
    },
    Metric {
        name: "probe_queries_total",
        kind: Kind::Counter,
        labels: CLUSTER,
        help: "Queries to backends by UDP",
        fill: |s, out| probes(s, |cluster, probes| out.count(&[cluster], probes.counts.queries)),
    },
    Metric {
        name: "probe_answers_total",
        kind: Kind::Counter,
        labels: CLUSTER,
        help: "Answers to queries, in time",
        fill: |s, out| probes(s, |cluster, probes| out.count(&[cluster], probes.counts.answers)),
    },
    Metric {
        name: "probe_refusals_total",
        kind: Kind::Counter,
        labels: CLUSTER,
        help: "Queries to a closed UDP port",
        fill: |s, out| probes(s, |cluster, probes| out.count(&[cluster], probes.counts.refused)),
    },
    Metric {
        name: "probe_notices_total",
        kind: Kind::Counter,
        labels: CLUSTER,
        help: "Notices of backends that changed their state",
        fill: |s, out| probes(s, |cluster, probes| out.count(&[cluster], probes.counts.notices)),
    },
    Metric {
        name: "probe_dropped_total",
        kind: Kind::Counter,
        labels: &["cluster", "reason"],
        help: "Datagrams of probes without effect, by reason",
        fill: |s, out| {
            probes(s, |cluster, probes| {
                out.count(&[cluster, "doubted"], probes.counts.doubted);
                out.count(&[cluster, "invalid"], probes.drops.invalid);
                out.count(&[cluster, "unauthentic"], probes.drops.unauthentic);
                out.count(&[cluster, "unsent"], probes.drops.unsent);
            });
        },
    },
];
