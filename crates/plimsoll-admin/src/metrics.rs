//! The metrics: one table of what there is, and the one way in which it is written.
//!
//! Each line of [`METRICS`] has the name, the kind, the labels, the meaning and the values, so that the
//! documentation can be held against it by a test. Values are taken from a snapshot when someone asks; nothing is
//! registered or counted here, so a request costs the proxy nothing for its metrics beyond the counts
//! that it keeps anyway.

use std::fmt;

use plimsoll_core::health::State;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeCounterValue, MetricEncoder, NoLabelSet, text};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Registry;

use crate::fleet::Readiness;
use crate::process;
use crate::snapshot::{BackendSnapshot, ClusterSnapshot, FleetSnapshot, Histogram, ListenerSnapshot};
use crate::view::utilization_spread;

/// All metrics in the OpenMetrics text format.
#[must_use]
pub fn encode(readiness: Readiness, snapshot: FleetSnapshot) -> String {
    let mut registry = Registry::with_prefix("plimsoll");
    registry.register_collector(Box::new(Scrape { readiness, snapshot }));
    let mut out = String::new();
    text::encode(&mut out, &registry).expect("writing to a string does not fail");
    out
}

/// What one request for metrics is answered from.
#[derive(Debug)]
struct Scrape {
    readiness: Readiness,
    snapshot: FleetSnapshot,
}

impl Collector for Scrape {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        for metric in &METRICS {
            // The format puts `_total` behind the name of a counter by itself.
            let name = metric.name.strip_suffix("_total").unwrap_or(metric.name);
            let encoder = encoder.encode_descriptor(name, metric.help, None, metric.kind)?;
            let mut samples = Samples { metric, encoder, result: Ok(()) };
            (metric.fill)(self, &mut samples);
            samples.result?;
        }
        Ok(())
    }
}

/// One metric.
struct Metric {
    /// Without the prefix `plimsoll_`.
    name: &'static str,
    kind: MetricType,
    labels: &'static [&'static str],
    help: &'static str,
    fill: fn(&Scrape, &mut Samples<'_>),
}

/// Where a metric's samples are written to.
struct Samples<'e> {
    metric: &'static Metric,
    encoder: MetricEncoder<'e>,
    result: fmt::Result,
}

impl Samples<'_> {
    /// Writes one sample, its labels in the order of the metric's.
    fn write(&mut self, labels: &[&str], write: impl FnOnce(&mut MetricEncoder<'_>) -> fmt::Result) {
        debug_assert_eq!(labels.len(), self.metric.labels.len(), "labels of {}", self.metric.name);
        let labels: Vec<(&str, &str)> = self.metric.labels.iter().copied().zip(labels.iter().copied()).collect();
        if self.result.is_ok() {
            self.result = if labels.is_empty() {
                write(&mut self.encoder)
            } else {
                self.encoder.encode_family(&labels).and_then(|mut encoder| write(&mut encoder))
            };
        }
    }

    fn count(&mut self, labels: &[&str], count: impl EncodeCounterValue) {
        self.write(labels, |encoder| encoder.encode_counter::<NoLabelSet, _, f64>(&count, None));
    }

    /// Writes a gauge; what is not known is left out rather than written as zero.
    fn gauge(&mut self, labels: &[&str], value: impl Into<Option<f64>>) {
        if let Some(value) = value.into().filter(|value| value.is_finite()) {
            self.write(labels, |encoder| encoder.encode_gauge(&value));
        }
    }

    fn histogram(&mut self, labels: &[&str], histogram: &Histogram) {
        let (sum, count) = (histogram.sum.as_secs_f64(), histogram.count);
        self.write(labels, |encoder| encoder.encode_histogram::<NoLabelSet>(sum, count, &histogram.buckets, None));
    }
}

const CLUSTER: &[&str] = &["cluster"];
const BACKEND: &[&str] = &["cluster", "backend"];
const LISTENER: &[&str] = &["listener"];

/// A metric of each cluster.
fn clusters(scrape: &Scrape, mut each: impl FnMut(&ClusterSnapshot)) {
    scrape.snapshot.clusters.iter().for_each(&mut each);
}

/// A metric of each backend, with its labels.
fn backends(scrape: &Scrape, mut each: impl FnMut([&str; 2], &BackendSnapshot)) {
    for cluster in &scrape.snapshot.clusters {
        for backend in &cluster.backends {
            each([&cluster.name, &backend.address.to_string()], backend);
        }
    }
}

/// A metric of each listener.
fn listeners(scrape: &Scrape, mut each: impl FnMut(&ListenerSnapshot)) {
    scrape.snapshot.listeners.iter().for_each(&mut each);
}

