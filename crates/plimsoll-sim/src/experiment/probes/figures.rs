//! The figures of an experiment with probes.

use super::Measured;
use super::plan::{Occurrence, Plan};
use crate::findings::{Axis, Figure, Mark, MarkKind, Series, SeriesKind};

/// Milliseconds since the lame duck at which clients are counted.
const TIMES_MS: [f64; 20] =
    [1.0, 2.0, 3.0, 5.0, 7.0, 10.0, 20.0, 30.0, 50.0, 70.0, 100.0, 200.0, 300.0, 500.0, 1e3, 2e3, 5e3, 1e4, 2e4, 3e4];

pub(super) fn figures(plan: &Plan, measured: &[Measured<'_>]) -> Vec<Figure> {
    let known = plan.has_lame_duck().then(|| known_over_time(measured));
    known.into_iter().chain([datagrams_over_time(plan, measured)]).collect()
}

fn known_over_time(measured: &[Measured<'_>]) -> Figure {
    let of_arm = |of: &Measured<'_>| {
        let all = of.measure.probing.with(&of.measure.others);
        let share = |ms: f64| {
            let by_then = all.known.iter().filter(|time| time.as_secs_f64() * 1e3 <= ms).count();
            (ms, 100.0 * by_then as f64 / all.clients())
        };
        Series {
            name: of.arm.name.clone(),
            kind: SeriesKind::Line,
            points: TIMES_MS.into_iter().map(share).collect(),
            ..Series::default()
        }
    };
    Figure {
        id: "known-over-time".to_owned(),
        title: "Clients that know of the lame duck".to_owned(),
        x: Axis::logarithmic("time", "ms"),
        y: Axis::linear("clients", "%"),
        series: measured.iter().map(of_arm).collect(),
        ..Figure::default()
    }
}

fn datagrams_over_time(plan: &Plan, measured: &[Measured<'_>]) -> Figure {
    let every = plan.sample_every.as_secs_f64();
    let of_arm = |of: &Measured<'_>| {
        let points =
            (1..).map(f64::from).zip(&of.measure.by_sample).map(|(i, count)| (i * every, *count as f64 / every));
        Series { name: of.arm.name.clone(), kind: SeriesKind::Line, points: points.collect(), ..Series::default() }
    };
    let mark = |change: &super::plan::Change| {
        let label = match change.event {
            Occurrence::LameDuck => "lame duck",
            Occurrence::Restart { .. } => "restart",
            Occurrence::Block => "UDP blocked",
            Occurrence::Open => "UDP open",
        };
        Mark { at: change.at.as_secs_f64(), label: label.to_owned(), kind: MarkKind::Event }
    };
    Figure {
        id: "datagrams-over-time".to_owned(),
        title: "Datagrams, both ways".to_owned(),
        x: Axis::linear("time", "s"),
        y: Axis::linear("datagrams", "1/s"),
        series: measured.iter().map(of_arm).collect(),
        marks: plan.changes.iter().map(mark).collect(),
        ..Figure::default()
    }
}
