//! The figures of a spill experiment: utilization of localities over time, and requests served by
//! source.

use super::Measured;
use super::plan::Plan;
use crate::experiment::windows::marks;
use crate::findings::{Axis, Figure, Series, SeriesKind, slug};

pub(super) fn figures(plan: &Plan, measured: &[Measured<'_>]) -> Vec<Figure> {
    let mut figures: Vec<Figure> = measured.iter().map(|of| utilization_over_time(plan, of)).collect();
    if !plan.phases.is_empty() {
        figures.extend(measured.iter().map(|of| served_by_phase(plan, of)));
    }
    figures
}

fn utilization_over_time(plan: &Plan, of: &Measured<'_>) -> Figure {
    let every = plan.sample_every.as_secs_f64();
    let of_locality = |(place, site): (usize, &super::plan::Site)| {
        let samples = (1..).map(f64::from).zip(&of.measure.sent.by_sample);
        let points = samples.map(|(i, sample)| (i * every, 100.0 * sample[place].load));
        Series { name: site.name.clone(), kind: SeriesKind::Line, points: points.collect(), ..Series::default() }
    };
    Figure {
        id: format!("utilization-over-time-{}", slug(&of.arm.name)),
        title: format!("Load of each locality, over its capacity: {}", of.arm.name),
        x: Axis::linear("time", "s"),
        y: Axis::linear("utilization", "%"),
        series: plan.localities.iter().enumerate().map(of_locality).collect(),
        marks: marks(&plan.phases),
        ..Figure::default()
    }
}

fn served_by_phase(plan: &Plan, of: &Measured<'_>) -> Figure {
    let names = plan.phases.iter().map(|phase| &*phase.name);
    let of_source = |(i, source): (usize, &super::plan::Source)| {
        let tallies = of.measure.requests.by_window[1..].iter().map(|tallies| tallies[i]);
        let served =
            tallies.map(|tally| 100.0 - 100.0 * (tally.shed + tally.failed) as f64 / tally.arrived.max(1) as f64);
        let points = (1..).map(f64::from).zip(served);
        Series { name: source.name.clone(), kind: SeriesKind::Bars, points: points.collect(), ..Series::default() }
    };
    Figure {
        id: format!("served-by-phase-{}", slug(&of.arm.name)),
        title: format!("Requests served: {}", of.arm.name),
        x: Axis::named("phase", names),
        y: Axis::linear("requests", "%"),
        series: plan.sources.iter().enumerate().map(of_source).collect(),
        ..Figure::default()
    }
}
