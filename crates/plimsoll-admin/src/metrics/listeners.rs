//! Where requests come in: connections, and what was refused.

use plimsoll::probe::ResponderView;

use super::text::Kind;
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

/// A figure of each listener that answers probes.
fn probes(scrape: &Scrape, mut each: impl FnMut(&str, &ResponderView)) {
    listeners(scrape, |l| l.probes.iter().for_each(|counts| each(&l.name, counts)));
}

/// The table.
pub(super) static LISTENERS: &[Metric] = &[
    Metric {
        name: "listener_connections",
        kind: Kind::Gauge,
        labels: LISTENER,
        help: "Open connections of clients",
        fill: |s, out| listeners(s, |l| out.gauge(&[&l.name], l.connections as f64)),
    },
    Metric {
        name: "listener_connections_accepted_total",
        kind: Kind::Counter,
        labels: LISTENER,
        help: "Accepted connections of clients",
        fill: |s, out| listeners(s, |l| out.count(&[&l.name], l.accepted)),
    },
    Metric {
        name: "listener_connections_waited_total",
        kind: Kind::Counter,
        labels: LISTENER,
        help: "Connections of clients that waited because max_connections were open",
        fill: |s, out| listeners(s, |l| out.count(&[&l.name], l.waited)),
    },
    Metric {
        name: "refused_connections_total",
        kind: Kind::Counter,
        labels: LISTENER_REASON,
        help: "Connections of clients rejected as soon as they were accepted",
        fill: |s, out| by_reason(s, out, |l| &l.turned_away),
    },
    Metric {
        name: "failed_handshakes_total",
        kind: Kind::Counter,
        labels: LISTENER_REASON,
        help: "Connections of clients that failed in the PROXY protocol or the TLS handshake",
        fill: |s, out| by_reason(s, out, |l| &l.failed_handshakes),
    },
    Metric {
        name: "tls_handshakes_total",
        kind: Kind::Counter,
        labels: &["listener", "kind"],
        help: "TLS handshakes with clients: full, or resumed from an earlier session at a small part of the cost",
        fill: |s, out| by_reason(s, out, |l| &l.tls_handshakes),
    },
    Metric {
        name: "tls_handshakes_waiting",
        kind: Kind::Gauge,
        labels: LISTENER,
        help: "TLS handshakes of clients waiting for their turn; high when many clients connect at once",
        fill: |s, out| listeners(s, |l| out.gauge(&[&l.name], l.waiting_handshakes as f64)),
    },
    Metric {
        name: "tls_handshake_seconds_total",
        kind: Kind::Counter,
        labels: LISTENER,
        help: "Thread time spent on TLS handshakes with clients",
        fill: |s, out| listeners(s, |l| out.quantity(&[&l.name], l.handshake_time.as_secs_f64())),
    },
    Metric {
        name: "ended_connections_total",
        kind: Kind::Counter,
        labels: LISTENER_REASON,
        help: "Connections ended by the proxy: idle, slow, abusive or malformed clients, and the end of a drain",
        fill: |s, out| by_reason(s, out, |l| &l.ended),
    },
    Metric {
        name: "stalled_streams_total",
        kind: Kind::Counter,
        labels: LISTENER,
        help: "HTTP/2 streams reset because their client did not read the response",
        fill: |s, out| listeners(s, |l| out.count(&[&l.name], l.stalled_streams)),
    },
    Metric {
        name: "refused_requests_total",
        kind: Kind::Counter,
        labels: LISTENER_REASON,
        help: "Requests refused by the proxy itself: bad requests, shedding, lack of memory, or the route's own answer",
        fill: |s, out| by_reason(s, out, |l| &l.refusals),
    },
    Metric {
        name: "degraded_answers_total",
        kind: Kind::Counter,
        labels: &["listener", "kind", "reason"],
        help: "Degraded answers sent in place of an error, as the route's `degraded` table says",
        fill: |s, out| {
            listeners(s, |l| {
                for (kind, reason, count) in &l.degraded {
                    out.count(&[&l.name, kind, reason], *count);
                }
            });
        },
    },
    Metric {
        name: "probe_responder_answers_total",
        kind: Kind::Counter,
        labels: LISTENER,
        help: "Answers to probes by UDP; with the dropped ones these are all queries",
        fill: |s, out| probes(s, |name, counts| out.count(&[name], counts.responder.answers)),
    },
    Metric {
        name: "probe_responder_dropped_total",
        kind: Kind::Counter,
        labels: LISTENER_REASON,
        help: "Datagrams without an answer: invalid, with a wrong key, above a rate of queries, or not sent",
        fill: |s, out| {
            probes(s, |name, counts| {
                out.count(&[name, "invalid"], counts.invalid);
                out.count(&[name, "unauthentic"], counts.unauthentic);
                out.count(&[name, "source-rate"], counts.responder.dropped_source);
                out.count(&[name, "total-rate"], counts.responder.dropped_total);
                out.count(&[name, "unsent"], counts.unsent);
            });
        },
    },
    Metric {
        name: "probe_responder_leases",
        kind: Kind::Gauge,
        labels: LISTENER,
        help: "Clients that get a notice of each change of state",
        fill: |s, out| probes(s, |name, counts| out.gauge(&[name], counts.leases as f64)),
    },
    Metric {
        name: "probe_responder_leases_refused_total",
        kind: Kind::Counter,
        labels: LISTENER,
        help: "Leases refused because their table was full",
        fill: |s, out| probes(s, |name, counts| out.count(&[name], counts.responder.leases_refused)),
    },
    Metric {
        name: "probe_responder_notices_total",
        kind: Kind::Counter,
        labels: &["listener", "event"],
        help: "Notices of a change of state: sent first, sent again, acknowledged, or never acknowledged",
        fill: |s, out| {
            probes(s, |name, counts| {
                out.count(&[name, "sent"], counts.responder.notices);
                out.count(&[name, "resent"], counts.responder.resends);
                out.count(&[name, "acknowledged"], counts.responder.acknowledged);
                out.count(&[name, "abandoned"], counts.responder.abandoned);
            });
        },
    },
];
