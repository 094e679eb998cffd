//! Clusters and their backends, in the order in which a request meets what is counted.

use super::text::Kind;
use super::{Metric, Samples, Scrape, backends};
use crate::discovery::Changes;
use crate::shedding;
use crate::snapshot::InboundSnapshot;
use crate::view::SpreadView;
use plimsoll::client::{ClusterSummary, NoRetryReason};
use plimsoll::discover::{Census, Freshness, OverrideKind};
use plimsoll_core::pick::HashPicks;
use plimsoll_core::shedding::{Summary, Verdict};
use plimsoll_core::signal::Signal;
use plimsoll_core::{Criticality, LocalitySnapshot, Rejection};

const CLUSTER: &[&str] = &["cluster"];
const BACKEND: &[&str] = &["cluster", "backend"];
const LOCALITY: &[&str] = &["cluster", "locality"];

/// A metric of each cluster.
fn clusters(scrape: &Scrape, mut each: impl FnMut(&ClusterSummary)) {
    scrape.snapshot.clusters.iter().for_each(|cluster| each(&cluster.summary));
}

/// A figure of the spread of each cluster's utilization.
fn spreads(scrape: &Scrape, out: &mut Samples<'_>, figure: impl Fn(SpreadView) -> Option<f64>) {
    for cluster in &scrape.snapshot.clusters {
        out.gauge(&[&cluster.summary.name], cluster.backends.spread().map(SpreadView::from).and_then(&figure));
    }
}

/// A metric of each locality, with its labels.
fn localities(scrape: &Scrape, mut each: impl FnMut([&str; 2], &LocalitySnapshot)) {
    clusters(scrape, |c| c.localities.iter().for_each(|l| each([&c.name, &l.name], &l.snapshot)));
}

/// A metric of each gate.
fn gates(scrape: &Scrape, mut each: impl FnMut(&str, &InboundSnapshot)) {
    for cluster in &scrape.snapshot.clusters {
        cluster.inbound.iter().for_each(|inbound| each(&cluster.summary.name, inbound));
    }
}

/// A count of a cluster by criticality.
fn by_criticality(out: &mut Samples<'_>, cluster: &str, counts: [u64; Criticality::ALL.len()]) {
    for (criticality, count) in Criticality::ALL.into_iter().zip(counts) {
        out.count(&[cluster, criticality.name()], count);
    }
}

/// A metric of each gate's shedding report.
fn accounts(scrape: &Scrape, mut each: impl FnMut(&str, &InboundSnapshot, &Summary)) {
    gates(scrape, |cluster, gate| each(cluster, gate, &gate.shedding));
}

