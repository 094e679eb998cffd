//! The figures of a subset experiment.

use super::measure::Measured;
use super::{Plan, Row};
use crate::findings::{Axis, Figure, Series, SeriesKind};

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

fn by_backend(plan: &Plan, measured: &[Measured], index: usize) -> Figure {
    let row = &plan.rows[index];
    let series = plan.arms.iter().zip(measured.chunks(plan.rows.len())).map(|(arm, rows)| {
        let mut connections = rows[index].connections.clone();
        connections.sort_unstable_by(|a, b| b.cmp(a));
        let points = (1..).map(f64::from).zip(connections.into_iter().map(f64::from)).collect();
        Series { name: arm.name.clone(), kind: SeriesKind::Steps, points, ..Series::default() }
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
    for (arm, rows) in plan.arms.iter().zip(measured.chunks(plan.rows.len())) {
        for (metric, name) in [("most_over_mean", "most"), ("least_over_mean", "least")] {
            let mut points: Vec<(f64, f64)> = (plan.rows.iter().zip(rows))
                .map(|(row, measured)| {
                    let share = 100.0 * f64::from(row.size.get()) / f64::from(row.backends.get());
                    (share, measured.mean_of(metric))
                })
                .collect();
            points.sort_unstable_by(|a, b| a.0.total_cmp(&b.0));
            series.push(Series {
                name: format!("{}, {name}", arm.name),
                kind: SeriesKind::Line,
                points,
                ..Series::default()
            });
        }
    }
    let row = &plan.rows[0];
    Figure {
        id: "connections-over-size".to_owned(),
        title: format!(
            "Connections of the most and least connected backend: {} clients, {} backends",
            row.clients, row.backends
        ),
        x: Axis::linear("subset size, of all backends", "%"),
        y: Axis::linear("connections over mean", "ratio"),
        series,
        ..Figure::default()
    }
}

fn after_failures(plan: &Plan, measured: &[Measured]) -> Figure {
    let mut series = Vec::new();
    for (arm, rows) in plan.arms.iter().zip(measured.chunks(plan.rows.len())) {
        for (metric, name) in [("unreplaced_most_over_mean", "not replaced"), ("replaced_most_over_mean", "replaced")] {
            let failing = plan.rows.iter().zip(rows).filter(|(row, _)| row.failures > 0);
            let points = failing.map(|(row, measured)| (f64::from(row.failures), measured.mean_of(metric)));
            series.push(Series {
                name: format!("{}, {name}", arm.name),
                kind: SeriesKind::Line,
                points: points.collect(),
                ..Series::default()
            });
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
