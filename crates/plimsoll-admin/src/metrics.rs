//! The metrics: one table of what there is, and the one way in which it is written.
//!
//! Each line of [`metrics`] has the name, the kind, the labels, the meaning and the values, so that the
//! documentation can be held against it by a test. Values are taken from a snapshot when someone asks; nothing is
//! registered or counted here, so a request costs the proxy nothing for its metrics beyond the counts
//! that it keeps anyway.

mod backends;
mod batch;
mod clusters;
mod config;
mod etcd;
pub(crate) mod figures;
#[cfg(test)]
mod library;
mod listeners;
mod probes;
mod process;
mod splits;
pub(crate) mod text;

use std::array;
use std::iter::Flatten;

use plimsoll::client::Latencies;

use self::backends::Section;
use self::figures::{BackendMetrics, ClusterScrape};
use self::text::{Kind, Writer};
use crate::readiness::Readiness;
use crate::snapshot::FleetSnapshot;

/// The prefix of all names.
const PREFIX: &str = "plimsoll_";

/// Size of a part, in bytes: small enough for the cache, and for the thread that also serves requests.
const PART: usize = 64 << 10;
/// Beyond the size of a part: samples that are written in one go, of 128 backends by result.
const MAX_BEYOND: usize = 96 << 10;

/// Writes all metrics in the OpenMetrics text format, in parts, each when it is asked for.
///
/// Ten thousand backends make an answer of 19 MB, which so needs no memory of its size. The connection asks for the
/// parts itself: a thread that wrote them for another to send woke it, and was woken, for each.
#[derive(Debug)]
pub struct Encoder {
    scrape: Scrape,
    writer: Writer,
    /// The metrics after the present one.
    metrics: Metrics,
    /// The metric whose head is written, and the samples to write next.
    present: Option<(&'static Metric, Section)>,
    is_ended: bool,
}

impl Encoder {
    /// The text of these facts.
    #[must_use]
    pub fn new(scrape: Scrape) -> Self {
        Self { scrape, writer: Writer::default(), metrics: metrics(), present: None, is_ended: false }
    }

    /// Writes some samples of the present metric, the head of the next one, or the end.
    fn step(&mut self) {
        if let Some((metric, section)) = self.present.take() {
            (metric.fill)(&self.scrape, &mut Samples { writer: &mut self.writer, section });
            if backends::is_of_backend(metric) {
                self.present = section.next(&self.scrape).map(|section| (metric, section));
            }
        } else if let Some(metric) = self.metrics.next() {
            self.begin(metric);
        } else {
            self.writer.end();
            self.is_ended = true;
        }
    }

    /// Writes the head of a metric, unless it is one of backends that has no sum.
    fn begin(&mut self, metric: &'static Metric) {
        let is_summed = self.scrape.backends == BackendMetrics::Aggregate && backends::is_of_backend(metric);
        if is_summed && !backends::is_additive(metric) {
            return;
        }
        let labels = if is_summed { backends::labels_of_sums(metric) } else { metric.labels };
        self.writer.begin(PREFIX, metric.name, metric.kind, labels, metric.help);
        self.present = Some((metric, Section::default()));
    }
}

impl Iterator for Encoder {
    type Item = Vec<u8>;

    fn next(&mut self) -> Option<Vec<u8>> {
        if self.is_ended {
            return None;
        }
        self.writer.reserve(PART + MAX_BEYOND);
        while self.writer.written() < PART && !self.is_ended {
            self.step();
        }
        Some(self.writer.take())
    }
}

/// The facts behind one answer with metrics.
#[derive(Debug)]
pub struct Scrape {
    /// Whether the process accepts requests.
    pub readiness: Readiness,
    /// All of it.
    pub snapshot: FleetSnapshot<ClusterScrape>,
    /// The metrics of backends.
    pub backends: BackendMetrics,
}

/// One metric.
#[derive(Debug)]
struct Metric {
    /// Without the prefix.
    name: &'static str,
    kind: Kind,
    labels: &'static [&'static str],
    help: &'static str,
    fill: fn(&Scrape, &mut Samples<'_>),
}

/// The samples of one metric, on their way to the text.
struct Samples<'w> {
    writer: &'w mut Writer,
    /// The backends, in a metric of each.
    section: Section,
}

