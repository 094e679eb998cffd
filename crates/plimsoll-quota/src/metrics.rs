//! The metrics of a quota server, in the OpenMetrics text format.
//!
//! Customers are many, so each metric of a customer is for the [`TOP`] with the highest demand. Groups have metrics of
//! their own: a sum over customers has no request twice.

mod fleet;

use std::time::{SystemTime, UNIX_EPOCH};

use plimsoll_admin::{MetricKind, MetricWriter};
use plimsoll_config::ReloadOutcome;
use plimsoll_core::Criticality;
use plimsoll_core::quota::Cut;
use plimsoll_tls_config::CertificateExpiry;

use crate::name::Kind;
use crate::service::{Counts, CustomerView};
use crate::services::Services;
use crate::tls::Ports;

/// Customers of each service that have metrics.
const TOP: usize = 50;

/// The prefix of all names.
const PREFIX: &str = "plimsoll_quota_";

/// All metrics.
pub(crate) fn encode(services: &Services, tls: Option<&Ports>) -> Vec<u8> {
    let mut writer = MetricWriter::default();
    let scrape = Scrape::of(services);
    for metric in METRICS {
        writer.begin(PREFIX, metric.name, metric.kind, metric.labels, metric.help);
        for seen in &scrape.0 {
            for (labels, value) in (metric.samples)(seen) {
                let values: Vec<&str> = std::iter::once(&seen.name).chain(&labels).map(String::as_str).collect();
                match metric.kind {
                    // All of them count whole things.
                    MetricKind::Counter => writer.count(&values, value as u64),
                    _ => writer.quantity(&values, value),
                }
            }
        }
    }
    fleet::write(&mut writer, services);
    let (name, help) = FAILED_HANDSHAKES;
    writer.begin(PREFIX, name, MetricKind::Counter, &["reason"], help);
    for (failure, count) in tls.map(Ports::failed).unwrap_or_default() {
        writer.count(&[failure.name()], count);
    }
    let (name, help) = CERTIFICATE_EXPIRY;
    writer.begin(PREFIX, name, MetricKind::Gauge, &["certificate"], help);
    for CertificateExpiry { name, not_after } in tls.map(Ports::expiries).iter().flat_map(|expiries| expiries.iter()) {
        writer.quantity(&[name], unix_seconds(*not_after));
    }
    let (outcome, at) = services.last_reload.get();
    let is_taken = f64::from(u8::from(outcome == ReloadOutcome::Taken));
    for ((name, help), value) in LAST_RELOAD.into_iter().zip([is_taken, unix_seconds(at)]) {
        writer.begin(PREFIX, name, MetricKind::Gauge, &[], help);
        writer.quantity(&[], value);
    }
    writer.finish()
}

/// A service at one time.
#[derive(Debug)]
struct Seen {
    name: String,
    tasks: u32,
    overloaded: u32,
    is_unsure: bool,
    /// Rate units of one CPU, or of one request a second.
    scale: f64,
    counts: Counts,
    customers: Vec<CustomerView>,
    groups: Vec<CustomerView>,
}

#[derive(Debug)]
struct Scrape(Vec<Seen>);

impl Scrape {
    fn of(services: &Services) -> Self {
        let seen = services.all().into_iter().map(|(name, hosted)| {
            let service = hosted.lock();
            let (tasks, overloaded) = (service.tasks(), service.overloaded());
            let (is_unsure, counts) = (service.is_unsure(), service.counts());
            let scale = service.config().unit.scale();
            let [customers, groups] = [Kind::Customer, Kind::Group].map(|kind| service.heaviest(kind, TOP));
            Seen { name, tasks, overloaded, is_unsure, scale, counts, customers, groups }
        });
        Self(seen.collect())
    }
}

/// The labels after the service, and a value.
type Sample = (Vec<String>, f64);

/// A metric: name, kind, labels, help, and its samples of a service.
struct Metric {
    name: &'static str,
    kind: MetricKind,
    labels: &'static [&'static str],
    help: &'static str,
    samples: fn(&Seen) -> Vec<Sample>,
}

