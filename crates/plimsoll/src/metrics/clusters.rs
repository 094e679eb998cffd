//! Clusters as a whole.

use std::fmt;

use plimsoll_core::health::State;
use plimsoll_core::pick::HashPicks;
use plimsoll_core::probe::SilenceCause;
use plimsoll_core::spread::{self, Spread};
use plimsoll_core::{Criticality, LocalitySnapshot};

use super::{Metric, Samples};
use crate::client::{ClusterSummary, ClusterView, NoRetryReason};
use crate::discover::{Census, Freshness, MergeCounts, OverrideKind};

const CLUSTER: &[&str] = &["cluster"];
const LOCALITY: &[&str] = &["cluster", "locality"];

/// A metric of the cluster without its backends.
fn of(view: &ClusterView, fill: impl FnOnce(&ClusterSummary) -> fmt::Result) -> fmt::Result {
    fill(&view.summary)
}

/// A count by criticality.
fn by_criticality(out: &mut Samples<'_, '_>, cluster: &str, counts: [u64; Criticality::ALL.len()]) -> fmt::Result {
    let mut counts = Criticality::ALL.into_iter().zip(counts);
    counts.try_for_each(|(criticality, count)| out.count(&[cluster, criticality.name()], count))
}

/// A metric of each locality, with its labels.
fn localities(
    cluster: &ClusterSummary,
    mut each: impl FnMut([&str; 2], &LocalitySnapshot) -> fmt::Result,
) -> fmt::Result {
    cluster.localities.iter().try_for_each(|locality| each([&cluster.name, &locality.name], &locality.snapshot))
}

/// The spread of the utilization that healthy backends report.
fn spread(view: &ClusterView) -> Option<Spread> {
    let healthy = view.backends.iter().map(|backend| &backend.snapshot).filter(|s| s.state == State::Healthy);
    spread::of(healthy.filter_map(|snapshot| snapshot.report?.1.utilization()))
}

