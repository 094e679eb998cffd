//! Where requests come in: connections, and what was refused.

use prometheus_client::metrics::MetricType;

use super::{Metric, Samples, Scrape};
use crate::snapshot::ListenerSnapshot;

const LISTENER: &[&str] = &["listener"];
const LISTENER_REASON: &[&str] = &["listener", "reason"];

/// A metric of each listener.
fn listeners(scrape: &Scrape, mut each: impl FnMut(&ListenerSnapshot)) {
    scrape.snapshot.listeners.iter().for_each(&mut each);
}

/// A count of each listener by reason or the like.
fn by_reason(scrape: &Scrape, out: &mut Samples<'_>, counts: impl Fn(&ListenerSnapshot) -> &[(&'static str, u64)]) {
    listeners(scrape, |l| counts(l).iter().for_each(|(reason, count)| out.count(&[&l.name, reason], *count)));
}

/// The table.
pub(super) static LISTENERS: [Metric; 12] = [
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
        name: "listener_connections_waited_total",
        kind: MetricType::Counter,
        labels: LISTENER,
        help: "Connections of clients that had to wait before they were served, because max_connections were open",
        fill: |s, out| listeners(s, |l| out.count(&[&l.name], l.waited)),
    },
    Metric {
        name: "refused_connections_total",
        kind: MetricType::Counter,
        labels: LISTENER_REASON,
        help: "Connections of clients that were closed as soon as they were accepted",
        fill: |s, out| by_reason(s, out, |l| &l.turned_away),
    },
    Metric {
        name: "failed_handshakes_total",
        kind: MetricType::Counter,
        labels: LISTENER_REASON,
        help: "Connections of clients that ended before a request, in the PROXY protocol or in TLS",
        fill: |s, out| by_reason(s, out, |l| &l.failed_handshakes),
    },
    Metric {
        name: "tls_handshakes_total",
        kind: MetricType::Counter,
        labels: &["listener", "kind"],
        help: "TLS handshakes with clients: full, or resumed from an earlier session, which costs far less",
        fill: |s, out| by_reason(s, out, |l| &l.tls_handshakes),
    },
    Metric {
        name: "tls_handshakes_waiting",
        kind: MetricType::Gauge,
        labels: LISTENER,
        help: "TLS handshakes with clients that wait for their turn now: more than a few when a crowd connects at once",
        fill: |s, out| listeners(s, |l| out.gauge(&[&l.name], l.waiting_handshakes as f64)),
    },
    Metric {
        name: "tls_handshake_seconds_total",
        kind: MetricType::Counter,
        labels: LISTENER,
        help: "Time of the proxy's threads that TLS handshakes with clients took",
        fill: |s, out| listeners(s, |l| out.count(&[&l.name], l.handshake_time.as_secs_f64())),
    },
    Metric {
        name: "ended_connections_total",
        kind: MetricType::Counter,
        labels: LISTENER_REASON,
        help: "Connections that the proxy ended because their client was idle or slow, did too much, or broke the protocol, or when the time to drain was over",
        fill: |s, out| by_reason(s, out, |l| &l.ended),
    },
    Metric {
        name: "stalled_streams_total",
        kind: MetricType::Counter,
        labels: LISTENER,
        help: "HTTP/2 streams that the proxy reset because their client took nothing of the response",
        fill: |s, out| listeners(s, |l| out.count(&[&l.name], l.stalled_streams)),
    },
    Metric {
        name: "refused_requests_total",
        kind: MetricType::Counter,
        labels: LISTENER_REASON,
        help: "Requests that the proxy answered itself for what the client did, for want of memory, because a gate turned them away, or because their route says so",
        fill: |s, out| by_reason(s, out, |l| &l.refusals),
    },
    Metric {
        name: "degraded_answers_total",
        kind: MetricType::Counter,
        labels: &["listener", "kind", "reason"],
        help: "Answers that were given in place of an error, as `degraded` of their route says",
        fill: |s, out| {
            listeners(s, |l| {
                for (kind, reason, count) in &l.degraded {
                    out.count(&[&l.name, kind, reason], *count);
                }
            });
        },
    },
];
