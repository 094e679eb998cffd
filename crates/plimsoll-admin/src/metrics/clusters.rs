//! Clusters and their backends, in the order in which a request meets what is counted.

use plimsoll_core::Criticality;
use plimsoll_core::health::State;
use plimsoll_core::signal::Signal;
use plimsoll_core::throttling::{Cause, Summary, Verdict};
use prometheus_client::metrics::MetricType;

use super::{Metric, Scrape};
use crate::snapshot::{BackendSnapshot, ClusterSnapshot, InboundSnapshot, LocalitySnapshot};
use crate::view::utilization_spread;

const CLUSTER: &[&str] = &["cluster"];
const BACKEND: &[&str] = &["cluster", "backend"];
const LOCALITY: &[&str] = &["cluster", "locality"];

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

/// A metric of each locality, with its labels.
fn localities(scrape: &Scrape, mut each: impl FnMut([&str; 2], &LocalitySnapshot)) {
    clusters(scrape, |cluster| {
        cluster.localities.iter().for_each(|locality| each([&cluster.name, &locality.name], locality));
    });
}

/// A metric of each gate.
fn gates(scrape: &Scrape, mut each: impl FnMut(&str, &InboundSnapshot)) {
    clusters(scrape, |cluster| {
        if let Some(inbound) = &cluster.inbound {
            each(&cluster.name, inbound);
        }
    });
}

/// A metric of what each gate's account says.
fn accounts(scrape: &Scrape, mut each: impl FnMut(&str, &InboundSnapshot, &Summary)) {
    gates(scrape, |cluster, gate| {
        if let Some(summary) = &gate.throttling {
            each(cluster, gate, summary);
        }
    });
}

