//! The results of a server: metrics by name, and [figures].

use std::time::Duration;

use super::measure::{Counted, Reading, Tally};
use super::plan::Plan;
use super::{Measured, figures};
use crate::experiment::counts::ratio;
use crate::experiment::windows::{Window, windows};
use crate::findings::Findings;

/// Readings in the shortest span whose CPU usage is judged: a twentieth of a second at the default
/// tick, the shortest that requests of some milliseconds allow.
const BUSY_READINGS: usize = 20;

/// The names of all metrics that the plan gives.
#[must_use]
pub fn metric_names(plan: &Plan) -> Vec<String> {
    let mut names = Vec::new();
    for arm in &plan.arms {
        for window in windows(&plan.phases, plan.warmup, plan.duration) {
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
        let windows = of.measure.course.windows.iter().zip(&of.measure.counted).zip(&of.measure.most_in_a_second);
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

/// All sources together, except the most CPU in a second: the maximum of all is not the sum of the
/// maxima.
pub(super) fn sum(counted: &[Counted]) -> Counted {
    counted.iter().fold(Counted::new(), |mut sum, one| {
        sum.tally += &one.tally;
        sum.latency.add(&one.latency).expect("the same bounds");
        sum
    })
}

/// `None` where there is nothing to measure.
type OfTasks = fn(&Counted, f64) -> Option<f64>;

/// Metrics of the tasks of one source, or of all, given the length of the window in seconds.
const OF_TASKS: [(&str, OfTasks); 15] = [
    ("tasks", |of, _| Some(of.tally.arrived as f64)),
    ("useful_share", |of, _| of.tally.useful_share()),
    ("shed_share", |of, _| of.tally.shed_share()),
    ("late_share", |of, _| ratio(late(&of.tally), of.tally.arrived)),
    ("cancelled_share", |of, _| ratio(of.tally.cancelled, of.tally.arrived)),
    ("useful_per_second", |of, seconds| per_second(&of.tally, of.tally.useful, seconds)),
    ("shed_per_second", |of, seconds| per_second(&of.tally, of.tally.shed + of.tally.hopeless, seconds)),
    ("late_per_second", |of, seconds| per_second(&of.tally, late(&of.tally), seconds)),
    ("requests_per_task", |of, _| ratio(of.tally.requests, of.tally.arrived)),
    ("requests_shed_share", |of, _| ratio(of.tally.requests_shed, of.tally.requests)),
    ("hopeless_share", |of, _| ratio(of.tally.hopeless, of.tally.arrived)),
    ("p50", |of, _| quantile(of, 0.5)),
    ("p99", |of, _| quantile(of, 0.99)),
    ("last", |of, _| (of.tally.useful > 0).then_some(of.tally.last.as_secs_f64())),
    ("most_in_a_second", |of, seconds| most_in_a_second(of, seconds)),
];

/// Late or expired: started, but not answered in time.
pub(super) fn late(tally: &Tally) -> u64 {
    tally.late + tally.expired
}

fn per_second(of: &Tally, count: u64, seconds: f64) -> Option<f64> {
    (of.arrived > 0).then(|| count as f64 / seconds)
}

/// CPU-seconds. `None` without a whole second, or without usage, earlier tasks included.
fn most_in_a_second(of: &Counted, seconds: f64) -> Option<f64> {
    let is_used = of.tally.arrived > 0 || of.most_in_a_second > 0.0;
    (seconds >= 1.0 && is_used).then_some(of.most_in_a_second)
}

/// Milliseconds, of tasks answered in time.
fn quantile(of: &Counted, quantile: f64) -> Option<f64> {
    (!of.latency.is_empty()).then(|| of.latency.value_at_quantile(quantile) as f64 / 1e3)
}

/// The server in one window.
struct Server<'m> {
    plan: &'m Plan,
    of: &'m Measured<'m>,
    window: &'m Window,
    all: &'m Tally,
}

type OfServer = fn(&Server<'_>) -> Option<f64>;

/// Metrics of the server.
const OF_SERVER: [(&str, OfServer); 6] = [
    ("goodput", |server| {
        (server.all.arrived > 0).then(|| server.part_of_cores(server.all.useful_cpu, server.window.seconds()))
    }),
    ("cpu", |server| server.cpu()),
    ("least_busy", |server| server.least_busy()),
    ("in_progress_max", |server| Some(server.used()?.iter().map(|reading| reading.in_progress).max()? as f64)),
    ("delay_max", |server| Some(milliseconds(server.used()?.iter().map(|reading| reading.delay).max()?))),
    ("settled_after", |server| server.settled_after()),
];

impl Server<'_> {
    /// The readings of the window.
    fn readings(&self) -> &[Reading] {
        between(&self.of.measure.readings, self.window.from, self.window.to)
    }

    /// The same, if there was usage by the end of the window. An idle server without requests means
    /// nothing.
    fn used(&self) -> Option<&[Reading]> {
        let so_far = between(&self.of.measure.readings, Duration::ZERO, self.window.to);
        so_far.iter().any(|reading| reading.in_progress > 0).then(|| self.readings())
    }

    fn part_of_cores(&self, cpu: f64, seconds: f64) -> f64 {
        cpu / (seconds * self.of.cores)
    }

    /// CPU used between two readings, over all cores. `None` between a reading and itself.
    fn busy(&self, from: &Reading, to: &Reading) -> Option<f64> {
        (to.at > from.at).then(|| self.part_of_cores(to.cpu - from.cpu, (to.at - from.at).as_secs_f64()))
    }

    fn cpu(&self) -> Option<f64> {
        let readings = self.used()?;
        self.busy(readings.first()?, readings.last()?)
    }

    fn least_busy(&self) -> Option<f64> {
        let spans = self.used()?.windows(BUSY_READINGS + 1);
        spans.filter_map(|span| self.busy(&span[0], &span[BUSY_READINGS])).reduce(f64::min)
    }

    /// Milliseconds from the beginning of the window, settling included, to the last reading above
    /// the target.
    fn settled_after(&self) -> Option<f64> {
        self.used()?;
        let readings = between(&self.of.measure.readings, self.window.begins, self.window.to);
        let above = readings.iter().rfind(|reading| reading.delay > self.plan.target_delay);
        Some(above.map_or(0.0, |reading| milliseconds(reading.at.saturating_sub(self.window.begins))))
    }
}

/// Readings after `from`, up to `to`.
pub(super) fn between(readings: &[Reading], from: Duration, to: Duration) -> &[Reading] {
    let start = readings.partition_point(|reading| reading.at <= from);
    let end = readings.partition_point(|reading| reading.at <= to);
    &readings[start..end.max(start)]
}

fn milliseconds(span: Duration) -> f64 {
    span.as_secs_f64() * 1e3
}
