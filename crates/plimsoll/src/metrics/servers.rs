//! The gates of servers.

use plimsoll_core::shedding::{Class, Summary, Verdict};
use plimsoll_core::signal::{Loads, Signal};
use plimsoll_core::{Criticality, Rejection};

use super::Metric;
use crate::server::{AdmissionCounts, ServerLayer};

/// The facts about one server.
pub(super) struct Served {
    name: Box<str>,
    gate: Option<Gate>,
}

/// The facts about its gate.
struct Gate {
    counts: AdmissionCounts,
    summary: Summary,
    loads: Loads,
    /// In reference CPUs.
    capacity: f64,
    /// In reference CPUs.
    cpus: Option<f64>,
    speed: f64,
}

impl Served {
    pub(super) fn of(name: &str, layer: &ServerLayer) -> Self {
        let gate = layer.shedding_report().zip(layer.loads()).zip(layer.cpus());
        let gate = gate.map(|((summary, loads), (capacity, cpus, speed))| Gate {
            counts: layer.admission(),
            summary,
            loads,
            capacity,
            cpus,
            speed: speed.as_f64(),
        });
        Self { name: name.into(), gate }
    }

    /// Its name and its gate, if it has one.
    fn gate(&self) -> impl Iterator<Item = (&str, &Gate)> {
        self.gate.iter().map(|gate| (&*self.name, gate))
    }

    /// Its name and the counts of each criticality.
    fn classes(&self) -> impl Iterator<Item = (&str, &'static str, &Class)> {
        let of_gate = |(name, gate)| {
            let Gate { summary, .. }: &Gate = gate;
            Criticality::ALL.into_iter().zip(&summary.total).map(move |(class, counts)| (name, class.name(), counts))
        };
        self.gate().flat_map(of_gate)
    }
}

const CLUSTER: &[&str] = &["cluster"];
const CRITICALITY: &[&str] = &["cluster", "criticality"];
const DECISION: &[&str] = &["cluster", "criticality", "decision"];

/// The table.
pub(super) static TABLE: &[Metric<Served>] = &[
    Metric::counter(
        "plimsoll_admission_requests",
        DECISION,
        "Decisions of the gate of a cluster with `inbound`: admitted, or the reason for shedding",
        |served, out| {
            served.gate().try_for_each(|(name, gate)| {
                Criticality::ALL.into_iter().zip(gate.counts.by_criticality).try_for_each(|(class, decided)| {
                    let mut decided = decided.by_name();
                    decided.try_for_each(|(decision, count)| out.count(&[name, class.name(), decision], count))
                })
            })
        },
    ),
    Metric::counter(
        "plimsoll_admission_cost_seconds",
        DECISION,
        "Expected CPU cost of requests by the gate's decision; a dry run counts requests that it would shed as shed only",
        |served, out| {
            served.classes().try_for_each(|(name, class, counts)| {
                out.quantity(&[name, class, "admitted"], counts.admitted.cost)?;
                let mut shed = Rejection::REPORTED.iter().zip(&counts.shed).filter(|(_, tally)| tally.requests > 0);
                shed.try_for_each(|(reason, tally)| out.quantity(&[name, class, reason.name()], tally.cost))
            })
        },
    ),
    Metric::counter(
        "plimsoll_offered_cost_seconds",
        CRITICALITY,
        "Expected CPU cost of all requests that reached the gate of a cluster with `inbound`",
        |served, out| {
            let mut classes = served.classes();
            classes.try_for_each(|(name, class, counts)| out.quantity(&[name, class], counts.offered.cost))
        },
    ),
    Metric::counter(
        "plimsoll_retried_requests",
        CRITICALITY,
        "Requests at the gate that say that they are retries",
        |served, out| {
            let mut classes = served.classes();
            classes.try_for_each(|(name, class, counts)| out.count(&[name, class], counts.retried.requests))
        },
    ),
    Metric::gauge(
        "plimsoll_throttling_verdict",
        &["cluster", "verdict"],
        "1 for the verdict of the shedding report of a cluster with `inbound`, 0 for the others",
        |served, out| {
            served.gate().try_for_each(|(name, gate)| {
                let mut verdicts = Verdict::ALL.into_iter();
                verdicts.try_for_each(|verdict| out.flag(&[name, verdict.name()], verdict == gate.summary.verdict))
            })
        },
    ),
    Metric::gauge("plimsoll_throttling_verdict_seconds", CLUSTER, "Time since this verdict began", |served, out| {
        served.gate().try_for_each(|(name, gate)| out.gauge(&[name], gate.summary.verdict_for.as_secs_f64()))
    }),
    Metric::gauge(
        "plimsoll_throttled_seconds",
        CLUSTER,
        "Time that the gate has been shedding without a pause of five minutes; 0 while it sheds nothing",
        |served, out| {
            let time = |gate: &Gate| gate.summary.shedding_for.unwrap_or_default().as_secs_f64();
            served.gate().try_for_each(|(name, gate)| out.gauge(&[name], time(gate)))
        },
    ),
    Metric::gauge(
        "plimsoll_inbound_capacity_cpus",
        CLUSTER,
        "CPUs that the protected process can use, in reference CPUs",
        |served, out| served.gate().try_for_each(|(name, gate)| out.gauge(&[name], gate.capacity)),
    ),
    Metric::gauge(
        "plimsoll_inbound_enough_cpus",
        CLUSTER,
        "CPUs that would have been enough since shedding began; no sample while nothing is shed or the figure is not known, such as in the first ten minutes",
        |served, out| served.gate().try_for_each(|(name, gate)| out.gauge(&[name], gate.summary.enough)),
    ),
    Metric::gauge(
        "plimsoll_inbound_process_seen",
        CLUSTER,
        "1 while the protected process is found and can be measured",
        |served, out| served.gate().try_for_each(|(name, gate)| out.flag(&[name], gate.cpus.is_some())),
    ),
    Metric::gauge(
        "plimsoll_inbound_process_cpus",
        CLUSTER,
        "CPU usage of the protected process and its children, in reference CPUs",
        |served, out| served.gate().try_for_each(|(name, gate)| out.gauge(&[name], gate.cpus)),
    ),
    Metric::gauge(
        "plimsoll_inbound_machine_speed_ratio",
        CLUSTER,
        "Speed of the machine of the protected process, relative to the reference core",
        |served, out| served.gate().try_for_each(|(name, gate)| out.gauge(&[name], gate.speed)),
    ),
    Metric::gauge(
        "plimsoll_inbound_signal_load",
        &["cluster", "signal"],
        "Load of the protected process by signal; 1 is the most that it can bear",
        |served, out| {
            served.gate().try_for_each(|(name, gate)| {
                let mut known = gate.loads.known();
                known.try_for_each(|(signal, load)| out.gauge(&[name, signal.name()], load))
            })
        },
    ),
    Metric::gauge(
        "plimsoll_inbound_binding_signal",
        &["cluster", "signal"],
        "1 for the signal that caused shedding in the last second, 0 for the others",
        |served, out| {
            served.gate().try_for_each(|(name, gate)| {
                let mut signals = Signal::ALL.into_iter();
                signals.try_for_each(|signal| out.flag(&[name, signal.name()], gate.loads.binding == Some(signal)))
            })
        },
    ),
];