/// The table.
pub(super) static CLUSTERS: [Metric; 56] = [
    Metric {
        name: "admission_requests_total",
        kind: MetricType::Counter,
        labels: &["cluster", "criticality", "decision"],
        help: "Requests by what the gate of a cluster with `inbound` decided: admitted, or why they were turned away",
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
        kind: MetricType::Counter,
        labels: &["cluster", "customer", "decision"],
        help: "Requests at the gate of a cluster with `inbound`, by customer and decision; customers that the file does not name are `other`",
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
        kind: MetricType::Counter,
        labels: &["cluster", "criticality", "decision"],
        help: "CPU time that requests were expected to cost, by what the gate decided; in a dry run none that would have been turned away is admitted",
        fill: |s, out| {
            accounts(s, |cluster, _, summary| {
                for (criticality, class) in Criticality::ALL.into_iter().zip(&summary.total) {
                    let shed = Cause::ALL.into_iter().zip(&class.shed).filter(|(_, tally)| tally.requests > 0);
                    let shed = shed.map(|(cause, tally)| (cause.name(), tally.cost));
                    for (decision, cost) in std::iter::once(("admitted", class.admitted.cost)).chain(shed) {
                        out.count(&[cluster, criticality.name(), decision], cost);
                    }
                }
            });
        },
    },
    Metric {
        name: "offered_cost_seconds_total",
        kind: MetricType::Counter,
        labels: &["cluster", "criticality"],
        help: "CPU time that all requests were expected to cost that came to the gate of a cluster with `inbound`",
        fill: |s, out| {
            accounts(s, |cluster, _, summary| {
                for (criticality, class) in Criticality::ALL.into_iter().zip(&summary.total) {
                    out.count(&[cluster, criticality.name()], class.offered.cost);
                }
            });
        },
    },
    Metric {
        name: "retried_requests_total",
        kind: MetricType::Counter,
        labels: &["cluster", "criticality"],
        help: "Requests at the gate of a cluster with `inbound` that had been tried before, as they say",
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
        kind: MetricType::Gauge,
        labels: &["cluster", "verdict"],
        help: "1 for what throttling at the gate of a cluster with `inbound` means, 0 for the others",
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
        kind: MetricType::Gauge,
        labels: CLUSTER,
        help: "For how long it has meant that",
        fill: |s, out| {
            accounts(s, |cluster, _, summary| out.gauge(&[cluster], summary.verdict_for.as_secs_f64()));
        },
    },
    Metric {
        name: "throttled_seconds",
        kind: MetricType::Gauge,
        labels: CLUSTER,
        help: "For how long the gate has turned requests away without a pause of five minutes, 0 while it does not",
        fill: |s, out| {
            accounts(s, |cluster, _, summary| {
                out.gauge(&[cluster], summary.throttled_for.unwrap_or_default().as_secs_f64());
            });
        },
    },
    Metric {
        name: "inbound_capacity_cpus",
        kind: MetricType::Gauge,
        labels: CLUSTER,
        help: "CPUs that the process can use that a cluster with `inbound` protects",
        fill: |s, out| accounts(s, |cluster, gate, _| out.gauge(&[cluster], gate.capacity)),
    },
    Metric {
        name: "inbound_enough_cpus",
        kind: MetricType::Gauge,
        labels: CLUSTER,
        help: "CPUs that would have been enough since the gate began to shed requests; no sample while it sheds none, or while it is not known: for the first ten minutes, and where users lost requests and it would be below the capacity",
        fill: |s, out| accounts(s, |cluster, _, summary| out.gauge(&[cluster], summary.enough)),
    },
    Metric {
        name: "inbound_process_seen",
        kind: MetricType::Gauge,
        labels: CLUSTER,
        help: "1 while the process that a cluster with `inbound` protects can be seen",
        fill: |s, out| gates(s, |cluster, gate| out.gauge(&[cluster], f64::from(u8::from(gate.cpus.is_some())))),
    },
    Metric {
        name: "inbound_process_cpus",
        kind: MetricType::Gauge,
        labels: CLUSTER,
        help: "CPUs that the process uses that a cluster with `inbound` protects, descendants included",
        fill: |s, out| gates(s, |cluster, gate| out.gauge(&[cluster], gate.cpus)),
    },
    Metric {
        name: "inbound_signal_load",
        kind: MetricType::Gauge,
        labels: &["cluster", "signal"],
        help: "How loaded the process is that a cluster with `inbound` protects, 1 is as much as it can bear",
        fill: |s, out| {
            gates(s, |cluster, gate| {
                gate.loads.known().for_each(|(signal, load)| out.gauge(&[cluster, signal.name()], load));
            });
        },
    },
    Metric {
        name: "inbound_binding_signal",
        kind: MetricType::Gauge,
        labels: &["cluster", "signal"],
        help: "1 for the signal by which the gate has turned requests away in the last second, 0 for the others",
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
        name: "preempted_requests_total",
        kind: MetricType::Counter,
        labels: CLUSTER,
        help: "Requests that ended because their client was slow while other requests waited for a backend",
        fill: |s, out| clusters(s, |c| out.count(&[&c.name], c.preempted)),
    },
    Metric {
        name: "throttled_requests_total",
        kind: MetricType::Counter,
        labels: &["cluster", "criticality"],
        help: "Requests that were held back, nothing sent, as most as critical as they are turned away",
        fill: |s, out| {
            clusters(s, |c| {
                c.throttled.iter().for_each(|(criticality, count)| out.count(&[&c.name, criticality.name()], *count));
            });
        },
    },
    Metric {
        name: "throttle_held_ratio",
        kind: MetricType::Gauge,
        labels: &["cluster", "criticality"],
        help: "Share of the requests as critical as this that is held back now",
        fill: |s, out| {
            clusters(s, |c| {
                c.held.iter().for_each(|(criticality, share)| out.gauge(&[&c.name, criticality.name()], *share));
            });
        },
    },
    Metric {
        name: "spill_shed_requests_total",
        kind: MetricType::Counter,
        labels: &["cluster", "criticality"],
        help: "Requests that no locality of the cluster had room for, nothing sent",
        fill: |s, out| {
            clusters(s, |c| {
                c.no_room.iter().for_each(|(criticality, count)| out.count(&[&c.name, criticality.name()], *count));
            });
        },
    },
    Metric {
        name: "locality_requests_total",
        kind: MetricType::Counter,
        labels: LOCALITY,
        help: "Attempts that were sent to a locality",
        fill: |s, out| localities(s, |labels, l| out.count(&labels, l.requests)),
    },
    Metric {
        name: "locality_utilization_ratio",
        kind: MetricType::Gauge,
        labels: LOCALITY,
        help: "Mean utilization of the healthy backends of a locality, by what they reported in the last seconds; each counts at most as full (1), or as twice the median where that is more",
        fill: |s, out| localities(s, |labels, l| out.gauge(&labels, l.utilization)),
    },
    Metric {
        name: "locality_sent_qps",
        kind: MetricType::Gauge,
        labels: LOCALITY,
        help: "Requests per second that a locality gets from this process, over the last seconds",
        fill: |s, out| localities(s, |labels, l| out.gauge(&labels, l.rate)),
    },
    Metric {
        name: "locality_room_qps",
        kind: MetricType::Gauge,
        labels: LOCALITY,
        help: "Requests per second that a locality can take from this process; no sample while nothing bounds them",
        fill: |s, out| localities(s, |labels, l| out.gauge(&labels, l.room)),
    },
    Metric {
        name: "locality_drained",
        kind: MetricType::Gauge,
        labels: LOCALITY,
        help: "1 while a locality gets nothing, as too few of its backends are healthy",
        fill: |s, out| localities(s, |labels, l| out.gauge(&labels, f64::from(u8::from(l.is_drained)))),
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
        name: "retries_total",
        kind: MetricType::Counter,
        labels: &["cluster", "reason", "outcome"],
        help: "Requests sent again after a backend had refused them, or may have seen them, by why and how that ended",
        fill: |s, out| {
            clusters(s, |c| {
                c.retries.iter().for_each(|(reason, outcome, count)| out.count(&[&c.name, reason, outcome], *count));
            });
        },
    },
    Metric {
        name: "retries_denied_total",
        kind: MetricType::Counter,
        labels: &["cluster", "reason"],
        help: "Requests that a backend had refused, or that had failed, and that were not sent again, by why not",
        fill: |s, out| {
            clusters(s, |c| c.given_up.iter().for_each(|(reason, count)| out.count(&[&c.name, reason], *count)));
        },
    },
    Metric {
        name: "hedges_total",
        kind: MetricType::Counter,
        labels: CLUSTER,
        help: "Requests for which a second backend was chosen while the first was slow",
        fill: |s, out| clusters(s, |c| out.count(&[&c.name], c.hedges)),
    },
    Metric {
        name: "hedges_won_total",
        kind: MetricType::Counter,
        labels: CLUSTER,
        help: "Requests that the second backend answered while the first was out",
        fill: |s, out| clusters(s, |c| out.count(&[&c.name], c.hedges_won)),
    },
    Metric {
        name: "hedges_denied_total",
        kind: MetricType::Counter,
        labels: CLUSTER,
        help: "Requests slow enough for a second backend when the budget for retries was used up",
        fill: |s, out| clusters(s, |c| out.count(&[&c.name], c.hedges_denied)),
    },
    Metric {
        name: "retry_budget_used_ratio",
        kind: MetricType::Gauge,
        labels: CLUSTER,
        help: "How much of the budget for retries is used up, 1 is all",
        fill: |s, out| clusters(s, |c| out.gauge(&[&c.name], c.retry_budget_used)),
    },
    Metric {
        name: "latency_seconds",
        kind: MetricType::Histogram,
        labels: CLUSTER,
        help: "Time from all of a request (its last piece so far, on an open connection) to the head of its response",
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
        help: "Recent peak of the time from all of a request to the head of its response, fading by half in 7 s, as `peak-ewma` sees it",
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
];
