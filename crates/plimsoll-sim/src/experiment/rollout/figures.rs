//! The figures of rollouts: requests until the verdict, and the estimates of CPU.

use super::Measured;
use crate::findings::{Axis, Figure, Merge, Series, SeriesKind};

/// Requests until the verdict of each arm, at the seed that needed most.
pub(super) fn requests(measured: &[Measured<'_>]) -> Figure {
    let points = (1..).map(f64::from).zip(measured.iter().map(|of| of.requests as f64));
    Figure {
        id: "requests".to_owned(),
        title: "Requests until the verdict".to_owned(),
        x: axis(measured),
        y: Axis::linear("requests", ""),
        series: vec![bars("requests", points)],
        merge: Merge::Max,
        ..Figure::default()
    }
}

/// The estimated difference in CPU per request at the verdict.
pub(super) fn cpu(measured: &[Measured<'_>]) -> Figure {
    let known = (1..).map(f64::from).zip(measured).filter(|(_, of)| of.report.metrics[0].is_known());
    let points = known.map(|(x, of)| (x, 100.0 * of.report.metrics[0].difference));
    Figure {
        id: "cpu".to_owned(),
        title: "Estimated difference in CPU per request".to_owned(),
        x: axis(measured),
        y: Axis::linear("canary over main version", "%"),
        series: vec![bars("estimate", points)],
        ..Figure::default()
    }
}

fn axis(measured: &[Measured<'_>]) -> Axis {
    Axis::named("canary", measured.iter().map(|of| &*of.arm.name))
}

fn bars(name: &str, points: impl Iterator<Item = (f64, f64)>) -> Series {
    Series { name: name.to_owned(), kind: SeriesKind::Bars, points: points.collect(), ..Series::default() }
}