impl Samples<'_> {
    /// A sample of a counter of whole things, its labels in the order of the metric's.
    fn count(&mut self, labels: &[&str], count: u64) {
        self.writer.count(labels, count);
    }

    /// A sample of a counter of a quantity, such as seconds.
    fn quantity(&mut self, labels: &[&str], quantity: f64) {
        self.writer.quantity(labels, quantity);
    }

    /// A sample of a gauge. A value that is not known is left out rather than written as zero.
    fn gauge(&mut self, labels: &[&str], value: impl Into<Option<f64>>) {
        if let Some(value) = value.into().filter(|value| value.is_finite()) {
            self.quantity(labels, value);
        }
    }

    fn histogram(&mut self, labels: &[&str], latencies: &Latencies) {
        let bounds = Latencies::BOUNDS.into_iter().chain([f64::INFINITY]);
        self.writer.histogram(labels, latencies.sum.as_secs_f64(), bounds.zip(latencies.buckets));
    }
}

/// Goes through the metrics of all tables.
type Metrics = Flatten<array::IntoIter<&'static [Metric], 8>>;

/// All metrics: first where requests come in, then where they go, then the process.
fn metrics() -> Metrics {
    [
        listeners::LISTENERS,
        batch::BATCH,
        splits::SPLITS,
        clusters::CLUSTERS,
        probes::PROBES,
        config::CONFIG,
        etcd::ETCD,
        process::PROCESS,
    ]
    .into_iter()
    .flatten()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::fs;
    use std::net::SocketAddr;
    use std::path::Path;

    use plimsoll::client::{Cluster, ClusterConfig};

    use super::figures::BackendFigures;
    use super::*;
    use crate::api::tests::fleet;
    use crate::fleet::Fleet as _;

    fn scrape() -> String {
        scrape_of(BackendMetrics::All)
    }

    fn scrape_of(backends: BackendMetrics) -> String {
        let scrape = Scrape { readiness: Readiness::Ready, snapshot: fleet().scrape(backends), backends };
        String::from_utf8(Encoder::new(scrape).flatten().collect()).unwrap()
    }

    #[test]
    fn every_metric_is_in_the_documentation_and_the_other_way_round() {
        let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/metrics.md");
        let page = fs::read_to_string(page).unwrap();
        let documented: Vec<&str> = page.lines().filter(|line| line.starts_with("| `plimsoll_")).collect();
        let expected: Vec<String> = metrics()
            .map(|metric| {
                let labels: Vec<String> = metric.labels.iter().map(|label| format!("`{label}`")).collect();
                let kind = metric.kind.name();
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
                Kind::Histogram => format!("plimsoll_{}_count", metric.name),
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
            "plimsoll_probe_backends{cluster=\"web\",path=\"works\"} 2.0",
            "plimsoll_probe_backends{cluster=\"web\",path=\"no-answer\"} 1.0",
            "plimsoll_probe_inactive_backends{cluster=\"web\"} 1.0",
            "plimsoll_probe_woken_total{cluster=\"web\"} 5",
            "plimsoll_probe_dropped_total{cluster=\"web\",reason=\"unauthentic\"} 7",
            "plimsoll_probe_responder_answers_total{listener=\"public\"} 101",
            "plimsoll_probe_responder_dropped_total{listener=\"public\",reason=\"source-rate\"} 102",
            "plimsoll_probe_responder_dropped_total{listener=\"public\",reason=\"total-rate\"} 103",
            "plimsoll_probe_responder_dropped_total{listener=\"public\",reason=\"invalid\"} 109",
            "plimsoll_probe_responder_dropped_total{listener=\"public\",reason=\"unauthentic\"} 110",
            "plimsoll_probe_responder_dropped_total{listener=\"public\",reason=\"unsent\"} 111",
            "plimsoll_probe_responder_leases{listener=\"public\"} 112.0",
            "plimsoll_probe_responder_leases_refused_total{listener=\"public\"} 104",
            "plimsoll_probe_responder_notices_total{listener=\"public\",event=\"sent\"} 105",
            "plimsoll_probe_responder_notices_total{listener=\"public\",event=\"resent\"} 106",
            "plimsoll_probe_responder_notices_total{listener=\"public\",event=\"acknowledged\"} 107",
            "plimsoll_probe_responder_notices_total{listener=\"public\",event=\"abandoned\"} 108",
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
            "plimsoll_certificate_expiry_timestamp_seconds{listener=\"public\",certificate=\"a.example\"} 1800000000.0",
            "plimsoll_last_reload_successful 0.0",
            "plimsoll_last_reload_timestamp_seconds 1700000000.5",
            "plimsoll_access_log_dropped_total 6",
            "plimsoll_trace_spans_total{result=\"queue-full\"} 2",
            "plimsoll_trace_limited_requests_total 3",
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

    #[test]
    fn parts_are_bounded_and_keep_samples_of_a_metric_together() {
        for (backends, is_long) in [(BackendMetrics::All, true), (BackendMetrics::Aggregate, false)] {
            let addresses = (0..2_000_u32).map(|i| SocketAddr::from(([127, 1, (i >> 8) as u8, i as u8], 65_000)));
            let mut snapshot = fleet().scrape(backends);
            for (name, count) in [("none", 0), ("some", 300), ("many", 2_000)] {
                let cluster = Cluster::new(name, ClusterConfig::default(), addresses.clone().take(count));
                let mut figures = BackendFigures::new(backends);
                let summary = cluster.view_in_parts(|part| figures.add(part));
                snapshot.clusters.push(ClusterScrape { summary, backends: figures, inbound: None });
            }
            let parts: Vec<Vec<u8>> =
                Encoder::new(Scrape { readiness: Readiness::Ready, snapshot, backends }).collect();
            assert!(parts.iter().all(|part| !part.is_empty() && part.len() <= PART + MAX_BEYOND));
            assert_eq!(parts.len() > 10, is_long, "{}", parts.len());
            let text = String::from_utf8(parts.concat()).unwrap();
            let mut families: Vec<&str> = text.lines().filter_map(|line| line.strip_prefix("# TYPE ")).collect();
            let count = families.len();
            families.sort_unstable();
            families.dedup();
            assert_eq!(families.len(), count, "each once");
            for (cluster, count) in [("none", 0), ("some", 300), ("many", 2_000), ("web", 4)] {
                let begin = format!("plimsoll_failures_total{{cluster=\"{cluster}\"");
                let samples: BTreeSet<&str> = text.lines().filter(|line| line.starts_with(&begin)).collect();
                assert_eq!(samples.len(), if is_long { count } else { count.min(1) }, "{cluster}");
            }
        }
    }

    /// A dashboard that sums over backends shows the same for both settings.
    #[test]
    fn aggregate_has_the_sums_over_backends_and_nothing_of_one() {
        let (all, aggregate) = (scrape(), scrape_of(BackendMetrics::Aggregate));
        assert!(!aggregate.contains("backend=\""), "{aggregate}");
        let sum = |text: &str, name: &str, label: &str| -> f64 {
            let lines = text.lines().filter(|line| line.starts_with(&format!("{name}{{")) && line.contains(label));
            lines.map(|line| line.rsplit_once(' ').unwrap().1.parse::<f64>().unwrap()).sum()
        };
        for (name, label) in [
            ("plimsoll_requests_total", "result=\"2xx\""),
            ("plimsoll_requests_total", "result=\"timed-out\""),
            ("plimsoll_failures_total", ""),
            ("plimsoll_in_flight_requests", ""),
            ("plimsoll_backend_state", "state=\"healthy\""),
            ("plimsoll_backend_qps", ""),
            ("plimsoll_backend_connections_opened_total", ""),
        ] {
            let lines = aggregate.lines().filter(|line| line.starts_with(&format!("{name}{{")) && line.contains(label));
            assert_eq!(lines.count(), 1, "{name} {label} in\n{aggregate}");
            assert_eq!(sum(&aggregate, name, label), sum(&all, name, label), "{name} {label}");
        }
        assert!(!aggregate.contains("plimsoll_backend_utilization_ratio"), "a sum of ratios says nothing");
        let others = |text: &str| -> Vec<String> {
            let of_backends = [
                "plimsoll_requests",
                "plimsoll_failures",
                "plimsoll_in_flight",
                "plimsoll_backend_",
                "plimsoll_load_reports",
                "plimsoll_malformed",
            ];
            let is_other =
                |line: &&str| !of_backends.iter().any(|name| line.contains(name)) && !line.contains("_process_");
            text.lines().filter(is_other).map(str::to_owned).collect()
        };
        assert_eq!(others(&aggregate), others(&all), "everything else is the same");
    }
}
