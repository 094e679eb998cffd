//! What the measurement of a server comes to: metrics by name, and [figures].

use std::time::Duration;

use super::measure::{self, Counted, Reading, Tally, ratio};
use super::plan::Plan;
use super::{Measured, figures};
use crate::experiment::windows::Window;
use crate::findings::Findings;

/// Readings in the span over which CPU is looked at for idling: a twentieth of a second in the default tick, which is as short as
/// requests of some milliseconds allow.
const BUSY_READINGS: usize = 20;

/// The names of all metrics that the plan gives.
#[must_use]
pub fn metric_names(plan: &Plan) -> Vec<String> {
    let mut names = Vec::new();
    for arm in &plan.arms {
        for window in measure::windows(plan) {
            let prefix = window.prefix(&arm.name);
            names.extend(OF_SERVER.iter().map(|(name, _)| format!("{prefix}.{name}")));
            names.extend(OF_TASKS.iter().map(|(name, _)| format!("{prefix}.{name}")));
            for source in &plan.sources {
                names.extend(OF_TASKS.iter().map(|(name, _)| format!("{prefix}.{}.{name}", source.name)));
            }
        }
        names.push(format!("{}.events", arm.name));
    }
    names
}

/// Puts metrics and figures together.
pub(super) fn findings(plan: &Plan, measured: &[Measured<'_>]) -> Findings {
    let mut findings = Findings::default();
    for of in measured {
        let windows = of.measure.windows.iter().zip(&of.measure.counted).zip(&of.measure.most_in_a_second);
        for ((window, counted), most_in_a_second) in windows {
            let prefix = window.prefix(&of.arm.name);
            let all = Counted { most_in_a_second: *most_in_a_second, ..sum(counted) };
            let server = Server { plan, of, window, all: &all.tally };
            for (name, metric) in OF_SERVER {
                findings.metric(format!("{prefix}.{name}"), metric(&server));
            }
            for (name, metric) in OF_TASKS {
                findings.metric(format!("{prefix}.{name}"), metric(&all, window.seconds()));
                for (source, counted) in plan.sources.iter().zip(counted) {
                    let name = format!("{prefix}.{}.{name}", source.name);
                    findings.metric(name, metric(counted, window.seconds()));
                }
            }
        }
        findings.metric(format!("{}.events", of.arm.name), of.events as f64);
    }
    findings.figures = figures::figures(plan, measured);
    findings
}

/// All sources together, but for what they used in one second: that of all is not the sum of what each did.
pub(super) fn sum(counted: &[Counted]) -> Counted {
    counted.iter().fold(Counted::new(), |mut sum, one| {
        sum.tally += &one.tally;
        sum.latency.add(&one.latency).expect("the same bounds");
        sum
    })
}

type OfTasks = fn(&Counted, f64) -> f64;

/// Metrics of the tasks of one source, or of all; given the seconds in which they arrived.
const OF_TASKS: [(&str, OfTasks); 15] = [
    ("tasks", |of, _| of.tally.arrived as f64),
    ("useful_share", |of, _| of.tally.useful_share()),
    ("shed_share", |of, _| of.tally.shed_share()),
    ("late_share", |of, _| ratio(late(&of.tally), of.tally.arrived)),
    ("cancelled_share", |of, _| ratio(of.tally.cancelled, of.tally.arrived)),
    ("useful_per_second", |of, seconds| per_second(of.tally.useful, seconds)),
    ("shed_per_second", |of, seconds| per_second(of.tally.shed + of.tally.hopeless, seconds)),
    ("late_per_second", |of, seconds| per_second(late(&of.tally), seconds)),
    ("requests_per_task", |of, _| ratio(of.tally.requests, of.tally.arrived)),
    ("requests_shed_share", |of, _| ratio(of.tally.requests_shed, of.tally.requests)),
    ("hopeless_share", |of, _| ratio(of.tally.hopeless, of.tally.arrived)),
    ("p50", |of, _| quantile(of, 0.5)),
    ("p99", |of, _| quantile(of, 0.99)),
    ("last", |of, _| of.tally.last.as_secs_f64()),
    ("most_in_a_second", |of, _| of.most_in_a_second),
];

/// Not answered in time, though begun.
pub(super) fn late(tally: &Tally) -> u64 {
    tally.late + tally.expired
}

fn per_second(count: u64, seconds: f64) -> f64 {
    if seconds > 0.0 { count as f64 / seconds } else { 0.0 }
}

/// Milliseconds.
fn quantile(of: &Counted, quantile: f64) -> f64 {
    of.latency.value_at_quantile(quantile) as f64 / 1e3
}

/// The server in one part of the run.
struct Server<'m> {
    plan: &'m Plan,
    of: &'m Measured<'m>,
    window: &'m Window,
    all: &'m Tally,
}

type OfServer = fn(&Server<'_>) -> f64;

/// Metrics of the server.
const OF_SERVER: [(&str, OfServer); 6] = [
    ("goodput", |server| server.part_of_cores(server.all.useful_cpu, server.window.seconds())),
    ("cpu", |server| server.cpu()),
    ("least_busy", |server| server.least_busy()),
    ("in_progress_max", |server| server.readings().iter().map(|reading| reading.in_progress).max().unwrap_or(0) as f64),
    ("delay_max", |server| milliseconds(server.readings().iter().map(|reading| reading.delay).max())),
    ("settled_after", |server| server.settled_after()),
];

impl Server<'_> {
    /// Readings of what happened in the measured part.
    fn readings(&self) -> &[Reading] {
        between(&self.of.measure.readings, self.window.from, self.window.to)
    }

    fn part_of_cores(&self, cpu: f64, seconds: f64) -> f64 {
        if seconds > 0.0 { cpu / (seconds * self.of.cores) } else { 0.0 }
    }

    /// CPU used between two readings, of all there was.
    fn busy(&self, from: &Reading, to: &Reading) -> f64 {
        self.part_of_cores(to.cpu - from.cpu, to.at.saturating_sub(from.at).as_secs_f64())
    }

    fn cpu(&self) -> f64 {
        let readings = self.readings();
        readings.first().zip(readings.last()).map_or(0.0, |(first, last)| self.busy(first, last))
    }

    fn least_busy(&self) -> f64 {
        let spans = self.readings().windows(BUSY_READINGS + 1);
        spans.map(|span| self.busy(&span[0], &span[BUSY_READINGS])).fold(1.0, f64::min)
    }

    /// Milliseconds from the beginning of the part, whatever of it is not measured, to the last reading above the target.
    fn settled_after(&self) -> f64 {
        let readings = between(&self.of.measure.readings, self.window.begins, self.window.to);
        let above = readings.iter().rfind(|reading| reading.delay > self.plan.target_delay);
        milliseconds(above.map(|reading| reading.at.saturating_sub(self.window.begins)))
    }
}

/// Readings after `from`, up to `to`.
pub(super) fn between(readings: &[Reading], from: Duration, to: Duration) -> &[Reading] {
    let start = readings.partition_point(|reading| reading.at <= from);
    let end = readings.partition_point(|reading| reading.at <= to);
    &readings[start..end.max(start)]
}

fn milliseconds(span: Option<Duration>) -> f64 {
    span.unwrap_or_default().as_secs_f64() * 1e3
}
