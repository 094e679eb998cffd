//! The figures of a sweep over the size of a group: each way to balance is a curve over the number
//! of backends. A sweep asks how many are enough, so the curves are those of the worst seed.

use super::figures::{quantile_ms, timeout};
use super::findings::{Measured, share};
use super::measure::{Ending, Tally};
use super::plan::{Plan, Sweep};
use crate::findings::{Axis, Figure, Merge, Series, SeriesKind, slug};

/// p99 and errors over the size, for each phase, or for the whole run where there are none.
pub(super) fn figures(plan: &Plan, sweep: &Sweep, measured: &[Measured<'_>]) -> Vec<Figure> {
    let errors = |tally: &Tally| Some(100.0 * (1.0 - share(tally, Ending::Answered)?));
    let latency = |tally: &Tally| quantile_ms(tally, 0.99);
    let mut figures = Vec::new();
    for (window, phase) in windows(plan) {
        let what = |text: &str| phase.map_or_else(|| text.to_owned(), |phase| format!("{text}, phase {phase}"));
        let id = |text: &str| phase.map_or_else(|| text.to_owned(), |phase| format!("{text}-{}", slug(phase)));
        let over = |id: String, title: String, y: Axis, value: &dyn Fn(&Tally) -> Option<f64>| Figure {
            id,
            title: format!("{title}, by number of backends"),
            x: axis(plan, sweep),
            y,
            series: series(sweep, measured, window, value),
            merge: Merge::Max,
            ..Figure::default()
        };
        let p99 = what("99th percentile of latency");
        let metric = phase.map_or_else(|| "p99".to_owned(), |phase| format!("{phase}.p99"));
        figures.push(Figure {
            levels: vec![timeout(plan)],
            objective_of: Some(metric),
            ..over(id("p99-by-count"), p99, Axis::logarithmic("latency", "ms"), &latency)
        });
        let failed = what("Requests that end in an error");
        figures.push(over(id("errors-by-count"), failed, Axis::linear("requests", "%"), &errors));
    }
    figures
}

/// The phases with their windows, or the whole run where there are none.
pub(super) fn windows(plan: &Plan) -> Vec<(usize, Option<&str>)> {
    if plan.phases.is_empty() {
        return vec![(0, None)];
    }
    (1..).zip(plan.phases.iter().map(|phase| Some(&*phase.name))).collect()
}

pub(super) fn axis(plan: &Plan, sweep: &Sweep) -> Axis {
    Axis::linear(format!("backends in group {}", plan.backends[sweep.group].name), "")
}

fn series(
    sweep: &Sweep,
    measured: &[Measured<'_>],
    window: usize,
    value: &dyn Fn(&Tally) -> Option<f64>,
) -> Vec<Series> {
    let of_arm = |(name, of): (&String, &[Measured<'_>])| {
        let sized = sweep.sizes.iter().zip(of);
        let points = sized.filter_map(|(size, of)| Some((f64::from(size.get()), value(&of.tallies[window])?)));
        Series { name: name.clone(), kind: SeriesKind::Line, points: points.collect(), ..Series::default() }
    };
    sweep.arms.iter().zip(measured.chunks(sweep.sizes.len())).map(of_arm).collect()
}
