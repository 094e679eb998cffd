//! The metrics: one table of what there is, and the one way in which it is written.
//!
//! Each line of [`metrics`] has the name, the kind, the labels, the meaning and the values, so that the
//! documentation can be held against it by a test. Values are taken from a snapshot when someone asks; nothing is
//! registered or counted here, so a request costs the proxy nothing for its metrics beyond the counts
//! that it keeps anyway.

mod batch;
mod clusters;
mod listeners;
mod process;

use std::fmt;

use plimsoll::client::Latencies;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeCounterValue, MetricEncoder, NoLabelSet, text};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Registry;

use crate::fleet::Readiness;
use crate::snapshot::FleetSnapshot;

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
        for metric in metrics() {
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

    fn histogram(&mut self, labels: &[&str], latencies: &Latencies) {
        let (sum, count) = (latencies.sum.as_secs_f64(), latencies.count);
        let bounds = Latencies::BOUNDS.into_iter().chain([f64::INFINITY]);
        let buckets: Vec<(f64, u64)> = bounds.zip(latencies.buckets).collect();
        self.write(labels, |encoder| encoder.encode_histogram::<NoLabelSet>(sum, count, &buckets, None));
    }
}

/// All metrics: first where requests come in, then where they go, then the process.
fn metrics() -> impl Iterator<Item = &'static Metric> {
    [listeners::LISTENERS, batch::BATCH, clusters::CLUSTERS, process::PROCESS].into_iter().flatten()
}

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
        let expected: Vec<String> = metrics()
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
        for metric in metrics() {
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
            "plimsoll_degraded_answers_total{listener=\"public\",kind=\"stale\",reason=\"overloaded\"} 9",
            "plimsoll_stale_answers 11.0",
            "plimsoll_stale_answers_bytes 1200.0",
            "plimsoll_listener_connections_waited_total{listener=\"public\"} 6",
            "plimsoll_refused_connections_total{listener=\"public\",reason=\"memory\"} 3",
            "plimsoll_admission_requests_total{cluster=\"web\",criticality=\"sheddable\",decision=\"overloaded\"} 4",
            "plimsoll_customer_requests_total{cluster=\"web\",customer=\"O\\\"Neil\",decision=\"quota\"} 22",
            "plimsoll_inbound_process_seen{cluster=\"web\"} 1.0",
            "plimsoll_inbound_process_cpus{cluster=\"web\"} 1.5",
            "plimsoll_throttling_verdict{cluster=\"web\",verdict=\"as-intended\"} 1.0",
            "plimsoll_throttling_verdict{cluster=\"web\",verdict=\"users-affected\"} 0.0",
            "plimsoll_throttled_seconds{cluster=\"web\"} 30.0",
            "plimsoll_offered_cost_seconds_total{cluster=\"web\",criticality=\"sheddable\"} 60.0",
            "plimsoll_admission_cost_seconds_total{cluster=\"web\",criticality=\"sheddable\",decision=\"overloaded\"} 15.0",
            "plimsoll_throttled_requests_total{cluster=\"web\",criticality=\"sheddable\"} 13",
            "plimsoll_discovery_info{cluster=\"web\",kind=\"file\",source=\"/etc/plimsoll/web.json\"} 1.0",
            "plimsoll_discovery_backends{cluster=\"web\",state=\"held\"} 1.0",
            "plimsoll_discovery_changes_total{cluster=\"web\",reason=\"expired\"} 44",
            "plimsoll_discovery_failing{cluster=\"web\"} 1.0",
            "plimsoll_discovery_stale{cluster=\"web\"} 0.0",
            "plimsoll_discovery_answer_age_seconds{cluster=\"web\"} 40.0",
            "plimsoll_throttle_held_ratio{cluster=\"web\",criticality=\"sheddable\"} 0.75",
            "plimsoll_retries_total{cluster=\"web\",reason=\"overloaded\",outcome=\"answered\"} 14",
            "plimsoll_retries_denied_total{cluster=\"web\",reason=\"budget\"} 15",
            "plimsoll_retry_budget_used_ratio{cluster=\"web\"} 1.0",
            "plimsoll_spill_shed_requests_total{cluster=\"web\",criticality=\"sheddable\"} 16",
            "plimsoll_locality_requests_total{cluster=\"web\",locality=\"near\"} 60",
            "plimsoll_locality_utilization_ratio{cluster=\"web\",locality=\"near\"} 0.75",
            "plimsoll_locality_room_qps{cluster=\"web\",locality=\"near\"} 30.0",
            "plimsoll_locality_sent_qps{cluster=\"web\",locality=\"near\"} 29.5",
            "plimsoll_locality_drained{cluster=\"web\",locality=\"far\"} 1.0",
            "plimsoll_tls_handshakes_total{listener=\"public\",kind=\"resumed\"} 8",
            "plimsoll_tls_handshakes_waiting{listener=\"public\"} 12.0",
            "plimsoll_tls_handshake_seconds_total{listener=\"public\"} 1.5",
            "plimsoll_ended_connections_total{listener=\"public\",reason=\"resets\"} 1",
            "plimsoll_stalled_streams_total{listener=\"public\"} 5",
            "plimsoll_access_log_dropped_total 6",
            "plimsoll_pressure_level 1.0",
            "plimsoll_process_open_descriptors 70.0",
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
