//! The figures of an experiment with tiers: requests sent and requests answered, by phase and over
//! time.

use super::Measured;
use super::findings::{capacity, sum};
use super::measure::Tally;
use super::plan::{Phase, Plan};
use crate::experiment::windows::marks;
use crate::findings::{Axis, Figure, Series, SeriesKind};

/// Smallest value on a logarithmic axis, which has no zero.
const LEAST: f64 = 1e-2;
/// Points of a curve over time, at most. With more, a curve of rare requests jumps between one
/// request and none.
const MOST_POINTS: usize = 180;

pub(super) fn figures(plan: &Plan, measured: &[Measured<'_>]) -> Vec<Figure> {
    let mut figures = Vec::new();
    if !plan.phases.is_empty() {
        figures.push(sends_by_phase(plan, measured));
        figures.push(useful_by_phase(plan, measured));
    }
    figures.push(sent_over_time(plan, measured));
    figures.push(useful_over_time(plan, measured));
    figures
}

fn phases(plan: &Plan) -> Axis {
    let is_multiple = |(i, phase): (usize, &Phase)| {
        let times: Option<f64> = phase.name.strip_suffix('x').and_then(|times| times.parse().ok());
        let demand: f64 = plan.sources.iter().map(|source| source.rate * phase.load).sum();
        let capacity = plan.tiers.last().map_or(1.0, |tier| capacity(tier, Some(i)));
        times.is_some_and(|times| (demand / capacity / times - 1.0).abs() < 0.01)
    };
    if plan.phases.iter().enumerate().all(is_multiple) {
        let names: Vec<String> = plan.phases.iter().map(|phase| phase.name.replace('x', "×")).collect();
        return Axis::named("demand, in multiples of the capacity", names.iter().map(String::as_str));
    }
    Axis::named("phase", plan.phases.iter().map(|phase| phase.name.as_str()))
}

/// A logarithmic axis for series of values from [`LEAST`] on. Its unit says if some were less.
fn from_least(label: &str, unit: &str, series: &[Series]) -> Axis {
    let is_least = |(_, value): &(f64, f64)| *value <= LEAST;
    let has_least = series.iter().flat_map(|series| &series.points).any(is_least);
    let note = if has_least { format!("; {LEAST} or less at {LEAST}") } else { String::new() };
    Axis::logarithmic(label, format!("{unit}{note}"))
}

/// A rate over time, in at most [`MOST_POINTS`] points: each is the mean of some samples, at their
/// end.
fn rate_over_time<T>(plan: &Plan, name: &str, samples: &[T], count: impl Fn(&T) -> u64) -> Series {
    let every = plan.sample_every.as_secs_f64();
    let merged = samples.len().div_ceil(MOST_POINTS).max(1);
    let points = samples.chunks(merged).enumerate().map(|(i, chunk)| {
        let seconds = chunk.len() as f64 * every;
        ((i * merged) as f64 * every + seconds, chunk.iter().map(&count).sum::<u64>() as f64 / seconds)
    });
    Series { name: name.to_owned(), kind: SeriesKind::Line, points: points.collect(), ..Series::default() }
}

/// One point for each phase. The first window is the whole run.
fn by_phase(plan: &Plan, of: &Measured<'_>, kind: SeriesKind, value: impl Fn(usize) -> Option<f64>) -> Series {
    let points = (0..plan.phases.len()).filter_map(|i| Some((i as f64 + 1.0, value(i + 1)?)));
    Series { name: of.arm.name.clone(), kind, points: points.collect(), ..Series::default() }
}

fn sends_by_phase(plan: &Plan, measured: &[Measured<'_>]) -> Figure {
    let last = plan.tiers.len() - 1;
    let of_arm = |of: &Measured<'_>| {
        by_phase(plan, of, SeriesKind::Bars, |i| {
            let capacity = capacity(&plan.tiers[last], Some(i - 1)) * of.measure.course.windows[i].seconds();
            Some((of.measure.sent.by_window[i][last].sent() as f64 / capacity).max(LEAST))
        })
    };
    let series: Vec<Series> = measured.iter().map(of_arm).collect();
    Figure {
        id: "sends-by-phase".to_owned(),
        title: format!("Requests sent to {}, over its capacity", plan.tiers[last].name),
        x: phases(plan),
        y: from_least("sent over capacity", "ratio", &series),
        series,
        ..Figure::default()
    }
}

fn useful_by_phase(plan: &Plan, measured: &[Measured<'_>]) -> Figure {
    let of_arm = |of: &Measured<'_>| {
        by_phase(plan, of, SeriesKind::Bars, |i| {
            let Tally { arrived, useful } = sum(&of.measure.requests.by_window[i]);
            (arrived > 0).then(|| 100.0 * useful as f64 / arrived as f64)
        })
    };
    Figure {
        id: "useful-by-phase".to_owned(),
        title: "Requests answered in time".to_owned(),
        x: phases(plan),
        y: Axis::linear("requests", "%"),
        series: measured.iter().map(of_arm).collect(),
        ..Figure::default()
    }
}

fn sent_over_time(plan: &Plan, measured: &[Measured<'_>]) -> Figure {
    let last = plan.tiers.len() - 1;
    let of_arm = |of: &Measured<'_>| {
        let mut series = rate_over_time(plan, &of.arm.name, &of.measure.sent.by_sample, |sent| sent[last].sent());
        series.points.iter_mut().for_each(|(_, rate)| *rate = rate.max(LEAST));
        series
    };
    let series: Vec<Series> = measured.iter().map(of_arm).collect();
    Figure {
        id: "sent-over-time".to_owned(),
        title: format!("Requests sent to {}", plan.tiers[last].name),
        x: Axis::linear("time", "s"),
        y: from_least("requests", "1/s", &series),
        series,
        marks: marks(&plan.phases),
        ..Figure::default()
    }
}

fn useful_over_time(plan: &Plan, measured: &[Measured<'_>]) -> Figure {
    let of_arm =
        |of: &Measured<'_>| rate_over_time(plan, &of.arm.name, &of.measure.requests.by_sample, |all| sum(all).useful);
    Figure {
        id: "useful-over-time".to_owned(),
        title: "Requests answered in time, by arrival time".to_owned(),
        x: Axis::linear("time", "s"),
        y: Axis::linear("requests", "1/s"),
        series: measured.iter().map(of_arm).collect(),
        marks: marks(&plan.phases),
        ..Figure::default()
    }
}
