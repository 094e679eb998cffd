//! What the measurement of a fleet comes to: metrics by name, and figures.

use plimsoll_core::spread::{self, Spread};

use super::measure::{Ending, Sample, Tally};
use super::plan::{Arm, Arrivals, Plan, Rate};
use super::script::{self, Script};
use crate::findings::{Axis, Figure, Findings, Series, SeriesKind};

/// Said instead of an infinite ratio, when somebody got nothing at all.
const UNBOUNDED_RATIO: f64 = 1e6;
/// Points of a curve of latencies to each factor of ten.
const POINTS_PER_DECADE: u32 = 8;

/// What was measured in one arm.
pub(super) struct Measured<'p> {
    pub(super) arm: &'p Arm,
    /// The whole run, then each phase.
    pub(super) tallies: Vec<Tally>,
    pub(super) samples: Vec<Sample>,
    /// The group of each backend.
    pub(super) groups: Vec<u32>,
    pub(super) events: u64,
}

/// The names of all metrics that the plan gives, in order.
#[must_use]
pub fn metric_names(plan: &Plan) -> Vec<String> {
    let windows = script::windows(plan);
    let mut names = Vec::new();
    for arm in &plan.arms {
        let groups = group_names(plan, arm);
        for window in &windows {
            let prefix = prefix(arm, window.name.as_deref());
            names.extend(METRICS.iter().map(|(name, _)| format!("{prefix}.{name}")));
            names.extend(groups.iter().map(|group| format!("{prefix}.share.{group}")));
        }
        names.push(format!("{}.events", arm.name));
    }
    names
}

type Metric = fn(&Tally) -> f64;

const METRICS: [(&str, Metric); 22] = [
    ("requests", |tally| tally.arrived as f64),
    ("error_share", |tally| 1.0 - share(tally, Ending::Answered)),
    ("timeout_share", |tally| share(tally, Ending::TimedOut)),
    ("failure_share", |tally| share(tally, Ending::Failed)),
    ("overloaded_share", |tally| share(tally, Ending::Overloaded)),
    ("no_backend_share", |tally| share(tally, Ending::NoBackend)),
    ("p50", |tally| quantile(tally, 0.5)),
    ("p90", |tally| quantile(tally, 0.9)),
    ("p99", |tally| quantile(tally, 0.99)),
    ("p99.9", |tally| quantile(tally, 0.999)),
    ("mean_latency", |tally| tally.latency.mean() / 1e3),
    ("cpu", |tally| {
        let loads = loads(tally);
        loads.iter().sum::<f64>() / loads.len().max(1) as f64
    }),
    ("max_over_mean", |tally| cpu_spread(tally).max_over_mean),
    ("max_over_min", |tally| cpu_spread(tally).max_over_min.min(UNBOUNDED_RATIO)),
    ("waste", |tally| cpu_spread(tally).waste),
    ("requests_max_over_mean", |tally| received_spread(tally).max_over_mean),
    ("requests_max_over_min", |tally| received_spread(tally).max_over_min.min(UNBOUNDED_RATIO)),
    ("in_flight_p50", |tally| tally.in_flight.value_at_quantile(0.5) as f64),
    ("in_flight_p99", |tally| tally.in_flight.value_at_quantile(0.99) as f64),
    ("attempts_per_request", |tally| ratio(tally.offers as f64, tally.arrived as f64)),
    ("probes_per_request", |tally| ratio(tally.probes as f64, tally.arrived as f64)),
    ("answered_per_second", |tally| ratio(tally.ended[Ending::Answered as usize] as f64, tally.seconds)),
];