/// The table, in the order in which a request meets what it counts.
static METRICS: [Metric; 35] = [
    Metric {
        name: "listener_connections",
        kind: MetricType::Gauge,
        labels: LISTENER,
        help: "Connections of clients open now",
        fill: |s, out| listeners(s, |l| out.gauge(&[&l.name], l.connections as f64)),
    },
    Metric {
        name: "listener_connections_accepted_total",
        kind: MetricType::Counter,
        labels: LISTENER,
        help: "Connections of clients accepted",
        fill: |s, out| listeners(s, |l| out.count(&[&l.name], l.accepted)),
    },
    Metric {
        name: "refused_requests_total",
        kind: MetricType::Counter,
        labels: &["listener", "reason"],
        help: "Requests that the proxy answered without asking a cluster",
        fill: |s, out| {
            listeners(s, |l| l.refusals.iter().for_each(|(reason, count)| out.count(&[&l.name, reason], *count)));
        },
    },
    Metric {
        name: "unserved_requests_total",
        kind: MetricType::Counter,
        labels: &["cluster", "reason"],
        help: "Requests that no backend was asked for, as all were at their limit (saturated) or none was usable",
        fill: |s, out| {
            clusters(s, |c| {
                out.count(&[&c.name, "saturated"], c.saturated);
                out.count(&[&c.name, "no-backend"], c.no_backend);
            });
        },
    },
    Metric {
        name: "known_backends",
        kind: MetricType::Gauge,
        labels: CLUSTER,
        help: "Backends that the cluster has; with a subset, more than those that this process is connected to",
        fill: |s, out| clusters(s, |c| out.gauge(&[&c.name], c.known as f64)),
    },
    Metric {
        name: "waiting_requests",
        kind: MetricType::Gauge,
        labels: CLUSTER,
        help: "Requests that wait now because all backends are at their limit of active requests",
        fill: |s, out| clusters(s, |c| out.gauge(&[&c.name], c.waiting as f64)),
    },
    Metric {
        name: "flow_control_waits_total",
        kind: MetricType::Counter,
        labels: CLUSTER,
        help: "Requests that had to wait because all backends were at their limit of active requests",
        fill: |s, out| clusters(s, |c| out.count(&[&c.name], c.waited)),
    },
    Metric {
        name: "requests_total",
        kind: MetricType::Counter,
        labels: &["cluster", "backend", "result"],
        help: "Attempts at backends by how they ended: class of status, or why there was no response",
        fill: |s, out| {
            backends(s, |[cluster, backend], b| {
                b.attempts.by_result().for_each(|(result, count)| out.count(&[cluster, backend, result], count));
            });
        },
    },
    Metric {
        name: "failures_total",
        kind: MetricType::Counter,
        labels: BACKEND,
        help: "Requests that count as failed for balancing, gRPC status included",
        fill: |s, out| backends(s, |labels, b| out.count(&labels, b.failures)),
    },
    Metric {
        name: "further_attempts_total",
        kind: MetricType::Counter,
        labels: CLUSTER,
        help: "Attempts at another backend after one of which nothing was sent",
        fill: |s, out| clusters(s, |c| out.count(&[&c.name], c.further_attempts)),
    },
    Metric {
        name: "replayed_requests_total",
        kind: MetricType::Counter,
        labels: CLUSTER,
        help: "Requests sent again because a kept-alive connection had just closed",
        fill: |s, out| clusters(s, |c| out.count(&[&c.name], c.replayed)),
    },
    Metric {
        name: "latency_seconds",
        kind: MetricType::Histogram,
        labels: CLUSTER,
        help: "Time from choosing a backend to the head of its response",
        fill: |s, out| clusters(s, |c| out.histogram(&[&c.name], &c.latency)),
    },
    Metric {
        name: "in_flight_requests",
        kind: MetricType::Gauge,
        labels: BACKEND,
        help: "Requests that a backend has now",
        fill: |s, out| backends(s, |labels, b| out.gauge(&labels, f64::from(b.in_flight))),
    },
    Metric {
        name: "backend_state",
        kind: MetricType::Gauge,
        labels: &["cluster", "backend", "state"],
        help: "1 for the state that a backend is in, 0 for the others",
        fill: |s, out| {
            backends(s, |[cluster, backend], b| {
                for state in State::ALL {
                    out.gauge(&[cluster, backend, state.name()], f64::from(u8::from(state == b.state)));
                }
            });
        },
    },
    Metric {
        name: "backend_transitions_total",
        kind: MetricType::Counter,
        labels: &["cluster", "state", "reason"],
        help: "Changes of state of backends, by the state that they came into and why",
        fill: |s, out| {
            clusters(s, |c| {
                for t in &c.transitions {
                    out.count(&[&c.name, t.to.name(), t.reason.name()], t.count);
                }
            });
        },
    },
    Metric {
        name: "panics_total",
        kind: MetricType::Counter,
        labels: CLUSTER,
        help: "Times that too few backends were healthy, so that those ejected or failing their checks were chosen as well",
        fill: |s, out| clusters(s, |c| out.count(&[&c.name], c.panics)),
    },
    Metric {
        name: "backend_weight_ratio",
        kind: MetricType::Gauge,
        labels: BACKEND,
        help: "Share of requests that the policy means a backend to get, relative to the mean",
        fill: |s, out| backends(s, |labels, b| out.gauge(&labels, b.weight)),
    },
    Metric {
        name: "backend_utilization_ratio",
        kind: MetricType::Gauge,
        labels: BACKEND,
        help: "Utilization that a backend reports, 1 is full",
        fill: |s, out| backends(s, |labels, b| out.gauge(&labels, b.report.and_then(|r| r.load.utilization()))),
    },
    Metric {
        name: "backend_qps",
        kind: MetricType::Gauge,
        labels: BACKEND,
        help: "Requests per second that a backend reports, all of its clients together",
        fill: |s, out| backends(s, |labels, b| out.gauge(&labels, b.report.map(|r| r.load.qps))),
    },
    Metric {
        name: "backend_eps",
        kind: MetricType::Gauge,
        labels: BACKEND,
        help: "Failures per second that a backend reports, all of its clients together",
        fill: |s, out| backends(s, |labels, b| out.gauge(&labels, b.report.map(|r| r.load.eps))),
    },
    Metric {
        name: "backend_latency_seconds",
        kind: MetricType::Gauge,
        labels: BACKEND,
        help: "Recent peak of the time to the head of a response, fading by half in 7 s, as `peak-ewma` sees it",
        fill: |s, out| backends(s, |labels, b| out.gauge(&labels, b.latency.map(|latency| latency.as_secs_f64()))),
    },
    Metric {
        name: "backend_error_ratio",
        kind: MetricType::Gauge,
        labels: BACKEND,
        help: "Share of failures among the recent requests of a backend",
        fill: |s, out| backends(s, |labels, b| out.gauge(&labels, b.error_share)),
    },
    Metric {
        name: "utilization_max_over_mean_ratio",
        kind: MetricType::Gauge,
        labels: CLUSTER,
        help: "Spread: largest reported utilization of a healthy backend over the mean, 1 is even",
        fill: |s, out| clusters(s, |c| out.gauge(&[&c.name], utilization_spread(c).map(|spread| spread.max_over_mean))),
    },
    Metric {
        name: "utilization_max_over_min_ratio",
        kind: MetricType::Gauge,
        labels: CLUSTER,
        help: "Spread: largest reported utilization of a healthy backend over the smallest, 1 is even",
        fill: |s, out| {
            clusters(s, |c| out.gauge(&[&c.name], utilization_spread(c).and_then(|spread| spread.max_over_min)));
        },
    },
    Metric {
        name: "utilization_waste_backends",
        kind: MetricType::Gauge,
        labels: CLUSTER,
        help: "Waste: what all others could still do when the most loaded healthy backend is full, in backends",
        fill: |s, out| clusters(s, |c| out.gauge(&[&c.name], utilization_spread(c).map(|spread| spread.waste))),
    },
    Metric {
        name: "load_reports_total",
        kind: MetricType::Counter,
        labels: BACKEND,
        help: "Load reports read",
        fill: |s, out| backends(s, |labels, b| out.count(&labels, b.reports)),
    },
    Metric {
        name: "malformed_load_reports_total",
        kind: MetricType::Counter,
        labels: BACKEND,
        help: "Load reports that could not be read, and were dropped",
        fill: |s, out| backends(s, |labels, b| out.count(&labels, b.malformed_reports)),
    },
    Metric {
        name: "backend_connections",
        kind: MetricType::Gauge,
        labels: BACKEND,
        help: "Connections to a backend open now",
        fill: |s, out| backends(s, |labels, b| out.gauge(&labels, b.connections as f64)),
    },
    Metric {
        name: "backend_connections_opened_total",
        kind: MetricType::Counter,
        labels: BACKEND,
        help: "Connections to a backend opened",
        fill: |s, out| backends(s, |labels, b| out.count(&labels, b.connections_opened)),
    },
    Metric {
        name: "backend_connections_failed_total",
        kind: MetricType::Counter,
        labels: BACKEND,
        help: "Connections to a backend that could not be opened",
        fill: |s, out| backends(s, |labels, b| out.count(&labels, b.connections_failed)),
    },
    Metric {
        name: "reloads_total",
        kind: MetricType::Counter,
        labels: &["result"],
        help: "Configurations read while running: taken, or refused because something was wrong with them",
        fill: |s, out| {
            out.count(&["taken"], s.snapshot.reloads_taken);
            out.count(&["refused"], s.snapshot.reloads_refused);
        },
    },
    Metric {
        name: "ready",
        kind: MetricType::Gauge,
        labels: &[],
        help: "1 while new requests are welcome",
        fill: |s, out| out.gauge(&[], f64::from(u8::from(s.readiness == Readiness::Ready))),
    },
    Metric {
        name: "build_info",
        kind: MetricType::Gauge,
        labels: &["version"],
        help: "Always 1; what runs",
        fill: |_, out| out.gauge(&[env!("CARGO_PKG_VERSION")], 1.0),
    },
    Metric {
        name: "process_cpu_seconds_total",
        kind: MetricType::Counter,
        labels: &[],
        help: "CPU time used, all threads, user and system",
        fill: |_, out| out.count(&[], process::cpu_seconds()),
    },
    Metric {
        name: "process_resident_memory_bytes",
        kind: MetricType::Gauge,
        labels: &[],
        help: "Memory held",
        fill: |_, out| out.gauge(&[], process::resident_bytes().map(|bytes| bytes as f64)),
    },
];

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::*;
    use crate::api::tests::fleet;
    use crate::fleet::Fleet as _;

    fn scrape() -> String {
        encode(Readiness::Ready, fleet().snapshot())
    }

    #[test]
    fn every_metric_is_in_the_documentation_and_the_other_way_round() {
        let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/metrics.md");
        let page = fs::read_to_string(page).unwrap();
        let documented: Vec<&str> = page.lines().filter(|line| line.starts_with("| `plimsoll_")).collect();
        let expected: Vec<String> = METRICS
            .iter()
            .map(|metric| {
                let labels: Vec<String> = metric.labels.iter().map(|label| format!("`{label}`")).collect();
                let kind = metric.kind.as_str();
                format!("| `plimsoll_{}` | {kind} | {} | {} |", metric.name, labels.join(", "), metric.help)
            })
            .collect();
        assert_eq!(documented, expected, "docs/metrics.md should hold:\n{}", expected.join("\n"));
    }

    #[test]
    fn every_metric_has_a_sample_or_is_not_known() {
        let text = scrape();
        for metric in &METRICS {
            let name = match metric.kind {
                MetricType::Histogram => format!("plimsoll_{}_count", metric.name),
                _ => format!("plimsoll_{}", metric.name),
            };
            let has_sample = text
                .lines()
                .any(|line| line.starts_with(&format!("{name}{{")) || line.starts_with(&format!("{name} ")));
            assert!(has_sample, "no sample of {name} in\n{text}");
        }
        assert!(text.ends_with("# EOF\n"));
    }

    #[test]
    fn samples_carry_what_the_snapshot_says() {
        let text = scrape();
        for line in [
            "plimsoll_requests_total{cluster=\"web\",backend=\"127.0.0.1:1\",result=\"2xx\"} 90",
            "plimsoll_requests_total{cluster=\"web\",backend=\"127.0.0.1:1\",result=\"timed-out\"} 1",
            "plimsoll_backend_state{cluster=\"web\",backend=\"127.0.0.1:2\",state=\"lame-duck\"} 1.0",
            "plimsoll_backend_state{cluster=\"web\",backend=\"127.0.0.1:2\",state=\"healthy\"} 0.0",
            "plimsoll_latency_seconds_bucket{le=\"+Inf\",cluster=\"web\"} 91",
            "plimsoll_latency_seconds_bucket{le=\"0.001\",cluster=\"web\"} 80",
            "plimsoll_backend_transitions_total{cluster=\"web\",state=\"lame-duck\",reason=\"reported\"} 1",
            "plimsoll_refused_requests_total{listener=\"public\",reason=\"no-route\"} 7",
            "plimsoll_ready 1.0",
        ] {
            assert!(text.lines().any(|found| found == line), "no line {line} in\n{text}");
        }
    }

    #[test]
    fn what_a_backend_does_not_report_is_left_out() {
        let text = scrape();
        let has = |backend: &str| {
            text.contains(&format!("plimsoll_backend_utilization_ratio{{cluster=\"web\",backend=\"{backend}\"}}"))
        };
        assert!(has("127.0.0.1:1") && !has("[::1]:4"), "{text}");
    }
}
