//! Batch work: what waits, what is at backends, and what was turned away.

use super::text::Kind;
use super::{Metric, Samples, Scrape};
use crate::snapshot::BatchSnapshot;

const LISTENER: &[&str] = &["listener"];

/// A metric of each gate for batch work, with the name of its listener.
fn batches(scrape: &Scrape, mut each: impl FnMut(&str, &BatchSnapshot)) {
    for listener in &scrape.snapshot.listeners {
        listener.batch.iter().for_each(|batch| each(&listener.name, batch));
    }
}

fn gauges(scrape: &Scrape, out: &mut Samples<'_>, value: impl Fn(&BatchSnapshot) -> Option<f64>) {
    batches(scrape, |listener, batch| out.gauge(&[listener], value(batch)));
}

/// The table.
pub(super) static BATCH: &[Metric] = &[
    Metric {
        name: "batch_queued_requests",
        kind: Kind::Gauge,
        labels: &["listener", "criticality"],
        help: "Batch requests waiting for credit",
        fill: |s, out| {
            batches(s, |listener, batch| {
                for (criticality, queued) in &batch.queued {
                    out.gauge(&[listener, criticality.name()], *queued as f64);
                }
            });
        },
    },
    Metric {
        name: "batch_active_requests",
        kind: Kind::Gauge,
        labels: LISTENER,
        help: "Batch requests at backends",
        fill: |s, out| gauges(s, out, |batch| Some(f64::from(batch.active))),
    },
    Metric {
        name: "batch_credit",
        kind: Kind::Gauge,
        labels: LISTENER,
        help: "Batch requests allowed at backends now, from 1 to max_active",
        fill: |s, out| gauges(s, out, |batch| Some(batch.credit)),
    },
    Metric {
        name: "batch_connections",
        kind: Kind::Gauge,
        labels: LISTENER,
        help: "Connections to backends for batch work, idle ones included",
        fill: |s, out| gauges(s, out, |batch| Some(batch.connections as f64)),
    },
    Metric {
        name: "batch_utilization_ratio",
        kind: Kind::Gauge,
        labels: LISTENER,
        help: "Mean reported utilization of backends, which sets the credit; each counts at most as four times the target; no sample without reports",
        fill: |s, out| gauges(s, out, |batch| batch.utilization),
    },
    Metric {
        name: "batch_requeued_total",
        kind: Kind::Counter,
        labels: LISTENER,
        help: "Times that a batch request returned to the queue because no backend accepted it",
        fill: |s, out| batches(s, |listener, batch| out.count(&[listener], batch.requeued)),
    },
    Metric {
        name: "batch_turned_away_total",
        kind: Kind::Counter,
        labels: &["listener", "reason"],
        help: "Batch requests rejected because the queue was full, or expired in the queue",
        fill: |s, out| {
            batches(s, |listener, batch| {
                batch.turned_away.iter().for_each(|(reason, count)| out.count(&[listener, reason], *count));
            });
        },
    },
];
