//! The figures of a subset experiment.

use plimsoll_core::subset::Algorithm;

use super::measure::Measured;
use super::{Arm, Plan, Row};
use crate::findings::{Axis, Figure, Look, Series, SeriesKind};

/// From so many fleets that differ only in the size of subsets, one figure over the size says more than one for each.
const SWEEP: usize = 4;

/// All figures; `measured` holds the rows of the first arm, then those of the second.
pub(super) fn all(plan: &Plan, measured: &[Measured]) -> Vec<Figure> {
    let same_fleet = |row: &Row| (row.clients, row.backends) == (plan.rows[0].clients, plan.rows[0].backends);
    let one_fleet = plan.rows.iter().all(same_fleet);
    if one_fleet && plan.rows.iter().any(|row| row.failures > 0) {
        return vec![after_failures(plan, measured)];
    }
    if one_fleet && plan.rows.len() >= SWEEP {
        return vec![over_size(plan, measured)];
    }
    (0..plan.rows.len()).map(|row| by_backend(plan, measured, row)).collect()
}

/// Places in the palette by algorithm. `ledger` mostly equals `deterministic`, so its colour is not
/// the one next to that.
const PALETTE: [usize; Algorithm::ALL.len()] = [0, 1, 2, 3, 4, 7];
/// The place of arms whose clients repeat.
const REPEATED: usize = 6;

/// Each arm with what was measured of it, row by row.
fn arms<'a>(plan: &'a Plan, measured: &'a [Measured]) -> impl Iterator<Item = (&'a Arm, &'a [Measured])> {
    plan.arms.iter().zip(measured.chunks(plan.rows.len()))
}

/// The place in the palette of each arm: one for each algorithm, the same in all figures. `None`
/// where two arms would have the same.
fn colours(plan: &Plan) -> Vec<Option<usize>> {
    let of_arm = |arm: &Arm| {
        let place = Algorithm::ALL.iter().position(|algorithm| *algorithm == arm.algorithm)?;
        Some(if arm.distinct_clients.is_some() { REPEATED } else { PALETTE[place] })
    };
    let colours: Vec<Option<usize>> = plan.arms.iter().map(of_arm).collect();
    let is_alone = |(i, colour): (usize, &Option<usize>)| !colours[..i].contains(colour);
    if colours.iter().enumerate().all(is_alone) { colours } else { vec![None; colours.len()] }
}

/// Of how many draws values are the mean, as the end of a title.
fn of_draws(plan: &Plan) -> String {
    if plan.draws.get() > 1 { format!(", mean of {} draws", plan.draws) } else { String::new() }
}

fn by_backend(plan: &Plan, measured: &[Measured], index: usize) -> Figure {
    let row = &plan.rows[index];
    let colours = colours(plan);
    let series = arms(plan, measured).zip(&colours).map(|((arm, rows), colour)| {
        let mut connections = rows[index].connections.clone();
        connections.sort_unstable_by(|a, b| b.cmp(a));
        let points = (1..).map(f64::from).zip(connections.into_iter().map(f64::from)).collect();
        Series {
            name: arm.name.clone(),
            kind: SeriesKind::Steps,
            points,
            look: Look { colour: *colour, dashed: false },
        }
    });
    Figure {
        id: format!("connections-{}", row.name()),
        title: format!(
            "Connections of each backend: {} clients with {} of {} backends each",
            row.clients, row.size, row.backends
        ),
        x: Axis::linear("backend, by rank", ""),
        y: Axis::linear("connections", ""),
        series: series.collect(),
        ..Figure::default()
    }
}

fn over_size(plan: &Plan, measured: &[Measured]) -> Figure {
    let mut series = Vec::new();
    for ((arm, rows), colour) in arms(plan, measured).zip(colours(plan)) {
        for (metric, name, dashed) in [("most_over_mean", "most", false), ("least_over_mean", "least", true)] {
            let mut points: Vec<(f64, f64)> = (plan.rows.iter().zip(rows))
                .map(|(row, measured)| {
                    let share = 100.0 * f64::from(row.size.get()) / f64::from(row.backends.get());
                    (share, measured.mean_of(metric))
                })
                .collect();
            points.sort_unstable_by(|a, b| a.0.total_cmp(&b.0));
            let (name, look) = (format!("{}, {name}", arm.name), Look { colour, dashed });
            series.push(Series { name, kind: SeriesKind::Line, points, look });
        }
    }
    let row = &plan.rows[0];
    Figure {
        id: "connections-over-size".to_owned(),
        title: format!(
            "Connections of the most and least connected backend: {} clients, {} backends{}",
            row.clients,
            row.backends,
            of_draws(plan),
        ),
        x: Axis::linear("subset size, of all backends", "%"),
        y: Axis::linear("connections over mean", "ratio"),
        series,
        ..Figure::default()
    }
}

fn after_failures(plan: &Plan, measured: &[Measured]) -> Figure {
    let mut series = Vec::new();
    for ((arm, rows), colour) in arms(plan, measured).zip(colours(plan)) {
        for (metric, name, dashed) in
            [("unreplaced_most_over_mean", "not replaced", false), ("replaced_most_over_mean", "replaced", true)]
        {
            let failing = plan.rows.iter().zip(rows).filter(|(row, _)| row.failures > 0);
            let points = failing.map(|(row, measured)| (f64::from(row.failures), measured.mean_of(metric)));
            let (name, look) = (format!("{}, {name}", arm.name), Look { colour, dashed });
            series.push(Series { name, kind: SeriesKind::Line, points: points.collect(), look });
        }
    }
    let size = plan.rows[0].size;
    Figure {
        id: "after-failures".to_owned(),
        title: "Load of the most loaded survivor after failures within one client's subset".to_owned(),
        x: Axis::linear(format!("failed backends, of {size} in the subset"), ""),
        y: Axis::linear("load over mean of the survivors", "ratio"),
        series,
        ..Figure::default()
    }
}