const METRICS: &[Metric] = &[
    Metric {
        name: "tasks",
        kind: MetricKind::Gauge,
        labels: &["service"],
        help: "Tasks with a lease",
        samples: |seen| vec![(Vec::new(), f64::from(seen.tasks))],
    },
    Metric {
        name: "overloaded_tasks",
        kind: MetricKind::Gauge,
        labels: &["service"],
        help: "Tasks that lack CPU for some requests",
        samples: |seen| vec![(Vec::new(), f64::from(seen.overloaded))],
    },
    Metric {
        name: "unsure",
        kind: MetricKind::Gauge,
        labels: &["service"],
        help: "1 while tasks may hold rates that this server does not know",
        samples: |seen| vec![(Vec::new(), f64::from(u8::from(seen.is_unsure)))],
    },
    Metric {
        name: "streams_total",
        kind: MetricKind::Counter,
        labels: &["service", "result"],
        help: "Streams of tasks: joined, refused to a certificate, and ended for an error of the task",
        samples: |seen| {
            let Counts { joined, denied, invalid, slow, .. } = seen.counts;
            let of = [("joined", joined), ("denied", denied), ("invalid", invalid), ("slow", slow)];
            of.map(|(result, count)| (vec![result.to_owned()], count as f64)).into()
        },
    },
    Metric {
        name: "limit_changes_total",
        kind: MetricKind::Counter,
        labels: &["service", "result"],
        help: "Changes of limits: in force, and refused since tasks lost their streams with them",
        samples: |seen| {
            let Counts { applied, refused, .. } = seen.counts;
            [("applied", applied), ("refused", refused)]
                .map(|(result, count)| (vec![result.to_owned()], count as f64))
                .into()
        },
    },
    Metric {
        name: "reports_total",
        kind: MetricKind::Counter,
        labels: &["service"],
        help: "Reports of tasks",
        samples: |seen| vec![(Vec::new(), seen.counts.reports as f64)],
    },
    Metric {
        name: "assignments_total",
        kind: MetricKind::Counter,
        labels: &["service"],
        help: "Assignments to tasks",
        samples: |seen| vec![(Vec::new(), seen.counts.assignments as f64)],
    },
    Metric {
        name: "limit_cpus",
        kind: MetricKind::Gauge,
        labels: &["service", "customer"],
        help: "Limit of a customer over all tasks",
        samples: |seen| limits(seen, &seen.customers),
    },
    Metric {
        name: "offered_cpus",
        kind: MetricKind::Gauge,
        labels: &["service", "customer", "criticality"],
        help: "Demand of a customer over all tasks, refused requests included",
        samples: |seen| offered(seen, &seen.customers),
    },
    Metric {
        name: "used_cpus",
        kind: MetricKind::Gauge,
        labels: &["service", "customer"],
        help: "Costs of admitted requests of a customer over all tasks, by the last reports",
        samples: |seen| used(seen, &seen.customers),
    },
    Metric {
        name: "held_cpus",
        kind: MetricKind::Gauge,
        labels: &["service", "customer"],
        help: "Sum of the rates that tasks may be using",
        samples: |seen| held(seen, &seen.customers),
    },
    Metric {
        name: "cut",
        kind: MetricKind::Gauge,
        labels: &["service", "customer", "criticality"],
        help: "Part of the criticality that is admitted; all below it are refused. Absent: no cut",
        samples: |seen| cuts(&seen.customers),
    },
    Metric {
        name: "group_limit_cpus",
        kind: MetricKind::Gauge,
        labels: &["service", "group"],
        help: "Limit of a group over all tasks",
        samples: |seen| limits(seen, &seen.groups),
    },
    Metric {
        name: "group_offered_cpus",
        kind: MetricKind::Gauge,
        labels: &["service", "group", "criticality"],
        help: "Demand of a group over all tasks, without requests that limits of its customers refuse",
        samples: |seen| offered(seen, &seen.groups),
    },
    Metric {
        name: "group_used_cpus",
        kind: MetricKind::Gauge,
        labels: &["service", "group"],
        help: "Costs of admitted requests of a group over all tasks, by the last reports",
        samples: |seen| used(seen, &seen.groups),
    },
    Metric {
        name: "group_held_cpus",
        kind: MetricKind::Gauge,
        labels: &["service", "group"],
        help: "Sum of the rates of a group that tasks may be using",
        samples: |seen| held(seen, &seen.groups),
    },
    Metric {
        name: "group_cut",
        kind: MetricKind::Gauge,
        labels: &["service", "group", "criticality"],
        help: "The same as the cut of a customer",
        samples: |seen| cuts(&seen.groups),
    },
];

