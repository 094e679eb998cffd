//! The figures of an experiment with tiers: requests sent and requests answered, by phase and over time.

use super::Measured;
use super::findings::{capacity, sum};
use super::measure::Tally;
use super::plan::Plan;
use crate::experiment::windows::marks;
use crate::findings::{Axis, Figure, Series, SeriesKind};

/// For a logarithmic axis, which has no place for nothing.
const LEAST: f64 = 1e-2;

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
    Axis::named("phase", plan.phases.iter().map(|phase| phase.name.as_str()))
}

/// One point for each phase; the windows begin with the whole run.
fn by_phase(plan: &Plan, of: &Measured<'_>, kind: SeriesKind, value: impl Fn(usize) -> Option<f64>) -> Series {
    let points = (0..plan.phases.len()).filter_map(|i| Some((i as f64 + 1.0, value(i + 1)?)));
    Series { name: of.arm.name.clone(), kind, points: points.collect(), ..Series::default() }
}

fn sends_by_phase(plan: &Plan, measured: &[Measured<'_>]) -> Figure {
    let last = plan.tiers.len() - 1;
    let of_arm = |of: &Measured<'_>| {
        by_phase(plan, of, SeriesKind::Bars, |i| {
            let capacity = capacity(&plan.tiers[last], Some(i - 1)) * of.measure.windows[i].seconds();
            Some((of.measure.sent[i][last].sent() as f64 / capacity).max(LEAST))
        })
    };
    Figure {
        id: "sends-by-phase".to_owned(),
        title: format!("Requests sent to {}, over its capacity", plan.tiers[last].name),
        x: phases(plan),
        y: Axis::logarithmic("sent over capacity", "ratio; less than 0.01 at 0.01"),
        series: measured.iter().map(of_arm).collect(),
        ..Figure::default()
    }
}

fn useful_by_phase(plan: &Plan, measured: &[Measured<'_>]) -> Figure {
    let of_arm = |of: &Measured<'_>| {
        by_phase(plan, of, SeriesKind::Bars, |i| {
            let Tally { arrived, useful } = sum(&of.measure.tallies[i]);
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
    let (last, every) = (plan.tiers.len() - 1, plan.sample_every.as_secs_f64());
    let of_arm = |of: &Measured<'_>| {
        let samples = (1..).map(f64::from).zip(&of.measure.sent_samples);
        let points = samples.map(|(i, sent)| (i * every, (sent[last].sent() as f64 / every).max(LEAST)));
        Series { name: of.arm.name.clone(), kind: SeriesKind::Line, points: points.collect(), ..Series::default() }
    };
    Figure {
        id: "sent-over-time".to_owned(),
        title: format!("Requests sent to {}", plan.tiers[last].name),
        x: Axis::linear("time", "s"),
        y: Axis::logarithmic("requests", "1/s; none at 0.01"),
        series: measured.iter().map(of_arm).collect(),
        marks: marks(&plan.phases),
        ..Figure::default()
    }
}

fn useful_over_time(plan: &Plan, measured: &[Measured<'_>]) -> Figure {
    let every = plan.sample_every.as_secs_f64();
    let of_arm = |of: &Measured<'_>| {
        let samples = (1..).map(f64::from).zip(&of.measure.tally_samples);
        let points = samples.map(|(i, tally)| (i * every, tally.useful as f64 / every));
        Series { name: of.arm.name.clone(), kind: SeriesKind::Line, points: points.collect(), ..Series::default() }
    };
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
