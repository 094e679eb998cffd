//! The process itself: its configuration, and what it takes of its machine.

use prometheus_client::metrics::MetricType;

use super::Metric;
use crate::fleet::Readiness;
use crate::process;

/// The table.
pub(super) static PROCESS: [Metric; 12] = [
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
        name: "access_log_dropped_total",
        kind: MetricType::Counter,
        labels: &[],
        help: "Lines of the access log that were dropped, as they could not be written as fast as they came",
        fill: |s, out| out.count(&[], s.snapshot.access_log_dropped),
    },
    Metric {
        name: "stale_answers",
        kind: MetricType::Gauge,
        labels: &[],
        help: "Answers of backends that are kept, to be given again in place of errors",
        fill: |s, out| out.gauge(&[], s.snapshot.stale_answers.entries as f64),
    },
    Metric {
        name: "stale_answers_bytes",
        kind: MetricType::Gauge,
        labels: &[],
        help: "What these answers take",
        fill: |s, out| out.gauge(&[], s.snapshot.stale_answers.bytes as f64),
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
    Metric {
        name: "process_max_memory_bytes",
        kind: MetricType::Gauge,
        labels: &[],
        help: "Memory that may be held, as `max_memory` says",
        fill: |s, out| out.gauge(&[], s.snapshot.pressure.max_memory_bytes.map(|bytes| bytes as f64)),
    },
    Metric {
        name: "process_open_descriptors",
        kind: MetricType::Gauge,
        labels: &[],
        help: "File descriptors that are open",
        fill: |s, out| out.gauge(&[], s.snapshot.pressure.open_descriptors.map(|count| count as f64)),
    },
    Metric {
        name: "process_max_descriptors",
        kind: MetricType::Gauge,
        labels: &[],
        help: "File descriptors that may be open",
        fill: |s, out| out.gauge(&[], s.snapshot.pressure.max_descriptors.map(|count| count as f64)),
    },
    Metric {
        name: "pressure_level",
        kind: MetricType::Gauge,
        labels: &[],
        help: "How short memory and descriptors are: 0 is normal, 1 that idle connections are closed, 2 that nothing new is taken",
        fill: |s, out| out.gauge(&[], f64::from(s.snapshot.pressure.level)),
    },
];