fn limits(seen: &Seen, of: &[CustomerView]) -> Vec<Sample> {
    by_name(of, |of| of.has_limit().then_some(of.state.limit as f64 / seen.scale))
}

fn offered(seen: &Seen, of: &[CustomerView]) -> Vec<Sample> {
    let levels = |of: &CustomerView| {
        let (name, demand, scale) = (of.name.shown(), of.state.demand, seen.scale);
        let each = Criticality::ALL.into_iter().zip(demand);
        each.map(move |(level, demand)| (vec![name.clone(), level.name().to_owned()], demand as f64 / scale))
    };
    of.iter().flat_map(levels).collect()
}

fn used(seen: &Seen, of: &[CustomerView]) -> Vec<Sample> {
    by_name(of, |of| Some(of.state.used as f64 / seen.scale))
}

fn held(seen: &Seen, of: &[CustomerView]) -> Vec<Sample> {
    by_name(of, |of| Some(of.state.held as f64 / seen.scale))
}

fn cuts(of: &[CustomerView]) -> Vec<Sample> {
    let cut = |of: &CustomerView| {
        let cut = Some(of.state.cut).filter(|cut| *cut != Cut::NONE)?;
        Some((vec![of.name.shown(), Criticality::ALL[cut.rank].name().to_owned()], f64::from(cut.part)))
    };
    of.iter().filter_map(cut).collect()
}

fn by_name(of: &[CustomerView], value: impl Fn(&CustomerView) -> Option<f64>) -> Vec<Sample> {
    of.iter().filter_map(|of| Some((vec![of.name.shown()], value(of)?))).collect()
}

/// Failed handshakes, by reason. They are for no service.
const FAILED_HANDSHAKES: (&str, &str) =
    ("failed_handshakes_total", "TLS connections that ended before their first request, at both addresses");

/// The ends of the certificates at both addresses.
const CERTIFICATE_EXPIRY: (&str, &str) = (
    "certificate_expiry_timestamp_seconds",
    "Unix time at which a certificate shown to tasks and operators expires, by its first name",
);
/// The last reload: its outcome, and its time.
const LAST_RELOAD: [(&str, &str); 2] = [
    ("last_reload_successful", "1 if the last reload was taken, or there was none; 0 if it was refused"),
    ("last_reload_timestamp_seconds", "Unix time of the last reload, taken or refused; else of the start"),
];

/// Seconds since the Unix epoch. An earlier time is 0.
fn unix_seconds(at: SystemTime) -> f64 {
    at.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64()
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn every_metric_is_in_the_documentation_and_the_other_way_round() {
        let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/quotas.md");
        let page = std::fs::read_to_string(page).unwrap();
        let documented: Vec<&str> = page.lines().filter(|line| line.starts_with("| `plimsoll_quota_")).collect();
        let row = |name: &str, kind: MetricKind, labels: &[&str], help: &str| {
            let labels: Vec<String> = labels.iter().map(|label| format!("`{label}`")).collect();
            format!("| `plimsoll_quota_{name}` | {} | {} | {help} |", kind.name(), labels.join(", "))
        };
        let expected: Vec<String> = METRICS
            .iter()
            .map(|of| row(of.name, of.kind, of.labels, of.help))
            .chain(fleet::FLEET_METRICS.iter().map(|of| row(of.name, of.kind, of.labels, of.help)))
            .chain([format!(
                "| `plimsoll_quota_{}` | counter | `reason` | {} |",
                FAILED_HANDSHAKES.0, FAILED_HANDSHAKES.1
            )])
            .chain([format!(
                "| `plimsoll_quota_{}` | gauge | `certificate` | {} |",
                CERTIFICATE_EXPIRY.0, CERTIFICATE_EXPIRY.1
            )])
            .chain(LAST_RELOAD.map(|(name, help)| format!("| `plimsoll_quota_{name}` | gauge |  | {help} |")))
            .collect();
        assert_eq!(documented, expected, "docs/quotas.md should hold:\n{}", expected.join("\n"));
    }
}
