//! The process itself: its configuration, and what it takes of its machine.

use super::Metric;
use super::text::Kind;
use crate::process;
use crate::readiness::Readiness;

/// The table.
pub(super) static PROCESS: &[Metric] = &[
    Metric {
        name: "reloads_total",
        kind: Kind::Counter,
        labels: &["result"],
        help: "Reloads of the configuration: taken, or refused because of an error",
        fill: |s, out| {
            out.count(&["taken"], s.snapshot.reloads_taken);
            out.count(&["refused"], s.snapshot.reloads_refused);
        },
    },
    Metric {
        name: "access_log_dropped_total",
        kind: Kind::Counter,
        labels: &[],
        help: "Access log lines dropped because they could not be written fast enough",
        fill: |s, out| out.count(&[], s.snapshot.access_log_dropped),
    },
    Metric {
        name: "request_limit_decisions_total",
        kind: Kind::Counter,
        labels: &["customer", "decision"],
        help: "Requests under a limit of `requests_per_second`: admitted, or over it; customers without a table count as `other`",
        fill: |s, out| {
            for (customer, decision, count) in &s.snapshot.request_limits {
                out.count(&[customer, decision], *count);
            }
        },
    },
    Metric {
        name: "trace_spans_total",
        kind: Kind::Counter,
        labels: &["result"],
        help: "Spans of traces by result: exported to the collector, or the reason for dropping them",
        fill: |s, out| {
            for (result, count) in &s.snapshot.traces.spans {
                out.count(&[result], *count);
            }
        },
    },
    Metric {
        name: "trace_limited_requests_total",
        kind: Kind::Counter,
        labels: &[],
        help: "Requests not traced because of `max_per_second` or `max_per_client`",
        fill: |s, out| out.count(&[], s.snapshot.traces.limited),
    },
    Metric {
        name: "stale_answers",
        kind: Kind::Gauge,
        labels: &[],
        help: "Stored answers of backends, to be sent in place of errors",
        fill: |s, out| out.gauge(&[], s.snapshot.stale_answers.entries as f64),
    },
    Metric {
        name: "stale_answers_bytes",
        kind: Kind::Gauge,
        labels: &[],
        help: "Memory used by stored answers",
        fill: |s, out| out.gauge(&[], s.snapshot.stale_answers.bytes as f64),
    },
    Metric {
        name: "ready",
        kind: Kind::Gauge,
        labels: &[],
        help: "1 while the proxy accepts new requests",
        fill: |s, out| out.gauge(&[], f64::from(u8::from(s.readiness == Readiness::Ready))),
    },
    Metric {
        name: "build_info",
        kind: Kind::Gauge,
        labels: &["version"],
        help: "Always 1, with the version as label",
        fill: |_, out| out.gauge(&[env!("CARGO_PKG_VERSION")], 1.0),
    },
    Metric {
        name: "process_cpu_seconds_total",
        kind: Kind::Counter,
        labels: &[],
        help: "CPU time of the process, user and system",
        fill: |_, out| out.quantity(&[], process::cpu_seconds()),
    },
    Metric {
        name: "process_resident_memory_bytes",
        kind: Kind::Gauge,
        labels: &[],
        help: "Resident memory of the process",
        fill: |_, out| out.gauge(&[], process::resident_bytes().map(|bytes| bytes as f64)),
    },
    Metric {
        name: "process_max_memory_bytes",
        kind: Kind::Gauge,
        labels: &[],
        help: "Memory limit of the process, from `max_memory`",
        fill: |s, out| out.gauge(&[], s.snapshot.pressure.max_memory_bytes.map(|bytes| bytes as f64)),
    },
    Metric {
        name: "process_open_descriptors",
        kind: Kind::Gauge,
        labels: &[],
        help: "Open file descriptors",
        fill: |s, out| out.gauge(&[], s.snapshot.pressure.open_descriptors.map(|count| count as f64)),
    },
    Metric {
        name: "process_max_descriptors",
        kind: Kind::Gauge,
        labels: &[],
        help: "Limit of open file descriptors",
        fill: |s, out| out.gauge(&[], s.snapshot.pressure.max_descriptors.map(|count| count as f64)),
    },
    Metric {
        name: "pressure_level",
        kind: Kind::Gauge,
        labels: &[],
        help: "Pressure on memory and descriptors: 0 is normal, 1 closes idle connections, 2 refuses new work",
        fill: |s, out| out.gauge(&[], f64::from(s.snapshot.pressure.level)),
    },
];