/// The table.
pub(super) static TABLE: &[Metric<ClusterView>] = &[
    Metric::counter(
        "plimsoll_unserved_requests",
        &["cluster", "reason"],
        "Requests sent to no backend because all were at their limit (saturated) or none was usable (no-backend)",
        |view, out| {
            of(view, |c| {
                out.count(&[&c.name, "saturated"], c.counts.saturated)?;
                out.count(&[&c.name, "no-backend"], c.counts.no_backend)
            })
        },
    ),
    Metric::counter(
        "plimsoll_hash_picks",
        &["cluster", "place"],
        "Picks of a cluster with policy `hash` by the place in the order of the key: first, moved (all before it unusable), overflow, unkeyed",
        |view, out| {
            of(view, |c| {
                let Some(HashPicks { first, moved, overflow, unkeyed }) = c.hash_picks else { return Ok(()) };
                out.count(&[&c.name, "first"], first)?;
                out.count(&[&c.name, "moved"], moved)?;
                out.count(&[&c.name, "overflow"], overflow)?;
                out.count(&[&c.name, "unkeyed"], unkeyed)
            })
        },
    ),
    Metric::counter(
        "plimsoll_preempted_requests",
        CLUSTER,
        "Requests ended because their client was slow while other requests waited for a slot",
        |view, out| of(view, |c| out.count(&[&c.name], c.counts.preempted)),
    ),
    Metric::counter(
        "plimsoll_throttled_requests",
        &["cluster", "criticality"],
        "Requests throttled before they were sent, because backends shed most requests of this criticality",
        |view, out| of(view, |c| by_criticality(out, &c.name, c.counts.throttled)),
    ),
    Metric::gauge(
        "plimsoll_throttle_held_ratio",
        &["cluster", "criticality"],
        "Share of requests of this criticality that is throttled now",
        |view, out| {
            of(view, |c| {
                c.restraint
                    .held
                    .iter()
                    .try_for_each(|(class, share)| out.gauge(&[&c.name, class.name()], share.as_f64()))
            })
        },
    ),
    Metric::counter(
        "plimsoll_spill_shed_requests",
        &["cluster", "criticality"],
        "Requests shed before they were sent, because no locality had headroom",
        |view, out| {
            of(view, |c| match c.localities.as_slice() {
                [] => Ok(()),
                _ => by_criticality(out, &c.name, c.counts.no_room),
            })
        },
    ),
    Metric::counter("plimsoll_locality_requests", LOCALITY, "Attempts sent to a locality", |view, out| {
        of(view, |c| localities(c, |labels, l| out.count(&labels, l.requests)))
    }),
    Metric::gauge(
        "plimsoll_locality_utilization_ratio",
        LOCALITY,
        "Mean utilization that healthy backends of a locality reported in the last seconds; each counts at most as 1, or as twice the median if that is more",
        |view, out| of(view, |c| localities(c, |labels, l| out.gauge(&labels, l.locality.utilization))),
    ),
    Metric::gauge(
        "plimsoll_locality_sent_qps",
        LOCALITY,
        "Requests per second sent to a locality by this process in the last seconds",
        |view, out| of(view, |c| localities(c, |labels, l| out.gauge(&labels, l.standing.sent))),
    ),
    Metric::gauge(
        "plimsoll_locality_room_qps",
        LOCALITY,
        "Requests per second that a locality can take from this process; no sample without a bound",
        |view, out| of(view, |c| localities(c, |labels, l| out.gauge(&labels, l.standing.room))),
    ),
    Metric::gauge(
        "plimsoll_locality_drained",
        LOCALITY,
        "1 while a locality gets no requests because too few of its backends are healthy",
        |view, out| of(view, |c| localities(c, |labels, l| out.flag(&labels, l.standing.is_drained))),
    ),
    Metric::gauge(
        "plimsoll_known_backends",
        CLUSTER,
        "Backends of the cluster, those outside the subset included",
        |view, out| of(view, |c| out.gauge(&[&c.name], c.known as f64)),
    ),
    Metric::gauge(
        "plimsoll_backend_overrides",
        &["cluster", "kind"],
        "Changes of single backends by hand that are in force: added, removed, weight, drained",
        |view, out| {
            of(view, |c| {
                OverrideKind::ALL.into_iter().try_for_each(|kind| {
                    let count = c.overrides.iter().filter(|each| each.change.kind() == kind).count();
                    out.gauge(&[&c.name, kind.name()], count as f64)
                })
            })
        },
    ),
    Metric::gauge(
        "plimsoll_discovery_info",
        &["cluster", "kind", "source"],
        "Always 1, with the kind and the description of the source of backends as labels",
        |view, out| of(view, |c| out.gauge(&[&c.name, c.discovery.kind, &c.discovery.source], 1.0)),
    ),
    Metric::gauge(
        "plimsoll_discovery_backends",
        &["cluster", "state"],
        "Backends by the source, without changes by hand: ready, held (missing after a sudden loss), draining, starting",
        |view, out| {
            of(view, |c| {
                let Census { ready, held, draining, starting } = c.discovery.backends;
                let states = [("ready", ready), ("held", held), ("draining", draining), ("starting", starting)];
                states.into_iter().try_for_each(|(state, count)| out.gauge(&[&c.name, state], count as f64))
            })
        },
    ),
    Metric::counter(
        "plimsoll_discovery_changes",
        &["cluster", "reason"],
        "Changes of backends by the source: added, changed, removed, drained, held, expired (removed at the end of a hold)",
        |view, out| {
            of(view, |c| {
                let MergeCounts { added, changed, removed, drained, held, expired, .. } = c.discovery.counts;
                out.count(&[&c.name, "added"], added)?;
                out.count(&[&c.name, "changed"], changed)?;
                out.count(&[&c.name, "removed"], removed)?;
                out.count(&[&c.name, "drained"], drained)?;
                out.count(&[&c.name, "held"], held)?;
                out.count(&[&c.name, "expired"], expired)
            })
        },
    ),
    Metric::counter(
        "plimsoll_discovery_errors",
        CLUSTER,
        "Errors of the source of backends; the backends stay",
        |view, out| of(view, |c| out.count(&[&c.name], c.discovery.counts.errors)),
    ),
    Metric::counter(
        "plimsoll_discovery_empty_lists",
        CLUSTER,
        "Empty lists of the source that had no effect (`on_empty`)",
        |view, out| of(view, |c| out.count(&[&c.name], c.discovery.counts.empty)),
    ),
    Metric::gauge(
        "plimsoll_discovery_failing",
        CLUSTER,
        "1 while the last answer of the source was an error",
        |view, out| of(view, |c| out.flag(&[&c.name], c.discovery.is_failing)),
    ),
    Metric::gauge(
        "plimsoll_discovery_static_failing",
        CLUSTER,
        "1 while a name in `backends` beside the source fails; its backends stay",
        |view, out| of(view, |c| out.flag(&[&c.name], c.discovery.fixed_error.is_some())),
    ),
    Metric::gauge(
        "plimsoll_discovery_stale",
        CLUSTER,
        "1 while a saved list from `state_dir` is in force, since the source has not answered yet",
        |view, out| of(view, |c| out.flag(&[&c.name], c.discovery.freshness == Freshness::Stale)),
    ),
    Metric::gauge(
        "plimsoll_discovery_answer_age_seconds",
        CLUSTER,
        "Time since the last list of the source; a source that answers on changes only is old while nothing changes",
        |view, out| of(view, |c| out.gauge(&[&c.name], c.discovery.answered.map(|at| c.at.since(at).as_secs_f64()))),
    ),
    Metric::gauge(
        "plimsoll_waiting_requests",
        CLUSTER,
        "Requests waiting now because all backends are at their limit of active requests",
        |view, out| of(view, |c| out.gauge(&[&c.name], c.waiting as f64)),
    ),
    Metric::counter(
        "plimsoll_flow_control_waits",
        CLUSTER,
        "Requests that waited because all backends were at their limit of active requests",
        |view, out| of(view, |c| out.count(&[&c.name], c.counts.waited)),
    ),
    Metric::counter(
        "plimsoll_further_attempts",
        CLUSTER,
        "Attempts at another backend after an attempt that sent nothing",
        |view, out| of(view, |c| out.count(&[&c.name], c.counts.further_attempts)),
    ),
    Metric::counter(
        "plimsoll_replayed_requests",
        CLUSTER,
        "Requests sent again because a kept-alive connection had just closed",
        |view, out| of(view, |c| out.count(&[&c.name], c.counts.replayed)),
    ),
    Metric::counter(
        "plimsoll_retries",
        &["cluster", "reason", "outcome"],
        "Retries by reason and outcome",
        |view, out| {
            of(view, |c| {
                let mut retries = c.counts.retries.iter();
                retries.try_for_each(|(reason, outcome, count)| out.count(&[&c.name, reason, outcome], *count))
            })
        },
    ),
    Metric::counter(
        "plimsoll_retries_denied",
        &["cluster", "reason"],
        "Failed requests that were not retried, by the reason against a retry",
        |view, out| {
            of(view, |c| {
                let mut reasons = NoRetryReason::ALL.into_iter().zip(c.counts.given_up);
                reasons.try_for_each(|(reason, count)| out.count(&[&c.name, reason.name()], count))
            })
        },
    ),
    Metric::counter(
        "plimsoll_hedges",
        CLUSTER,
        "Hedges: requests sent to a second backend while the first was slow",
        |view, out| of(view, |c| out.count(&[&c.name], c.counts.hedges.sent)),
    ),
    Metric::counter("plimsoll_hedges_won", CLUSTER, "Hedges that responded before the first backend", |view, out| {
        of(view, |c| out.count(&[&c.name], c.counts.hedges.won))
    }),
    Metric::counter(
        "plimsoll_hedges_denied",
        CLUSTER,
        "Hedges denied because the retry budget was exhausted",
        |view, out| of(view, |c| out.count(&[&c.name], c.counts.hedges.denied)),
    ),
    Metric::gauge(
        "plimsoll_retry_budget_used_ratio",
        CLUSTER,
        "Share of the retry budget in use; 1 is exhausted",
        |view, out| of(view, |c| out.gauge(&[&c.name], c.restraint.budget_used.as_f64())),
    ),
    Metric::histogram(
        "plimsoll_latency_seconds",
        CLUSTER,
        "Time from the end of a request (the last part sent, while its body is open) to the head of its response",
        |view, out| of(view, |c| out.histogram(&[&c.name], &c.counts.latency)),
    ),
    Metric::counter(
        "plimsoll_backend_transitions",
        &["cluster", "state", "reason"],
        "State changes of backends by new state and reason",
        |view, out| {
            of(view, |c| {
                let mut transitions = c.counts.transitions.iter();
                transitions.try_for_each(|(to, reason, count)| out.count(&[&c.name, to.name(), reason.name()], *count))
            })
        },
    ),
    Metric::counter(
        "plimsoll_panics",
        CLUSTER,
        "Times that too few backends were healthy, so that unhealthy ones became usable too (panic threshold)",
        |view, out| of(view, |c| out.count(&[&c.name], c.counts.panics)),
    ),
    Metric::gauge(
        "plimsoll_utilization_max_over_mean_ratio",
        CLUSTER,
        "Spread: largest reported utilization of a healthy backend divided by the mean; 1 is even",
        |c, out| out.gauge(&[&c.summary.name], spread(c).map(|spread| spread.max_over_mean)),
    ),
    Metric::gauge(
        "plimsoll_utilization_max_over_min_ratio",
        CLUSTER,
        "Spread: largest reported utilization of a healthy backend divided by the smallest; 1 is even",
        |c, out| out.gauge(&[&c.summary.name], spread(c).map(|spread| spread.max_over_min)),
    ),
    Metric::gauge(
        "plimsoll_utilization_waste_backends",
        CLUSTER,
        "Waste: capacity unused by the others when the most loaded healthy backend is full, in backends",
        |c, out| out.gauge(&[&c.summary.name], spread(c).map(|spread| spread.waste)),
    ),
    Metric::gauge(
        "plimsoll_probe_backends",
        &["cluster", "path"],
        "Backends probed by UDP, by the path of datagrams: unknown, works, or the reason for which probes are of no use",
        |view, out| {
            of(view, |c| {
                let Some(probes) = &c.probes else { return Ok(()) };
                out.gauge(&[&c.name, "unknown"], probes.census.unknown as f64)?;
                out.gauge(&[&c.name, "works"], probes.census.works as f64)?;
                let mut silent = SilenceCause::ALL.into_iter().zip(probes.census.silent);
                silent.try_for_each(|(cause, count)| out.gauge(&[&c.name, cause.name()], count as f64))
            })
        },
    ),
    Metric::gauge(
        "plimsoll_probe_inactive_backends",
        CLUSTER,
        "Backends without connections and checks, because they get no requests and probes work",
        |view, out| {
            of(view, |c| c.probes.iter().try_for_each(|probes| out.gauge(&[&c.name], probes.census.inactive as f64)))
        },
    ),
    Metric::counter(
        "plimsoll_probe_woken",
        CLUSTER,
        "Requests that went to an inactive backend, and mostly waited for a connection",
        |view, out| of(view, |c| c.probes.iter().try_for_each(|probes| out.count(&[&c.name], probes.counts.woken))),
    ),
    Metric::counter("plimsoll_probe_queries", CLUSTER, "Queries to backends by UDP", |view, out| {
        of(view, |c| c.probes.iter().try_for_each(|probes| out.count(&[&c.name], probes.counts.queries)))
    }),
    Metric::counter("plimsoll_probe_answers", CLUSTER, "Answers to queries, in time", |view, out| {
        of(view, |c| c.probes.iter().try_for_each(|probes| out.count(&[&c.name], probes.counts.answers)))
    }),
    Metric::counter("plimsoll_probe_refusals", CLUSTER, "Queries to a closed UDP port", |view, out| {
        of(view, |c| c.probes.iter().try_for_each(|probes| out.count(&[&c.name], probes.counts.refused)))
    }),
    Metric::counter("plimsoll_probe_notices", CLUSTER, "Notices of backends that changed their state", |view, out| {
        of(view, |c| c.probes.iter().try_for_each(|probes| out.count(&[&c.name], probes.counts.notices)))
    }),
    Metric::counter(
        "plimsoll_probe_dropped",
        &["cluster", "reason"],
        "Datagrams of probes without effect, by reason",
        |view, out| {
            of(view, |c| {
                let Some(probes) = &c.probes else { return Ok(()) };
                out.count(&[&c.name, "doubted"], probes.counts.doubted)?;
                out.count(&[&c.name, "invalid"], probes.drops.invalid)?;
                out.count(&[&c.name, "unauthentic"], probes.drops.unauthentic)?;
                out.count(&[&c.name, "unsent"], probes.drops.unsent)
            })
        },
    ),
];
