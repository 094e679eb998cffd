//! The figures of worked examples.

use plimsoll_core::throttle::adaptive::rejection_probability;

use super::{Aperture, Throttle};
use crate::findings::{Axis, Figure, Series, SeriesKind};

/// Clients whose arcs are drawn; more would hide each other.
pub(super) const SHOWN_CLIENTS: usize = 4;
/// Points of a curve.
const CURVE: u32 = 100;

/// Active requests before, and the picks on top of them.
pub(super) fn least_loaded(active: &[u32], picks: &[u32]) -> Figure {
    let bars = |name: &str, values: Vec<u32>| Series {
        name: name.to_owned(),
        kind: SeriesKind::Bars,
        points: (0..).map(f64::from).zip(values.into_iter().map(f64::from)).collect(),
        ..Series::default()
    };
    let after = active.iter().zip(picks).map(|(active, picks)| active + picks).collect();
    Figure {
        id: "least-loaded".to_owned(),
        title: "Active requests before and after the next picks".to_owned(),
        x: Axis::linear("backend", ""),
        y: Axis::linear("active requests", ""),
        series: vec![bars("before", active.to_vec()), bars("after", after)],
        ..Figure::default()
    }
}

/// The probability over the share that is accepted, one curve for each K, with the points asked for.
pub(super) fn throttle(points: &[Throttle]) -> Figure {
    let mut ks: Vec<f64> = points.iter().map(|point| point.k).collect();
    ks.sort_unstable_by(f64::total_cmp);
    ks.dedup();
    let requests = points.iter().map(|point| point.requests).fold(1.0, f64::max);
    let curve = |k: f64| {
        let at = |i: u32| f64::from(i) / f64::from(CURVE);
        let points = (0..=CURVE).map(|i| (100.0 * at(i), rejection_probability(requests, requests * at(i), k)));
        Series { name: format!("K = {k}"), kind: SeriesKind::Line, points: points.collect(), ..Series::default() }
    };
    let mut series: Vec<Series> = ks.into_iter().map(curve).collect();
    let share = |point: &Throttle| 100.0 * point.accepts / point.requests.max(1.0);
    let mut asked: Vec<(f64, f64)> =
        points.iter().map(|p| (share(p), rejection_probability(p.requests, p.accepts, p.k))).collect();
    asked.sort_unstable_by(|a, b| a.0.total_cmp(&b.0));
    series.push(Series {
        name: "checked points".to_owned(),
        kind: SeriesKind::Points,
        points: asked,
        ..Series::default()
    });
    Figure {
        id: "equation-21-1".to_owned(),
        title: "Probability that a client throttles its own request".to_owned(),
        x: Axis::linear("requests accepted by the backend", "%"),
        y: Axis::linear("probability", ""),
        series,
        ..Figure::default()
    }
}

/// How much of each backend the first clients cover.
pub(super) fn aperture(fleet: &Aperture, arcs: &[Vec<(u32, f64)>]) -> Figure {
    let series = arcs.iter().enumerate().map(|(client, arc)| {
        let mut covered = vec![0.0; fleet.backends.get() as usize];
        arc.iter().for_each(|(backend, fraction)| covered[*backend as usize] = *fraction);
        Series {
            name: format!("client {client}"),
            kind: SeriesKind::Bars,
            points: (0..).map(f64::from).zip(covered).collect(),
            ..Series::default()
        }
    });
    Figure {
        id: format!("aperture-{}", fleet.name),
        title: format!(
            "Share of each backend that a client covers: {} clients, {} backends",
            fleet.clients, fleet.backends
        ),
        x: Axis::linear("backend", ""),
        y: Axis::linear("covered", "backends"),
        series: series.collect(),
        ..Figure::default()
    }
}
