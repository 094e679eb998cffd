//! Metrics of a server among others.

use std::sync::atomic::Ordering;

use plimsoll_admin::{MetricKind, MetricWriter};

use super::PREFIX;
use crate::ownership::{Owners, Ownership, SHARDS};
use crate::services::Services;

/// Values of the labels, and the value.
type Sample = (Vec<String>, u64);

/// A metric: name, kind, labels, help, and its samples.
pub(super) struct FleetMetric {
    pub(super) name: &'static str,
    pub(super) kind: MetricKind,
    pub(super) labels: &'static [&'static str],
    pub(super) help: &'static str,
    samples: fn(&Services) -> Vec<Sample>,
}

pub(super) const FLEET_METRICS: &[FleetMetric] = &[
    FleetMetric {
        name: "owner",
        kind: MetricKind::Gauge,
        labels: &["service"],
        help: "1 if this server owns the limits of the service",
        samples: |services| by_service(services, |name| services.get(name).is_some()),
    },
    FleetMetric {
        name: "owner_overdue",
        kind: MetricKind::Gauge,
        labels: &["service"],
        help: "1 while this server owns the service, and another one may: its lease in etcd could not be renewed",
        samples: |services| {
            by_service(services, |name| services.get(name).is_some_and(|hosted| hosted.lock().is_overdue()))
        },
    },
    FleetMetric {
        name: "refused_settings",
        kind: MetricKind::Gauge,
        labels: &["service"],
        help: "1 while the settings of the service in etcd have a problem, and are not in force",
        samples: |services| services.bad_settings.lock().iter().map(|name| (vec![name.clone()], 1)).collect(),
    },
    FleetMetric {
        name: "shards",
        kind: MetricKind::Gauge,
        labels: &[],
        help: "Shards that this server owns, of 64; all without etcd",
        samples: |services| vec![(Vec::new(), u64::from(owned(&services.owners.borrow())))],
    },
    FleetMetric {
        name: "takeovers_total",
        kind: MetricKind::Counter,
        labels: &[],
        help: "Services that this server became the owner of, since its start",
        samples: |services| vec![(Vec::new(), services.takeovers.load(Ordering::Relaxed))],
    },
    FleetMetric {
        name: "losses_total",
        kind: MetricKind::Counter,
        labels: &[],
        help: "Services that this server was the owner of, and is not any more",
        samples: |services| vec![(Vec::new(), services.losses.load(Ordering::Relaxed))],
    },
    FleetMetric {
        name: "redirects_total",
        kind: MetricKind::Counter,
        labels: &[],
        help: "Streams and attempts of tasks that were sent to another owner, or found none",
        samples: |services| vec![(Vec::new(), services.redirects.load(Ordering::Relaxed))],
    },
];

fn by_service(services: &Services, is: impl Fn(&str) -> bool) -> Vec<Sample> {
    let names: Vec<String> = services.configs.read().keys().cloned().collect();
    names.into_iter().map(|name| (vec![name.clone()], u64::from(is(&name)))).collect()
}

/// Writes all of them.
pub(super) fn write(writer: &mut MetricWriter, services: &Services) {
    for FleetMetric { name, kind, labels, help, samples } in FLEET_METRICS {
        writer.begin(PREFIX, name, *kind, labels, help);
        for (values, value) in samples(services) {
            let values: Vec<&str> = values.iter().map(String::as_str).collect();
            match kind {
                MetricKind::Counter => writer.count(&values, value),
                _ => writer.quantity(&values, value as f64),
            }
        }
    }
}

/// Shards of this server.
fn owned(owners: &Owners) -> u32 {
    match owners {
        Owners::Alone { .. } => SHARDS,
        Owners::Shared(shards) => shards.iter().filter(|owner| matches!(owner, Ownership::Ours { .. })).count() as u32,
    }
}
