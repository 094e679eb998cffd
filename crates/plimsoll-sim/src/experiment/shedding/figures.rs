//! The figures of a shedding experiment: tasks answered in time by source, and the server's state
//! over time.

use super::Measured;
use super::findings::{between, late, sum};
use super::measure::{Counted, Reading, Sent, Tally};
use super::plan::{Plan, Source};
use crate::experiment::windows::marks;
use crate::findings::{Axis, Figure, Series, SeriesKind, slug};

/// More arms have no figures of their own.
const MOST_ARMS_BY_THEMSELVES: usize = 4;
/// More sources could not be told apart.
const MOST_SOURCES: usize = 8;
/// Smallest delay on a logarithmic axis, in milliseconds: a microsecond.
const LEAST_DELAY: f64 = 1e-3;

pub(super) fn figures(plan: &Plan, measured: &[Measured<'_>]) -> Vec<Figure> {
    let has_sources = (2..=MOST_SOURCES).contains(&plan.sources.len());
    let has_arms = measured.len() <= MOST_ARMS_BY_THEMSELVES;
    let mut figures = Vec::new();
    if plan.phases.is_empty() {
        figures.push(by_arm(plan, measured, has_sources));
    } else {
        figures.push(by_phase_of_all(plan, measured));
        figures.extend(measured.iter().filter(|_| has_sources && has_arms).map(|of| by_phase(plan, of)));
    }
    figures.extend(measured.iter().filter(|_| has_arms).map(|of| ends_over_time(plan, of)));
    let sends_again = plan.sources.iter().any(Source::takes_several);
    figures.extend(measured.iter().filter(|_| sends_again && has_arms).map(|of| requests_over_time(plan, of)));
    figures.extend(measured.iter().filter(|_| has_sources && has_arms).map(|of| useful_over_time(plan, of)));
    figures.push(in_progress_over_time(plan, measured));
    figures.push(delay_over_time(plan, measured));
    figures
}

/// `None` where no task arrived.
fn percent(tally: &Tally) -> Option<f64> {
    tally.useful_share().map(|share| 100.0 * share)
}

fn bars(name: &str, values: impl Iterator<Item = Option<f64>>) -> Series {
    let points = (1..).map(f64::from).zip(values).filter_map(|(x, value)| Some((x, value?)));
    Series { name: name.to_owned(), kind: SeriesKind::Bars, points: points.collect(), ..Series::default() }
}

fn by_arm(plan: &Plan, measured: &[Measured<'_>], has_sources: bool) -> Figure {
    let whole = |of: &Measured<'_>| sum(&of.measure.counted[0]).tally;
    let series = if has_sources {
        let of_source = |(i, source): (usize, &Source)| {
            bars(&source.name, measured.iter().map(move |of| percent(&of.measure.counted[0][i].tally)))
        };
        plan.sources.iter().enumerate().map(of_source).collect()
    } else {
        vec![bars("all", measured.iter().map(|of| percent(&whole(of))))]
    };
    Figure {
        id: "useful-by-arm".to_owned(),
        title: "Tasks answered in time".to_owned(),
        x: Axis::named("arm", measured.iter().map(|of| of.arm.name.as_str())),
        y: Axis::linear("tasks", "%"),
        series,
        ..Figure::default()
    }
}

fn phases(plan: &Plan) -> Axis {
    Axis::named("phase", plan.phases.iter().map(|phase| phase.name.as_str()))
}

fn by_phase_of_all(plan: &Plan, measured: &[Measured<'_>]) -> Figure {
    let of_arm = |of: &Measured<'_>| {
        bars(&of.arm.name, of.measure.counted[1..].iter().map(|counted| percent(&sum(counted).tally)))
    };
    Figure {
        id: "useful-by-phase".to_owned(),
        title: "Tasks answered in time".to_owned(),
        x: phases(plan),
        y: Axis::linear("tasks", "%"),
        series: measured.iter().map(of_arm).collect(),
        ..Figure::default()
    }
}

fn by_phase(plan: &Plan, of: &Measured<'_>) -> Figure {
    let share = |i: usize| move |counted: &Vec<Counted>| percent(&counted[i].tally);
    let sources = plan.sources.iter().enumerate();
    Figure {
        id: format!("useful-by-phase-{}", slug(&of.arm.name)),
        title: format!("Tasks answered in time, by source: {}", of.arm.name),
        x: phases(plan),
        y: Axis::linear("tasks", "%"),
        series: sources.map(|(i, source)| bars(&source.name, of.measure.counted[1..].iter().map(share(i)))).collect(),
        ..Figure::default()
    }
}

fn time() -> Axis {
    Axis::linear("time", "s")
}

/// One point for each sample, at its end.
fn over_time<'t, T: 't>(
    plan: &Plan,
    name: &str,
    samples: impl Iterator<Item = &'t T>,
    value: impl Fn(&T) -> Option<f64>,
) -> Series {
    let every = plan.sample_every.as_secs_f64();
    let points = (1..).map(f64::from).zip(samples).filter_map(|(i, sample)| Some((i * every, value(sample)?)));
    Series { name: name.to_owned(), kind: SeriesKind::Line, points: points.collect(), ..Series::default() }
}

fn ends_over_time(plan: &Plan, of: &Measured<'_>) -> Figure {
    let samples: Vec<Tally> = (of.measure.samples.iter())
        .map(|sources| {
            let mut all = Tally::default();
            sources.iter().for_each(|tally| all += tally);
            all
        })
        .collect();
    let every = plan.sample_every.as_secs_f64();
    let rate =
        |name: &str, count: fn(&Tally) -> u64| over_time(plan, name, samples.iter(), |t| Some(count(t) as f64 / every));
    Figure {
        id: format!("ends-over-time-{}", slug(&of.arm.name)),
        title: format!("Outcome of tasks, by arrival time: {}", of.arm.name),
        x: time(),
        y: Axis::linear("tasks", "1/s"),
        series: vec![
            rate("arrived", |tally| tally.arrived),
            rate("answered in time", |tally| tally.useful),
            rate("shed", |tally| tally.shed + tally.hopeless),
            rate("late or expired", late),
        ],
        marks: marks(&plan.phases),
        ..Figure::default()
    }
}

fn requests_over_time(plan: &Plan, of: &Measured<'_>) -> Figure {
    let every = plan.sample_every.as_secs_f64();
    let rate = |name: &str, count: fn(&Sent) -> u64| {
        over_time(plan, name, of.measure.sent.by_sample.iter(), |sent: &Vec<Sent>| Some(count(&sent[0]) as f64 / every))
    };
    Figure {
        id: format!("requests-over-time-{}", slug(&of.arm.name)),
        title: format!("Requests with their retries, by the time they are sent: {}", of.arm.name),
        x: time(),
        y: Axis::linear("requests", "1/s"),
        series: vec![
            rate("sent", |sent| sent.requests),
            rate("admitted", |sent| sent.requests - sent.shed),
            rate("shed", |sent| sent.shed),
        ],
        marks: marks(&plan.phases),
        ..Figure::default()
    }
}

fn useful_over_time(plan: &Plan, of: &Measured<'_>) -> Figure {
    let of_source = |(i, source): (usize, &Source)| {
        over_time(plan, &source.name, of.measure.samples.iter(), move |sources: &Vec<Tally>| percent(&sources[i]))
    };
    Figure {
        id: format!("useful-over-time-{}", slug(&of.arm.name)),
        title: format!("Tasks answered in time, by arrival time: {}", of.arm.name),
        x: time(),
        y: Axis::linear("tasks", "%"),
        series: plan.sources.iter().enumerate().map(of_source).collect(),
        marks: marks(&plan.phases),
        ..Figure::default()
    }
}

/// The maximum of the readings in each sample.
fn greatest(plan: &Plan, of: &Measured<'_>, value: impl Fn(&Reading) -> f64) -> Series {
    let count = u32::try_from(of.measure.samples.len()).unwrap_or(u32::MAX);
    let samples: Vec<&[Reading]> =
        (0..count).map(|i| between(&of.measure.readings, plan.sample_every * i, plan.sample_every * (i + 1))).collect();
    over_time(plan, &of.arm.name, samples.iter(), |readings| readings.iter().map(&value).reduce(f64::max))
}

fn in_progress_over_time(plan: &Plan, measured: &[Measured<'_>]) -> Figure {
    Figure {
        id: "in-progress-over-time".to_owned(),
        title: "Requests in progress, highest in each sample".to_owned(),
        x: time(),
        y: Axis::linear("requests", ""),
        series: measured.iter().map(|of| greatest(plan, of, |reading| reading.in_progress as f64)).collect(),
        marks: marks(&plan.phases),
        ..Figure::default()
    }
}

fn delay_over_time(plan: &Plan, measured: &[Measured<'_>]) -> Figure {
    let delay = |reading: &Reading| (reading.delay.as_secs_f64() * 1e3).max(LEAST_DELAY);
    Figure {
        id: "delay-over-time".to_owned(),
        title: "Queueing delay: CPU time of the admitted work over all cores, highest in each sample".to_owned(),
        x: time(),
        y: Axis::logarithmic("delay", "ms"),
        series: measured.iter().map(|of| greatest(plan, of, delay)).collect(),
        marks: marks(&plan.phases),
        ..Figure::default()
    }
}
