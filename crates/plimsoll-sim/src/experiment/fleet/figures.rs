//! The figures of a fleet: what each backend used, how latency is distributed, and how both change over time, over phases
//! and over a setting that is [swept](super::sweep).

use super::findings::{Measured, loads, quantile, share};
use super::marks::marks;
use super::measure::{Ending, Sample, Tally};
use super::plan::{Arrivals, Plan, Rate};
use super::{groups, sizes, sweep};
use crate::findings::{Axis, Figure, Level, Look, Series, SeriesKind, slug};

/// Points of a curve of latencies to each factor of ten.
const POINTS_PER_DECADE: u32 = 8;
/// More arms have no figures of their own.
pub(super) const MOST_ARMS_BY_THEMSELVES: usize = 4;
/// More phases have no distributions of their own.
pub(super) const MOST_PHASES_BY_THEMSELVES: usize = 3;

pub(super) fn figures(plan: &Plan, measured: &[Measured<'_>]) -> Vec<Figure> {
    if let Some(sweep) = &plan.sweep {
        // Arms of every size have no place in one legend.
        let mut figures = sizes::figures(plan, sweep, measured);
        figures.extend(groups::over_sizes(plan, sweep, measured));
        return figures;
    }
    let mut figures = sweep::figures(plan, measured);
    figures.extend([cpu_by_backend(measured), spread_over_time(plan, measured)]);
    let whole = "Latency exceeded by one request in N";
    figures.push(latency(plan, measured, 0, "latency".to_owned(), whole.to_owned()));
    if measured.len() <= MOST_ARMS_BY_THEMSELVES {
        figures.extend(measured.iter().map(|of| cpu_over_time(plan, of)));
    }
    if plan.phases.len() > 1 {
        figures.extend(over_phases(plan, measured));
    }
    figures.extend(groups::figures(plan, measured));
    figures
}

fn over_phases(plan: &Plan, measured: &[Measured<'_>]) -> Vec<Figure> {
    let mut figures = Vec::new();
    if plan.phases.len() <= MOST_PHASES_BY_THEMSELVES {
        for (window, phase) in (1..).zip(&plan.phases) {
            let title = format!("Latency exceeded by one request in N, phase {}", phase.name);
            figures.push(latency(plan, measured, window, format!("latency-phase-{window}"), title));
        }
    }
    // Levels of load make a curve; a few other phases are told apart better by their distributions.
    let is_curve = base_load(plan).is_some() || plan.phases.len() > MOST_PHASES_BY_THEMSELVES;
    for (id, title, q) in [
        ("p50-by-phase", "Median latency", 0.5),
        ("p90-by-phase", "90th percentile of latency", 0.9),
        ("p99-by-phase", "99th percentile of latency", 0.99),
        ("p99-9-by-phase", "99.9th percentile of latency", 0.999),
    ]
    .into_iter()
    .filter(|_| is_curve)
    {
        let latency = |tally: &Tally| quantile_ms(tally, q);
        figures.push(by_phase(plan, measured, id, title, Axis::logarithmic("latency", "ms"), &latency));
    }
    let errors = |tally: &Tally| Some(100.0 * (1.0 - share(tally, Ending::Answered)?));
    figures.push(by_phase(
        plan,
        measured,
        "errors-by-phase",
        "Requests that end in an error",
        Axis::linear("requests", "%"),
        &errors,
    ));
    figures
}

/// For a logarithmic axis, which has no place for nothing: a microsecond at least.
pub(super) fn quantile_ms(tally: &Tally, q: f64) -> Option<f64> {
    Some(quantile(tally, q)?.max(1e-3))
}

/// The latency of requests that timed out, as a level to compare with.
pub(super) fn timeout(plan: &Plan) -> Level {
    let at = plan.requests.timeout.as_secs_f64() * 1e3;
    Level { at, label: format!("timed out: {at} ms") }
}

fn cpu_by_backend(measured: &[Measured<'_>]) -> Figure {
    let series = measured.iter().map(|of| {
        let mut loads = loads(&of.tallies[0]);
        loads.sort_by(|a, b| b.total_cmp(a));
        let points = (1..).zip(loads).map(|(rank, load)| (f64::from(rank), 100.0 * load)).collect();
        Series { name: of.arm.name.clone(), kind: SeriesKind::Line, points, ..Series::default() }
    });
    Figure {
        id: "cpu-by-backend".to_owned(),
        title: "CPU used by each backend, most loaded first".to_owned(),
        x: Axis::linear("backend, by rank", ""),
        y: Axis::linear("CPU used, of provisioned", "%"),
        series: series.collect(),
        ..Figure::default()
    }
}

fn over_time(of: &Measured<'_>, name: String, value: impl Fn(&Sample) -> f64) -> Series {
    let points = of.samples.iter().map(|sample| (sample.at.as_nanos() as f64 / 1e9, value(sample))).collect();
    Series { name, kind: SeriesKind::Line, points, ..Series::default() }
}

fn spread_over_time(plan: &Plan, measured: &[Measured<'_>]) -> Figure {
    let value = |sample: &Sample| if sample.mean > 0.0 { sample.greatest / sample.mean } else { 1.0 };
    Figure {
        id: "spread-over-time".to_owned(),
        title: "CPU of the most loaded backend, relative to the mean".to_owned(),
        x: Axis::linear("time", "s"),
        y: Axis::linear("most loaded over mean", "ratio"),
        series: measured.iter().map(|of| over_time(of, of.arm.name.clone(), value)).collect(),
        marks: marks(plan, None),
        ..Figure::default()
    }
}

fn cpu_over_time(plan: &Plan, of: &Measured<'_>) -> Figure {
    // In colours that the first arms of other figures do not have.
    let extreme = |name: &str, colour: usize, value: fn(&Sample) -> f64| {
        let series = over_time(of, name.to_owned(), move |sample| 100.0 * value(sample));
        Series { look: Look { colour: Some(colour), dashed: false }, ..series }
    };
    Figure {
        id: format!("cpu-over-time-{}", slug(&of.arm.name)),
        title: format!("CPU of the most and least loaded backend and the mean: {}", of.arm.name),
        x: Axis::linear("time", "s"),
        y: Axis::linear("CPU used, of provisioned", "%"),
        series: vec![
            extreme("most loaded backend", 4, |sample| sample.greatest),
            extreme("mean", 7, |sample| sample.mean),
            extreme("least loaded backend", 6, |sample| sample.least),
        ],
        marks: marks(plan, Some(of.arm)),
        ..Figure::default()
    }
}

/// The distribution of latency in one part of the run.
fn latency(plan: &Plan, measured: &[Measured<'_>], window: usize, id: String, title: String) -> Figure {
    let series = measured.iter().map(|of| {
        // From about the median on: what the quickest have says nothing, and would take most of the height.
        let points = (POINTS_PER_DECADE / 4..=4 * POINTS_PER_DECADE).filter_map(|step| {
            let one_in = 10_f64.powf(f64::from(step) / f64::from(POINTS_PER_DECADE));
            Some((one_in, quantile_ms(&of.tallies[window], 1.0 - 1.0 / one_in)?))
        });
        Series { name: of.arm.name.clone(), kind: SeriesKind::Line, points: points.collect(), ..Series::default() }
    });
    Figure {
        id,
        title,
        x: Axis::logarithmic("N: one request in N is slower", ""),
        y: Axis::logarithmic("latency", "ms"),
        series: series.collect(),
        levels: vec![timeout(plan)],
        ..Figure::default()
    }
}

/// Where phases are levels of load, rising, that is what one wants to see them by: the load that theirs are multiples of.
fn base_load(plan: &Plan) -> Option<f64> {
    let rises = plan.phases.is_sorted_by(|a, b| a.load < b.load);
    match plan.arrivals {
        Arrivals::Open { rate: Rate::OfCapacity(base) } if rises => Some(base),
        _ => None,
    }
}

/// Phases along a horizontal axis, one position for each.
pub(super) struct Phases {
    pub(super) axis: Axis,
    pub(super) kind: SeriesKind,
    pub(super) at: Vec<f64>,
}

/// Levels of load make a curve over the load; other phases have bars under their names.
pub(super) fn phases(plan: &Plan) -> Phases {
    match base_load(plan) {
        Some(base) => Phases {
            axis: Axis::linear("offered load, of CPU provisioned", "%"),
            kind: SeriesKind::Line,
            at: plan.phases.iter().map(|phase| 100.0 * base * phase.load).collect(),
        },
        None => Phases {
            axis: Axis::named("phase", plan.phases.iter().map(|phase| &*phase.name)),
            kind: SeriesKind::Bars,
            at: (1..).map(f64::from).take(plan.phases.len()).collect(),
        },
    }
}

fn by_phase(
    plan: &Plan,
    measured: &[Measured<'_>],
    id: &str,
    title: &str,
    y: Axis,
    value: &dyn Fn(&Tally) -> Option<f64>,
) -> Figure {
    let phases = phases(plan);
    let series = measured.iter().map(|of| {
        let points = phases.at.iter().zip(&of.tallies[1..]);
        let points = points.filter_map(|(x, tally)| Some((*x, value(tally)?)));
        Series { name: of.arm.name.clone(), kind: phases.kind, points: points.collect(), ..Series::default() }
    });
    let series = series.collect();
    Figure { id: id.to_owned(), title: title.to_owned(), x: phases.axis, y, series, ..Figure::default() }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::experiment::fleet::plan::{BackendGroup, Phase, Speed};
    use crate::experiment::fleet::run;
    use crate::findings::Findings;

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
        let of_phase = &figure(&findings, "latency-phase-2").series[0].points;
        let one_in_ten = of_phase.iter().find(|(one_in, _)| (one_in - 10.0).abs() < 1e-9).expect("a decade");
        assert_eq!(one_in_ten.1, metric("whole.p90"));
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