/// The table.
pub(super) static CLUSTERS: &[Metric] = &[
    Metric {
        name: "admission_requests_total",
        kind: Kind::Counter,
        labels: &["cluster", "criticality", "decision"],
        help: "Decisions of the gate of a cluster with `inbound`: admitted, or the reason for shedding",
        fill: |s, out| {
            gates(s, |cluster, gate| {
                for (criticality, decision, count) in &gate.decisions {
                    out.count(&[cluster, criticality.name(), decision], *count);
                }
            });
        },
    },
    Metric {
        name: "customer_requests_total",
        kind: Kind::Counter,
        labels: &["cluster", "customer", "decision"],
        help: "Decisions of the gate by customer; customers that the configuration does not name count as `other`",
        fill: |s, out| {
            gates(s, |cluster, gate| {
                for (customer, decision, count) in &gate.customers {
                    out.count(&[cluster, customer, decision], *count);
                }
            });
        },
    },
    Metric {
        name: "admission_cost_seconds_total",
        kind: Kind::Counter,
        labels: &["cluster", "criticality", "decision"],
        help: "Expected CPU cost of requests by the gate's decision; a dry run counts requests that it would shed as shed only",
        fill: |s, out| {
            accounts(s, |cluster, _, summary| {
                for (criticality, class) in Criticality::ALL.into_iter().zip(&summary.total) {
                    let shed = Rejection::REPORTED.iter().zip(&class.shed).filter(|(_, tally)| tally.requests > 0);
                    let shed = shed.map(|(reason, tally)| (reason.name(), tally.cost));
                    for (decision, cost) in std::iter::once(("admitted", class.admitted.cost)).chain(shed) {
                        out.quantity(&[cluster, criticality.name(), decision], cost);
                    }
                }
            });
        },
    },
    Metric {
        name: "offered_cost_seconds_total",
        kind: Kind::Counter,
        labels: &["cluster", "criticality"],
        help: "Expected CPU cost of all requests that reached the gate of a cluster with `inbound`",
        fill: |s, out| {
            accounts(s, |cluster, _, summary| {
                for (criticality, class) in Criticality::ALL.into_iter().zip(&summary.total) {
                    out.quantity(&[cluster, criticality.name()], class.offered.cost);
                }
            });
        },
    },
    Metric {
        name: "retried_requests_total",
        kind: Kind::Counter,
        labels: &["cluster", "criticality"],
        help: "Requests at the gate that say that they are retries",
        fill: |s, out| {
            accounts(s, |cluster, _, summary| {
                for (criticality, class) in Criticality::ALL.into_iter().zip(&summary.total) {
                    out.count(&[cluster, criticality.name()], class.retried.requests);
                }
            });
        },
    },
    Metric {
        name: "throttling_verdict",
        kind: Kind::Gauge,
        labels: &["cluster", "verdict"],
        help: "1 for the verdict of the shedding report of a cluster with `inbound`, 0 for the others",
        fill: |s, out| {
            accounts(s, |cluster, _, summary| {
                for verdict in Verdict::ALL {
                    out.gauge(&[cluster, verdict.name()], f64::from(u8::from(verdict == summary.verdict)));
                }
            });
        },
    },
    Metric {
        name: "throttling_verdict_seconds",
        kind: Kind::Gauge,
        labels: CLUSTER,
        help: "Time since this verdict began",
        fill: |s, out| {
            accounts(s, |cluster, _, summary| out.gauge(&[cluster], summary.verdict_for.as_secs_f64()));
        },
    },
    Metric {
        name: "throttled_seconds",
        kind: Kind::Gauge,
        labels: CLUSTER,
        help: "Time that the gate has been shedding without a pause of five minutes; 0 while it sheds nothing",
        fill: |s, out| {
            accounts(s, |cluster, _, summary| {
                out.gauge(&[cluster], summary.shedding_for.unwrap_or_default().as_secs_f64());
            });
        },
    },
    Metric {
        name: "inbound_capacity_cpus",
        kind: Kind::Gauge,
        labels: CLUSTER,
        help: "CPUs that the protected process can use, in reference CPUs",
        fill: |s, out| accounts(s, |cluster, gate, _| out.gauge(&[cluster], gate.capacity)),
    },
    Metric {
        name: "inbound_enough_cpus",
        kind: Kind::Gauge,
        labels: CLUSTER,
        help: "CPUs that would have been enough since shedding began; no sample while nothing is shed or the figure is not known, such as in the first ten minutes",
        fill: |s, out| accounts(s, |cluster, _, summary| out.gauge(&[cluster], summary.enough)),
    },
    Metric {
        name: "inbound_process_seen",
        kind: Kind::Gauge,
        labels: CLUSTER,
        help: "1 while the protected process is found and can be measured",
        fill: |s, out| gates(s, |cluster, gate| out.gauge(&[cluster], f64::from(u8::from(gate.cpus.is_some())))),
    },
    Metric {
        name: "inbound_process_cpus",
        kind: Kind::Gauge,
        labels: CLUSTER,
        help: "CPU usage of the protected process and its children, in reference CPUs",
        fill: |s, out| gates(s, |cluster, gate| out.gauge(&[cluster], gate.cpus)),
    },
    Metric {
        name: "inbound_machine_speed_ratio",
        kind: Kind::Gauge,
        labels: CLUSTER,
        help: "Speed of the machine of the protected process, relative to the reference core",
        fill: |s, out| gates(s, |cluster, gate| out.gauge(&[cluster], shedding::speed(gate).as_f64())),
    },
    Metric {
        name: "inbound_signal_load",
        kind: Kind::Gauge,
        labels: &["cluster", "signal"],
        help: "Load of the protected process by signal; 1 is the most that it can bear",
        fill: |s, out| {
            gates(s, |cluster, gate| {
                gate.loads.known().for_each(|(signal, load)| out.gauge(&[cluster, signal.name()], load));
            });
        },
    },
    Metric {
        name: "inbound_binding_signal",
        kind: Kind::Gauge,
        labels: &["cluster", "signal"],
        help: "1 for the signal that caused shedding in the last second, 0 for the others",
        fill: |s, out| {
            gates(s, |cluster, gate| {
                for signal in Signal::ALL {
                    let binds = gate.loads.binding == Some(signal);
                    out.gauge(&[cluster, signal.name()], f64::from(u8::from(binds)));
                }
            });
        },
    },
    Metric {
        name: "unserved_requests_total",
        kind: Kind::Counter,
        labels: &["cluster", "reason"],
        help: "Requests sent to no backend because all were at their limit (saturated) or none was usable (no-backend)",
        fill: |s, out| {
            clusters(s, |c| {
                out.count(&[&c.name, "saturated"], c.counts.saturated);
                out.count(&[&c.name, "no-backend"], c.counts.no_backend);
            });
        },
    },
    Metric {
        name: "hash_picks_total",
        kind: Kind::Counter,
        labels: &["cluster", "place"],
        help: "Picks of a cluster with policy `hash` by the place in the order of the key: first, moved (all before it unusable), overflow, unkeyed",
        fill: |s, out| {
            clusters(s, |c| {
                if let Some(HashPicks { first, moved, overflow, unkeyed }) = c.hash_picks {
                    let places = [("first", first), ("moved", moved), ("overflow", overflow), ("unkeyed", unkeyed)];
                    places.into_iter().for_each(|(place, count)| out.count(&[&c.name, place], count));
                }
            });
        },
    },
    Metric {
        name: "preempted_requests_total",
        kind: Kind::Counter,
        labels: CLUSTER,
        help: "Requests ended because their client was slow while other requests waited for a slot",
        fill: |s, out| clusters(s, |c| out.count(&[&c.name], c.counts.preempted)),
    },
    Metric {
        name: "throttled_requests_total",
        kind: Kind::Counter,
        labels: &["cluster", "criticality"],
        help: "Requests throttled before they were sent, because backends shed most requests of this criticality",
        fill: |s, out| {
            clusters(s, |c| by_criticality(out, &c.name, c.counts.throttled));
        },
    },
    Metric {
        name: "throttle_held_ratio",
        kind: Kind::Gauge,
        labels: &["cluster", "criticality"],
        help: "Share of requests of this criticality that is throttled now",
        fill: |s, out| {
            clusters(s, |c| {
                for (criticality, share) in c.restraint.held {
                    out.gauge(&[&c.name, criticality.name()], share.as_f64());
                }
            });
        },
    },
    Metric {
        name: "spill_shed_requests_total",
        kind: Kind::Counter,
        labels: &["cluster", "criticality"],
        help: "Requests shed before they were sent, because no locality had headroom",
        fill: |s, out| {
            clusters(s, |c| {
                if !c.localities.is_empty() {
                    by_criticality(out, &c.name, c.counts.no_room);
                }
            });
        },
    },
    Metric {
        name: "locality_requests_total",
        kind: Kind::Counter,
        labels: LOCALITY,
        help: "Attempts sent to a locality",
        fill: |s, out| localities(s, |labels, l| out.count(&labels, l.requests)),
    },
    Metric {
        name: "locality_utilization_ratio",
        kind: Kind::Gauge,
        labels: LOCALITY,
        help: "Mean utilization that healthy backends of a locality reported in the last seconds; each counts at most as 1, or as twice the median if that is more",
        fill: |s, out| localities(s, |labels, l| out.gauge(&labels, l.locality.utilization)),
    },
    Metric {
        name: "locality_sent_qps",
        kind: Kind::Gauge,
        labels: LOCALITY,
        help: "Requests per second sent to a locality by this process in the last seconds",
        fill: |s, out| localities(s, |labels, l| out.gauge(&labels, l.standing.sent)),
    },
    Metric {
        name: "locality_room_qps",
        kind: Kind::Gauge,
        labels: LOCALITY,
        help: "Requests per second that a locality can take from this process; no sample without a bound",
        fill: |s, out| localities(s, |labels, l| out.gauge(&labels, l.standing.room)),
    },
    Metric {
        name: "locality_drained",
        kind: Kind::Gauge,
        labels: LOCALITY,
        help: "1 while a locality gets no requests because too few of its backends are healthy",
        fill: |s, out| localities(s, |labels, l| out.gauge(&labels, f64::from(u8::from(l.standing.is_drained)))),
    },
    Metric {
        name: "known_backends",
        kind: Kind::Gauge,
        labels: CLUSTER,
        help: "Backends of the cluster, those outside the subset included",
        fill: |s, out| clusters(s, |c| out.gauge(&[&c.name], c.known as f64)),
    },
    Metric {
        name: "backend_overrides",
        kind: Kind::Gauge,
        labels: &["cluster", "kind"],
        help: "Changes of single backends by hand that are in force: added, removed, weight, drained",
        fill: |s, out| {
            clusters(s, |c| {
                for kind in OverrideKind::ALL {
                    let count = c.overrides.iter().filter(|each| each.change.kind() == kind).count();
                    out.gauge(&[&c.name, kind.name()], count as f64);
                }
            });
        },
    },
    Metric {
        name: "discovery_info",
        kind: Kind::Gauge,
        labels: &["cluster", "kind", "source"],
        help: "Always 1, with the kind and the description of the source of backends as labels",
        fill: |s, out| clusters(s, |c| out.gauge(&[&c.name, c.discovery.kind, &c.discovery.source], 1.0)),
    },
    Metric {
        name: "discovery_backends",
        kind: Kind::Gauge,
        labels: &["cluster", "state"],
        help: "Backends by the source, without changes by hand: ready, held (missing after a sudden loss), draining, starting",
        fill: |s, out| {
            clusters(s, |c| {
                let Census { ready, held, draining, starting } = c.discovery.backends;
                for (state, count) in [("ready", ready), ("held", held), ("draining", draining), ("starting", starting)]
                {
                    out.gauge(&[&c.name, state], count as f64);
                }
            });
        },
    },
    Metric {
        name: "discovery_changes_total",
        kind: Kind::Counter,
        labels: &["cluster", "reason"],
        help: "Changes of backends by the source: added, changed, removed, drained, held, expired (removed at the end of a hold)",
        fill: |s, out| {
            clusters(s, |c| {
                for (reason, count) in Changes::by_reason(&c.discovery.counts) {
                    out.count(&[&c.name, reason], count);
                }
            });
        },
    },
    Metric {
        name: "discovery_errors_total",
        kind: Kind::Counter,
        labels: CLUSTER,
        help: "Errors of the source of backends; the backends stay",
        fill: |s, out| clusters(s, |c| out.count(&[&c.name], c.discovery.counts.errors)),
    },
    Metric {
        name: "discovery_empty_lists_total",
        kind: Kind::Counter,
        labels: CLUSTER,
        help: "Empty lists of the source that had no effect (`on_empty`)",
        fill: |s, out| clusters(s, |c| out.count(&[&c.name], c.discovery.counts.empty)),
    },
    Metric {
        name: "discovery_failing",
        kind: Kind::Gauge,
        labels: CLUSTER,
        help: "1 while the last answer of the source was an error",
        fill: |s, out| clusters(s, |c| out.gauge(&[&c.name], f64::from(u8::from(c.discovery.is_failing)))),
    },
    Metric {
        name: "discovery_static_failing",
        kind: Kind::Gauge,
        labels: CLUSTER,
        help: "1 while a name in `backends` beside the source fails; its backends stay",
        fill: |s, out| {
            clusters(s, |c| out.gauge(&[&c.name], f64::from(u8::from(c.discovery.fixed_error.is_some()))));
        },
    },
    Metric {
        name: "discovery_stale",
        kind: Kind::Gauge,
        labels: CLUSTER,
        help: "1 while a saved list from `state_dir` is in force, since the source has not answered yet",
        fill: |s, out| {
            clusters(s, |c| {
                let is_stale = c.discovery.freshness == Freshness::Stale;
                out.gauge(&[&c.name], f64::from(u8::from(is_stale)));
            });
        },
    },
    Metric {
        name: "discovery_answer_age_seconds",
        kind: Kind::Gauge,
        labels: CLUSTER,
        help: "Time since the last list of the source; a source that answers on changes only is old while nothing changes",
        fill: |s, out| {
            clusters(s, |c| out.gauge(&[&c.name], c.discovery.answered.map(|at| c.at.since(at).as_secs_f64())));
        },
    },
    Metric {
        name: "waiting_requests",
        kind: Kind::Gauge,
        labels: CLUSTER,
        help: "Requests waiting now because all backends are at their limit of active requests",
        fill: |s, out| clusters(s, |c| out.gauge(&[&c.name], c.waiting as f64)),
    },
    Metric {
        name: "flow_control_waits_total",
        kind: Kind::Counter,
        labels: CLUSTER,
        help: "Requests that waited because all backends were at their limit of active requests",
        fill: |s, out| clusters(s, |c| out.count(&[&c.name], c.counts.waited)),
    },
    Metric {
        name: "requests_total",
        kind: Kind::Counter,
        labels: &["cluster", "backend", "result"],
        help: "Attempts by result: the class of the status, or the reason for no response",
        fill: |s, out| backends::results(s, out),
    },
    Metric {
        name: "failures_total",
        kind: Kind::Counter,
        labels: BACKEND,
        help: "Requests that count as failures for load balancing, by HTTP or gRPC status",
        fill: |s, out| backends::counts(s, out, |b| b.failures),
    },
    Metric {
        name: "further_attempts_total",
        kind: Kind::Counter,
        labels: CLUSTER,
        help: "Attempts at another backend after an attempt that sent nothing",
        fill: |s, out| clusters(s, |c| out.count(&[&c.name], c.counts.further_attempts)),
    },
    Metric {
        name: "replayed_requests_total",
        kind: Kind::Counter,
        labels: CLUSTER,
        help: "Requests sent again because a kept-alive connection had just closed",
        fill: |s, out| clusters(s, |c| out.count(&[&c.name], c.counts.replayed)),
    },
    Metric {
        name: "retries_total",
        kind: Kind::Counter,
        labels: &["cluster", "reason", "outcome"],
        help: "Retries by reason and outcome",
        fill: |s, out| {
            clusters(s, |c| {
                c.counts
                    .retries
                    .iter()
                    .for_each(|(reason, outcome, count)| out.count(&[&c.name, reason, outcome], *count));
            });
        },
    },
    Metric {
        name: "retries_denied_total",
        kind: Kind::Counter,
        labels: &["cluster", "reason"],
        help: "Failed requests that were not retried, by the reason against a retry",
        fill: |s, out| {
            clusters(s, |c| {
                for (reason, count) in NoRetryReason::ALL.into_iter().zip(c.counts.given_up) {
                    out.count(&[&c.name, reason.name()], count);
                }
            });
        },
    },
    Metric {
        name: "hedges_total",
        kind: Kind::Counter,
        labels: CLUSTER,
        help: "Hedges: requests sent to a second backend while the first was slow",
        fill: |s, out| clusters(s, |c| out.count(&[&c.name], c.counts.hedges.sent)),
    },
    Metric {
        name: "hedges_won_total",
        kind: Kind::Counter,
        labels: CLUSTER,
        help: "Hedges that responded before the first backend",
        fill: |s, out| clusters(s, |c| out.count(&[&c.name], c.counts.hedges.won)),
    },
    Metric {
        name: "hedges_denied_total",
        kind: Kind::Counter,
        labels: CLUSTER,
        help: "Hedges denied because the retry budget was exhausted",
        fill: |s, out| clusters(s, |c| out.count(&[&c.name], c.counts.hedges.denied)),
    },
    Metric {
        name: "retry_budget_used_ratio",
        kind: Kind::Gauge,
        labels: CLUSTER,
        help: "Share of the retry budget in use; 1 is exhausted",
        fill: |s, out| clusters(s, |c| out.gauge(&[&c.name], c.restraint.budget_used.as_f64())),
    },
    Metric {
        name: "latency_seconds",
        kind: Kind::Histogram,
        labels: CLUSTER,
        help: "Time from the end of a request (the last part sent, while its body is open) to the head of its response",
        fill: |s, out| clusters(s, |c| out.histogram(&[&c.name], &c.counts.latency)),
    },
    Metric {
        name: "in_flight_requests",
        kind: Kind::Gauge,
        labels: BACKEND,
        help: "Requests in flight at a backend",
        fill: |s, out| backends::gauges(s, out, |b| b.active as f64),
    },
    Metric {
        name: "backend_state",
        kind: Kind::Gauge,
        labels: &["cluster", "backend", "state"],
        help: "1 for the state of a backend, 0 for the others",
        fill: |s, out| backends::states(s, out),
    },
    Metric {
        name: "backend_transitions_total",
        kind: Kind::Counter,
        labels: &["cluster", "state", "reason"],
        help: "State changes of backends by new state and reason",
        fill: |s, out| {
            clusters(s, |c| {
                for (to, reason, count) in &c.counts.transitions {
                    out.count(&[&c.name, to.name(), reason.name()], *count);
                }
            });
        },
    },
    Metric {
        name: "panics_total",
        kind: Kind::Counter,
        labels: CLUSTER,
        help: "Times that too few backends were healthy, so that unhealthy ones became usable too (panic threshold)",
        fill: |s, out| clusters(s, |c| out.count(&[&c.name], c.counts.panics)),
    },
    Metric {
        name: "backend_weight_ratio",
        kind: Kind::Gauge,
        labels: BACKEND,
        help: "Share of requests that the policy intends for a backend, relative to the mean",
        fill: |s, out| backends::singles(s, out, |b| b.weight),
    },
    Metric {
        name: "backend_utilization_ratio",
        kind: Kind::Gauge,
        labels: BACKEND,
        help: "Utilization reported by a backend; 1 is full",
        fill: |s, out| backends::singles(s, out, |b| b.utilization),
    },
    Metric {
        name: "backend_qps",
        kind: Kind::Gauge,
        labels: BACKEND,
        help: "Requests per second reported by a backend, over all of its clients",
        fill: |s, out| backends::gauges(s, out, |b| b.qps),
    },
    Metric {
        name: "backend_eps",
        kind: Kind::Gauge,
        labels: BACKEND,
        help: "Failures per second reported by a backend, over all of its clients",
        fill: |s, out| backends::gauges(s, out, |b| b.eps),
    },
    Metric {
        name: "backend_speed_ratio",
        kind: Kind::Gauge,
        labels: BACKEND,
        help: "Speed of a backend's machine relative to the reference core, by its report or its source; no sample without either",
        fill: |s, out| backends::singles(s, out, |b| b.speed),
    },
    Metric {
        name: "backend_latency_seconds",
        kind: Kind::Gauge,
        labels: BACKEND,
        help: "Recent peak latency of a backend, which decays by half in 7 s; used by `peak-ewma`",
        fill: |s, out| backends::singles(s, out, |b| b.latency),
    },
    Metric {
        name: "backend_error_ratio",
        kind: Kind::Gauge,
        labels: BACKEND,
        help: "Share of failures among recent requests to a backend",
        fill: |s, out| backends::singles(s, out, |b| b.error_share),
    },
    Metric {
        name: "utilization_max_over_mean_ratio",
        kind: Kind::Gauge,
        labels: CLUSTER,
        help: "Spread: largest reported utilization of a healthy backend divided by the mean; 1 is even",
        fill: |s, out| spreads(s, out, |spread| Some(spread.max_over_mean)),
    },
    Metric {
        name: "utilization_max_over_min_ratio",
        kind: Kind::Gauge,
        labels: CLUSTER,
        help: "Spread: largest reported utilization of a healthy backend divided by the smallest; 1 is even",
        fill: |s, out| spreads(s, out, |spread| spread.max_over_min),
    },
    Metric {
        name: "utilization_waste_backends",
        kind: Kind::Gauge,
        labels: CLUSTER,
        help: "Waste: capacity unused by the others when the most loaded healthy backend is full, in backends",
        fill: |s, out| spreads(s, out, |spread| Some(spread.waste)),
    },
    Metric {
        name: "load_reports_total",
        kind: Kind::Counter,
        labels: BACKEND,
        help: "Load reports received",
        fill: |s, out| backends::counts(s, out, |b| b.reports),
    },
    Metric {
        name: "malformed_load_reports_total",
        kind: Kind::Counter,
        labels: BACKEND,
        help: "Malformed load reports, ignored",
        fill: |s, out| backends::counts(s, out, |b| b.malformed_reports),
    },
    Metric {
        name: "backend_connections",
        kind: Kind::Gauge,
        labels: BACKEND,
        help: "Open connections to a backend",
        fill: |s, out| backends::gauges(s, out, |b| b.connections as f64),
    },
    Metric {
        name: "backend_connections_opened_total",
        kind: Kind::Counter,
        labels: BACKEND,
        help: "Connections opened to a backend",
        fill: |s, out| backends::counts(s, out, |b| b.connections_opened),
    },
    Metric {
        name: "backend_connections_failed_total",
        kind: Kind::Counter,
        labels: BACKEND,
        help: "Failed attempts to connect to a backend",
        fill: |s, out| backends::counts(s, out, |b| b.connections_failed),
    },
];