/// Puts metrics and figures together.
pub(super) fn findings(plan: &Plan, measured: &[Measured<'_>]) -> Findings {
    let mut findings = Findings::default();
    let windows = script::windows(plan);
    for of in measured {
        let names = group_names(plan, of.arm);
        for (window, tally) in windows.iter().zip(&of.tallies) {
            let prefix = prefix(of.arm, window.name.as_deref());
            for (name, metric) in METRICS {
                findings.metric(format!("{prefix}.{name}"), metric(tally));
            }
            let all: u64 = tally.used.iter().map(|used| used.received).sum();
            for (group, name) in (0_u32..).zip(&names) {
                let of_group = tally.used.iter().zip(&of.groups).filter(|(_, its)| **its == group);
                let received: u64 = of_group.map(|(used, _)| used.received).sum();
                findings.metric(format!("{prefix}.share.{name}"), ratio(received as f64, all as f64));
            }
        }
        findings.metric(format!("{}.events", of.arm.name), of.events as f64);
    }
    findings.figures = figures(plan, measured);
    findings
}

fn prefix(arm: &Arm, phase: Option<&str>) -> String {
    phase.map_or_else(|| arm.name.clone(), |phase| format!("{}.{phase}", arm.name))
}

fn group_names(plan: &Plan, arm: &Arm) -> Vec<String> {
    Script::new(plan, arm).groups.iter().map(|group| group.name.clone()).collect()
}

fn ratio(part: f64, whole: f64) -> f64 {
    if whole > 0.0 { part / whole } else { 0.0 }
}

fn share(tally: &Tally, ending: Ending) -> f64 {
    if tally.arrived == 0 && ending == Ending::Answered {
        return 1.0;
    }
    ratio(tally.ended[ending as usize] as f64, tally.arrived as f64)
}

/// Milliseconds; the greatest that was recorded bounds the rounding of the histogram.
fn quantile(tally: &Tally, quantile: f64) -> f64 {
    tally.latency.value_at_quantile(quantile).min(tally.longest) as f64 / 1e3
}

fn loads(tally: &Tally) -> Vec<f64> {
    tally.used.iter().filter_map(|used| used.load()).collect()
}

fn cpu_spread(tally: &Tally) -> Spread {
    spread::of(loads(tally)).unwrap_or(EVEN)
}

fn received_spread(tally: &Tally) -> Spread {
    let up = tally.used.iter().filter(|used| used.provided > 0.0);
    spread::of(up.map(|used| used.received as f64)).unwrap_or(EVEN)
}

/// Where nothing was done at all.
const EVEN: Spread = Spread { max_over_mean: 1.0, max_over_min: 1.0, waste: 0.0 };

fn figures(plan: &Plan, measured: &[Measured<'_>]) -> Vec<Figure> {
    let mut figures = vec![cpu_by_backend(measured), spread_over_time(measured), latency(measured)];
    if measured.len() <= 4 {
        figures.extend(measured.iter().map(cpu_over_time));
    }
    if plan.phases.len() > 1 {
        for (id, title, q) in [
            ("p50-by-phase", "Median latency", 0.5),
            ("p99-by-phase", "99th percentile of latency", 0.99),
            ("p99-9-by-phase", "99.9th percentile of latency", 0.999),
        ] {
            let latency = |tally: &Tally| quantile_ms(tally, q);
            figures.push(by_phase(plan, measured, id, title, Axis::logarithmic("latency", "ms"), &latency));
        }
        let errors = |tally: &Tally| 100.0 * (1.0 - share(tally, Ending::Answered));
        figures.push(by_phase(plan, measured, "errors-by-phase", "Errors", Axis::linear("requests", "%"), &errors));
    }
    figures
}

/// For a logarithmic axis, which has no place for nothing: a microsecond at least.
fn quantile_ms(tally: &Tally, q: f64) -> f64 {
    quantile(tally, q).max(1e-3)
}

fn cpu_by_backend(measured: &[Measured<'_>]) -> Figure {
    let series = measured.iter().map(|of| {
        let mut loads = loads(&of.tallies[0]);
        loads.sort_by(|a, b| b.total_cmp(a));
        let points = (1..).zip(loads).map(|(rank, load)| (f64::from(rank), 100.0 * load)).collect();
        Series { name: of.arm.name.clone(), kind: SeriesKind::Line, points }
    });
    Figure {
        id: "cpu-by-backend".to_owned(),
        title: "CPU used by each backend, the fullest first".to_owned(),
        x: Axis::linear("backend", "rank"),
        y: Axis::linear("CPU used of CPU provisioned", "%"),
        series: series.collect(),
    }
}

fn over_time(of: &Measured<'_>, name: String, value: impl Fn(&Sample) -> f64) -> Series {
    let points = of.samples.iter().map(|sample| (sample.at.as_nanos() as f64 / 1e9, value(sample))).collect();
    Series { name, kind: SeriesKind::Line, points }
}

fn spread_over_time(measured: &[Measured<'_>]) -> Figure {
    let value = |sample: &Sample| if sample.mean > 0.0 { sample.greatest / sample.mean } else { 1.0 };
    Figure {
        id: "spread-over-time".to_owned(),
        title: "CPU of the fullest backend over that of the mean".to_owned(),
        x: Axis::linear("time", "s"),
        y: Axis::linear("fullest over mean", ""),
        series: measured.iter().map(|of| over_time(of, of.arm.name.clone(), value)).collect(),
    }
}

fn cpu_over_time(of: &Measured<'_>) -> Figure {
    let percent = |value: fn(&Sample) -> f64| move |sample: &Sample| 100.0 * value(sample);
    Figure {
        id: format!("cpu-over-time-{}", slug(&of.arm.name)),
        title: format!("CPU of the fullest, the mean and the emptiest backend: {}", of.arm.name),
        x: Axis::linear("time", "s"),
        y: Axis::linear("CPU used of CPU provisioned", "%"),
        series: vec![
            over_time(of, "fullest".to_owned(), percent(|sample| sample.greatest)),
            over_time(of, "mean".to_owned(), percent(|sample| sample.mean)),
            over_time(of, "emptiest".to_owned(), percent(|sample| sample.least)),
        ],
    }
}

fn latency(measured: &[Measured<'_>]) -> Figure {
    let series = measured.iter().map(|of| {
        let points = (0..=4 * POINTS_PER_DECADE).map(|step| {
            let one_in = 10_f64.powf(f64::from(step) / f64::from(POINTS_PER_DECADE));
            (one_in, quantile_ms(&of.tallies[0], 1.0 - 1.0 / one_in))
        });
        Series { name: of.arm.name.clone(), kind: SeriesKind::Line, points: points.collect() }
    });
    Figure {
        id: "latency".to_owned(),
        title: "Latency that one request in so many exceeds".to_owned(),
        x: Axis::logarithmic("one request in", "requests"),
        y: Axis::logarithmic("latency", "ms"),
        series: series.collect(),
    }
}

fn by_phase(
    plan: &Plan,
    measured: &[Measured<'_>],
    id: &str,
    title: &str,
    y: Axis,
    value: &dyn Fn(&Tally) -> f64,
) -> Figure {
    // Where phases are levels of load, rising, that is what one wants to see them by.
    let rises = plan.phases.is_sorted_by(|a, b| a.load < b.load);
    let base = match plan.arrivals {
        Arrivals::Open { rate: Rate::OfCapacity(base) } if rises => Some(base),
        _ => None,
    };
    let x_of = |place: usize| base.map_or((place + 1) as f64, |base| 100.0 * base * plan.phases[place].load);
    let series = measured.iter().map(|of| {
        let points = of.tallies[1..].iter().enumerate().map(|(place, tally)| (x_of(place), value(tally))).collect();
        Series { name: of.arm.name.clone(), kind: SeriesKind::Line, points }
    });
    Figure {
        id: id.to_owned(),
        title: title.to_owned(),
        x: if base.is_some() { Axis::linear("load of CPU provisioned", "%") } else { Axis::linear("phase", "number") },
        y,
        series: series.collect(),
    }
}

fn slug(name: &str) -> String {
    let letter = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '-' };
    name.chars().map(letter).collect()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::experiment::fleet::plan::{BackendGroup, Phase, Speed};
    use crate::experiment::fleet::run;

    fn plan() -> Plan {
        let phase = |name: &str, at, load| Phase {
            name: name.to_owned(),
            at: Duration::from_secs(at),
            settle: Duration::from_secs(5),
            load,
        };
        let speed = Speed::Uniform { low: 0.6, high: 1.4 };
        Plan {
            phases: vec![phase("half", 0, 0.5), phase("whole", 30, 1.0)],
            backends: vec![BackendGroup { speed, ..BackendGroup::default() }],
            ..Plan::default()
        }
    }

    fn figure<'f>(findings: &'f Findings, id: &str) -> &'f Figure {
        findings.figures.iter().find(|figure| figure.id == id).expect("every plan gives it")
    }

    #[test]
    fn what_is_plotted_is_what_is_checked() {
        let findings = run(&plan(), 1, &mut |_| ());
        let metric = |name: &str| findings.metrics[&format!("weighted.{name}")];
        let loads: Vec<f64> =
            figure(&findings, "cpu-by-backend").series[0].points.iter().map(|(_, load)| load / 100.0).collect();
        let mean = loads.iter().sum::<f64>() / loads.len() as f64;
        assert!((mean - metric("cpu")).abs() < 1e-12);
        assert!((loads[0] / mean - metric("max_over_mean")).abs() < 1e-12);
        let p99 = &figure(&findings, "p99-by-phase").series[0].points;
        assert_eq!(p99.iter().map(|(x, _)| x.round()).collect::<Vec<_>>(), [30.0, 60.0], "by load of capacity");
        assert_eq!([p99[0].1, p99[1].1], [metric("half.p99"), metric("whole.p99")]);
        let latency = &figure(&findings, "latency").series[0].points;
        let one_in_hundred = latency.iter().find(|(one_in, _)| (one_in - 100.0).abs() < 1e-9).expect("a decade");
        assert_eq!(one_in_hundred.1, metric("p99"));
    }

    #[test]
    fn figures_over_time_go_from_the_first_sample_to_the_last() {
        let findings = run(&plan(), 1, &mut |_| ());
        for id in ["spread-over-time", "cpu-over-time-weighted"] {
            for series in &figure(&findings, id).series {
                let times: Vec<f64> = series.points.iter().map(|(at, _)| *at).collect();
                assert_eq!((times[0], times[times.len() - 1], times.len()), (1.0, 60.0, 60), "{id}");
            }
        }
    }
}
